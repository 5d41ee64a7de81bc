"""The number of events that satisfied each guard: counted by masks, and one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ketal
from ketal.compiler.predicates import Formula, conjunction, disjunction, evaluate
from ketal.engine.pattern_run import PatternRun
from ketal.engine.statistics import mask_counts
from ketal.engine.statistics.mask_counts import MaskCounts
from ketal.model.events.event import Event
from ketal.model.limits import DEFAULT
from ketal.runtime.batch_run import LogPass

formulas = st.recursive(
    st.booleans() | st.tuples(st.just("var"), st.integers(0, 5), st.booleans()),
    lambda parts: st.builds(conjunction, st.lists(parts)) | st.builds(disjunction, st.lists(parts)),
    max_leaves=6,
)
masks = st.integers(0, 2**7 - 1)  # bits beyond the variables too


@given(formulas, st.lists(formulas, max_size=4), st.lists(st.lists(masks)), st.integers(1, 9))
def test_totals_equal_the_sums_over_single_masks(
    alphabet: Formula, guards: list[Formula], batches: list[list[int]], tables: int
) -> None:
    keys = {guard: repr(guard) for guard in guards}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mask_counts, "MASKS_MAX", tables)
        counts = MaskCounts(alphabet, keys)
        for number, batch in enumerate(batches):
            for mask in batch:
                assert counts.counted(mask).in_alphabet == evaluate(alphabet, mask)
                counts.counted(mask).events += 1
            counts.validate_state()
            if number == 1:  # as in a restarted stream
                saved = counts.save()
                counts = MaskCounts(alphabet, keys)
                counts.load(saved)
        every = [mask for batch in batches for mask in batch]
        assert counts.totals() == {g: sum(evaluate(g, m) for m in every) for g in guards}


def test_guard_that_a_saved_state_lacks_has_no_total() -> None:
    one, other = ("var", 0, True), ("var", 1, True)
    before = MaskCounts(True, {one: "one"})
    for mask in [1, 1, 2]:
        before.counted(mask).events += 1
    after = MaskCounts(True, {one: "one", other: "other"})
    after.load(before.save())
    after.counted(3).events += 1
    assert after.totals() == {one: 3}


PATTERN = """\
pattern p {
  event Push = type == "push";
  event Pop  = type == "pop" && v > 1;
  event Any  = type == "push" || type == "see";
  A = Push;
  B = Pop && v == A.v && Causal(Pop, A);
  order CausalOrder;
  find any A B;
}
"""


def _at(node: str, counter: int, type_: str, **data: Any) -> Event:
    return Event(node=node, type=type_, clock={node: counter}, data=data)


def _event(counter: int, type_: str, **data: Any) -> Event:
    return _at("n", counter, type_, **data)


def test_step_counts_events_for_which_its_relations_could_hold() -> None:
    (compiled,) = ketal.compile(PATTERN).compiled
    run = PatternRun(compiled, DEFAULT)
    for number, (type_, v) in enumerate([("push", 1), ("pop", 1), ("pop", 2), ("see", 0)], 1):
        run.process([_event(number, type_, v=v)])
    totals = run.met.totals()
    assert totals[compiled.counted.alphabet_guard] == 3
    assert {n: totals[g] for n, g in compiled.counted.event_guards.items()} == {
        "Push": 1, "Pop": 1, "Any": 2,
    }  # fmt: skip
    # `v == A.v` and `Causal` depend on a run, and may hold in some run.
    assert {n: totals[g] for n, g in compiled.counted.step_guards.items()} == {"A": 1, "B": 1}


def test_event_is_counted_once_for_all_copies() -> None:
    (compiled,) = ketal.compile(
        """pattern p {
  event Here = localhost && type == "a";
  event There = !localhost && type == "a";
  order CausalOrder;
  at every node;
  check (Here | There)*;
}"""
    ).compiled
    run = PatternRun(compiled, DEFAULT)
    run.process([_at("n", 1, "a"), _at("m", 1, "a")])
    run.process([_at("n", 2, "b")])
    totals = run.met.totals()
    assert totals[compiled.counted.alphabet_guard] == 2
    assert [totals[guard] for guard in compiled.counted.event_guards.values()] == [2, 2]
    assert [totals[guard] for guard in compiled.counted.step_guards.values()] == [2, 2]


def test_snapshot_keeps_the_counts() -> None:
    program = ketal.compile('pattern p { event A = type == "a"; order arrival; find A; }')
    monitor = ketal.Monitor(program)
    for counter in range(1, 6):
        monitor.feed(_event(counter, "a" if counter % 2 else "b"))
    restored = ketal.Monitor.restore(program, monitor.snapshot())
    before, after = (one._execution.runs[0].met.totals() for one in (monitor, restored))
    assert before == after == {program.compiled[0].counted.alphabet_guard: 3}


def test_mode_counts_each_event_once() -> None:
    program = ketal.compile(
        'pattern p { event A = type == "a"; order CausalOrder; mode possibly; find next A A; }'
    )
    log = [_at(node, 1, "a") for node in "xyz"]
    one_pass = LogPass(program, log, DEFAULT)
    list(one_pass)
    (execution,) = one_pass._executions.values()
    assert execution.runs[0].met.totals() == {program.compiled[0].counted.alphabet_guard: 3}
