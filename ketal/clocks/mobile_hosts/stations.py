"""Mobile hosts and the support stations that mediate their events.

Each event of a *host* (a node of the execution) is mediated by the host's current *station*, which
numbers the events of all its hosts from 1 and logs them. A host may move to another station between
two events. That is a *handoff*: its old station passes the state that it has of the host to the new
one. An event without a station has its host as its station, so in an execution without stations no
host moves, and every host has a station of its own. Internal events, neither sends nor receives,
are numbered like the others (the paper leaves them out, to save messages between host and station,
and says that they only need to be numbered to be included).

A clock belongs to a station, not to a host. The order of a station's numbers does not imply
happened-before, since it interleaves hosts that may not communicate; each scheme adds the
information which events of a station are ordered.

The one rule: a handoff is equivalent to a message from the last event of a host to its next one. So
the old station passes the new one the header of the host's last event, and stamps represent
messages and handoffs by the same kind of link.

Baquero and Moura, "Improving Causality Logging in Mobile Computing Networks", section II; after
Prakash and Singhal, "Dependency sequences and hierarchical clocks", 1997.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

from ketal.clocks.scheme import Happening, S, Scheme, check_receives, checked_counter
from ketal.errors import EventError, value_text

H = TypeVar("H")

Label = tuple[str, int]
"""The identity of an event: its station, and its number there."""


class StationScheme(Scheme[S], Generic[S, H]):
    """A scheme in which stations stamp the events of their current hosts.

    `S` is the type of its stamps, `H` that of the headers that messages and handoffs carry.
    """

    @abstractmethod
    def stamp_event(
        self, station: str, log: Sequence[S], host: str, previous: H | None, received: Sequence[H]
    ) -> S:
        """Return the stamp of the next event that a station mediates, an event of `host`.

        `log` has the stamps of the station's events so far, event 1 first. `previous` is the header
        of the host's previous event, at this station or passed on at a handoff; None for the host's
        first event. `received` has the headers of the messages that the event receives.
        """

    @abstractmethod
    def header(self, stamp: S) -> H:
        """Return the header of an event, for its messages and for a handoff after it."""

    def stamps(self, events: Sequence[Happening]) -> Iterator[S]:
        """Yield the stamps of an execution; all messages of an event have the same header."""
        check_receives(events)
        logs: dict[str, list[S]] = {}
        last: dict[str, H] = {}
        headers: list[H] = []
        for event in events:
            station, host = event.station or event.node, event.node
            log = logs.setdefault(station, [])
            received = [headers[send] for send in event.receives]
            stamp = self.stamp_event(station, log, host, last.get(host), received)
            log.append(stamp)
            yield stamp
            headers.append(self.header(stamp))
            last[host] = headers[-1]


def cause_headers(previous: H | None, received: Sequence[H]) -> Sequence[H]:
    """Return the headers of an event's direct causes: its host's previous event, and its sends."""
    return received if previous is None else [previous, *received]


def label_of(value: Any, what: str) -> Label:
    """Return the label of an event from a list; `what` names it in the EventError if it is none."""
    match value:
        case [str(station), index] if station:
            return station, checked_counter(index, f"the number of {what} at its station", 1)
    raise EventError(
        f'clock: {what} must be a station and a number, such as ["s1", 2], not {value_text(value)}'
    )
