"""The engine's verdicts in the oracle's form, for tests that compare the two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ketal import semantics
from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.compiler.pipeline import compile_pattern
from ketal.engine.pattern_run import PatternRun
from ketal.engine.verdict_building import flat
from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical
from ketal.model.frozen_mapping import ScopeKey
from ketal.model.limits import Limits
from ketal.model.syntax import File
from ketal.model.verdicts.check_verdicts import Incomplete, Violation
from ketal.model.verdicts.find_verdicts import Match, TimedOut
from ketal.model.verdicts.identified_verdict import IdentifiedVerdict
from ketal.model.verdicts.run_verdicts import Overflow
from ketal.model.verdicts.verdict_kinds import RunVerdict
from tests.sampling import sample

LIMITS = Limits(matches_per_event_max=sample(1_000, 5_000), visits_max=sample(10_000, 100_000))


class TooManyError(Exception):
    """The case has more matches than a test of equality needs: a limit was reached."""


def outcome(
    file: File,
    events: Sequence[Event],
    *,
    params: Mapping[str, Any] | None = None,
    released: Sequence[Event] | None = None,
    name: str = "P",
) -> semantics.Outcome:
    """Return what the engine says of one pattern over one finite execution.

    Parameters
    ----------
    released : sequence of Event, optional
        The order to offer the events in; default the pattern's own order.
    """
    compiled = listing(file, name) if params is None else _compiled(file, name, params)
    if released is None:
        released = canonical(events) if compiled.causal else events
    return outcome_of(compiled, released)


def listing(file: File, name: str = "P") -> CompiledPattern:
    """Return a pattern as the oracle judges it: with matches listed despite `return count`.

    The newest pattern is cached, because a property compiles that of its case repeatedly.
    """
    global _newest
    if _newest is None or _newest[0] is not file or _newest[1].pattern.name != name:
        _newest = file, _compiled(file, name)
    return _newest[1]


_newest: tuple[File, CompiledPattern] | None = None


def _compiled(file: File, name: str, params: Mapping[str, Any] | None = None) -> CompiledPattern:
    (pattern,) = [p for p in file.patterns if p.name == name]
    if pattern.returns is not None and pattern.returns.count:
        pattern = replace(pattern, returns=None)
    return compile_pattern(file, pattern, params=params)


def outcome_of(
    compiled: CompiledPattern, released: Sequence[Event], limits: Limits = LIMITS
) -> semantics.Outcome:
    """Return the engine's outcome for a compiled pattern and events in this order."""
    run = PatternRun(compiled, limits)
    verdicts: list[RunVerdict] = []
    for event in released:
        verdicts += flat(run.process((event,)))
        run.validate_state()
    if any(isinstance(v, Overflow) for v in verdicts):
        raise TooManyError
    return collected(run, [*verdicts, *run.steps.close()])


def key(verdict: IdentifiedVerdict) -> ScopeKey:
    """Return a verdict's scope in the oracle's form."""
    return tuple(verdict.scope.items())


def collected(run: PatternRun, verdicts: Sequence[Any]) -> semantics.Outcome:
    """Return a run's verdicts and counts as an Outcome."""
    return semantics.Outcome(
        matches=[(key(v), v.steps, v.returns) for v in verdicts if isinstance(v, Match)],
        violations=[(key(v), v.event, v.expected) for v in verdicts if isinstance(v, Violation)],
        incomplete=[(key(v), v.expected) for v in verdicts if isinstance(v, Incomplete)],
        timed_out=[(key(v), v.steps) for v in verdicts if isinstance(v, TimedOut)],
        unscoped=run.counts.unscoped,
        untimed=run.counts.untimed,
        halted=run.counts.halted,
    )
