"""`CausalOrder`: an event is released as soon as it is causally ready; ties by arrival.

Each waiting event is indexed by one dot that is not settled, so an arrival costs work
only for the events that it releases. Most events need no index: one whose past is settled when
it arrives, and for which no event waits, costs one pass over its clock and two numbers.

Events that have each other in their pasts, in a circle, form no execution: they wait for
each other, until the end or until a full queue gives them up.

The one rule: a held event waits for a missing dot, or is in such a circle or after one.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from ketal.model.events.event import Event
from ketal.operators.order.missing import MissingSince
from ketal.operators.order.node_progress import Held
from ketal.operators.order.policy import GivenUp, ReleasePolicy
from ketal.operators.order.step import ReleaseStep


class Eager(ReleasePolicy):
    """Releases an event as soon as it is causally ready; ties by arrival."""

    _ready: list[Held]

    def begin(self) -> None:
        """Reset to holding no events."""
        self._ready = []

    def pass_on(
        self, events: Iterator[Event], step: ReleaseStep, held_back_max: int
    ) -> Event | None:
        """Take in events, up to one that is late, of a node that is not live, or has no room."""
        # Attributes are looked up once and calls written out, as this runs for every event.
        store, active = self.store, self.live.active
        nodes, settled, arrivals = store.nodes, store.settled, store.arrivals
        released, ends = step.released, step.ends
        count = store.count
        for event in events:
            node, clock = event.node, event.clock
            progress = nodes.get(node)
            if progress is None or node not in active:
                break
            counter, before = clock[node], settled[node]
            awaited = None
            if counter == before + 1:
                for other, known in clock.items():
                    if settled[other] < known and other != node:
                        awaited = other
                        break
                else:
                    released.append(event)
                    if progress.held or progress.waiters or progress.given_up:
                        count -= self._follow(progress.settle(counter), released)
                    else:
                        settled[node] = counter
                    ends.append(len(released))
                    continue
            elif counter <= before or counter <= progress.declared:
                break
            if count >= held_back_max:
                break
            held = progress.held[counter] = Held(next(arrivals), event)
            if awaited is not None:
                store.node(awaited).waiters.setdefault(known, []).append(held)
            count += 1
            ends.append(len(released))
        else:
            event = None
        store.unrecorded = store.unrecorded or count > 0
        store.count = count
        return event

    def _follow(self, woken: list[Held], released: list[Event]) -> int:
        """Release the held events that waited for dots now settled, and so on; return how many."""
        store, ready = self.store, self._ready
        nodes, settled = store.nodes, store.settled
        before = len(released)
        while True:
            for held in woken:
                node = held.node
                for other, known in held.clock.items():
                    if settled[other] < known and other != node:
                        store.node(other).waiters.setdefault(known, []).append(held)
                        break
                else:
                    heappush(ready, held)
            if not ready:
                return len(released) - before
            held = heappop(ready)
            progress, counter = nodes[held.node], held.clock[held.node]
            del progress.held[counter]
            if not progress.held:
                progress.held = {}  # a dict that was large does not shrink
            released.append(held.event)
            woken = progress.settle(counter)

    def admit(self, event: Event) -> bool:
        """Mark an event as ready, hold it, or refuse it; return whether there was room."""
        store = self.store
        if store.unsettled(event) is None:
            heappush(self._ready, store.new_arrival(event))
            return True
        if store.count >= self.options.held_back_max and not self.options.gives_up:
            return False
        store.await_settled(store.hold(store.new_arrival(event)))
        return True

    def next(self) -> Held | None:
        """Return the next event to release; None where all that is held has to wait."""
        return heappop(self._ready) if self._ready else None

    def wake(self, held: Held) -> None:
        """Check a held event again, as the dot that it waited for is settled now."""
        if not self.store.await_settled(held):
            heappush(self._ready, held)

    def give_up(self, missing: MissingSince) -> GivenUp:
        """Return the hole that is missing longest; if none is, an event of a circle."""
        hole = missing.oldest()
        if hole is not None:
            return [hole]
        # A held event that waits for no missing dot is in a circle, or after one.
        held = self.store.nodes[self.store.by_arrival()[0].node].held
        return held[min(held)]

    def load_held(self, held: Held) -> None:
        """Hold an event of a saved state."""
        self.store.await_settled(self.store.hold(held))
