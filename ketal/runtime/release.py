"""What an execution asks of a release, which decides when the runs are offered what is new.

`ketal.runtime.stream_release` releases the events of a stream, `ketal.runtime.log_release` those
of a finite log.

The one rule: a method with a body here returns what is right where nothing waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Protocol

from ketal.engine.pattern_run import PatternRun
from ketal.model.events.control import Control
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.verdicts.execution_verdicts import Late
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.runtime.admission.deduplication import Tally
from ketal.runtime.admission.identification import Admission


class Release(Protocol):
    """When the runs of an execution are offered what is new.

    Attributes
    ----------
    holds_all : bool
        Whether all events are in memory until the end.
    has_offered : bool
        Whether the runs have been offered what is counted as accepted.
    window_us : int
        So long after an event something may be due because of it.
    """

    holds_all: ClassVar[bool] = False
    has_offered: bool = True
    window_us: int

    def __init__(
        self, runs: Sequence[PatternRun], admission: Admission, limits: Limits, name: str
    ) -> None: ...

    @property
    def takes_batches(self) -> bool:
        """Whether several events may be identified before one is offered."""

    @property
    def due_us(self) -> float:
        """The least watermark at which something is due."""

    def offer(self, events: Sequence[Event]) -> list[tuple[int, list[Verdict]]]:
        """Take new events, none of which is late or shows a node to have left.

        Returns
        -------
        list of (int, list of Verdict)
            The number of each event that has verdicts, and these.
        """

    def take(
        self, event: Event, late: Late | None, refusing: Sequence[PatternRun]
    ) -> list[Verdict]:
        """Take a new event as it arrived.

        If it has a verdict `late`, no run is offered it. The closed topologies of the runs
        `refusing` lack its node.
        """

    def retake(self, event: Event) -> list[Verdict] | None:
        """Process a duplicate; return None if nothing had refused the event."""
        return None

    def restore_clocks(self, event: Event | None = None, *, saved: bool = False) -> None:
        """Restore clocks from now on, if a membership has begun.

        Parameters
        ----------
        event : Event, optional
            One that was admitted and is not offered yet.
        saved : bool
            Whether a saved state says what was offered.
        """
        return

    def control(self, control: Control) -> list[Verdict]:
        """Apply a `join`, `leave` or `view`, which has the names of the incarnations."""
        return []

    def advance(self, watermark_us: int) -> list[Verdict]:
        """Advance to a watermark that is higher than the last."""

    def end(self) -> list[Verdict]:
        """Process the end of the execution: no event comes after it."""
        return []

    def remaining(self) -> Iterator[Verdict]:
        """Yield the verdicts that are left after the end."""
        return iter(())

    def held_back(self) -> list[tuple[Event, Dot | None]]:
        """Return each event that waits, with one dot it waits for; None: it waits its turn."""
        return []

    def tally(self, counted: Tally) -> Tally:
        """Return the outcomes of records, by those when they were read."""
        return counted

    def counts(self) -> dict[str, int]:
        """Return how many dots are lost or missing, and the counts that are rare."""
