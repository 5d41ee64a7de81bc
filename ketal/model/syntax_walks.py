"""Walks over the syntax.

The one rule: nodes come in the order of the text.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import fields

from ketal.model.syntax import (
    Absent,
    Arithmetic,
    Body,
    Edge,
    Field,
    Guard,
    Negative,
    Node,
    Reference,
    Step,
)


@functools.cache
def _fields_of(sort: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(sort) if field.name != "span")


def children(node: Node) -> Iterator[Node]:
    """Yield the nodes that `node` is made of, in the order of the text."""
    sort: type = type(node)
    for name in _fields_of(sort):
        value = getattr(node, name)
        for child in value if isinstance(value, tuple) else (value,):
            if isinstance(child, Node):
                yield child


def walk(node: Node) -> Iterator[Node]:
    """Yield `node` and every node below it, in the order of the text."""
    yield node
    for child in children(node):
        yield from walk(child)


def references(node: Node) -> list[Reference]:
    """Return the references to steps in a guard, a value or a `return`."""
    return [n for n in walk(node) if isinstance(n, Reference)]


def is_time(value: Node) -> bool:
    """Return whether a value is the time of an event, or a sum or difference with one.

    Such a sum is rounded to whole microseconds, as the times are: of two events exactly 300 ms
    apart, the difference of the seconds since the epoch would be 0.2999999523.
    """
    match value:
        case Field(name="time") | Reference(of=Field(name="time")):
            return True
        case Arithmetic(ops=("+" | "-", *_), operands=operands):
            return any(map(is_time, operands))
        case Negative(operand=operand):
            return is_time(operand)
    return False


def steps_of(body: Body) -> set[str]:
    """Return the names of the steps of a body."""
    return {n.name for n in walk(body) if isinstance(n, Step)} | {
        n.step for n in walk(body) if isinstance(n, Edge)
    }


def not_guards(body: Body) -> tuple[Guard, ...]:
    """Return the guards of the `not`s of a body, each once, in the order of their numbers."""
    return tuple(dict.fromkeys(n.guard for n in walk(body) if isinstance(n, Absent)))
