"""Differences of vector clocks: the entries that changed since the last one.

In a log: an event's clock differs from that of its node's previous event in the own entry, and in
what it learned by messages. A delta has these entries only. All deltas of a node, in its order,
give its clocks back (`deltas`, `clocks_of`). The scheme `delta` writes a log so, and reads all of
it.

In messages: over a channel that is first in, first out, a message needs those entries only that
changed at the sender since its last message to the same receiver (`DifferentialReplica`): Singhal
and Kshemkalyani, "An efficient implementation of vector clocks", Information Processing Letters 43
(1992). A node remembers for each receiver when it last sent to it, and for each entry when it last
changed, by its own counter: two vectors beside the clock, in place of a copy for each receiver.
Where a message overtakes another one, or one is lost, the receiver's clock is too small.

The one rule: the own counter of a node goes up by one at each event, so that a missing delta is
seen, and is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ketal.clocks.scheme import Clock, Happening, Scheme, not_a_stamp
from ketal.clocks.vector import VectorClocks, checked, happened_before, next_clock
from ketal.errors import EventError


def deltas(clocks: Iterable[Clock]) -> Iterator[dict[str, int]]:
    """Yield of each of a node's clocks, in its order, the entries that the one before it has not.

    Examples
    --------
    >>> from ketal.clocks.differential import clocks_of, deltas
    >>> changed = list(deltas([{"a": 1}, {"a": 2, "b": 5}, {"a": 3, "b": 5}]))
    >>> changed
    [{'a': 1}, {'a': 2, 'b': 5}, {'a': 3}]
    >>> list(clocks_of(changed))
    [{'a': 1}, {'a': 2, 'b': 5}, {'a': 3, 'b': 5}]
    """
    before: Clock = {}
    for clock in clocks:
        yield {node: count for node, count in clock.items() if before.get(node, 0) != count}
        before = clock


def clocks_of(changes: Iterable[Clock]) -> Iterator[dict[str, int]]:
    """Yield the clocks of which `deltas` are all the differences, from the first one on."""
    clock: dict[str, int] = {}
    for changed in changes:
        clock = {**clock, **changed}
        yield clock


@dataclass(frozen=True, slots=True)
class DeltaStamp:
    """An event's node, and the entries of its clock that changed; the own entry always did."""

    node: str
    changed: Clock

    @property
    def counter(self) -> int:
        """The number of the event in its node."""
        return self.changed[self.node]


class DeltaClocks(Scheme[DeltaStamp]):
    """Vector clocks, of which a log has the differences.

    One stamp by itself gives the order of its node's events, and no more. All stamps of an
    execution together are its vector clocks.
    """

    name = "delta"
    decides = True

    def stamped(self, events: Sequence[Happening]) -> list[DeltaStamp]:
        """Return the differences of the vector clocks."""
        out = []
        last: dict[str, Clock] = {}
        for stamp in VectorClocks().stamped(events):
            _, changed = deltas((last.get(stamp.node, {}), stamp.clock))
            out.append(DeltaStamp(stamp.node, changed))
            last[stamp.node] = stamp.clock
        return out

    def order(self, stamps: Iterable[DeltaStamp]) -> Callable[[DeltaStamp, DeltaStamp], bool]:
        """Return the order of these events, by the clocks that are made of all of them.

        Raises
        ------
        EventError
            If the stamp of an event of a node lacks before another one, or two stamps of one event
            differ.
        """
        of_node: dict[str, dict[int, DeltaStamp]] = {}
        for stamp in stamps:
            if of_node.setdefault(stamp.node, {}).setdefault(stamp.counter, stamp) != stamp:
                raise EventError(
                    f"clock: two events are event {stamp.counter} of {stamp.node!r}; their stamps "
                    "differ"
                )
        clocks = {node: self._clocks(node, numbered) for node, numbered in of_node.items()}

        def precedes(a: DeltaStamp, b: DeltaStamp) -> bool:
            return happened_before(
                a.node, clocks[a.node][a.counter - 1], b.node, clocks[b.node][b.counter - 1]
            )

        return precedes

    def _clocks(self, node: str, numbered: Mapping[int, DeltaStamp]) -> list[dict[str, int]]:
        for expected, number in enumerate(sorted(numbered), start=1):
            if expected != number:
                raise EventError(
                    f"clock: the delta stamp of event {number} of {node!r} builds on that of event "
                    f"{expected}, which is missing"
                )
        return list(clocks_of(numbered[number].changed for number in sorted(numbered)))

    def written(self, stamp: DeltaStamp) -> dict[str, int]:
        """Return the changed entries as an object."""
        return dict(sorted(stamp.changed.items()))

    def read(self, value: Any, node: str) -> DeltaStamp:
        """Return the stamp of changed entries that are an object."""
        if not isinstance(value, dict):
            raise not_a_stamp(self.name, 'the changed entries: {"a": 2, "b": 5}', value)
        return DeltaStamp(node, checked(node, value))


@dataclass(frozen=True, slots=True)
class DifferentialReplica:
    """A node whose messages carry the entries that changed since its last one to the receiver.

    Attributes
    ----------
    node : str
        The node.
    clock : mapping of str to int
        Its vector clock.
    changed_at : mapping of str to int
        Of each entry, the own counter when it last changed (the paper's vector LU).
    sent_at : mapping of str to int
        Of each receiver, the own counter when it was last sent to (the paper's vector LS).

    Examples
    --------
    >>> from ketal.clocks.differential import DifferentialReplica
    >>> a, b = DifferentialReplica("a").event(), DifferentialReplica("b")
    >>> a, first = a.send("b")
    >>> a, second = a.event().send("b")
    >>> first, second
    ({'a': 1}, {'a': 2})
    >>> b.event([first]).event([second]).clock
    {'a': 2, 'b': 2}
    """

    node: str
    clock: Clock = field(default_factory=dict)
    changed_at: Clock = field(default_factory=dict)
    sent_at: Clock = field(default_factory=dict)

    def event(self, received: Iterable[Clock] = ()) -> DifferentialReplica:
        """Return the node after an event: internal, a send, or the receipt of messages.

        Parameters
        ----------
        received : iterable of mapping of str to int
            What the messages carry. Those of a sender arrive in the order in which it sent them.
        """
        after = next_clock(self.node, [self.clock, *received])
        _, changed = deltas((self.clock, after))
        changed_at = {**self.changed_at, **dict.fromkeys(changed, after[self.node])}
        return DifferentialReplica(self.node, after, changed_at, self.sent_at)

    def send(self, to: str) -> tuple[DifferentialReplica, dict[str, int]]:
        """Return the node after it has sent a message at its last event, and what that carries."""
        last, own = self.sent_at.get(to, 0), self.clock.get(self.node, 0)
        # What changed at the event of the last message was in it: an event learns, then sends.
        entries = {
            node: count for node, count in self.clock.items() if self.changed_at[node] > last
        }
        sent_at = {**self.sent_at, to: own}
        return DifferentialReplica(self.node, self.clock, self.changed_at, sent_at), entries
