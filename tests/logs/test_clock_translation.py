"""Logs stamped by another scheme, read with `--clock`: their events keep their order."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ketal
from ketal.clocks.schemes import SCHEMES, scheme_named
from ketal.errors import SettingError
from ketal.logs.restamping import restamped
from ketal.model.events.happened_before import happened_before
from tests.clocks.executions import SampleRun, sample_runs

EXACT = [name for name in SCHEMES if scheme_named(name).decides]
INEXACT = [name for name in SCHEMES if not scheme_named(name).decides]


def _events(run: SampleRun) -> list[ketal.Event]:
    return [
        ketal.Event(
            node=node,
            type="e",
            clock=clock,
            time=time_us / 1e6,
            data={"number": number},
            id=str(number),
        )
        for number, ((node, clock), time_us) in enumerate(
            zip(run.clocks(), run.times_us, strict=True)
        )
    ]


def _written(events: list[ketal.Event], scheme: str, rng: random.Random) -> io.BytesIO:
    drafts = restamped(events, scheme_named(scheme)).drafts()
    rng.shuffle(drafts)
    file = io.BytesIO()
    ketal.write_jsonl(drafts, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("name", EXACT)
@given(run=sample_runs(nodes_max=5, steps_max=25), rng=st.randoms())
def test_exact_stamps_are_read_back_as_equal_clocks(
    name: str, run: SampleRun, rng: random.Random
) -> None:
    events = _events(run)
    log = ketal.read_log(_written(events, name, rng), clock=name)
    assert log.undecided is None
    assert sorted(log, key=lambda event: event.data["number"]) == events


@pytest.mark.parametrize("name", INEXACT)
@given(run=sample_runs(nodes_max=5, steps_max=25), rng=st.randoms())
def test_log_of_an_inexact_scheme_keeps_happened_before(
    name: str, run: SampleRun, rng: random.Random
) -> None:
    events = _events(run)
    log = ketal.read_log(_written(events, name, rng), clock=name)
    read = sorted(log, key=lambda event: event.data["number"])
    assert [event.dot for event in read] == [event.dot for event in events]
    unknown = 0
    for b, other in zip(events, read, strict=True):
        for a, one in zip(events, read, strict=True):
            if happened_before(a, b):
                assert happened_before(one, other)
            unknown += happened_before(one, other) and one.node != other.node
    assert log.undecided is not None
    pairs = len(events) * (len(events) - 1) // 2
    assert (log.undecided.pairs, log.undecided.unknown) == (pairs, unknown)


@pytest.mark.parametrize("name", EXACT)
@given(run=sample_runs(nodes_max=4, steps_max=20), data=st.data())
def test_an_excerpt_keeps_its_order(name: str, run: SampleRun, data: st.DataObject) -> None:
    events = [event for event in _events(run) if data.draw(st.booleans())]
    log = ketal.read_log(_written(events, name, random.Random(0)), clock=name)
    read = sorted(log, key=lambda event: event.data["number"])
    for b, other in zip(events, read, strict=True):
        for a, one in zip(events, read, strict=True):
            assert happened_before(one, other) == happened_before(a, b)


def _line(node: str, clock: Any, **more: Any) -> bytes:
    return json.dumps({"node": node, "type": "x", "clock": clock, **more}).encode() + b"\n"


def _read(lines: list[bytes], clock: str) -> ketal.Log:
    return ketal.read_log(io.BytesIO(b"".join(lines)), clock=clock)


def test_a_duplicate_remains_a_duplicate() -> None:
    lines = [_line("a", 1), _line("a", 2), _line("a", 1)]
    assert [str(event) for event in _read(lines, "lamport")] == ["a@1 x", "a@2 x", "a@1 x"]


def test_stamps_that_contradict_the_order_of_a_node_are_rejected() -> None:
    log = _read([_line("a", [0, 1, 0]), _line("a", [0, 0, 1])], "itc")
    (rejected,) = log.rejected
    assert rejected.reason == (
        "clock: its itc stamp is not ordered with that of another event of a; the stamps of one "
        "node's events must be totally ordered"
    )
    assert rejected.place == "<file>:2"
    assert len(list(log)) == 1


def test_a_stamp_shared_with_another_node_is_rejected() -> None:
    """Lamport clocks read as interval tree clocks: an integer is a valid stamp of both."""
    lines = [_line("a", 1), _line("b", 1), _line("a", 1), _line("b", 2)]
    log = _read(lines, "itc")
    (rejected,) = log.rejected
    assert (rejected.place, rejected.reason) == (
        "<file>:2",
        "clock: an event of a has the same itc stamp; each event must have its own",
    )
    assert [str(event) for event in log] == ["a@1 x", "a@1 x", "b@1 x"]
    assert not list(_read(lines, "lamport").rejected)


@pytest.mark.parametrize("name", SCHEMES)
def test_an_invalid_stamp_is_rejected_with_its_place(name: str) -> None:
    log = _read([_line("a", {"odd": []}), _line("a", None)], name)
    assert [(one.place, one.reason.split()[0]) for one in log.rejected] == [
        ("<file>:1", "clock:"),
        ("<file>:2", "the"),
    ]


def test_receives_field_must_be_in_the_clock() -> None:
    lines = [_line("a", 1), _line("b", 2, receives=["a@1"]), _line("c", 1, receives=["a@1"])]
    log = _read(lines, "lamport")
    assert [str(event.receives) for event in log] == ["()", "(Dot(node='a', counter=1),)"]
    assert [one.place for one in log.rejected] == ["<file>:3"]


def test_receives_are_renumbered_by_the_stamps() -> None:
    events = [
        ketal.Event(node="a", type="x", clock={"a": 3}),
        ketal.Event(node="b", type="x", clock={"a": 3, "b": 7}, receives=["a@3", "a@2"]),
    ]
    file = io.BytesIO()
    ketal.write_jsonl(restamped(events, scheme_named("itc")).drafts(), file)
    file.seek(0)
    assert [str(event.receives) for event in ketal.read_log(file, clock="itc")] == [
        "()",
        "(Dot(node='a', counter=1),)",
    ]


def test_stamp_can_be_text_in_a_table() -> None:
    csv = b'node,type,clock\na,x,"[0, 1, 0]"\nb,x,"[0, 0, 1]"\nb,x,1\n'
    log = ketal.read_log(io.BytesIO(csv), format="csv", clock="itc")
    assert [event.clock for event in log] == [{"a": 1}, {"b": 1}, {"a": 1, "b": 2}]


def test_more_records_than_events_max_are_an_error() -> None:
    lines = [_line("a", n) for n in range(1, 5)]
    limits = ketal.Limits(events_max=3)
    log = ketal.read_log(io.BytesIO(b"".join(lines)), clock="lamport", limits=limits)
    with pytest.raises(SettingError, match=r"more than 3 records \(limit events_max\)"):
        list(log)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"clock": "ict"}, "unknown clock scheme 'ict'; did you mean itc"),
        ({"clock": "non"}, "unknown clock scheme 'non'; did you mean none"),
        ({"clock": "x"}, "unknown clock scheme 'x'; choose from history, vector.*, hlc, none"),
        ({"clock": 1}, "clock must be the name of a scheme"),
        ({"clock": "itc", "nodes": ["a"]}, "nodes applies only to positional vector clocks"),
        (
            {"clock": "itc", "rebuild": "id=m,send=type:s,receive=type:r"},
            "clock and rebuild cannot be combined",
        ),
        (
            {"clock": "itc", "format": "otlp"},
            "clock applies only to logs of events, but the format is otlp",
        ),
    ],
)
def test_incompatible_options(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        ketal.read_log(io.BytesIO(b""), **options)


@given(run=sample_runs(), data=st.data())
def test_messages_of_an_excerpt_keep_its_order(run: SampleRun, data: st.DataObject) -> None:
    chosen = [event for event in _events(run) if data.draw(st.booleans())]
    execution = restamped(chosen, scheme_named("vector"))
    numbers = [event.data["number"] for event in execution.events]
    receives = [happening.receives for happening in execution.happenings]
    pasts = run.pasts()
    expected = [{at for at, a in enumerate(numbers) if a in pasts[b]} for b in numbers]
    assert SampleRun([run.nodes[number] for number in numbers], receives).pasts() == expected
