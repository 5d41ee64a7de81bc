"""The machine and the roles of a pattern are made once, and shared by its runs."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import ketal
from ketal.analysis.registered_guards import register_guard
from ketal.compiler.compiled_pattern import derived_once
from ketal.engine.find_any.roles import Roles
from ketal.engine.machine import Machine
from ketal.engine.pattern_run import PatternRun
from ketal.model.limits import DEFAULT
from tests.cases import e
from tests.work import counted_calls

HEAD = 'event A = type == "a"; event B = type == "b" && v > 1; order CausalOrder;'
BODIES = ("find any A B", "find any A+ B A", "find next A B A", "find strict A B", "check (A B)*")
EVENTS = [e("n@1", "a"), e("n@2", "b", v=2), e("n@3", "a")]


@pytest.mark.parametrize("body", BODIES)
def test_second_run_of_a_pattern_needs_less_work(body: str) -> None:
    compiled = ketal.compile(f"pattern P {{ {HEAD} {body}; }}").one

    def run() -> list[Any]:
        return PatternRun(compiled, DEFAULT).process(EVENTS)

    compiled.masks(EVENTS)  # is compiled once as well
    (first, first_calls), (second, calls) = counted_calls(run), counted_calls(run)
    assert second == first
    assert calls < first_calls / 2


def test_runs_share_a_machine_unless_a_guard_reports_to_its_run() -> None:
    compiled = ketal.compile(f"pattern P {{ {HEAD} find any A B; }}").one
    one, two = PatternRun(compiled, DEFAULT), PatternRun(compiled, DEFAULT)
    assert (
        one.machine
        is two.machine
        is derived_once(Machine, compiled)
        is derived_once(Roles, compiled).machine
    )

    def fails(value: object) -> bool:
        raise ValueError(value)

    register_guard("shared_machine_fails", fails, version="1")
    guarded = ketal.compile("pattern P { event A = shared_machine_fails(x); find any A; }").one
    one, two = PatternRun(guarded, DEFAULT), PatternRun(guarded, DEFAULT)
    one.process([e("n@1", "a", x=1), e("n@2", "a", x=2)])
    two.process([e("n@1", "a", x=1)])
    assert (one.counts.guard_failures, two.counts.guard_failures) == (2, 1)


def test_pattern_is_pickled_without_its_machine() -> None:
    compiled = ketal.compile(f"pattern P {{ {HEAD} find any A B; }}").one
    unused = pickle.dumps(compiled)
    PatternRun(compiled, DEFAULT).process(EVENTS)
    _ = compiled.fingerprint
    again = pickle.loads(pickle.dumps(compiled))
    assert again == compiled == pickle.loads(unused)
    assert derived_once(Machine, again) is not derived_once(Machine, compiled)
