"""Small cases for comparing the engine with the oracle, in every admissible order of events."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from ketal import semantics
from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.compiler.pipeline import compile_pattern
from ketal.errors import PatternError
from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical
from ketal.model.limits import Limits
from ketal.model.syntax import File
from tests.cases import facts
from tests.outcomes import TooManyError, outcome_of
from tests.property import modes
from tests.property.executions import execution
from tests.property.patterns import REFUSED, pattern_file

LIMITS = Limits(matches_per_event_max=500, visits_max=10_000)


class SmallCase(NamedTuple):
    """A file whose only pattern is P, an execution in arrival order, and the oracle's facts."""

    file: File
    compiled: CompiledPattern
    events: list[Event]
    expected: dict[str, Any]


def small_case(
    rng: random.Random, strategy: Literal["any"] | None = None, *, events_max: int = 10
) -> SmallCase | None:
    """Return a case of the given or any strategy; None if it is refused or not small."""
    file = pattern_file(rng, strategy=strategy)
    events = execution(rng, events_max=events_max)
    compiled = compiled_of(file)
    return None if compiled is None else judged(compiled, events)


def compiled_of(file: File) -> tuple[File, CompiledPattern] | None:
    """Return a file (without `return count`) and its compiled pattern; None if it is refused."""
    pattern = file.patterns[0]
    if pattern.returns is not None and pattern.returns.count:
        # The oracle lists matches, which `return count` only counts.
        file = replace(file, patterns=(replace(pattern, returns=None),))
    try:
        return file, compile_pattern(file, file.patterns[0])
    except PatternError as error:
        if not {d.code for d in error.diagnostics} <= REFUSED:
            raise
        return None


def judged(pattern: tuple[File, CompiledPattern], events: list[Event]) -> SmallCase | None:
    """Return the case of a pattern and an execution; None if it is not small."""
    file, compiled = pattern
    try:
        # If brute force takes long, the engine has many matches and raises first.
        outcome_of(compiled, canonical(events) if compiled.causal else events, LIMITS)
        return SmallCase(file, compiled, events, facts(semantics.judge(file, "P", events)))
    except (TooManyError, semantics.TooManyProbesError):
        return None


def differing_orders(case: SmallCase, rng: random.Random) -> list[str]:
    """Return the orders in which the engine and the oracle differ.

    Raises
    ------
    TooManyError
        If a search visits more events than a test needs.
    """
    return [
        name
        for name, order in _orders(case, rng)
        if facts(outcome_of(case.compiled, order, LIMITS)) != case.expected
    ]


def _orders(case: SmallCase, rng: random.Random) -> Iterator[tuple[str, list[Event]]]:
    """Yield the orders for which the oracle's answer is valid."""
    compiled = case.compiled
    for number, order in enumerate(modes.orders(compiled, case.events, rng)):
        # Runs of `next` and `strict`, and a window of events, depend on the order offered.
        if not number or (compiled.strategy == "any" and compiled.window_events is None):
            yield order
