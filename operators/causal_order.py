"""`order CausalOrder`: events are released so that each comes after its causes.

A finite log is known whole, so it is released in the canonical linear extension,
whatever the order of the file. By definition, that repeatedly removes the least event that no
remaining one happened-before; `canonical` sorts by the sum of the clock's entries, then node,
then counter, which gives the same.

A live stream goes through a hold-back queue (`ketal.operators.order.hold_back`).

The one rule: clocks are compared entry by entry, an absent entry as 0; that clocks
differ in size decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical_key


def canonical(events: Iterable[Event]) -> list[Event]:
    """Return the canonical linear extension of a finite execution."""
    return sorted(events, key=canonical_key)
