"""Hybrid logical clocks: physical time, and a counter that separates events with equal time.

A stamp is the greatest physical time known at the event, and a counter of the events with that same
time. It differs from physical time by no more than the clocks of the nodes differ from each
other. a → b implies that a has the lesser stamp; for events of two nodes, a lesser stamp proves
nothing.

Kulkarni, Demirbas, Madappa, Avva and Leone, "Logical Physical Clocks", OPODIS 2014, Fig. 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ketal.clocks.scheme import ReplicaScheme, checked_counter, not_a_stamp


@dataclass(frozen=True, slots=True)
class HybridStamp:
    """The greatest known physical time, in µs, and a counter of the events with that time."""

    node: str
    time_us: int
    counter: int


class HybridClocks(ReplicaScheme[HybridStamp]):
    """Hybrid logical clocks."""

    name = "hlc"
    decides = False

    def replicas(self, nodes: Sequence[str]) -> dict[str, HybridStamp]:
        """Return clocks at time zero."""
        return {node: HybridStamp(node, 0, 0) for node in nodes}

    def event(
        self, replica: HybridStamp, received: Iterable[HybridStamp] = (), *, time_us: int = 0
    ) -> tuple[HybridStamp, HybridStamp]:
        """Stamp an event with the greatest of its physical time and the known stamps."""
        time, counter = max((known.time_us, known.counter) for known in [replica, *received])
        later = (time_us, 0) if time_us > time else (time, counter + 1)
        after = HybridStamp(replica.node, *later)
        return after, after

    def precedes(self, a: HybridStamp, b: HybridStamp) -> bool:
        """Return whether a's time is less, or equal with a lesser counter."""
        return (a.time_us, a.counter) < (b.time_us, b.counter)

    def proves(self, a: HybridStamp, b: HybridStamp) -> bool:
        """Return whether both events are of one node."""
        return a.node == b.node

    def written(self, stamp: HybridStamp) -> list[int]:
        """Return the time and the counter."""
        return [stamp.time_us, stamp.counter]

    def read(self, value: Any, node: str) -> HybridStamp:
        """Return the stamp of a time and a counter."""
        if not isinstance(value, list) or len(value) != 2:
            raise not_a_stamp(
                self.name, "a time in µs and a counter, such as [1700000000000000, 0]", value
            )
        time_us, counter = (checked_counter(number, "an entry") for number in value)
        return HybridStamp(node, time_us, counter)
