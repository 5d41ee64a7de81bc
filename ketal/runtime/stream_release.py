"""Release in a stream: runs are offered events as they arrive, or when a queue releases them.

A pattern under `order arrival`, or one whose answer needs no order (`find any` under
CausalOrder without `not`), is offered each event at once; the others are offered events when a
hold-back queue releases them (`ketal.runtime.queues.execution_queues`). Once a node has left or
restarted, clocks are restored before any pattern reads them (`docs/membership.md`). A pattern that
needs no order then waits for the past of an event, unless the past may be in another part of a job:
such an event is offered at once, like all events under `order arrival`. An event offered so counts
as doubtful if its clock may be too low.

The one rule: an event of a run's topology is offered to it once, or recorded as missed by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.engine.pattern_run import PatternRun
from ketal.engine.type_dispatch import TypeDispatch
from ketal.engine.verdict_building import flat
from ketal.errors import NotAvailableError
from ketal.model.events.control import Control
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.summaries import Tally
from ketal.model.verdicts.execution_verdicts import Late
from ketal.model.verdicts.verdict_kinds import Numbered, Verdict
from ketal.operators.order.hold_back import HoldBackQueue
from ketal.runtime.admission.identification import Admission, reads_clocks
from ketal.runtime.queues.execution_queues import Queues
from ketal.runtime.release import Release


def refuse_unavailable(compiled: CompiledPattern) -> None:
    """Raise a NotAvailableError if a pattern has a `mode`, which needs the whole execution."""
    mode = compiled.pattern.mode
    if mode is not None:
        raise NotAvailableError(
            f"pattern {compiled.name}: `mode {mode}` concerns every linear extension of an "
            "execution, so it is not available on a stream; use ketal.run on a finite log"
        )


class StreamRelease(Release):
    """Offers new events to the runs of a stream; a NotAvailableError if a pattern has a `mode`."""

    by_watermark = False
    """Whether the time of the queues goes by watermarks alone."""
    sees_all = True
    """Whether all events of the execution are offered here, not only those of a part of a job."""

    def __init__(
        self, runs: Sequence[PatternRun], admission: Admission, limits: Limits, name: str
    ) -> None:
        for run in runs:
            refuse_unavailable(run.compiled)
        self.runs = runs
        self._admission = admission
        self._direct = TypeDispatch(
            [run for run in runs if not run.compiled.causal or run.compiled.order_free]
        )
        self.queues = Queues(
            [run for run in runs if run not in self._direct.runs],
            limits,
            name,
            order_free=self._order_free_runs(),
            arrived=admission.intake.nodes,
            by_watermark=self.by_watermark,
        )
        # The release of the patterns that changed under the stream (`ketal.runtime.retirement`): it
        # is offered the same events, before the runs of this release.
        self.retiring: StreamRelease | None = None
        self._restores_clocks = False
        self._offers_at_once = False  # events whose clocks are not restored yet
        windows_us = [run.compiled.window_us for run in runs]
        # The shortest time window of a pattern.
        self.window_us = min([us for us in windows_us if us is not None], default=0)

    @property
    def takes_batches(self) -> bool:
        """Whether several events may be identified before the first of them is offered.

        Not if missing dots or retiring patterns depend on what has arrived before each event.
        """
        return not (self.queues.missing or self.retiring)

    @property
    def due_us(self) -> float:
        """The lowest watermark at which something may be due, given the events offered so far.

        It is asked for only where it `takes_batches`.
        """
        direct_us = min([run.steps.due_us for run in self._direct.runs], default=math.inf)
        return min(direct_us, self.queues.due_us)

    @property
    def offers_at_once(self) -> bool:
        """Whether a pattern that reads clocks is offered events before these are restored.

        Not before a node has left: until then, no clock is restored.
        """
        return self._offers_at_once or (self.retiring is not None and self.retiring.offers_at_once)

    def _order_free_runs(self) -> list[PatternRun]:
        """Return the runs under CausalOrder that need no order."""
        return [run for run in self._direct.runs if run.compiled.causal]

    # --- events ---

    def offer(
        self,
        events: Sequence[Event],
        known: Sequence[Event] | None = None,
        excluding: Sequence[PatternRun] = (),
    ) -> list[Numbered]:
        """Pass new events, or one event that some runs exclude, to the runs and the queues.

        `known` has the events with their clocks restored as far as is possible now, if those may
        differ.
        """
        known, direct = known or events, self._direct.runs
        offered: list[tuple[int, Any]] = []
        if excluding:
            for run in direct:
                if run not in excluding:
                    offered += run.process(known)
        elif direct:
            offered = self._direct.process(known)
        if not self.queues:
            return offered
        queued = self.queues.take(events, excluding=excluding)
        if not offered or not queued:
            return offered or queued
        by_number: dict[int, list[Verdict]] = {}
        for number, verdicts in (*offered, *queued):
            by_number.setdefault(number, []).extend(verdicts)
        return sorted(by_number.items())

    def take(
        self, event: Event, late: Late | None, excluding: Sequence[PatternRun]
    ) -> list[Verdict]:
        """Pass a new event to the runs and the queues."""
        out: list[Verdict] = []
        admission = self._admission
        if admission.membership is None and admission.reads_clocks and admission.shows_leave(event):
            self.restore_clocks(event)
        known = event
        if admission.membership is not None:
            for node in admission.arrived(event):
                out += self.control(Control("leave", node=node))
            if admission.reads_clocks:
                restorer, at_once = admission.membership.restorer, self.offers_at_once
                known = (restorer.restore_at_once if at_once else restorer.restore_so_far)(event)
        if self.retiring is not None:
            out += self.retiring.take_identified(event, known, late, ())
        return out + self.take_identified(event, known, late, excluding)

    def take_identified(
        self, event: Event, known: Event, late: Late | None, excluding: Sequence[PatternRun]
    ) -> list[Verdict]:
        """Pass a new event to the runs and the queues, as `take` does.

        `known` is the event with its clock restored as far as is possible now.
        """
        out = self.queues.push_clock(event) if self.queues.missing else []
        if late is not None:
            for run in self._direct.runs:
                if run.compiled.causal and run not in excluding:
                    run.miss_event(event)
            # No pattern is offered the late event, but its dependants must not wait for it.
            queued = self.queues.take((event,), withheld=True, excluding=excluding)
            return [*out, late, *flat(queued)]
        for run in excluding:
            run.counts.strangers += 1
        return out + flat(self.offer((event,), (known,), excluding))

    def take_redelivered(self, event: Event) -> list[Verdict] | None:
        """Process a redelivered event; return None if no queue had refused it."""
        # Patterns that were offered the event the first time are not offered it again.
        out = self.queues.push_redelivered(event)
        if self.retiring is not None:
            retiring_verdicts = self.retiring.take_redelivered(event)
            out = [*retiring_verdicts, *(out or [])] if retiring_verdicts else out
        return out

    def restore_clocks(self, event: Event | None = None, *, saved: bool = False) -> None:
        """Restore the clocks of events from now on, if a membership has begun."""
        membership = self._admission.membership
        if membership is None or self._restores_clocks:
            return
        self._restores_clocks = True
        if self.retiring is not None:
            self.retiring.restore_clocks(event, saved=saved)
        if self._admission.reads_clocks:
            awaiting = [run for run in self._order_free_runs() if self._awaits_restoring(run)]
            self._direct = TypeDispatch([run for run in self._direct.runs if run not in awaiting])
            self._offers_at_once = any(reads_clocks(run.compiled) for run in self._direct.runs)
            seen = None if saved else self._admission.intake.seen()
            self.queues.restore_clocks(
                membership.restorer, awaiting, seen, arriving=event, at_once=self._offers_at_once
            )

    def _awaits_restoring(self, run: PatternRun) -> bool:
        """Return whether events wait for restored clocks; in a part they only wait for time."""
        return self.sees_all or run.compiled.pattern.order.frontier is not None

    # --- membership and time ---

    def control(self, control: Control) -> list[Verdict]:
        """Apply a `join`, `leave` or `view` whose nodes are named by incarnation."""
        out: list[Verdict] = [] if self.retiring is None else self.retiring.control(control)
        return out + self.queues.control(control)

    def advance(self, watermark_us: int) -> list[Verdict]:
        """Advance the queues and the windows to a watermark that is higher than the last."""
        out: list[Verdict] = [] if self.retiring is None else self.retiring.advance(watermark_us)
        out += self.queues.advance(watermark_us)
        for run in self._direct.runs:
            out += run.steps.advance(watermark_us)
        return out

    def end(self) -> list[Verdict]:
        """End every queue, window and run."""
        out: list[Verdict] = [] if self.retiring is None else self.retiring.end()
        out += self.queues.end()
        for run in self.runs:
            out += run.steps.close()
        return out

    # --- counts ---

    def held_back(self, *, for_ever: bool = False) -> list[tuple[Event, Dot | None]]:
        """Return each held-back event and one dot it waits for, None if it waits for its turn.

        With `for_ever`, return only the events that no `gap` will release.
        """
        return self.queues.held_back(for_ever=for_ever)

    def fullest_queue(self) -> HoldBackQueue | None:
        """Return the hold-back queue with the most events; None if there is no queue."""
        queues = [queue.hold_back for queue in self.queues.queues]
        retiring = None if self.retiring is None else self.retiring.fullest_queue()
        return max(queues if retiring is None else [*queues, retiring], key=len, default=None)

    def tally(self, counted: Tally) -> Tally:
        """Return the outcomes of the records now: queues hold back, refuse, or find late some."""
        waiting, reports = self.queues.waiting, self.queues.reports
        return replace(
            counted,
            accepted=counted.accepted - waiting - reports.late - reports.refused,
            late=counted.late + reports.late,
            held_back=waiting,
            overflow=counted.overflow + reports.refused,
        )

    def counts(self) -> dict[str, int]:
        """Return how many dots are lost and missing, and the rarer counts that are not zero."""
        membership = self._admission.membership
        doubtful = 0 if membership is None else membership.in_doubt
        gaps, holes = self.queues.reports.gaps, self._admission.holes()
        return {"gaps": gaps, "holes": holes, **self._admission.nonzero_counts(doubtful=doubtful)}


class JobRelease(StreamRelease):
    """Offers new events to the runs of a job that reads several partitions concurrently.

    One partition may be read far ahead of another, so the times of events read do not show that a
    wait for an unread event has ended. The watermark shows it: it waits for every partition.
    """

    by_watermark = True


class PartRelease(JobRelease):
    """Offers new events to the runs of a part of a job, which does not see the other parts."""

    sees_all = False


class KeyGroupRelease(StreamRelease):
    """Offers new events to the runs of a key group of Spark, which does not see the others."""

    sees_all = False
