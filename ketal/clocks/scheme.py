"""What every timestamping scheme can do: stamp events, order stamps, write them.

A *stamp* is what a node puts beside an event. What a node keeps between its events is its
*replica*, and what it sends with a message is the message's *header*; in most schemes both are the
stamp of the last event. They are values: an operation returns new ones.

The one rule: of two events of one execution, the first happened before the second only if the order
of their stamps says so. Of a scheme that *decides*, also if.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from ketal.errors import EventError

Clock = Mapping[str, int]
"""A vector clock: node to counter; an absent node counts 0."""

S = TypeVar("S")


class StampOrder(enum.Enum):
    """How an event is related to another one, as far as their stamps tell."""

    BEFORE = "before"
    AFTER = "after"
    CONCURRENT = "concurrent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """An event as a scheme stamps it.

    Attributes
    ----------
    node : str
        Where it happened.
    receives : tuple of int
        The numbers of the events, earlier in the execution, whose messages it received.
    time_us : int
        What the node's physical clock showed, in microseconds since the epoch; read by schemes that
        contain it.
    station : str
        The support station that mediated it; read by the schemes for mobile hosts.
    """

    node: str
    receives: tuple[int, ...] = ()
    time_us: int = 0
    station: str = ""


class Scheme(ABC, Generic[S]):
    """A timestamping scheme.

    Attributes
    ----------
    name : str
        As options and reports call it.
    decides : bool
        Whether the stamps of two events tell how these are related ("the clocks characterise
        causality"), whichever these are.
    """

    name: str
    decides: ClassVar[bool]

    @property
    def states_clocks(self) -> bool:
        """Whether a stamp states the vector clock of its event by itself."""
        return type(self).clock_of is not Scheme.clock_of

    def entries(self, clock: Clock) -> int:
        """Return how many entries the stamp of an event with a vector clock has, about."""
        return len(clock)

    @abstractmethod
    def stamped(self, events: Sequence[Happening]) -> list[S]:
        """Return the stamps of an execution.

        Parameters
        ----------
        events : sequence of Happening
            The events, in a linear extension.
        """

    @abstractmethod
    def order(self, stamps: Iterable[S]) -> Callable[[S, S], bool]:
        """Return the order of these stamps: whether the first of two may have come before.

        Parameters
        ----------
        stamps : iterable of S
            Those of an execution; read by schemes whose stamps refer to each other.
        """

    def proves(self, a: S, b: S) -> bool:
        """Return whether a stamp `a` that is ordered before `b` proves that its event was."""
        return self.decides

    def relation(self, order: Callable[[S, S], bool], a: S, b: S) -> StampOrder:
        """Return how the event of `a` is related to the event of `b`, another one.

        Parameters
        ----------
        order : callable
            What the method `order` returned for an execution that has both.
        a, b : S
            Their stamps.
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
        """Return the vector clock that a stamp states by itself; None where it names no events."""
        return None

    @abstractmethod
    def written(self, stamp: S) -> Any:
        """Return a stamp as JSON data: numbers, strings, lists, objects."""

    @abstractmethod
    def read(self, value: Any, node: str) -> S:
        """Return the stamp that `written` wrote of an event of a node.

        Raises
        ------
        EventError
            If the value is no stamp of the scheme.
        """

    def text(self, stamp: S) -> str:
        """Return a stamp as people write it."""
        return msgspec.json.encode(self.written(stamp)).decode()

    def encode(self, stamp: S) -> bytes:
        """Return a stamp in bytes; what its size is measured by."""
        return msgspec.msgpack.encode(self.written(stamp))

    def decode(self, data: bytes, node: str) -> S:
        """Return the stamp that `encode` wrote of an event of a node.

        Raises
        ------
        EventError
            If these are not the bytes of a stamp.
        """
        try:
            value = msgspec.msgpack.decode(data)
        except (msgspec.DecodeError, ValueError) as wrong:
            raise EventError(f"clock: the bytes are no stamp of {self.name}: {wrong}") from None
        return self.read(value, node)


class ReplicaScheme(Scheme[S], Generic[S]):
    """A scheme in which each node stamps its events by what it and its messages know.

    Replicas and headers are of the type of its stamps.
    """

    @abstractmethod
    def replicas(self, nodes: Sequence[str]) -> dict[str, S]:
        """Return what the nodes keep before their first events.

        Parameters
        ----------
        nodes : sequence of str
            Their names, each once.
        """

    @abstractmethod
    def event(self, replica: S, received: Iterable[S] = (), *, time_us: int = 0) -> tuple[S, S]:
        """Stamp the next event of a node: internal, a send or a receive.

        Parameters
        ----------
        replica : S
            What the node keeps.
        received : iterable of S
            The headers of the messages that the event receives; none of an internal event or
            a send.
        time_us : int
            What the node's physical clock shows.

        Returns
        -------
        (S, S)
            What the node keeps from then on, and the stamp.
        """

    def header(self, replica: S, stamp: S, to: str) -> tuple[S, S]:
        """Make the header of a message that is sent at the last event of a node: its stamp.

        Parameters
        ----------
        replica : S
            What the node keeps since that event, and since its other messages.
        stamp : S
            The stamp of the event.
        to : str
            The node that receives the message.

        Returns
        -------
        (S, S)
            What the node keeps from then on, and the header.
        """
        return replica, stamp

    @abstractmethod
    def precedes(self, a: S, b: S) -> bool:
        """Return whether the stamps let the event of `a` have happened before that of `b`."""

    def order(self, stamps: Iterable[S]) -> Callable[[S, S], bool]:
        """Return `precedes`: two stamps suffice."""
        return self.precedes

    def compare(self, a: S, b: S) -> StampOrder:
        """Return how the event of `a` is related to the event of `b`, another one."""
        return self.relation(self.precedes, a, b)

    def stamped(self, events: Sequence[Happening]) -> list[S]:
        """Return the stamps of an execution: each event sends to those that receive it."""
        receivers: dict[int, list[int]] = {}
        for number, event in enumerate(events):
            for send in event.receives:
                receivers.setdefault(send, []).append(number)
        replicas = self.replicas(tuple(dict.fromkeys(event.node for event in events)))
        headers: dict[tuple[int, int], S] = {}
        stamps: list[S] = []
        for number, event in enumerate(events):
            received = [headers.pop((send, number)) for send in event.receives]
            replica, stamp = self.event(replicas[event.node], received, time_us=event.time_us)
            for receiver in receivers.pop(number, ()):
                to = events[receiver].node
                replica, headers[number, receiver] = self.header(replica, stamp, to)
            replicas[event.node] = replica
            stamps.append(stamp)
        return stamps


class ForkingScheme(ReplicaScheme[S]):
    """A scheme whose replicas are all forked from one seed, so that nodes come and go unregistered.

    Neither a fork nor a join is an event that is ordered; what forks share, they knew before.
    Almeida, Baquero and Fonte, "Interval Tree Clocks", 2008; Baquero and Moura, "Causality in
    Autonomous Mobile Systems", where a fork is a duplication and a join a combination.
    """

    @abstractmethod
    def seed(self) -> S:
        """Return the first replica, before its first event."""

    @abstractmethod
    def fork(self, replica: S) -> tuple[S, S]:
        """Return the two replicas that go on in place of one."""

    @abstractmethod
    def join(self, a: S, b: S) -> S:
        """Return the replica that goes on in place of two, and knows what one of them knows.

        Raises
        ------
        ValueError
            If they cannot both be there.
        """

    def replicas(self, nodes: Sequence[str]) -> dict[str, S]:
        """Return replicas that are forked evenly, halves first."""
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


def counter_of(value: Any, what: str, least: int = 0) -> int:
    """Return a counter of a stamp that was read.

    Raises
    ------
    EventError
        If it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        raise EventError(f"clock: {what} must be an integer from {least} on, not {value!r}")
    return value


def counters_of(entries: Mapping[Any, Any]) -> dict[str, int]:
    """Return the counters by name of a stamp that was read.

    Raises
    ------
    EventError
        If a name is no text, or one of them is no counter.
    """
    for name in entries:
        if not isinstance(name, str):
            raise EventError(f"clock: a node's name must be a string, not {name!r}")
    return {name: counter_of(count, f"the entry of {name!r}") for name, count in entries.items()}


def not_a_stamp(name: str, form: str, value: Any) -> EventError:
    """Return the error for a value that is no stamp of a scheme."""
    text = repr(value)
    short = text if len(text) <= 60 else text[:57] + "..."
    return EventError(f"clock: {name} is written as {form}, not {short}")
