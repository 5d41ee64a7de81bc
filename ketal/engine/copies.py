"""The copies of a pattern, one a node under `at every node`, and the events each has learned of.

A copy is offered another node's event when its own node learns of that event: with the node's
first event that has it in its past or, with `receiving`, that received its message. An event is
held here until `unlearned_max` others are: a node may always start that learns of it.

The event evicted is the first of the node that has most. Of the evicted events only the highest
counter of each node is kept: a node that learns of events up to it may have learned of one.

Cost: an event takes O(P) for the P entries of its clock and one look-up for each copy, and the
events that its node learns of are sorted. An eviction looks at each node.

The one rule: an event is held once, by its node and counter, and no more than `unlearned_max`
are held.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

import msgspec

from ketal.engine.find.windows import FOREVER
from ketal.model import syntax
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event, load_event, received, save_event
from ketal.model.events.event_time import microseconds
from ketal.model.limits import Limits
from ketal.model.values import base_node, glob_regex
from ketal.operators.dirty_records import DirtyRecords

_NUMBER: Final = attrgetter("number")


@dataclass(slots=True)
class Copy:
    """One node's copy of a pattern."""

    # The last counter of each other node that the node has learned of.
    known: dict[str, int] = field(default_factory=dict)
    # With `receiving`, the events whose messages it received before they were offered.
    awaited: OrderedDict[Dot, None] = field(default_factory=OrderedDict)


class Unlearned(msgspec.Struct, frozen=True, gc=False):
    """An event that copies may yet learn of."""

    event: Event
    mask: int | None
    """The mask with which copies are offered the event.

    None: the event is offered to no copy, and is held only so that copies with `receiving` do not
    await it.
    """
    number: int
    """Its place in the order offered."""
    receivers: tuple[str, ...]
    """With `receiving`, the nodes that received its message."""

    def save(self) -> Any:
        """Return the event and its fields as plain data."""
        return (save_event(self.event), self.mask, self.number, self.receivers)

    @classmethod
    def load(cls, value: Any) -> Unlearned:
        """Return the object that `save` wrote."""
        event, mask, number, receivers = value
        return cls(load_event(event), mask, number, tuple(receivers))


class UnlearnedEvents:
    """The held events of a node by counter; if `timed`, also the earliest time above a counter.

    An event can be that earliest one only if no later counter has an earlier time. Only such events
    are candidates, so the times of candidates rise with their counters.

    Cost: O(log n) to add an event above all others, to look one up and to remove the first.
    """

    __slots__ = ("_by_counter", "_candidates", "_counters", "_passed", "_removed", "_timed")

    def __init__(self, *, timed: bool) -> None:
        self._timed = timed
        self._by_counter: dict[int, Unlearned] = {}
        # The counters, and counters and times of the candidates, both sorted; the first `_removed`
        # and `_passed` of them are removed.
        self._counters: list[int] = []
        self._candidates: list[tuple[int, int]] = []
        self._removed = self._passed = 0

    def __len__(self) -> int:
        return len(self._by_counter)

    def values(self) -> Collection[Unlearned]:
        """Return the events."""
        return self._by_counter.values()

    def get(self, counter: int) -> Unlearned | None:
        """Return the event of a counter; None if it is not held."""
        return self._by_counter.get(counter)

    def between(self, low: int, high: int) -> list[Unlearned]:
        """Return the events whose counters are above `low`, up to `high`."""
        begin = bisect_right(self._counters, low, self._removed)
        end = bisect_right(self._counters, high, begin)
        return [self._by_counter[counter] for counter in self._counters[begin:end]]

    def add(self, unlearned: Unlearned) -> None:
        """Add an event, or replace it."""
        event = unlearned.event
        counter = event.clock[event.node]
        if counter not in self._by_counter:
            insort(self._counters, counter, self._removed)
            if self._timed and (time_us := microseconds(event.time)) is not None:
                self._add_candidate((counter, time_us))
        self._by_counter[counter] = unlearned

    def _add_candidate(self, event: tuple[int, int]) -> None:
        """Make an event a candidate if no later one has an earlier time."""
        candidates = self._candidates
        index = bisect_left(candidates, event, self._passed)
        if index < len(candidates) and candidates[index][1] <= event[1]:
            return
        first = index
        while first > self._passed and candidates[first - 1][1] >= event[1]:
            first -= 1
        candidates[first:index] = [event]

    def pop_first(self) -> tuple[int, Unlearned]:
        """Remove the event with the lowest counter; return the counter and the event."""
        counter, candidates, passed = self._counters[self._removed], self._candidates, self._passed
        self._removed = _drop_first(self._counters, self._removed)
        if passed < len(candidates) and candidates[passed][0] == counter:
            self._passed = _drop_first(candidates, passed)
        return counter, self._by_counter.pop(counter)

    def earliest_us_after(self, counter: int) -> int | None:
        """Return the earliest time of an event above a counter; None if there is no event."""
        index = bisect_right(self._candidates, (counter, FOREVER), self._passed)
        return self._candidates[index][1] if index < len(self._candidates) else None

    def validate_state(self, node: str) -> None:
        """Assert that the events are those of a node, and that the lists are sorted."""
        assert all((node, c) == u.event.dot for c, u in self._by_counter.items())
        assert self._counters[self._removed :] == sorted(self._by_counter)
        candidates = self._candidates[self._passed :]
        assert candidates == sorted(candidates)
        assert all(candidate[0] in self._by_counter for candidate in candidates)


def _drop_first(values: list[Any], begin: int) -> int:
    """Remove the first value from a list whose values before `begin` are removed.

    Return the new `begin`. The list itself becomes shorter when half of its values are removed.
    """
    begin += 1
    if 2 * begin < len(values):
        return begin
    del values[:begin]
    return 0


class Copies:
    """The copies of a pattern."""

    def __init__(self, deployment: syntax.Deployment, limits: Limits, *, timed: bool) -> None:
        self.by_node: dict[str, Copy] = {}
        glob = deployment.glob
        self._glob = glob_regex(glob, dotted=False) if glob is not None else None
        self.everything = deployment.everything  # whether every copy is offered every event
        # Whether a copy is offered, of other nodes, only events whose messages its node receives.
        self.receiving = deployment.receiving
        self.offered = 0
        # How many messages were received by nodes with copies, with `receiving`.
        self.messages = 0
        self._max = limits.unlearned_max
        self._timed = timed
        self._unlearned: dict[str, UnlearnedEvents] = {}  # by node
        self._count = 0
        self._evicted: dict[str, int] = {}  # of each node, the highest counter evicted
        self.dirty = DirtyRecords[Unlearned]()

    def unlearned(self) -> list[Unlearned]:
        """Return the events that are held, in the order offered."""
        return sorted((u for held in self._unlearned.values() for u in held.values()), key=_NUMBER)

    def learn(self, event: Event) -> tuple[list[Unlearned], list[Dot]]:
        """Return the events to offer the copy of `event.node` before `event`, in the order offered.

        They are the events that the node learns of with `event`. Where every copy is offered
        every event, they are all held events, with the node's first event. Returned are also the
        evicted events among them, of each node the highest that is possible.
        """
        node = event.node
        self.offered += 1
        if node not in self.by_node:
            if self._glob is not None and self._glob.fullmatch(base_node(node)) is None:
                return [], []
            self.by_node[node] = Copy()
            if self.everything:
                return self.unlearned(), self.evicted_unlearned(node)
        elif self.everything:
            return [], []
        if self.receiving:
            return self._learn_by_messages(event)
        known = self.by_node[node].known
        learned: list[Unlearned] = []
        evicted: list[Dot] = []
        for other, counter in event.clock.items():
            before = known.get(other, 0)
            if other == node or counter <= before:
                continue
            known[other] = counter
            if (upto := self._evicted.get(other, 0)) > before:
                evicted.append(Dot(other, min(counter, upto)))
            if (held := self._unlearned.get(other)) is not None:
                learned += held.between(before, counter)
        learned.sort(key=_NUMBER)
        return learned, evicted

    def evicted_unlearned(self, node: str) -> list[Dot]:
        """Return the last evicted event of each node of which the copy of `node` has not learned.

        With `receiving` it may have, as its node learns only of the events that sent its messages.
        """
        known = self.by_node[node].known
        return [
            Dot(other, counter)
            for other, counter in self._evicted.items()
            if other != node and counter > known.get(other, 0)
        ]

    def _learn_by_messages(self, event: Event) -> tuple[list[Unlearned], list[Dot]]:
        """Return the events whose messages the event's node receives for the first time.

        They are those that are held, and those that may have been evicted; also a dot that is no
        longer awaited, as too many are.
        """
        node = event.node
        learned: list[Unlearned] = []
        evicted: list[Dot] = []
        for dot in received(event):
            if dot.node == node:
                continue
            self.messages += 1
            held = self._unlearned.get(dot.node)
            one = None if held is None else held.get(dot.counter)
            if one is None and dot.counter <= self._evicted.get(dot.node, 0):
                evicted.append(dot)
            elif held is None or one is None:
                awaited = self.by_node[node].awaited
                awaited[dot] = None
                if len(awaited) > self._max:
                    evicted.append(awaited.popitem(last=False)[0])
            elif one.mask is not None and node not in one.receivers:
                receivers = (*one.receivers, node)
                self._put(held, Unlearned(one.event, one.mask, one.number, receivers))
                learned.append(one)
        learned.sort(key=_NUMBER)
        return learned, evicted

    def unlearned_us(self, node: str) -> int:
        """Return the earliest time of a held event that a node may yet learn of.

        With `receiving` that may be any held event of another node, as it is not known which
        messages are still in flight.
        """
        known = self.by_node[node].known
        times = (
            held.earliest_us_after(known.get(other, 0))
            for other, held in self._unlearned.items()
            if other != node
        )
        return min((time for time in times if time is not None), default=FOREVER)

    def nodes_seeing(self, event: Event) -> list[str]:
        """Return the nodes whose copies are offered an event when it is released."""
        node, counter = event.node, event.counter
        if self.receiving:
            dot = event.dot
            return [
                owner
                for owner, copy in self.by_node.items()
                if owner == node or dot in copy.awaited
            ]
        return [
            owner
            for owner, copy in self.by_node.items()
            if owner == node or self.everything or copy.known.get(node, 0) >= counter
        ]

    def hold(self, event: Event, mask: int | None) -> None:
        """Hold an event for the copies that have not learned of it.

        If the table is full, an event is evicted. For `mask` see `Unlearned`.
        """
        if self._count >= self._max:
            self._evict()
        receivers = []
        if self.receiving:
            dot = event.dot
            for node, copy in self.by_node.items():
                if dot in copy.awaited:
                    del copy.awaited[dot]
                    receivers.append(node)
        self._add(Unlearned(event, mask, self.offered, tuple(receivers)))

    def _evict(self) -> None:
        held = max(self._unlearned.values(), key=len)
        counter, evicted = held.pop_first()
        self._count -= 1
        node = evicted.event.node
        if evicted.mask is not None:
            self._evicted[node] = max(counter, self._evicted.get(node, 0))
        self.dirty.remove(evicted.number)

    def _add(self, unlearned: Unlearned) -> None:
        node = unlearned.event.node
        held = self._unlearned.get(node)
        if held is None:
            held = self._unlearned[node] = UnlearnedEvents(timed=self._timed)
        self._put(held, unlearned)
        self._count += 1

    def _put(self, held: UnlearnedEvents, unlearned: Unlearned) -> None:
        """Add an event to those of its node, or replace it, and mark it dirty."""
        held.add(unlearned)
        self.dirty.mark(unlearned.number, unlearned)

    # --- state ---

    def take_dirty(self) -> dict[int, Unlearned | None]:
        """Return the dirty events, and mark all as saved; the first time, return all."""
        return self.dirty.take(self.numbered, self.offered + 1)

    def numbered(self) -> dict[int, Unlearned | None]:
        """Return the held events by number."""
        return {unlearned.number: unlearned for unlearned in self.unlearned()}

    def save(self) -> Any:
        """Return the state without the held events, as plain data."""
        known = [[node, dict(copy.known), [*copy.awaited]] for node, copy in self.by_node.items()]
        return [self.offered, self.messages, known, list(self._unlearned), dict(self._evicted)]

    def load(self, value: Any, unlearned: Iterable[Unlearned]) -> None:
        """Load what `save` returned, and the held events in the order offered."""
        self.offered, self.messages, known, nodes, *evicted = value
        for counters in evicted:  # absent in states of earlier versions
            self._evicted = dict(counters)
        for node, counters, awaited in known:
            self.by_node[node] = Copy(
                dict(counters), OrderedDict.fromkeys(Dot(*dot) for dot in awaited)
            )
        self._unlearned = {node: UnlearnedEvents(timed=self._timed) for node in nodes}
        for one in unlearned:
            self._add(one)
        while self._count > self._max:  # the limit is smaller than it was
            self._evict()

    def validate_state(self) -> None:
        """Assert the rule of this module."""
        unlearned = [u for held in self._unlearned.values() for u in held.values()]
        assert self._count == len(unlearned) <= self._max
        for node, held in self._unlearned.items():
            held.validate_state(node)
        numbers = [u.number for u in self.unlearned()]
        assert len(set(numbers)) == len(numbers)
        assert not numbers or numbers[-1] <= self.offered
        assert all(node not in copy.known for node, copy in self.by_node.items())
        for copy in self.by_node.values():
            assert len(copy.awaited) <= self._max
            for dot in copy.awaited:
                held_events = self._unlearned.get(dot.node)
                assert held_events is None or held_events.get(dot.counter) is None
