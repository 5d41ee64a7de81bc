"""Causal histories: the set of an event and all events that happened before it.

Each event has a unique name, its *dot*: node and counter. Its history is the union of its dot, the
history of the previous event of its node, and the histories of the sends that it received. a → b
iff a's dot is in b's history (and a ≠ b). All other schemes are tested against this definition,
whose stamps grow with every event.

Baquero, "Causality is Graphically Simple", section "Causal Histories", Fig. 3 (after Schwarz and
Mattern, 1994; Birman and Joseph, 1987).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ketal.clocks.scheme import Clock, ReplicaScheme, checked_counter, not_a_stamp
from ketal.clocks.vector import join

Dots = frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class CausalHistory:
    """The causal history of an event; that of a replica is the history of its last event."""

    node: str
    counter: int  # the number of the event at its node, from 1; 0 before the first event
    dots: Dots  # the dots of the event and of all events that happened before it


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
        """Stamp an event with the union of the known histories and its own dot."""
        counter = replica.counter + 1
        own = {(replica.node, counter)}
        dots = replica.dots.union(own, *(message.dots for message in received))
        after = CausalHistory(replica.node, counter, dots)
        return after, after

    def entries(self, clock: Clock) -> int:
        """Return the number of dots in the history."""
        return sum(clock.values())

    def precedes(self, a: CausalHistory, b: CausalHistory) -> bool:
        """Return whether b's history contains a's dot, and a is not b."""
        return a.dots != b.dots and (a.node, a.counter) in b.dots

    def clock_of(self, stamp: CausalHistory) -> Clock:
        """Return the greatest counter of each node in the history."""
        return join({node: counter} for node, counter in stamp.dots)

    def written(self, stamp: CausalHistory) -> list[str]:
        """Return the dots, as `a@1`, with the event's own dot last."""
        own = (stamp.node, stamp.counter)
        return [f"{node}@{counter}" for node, counter in [*sorted(stamp.dots - {own}), own]]

    def read(self, value: Any, node: str) -> CausalHistory:
        """Return the history of a list of dots, the last of which is the event's own."""
        form = 'a list of dots, the event\'s own last, such as ["b@1", "a@1"]'
        if not isinstance(value, list) or not value:
            raise not_a_stamp(self.name, form, value)
        dots = []
        for text in value:
            name, at, counter = text.rpartition("@") if isinstance(text, str) else ("", "", "")
            if not (at and name and counter.isascii() and counter.isdigit()):
                raise not_a_stamp(self.name, form, value)
            dots.append((name, checked_counter(int(counter), f"the counter of {name!r}", 1)))
        if dots[-1][0] != node:
            raise not_a_stamp(self.name, f"a list of dots, the last a dot of {node}", value)
        return CausalHistory(node, dots[-1][1], frozenset(dots))
