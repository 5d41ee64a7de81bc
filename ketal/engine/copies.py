"""The copies of a pattern, one a node under `at every node`, and the events each has learned of.

A copy is offered another node's event when its own node learns of that event: with the node's
first event that has it in its past or, with `receiving`, that received its message. An event is
held here until `unlearned_max` others are: a node may always start that learns of it.

Of the evicted events only the highest counter of each node is kept. A node that learns of events
up to this counter may have learned of an evicted one.

Cost: an event takes O(P) for the P entries of its clock and one look-up for each copy, and the
events that its node learns of are sorted. An eviction looks at each node.

The one rule: an event is held once, by its node and counter, and no more than `unlearned_max`
are held.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

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


class Unlearned:
    """An event that copies may yet learn of."""

    __slots__ = ("event", "mask", "number", "receivers")

    def __init__(
        self, event: Event, mask: int | None, number: int, receivers: tuple[str, ...]
    ) -> None:
        self.event = event
        # The mask with which copies are offered the event. None: the event is offered to no copy,
        # and is held only so that copies with `receiving` do not await it.
        self.mask = mask
        self.number = number  # its place in the order offered
        self.receivers = receivers  # with `receiving`, the nodes that received its message

    def save(self) -> Any:
        """Return the event and its fields as plain data."""
        return (save_event(self.event), self.mask, self.number, self.receivers)

    @classmethod
    def load(cls, value: Any) -> Unlearned:
        """Return the object that `save` wrote."""
        event, mask, number, receivers = value
        return cls(load_event(event), mask, number, tuple(receivers))


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
        self._unlearned: dict[str, OrderedDict[int, Unlearned]] = {}  # by counter, oldest first
        self._count = 0
        self._evicted: dict[str, int] = {}  # of each node, the highest counter evicted
        self.dirty = DirtyRecords[Unlearned]()
        self._earliest: dict[str, EarliestAfter] = {}

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
            held = self._unlearned.get(other)
            if not held:
                continue
            if counter - before <= len(held):
                learned += [held[c] for c in range(before + 1, counter + 1) if c in held]
            else:
                learned += [u for c, u in held.items() if before < c <= counter]
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
                self._set(held, Unlearned(one.event, one.mask, one.number, receivers))
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
            earliest.after(known.get(other, 0))
            for other, earliest in self._earliest.items()
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

        If the table is full, the oldest event of the node with most events is evicted. For
        `mask` see `Unlearned`.
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
        self._put(Unlearned(event, mask, self.offered, tuple(receivers)))

    def _evict(self) -> None:
        held = max(self._unlearned.values(), key=len)
        counter, evicted = held.popitem(last=False)
        self._count -= 1
        node = evicted.event.node
        if evicted.mask is not None:
            self._evicted[node] = max(counter, self._evicted.get(node, 0))
        self.dirty.remove(evicted.number)
        if self._timed and (time_us := evicted.event.time_us) is not None:
            self._earliest[node].remove(counter, time_us)

    def _put(self, unlearned: Unlearned) -> None:
        event = unlearned.event
        node, counter = event.node, event.clock[event.node]
        self._set(self._unlearned.setdefault(node, OrderedDict()), unlearned)
        self._count += 1
        if self._timed and (time_us := microseconds(event.time)) is not None:
            earliest = self._earliest.get(node)
            if earliest is None:
                earliest = self._earliest[node] = EarliestAfter()
            earliest.add(counter, time_us)

    def _set(self, held: OrderedDict[int, Unlearned], unlearned: Unlearned) -> None:
        """Add an event to those of its node, or replace it, and mark it dirty."""
        held[unlearned.event.counter] = unlearned
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
        self._unlearned = {node: OrderedDict() for node in nodes}
        for one in unlearned:
            self._put(one)
        while self._count > self._max:  # the limit is smaller than it was
            self._evict()

    def validate_state(self) -> None:
        """Assert the rule of this module."""
        unlearned = [u for held in self._unlearned.values() for u in held.values()]
        assert self._count == len(unlearned) <= self._max
        for node, held in self._unlearned.items():
            assert all((node, c) == u.event.dot for c, u in held.items())
        numbers = [u.number for u in self.unlearned()]
        assert len(set(numbers)) == len(numbers)
        assert not numbers or numbers[-1] <= self.offered
        assert all(node not in copy.known for node, copy in self.by_node.items())
        for copy in self.by_node.values():
            assert len(copy.awaited) <= self._max
            assert not any(dot.counter in self._unlearned.get(dot.node, {}) for dot in copy.awaited)


class EarliestAfter:
    """Finds the earliest time among a node's held events above a given counter.

    An event can be the answer only if no later counter has an earlier time. Only such events
    are candidates, so the times of candidates rise with their counters.
    """

    __slots__ = ("_candidates", "_held", "_passed", "_removed")

    def __init__(self) -> None:
        # Counters and times, by counter; the first `_removed` and `_passed` of them are removed.
        self._held: list[tuple[int, int]] = []
        self._candidates: list[tuple[int, int]] = []
        self._removed = self._passed = 0

    def add(self, counter: int, time_us: int) -> None:
        """Add an event."""
        insort(self._held, (counter, time_us), self._removed)
        self._add_candidate((counter, time_us))

    def remove(self, counter: int, time_us: int) -> None:
        """Remove an event; the cost is low if few lower counters are held."""
        event, begin, end = (counter, time_us), self._passed, len(self._candidates)
        place = bisect_left(self._held, event, self._removed)
        index = bisect_left(self._candidates, event, begin)
        if index < end and self._candidates[index] == event:
            before = self._candidates[index - 1] if index > begin else (0, 0)
            self._passed = _remove_at(self._candidates, begin, index)
            # Events between the candidate before it and itself may be candidates now.
            for number in range(place - 1, self._removed - 1, -1):
                if self._held[number] <= before:
                    break
                self._add_candidate(self._held[number])
        self._removed = _remove_at(self._held, self._removed, place)

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

    def after(self, counter: int) -> int | None:
        """Return the earliest time of an event above a counter; None if there is no event."""
        index = bisect_right(self._candidates, (counter, FOREVER), self._passed)
        return self._candidates[index][1] if index < len(self._candidates) else None


def _remove_at(values: list[tuple[int, int]], begin: int, index: int) -> int:
    """Remove a value from a list whose values before `begin` are removed; return the new `begin`.

    The cost is low near `begin`.
    """
    values[begin + 1 : index + 1] = values[begin:index]
    begin += 1
    if 2 * begin < len(values):
        return begin
    del values[:begin]
    return 0
