"""The warnings of `ketal lint --log`: names of a pattern that no event of a log has."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given

import ketal
from ketal.errors import Diagnostic
from ketal.runtime.silence.names_in_log import absent_names, unchecked
from tests.property.executions import TYPES, execution
from tests.sampling import chances, examples

DOCS = Path(__file__).resolve().parents[2] / "docs"
ROWS = re.findall(
    r"^\| (K30[1-4]) \| (\w+) \|.*\| `([^`]+)` \|$",
    (DOCS / "diagnostics.md").read_text("utf-8"),
    re.M,
)


def event(node: str, type: str, number: int = 1, **data: object) -> ketal.Event:
    return ketal.Event(node, type, {node: number}, data=data)


LOG = [
    event("n1", "ReplicatedStack.push", 1, value=7, msg={"kind": "a"}),
    event("n1", "ReplicatedStack.push", 2, value=8),
    event("n2", "ReplicatedStack.pop", 1, value=8),
]


def warnings_of(
    text: str, log: list[ketal.Event], limits: ketal.Limits | None = None
) -> list[Diagnostic]:
    stats = ketal.stats(log, limits=limits or ketal.Limits())
    return absent_names(ketal.compile(text).compiled, stats)


def pattern(statements: str, body: str = "check E*;") -> str:
    return f'pattern P {{ event E = type == "ReplicatedStack.push"; {statements} {body} }}'


def rows(statements: str, body: str = "check E*;") -> list[tuple[str, str, str]]:
    out = [(d.code, d.message, d.hint) for d in warnings_of(pattern(statements, body), LOG)]
    assert all(d.severity == "warning" for d in warnings_of(pattern(statements, body), LOG))
    return out


def test_a_misspelt_type_is_warned_of_with_its_place_and_the_count_of_the_near_name() -> None:
    text = 'pattern P {\n    event E = type == "ReplictedStack.push";\n    check E*;\n}'
    (one,) = warnings_of(text, LOG)
    assert one.span is not None
    assert (one.code, one.severity, one.pattern) == ("K301", "warning", "P")
    assert (one.span.line, one.span.column) == (2, 15)
    assert one.message == "no event of the log has the type `ReplictedStack.push`"
    assert one.hint == "did you mean `ReplicatedStack.push` (2 events)?"


def test_a_name_that_the_log_has_gives_no_warning() -> None:
    assert rows('A = E && value > 3 && msg.kind == "a" && node != "n2";', "check A*;") == []


@pytest.mark.parametrize(
    ("statements", "code", "name", "near"),
    [
        ('A = E && vlaue > 3;', "K302", "vlaue", "value"),
        ("A = E && exists(msg.knid);", "K302", "msg.knid", "msg.kind"),
        ('A = E || type in ["ReplicatedStack.pop", "ReplicatedStack.psh"];', "K301",
         "ReplicatedStack.psh", None),
        ("A = E || call(* ReplicatedStak.pop(..));", "K301", "ReplicatedStak.pop",
         "ReplicatedStack.pop"),
        ("A = E || call(* Stack*.top(..));", "K301", "Stack*.top", None),
        ('A = E && host("n3*");', "K304", "n3*", None),
        ('A = E && node == "n3";', "K304", "n3", None),
    ],
)  # fmt: skip
def test_absent_names_in_guards_are_reported(
    statements: str, code: str, name: str, near: str | None
) -> None:
    ((found_code, message, hint),) = rows(statements, "check A*;")
    assert (found_code, f"`{name}`" in message) == (code, True)
    assert near is None or hint.startswith(f"did you mean `{near}` (")
    assert near is not None or hint.startswith("the log has `")


def test_an_absent_attribute_with_the_name_of_a_field_is_told_from_the_field() -> None:
    ((code, message, hint),) = rows('A = E && data.type == "x";', "check A*;")
    assert (code, message) == ("K302", "no event of the log has the attribute `type`")
    assert hint == "`data.type` is an attribute, `type` the event's own field"


def test_absent_partition_keys_and_nodes_are_reported() -> None:
    assert [code for code, _, _ in rows("partition by vlue;")] == ["K303"]
    assert [code for code, _, _ in rows('at host("n9");')] == ["K304"]
    order = 'order CausalOrder(nodes = ["n1", "n8"], total);'
    assert [message for _, message, _ in rows(order)] == ["no event of the log is of the node `n8`"]
    topology = "order CausalOrder; topology { n1 -> n7; }"
    assert [message for _, message, _ in rows(topology)] == [
        "no event of the log is of the node `n7`"
    ]


def test_most_frequent_names_are_listed_if_none_is_near() -> None:
    ((_, _, hint),) = rows('A = E || type == "Membership";', "check A*;")
    assert hint == (
        "the log has `ReplicatedStack.push` (2 events), `ReplicatedStack.pop` (1 event); "
        "see `ketal stats`"
    )
    bare = [event("a", "x")]
    ((_, hint),) = [(d.message, d.hint) for d in warnings_of(
        'pattern P { event E = type == "x" && y == 1; check E*; }', bare)]  # fmt: skip
    assert hint == "the log has no attributes"


def test_near_attribute_is_written_in_pattern_syntax() -> None:
    log = [event("a", "x", 1, **{"http.status": 200, "content-type": "t"})]
    text = 'pattern P {{ event E = type == "x" && {} == 1; check E*; }}'
    (one,) = warnings_of(text.format("http.status"), log)
    assert one.hint == (
        'did you mean `data["http.status"]` (1 event)? In the log the dot is part of the name'
    )
    (one,) = warnings_of(text.format("content_type"), log)
    assert one.hint == 'did you mean `data["content-type"]` (1 event)?'


def test_another_name_of_the_pattern_is_not_suggested() -> None:
    """`push2` is not a misspelling of `push1`, since the pattern names `push1` too."""
    log = [event("a", "long_push_one")]
    text = 'event A = type == "long_push_one"; event B = type == "long_push_onf"; '
    (one,) = warnings_of(f"{text} pattern P {{ check (A | B)*; }}", log)
    assert "did you mean" not in one.hint


def test_a_name_that_several_patterns_share_is_warned_of_once() -> None:
    text = 'event E = type == "no"; pattern P { check E*; } pattern Q { check E; }'
    assert [d.pattern for d in warnings_of(text, LOG)] == ["P"]
    text = 'pattern P { event E = type == "no"; check E*; } pattern Q { event E = type == "no"; check E; }'  # noqa: E501
    assert [d.pattern for d in warnings_of(text, LOG)] == ["P", "Q"]


def test_incarnation_counts_as_its_node() -> None:
    text = 'pattern P { event E = host("n1"); event F = node == "n1#2"; check (E | F)*; }'
    assert warnings_of(text, LOG) == []
    later = [event("n1#2", "x")]
    assert warnings_of(text, later) == []


def test_no_name_is_reported_absent_from_a_table_that_was_cut() -> None:
    text = pattern('A = E || (type == "no" && nothing == 1 && node == "n9");', "check A*;")
    whole = ["K301", "K302", "K304"]
    assert [d.code for d in warnings_of(text, LOG)] == whole
    compiled = ketal.compile(text).compiled
    for limit, code, table in [
        ("stats_types_max", "K301", "types"),
        ("stats_attributes_max", "K302", "attributes"),
        ("stats_nodes_max", "K304", "nodes"),
    ]:
        limits = ketal.Limits.named({limit: 1})
        assert [d.code for d in warnings_of(text, LOG, limits)] == [c for c in whole if c != code]
        (sentence,) = unchecked(compiled, ketal.stats(LOG, limits=limits))
        assert sentence.startswith(f"the log has more {table} than are counted (limit {limit} = 1)")
    assert unchecked(compiled, ketal.stats(LOG)) == []
    fine = ketal.compile(pattern("")).compiled
    assert unchecked(fine, ketal.stats(LOG, limits=ketal.Limits(stats_types_max=1))) == []


@pytest.mark.parametrize(("code", "severity", "example"), ROWS)
def test_documented_example_gives_its_code(code: str, severity: str, example: str) -> None:
    log = [event("a", "e", 1, count=1), event("b", "f", 1, count=2)]
    events = 'event E = type == "e"; event F = type == "f";'
    body = "" if re.search(r"\b(check|find)\b", example) else " check (E | F)*;"
    shown = example.replace("\\|", "|")
    (one,) = warnings_of(f"pattern P {{ {events} {shown}{body} }}", log)
    assert (one.code, one.severity) == (code, severity)


def test_every_code_is_documented() -> None:
    source = Path(ketal.runtime.silence.names_in_log.__file__).read_text("utf-8")
    assert {code for code, _, _ in ROWS} == set(re.findall(r'"(K3\d\d)"', source))


@examples(40, 1_000)
@given(rng=chances())
def test_the_warnings_are_the_names_that_no_event_has(rng: random.Random) -> None:
    events = execution(rng, events_min=1, events_max=8)
    guards = [
        *(f'type == "{name}"' for name in (*TYPES, "S.d")),
        *(f"exists({name})" for name in ("x", "y", "key", "z")),
        *(f'node == "n{number}"' for number in range(1, 7)),
    ]
    text = f"pattern P {{ event E = {' || '.join(guards)}; check E*; }}"
    absent = {re.sub(r".*`(.*)`$", r"\1", one.message) for one in warnings_of(text, events)}
    there = {event.type for event in events} | {event.node for event in events}
    there |= {name for event in events for name in event.data}
    names = {re.sub(r'.*["(]([\w.]+)[")]$', r"\1", guard) for guard in guards}
    assert absent == names - there
