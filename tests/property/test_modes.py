"""All search modes of the engine agree over executions that are too long for the oracle."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, reject

import ketal
from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.compiler.pipeline import compile_pattern
from ketal.errors import PatternError
from ketal.model.events.event import Event
from tests.outcomes import TooManyError
from tests.property.executions import execution
from tests.property.long_patterns import TYPES, long_pattern
from tests.property.modes import compared
from tests.property.patterns import REFUSED, pattern_file
from tests.sampling import chances, examples, sample

EVENTS = 60


def long_case(rng: random.Random) -> tuple[CompiledPattern, list[Event]] | None:
    """Return a `find any` and an execution of 60 events; None if the pattern is refused."""
    try:
        if rng.random() < 0.7:
            compiled = ketal.compile(long_pattern(rng)).compiled[0]
        else:
            file = pattern_file(rng, strategy="any", without=("deployment", "localhost"))
            pattern = replace(file.patterns[0], returns=None)
            compiled = compile_pattern(file, pattern)
    except PatternError as error:
        if not {d.code for d in error.diagnostics} <= REFUSED:
            raise
        return None
    return compiled, execution(rng, events_min=EVENTS, events_max=EVENTS, types=TYPES, untimed=0.05)


def test_all_search_modes_find_the_same_matches() -> None:
    """The orders of an execution, one batch or many, with bounds and without, saved and not."""
    few = sample(27, 5_000)
    matched = 0

    @examples(few)
    @given(chances(2_048))
    def holds(rng: random.Random) -> None:
        nonlocal matched
        case = long_case(rng)
        if case is None:
            reject()
        try:
            differ, found = compared(*case, rng)
        except TooManyError:
            reject()
        assert not differ
        matched += bool(found)

    holds()
    assert matched > few / 2, "the cases must not be empty ones"
