"""The text output of `ketal run`: verdicts grouped by cause, each with file and line."""

from __future__ import annotations

import json

import pytest

import ketal as library
from ketal.cli.output.verdict_lines import CAUSES_MAX, OWN_LINES_MAX, VerdictGroups
from ketal.explanation.verdict_places import RECORDS_MAX, VerdictPlaces
from ketal.model.events.dot import Dot
from ketal.model.log_arguments import RecordBatch
from ketal.model.verdicts.check_verdicts import Violation
from ketal.model.verdicts.execution_verdicts import Rejected
from tests.cli.conftest import Ketal, Write

PATTERN = """\
event Login = type == "login";
event Read = type == "read";
pattern Session {
    partition by user;
    check (Login Read*)*;
}
"""


def reads(count: int) -> str:
    """Return a log in which `count` users read without having logged in."""
    events = (
        {"node": "s1", "type": "read", "clock": {"s1": n}, "data": {"user": f"u{n}"}}
        for n in range(1, count + 1)
    )
    return "".join(json.dumps(event) + "\n" for event in events)


@pytest.fixture
def run(ketal: Ketal, write: Write) -> Ketal:
    write("p.ketal", PATTERN)
    return lambda *words, stdin="": ketal("run", "p.ketal", "run.jsonl", *words, stdin=stdin)


@pytest.mark.parametrize("order", ["", "order CausalOrder;"])
def test_violations_of_one_cause_are_grouped(run: Ketal, write: Write, order: str) -> None:
    write("p.ketal", PATTERN.replace("partition", f"{order} partition"))
    write("run.jsonl", reads(68))
    ended = run()
    assert ended.out.splitlines() == [
        "violation Session (user=u1): s1@1 read: expected Login (run.jsonl:1)",
        "violation Session (user=u2): s1@2 read: expected Login (run.jsonl:2)",
        "violation Session (user=u3): s1@3 read: expected Login (run.jsonl:3)",
        "violation Session: read: expected Login: 68 times, first s1@1 at run.jsonl:1",
        "68 read = 68 accepted",
        "Session: 68 violations",
    ]
    assert ended.code == 1


def test_few_verdicts_of_a_cause_have_a_line_each(run: Ketal, write: Write) -> None:
    write("run.jsonl", reads(OWN_LINES_MAX))
    assert [line[:9] for line in run().out.splitlines()] == [
        *["violation"] * OWN_LINES_MAX, "3 read = ", "Session: ",
    ]  # fmt: skip


@pytest.mark.parametrize("words", [("--live",), ("--first", "10"), ("--output", "json")])
def test_verdicts_are_not_grouped_with_live_first_or_json(
    run: Ketal, write: Write, words: tuple[str, ...]
) -> None:
    write("run.jsonl", reads(10))
    lines = run(*words).out.splitlines()
    assert len([line for line in lines if "expected Login" in line or '"Login"' in line]) == 10
    assert not any("times" in line for line in lines)


def test_limit_reached_in_many_scopes_is_printed_once(run: Ketal, write: Write) -> None:
    write("run.jsonl", reads(500))
    lines = run("--limit", "scopes_max=1").out.splitlines()
    assert (
        "overflow Session: limit scopes_max reached: the events of a new scope: 499 times, "
        "first s1@2 at run.jsonl:2"
    ) in lines
    assert len(lines) < 10


def test_rejections_of_one_reason_are_grouped(run: Ketal, write: Write) -> None:
    write("run.jsonl", reads(1) + "{}\n" * 40)
    lines = run().out.splitlines()
    rejections = [line for line in lines if line.startswith("rejected")]
    assert len(rejections) == OWN_LINES_MAX + 1
    assert rejections[-1].endswith(": 40 times, first run.jsonl:2")


def test_rejections_are_grouped_whatever_the_values_in_their_reasons() -> None:
    groups = VerdictGroups(lambda _: "")
    reasons = [
        *(f"time '{n}/05' is neither RFC 3339 nor seconds since the epoch" for n in range(9)),
        *(f"n#2@{n} was read before with other content" for n in range(8)),
        *(f"the clock entry A: {n} may refer to A@{n} or A#2@{n}" for n in range(7)),
        *(f"clock: the node's own entry {name!r} is missing" for name in ("a", "b", "it's", "c")),
        *["clock: the node's own entry 'a' is negative"] * 6,
    ]
    shown = [groups.has_own_lines(Rejected(place="", reason=reason)) for reason in reasons]
    assert sum(shown) == 5 * OWN_LINES_MAX
    assert list(groups.lines()) == [
        "rejected time '0/05' is neither RFC 3339 nor seconds since the epoch: "
        "9 times with different values",
        "rejected n#2@0 was read before with other content: 8 times with different values",
        "rejected the clock entry A: 0 may refer to A@0 or A#2@0: 7 times with different values",
        "rejected clock: the node's own entry 'a' is missing: 4 times with different values",
        "rejected clock: the node's own entry 'a' is negative: 6 times",
    ]


def violation(number: int, type: str = "read", why: str = "") -> Violation:
    return Violation(
        fingerprint="", pattern="P", event=Dot("n", number), type=type, expected=("A",),
        reason=f"expected A{why}",
    )  # fmt: skip


def test_causes_beyond_the_limit_are_not_grouped() -> None:
    groups = VerdictGroups(lambda _: "")
    for number in range(CAUSES_MAX):
        assert groups.has_own_lines(violation(1, f"t{number}"))
    assert all(groups.has_own_lines(violation(number, "other")) for number in range(1, 10))
    assert list(groups.lines()) == []


def test_detail_of_a_failed_guard_does_not_split_a_group() -> None:
    groups = VerdictGroups(lambda _: "")
    for number in range(1, 6):
        why = f"; not A: it is not causally after B (m@{number})"
        groups.has_own_lines(violation(number, why=why))
    assert list(groups.lines()) == ["violation P: read: expected A: 5 times, first n@1"]


def test_rejections_without_a_place_are_grouped() -> None:
    groups = VerdictGroups(lambda _: "")
    shown = [groups.has_own_lines(Rejected(place="", reason="no type")) for _ in range(5)]
    assert shown == [True] * OWN_LINES_MAX + [False] * 2
    assert list(groups.lines()) == ["rejected no type: 5 times"]


def test_places_are_kept_for_the_last_records() -> None:
    places, whole = VerdictPlaces(all_kept=False), VerdictPlaces(all_kept=True)
    size = 1_024
    batches = 2 * RECORDS_MAX // size
    for start in range(batches):
        dots = range(start * size + 1, (start + 1) * size + 1)
        events = [library.Event("n", "a", {"n": number}) for number in dots]
        batch = RecordBatch("", events, "log", dots)
        places.keep(batch)
        whole.keep(batch)
    last = batches * size
    assert places.at("", Dot("n", last)) == f"log:{last}"
    first_kept = last - RECORDS_MAX // size * size + 1
    assert places.at("", Dot("n", first_kept)) == f"log:{first_kept}"
    assert places.at("", Dot("n", first_kept - 1)) == ""
    assert places.at("other", Dot("n", last)) == ""
    assert whole.at("", Dot("n", 1)) == "log:1"


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("all_kept", [False, True])
def test_place_of_an_event_is_where_its_dot_was_first_read(size: int, all_kept: bool) -> None:
    places = VerdictPlaces(all_kept=all_kept)
    event = library.Event("n", "a", {"n": 1})
    again = library.Event("n", "a", {"n": 1}, data={"after": "a restart"})
    events, lines = [event, again, event], [1, 2, 3]
    for start in range(0, 3, size):
        some = slice(start, start + size)
        places.keep(RecordBatch("", events[some], "log", lines[some]))
        assert places.at("", event.dot) == "log:1"
