"""A bounded cache of a function's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memo(dict[K, V]):
    """A cache of a function's results by argument; it is cleared when it is full."""

    def __init__(self, function: Callable[[K], V], most: int) -> None:
        super().__init__()
        self._function = function
        self._most = most

    def __missing__(self, argument: K) -> V:
        result = self._function(argument)
        if len(self) >= self._most:
            self.clear()
        self[argument] = result
        return result
