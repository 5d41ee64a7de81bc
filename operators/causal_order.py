"""`order CausalOrder`: events are released so that each comes after its causes.

A finite log is known whole, so it is released in the canonical linear extension,
whatever the order of the file: `canonical` sorts by the sum of the clock's entries,
then node, then counter. `obvious_canonical` is the same by definition: it repeatedly
removes the least event that no remaining one happened-before.

A live stream goes through a hold-back queue (Birman, Schiper and Stephenson,
"Lightweight causal and atomic group multicast", 1991): an event is causally
ready when everything in its past has been released. `HoldBack` indexes each
waiting event by one missing dot, so an arrival costs work only for what it
releases.

The one rule: clocks are compared entry by entry with absent as 0; clocks of
unequal size are no reason to deliver.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from ketal.model.event import Dot, Event, canonical_key, happened_before


def canonical(events: Iterable[Event]) -> list[Event]:
    """Return the canonical linear extension of a finite execution."""
    return sorted(events, key=canonical_key)


def obvious_canonical(events: Iterable[Event]) -> list[Event]:
    """Return the canonical linear extension, one minimal event at a time."""
    left = list(events)
    out: list[Event] = []
    while left:
        minimal = [e for e in left if not any(happened_before(f, e) for f in left)]
        least = min(minimal, key=canonical_key)
        left.remove(least)
        out.append(least)
    return out


class HoldBack:
    """A hold-back queue: releases an event as soon as its past has been released.

    Ties are released in the order of arrival.

    Parameters
    ----------
    held_back_max : int
        How many events may wait; `push` refuses one more.
    """

    def __init__(self, held_back_max: int) -> None:
        self.held_back_max = held_back_max
        self.released: dict[str, int] = {}
        self._waiting: dict[tuple[str, int], list[tuple[int, Event]]] = {}
        self._held = 0
        self._arrivals = 0

    def __len__(self) -> int:
        return self._held

    def missing(self, event: Event) -> Dot | None:
        """Return one dot that `event` waits for; None where it is causally ready."""
        released = self.released
        for node, counter in event.clock.items():
            needed = counter - 1 if node == event.node else counter
            if released.get(node, 0) < needed:
                return Dot(node, needed)
        return None

    def push(self, event: Event) -> list[Event] | None:
        """Add an event; return the events that it releases, in order.

        Returns
        -------
        list of Event or None
            None where the queue is full and the event would have to wait.
        """
        self._arrivals += 1
        dot = self.missing(event)
        if dot is not None:
            if self._held >= self.held_back_max:
                return None
            self._wait(dot, self._arrivals, event)
            return []
        out = []
        ready = [(self._arrivals, event)]
        while ready:
            _, least = heapq.heappop(ready)
            out.append(least)
            self.released[least.node] = least.counter
            for arrival, waiter in self._waiting.pop((least.node, least.counter), ()):
                self._held -= 1
                dot = self.missing(waiter)
                if dot is None:
                    heapq.heappush(ready, (arrival, waiter))
                else:
                    self._wait(dot, arrival, waiter)
        return out

    def _wait(self, dot: Dot, arrival: int, event: Event) -> None:
        self._waiting.setdefault((dot.node, dot.counter), []).append((arrival, event))
        self._held += 1

    def held_back(self) -> list[tuple[Event, Dot]]:
        """Return each waiting event with a dot that it waits for, in order of arrival."""
        waiting = [
            (arrival, event, Dot(*dot))
            for dot, events in self._waiting.items()
            for arrival, event in events
        ]
        waiting.sort(key=lambda item: item[0])
        return [(event, dot) for _, event, dot in waiting]
