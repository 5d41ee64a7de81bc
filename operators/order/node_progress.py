"""What a hold-back queue knows of each node's events (`ketal.operators.order.held_events`).

Of a node's counters the queue holds some, has released or given up others, and knows of
more from the clocks of events. Nearly all of that is one number a node: up to which
counter it is so for all. Sets hold the exceptions beyond.

The one rule: what is settled, and what was received, stays so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ketal.model.event import Event
from ketal.operators.order.step import holes_between


class Held(NamedTuple):
    """An event in the queue, with its place among the arrivals and the time it counts as."""

    arrival: int
    event: Event
    time_us: int = 0


class NodeProgress:
    """What is known of one node's events.

    Attributes
    ----------
    settled : int
        So many are released or given up.
    received : int
        So many are settled or received.
    placed : int
        As `received`, or whose place has passed; kept if sums are asked for.
    clock_sum : int
        What the clock of the last of these sums up to, at least.
    declared : int
        Up to here, what is not held was released or given up.
    needed : int
        Up to here, events that were held have it in their past.
    held : dict of int to Held
        The held events, by counter.
    given_up : dict of int to int
        What is given up and not yet settled: the first of a stretch to its last.
    arrived : set of int
        What of this was received: before the queue was made, or late.
    waiters : dict of int to list of Held
        The events that wait until a counter is settled.
    """

    __slots__ = (
        "arrived", "clock_sum", "declared", "given_up", "held", "needed", "placed", "received",
        "settled", "waiters",
    )  # fmt: skip

    def __init__(self) -> None:
        self.settled = self.received = self.placed = self.clock_sum = 0
        self.declared = self.needed = 0
        self.held: dict[int, Held] = {}
        self.given_up: dict[int, int] = {}
        self.arrived: set[int] = set()
        self.waiters: dict[int, list[Held]] = {}

    def begin(self, upto: int, beyond: Iterable[int]) -> None:
        """Begin with what was seen before: all up to a counter, and some beyond."""
        self.settled = self.received = self.placed = self.needed = upto
        for counter in beyond:
            self.give_up_arrived(counter)

    def extend(self, size: Callable[[Event], int] | None) -> None:
        """Move `received` and `placed` over what was received or given up.

        Parameters
        ----------
        size : callable or None
            Sums an event's clock; None if sums are not asked for.
        """
        received, held, given_up = self.received, self.held, self.given_up
        while True:
            if received + 1 in held:
                received += 1
            elif (last := given_up.get(received + 1)) is not None:
                received = last
            else:
                break
        self.received = received
        if size is None:
            return
        placed = self.placed
        while True:
            if (one := held.get(placed + 1)) is not None:
                placed += 1
                self.clock_sum = max(self.clock_sum + 1, size(one.event))
            elif (last := given_up.get(placed + 1)) is not None:
                self.clock_sum += last - placed
                placed = last
            else:
                break
        self.placed = placed

    def settle(self, counter: int) -> list[Held]:
        """Move `settled` to a counter and over what follows that is given up.

        Returns
        -------
        list of Held
            The events that waited for one of these.
        """
        before = self.settled
        settled = max(before, counter)
        while self.given_up and settled + 1 in self.given_up:
            self.arrived.discard(settled + 1)
            settled = self.given_up.pop(settled + 1)
        if settled == before:
            return []
        self.settled = settled
        self.received = max(self.received, settled)
        waiters = self.waiters
        if not waiters:
            return []
        if settled - before <= len(waiters):
            counters = [c for c in range(before + 1, settled + 1) if c in waiters]
        else:
            counters = [c for c in waiters if c <= settled]
        woken = [held for c in counters for held in waiters.pop(c)]
        if not waiters:
            self.waiters = {}  # a dict that was large stays large
        return woken

    def give_up_arrived(self, counter: int) -> None:
        """Count one event as given up that was received and is not held."""
        self.given_up[counter] = counter
        self.arrived.add(counter)

    def last_held(self, upto: int) -> int:
        """Return the highest counter up to `upto` that is held; 0 for none."""
        return upto if upto in self.held else max((c for c in self.held if c <= upto), default=0)

    def missing(self, upto: int) -> Iterator[tuple[int, int]]:
        """Return the holes below or at `upto`, first and last, that are not given up."""
        received = self.held.keys() | self.arrived if self.arrived else self.held
        return holes_between(received, max(self.settled, self.declared) + 1, upto)

    def state(self) -> list[Any]:
        """Return the state as plain data, but for what is held and what waits."""
        numbers = self.settled, self.received, self.placed, str(self.clock_sum)
        given_up = [list(stretch) for stretch in self.given_up.items()]
        return [*numbers, self.declared, self.needed, given_up, sorted(self.arrived)]

    def restore(self, state: Sequence[Any]) -> None:
        """Restore what `state` returned."""
        self.settled, self.received, self.placed, clock_sum, *rest = state
        self.declared, self.needed, given_up, arrived = rest
        self.clock_sum = int(clock_sum)
        self.given_up, self.arrived = dict(given_up), set(arrived)
