"""What a live CausalOrder says at each step, and the memory of what it had to give up.

A step releases events, declares dots lost, finds events late or refuses them.
An event is released with the lost and late dots of its past: what a pattern
says of it could be otherwise had these been seen ("after a gap", DESIGN 5).

The one rule: an event that has a dot in its past which was declared lost, or
came late, is never released unmarked, however few of those dots are remembered.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from ketal.event import Dot, Event

NONE: frozenset[Dot] = frozenset()
_SETS_MAX = 64


class Released(NamedTuple):
    """An event whose turn has come.

    Attributes
    ----------
    event : Event
    after : frozenset of Dot
        The dots of its past that were declared lost or were late.
    """

    event: Event
    after: frozenset[Dot] = NONE


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


NOTHING = Step()


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
        self._counters: dict[str, list[int]] = {}
        self._order: deque[str] = deque()  # the node of each dot, oldest first
        self._sets: dict[tuple[int, ...], frozenset[Dot]] = {}

    def __bool__(self) -> bool:
        return bool(self._counters)

    def add(self, node: str, counter: int) -> None:
        """Remember a dot."""
        counters = self._counters.setdefault(node, [])
        place = bisect_left(counters, counter)
        if place < len(counters) and counters[place] == counter:
            return
        if place < len(counters) or not counters:
            self._sets.clear()  # a set is known by how many dots of each node it holds
        counters.insert(place, counter)
        self._order.append(node)
        if len(self._order) > self.lost_max:
            oldest = self._counters[self._order.popleft()]
            if len(oldest) > 1:
                del oldest[1]
                self._sets.clear()

    def discard(self, node: str, counter: int) -> None:
        """Forget a dot that may come after all, unless others are forgotten already.

        Of those a first one may stand for others, which would then be marked by none.
        """
        if len(self._order) >= self.lost_max:
            return
        counters = self._counters.get(node, [])
        place = bisect_left(counters, counter)
        if place == len(counters) or counters[place] != counter:
            return
        del counters[place]
        if not counters:
            del self._counters[node]
        self._order.remove(node)
        self._sets.clear()

    def lose(self, node: str, first: int, last: int, out: Out) -> None:
        """Remember the dots of a hole as lost, and say so."""
        for counter in out.lose(node, first, last, self.lost_max):
            self.add(node, counter)

    def after(self, event: Event) -> frozenset[Dot]:
        """Return the remembered dots that are in the past of `event`."""
        if not self._counters:
            return NONE
        clock = event.clock
        key = tuple([bisect_right(c, clock.get(n, 0)) for n, c in self._counters.items()])
        found = self._sets.get(key)
        if found is None:
            found = frozenset(
                Dot(node, counter)
                for (node, counters), upto in zip(self._counters.items(), key, strict=True)
                for counter in counters[:upto]
            )
            if len(self._sets) >= _SETS_MAX:
                self._sets.clear()
            self._sets[key] = found
        return found

    def dots(self) -> frozenset[Dot]:
        """Return all dots that are remembered."""
        return frozenset(Dot(n, c) for n, counters in self._counters.items() for c in counters)

    def state(self) -> Any:
        """Return the memory as plain data."""
        return [[[n, list(c)] for n, c in self._counters.items()], list(self._order)]

    def restore(self, state: Any) -> None:
        """Take on a memory that `state` gave."""
        self._counters = {node: list(counters) for node, counters in state[0]}
        self._order = deque(state[1])
        self._sets = {}


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
