"""Hierarchical clocks: a clock of the station, and which events of the station are known in truth.

The clock of the station (`station_vectors`) orders all events of a station. A bit vector corrects
it: bit n is whether the event is, or is known to come after, the station's event n, along links
within the station (a host's next event, a message between two of its hosts). It is the one part of
the event's causal history that its station can know by itself; the parts at other stations are
theirs, and what they know is asked of them.

**What a clock and bits do not say** is from which event of another station something is known. A
message whose send the station may know already changes neither: the two executions of
`interleaving` in which A receives D's send or C's have equal bits too. Nor does a handoff. So a
stamp has the labels of the *remote* causes: the sends at other stations, and the host's last event
where that was at another one. Of a message within the station the bits have all there is to say,
provided that they are of all known events; of "the local causal predecessors in the same MH", as
the paper has it in one place, they would lose each such message. (Its Fig. 6, an event with two
direct causes, "does not show up in these models" only if hosts of one station send nothing to each
other: a receive has two.)

The one rule: bits for what is within the station, labels for what comes from without.

A stamp costs an entry of the clock for each station, a bit for each event of its station so far,
and a label for each remote cause: with n events at the station n/8 bytes, and a character a bit
where it is written as text. A message and a handoff carry the clock and one label; the bits stay.
Two stamps alone can answer *not before*, where the clock does not reach, and *before* of events of
one station along links within it; everything else takes recursion over the log, at as many stations
as the past has.

Prakash and Singhal, "Dependency sequences and hierarchical clocks", 1997 (after Gahlot and
Singhal, 1993); Baquero and Moura, "Improving Causality Logging in Mobile Computing Networks",
section IV, Fig. 5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ketal.clocks.mobile_hosts.station_vectors import (
    Carried,
    LinkedStations,
    StationStamp,
    clock_read,
    next_station_clock,
)
from ketal.clocks.mobile_hosts.stations import Label, label_of
from ketal.clocks.scheme import not_a_stamp


@dataclass(frozen=True, slots=True)
class HierarchicalStamp(StationStamp):
    """The clock of a station at an event, and what of the event's past a station can know.

    Attributes
    ----------
    local : int
        The bit vector: bit n - 1 is the station's event n; the highest is the event's own.
    remote : tuple of (str, int)
        The direct causes at other stations.
    """

    local: int
    remote: tuple[Label, ...]


class HierarchicalClocks(LinkedStations[HierarchicalStamp]):
    """Hierarchical clocks, with the labels of remote causes."""

    name = "hierarchical"
    decides = True

    def registered(
        self,
        station: str,
        log: Sequence[HierarchicalStamp],
        host: str,
        previous: Carried | None,
        received: Sequence[Carried],
    ) -> HierarchicalStamp:
        """Stamp an event by the station's next clock, the bits of local causes, remote labels."""
        known = received if previous is None else [previous, *received]
        local = 1 << len(log)
        remote = []
        for name, index in dict.fromkeys(one.label for one in known):
            if name == station:
                local |= log[index - 1].local
            else:
                remote.append((name, index))
        clock = next_station_clock(station, log, [one.clock for one in known])
        return HierarchicalStamp(host, station, clock, local, tuple(remote))

    def causes(
        self, stamp: HierarchicalStamp, log: Mapping[Label, HierarchicalStamp]
    ) -> Iterator[Label]:
        """Yield the remote causes, and those local ones of which none of the others knows.

        The last bit that is set is one; what it knows is left out, and so on. Its stamp is looked
        up after the label was yielded, so that who iterates has seen whether the log has it.
        """
        yield from stamp.remote
        rest = stamp.local ^ 1 << stamp.clock[stamp.station] - 1
        while rest:
            label = stamp.station, rest.bit_length()
            yield label
            rest &= ~log[label].local

    def written(self, stamp: HierarchicalStamp) -> list[Any]:
        """Return the station, its clock, the bits as the paper prints them, the remote causes."""
        return self._form(stamp, digits(stamp.local))

    def read(self, value: Any, node: str) -> HierarchicalStamp:
        """Return the stamp of a station, a clock, bits and labels."""
        match value:
            case [str(station), dict(entries), str() | bytes() as given, list(labels)]:
                bits = given if isinstance(given, str) else digits(int.from_bytes(given, "little"))
                clock = clock_read(entries, station)
                if clock and clock[station] == len(bits) and re.fullmatch("[01]*1", bits):
                    remote = tuple(label_of(label, "a remote cause") for label in labels)
                    return HierarchicalStamp(node, station, clock, int(bits[::-1], 2), remote)
        form = (
            "a station, its clock, a bit for each of its events, the remote causes: "
            '["s1", {"s1": 3, "s2": 1}, "101", [["s2", 1]]]'
        )
        raise not_a_stamp(self.name, form, value)

    def encode(self, stamp: HierarchicalStamp) -> bytes:
        """Return a stamp in bytes, the bits as bits."""
        packed = stamp.local.to_bytes((stamp.local.bit_length() + 7) // 8, "little")
        return msgspec.msgpack.encode(self._form(stamp, packed))

    def _form(self, stamp: HierarchicalStamp, bits: str | bytes) -> list[Any]:
        remote = [list(label) for label in stamp.remote]
        return [stamp.station, dict(sorted(stamp.clock.items())), bits, remote]


def digits(local: int) -> str:
    """Return a bit vector as it is printed: the digit of event 1 first."""
    return f"{local:b}"[::-1]
