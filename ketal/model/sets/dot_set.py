"""A set of dots that is searched by clocks: which of them are in a past.

The one rule: the counters of a node are sorted, each there once.
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
        # Lists that only grow at their ends; another change makes another list.
        self.counters: dict[str, list[int]] = {}

    def __bool__(self) -> bool:
        return bool(self.counters)

    def __iter__(self) -> Iterator[Dot]:
        for node, counters in sorted(self.counters.items()):
            for counter in counters:
                yield Dot(node, counter)

    def add(self, node: str, counter: int) -> None:
        """Add a dot; nothing if it is there."""
        counters = self.counters.setdefault(node, [])
        if not counters or counters[-1] < counter:
            counters.append(counter)
            return
        place = bisect_left(counters, counter)
        if counters[place] != counter:
            self.counters[node] = [*counters[:place], counter, *counters[place:]]

    def discard(self, node: str, counter: int) -> None:
        """Remove a dot; nothing if it is not there."""
        counters = self.counters.get(node, [])
        place = bisect_left(counters, counter)
        if place == len(counters) or counters[place] != counter:
            return
        if len(counters) > 1:
            self.counters[node] = [*counters[:place], *counters[place + 1 :]]
        else:
            del self.counters[node]

    def before(self, clock: Mapping[str, int]) -> Iterator[Dot]:
        """Yield the dots, by node and counter, that are in the past that a clock names."""
        for node, counters in sorted(self.counters.items()):
            upto = bisect_right(counters, clock.get(node, 0))
            for counter in itertools.islice(counters, upto):
                yield Dot(node, counter)
