"""Causal histories: of each event the set of events that it knows, its own name included.

An event has a unique name, its *dot*: node and counter. Its history is its dot and the histories of
the event before it in its node and of the sends that it received. a → b iff a's dot is in b's
history. This is the definition against which every other scheme is tested; it grows with each
event.

Baquero, "Causality is Graphically Simple", section "Causal Histories", Fig. 3 (after Schwarz and
Mattern, 1994; Birman and Joseph, 1987).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ketal.clocks.scheme import Clock, ReplicaScheme, counter_of, not_a_stamp
from ketal.clocks.vector import join

Dots = frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class CausalHistory:
    """The history of an event; of a replica, that of its last event.

    Attributes
    ----------
    node : str
        The node.
    counter : int
        The number of the event in it, from 1 on; 0 before the first.
    dots : frozenset of (str, int)
        The names of the events that are known.
    """

    node: str
    counter: int
    dots: Dots


class CausalHistories(ReplicaScheme[CausalHistory]):
    """Causal histories."""

    name = "history"
    decides = True

    def replicas(self, nodes: Sequence[str]) -> dict[str, CausalHistory]:
        """Return empty histories."""
        return {node: CausalHistory(node, 0, frozenset()) for node in nodes}

    def event(
        self, replica: CausalHistory, received: Iterable[CausalHistory] = (), *, time_us: int = 0
    ) -> tuple[CausalHistory, CausalHistory]:
        """Stamp an event by the union of what is known and its own dot."""
        counter = replica.counter + 1
        own = {(replica.node, counter)}
        dots = replica.dots.union(own, *(message.dots for message in received))
        after = CausalHistory(replica.node, counter, dots)
        return after, after

    def entries(self, clock: Clock) -> int:
        """Return how many events are known."""
        return sum(clock.values())

    def precedes(self, a: CausalHistory, b: CausalHistory) -> bool:
        """Return whether b knows a."""
        return a.dots != b.dots and (a.node, a.counter) in b.dots

    def clock_of(self, stamp: CausalHistory) -> Clock:
        """Return of each node the last event that is known."""
        return join({node: counter} for node, counter in stamp.dots)

    def written(self, stamp: CausalHistory) -> list[str]:
        """Return the dots, as `a@1`, that of the event last."""
        own = (stamp.node, stamp.counter)
        return [f"{node}@{counter}" for node, counter in [*sorted(stamp.dots - {own}), own]]

    def read(self, value: Any, node: str) -> CausalHistory:
        """Return the history of dots, of which the last is the event's."""
        form = 'a list of dots, the event\'s last: ["b@1", "a@1"]'
        if not isinstance(value, list) or not value:
            raise not_a_stamp(self.name, form, value)
        dots = []
        for text in value:
            name, at, counter = text.rpartition("@") if isinstance(text, str) else ("", "", "")
            if not (at and name and counter.isascii() and counter.isdigit()):
                raise not_a_stamp(self.name, form, value)
            dots.append((name, counter_of(int(counter), f"the counter of {name!r}", 1)))
        if dots[-1][0] != node:
            raise not_a_stamp(self.name, f"{form}; of an event of {node}", value)
        return CausalHistory(node, dots[-1][1], frozenset(dots))
