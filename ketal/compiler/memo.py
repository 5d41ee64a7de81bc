"""A bounded cache of a function's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memo(dict[K, V]):
    """A cache of a function's results by argument; it is cleared when it is full."""

    def __init__(self, function: Callable[[K], V], most: int) -> None:
        self._function = function
        self._most = most

    def __missing__(self, argument: K) -> V:
        if len(self) >= self._most:
            self.clear()
        value = self[argument] = self._function(argument)
        return value
