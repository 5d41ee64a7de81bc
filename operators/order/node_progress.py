"""What a hold-back queue knows of each node's events (`ketal.operators.order.hold_back`).

Of a node's counters the queue holds some, has released or given up others, and knows of
more from the clocks of events. Nearly all of that is one number a node: up to which
counter it is so for all. Sets hold the exceptions beyond.

The one rule: what is settled, and what was received, stays so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ketal.model.event import Event
from ketal.operators.order.released import holes_between


class Held(NamedTuple):
    """An event in the queue, with its place among the arrivals."""

    arrival: int
    event: Event


class Line:
    """What is known of one node's events."""

    __slots__ = (
        "earlier", "given", "heard", "held", "holes", "known", "reach", "settled", "sum",
        "waiting",
    )  # fmt: skip

    def __init__(self) -> None:
        self.settled = 0  # so many are released or given up
        self.reach = 0  # so many are settled or received
        self.heard = 0  # as `reach`, or whose place has passed; kept if sums are asked for
        self.sum = 0  # at least the sum of the clock of the last of these
        self.given = 0  # up to here, what is not held was released or given up
        self.known = 0  # up to here, events that were held have it in their past
        self.held: dict[int, Held] = {}
        self.holes: dict[int, int] = {}  # given up, not yet settled: first to last
        # Of these, what was received: before the queue was made, or late.
        self.earlier: set[int] = set()
        self.waiting: dict[int, list[Held]] = {}  # events that wait until this is settled

    def extend(self, size: Callable[[Event], int] | None) -> None:
        """Move `reach` and `heard` over what has been received or given up; `size` sums a clock."""
        reach, held, holes = self.reach, self.held, self.holes
        while True:
            if reach + 1 in held:
                reach += 1
            elif (last := holes.get(reach + 1)) is not None:
                reach = last
            else:
                break
        self.reach = reach
        if size is None:
            return
        heard = self.heard
        while True:
            if (one := held.get(heard + 1)) is not None:
                heard += 1
                self.sum = max(self.sum + 1, size(one.event))
            elif (last := holes.get(heard + 1)) is not None:
                self.sum += last - heard
                heard = last
            else:
                break
        self.heard = heard

    def last_held(self, upto: int) -> int:
        """Return the highest counter up to `upto` that is held; 0 for none."""
        return upto if upto in self.held else max((c for c in self.held if c <= upto), default=0)

    def missing(self, upto: int) -> Iterator[tuple[int, int]]:
        """Return the holes below or at `upto`, first and last, that are not given up."""
        received = self.held.keys() | self.earlier if self.earlier else self.held
        return holes_between(received, max(self.settled, self.given) + 1, upto)

    def state(self) -> list[Any]:
        """Return the state as plain data, but for what is held and what waits."""
        return [
            *(self.settled, self.reach, self.heard, str(self.sum), self.given, self.known),
            *([list(hole) for hole in self.holes.items()], sorted(self.earlier)),
        ]

    def restore(self, state: Sequence[Any]) -> None:
        """Take on a state that `state` gave."""
        settled, reach, heard, total, given, known, holes, earlier = state
        self.settled, self.reach, self.heard, self.sum = settled, reach, heard, int(total)
        self.given, self.known = given, known
        self.holes, self.earlier = dict(holes), set(earlier)
