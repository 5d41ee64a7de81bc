"""Hierarchical clocks: a clock of the station, and a bit for each event of the station.

The clock of the station (`station_vectors`) orders all events of a station. A bit vector corrects
it: bit n is set if the event is the station's event n, or happened after it along links within the
station (from an event of a host to its next one, or a message between two hosts of the station).
These bits are the part of the event's causal history that its station can determine by itself; the
other parts are in the logs of other stations.

**The clock and the bits do not show** from which event of another station the knowledge came. A
message whose send the station may know already changes neither: the two executions described in
`interleaving`, in which A receives D's send or C's, have equal bits too. Nor does a handoff change
them. So a stamp also has the labels of the *remote* causes: the sends at other stations, and the
host's last event if that was at another station. For a message within the station the bits
suffice, provided that they cover all known events of the station; if they covered only "the local
causal predecessors in the same MH", as the paper says in one place, each such message would be
lost. (The paper's Fig. 6, an event with two direct causes, "does not show up in these models" only
if hosts of one station send nothing to each other: a receive has two direct causes.)

The one rule: bits represent causes within the station, labels those at other stations.

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
    next_station_clock,
    read_station_clock,
)
from ketal.clocks.mobile_hosts.stations import Label, cause_headers, label_of
from ketal.clocks.scheme import Clock, not_a_stamp


@dataclass(frozen=True, slots=True)
class HierarchicalStamp(StationStamp):
    """The clock of a station at an event, the bits of local causes, and remote causes."""

    local: int
    """The bit vector: bit n - 1 is the station's event n; the highest set bit is this event."""
    remote: tuple[Label, ...]  # the labels of the direct causes at other stations


class HierarchicalClocks(LinkedStations[HierarchicalStamp]):
    """Hierarchical clocks, with the labels of remote causes added."""

    name = "hierarchical"
    decides = True

    def stamp_event(
        self,
        station: str,
        log: Sequence[HierarchicalStamp],
        host: str,
        previous: Carried | None,
        received: Sequence[Carried],
    ) -> HierarchicalStamp:
        """Stamp an event with the station's next clock, bits of local causes and remote labels."""
        known = cause_headers(previous, received)
        local = 1 << len(log)
        remote = []
        for name, index in dict.fromkeys(cause.label for cause in known):
            if name == station:
                local |= log[index - 1].local
            else:
                remote.append((name, index))
        clock = next_station_clock(station, log, [cause.clock for cause in known])
        return HierarchicalStamp(host, station, clock, local, tuple(remote))

    def entries(self, clock: Clock) -> int:
        """Return an estimate: the entries of the clock, and one for each 64 events that it knows.

        It is exact if all events are of one station and know each other.
        """
        return len(clock) + sum(clock.values()) // 64

    def causes(
        self, stamp: HierarchicalStamp, log: Mapping[Label, HierarchicalStamp]
    ) -> Iterator[Label]:
        """Yield the remote causes, then the maximal local causes.

        The highest bit is a maximal cause; its own bits are cleared, and so on. The stamp of a
        cause is looked up only after its label is yielded, so that the caller can check first that
        the log has it.
        """
        yield from stamp.remote
        rest = stamp.local ^ 1 << stamp.clock[stamp.station] - 1
        while rest:
            label = stamp.station, rest.bit_length()
            yield label
            rest &= ~log[label].local

    def written(self, stamp: HierarchicalStamp) -> list[Any]:
        """Return the station, its clock, the bits as in the paper, and the remote causes."""
        return self._json_form(stamp, digits(stamp.local))

    def read(self, value: Any, node: str) -> HierarchicalStamp:
        """Return the stamp of a station, a clock, bits and labels."""
        match value:
            case [str(station), dict(entries), str() | bytes() as given, list(labels)]:
                bits = given if isinstance(given, str) else digits(int.from_bytes(given, "little"))
                clock = read_station_clock(entries, station)
                if clock and clock[station] == len(bits) and re.fullmatch("[01]*1", bits):
                    remote = tuple(label_of(label, "a remote cause") for label in labels)
                    return HierarchicalStamp(node, station, clock, int(bits[::-1], 2), remote)
        form = (
            "a station, its clock, a bit for each of its events, and the remote causes, such as "
            '["s1", {"s1": 3, "s2": 1}, "101", [["s2", 1]]]'
        )
        raise not_a_stamp(self.name, form, value)

    def encode(self, stamp: HierarchicalStamp) -> bytes:
        """Return a stamp as bytes, with eight bits of the bit vector per byte."""
        packed = stamp.local.to_bytes((stamp.local.bit_length() + 7) // 8, "little")
        return msgspec.msgpack.encode(self._json_form(stamp, packed))

    def _json_form(self, stamp: HierarchicalStamp, bits: str | bytes) -> list[Any]:
        remote = [list(label) for label in stamp.remote]
        return [stamp.station, dict(sorted(stamp.clock.items())), bits, remote]


def digits(local: int) -> str:
    """Return a bit vector as text, with the digit of event 1 first."""
    return f"{local:b}"[::-1]
