"""Incarnations: names for the lives of a node between restarts, and numbers given by a program.

The one rule: the first incarnation of a node has the name of the node.
"""

from __future__ import annotations

from typing import Final

from ketal.model.attributes import DIGITS_MAX
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event

INCARNATION: Final = "incarnation"
"""The attribute with the number of a node's incarnation (docs/membership.md)."""


def name_of(node: str, number: int) -> str:
    """Return the name of an incarnation: `A` for the first, `A#2`, `A#3`, …."""
    return node if number == 1 else f"{node}#{number}"


def number_of(value: object) -> int | None:
    """Return the number of an incarnation, given as an attribute; None if it is not a number."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= DIGITS_MAX:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        return None
    return value


def is_named(node: str, number: int) -> bool:
    """Return whether a node has the name of its incarnation already: `A#2` for 2."""
    return number != 1 and node.endswith(f"#{number}")


def numbered_dot(event: Event) -> Dot:
    """Return the dot of an event, its node named by the incarnation that its program gives."""
    number = number_of(event.data.get(INCARNATION))
    if number is None or is_named(event.node, number):
        return event.dot
    return Dot(name_of(event.node, number), event.counter)
