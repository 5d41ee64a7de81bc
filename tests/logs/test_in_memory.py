"""Rows in memory: dicts, pandas, polars and Arrow are read like the same JSON lines."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ketal
from ketal.auditing.repair import repair_execution
from ketal.auditing.report import examine_log
from ketal.errors import SettingError
from ketal.logs import place, read_log
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.wording import file_and_line, place_at
from tests.sampling import examples

# pandas warns when it looks for integers in a column.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in cast")

Row = dict[str, Any]
GOOD: Row = {"node": "a", "type": "T", "clock": {"a": 1}}


def read(rows: Any, **options: Any) -> list[Any]:
    """Return the items of rows in memory; check that each has its row number as its place."""
    records = list(read_log(rows, **options).records())
    assert [place(one) for one in records] == [f"row {n}" for n in range(1, len(records) + 1)]
    assert all(of.place == place(one) for one in records if isinstance(of := one[1], Rejected))
    return [record[1] for record in records]


def items(*rows: Any, **options: Any) -> list[Any]:
    return read(list(rows), **options)


def reason(**cells: Any) -> str:
    (item,) = items(GOOD | cells)
    assert isinstance(item, Rejected), item
    return item.reason


def data(**cells: Any) -> dict[str, Any]:
    (item,) = items(GOOD | cells)
    assert isinstance(item, Event), item
    return item.data


# --- equal items from every library -----------------------------------------------------


def dicts(rows: Sequence[Row]) -> Any:
    return rows


def pandas_frame(rows: Sequence[Row]) -> Any:
    return pytest.importorskip("pandas").DataFrame(rows)


def pandas_dtypes(rows: Sequence[Row]) -> Any:
    return pandas_frame(rows).convert_dtypes()


def arrow_table(rows: Sequence[Row]) -> Any:
    return pytest.importorskip("pyarrow").Table.from_pylist(rows)


def arrow_batch(rows: Sequence[Row]) -> Any:
    return pytest.importorskip("pyarrow").RecordBatch.from_pylist(rows)


def polars_frame(rows: Sequence[Row]) -> Any:
    return pytest.importorskip("polars").from_dicts(rows, infer_schema_length=None)


TABLES = [pandas_frame, pandas_dtypes, polars_frame, arrow_table, arrow_batch]

ZONED = st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
TIMES: Sequence[st.SearchStrategy[Any]] = (
    st.floats(0, 4e9),
    st.integers(0, 2**31),
    st.sampled_from(["2024-05-01T10:00:00Z", "1714557600", "soon", ""]),
    ZONED,
    ZONED.map(lambda at: at.replace(tzinfo=None)),
)
SHORT = st.text("ab\u00e4 .", max_size=3)
BOTH = st.fixed_dictionaries({"a": st.integers(1, 3), "b": st.integers(1, 3)})
CLOCKS = BOTH | st.dictionaries(st.sampled_from("ab"), st.integers(0, 3), min_size=1)
COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "node": st.sampled_from(["a", "b", "a", "b", ""]),
    "type": st.sampled_from(["T", "U", "T", "U", "ketal.leave", "ketal.view", ""]),
    "clock": CLOCKS,
    "n": st.integers(-(2**53) + 1, 2**53 - 1),
    "x": st.floats(allow_nan=False, allow_infinity=False),
    "word": SHORT,
    "flag": st.booleans(),
    "list": st.lists(st.integers(0, 9), max_size=2),
    "msg": st.fixed_dictionaries({"k": st.integers(0, 9)}, optional={"to": SHORT}),
    "msg.id": st.integers(0, 9),
}


@st.composite
def tables(draw: st.DrawFn, columns: dict[str, st.SearchStrategy[Any]]) -> list[Row]:
    """Draw rows with the same columns, some of whose cells are absent."""
    cells = {**columns, "time": draw(st.sampled_from(TIMES))}
    rows = draw(st.lists(st.fixed_dictionaries(cells), min_size=1, max_size=6))
    places = st.tuples(st.integers(0, len(rows) - 1), st.sampled_from(list(cells)))
    for at, name in draw(st.lists(places, max_size=8)):
        rows[at][name] = None
    # Leave out columns without any cell, which a table cannot have.
    there = [name for name in cells if any(row[name] is not None for row in rows)]
    assume(there)
    return [{name: row[name] for name in there} for row in rows]


def as_json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def of_json_lines(rows: Sequence[Row], options: dict[str, Any]) -> list[Any]:
    """Return the items of the same rows as JSON lines, without absent cells."""
    present = [
        {name: as_json(cell) for name, cell in row.items() if cell is not None} for row in rows
    ]
    file = io.BytesIO("\n".join(map(json.dumps, present)).encode())
    log = read_log(file, format="jsonl", **options)
    return [without_place(item) for _, item, _, _ in log.records()]


def without_place(item: Any) -> Any:
    return msgspec.structs.replace(item, place="") if isinstance(item, Rejected) else item


def hold_the_same(rows: list[Row], options: dict[str, Any]) -> None:
    expected = of_json_lines(rows, options)
    for made in (dicts, *TABLES):
        assert [without_place(item) for item in read(made(rows), **options)] == expected, made
        log = read_log(made(rows), **options)
        assert list(log.records()) == list(log.records())


@given(tables(COLUMNS))
def test_rows_are_read_like_the_same_json_lines(rows: list[Row]) -> None:
    hold_the_same(rows, {})


@examples(30, 1_000)
@given(tables({**COLUMNS, "time": ZONED, "clock": st.sampled_from(["a:1", '{"b": 2}', "a"])}))
def test_clocks_of_rows_may_be_text(rows: list[Row]) -> None:
    hold_the_same(rows, {"time_unit": "ms"})


NESTED = {
    **{name: of for name, of in COLUMNS.items() if name not in ("clock", "type", "msg")},
    "what": COLUMNS["type"],
    "pkt": st.fixed_dictionaries({"vc": CLOCKS, "at": ZONED}, optional={"k": st.integers(0, 9)}),
}


@examples(30, 1_000)
@given(tables(NESTED))
def test_fields_of_rows_are_mapped(rows: list[Row]) -> None:
    fields = {"type": "what", "clock": "pkt.vc", "time": "pkt.at", "id": r"msg\.id"}
    plain = [
        {**row, "pkt": {name: as_json(of) for name, of in row["pkt"].items()}}
        if row.get("pkt")
        else row
        for row in rows
    ]
    expected = of_json_lines(plain, {"fields": fields})
    for made in (dicts, *TABLES):
        assert [without_place(item) for item in read(made(rows), fields=fields)] == expected, made


def test_options_of_files_apply_to_rows() -> None:
    rows = [{"node": "b", "type": "T", "clock": [1, 2], "time": "27.5.2013"}, GOOD]
    first, second = items(*rows, nodes=["a", "b"], time_format="%d.%m.%Y")
    assert first == Event("b", "T", {"a": 1, "b": 2}, time=1369612800.0)
    assert second.reason.startswith("the clock names its nodes itself; --nodes applies only to")
    assert items(GOOD | {"time": 1500}, time_unit="ms")[0].time == 1.5
    (one,) = items(GOOD, limits=Limits(clock_entries_max=1))
    assert one == Event("a", "T", {"a": 1})
    (many,) = items(GOOD | {"clock": {"a": 1, "b": 1}}, limits=Limits(clock_entries_max=1))
    assert many.reason == "the clock has 2 entries, more than 1 (limit clock_entries_max)"
    sent = [{"node": "a", "type": "send", "m": 1}, {"node": "b", "type": "recv", "m": 1}]
    rebuilt = items(*sent, rebuild="id=m,send=type:send,receive=type:recv")
    assert [event.clock for event in rebuilt] == [{"a": 1}, {"a": 1, "b": 1}]
    with pytest.raises(SettingError, match="format applies only to files"):
        read_log(rows, format="csv")
    with pytest.raises(SettingError, match="regex applies only to files, not to rows in memory"):
        read_log(rows, regex="(?<event>.*)")
    with pytest.raises(SettingError, match="unknown time unit 'h'"):
        read_log(rows, time_unit="h")


def test_rows_may_be_control_events() -> None:
    rows = [{"type": "ketal.view", "members": ["a"]}, {"type": "ketal.end", "node": None}]
    assert items(*rows) == [Control("view", members=["a"]), Control("end")]  # type: ignore[arg-type]


def test_rows_and_files_form_one_execution(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"node":"b","type":"T","clock":{"a":1,"b":1}}\n{}\n')
    more: list[Row] = [{}]
    records = list(read_log([GOOD, {}], path, (row for row in more)).records())
    assert [place(record) for record in records] == [
        "row 1", "row 2", f"{path}:1", f"{path}:2", "row 3",
    ]  # fmt: skip
    assert {record[0] for record in records} == {""}


# --- cells ------------------------------------------------------------------------------


def test_python_values_without_a_json_form() -> None:
    at = datetime(2013, 5, 27, 10, 53, 39, 250_000)
    assert data(
        at=at, day=date(2013, 5, 27), span=timedelta(seconds=1.5), price=Decimal("1.5"),
        count=Decimal(7), none=Decimal("0E+5000"), name=b"x",
        id2=UUID(int=3), pair=(1, "x"), of={1: at}, bare=b"\xff",
    ) == {
        "at": "2013-05-27T10:53:39.250000", "day": "2013-05-27", "span": 1.5, "price": 1.5,
        "count": 7, "none": 0, "name": "x", "id2": str(UUID(int=3)), "pair": [1, "x"],
        "of": {"1": "2013-05-27T10:53:39.250000"}, "bare": "ff",
    }  # fmt: skip
    assert items(MappingProxyType(GOOD)) == items(GOOD)
    assert data(pairs=[(1, 2), (3, 4)]) == {"pairs": [[1, 2], [3, 4]]}
    assert data(data='{"k": [1]}', x=1) == {"k": [1], "x": 1}


def test_numpy_and_pandas_values_are_converted() -> None:
    numpy, pandas = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    row = {
        "node": numpy.int64(3), "type": numpy.str_("T"), "clock": {numpy.int64(3): numpy.int8(1)},
        "time": numpy.datetime64("2013-05-27T10:53:39.123456789"), "x": numpy.float32(0.5),
        "flag": numpy.bool_(True), "list": numpy.array([1, 2]), "span": numpy.timedelta64(5, "s"),
        "at": pandas.Timestamp("2013-05-27", tz="UTC"), 
        "days": numpy.array(["2013-05-27"], "M8[D]"),
    }  # fmt: skip
    assert items(row) == [
        Event(
            "3", "T", {"3": 1}, time=1369652019.123456,
            data={
                "x": 0.5, "flag": True, "list": [1, 2], "span": 5.0,
                "at": "2013-05-27T00:00:00+00:00", "days": ["2013-05-27T00:00:00"],
            },
        )
    ]  # fmt: skip
    absent = (None, float("nan"), numpy.float32("nan"), numpy.datetime64("NaT"), pandas.NaT)
    for cell in (*absent, pandas.NA, Decimal("nan")):
        assert data(x=cell) == {}
        assert items(GOOD | {"time": cell}) == [Event("a", "T", {"a": 1})]
        assert items({**GOOD, "node": cell})[0].reason.startswith("the record has no node")
        assert data(x={"y": cell}) == {"x": {"y": None}}
        assert data(x=[cell, 1]) == {"x": [None, 1]}


def test_timestamp_is_a_time_under_any_text_format() -> None:
    pandas = pytest.importorskip("pandas")
    at = datetime(2013, 5, 27, 10, 53, 39)
    stamp = pandas.Timestamp(at) + pandas.Timedelta(1, "ns")
    everywhere: list[dict[str, Any]] = [{}, {"time_unit": "ms"}, {"time_format": "%m/%d/%Y"}]
    for time in (
        at,
        at.replace(tzinfo=UTC),
        stamp,
        stamp.tz_localize("UTC").tz_convert("Asia/Tokyo"),
    ):
        for rows in ([GOOD | {"time": time}], pandas.DataFrame([GOOD | {"time": time}])):
            for options in everywhere:
                assert [event.time for event in read(rows, **options)] == [1369652019.0]
    assert items(GOOD | {"time": date(2013, 5, 27)}, time_format="%Y%m%d")[0].time == 1369612800.0


def test_integers_beside_absent_values_stay_integers_in_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"node": [1, None], "type": "T", "clock": ["1:1", "1:2"], "x": [7, None], "id": [None, 3],
         "f": [0.5, None], "large": [1e300, None]}
    )  # fmt: skip
    first, second = read(frame)
    assert first.node == "1"
    assert str(first.data) == "{'x': 7, 'f': 0.5, 'large': 1e+300}"
    assert second.reason.startswith("the record has no node")


def test_named_index_is_read_as_columns() -> None:
    pandas = pytest.importorskip("pandas")
    rows = [GOOD | {"time": datetime(2013, 5, 27), "n": 1}]
    frame = pandas.DataFrame(rows)
    expected = list(read_log(frame))
    for indexed in (
        frame.set_index("time"), frame.set_index(["n", "time"]), frame.set_index("n", drop=False),
    ):  # fmt: skip
        assert list(read_log(indexed)) == expected
    assert "time" in frame.columns


def test_a_column_may_have_the_name_of_a_file_method() -> None:
    pandas = pytest.importorskip("pandas")
    (event,) = read_log(pandas.DataFrame([GOOD | {"read": 1, "name": "x"}]))
    assert event.data == {"read": 1, "name": "x"}


def test_arrow_map_is_a_mapping() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    kind = pyarrow.map_(pyarrow.string(), pyarrow.int64())
    clock = pyarrow.array([[("a", 1), ("b", 0)], None], kind)
    table = pyarrow.table({"node": ["a", "a"], "type": ["T", "T"], "clock": clock})
    first, second = read(table)
    assert first == Event("a", "T", {"a": 1})
    assert second.reason.startswith("the record has no clock")


def test_tables_are_read_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ketal.logs.formats.in_memory._SLICE_ROWS", 3)
    rows = [GOOD | {"clock": {"a": n}, "n": n} for n in range(1, 8)]
    for made in (dicts, *TABLES):
        log = read_log(made(rows))
        assert [event.data["n"] for event in log] == [1, 2, 3, 4, 5, 6, 7], made


# --- bad rows ---------------------------------------------------------------------------

OWN: list[Any] = []
OWN.append(OWN)
PLAIN = "must be None, a boolean, a number, a string, a list, or a mapping with string keys"


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ([1], "the row is an array, not a mapping of names to values"),
        ("a", "the row is a string, not a mapping of names to values"),
        (None, "the row is null, not a mapping of names to values"),
        ({}, "the record has no clock (pass --field clock=PATH to name its field, "),
        (
            {"node": "a", "clock": {"a": 1}},
            "the record has no type (pass --field type=PATH to name",
        ),
        (GOOD | {"clock": {"a": 0}}, "clock: the node's own entry 'a' is zero"),
        (GOOD | {"clock": {"a": None}}, "clock: the entry for 'a' must be an integer, not None"),
        (GOOD | {"clock": {"a": 1.5}}, "clock: the entry for 'a' must be an integer, not 1.5"),
        (
            GOOD | {"clock": [1]},
            "the clock is positional; name the nodes of its entries with --nodes",
        ),
        (GOOD | {"node": 1.5}, "node must be a string or an integer, not 1.5"),
        (GOOD | {"id": 1.5}, "id must be a string or an integer, not a number"),
        (GOOD | {"time": "soon"}, "time 'soon' is neither RFC 3339 nor seconds since the epoch ("),
        (GOOD | {"time": True}, "time must be RFC 3339 or a number, not a boolean"),
        (GOOD | {"data": "oops"}, "data must be an object of attributes, not 'oops'"),
        (GOOD | {"data": 3}, "data must be an object of attributes, not a number"),
        (GOOD | {"data": {"x": 1}, "x": 2}, "the key 'x' is both in the record and in its data"),
        (GOOD | {"x": {1}}, f"row.x {PLAIN}, not set"),
        (GOOD | {"m": {"x": object()}}, f"row.m.x {PLAIN}, not object"),
        (GOOD | {("x", 1): 1}, "row has the key ('x', 1); keys must be strings, not tuple"),
        (GOOD | {"x": "\ud800"}, "row.x contains a lone surrogate ('\\ud800')"),
        (GOOD | {"x": 10**5_000}, "row.x is an integer of 16610 bits"),
        # Converted to an integer, this one would take more time than the test has.
        (GOOD | {"x": Decimal("1E+3000000")}, f"row.x {PLAIN}, not Decimal; use a float or"),
        (GOOD | {"x": OWN}, "the record is nested too deeply"),
        (GOOD | {"x": Decimal("sNaN")}, None),
    ],
)
def test_bad_rows_are_rejected_with_their_place(row: Any, fault: str | None) -> None:
    first, item, last = items(GOOD, row, GOOD | {"clock": {"a": 2}})
    assert (first.clock, last.clock) == ({"a": 1}, {"a": 2})
    if fault is None:
        assert item.data == {}
    else:
        assert (item.place, item.reason[: len(fault)]) == ("row 2", fault)


def test_a_value_that_python_cannot_represent_rejects_only_its_row() -> None:
    pyarrow, polars = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    stamps = pyarrow.array([0, 10**15, 2_000], pyarrow.timestamp("ms"))
    columns = {"node": ["a"] * 3, "type": ["T"] * 3, "clock": ["a:1", "a:2", "a:3"]}
    table = pyarrow.table({**columns, "time": stamps})
    for given_ in (table, polars.from_arrow(table)):
        first, second, third = read(given_)
        assert [event.time for event in (first, third)] == [0.0, 2.0]
        assert isinstance(second, Rejected)
        assert "out of range" in second.reason


def test_a_map_with_keys_that_are_no_strings_rejects_only_its_row(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    kind = pyarrow.map_(pyarrow.list_(pyarrow.int32()), pyarrow.int32())
    columns = {"node": ["a"] * 2, "type": ["T"] * 2, "clock": ["a:1", "a:2"]}
    table = pyarrow.table({**columns, "x": pyarrow.array([[([1], 2)], None], kind)})
    parquet.write_table(table, tmp_path / "x.parquet")
    for log in (read_log(table), read_log(tmp_path / "x.parquet")):
        assert [event.counter for event in log] == [2]
        (rejected,) = log.rejected
        assert rejected.reason == "the key [1] of a map is an array, not a string"


def test_audit_and_repair_name_rows() -> None:
    log = read_log([GOOD, {"node": "a"}, GOOD | {"clock": {"a": 3}}])
    (fault,) = ketal.audit(log).faults
    assert str(fault).startswith("row 3: error[A004]")
    assert fault.to_dict()["line"] == 3
    assert fault.hint.startswith(
        "row 2 was rejected and may be the missing event: the record has no clock"
    )
    (part,) = examine_log(log, None)
    notes = [str(note) for note in repair_execution(part).left]
    assert any(
        note.startswith("row 2: not an event, so omitted from the corrected log") for note in notes
    ), notes
    late = read_log([{"type": "ketal.end"}, GOOD])
    assert [item.place for item in examine_log(late, None)[0].rejected] == ["row 2"]
    assert ketal.stats(late).rejected == 1


@given(st.text("a:row 1", max_size=8), st.integers(0, 10**9))
def test_place_is_parsed_back(file: str, line: int) -> None:
    if line:
        assert file_and_line(place_at(file, line)) == (file, line)
    assert file_and_line("n@3") == file_and_line("") == ("", 0)


# --- arguments of read_log --------------------------------------------------------------


def test_reading_an_iterator_twice_is_an_error() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    reader = pyarrow.Table.from_pylist([GOOD]).to_reader()
    for rows in (iter([GOOD]), (row for row in [GOOD]), reader):
        log = read_log(rows)
        assert len(list(log)) == 1
        with pytest.raises(SettingError, match="rows of an iterator can be read only once; pass"):
            list(log)
    again = read_log({"x": GOOD}.values())
    assert list(again) == list(again) == items(GOOD)
    assert list(read_log([])) == []


@pytest.mark.parametrize(
    "given_",
    [b"x", bytearray(b"x"), 3, None, GOOD, object(), ["run.jsonl"], [Path("run")], {"run.jsonl"}],
)
def test_arguments_without_rows(given_: Any) -> None:
    with pytest.raises(TypeError, match="a log to read must be a path, a binary file or rows"):
        read_log(given_)


def test_each_table_is_an_argument_and_a_series_is_refused() -> None:
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    several: Any
    for several in ([pandas.DataFrame([GOOD])], [io.BytesIO()]):
        with pytest.raises(TypeError, match="pass several as separate arguments"):
            read_log(several)
    with pytest.raises(TypeError, match="Arrow data must be a table, not ChunkedArray"):
        list(read_log(pyarrow.chunked_array([[1]])))
    for events in ([Event("a", "T", {"a": 1})], ketal.Log.of([Event("a", "T", {"a": 1})])):
        with pytest.raises(TypeError, match=r"a row must be a dict \(use ketal\.Log\.of for ev"):
            list(read_log(events))  # type: ignore[arg-type]


def test_two_columns_of_the_same_name_are_an_error() -> None:
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    reason = "the table has two columns named '1', so no row can be read"
    for columns in (["1", "1"], ["1", 1]):
        with pytest.raises(SettingError, match=reason):
            read_log(pandas.DataFrame([[1, 2]], columns=columns))
    one = pyarrow.array([1])
    with pytest.raises(SettingError, match=reason):
        list(read_log(pyarrow.Table.from_arrays([one, one], names=["1", "1"])))


SCRIPT = """
import sys
for name in ("pyarrow", "pandas"):
    sys.modules[name] = None
import ketal
rows = [{"node": "a", "type": "T", "clock": {"a": 1}, "n": 1}]
assert [str(event) for event in ketal.read_log(rows)] == ["a@1 T"]
assert not {"numpy", "polars"} & set(sys.modules)
if "polars" in sys.argv:
    import polars
    assert [str(event) for event in ketal.read_log(polars.DataFrame(rows))] == ["a@1 T"]
class Stream:
    def __arrow_c_stream__(self, requested_schema=None): ...
try:
    ketal.read_log(Stream())
except ketal.SettingError as error:
    print(error)
"""


@pytest.mark.parametrize("library", ["", "polars"])
def test_only_the_library_of_a_table_is_imported(library: str) -> None:
    if library:
        pytest.importorskip(library)
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, library], text=True, capture_output=True, check=False,
        env={"PYTHONPATH": str(Path(ketal.__file__).parents[1])}, timeout=600,
    )  # fmt: skip
    assert ran.stdout == (
        "an Arrow table requires pyarrow, which is not installed: pip install 'ketal[parquet]'\n"
    ), ran.stderr


Made = Callable[[Sequence[Row]], Any]


@pytest.mark.parametrize("made", [dicts, *TABLES])
def test_run_over_rows(made: Made) -> None:
    rows = [GOOD, {"node": "b", "type": "T", "clock": {"b": 1}}, {"node": "b", "type": "T"}]
    program = ketal.compile(
        'pattern P { order CausalOrder; event E = type == "T"; A = E; B = Conc(E); find any A B; }'
    )
    verdicts = ketal.run(program, read_log(made(rows)))
    assert [str(dot) for match in verdicts.matches for dot in match.events] == ["a@1", "b@1"]
    (rejected,) = (verdict for verdict in verdicts if isinstance(verdict, Rejected))
    assert rejected.place == "row 3"
    assert verdicts.summary["events"]["rejected"] == 1
