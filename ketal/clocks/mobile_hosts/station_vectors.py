"""One clock per station: vector clocks that count the events of stations, not those of hosts.

A station has one clock for all its hosts, so the length of a stamp is the number of stations,
however many hosts there are. a → b implies that a has the lesser stamp. The converse does not hold:
a station orders the events of its hosts although they may be concurrent, and an event is assumed to
know all earlier events of its station (Fig. 1: for two hosts without communication,
[1 0] < [2 0]). If neither stamp is less, the events are concurrent; a lesser stamp proves
happened-before only for events of one host.

The schemes `hierarchical` and `interleaving` add the information that this one loses:
their stamps name the direct causes of their events, each by its station and its number there, so
that the log determines the execution, and the order of its events is computed by recursion over the
log (`LinkedStations`).

Baquero and Moura, "Improving Causality Logging in Mobile Computing Networks", Fig. 1 and section
IV; Prakash and Singhal, 1997, by counter-example.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ketal.clocks.mobile_hosts.stations import Label, StationScheme, cause_headers
from ketal.clocks.scheme import Clock, checked_counters, not_a_stamp
from ketal.clocks.vector import happened_before, next_clock
from ketal.errors import EventError


@dataclass(frozen=True, slots=True)
class StationStamp:
    """The clock of a station at an event of one of its hosts."""

    host: str
    station: str
    """The station of the event; the event's number there is the station's entry of `clock`."""
    clock: Clock  # station → the number of its last event that may be known

    @property
    def label(self) -> Label:
        """The station and the number of the event there."""
        return self.station, self.clock[self.station]


def next_station_clock(station: str, log: Sequence[StationStamp], known: Iterable[Clock]) -> Clock:
    """Return the clock of a station at its next event, which merges the clocks `known`."""
    return next_clock(station, [*(stamp.clock for stamp in log[-1:]), *known])


def may_precede(a: StationStamp, b: StationStamp) -> bool:
    """Return whether, by their stamps, the event of a may have happened before that of b."""
    station, index = a.label
    return b.clock.get(station, 0) >= index and a.label != b.label


def read_station_clock(value: Mapping[Any, Any], station: str) -> Clock | None:
    """Return the clock of `station` from JSON data; None if its own entry is missing or zero.

    Raises an EventError if a name is not text, or an entry is not a counter.
    """
    clock = checked_counters(value)
    return clock if station and clock.get(station) else None


class StationClocks(StationScheme[StationStamp, Clock]):
    """Vector clocks with one entry for each station."""

    name = "station"
    decides = False

    def stamp_event(
        self,
        station: str,
        log: Sequence[StationStamp],
        host: str,
        previous: Clock | None,
        received: Sequence[Clock],
    ) -> StationStamp:
        """Stamp an event with the station's next clock."""
        known = cause_headers(previous, received)
        return StationStamp(host, station, next_station_clock(station, log, known))

    def header(self, stamp: StationStamp) -> Clock:
        """Return the clock."""
        return stamp.clock

    def order(self, stamps: Iterable[StationStamp]) -> Callable[[StationStamp, StationStamp], bool]:
        """Return `may_precede`, since comparing two stamps needs no other stamps."""
        return may_precede

    def proves(self, a: StationStamp, b: StationStamp) -> bool:
        """Return whether both events are of one host."""
        return a.host == b.host

    def written(self, stamp: StationStamp) -> list[Any]:
        """Return the station and its clock."""
        return [stamp.station, dict(sorted(stamp.clock.items()))]

    def read(self, value: Any, node: str) -> StationStamp:
        """Return the stamp of a station and a clock."""
        match value:
            case [str(station), dict(entries)]:
                if clock := read_station_clock(entries, station):
                    return StationStamp(node, station, clock)
        form = (
            "a station and its clock, with an own entry of at least 1, such as "
            '["s1", {"s1": 2, "s2": 1}]'
        )
        raise not_a_stamp(self.name, form, value)


# --- clocks with links to direct causes -----------------------------------------------------------

L = TypeVar("L", bound=StationStamp)


@dataclass(frozen=True, slots=True)
class Carried:
    """The content of a message and of a handoff: the label and the clock of its event."""

    label: Label
    clock: Clock


class LinkedStations(StationScheme[L, Carried]):
    """A scheme whose stamps are clocks of stations with the labels of direct causes.

    `L` is the type of its stamps.
    """

    @abstractmethod
    def causes(self, stamp: L, log: Mapping[Label, L]) -> Iterable[Label]:
        """Return the labels of the direct causes of an event; `log` has the execution's stamps."""

    def header(self, stamp: L) -> Carried:
        """Return the label and the clock; the labels of causes are only needed in the log."""
        return Carried(stamp.label, stamp.clock)

    def order(self, stamps: Iterable[L]) -> Callable[[L, L], bool]:
        """Return the order of the events, computed from all stamps of their log.

        Computes a vector clock of each event, host → counter, by joining those of its direct
        causes. Events are visited in the order of the sums of their station clocks, so each comes
        after its causes. Two events are then compared by one look-up.

        `stamps` are those of a whole execution; equal stamps are one event. Raises an EventError if
        a cause is missing from the log or not before its effect, or two events have the same label.
        """
        log: dict[Label, L] = {}
        for stamp in stamps:
            if log.setdefault(stamp.label, stamp) != stamp:
                raise EventError(f"clock: {_label_text(stamp.label)} has two different stamps")
        clocks: dict[Label, Clock] = {}
        for stamp in sorted(log.values(), key=lambda stamp: sum(stamp.clock.values())):
            known: list[Clock] = []
            for cause in self.causes(stamp, log):
                if cause not in clocks:
                    why = "is not ordered before it" if cause in log else "is missing from the log"
                    raise EventError(
                        f"clock: a cause of {_label_text(stamp.label)} is {_label_text(cause)}, "
                        f"which {why}"
                    )
                known.append(clocks[cause])
            clocks[stamp.label] = next_clock(stamp.host, known)

        def before(a: L, b: L) -> bool:
            return happened_before(a.host, clocks[a.label], b.host, clocks[b.label])

        return before


def _label_text(label: Label) -> str:
    return f"event {label[1]} of station {label[0]!r}"
