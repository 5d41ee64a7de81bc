"""The verdicts of a finite log: iterated any number of times, and queried as a whole."""

from __future__ import annotations

import io
import json
import pickle
import random
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, reject

import ketal
from ketal import Event, Limits, SettingError, ViolationError
from ketal.grammar import render
from ketal.logs import Record
from ketal.model.events.control import Control
from ketal.model.summaries import PatternCounts, Summary, Tally
from ketal.model.verdicts.verdict_kinds import COUNTED
from ketal.runtime.batch_run import LogPass
from ketal.runtime.log_verdicts import CELL_CHARACTERS, NAMED_MAX
from tests.property.executions import execution
from tests.property.patterns import pattern_file
from tests.sampling import chances, examples

ORDERS = ("arrival", "CausalOrder")
TEXT = """
event Take = type == "take"; event Free = type == "free";
pattern Lock { order %s; check (Take Free)*; }
pattern Takes { order %s; find any Take Take; }
"""


def program(order: str = "arrival", **knobs: Any) -> ketal.Program:
    return ketal.compile(TEXT % (order, order), **knobs)


def log(types: str) -> list[Event]:
    """Return one node's events: `t` takes the lock, `f` frees it."""
    words = {"t": "take", "f": "free"}
    return [Event("n", words[t], {"n": at}) for at, t in enumerate(types, 1)]


def texts(verdicts: Any) -> list[str]:
    return [str(verdict) for verdict in verdicts]


VIOLATION = "violation Lock: n@2 take: expected Free"
MATCH = "match Takes: Take=n@1+n@2"


# --- again and again, and of the whole ---------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("most", [1, 2, 100])
def test_verdicts_can_be_iterated_repeatedly(order: str, most: int) -> None:
    verdicts = ketal.run(program(order), log("ttf"), limits=Limits(verdicts_max=most))
    for _ in range(3):
        assert texts(verdicts) == [VIOLATION, MATCH]
    first, second = iter(verdicts), iter(verdicts)
    assert [str(next(first)), str(next(second)), str(next(first))] == [VIOLATION, VIOLATION, MATCH]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("left_early", [False, True])
def test_a_query_about_the_whole_log_judges_it_first(order: str, left_early: bool) -> None:
    def fresh() -> ketal.Verdicts:
        verdicts = ketal.run(program(order), log("ttf"))
        if left_early:
            next(iter(verdicts))
        return verdicts

    assert fresh().summary["events"]["read"] == 3
    assert fresh().summary["patterns"]["Lock"]["violations"] == 1
    assert texts(fresh().violations) == [VIOLATION]
    assert texts(fresh().matches) == [MATCH]
    with pytest.raises(ViolationError) as caught:
        fresh().raise_on_violation()
    assert texts(caught.value.violations) == [VIOLATION]
    assert "n@2" in fresh()._repr_html_()
    assert list(fresh().to_pandas()["verdict"]) == ["violation", "match"]


def test_the_log_is_read_once_if_its_verdicts_are_cached() -> None:
    reads = []

    def records() -> Iterator[Record]:
        reads.append(1)
        return (("", event, "", 0) for event in log("ttf"))

    verdicts = ketal.run(program(), ketal.Log(records))
    assert reads == []
    assert len(list(verdicts)) == 2
    assert verdicts.summary["events"]["read"] == 3
    assert len(verdicts.violations) == len(verdicts.matches) == 1
    assert len(list(verdicts)) == len(verdicts.to_pandas()) == 2
    assert "violation" in verdicts._repr_html_()
    assert len(reads) == 1
    few = ketal.run(program(), ketal.Log(records), limits=Limits(verdicts_max=1))
    assert len(few.violations) == len(few.matches) == 1
    assert len(reads) == 1 + 2, "more than verdicts_max: judged again"
    assert "violation" in few._repr_html_()
    assert few.summary["events"]["read"] == 3
    assert len(reads) == 1 + 2, "the summary and the first of the verdicts stay"


@examples(40, 2_000)
@given(chances())
def test_queries_in_any_order_have_the_answers_of_one_pass(rng: random.Random) -> None:
    """The answers are those of one complete pass, in whatever order the queries are made."""
    try:
        made = ketal.compile(render(pattern_file(rng)))
    except ketal.PatternError:
        reject()
    events = execution(rng, events_max=8)
    one_pass = LogPass(made, events, made.compiled[0].limits)
    expected = texts(one_pass)
    verdicts = ketal.run(made, events, limits=Limits(verdicts_max=rng.randint(1, 4)))
    questions: dict[str, Callable[[], bool]] = {
        "iterate": lambda: texts(verdicts) == expected,
        "leave": lambda: texts(islice(verdicts, 3)) == expected[:3],
        "summary": lambda: verdicts.summary == one_pass.summary,
        "violations": lambda: (
            texts(verdicts.violations)
            == [text for text in expected if text.startswith("violation")]
        ),
        "matches": lambda: (
            texts(verdicts.matches) == [text for text in expected if text.startswith("match")]
        ),
    }
    for _ in range(4):
        assert questions[rng.choice(list(questions))]()


# --- a log that can be read only once ----------------------------------------------------------


def test_an_iterator_as_log_is_read_once_and_later_queries_use_the_cache() -> None:
    verdicts = ketal.run(program(), iter(log("ttf")))
    for _ in range(2):
        assert texts(verdicts) == [VIOLATION, MATCH]
        assert verdicts.summary["events"]["read"] == 3
        assert texts(verdicts.violations) == [VIOLATION]


def test_iterator_that_was_not_exhausted_raises_on_a_second_query() -> None:
    verdicts = ketal.run(program(), (event for event in log("ttf")))
    next(iter(verdicts))
    asks: list[Callable[[ketal.Verdicts], object]] = [
        list, lambda v: v.summary, lambda v: v.violations, lambda v: v.to_pandas(),
    ]  # fmt: skip
    for ask in asks:
        with pytest.raises(SettingError, match=r"only once, and its verdicts were not all read"):
            ask(verdicts)


def test_iterator_with_more_verdicts_than_kept_raises_on_a_second_query() -> None:
    verdicts = ketal.run(program(), iter(log("ttf")), limits=Limits(verdicts_max=1))
    assert verdicts.summary["patterns"]["Takes"]["matches"] == 1
    with pytest.raises(SettingError, match=r"it has 2 verdicts, more .* \(limit verdicts_max\)"):
        list(verdicts)
    assert "n@2" in verdicts._repr_html_(), "a table needs the first ones only"


@pytest.mark.parametrize("read", [list, iter], ids=["a list", "an iterator"])
def test_violation_error_names_what_is_kept_of_an_iterator(read: Callable[[Any], Any]) -> None:
    few = ketal.compile('pattern Few { event E = type == "take"; check E; on violation skip; }')
    events = [*log("t" * 4), ketal.Rejected(place="x", reason="no")]
    verdicts = ketal.run(few, read(events), limits=Limits(verdicts_max=2))
    with pytest.raises(ViolationError) as caught:
        verdicts.raise_on_violation()
    text, (n2, n3) = str(caught.value), caught.value.violations
    rejected = "rejected x: no" if read is list else "not listed"
    assert text.splitlines() == [
        "3 violations of Few", f"  {n2}", f"  {n3}", "  and 1 more",
        f"not shown to hold: 1 of 5 records rejected; the first: {rejected}",
    ]  # fmt: skip


def test_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = b"".join(
        json.dumps({"node": "n", "type": "take", "clock": {"n": n}}).encode() + b"\n"
        for n in (1, 2)
    )
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    verdicts = ketal.run(program(), ketal.read_log("-"))
    next(iter(verdicts))
    with pytest.raises(SettingError, match="<stdin> can be read only once"):
        verdicts.summary  # noqa: B018


# --- listing=False -----------------------------------------------------------------------------


def test_run_without_listing_has_a_summary_and_raises_on_other_queries() -> None:
    verdicts = ketal.run(program(), log("ttf"), listing=False)
    assert verdicts.summary["patterns"]["Lock"]["violations"] == 1
    for ask in ("violations", "matches"):
        with pytest.raises(SettingError, match="listing=False lists no verdicts"):
            getattr(verdicts, ask)
    with pytest.raises(SettingError, match="listing=False lists no verdicts"):
        verdicts.to_pandas()
    with pytest.raises(ViolationError, match="1 violation of Lock") as caught:
        verdicts.raise_on_violation()
    assert caught.value.violations == ()
    assert "1 violation" in verdicts._repr_html_()


# --- raise_on_violation ------------------------------------------------------------------------


def test_raise_on_violation_returns_the_verdicts_if_all_checks_hold() -> None:
    verdicts = ketal.run(program(), log("tftf"))
    assert verdicts.raise_on_violation() is verdicts


def test_violation_error_names_the_first_violations_and_has_all() -> None:
    many = ketal.compile('pattern Few { event E = type == "take"; check E; on violation skip; }')
    with pytest.raises(ViolationError) as caught:
        ketal.run(many, log("t" * 10)).raise_on_violation()
    error = caught.value
    lines = str(error).splitlines()
    assert len(error.violations) == 9
    assert lines[0] == "9 violations of Few"
    assert lines[1 : NAMED_MAX + 1] == [f"  {v}" for v in error.violations[:NAMED_MAX]]
    assert lines[NAMED_MAX + 1 :] == [f"  and {9 - NAMED_MAX} more"]
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.violations, again.reasons) == (str(error), error.violations, ())


def reasons(verdicts: ketal.Verdicts, **options: bool) -> list[str]:
    with pytest.raises(ViolationError) as caught:
        verdicts.raise_on_violation(**options)
    assert caught.value.violations == ()
    assert str(caught.value) == "\n".join(f"not shown to hold: {r}" for r in caught.value.reasons)
    return list(caught.value.reasons)


def test_empty_log_is_not_shown_to_hold() -> None:
    assert reasons(ketal.run(program(), [])) == ["no event was read"]


def test_log_of_rejected_records_is_not_shown_to_hold(tmp_path: Any) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("no\n{}\n")
    first, second = reasons(ketal.run(program(), ketal.read_log(path)))
    assert first == "no event was read"
    assert second.startswith("2 of 2 records rejected; the first: rejected ")
    assert "run.jsonl:1" in second


def test_log_with_a_rejected_record_is_not_shown_to_hold() -> None:
    damaged: list[Any] = [*log("tf"), ketal.Rejected(place="x:3", reason="cut off")]
    for listing in (True, False):
        assert reasons(ketal.run(program(), damaged, listing=listing)) == [
            "1 of 3 records rejected; the first: rejected x:3: cut off"
        ]


def test_log_with_impossible_clocks_is_not_shown_to_hold() -> None:
    cycle = [Event("a", "take", {"a": 1, "b": 1}), Event("b", "free", {"a": 1, "b": 1})]
    assert reasons(ketal.run(program("CausalOrder"), cycle)) == [
        "1 event with an impossible clock; run `ketal audit` to find the fault"
    ]


def test_check_that_reached_a_limit_is_not_shown_to_hold() -> None:
    text = 'pattern Keyed { partition by k; event E = type == "e"; check E E; }'
    events = [Event("n", "e", {"n": n}, data={"k": n}) for n in (1, 2, 3)]
    (reason,) = reasons(ketal.run(ketal.compile(text), events, limits=Limits(scopes_max=2)))
    assert reason.startswith(
        "Keyed: a limit was reached 1 time, so verdicts may be missing; the first: "
    )
    assert "scopes_max" in reason
    over = ketal.run(program("CausalOrder"), log("tf" * 2), limits=Limits(events_max=2))
    (reason,) = reasons(over)
    assert reason.startswith("2 events dropped beyond a limit; the first: overflow")
    assert "events_max" in reason


def test_events_that_a_find_could_not_judge_do_not_affect_a_check() -> None:
    text = """event E = type == "e";
        pattern Fine { check E*; }
        pattern Pairs { find any E E; }"""
    events = [Event("n", "e", {"n": n}) for n in range(1, 9)]
    verdicts = ketal.run(ketal.compile(text), events, limits=Limits(matches_per_event_max=2))
    assert verdicts.summary["patterns"]["Pairs"]["overflows"]
    assert verdicts.raise_on_violation() is verdicts


def test_check_with_a_vacuous_alphabet_is_not_shown_to_hold() -> None:
    """The summary is one with counts of the events that satisfy each declaration."""

    class Vacuous(LogPass):
        @property
        def summary(self) -> Summary:
            counted = super().summary
            counted["patterns"]["Lock"]["vacuous"] = [{"what": "step"}, {"what": "alphabet"}]
            return counted

    def verdicts() -> ketal.Verdicts:
        made = program()
        limits = Limits()
        return ketal.Verdicts(lambda: Vacuous(made, log("tf"), limits), made, limits)

    assert reasons(verdicts()) == [
        "no event is in the alphabet of Lock (allow_vacuous=True accepts that)"
    ]
    verdicts().raise_on_violation(allow_vacuous=True)


def test_raise_on_violation_needs_a_check() -> None:
    with pytest.raises(SettingError, match="no pattern of the program is a `check`"):
        ketal.run(program()["Takes"], log("tt")).raise_on_violation()


# --- shown -------------------------------------------------------------------------------------


def test_repr_reads_no_event() -> None:
    events = iter(log("ttf"))
    verdicts = ketal.run(program(), events)
    assert repr(verdicts) == "<ketal.Verdicts of Lock, Takes: not all judged yet>"
    assert len(list(events)) == 3, "none was taken"
    judged = ketal.run(program(), log("ttf"))
    assert judged.summary
    shown = "<ketal.Verdicts Lock: 1 violation; Takes: 1 match; events: 3 read, 3 accepted>"
    assert repr(judged) == shown


def rows(html: str) -> list[list[str]]:
    """Return the rows of cells of a table, the header first."""
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in html.split("<tr>")[1:]]


def test_a_notebook_shows_a_table_of_verdicts() -> None:
    html = ketal.run(program(), log("ttf"))._repr_html_()
    assert "<caption>Lock: 1 violation<br>Takes: 1 match<br>events: 3 read, 3 accepted<" in html
    heads, violation, match = rows(html)
    assert dict(zip(heads, violation, strict=True)) == {
        "verdict": "violation", "pattern": "Lock", "event": "n@2", "state": "q1",
        "expected": "[&quot;Free&quot;]", "reason": "expected Free", "events": "", "bindings": "",
    }  # fmt: skip
    assert dict(zip(heads, match, strict=True))["events"] == "[&quot;n@1&quot;,&quot;n@2&quot;]"


def test_notebook_table_is_bounded_and_counts_the_rest() -> None:
    find = ketal.compile('pattern All { event E = type == "take"; find any E; }')
    html = ketal.run(find, log("t" * 7), limits=Limits(shown_max=3))._repr_html_()
    assert len(rows(html)) == 1 + 3 + 1
    assert rows(html)[-1] == ["and 4 more (limit shown_max)"]
    assert "more" not in ketal.run(find, log("ttt"), limits=Limits(shown_max=3))._repr_html_()
    # The length of a cell is bounded, too.
    kleene = ketal.compile('pattern Run { event E = type == "take"; find next E{90}; }')
    bindings = rows(ketal.run(kleene, log("t" * 90))._repr_html_())[1][-1]
    assert bindings.endswith("…")
    assert len(bindings.replace("&quot;", '"')) == CELL_CHARACTERS + 1


def test_notebook_table_escapes_html() -> None:
    find = ketal.compile('pattern All { partition by k; event E = type == "e"; find any E; }')
    html = ketal.run(find, [Event("<b>", "e", {"<b>": 1}, data={"k": "<i>"})])._repr_html_()
    assert "<b>" not in html
    assert "<i>" not in html
    assert "&lt;b&gt;@1" in html


def test_notebook_table_of_an_empty_log_says_that_no_event_was_read() -> None:
    html = ketal.run(program(), [])._repr_html_()
    assert "events: 0 read" in html
    assert "not shown to hold: no event was read" in html
    assert rows(html) == []


def test_to_pandas_without_pandas_names_the_missing_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(SettingError, match="to_pandas requires pandas, which is not installed"):
        ketal.run(program(), log("t")).to_pandas()


# --- the type of a summary ---------------------------------------------------------------------


def test_a_summary_has_the_keys_of_its_type() -> None:
    assert set(COUNTED) <= PatternCounts.__required_keys__
    events: list[Any] = [
        *log("tt"),
        Event("n", "take", {"n": 2}),
        Event("n", "free", {"n": 3}, time=1.0),
        Control("watermark", time=9.0),
        ketal.Rejected(place="", reason="none"),
    ]
    text = TEXT % ("CausalOrder", "CausalOrder") + (
        'pattern Halts { on violation halt; event E = type == "take"; check E; }'
    )
    with ketal.Monitor(ketal.compile(text), on={"violation": lambda verdict: 1 / 0}) as monitor:
        monitor.feed_many(events)
    for summary in (ketal.run(ketal.compile(text), events).summary, monitor.summary):
        known = Summary.__annotations__
        assert set(summary) <= set(known)
        assert set(known) - set(summary) <= Summary.__optional_keys__
        for counts in summary["patterns"].values():
            assert set(counts) <= PatternCounts.__required_keys__ | PatternCounts.__optional_keys__
            assert set(counts) >= PatternCounts.__required_keys__
        assert set(summary["events"]) == {"read", *(item.name for item in fields(Tally))}


@pytest.mark.parametrize("strategy", ["next", "strict", "any"])
def test_events_that_cannot_be_a_first_step_count_as_judged(strategy: str) -> None:
    """No scope is created for such events, but the reason is not a missing partition key."""
    text = """pattern Pairs {
        partition by k;
        event Open = type == "o"; event Close = type == "c";
        find %s Open Close; }"""
    events = [Event("n", "c", {"n": n}, data={"k": n}) for n in (1, 2)]
    summary = ketal.run(ketal.compile(text % strategy), events).summary
    (finding,) = summary["patterns"]["Pairs"]["vacuous"]
    assert (finding["what"], finding["name"]) == ("type", "o")


def test_possibly_and_definitely_accept_the_items_of_a_log() -> None:
    """A rejected record is skipped, as in a file; an item of another class is a TypeError."""
    program = ketal.compile('pattern P { event A = type == "a"; find any A; }')
    event = ketal.Event(node="n", type="a", clock={"n": 1})
    items: list[Any] = [event, ketal.Rejected(place="run.jsonl:2", reason="it is cut")]
    for judge in (ketal.possibly, ketal.definitely):
        assert judge(program, items)
        with pytest.raises(TypeError, match="an item of a log must be"):
            judge(program, [*items, "run.jsonl"])  # type: ignore[list-item]


def test_a_table_of_no_verdicts_has_columns() -> None:
    pytest.importorskip("pandas")
    frame = ketal.run(ketal.compile(TEXT % ("arrival", "arrival")), []).to_pandas()
    assert list(frame.columns) == ["verdict", "pattern", "scope"]
    assert frame[frame["verdict"] == "match"].empty


def test_log_with_late_events_is_not_shown_to_hold() -> None:
    text = TEXT % ORDERS + "pattern Timed { find any Take; within 5 s; }"
    log: list[Event | Control] = [
        Event("a", "take", {"a": 1}, time=1), Control("watermark", time=10),
        Event("b", "free", {"b": 1}, time=2),
    ]  # fmt: skip
    assert reasons(ketal.run(ketal.compile(text), log)) == [
        "1 event arrived late, after the watermark"
    ]
