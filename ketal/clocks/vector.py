"""Vector clocks: a counter for every node.

A stamp is (node, clock): the node where the event happened and its clock, a
mapping node → counter in which an absent node counts 0. The event's own entry
counts from 1, so (node, clock[node]), its *dot*, identifies it. Baquero,
"Causality is Graphically Simple", Fig. 4.

Happened-before is one look-up: a → b iff a ≠ b and b.clock[a.node] ≥
a.clock[a.node] (the dot test, definition of causal history by dots). `compare`
is the full pointwise comparison, kept as the obvious form; a test holds the two
equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ketal.clocks.scheme import Clock, ReplicaScheme, not_a_stamp
from ketal.errors import EventError

COUNTER_MAX = 2**63 - 1


def checked(node: str, clock: Mapping[str, int]) -> dict[str, int]:
    """Return `clock` as the vector clock of an event of `node`, zeros dropped.

    Raises
    ------
    EventError
        If an entry is no counter, or the node's own entry is missing or zero.
    """
    entries: dict[str, int] = {}
    for name, counter in clock.items():
        if not isinstance(name, str):
            raise EventError(f"clock: a node's name must be a string, not {name!r}")
        if not isinstance(counter, int) or isinstance(counter, bool):
            raise EventError(f"clock: the entry of {name!r} must be an integer, not {counter!r}")
        if counter < 0:
            raise EventError(f"clock: the entry of {name!r} is negative")
        if counter > COUNTER_MAX:
            raise EventError(f"clock: the entry of {name!r} is too large; counters end at 2^63 - 1")
        if counter:
            entries[name] = counter
    if node not in entries:
        what = "is zero" if node in clock else "is missing"
        raise EventError(f"clock: the own entry of node {node!r} {what}; a node counts from 1")
    return entries


def happened_before(a_node: str, a_clock: Clock, b_node: str, b_clock: Clock) -> bool:
    """Return whether a → b, by one look-up."""
    counter = a_clock[a_node]
    if b_node == a_node:
        return b_clock[a_node] > counter
    return b_clock.get(a_node, 0) >= counter


def compare(a_clock: Clock, b_clock: Clock) -> bool:
    """Return whether a's clock is pointwise at most b's, and not equal to it.

    For events of one execution this is the same as `happened_before`; it reads
    every entry.
    """
    return _is_within(a_clock, b_clock) and not _is_within(b_clock, a_clock)


def _is_within(a_clock: Clock, b_clock: Clock) -> bool:
    return all(counter <= b_clock.get(node, 0) for node, counter in a_clock.items())


def join(clocks: Iterable[Clock]) -> dict[str, int]:
    """Return the least clock that knows what any of some know."""
    out: dict[str, int] = {}
    for clock in clocks:
        for node, counter in clock.items():
            if counter > out.get(node, 0):
                out[node] = counter
    return out


def next_clock(node: str, known: Iterable[Clock]) -> dict[str, int]:
    """Return the clock of a node's next event: what is known, the own entry one more."""
    clock = join(known)
    clock[node] = clock.get(node, 0) + 1
    return clock


def latest(clocks: Mapping[tuple[str, int], Clock]) -> Iterator[tuple[str, int]]:
    """Yield the events of which no other one knows, of clocks by the events' node and counter."""
    # What knows an event has the larger sum.
    left = sorted(clocks, key=lambda dot: (-sum(clocks[dot].values()), dot))
    while left:
        last, *others = left
        yield last
        clock = clocks[last]
        left = [(node, counter) for node, counter in others if clock.get(node, 0) < counter]


@dataclass(frozen=True, slots=True)
class Vector:
    """A node and its clock: an absent entry is 0."""

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
        """Stamp an event by the point-wise maximum, the own entry one more."""
        known = [replica.clock, *(message.clock for message in received)]
        after = Vector(replica.node, next_clock(replica.node, known))
        return after, after

    def precedes(self, a: Vector, b: Vector) -> bool:
        """Return whether a → b, by one look-up."""
        return happened_before(a.node, a.clock, b.node, b.clock)

    def clock_of(self, stamp: Vector) -> Clock:
        """Return the clock."""
        return stamp.clock

    def written(self, stamp: Vector) -> dict[str, int]:
        """Return the clock as an object."""
        return dict(sorted(stamp.clock.items()))

    def read(self, value: Any, node: str) -> Vector:
        """Return the stamp of a clock that is an object."""
        if not isinstance(value, dict):
            raise not_a_stamp(self.name, 'an object: {"a": 1, "b": 2}', value)
        return Vector(node, checked(node, value))
