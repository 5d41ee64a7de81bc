"""One clock per station: vector clocks that count the events of stations, not those of hosts.

A station has one clock for all its hosts, so a stamp is as long as there are stations, however many
hosts there are. What happened before has the lesser stamp. The converse does not hold: a station
puts the events of its hosts in an order that they do not have, and what one of them knows is
ascribed to the next ones (Fig. 1: of two hosts that know nothing of each other, [1 0] < [2 0]).
Neither less proves that the events are concurrent; less proves something of events of one host
only.

A stamp costs an entry for each station that may be known of; so does a message, and a handoff. Two
stamps answer by themselves: *before* of events of one host, *concurrent* of any, else *unknown*.
The schemes `hierarchical` and `interleaving` are this one with what it loses: their stamps name
the direct causes of their events, each by its station and its number there, so that the log has the
execution, and an order of its events is a recursion over the log (`LinkedStations`).

Baquero and Moura, "Improving Causality Logging in Mobile Computing Networks", Fig. 1 and section
IV; Prakash and Singhal, 1997, by counter-example.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ketal.clocks.mobile_hosts.stations import Label, StationScheme
from ketal.clocks.scheme import Clock, counters_of, not_a_stamp
from ketal.clocks.vector import happened_before, next_clock
from ketal.errors import EventError


@dataclass(frozen=True, slots=True)
class StationStamp:
    """The clock of a station at an event of one of its hosts.

    Attributes
    ----------
    host : str
        The host.
    station : str
        The station, whose own entry is the number of the event.
    clock : mapping of str to int
        Of each station the last event that may be known.
    """

    host: str
    station: str
    clock: Clock

    @property
    def label(self) -> Label:
        """The station and the number of the event there."""
        return self.station, self.clock[self.station]


def next_station_clock(station: str, log: Sequence[StationStamp], known: Iterable[Clock]) -> Clock:
    """Return the clock of a station at its next event, at which it learns other clocks."""
    return next_clock(station, [*(stamp.clock for stamp in log[-1:]), *known])


def may_know(a: StationStamp, b: StationStamp) -> bool:
    """Return whether the station of b may have known the event of a at that of b, another one."""
    station, index = a.label
    return b.clock.get(station, 0) >= index and a.label != b.label


def clock_read(value: Mapping[Any, Any], station: str) -> Clock | None:
    """Return the clock of a station that was read; None where it is none.

    Raises
    ------
    EventError
        If a name is no text, or an entry no counter.
    """
    clock = counters_of(value)
    return clock if station and clock.get(station) else None


class StationClocks(StationScheme[StationStamp, Clock]):
    """Vector clocks with one entry for each station."""

    name = "station"
    decides = False

    def registered(
        self,
        station: str,
        log: Sequence[StationStamp],
        host: str,
        previous: Clock | None,
        received: Sequence[Clock],
    ) -> StationStamp:
        """Stamp an event by the station's next clock."""
        known = received if previous is None else [previous, *received]
        return StationStamp(host, station, next_station_clock(station, log, known))

    def header(self, stamp: StationStamp) -> Clock:
        """Return the clock."""
        return stamp.clock

    def order(self, stamps: Iterable[StationStamp]) -> Callable[[StationStamp, StationStamp], bool]:
        """Return `may_know`: two stamps suffice."""
        return may_know

    def proves(self, a: StationStamp, b: StationStamp) -> bool:
        """Return whether both are of one host."""
        return a.host == b.host

    def written(self, stamp: StationStamp) -> list[Any]:
        """Return the station and its clock."""
        return [stamp.station, dict(sorted(stamp.clock.items()))]

    def read(self, value: Any, node: str) -> StationStamp:
        """Return the stamp of a station and a clock."""
        match value:
            case [str(station), dict(entries)]:
                if clock := clock_read(entries, station):
                    return StationStamp(node, station, clock)
        form = 'a station and its clock, the own entry from 1 on: ["s1", {"s1": 2, "s2": 1}]'
        raise not_a_stamp(self.name, form, value)


# --- clocks with links to direct causes -----------------------------------------------------------

L = TypeVar("L", bound=StationStamp)


@dataclass(frozen=True, slots=True)
class Carried:
    """What a message carries, and a handoff: which event it is from, and that event's clock."""

    label: Label
    clock: Clock


class LinkedStations(StationScheme[L, Carried], Generic[L]):
    """A scheme whose stamps are clocks of stations with links to the direct causes.

    `L` is the type of its stamps.
    """

    @abstractmethod
    def causes(self, stamp: L, log: Mapping[Label, L]) -> Iterable[Label]:
        """Return the labels of the direct causes of an event.

        Parameters
        ----------
        stamp : L
            The stamp of the event.
        log : mapping of Label to L
            The stamps of the execution.
        """

    def header(self, stamp: L) -> Carried:
        """Return the label and the clock; links are of use in the log only."""
        return Carried(stamp.label, stamp.clock)

    def order(self, stamps: Iterable[L]) -> Callable[[L, L], bool]:
        """Return the order of these events, by recursion over their log.

        What an event knows is what its causes know, and itself. Each event is visited once, after
        its causes, whose station clocks have the lesser sum, and its vector clock is made, host to
        counter. By it two events are compared in one look-up.

        Parameters
        ----------
        stamps : iterable of L
            The stamps of a whole execution; equal ones are one event.

        Raises
        ------
        EventError
            If a cause is missing from the log or cannot be one, or two events have one label.
        """
        log: dict[Label, L] = {}
        for stamp in stamps:
            if log.setdefault(stamp.label, stamp) != stamp:
                raise EventError(
                    f"clock: two events are {_shown(stamp.label)}; their stamps differ"
                )
        clocks: dict[Label, Clock] = {}
        for stamp in sorted(log.values(), key=lambda one: sum(one.clock.values())):
            known: list[Clock] = []
            for cause in self.causes(stamp, log):
                if cause not in clocks:
                    why = "knows as much as it" if cause in log else "is missing from the log"
                    raise EventError(
                        f"clock: a cause of {_shown(stamp.label)} is {_shown(cause)}, which {why}"
                    )
                known.append(clocks[cause])
            clocks[stamp.label] = next_clock(stamp.host, known)

        def before(a: L, b: L) -> bool:
            return happened_before(a.host, clocks[a.label], b.host, clocks[b.label])

        return before


def _shown(label: Label) -> str:
    return f"event {label[1]} of station {label[0]!r}"
