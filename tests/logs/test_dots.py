"""`log[dot]` is the event with that dot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import ketal
from ketal import Dot, Event, Limits, Log, SettingError
from ketal.logs import Record
from tests.property.executions import execution
from tests.sampling import chances


def event(node: str, counter: int, **data: Any) -> Event:
    return Event(node, "e", {node: counter}, data=data)


@given(chances())
def test_every_event_is_found_by_its_dot(rng: Any) -> None:
    events = execution(rng, events_max=12)
    log = Log.of(events)
    for one in events:
        assert log[one.dot] is one
        assert log[str(one.dot)] is one


def test_events_of_a_verdict_are_found(tmp_path: Path) -> None:
    ketal.write_jsonl([event("a", 1, k=1), event("a", 2, k=2)], tmp_path / "run.jsonl")
    log = ketal.read_log(tmp_path / "run.jsonl")
    program = ketal.compile('pattern P { event E = type == "e"; find next E E; }')
    (match,) = ketal.run(program, log).matches
    assert [log[dot].data["k"] for dot in match.events] == [1, 2]


def test_log_is_read_for_the_first_dot_only() -> None:
    reads = []

    def records() -> Iterator[Record]:
        reads.append(1)
        return iter([("", event("a", n), "", 0) for n in (1, 2)])

    log = Log(records)
    assert reads == []
    assert log["a@2"].counter == 2
    assert log["a@1"].counter == 1
    assert len(reads) == 1


def test_a_missing_event_is_a_key_error() -> None:
    log = Log.of([event("a", 1)])
    with pytest.raises(KeyError, match="the log has no event a@2"):
        log["a@2"]
    with pytest.raises(ketal.SettingError, match="'a' is not a dot"):
        log["a"]
    with pytest.raises(
        TypeError, match=r"a dot must be a ketal\.Dot or a str, for example n3@7, not int"
    ):
        log[0]  # type: ignore[index]


def test_the_first_of_two_events_with_the_same_dot_is_returned() -> None:
    log = Log.of([event("a", 1, k=1), event("a", 1, k=2)])
    assert log["a@1"].data["k"] == 1


@pytest.mark.parametrize("node", ["a", "a#2"])
@pytest.mark.parametrize("number", [2, "2", "02"])
def test_event_is_found_by_its_numbered_incarnation(node: str, number: Any) -> None:
    events = [event("a", 1, incarnation=1), event(node, 1, incarnation=number)]
    log = Log.of(events)
    program = ketal.compile('pattern P { event E = type == "e"; find any E; }')
    dots = [match.events[0] for match in ketal.run(program, log).matches]
    assert dots == [Dot("a", 1), Dot("a#2", 1)]
    assert [log[dot] for dot in dots] == events


def test_dot_in_several_executions_is_an_error() -> None:
    records: list[Record] = [("one", event("a", 1, k=1), "", 0), ("two", event("a", 1, k=2), "", 0),
                             ("two", event("a", 2), "", 0)]  # fmt: skip
    log = Log(lambda: iter(records))
    assert log["a@2"].counter == 2
    with pytest.raises(SettingError, match="the executions one, two each have an event a@1"):
        log["a@1"]
    assert log.executions["two"]["a@1"].data["k"] == 2


def test_log_beyond_events_max_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    ketal.write_jsonl([event("a", n) for n in (1, 2, 3)], path)
    assert ketal.read_log(path, limits=Limits(events_max=3))["a@3"].counter == 3
    with pytest.raises(SettingError, match=r"more than 2 events \(limit events_max\)"):
        ketal.read_log(path, limits=Limits(events_max=2))["a@3"]


def test_event_and_its_dot_are_in_the_log() -> None:
    first, second = event("a", 1), event("a", 2)
    log = Log.of([first])
    assert first in log
    assert second not in log
    assert "a@1" in log
    assert Dot("a", 1) in log
    assert "a@2" not in log
    assert 1 not in log
