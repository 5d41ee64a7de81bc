"""Dirty records: which of some numbered objects changed since they were saved last.

The one rule: an object that is neither saved nor live is not dirty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class DirtyRecords(Generic[T]):
    """The objects of one kind that are dirty; their numbers rise in the order of creation."""

    __slots__ = ("_saved", "changed")

    def __init__(self) -> None:
        # By number, the objects that changed since the last `take`, with None for a removed one;
        # None before the first.
        self.changed: dict[int, T | None] | None = None
        self._saved = 0  # objects with lower numbers were saved, if they were live then

    def mark(self, number: int, one: T) -> None:
        """Mark an object as changed, or as new."""
        if self.changed is not None:
            self.changed[number] = one

    def remove(self, number: int) -> None:
        """Mark an object as removed."""
        if self.changed is not None and number < self._saved:
            self.changed[number] = None
        elif self.changed is not None:
            del self.changed[number]  # it is not in the saved state

    def take(self, live: Callable[[], dict[int, T | None]], end: int) -> dict[int, T | None]:
        """Return the dirty objects, and mark all as saved; the first time, return all of `live`.

        `end` is the number of the next object.
        """
        dirty = live() if self.changed is None else self.changed
        self.changed, self._saved = {}, end
        return dirty
