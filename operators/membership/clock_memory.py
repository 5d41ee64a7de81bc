"""The clocks of the last events, for what reads them again (DESIGN 5, 9).

Restoring a clock and naming an incarnation both look back at other events'
clocks. One clock a node is not enough: a message in flight makes known an event
that is not its sender's latest.

The one rule: at most `clocks_max` clocks are kept, and what was given up is
known, node by node.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Clock = dict[str, int]


def _changed(before: Clock, clock: Clock) -> Clock:
    return {name: counter for name, counter in clock.items() if before.get(name) != counter}


class _Line:
    """The kept events of one node, by counter.

    A closure is None until it is asked for; then `final` says whether it can still grow.
    """

    __slots__ = ("clocks", "closures", "counters", "final")

    def __init__(self) -> None:
        self.counters: list[int] = []
        self.clocks: list[Clock] = []
        self.closures: list[Clock | None] = []
        self.final: list[bool] = []

    def put(self, counter: int, clock: Clock) -> int | None:
        """Put an event in its place; return the place, None if it was there."""
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
        at = bisect_left(self.counters, counter)
        return at if at < len(self.counters) and self.counters[at] == counter else None

    def without(self, counters: set[int]) -> None:
        kept = [i for i, counter in enumerate(self.counters) if counter not in counters]
        self.counters = [self.counters[i] for i in kept]
        self.clocks = [self.clocks[i] for i in kept]
        self.closures = [self.closures[i] for i in kept]
        self.final = [self.final[i] for i in kept]


class ClockMemory:
    """The clocks of the last events, and their closures once they are released.

    One clock a node is not enough: a message in flight makes known an event
    that is not the sender's latest.

    Parameters
    ----------
    clocks_max : int
        How many are kept; the oldest eighth, by arrival, goes at once.

    Attributes
    ----------
    evicted : dict of str to int
        Of each node, the highest counter that was given up.
    changed : dict of (str, int) to bool, or None
        The events that came, went or were closed since someone asked for that, and
        whether they came.

    Notes
    -----
    Clocks are shared with their events, not copied.
    """

    def __init__(self, clocks_max: int) -> None:
        self.clocks_max = clocks_max
        self.evicted: dict[str, int] = {}
        self._lines: dict[str, _Line] = {}
        self._oldest: deque[tuple[str, int]] = deque()
        self.changed: dict[tuple[str, int], bool] | None = None

    @classmethod
    def of(cls, clocks_max: int, arrivals: Iterable[tuple[str, int, Clock]] = ()) -> ClockMemory:
        """Return a memory of distinct events (node, counter, clock), as they arrived."""
        self = cls(clocks_max)
        lines: dict[str, dict[int, Clock]] = {}
        for node, counter, clock in arrivals:
            lines.setdefault(node, {})[counter] = clock
            self._oldest.append((node, counter))
        for node, clocks in lines.items():
            line = self._lines[node] = _Line()
            line.counters = sorted(clocks)
            line.clocks = [clocks[counter] for counter in line.counters]
            line.closures = [None] * len(clocks)
            line.final = [False] * len(clocks)
        if len(self._oldest) > clocks_max:
            self._evict(len(self._oldest) - clocks_max)
        return self

    def __len__(self) -> int:
        return len(self._oldest)

    def items(self) -> Iterator[tuple[str, int, Clock]]:
        """Yield node, counter and clock of the events, as they arrived."""
        for node, counter in self._oldest:
            clock = self.get(node, counter)
            assert clock is not None, "what is in the queue is in its line"
            yield node, counter, clock

    def put(self, node: str, counter: int, clock: Clock) -> None:
        """Keep the clock of an event that arrived; nothing if it is kept already."""
        line = self._lines.get(node)
        if line is None:
            line = self._lines[node] = _Line()
        if line.put(counter, clock) is None:
            return
        self._oldest.append((node, counter))
        if self.changed is not None:
            self.changed.pop((node, counter), None)
            self.changed[node, counter] = True
        if len(self._oldest) > self.clocks_max:
            self._evict(max(1, self.clocks_max // 8))

    def _evict(self, count: int) -> None:
        gone: dict[str, set[int]] = {}
        for _ in range(count):
            node, counter = self._oldest.popleft()
            gone.setdefault(node, set()).add(counter)
            if self.changed is not None:
                self.changed[node, counter] = False
        for node, counters in gone.items():
            self.evicted[node] = max(self.evicted.get(node, 0), *counters)
            self._lines[node].without(counters)

    def close(
        self, node: str, counter: int, clock: Clock, closure: Clock, *, final: bool = True
    ) -> None:
        """Keep the closure of an event; `final` says that it will not grow any more."""
        line = self._lines.get(node)
        at = None if line is None else line.find(counter)
        if at is None:
            self.put(node, counter, clock)
            line = self._lines[node]
            at = line.find(counter)
        if at is not None and line is not None:
            line.closures[at] = closure
            line.final[at] = final
            if self.changed is not None:
                self.changed.setdefault((node, counter), False)

    def get(self, node: str, counter: int) -> Clock | None:
        """Return the clock that an event arrived with."""
        line = self._lines.get(node)
        at = None if line is None else line.find(counter)
        return None if line is None or at is None else line.clocks[at]

    def closure(self, node: str, counter: int) -> Clock | None:
        """Return the closure of an event, as far as it is known."""
        line = self._lines.get(node)
        at = None if line is None else line.find(counter)
        return None if line is None or at is None else line.closures[at]

    def is_final(self, node: str, counter: int) -> bool:
        """Return whether the closure of an event is known and will not grow any more."""
        line = self._lines.get(node)
        at = None if line is None else line.find(counter)
        return line is not None and at is not None and line.final[at]

    def below(self, node: str, counter: int) -> tuple[int, Clock, Clock | None] | None:
        """Return counter, clock and closure of the node's last event before `counter`."""
        line = self._lines.get(node)
        at = 0 if line is None else bisect_left(line.counters, counter)
        if line is None or not at:
            return None
        return line.counters[at - 1], line.clocks[at - 1], line.closures[at - 1]

    def reached(self, node: str, counter: int) -> int:
        """Return the highest counter up to `counter` that is kept of a node; 0 for none."""
        line = self._lines.get(node)
        at = 0 if line is None else bisect_right(line.counters, counter)
        return 0 if line is None or not at else line.counters[at - 1]

    def above(self, node: str, counter: int) -> Clock | None:
        """Return the clock of the node's first event after `counter`."""
        line = self._lines.get(node)
        at = 0 if line is None else bisect_right(line.counters, counter)
        return None if line is None or at == len(line.counters) else line.clocks[at]

    def rows(self, dots: Iterable[tuple[str, int]] | None = None) -> list[Any]:
        """Return events as plain data; each clock as what differs from its node's last.

        Parameters
        ----------
        dots : iterable of (str, int), optional
            Some that are kept, in order of arrival; default all.
        """
        rows = []
        last: dict[str, Clock] = {}
        for node, counter in self._oldest if dots is None else dots:
            line = self._lines[node]
            at = line.find(counter)
            assert at is not None, "what is in the queue is in its line"
            clock, closure, before = line.clocks[at], line.closures[at], last.get(node, {})
            # In the order of the clock, not of a set: a snapshot depends on no hash.
            raised = closure if closure is None else _changed(clock, closure)
            dropped = sorted(before.keys() - clock.keys())
            fixed = line.final[at]
            rows.append([node, counter, _changed(before, clock), dropped, raised, fixed])
            last[node] = clock
        return rows

    def has(self, node: str, counter: int) -> bool:
        """Return whether the clock of an event is kept."""
        line = self._lines.get(node)
        return line is not None and line.find(counter) is not None

    def take_on(self, rows: Iterable[Any]) -> None:
        """Keep the events that `rows` gave."""
        last: dict[str, Clock] = {}
        for node, counter, changed, dropped, raised, fixed in rows:
            clock = {**last.get(node, {}), **changed}
            for name in dropped:
                del clock[name]
            self.put(node, counter, clock)
            last[node] = clock
            if raised is not None:
                closure = {**clock, **raised} if raised else clock
                self.close(node, counter, clock, closure, final=fixed)

    def gave_up(self, evicted: Mapping[str, int]) -> None:
        """Hear what was given up of each node; the last of what is restored.

        A smaller limit than that of the saved state evicts, as arrivals would.
        """
        for node, counter in evicted.items():
            self.evicted[node] = max(counter, self.evicted.get(node, 0))
