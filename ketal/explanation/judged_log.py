"""A finite log, judged once by observed runs, with the places and graphs for explanations.

The one rule: its verdicts are those that `ketal.run` gives.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.engine.pattern_run import PatternRun
from ketal.errors import SettingError
from ketal.explanation.observed_run import ObservedRun
from ketal.explanation.reasons import PlacedEvent
from ketal.explanation.verdict_places import VerdictPlaces
from ketal.logs import Log, watched
from ketal.model.events.causal_graph import CausalGraph
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.log_arguments import RecordBatch
from ketal.model.verdicts.check_verdicts import Incomplete, Violation
from ketal.model.verdicts.find_verdicts import Match, TimedOut
from ketal.model.verdicts.run_verdicts import Overflow, limit_reached_text
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.programs.program import Program, checked_program
from ketal.runtime.batch_run import LogPass
from ketal.runtime.modes.possibly_definitely import ScopeLattices

T = TypeVar("T")
Explained = Match | Violation | Incomplete | TimedOut
"""The kinds of verdicts that can be explained; those of other kinds explain themselves."""


class JudgedLog(LogPass):
    """A pass of observed runs over a finite log; keeps the verdicts.

    Every offer of the event `event` to a scope is recorded, and at most `moves_max` moves of each
    `check`, per execution; the other parameters are those of `ketal.explain`.
    """

    def __init__(
        self,
        program: Program,
        log: Log | Iterable[Event],
        limits: Limits | None = None,
        *,
        event: Dot | None = None,
        moves_max: int = 0,
    ) -> None:
        self.program = checked_program(program)
        self.event = event
        self.events: list[Event] = []
        """The events of all executions, as they were read."""
        self.places = VerdictPlaces(all_kept=True)
        """The places of the events in the log."""
        self._moves_max = moves_max
        self._graphs: dict[str, CausalGraph] = {}
        self._lattices: dict[ObservedRun, ScopeLattices] = {}
        self._runs: dict[str, list[ObservedRun]] = {}
        """The runs of the patterns, by execution."""
        super().__init__(
            self.program,
            watched(log, self._record_events),
            Limits.given(limits, self.program.compiled[0].limits),
            make_run=self._make_run,
            on_named=self.places.record_place,
        )

    @functools.cached_property
    def verdicts(self) -> list[Verdict]:
        """The verdicts that `ketal.run` gives; the first access judges the log."""
        return list(super().__iter__())

    def __iter__(self) -> Iterator[Verdict]:
        """Yield the verdicts, after the whole log is judged."""
        return iter(self.verdicts)

    def _make_run(self, compiled: CompiledPattern, limits: Limits, **options: Any) -> PatternRun:
        run = self._new_run(compiled, limits, **options)
        self._runs.setdefault(run.execution, []).append(run)
        return run

    def _new_run(self, compiled: CompiledPattern, limits: Limits, **options: Any) -> ObservedRun:
        options |= {"wanted": self.event, "moves_max": self._moves_max}
        return ObservedRun(compiled, limits, **options)

    def _record_events(self, batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        """Pass on batches of records, and record their events and places."""
        for batch in self.places.watched(batches):
            self.events += (item for item in batch.items if isinstance(item, Event))
            yield batch

    # --- the judged log ---

    @property
    def runs(self) -> list[ObservedRun]:
        """The runs of all patterns over all executions; the first access judges the log."""
        _ = self.verdicts
        return [run for own in self._runs.values() for run in own]

    def runs_of(self, execution: str) -> Sequence[ObservedRun]:
        """Return the runs of all patterns over one execution, once the log is judged."""
        return self._runs.get(execution, ())

    @functools.cached_property
    def explainable(self) -> list[Explained]:
        """The verdicts that can be explained."""
        return [one for one in self.verdicts if isinstance(one, Explained)]

    @functools.cached_property
    def overflows(self) -> list[Overflow]:
        """The limits that were reached; verdicts may be missing because of them."""
        return [one for one in self.verdicts if isinstance(one, Overflow)]

    def verdict_by_id(self, prefix: str) -> Explained:
        """Return the verdict whose id begins with a prefix; SettingError if none or several."""
        matching = [one for one in self.explainable if one.id.startswith(prefix)]
        if prefix and len({one.id for one in matching}) == 1:
            return matching[0]
        some = f"{len(matching):,} verdicts have" if matching else "no verdict has"
        why = f"{some} an id that begins with {prefix!r}" if prefix else "the id is empty"
        raise SettingError(f"{why}; list the ids of verdicts with `ketal run --output json`")

    def run_of(self, verdict: Explained) -> ObservedRun:
        """Return the run that reported a verdict."""
        runs = self.runs_of(verdict.execution)
        return next(run for run in runs if run.compiled.name == verdict.pattern)

    def rerun(self, run: ObservedRun, extension: Iterable[Event]) -> ObservedRun:
        """Return a new run of the same pattern over one linear extension."""
        again = self._new_run(run.compiled, run.limits, execution=run.execution)
        again.process(tuple(extension))
        return again

    def witness(self, run: ObservedRun, verdict: Match | Violation) -> tuple[Event, ...]:
        """Return a prefix of a linear extension that gives a verdict of a pattern with a `mode`."""
        if run not in self._lattices:
            self._lattices[run] = ScopeLattices(run, run.events)
        return self._lattices[run].witness(verdict)

    def graph(self, execution: str) -> CausalGraph:
        """Return the causal graph of an execution's events, as the runs were offered them."""
        graph = self._graphs.get(execution)
        if graph is None:
            # Not the events as read: to a run, a restarted node has its incarnation's name.
            runs = self.runs_of(execution)
            events = {event.dot: event for run in runs for event in run.events}
            graph = self._graphs[execution] = CausalGraph(events.values())
        return graph

    def placed(self, run: ObservedRun, event: Event) -> PlacedEvent:
        """Return an event that a run was offered, with its place in the log."""
        return PlacedEvent(event, self.places.at(run.execution, event.dot))

    def placed_steps(
        self, run: ObservedRun, taken: Iterable[tuple[str, Event]]
    ) -> tuple[tuple[str, PlacedEvent], ...]:
        """Return the steps that a run took, each with its event and its place in the log."""
        return tuple((step, self.placed(run, event)) for step, event in taken)


def by_turns(items: Iterable[T], pattern: Callable[[T], str]) -> list[T]:
    """Return items with the first of each pattern first, then the second of each, and so on."""
    before: Counter[str] = Counter()
    turns = []
    for item in items:
        name = pattern(item)
        turns.append((before[name], item))
        before[name] += 1
    return [item for _, item in sorted(turns, key=lambda turn: turn[0])]


def overflow_text(overflows: Sequence[Overflow]) -> str:
    """Return that limits were reached, with the first overflow; empty if there is none."""
    return limit_reached_text(overflows[0]) if overflows else ""
