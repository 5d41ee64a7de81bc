"""The interface of timestamping schemes: stamp events, order stamps, write and read them.

A *stamp* is what a node attaches to an event. The state of a node between its events is its
*replica*, and what it attaches to a message is the message's *header*; in most schemes both are the
stamp of the last event. All are immutable values: an operation returns new ones.

The one rule: of two events of one execution, the first happened before the second only if the order
of their stamps says so; if and only if, for a scheme that *decides* happened-before.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from ketal.errors import EventError, value_text

Clock = Mapping[str, int]
"""A vector clock: node to counter; an absent node counts 0."""

NO_CLOCKS = "none"
"""In place of the name of a scheme: events have no stamps, and only those of a node are ordered."""

S = TypeVar("S")


class StampOrder(enum.Enum):
    """The relation of one event to another, as far as their stamps decide it."""

    BEFORE = "before"
    AFTER = "after"
    CONCURRENT = "concurrent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """An event in the form that a scheme stamps."""

    node: str
    receives: tuple[int, ...] = ()
    """The numbers of the earlier events of the execution whose messages the event receives."""
    time_us: int = 0
    """The node's physical clock at the event, in microseconds since the epoch; used by schemes
    whose stamps contain physical time."""
    station: str = ""
    """The support station that mediated the event; used by the schemes for mobile hosts."""


class Scheme(ABC, Generic[S]):
    """A timestamping scheme."""

    name: str  # the name in options and reports
    decides: ClassVar[bool]
    """Whether the stamps of any two events decide how these are related ("the clocks characterise
    causality")."""

    @property
    def states_clocks(self) -> bool:
        """Whether each stamp by itself contains the vector clock of its event."""
        return type(self).clock_of is not Scheme.clock_of

    def entries(self, clock: Clock) -> int:
        """Return an estimate of the number of entries in the stamp of an event with `clock`."""
        return len(clock)

    def entries_of(self, stamp: S) -> int:
        """Return how many entries a stamp has, if `entries` cannot estimate that; otherwise 0."""
        return 0

    @abstractmethod
    def stamps(self, events: Sequence[Happening]) -> Iterator[S]:
        """Yield the stamps that `stamped` returns, each as soon as it is known."""

    def stamped(self, events: Sequence[Happening]) -> list[S]:
        """Return the stamps of an execution, whose events are given in a linear extension.

        Raises a ValueError if an event receives from itself or a later event, or lists one twice.
        """
        return list(self.stamps(events))

    @abstractmethod
    def order(self, stamps: Iterable[S]) -> Callable[[S, S], bool]:
        """Return a function of two stamps: whether the first event may have happened before.

        `stamps` are those of the execution; schemes whose stamps refer to each other need them.
        """

    def proves(self, a: S, b: S) -> bool:
        """Return whether `a` ordered before `b` proves that its event happened before."""
        return self.decides

    def relation(self, order: Callable[[S, S], bool], a: S, b: S) -> StampOrder:
        """Return the relation of the event of `a` to the event of `b`, a different event.

        `order` is what the method returned for an execution that contains both events.
        """
        before, after = order(a, b), order(b, a)
        if not before and not after:
            return StampOrder.CONCURRENT
        if before and not after and self.proves(a, b):
            return StampOrder.BEFORE
        if after and not before and self.proves(b, a):
            return StampOrder.AFTER
        return StampOrder.UNKNOWN

    def clock_of(self, stamp: S) -> Clock | None:
        """Return the vector clock that a stamp by itself contains; None if it contains none."""
        return None

    @abstractmethod
    def written(self, stamp: S) -> Any:
        """Return a stamp as JSON data: numbers, strings, lists and objects."""

    @abstractmethod
    def read(self, value: Any, node: str) -> S:
        """Return the stamp of an event of `node` from the JSON data that `written` returned.

        Raises an EventError if the value is not a stamp of the scheme.
        """

    def text(self, stamp: S) -> str:
        """Return a stamp as text for people, in the notation of its paper if there is one."""
        return msgspec.json.encode(self.written(stamp)).decode()

    def encode(self, stamp: S) -> bytes:
        """Return a stamp as bytes, whose length is reported as the size of the stamp."""
        return msgspec.msgpack.encode(self.written(stamp))

    def decode(self, data: bytes, node: str) -> S:
        """Return the stamp of an event of `node` from the bytes that `encode` returned.

        Raises an EventError if the bytes are not a stamp of the scheme.
        """
        try:
            value = msgspec.msgpack.decode(data)
        except (ValueError, RecursionError) as wrong:
            raise EventError(
                f"clock: the bytes are not a stamp of the scheme {self.name}: {wrong}"
            ) from None
        return self.read(value, node)


class ReplicaScheme(Scheme[S]):
    """A scheme in which each node stamps its events, from its own state and received headers.

    Replicas and headers have the type of the stamps.
    """

    @abstractmethod
    def replicas(self, nodes: Sequence[str]) -> dict[str, S]:
        """Return the replicas of nodes with distinct names, before their first events."""

    @abstractmethod
    def event(self, replica: S, received: Iterable[S] = (), *, time_us: int = 0) -> tuple[S, S]:
        """Stamp the next event of a node; return the replica after the event, and the stamp.

        `received` has the headers of the messages that the event receives; it is empty for an
        internal event or a send. `time_us` is the node's physical clock, in microseconds since the
        epoch.
        """

    def header(self, replica: S, stamp: S, to: str) -> tuple[S, S]:
        """Return the replica after a message sent at the last event of a node, and its header.

        `replica` is that after the event and its earlier messages, `stamp` that of the event, and
        `to` the node that receives the message. By default the header is the stamp, and the replica
        does not change.
        """
        return replica, stamp

    @abstractmethod
    def precedes(self, a: S, b: S) -> bool:
        """Return whether, by the stamps, the event of `a` may have happened before that of `b`."""

    def order(self, stamps: Iterable[S]) -> Callable[[S, S], bool]:
        """Return `precedes`, since comparing two stamps needs no other stamps."""
        return self.precedes

    def compare(self, a: S, b: S) -> StampOrder:
        """Return the relation of the event of `a` to the event of `b`, a different event."""
        return self.relation(self.precedes, a, b)

    def stamps(self, events: Sequence[Happening]) -> Iterator[S]:
        """Yield the stamps of an execution, in which each message has a header of its own."""
        check_receives(events)
        receivers: dict[int, list[int]] = {}
        for number, event in enumerate(events):
            for send in event.receives:
                receivers.setdefault(send, []).append(number)
        replicas = self.replicas(tuple(dict.fromkeys(event.node for event in events)))
        headers: dict[tuple[int, int], S] = {}
        for number, event in enumerate(events):
            received = [headers.pop((send, number)) for send in event.receives]
            replica, stamp = self.event(replicas[event.node], received, time_us=event.time_us)
            for receiver in receivers.pop(number, ()):
                to = events[receiver].node
                replica, headers[number, receiver] = self.header(replica, stamp, to)
            replicas[event.node] = replica
            yield stamp


class ForkingScheme(ReplicaScheme[S]):
    """A scheme whose replicas are forked from one seed, so that nodes join and leave unregistered.

    Forks and joins are not themselves events of the order: two forked replicas share only the
    events known before the fork.
    Almeida, Baquero and Fonte, "Interval Tree Clocks", 2008; Baquero and Moura, "Causality in
    Autonomous Mobile Systems", where a fork is a duplication and a join a combination.
    """

    @abstractmethod
    def seed(self) -> S:
        """Return the first replica, before its first event."""

    @abstractmethod
    def fork(self, replica: S) -> tuple[S, S]:
        """Split a replica; return the two replicas that replace it."""

    @abstractmethod
    def join(self, a: S, b: S) -> S:
        """Merge two replicas; return the replica that replaces them and knows all that they know.

        Raises a ValueError if the two replicas cannot exist at the same time.
        """

    def replicas(self, nodes: Sequence[str]) -> dict[str, S]:
        """Return replicas made by forking the seed, then each half, and so on evenly."""
        out: dict[str, S] = {}
        waiting = [(self.seed(), tuple(nodes))] if nodes else []
        while waiting:
            replica, names = waiting.pop()
            if len(names) == 1:
                out[names[0]] = replica
            else:
                half = (len(names) + 1) // 2
                first, second = self.fork(replica)
                waiting += [(second, names[half:]), (first, names[:half])]
        return out


def check_receives(events: Sequence[Happening]) -> None:
    """Raise a ValueError unless all events receive messages of distinct earlier events."""
    for number, event in enumerate(events):
        earlier = {send for send in event.receives if 0 <= send < number}
        if len(earlier) < len(event.receives):
            raise ValueError(
                f"event {number} receives {event.receives}, which must be distinct earlier events"
            )


def checked_counter(value: Any, what: str, least: int = 0) -> int:
    """Return `value`, checked to be a counter of a stamp; `what` names it in the error message.

    Raises an EventError if it is not an integer from `least` to 2^63 - 1.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        raise EventError(
            f"clock: {what} must be an integer from {least} to 2^63 - 1, not {value_text(value)}"
        )
    return value


def checked_counters(entries: Mapping[Any, Any]) -> dict[str, int]:
    """Return `entries`; raise an EventError if a name is not text, or a value is not a counter."""
    for name in entries:
        if not isinstance(name, str):
            raise EventError(f"clock: a node's name must be a string, not {name!r}")
    return {
        name: checked_counter(count, f"the entry for {name!r}") for name, count in entries.items()
    }


def not_a_stamp(name: str, form: str, value: Any) -> EventError:
    """Return the error for a value that is not a stamp of the scheme `name`, written as `form`."""
    text = repr(value)
    shortened = text if len(text) <= 60 else text[:57] + "..."
    return EventError(f"clock: a stamp of the scheme {name} must be {form}, not {shortened}")
