"""Timestamping schemes, one module each, behind one small protocol.

The one rule: the engine asks a scheme for identity, order and the totally
ordered line (process) that an event lies on, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol, TypeVar

StampT = TypeVar("StampT", contravariant=True)


class Scheme(Protocol[StampT]):
    """What the engine asks of a timestamping scheme.

    A stamp is whatever the scheme attaches to an event, the name of its node
    included.
    """

    def identity(self, stamp: StampT) -> Hashable:
        """Return what identifies the event; equal identity is the same event."""
        ...

    def line(self, stamp: StampT) -> str:
        """Return the totally ordered line (process) that the event lies on."""
        ...

    def happened_before(self, first: StampT, second: StampT) -> bool | None:
        """Return whether `first` → `second`; None where the scheme cannot decide."""
        ...
