"""The clocks of the last events, and their closures once those are computed.

Restoring a clock and naming an incarnation both need other events' clocks. The last clock
of each node is not enough: a message in flight has an event in its past that is not its
sender's latest.

The one rule: at most `clocks_max` clocks are held, and at most `entries_max` entries of closures
that are no clocks of events, but for those of one closure.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

Clock = dict[str, int]
SeenDots = Mapping[str, tuple[int, Sequence[int]]]
"""By node, the counter up to which all of its events were seen, and the counters seen beyond."""


def difference(before: Clock, clock: Clock) -> tuple[Clock, list[str]]:
    """Return how a clock differs from `before`: the new or changed entries, and the dropped names.

    They are in the order of the clock and of names, so that a snapshot depends on no hash.
    """
    entries = {name: counter for name, counter in clock.items() if before.get(name) != counter}
    return entries, sorted(before.keys() - clock.keys())


def changed_clock(before: Clock, entries: Clock, dropped: Iterable[str]) -> Clock:
    """Return the clock `before` with the changes that `difference` returned."""
    clock = {**before, **entries}
    for name in dropped:
        del clock[name]
    return clock


@dataclass(slots=True)
class KnownClock:
    """The clock that an event arrived with, and its closure."""

    counter: int
    clock: Clock
    closure: Clock | None = None  # as computed last; None if it was not computed
    final: bool = False  # whether the closure cannot grow any more

    @property
    def past(self) -> Clock:
        """The closure if it was computed, else the clock."""
        return self.closure or self.clock

    @property
    def restored_count(self) -> int:
        """How many entries its closure has, 0 if the clock is the closure."""
        return 0 if self.past is self.clock else len(self.past)


class ClockMemory:
    """The clocks of the last events, and their closures once those are computed.

    Beyond `clocks_max` clocks, or `entries_max` entries of closures, the oldest eighth by arrival
    is evicted. Clocks are shared with their events, not copied.
    """

    def __init__(self, clocks_max: int, entries_max: int = sys.maxsize) -> None:
        self.clocks_max = clocks_max
        self.entries_max = entries_max
        self._restored_count = 0
        self._events: dict[tuple[str, int], KnownClock] = {}  # in order of arrival
        self._counters: dict[str, list[int]] = {}  # of each node, sorted
        self.dirty: dict[tuple[str, int], bool] | None = None
        """The events that arrived, were evicted or were given a closure since the last save, and
        whether they arrived; None where that is not tracked."""

    def begin(self, arrivals: Iterable[tuple[str, int, Clock]]) -> None:
        """Load distinct events (node, counter, clock), in order of arrival, into a fresh memory."""
        for node, counter, clock in arrivals:
            self._events[node, counter] = KnownClock(counter, clock)
            self._counters.setdefault(node, []).append(counter)
        for counters in self._counters.values():
            counters.sort()
        self._evict(max(0, len(self._events) - self.clocks_max))

    def items(self) -> Iterator[tuple[str, int, Clock]]:
        """Yield node, counter and clock of the events, in order of arrival."""
        for (node, counter), known in self._events.items():
            yield node, counter, known.clock

    def put(self, node: str, counter: int, clock: Clock) -> None:
        """Add the clock of an event that arrived; change nothing if it is held already."""
        dot = (node, counter)
        if dot in self._events:
            return
        self._events[dot] = KnownClock(counter, clock)
        insort(self._counters.setdefault(node, []), counter)
        if self.dirty is not None:
            self.dirty.pop(dot, None)
            self.dirty[dot] = True
        if len(self._events) > self.clocks_max:
            self._evict(max(1, self.clocks_max // 8))

    def _evict(self, count: int) -> None:
        """Evict the `count` oldest clocks."""
        evicted: dict[str, set[int]] = {}
        for dot in list(islice(self._events, count)):
            self._restored_count -= self._events.pop(dot).restored_count
            node, counter = dot
            evicted.setdefault(node, set()).add(counter)
            if self.dirty is not None:
                self.dirty[dot] = False
        for node, counters in evicted.items():
            self._counters[node] = [c for c in self._counters[node] if c not in counters]

    def close(
        self, node: str, counter: int, clock: Clock, closure: Clock, *, final: bool = True
    ) -> None:
        """Set the closure of an event; `final` is whether it cannot grow any more."""
        held = self.find(node, counter)
        arrived = clock if held is None else held.clock  # `clock` may be restored in part already
        if closure == arrived:
            closure = arrived
        added = 0 if closure is arrived else len(closure)
        # First, since the event itself may be the oldest.
        while added and self._restored_count and self._restored_count + added > self.entries_max:
            self._evict(max(1, len(self._events) // 8))
        self.put(node, counter, arrived)
        known = self.find(node, counter)
        if known is not None:
            self._restored_count -= known.restored_count
            known.closure, known.final = closure, final
            self._restored_count += known.restored_count
            if self.dirty is not None:
                self.dirty.setdefault((node, counter), False)

    def find(self, node: str, counter: int) -> KnownClock | None:
        """Return the clock that is held of an event; None if none is."""
        return self._events.get((node, counter))

    def below(self, node: str, counter: int) -> KnownClock | None:
        """Return the node's last event before `counter`."""
        counters = self._counters.get(node, ())
        at = bisect_left(counters, counter)
        return self._events[node, counters[at - 1]] if at else None

    def above(self, node: str, counter: int) -> KnownClock | None:
        """Return the node's first event after `counter`."""
        counters = self._counters.get(node, ())
        at = bisect_right(counters, counter)
        return self._events[node, counters[at]] if at < len(counters) else None

    def rows(self, dots: Iterable[tuple[str, int]]) -> list[Any]:
        """Return held events, in order of arrival, as plain data.

        Each clock is saved by its difference from the node's last one.
        """
        rows = []
        last: dict[str, Clock] = {}
        for node, counter in dots:
            known = self._events[node, counter]
            clock, closure, before = known.clock, known.closure, last.get(node, {})
            raised = None if closure is None else difference(clock, closure)[0]
            rows.append([node, counter, *difference(before, clock), raised, known.final])
            last[node] = clock
        return rows

    def load(self, rows: Iterable[Any]) -> None:
        """Add the events that `rows` returned; beyond the limits, the oldest are evicted."""
        last: dict[str, Clock] = {}
        for node, counter, entries, dropped, raised, fixed in rows:
            clock = last[node] = changed_clock(last.get(node, {}), entries, dropped)
            self.put(node, counter, clock)
            if raised is not None:
                closure = {**clock, **raised} if raised else clock
                self.close(node, counter, clock, closure, final=fixed)

    def validate_state(self) -> None:
        """Assert that the limits are kept, and that the entries of closures are counted."""
        counts = [known.restored_count for known in self._events.values()]
        assert len(counts) <= self.clocks_max
        assert sum(counts) == self._restored_count
        assert self._restored_count <= self.entries_max or sum(map(bool, counts)) == 1
