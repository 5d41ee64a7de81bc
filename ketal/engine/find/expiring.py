"""What a window will end, in the order of the times or places that it counts from.

The one rule: what was put in is taken out once, when what it counts from has passed.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Expiring(Generic[T]):
    """What a window will end, by the time or place that it counts from.

    What comes in rising order waits in a queue, what comes late in a heap, so both a clock that
    is set back and one that runs ahead cost O(log n) and no room.
    """

    __slots__ = ("_late", "_number", "_queue")

    def __init__(self) -> None:
        self._queue: deque[tuple[float, int, T]] = deque()
        self._late: list[tuple[float, int, T]] = []
        self._number = 0

    def add(self, low: float, item: T) -> None:
        """Put in what counts from `low`."""
        self._number += 1
        entry = (low, self._number, item)
        if not self._queue or low >= self._queue[-1][0]:
            self._queue.append(entry)
        else:
            heapq.heappush(self._late, entry)

    def earliest(self, alive: Callable[[T], bool] = lambda _: True) -> float | None:
        """Return what the first that is alive counts from; None if none is."""
        while self._queue and not alive(self._queue[0][2]):
            self._queue.popleft()
        while self._late and not alive(self._late[0][2]):
            heapq.heappop(self._late)
        firsts = [entries[0][0] for entries in (self._queue, self._late) if entries]
        return min(firsts, default=None)

    def passed(self, last: float) -> Iterator[T]:
        """Take out, in order, and yield what counts from `last` or before."""
        queue, late = self._queue, self._late
        while (queue and queue[0][0] <= last) or (late and late[0][0] <= last):
            if late and not (queue and queue[0] < late[0]):
                yield heapq.heappop(late)[2]
            else:
                yield queue.popleft()[2]

    def clear(self) -> None:
        """Remove everything."""
        self._queue.clear()
        self._late.clear()
