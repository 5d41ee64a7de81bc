"""Near misses: how far a `find` without a match came, and which events nearly continued it.

The engine finds a longest partial match: the prefixes of the body, the longest first, are compiled
as patterns of their own, until one has a match. The events that the scope was offered are then
judged against the steps expected next, by the definition of the language.

The one rule: a partial match shown is of the pattern's own steps, and no event could continue it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from heapq import nsmallest
from typing import Literal

from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.compiler.pipeline import compile_pattern
from ketal.engine.configurations import Seen
from ketal.errors import PatternError
from ketal.explanation.judged_log import JudgedLog
from ketal.explanation.observed_run import LiveRun, ObservedRun, take_first
from ketal.explanation.partial_matches import may_follow
from ketal.explanation.reasons import Explanation, PlacedEvent, RunReason, StepReason
from ketal.explanation.step_reasons import StepReasons
from ketal.model import syntax
from ketal.model.events.event import Event
from ketal.model.frozen_mapping import FrozenMapping
from ketal.model.syntax_walks import walk
from ketal.model.verdicts.find_verdicts import Match
from ketal.model.wording import counted
from ketal.programs.program import Program
from ketal.semantics import History

SHOWN = 3
"""How many of the nearest events are shown."""
_UNJUDGED: dict[Literal["unscoped", "untimed"], str] = {
    "unscoped": "the key of `partition by`",
    "untimed": "the time that `within` needs",
}


def near_misses(judged: JudgedLog) -> Iterator[Explanation]:
    """Yield, for each find without a match, how far it came and the events that came nearest."""
    for run in judged.runs:
        compiled = run.compiled
        counts = judged.summary["patterns"][compiled.name]
        if compiled.kind != "find" or compiled.pattern.mode is not None or counts["matches"]:
            continue
        if run.observed.offered_scopes():
            yield _near_miss(judged, run)
            continue
        reasons = [one["message"] for one in counts.get("vacuous", ())]
        for name, lack in _UNJUDGED.items():
            if number := counts[name]:
                reasons.append(f"{counted(number, 'event lacks', 'events lack')} {lack}")
        yield Explanation(
            compiled.name,
            execution=run.execution,
            statements=("no event was evaluated", *(f"  {reason}" for reason in reasons)),
        )


def _near_miss(judged: JudgedLog, run: ObservedRun) -> Explanation:
    taken, scope = _longest_partial_match(judged, run)
    reasons = StepReasons(run, scope)
    *_, live = reasons.replay(taken)
    most = run.limits.near_misses_max
    offered = run.observed.offered(scope).values()
    following, cut = take_first(_possible_successors(run, offered, live), most)
    candidates = [judged.placed(run, event) for event in following]
    state = run.machine.automaton.named((live.configuration.state,))
    names = " or ".join(reasons.expected_steps(live))
    statements = () if candidates else (f"no event can follow the partial match; expected {names}",)
    if cut:
        statements = (f"stopped after {counted(most, 'candidate')} (limit near_misses_max)",)
    return Explanation(
        run.compiled.name,
        scope=scope,
        execution=run.execution,
        statements=statements,
        runs=(RunReason(state, judged.placed_steps(run, taken)),),
        near=tuple(_nearest_reasons(reasons, live, candidates)),
    )


def _longest_partial_match(judged: JudgedLog, run: ObservedRun) -> tuple[History, FrozenMapping]:
    """Return the steps of a longest partial match of a find, and its scope."""
    events = {event.dot: event for event in run.events}
    for compiled in _prefixes(run.compiled):
        program = Program((compiled,), judged.program.file)
        verdicts = JudgedLog(program, run.events, run.limits).verdicts
        match = next((one for one in verdicts if isinstance(one, Match)), None)
        if match is not None:
            taken = tuple((step, events[dot]) for step, dot in match.steps)
            return taken, match.scope
    return (), max(run.observed.offered_scopes(), key=lambda one: len(run.observed.offered(one)))


def _prefixes(compiled: CompiledPattern) -> Iterator[CompiledPattern]:
    """Yield the proper prefixes of a pattern's body as patterns, the longest first.

    A prefix ends between two blocks of the sequence. Prefixes that may be empty, and so are no
    patterns, are skipped.
    """
    pattern = compiled.pattern
    items = pattern.body.items if isinstance(pattern.body, syntax.Sequence) else ()
    registered = {guard.name: guard for guard in compiled.registered}
    for length in range(len(items) - 1, 0, -1):
        blocks = items[:length]
        if isinstance(blocks[-1], syntax.Absent):
            continue
        body = blocks[0] if length == 1 else syntax.Sequence(blocks)
        assert not isinstance(body, syntax.Absent)
        steps = {node.name for node in walk(body) if isinstance(node, syntax.Step)}
        prefix = replace(
            pattern,
            body=body,
            declarations=tuple(
                one
                for one in pattern.declarations
                if isinstance(one, syntax.EventDecl) or one.name in steps
            ),
            returns=None,
            limit=1,
        )
        # Each name is declared in the pattern, or is an event that the file declares for all.
        shared = tuple(event for event in compiled.named_events if event not in pattern.events)
        file = syntax.File((prefix,), events=shared)
        try:
            yield compile_pattern(
                file,
                prefix,
                registered=registered,
                limits=compiled.limits,
                undecided=compiled.undecided,
            )
        except PatternError:
            continue


def _possible_successors(
    run: ObservedRun, offered: Collection[Seen], live: LiveRun
) -> Iterator[Event]:
    """Yield the events of a scope that may follow every event that a run has taken."""
    taken = {event.dot for _, event in live.taken}
    before = [seen for seen in offered if seen.dot in taken]
    for seen in offered:
        if seen.dot not in taken and all(may_follow(run.machine, one, seen) for one in before):
            yield seen.event


def _nearest_reasons(
    reasons: StepReasons, live: LiveRun, candidates: Sequence[PlacedEvent]
) -> list[StepReason]:
    """Return why the nearest events do not satisfy the steps that a run expects.

    The nearest events fail the fewest conditions of a step; of equals, the nearest is the one whose
    first failure is latest in the text of the guard.
    """
    judged = (
        (distance, number, one)
        for number, event in enumerate(candidates)
        for distance, one in reasons.misses(live, event)
    )
    return [one for _, _, one in nsmallest(SHOWN, judged, key=lambda one: one[:2])]
