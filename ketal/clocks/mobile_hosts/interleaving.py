"""Interleaving clocks: a clock of the station, and the previous event of the same host.

A station puts the events of its hosts in one order, which interleaves the orders of the hosts. The
clock of the station (`station_vectors`) represents that order; to recover the orders of the hosts,
each event also has the previous event of its host. This is the stamp [P / V()] of Definition
IV.1, which logs P as a number at the event's own station, and only V() about messages.

**As printed in the paper, it does not decide happened-before.** A message whose send the receiving
station may know already does not change V(). At one station let A and B send, and let C receive one
of the two messages: the log is the same, whichever it is. With two stations: C, D, C send, as
events 1, 2, 3 of station 2; A, at station 1, receives message 3 and then 1 or 2. The logs are the
same, but only in one of the two executions did D's send happen before A's second receive. A handoff
loses information in the same way: P is a number at the old station, and the new station has no
event of the host, so it would log no P, and V() shows the handoff only if it has new entries. (A
cause that adds to V() is identified by it, as the greatest of the new events.) So a stamp here has
*labels*, station and number, of the host's previous event and of each received send.

The one rule: the labels of an event name all its direct causes, so the log determines the
execution.

Baquero and Moura, "Improving Causality Logging in Mobile Computing Networks", section IV.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ketal.clocks.mobile_hosts.station_vectors import (
    Carried,
    LinkedStations,
    StationStamp,
    next_station_clock,
    read_station_clock,
)
from ketal.clocks.mobile_hosts.stations import Label, cause_headers, label_of
from ketal.clocks.scheme import not_a_stamp


@dataclass(frozen=True, slots=True)
class InterleavingStamp(StationStamp):
    """The clock of a station at an event, and the direct causes of the event."""

    previous: Label | None
    """The label of the host's previous event, at any station; None for its first event."""
    received: tuple[Label, ...]  # the labels of the sends of the received messages


class InterleavingClocks(LinkedStations[InterleavingStamp]):
    """Interleaving clocks, with the labels of the sends added."""

    name = "interleaving"
    decides = True

    def stamp_event(
        self,
        station: str,
        log: Sequence[InterleavingStamp],
        host: str,
        previous: Carried | None,
        received: Sequence[Carried],
    ) -> InterleavingStamp:
        """Stamp an event with the station's next clock and the labels of its direct causes."""
        known = cause_headers(previous, received)
        return InterleavingStamp(
            host,
            station,
            next_station_clock(station, log, [cause.clock for cause in known]),
            None if previous is None else previous.label,
            tuple(message.label for message in received),
        )

    def causes(
        self, stamp: InterleavingStamp, log: Mapping[Label, InterleavingStamp]
    ) -> tuple[Label, ...]:
        """Return the labels of the host's previous event and of the received sends."""
        return stamp.received if stamp.previous is None else (stamp.previous, *stamp.received)

    def written(self, stamp: InterleavingStamp) -> list[Any]:
        """Return the station, its clock, and the labels of the previous event and of the sends."""
        return [
            stamp.station,
            dict(sorted(stamp.clock.items())),
            None if stamp.previous is None else list(stamp.previous),
            [list(label) for label in stamp.received],
        ]

    def read(self, value: Any, node: str) -> InterleavingStamp:
        """Return the stamp of a station, a clock and labels."""
        match value:
            case [str(station), dict(entries), last, list(sends)]:
                if clock := read_station_clock(entries, station):
                    previous = None if last is None else label_of(last, "the host's last event")
                    received = tuple(label_of(send, "a send") for send in sends)
                    return InterleavingStamp(node, station, clock, previous, received)
        form = (
            "a station, its clock, the host's last event or null, and the received sends, such as "
            '["s1", {"s1": 2, "s2": 1}, ["s1", 1], [["s2", 1]]]'
        )
        raise not_a_stamp(self.name, form, value)
