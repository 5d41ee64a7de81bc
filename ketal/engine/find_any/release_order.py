"""The order in which a scope's events come, on which a forward search depends.

The one rule: an event that is in order comes after all that it may come after in a match.
"""

from __future__ import annotations

import enum
from typing import Any

from ketal.model.events.event import Event
from ketal.model.events.happened_before import CanonicalKey, canonical_key


class ReleaseOrder(enum.Enum):
    """An order in which events come, such that the last offered of a match is its last.

    Attributes
    ----------
    ANY
        Under arrival order the word is in the order offered, whatever that is.
    CANONICAL
        Where all steps accept the same events, of the mirror images of a match the one in
        canonical order is reported.
    CAUSAL
        Where each step is after the one before it: an order that respects happened-before.
    """

    ANY = enum.auto()
    CANONICAL = enum.auto()
    CAUSAL = enum.auto()


class OrderWatch:
    """Whether the events of a scope come in an order.

    Parameters
    ----------
    order : ReleaseOrder
        The order; any order is kept.
    """

    __slots__ = ("_known", "_last_key")

    def __init__(self, order: ReleaseOrder) -> None:
        canonical, causal = order is ReleaseOrder.CANONICAL, order is ReleaseOrder.CAUSAL
        self._last_key: CanonicalKey | None = (0, "", 0) if canonical else None
        self._known: dict[str, int] | None = {} if causal else None

    def in_order(self, event: Event) -> bool:
        """Take an event; return whether it comes in the order."""
        if self._last_key is not None:
            before, self._last_key = self._last_key, canonical_key(event)
            return before < self._last_key
        known = self._known
        if known is None:
            return True
        if known.get(event.node, 0) >= event.clock[event.node]:
            return False
        for node, counter in event.clock.items():
            if counter > known.get(node, 0):
                known[node] = counter
        return True

    def save(self) -> Any:
        """Return what has come as plain data."""
        return self._last_key if self._known is None else dict(self._known)

    def load(self, value: Any) -> None:
        """Put in what `save` gave."""
        if self._known is None:
            self._last_key = tuple(value)
        else:
            self._known = dict(value)
