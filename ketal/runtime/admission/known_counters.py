"""Count the events of a finite log whose clocks are impossible.

The one rule: the events are released in canonical order, each once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from ketal.model.events.event import Event
from ketal.model.wording import counted


def impossible_text(count: int) -> str:
    """Return the statement that some events have impossible clocks."""
    events = counted(count, "event")
    return f"{events} with an impossible clock; run `ketal audit` to find the fault"


class KnownCounters:
    """The highest counter of each node in the clocks of the events that were released.

    If the clocks are those of an execution, canonical order respects happened-before. So the clock
    of an event is impossible if its past contains an event with a later place in that order.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self.highest: dict[str, int] = {}
        self._events = events
        self._counters: dict[str, list[int]] | None = None  # of each node, sorted

    def release(self, events: Iterable[Event]) -> int:
        """Release events in canonical order; return how many have a later event in their past."""
        known, count = self.highest, 0
        for event in events:
            impossible = False
            for node, counter in event.clock.items():
                before = known.get(node, 0)
                if counter > before:
                    known[node] = counter
                    others = counter - 1 if node == event.node else counter
                    impossible |= others > before and self._has_between(node, before, others)
            count += impossible
        return count

    def _has_between(self, node: str, low: int, high: int) -> bool:
        """Return whether the log has an event of the node with a counter in (low, high]."""
        if self._counters is None:
            self._counters = {}
            for event in self._events:
                self._counters.setdefault(event.node, []).append(event.counter)
            for counters in self._counters.values():
                counters.sort()
        counters = self._counters.get(node, [])
        return bisect_right(counters, high) > bisect_right(counters, low)
