"""The progress of one node's events in a hold-back queue (`ketal.operators.order.held_events`).

The queue holds some of a node's events, has released or given up others, and knows of
more from clocks. For each of these states, nearly all of it is one number: the counter up to
which all events have the state. Sets hold the exceptions beyond.

The one rule: a dot that is settled, or received, stays so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ketal.model.events.event import Event
from ketal.operators.order.step import holes_between


class Held:
    """An event in the queue, with its place among the arrivals and the time assigned to it."""

    __slots__ = ("arrival", "clock", "event", "node", "time_us")

    def __init__(self, arrival: int, event: Event, time_us: int = 0) -> None:
        self.arrival = arrival
        self.event = event
        self.node, self.clock = event.node, event.clock  # read faster from here
        self.time_us = time_us

    def __lt__(self, other: Held) -> bool:
        return self.arrival < other.arrival


class NodeProgress:
    """The state of one node's events; `counts` has how many dots of each node are settled."""

    __slots__ = (
        "_counts", "_node", "_received", "arrived", "clock_sum", "declared", "given_up", "held",
        "needed", "summed", "waiters",
    )  # fmt: skip

    def __init__(self, node: str, counts: dict[str, int]) -> None:
        self._node, self._counts = node, counts
        # Up to `summed`, events are received, given up, or their places have passed, kept if sums
        # are needed; `clock_sum` is a lower bound of the clock sum of the last of these. Up to
        # `declared`, events that are not held were released or given up. Up to `needed`, events are
        # in the past of an event that was held.
        self._received = self.summed = self.clock_sum = self.declared = self.needed = 0
        self.held: dict[int, Held] = {}  # the held events, by counter
        self.given_up: dict[int, int] = {}
        """The stretches of dots that are given up and not yet settled: first counter to last."""
        self.arrived: set[int] = set()
        """The dots in `given_up` that were received: before the queue was made, or late."""
        self.waiters: dict[int, list[Held]] = {}
        """The events of other nodes that wait until a counter is settled."""

    def begin(self, upto: int, beyond: Iterable[int]) -> None:
        """Count events that were seen before as received: all up to a counter, and some beyond."""
        self._counts[self._node] = self.summed = upto
        for counter in beyond:
            self.give_up_arrived(counter)

    @property
    def settled(self) -> int:
        """The counter up to which events are released or given up."""
        return self._counts[self._node]

    @property
    def received(self) -> int:
        """The counter up to which events are settled or received."""
        received, settled = self._received, self._counts[self._node]
        if settled > received:
            received = settled
        held, given_up = self.held, self.given_up
        while True:
            if received + 1 in held:
                received += 1
            elif (last := given_up.get(received + 1)) is not None:
                received = last
            else:
                break
        self._received = received
        return received

    def advance_sum(self, sum_clock: Callable[[Event], int] | None) -> None:
        """Move `summed` beyond the events that were received or given up.

        `sum_clock` returns the sum of an event's clock; None if sums are not needed.
        """
        if sum_clock is None:
            return
        held, given_up = self.held, self.given_up
        summed = self.summed
        while True:
            if (one := held.get(summed + 1)) is not None:
                summed += 1
                self.clock_sum = max(self.clock_sum + 1, sum_clock(one.event))
            elif (last := given_up.get(summed + 1)) is not None:
                self.clock_sum += last - summed
                summed = last
            else:
                break
        self.summed = summed

    def settle(self, counter: int) -> list[Held]:
        """Move `settled` to a counter, and beyond the dots after it that are given up.

        Return the events that waited for a dot settled now: of other nodes, and the node's next.
        """
        counts, node, waiters = self._counts, self._node, self.waiters
        before = counts[node]
        settled = counter if counter > before else before
        while self.given_up and settled + 1 in self.given_up:
            self.arrived.discard(settled + 1)
            settled = self.given_up.pop(settled + 1)
        if settled == before:
            return []
        counts[node] = settled
        woken: list[Held] = []
        if settled == before + 1:
            if settled in waiters:
                woken = waiters.pop(settled)
        elif waiters:
            counters = [c for c in waiters if c <= settled]
            woken = [held for c in counters for held in waiters.pop(c)]
        if (follower := self.held.get(settled + 1)) is not None:
            woken.append(follower)
        return woken

    def give_up_arrived(self, counter: int) -> None:
        """Count an event that was received and is not held as given up."""
        self.given_up[counter] = counter
        self.arrived.add(counter)

    def last_held(self, upto: int) -> Held:
        """Return the held event with the highest counter up to `upto`; there must be one."""
        return self.held[upto if upto in self.held else max(c for c in self.held if c <= upto)]

    def holes(self, upto: int) -> Iterator[tuple[int, int]]:
        """Return the holes up to `upto` that are not given up: (first, last) counters."""
        received = self.held.keys() | self.arrived if self.arrived else self.held
        return holes_between(received, max(self.settled, self.declared) + 1, upto)

    def save(self) -> list[Any]:
        """Return the state as plain data, without held and waiting events."""
        numbers = self.settled, self.received, self.summed, self.clock_sum, self.declared
        # A lower value has no effect; so the state does not show when needs were recorded.
        needed = max(self.needed, self.received)
        return [*numbers, needed, list(self.given_up.items()), sorted(self.arrived)]

    def load(self, state: Sequence[Any]) -> None:
        """Load what `save` returned."""
        settled, self._received, self.summed, self.clock_sum, self.declared, *rest = state
        self._counts[self._node] = settled
        self.needed, given_up, arrived = rest
        self.given_up, self.arrived = dict(given_up), set(arrived)
