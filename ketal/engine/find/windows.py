"""Windows: `within 5 s`, `within 100 events`, and the runs and events that expire with them.

A window is part of acceptance: an event that does not fit is not taken, whether or not the
end of the window has been reached. Expiry only removes state that no later event can fit.

The one rule: each entry expires once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from math import inf
from typing import Any, Final

from ketal.engine.configurations import Seen, SeenTable
from ketal.engine.find.findings import Findings, Taken
from ketal.engine.machine import Machine

FOREVER: Final = 1 << 60
"""Later than every time and place: the earliest one where there is none."""


PLACE_BITS: Final = 48
"""The bits of a place in an entry of `Expiring`: a scope is offered fewer events than 2 ** 48."""
LAST_PLACE: Final = (1 << PLACE_BITS) - 1


class MatchWindow:
    """`within`: how far the events of a match may lie apart, in microseconds or in places."""

    __slots__ = ("bounded", "events", "length", "us")

    def __init__(self, machine: Machine) -> None:
        # The length in microseconds, or in places; None if it is not given so.
        self.us, self.events = machine.compiled.window_us, machine.compiled.window_events
        self.bounded = self.us is not None or self.events is not None
        # The least distance between two events that do not fit in one match.
        self.length: float = self.us if self.us is not None else self.events or inf

    def position(self, seen: Seen) -> int:
        """Return the time or place of an event, by which the window is measured."""
        return seen.place if self.us is None else seen.time_us


class Expiring:
    """A queue of events by the start (time or place) of their windows, which expire in that order.

    It is a heap of places, so clocks that are set back or run ahead cost O(log n) and no memory.
    An entry is one integer, the start before the place: 40 bytes, a third of a pair of integers.
    """

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def earliest(self) -> int:
        """The earliest start, whether or not its event is alive; FOREVER if there is none."""
        return self._heap[0] >> PLACE_BITS if self._heap else FOREVER

    def add(self, low: int, place: int) -> None:
        """Add the event at a place, whose window starts at `low`."""
        heappush(self._heap, low << PLACE_BITS | place)

    def earliest_alive(self, alive: dict[int, Any]) -> int:
        """Return the earliest start of an event in `alive`; FOREVER if there is none."""
        heap = self._heap
        while heap and heap[0] & LAST_PLACE not in alive:
            heappop(heap)
        return self.earliest

    def take_passed(self, last: float) -> Iterator[int]:
        """Remove and yield, in order, the events whose windows start at `last` or before."""
        while self.earliest <= last and self._heap:
            yield heappop(self._heap) & LAST_PLACE


class UnmatchedStarts:
    """For `find any`: the first-step events whose window is open and that are in no match."""

    __slots__ = ("_expiring", "waiting", "window")

    def __init__(self, window: MatchWindow) -> None:
        self.window = window
        self.waiting: dict[int, tuple[int, Seen]] = {}
        self._expiring = Expiring()

    def add(self, seen: Seen, step: int, position: int) -> None:
        """Add an event that can be first, whose window starts at `position`."""
        self.waiting[seen.place] = (step, seen)
        self._expiring.add(position, seen.place)

    def seens(self) -> Iterator[Seen]:
        """Yield the events that wait, in the order offered."""
        return (seen for _, seen in self.waiting.values())

    def matched(self, matches: Iterable[Taken]) -> None:
        """Remove the events of these matches."""
        waiting = self.waiting
        if waiting:
            for taken in matches:
                for _, seen in taken:
                    if seen.place in waiting:
                        del waiting[seen.place]

    def expire(self, last: int, findings: Findings) -> None:
        """Time out, in order, the events whose windows start at `last` or before."""
        for place in self._expiring.take_passed(last):
            if place in self.waiting:
                findings.timed_out.append((self.waiting.pop(place),))

    def end(self, findings: Findings) -> None:
        """Time out all events that wait."""
        findings.timed_out.extend((first,) for first in self.waiting.values())
        self.waiting.clear()

    @property
    def earliest(self) -> int:
        """The earliest start of a window that waits to expire; FOREVER if there is none."""
        return self._expiring.earliest_alive(self.waiting)

    # --- state ---

    def save(self, seens: SeenTable) -> Any:
        """Return the events as plain data; `seens` numbers them."""
        return [[step, seens.number(seen)] for step, seen in self.waiting.values()]

    def load(self, value: Any, seens: SeenTable) -> None:
        """Load the events that `save` returned."""
        for step, number in value:
            self.add(seens[number], step, self.window.position(seens[number]))
