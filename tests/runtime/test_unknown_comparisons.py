"""Comparisons that evaluate to unknown: the counts of the list `unknown` in a summary."""

from __future__ import annotations

import functools
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given

import ketal
from ketal import semantics
from ketal.engine.statistics import sampling
from ketal.engine.statistics.sampling import sampled
from ketal.grammar import parse
from ketal.model import syntax
from ketal.runtime.silence.unknown_comparisons import warnings
from tests.sampling import chances, examples


def event(number: int, type: str = "a", **data: object) -> ketal.Event:
    return ketal.Event("n", type, {"n": number}, data=data)


def log(*data: dict[str, object], type: str = "a") -> list[ketal.Event]:
    return [event(n, type, **one) for n, one in enumerate(data, 1)]


def unknown_list(text: str, events: list[ketal.Event]) -> list[dict[str, Any]]:
    verdicts = ketal.run(ketal.compile(text), events)
    (counts,) = verdicts.summary["patterns"].values()
    return counts.get("unknown", [])


def unknown_rows(text: str, events: list[ketal.Event]) -> list[tuple[str, str, int, int]]:
    return [
        (one["comparison"], one["kinds"], one["events"], one["of"])
        for one in unknown_list(text, events)
    ]


A_AND_B = [event(1, "a", x="1"), event(2, "b", x=1), event(3, "b", x=True), event(4, "b")]


@pytest.mark.parametrize(
    ("guard", "events", "expected"),
    [
        ("x == 1", log({"x": "1"}), [("x == 1", "string with number", 1, 1)]),
        ("x == 1", log({"x": 1}, {"x": 2}), []),
        ("x == 1", log({"x": 1}, {}), [("x == 1", "absent", 1, 2)]),
        ("x == 1", log({"x": None}), [("x == 1", "absent", 1, 1)]),
        ("x == 1", log({"x": True}), [("x == 1", "boolean with number", 1, 1)]),
        ("x < y", log({"x": "1", "y": 1}), [("x < y", "string with number", 1, 1)]),
        ("x < y", log({"x": [1], "y": 1}), [("x < y", "list with number", 1, 1)]),
        ("x + 1 > 2", log({"x": "1"}), [("x + 1 > 2", "string with number", 1, 1)]),
        ("x in [1, 2]", log({"x": "1"}), [("x in [1, 2]", "string with number", 1, 1)]),
        ('x in [1, "a"]', log({"x": "1"}, {"x": 1}), []),
        ("x matches /a/", log({"x": 1}), [("x matches /a/", "number with string", 1, 1)]),
        ("x < y", log({"y": 1}, {"y": "a"}), [("x < y", "absent", 2, 2)]),
        ("x < y", log({"x": True, "y": False}), [("x < y", "boolean with boolean", 1, 1)]),
        ("x == y", log({"x": True, "y": False}), []),
        ("x == y", log({"x": [1], "y": [1]}), [("x == y", "list with list", 1, 1)]),
        ("exists(x)", log({}, {"x": 1}), []),
        # Another part of the guard decides alone.
        ('type == "b" && x == 1', log({"x": "1"}), []),
        ('type == "a" || x == 1', log({"x": "1"}), []),
        ("exists(x) && x == 1", log({}, {"x": 1}), []),
        ("!(x == 1)", log({"x": "1"}), [("x == 1", "string with number", 1, 1)]),
    ],
)  # fmt: skip
def test_unknown_comparisons_of_a_guard(
    guard: str, events: list[ketal.Event], expected: list[tuple[str, str, int, int]]
) -> None:
    assert unknown_rows(f"pattern P {{ event E = {guard}; find E; }}", events) == expected


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (A_AND_B, [("x == A.x", "absent", 1, 3), ("x == A.x", "boolean with string", 1, 3),
                   ("x == A.x", "number with string", 1, 3)]),
        ([event(1, "a", x=1), event(2, "b", x=1)], []),
        # What no event of the step has is said once, of the side that lacks it.
        ([event(1, "a"), event(2, "b", x=1)], [("x == A.x", "absent", 1, 1)]),
        # An absent value on one side hides neither a mismatch of kinds nor one on the other side.
        ([event(1, "a", x="1"), event(2, "a", x=2), event(3, "b", x=1), event(4, "b", x=None),
          event(5, "b", x=3)],
         [("x == A.x", "absent", 1, 3), ("x == A.x", "string with number", 1, 2)]),
        ([event(1, "a"), event(2, "b", x=1), event(3, "b")],
         [("x == A.x", "absent", 1, 1), ("x == A.x", "absent", 1, 2)]),
        # As many events lack it on one side as on the other.
        ([event(1, "a"), event(2, "b")], [("x == A.x", "absent", 1, 1)]),
        ([event(1, "a"), event(2, "a", x=1), event(3, "b"), event(4, "b")],
         [("x == A.x", "absent", 1, 2), ("x == A.x", "absent", 2, 2)]),
    ],
)  # fmt: skip
def test_comparisons_with_an_event_of_a_run(
    events: list[ketal.Event], expected: list[tuple[str, str, int, int]]
) -> None:
    text = (
        'pattern P { event A = type == "a"; event B = type == "b"; C = B && x == A.x; find A C; }'
    )
    assert unknown_rows(text, events) == expected


def test_partition_key_of_two_kinds_is_reported() -> None:
    text = 'pattern P { partition by k; event E = type == "a"; check E*; }'
    events = log({"k": 1}, {"k": 2}, {"k": "1"}, {})
    (one,) = unknown_list(text, events)
    assert one["message"] == (
        "the key `k` of `partition by` has values of two kinds, which are never equal: "
        "string with number, 1 event"
    )
    assert warnings([one]) == [f"line 1: {one['message']}"]


def test_only_an_attribute_that_all_events_lack_is_warned_of() -> None:
    text = "pattern P { event E = x == 1; find E; }"
    assert warnings(unknown_list(text, log({}, {"x": 1}))) == []
    assert warnings(unknown_list(text, log({}, {}))) == [
        "line 1: `x == 1` is unknown: absent, 2 events of 2"
    ]


def test_attribute_that_all_events_of_a_step_lack_is_warned_of_beside_one_that_some_lack() -> None:
    text = (
        'pattern P { event A = type == "a"; event B = type == "b"; C = B && x == A.y; find A C; }'
    )
    events = [event(1, "a", x=1), event(2, "b", x=1), event(3, "b")]
    assert warnings(unknown_list(text, events)) == [
        "line 1: `x == A.y` is unknown: absent, 1 event of 1"
    ]


def test_place_of_an_unknown_comparison_is_its_line() -> None:
    text = 'pattern P {\n    event E = type == "a"\n        && x == 1;\n    find E;\n}'
    (one,) = unknown_list(text, log({"x": "1"}))
    assert one["place"] == "line 3"


def test_text_of_an_unknown_comparison_is_from_its_line() -> None:
    # These characters end a line for Python's `splitlines`, not in a pattern file.
    text = "// \x0c \x85 \u2028\npattern P {\n event E = x ==\n 1 || x == 2;\n find E;\n}"
    shown = [one["comparison"] for one in unknown_list(text, log({"x": "1"}))]
    assert shown == ["x == …", "x == 2"]


def test_counts_of_unknown_comparisons_survive_a_restore() -> None:
    program = ketal.compile("pattern P { event E = x == 1; find E; }")
    monitor = ketal.Monitor(program)
    for number, value in enumerate([1, "1", None, "2", True], 1):
        monitor.feed(event(number, x=value))
        monitor = ketal.Monitor.restore(program, monitor.snapshot())
    monitor.close()
    entries = monitor.summary["patterns"]["P"]["unknown"]
    assert [(one["kinds"], one["events"]) for one in entries] == [
        ("absent", 1), ("boolean with number", 1), ("string with number", 2),
    ]  # fmt: skip


# --- against the truth of the comparison ---

COMPARISONS = ["x == 1", 'x != "a"', "x < y", "x >= y", "x in [1, 2]", "x matches /a/", "-y > 0"]
FRAMES = [
    "{}", "!({})", '{} && type == "a"', '{} || type == "a"', "{} && z == 1", "!({} || exists(z))",
    '({} || type == "b") && z == 1',
]  # fmt: skip
VALUES = [1, 2, "a", "1", True, None, [1], {"q": 1}]


@given(chances())
@examples(50, 2_000)
def test_event_counts_where_an_unknown_comparison_decides_the_guard(rng: random.Random) -> None:
    comparison, frame = rng.choice(COMPARISONS), rng.choice(FRAMES)
    events = [
        event(n, rng.choice("ab"), **{k: rng.choice(VALUES) for k in "xyz" if rng.random() < 0.7})
        for n in range(1, rng.randint(2, 9))
    ]
    entries = unknown_list(f"pattern P {{ event E = {frame.format(comparison)}; find E; }}", events)
    counted = sum(one["events"] for one in entries if one["comparison"] == comparison)
    of: Counter[str] = Counter(one["of"] for one in entries if one["comparison"] == comparison)
    decided = [
        one for one in events
        if truth(frame.format("true"), one) is not truth(frame.format("false"), one)
        and True in (truth(frame.format("true"), one), truth(frame.format("false"), one))
    ]  # fmt: skip
    assert counted == sum(truth(comparison, one) is None for one in decided)
    assert set(of) <= {len(decided)}


def truth(guard: str, one: ketal.Event) -> bool | None:
    """Return the truth value that the oracle gives a guard for an event."""
    judge, parsed = parsed_guard(guard)
    return judge.truth(parsed, judge.moment(one, (), None))


@functools.cache
def parsed_guard(guard: str) -> tuple[semantics._Judge, syntax.Guard]:
    file = parse(f"pattern P {{ event E = {guard}; find E; }}")
    (pattern,) = file.patterns
    (declared,) = (d for d in pattern.declarations if isinstance(d, syntax.EventDecl))
    return semantics._Judge(file, pattern, {}, {}, None), declared.guard


def test_comparison_in_an_event_used_by_another_event_is_counted() -> None:
    text = """
event Known = call(int Stack.pop(..)) || x == 1;
event Popped = Known && type == "pop";
pattern P { find any Popped Popped; }
"""
    events = [event(1, "pop", x="1"), event(2, "push", x=1)]
    assert [(n, kinds) for n, kinds, *_ in unknown_rows(text, events)] == [
        ("x == 1", "string with number"),
    ]
    (counts,) = ketal.run(ketal.compile(text), events).summary["patterns"].values()
    causes = [(one["what"], one["name"]) for one in counts["vacuous"]]
    assert causes == [("alphabet", "P")]
    called = [event(1, "Stack.pop"), event(2, "push", x=1)]
    (counts,) = ketal.run(ketal.compile(text), called).summary["patterns"].values()
    assert counts["unknown_types"] == 1


@pytest.mark.parametrize("order", ["arrival", "CausalOrder"])
def test_duplicate_and_rejected_events_do_not_count_again(order: str) -> None:
    """Duplicates and rejected records do not count, in a log, a stream and a batch."""
    text = (
        f'pattern P {{ order {order}; event A = type == "a" && x == 1; find any A; }} '
        f'pattern Q {{ order {order}; event B = type == "y"; find any B; }}'
    )
    once = [event(1, "a"), event(2, "a", x=1), event(3, "a")]
    again = [once[0], *once, once[2], event(2, "a", x=2), once[0]]
    summary = ketal.run(ketal.compile(text), once).summary["patterns"]
    (entry,) = summary["P"]["unknown"]
    assert (entry["events"], entry["of"]) == (2, 3)
    assert "most frequent: `a` (3 events)" in str(summary["Q"]["vacuous"])
    for batches in ([again], [[one] for one in again]):
        monitor = ketal.Monitor(ketal.compile(text))
        for batch in batches:
            monitor.feed_many(batch)
        assert monitor.summary["events"]["duplicates"] == 3
        assert monitor.summary["events"]["rejected"] == 1
        monitor.close()
        assert monitor.summary["patterns"] == summary
    assert ketal.run(ketal.compile(text), again).summary["patterns"] == summary


# --- the sample ---


@given(chances())
@examples(30, 500)
def test_sample_of_events_does_not_depend_on_batches(rng: random.Random) -> None:
    records = list(range(200_000))
    whole = sampled(records, 0)
    parts: list[int] = []
    at = 0
    while at < len(records):
        size = rng.choice([1, 100, 512, 5_000, 40_000, 90_000])
        parts += sampled(records[at : at + size], at)
        at += size
    assert parts == whole
    assert whole[: sampling.WHOLE] == records[: sampling.WHOLE]
    blocks = {number // sampling.BLOCK for number in whole[sampling.WHOLE :]}
    assert all(block % sampling.SAMPLED == 0 for block in blocks)
    assert len(blocks) == 200_000 // (sampling.BLOCK * sampling.SAMPLED)
