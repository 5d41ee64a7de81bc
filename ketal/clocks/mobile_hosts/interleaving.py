"""Interleaving clocks: a clock of the station, and of which event of its host an event is the next.

A station puts the events of its hosts in one order, which interleaves the orders of the hosts. The
clock of the station (`station_vectors`) knows the one order; what it takes to have the others back
is, with each event, the last event of the same host. That is the stamp [P / V()] of Definition
IV.1, which logs P as a number at the event's own station, and nothing of messages but V().

**As printed it does not decide.** A message whose send the receiving station may know already
leaves V() as it would be without it. At one station let A and B send, and C receive one of the two:
whichever it is, the log is the same. Of two stations: C, D, C send, as events 1, 2, 3 of station 2;
A, at station 1, receives 3, and then 1 or 2: the logs are the same, and only in one of the two
executions did D's send happen before A's second receive. A handoff loses the same: P is a number at
the old station, and the new one has no event of the host, so that it would log none, and V() tells
only if it brings something new. (What brings something new is named by V(): it is the greatest of
what is new.) So a stamp here has the *labels*, station and number, of the host's last event and of
each send received.

The one rule: with its labels an event names all its direct causes, so the log has the execution.

A stamp costs an entry of V() for each station and a label for the host's last event and for each
message received; it does not grow with the run but as numbers do. A message and a handoff carry V()
and one label. Two stamps alone can answer *not before*, where V() does not reach; everything else
takes recursion over the log, at as many stations as the past has.

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
    clock_read,
    next_station_clock,
)
from ketal.clocks.mobile_hosts.stations import Label, label_of
from ketal.clocks.scheme import not_a_stamp


@dataclass(frozen=True, slots=True)
class InterleavingStamp(StationStamp):
    """The clock of a station at an event, and the direct causes of the event.

    Attributes
    ----------
    previous : (str, int) or None
        The last event of the host, at whichever station; None of its first event.
    received : tuple of (str, int)
        The sends of the messages received.
    """

    previous: Label | None
    received: tuple[Label, ...]


class InterleavingClocks(LinkedStations[InterleavingStamp]):
    """Interleaving clocks, with the labels of the sends."""

    name = "interleaving"
    decides = True

    def registered(
        self,
        station: str,
        log: Sequence[InterleavingStamp],
        host: str,
        previous: Carried | None,
        received: Sequence[Carried],
    ) -> InterleavingStamp:
        """Stamp an event by the station's next clock and the labels of its causes."""
        known = received if previous is None else [previous, *received]
        return InterleavingStamp(
            host,
            station,
            next_station_clock(station, log, [one.clock for one in known]),
            None if previous is None else previous.label,
            tuple(message.label for message in received),
        )

    def causes(
        self, stamp: InterleavingStamp, log: Mapping[Label, InterleavingStamp]
    ) -> tuple[Label, ...]:
        """Return the host's last event, and the sends received."""
        return stamp.received if stamp.previous is None else (stamp.previous, *stamp.received)

    def written(self, stamp: InterleavingStamp) -> list[Any]:
        """Return the station, its clock, the label of the host's last event, those of the sends."""
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
                if clock := clock_read(entries, station):
                    previous = None if last is None else label_of(last, "the host's last event")
                    received = tuple(label_of(send, "a send") for send in sends)
                    return InterleavingStamp(node, station, clock, previous, received)
        form = (
            "a station, its clock, the host's last event or null, the sends received: "
            '["s1", {"s1": 2, "s2": 1}, ["s1", 1], [["s2", 1]]]'
        )
        raise not_a_stamp(self.name, form, value)
