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
from collections.abc import Mapping
from typing import Any

Clock = dict[str, int]


class _Line:
    """The kept events of one node, by counter; a closure is None until the release."""

    __slots__ = ("clocks", "closures", "counters")

    def __init__(self) -> None:
        self.counters: list[int] = []
        self.clocks: list[Clock] = []
        self.closures: list[Clock | None] = []

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
        return at

    def find(self, counter: int) -> int | None:
        at = bisect_left(self.counters, counter)
        return at if at < len(self.counters) and self.counters[at] == counter else None

    def without(self, counters: set[int]) -> None:
        kept = [i for i, counter in enumerate(self.counters) if counter not in counters]
        self.counters = [self.counters[i] for i in kept]
        self.clocks = [self.clocks[i] for i in kept]
        self.closures = [self.closures[i] for i in kept]


class ClockMemory:
    """The clocks of the last events, and their closures once they are released.

    One clock a node is not enough: a message in flight makes known an event
    that is not the sender's latest.

    Parameters
    ----------
    clocks_max : int
        How many are kept; the oldest eighth, by arrival, goes at once.

    Notes
    -----
    Clocks are shared with their events, not copied.
    """

    def __init__(self, clocks_max: int) -> None:
        self.clocks_max = clocks_max
        self.evicted: dict[str, int] = {}
        self._lines: dict[str, _Line] = {}
        self._oldest: deque[tuple[str, int]] = deque()

    def __len__(self) -> int:
        return len(self._oldest)

    def put(self, node: str, counter: int, clock: Clock) -> None:
        """Keep the clock of an event that arrived; nothing if it is kept already."""
        line = self._lines.get(node)
        if line is None:
            line = self._lines[node] = _Line()
        if line.put(counter, clock) is None:
            return
        self._oldest.append((node, counter))
        if len(self._oldest) > self.clocks_max:
            self._evict(max(1, self.clocks_max // 8))

    def _evict(self, count: int) -> None:
        gone: dict[str, set[int]] = {}
        for _ in range(count):
            node, counter = self._oldest.popleft()
            gone.setdefault(node, set()).add(counter)
        for node, counters in gone.items():
            self.evicted[node] = max(self.evicted.get(node, 0), *counters)
            self._lines[node].without(counters)

    def close(self, node: str, counter: int, clock: Clock, closure: Clock) -> None:
        """Keep the closure of an event that is released."""
        line = self._lines.get(node)
        at = None if line is None else line.find(counter)
        if at is None:
            self.put(node, counter, clock)
            line = self._lines[node]
            at = line.find(counter)
        if at is not None and line is not None:
            line.closures[at] = closure

    def get(self, node: str, counter: int) -> Clock | None:
        """Return the clock that an event arrived with."""
        line = self._lines.get(node)
        at = None if line is None else line.find(counter)
        return None if line is None or at is None else line.clocks[at]

    def closure(self, node: str, counter: int) -> Clock | None:
        """Return the closure of a released event."""
        line = self._lines.get(node)
        at = None if line is None else line.find(counter)
        return None if line is None or at is None else line.closures[at]

    def below(self, node: str, counter: int) -> tuple[int, Clock, Clock | None] | None:
        """Return counter, clock and closure of the node's last event before `counter`."""
        line = self._lines.get(node)
        at = 0 if line is None else bisect_left(line.counters, counter)
        if line is None or not at:
            return None
        return line.counters[at - 1], line.clocks[at - 1], line.closures[at - 1]

    def above(self, node: str, counter: int) -> Clock | None:
        """Return the clock of the node's first event after `counter`."""
        line = self._lines.get(node)
        at = 0 if line is None else bisect_right(line.counters, counter)
        return None if line is None or at == len(line.counters) else line.clocks[at]

    def state(self) -> dict[str, Any]:
        """Return the state as plain data; each clock as what differs from its node's last."""
        rows = []
        last: dict[str, Clock] = {}
        for node, counter in self._oldest:
            line = self._lines[node]
            at = line.find(counter)
            assert at is not None, "what is in the queue is in its line"
            clock, closure, before = line.clocks[at], line.closures[at], last.get(node, {})
            raised = None if closure is None else dict(closure.items() - clock.items())
            dropped = sorted(before.keys() - clock.keys())
            rows.append([node, counter, dict(clock.items() - before.items()), dropped, raised])
            last[node] = clock
        return {"evicted": dict(self.evicted), "clocks": rows}

    @classmethod
    def restored(cls, clocks_max: int, state: Mapping[str, Any]) -> ClockMemory:
        """Return a memory with a state that `state` gave."""
        self = cls(clocks_max)
        last: dict[str, Clock] = {}
        for node, counter, changed, dropped, raised in state["clocks"]:
            clock = {**last.get(node, {}), **changed}
            for name in dropped:
                del clock[name]
            self.put(node, counter, clock)
            last[node] = clock
            if raised is not None:
                self.close(node, counter, clock, {**clock, **raised} if raised else clock)
        # Last: a smaller limit than the snapshot's evicts, as arrivals would.
        for node, counter in state["evicted"].items():
            self.evicted[node] = max(counter, self.evicted.get(node, 0))
        return self
