"""Clocks of stations whose stamps name the direct causes of their events.

The clock of a station (`station_vectors`) orders too much; with the causes of each event in its
stamp the log has the execution, and an order of its events is a recursion over the log.

The one rule: a link names an event by its station and its number there, wherever that is.

Baquero and Moura, "Improving Causality Logging in Mobile Computing Networks", section IV.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from ketal.clocks.mobile_hosts.station_vectors import StationStamp
from ketal.clocks.mobile_hosts.stations import Label, StationScheme
from ketal.clocks.scheme import Clock
from ketal.clocks.vector import happened_before, next_clock
from ketal.errors import EventError

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
