"""Options, configuration files, and detection of a log's format."""

from __future__ import annotations

import io
import json
import pickle
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import ketal
from ketal.errors import SettingError
from ketal.logs import load_config, open_source, parse_fields, parse_nodes, read_log, streams
from ketal.logs.streams import LogOrigin
from ketal.model.limits import Limits

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"format": "jsonlines"}, "unknown format 'jsonlines'; did you mean jsonl?"),
    ({"format": "xml"}, "unknown format 'xml'; choose from jsonl, shiviz, csv, parquet"),
    ({"format": "csv", "regex": "x"}, "regex applies only to ShiViz logs, but the format is csv"),
    ({"format": 3}, "unknown format 3; choose from jsonl, shiviz"),
    ({"regex": ""}, "regex is empty; omit it instead"),
    ({"delimiter": ""}, "delimiter is empty; omit it instead"),
    ({"fields": {1: "x"}}, "unknown field 1; choose from node, type"),
    ({"rebuild": 3}, "rebuild must be a string, for example id=msg.id"),
    ({"fields": {"clok": "x"}}, "unknown field 'clok'; did you mean clock?"),
    ({"fields": {"clock": ""}}, "the path '' has an empty key"),
    ({"fields": {"clock": "a..b"}}, "the path 'a..b' has an empty key"),
    ({"fields": {"clock": 3}}, "the path of clock must be a string, not 3"),
    ({"fields": {"node": "kafka.key"}}, "the path kafka.key of node requires a Kafka source"),
    ({"fields": {"id": "kafka.header.x"}}, "the path kafka.header.x of id requires a Kafka source"),
    ({"nodes": []}, "nodes must be non-empty names"),
    ({"nodes": ["a", "a"]}, "nodes lists 'a' twice"),
    ({"nodes": "a,b"}, "nodes must be a list of names"),
    ({"time_unit": "h"}, "unknown time unit 'h'; choose from s, ms, us, ns"),
]


@pytest.mark.parametrize(("options", "reason"), WRONG, ids=range(len(WRONG)))
def test_wrong_option_is_an_error_before_reading(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingError) as caught:
        read_log(io.BytesIO(b""), **options)
    assert str(caught.value).startswith(reason)


def test_unreadable_files_are_an_error(tmp_path: Path) -> None:
    missing = tmp_path / "missing.log"
    with pytest.raises(SettingError, match=r"cannot read .*missing\.log: No such file"):
        read_log(missing)
    with pytest.raises(SettingError, match="is a folder"):
        read_log(tmp_path)
    text = '{"node": "n",\n "type": "a"}\n' * 1_000
    with pytest.raises(SettingError) as caught:
        read_log(text)
    reason = "is not a file; pass the text of a log as a binary file (io.BytesIO), or on standard"
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 200
    with pytest.raises(SettingError, match="no log is given"):
        read_log()
    with pytest.raises(SettingError, match="standard input is given twice as a log"):
        read_log("-", "-")
    with pytest.raises(SettingError, match="must be opened in binary mode"):
        list(read_log(io.StringIO("{}")))  # type: ignore[arg-type]
    gone = tmp_path / "gone.jsonl"
    gone.write_text("")
    log = read_log(gone)
    gone.unlink()
    with pytest.raises(SettingError, match=r"cannot read .*gone\.jsonl: No such file"):
        list(log)


def test_several_threads_may_read_a_log(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    mapped = {"time": "m.at", "id": "m.id", "incarnation": "m.run"}
    data = {"at": 1, "id": 2, "run": 3}
    path.write_text(json.dumps({"node": "n", "type": "a", "clock": {"n": 1}, "m": data}))
    log = read_log(path, fields=mapped)

    def read(number: int) -> int:
        return sum(len(list(log)) for _ in range(number))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(read, [1_000] * 4)) == [1_000] * 4
    finally:
        sys.setswitchinterval(interval)


def test_threads_that_open_a_log_at_once_have_files_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("text")
    origin = LogOrigin(path)

    def pause(frame: FrameType, event: str, arg: Any) -> Any:
        """Let the other threads run before each line of the module."""
        if frame.f_code.co_filename != streams.__file__:
            return None
        time.sleep(1e-3)
        return pause

    def read(_: int) -> bytes:
        with origin.opened() as file:
            return file.read()

    before = threading.gettrace()
    threading.settrace(pause)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(read, range(40))) == [b"text"] * 40
    finally:
        threading.settrace(before)


def test_text_options_are_parsed() -> None:
    assert parse_fields(["type=event", r"clock=a\.b.vc"]) == {"type": "event", "clock": r"a\.b.vc"}
    assert parse_nodes("A, B,C") == ("A", "B", "C")
    with pytest.raises(SettingError, match="is not of the form NAME=PATH"):
        parse_fields(["type"])
    with pytest.raises(SettingError, match="--field type is given twice"):
        parse_fields(["type=a", "type=b"])


JSON_LINE = '{"node":"a","type":"T","clock":{"a":1}}\n'
CSV_TEXT = "node,type,clock\na,T,a:1\n"
SHIVIZ_TEXT = 'T\na {"a":1}\n'
HEADED = '(?<host>\\S+) (?<clock>{.*}) (?<event>.*)\n\na {"a":1} T\n'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.jsonl", JSON_LINE),
        ("x.ndjson", JSON_LINE),
        ("x.log", "\n\n" + JSON_LINE),
        ("x", JSON_LINE),
        ("x.csv", CSV_TEXT),
        ("x.txt", CSV_TEXT),
        ("x.tsv", CSV_TEXT.replace(",", "\t")),
        ("x.txt", CSV_TEXT.replace(",", "\t")),
        ("x.csv", CSV_TEXT.replace(",", ";")),
        ("x.txt", CSV_TEXT.replace(",", ";")),
        ("x.csv", CSV_TEXT.replace(",", "|")),
        ("x.log", CSV_TEXT.replace(",", "|")),
        ("x.log", SHIVIZ_TEXT),
        ("x.log", HEADED),
        ("x.shiviz", SHIVIZ_TEXT),
    ],
)
def test_formats_are_detected(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    log = read_log(path)
    assert [str(event) for event in log] == ["a@1 T"]
    assert not log.rejected


@pytest.mark.parametrize("start", ["[INFO]", "[2013-05-24 23:28:00,637 a.b.C]", "[ 0.5]"])
def test_a_text_may_begin_with_a_bracket(start: str) -> None:
    log = read_log(io.BytesIO(f'{start} T\na {{"a":1}}\n'.encode()))
    assert [(str(event.dot), event.type) for event in log] == [("a@1", f"{start} T")]
    assert not log.rejected


@pytest.mark.parametrize("text", [f"[{JSON_LINE}]", f"[\n  {JSON_LINE}]", f"[[{JSON_LINE}]]"])
def test_an_array_of_objects_is_json(text: str) -> None:
    log = read_log(io.BytesIO(text.encode()))
    list(log)
    assert "jq -c '.[]'" in log.rejected[0].reason


def test_the_name_takes_precedence_over_the_first_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(SHIVIZ_TEXT)
    assert len(read_log(path).rejected) == 2


def test_delimiter_with_a_format_without_executions_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(JSON_LINE)
    with pytest.raises(
        SettingError, match="delimiter applies only to ShiViz logs, but the format is jsonl"
    ):
        list(read_log(path, delimiter="--"))


def test_config_file_sets_source_and_limits(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('{"event":"T","node":"b","pkt":{"vc":[1,2],"k":3},"time":1500}\n')
    path = tmp_path / "job.toml"
    path.write_text(
        'pattern = "x.ketal"\n'
        "[source]\n"
        'fields = { type = "event", clock = "pkt.vc", data = "pkt" }\n'
        'nodes = ["a", "b"]\n'
        'time_unit = "ms"\n'
        'topics = ["blocks"]\n'
        "[limits]\n"
        "line_bytes_max = 100\n"
    )
    config = load_config(path)
    assert config.limits.line_bytes_max == 100
    assert config.document["pattern"] == "x.ketal"
    (event,) = open_source(config.source, [log], config.limits)
    assert (event.clock, event.data, event.time) == ({"a": 1, "b": 2}, {"k": 3}, 1.5)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[sorce]\n", "unknown key 'sorce'; did you mean source?"),
        ("[source]\nfield = {}\n", "unknown key 'field' in [source]; did you mean fields?"),
        ("source = 3\n", "source must be a table, [source]"),
        ("[source]\nfields = 3\n", "[source] fields must map names to paths"),
        ("[source]\nfields = true\n", "[source] fields must map names to paths, not be a boolean"),
        (
            "[source]\nclock = 2026-05-04\n",
            "[source] clock must be the name of a scheme, not 2026-",
        ),
        ("[source]\nregex = 3\n", "[source] regex must be a regular expression, not 3"),
        ("[source]\ntime_unit = 3\n", "[source] unknown time unit 3"),
        ("[source]\ntime_unit = []\n", "[source] unknown time unit []"),
        ("[source]\ntime_unit = 07:32:00\n", "[source] unknown time unit 07:32:00;"),
        ("[source]\nformat = []\n", "[source] unknown format []"),
        ("[source]\nformat = 2026-05-04\n", "[source] unknown format 2026-05-04;"),
        ("[source]\nnodes = [[1]]\n", "[source] nodes must be non-empty names"),
        ("[source]\nnodes = [true]\n", "[source] nodes must be non-empty names"),
        ("[limits]\nline_bytes = 3\n", "unknown limit 'line_bytes'"),
        ("[limits]\nline_bytes_max = 0\n", "limit line_bytes_max must be a positive integer"),
    ],
)
def test_wrong_config_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(text)
    with pytest.raises(SettingError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}: {reason}")


def test_config_that_is_not_toml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text("[source\n")
    with pytest.raises(SettingError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path} is not valid TOML: Expected")
    path.write_text("[source]\n", encoding="utf-16")
    with pytest.raises(SettingError) as caught:
        load_config(path)
    assert str(caught.value) == f"{path} is not valid UTF-8 (byte 1); save it as UTF-8"


def test_missing_config_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"cannot read .*none\.toml: No such file"):
        load_config(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("jsonl", b'{"node": "a", "type": "T", "clock": {"a": 1}}'),
        ("csv", b"node,type,clock\na,T,a:1\n"),
        ("shiviz", b'T\na {"a": 1}\n'),
    ],
)
@pytest.mark.parametrize("options", [{}, {"rebuild": "id=x,send=type:s,receive=type:r"}])
def test_limits_may_be_as_large_as_a_size(
    format: str, text: bytes, options: dict[str, Any]
) -> None:
    limits = Limits(**{limit.name: sys.maxsize for limit in fields(Limits)})
    log = read_log(io.BytesIO(text), format=format, limits=limits, **options)
    assert [str(event) for event in log] == ["a@1 T"]


def test_a_log_has_a_repr_and_cannot_be_pickled(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("")
    assert repr(ketal.read_log(path)) == f"<ketal.Log of {path}>"
    assert repr(ketal.Log.of([])) == "<ketal.Log of 0 records>"
    with pytest.raises(TypeError, match=r"a Log cannot be copied or pickled.*pickle list\(log\)"):
        pickle.dumps(ketal.read_log(path))
