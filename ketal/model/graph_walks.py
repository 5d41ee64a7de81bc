"""Walks over directed graphs.

The one rule: no walk recurses, so a path may be as long as a log.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def reachable(start: Iterable[T], following: Mapping[T, Iterable[T]]) -> set[T]:
    """Return the nodes that can be reached from `start`, which are included."""
    reached = set(start)
    todo = list(reached)
    while todo:
        new = set(following.get(todo.pop(), ())) - reached
        reached |= new
        todo += new
    return reached


def postorder(roots: Iterable[T], following: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """Yield the nodes that can be reached from roots, each after its successors.

    In a cycle, some node comes before one of its successors.
    """
    entered: set[T] = set()
    for root in roots:
        if root in entered:
            continue
        entered.add(root)
        path = [(root, iter(following(root)))]
        while path:
            last, rest = path[-1]
            deeper = next((one for one in rest if one not in entered), None)
            if deeper is None:
                yield last
                path.pop()
            else:
                entered.add(deeper)
                path.append((deeper, iter(following(deeper))))
