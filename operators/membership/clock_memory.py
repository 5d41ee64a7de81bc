"""The clocks of the last events, and their closures once those are computed.

To restore a clock and to name an incarnation both need other events' clocks. The last clock
of each node is not enough: a message in flight has an event in its past that is not its
sender's latest.

The one rule: at most `clocks_max` clocks are held, and of each node the highest counter that
was evicted is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Clock = dict[str, int]


def difference(before: Clock, clock: Clock) -> tuple[Clock, list[str]]:
    """Return what differs from another clock: entries that are new or have moved, names dropped.

    In the order of the clock and of names, not of a set: a snapshot depends on no hash.
    """
    entries = {name: counter for name, counter in clock.items() if before.get(name) != counter}
    return entries, sorted(before.keys() - clock.keys())


def changed_clock(before: Clock, entries: Clock, dropped: Iterable[str]) -> Clock:
    """Return the clock of which `difference` returned what differs from another."""
    clock = {**before, **entries}
    for name in dropped:
        del clock[name]
    return clock


class _NodeClocks:
    """The events of one node, by counter, in columns.

    A closure is None until it is computed; `final` is whether it cannot grow any more.
    """

    __slots__ = ("clocks", "closures", "counters", "final")

    def __init__(self) -> None:
        self.counters: list[int] = []
        self.clocks: list[Clock] = []
        self.closures: list[Clock | None] = []
        self.final: list[bool] = []

    def put(self, counter: int, clock: Clock) -> int | None:
        """Insert an event by its counter; return its place, None if it was there."""
        at = len(self.counters)
        if at and self.counters[-1] >= counter:
            at = bisect_left(self.counters, counter)
            if self.counters[at] == counter:
                return None
        self.counters.insert(at, counter)
        self.clocks.insert(at, clock)
        self.closures.insert(at, None)
        self.final.insert(at, False)
        return at

    def find(self, counter: int) -> int | None:
        """Return the place of an event, None if it is not there."""
        at = bisect_left(self.counters, counter)
        return at if at < len(self.counters) and self.counters[at] == counter else None

    def remove(self, counters: set[int]) -> None:
        """Remove the events of some counters."""
        places = [i for i, counter in enumerate(self.counters) if counter not in counters]
        self.counters = [self.counters[i] for i in places]
        self.clocks = [self.clocks[i] for i in places]
        self.closures = [self.closures[i] for i in places]
        self.final = [self.final[i] for i in places]


_NONE = _NodeClocks()
"""The columns of a node without events."""


class ClockMemory:
    """The clocks of the last events, and their closures once those are computed.

    Parameters
    ----------
    clocks_max : int
        How many are held; the oldest eighth, by arrival, is evicted at once.

    Attributes
    ----------
    evicted : dict of str to int
        Of each node, the highest counter that was evicted.
    dirty : dict of (str, int) to bool, or None
        The events that arrived, were evicted or were given a closure since the last save, and
        whether they arrived; None where that is not tracked.

    Notes
    -----
    Clocks are shared with their events, not copied.
    """

    def __init__(self, clocks_max: int) -> None:
        self.clocks_max = clocks_max
        self.evicted: dict[str, int] = {}
        self._nodes: dict[str, _NodeClocks] = {}
        self._oldest: deque[tuple[str, int]] = deque()
        self.dirty: dict[tuple[str, int], bool] | None = None

    def begin(self, arrivals: Iterable[tuple[str, int, Clock]]) -> None:
        """Load distinct events (node, counter, clock), in order of arrival, into a fresh memory."""
        by_node: dict[str, dict[int, Clock]] = {}
        for node, counter, clock in arrivals:
            by_node.setdefault(node, {})[counter] = clock
            self._oldest.append((node, counter))
        for node, clocks in by_node.items():
            columns = self._nodes[node] = _NodeClocks()
            columns.counters = sorted(clocks)
            columns.clocks = [clocks[counter] for counter in columns.counters]
            columns.closures = [None] * len(clocks)
            columns.final = [False] * len(clocks)
        if len(self._oldest) > self.clocks_max:
            self._evict(len(self._oldest) - self.clocks_max)

    def items(self) -> Iterator[tuple[str, int, Clock]]:
        """Yield node, counter and clock of the events, in order of arrival."""
        for node, counter in self._oldest:
            clock = self.get(node, counter)
            assert clock is not None, "what is in the queue is in its columns"
            yield node, counter, clock

    def put(self, node: str, counter: int, clock: Clock) -> None:
        """Add the clock of an event that arrived; nothing if it is there already."""
        columns = self._nodes.get(node)
        if columns is None:
            columns = self._nodes[node] = _NodeClocks()
        if columns.put(counter, clock) is None:
            return
        self._oldest.append((node, counter))
        if self.dirty is not None:
            self.dirty.pop((node, counter), None)
            self.dirty[node, counter] = True
        if len(self._oldest) > self.clocks_max:
            self._evict(max(1, self.clocks_max // 8))

    def _evict(self, count: int) -> None:
        """Evict the oldest, so many."""
        evicted: dict[str, set[int]] = {}
        for _ in range(count):
            node, counter = self._oldest.popleft()
            evicted.setdefault(node, set()).add(counter)
            if self.dirty is not None:
                self.dirty[node, counter] = False
        for node, counters in evicted.items():
            self.evicted[node] = max(self.evicted.get(node, 0), *counters)
            self._nodes[node].remove(counters)

    def close(
        self, node: str, counter: int, clock: Clock, closure: Clock, *, final: bool = True
    ) -> None:
        """Set the closure of an event; `final` is whether it cannot grow any more."""
        self.put(node, counter, clock)
        columns = self._nodes[node]
        at = columns.find(counter)
        if at is not None:
            columns.closures[at] = closure
            columns.final[at] = final
            if self.dirty is not None:
                self.dirty.setdefault((node, counter), False)

    def _find(self, node: str, counter: int) -> tuple[_NodeClocks, int] | None:
        """Return the columns and the place of an event, None if it is not held."""
        columns = self._nodes.get(node, _NONE)
        at = columns.find(counter)
        return None if at is None else (columns, at)

    def get(self, node: str, counter: int) -> Clock | None:
        """Return the clock that an event arrived with."""
        found = self._find(node, counter)
        return None if found is None else found[0].clocks[found[1]]

    def closure(self, node: str, counter: int) -> Clock | None:
        """Return the closure of an event as computed last, None if it was not."""
        found = self._find(node, counter)
        return None if found is None else found[0].closures[found[1]]

    def is_final(self, node: str, counter: int) -> bool:
        """Return whether the closure of an event is computed and cannot grow any more."""
        found = self._find(node, counter)
        return found is not None and found[0].final[found[1]]

    def below(self, node: str, counter: int) -> tuple[int, Clock, Clock | None] | None:
        """Return counter, clock and closure of the node's last event before `counter`."""
        columns = self._nodes.get(node, _NONE)
        at = bisect_left(columns.counters, counter)
        if not at:
            return None
        return columns.counters[at - 1], columns.clocks[at - 1], columns.closures[at - 1]

    def reached(self, node: str, counter: int) -> int:
        """Return the highest counter up to `counter` that is held of a node; 0 for none."""
        counters = self._nodes.get(node, _NONE).counters
        at = bisect_right(counters, counter)
        return counters[at - 1] if at else 0

    def above(self, node: str, counter: int) -> Clock | None:
        """Return the clock of the node's first event after `counter`."""
        columns = self._nodes.get(node, _NONE)
        at = bisect_right(columns.counters, counter)
        return columns.clocks[at] if at < len(columns.counters) else None

    def rows(self, dots: Iterable[tuple[str, int]]) -> list[Any]:
        """Return events as plain data; each clock as what differs from its node's last.

        Parameters
        ----------
        dots : iterable of (str, int)
            Some that are held, in order of arrival.
        """
        rows = []
        last: dict[str, Clock] = {}
        for node, counter in dots:
            columns = self._nodes[node]
            at = columns.find(counter)
            assert at is not None, "what is in the queue is in its columns"
            clock, closure, before = columns.clocks[at], columns.closures[at], last.get(node, {})
            raised = None if closure is None else difference(clock, closure)[0]
            rows.append([node, counter, *difference(before, clock), raised, columns.final[at]])
            last[node] = clock
        return rows

    def load(self, rows: Iterable[Any]) -> None:
        """Add the events that `rows` returned."""
        last: dict[str, Clock] = {}
        for node, counter, entries, dropped, raised, fixed in rows:
            clock = last[node] = changed_clock(last.get(node, {}), entries, dropped)
            self.put(node, counter, clock)
            if raised is not None:
                closure = {**clock, **raised} if raised else clock
                self.close(node, counter, clock, closure, final=fixed)

    def load_evicted(self, evicted: Mapping[str, int]) -> None:
        """Load `evicted` of a saved memory, after all of its rows.

        A smaller limit than that of the saved memory evicts more, as arrivals would.
        """
        for node, counter in evicted.items():
            self.evicted[node] = max(counter, self.evicted.get(node, 0))
