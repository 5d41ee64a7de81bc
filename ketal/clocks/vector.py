"""Vector clocks: a counter for every node.

A stamp is (node, clock): the node of the event and its clock, a
mapping node → counter in which an absent node counts 0. The entry of the event's own node
counts from 1, so (node, clock[node]), the *dot* of the event, identifies it. Baquero,
"Causality is Graphically Simple", Fig. 4.

Happened-before is one look-up: a → b iff a ≠ b and b.clock[a.node] ≥
a.clock[a.node] (whether a's dot is in b's causal history). `compare`
is the full pointwise comparison, the obvious definition; a test checks that the two agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ketal.clocks.scheme import Clock, ReplicaScheme, not_a_stamp
from ketal.errors import EventError, value_text

COUNTER_MAX = 2**63 - 1


def no_counter_text(name: str, entry: Any) -> str:
    """Return the statement that an entry of a clock is not a counter."""
    return f"clock: the entry for {name!r} must be an integer, not {value_text(entry)}"


def checked(node: str, clock: Mapping[str, int]) -> dict[str, int]:
    """Return `clock`, checked to be the vector clock of an event of `node`, without zeros.

    Raises an EventError if an entry is not a counter, or the own entry is missing or zero.
    """
    entries: dict[str, int] = {}
    for name, counter in clock.items():
        if not isinstance(name, str):
            raise EventError(f"clock: a node's name must be a string, not {name!r}")
        if not isinstance(counter, int) or isinstance(counter, bool):
            raise EventError(no_counter_text(name, counter))
        if counter < 0:
            raise EventError(f"clock: the entry for {name!r} is negative")
        if counter > COUNTER_MAX:
            raise EventError(f"clock: the entry for {name!r} is too large; the maximum is 2^63 - 1")
        if counter:
            entries[name] = counter
    if node not in entries:
        what = "is zero" if node in clock else "is missing"
        raise EventError(f"clock: the node's own entry {node!r} {what}; counters start at 1")
    return entries


def happened_before(a_node: str, a_clock: Clock, b_node: str, b_clock: Clock) -> bool:
    """Return whether a happened before b, by one look-up."""
    counter = a_clock[a_node]
    if b_node == a_node:
        return b_clock[a_node] > counter
    return b_clock.get(a_node, 0) >= counter


def compare(a_clock: Clock, b_clock: Clock) -> bool:
    """Return whether a's clock is pointwise at most b's, and different.

    For events of one execution this is equivalent to `happened_before`, but reads every entry.
    """
    return _is_at_most(a_clock, b_clock) and not _is_at_most(b_clock, a_clock)


def _is_at_most(a_clock: Clock, b_clock: Clock) -> bool:
    return all(counter <= b_clock.get(node, 0) for node, counter in a_clock.items())


def join(clocks: Iterable[Clock]) -> dict[str, int]:
    """Return the pointwise maximum of some clocks."""
    out: dict[str, int] = {}
    for clock in clocks:
        for node, counter in clock.items():
            if counter > out.get(node, 0):
                out[node] = counter
    return out


def next_clock(node: str, known: Iterable[Clock]) -> dict[str, int]:
    """Return the clock of a node's next event: the join of `known`, the own entry incremented."""
    clock = join(known)
    clock[node] = clock.get(node, 0) + 1
    return clock


def maximal_events(clocks: Mapping[tuple[str, int], Clock]) -> Iterator[tuple[str, int]]:
    """Yield the maximal events: those that happened before no other event in `clocks`.

    `clocks` are given by the node and counter of their events.
    """
    known: dict[str, int] = {}  # to the maximal events so far
    # An event has a larger sum than all events before it.
    for node, counter in sorted(clocks, key=lambda dot: (-sum(clocks[dot].values()), dot)):
        if known.get(node, 0) < counter:
            yield node, counter
            for name, last in clocks[node, counter].items():
                known[name] = max(last, known.get(name, 0))


@dataclass(frozen=True, slots=True)
class Vector:
    """The vector clock of an event and its node; an absent entry is 0."""

    node: str
    clock: Clock


class VectorClocks(ReplicaScheme[Vector]):
    """Vector clocks."""

    name = "vector"
    decides = True

    def replicas(self, nodes: Sequence[str]) -> dict[str, Vector]:
        """Return clocks of zeros."""
        return {node: Vector(node, {}) for node in nodes}

    def event(
        self, replica: Vector, received: Iterable[Vector] = (), *, time_us: int = 0
    ) -> tuple[Vector, Vector]:
        """Stamp an event with the pointwise maximum, the own entry incremented."""
        known = [replica.clock, *(message.clock for message in received)]
        after = Vector(replica.node, next_clock(replica.node, known))
        return after, after

    def precedes(self, a: Vector, b: Vector) -> bool:
        """Return whether a happened before b, by one look-up."""
        return happened_before(a.node, a.clock, b.node, b.clock)

    def clock_of(self, stamp: Vector) -> Clock:
        """Return the clock."""
        return stamp.clock

    def written(self, stamp: Vector) -> dict[str, int]:
        """Return the clock as an object."""
        return dict(sorted(stamp.clock.items()))

    def read(self, value: Any, node: str) -> Vector:
        """Return the stamp of a clock given as an object."""
        if not isinstance(value, dict):
            raise not_a_stamp(self.name, 'an object such as {"a": 1, "b": 2}', value)
        return Vector(node, checked(node, value))
