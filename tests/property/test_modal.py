"""`possibly` and `definitely` against every linear extension, one by one (DESIGN 4)."""

from __future__ import annotations

import pytest

import ketal
from ketal.compiler import compile_pattern
from ketal.errors import SettingError
from ketal.limits import Limits
from ketal.program import Program
from tests.cases import e
from tests.engine import outcome
from tests.property.test_engine import cases, extensions


def test_modal_answers_are_those_of_all_linear_extensions() -> None:
    """Some linear extension, every linear extension: by the lattice and by enumeration."""
    open_cases = 0
    seeds = range(600_000, 600_250)
    every = [
        *cases(seeds, events_max=6, linear=True, kind="check"),
        *cases(seeds, events_max=6, linear=True, strategy="next"),
        *cases(seeds, events_max=6, linear=True, strategy="strict"),
        *cases(seeds, events_max=6, linear=True, strategy="any"),
    ]
    for seed, file, events in every:
        orders = extensions(events)
        if orders is None:
            continue
        outcomes = [outcome(file, events, released=order) for order in orders]
        said = [bool(o.matches or o.violations) for o in outcomes]
        program = Program((compile_pattern(file, file.patterns[0]),), file)
        assert ketal.possibly(program, events) is any(said), f"seed {seed}"
        assert ketal.definitely(program, events) is all(said), f"seed {seed}"
        open_cases += any(said) and not all(said)
    assert open_cases > 10


CHECK = """
pattern P {
    event A = type == "a";
    event B = type == "b";
    check A B;
}
"""


def test_concurrent_events_violate_possibly_not_definitely() -> None:
    """`A B` of two concurrent events: one order is allowed, the other is not."""
    events = [e("n1@1", "a"), e("n2@1", "b")]
    program = ketal.compile(CHECK)
    assert ketal.possibly(program, events)
    assert not ketal.definitely(program, events)
    ordered = [e("n1@1", "a"), e("n2@1", "b", "n1:1")]
    assert not ketal.possibly(program, ordered)


def test_the_limit_is_named() -> None:
    """More cuts than `cuts_max` is an error that names it."""
    events = [e(f"n{i}@1", "a") for i in range(8)]
    program = ketal.compile(CHECK.replace("A B", "(A | B)* A B"))
    with pytest.raises(SettingError, match="cuts_max"):
        ketal.possibly(program, events, limits=Limits(cuts_max=10))
