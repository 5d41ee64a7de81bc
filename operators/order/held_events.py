"""The events of a hold-back queue, indexed by node and counter, and by the dots that they await.

An event whose past is not settled waits for one dot of it: its node's previous event if that
is not settled, as once it is, most of the past is. When the dot is settled the event is checked
again. So an event is checked few times, and an arrival costs work only for the events that it
releases.

An event that waits for its node's previous event is found by its counter, so at most one other
event a node is indexed.

Two other objects are consulted. Once some node has left, a `Restorer` has more of a clock than the
event arrived with. Under a topology, a `DomainPast` has the entries of a clock that are waited
for; without one, all are.

The one rule: an event that waits is found by one dot, which is not settled.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Final

from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.operators.membership.clock_restoration import Restorer
from ketal.operators.order.node_progress import Held, NodeProgress
from ketal.operators.topology.domain_order import DomainPast

_CLOCK: Final = attrgetter("clock")


class HeldEvents:
    """The events of a hold-back queue, and the progress of each node.

    `domains` is the part of clocks that is waited for; None: all entries.
    """

    def __init__(self, domains: DomainPast | None) -> None:
        self.nodes: dict[str, NodeProgress] = {}  # every node that an event or a clock named
        # How many dots of each node are settled.
        self.settled: defaultdict[str, int] = defaultdict(int)
        self.count = 0  # how many events are held
        self.restorer: Restorer | None = None  # restores clocks, once a node has left
        self.sum_clock: Callable[[Event], int] | None = None
        """Returns the known sum of an event's clock; None if the policy needs no sums."""
        self.unrecorded = False
        """Whether events are held whose needs `newly_needed` has not recorded."""
        self._domains = domains
        # The entries of an event's clock that it waits for.
        self._awaited: Callable[[Event], Mapping[str, int]] = (
            _CLOCK if domains is None else domains.clock
        )
        self.arrivals = itertools.count(1)  # the numbers of arrivals
        # The held events that name a dot, by their arrival, under a topology.
        self._by_named_dot: dict[tuple[str, int], dict[int, Held]] = {}

    def node(self, name: str) -> NodeProgress:
        """Return the progress of a node's events, which begins now for a new node."""
        progress = self.nodes.get(name)
        if progress is None:
            progress = self.nodes[name] = NodeProgress(name, self.settled)
        return progress

    # --- held events ---

    def new_arrival(self, event: Event, time_us: int = 0) -> Held:
        """Return an event as the next arrival, not held yet."""
        return Held(next(self.arrivals), event, time_us)

    def hold(self, held: Held) -> Held:
        """Add an event to those that are held."""
        progress = self.node(held.node)
        progress.held[held.clock[held.node]] = held
        self.count += 1
        progress.advance_sum(self.sum_clock)
        if self._domains is not None:
            for dot in held.clock.items():
                self._by_named_dot.setdefault(dot, {})[held.arrival] = held
        return held

    def remove(self, event: Event) -> None:
        """Remove an event, if it is held."""
        progress = self.nodes[event.node]
        held = progress.held.pop(event.clock[event.node], None)
        if held is None:
            return
        self.count -= 1
        if not progress.held:
            progress.held = {}  # a dict that was large does not shrink
        if self._domains is not None:
            for dot in event.clock.items():
                named = self._by_named_dot[dot]
                del named[held.arrival]
                if not named:
                    del self._by_named_dot[dot]

    def is_held(self, held: Held) -> bool:
        """Return whether an event is still held."""
        return self.nodes[held.node].held.get(held.clock[held.node]) is held

    def holds(self, node: str, counter: int) -> bool:
        """Return whether the event of a dot is held."""
        progress = self.nodes.get(node)
        return progress is not None and counter in progress.held

    def by_arrival(self) -> list[Held]:
        """Return the held events in order of arrival."""
        held = [held for progress in self.nodes.values() for held in progress.held.values()]
        return sorted(held)

    def events_naming(self, node: str, first: int, last: int) -> list[Held]:
        """Return the held events, under a topology, whose clocks name a dot of a hole."""
        if last - first < len(self._by_named_dot):
            dots = [(node, c) for c in range(first, last + 1)]
        else:
            dots = [dot for dot in self._by_named_dot if dot[0] == node and first <= dot[1] <= last]
        return [held for dot in dots for held in self._by_named_dot.get(dot, {}).values()]

    # --- the dots that events wait for ---

    def needs(self, event: Event) -> Iterator[tuple[str, int]]:
        """Yield (node, counter): an event waits for the node's events up to the counter."""
        for node, counter in self._awaited(event).items():
            yield node, counter - 1 if node == event.node else counter

    def unsettled(self, event: Event) -> tuple[str, int] | None:
        """Return node and counter of one dot that `event` waits for; None if it is ready.

        The dot is that of its node's previous event, if that is not settled.
        """
        own, settled = event.node, self.settled
        clock = self._awaited(event)
        if settled[own] < clock[own] - 1:
            return own, clock[own] - 1
        for node, counter in clock.items():
            if settled[node] < counter and node != own:
                return node, counter
        return None

    def await_settled(self, held: Held) -> bool:
        """Index an event by a dot that it waits for; return whether there is one."""
        unsettled = self.unsettled(held.event)
        if unsettled is None:
            return False
        node, counter = unsettled
        if node != held.node:
            self.node(node).waiters.setdefault(counter, []).append(held)
        return True

    def missing_dot(self, event: Event) -> Dot | None:
        """Return a dot in the past of `event` that was not received and is not given up."""
        for node, needed in self.needs(event):
            progress = self.nodes.get(node)
            received = progress.received if progress is not None else 0
            if received < needed:
                return Dot(node, received + 1)
        return None

    def lacks(self, node: str, upto: int) -> bool:
        """Return whether some dot of a node, up to a counter, is missing."""
        return self.nodes[node].received < upto

    def newly_needed(self, event: Event) -> list[tuple[str, int]]:
        """Return the missing dots that `event` is the first to need: node and highest counter.

        The event itself is held or given up, so it is not among them.
        """
        fresh = []
        nodes = self.nodes
        for node, needed in self._awaited(event).items():
            progress = nodes.get(node) or self.node(node)
            if needed > progress.needed and needed > progress.received:
                progress.needed = needed
                fresh.append((node, needed))
        fresh.sort()
        return fresh

    def waits_for(self, event: Event, results: dict[Dot, Dot | None]) -> Dot | None:
        """Return a missing dot that an event waits for, directly or through other held events.

        Whole clocks name every missing dot; clocks that have shrunk, and the part of
        a clock that is read within domains, may not. `results` has the results for other
        events; new ones are added to it.
        """
        path: list[Dot] = []
        missing = None
        while event.dot not in results:
            results[event.dot] = None
            path.append(event.dot)
            missing = self.missing_dot(event)
            unsettled = None if missing is not None else self.unsettled(event)
            if unsettled is None:
                break
            node, counter = unsettled
            event = self.nodes[node].last_held(counter).event
        else:
            missing = results[event.dot]
        for dot in path:
            results[dot] = missing
        return missing
