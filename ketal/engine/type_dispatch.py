"""Dispatch of events by type to the runs of several patterns.

Most patterns of a large program name few types. A table gives the runs that events of a type may
concern, so the cost of an event depends on how many patterns may take it, not on how many there
are (Aguilera et al., "Matching events in a content-based subscription system", PODC 1999, with the
type as the only test).

The one rule: an event that a run is not offered would have changed nothing in it, counts included.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from ketal.compiler.predicate_codegen import VALUES_CACHED_MAX
from ketal.engine.pattern_run import PatternRun
from ketal.model.events.event import Event
from ketal.model.verdicts.verdict_kinds import RunVerdict


class TypeDispatch:
    """Dispatches events to the runs of several patterns.

    Parameters
    ----------
    runs : sequence of PatternRun
        One for each pattern, in the order in which verdicts on the same event are returned.
    """

    def __init__(self, runs: Sequence[PatternRun]) -> None:
        self.runs = runs
        self._with_losses = 0
        self._concerned: dict[str, tuple[int, ...]] = {}

    def concerned(self, event: Event) -> tuple[int, ...]:
        """Return the numbers of the runs that events of this event's type may concern."""
        numbers = self._concerned.get(event.type)
        if numbers is None:
            if len(self._concerned) >= VALUES_CACHED_MAX:
                self._concerned.clear()
            numbers = tuple([n for n, run in enumerate(self.runs) if run.concerned_by(event)])
            self._concerned[event.type] = numbers
        return numbers

    def process(self, events: Sequence[Event]) -> list[tuple[int, list[RunVerdict]]]:
        """Process released events in turn; return the verdicts as `PatternRun.process` does."""
        if len(self.runs) == 1:
            return self.runs[0].process(events)
        with_losses = sum([run.losses.any_missed for run in self.runs])
        if with_losses != self._with_losses:
            self._with_losses = with_losses
            self._concerned.clear()
        places: dict[str, list[int]] = {}
        for place, event in enumerate(events):
            if (of_type := places.get(event.type)) is None:
                of_type = places[event.type] = []
            of_type.append(place)
        types_of: dict[int, list[str]] = {}
        for event_type, of_type in places.items():
            for number in self.concerned(events[of_type[0]]):
                types_of.setdefault(number, []).append(event_type)
        offered: dict[tuple[str, ...], tuple[list[int], list[Event]]] = {}
        by_place: dict[int, list[RunVerdict]] = {}
        for number, types in sorted(types_of.items()):
            part = offered.get(key := tuple(types))
            if part is None:
                merged = sorted(chain.from_iterable([places[one] for one in types]))
                part = offered[key] = merged, [events[place] for place in merged]
            merged, part_events = part
            for index, verdicts in self.runs[number].process(part_events):
                by_place.setdefault(merged[index], []).extend(verdicts)
        return sorted(by_place.items())
