"""How two events are related, and the canonical linear extension.

Happened-before (Lamport, "Time, clocks, and the ordering of events in a distributed
system", 1978) is computed by `ketal.clocks.vector`.

The one rule: the canonical order respects happened-before, and depends on nothing but the events.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from ketal.clocks import vector
from ketal.model.events.event import Event

CanonicalKey: TypeAlias = tuple[int, str, int]
"""A place in the canonical order: sum of the clock, node, counter."""


def happened_before(a: Event, b: Event) -> bool:
    """Return whether a → b: a ≠ b and b's past contains a."""
    return vector.happened_before(a.node, a.clock, b.node, b.clock)


def concurrent(a: Event, b: Event) -> bool:
    """Return whether a ∥ b: neither a → b nor b → a, and a ≠ b."""
    if a.node == b.node:
        # One node's events are totally ordered, and an event is not concurrent with itself.
        return False
    return not happened_before(a, b) and not happened_before(b, a)


def canonical_key(event: Event) -> CanonicalKey:
    """Return the sort key of the canonical linear extension.

    The key is the sum of the clock's entries, then node, then counter. If a → b, b has the larger
    sum, so the order respects happened-before; it is a strict total order, since dots are unique.
    """
    return sum(event.clock.values()), event.node, event.clock[event.node]


def canonical(events: Iterable[Event]) -> list[Event]:
    """Return the canonical linear extension of a finite execution.

    By definition, it repeatedly removes the least event that no remaining one happened-before. The
    sort gives the same, as its key rises along happened-before.
    """
    return sorted(events, key=canonical_key)
