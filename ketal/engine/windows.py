"""Windows: `within 5 s`, `within 100 events` (DESIGN 3), and what they end.

The one rule: a window is part of acceptance. An event that does not fit is not
taken, whether or not the window's end has been heard of; ending it only lets go
of what no later event can fit.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from ketal.engine.configurations import Machine, Seen
from ketal.engine.partial_matches import Found, Partial, Taken

T = TypeVar("T")


class Window:
    """`within`: whether an event fits a partial match."""

    __slots__ = ("events", "us")

    def __init__(self, machine: Machine) -> None:
        self.us = machine.compiled.window_us
        self.events = machine.compiled.window_events

    def low(self, partial: Partial) -> int:
        """Return the time or place that a partial match's window counts from."""
        if self.us is None:
            return partial.low_place
        assert partial.low_us is not None
        return partial.low_us

    def fits(self, partial: Partial, seen: Seen) -> bool:
        """Return whether the window holds the event beside what is taken."""
        if self.us is not None:
            low, high, time = partial.low_us, partial.high_us, seen.time_us
            assert low is not None
            assert high is not None
            assert time is not None
            return max(high, time) - min(low, time) < self.us
        if self.events is not None:
            place = seen.place
            return max(partial.high_place, place) - min(partial.low_place, place) < self.events
        return True


class Expiring(Generic[T]):
    """What a window will end, by the time or place that it counts from."""

    __slots__ = ("_heap", "_number")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, T]] = []
        self._number = 0

    def add(self, low: int, item: T) -> None:
        """Put in what counts from `low`."""
        self._number += 1
        heapq.heappush(self._heap, (low, self._number, item))

    def earliest(self, alive: Callable[[T], bool]) -> int | None:
        """Return what the first that is alive counts from; None if none is."""
        heap = self._heap
        while heap and not alive(heap[0][2]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def passed(self, last: int) -> Iterator[T]:
        """Take out, in order, and yield what counts from `last` or before."""
        while self._heap and self._heap[0][0] <= last:
            yield heapq.heappop(self._heap)[2]

    def clear(self) -> None:
        """Let go of everything."""
        self._heap.clear()


class EarliestAfter:
    """The earliest time among a node's events that come after a counter.

    Only an event with no earlier one after it can be the answer; those are kept, so
    their times rise with their counters.
    """

    __slots__ = ("_counters", "_times")

    def __init__(self) -> None:
        self._counters: list[int] = []
        self._times: list[int] = []

    def add(self, counter: int, time_us: int) -> None:
        """Put an event in."""
        at = bisect_left(self._counters, counter)
        if at < len(self._times) and self._times[at] <= time_us:
            return
        first = at
        while first and self._times[first - 1] >= time_us:
            first -= 1
        self._counters[first:at] = [counter]
        self._times[first:at] = [time_us]

    def after(self, counter: int) -> int | None:
        """Return the earliest time after a counter, None if nothing is."""
        at = bisect_right(self._counters, counter)
        return self._times[at] if at < len(self._times) else None


class Firsts:
    """For `find any`: the first-step events whose window is open and that matched nothing."""

    __slots__ = ("_expiring", "waiting", "window")

    def __init__(self, window: Window) -> None:
        self.window = window
        self.waiting: dict[int, tuple[int, Seen]] = {}
        self._expiring: Expiring[int] = Expiring()

    def add(self, seen: Seen, step: int) -> None:
        """Wait for a match of an event that can be first."""
        self.waiting[seen.place] = (step, seen)
        if self.window.us is not None:
            assert seen.time_us is not None
            self._expiring.add(seen.time_us, seen.place)

    def matched(self, matches: Iterable[Taken]) -> None:
        """Note that the events of these matches are in one."""
        if self.waiting:
            for taken in matches:
                for _, seen in taken:
                    self.waiting.pop(seen.place, None)

    def expire_places(self, last: int, found: Found) -> None:
        """Time out what came at place `last` or before."""
        while self.waiting:
            place = next(iter(self.waiting))
            if place > last:
                return
            found.timed_out.append((self.waiting.pop(place),))

    def expire_times(self, last_us: int, found: Found) -> None:
        """Time out, in event-time order, what has time `last_us` or an earlier one."""
        for place in self._expiring.passed(last_us):
            if place in self.waiting:
                found.timed_out.append((self.waiting.pop(place),))

    def end(self, found: Found) -> None:
        """Time out everything."""
        found.timed_out.extend((first,) for first in self.waiting.values())
        self.waiting.clear()
        self._expiring.clear()

    def earliest(self) -> int | None:
        """Return the first time that waits to be timed out."""
        return self._expiring.earliest(self.waiting.__contains__)
