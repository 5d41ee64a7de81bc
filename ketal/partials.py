"""Partial matches, and how an event finds those it extends (DESIGN 4 and 6).

Seen from an event e, another node's events are a prefix that happened-before e,
a suffix that e happened-before, and a range between of concurrent ones. So
partial matches are kept by the node and counter of their prior event, and what
e relates to is found by bisection.

The one rule: a partial match is kept in one place, and taken out of it.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ketal.runs import Configuration, Machine, Plan, Seen, SubPlan

Taken = tuple[tuple[int, Seen], ...]
"""What was bound, in order: (step number, event)."""


class Partial:
    """A partial match: a configuration, and how it came about."""

    __slots__ = (
        "configuration",
        "high_place",
        "high_us",
        "join",
        "low_place",
        "low_us",
        "run",
        "taken",
    )

    def __init__(
        self,
        configuration: Configuration,
        taken: Taken,
        run: Run | None,
        join: dict[str, int] | None,
        parent: Partial | None,
    ) -> None:
        self.configuration = configuration
        self.taken = taken
        self.run = run
        self.join = join
        seen = taken[-1][1]
        time, place = seen.time_us, seen.place
        if parent is None:
            self.low_us = self.high_us = time
            self.low_place = self.high_place = place
        else:
            self.low_place = min(parent.low_place, place)
            self.high_place = max(parent.high_place, place)
            low, high = parent.low_us, parent.high_us
            if low is None or high is None or time is None:
                self.low_us = self.high_us = None
            else:
                self.low_us, self.high_us = min(low, time), max(high, time)

    @property
    def prior(self) -> Seen:
        """The last event taken."""
        return self.taken[-1][1]


class Run:
    """All partial matches of `find next` or `find strict` that one event started."""

    __slots__ = ("matched", "over", "partials", "start")

    def __init__(self, start: Seen) -> None:
        self.start = start
        self.partials: dict[Partial, None] = {}
        self.matched = False
        self.over = False


@dataclass(slots=True)
class Found:
    """What one event, or the passing of time, brought about in a scope.

    Attributes
    ----------
    matches : list of Taken
        Complete matches, mirror images removed.
    timed_out : list of Taken
        Runs or first-step events whose window ended without a match.
    overflows : list of (str, str, Seen or None)
        (limit, what was given up, the event) for each limit reached.
    """

    matches: list[Taken] = field(default_factory=list)
    timed_out: list[Taken] = field(default_factory=list)
    overflows: list[tuple[str, str, Seen | None]] = field(default_factory=list)
    moves: list[tuple[int, int, int, Seen]] = field(default_factory=list)


class Line:
    """The events of one node, by counter, each with what is kept for it."""

    __slots__ = ("counters", "items", "seens")

    def __init__(self) -> None:
        self.counters: list[int] = []
        self.seens: list[Seen] = []
        self.items: list[Any] = []

    def at(self, seen: Seen) -> int | None:
        """Return the index of an event, None if it is not here."""
        i = bisect_left(self.counters, seen.counter)
        return i if i < len(self.counters) and self.counters[i] == seen.counter else None

    def insert(self, seen: Seen, item: Any) -> None:
        """Put an event in its place; most come last."""
        if not self.counters or self.counters[-1] < seen.counter:
            i = len(self.counters)
        else:
            i = bisect_left(self.counters, seen.counter)
        self.counters.insert(i, seen.counter)
        self.seens.insert(i, seen)
        self.items.insert(i, item)

    def remove(self, i: int) -> None:
        """Take out what is at index `i`."""
        del self.counters[i], self.seens[i], self.items[i]

    def knows_from(self, node: str, counter: int, low: int) -> int:
        """Return the index, from `low`, of the first event that (node, counter) is not after."""
        return bisect_left(self.seens, counter, low, key=lambda s: s.clock.get(node, 0))


class PriorIndex:
    """The partial matches of one state, by the node and counter of their prior event.

    Parameters
    ----------
    nodes : iterable of str
        Nodes to look through first, in this order.
    """

    __slots__ = ("count", "lines")

    def __init__(self, nodes: Iterable[str] = ()) -> None:
        self.lines: dict[str, Line] = {node: Line() for node in nodes}
        self.count = 0

    def add(self, partial: Partial) -> None:
        """Put a partial match in."""
        prior = partial.prior
        line = self.lines.get(prior.node)
        if line is None:
            line = self.lines[prior.node] = Line()
        i = line.at(prior)
        if i is None:
            line.insert(prior, {partial: None})
        else:
            line.items[i][partial] = None
        self.count += 1

    def remove(self, partial: Partial) -> None:
        """Take a partial match out."""
        line = self.lines[partial.prior.node]
        i = line.at(partial.prior)
        assert i is not None, "a partial match that is not in its index"
        del line.items[i][partial]
        if not line.items[i]:
            line.remove(i)
        self.count -= 1

    def __iter__(self) -> Iterator[Partial]:
        for line in self.lines.values():
            for item in line.items:
                yield from item

    def candidates(self, plan: Plan, seen: Seen) -> Iterator[tuple[SubPlan, Iterable[Any]]]:
        """Yield (sub-plan, groups of partial matches whose prior event stands in its relation)."""
        for node, line in self.lines.items():
            if not plan.reads_prior:
                assert plan.unbound is not None
                yield plan.unbound, line.items
                continue
            # Up to `before`: prior → e. From `after` on: e → prior. Between: concurrent.
            if node == seen.node:
                before = after = bisect_left(line.counters, seen.counter)
            else:
                before = bisect_right(line.counters, seen.clock.get(node, 0))
                after = line.knows_from(seen.node, seen.counter, before)
            if plan.before is not None and before:
                yield plan.before, line.items[:before]
            if plan.concurrent is not None and after > before:
                yield plan.concurrent, line.items[before:after]
            if plan.after is not None and after < len(line.items):
                yield plan.after, line.items[after:]


class Window:
    """`within`: whether an event still fits to a partial match."""

    __slots__ = ("events", "us")

    def __init__(self, machine: Machine) -> None:
        self.us = machine.compiled.window_us
        self.events = machine.compiled.window_events

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


def rank(taken: Taken) -> tuple[Any, ...]:
    """Return what the least of mirror images is least in: its events, then its steps."""
    return tuple(s.key for _, s in taken), tuple(step for step, _ in taken)


class Firsts:
    """For `find any`: the first-step events whose window is open and that matched nothing."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.waiting: dict[int, tuple[int, Seen]] = {}
        self._by_time: list[tuple[int, int]] = []

    def add(self, seen: Seen, step: int) -> None:
        """Wait for a match of an event that can be first."""
        self.waiting[seen.place] = (step, seen)
        if seen.time_us is not None:
            heapq.heappush(self._by_time, (seen.time_us, seen.place))

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

    def advance(self, watermark_us: int | None, found: Found) -> None:
        """Time out what a watermark (None: the end) has passed, in event-time order."""
        if watermark_us is None:
            found.timed_out.extend((first,) for first in self.waiting.values())
            self.waiting.clear()
            self._by_time.clear()
            return
        if self.window.us is None:
            return
        while self._by_time and self._by_time[0][0] + self.window.us <= watermark_us:
            _, place = heapq.heappop(self._by_time)
            if place in self.waiting:
                found.timed_out.append((self.waiting.pop(place),))
