"""What a live CausalOrder says at each step, and the memory of what it had to give up.

A step releases events, declares dots lost, finds events late or refuses them.
An event is released with the lost and late dots of its past: what a pattern
says of it could be otherwise had these been seen ("after a gap", DESIGN 5).

The one rule: an event that has a dot in its past which was declared lost, or
came late, is never released unmarked, however few of those dots are remembered.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple

from ketal.model.event import Dot, Event

NONE: frozenset[Dot] = frozenset()


class Released(NamedTuple):
    """An event whose turn has come.

    Attributes
    ----------
    event : Event
    after : set of Dot
        The dots of its past that were declared lost or were late.
    """

    event: Event
    after: Set[Dot] = NONE


class Step(NamedTuple):
    """What one call brought about.

    Attributes
    ----------
    released : tuple of Released
        In the order in which a pattern is offered them.
    gaps : tuple of Dot
        Declared lost, longest known first.
    late : tuple of Event
        Events whose place in the order has passed; they are not released.
    refused : tuple of Event
        Events for which the full queue has no room.
    given_up : int
        How many waits the full queue gave up (`overflow = lost`): a hole was
        declared lost, or, where there is none, an event went before its turn.
    unnamed : int
        Lost dots that `gaps` does not name: those inside of a hole of more
        than `lost_max` dots, of which only the first and the last are named.
    raised : tuple of Dot
        Those of the released events that were given another clock than they went in with.
    """

    released: tuple[Released, ...] = ()
    gaps: tuple[Dot, ...] = ()
    late: tuple[Event, ...] = ()
    refused: tuple[Event, ...] = ()
    given_up: int = 0
    unnamed: int = 0
    raised: tuple[Dot, ...] = ()


def holes_between(received: Collection[int], first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the holes of one node from a counter to another: first and last of each.

    Parameters
    ----------
    received : set of int, or a view of keys
        The node's counters that are no part of a hole; also such as lie outside.
    first, last : int
        Where the walk begins and ends; none if `last` is below `first`.
    """
    if last - first < len(received):
        there = [c for c in range(first, last + 1) if c in received]
    else:
        there = sorted(c for c in received if first <= c <= last)
    for counter in (*there, last + 1):
        if first < counter:
            yield first, counter - 1
        first = counter + 1


class Out:
    """Collects a step."""

    __slots__ = ("gaps", "given_up", "late", "raised", "refused", "released", "unnamed")

    def __init__(self) -> None:
        self.released: list[Released] = []
        self.gaps: list[Dot] = []
        self.late: list[Event] = []
        self.refused: list[Event] = []
        self.given_up = 0
        self.unnamed = 0
        self.raised: list[Dot] = []

    def lose(self, node: str, first: int, last: int, lost_max: int) -> range:
        """Name the dots of a hole as lost, its ends if they are many; return their counters."""
        named = range(first, last + 1)
        if last - first >= lost_max:
            self.unnamed += last - first - 1
            named = range(first, last + 1, last - first)
        self.gaps += [Dot(node, counter) for counter in named]
        return named

    def step(self) -> Step:
        """Return what was collected."""
        return Step(
            tuple(self.released),
            tuple(self.gaps),
            tuple(self.late),
            tuple(self.refused),
            self.given_up,
            self.unnamed,
            tuple(self.raised),
        )


class Before(Set[Dot]):
    """Dots of a `DotSet` that are in a past, as they are now; found when they are asked for."""

    __slots__ = ("_lines",)

    def __init__(self, lines: list[tuple[str, list[int], int]]) -> None:
        self._lines = lines  # of each node its counters, which do not change, and how many

    @classmethod
    def _from_iterable(cls, it: Iterable[Dot]) -> frozenset[Dot]:  # type: ignore[override]
        return frozenset(it)

    def __contains__(self, dot: object) -> bool:
        return any(dot == one for one in self)

    def __iter__(self) -> Iterator[Dot]:
        for node, counters, count in self._lines:
            for counter in itertools.islice(counters, count):
                yield Dot(node, counter)

    def __len__(self) -> int:
        return sum(count for _, _, count in self._lines)


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

    def add(self, node: str, counter: int) -> bool:
        """Put a dot in; return whether it was not there."""
        counters = self.counters.setdefault(node, [])
        if not counters or counters[-1] < counter:
            counters.append(counter)
            return True
        place = bisect_left(counters, counter)
        if counters[place] == counter:
            return False
        self.counters[node] = [*counters[:place], counter, *counters[place:]]
        return True

    def discard(self, node: str, counter: int) -> bool:
        """Take a dot out; return whether it was there."""
        counters = self.counters.get(node, [])
        place = bisect_left(counters, counter)
        if place == len(counters) or counters[place] != counter:
            return False
        if len(counters) > 1:
            self.counters[node] = [*counters[:place], *counters[place + 1 :]]
        else:
            del self.counters[node]
        return True

    def before(self, clock: Mapping[str, int]) -> Before:
        """Return the dots that are in the past that a clock tells of."""
        lines = []
        for node, counters in sorted(self.counters.items()):
            upto = clock.get(node, 0)
            if upto >= counters[0]:
                lines.append((node, counters, bisect_right(counters, upto)))
        return Before(lines)


class Marks:
    """The dots that were declared lost or were late, to mark what comes after them.

    At most `lost_max` are remembered, and the first of each node, so that
    whatever has one of a node's in its past still has one that is remembered.

    Parameters
    ----------
    lost_max : int
        How many dots are remembered by name.
    """

    def __init__(self, lost_max: int) -> None:
        self.lost_max = lost_max
        self._dots = DotSet()
        self._order: deque[str] = deque()  # the node of each dot, oldest first

    def __bool__(self) -> bool:
        return bool(self._dots)

    def add(self, node: str, counter: int) -> None:
        """Remember a dot."""
        if not self._dots.add(node, counter):
            return
        self._order.append(node)
        if len(self._order) > self.lost_max:
            oldest = self._order.popleft()
            counters = self._dots.counters[oldest]
            if len(counters) > 1:
                self._dots.discard(oldest, counters[1])

    def discard(self, node: str, counter: int) -> None:
        """Forget a dot that may come after all, unless others are forgotten already.

        Of those a first one may stand for others, which would then be marked by none.
        """
        if len(self._order) < self.lost_max and self._dots.discard(node, counter):
            self._order.remove(node)

    def lose(self, node: str, first: int, last: int, out: Out) -> None:
        """Remember the dots of a hole as lost, and name them."""
        for counter in out.lose(node, first, last, self.lost_max):
            self.add(node, counter)

    def after(self, event: Event) -> Set[Dot]:
        """Return the remembered dots that are in the past of `event`."""
        return self._dots.before(event.clock) if self._dots else NONE

    def dots(self) -> frozenset[Dot]:
        """Return all dots that are remembered."""
        return frozenset(self._dots)

    def state(self) -> Any:
        """Return the memory as plain data."""
        return [[[n, list(c)] for n, c in self._dots.counters.items()], list(self._order)]

    def restore(self, state: Any) -> None:
        """Take on a memory that `state` gave."""
        self._dots.counters = {node: list(counters) for node, counters in state[0]}
        self._order = deque(state[1])


class StreamTime:
    """The time of a stream: the largest event time seen, or watermark given.

    There is no wall clock. Before any time is known `now` is None; what began
    then, began at `first`, the first time that became known.
    """

    __slots__ = ("first", "now")

    def __init__(self) -> None:
        self.now: int | None = None
        self.first: int | None = None

    def tick(self, time_us: int) -> None:
        """Take a time into account."""
        if self.now is None:
            self.first = self.now = time_us
        elif time_us > self.now:
            self.now = time_us

    def passed(self, since_us: int | None, length_us: int) -> bool:
        """Return whether `length_us` has gone by since a moment (None: before any time)."""
        if self.now is None or self.first is None:
            return False
        return self.now - (self.first if since_us is None else since_us) >= length_us
