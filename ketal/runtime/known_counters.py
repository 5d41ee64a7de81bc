"""The counters that clocks know of, as the events of a finite log are released.

If the clocks are those of an execution, canonical order respects happened-before. Where an event
has one with a later place in its past, its clock is impossible.

The one rule: what is known never falls.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from ketal.model.events.event import Event


class KnownCounters:
    """The highest counter of each node in the clocks of the events that were released.

    Parameters
    ----------
    events : sequence of Event
        All events of the log.

    Attributes
    ----------
    highest : dict of str to int
        By node.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self.highest: dict[str, int] = {}
        self._events = events
        self._counters: dict[str, list[int]] | None = None  # of each node, sorted

    def release(self, events: Iterable[Event]) -> int:
        """Release events in canonical order; return how many have a later one in their past."""
        known, count = self.highest, 0
        for event in events:
            own = event.node
            for node, counter in event.clock.items():
                before = known.get(node, 0)
                if counter > before:
                    if counter == before + 1 and node == own:
                        known[node] = counter
                    else:
                        count += self._is_ahead(event)
                        break
        return count

    def _is_ahead(self, event: Event) -> bool:
        """Return whether an event whose clock goes beyond by more than itself has a later one."""
        known, ahead = self.highest, False
        for node, counter in event.clock.items():
            before = known.get(node, 0)
            if counter > before:
                known[node] = counter
                ahead |= self._has_between(node, before, counter - (node == event.node))
        return ahead

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
