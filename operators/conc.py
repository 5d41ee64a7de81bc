"""`Conc(g, anchor)`: g holds, and the anchor is concurrent with this event.

From "Implementation of causal control operators to detect distributed events",
section IV.B: an event is consumed "if and only if it has a concurrent
relationship with the immediate prior event". Concurrent means neither before nor
after, and not the same: `!(a <= b && b <= a)` would be true for every ordered
pair, a mistake that the tests guard against.

`obvious` compares whole clocks; `fast` is two dot tests.
"""

from __future__ import annotations

from collections.abc import Iterable

from ketal.clocks import vector
from ketal.model.events.event import Event
from ketal.operators.causal import Stamped


def obvious(event: Event, anchors: Iterable[Event]) -> bool:
    """Return whether each anchor is concurrent with `event`, by full comparison of clocks."""
    return all(
        anchor.dot != event.dot
        and not vector.compare(anchor.clock, event.clock)
        and not vector.compare(event.clock, anchor.clock)
        for anchor in anchors
    )


def fast(event: Stamped, anchor: Stamped | None) -> bool:
    """Return whether the anchor is concurrent with `event`; true where it is unbound."""
    if anchor is None:
        return True
    if anchor.node == event.node:
        # One node's events are totally ordered, and no event is concurrent with itself.
        return False
    return (
        event.clock.get(anchor.node, 0) < anchor.counter
        and anchor.clock.get(event.node, 0) < event.counter
    )
