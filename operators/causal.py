"""`Causal(g, anchor)`: g holds, and the anchor happened before this event.

From "Implementation of causal control operators to detect distributed events",
section IV.B: a transition occurs "if and only if the detected event is causally
related to the immediate prior event"; with nothing prior, "causal order will be
ignored". The anchor is the prior event, a step's last event, or all.

`obvious` compares whole clocks; `fast` is the dot test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from ketal.clocks import vector
from ketal.model.events.event import Event


class Stamped(Protocol):
    """The part of an event that the fast forms read: its dot and its clock."""

    @property
    def node(self) -> str:
        """The node where it happened."""

    @property
    def counter(self) -> int:
        """Its place among the node's events."""

    @property
    def clock(self) -> Mapping[str, int]:
        """Its vector clock."""


def obvious(event: Event, anchors: Iterable[Event]) -> bool:
    """Return whether each anchor happened-before `event`, by full comparison of clocks."""
    return all(vector.compare(anchor.clock, event.clock) for anchor in anchors)


def fast(event: Stamped, anchor: Stamped | None) -> bool:
    """Return whether the anchor happened-before `event`; true where it is unbound."""
    if anchor is None:
        return True
    if anchor.node == event.node:
        return anchor.counter < event.counter
    return event.clock.get(anchor.node, 0) >= anchor.counter
