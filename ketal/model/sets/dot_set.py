"""A set of dots that can be searched by a clock for the dots in its past.

The one rule: the counters of each node are sorted and unique.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping

from ketal.model.events.dot import Dot


class DotSet:
    """A set of dots, by node and counter."""

    __slots__ = ("counters",)

    def __init__(self) -> None:
        # A list is only appended to; any other change replaces it by a new list.
        self.counters: dict[str, list[int]] = {}

    def __bool__(self) -> bool:
        return bool(self.counters)

    def __iter__(self) -> Iterator[Dot]:
        for node, counters in sorted(self.counters.items()):
            for counter in counters:
                yield Dot(node, counter)

    def add(self, node: str, counter: int) -> None:
        """Add a dot, if it is not in the set."""
        counters = self.counters.setdefault(node, [])
        if not counters or counters[-1] < counter:
            counters.append(counter)
            return
        place = bisect_left(counters, counter)
        if counters[place] != counter:
            self.counters[node] = [*counters[:place], counter, *counters[place:]]

    def discard(self, node: str, counter: int) -> None:
        """Remove a dot, if it is in the set."""
        counters = self.counters.get(node, [])
        place = bisect_left(counters, counter)
        if place == len(counters) or counters[place] != counter:
            return
        if len(counters) > 1:
            self.counters[node] = [*counters[:place], *counters[place + 1 :]]
        else:
            del self.counters[node]

    def before(self, clock: Mapping[str, int]) -> Iterator[Dot]:
        """Yield the dots that are in the past of a clock, by node and counter."""
        for node, counters in sorted(self.counters.items()):
            upto = bisect_right(counters, clock.get(node, 0))
            for counter in itertools.islice(counters, upto):
                yield Dot(node, counter)
