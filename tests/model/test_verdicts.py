"""Verdicts as Python objects: fields, ids, equality, text."""

from __future__ import annotations

import copy
import hashlib
import importlib
import json
import math
import pickle
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from itertools import chain
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ketal
from ketal import Dot, Event, Gap, Late, Limits, Match, Monitor, Overflow, Rejected, Transition
from ketal.engine.scopes import Counts
from ketal.model import verdicts
from ketal.model.frozen_mapping import NO_SCOPE, FrozenMapping
from ketal.model.verdicts.check_verdicts import Violation
from ketal.model.verdicts.find_verdicts import FindVerdict
from ketal.model.verdicts.identified_verdict import IdentifiedVerdict
from ketal.model.verdicts.verdict_kinds import COUNTED, KINDS, RunVerdict, Verdict
from tests.cases import e, line, p
from tests.runtime.test_monitor import samples

SAMPLES = samples()


def test_verdict_kinds_are_listed_once_and_complete() -> None:
    modules = [
        importlib.import_module(f"{verdicts.__name__}.{info.name}")
        for info in pkgutil.iter_modules(verdicts.__path__)
    ]
    members = chain.from_iterable(vars(module).values() for module in modules)
    classes = {member for member in members if getattr(member, "kind", "")}
    assert set(get_args(RunVerdict)) < set(get_args(Verdict)) == classes
    assert {cls.__name__ for cls in classes} <= set(ketal.__all__)
    # Places, annotations and retiring patterns are those of every `FindVerdict`.
    with_steps = {cls for cls in classes if "steps" in cls.__struct_fields__}
    assert with_steps == {cls for cls in classes if issubclass(cls, FindVerdict)}
    assert set(KINDS) == set(SAMPLES)
    assert set(COUNTED) <= {field.name for field in fields(Counts)}


@pytest.mark.parametrize("kind", SAMPLES)
def test_json_fields_are_attributes(kind: str) -> None:
    verdict = SAMPLES[kind]
    json_fields = verdict.to_dict()
    assert getattr(verdict, "verdict") == kind  # noqa: B009
    for name, value in json_fields.items():
        # Attributes hold dots and seconds, which JSON writes as text.
        held = getattr(verdict, name)
        assert shown(held) == value or name == "time", name


def shown(value: Any) -> Any:
    if isinstance(value, Dot):
        return str(value)
    if isinstance(value, tuple):
        return [shown(v) for v in value]
    if isinstance(value, Mapping):
        return {k: shown(v) for k, v in value.items()}
    return value


@pytest.mark.parametrize("kind", SAMPLES)
def test_verdicts_are_values(kind: str) -> None:
    verdict = SAMPLES[kind]
    for other in (pickle.loads(pickle.dumps(verdict)), copy.deepcopy(verdict)):
        assert other == verdict
        assert {other, verdict} == {verdict}
    assert all(verdict != other for name, other in SAMPLES.items() if name != kind)
    assert verdict != kind


values: Any = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=3),
    st.floats(), st.just(-0.0), st.sampled_from(['"', "\\", "\u2028", "\0"]),
)  # fmt: skip


@given(
    scope=st.lists(st.tuples(st.text(max_size=3), values), max_size=3),
    texts=st.tuples(*[st.text(max_size=4)] * 4),
    expected=st.lists(st.text(max_size=3), max_size=3),
    time=st.none() | st.floats(-1e10, 1e11),
    lost=st.lists(st.builds(Dot, st.text(max_size=2), st.integers(1, 9)), max_size=2),
)
def test_written_is_the_json_of_to_dict(
    scope: list[tuple[str, Any]],
    texts: tuple[str, ...],
    expected: list[str],
    time: float | None,
    lost: list[Dot],
) -> None:
    pattern, state, reason, execution = texts
    for shared in ("", execution):
        violation = Violation(
            pattern=pattern, fingerprint="f", scope=FrozenMapping(tuple(scope)), execution=shared,
            time=time, certain=not lost, depends_on=tuple(lost), event=Dot(reason or "n", 7),
            type="t", expected=tuple(expected), state=state, reason=reason,
        )  # fmt: skip
        for verdict in (violation, *SAMPLES.values()):
            if isinstance(verdict, IdentifiedVerdict):
                said = msgspec.json.encode(verdict.to_dict())
                assert verdict.written() == (verdict.id, said)


def test_places_are_in_the_order_of_their_events() -> None:
    def places_of(execution: str, dots: Iterable[Dot]) -> list[str]:
        return [f"{execution}log:{dot.counter}" if dot.counter > 1 else "" for dot in dots]

    steps = tuple((step, Dot("n", counter)) for step, counter in [("A", 1), ("B", 2), ("B", 3)])
    match = Match(pattern="P", fingerprint="f", execution="x/", steps=steps, returns={"k": 1})
    as_json = match.to_dict(places_of)
    assert list(as_json) == [
        "verdict", "pattern", "id", "execution", "scope", "events", "places", "bindings", "return",
    ]  # fmt: skip
    assert as_json["places"] == [None, "x/log:2", "x/log:3"]
    assert as_json["bindings"] == {"A": ["n@1"], "B": ["n@2", "n@3"]}
    for verdict in SAMPLES.values():
        # Without a known place the text has none.
        assert verdict.to_dict(lambda _, dots: ["" for _ in dots]) == verdict.to_dict()
    one = Violation(pattern="P", fingerprint="f", event=Dot("n", 2))
    assert list(one.to_dict(places_of))[4:6] == ["event", "place"]
    late = Late(pattern="", fingerprint="", event=Dot("n", 2), reason="its time has passed")
    assert list(late.to_dict(places_of))[4:] == ["event", "place", "reason"]


def test_id_is_the_hash_of_fingerprint_pattern_execution_scope_kind_and_dots() -> None:
    violation = Violation(
        pattern="P", fingerprint="f", execution="x", event=Dot('n"', 3),
        scope=FrozenMapping((("k", 1), ("é", float("inf")), ("z", "a"))),
    )  # fmt: skip
    named = ["f", "P", "x", [["k", 1], ["é", ["inf"]], ["z", "a"]], "violation", [["", 'n"', 3]]]
    content = json.dumps(named, separators=(",", ":"), ensure_ascii=False).encode()
    assert violation.id == hashlib.blake2b(content, digest_size=16).hexdigest()


# --- scope ------------------------------------------------------------------------------------


def test_scope_is_an_immutable_mapping() -> None:
    (match,) = ketal.run(ketal.compile(p("find next A", "partition by k")), [e("n@1", "a", k="x")])
    assert isinstance(match, Match)
    scope = match.scope
    assert scope == {"k": "x"} == dict(scope)
    assert {"k": "x"} == scope != {"k": "y"}
    assert (scope["k"], len(scope), list(scope), repr(scope)) == ("x", 1, ["k"], "{'k': 'x'}")
    assert hash(scope) == hash(FrozenMapping((("k", "x"),)))
    assert hash(FrozenMapping((("a", 1), ("b", 2)))) == hash(FrozenMapping((("b", 2), ("a", 1))))
    with pytest.raises(TypeError):
        scope["k"] = "y"  # type: ignore[index]
    with pytest.raises(AttributeError, match="cannot be changed"):
        scope._held = {}
    with pytest.raises(AttributeError, match="cannot be changed"):
        del scope._held
    assert Match(pattern="P", fingerprint="f").scope == NO_SCOPE == {}


# --- return -----------------------------------------------------------------------------------

RETURNING = p("find next A B", "return x = A.x, node = B.node")


def returned(x: Any) -> tuple[Event, Match]:
    event = e("n@1", "a", x=x)
    (match,) = ketal.run(ketal.compile(RETURNING), [event, e("n@2", "b")])
    assert isinstance(match, Match)
    return event, match


def test_returned_values_are_available_under_both_names() -> None:
    _, match = returned(7)
    assert getattr(match, "return") == match.returns == {"x": 7, "node": "n"}
    (plain,) = ketal.run(ketal.compile(p("find next A")), line("a"))
    assert getattr(plain, "return") is None
    assert "return" not in plain.to_dict()


def test_match_that_returns_lists_and_mappings_is_hashable() -> None:
    _, match = returned({"k": [1, {"l": 2}]})
    _, other = returned({"k": [1, {"l": 2}]})
    assert {match, other} == {match}
    assert match.to_dict()["return"] == {"x": {"k": [1, {"l": 2}]}, "node": "n"}


def test_a_match_owns_the_values_that_it_returns() -> None:
    event, match = returned({"k": [1]})
    assert match.returns is not None
    match.returns["x"]["k"].append(2)
    assert event.data == {"x": {"k": [1]}}


# --- ids --------------------------------------------------------------------------------------

BODY = "{ event A = type == 'a'; event B = type == 'b'; find any A B; }".replace("'", '"')


def ids(text: str) -> dict[str, str]:
    found = [v for v in ketal.run(ketal.compile(text), line("a b")) if isinstance(v, Match)]
    return {v.pattern: v.id for v in found}


def test_patterns_that_differ_by_name_only_give_distinct_ids() -> None:
    both = ids(f"pattern One {BODY} pattern Two {BODY}")
    assert both["One"] != both["Two"]
    # The id of a pattern does not depend on the other patterns of the file.
    assert ids(f"pattern One {BODY}") == {"One": both["One"]}
    program = ketal.compile(f"pattern One {BODY} pattern Two {BODY}")
    assert program["One"].fingerprint == program["Two"].fingerprint


def test_layout_and_comments_do_not_change_ids() -> None:
    other = "// first\npattern One /* second */ {\n" + BODY[1:].replace("; ", ";\n\n  // third\n")
    assert ids(other) == ids(f"pattern One {BODY}")


def test_equal_verdicts_have_equal_ids() -> None:
    """1 and True are equal in Python but are two scopes."""
    one = Match(pattern="P", fingerprint="f", scope=FrozenMapping((("k", 1),)))
    true = msgspec.structs.replace(one, scope=FrozenMapping((("k", True),)))
    assert one.scope != true.scope
    assert one != true
    assert one.id != true.id
    assert len({one, true}) == 2


@pytest.mark.parametrize("held", [lambda x: x, lambda x: [0, x], lambda x: {"y": {"z": x}}])
def test_true_is_not_equal_to_1_in_a_scope_or_return(held: Callable[[Any], Any]) -> None:
    """A number and a boolean differ in kind; 1 and 1.0 do not."""
    scopes = [FrozenMapping((("k", held(x)),)) for x in (1, 1.0, True)]
    assert scopes[0] == scopes[1] == {"k": held(1)}
    assert scopes[0] != scopes[2] != {"k": held(1)}
    assert {"k": held(True)} == scopes[2] != {"k": held(1.0), "l": 1}
    matches = [Match(pattern="P", fingerprint="f", returns={"k": held(x)}) for x in (1, 1.0, True)]
    assert matches[0] == matches[1] != matches[2]
    unknown = Match(pattern="P", fingerprint="f", returns={"k": held(math.nan)})
    assert unknown == msgspec.structs.replace(unknown)


# --- text -------------------------------------------------------------------------------------


def test_a_verdict_on_an_execution_names_no_pattern() -> None:
    program = ketal.compile(p("check A*", order="CausalOrder"))
    for execution, named in (("", ""), ("run 2", "[run 2]: ")):
        monitor = Monitor(program, limits=Limits(held_back_max=1), execution=execution)
        (over,) = monitor.feed_many([e("n@3", "a"), e("n@5", "a")])
        assert str(over) == (
            f"overflow {named}limit held_back_max reached at n@5: "
            "the event, which would have to wait for its past"
        )
    timed = Monitor(ketal.compile(p("find next A B", "within 5 s")))
    timed.advance_time(9)
    (late,) = timed.feed(e("n@1", "a", time=1))
    assert str(late) == "late n@1: its time is before the watermark"
    gap = Gap(pattern="", fingerprint="", dot=Dot("n2", 14))
    assert str(gap) == "gap n2@14 declared lost"


def test_a_verdict_on_a_pattern_names_it() -> None:
    where: dict[str, Any] = {"pattern": "P", "fingerprint": "", "execution": "x"}
    scope = FrozenMapping((("k", 1), ("node", "n")))
    verdicts: list[IdentifiedVerdict] = [
        Late(event=Dot("n", 1), reason="r", scope=scope, **where),
        Overflow(limit="l_max", given_up="g", **where),
        Transition(event=Dot("n", 1), step="A", source="q0", target="q1", **where),
    ]
    assert [str(v) for v in verdicts] == [
        "late [x] P (k=1 node=n): n@1: r",
        "overflow [x] P: limit l_max reached: g",
        "transition [x] P: n@1: q0 -> q1 on A",
    ]


def test_a_rejection_is_hashable_whatever_its_draft_holds() -> None:
    program = ketal.compile(p("find next A"))
    monitor = Monitor(program)
    monitor.feed(e("n@2", "a"))
    (rejected,) = monitor.feed(e("n@2", "b"))
    assert isinstance(rejected, Rejected)
    drafted = msgspec.structs.replace(rejected, draft=("n", "t", {}, None, {"x": [1]}, None))
    assert drafted != rejected
    assert len({drafted, rejected}) == 2
    assert rejected.verdict == "rejected"


@pytest.mark.parametrize(
    ("dots", "text"),
    [
        ("n@1", "A=n@1"),
        ("n@1 n@2 n@3 n@4 n@5 n@6", "A=n@1+n@2+n@3+n@4+n@5+n@6"),
        (" ".join(f"n@{k}" for k in range(3, 18)), "A=n@3..n@17 (15 events)"),
        ("n@1 n@2 n@5 n@6 n@7 m@8 m@9", "A=n@1+n@2+n@5..n@7+m@8+m@9 (7 events)"),
        (" ".join(f"n@{k}" for k in range(1, 40, 2)), "A=n@1+n@3+n@5+n@7+…+n@39 (20 events)"),
        ("n@7 n@6 n@5 n@4 n@3 n@2 n@1", "A=n@7+n@6+n@5+n@4+…+n@1 (7 events)"),
    ],
)
def test_many_dots_of_a_step_are_written_as_ranges(dots: str, text: str) -> None:
    steps = tuple(("A", Dot.parse(dot)) for dot in dots.split())
    match = Match(fingerprint="", pattern="P", steps=steps)
    assert str(match) == f"match P: {text}"
    assert match.to_dict()["bindings"] == {"A": dots.split()}


@pytest.mark.parametrize(
    ("value", "text"),
    [("x", "x"), ("10.0.0.1", "10.0.0.1"), ("", ""), (1, "1"), ("1", '"1"'), ("-1.5e3", '"-1.5e3"'),
     (True, "true"), ("true", '"true"'), ("null", '"null"'), ('"1"', r'"\"1\""')],
)  # fmt: skip
def test_scope_string_that_looks_like_another_value_is_quoted(value: Any, text: str) -> None:
    match = Match(fingerprint="", pattern="P", scope=FrozenMapping((("k", value),)))
    assert f"P (k={text}): " in str(match)


def test_the_values_that_a_match_returns_are_written_as_json() -> None:
    returns = {"a": "x", "b": None, "c": [1, "é"], "d": True}
    match = Match(
        fingerprint="", pattern="P", steps=(("A", Dot("n", 1)),), returns=returns,
        scope=FrozenMapping((("k", "x"), ("on", True))),
    )  # fmt: skip
    assert str(match) == 'match P (k=x on=true): A=n@1 → a="x", b=null, c=[1, "é"], d=true'
