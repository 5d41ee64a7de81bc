"""Walks over directed graphs.

The one rule: no walk recurses, so a path may be as long as a log.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def reachable(start: Iterable[T], following: Mapping[T, Iterable[T]]) -> set[T]:
    """Return what can be reached from `start`, itself included, by what follows each."""
    reached = set(start)
    todo = list(reached)
    while todo:
        new = set(following.get(todo.pop(), ())) - reached
        reached |= new
        todo += new
    return reached


def postorder(roots: Iterable[T], following: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """Yield what can be reached from roots, each after what follows it.

    In a circle, the order is that of the walk.
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
