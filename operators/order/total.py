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

from ketal.model.event import Dot, Event, canonical_key
from ketal.operators.order.hold_back import Queue, Settings
from ketal.operators.order.node_progress import Held, Line
from ketal.operators.order.released import Out, StreamTime

Key = tuple[int, str, int]
"""A place in the canonical order: sum of the clock, node, counter."""


def lowest_places(node: str, first: int, last: int, least: int, lost_max: int) -> dict[Dot, Key]:
    """Return places that the lost dots of a hole which are named do not come before.

    Parameters
    ----------
    node : str
        Whose dots they are.
    first, last : int
        The counters of the hole.
    least : int
        What the clock of the event before the hole sums up to, at least.
    lost_max : int
        Of a hole of more dots the ends are named, and stand for all.
    """
    if last - first >= lost_max:
        return dict.fromkeys((Dot(node, first), Dot(node, last)), (least + 1, node, first))
    return {Dot(node, c): (least + 1 + c - first, node, c) for c in range(first, last + 1)}


class Total(Queue):
    """Releases in canonical order what every live node has been heard past."""

    def __init__(self, settings: Settings, time: StreamTime) -> None:
        super().__init__(settings, time)
        self._heap: list[Key] = []
        self._last: Key | None = None
        self._bound: Key | None = None  # None: to be found again
        self._placed: Key | None = None  # the first of the heap, if its place is known
        self._parked: set[tuple[str, int]] = set()
        self.lows: dict[Dot, Key] = {}  # of what was declared lost in this step

    def _size(self, event: Event) -> int:
        whole = event if self.restorer is None else self.restorer.remembered(event)
        return sum(whole.clock.values())

    def _key(self, event: Event) -> Key:
        """Return an event's place, as far as it is known."""
        if self.restorer is None:
            return canonical_key(event)
        return canonical_key(self.restorer.remembered(event))

    def _passed(self, event: Event) -> bool:
        if self._last is None or self._key(event) >= self._last:
            return False
        if self.restorer is None or self._unsettled(event) is None:
            return True
        # A clock that may yet be raised says when its past is released.
        return not self.restorer.low(self.restorer.remembered(event))

    def _admit(self, line: Line, event: Event, out: Out) -> None:
        reach, heard, total = line.reach, line.heard, line.sum
        self._hold(line, event)
        key = self._key(event)
        if line.heard != heard and self._bound is not None and self._bound[1] == event.node:
            self._bound = None
        if self.count > self.settings.held_back_max and not self.settings.lose:
            # A queue that is full still takes what lets something go, or it would stay full.
            first = min(key, self._heap[0]) if self._heap else key
            if not self._may_go(first):
                del line.held[event.clock[event.node]]
                self.count -= 1
                line.reach, line.heard, line.sum, self._bound = reach, heard, total, None
                out.refused.append(event)
                return
        heapq.heappush(self._heap, key)
        self._refer(event)

    def _late(self, event: Event, out: Out) -> None:
        super()._late(event, out)
        # It may be in the past of the first, whose clock it then raises.
        self._placed = None

    def _rehold(self, line: Line, event: Event) -> None:
        self._hold(line, event)
        heapq.heappush(self._heap, self._key(event))

    def _event(self, key: Key) -> Event:
        return self._lines[key[1]].held[key[2]].event

    def _may_go(self, key: Key) -> bool:
        return self._heard_past(key) and self._unsettled(self._event(key)) is None

    def _heard_past(self, key: Key) -> bool:
        """Return whether no live node can still send what comes before `key`."""
        if self._bound is None:
            self._bound = min(filter(None, map(self._next, self._live)), default=None)
        return self._bound is None or key < self._bound

    def _next(self, node: str) -> Key | None:
        """Return a place that the next unseen event of a node does not come before.

        None if that is behind what is parked, hence behind the first in the queue.
        """
        line = self._lines.get(node)
        if line is None:
            return 1, node, 1
        return None if (node, line.heard) in self._parked else (line.sum + 1, node, line.heard + 1)

    def _regrouped(self) -> None:
        self._bound = None

    def _declared(self, node: str, first: int, last: int) -> None:
        line, before = self._lines[node], first - 1
        least = before
        if before >= line.heard:
            least = max(least, line.sum + before - line.heard)
        if (held := line.held.get(before)) is not None:
            least = max(least, self._size(held.event))
        self.lows |= lowest_places(node, first, last, least, self.settings.lost_max)

    # --- places that are not known yet ---

    def _place_first(self, out: Out) -> None:
        """Put events where they belong until one is first whose place is known."""
        while self._heap and self._heap[0] != self._placed:
            key = self._heap[0]
            event = self._event(key)
            if self._unsettled(event) is not None:
                if self._missing(event) is not None:
                    return
                heapq.heappop(self._heap)
                self._park(event)
                continue
            assert self.restorer is not None
            place = canonical_key(self.restorer.restore(event))
            line = self._lines[event.node]
            if line.heard == key[2] and place[0] > line.sum:
                line.sum, self._bound = place[0], None
            if place > key:
                heapq.heapreplace(self._heap, place)
            elif self._last is not None and place < self._last:
                heapq.heappop(self._heap)
                del line.held[key[2]]
                self.count -= 1
                self._late(event, out)
                self._pass_by(line, event)
            else:
                self._placed = key

    def _park(self, event: Event) -> None:
        """Have an event that is out of the heap wait for a dot in its past to be settled."""
        unsettled = self._unsettled(event)
        assert unsettled is not None
        line = self._lines[event.node]
        self._parked.add(event.dot)
        self._wait(unsettled, line.held[event.counter])
        self._bound = None

    def _awake(self, held: Held) -> None:
        self._parked.discard(held.event.dot)
        heapq.heappush(self._heap, self._key(held.event))
        self._bound = None

    # --- releasing ---

    def _drain(self, out: Out) -> None:
        if self.restorer is not None:
            self._drain_shrunk(out)
        elif self._ended:
            # Every node is heard; what waits for something missing lets the others pass.
            heap, self._heap = sorted(self._heap), []
            for key in heap:
                if self._unsettled(self._event(key)) is None:
                    self._go(key, out)
                else:
                    self._heap.append(key)
        else:
            while self._heap and self._may_go(self._heap[0]):
                self._go(heapq.heappop(self._heap), out)

    def _drain_shrunk(self, out: Out) -> None:
        """Release what can go where clocks have shrunk."""
        waiting: list[Key] = []
        while True:
            self._place_first(out)
            if not self._heap:
                break
            key = self._heap[0]
            ready = key == self._placed and self._unsettled(self._event(key)) is None
            if ready and (self._ended or self._heard_past(key)):
                self._go(heapq.heappop(self._heap), out)
            elif self._ended:
                waiting.append(heapq.heappop(self._heap))
            else:
                break
        for key in waiting:
            heapq.heappush(self._heap, key)

    def _go(self, key: Key, out: Out) -> None:
        self._last = key
        self._placed = None
        self._release(self._event(key), out)

    def _relieve(self, out: Out) -> None:
        if not self._heap:
            # All that is held is in a circle, or behind one.
            self._awake(min(self._lines[n].held[c] for n, c in self._parked))
        event = self._event(self._heap[0])
        if self._missing(event) is None:
            # It is ready, and waits for nodes that are silent: what these send may be late.
            self._go(heapq.heappop(self._heap), out)
            return
        for node, needed in sorted(self._needs(event)):
            self._declare(node, needed, out)

    def state(self, number: Callable[[Event], int]) -> dict[str, Any]:
        """Return the state as plain data."""
        last = None if self._last is None else [str(self._last[0]), *self._last[1:]]
        raised = [
            [str(key[0]), *key[1:]]
            for key in self._heap
            # Where a held event stands is known again from its clock, but for these.
            if self.restorer is not None and key[0] != self._size(self._event(key))
        ]
        parked = sorted(map(list, self._parked))
        return {**super().state(number), "last": last, "raised": sorted(raised), "parked": parked}

    def restore(self, state: dict[str, Any], events: Sequence[Event]) -> None:
        """Take on a state that `state` gave."""
        super().restore(state, events)
        if state["last"] is not None:
            total, node, counter = state["last"]
            self._last = (int(total), node, counter)
        raised = {(node, counter): int(total) for total, node, counter in state["raised"]}
        parked = {(node, counter) for node, counter in state["parked"]}
        self._heap = [
            (raised.get(key[1:], key[0]), *key[1:]) for key in self._heap if key[1:] not in parked
        ]
        heapq.heapify(self._heap)
        for node, counter in sorted(parked):
            self._park(self._lines[node].held[counter].event)
