"""Clocks that shrink when a node leaves, and how they are restored.

The clocks of "Implementation of causal control operators to detect distributed
events" (section V.C) lose the entry of a node when it leaves. The lost entry follows from
other clocks. The **closure** of an event e of node m is the entry-wise
maximum of e's clock and of the closures of the events that e directly knows,
which are its predecessor on m and, for each entry Q: c of its clock, the event
Q@c. A **restored clock** is the clock with the closure's entries of the nodes
that left. An entry that is there but too low is raised as well: a node that has not
yet dropped X can receive a message from one that has, and then its own entry of X is old.

`Restorer` restores the clocks of events in their order of release, `restored_with_doubts` those
of a finite log.

Why a hold-back queue may read clocks that are not restored: let an event be
released when its predecessor and every Q@c of its clock have been. By induction
over the releases, the whole past of each of these has been released. The past
of e consists of these events and their pasts, as e can learn of events in no other way. So a
dropped entry makes no event ready too early, and restoring at release finds
every closure that it needs. A clock that is not restored names a part of that
past only, so it makes no event wait for more.

What no clock of the log contains cannot be restored: where a node receives a message of
a sender whose entry it has dropped, and its clock names no event that has that message in its
past, the two events are concurrent. A membership service with view synchrony
delivers a node's messages before the view without it, or never.

The one rule: an execution in which no entry was dropped is returned as it is.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical_key
from ketal.model.limits import DEFAULT, Limits
from ketal.operators.membership.clock_memory import Clock, ClockMemory, SeenDots
from ketal.operators.stateful import Stateful


class Restorer(Stateful):
    """Restores the clocks of events, which are passed in their order of release.

    `memory` has the clocks of the last events, and the closures of those released; a restored clock
    has at most `entries_max` entries. `departed` are the nodes that left; the set is shared, and
    only `mark_departed` adds to it. A node counts as departed, too, once another node drops its
    entry: between two events of one node, neighbours by counter, an entry disappears for no other
    reason, and the `leave` may arrive later than the clocks that lack the entry. This is detected
    as events arrive, so that names of incarnations, which depend on it, depend on no release.
    """

    STATE: ClassVar = "in_doubt", "highest", "_released", "_doubted", "_low", "_incomplete"

    def __init__(self, memory: ClockMemory, departed: set[str], entries_max: int) -> None:
        self.memory = memory
        self.departed = departed
        self.entries_max = entries_max
        self.in_doubt = 0
        """Events whose clock may still be too low: an event that they directly know was never
        released (lost, declared lost, or evicted), or there was no room for its entries; and events
        that were offered or released before their clock was raised."""
        self.highest: dict[str, int] = {}
        """The highest counter of each node whose clock was read; 0 for one that was only named."""
        self._departed_with_events = 0  # how many nodes that left have an event in `highest`
        self._released: dict[str, int] = {}
        self._doubted: dict[str, int] = {}
        # Released events that a leave puts in doubt: by node, how many have an entry for it that is
        # lower than their closure's; and how many were released with a part of the past missing.
        self._low: dict[str, int] = {}
        self._incomplete = 0
        # Whether entries of the last closure were left out for want of room.
        self._truncated = False

    def begin(self, highest: Mapping[str, int]) -> None:
        """Load the highest counter of each node, before any node left."""
        assert not self.departed
        self.highest = dict(highest)

    def load(self, state: Any) -> None:
        """Load what `save` returned into a fresh restorer."""
        super().load(state)
        self._departed_with_events = sum(self.highest.get(n, 0) > 0 for n in self.departed)

    def add_named(self, nodes: Iterable[str]) -> None:
        """Add nodes that a clock or a control event names to those that are remembered."""
        for node in nodes:
            self.highest.setdefault(node, 0)

    def mark_departed(self, names: Iterable[str]) -> None:
        """Restore the entries of nodes that left, from now on.

        Events that were released with an entry that is too low are doubtful, and so are events
        that were released before all of their past had arrived.
        """
        fresh = set(names) - self.departed
        if fresh:
            self.departed |= fresh
            self._departed_with_events += sum(self.highest.get(name, 0) > 0 for name in fresh)
            self.in_doubt += sum(self._low.pop(name, 0) for name in fresh) + self._incomplete
            self._incomplete = 0

    def mark_dropped(self, node: str, counter: int, clock: Clock) -> None:
        """Mark the nodes departed whose entries an event's node dropped before it or after it."""
        memory = self.memory
        below, above = memory.below(node, counter), memory.above(node, counter)
        if below is not None and not below.clock.keys() <= clock.keys():
            self.mark_departed(below.clock.keys() - clock.keys())
        if above is not None and not clock.keys() <= above.clock.keys():
            self.mark_departed(clock.keys() - above.clock.keys())

    def restore(self, event: Event) -> Event:
        """Return a released event with its clock restored; hold its closure for later events."""
        whole = self._close(event)
        out = self.last_restored(event)
        node, counter = event.node, event.clock[event.node]
        # Another queue may release it once more, when what restored its clock is evicted.
        first = counter > self._released.get(node, 0)
        if first:
            self._count_low(event, out)
        if not whole and self.may_be_low(out, event):
            self.count_doubtful(event)
        elif not whole:
            self._incomplete += first
        return out

    def restore_at_once(self, event: Event) -> Event:
        """Return an event as `restore_so_far`, and count it: it does not wait for its past.

        It is doubtful if its clock may be too low already, and becomes so if a node leaves.
        """
        out = self.restore_so_far(event)
        self._count_low(event, out)
        known = self.memory.find(event.node, event.clock[event.node])
        if known is None or not known.final:
            if self.may_be_low(out, event):
                self.count_doubtful(event)
            else:
                self._incomplete += 1
        return out

    def _count_low(self, event: Event, out: Event) -> None:
        """Count, by node, the entries of a released event that are too low if the node leaves."""
        node, counter = event.node, event.clock[event.node]
        self._released[node] = max(counter, self._released.get(node, 0))
        known = self.memory.find(node, counter)
        if known is not None and known.closure is not event.clock:
            for name, entry in known.past.items():
                if entry > out.clock.get(name, 0):
                    self._low[name] = self._low.get(name, 0) + 1

    def count_doubtful(self, event: Event) -> None:
        """Count an event whose clock may be too low, or was when it was offered."""
        node, counter = event.node, event.clock[event.node]
        if counter > self._doubted.get(node, 0):
            # Another queue may report it once more, and it may be doubtful already.
            self._doubted[node] = counter
            self.in_doubt += 1

    def restore_so_far(self, event: Event) -> Event:
        """Return an event with its clock restored from the arrivals so far; hold its closure.

        No entry is too high. Later arrivals may raise entries, until `restore`.
        """
        self._close(event)
        return self.last_restored(event)

    def last_restored(self, event: Event) -> Event:
        """Return an event as `restore` or `restore_so_far` returned it last.

        Entries of departed nodes are those of its closure, where that has higher ones.
        """
        clock, departed = event.clock, self.departed
        known = self.memory.find(event.node, clock[event.node])
        if known is None or known.closure is None or known.closure is clock:
            return event
        # In the order of the closure: that of a set depends on hashes.
        closure = known.closure.items()
        higher = {n: c for n, c in closure if n in departed and c > clock.get(n, 0)}
        return event if not higher else msgspec.structs.replace(event, clock={**clock, **higher})

    def may_be_low(self, event: Event, arrived: Event | None = None) -> bool:
        """Return whether a restored clock's entry of a node that left may be too low.

        A clock that `arrived` (by default the event itself) with an entry for the node was not
        shrunk. One without may lack it as long as its past has not all arrived: events of the node
        that left, and of those that have it in their pasts, may still be in flight.
        """
        clock, departed, last = event.clock, self.departed, self.highest
        # There may be many nodes that left: those that the clock lacks are counted, not visited.
        left = [n for n in clock if n in departed]
        if sum(last.get(n, 0) > 0 for n in left) < self._departed_with_events:
            return True
        if any(clock[n] < last.get(n, 0) for n in left if n != event.node):
            return True
        shrunk = clock if arrived is None else arrived.clock
        if sum(n in departed for n in shrunk) == len(departed):
            return False
        known = self.memory.find(event.node, clock[event.node])
        return known is None or not known.final

    def _close(self, event: Event) -> bool:
        """Compute and hold the closure of an event; return whether its direct causes are known."""
        node, clock = event.node, event.clock
        counter = clock[node]
        self._truncated = False
        known = self.memory.find(node, counter)
        if known is not None and known.final:
            return True
        if known is None:
            self.mark_dropped(node, counter, clock)  # it was evicted, and is held anew
        closure, whole, growing = self._closure(node, counter, clock)
        if self._truncated:
            self.count_doubtful(event)
        self.memory.close(node, counter, clock, closure, final=whole and not growing)
        last = self.highest.get(node, 0)
        if counter > last:
            self.highest[node] = counter
            self._departed_with_events += not last and node in self.departed
        return whole

    def _closure(self, node: str, counter: int, clock: Clock) -> tuple[Clock, bool, bool]:
        """Return a clock's closure, whether its direct causes are known, and if it may grow.

        Events that arrived before any node left have their whole clocks, and no closures.
        """
        memory = self.memory
        growing = False
        closure = clock
        below = memory.below(node, counter)
        whole = counter == 1 or (below is not None and below.counter == counter - 1)
        before: Clock = {}
        if below is not None:
            closure = self._join(closure, below.past, node)
            growing = below.closure is not None and not below.final
            if not growing:
                before = below.past
        # The predecessor's whole past is in its closure, so only entries that rose are looked up.
        for other, known in clock.items():
            if known > before.get(other, 0) and other != node:
                cause = memory.find(other, known)
                if cause is None:
                    whole = False
                    cause = memory.below(other, known)
                elif cause.closure is not None and not cause.final:
                    growing = True
                if cause is not None:
                    closure = self._join(closure, cause.past, node)
        return closure, whole, growing

    def _join(self, closure: Clock, other: Clock, node: str) -> Clock:
        higher = {n: c for n, c in other.items() if c > closure.get(n, 0) and n != node}
        if not higher:
            return closure
        room = self.entries_max - len(closure)
        if len(higher) > room and len(higher.keys() - closure.keys()) > room:
            # By name, so that what is dropped depends on no hash.
            fresh = sorted(higher.keys() - closure.keys())[max(0, room) :]
            for name in fresh:
                del higher[name]
            self._truncated = True
        return {**closure, **higher}


def possibly_low(memory: ClockMemory, seen: SeenDots) -> list[tuple[str, int, Clock]]:
    """Return the events held whose clock may have to be raised, in order of arrival.

    They are the events of whose past a part was not seen, the events whose clock is not at least
    that of an event that they directly know, and the events that have any of these in their
    pasts. The clocks of all others are whole.
    """
    upto = {node: upto for node, (upto, _) in seen.items()}
    first: dict[str, int] = {}
    for node, counter, clock in memory.items():
        whole = all(c <= upto.get(n, 0) for n, c in clock.items())
        if not whole or _is_shrunk(memory, node, counter, clock):
            first[node] = min(counter, first.get(node, counter))
    if not first:
        return []
    return [
        (node, counter, clock)
        for node, counter, clock in memory.items()
        if any(clock.get(n, 0) >= c for n, c in first.items())
    ]


def _is_shrunk(memory: ClockMemory, node: str, counter: int, clock: Clock) -> bool:
    """Return whether a clock is lower, in an entry, than that of an event it directly knows."""
    before = memory.find(node, counter - 1)
    learned = {n: c for n, c in clock.items() if before is None or c > before.clock.get(n, 0)}
    causes = [before, *(memory.find(n, c) for n, c in learned.items())]
    return any(
        clock.get(n, 0) < c for one in causes if one is not None for n, c in one.clock.items()
    )


def present_order(events: Iterable[Event]) -> list[Event]:
    """Return distinct events in an order that respects program order and the entries present.

    The canonical order of shrunk clocks does not: a clock that loses an entry
    has a smaller sum than its causes. Events with each other in their pasts
    form no execution; of these the least in canonical order goes first.
    """
    by_node: dict[str, list[Event]] = {}
    for event in events:
        by_node.setdefault(event.node, []).append(event)
    for remaining in by_node.values():
        # Descending, so that the next event is popped from the end.
        remaining.sort(key=lambda e: e.counter, reverse=True)
    waiting: dict[str, list[tuple[int, str]]] = {}
    out: list[Event] = []
    ready = sorted(by_node, reverse=True)
    while True:
        while ready:
            node = ready.pop()
            while by_node[node]:
                block = _blocking_entry(by_node, by_node[node][-1])
                if block is not None:
                    heapq.heappush(waiting.setdefault(block[0], []), (block[1], node))
                    break
                out.append(by_node[node].pop())
                queue = waiting.get(node)
                ahead = by_node[node][-1].counter if by_node[node] else None
                while queue and (ahead is None or queue[0][0] < ahead):
                    ready.append(heapq.heappop(queue)[1])
        heads = [remaining[-1] for remaining in by_node.values() if remaining]
        if not heads:
            return out
        first = min(heads, key=canonical_key)
        out.append(by_node[first.node].pop())
        waiting = {}
        ready = sorted((node for node, remaining in by_node.items() if remaining), reverse=True)


def _blocking_entry(by_node: dict[str, list[Event]], event: Event) -> tuple[str, int] | None:
    """Return an entry of the event's clock that names an event not yet in the order, if any."""
    for node, counter in event.clock.items():
        remaining = by_node.get(node)
        if remaining and node != event.node and remaining[-1].counter <= counter:
            return node, counter
    return None


def dropped_nodes(events: Sequence[Event]) -> set[str]:
    """Return the nodes whose entry some node dropped: it is in a clock, and not in a later one."""
    # Of each node: the lowest counter of its clocks with an entry, by entry; the highest of these.
    lowest_by_node: dict[str, dict[str, int]] = {}
    highest: dict[str, int] = {}
    for event in events:
        node, clock = event.node, event.clock
        own, lowest = clock[node], lowest_by_node.setdefault(node, {})
        if own < highest.get(node, 0) or not clock.keys() <= lowest.keys():
            for name in clock:
                lowest[name] = min(own, lowest.get(name, own))
            highest[node] = max(lowest.values())
    out: set[str] = set()
    for event in events:
        clock, lowest = event.clock, lowest_by_node[event.node]
        if len(clock) < len(lowest):
            own = clock[event.node]
            out.update([name for name in lowest.keys() - clock.keys() if lowest[name] < own])
    return out


def restored_with_doubts(
    events: Iterable[Event], left: Collection[str] = (), *, limits: Limits = DEFAULT
) -> tuple[list[Event], int]:
    """Return the events of a finite execution with their clocks restored, in the order given.

    The events are distinct. `left` has every node that some `ketal.leave`, `ketal.view` or later
    incarnation of the log shows to have left: `MembershipStage.departed`, after the log was read.
    Nodes whose entry was dropped without a control event count as having left, wherever in the log
    that was. `clock_entries_max` of the limits bounds a restored clock. Also returned is how many
    of the clocks may still be too low.
    """
    events = list(events)
    departed = {*left, *dropped_nodes(events)}
    if not departed:
        return events, 0
    restorer = Restorer(ClockMemory(len(events) + 1), departed, limits.clock_entries_max)
    for event in present_order(events):
        restorer.restore(event)
    return [restorer.last_restored(event) for event in events], restorer.in_doubt
