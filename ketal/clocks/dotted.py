"""Dotted vector clocks: the dot of an event, separate from the vector clock of its past.

One look-up compares two events: a → b iff b's past contains a's dot. (The same holds for plain
vector clocks, since the node of each event is known.)

Baquero, "Causality is Graphically Simple", section "Dotted Vector Clocks".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ketal.clocks.scheme import Clock, ReplicaScheme, checked_counter, checked_counters, not_a_stamp
from ketal.clocks.vector import join


@dataclass(frozen=True, slots=True)
class DottedVector:
    """The dot of an event and the clock of the events before it; counter 0 before the first."""

    node: str
    counter: int
    past: Clock


class DottedClocks(ReplicaScheme[DottedVector]):
    """Dotted vector clocks."""

    name = "dvv"
    decides = True

    def replicas(self, nodes: Sequence[str]) -> dict[str, DottedVector]:
        """Return clocks of zeros."""
        return {node: DottedVector(node, 0, {}) for node in nodes}

    def event(
        self, replica: DottedVector, received: Iterable[DottedVector] = (), *, time_us: int = 0
    ) -> tuple[DottedVector, DottedVector]:
        """Stamp an event with its dot and the pointwise maximum of the known clocks."""
        past = join(map(full_clock, [replica, *received]))
        after = DottedVector(replica.node, past.get(replica.node, 0) + 1, past)
        return after, after

    def precedes(self, a: DottedVector, b: DottedVector) -> bool:
        """Return whether b's past contains a's dot."""
        return b.past.get(a.node, 0) >= a.counter

    def clock_of(self, stamp: DottedVector) -> Clock:
        """Return the clock of the past and the dot."""
        return full_clock(stamp)

    def written(self, stamp: DottedVector) -> dict[str, Any]:
        """Return the dot and the past as an object."""
        return {
            "dot": [stamp.node, stamp.counter],
            "past": dict(sorted(stamp.past.items())),
        }

    def read(self, value: Any, node: str) -> DottedVector:
        """Return the stamp of a dot and a past."""
        example = '{"dot": ["a", 2], "past": {"a": 1, "b": 3}}'
        match value:
            case {"dot": [str(name), counter], "past": dict(past)} if name == node:
                own = checked_counter(counter, f"the counter of {node!r}", 1)
                known = checked_counters(past)
                if known.get(node, 0) < own:
                    return DottedVector(node, own, known)
        raise not_a_stamp(self.name, f"a dot of {node} and its past, such as {example}", value)


def full_clock(stamp: DottedVector) -> Mapping[str, int]:
    """Return the vector clock of an event: its past and its dot, which leave no gap."""
    return {**stamp.past, stamp.node: stamp.counter}
