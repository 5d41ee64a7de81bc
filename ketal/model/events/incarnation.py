"""Incarnations: how the runs of a node are named, and how a program numbers them itself.

The one rule: the first run of a node has the name of the node.
"""

from __future__ import annotations

from typing import Final

from ketal.model.attributes import DIGITS_MAX
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event

INCARNATION: Final = "incarnation"
"""The attribute that numbers the runs of a node (docs/membership.md)."""


def name_of(node: str, number: int) -> str:
    """Return the name of an incarnation: `A` for the first, `A#2`, `A#3`, …."""
    return node if number == 1 else f"{node}#{number}"


def number_of(value: object) -> int | None:
    """Return the number of an incarnation; None for what is none."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= DIGITS_MAX:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        return None
    return value


def numbered_dot(event: Event) -> Dot:
    """Return the dot of an event that was read, under the number that its program gives it."""
    number = number_of(event.data.get(INCARNATION))
    return event.dot if number is None else Dot(name_of(event.node, number), event.counter)
