"""Times in the time format of a source, read equally from every format of logs."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketal.errors import EventError, SettingError
from ketal.logs import Source, load_config, open_source, read_log
from ketal.logs.shape import Shape
from ketal.logs.times import TimeReading
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.events.event_time import (
    TIME_MAX_US,
    TIME_MIN_US,
    microseconds,
    rfc3339,
    seconds,
)
from ketal.model.verdicts.execution_verdicts import Rejected

AMERICAN = "%m/%d/%Y %I:%M:%S %p"
DIGITS = "%Y%m%d%H%M%S"
NOON_S = 1369652019.0  # 2013-05-27T10:53:39Z


def line(time: Any, **more: Any) -> str:
    return json.dumps({"node": "a", "type": "T", "clock": {"a": 1}, "time": time, **more}) + "\n"


def read_one(text: str, **options: Any) -> Any:
    ((_, item, _, _),) = read_log(io.BytesIO(text.encode()), **options).records()
    return item


def time_of(time: Any, **options: Any) -> float | None:
    item = read_one(line(time), **options)
    assert isinstance(item, Event), item
    return item.time  # type: ignore[return-value]


def reason_of(time: Any, **options: Any) -> str:
    item = read_one(line(time), **options)
    assert isinstance(item, Rejected), item
    return item.reason


@pytest.mark.parametrize(
    ("text", "format", "seconds"),
    [
        ("5/27/2013 10:53:39 AM", AMERICAN, NOON_S),
        (" 05/27/2013 10:53:39 pm ", f" {AMERICAN}\n", NOON_S + 12 * 3600),
        ("27.05.2013 10:53:39,25", "%d.%m.%Y %H:%M:%S,%f", NOON_S + 0.25),
        ("Mon May 27 10:53:39 2013", "%c", NOON_S),
        ("27/May/2013:12:53:39 +0200", "%d/%b/%Y:%H:%M:%S %z", NOON_S),
        ("2013-05-27T10:53:39Z", "%Y-%m-%dT%H:%M:%S%z", NOON_S),
        ("13-147 10.53.39", "%y-%j %H.%M.%S", NOON_S),
        ("2013-W22-1", "%G-W%V-%u", NOON_S - 39_219),
        ("100% 2013-05-27", "100%% %Y-%m-%d", NOON_S - 39_219),
        ("20130527105339", DIGITS, NOON_S),
        (20130527105339, DIGITS, NOON_S),
        (20130527.0, "%Y%m%d", NOON_S - 39_219),
    ],
)
def test_times_are_read_by_the_time_format(text: Any, format: str, seconds: float) -> None:
    assert time_of(text, time_format=format) == seconds


def test_time_that_does_not_fit_the_format_is_rejected() -> None:
    fits_not = [(AMERICAN, "2013-05-27T10:53:39Z"), (AMERICAN, "13/27/2013 10:53:39 AM")]
    fits_not += [(AMERICAN, "5/27/2013 10:53:39 AM."), (AMERICAN, ""), (DIGITS, "1369652019")]
    for format, text in fits_not:
        fault = f"time {text!r} does not match the time format {format!r}"
        assert reason_of(text, time_format=format) == fault
    for number in (1369652019, 1369652019.5, float(2**70)):
        assert "does not match the time format '%Y%m%d%H%M%S'" in reason_of(
            number, time_format=DIGITS
        )
    assert len(reason_of("x" * 9_999, time_format=AMERICAN)) < 150
    assert reason_of([1], time_format=AMERICAN) == "time must be RFC 3339 or a number, not [1]"


def test_number_is_a_time_unless_the_format_has_digits_only() -> None:
    for unit, number in (("s", 1369652019), ("ms", 1369652019000)):
        for value in (number, str(number), float(number)):
            assert time_of(value, time_unit=unit, time_format=AMERICAN) == NOON_S
    # Read as seconds, it would be 21 August 1970.
    assert time_of(20130527, time_format="%Y%m%d") == NOON_S - 39_219
    assert time_of("20130527", time_format="%Y%m%d", time_unit="ms") == NOON_S - 39_219


@given(st.integers(0, 10**9).map(lambda us: 1_700_000_000_000_000_500 + 1_000 * us))
def test_number_as_text_is_the_time_of_the_number(time_ns: int) -> None:
    read = TimeReading("ns", None).read
    assert read(str(time_ns)) == read(time_ns)


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@given(time_us=st.integers(TIME_MIN_US // 8, TIME_MAX_US // 8), finer=st.integers(-499, 499))
def test_integer_is_the_nearest_whole_microsecond(unit: str, time_us: int, finer: int) -> None:
    """As the same time in RFC 3339; a time in seconds has too few digits to round from."""
    whole = {"ms": time_us // 1_000, "us": time_us, "ns": time_us * 1_000 + finer}[unit]
    expected_us = time_us // 1_000 * 1_000 if unit == "ms" else time_us
    assert TimeReading(unit, None).read(whole) == expected_us / 1e6


def test_time_that_is_not_rfc_3339_gets_a_hint_about_time_format() -> None:
    fault = "time '5/27/2013 10:53:39 AM' is neither RFC 3339 nor seconds since the epoch"
    hint = " (pass --time-format FORMAT to set the format of times)"
    assert reason_of("5/27/2013 10:53:39 AM") == fault + hint
    assert reason_of("5/27/2013 10:53:39 AM", time_unit="ms") == fault + hint


def test_control_event_times_use_the_format() -> None:
    text = json.dumps({"type": "ketal.watermark", "time": "5/27/2013 10:53:39 AM"})
    assert read_one(text, time_format=AMERICAN) == Control("watermark", time=NOON_S)


def test_every_format_of_logs_uses_the_time_format(tmp_path: Path) -> None:
    text = "5/27/2013 10:53:39 AM"
    event = Event("a", "T", {"a": 1}, time=NOON_S)
    csv = f"node,type,clock,at\na,T,a:1,{text}\n"
    fields = {"time": "at"}
    options: dict[str, Any] = {"fields": fields, "time_format": AMERICAN}
    assert read_one(csv, **options, format="csv") == event
    regex = r"(?<host>\S*) (?<clock>{.*}) (?<at>\S* \S* ..) (?<event>.*)"
    assert read_one(f'a {{"a":1}} {text} T\n', **options, regex=regex) == event
    pairs = "id=msg,send=type:send,receive=type:recv"
    assert read_one(line(text), time_format=AMERICAN, rebuild=pairs).time == NOON_S
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    clock = pyarrow.array([[("a", 1)]], pyarrow.map_(pyarrow.string(), pyarrow.int64()))
    table = {"node": ["a"], "type": ["T"], "clock": clock}
    for values in ([text], [datetime(2013, 5, 27, 10, 53, 39)]):
        parquet.write_table(pyarrow.table({**table, "at": values}), tmp_path / "run.parquet")
        assert list(read_log(tmp_path / "run.parquet", **options)) == [event]
    inner = pyarrow.array([{"at": datetime(2013, 5, 27, 10, 53, 39), "n": 1}])
    parquet.write_table(pyarrow.table({**table, "x": inner}), tmp_path / "run.parquet")
    (read,) = read_log(tmp_path / "run.parquet", fields={"time": "x.at"}, time_format=AMERICAN)
    assert (read.time, read.data) == (NOON_S, {"x": {"n": 1}})


def test_csv_cells_are_digits_of_a_format_or_numbers() -> None:
    header = "node,type,clock,time,n\n"
    read = read_one(
        f"{header}a,T,a:1,20130527105339.250,7\n", format="csv", time_format=DIGITS + ".%f"
    )
    assert (read.time, read.data) == (NOON_S + 0.25, {"n": 7})
    exact_ns = f"{header}a,T,a:1,1369652019123456789,7\n"
    options: dict[str, Any] = {"format": "csv", "time_unit": "ns"}
    assert read_one(exact_ns, **options, time_format=AMERICAN) == read_one(exact_ns, **options)


WRONG = [
    ("", "has no complete date; include year, month and day, for example %Y-%m-%d"),
    ("%H:%M:%S", "has no complete date"),
    ("%b %d %H:%M:%S", "has no complete date"),
    ("%Y-%m", "has no complete date"),
    ("%Y %U", "has no complete date"),
    (
        "%Y-%m-%d %q",
        "has an unknown directive, %q; use the directives of strptime, "
        "for example %Y-%m-%d %H:%M:%S",
    ),
    ("%s", "has an unknown directive, %s"),
    ("%-d.%-m.%Y", "has an unknown directive, %-"),
    ("%Y-%m-%d %", "is invalid (stray %"),
    ("%Y-%m-%d %Y", "is invalid (redefinition of group name 'Y'"),
    ("%Y-%m-%d \ud800", "is invalid ('utf-8' codec can't encode"),
    ("%Y-%m-%d %H:%M:%S %Z", "has %Z, but the name of a time zone does not determine an offset"),
    ("%m/%d/%Y %I:%M:%S", "has only one of %I and %p; use both, or %H"),
    ("%m/%d/%Y %H:%M:%S %p", "has only one of %I and %p; use both, or %H"),
]


@pytest.mark.parametrize(("format", "fault"), WRONG)
def test_unusable_time_format_is_an_error_before_reading(format: str, fault: str) -> None:
    with pytest.raises(SettingError) as caught:
        read_log(io.BytesIO(b""), time_format=format)
    assert str(caught.value).startswith(f"the time format {format!r} {fault}")


def test_time_format_without_effect_is_an_error() -> None:
    with pytest.raises(
        SettingError, match="must be a string, for example %Y-%m-%d %H:%M:%S, not 3"
    ):
        read_log(io.BytesIO(b""), time_format=3)  # type: ignore[arg-type]
    with pytest.raises(
        SettingError, match="time_format applies only to logs of events, but the format is otlp"
    ):
        read_log(io.BytesIO(b""), format="otlp", time_format=AMERICAN)
    with pytest.raises(SettingError, match="no field contains the time; pass --field time=PATH"):
        read_log(io.BytesIO(b""), format="shiviz", time_format=AMERICAN)
    with pytest.raises(
        SettingError, match=r"applies only to times as text, but kafka\.timestamp is a number"
    ):
        Source(fields={"time": "kafka.timestamp"}, time_format=AMERICAN)


def test_a_configuration_may_set_the_time_format(tmp_path: Path) -> None:
    path, log = tmp_path / "job.toml", tmp_path / "run.jsonl"
    path.write_text(f'[source]\ntime_format = "{AMERICAN}"\n')
    log.write_text(line("5/27/2013 10:53:39 AM"))
    assert [event.time for event in open_source(load_config(path).source, [log])] == [NOON_S]
    path.write_text('[source]\ntime_format = "%H"\n')
    with pytest.raises(
        SettingError, match=r"job\.toml: \[source\] the time format '%H' has no complete date"
    ):
        load_config(path)


def test_lines_without_a_time_format_use_the_plain_decoder() -> None:
    assert Shape(Source()).plain
    assert not Shape(Source(time_format=AMERICAN)).plain


FORMATS = [
    AMERICAN,
    DIGITS,
    DIGITS + "%f",
    "%Y-%m-%d %H:%M:%S.%f%z",
    "%a, %d %b %Y %H:%M:%S",
    "%A %d. %B %Y, %H:%M:%S",
    "%c",
    "%G-%V-%u %H:%M:%S",
    "%j/%Y %H:%M:%S",
    "%Y %W %w %X",
]
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m)))


@given(
    st.sampled_from(FORMATS),
    st.datetimes(datetime(1969, 1, 2), datetime(2068, 12, 30), timezones=ZONES),
)
def test_a_time_format_reads_what_it_writes(format: str, at: datetime) -> None:
    if "%f" not in format:
        at = at.replace(microsecond=0)
    if "%z" not in format:
        at = at.astimezone(UTC)
    assert time_of(at.strftime(format), time_format=format) == seconds(at)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("2013-05-27t10:53:39z", "2013-05-27T10:53:39Z"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z"),
        ("2016-12-31T18:29:60.25-05:30", "2017-01-01T00:00:00.25Z"),
        ("2013-05-27T10:53:39.123456789Z", "2013-05-27T10:53:39.123457Z"),
        ("2013-05-27T10:53:39.1234567", "2013-05-27T10:53:39.123457Z"),
        ("2013-05-27T10:53:39.123456+00:00", "2013-05-27T10:53:39.123456Z"),
        ("2013-05-27T12:53:39.12+02:00", "2013-05-27T10:53:39.12Z"),
        ("2013-05-27T10:53:39.9999999Z", "2013-05-27T10:53:40Z"),
        ("2013-05-27T12:53:39.123456499+02:00", "2013-05-27T10:53:39.123456Z"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999968Z"),
        ("9999-12-31T23:59:59.5Z", "9999-12-31T23:59:59.5Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
    ],
)
def test_all_rfc_3339_times_are_read_and_rounded(text: str, written: str) -> None:
    time = time_of(text)
    assert time is not None
    assert rfc3339(time) == written
    assert seconds(written) == time


@pytest.mark.parametrize(
    "text",
    ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:60Z"],
)
def test_time_outside_the_years_after_its_zone_is_rejected(text: str) -> None:
    assert reason_of(text).startswith(f"time '{text}' is outside the years 1 to 9999")


def test_number_that_is_no_time_gets_a_hint_about_time_unit() -> None:
    for value in (1766000000000, "1766000000000"):
        assert reason_of(value).endswith("(pass --time-unit UNIT to set the unit of numeric times)")
    assert time_of(1766000000000, time_unit="ms") == 1766000000.0


def test_time_with_too_many_digits_is_refused() -> None:
    with pytest.raises(EventError, match="time of 16610 bits is outside the years"):
        Event(node="a", type="T", clock={"a": 1}, time=10**5_000)


@given(
    st.floats(TIME_MIN_US / 1e6, TIME_MAX_US / 1e6, exclude_max=True)
    | st.integers(-(2**50), 2**50).map(lambda halves: halves / 2e6)
)
def test_times_are_rounded_to_the_nearest_microsecond(time_s: float) -> None:
    rounded = round(time_s * 1e6) / 1e6
    # The sign of a zero is visible in its text.
    assert repr(seconds(time_s)) == repr(rounded)
    assert microseconds(rounded) == round(rounded * 1e6)
