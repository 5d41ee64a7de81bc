"""`possibly` and `definitely` against the enumeration of all linear extensions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

import pytest

import ketal
from ketal import semantics
from ketal.compiler.pipeline import compile_pattern
from ketal.errors import SettingError
from ketal.model.limits import Limits
from ketal.programs.program import Program
from tests.cases import e
from tests.logged import ketal_records
from tests.outcomes import outcome
from tests.property.test_engine import case, extensions, program_of
from tests.sampling import drawn
from tests.work import counted_calls


def test_modal_answers_equal_enumeration_of_all_linear_extensions() -> None:
    """Some linear extension, every linear extension: by the lattice and by enumeration."""
    open_cases = 0
    kinds = ({"kind": "check"}, *({"strategy": name} for name in ("next", "strict", "any")))

    @drawn(100, 5_000)
    def holds(rng: random.Random) -> None:
        nonlocal open_cases
        file, events = case(rng, events_max=6, linear=True, **rng.choice(kinds))
        orders = extensions(events)
        if orders is None:
            return
        outcomes = [outcome(file, events, released=order) for order in orders]
        said = [bool(o.matches or o.violations) for o in outcomes]
        program = program_of(file)
        assert ketal.possibly(program, events) is any(said)
        assert ketal.definitely(program, events) is all(said)
        open_cases += any(said) and not all(said)

    assert open_cases


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


def test_exceeded_cuts_max_is_named() -> None:
    """More cuts than `cuts_max` is an error that names the limit."""
    events = [e(f"n{i}@1", "a") for i in range(8)]
    program = ketal.compile(CHECK.replace("A B", "(A | B)* A B"))
    with pytest.raises(SettingError, match="cuts_max"):
        ketal.possibly(program, events, limits=Limits(cuts_max=10))


def test_cuts_max_counts_cuts_and_not_steps() -> None:
    """Eight independent events have 256 cuts; the 1,024 steps between these are not counted."""
    events = [e(f"n{i}@1", "a") for i in range(8)]
    program = ketal.compile(CHECK.replace("A B", "A* | A A B A"))
    assert not program.one.order_independent
    assert not ketal.possibly(program, events, limits=Limits(cuts_max=256))
    with pytest.raises(SettingError, match="more than 255 consistent cuts"):
        ketal.possibly(program, events, limits=Limits(cuts_max=255))


# --- `mode` in a pattern -----------------------------------------------------------------------


def test_log_without_events_or_with_impossible_clocks_has_no_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    program = ketal.compile('pattern P { event E = type == "e"; find next E E; }')
    ordered = [ketal.Event(node="n", type="e", clock={"n": n}) for n in (1, 2)]
    rejected: Any = ketal.Rejected(place="run.jsonl:3", reason="the line is not JSON")
    cycle = [ketal.Event(node=node, type="e", clock={"a": 1, "b": 1}) for node in ("a", "b")]
    for ask in (ketal.possibly, ketal.definitely):
        caplog.clear()
        assert ask(program, ordered)
        assert not ketal_records(caplog)
        assert ask(program, [*ordered, rejected])
        warning = "1 record rejected; the first: run.jsonl:3: the line is not JSON"
        assert [one.getMessage() for one in ketal_records(caplog)] == [warning]
        with pytest.raises(ketal.EventError, match="no event was read: 1 record rejected; the fir"):
            ask(program, [rejected])
        with pytest.raises(ketal.EventError, match="1 event with an impossible clock"):
            ask(program, cycle)


Mode = Literal["possibly", "definitely"]


def in_mode(program: Program, mode: Mode) -> Program:
    (compiled,) = program.compiled
    pattern = replace(compiled.pattern, mode=mode, returns=None, limit=None)
    file = replace(program.file, patterns=(pattern,))
    return Program((compile_pattern(file, pattern),), file)


def scopes_of(verdicts: Iterable[ketal.Verdict]) -> list[dict[str, Any]]:
    found = []
    for verdict in verdicts:
        assert isinstance(verdict, ketal.Match | ketal.Violation)
        found.append(dict(verdict.scope))
    return found


def judged_scopes(outcome: semantics.Outcome) -> set[str]:
    return {repr(scope) for scope, *_ in (*outcome.matches, *outcome.violations)}


def test_modal_verdicts_per_scope_equal_all_linear_extensions() -> None:
    """A scope has a verdict if some, or every, linear extension gives it one."""
    open_cases = scopes = 0
    kinds = ({"kind": "check"}, {"strategy": "next"}, {"strategy": "strict"})

    @drawn(150, 3_000)
    def holds(rng: random.Random) -> None:
        nonlocal open_cases, scopes
        file, events = case(rng, events_max=6, linear=True, **rng.choice(kinds))
        orders = extensions(events)
        if orders is None:
            return
        each = [judged_scopes(outcome(file, events, released=order)) for order in orders]
        program = program_of(file)
        answers: dict[Mode, set[str]] = {
            "possibly": set.union(*each),
            "definitely": set.intersection(*each),
        }
        for mode, expected in answers.items():
            verdicts = ketal.run(in_mode(program, mode), events)
            found = [repr(tuple(scope.items())) for scope in scopes_of(verdicts)]
            assert sorted(found) == sorted(expected), mode
            counts = verdicts.summary["patterns"]["P"]
            assert counts["matches"] + counts["violations"] == len(expected)
        open_cases += each != [each[0]] * len(each)
        scopes += len(set.union(*each)) > 1

    assert open_cases
    assert scopes > 2


def mode(text: str, *statements: str) -> Program:
    clauses = "".join(f"{clause}; " for clause in statements)
    return ketal.compile(
        'pattern P { event A = type == "a"; event B = type == "b"; '
        f"mode {text}; order CausalOrder; {clauses}}}"
    )


def test_modal_verdict_is_a_verdict_of_some_linear_extension() -> None:
    both = [e("n1@1", "a", k=1), e("n2@1", "b", k=1), e("n3@1", "b", k=2), e("n3@2", "b", k=2)]
    check = ("partition by k", "check A B")
    (every,) = ketal.run(mode("definitely", *check), both)
    assert str(every).startswith("violation P (k=2): n3@1 b: expected A")
    some, again = ketal.run(mode("possibly", *check), both)
    assert again.to_dict() != every.to_dict(), "patterns that ask for something else have other ids"
    assert str(again).startswith("violation P (k=2): n3@1")
    assert str(some).startswith("violation P (k=1): n2@1"), "B first is one order"
    for arrival in itertools.permutations(both):
        assert [v.to_dict() for v in ketal.run(mode("possibly", *check), arrival)] == [
            some.to_dict(),
            again.to_dict(),
        ]


def test_mode_with_order_arrival_considers_every_order() -> None:
    text = 'pattern P { mode possibly; event A = type == "a"; event B = type == "b"; check A B; }'
    assert len(list(ketal.run(ketal.compile(text), [e("n1@1", "a"), e("n2@1", "b")]))) == 1


def test_scopes_are_explored_separately_and_exceeding_cuts_max_is_reported() -> None:
    """Eight concurrent events of one key are 256 cuts; of eight keys they are eight times two."""
    events = [e(f"n{i}@1", "a", k=1) for i in range(8)]
    apart = [e(f"n{i}@1", "a", k=i) for i in range(8)]
    made = mode("possibly", "partition by k", "check (A | B)* A B A*")
    limits = Limits(cuts_max=20)
    assert list(ketal.run(made, apart, limits=limits)) == []
    (overflow,) = ketal.run(made, events, limits=limits)
    assert isinstance(overflow, ketal.Overflow)
    assert overflow.limit == "cuts_max"
    assert dict(overflow.scope) == {"k": 1}


@pytest.mark.parametrize("text", ["possibly", "definitely"])
@pytest.mark.parametrize("one", [1, 1.0])
def test_scopes_that_are_equal_in_python_only_have_separate_verdicts(text: str, one: float) -> None:
    """1 and 1.0 are numbers, true is not: three equal Python values, two scopes."""
    events = [e("m@1", "a", x=one), e("m@2", "b", x=True)]
    made = mode(text, "at every node", "partition by x", "check B")
    ran = ketal.run(made, events)
    assert [repr(scope) for scope in scopes_of(ran)] == ["{'x': 1, 'node': 'm'}"]
    assert ran.summary["patterns"]["P"]["violations"] == 1


def test_each_node_has_its_copy_in_a_mode() -> None:
    """n3 receives a and b together, in either order; n1 sent a before it knew b."""
    events = [
        e("n1@1", "a"),
        e("n2@1", "b"),
        e("n1@2", "c", "n2:1"),
        e("n3@1", "c", "n1:1 n2:1"),
    ]
    made = mode("possibly", "at every node", "check A B")
    assert scopes_of(ketal.run(made, events)) == [{"node": "n2"}, {"node": "n3"}]
    made = mode("definitely", "at every node", "check A B")
    assert scopes_of(ketal.run(made, events)) == [{"node": "n2"}]


def test_return_count_counts_scopes_and_limit_lists_the_first() -> None:
    events = [e(f"n{i}@1", "a", k=i) for i in range(5)]
    find = ("partition by k", "find next A")
    verdicts = ketal.run(mode("definitely", *find, "return count"), events)
    assert list(verdicts) == []
    assert verdicts.summary["patterns"]["P"]["matches"] == 5
    verdicts = ketal.run(mode("definitely", *find, "limit 2"), events)
    assert len(list(verdicts)) == 2
    assert verdicts.summary["patterns"]["P"]["matches"] == 5


RESTARTED = [e("x@1", "a"), e("x@2", "b"), e("x@1", "b", x=1)]
LEFT = [e("x@1", "a"), e("y@1", "b", "x:1"), ketal.Control("leave", node="x"), e("z@1", "c", "y:1")]
OUTSIDE = [e("n1@1", "a"), e("n9@1", "b"), e("n9@2", "b")]
LETTERS = "".join(f'event {letter.upper()} = type == "{letter}"; ' for letter in "abc")


@pytest.mark.parametrize("mode", ["possibly", "definitely"])
@pytest.mark.parametrize(
    ("body", "log", "expected"),
    [
        ("find any A B B", RESTARTED, True),
        ("S = A; T = Causal(C, S); find any S T", LEFT, True),
        ("topology { n1 -> n2; }; find any A B", OUTSIDE, False),
    ],
)
def test_modal_answers_use_the_events_of_a_run(
    mode: str, body: str, log: list[Any], expected: bool
) -> None:
    program = ketal.compile(f"pattern P {{ order CausalOrder; {LETTERS} {body}; }}")
    modal = ketal.compile(f"pattern P {{ order CausalOrder; {LETTERS} mode {mode}; {body}; }}")
    assert bool(ketal.run(modal, log).matches) is expected
    assert getattr(ketal, mode)(program, log) is expected


def test_log_of_several_executions_is_an_error() -> None:
    program = ketal.compile(CHECK)
    log = ketal.Log(lambda: iter([(name, e("n1@1", "b"), "", 0) for name in ("one", "two")]))
    with pytest.raises(SettingError, match="several executions: one, two; pass one of"):
        ketal.possibly(program, log)
    assert ketal.possibly(program, log.executions["one"])


def test_work_of_a_mode_grows_with_the_number_of_scopes() -> None:
    program = ketal.compile("""pattern P {
        mode definitely; order CausalOrder; partition by key; event A = type == "a"; check A; }""")

    def work(keys: int) -> int:
        log = [e(f"n@{n + 1}", "a", key=n // 2) for n in range(2 * keys)]
        verdicts, calls = counted_calls(lambda: list(ketal.run(program, log)))
        assert len(verdicts) == keys
        return calls

    work(10)  # what is computed only once
    assert work(160) < 5 * work(40)
