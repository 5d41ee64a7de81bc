"""What a policy of `CausalOrder` says to the one hold-back queue.

The queue keeps what is there, what is missing and which nodes are live. A policy says when
the place of an event has passed, whether a full queue has room for it, which event is
released next, and what a full queue gives up.

The one rule: a policy decides from what is held and from the time, and changes neither
but for the order of what is held.
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
"""An event to release before its turn, or nodes with a counter up to which nothing is awaited."""


class ReleasePolicy:
    """When events of a hold-back queue are released.

    Parameters
    ----------
    options : ReleaseOptions
    store : HeldEvents
        What is held.
    time : StreamTime
        Of the stream.
    live : LiveNodes
        The nodes that are live, as they are now.

    Attributes
    ----------
    ended : bool
        Whether the stream has ended: no node will send any more.
    """

    awaits_dots = True
    """Whether missing dots are waited for, and so may be lost, or only time."""

    def __init__(
        self,
        options: ReleaseOptions,
        store: HeldEvents,
        time: StreamTime,
        live: LiveNodes,
    ) -> None:
        self.options = options
        self.store = store
        self.time = time
        self.live = live
        self.ended = False
        self.begin()

    def begin(self) -> None:
        """Begin with nothing."""

    def passed(self, event: Event) -> bool:
        """Return whether the place of a new event has passed."""
        return False

    def admit(self, event: Event) -> bool:
        """Release an event next, hold it, or refuse it; return whether there was room."""
        raise NotImplementedError

    def pass_on(
        self, events: Iterator[Event], step: ReleaseStep, held_back_max: int
    ) -> Event | None:
        """Take in events, as long as nothing but their past and what is held says what comes of it.

        Parameters
        ----------
        events : iterator of Event
            As they arrive.
        step : ReleaseStep
            Added to: what they release.
        held_back_max : int
            None of them is held where so many are.

        Returns
        -------
        Event or None
            The first that was not taken in; None if all were.
        """
        return next(events, None)

    def next(self) -> Held | None:
        """Return the next event to release; None where all that is held has to wait."""
        raise NotImplementedError

    def wake(self, held: Held) -> None:
        """Look again at a held event that waited for a dot which is settled now."""

    def give_up(self, missing: MissingSince) -> GivenUp:
        """Return what a queue that is too full gives up."""
        raise NotImplementedError

    def changed(self) -> None:
        """Drop what was computed from the live nodes and of the first event's clock."""

    def least_sum(self, node: str, before: int) -> int | None:
        """Return what the clock of the event before a hole sums up to, at least.

        None where there is more than one order.
        """
        return None

    def save(self, number: Callable[[Event], int]) -> dict[str, Any]:
        """Return the state as plain data; `number` gives an event's number in a table."""
        return {"held": [number(held.event) for held in self.store.by_arrival()]}

    def load(self, state: dict[str, Any], events: Sequence[Event]) -> None:
        """Load what `save` returned, and hold its events."""
        for index in state["held"]:
            self.load_held(self.store.arrival(events[index]))

    def load_held(self, held: Held) -> None:
        """Hold an event of a saved state."""
        raise NotImplementedError

    # --- places ---

    def _held(self, key: CanonicalKey) -> Held:
        """Return the held event of a place."""
        return self.store.nodes[key[1]].held[key[2]]

    def _remembered(self, event: Event) -> Event:
        """Return an event with its clock as far as it is known."""
        restorer = self.store.restorer
        return event if restorer is None else restorer.remembered(event)

    def _place(self, event: Event) -> CanonicalKey:
        """Return an event's place in the canonical order, as far as its clock is known."""
        return canonical_key(self._remembered(event))
