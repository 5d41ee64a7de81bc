"""`CausalOrder(total)`: the canonical order, once no live node can send an earlier event.

The waiting events are sorted in canonical order, and the first is released when it is
ready and no live node can still send an event that comes before it: the next
unseen event of a node has a larger clock than the last one received from it,
hence a larger sum.

Where a node has left, clocks shrink, and an event's place is that of its restored
clock, which is known when its past is released. Until then it is sorted by the clock
that is known so far, which is never too late in the order. If it gets to the front before its
past is released, it is *parked* until the dot that it waits for is settled: the event of that
dot, or one that it depends on, is in the queue, and comes before the parked event and before all
that the parked event's node sends later. So a parked event, and a node whose last event is
parked, bound nothing. Events that have each other in their pasts form no execution: they stay
parked.

The one rule: events are released in canonical order; one that cannot be is late.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

from ketal.model.events.event import Event
from ketal.model.events.happened_before import CanonicalKey, canonical_key
from ketal.operators.membership.clock_restoration import Restorer
from ketal.operators.order.missing import MissingSince
from ketal.operators.order.node_progress import Held
from ketal.operators.order.policy import GivenUp, ReleasePolicy


class Total(ReleasePolicy):
    """Releases events in canonical order, once no live node can send an earlier one."""

    def begin(self) -> None:
        """Reset to holding no events."""
        self.store.sum_clock = self._sum_clock
        self._heap: list[CanonicalKey] = []
        self._skipped: list[CanonicalKey] = []  # skipped at the end, until put back into the heap
        self._last: CanonicalKey | None = None
        # A heap of lower bounds of the place of each live node's next unseen event, each at least
        # once; None: to be computed.
        self._unseen: list[CanonicalKey] | None = None
        # The heap's first and how many nodes had left, once its place is known.
        self._known_first: tuple[CanonicalKey, int] | None = None
        self._parked: set[tuple[str, int]] = set()

    def _sum_clock(self, event: Event) -> int:
        return sum(self._last_restored(event).clock.values())

    # --- arrivals ---

    def key_has_passed(self, event: Event) -> bool:
        """Return whether the place of an event is before that of the last one released."""
        restorer = self.store.restorer
        if self._last is None or self._key(event) >= self._last:
            return False
        if restorer is None or self.store.unsettled(event) is None:
            return True
        # If the clock may still be raised, the place is known once the past is released.
        return not restorer.may_be_low(restorer.last_restored(event))

    def admit(self, event: Event) -> bool:
        """Hold an event, or refuse it; return whether there was room."""
        store, restorer = self.store, self.store.restorer
        full = store.count >= self.options.held_back_max and not self.options.gives_up
        if full and restorer is not None:
            # The event's clock may show that a node left, and so move the first event.
            full = self._restore_front(restorer) is None
        progress = store.node(event.node)
        before = progress.summed, progress.clock_sum
        store.hold(store.new_arrival(event))
        key = self._key(event)
        # A full queue still takes an event that lets one be released, or it would stay full.
        if full and not self._is_releasable(min([key, *self._heap[:1]])):
            store.remove(event)
            progress.summed, progress.clock_sum = before
            self.await_node(event.node)
            return False
        heapq.heappush(self._heap, key)
        return True

    def load_held(self, held: Held) -> None:
        """Hold an event of a saved state."""
        self.store.hold(held)
        heapq.heappush(self._heap, self._key(held.event))

    def wake(self, held: Held) -> None:
        """Put a parked event back into the order."""
        if not self._parked or held.event.dot not in self._parked:
            return
        self._parked.remove(held.event.dot)
        heapq.heappush(self._heap, self._key(held.event))
        self.await_node(held.node)

    def await_node(self, node: str) -> None:
        """Bound the order by the next event of a live node, whatever it was known to be."""
        if self._unseen is not None:
            heapq.heappush(self._unseen, (1, node, 1))

    def invalidate(self) -> None:
        """Drop the value computed from the first event's clock."""
        self._known_first = None

    # --- releasing ---

    def _is_releasable(self, key: CanonicalKey) -> bool:
        return self._precedes_unseen(key) and self._is_ready(key)

    def _is_ready(self, key: CanonicalKey) -> bool:
        return self.store.unsettled(self._held(key).event) is None

    def _precedes_unseen(self, key: CanonicalKey) -> bool:
        """Return whether no live node can still send an event that comes before `key`."""
        unseen = self._unseen
        if unseen is None or len(unseen) > 2 * len(self.live.active):
            unseen = self._unseen = list(filter(None, map(self._next_key, self.live.active)))
            heapq.heapify(unseen)
        while unseen and unseen[0] <= key:
            next_key = self._next_key(unseen[0][1])
            if next_key == unseen[0]:
                return False
            # The node has sent more, has left, or its last event is parked.
            if next_key is None:
                heapq.heappop(unseen)
            else:
                heapq.heapreplace(unseen, next_key)
        return True

    def _next_key(self, node: str) -> CanonicalKey | None:
        """Return a lower bound of the place of a node's next unseen event.

        None if that event comes after a parked one, hence after the first in the queue, or if the
        node is not live.
        """
        if node not in self.live.active:
            return None
        progress = self.store.nodes.get(node)
        if progress is None:
            return 1, node, 1
        if (node, progress.summed) in self._parked:
            return None
        return progress.clock_sum + 1, node, progress.summed + 1

    def next(self) -> Held | None:
        """Return the next event to release; None where all that is held has to wait.

        An event whose restored clock shows that its place has passed is returned first. At the
        end no node sends any more, and events that wait for a missing dot are skipped.
        """
        restorer = self.store.restorer
        while True:
            if restorer is not None and (overtaken := self._restore_front(restorer)) is not None:
                heapq.heappop(self._heap)
                return overtaken
            if not self._heap:
                break
            key = self._heap[0]
            if self._is_ready(key) if self.ended else self._is_releasable(key):
                return self._take_first()
            if not self.ended:
                return None
            self._skipped.append(heapq.heappop(self._heap))
        while self._skipped:
            heapq.heappush(self._heap, self._skipped.pop())
        return None

    def _knows_first(self, restorer: Restorer) -> bool:
        """Return whether the heap's first is at the place of its restored clock."""
        return self._known_first == (self._heap[0], len(restorer.departed))

    def _take_first(self) -> Held:
        self._last = heapq.heappop(self._heap)
        return self._held(self._last)

    def give_up(self, missing: MissingSince) -> GivenUp:
        """Return the dots that the first event in the order waits for, or the event if none is."""
        if not self._heap:
            # All held events are in a circle, or after one.
            self.wake(min(self._held((0, *dot)) for dot in self._parked))
        event = self._held(self._heap[0]).event
        if self.store.missing_dot(event) is None:
            # It is ready, and waits for silent nodes; events that these send may then be late.
            return self._take_first()
        return sorted(self.store.needs(event))

    def least_sum(self, node: str, before: int) -> int | None:
        """Return a lower bound of the clock sum of the event before a hole."""
        progress = self.store.node(node)
        least = before
        if before >= progress.summed:
            least = max(least, progress.clock_sum + before - progress.summed)
        if (held := progress.held.get(before)) is not None:
            least = max(least, self._sum_clock(held.event))
        return least

    # --- places that are not known yet ---

    def _restore_front(self, restorer: Restorer) -> Held | None:
        """Move events to the places of their restored clocks, until the first one's is known.

        Return the first event if its place has passed; otherwise None.
        """
        while self._heap and not self._knows_first(restorer):
            key = self._heap[0]
            held = self._held(key)
            event = held.event
            if self.store.unsettled(event) is not None:
                if self.store.missing_dot(event) is not None:
                    return None
                heapq.heappop(self._heap)
                self._park(held)
                continue
            restored = canonical_key(restorer.restore(event))
            progress = self.store.node(event.node)
            progress.clock_sum = max(progress.clock_sum, restored[0])
            if restored > key:
                heapq.heapreplace(self._heap, restored)
            elif self._last is not None and restored < self._last:
                return held
            else:
                self._known_first = key, len(restorer.departed)
        return None

    def _park(self, held: Held) -> None:
        """Have an event that is out of the heap wait for a dot in its past to be settled."""
        self._parked.add(held.event.dot)
        self.store.await_settled(held)

    # --- state ---

    def save(self, number: Callable[[Event], int]) -> dict[str, Any]:
        """Return the state as plain data; `number` gives an event's number in a table."""
        raised = [
            key
            for key in self._heap
            # The places of all other held events follow from their clocks.
            if self.store.restorer is not None and key[0] != self._sum_clock(self._held(key).event)
        ]
        order = {"last": self._last, "raised": sorted(raised), "parked": sorted(self._parked)}
        # A clock that was restored may have been evicted since, so it is not restored again.
        return {**super().save(number), **order, "known_first": self._known_first}

    def load(self, state: dict[str, Any], events: Sequence[Event]) -> None:
        """Load what `save` returned, and hold its events."""
        super().load(state, events)
        last = state["last"]
        self._last = None if last is None else tuple(last)
        raised = {(node, counter): total for total, node, counter in state["raised"]}
        parked = {(node, counter) for node, counter in state["parked"]}
        self._heap = [
            (raised.get(key[1:], key[0]), *key[1:]) for key in self._heap if key[1:] not in parked
        ]
        heapq.heapify(self._heap)
        for dot in sorted(parked):
            self._park(self._held((0, *dot)))
        if (known := state.get("known_first")) is not None:  # earlier versions did not save it
            key, departed = known
            self._known_first = tuple(key), departed
