"""Logs without clocks, `clock="none"`: an event is identified by its place in the log."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import ketal
from ketal.errors import SettingError
from ketal.logs.source import Source

ROWS: list[dict[str, Any]] = [
    {"node": "web", "type": "request", "trace": 1},
    {"node": "db", "type": "query", "trace": 1, "clock": {"db": 9, "web": 9}, "receives": ["x@1"]},
    {"node": "web", "trace": 1},
    {"node": "web", "type": "response", "trace": 1},
]
"""A clock, and messages received, are ignored; the third row is not an event."""


def _stream(rows: list[dict[str, Any]]) -> io.BytesIO:
    return io.BytesIO("".join(json.dumps(row) + "\n" for row in rows).encode())


def _clocks(log: ketal.Log) -> list[tuple[str, dict[str, int]]]:
    return [(str(event), event.clock) for event in log]


@pytest.mark.parametrize("given", ["file", "rows"])
def test_the_counter_is_the_place_among_the_events_of_the_node(given: str) -> None:
    log = ketal.read_log(_stream(ROWS) if given == "file" else ROWS, clock="none")
    expected = [
        ("web@1 request", {"web": 1}),
        ("db@1 query", {"db": 1}),
        ("web@2 response", {"web": 2}),
    ]
    assert _clocks(log) == expected
    if given == "rows":
        assert _clocks(log) == expected, "a second reading begins at 1 again"
        assert log["web@2"].type == "response"
    assert log.undecided is not None
    assert log.undecided.scheme == "none"


def test_the_dots_are_those_that_rebuilding_would_give(tmp_path: Path) -> None:
    """Events of the first file come before those of the second."""
    rows = [ROWS[0], ROWS[1], ROWS[3]]
    for name, part in (("a.jsonl", rows), ("b.jsonl", rows[::-1])):
        (tmp_path / name).write_bytes(_stream(part).read())
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    keys = "id=msg,send=type:send,receive=type:receive"
    numbered = ketal.read_log(*files, clock="none")
    assert _clocks(numbered) == _clocks(ketal.read_log(*files, rebuild=keys))
    assert [event.counter for event in numbered if event.node == "web"] == [1, 2, 3, 4]


def test_events_without_a_node_are_those_of_the_log() -> None:
    rows = [{"event": "a", "host": "h1"}, {"event": "b", "host": "h2"}]
    log = ketal.read_log(_stream(rows), clock="none", fields={"type": "event"})
    assert [(str(event), event.data) for event in log] == [
        ("log@1 a", {"host": "h1"}),
        ("log@2 b", {"host": "h2"}),
    ]


def test_a_node_at_a_given_path_is_required() -> None:
    log = ketal.read_log(_stream([{"type": "a"}]), clock="none", fields={"node": "hots"})
    assert [one.reason[:29] for one in log.rejected] == ["the record has no node at hot"]


def test_tables_and_text_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "access.csv").write_text("path,status\n/a,200\n/b,500\n")
    log = ketal.read_log(tmp_path / "access.csv", clock="none", fields={"type": "path"})
    assert [(str(event), event.data) for event in log] == [
        ("log@1 /a", {"status": 200}),
        ("log@2 /b", {"status": 500}),
    ]
    text = b"h1 start\nh2 start\nh1 stop\n"
    with_host = ketal.read_log(io.BytesIO(text), clock="none", regex=r"(?<host>\S+) (?<event>\S+)")
    assert [str(event) for event in with_host] == ["h1@1 start", "h2@1 start", "h1@2 stop"]
    without = ketal.read_log(io.BytesIO(text), clock="none", regex=r"(?<who>\S+) (?<event>\S+)")
    assert [str(event) for event in without] == ["log@1 start", "log@2 start", "log@3 stop"]


def test_executions_are_numbered_separately() -> None:
    text = b"--- one\nh a\nh b\n--- two\nh c\n"
    log = ketal.read_log(
        io.BytesIO(text),
        clock="none",
        regex=r"(?<host>\S+) (?<event>\S+)",
        delimiter=r"--- (?<trace>.*)",
    )
    assert [str(event) for event in log] == ["h@1 a", "h@2 b", "h@1 c"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"fields": {"clock": "vc"}}, "the field clock requires clocks, but clock is none"),
        ({"fields": {"receives": "from"}}, "the field receives requires clocks"),
        ({"fields": {"message": "id"}}, "the field message requires clocks"),
        ({"fields": {"incarnation": "run"}}, "the field incarnation requires clocks"),
        ({"nodes": ["a"]}, "nodes applies only to positional vector clocks, but clock is none"),
        ({"rebuild": "id=a,send=b:c,receive=b:d"}, "clock and rebuild cannot be combined"),
        ({"format": "otlp"}, "clock applies only to logs of events, but the format is otlp"),
    ],
)
def test_options_that_need_clocks_are_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(SettingError, match=error):
        Source(clock="none", **options)
