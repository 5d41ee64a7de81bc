"""`CausalOrder`: an event is released as soon as it is causally ready; ties by arrival.

Each waiting event is indexed by one dot that is not settled, so an arrival costs
work only for what it releases.

Clocks that know each other in a circle are no execution: such events wait for
each other, until the end or until a full queue gives them up.

The one rule: what is held waits for something that is missing, or in a circle.
"""

from __future__ import annotations

import heapq

from ketal.model.event import Event
from ketal.operators.order.missing import MissingSince
from ketal.operators.order.node_progress import Held
from ketal.operators.order.policy import GivenUp, ReleasePolicy


class Eager(ReleasePolicy):
    """Releases an event as soon as it is causally ready; ties by arrival."""

    _ready: list[Held]

    def begin(self) -> None:
        """Begin with nothing."""
        self._ready = []

    def admit(self, event: Event) -> bool:
        """Release an event next, hold it, or refuse it; return whether there was room."""
        store = self.store
        if store.unsettled(event) is None:
            heapq.heappush(self._ready, store.arrival(event))
            return True
        if store.count >= self.options.held_back_max and not self.options.gives_up:
            return False
        store.await_settled(store.hold(store.arrival(event)))
        return True

    def next(self) -> Held | None:
        """Return the next event to release; None where all that is held has to wait."""
        return heapq.heappop(self._ready) if self._ready else None

    def wake(self, held: Held) -> None:
        """Look again at a held event that waited for a dot which is settled now."""
        if not self.store.await_settled(held):
            heapq.heappush(self._ready, held)

    def give_up(self, missing: MissingSince) -> GivenUp:
        """Return the hole that was missed first; one of a circle where nothing is missing."""
        nodes = self.store.nodes
        hole = missing.oldest(self.store.lacks)
        if hole is not None:
            return [hole]
        # What is held for nothing missing has a clock that is in a circle, or behind one.
        progress = nodes[self.store.by_arrival()[0].event.node]
        return progress.held[min(progress.held)]

    def restore_held(self, held: Held) -> None:
        """Hold an event of a saved state."""
        self.store.await_settled(self.store.hold(held))
