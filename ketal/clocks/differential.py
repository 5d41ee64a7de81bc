"""Differences of vector clocks: only the entries that changed.

In a log: the clock of an event differs from that of its node's previous event in the own entry, and
in the entries that changed by received messages. A delta has only these entries. All deltas of a
node, in its order, determine its clocks (`deltas`, `clocks_of`). The scheme `delta` writes a log in
this form, and needs all of the log to read it.

In messages: over a FIFO channel, a message needs only the entries that
changed at the sender since its last message to the same receiver (`DifferentialReplica`): Singhal
and Kshemkalyani, "An efficient implementation of vector clocks", Information Processing Letters 43
(1992). A node stores for each receiver when it last sent to it, and for each entry when it last
changed, both by its own counter: two vectors beside the clock, instead of a copy for each receiver.
If a message is lost, or overtakes another one, the receiver's clock misses entries.

The one rule: the own counter of a node increases by one at each event, so that a missing delta is
detected, and is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ketal.clocks.scheme import Clock, Happening, Scheme, not_a_stamp
from ketal.clocks.vector import VectorClocks, checked, happened_before, next_clock
from ketal.errors import EventError


def deltas(clocks: Iterable[Clock]) -> Iterator[dict[str, int]]:
    """Yield, for each clock of a node in its order, the entries that differ from the previous one.

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
    """Yield the clocks of a node from all of its `deltas`: the inverse of that function."""
    clock: dict[str, int] = {}
    for changed in changes:
        clock = {**clock, **changed}
        yield clock


@dataclass(frozen=True, slots=True)
class DeltaStamp:
    """The node of an event, and the entries of its clock that changed, always with its own."""

    node: str
    changed: Clock

    @property
    def counter(self) -> int:
        """The number of the event at its node."""
        return self.changed[self.node]


class DeltaClocks(Scheme[DeltaStamp]):
    """Vector clocks of which a log stores only the differences.

    A stamp by itself orders only the events of its own node. All stamps of an execution together
    determine its vector clocks.
    """

    name = "delta"
    decides = True

    def stamps(self, events: Sequence[Happening]) -> Iterator[DeltaStamp]:
        """Yield the differences between the vector clocks of each node."""
        last: dict[str, Clock] = {}
        for stamp in VectorClocks().stamps(events):
            _, changed = deltas((last.get(stamp.node, {}), stamp.clock))
            yield DeltaStamp(stamp.node, changed)
            last[stamp.node] = stamp.clock

    def order(self, stamps: Iterable[DeltaStamp]) -> Callable[[DeltaStamp, DeltaStamp], bool]:
        """Return the order of the events, by the vector clocks computed from all of their stamps.

        Raises an EventError if the stamp of an earlier event of a node is missing, or two stamps of
        one event differ.
        """
        by_node: dict[str, dict[int, DeltaStamp]] = {}
        for stamp in stamps:
            if by_node.setdefault(stamp.node, {}).setdefault(stamp.counter, stamp) != stamp:
                raise EventError(
                    f"clock: event {stamp.counter} of {stamp.node!r} has two different stamps"
                )
        clocks = {node: self._node_clocks(node, numbered) for node, numbered in by_node.items()}

        def precedes(a: DeltaStamp, b: DeltaStamp) -> bool:
            return happened_before(
                a.node, clocks[a.node][a.counter - 1], b.node, clocks[b.node][b.counter - 1]
            )

        return precedes

    def _node_clocks(self, node: str, numbered: Mapping[int, DeltaStamp]) -> list[dict[str, int]]:
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
        """Return the stamp of changed entries given as an object."""
        if not isinstance(value, dict):
            raise not_a_stamp(self.name, 'the changed entries, such as {"a": 2, "b": 5}', value)
        return DeltaStamp(node, checked(node, value))


@dataclass(frozen=True, slots=True)
class DifferentialReplica:
    """A node whose messages carry only the entries changed since its last one to that receiver.

    Attributes
    ----------
    node : str
        The node.
    clock : mapping of str to int
        The vector clock of the node.
    changed_at : mapping of str to int
        Entry → the own counter when it last changed (the paper's vector LU).
    sent_at : mapping of str to int
        Receiver → the own counter when a message was last sent to it (the paper's vector LS).

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
        """Return the node after an event: internal, a send, or a receive.

        `received` has the entries that the received messages carry. Messages of a sender must be
        received in the order in which they were sent.
        """
        after = next_clock(self.node, [self.clock, *received])
        _, changed = deltas((self.clock, after))
        changed_at = {**self.changed_at, **dict.fromkeys(changed, after[self.node])}
        return DifferentialReplica(self.node, after, changed_at, self.sent_at)

    def send(self, to: str) -> tuple[DifferentialReplica, dict[str, int]]:
        """Send a message at the last event; return the node after that, and the entries to send."""
        last, own = self.sent_at.get(to, 0), self.clock.get(self.node, 0)
        # `>`, since the last message already had the changes of its event: an event receives first,
        # then sends.
        entries = {
            node: count for node, count in self.clock.items() if self.changed_at[node] > last
        }
        sent_at = {**self.sent_at, to: own}
        return DifferentialReplica(self.node, self.clock, self.changed_at, sent_at), entries
