"""Plausible clocks: vector clocks whose entries several nodes share.

Node number i counts in entry i mod m. What happened before has the lesser stamp; the converse does
not hold, so of two nodes' events a lesser stamp proves nothing, and stamps of which neither is less
prove that the events are concurrent. With as many entries as nodes it is a vector clock, with one
Lamport's clock.

Torres-Rojas and Ahamad, "Plausible clocks: constant size logical clocks for distributed systems",
1999 (the R-entries vector). Baquero, "Causality is Graphically Simple", section "Identity
Problems".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ketal.clocks.scheme import ReplicaScheme, counter_of, not_a_stamp
from ketal.errors import SettingError

ENTRIES = 4
"""The entries of a stamp, where nothing else is asked for."""


@dataclass(frozen=True, slots=True)
class PlausibleStamp:
    """The entries of a plausible clock; node number `entry`, mod the number of entries, counts."""

    node: str
    entry: int
    entries: tuple[int, ...]


class PlausibleClocks(ReplicaScheme[PlausibleStamp]):
    """Plausible clocks: nodes share entries.

    Parameters
    ----------
    size : int
        The number of entries. The name has it, unless it is the one by default.

    Raises
    ------
    SettingError
        If there is none.
    """

    name = "plausible"
    decides = False

    def __init__(self, size: int = ENTRIES) -> None:
        if size < 1:
            raise SettingError("a plausible clock has one entry at least")
        self.size = size
        if size != ENTRIES and self.name == PlausibleClocks.name:
            self.name = f"{PlausibleClocks.name}:{size}"

    def replicas(self, nodes: Sequence[str]) -> dict[str, PlausibleStamp]:
        """Return clocks of zeros; nodes get entries in turn."""
        zeros = (0,) * self.size
        return {n: PlausibleStamp(n, at % self.size, zeros) for at, n in enumerate(nodes)}

    def event(
        self, replica: PlausibleStamp, received: Iterable[PlausibleStamp] = (), *, time_us: int = 0
    ) -> tuple[PlausibleStamp, PlausibleStamp]:
        """Stamp an event by the point-wise maximum, the node's entry one more."""
        known = [replica.entries, *(message.entries for message in received)]
        entries = [max(of_entry) for of_entry in zip(*known, strict=True)]
        entries[replica.entry] += 1
        after = PlausibleStamp(replica.node, replica.entry, tuple(entries))
        return after, after

    def precedes(self, a: PlausibleStamp, b: PlausibleStamp) -> bool:
        """Return whether a is point-wise at most b, and less in the entry where b counts."""
        return a.entries[b.entry] < b.entries[b.entry] and all(
            mine <= other for mine, other in zip(a.entries, b.entries, strict=True)
        )

    def proves(self, a: PlausibleStamp, b: PlausibleStamp) -> bool:
        """Return whether both are of one node."""
        return a.node == b.node

    def written(self, stamp: PlausibleStamp) -> list[int]:
        """Return the number of the node's entry, and the entries."""
        return [stamp.entry, *stamp.entries]

    def read(self, value: Any, node: str) -> PlausibleStamp:
        """Return the stamp of a list of numbers."""
        form = "the number of the node's entry, and the entries: [0, 2, 3]"
        if not isinstance(value, list) or len(value) != self.size + 1:
            sized = f"{form} (of {self.size} entries; plausible:N is of N)"
            raise not_a_stamp(self.name, sized, value)
        entry, *entries = (counter_of(number, "an entry") for number in value)
        if entry >= self.size or not entries[entry]:
            raise not_a_stamp(self.name, form, value)
        return PlausibleStamp(node, entry, tuple(entries))
