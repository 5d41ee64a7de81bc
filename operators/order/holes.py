"""What a finite log under `CausalOrder(gap = ...)` has lost.

A log may be a filtered one, so a hole in its counters says nothing by itself: it is
counted. An author who writes `gap` says more, that a dot which does not come is a lost
event. In a log that is known whole no dot comes any more, so every hole is lost, as at
the end of a stream: each dot is named, and what has it in its past is in doubt.

A hole is a dot that the clock of some event names, or that is below such a one in its
node, and that no event has.

The one rule: what is lost is what a stream of the same events has lost once it has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ketal.model.event import Dot, Event
from ketal.operators.order.step import Key, holes_between, lowest_places


def holes(events: Iterable[Event]) -> Iterator[tuple[str, int, int]]:
    """Yield the holes of a finite execution by node: the first and the last of the dots missing."""
    known: dict[str, int] = {}
    there: dict[str, set[int]] = {}
    for event in events:
        there.setdefault(event.node, set()).add(event.clock[event.node])
        for node, counter in event.clock.items():
            if counter > known.get(node, 0):
                known[node] = counter
    for node in sorted(known):
        for first, last in holes_between(there.get(node, ()), 1, known[node]):
            yield node, first, last


def lows(
    events: Iterable[Event], lost: Iterable[tuple[str, int, int]], lost_max: int
) -> dict[Dot, Key]:
    """Return places in canonical order that what is lost does not come before."""
    sums = {event.dot: sum(event.clock.values()) for event in events}
    out: dict[Dot, Key] = {}
    for node, first, last in lost:
        least = sums.get(Dot(node, first - 1), first - 1)
        out |= lowest_places(node, first, last, least, lost_max)
    return out
