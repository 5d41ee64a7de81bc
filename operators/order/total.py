"""`CausalOrder(total)`: the canonical order, once every live node was heard past it.

The waiting events stand in canonical order, and the first is released when it is
ready and no live node can still send anything that comes before it: the next
unseen event of a node has a larger clock than the last one received from it,
hence a larger sum.

Where a node has left, clocks shrink, and an event's place is that of its restored
clock, which is known when its past is released. Until then it stands where the
clock puts it that is known so far, which is never too late in the order. When it
gets to the front before its past is released it is *parked* until the dot is settled
that it waits for: what it waits for, or what that waits for, stands in the queue, and
comes before it and before all that its node sends later. So a parked event, and a node
whose last event is parked, bound nothing. Clocks that know each other in a circle are
no execution: such events stay parked.

The one rule: what is released is in canonical order; what would not be is late.
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
    """Releases in canonical order what every live node has been heard past."""

    def begin(self) -> None:
        """Begin with nothing."""
        self.store.size = self._size
        self._heap: list[CanonicalKey] = []
        self._skipped: list[CanonicalKey] = []  # out of the heap while the end releases the others
        self._last: CanonicalKey | None = None
        self._bound: CanonicalKey | None = None  # None: to be found again
        self._placed: CanonicalKey | None = None  # the first of the heap, if its place is known
        self._parked: set[tuple[str, int]] = set()

    def _size(self, event: Event) -> int:
        return sum(self._remembered(event).clock.values())

    # --- arrivals ---

    def passed(self, event: Event) -> bool:
        """Return whether the place of an event is before that of the last one released."""
        restorer = self.store.restorer
        if self._last is None or self._place(event) >= self._last:
            return False
        if restorer is None or self.store.unsettled(event) is None:
            return True
        # A clock that may yet be raised says when its past is released.
        return not restorer.low(restorer.remembered(event))

    def admit(self, event: Event) -> bool:
        """Hold an event, or refuse it; return whether there was room."""
        store = self.store
        progress = store.node(event.node)
        before = progress.placed, progress.clock_sum
        store.hold(store.arrival(event))
        key = self._place(event)
        if progress.placed != before[0] and self._bound and self._bound[1] == event.node:
            self._bound = None
        full = store.count > self.options.held_back_max and not self.options.gives_up
        # A queue that is full still takes what lets something go, or it would stay full.
        if full and not self._may_go(min([key, *self._heap[:1]])):
            store.remove(event)
            progress.placed, progress.clock_sum = before
            self._bound = None
            return False
        heapq.heappush(self._heap, key)
        return True

    def load_held(self, held: Held) -> None:
        """Hold an event of a saved state."""
        self.store.hold(held)
        heapq.heappush(self._heap, self._place(held.event))

    def wake(self, held: Held) -> None:
        """Put a parked event back into the order."""
        if not self._parked or held.event.dot not in self._parked:
            return
        self._parked.remove(held.event.dot)
        heapq.heappush(self._heap, self._place(held.event))
        self._bound = None

    def changed(self) -> None:
        """Drop what was computed from the live nodes and of the first event's clock."""
        self._bound = self._placed = None

    # --- what may be released ---

    def _may_go(self, key: CanonicalKey) -> bool:
        return self._heard_past(key) and self._is_ready(key)

    def _is_ready(self, key: CanonicalKey) -> bool:
        return self.store.unsettled(self._held(key).event) is None

    def _heard_past(self, key: CanonicalKey) -> bool:
        """Return whether no live node can still send what comes before `key`."""
        if self._bound is None:
            self._bound = min(filter(None, map(self._next_place, self.live.active)), default=None)
        return self._bound is None or key < self._bound

    def _next_place(self, node: str) -> CanonicalKey | None:
        """Return a place that the next unseen event of a node does not come before.

        None if that is behind what is parked, hence behind the first in the queue.
        """
        progress = self.store.nodes.get(node)
        if progress is None:
            return 1, node, 1
        if (node, progress.placed) in self._parked:
            return None
        return progress.clock_sum + 1, node, progress.placed + 1

    def next(self) -> Held | None:
        """Return the next event to release; None where all that is held has to wait.

        Where a restored clock shows that the place of an event has passed, that comes first.
        At the end every node is heard; what waits for something missing lets the others pass.
        """
        restorer = self.store.restorer
        while True:
            if restorer is not None and (overtaken := self._place_first(restorer)) is not None:
                return overtaken
            if not self._heap:
                break
            key = self._heap[0]
            known = restorer is None or key == self._placed
            if known and (self._is_ready(key) if self.ended else self._may_go(key)):
                return self._take_first()
            if not self.ended:
                return None
            self._skipped.append(heapq.heappop(self._heap))
        while self._skipped:
            heapq.heappush(self._heap, self._skipped.pop())
        return None

    def _take_first(self) -> Held:
        self._last = heapq.heappop(self._heap)
        self._placed = None
        return self._held(self._last)

    def give_up(self, missing: MissingSince) -> GivenUp:
        """Return what the first event in the order waits for: missing dots, or its turn."""
        if not self._heap:
            # All that is held is in a circle, or behind one.
            self.wake(min(self._held((0, *dot)) for dot in self._parked))
        event = self._held(self._heap[0]).event
        if self.store.missing_dot(event) is None:
            # It is ready, and waits for nodes that are silent: what these send may be late.
            return self._take_first()
        return sorted(self.store.needs(event))

    def least_sum(self, node: str, before: int) -> int | None:
        """Return what the clock of the event before a hole sums up to, at least."""
        progress = self.store.node(node)
        least = before
        if before >= progress.placed:
            least = max(least, progress.clock_sum + before - progress.placed)
        if (held := progress.held.get(before)) is not None:
            least = max(least, self._size(held.event))
        return least

    # --- places that are not known yet ---

    def _place_first(self, restorer: Restorer) -> Held | None:
        """Put events where they belong until one is first whose place is known.

        Returns
        -------
        Held or None
            An event that is out of the order, as its place has passed.
        """
        while self._heap and self._heap[0] != self._placed:
            key = self._heap[0]
            held = self._held(key)
            event = held.event
            if self.store.unsettled(event) is not None:
                if self.store.missing_dot(event) is not None:
                    return None
                heapq.heappop(self._heap)
                self._park(held)
                continue
            place = canonical_key(restorer.restore(event))
            progress = self.store.node(event.node)
            if progress.placed == key[2] and place[0] > progress.clock_sum:
                progress.clock_sum, self._bound = place[0], None
            if place > key:
                heapq.heapreplace(self._heap, place)
            elif self._last is not None and place < self._last:
                heapq.heappop(self._heap)
                return held
            else:
                self._placed = key
        return None

    def _park(self, held: Held) -> None:
        """Have an event that is out of the heap wait for a dot in its past to be settled."""
        self._parked.add(held.event.dot)
        self.store.await_settled(held)
        self._bound = None

    # --- state ---

    def save(self, number: Callable[[Event], int]) -> dict[str, Any]:
        """Return the state as plain data; `number` gives an event's number in a table."""
        raised = [
            key
            for key in self._heap
            # Where a held event stands is known again from its clock, but for these.
            if self.store.restorer is not None and key[0] != self._size(self._held(key).event)
        ]
        places = {"last": self._last, "raised": sorted(raised), "parked": sorted(self._parked)}
        return {**super().save(number), **places}

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
