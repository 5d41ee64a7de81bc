"""The interface of a policy of `CausalOrder` to the hold-back queue.

The queue has the held events, the missing dots and the live nodes. A policy decides when
the place of an event has passed, whether a full queue has room for it, which event is
released next, and which wait a full queue ends.

The one rule: a policy decides by the held events and the time; of these it changes only the
order of the held events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from ketal.model.events.event import Event
from ketal.model.events.happened_before import CanonicalKey, canonical_key
from ketal.operators.order.held_events import HeldEvents
from ketal.operators.order.live_nodes import LiveNodes
from ketal.operators.order.missing import MissingSince
from ketal.operators.order.node_progress import Held
from ketal.operators.order.release_options import ReleaseOptions
from ketal.operators.order.step import ReleaseStep, StreamTime

GivenUp: TypeAlias = Held | list[tuple[str, int]]
"""An event to release before its turn, or (node, counter) up to which missing dots are lost."""


class ReleasePolicy:
    """Decides when the events of a hold-back queue, which are in `store`, are released.

    `ended` is whether the stream has ended: no node will send any more.
    """

    awaits_dots = True
    """Whether events wait for missing dots, which so may be lost; otherwise only for time."""

    def __init__(
        self, options: ReleaseOptions, store: HeldEvents, time: StreamTime, live: LiveNodes
    ) -> None:
        self.options = options
        self.store = store
        self.time = time
        self.live = live
        self.ended = False
        self.begin()

    def begin(self) -> None:
        """Reset to holding no events."""

    def key_has_passed(self, event: Event) -> bool:
        """Return whether the place of a new event has passed."""
        return False

    def admit(self, event: Event) -> bool:
        """Mark an event as ready, hold it, or refuse it; return whether there was room."""
        raise NotImplementedError

    def pass_on(
        self, events: Iterator[Event], step: ReleaseStep, held_back_max: int
    ) -> Event | None:
        """Take in arriving events while only their pasts and the held events decide what happens.

        Released events are added to the step. No event is taken in beyond `held_back_max` held
        ones. Returned is the first event that was not taken in; None if all were.
        """
        return next(events, None)

    def next(self) -> Held | None:
        """Return the next event to release; None where all that is held has to wait."""
        raise NotImplementedError

    def wake(self, held: Held) -> None:
        """Check a held event again, as the dot that it waited for is settled now."""

    def give_up(self, missing: MissingSince) -> GivenUp:
        """Return the wait that an overfull queue ends: missing dots, or an event to release."""
        raise NotImplementedError

    def invalidate(self) -> None:
        """Drop the value computed from the first event's clock."""

    def await_node(self, node: str) -> None:
        """Take into account that a node is live that was not."""

    def least_sum(self, node: str, before: int) -> int | None:
        """Return a lower bound of the clock sum of the event before a hole.

        None where there is more than one order.
        """
        return None

    def save(self, number: Callable[[Event], int]) -> dict[str, Any]:
        """Return the state as plain data; `number` gives an event's number in a table."""
        return {"held": [number(held.event) for held in self.store.by_arrival()]}

    def load(self, state: dict[str, Any], events: Sequence[Event]) -> None:
        """Load what `save` returned, and hold its events."""
        for index in state["held"]:
            self.load_held(self.store.new_arrival(events[index]))

    def load_held(self, held: Held) -> None:
        """Hold an event of a saved state."""
        raise NotImplementedError

    # --- places in the canonical order ---

    def _held(self, key: CanonicalKey) -> Held:
        """Return the held event with a canonical key."""
        return self.store.nodes[key[1]].held[key[2]]

    def _last_restored(self, event: Event) -> Event:
        """Return an event with its clock restored as far as it is known."""
        restorer = self.store.restorer
        return event if restorer is None else restorer.last_restored(event)

    def _key(self, event: Event) -> CanonicalKey:
        """Return an event's canonical key, as far as its clock is known."""
        return canonical_key(self._last_restored(event))
