"""`ketal.explain`: why each verdict of a finite log holds, and why an event was not taken.

The log is judged by observed runs (`ketal.explanation.observed_runs`), once. The evidence of guards
is that of the definition (`ketal.explanation.guard_evidence`), the chains of messages that of the
log's causal graph (`ketal.explanation.causal_graph`).

The one rule: what is explained is the verdict that `ketal.run` gives.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any, Literal

from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.engine.pattern_run import PatternRun
from ketal.errors import SettingError
from ketal.explanation.causal_graph import CausalGraph
from ketal.explanation.comparisons.event_pairs import pair_reason
from ketal.explanation.near_misses import beginnings, following, nearest
from ketal.explanation.observed_runs.observations import LiveRun, Offer
from ketal.explanation.observed_runs.observed_run import ObservedRun
from ketal.explanation.reasons import (
    Explanation,
    PlacedEvent,
    RunReason,
)
from ketal.explanation.step_reasons import StepReasons
from ketal.explanation.surroundings import rows_around
from ketal.logs import Log
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import happened_before
from ketal.model.frozen_mapping import FrozenMapping
from ketal.model.limits import Limits
from ketal.model.log_arguments import checked_log
from ketal.model.places import place_at
from ketal.model.summaries import Summary
from ketal.model.verdicts.check_verdicts import Incomplete, Violation
from ketal.model.verdicts.find_verdicts import Match, TimedOut
from ketal.model.verdicts.pattern_verdict import PatternVerdict
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.pictures.text_diagram import text_diagram
from ketal.programs.program import Program, checked_program
from ketal.runtime.batch_run import LogPass, Record, batches_of
from ketal.runtime.possibly_definitely import witness
from ketal.semantics import History

Explained = Match | Violation | Incomplete | TimedOut
FIRST = 10
"""Verdicts that are explained where none is asked for."""


def explain(
    program: Program,
    log: Log | Iterable[Event],
    *,
    verdict: PatternVerdict | str | None = None,
    event: Dot | str | None = None,
    first: int = FIRST,
    limits: Limits | None = None,
) -> tuple[Explanation, ...]:
    """Return why the verdicts of a finite log hold, or what the patterns made of an event.

    Parameters
    ----------
    program : Program
        The patterns.
    log : Log or iterable of Event
        What happened.
    verdict : verdict or str, optional
        Explain this one only, given itself, by its id, or by how its id begins.
    event : Dot or str, optional
        Explain what each pattern made of this event, `n3@7`, instead.
    first : int
        Without either, so many verdicts are explained: matches, violations, checks that were not
        complete and windows that timed out.
    limits : Limits, optional
        Other limits than those the program was compiled with; `explained_runs_max` bounds the
        runs that are explained of one event.

    Raises
    ------
    SettingError
        If there is no such verdict or event, or several.
    TypeError
        If an argument is of another class than it must be.

    Examples
    --------
    >>> import ketal
    >>> program = ketal.compile('''
    ...     pattern Conflict { order CausalOrder; event Write = type == "write";
    ...                        First = Write; Second = Conc(Write); find any First Second; }
    ... ''')
    >>> log = [ketal.Event(node="a", type="write", clock={"a": 1}),
    ...        ketal.Event(node="b", type="write", clock={"b": 1})]
    >>> (explanation,) = ketal.explain(program, log)
    >>> print(explanation)
    match Conflict: First=a@1, Second=b@1
      First = a@1 write
        type == "write" holds: type is "write"
      a@1 and b@1 are concurrent: b@1 knows a:0 < 1, a@1 knows b:0 < 1
        of a, b@1 knows nothing
        of b, a@1 knows nothing
      Second = b@1 write
        type == "write" holds: type is "write"
        Conc(Write) holds: a@1 and b@1 are concurrent: b@1 knows a:0 < 1, a@1 knows b:0 < 1
    """
    if verdict is not None and event is not None:
        raise SettingError("explain a verdict or an event, not both")
    dot = None if event is None else dot_of(event)
    judged = JudgedLog(program, log, limits, event=dot)
    name = verdict if verdict is None or isinstance(verdict, str) else verdict.id
    return judged.chosen(verdict=name, first=first)


def dot_of(event: Dot | str) -> Dot:
    """Return an event's dot, of `node@counter` too.

    Raises
    ------
    SettingError
        If it is no dot.
    """
    if isinstance(event, str):
        node, _, counter = event.rpartition("@")
        if not node or not (counter.isascii() and counter.isdigit()):
            raise SettingError(f"{event} is no event; write node@counter, as n3@7")
        return Dot(node, int(counter))
    return Dot(*event)


class JudgedLog:
    """A finite log that is judged by observed runs.

    Parameters
    ----------
    program, log, limits
        As for `explain`.
    event : Dot, optional
        What each scope is offered of this event is kept.
    moves_max : int
        So many moves of the checks of an execution are kept, for each pattern.

    Attributes
    ----------
    runs : list of ObservedRun
        The runs of the patterns, of each execution.
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
        checked = checked_program(program)
        given = Limits.given(limits, checked.compiled[0].limits)
        self._program = checked
        self._event = event
        self._moves_max = moves_max
        self._places: dict[tuple[str, Dot], str] = {}
        self._events: dict[str, list[Event]] = {}
        self._graphs: dict[str, CausalGraph] = {}
        self.runs: list[ObservedRun] = []
        records = checked_log(log)
        watched = Log.of_batches(lambda: map(self._kept, batches_of(records)))
        watched.undecided = getattr(records, "undecided", None)
        self._pass = LogPass(checked, watched, given, make_run=self._make_run)

    @functools.cached_property
    def verdicts(self) -> list[Verdict]:
        """What `ketal.run` gives; the log is judged when it is first asked for."""
        return list(self._pass)

    @property
    def summary(self) -> Summary:
        """The summary, of what was judged so far."""
        return self._pass.summary

    def share_judged(self) -> float | None:
        """Return the share of the events that was judged; None where they are judged as read."""
        return self._pass.share_judged()

    def __iter__(self) -> Iterator[Verdict]:
        """Yield the verdicts, once all is judged."""
        return iter(self.verdicts)

    def _make_run(self, compiled: CompiledPattern, limits: Limits, **options: Any) -> PatternRun:
        options |= {"wanted": self._is_wanted, "moves_max": self._moves_max}
        run = ObservedRun(compiled, limits, **options)
        self.runs.append(run)
        return run

    def _is_wanted(self, run: PatternRun, event: Event) -> bool:
        return event.dot == self._event

    def _kept(self, batch: Sequence[Record]) -> Sequence[Record]:
        """Keep the events of a batch and their places; return it."""
        for execution, item, file, line in batch:
            if isinstance(item, Event):
                self._events.setdefault(execution, []).append(item)
                if place := place_at(file, line):
                    self._places.setdefault((execution, item.dot), place)
        return batch

    # --- what was judged ---

    @property
    def explainable(self) -> int:
        """How many of the verdicts can be explained."""
        return sum(isinstance(one, Explained) for one in self.verdicts)

    def of_pattern(self, name: str) -> Iterator[Explained]:
        """Yield the verdicts of a pattern that can be explained."""
        for one in self.verdicts:
            if isinstance(one, Explained) and one.pattern == name:
                yield one

    def chosen(self, *, verdict: str | None, first: int) -> tuple[Explanation, ...]:
        """Return the explanations that `explain` returns."""
        if self._event is not None:
            return tuple(self.of_event())
        if verdict is not None:
            return (self.of_verdict(self.named(verdict)),)
        explained = (one for one in self.verdicts if isinstance(one, Explained))
        found = tuple(map(self.of_verdict, islice(explained, first)))
        return found + tuple(islice(self.near_misses(), first - len(found)))

    def named(self, name: str) -> Explained:
        """Return the verdict whose id is, or begins with, a name.

        Raises
        ------
        SettingError
            If there is none, or several.
        """
        explained = (one for one in self.verdicts if isinstance(one, Explained))
        found = [one for one in explained if one.id.startswith(name)]
        if not name or len({one.id for one in found}) != 1:
            some = f"{len(found):,} verdicts have" if found and name else "no verdict has"
            raise SettingError(
                f"{some} an id that begins with {name!r}; "
                "`ketal run --output json` has the ids of the verdicts"
            )
        return found[0]

    def _graph(self, execution: str) -> CausalGraph:
        """Return the causal graph of an execution, of its events as they were judged."""
        graph = self._graphs.get(execution)
        if graph is None:
            events = {event.dot: event for event in self._events.get(execution, ())}
            for run in self.runs:
                if run.execution == execution:
                    events.update((event.dot, event) for event in run.events)
            graph = self._graphs[execution] = CausalGraph(events.values())
        return graph

    def _placed(self, run: ObservedRun, event: Event) -> PlacedEvent:
        return PlacedEvent(event, self._places.get((run.execution, event.dot), ""))

    def _reasons(self, run: ObservedRun, scope: FrozenMapping) -> StepReasons:
        node = scope.get("node") if run.copies is not None else None
        return StepReasons(run, node, run.offered(scope))

    # --- verdicts ---

    def explained(self, verdict: Verdict) -> Explanation | None:
        """Return why a verdict holds; None for a kind that says itself what there is to say."""
        return self.of_verdict(verdict) if isinstance(verdict, Explained) else None

    def diagram(self, explanation: Explanation) -> list[str]:
        """Return the events around a verdict as a space-time diagram in text."""
        verdict = explanation.verdict
        assert verdict is not None
        assert isinstance(verdict, Explained)
        rows = rows_around(explanation, self._graph(verdict.execution))
        return text_diagram(rows) if rows else []

    def run_of(self, verdict: Explained) -> ObservedRun:
        """Return the run that gave a verdict."""
        return next(
            run
            for run in self.runs
            if run.execution == verdict.execution and run.compiled.name == verdict.pattern
        )

    def of_verdict(self, verdict: Explained) -> Explanation:
        """Return why a verdict holds."""
        run = self.run_of(verdict)
        if isinstance(verdict, Violation):
            return self._of_violation(run, verdict)
        if isinstance(verdict, Incomplete):
            return self._of_incomplete(run, verdict)
        return self._of_taken(run, verdict)

    def _of_taken(self, run: ObservedRun, verdict: Match | TimedOut) -> Explanation:
        graph, reasons = self._graph(verdict.execution), self._reasons(run, verdict.scope)
        placed = [(step, self._placed(run, graph[dot])) for step, dot in verdict.steps]
        taken = tuple((step, event.event) for step, event in placed)
        steps = tuple(
            reasons.of(step, live, event)
            for (step, event), live in zip(placed, reasons.taking(taken), strict=True)
        )
        of_run = functools.partial(self._placed, run)
        pairs = tuple(
            pair_reason(graph, of_run, one, other) for (_, one), (_, other) in pairwise(placed)
        )
        statements: tuple[str, ...] = ()
        extension: tuple[PlacedEvent, ...] = ()
        if isinstance(verdict, TimedOut):
            statements = (f"`{reasons.window_text}` was over before a match",)
        elif run.compiled.pattern.mode is not None:
            extension = self._ordered(run, witness(run, run.events, verdict))
        return Explanation(
            verdict.pattern,
            verdict,
            statements=statements,
            extension=extension,
            steps=steps,
            pairs=pairs,
        )

    def _of_violation(self, run: ObservedRun, verdict: Violation) -> Explanation:
        extension: tuple[Event, ...] = ()
        if run.compiled.pattern.mode is not None:
            extension = witness(run, run.events, verdict)
            run = self.played(run, extension)
        offer = next(offer for offer in run.offers if verdict in offer.verdicts)
        return self._of_offer(run, offer, verdict, self._ordered(run, extension))

    def played(self, run: ObservedRun, extension: Iterable[Event]) -> ObservedRun:
        """Return the run of a pattern over one linear extension."""
        played = ObservedRun(
            run.compiled,
            run.limits,
            wanted=self._is_wanted,
            moves_max=self._moves_max,
            execution=run.execution,
        )
        for event in extension:
            played.process((event,))
        return played

    def _ordered(self, run: ObservedRun, events: Sequence[Event]) -> tuple[PlacedEvent, ...]:
        return tuple(self._placed(run, event) for event in events)

    def _of_incomplete(self, run: ObservedRun, verdict: Incomplete) -> Explanation:
        read = next(read for ended, read in run.ended if ended == verdict)
        placed = tuple((step, self._placed(run, event)) for step, event in read())
        ended = RunReason(verdict.state, placed)
        expected = " or ".join(verdict.expected) or "nothing"
        return Explanation(
            verdict.pattern,
            verdict,
            statements=(f"the log ended where {expected} was still expected",),
            runs=(ended,),
        )

    # --- what did not match ---

    def near_misses(self) -> Iterator[Explanation]:
        """Yield, for each find that matched nothing, how far it came and what nearly went on."""
        assert self.verdicts is not None  # judged
        for run in self.runs:
            compiled = run.compiled
            counts = self.summary["patterns"][compiled.name]
            if compiled.kind != "find" or compiled.pattern.mode is not None or counts["matches"]:
                continue
            if run.offered_scopes():
                yield self._of_near_miss(run)
                continue
            reasons = [one["message"] for one in counts.get("vacuous", ())]
            for name, lack in _UNJUDGED.items():
                if number := counts[name]:
                    events = "event lacks" if number == 1 else "events lack"
                    reasons.append(f"{number:,} {events} {lack}")
            yield Explanation(
                compiled.name,
                execution=run.execution,
                statements=("no event was judged", *(f"  {reason}" for reason in reasons)),
            )

    def _of_near_miss(self, run: ObservedRun) -> Explanation:
        taken, scope = self._furthest(run)
        reasons = self._reasons(run, scope)
        live = reasons.after(taken)
        candidates = following(run, run.offered(scope), live)
        looked_at = tuple(islice(candidates, run.limits.near_misses_max + 1))
        judged = self._ordered(run, looked_at[: run.limits.near_misses_max])
        cut = len(looked_at) > len(judged)
        state = run.machine.automaton.named((live.configuration.state,))
        names = " or ".join(run.machine.automaton.expected((live.configuration.state,)))
        statements = () if judged else (f"no event after it could be {names}",)
        if cut:
            most = run.limits.near_misses_max
            statements = (f"the first {most:,} events after it are judged (near_misses_max)",)
        return Explanation(
            run.compiled.name,
            scope=scope,
            execution=run.execution,
            statements=statements,
            runs=(RunReason(state, tuple((step, self._placed(run, e)) for step, e in taken)),),
            near=tuple(nearest(reasons, live, judged)),
        )

    def _furthest(self, run: ObservedRun) -> tuple[History, FrozenMapping]:
        """Return what a run of a find took that came furthest, and its scope."""
        events = {event.dot: event for event in run.events}
        for compiled in beginnings(run.compiled):
            program = Program((compiled,), self._program.file, ())
            found = JudgedLog(program, run.events, run.limits).verdicts
            match = next((one for one in found if isinstance(one, Match)), None)
            if match is not None:
                taken = tuple((step, events[dot]) for step, dot in match.steps)
                return taken, match.scope
        return (), max(run.offered_scopes(), key=lambda one: len(run.offered(one)))

    # --- an event ---

    def of_event(self) -> Iterator[Explanation]:
        """Yield what each pattern made of the event that was asked for.

        Raises
        ------
        SettingError
            If the log has no such event.
        """
        dot, met = self._event, False
        assert dot is not None
        assert self.verdicts is not None  # judged
        for run in self.runs:
            event = next((event for event in run.events if event.dot == dot), None)
            if event is None:
                continue
            met = True
            offers = [offer for offer in run.offers if offer.seen.dot == dot]
            for offer in offers:
                yield self._of_offer(run, offer)
            if not offers and run.compiled.pattern.mode is not None:
                said = f"`mode {run.compiled.pattern.mode}` judges it in every order; {_VERDICT}"
                yield self._of_event(run, event, said)
            elif not offers:
                yield self._of_unoffered(run, event)
        if not met:
            raise SettingError(f"no run was offered an event {dot}{self._near(dot)}")

    def _near(self, dot: Dot) -> str:
        """Return what there is in place of an event."""
        if any(event.dot == dot for events in self._events.values() for event in events):
            return ": the log has it, and it was late or refused"
        own = [e.counter for events in self._events.values() for e in events if e.node == dot.node]
        if not own:
            nodes = sorted({e.node for events in self._events.values() for e in events})
            return f": the log has no node {dot.node}; it has {', '.join(nodes[:5])}"
        return f": of {dot.node} the log has {dot.node}@{min(own)} to {dot.node}@{max(own)}"

    def _of_unoffered(self, run: ObservedRun, event: Event) -> Explanation:
        """Return why a pattern offered an event to no scope."""
        failed = list(self._reasons(run, FrozenMapping(())).of_alphabet(event))
        if len(failed) == len(run.compiled.events):
            said = ["it is no event of the pattern:", *(f"  {one}" for one in failed)]
        elif run.scopes.name_of(event) is None:
            said = ["it lacks the time of the window, or a key of `partition by`"]
        else:
            said = ["no copy of the pattern was offered it"]
        return self._of_event(run, event, *said)

    def _of_event(self, run: ObservedRun, event: Event, *said: str) -> Explanation:
        """Return what there is to say of an event that no single run was offered."""
        return Explanation(
            run.compiled.name,
            event=self._placed(run, event),
            execution=run.execution,
            statements=said,
        )

    def _of_offer(
        self,
        run: ObservedRun,
        offer: Offer,
        verdict: Violation | None = None,
        extension: tuple[PlacedEvent, ...] = (),
    ) -> Explanation:
        """Return what the runs of a scope made of an event."""
        event = self._placed(run, offer.seen.event)
        reasons = self._reasons(run, offer.scope)
        live, cut = offer.live, offer.cut
        if run.compiled.strategy == "any":
            live, cut = run.partial_matches(offer)
        runs = tuple(self._of_run(run, reasons, one, event) for one in live)
        statements = [] if verdict is not None else [str(one) for one in offer.verdicts]
        if offer.halted:
            statements.append("the run had ended before, at a violation (`on violation halt`)")
        if cut:
            most = run.limits.explained_runs_max
            statements.append(f"there are more than {most:,} runs (limit explained_runs_max)")
        return Explanation(
            run.compiled.name,
            verdict,
            event,
            scope=offer.scope,
            learned_by=self._learned_by(run, offer),
            execution=run.execution,
            statements=tuple(statements),
            extension=extension,
            # Those that had come furthest first.
            runs=tuple(sorted(runs, key=lambda one: -len(one.taken))),
        )

    def _learned_by(self, run: ObservedRun, offer: Offer) -> PlacedEvent | None:
        """Return the event with which the node of a copy learned of another node's event."""
        event, deployment = offer.seen.event, run.compiled.pattern.deployment
        if deployment is None or deployment.everything or event.node == offer.node:
            return None
        own = (
            one
            for one in run.events
            if one.node == offer.node
            and (event.dot in one.receives if deployment.receiving else happened_before(event, one))
        )
        first = min(own, key=lambda one: one.counter, default=None)
        return None if first is None else self._placed(run, first)

    def _of_run(
        self, run: ObservedRun, reasons: StepReasons, live: LiveRun, event: PlacedEvent
    ) -> RunReason:
        state = run.machine.automaton.named((live.configuration.state,))
        taken = tuple((step, self._placed(run, one)) for step, one in live.taken)
        return RunReason(state, taken, reasons.expected(live, event))


_UNJUDGED: dict[Literal["unscoped", "untimed"], str] = {
    "unscoped": "the key of `partition by`",
    "untimed": "the time that `within` needs",
}
_VERDICT = "the explanation of a verdict shows the one that gives it"
