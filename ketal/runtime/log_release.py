"""Release of a finite log: all is read, then runs are offered the canonical linear extension.

Whatever the order of the file, events are offered in canonical order; a hole in the counters
holds nothing back. For a pattern whose order has a `gap`, holes are lost events, as at the
end of a stream. A pattern with a `mode` is judged over every linear extension, and a pattern
under `order arrival` in the order of the file; their verdicts are yielded with the events that
completed them.

The one rule: verdicts are in the canonical order of the events that completed them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, Final, TypeAlias

import msgspec

from ketal.clocks import vector
from ketal.engine.find.windows import FOREVER
from ketal.engine.pattern_run import PatternRun
from ketal.engine.type_dispatch import TypeDispatch
from ketal.engine.verdict_building import flat
from ketal.model import syntax
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical
from ketal.model.limits import Limits
from ketal.model.verdicts.check_verdicts import Violation
from ketal.model.verdicts.execution_verdicts import Gap, Late
from ketal.model.verdicts.find_verdicts import Match
from ketal.model.verdicts.verdict_kinds import Numbered, Verdict
from ketal.operators.membership.clock_restoration import restored_with_doubts
from ketal.operators.order import missing
from ketal.operators.order.release_options import ReleaseOptions
from ketal.operators.order.step import ReleaseStep
from ketal.operators.topology.domains import closed_nodes, takes_part
from ketal.runtime.admission.identification import Admission
from ketal.runtime.admission.known_counters import KnownCounters
from ketal.runtime.modes.possibly_definitely import modal_verdicts
from ketal.runtime.release import Release

_VerdictsByEvent: TypeAlias = dict[Dot | None, list[Verdict]]
"""Verdicts by the dot of the event that completed them; under None those that no event did."""
JUDGED_TOGETHER: Final = 64
"""Events that are judged together; their verdicts are in memory at once."""


class LogRelease(Release):
    """Holds the events of a finite log, and offers them when the whole log is read.

    The limit `lost_max` bounds the lost dots that are named.
    """

    holds_all = True
    window_us = 0

    def __init__(
        self, runs: Sequence[PatternRun], admission: Admission, limits: Limits, name: str
    ) -> None:
        self._runs = runs
        self._admission = admission
        self._limits = limits
        self._name = name
        self._events: list[Event] = []
        self._late: list[Event] = []  # not offered, but part of other events' pasts
        self._watermarks: list[tuple[int, int]] = []  # how many events come before each, its time
        self.has_offered = False
        self._by_run: dict[int, _VerdictsByEvent] = {}  # of the runs that are judged by themselves
        self._judged = 0
        self._gaps = self._impossible = self._doubtful = 0
        self._highest: Mapping[str, int] = {}  # in all clocks, once judged

    @property
    def takes_batches(self) -> bool:
        """Always true: no event is offered before the log is read."""
        return True

    @property
    def due_us(self) -> float:
        """Minus infinity: every watermark is recorded between the events."""
        return -math.inf

    @property
    def judged(self) -> tuple[int, int]:
        """How many events were judged, and how many there are."""
        return self._judged, len(self._events)

    # --- while the log is read ---

    def offer(self, events: Sequence[Event]) -> list[Numbered]:
        """Record new events."""
        self._events += events
        return []

    def take(
        self, event: Event, late: Late | None, excluding: Sequence[PatternRun]
    ) -> list[Verdict]:
        """Record a new event; return its verdict if it is late."""
        self._admission.arrived(event)
        if late is not None:
            self._late.append(event)
            return [late]
        self._events.append(event)
        return []

    def advance(self, watermark_us: int) -> list[Verdict]:
        """Record a watermark for the patterns under `order arrival`."""
        self._watermarks.append((len(self._events), watermark_us))
        return []

    def counts(self) -> dict[str, int]:
        """Return how many dots are lost and missing, and the rarer counts that are not zero."""
        admission = self._admission
        highest = self._highest or vector.join(event.clock for event in self._events)
        gaps, holes = self._gaps, admission.intake.holes(highest)
        in_doubt = 0 if admission.membership is None else admission.membership.incarnations.doubtful
        doubtful = self._doubtful + in_doubt
        nonzero_counts = admission.nonzero_counts(impossible=self._impossible, doubtful=doubtful)
        return {"gaps": gaps, "holes": holes, **nonzero_counts}

    # --- when the log is read ---

    def remaining(self) -> Iterator[Verdict]:
        """Judge the execution; yield the verdicts of each batch as soon as it is judged."""
        self._restore_clocks()
        return chain(self._declare_lost(), self._offer_all(), self._close())

    def _judge_by_themselves(self) -> None:
        """Judge the runs that are not offered the events in canonical order."""
        for number, run in enumerate(self._runs):
            if run.compiled.pattern.mode is not None:
                self._by_run[number] = self._modal_verdicts(run, number)
            elif not run.compiled.causal:
                self._by_run[number] = self._arrival_verdicts(run)

    def _offer_all(self) -> Iterator[Verdict]:
        """Offer the events in canonical order; yield the verdicts of all runs on each event."""
        self._judge_by_themselves()
        judged = self._by_run
        events = canonical(self._events)
        known = KnownCounters(events)
        closed = self._admission.closed_topologies
        dispatch = TypeDispatch(self._runs)
        # A window ends when no later event is in it: one outside it ends no run without a time-out.
        timed = [r for r in self._runs if r.compiled.causal and r.compiled.window_us is not None]
        least_us = _least_times_us(events) if timed else ()
        # Several events are judged together if no other verdicts belong between theirs.
        size = 1 if judged or closed or timed else JUDGED_TOGETHER
        for first in range(0, len(events), size):
            self._judged = first
            for run in timed:
                yield from run.steps.advance(least_us[first])
            batch = events[first : first + size]
            self._impossible += known.release(batch)
            if size > 1:
                yield from flat(dispatch.process(batch))
                continue
            (event,) = batch
            excluding = self._admission.excluding(event) if closed else ()
            for number in excluding:
                if number not in judged:
                    self._runs[number].counts.strangers += 1
            concerned = dispatch.concerned(event)
            for number in sorted({*concerned, *judged}) if judged else concerned:
                if number in judged:
                    yield from judged[number].pop(event.dot, ())
                elif number not in excluding:
                    yield from flat(self._runs[number].process(batch))
        self._judged = len(events)
        self._highest = known.highest

    def _close(self) -> Iterator[Verdict]:
        """Close the runs; yield their verdicts that no event completed."""
        for number, run in enumerate(self._runs):
            for verdicts in self._by_run.get(number, {}).values():
                yield from verdicts
            yield from run.steps.close()
        self.has_offered = True

    def _restore_clocks(self) -> None:
        """Restore the entries that clocks lost when a node left (`docs/membership.md`)."""
        count, left = len(self._events), self._admission.departed_nodes(self._events)
        events, self._doubtful = restored_with_doubts(
            [*self._events, *self._late], left, limits=self._limits
        )
        self._events, self._late = events[:count], events[count:]

    def _declare_lost(self) -> Iterator[Gap]:
        """Mark the lost dots of each run's order as missed by the run; yield one Gap per dot."""
        reported: set[Dot] = set()
        lost_by_order: dict[Any, ReleaseStep] = {}
        for run in self._runs:
            pattern = run.compiled.pattern
            if not run.compiled.causal:
                continue
            order = pattern.order, pattern.topology
            if order not in lost_by_order:
                lost_by_order[order] = self._lost_dots(*order)
            lost = lost_by_order[order]
            for event in self._late:
                run.miss_event(event)
            for dot in lost.gaps:
                run.miss(dot, lost.lowest_keys.get(dot))
                if dot not in reported:
                    reported.add(dot)
                    self._gaps += 1 + lost.unnamed.get(dot, 0)
                    yield Gap(pattern="", fingerprint="", execution=self._name, dot=dot)

    def _lost_dots(self, order: syntax.Order, topology: syntax.Topology | None) -> ReleaseStep:
        """Return a step that declares the dots lost under an order."""
        step = ReleaseStep()
        if not ReleaseOptions.of(order).declares_lost:
            return step
        known = [*self._events, *self._late]
        nodes = closed_nodes(topology)
        lost = [hole for hole in missing.holes(known) if takes_part(hole[0], nodes)]
        sums: dict[Dot, int] | None = None
        if lost and order.total:
            sums = {event.dot: sum(event.clock.values()) for event in known}
        for node, first, last in lost:
            least = None if sums is None else sums.get(Dot(node, first - 1), first - 1)
            step.declare_lost(node, first, last, self._limits.lost_max, least)
        return step

    def _modal_verdicts(self, run: PatternRun, number: int) -> _VerdictsByEvent:
        """Return the verdicts of a run with a `mode`, by the events that completed them."""
        by_event: _VerdictsByEvent = {}
        known = [e for e in self._events if number not in self._admission.excluding(e)]
        run.counts.strangers = len(self._events) - len(known)
        run.count(known)
        lost = run.losses.dots() if run.losses.past_matters else ()
        for last, verdict in modal_verdicts(run, known):
            if lost and isinstance(verdict, Match | Violation):
                verdict = msgspec.structs.replace(verdict, certain=False, depends_on=lost)
            by_event.setdefault(None if last is None else last.dot, []).append(verdict)
        if lost:
            run.counts.uncertain = run.counts.matches + run.counts.violations
        return by_event

    def _arrival_verdicts(self, run: PatternRun) -> _VerdictsByEvent:
        """Return the verdicts of a run under `order arrival`, by the events that completed them."""
        by_event: _VerdictsByEvent = {}
        begin = 0
        for end, watermark_us in (*self._watermarks, (len(self._events), None)):
            for number, verdicts in run.process(self._events[begin:end]):
                by_event.setdefault(self._events[begin + number].dot, []).extend(verdicts)
            if watermark_us is not None:
                by_event.setdefault(None, []).extend(run.steps.advance(watermark_us))
            begin = end
        return by_event


def _least_times_us(events: Sequence[Event]) -> list[int]:
    """Return, for each of some events in order, the least time of it and of those after it."""
    times_us = (FOREVER if (us := event.time_us) is None else us for event in reversed(events))
    return list(accumulate(times_us, min))[::-1]
