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
    sort gives the same, as `canonical_key` rises along happened-before.
    """
    listed = list(events)
    ranks = {node: rank for rank, node in enumerate(sorted({event.node for event in listed}))}
    nodes = len(ranks)
    # An integer holds the sum and the node: integers are compared faster than tuples.
    keys = [sum(event.clock.values()) * nodes + ranks[event.node] for event in listed]
    if len(set(keys)) < len(keys):
        # A node has equal sums only if its clocks are impossible; counters tell its events apart.
        return sorted(listed, key=canonical_key)
    in_order = iter(keys)  # `sorted` calls its key function once for each event, in order
    return sorted(listed, key=lambda _: next(in_order))
