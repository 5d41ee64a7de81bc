"""Mobile hosts and the support stations that mediate their events.

A *host* (a node of the execution) has each of its events mediated by the *station* that it is at;
the station numbers the events that it mediates, those of all its hosts, from 1 on, and logs them. A
host moves between two events: that is a *handoff*, at which its old station gives the new one what
it keeps of the host. An event without a station has its host as its station, so that an execution
without stations is one in which nobody moves and every host has a station to itself. Events that
are neither send nor receive are numbered like these (the paper leaves them out, to spare the
channel between host and station, and says that numbering them is all it takes).

A clock belongs to a station, not to a host. The order of a station's numbers is one that nobody
can rely on, as it interleaves hosts that may know nothing of each other; what schemes add to it
says which of the events of a station are ordered.

The one rule: a handoff is a message from the last event of a host to its next one. So what a
station is given of a moving host is what a message of its last event carries, and the same
link from event to event stands for both.

Baquero and Moura, "Improving Causality Logging in Mobile Computing Networks", section II; after
Prakash and Singhal, "Dependency sequences and hierarchical clocks", 1997.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from ketal.clocks.scheme import Happening, S, Scheme, counter_of
from ketal.errors import EventError

H = TypeVar("H")

Label = tuple[str, int]
"""The name of an event: its station, and its number there."""


class StationScheme(Scheme[S], Generic[S, H]):
    """A scheme in which stations stamp the events of the hosts that are at them.

    `S` is the type of its stamps, `H` that of what a message carries, and a handoff.
    """

    @abstractmethod
    def registered(
        self, station: str, log: Sequence[S], host: str, previous: H | None, received: Sequence[H]
    ) -> S:
        """Return the stamp of the next event that a station mediates.

        Parameters
        ----------
        station : str
            The station.
        log : sequence of S
            The stamps of the events that it mediated, in its order: event 1 first.
        host : str
            Where the event happened.
        previous : H or None
            What the station keeps of the host's last event: its own, or given to it at the handoff.
            None of a host's first event.
        received : sequence of H
            What the messages carry that the event receives.
        """

    @abstractmethod
    def header(self, stamp: S) -> H:
        """Return what an event's messages carry to the stations of their receivers.

        At a handoff the new station is given it too, of the last event of the host.
        """

    def stamped(self, events: Sequence[Happening]) -> list[S]:
        """Return the stamps of an execution: each event sends to those that receive it."""
        logs: dict[str, list[S]] = {}
        last: dict[str, H] = {}
        headers: list[H] = []
        stamps: list[S] = []
        for event in events:
            station, host = event.station or event.node, event.node
            log = logs.setdefault(station, [])
            received = [headers[send] for send in event.receives]
            stamp = self.registered(station, log, host, last.get(host), received)
            log.append(stamp)
            stamps.append(stamp)
            headers.append(self.header(stamp))
            last[host] = headers[-1]
        return stamps


def label_of(value: Any, what: str) -> Label:
    """Return the label that was written as a list.

    Raises
    ------
    EventError
        If it is none.
    """
    match value:
        case [str(station), index] if station:
            return station, counter_of(index, f"the number of {what} at its station", 1)
    raise EventError(f'clock: {what} must be a station and a number, ["s1", 2], not {value!r}')
