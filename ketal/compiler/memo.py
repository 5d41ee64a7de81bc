"""A bounded cache of a function's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memo(Generic[K, V]):
    """A cache of a function's results by argument; it is cleared when it is full."""

    __slots__ = ("_function", "_most", "_results")

    def __init__(self, function: Callable[[K], V], most: int) -> None:
        self._function = function
        self._most = most
        self._results: dict[K, V] = {}

    def __getitem__(self, argument: K) -> V:
        try:
            return self._results[argument]
        except KeyError:
            pass
        result = self._function(argument)
        if len(self._results) >= self._most:
            self._results.clear()
        self._results[argument] = result
        return result
