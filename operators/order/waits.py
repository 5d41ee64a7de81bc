"""The waits of a hold-back queue, and what ends them: `gap`, idle time, nodes that leave.

A dot that is neither settled nor received is *missing* to the events that have
it in their past. It is declared lost when it has been missing for `gap`, or when its
node has left. A node that is silent for too long counts as one that left.

The one rule: the missing dots of a node are given up from its lowest counter on, so that its
settled dots stay those up to a counter.
"""

from __future__ import annotations

from itertools import islice
from typing import ClassVar

from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.operators.order.missing import MissingSince
from ketal.operators.order.node_progress import Held, NodeProgress
from ketal.operators.order.policy import ReleasePolicy
from ketal.operators.order.step import ReleaseStep, named_counters
from ketal.operators.stateful import Stateful
from ketal.operators.topology.domain_order import DomainPast


class Waits(Stateful):
    """Records which nodes are live and which dots are missing, and ends waits for them.

    The policy wakes the events whose dots are settled; it has the options, the held events, the
    time and the live nodes. Under a topology, `domains` is the part of its past that an event waits
    for.
    """

    STATE: ClassVar = "_live", "missing_since"

    def __init__(self, policy: ReleasePolicy, domains: DomainPast | None) -> None:
        self.missing_since = MissingSince(policy.options, policy.time, policy.store.lacks)
        self._options = policy.options
        self._dates_missing = policy.options.dates_missing
        self._store = policy.store
        self._live = policy.live
        self._policy = policy
        self._domains = domains
        self._widened: list[Held] = []  # held events that may wait for more dots than before

    # --- nodes ---

    def activate(self, node: str) -> NodeProgress:
        """Mark a node as active; return the progress of its events."""
        if self._live.activate(node):
            self._policy.await_node(node)
        return self._store.node(node)

    def leave(self, node: str, step: ReleaseStep, *, returns: bool) -> None:
        """Mark a node as gone, and its missing dots as lost in a step.

        `returns` is whether the node is live again once it is active.
        """
        self._live.leave(node, returns=returns)
        self.record_held()
        progress = self._store.nodes.get(node)
        if progress is not None and progress.received < progress.needed:
            self.declare_lost(node, progress.needed, step)

    def give_up_departed(self, event: Event, step: ReleaseStep) -> None:
        """Give up the dots of departed nodes that an event waits for; reactivate silent nodes."""
        may_need_more = True
        while may_need_more:
            may_need_more = False
            for node, needed in sorted(self._store.needs(event)):
                returns = self._live.departed.get(node)
                if returns is None or needed <= self._store.node(node).received:
                    continue
                if returns:
                    self.activate(node)
                else:
                    self.declare_lost(node, needed, step)
                    may_need_more = self._domains is not None

    # --- missing dots ---

    def record(self, event: Event) -> None:
        """Record that the dots which an event is the first to need are missing from now on."""
        for node, needed in self._store.newly_needed(event):
            if node in self._live.active:
                self.activate(node)  # the event's clock shows that it was active
            if self._dates_missing:
                self.missing_since.add(node, needed)

    def record_held(self) -> None:
        """Record the needs of the events that were held without recording them."""
        if self._store.unrecorded:
            self._store.unrecorded = False
            for held in self._store.by_arrival():
                self.record(held.event)

    def missing(self) -> list[Dot]:
        """Return the dots missing to held events, up to `lost_max`; of a long hole, its ends."""
        dots_max = self._options.lost_max
        self.record_held()
        dots = (
            Dot(node, counter)
            for node, progress in sorted(self._store.nodes.items())
            for first, last in progress.holes(progress.needed)
            for counter in named_counters(first, last, dots_max)
        )
        return list(islice(dots, dots_max))

    def expire(self, step: ReleaseStep) -> bool:
        """Give up dots that have been missing, and nodes that have been silent, for too long.

        Return whether anything was given up.
        """
        expired = False
        while (row := self.missing_since.overdue()) is not None:
            self.declare_lost(*row, step)
            self.record_widened(step)
            expired = True
        while (idle := self._live.idle()) is not None:
            self.leave(idle, step, returns=True)
            self.record_widened(step)  # a node that is needed since now is active
            expired = True
        return expired

    def declare_lost(self, node: str, upto: int, step: ReleaseStep) -> None:
        """Declare the missing dots of a node, up to a counter, lost."""
        progress = self._store.node(node)
        for first, last in progress.holes(upto):
            progress.given_up[first] = last
            least = self._policy.least_sum(node, first - 1)
            step.declare_lost(node, first, last, self._options.lost_max, least)
            if self._domains is not None:
                self._domains.add_lost(node, first, last)
                self._widened += self._store.events_naming(node, first, last)
        progress.declared = max(progress.declared, upto)
        self._settle_given_up(progress)

    def pass_over(self, event: Event) -> None:
        """Give up an event whose place has passed.

        The places of its node's earlier events have passed too, so no event's turn waits for
        them; an event that depends on this one still waits until it is settled.
        """
        progress, counter = self._store.node(event.node), event.clock[event.node]
        progress.give_up_arrived(counter)
        if self._store.sum_clock is not None and counter > progress.summed:
            progress.summed = counter
            progress.clock_sum = max(progress.clock_sum, self._store.sum_clock(event))
        self._settle_given_up(progress)

    def _settle_given_up(self, progress: NodeProgress) -> None:
        progress.advance_sum(self._store.sum_clock)
        self.settle(progress, 0)

    def settle(self, progress: NodeProgress, counter: int) -> None:
        """Settle the dots of a node up to a counter, and wake the events that waited for them."""
        for held in progress.settle(counter):
            if self._store.is_held(held):  # not given up
                self._policy.wake(held)

    # --- domains ---

    def widen(self, event: Event) -> str:
        """Add the nodes in an event's clock that an open topology lacks.

        Return the limit that the search for domains exceeded; empty if it exceeded none.
        """
        if self._domains is None:
            return ""
        grown, limit = self._domains.widen(event)
        if grown:
            self._widened = self._store.by_arrival()
        for node in event.clock:
            self._store.node(node)  # recorded, whether it is waited for or not
        return limit

    def record_widened(self, step: ReleaseStep) -> bool:
        """Record the needs of held events that grew with the domains, or as dots were lost.

        Return whether there were such events.
        """
        widened, self._widened = self._widened, []
        for held in sorted(widened):
            if self._store.is_held(held):
                self.give_up_departed(held.event, step)
                self.record(held.event)
        return bool(widened)

    def restart(self) -> None:
        """Count all waits from now on, as the options have changed."""
        nodes = self._store.nodes
        arrived = {node for node, progress in nodes.items() if progress.received or progress.held}
        self._live.restart(self._options.nodes, arrived)
        self.missing_since.remove_all()
        for progress in nodes.values():
            progress.needed = 0
        if self._policy.awaits_dots:
            for held in self._store.by_arrival():
                self.record(held.event)
