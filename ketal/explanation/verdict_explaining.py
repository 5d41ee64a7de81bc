"""Why a verdict of a judged log holds.

The evidence of guards is that of the definition (`ketal.explanation.guard_evidence`), the chains of
messages that of the log's causal graph (`ketal.explanation.causal_graph`).

The one rule: what is explained is the verdict that `ketal.run` gives.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import pairwise

from ketal.explanation.comparisons.event_pairs import pair_reason
from ketal.explanation.event_explaining import offer_explained
from ketal.explanation.judged_log import Explained, JudgedLog
from ketal.explanation.observed_runs.observed_run import ObservedRun
from ketal.explanation.reasons import Explanation, PlacedEvent, RunReason
from ketal.explanation.step_reasons import StepReasons
from ketal.explanation.surroundings import rows_around
from ketal.model.events.event import Event
from ketal.model.verdicts.check_verdicts import Incomplete, Violation
from ketal.model.verdicts.find_verdicts import Match, TimedOut
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.pictures.text_diagram import text_diagram
from ketal.runtime.modes.possibly_definitely import witness


def explained(judged: JudgedLog, verdict: Verdict) -> Explanation | None:
    """Return why a verdict holds; None for a kind that says itself what there is to say."""
    return verdict_explained(judged, verdict) if isinstance(verdict, Explained) else None


def diagram(judged: JudgedLog, explanation: Explanation) -> list[str]:
    """Return the events around a verdict as a space-time diagram in text."""
    verdict = explanation.verdict
    assert verdict is not None
    assert isinstance(verdict, Explained)
    rows = rows_around(explanation, judged.graph(verdict.execution))
    return text_diagram(rows) if rows else []


def verdict_explained(judged: JudgedLog, verdict: Explained) -> Explanation:
    """Return why a verdict holds."""
    run = judged.run_of(verdict)
    if isinstance(verdict, Violation):
        return _of_violation(judged, run, verdict)
    if isinstance(verdict, Incomplete):
        return _of_incomplete(judged, run, verdict)
    return _of_taken(judged, run, verdict)


def _of_taken(judged: JudgedLog, run: ObservedRun, verdict: Match | TimedOut) -> Explanation:
    graph, reasons = judged.graph(verdict.execution), StepReasons(run, verdict.scope)
    taken = tuple((step, graph[dot]) for step, dot in verdict.steps)
    placed = judged.placed_steps(run, taken)
    # What the run was after the last step is not asked for.
    steps = tuple(
        reasons.of(step, live, event)
        for (step, event), live in zip(placed, reasons.taking(taken), strict=False)
    )
    of_run = functools.partial(judged.placed, run)
    pairs = tuple(
        pair_reason(graph, of_run, one, other) for (_, one), (_, other) in pairwise(placed)
    )
    statements: tuple[str, ...] = ()
    extension: tuple[PlacedEvent, ...] = ()
    if isinstance(verdict, TimedOut):
        statements = (f"`{reasons.window_text}` was over before a match",)
    elif run.compiled.pattern.mode is not None:
        extension = tuple(map(of_run, witness(run, run.events, verdict)))
    return Explanation(
        verdict.pattern,
        verdict,
        statements=statements,
        extension=extension,
        steps=steps,
        pairs=pairs,
    )


def _of_violation(judged: JudgedLog, run: ObservedRun, verdict: Violation) -> Explanation:
    extension: Sequence[Event] = ()
    if run.compiled.pattern.mode is not None:
        extension = witness(run, run.events, verdict)
        run = judged.played(run, extension)
    # By its id: a run over one extension does not know what was lost, and is never in doubt.
    offer = next(o for o in run.steps.offers if any(v.id == verdict.id for v in o.verdicts))
    placed = tuple(judged.placed(run, event) for event in extension)
    return offer_explained(judged, run, offer, verdict, placed)


def _of_incomplete(judged: JudgedLog, run: ObservedRun, verdict: Incomplete) -> Explanation:
    read = next(read for ended, read in run.steps.ended if ended == verdict)
    expected = " or ".join(verdict.expected) or "nothing"
    return Explanation(
        verdict.pattern,
        verdict,
        statements=(f"the log ended where {expected} was still expected",),
        runs=(RunReason(verdict.state, judged.placed_steps(run, read())),),
    )
