"""Walks over the syntax.

The one rule: nodes come in the order of the text.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import fields

from ketal.model.syntax import Absent, Body, Edge, Guard, Node, Reference, Step


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


def steps_of(body: Body) -> set[str]:
    """Return the names of the steps of a body."""
    return {n.name for n in walk(body) if isinstance(n, Step)} | {
        n.step for n in walk(body) if isinstance(n, Edge)
    }


def not_guards(body: Body) -> tuple[Guard, ...]:
    """Return the guards of the `not`s of a body, each once, in the order of their numbers."""
    return tuple(dict.fromkeys(n.guard for n in walk(body) if isinstance(n, Absent)))
