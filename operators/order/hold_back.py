"""The hold-back queue of `order CausalOrder(...)` on a live stream.

The theory is that of causal delivery (Birman, Schiper and Stephenson,
"Lightweight causal and atomic group multicast", 1991), with an end to waiting.
A dot is *settled* when it was released, or given up: declared lost, or late. An
event is causally ready when its whole past is settled. As an event's clock
covers the clocks of its past, the settled dots of a node are those up to a counter,
and one number for each node is enough.

There is one queue. A policy (`ketal.operators.order.policy`) decides which event is released
next: `eager` an event that is ready, `total` in canonical order, `frontier` by time. A finite
log is known whole and needs no queue: it is released as `canonical` of
`ketal.model.events.happened_before` sorts it, and `ketal.operators.order.missing` finds its holes.

A dot that is *missing*, neither settled nor received, is given up by
`ketal.operators.order.waits`, or by a queue that is full.

Events go in as they arrive, distinct and under the names of their incarnations
(`ketal.operators.membership.members`). Time is an argument: event times and watermarks.
`docs/ordering.md` explains each policy and option.

The one rule: every event that goes in comes out once, as released, late or refused, or is
held back and listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, Final

from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.event_time import microseconds
from ketal.operators.membership.clock_memory import SeenDots
from ketal.operators.membership.clock_restoration import Restorer
from ketal.operators.order.eager import Eager
from ketal.operators.order.frontier import Frontier
from ketal.operators.order.held_events import HeldEvents
from ketal.operators.order.live_nodes import LiveNodes
from ketal.operators.order.node_progress import Held
from ketal.operators.order.policy import ReleasePolicy
from ketal.operators.order.release_options import Policy, ReleaseOptions
from ketal.operators.order.step import ReleaseStep, StreamTime
from ketal.operators.order.total import Total
from ketal.operators.order.waits import Waits
from ketal.operators.topology.domain_order import DomainPast

_POLICIES: Final[dict[Policy, type[ReleasePolicy]]] = {
    "eager": Eager,
    "total": Total,
    "frontier": Frontier,
}


class HoldBackQueue:
    """A hold-back queue for a stream.

    Under a topology, `domains` is the part of its past that an event waits for.
    """

    def __init__(self, options: ReleaseOptions, domains: DomainPast | None = None) -> None:
        self.options = options
        self._domains = domains
        self._time = time = StreamTime(by_watermark=options.by_watermark)
        self._store = store = HeldEvents(domains)
        self._live = live = LiveNodes(options.nodes, time, options.idle_us)
        self._policy = policy = _POLICIES[options.policy](options, store, time, live)
        self._waits = Waits(policy, domains)
        self.expires = options.expires  # whether time alone may release events
        # If it matters since when dots are missing, the needs of an event are recorded when it is
        # held.
        self._passed_held_max = 0 if options.dates_missing else options.held_back_max
        self._may_pass_on = domains is None and options.idle_us is None

    def begin(self, seen: SeenDots) -> None:
        """Count events that were seen before this queue was made as released."""
        for node, (upto, beyond) in seen.items():
            self._store.node(node).begin(upto, beyond)
            self._live.activate(node)

    def restore_clocks(self, restorer: Restorer) -> None:
        """Restore the clocks of released events from now on, as a node has left."""
        self._store.restorer = restorer

    # --- events, time, membership and the end ---

    def take(self, events: Sequence[Event]) -> Iterator[ReleaseStep]:
        """Take in events in turn, whose dots must not have been taken in before; yield the results.

        Each is the result of one event, or of several that only released events, and is yielded
        before the next event is taken in.
        """
        step, arriving, taken = ReleaseStep(), iter(events), 0
        while True:
            before = len(step.ends)
            event = self._pass_on(arriving, step)
            if passed := len(step.ends) - before:
                self._time.pass_over(events[taken : taken + passed])
            if event is None:
                break
            taken += passed + 1
            self._push(event, step)
            step.ends.append(len(step.released))
            if not step.only_releases:
                if len(step.ends) > 1:
                    yield step.cut_first()
                yield step
                step = ReleaseStep()
        if step.ends:
            yield step

    def push(self, event: Event) -> ReleaseStep:
        """Take in one event."""
        return next(self.take((event,)))

    def _pass_on(self, arriving: Iterator[Event], step: ReleaseStep) -> Event | None:
        """Take in events that no option or departed node concerns; return the first other."""
        restoring, ended = self._store.restorer is not None, self._policy.ended
        waiting = self._live.departed or self._waits.missing_since
        if not self._may_pass_on or restoring or ended or waiting:
            return next(arriving, None)
        return self._policy.pass_on(arriving, step, self._passed_held_max)

    def _push(self, event: Event, step: ReleaseStep) -> None:
        time_us = microseconds(event.time)
        if time_us is not None:
            self._time.tick(time_us)
        waits, policy, settled = self._waits, self._policy, self._store.settled
        step.limit = waits.widen(event)
        progress = waits.activate(event.node)
        counter = event.clock[event.node]
        if policy.ended or counter <= settled[event.node] or counter <= progress.declared:
            self._mark_late(event, step)
        else:
            # A late event's clock may be the only one that names a missing dot.
            if self._live.departed and policy.awaits_dots:
                waits.give_up_departed(event, step)
            if policy.key_has_passed(event):
                self._mark_late(event, step)
                waits.pass_over(event)
                waits.record(event)
                self._release_ready(step)
            elif not policy.admit(event):
                step.refused.append(event)
            elif policy.awaits_dots:
                if counter in progress.held:
                    waits.record(event)
                self._release_ready(step)
        if self.expires:
            self._expire(step)
        while self._store.count > self.options.held_back_max:  # only where it `gives_up`
            step.given_up += 1
            self._give_up(step)
            self._release_ready(step)

    def advance(self, watermark_us: int) -> ReleaseStep:
        """Advance to a watermark: no earlier event is expected."""
        self._time.advance(watermark_us)
        step = ReleaseStep()
        self._expire(step)
        return step

    def join(self, node: str) -> ReleaseStep:
        """Mark a node as live, whether an event of it has arrived or not."""
        self._live.departed.pop(node, None)
        self._waits.activate(node)
        return ReleaseStep()

    def leave(self, node: str) -> ReleaseStep:
        """Mark a node as gone: nothing waits for it any more."""
        return self._leave_all([node])

    def view(self, members: Iterable[str]) -> ReleaseStep:
        """Apply a membership view: all other nodes have left."""
        present = dict.fromkeys(members)
        for node in present:
            self.join(node)
        self._waits.record_held()  # their clocks may name nodes that are named nowhere else
        active, departed = self._live.active, self._live.departed
        silent = compress(departed, departed.values())  # would be live again once active
        here = {*(self._store.nodes.keys() - departed.keys()), *active, *silent}
        return self._leave_all(sorted(here - present.keys()))

    def _leave_all(self, nodes: Iterable[str]) -> ReleaseStep:
        step = ReleaseStep()
        for node in nodes:
            self._waits.leave(node, step, returns=False)
        self._release_ready(step)
        return step

    def end(self) -> ReleaseStep:
        """End the stream: no node is waited for, every `gap` has passed, new arrivals are late."""
        self._policy.ended = True
        step = ReleaseStep()
        while self.options.declares_lost and (rows := self._waits.missing_since.remove_all()):
            for node, upto in rows:
                self._waits.declare_lost(node, upto, step)
            self._release_ready(step)
        self._release_ready(step)
        return step

    # --- releasing ---

    def _expire(self, step: ReleaseStep) -> None:
        """Give up dots and nodes that were waited for too long; release events that may go then."""
        if self._waits.expire(step) or not self._policy.awaits_dots:
            self._release_ready(step)

    def _mark_late(self, event: Event, step: ReleaseStep) -> None:
        step.late.append(event)
        # It may be in the past of the first event in the order, whose clock it then raises.
        self._policy.invalidate()

    def _release_ready(self, step: ReleaseStep) -> None:
        """Release all events that can be released, and record what the others wait for."""
        policy = self._policy
        while True:
            while (held := policy.next()) is not None:
                event = held.event
                if self._store.restorer is not None and policy.key_has_passed(event):
                    self._store.remove(event)
                    self._mark_late(event, step)
                    self._waits.pass_over(event)
                else:
                    self._release(event, step)
            if self._domains is None or not self._waits.record_widened(step):
                return

    def _release(self, event: Event, step: ReleaseStep) -> None:
        store = self._store
        store.remove(event)
        released = event if store.restorer is None else store.restorer.restore(event)
        if released is not event:
            step.raised.append(event.dot)
        step.released.append(released)
        if self._policy.awaits_dots:
            self._waits.settle(store.nodes[event.node], event.clock[event.node])
            return
        # Events of its past that have not arrived are late from now on.
        settled = store.settled
        for node, counter in released.clock.items():
            if settled[node] < counter:
                store.node(node).settle(counter)

    def _give_up(self, step: ReleaseStep) -> None:
        """End one wait of a queue that is too full: declare dots lost, or release an event."""
        given_up = self._policy.give_up(self._waits.missing_since)
        if isinstance(given_up, Held):
            self._release(given_up.event, step)
            return
        for node, upto in given_up:
            self._waits.declare_lost(node, upto, step)

    # --- queries and state ---

    def __len__(self) -> int:
        return self._store.count

    def __contains__(self, dot: Dot) -> bool:
        """Return whether the event of a dot is held."""
        return self._store.holds(dot.node, dot.counter)

    def held_by_node(self) -> Iterator[tuple[str, int, int]]:
        """Yield each node of held events, its last settled counter, and how many are held."""
        for node, progress in self._store.nodes.items():
            if progress.held:
                yield node, self._store.settled[node], len(progress.held)

    def held_back(self) -> list[tuple[Event, Dot | None]]:
        """Return the held events in order of arrival, each with a missing dot that it waits for.

        The dot is None if none is missing: the event waits for its turn.
        """
        events = [held.event for held in self._store.by_arrival()]
        if not self._policy.awaits_dots:
            return [(event, None) for event in events]
        found: dict[Dot, Dot | None] = {}
        return [(event, self._store.waits_for(event, found)) for event in events]

    def missing(self) -> list[Dot]:
        """Return the dots that hold events back, up to `lost_max`; of a long hole its ends."""
        return self._waits.missing()

    def drop_held(self) -> list[Event]:
        """Remove and return the held events, in order of arrival."""
        events = [held.event for held in self._store.by_arrival()]
        for event in events:
            self._store.remove(event)
        self._policy.begin()
        return events

    def save(self, number: Callable[[Event], int]) -> dict[str, Any]:
        """Return the state as plain data; `number` gives an event's number in a table."""
        self._waits.record_held()
        return {
            "time": self._time.save(),
            "domains": None if self._domains is None else self._domains.save(),
            "nodes": {node: progress.save() for node, progress in self._store.nodes.items()},
            "waits": self._waits.save(),
            "ended": self._policy.ended,
            "options": self.options.written(),
            "policy": self._policy.save(number),
        }

    def load(self, state: dict[str, Any], events: Sequence[Event]) -> None:
        """Load what a queue with the same policy and topology saved into a fresh one.

        `events` are the events by the numbers in the state. If the options have changed, waits are
        counted from now.
        """
        self._time.load(state["time"])
        if self._domains is not None:
            self._domains.load(state["domains"])
        for node, row in state["nodes"].items():
            self._store.node(node).load(row)
        self._waits.load(state["waits"])
        self._policy.ended = state["ended"]
        self._policy.load(state["policy"], events)
        if state["options"] != self.options.written():
            self._waits.restart()
