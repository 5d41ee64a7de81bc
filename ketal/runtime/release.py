"""The interface of a release, which decides when an execution's runs are offered new events.

`ketal.runtime.stream_release` releases the events of a stream, `ketal.runtime.log_release` those
of a finite log.

The one rule: a method with a body here is right for a release in which no event waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Protocol

from ketal.engine.pattern_run import PatternRun
from ketal.model.events.control import Control
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.summaries import Tally
from ketal.model.verdicts.execution_verdicts import Late
from ketal.model.verdicts.verdict_kinds import Numbered, Verdict
from ketal.operators.order.hold_back import HoldBackQueue
from ketal.runtime.admission.identification import Admission


class Release(Protocol):
    """Decides when the runs of an execution are offered new events."""

    holds_all: ClassVar[bool] = False  # whether all events are in memory until the end
    has_offered: bool = True  # whether runs were offered the events that are counted as accepted
    window_us: int
    """The shortest time after an event's own at which the event can make something due."""

    def __init__(
        self, runs: Sequence[PatternRun], admission: Admission, limits: Limits, name: str
    ) -> None: ...

    @property
    def takes_batches(self) -> bool:
        """Whether several events may be identified before the first of them is offered."""

    @property
    def due_us(self) -> float:
        """The lowest watermark at which something is due."""

    def offer(self, events: Sequence[Event]) -> list[Numbered]:
        """Take new events, of which none is late or shows that a node has left.

        Return the index of each event that has verdicts, and its verdicts: those of `take` for each
        event in turn.
        """

    def take(
        self, event: Event, late: Late | None, excluding: Sequence[PatternRun]
    ) -> list[Verdict]:
        """Take a new event, its clock as it arrived.

        An event with a verdict `late` is not offered to any run. The closed topologies of the
        runs `excluding` lack the node of the event.
        """

    def take_redelivered(self, event: Event) -> list[Verdict] | None:
        """Process a redelivered event; return None if no queue had refused it."""
        return None

    def restore_clocks(self, event: Event | None = None, *, saved: bool = False) -> None:
        """Restore the clocks of events from now on, if a membership has begun.

        `event` is admitted and not offered yet. The dots that were offered are `saved` if they are
        loaded from a saved state.
        """
        return

    def control(self, control: Control) -> list[Verdict]:
        """Apply a `join`, `leave` or `view` whose nodes are named by incarnation."""
        return []

    def advance(self, watermark_us: int) -> list[Verdict]:
        """Advance to a watermark that is higher than the last."""

    def end(self) -> list[Verdict]:
        """Process the end of the execution: no event comes after it."""
        return []

    def remaining(self) -> Iterator[Verdict]:
        """Yield the verdicts that are found after the end."""
        return iter(())

    def held_back(self, *, for_ever: bool = False) -> list[tuple[Event, Dot | None]]:
        """Return each held-back event and one dot it waits for, None if it waits for its turn.

        With `for_ever`, return only the events that no `gap` will release.
        """
        return []

    def fullest_queue(self) -> HoldBackQueue | None:
        """Return the hold-back queue with the most events; None if there is no queue."""
        return None

    def tally(self, counted: Tally) -> Tally:
        """Return the outcomes of the records now, given those when they were read."""
        return counted

    def counts(self) -> dict[str, int]:
        """Return how many dots are lost and missing, and the rarer counts that are not zero."""
