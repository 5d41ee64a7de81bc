"""Plausible clocks: vector clocks whose entries are shared by several nodes.

Node number i counts in entry i mod m. a → b implies that a has the lesser stamp. The converse does
not hold: for events of two nodes, a lesser stamp proves nothing; but if neither stamp is less, the
events are concurrent. With as many entries as nodes this is a vector clock, with one entry it is
Lamport's clock.

Torres-Rojas and Ahamad, "Plausible clocks: constant size logical clocks for distributed systems",
1999 (the R-entries vector). Baquero, "Causality is Graphically Simple", section "Identity
Problems".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ketal.clocks.scheme import Clock, ReplicaScheme, checked_counter, not_a_stamp
from ketal.errors import SettingError

ENTRIES = 4
"""The default number of entries of a stamp."""


@dataclass(frozen=True, slots=True)
class PlausibleStamp:
    """The entries of a plausible clock, and the index `entry` at which the event's node counts."""

    node: str
    entry: int
    entries: tuple[int, ...]


class PlausibleClocks(ReplicaScheme[PlausibleStamp]):
    """Plausible clocks: nodes share entries.

    `size` is the number of entries, which is part of the scheme's name unless it is the default; a
    SettingError is raised if it is less than 1.
    """

    name = "plausible"
    decides = False

    def __init__(self, size: int = ENTRIES) -> None:
        if size < 1:
            raise SettingError("a plausible clock must have at least one entry")
        self.size = size
        if size != ENTRIES and self.name == PlausibleClocks.name:
            self.name = f"{PlausibleClocks.name}:{size}"

    def replicas(self, nodes: Sequence[str]) -> dict[str, PlausibleStamp]:
        """Return clocks of zeros; entries are assigned to nodes in turn."""
        zeros = (0,) * self.size
        return {n: PlausibleStamp(n, at % self.size, zeros) for at, n in enumerate(nodes)}

    def event(
        self, replica: PlausibleStamp, received: Iterable[PlausibleStamp] = (), *, time_us: int = 0
    ) -> tuple[PlausibleStamp, PlausibleStamp]:
        """Stamp an event with the pointwise maximum, the node's entry incremented."""
        known = [replica.entries, *(message.entries for message in received)]
        entries = [max(values) for values in zip(*known, strict=True)]
        entries[replica.entry] += 1
        after = PlausibleStamp(replica.node, replica.entry, tuple(entries))
        return after, after

    def entries(self, clock: Clock) -> int:
        """Return the number of entries, whatever the number of nodes."""
        return self.size

    def precedes(self, a: PlausibleStamp, b: PlausibleStamp) -> bool:
        """Return whether a is pointwise at most b, and less in the entry where b's node counts."""
        return a.entries[b.entry] < b.entries[b.entry] and all(
            mine <= other for mine, other in zip(a.entries, b.entries, strict=True)
        )

    def proves(self, a: PlausibleStamp, b: PlausibleStamp) -> bool:
        """Return whether both events are of one node."""
        return a.node == b.node

    def written(self, stamp: PlausibleStamp) -> list[int]:
        """Return the index of the node's entry, then the entries."""
        return [stamp.entry, *stamp.entries]

    def read(self, value: Any, node: str) -> PlausibleStamp:
        """Return the stamp of a list of numbers."""
        form = "the index of the node's entry and the entries, such as [0, 2, 3]"
        if not isinstance(value, list) or len(value) != self.size + 1:
            sized = f"{form}, with {self.size} entries (plausible:N has N entries)"
            raise not_a_stamp(self.name, sized, value)
        entry, *entries = (checked_counter(number, "an entry") for number in value)
        if entry >= self.size or not entries[entry]:
            raise not_a_stamp(self.name, form, value)
        return PlausibleStamp(node, entry, tuple(entries))
