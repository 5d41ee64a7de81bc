"""`ketal.explain`: why each verdict of a finite log holds, and why an event was not taken.

The log is judged once (`ketal.explanation.judged_log`). An explanation is of a verdict, of an event
(whether the runs of each pattern took it), or of a `find` without a match (`near_misses`). Guards
are evaluated by the definition of the language (`guard_evidence`), and paths are those of the log's
causal graph (`causal_graph`).

The one rule: every verdict explained is one that `ketal.run` gives, and a run is shown in its state
when its scope was offered the event.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from ketal.errors import SettingError, wrong_type
from ketal.explanation.guard_evidence import order_in_words, possible_order_in_words
from ketal.explanation.judged_log import Explained, JudgedLog
from ketal.explanation.near_misses import near_misses
from ketal.explanation.observed_run import LiveRun, ObservedRun, Offer, take_first
from ketal.explanation.partial_matches import partial_matches
from ketal.explanation.reasons import Explanation, PairReason, PlacedEvent, RunReason
from ketal.explanation.step_reasons import StepReasons
from ketal.explanation.surroundings import rows_around
from ketal.logs import Log
from ketal.model.events.causal_graph import missing_event_hint
from ketal.model.events.dot import Dot, given_dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import concurrent
from ketal.model.frozen_mapping import FrozenMapping
from ketal.model.limits import Limits
from ketal.model.values import base_node
from ketal.model.verdicts.check_verdicts import Incomplete, Violation
from ketal.model.verdicts.find_verdicts import Match, TimedOut
from ketal.model.verdicts.identified_verdict import IdentifiedVerdict
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.model.wording import counted
from ketal.pictures.text_diagram import text_diagram
from ketal.programs.program import Program

FIRST = 10
"""How many verdicts are explained by default."""


def explain(
    program: Program,
    log: Log | Iterable[Event],
    *,
    verdict: IdentifiedVerdict | str | None = None,
    event: Dot | str | None = None,
    first: int = FIRST,
    limits: Limits | None = None,
) -> tuple[Explanation, ...]:
    """Return why the verdicts of a finite log hold, or why an event was taken or not.

    Parameters
    ----------
    program : Program
        The patterns.
    log : Log or iterable of Event
        The events.
    verdict : verdict or str, optional
        Explain this verdict only: the verdict itself, its id, or a prefix of its id.
    event : Dot or str, optional
        Explain instead whether the runs of each pattern took this event, as `n3@7`, and why.
    first : int
        How many verdicts are explained if neither is given: matches, violations, incomplete checks
        and windows that timed out.
    limits : Limits, optional
        Limits that replace those of the program; `explained_runs_max` bounds the runs explained for
        an event, `path_links_max` the paths between two events.

    Raises
    ------
    SettingError
        If no verdict or event is the one given, or several are.
    TypeError
        If an argument has the wrong type.

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
        last event of a known to b@1: none
        last event of b known to a@1: none
      Second = b@1 write
        type == "write" holds: type is "write"
        Conc(Write) holds: a@1 and b@1 are concurrent: b@1 knows a:0 < 1, a@1 knows b:0 < 1
    """
    if verdict is not None and event is not None:
        raise SettingError("explain a verdict or an event, not both")
    name = verdict.id if isinstance(verdict, IdentifiedVerdict) else verdict
    if not isinstance(name, str | None):
        raise wrong_type("verdict", "a verdict of a pattern, or an id as a str", verdict)
    if not isinstance(first, int):
        raise wrong_type("first", "an int", first)
    if first < 0:
        raise SettingError(f"first must be 0 or more, not {first}")
    dot = None if event is None else given_dot(event)
    judged = JudgedLog(program, log, limits, event=dot)
    return explanations(judged, verdict=name, first=first)


def explanations(
    judged: JudgedLog, *, verdict: str | None = None, first: int = FIRST
) -> tuple[Explanation, ...]:
    """Return the explanations of a judged log: of its event, of one verdict, or of the first ones.

    A SettingError if there is no such verdict or event, or several.
    """
    if judged.event is not None:
        return tuple(explain_event(judged, judged.event))
    if verdict is not None:
        return (explain_verdict(judged, judged.verdict_by_id(verdict)),)
    verdicts = [explain_verdict(judged, one) for one in judged.explainable[:first]]
    left = range(first - len(verdicts))
    return (*verdicts, *(one for _, one in zip(left, near_misses(judged), strict=False)))


# --- verdicts ---------------------------------------------------------------


def explanation_of(judged: JudgedLog, verdict: Verdict) -> Explanation | None:
    """Return why a verdict holds; None for a kind of verdict that explains itself."""
    return explain_verdict(judged, verdict) if isinstance(verdict, Explained) else None


def diagram(judged: JudgedLog, explanation: Explanation) -> list[str]:
    """Return the events around a verdict as a space-time diagram in text."""
    verdict = explanation.verdict
    assert isinstance(verdict, Explained)
    rows = rows_around(explanation, judged.graph(verdict.execution))
    note = possible_order_in_words(judged.run_of(verdict).compiled.undecided)
    return [*filter(None, [note]), *text_diagram(rows)] if rows else []


def explain_verdict(judged: JudgedLog, verdict: Explained) -> Explanation:
    """Return why a verdict holds."""
    run = judged.run_of(verdict)
    if isinstance(verdict, Violation):
        return _explain_violation(judged, run, verdict)
    if isinstance(verdict, Incomplete):
        return _explain_incomplete(judged, run, verdict)
    return _explain_steps(judged, run, verdict)


def _explain_steps(judged: JudgedLog, run: ObservedRun, verdict: Match | TimedOut) -> Explanation:
    graph = judged.graph(verdict.execution)
    extension: tuple[Event, ...] = ()
    if run.compiled.pattern.mode is not None and isinstance(verdict, Match):
        extension = judged.witness(run, verdict)
    reasons = StepReasons(run, verdict.scope, extension)
    taken = tuple((step, graph[dot]) for step, dot in verdict.steps)
    placed = judged.placed_steps(run, taken)
    *before, last = reasons.replay(taken)
    steps = tuple(
        reasons.reason(step, live, event)
        for (step, event), live in zip(placed, before, strict=True)
    )
    placed_in_run = functools.partial(judged.placed, run)
    limit, undecided = run.limits.path_links_max, run.compiled.undecided
    pair_of = functools.partial(
        PairReason.of, graph, placed_in_run, links_max=limit, undecided=undecided
    )
    pairs = tuple(pair_of(one, other) for (_, one), (_, other) in pairwise(taken))
    statements: tuple[str, ...] = ()
    if isinstance(verdict, TimedOut):
        expected = " or ".join(reasons.expected_steps(last))
        statements = (
            f"the window `{reasons.window_text}` ended before a match; expected {expected}",
        )
    return Explanation(
        verdict.pattern,
        verdict,
        statements=statements,
        extension=tuple(map(placed_in_run, extension)),
        steps=steps,
        pairs=pairs,
    )


def _explain_violation(judged: JudgedLog, run: ObservedRun, verdict: Violation) -> Explanation:
    extension: Sequence[Event] = ()
    if run.compiled.pattern.mode is not None:
        extension = judged.witness(run, verdict)
        run = judged.rerun(run, extension)
    # By its id: a run over one extension has no losses, so its verdicts are never uncertain.
    offer = run.observed.violated[verdict.id]
    placed = tuple(judged.placed(run, event) for event in extension)
    return explain_offer(judged, run, offer, verdict, placed)


def _explain_incomplete(judged: JudgedLog, run: ObservedRun, verdict: Incomplete) -> Explanation:
    read = run.observed.ended[verdict.id]
    expected = " or ".join(verdict.expected)
    ended = f"while {expected} was still expected" if expected else "in a state that no step leaves"
    return Explanation(
        verdict.pattern,
        verdict,
        statements=(f"the log ended {ended}",),
        runs=(RunReason(verdict.state, judged.placed_steps(run, read())),),
    )


# --- events -----------------------------------------------------------------


def explain_event(judged: JudgedLog, dot: Dot) -> Iterator[Explanation]:
    """Yield, for each pattern, whether its runs took an event of the log; SettingError if none."""
    runs = [(run, event) for run in judged.runs for event in run.events if event.dot == dot]
    if not runs:
        raise SettingError(_why_no_run(judged, dot))
    for run, event in runs:
        for offer in run.observed.offers:
            yield explain_offer(judged, run, offer)
        if not run.observed.offers:
            yield Explanation(
                run.compiled.name,
                event=judged.placed(run, event),
                execution=run.execution,
                statements=tuple(_why_unoffered(run, event)),
            )


def _why_no_run(judged: JudgedLog, dot: Dot) -> str:
    """Return the reason why no run was offered an event."""
    for run in judged.runs:
        for event in run.events:
            if event.counter == dot.counter and base_node(event.node) == dot.node:
                return f"no run was offered {dot}: {dot.node} restarted; did you mean {event.dot}?"
    if any(event.dot == dot for event in judged.events):
        return f"no run was offered {dot}: it is in the log, but was late or refused"
    return f"the log has no event {dot}{missing_event_hint(dot, judged.events)}"


def _why_unoffered(run: ObservedRun, event: Event) -> Iterator[str]:
    """Yield the reason why no scope of a pattern was offered an event, as lines of text."""
    mode = run.compiled.pattern.mode
    if mode is not None:
        yield (
            f"`mode {mode}` evaluates every order of the events; the explanation of a verdict "
            "shows the order that yields it"
        )
        return
    failed = list(StepReasons(run, FrozenMapping(())).alphabet_failures(event))
    if len(failed) == len(run.compiled.events):
        yield "it is not an event of the pattern:"
        yield from (f"  {one}" for one in failed)
    elif run.scopes.name_of(event) is None:
        yield "it lacks the time that `within` needs, or a key of `partition by`"
    else:
        yield "it was not offered to any copy of the pattern"


def explain_offer(
    judged: JudgedLog,
    run: ObservedRun,
    offer: Offer,
    verdict: Violation | None = None,
    extension: tuple[PlacedEvent, ...] = (),
) -> Explanation:
    """Return why the runs of a scope took an event that they were offered, or did not.

    `verdict` is the violation to explain, if any; `extension` is the linear extension that gives
    it, for a verdict of a `mode`.
    """
    event = judged.placed(run, offer.seen.event)
    reasons = StepReasons(run, offer.scope)
    live, cut = offer.live, offer.cut
    if run.compiled.strategy == "any":
        live, cut = take_first(partial_matches(run, offer), run.limits.explained_runs_max)
    runs = [_run_reason(judged, run, reasons, one, event) for one in live]
    statements = [str(one) for one in offer.verdicts]
    if verdict is not None:
        statements = list(_concurrent_priors(runs, event.event))
    if offer.halted:
        statements.append("the run had already ended at a violation (`on violation halt`)")
    if cut:
        most = run.limits.explained_runs_max
        statements.append(f"stopped after {counted(most, 'run')} (limit explained_runs_max)")
    return Explanation(
        run.compiled.name,
        verdict,
        event,
        scope=offer.scope,
        learned_by=None if offer.by.dot == offer.seen.dot else judged.placed(run, offer.by),
        execution=run.execution,
        statements=tuple(statements),
        extension=extension,
        # The runs with the most steps first.
        runs=tuple(sorted(runs, key=lambda one: -len(one.taken))),
    )


def _concurrent_priors(runs: Sequence[RunReason], event: Event) -> Iterator[str]:
    """Yield each run's last event that is concurrent with an event, if no guard's evidence says so.

    The order in which the run was offered the two is then one of several.
    """
    steps = (step for run in runs for step in run.steps or ())
    shown = " ".join(one.because for step in steps for one in step.evidence)
    for prior in dict.fromkeys(run.taken[-1][1].event for run in runs if run.taken):
        if concurrent(prior, event) and (sentence := order_in_words(prior, event)) not in shown:
            yield sentence


def _run_reason(
    judged: JudgedLog, run: ObservedRun, reasons: StepReasons, live: LiveRun, event: PlacedEvent
) -> RunReason:
    state = run.machine.automaton.named((live.configuration.state,))
    taken = judged.placed_steps(run, live.taken)
    return RunReason(state, taken, reasons.expected(live, event))
