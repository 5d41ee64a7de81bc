"""Dispatch of events by type to the runs of several patterns.

Most patterns of a large program name few types. A table gives the runs that events of a type may
concern, so the cost of an event depends on how many patterns may take it, not on how many there
are (Aguilera et al., "Matching events in a content-based subscription system", PODC 1999, with the
type as the only test).

The one rule: an event that a run is not offered would have changed nothing in it, counts included.
"""

from __future__ import annotations

from collections.abc import Sequence

from ketal.engine.pattern_run import PatternRun
from ketal.model.events.event import Event
from ketal.model.events.type_table import TypeTable
from ketal.model.verdicts.verdict_kinds import RunVerdict


class TypeDispatch:
    """Dispatches events to the runs of several patterns.

    The verdicts on one event are returned in the order of the runs.
    """

    def __init__(self, runs: Sequence[PatternRun]) -> None:
        self.runs = runs
        self._with_losses = 0
        self._table = TypeTable([run.concerned_by for run in runs])

    def concerned(self, event: Event) -> tuple[int, ...]:
        """Return the numbers of the runs that events of this event's type may concern."""
        return self._table.concerned(event)

    def process(self, events: Sequence[Event]) -> list[tuple[int, list[RunVerdict]]]:
        """Process released events in turn; return the verdicts as `PatternRun.process` does."""
        if len(self.runs) == 1:
            return self.runs[0].process(events)
        with_losses = sum([run.losses.any_missed for run in self.runs])
        if with_losses != self._with_losses:
            self._with_losses = with_losses
            self._table.clear()
        by_index: dict[int, list[RunVerdict]] = {}
        for number, (indices, part) in self._table.split(events):
            for index, verdicts in self.runs[number].process(part):
                by_index.setdefault(indices[index], []).extend(verdicts)
        return sorted(by_index.items())
