"""CSV and Parquet."""

from __future__ import annotations

import io
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ketal.errors import SettingError
from ketal.logs import place, read_log
from ketal.model.events.control import Control
from ketal.model.events.event import Draft, Event
from ketal.model.limits import Limits
from ketal.model.verdicts.execution_verdicts import Rejected


def records(text: str | bytes, **options: Any) -> list[Any]:
    raw = text if isinstance(text, bytes) else text.encode()
    return list(read_log(io.BytesIO(raw), format="csv", **options).records())


def test_cells_are_converted() -> None:
    text = (
        "node,type,clock,time,id,n,word,flag,code,none\r\n"
        'n1,T,"{""n1"": 1}",1.5,07,-2.5e1,hi,true,007,\r\n'
        "2,ketal,n1:1;2:3,1970-01-01T00:00:02Z,,12,12a,false,+1,\r\n"
    )
    assert [r[1] for r in records(text)] == [
        Event(
            "n1",
            "T",
            {"n1": 1},
            time=1.5,
            id="07",
            data={"n": -25.0, "word": "hi", "flag": True, "code": "007"},
        ),
        Event(
            "2",
            "ketal",
            {"n1": 1, "2": 3},
            time=2.0,
            data={"n": 12, "word": "12a", "flag": False, "code": "+1"},
        ),
    ]


def test_tabs_positional_clocks_and_renamed_columns_are_read() -> None:
    text = 'pid\twhat\tvc\nb\tT\t"[0, 2]"\n'
    fields = {"node": "pid", "type": "what", "clock": "vc"}
    (one,) = records(text, fields=fields, nodes=["a", "b"])
    assert one[1] == Event("b", "T", {"b": 2})


def test_data_column_is_a_json_object() -> None:
    text = 'node,type,clock,data,x\na,T,a:1,"{""k"": 1}",2\na,T,a:2,oops,2\na,T,a:3,7,2\n'
    nested = '{""k"":' * 20_000 + "1" + "}" * 20_000
    read = [r[1] for r in records(f'{text}a,T,a:4,"{nested}",2\na,T,a:5,null,2\n')]
    assert read[0].data == {"k": 1, "x": 2}
    assert read[1].reason == "data must be an object of attributes, not 'oops'"
    assert read[2].reason == "data must be an object of attributes, not a number"
    assert read[3].reason == "the record is nested too deeply"
    assert read[4].data == {"x": 2}


def test_control_events_are_rows() -> None:
    text = "node,type,clock,time,members\nb,ketal.join,,,\n,ketal.watermark,,7,\n"
    assert [r[1] for r in records(text)] == [
        Control("join", node="b"),
        Control("watermark", time=7),
    ]


def test_bad_rows_are_rejected_with_their_place() -> None:
    text = (
        b"node,type,clock,x\n"
        b"a,T,a:1,1\n"
        b"a,T,a:2\n"
        b"a,T,,1\n"
        b"\n"
        b"a,T,a:0,1\n"
        b"a,T,a:x,1\n"
        b'a,T,a:4,"two\nlines"\n'
        b"a,T,a:5,\xff\n"
        b'a,T,a:6,"x"y\n'
        b"a,T,a:7;a:8,1\n"
        b"a,T,a:1000000000000000000000000000000,1\n"
        b"a,T,a:9,1\n"
        b"a,T,a:10 b:2,1\n"
        b'a,T,"a:11, b:2",1\n'
        b"a,T,a:12;b:7 c:2,1\n"
        b'a,T,a:13,"open\n'
    )
    read = records(text)
    assert [(r[3], r[1].reason if isinstance(r[1], Rejected) else r[1].counter) for r in read] == [
        (2, 1),
        (3, "the row has 3 cells, but the header (the first row) has 4"),
        (
            4,
            "the record has no clock (pass --field clock=PATH to name its field, "
            "--rebuild KEYS to compute clocks from messages, or --clock none if the log has no "
            "clocks); its other keys are x",
        ),
        (6, "clock: the node's own entry 'a' is zero; counters start at 1"),
        (7, "the clock 'a:x' is neither a JSON object nor of the form node:3;m:2"),
        (8, 4),
        (10, "line 10 is not valid UTF-8 (byte 9)"),
        (11, "the row is not valid CSV: ',' expected after '\"'"),
        (12, "the clock 'a:7;a:8' has two entries for 'a'"),
        (13, "clock: the entry for 'a' is too large; the maximum is 2^63 - 1"),
        (14, 9),
        (15, "the clock 'a:10 b:2' is neither a JSON object nor of the form node:3;m:2"),
        (16, "the clock 'a:11, b:2' is neither a JSON object nor of the form node:3;m:2"),
        (17, 12),
        (18, "the row is not valid CSV: a quote is not closed"),
    ]


def reason(text: str) -> str:
    (one,) = records(text)
    return one[1].reason  # type: ignore[no-any-return]


def test_entry_without_a_node_is_no_entry_of_a_clock() -> None:
    assert reason("node,type,clock\na,T,a:1;7\n").startswith("the clock 'a:1;7' is neither")


def test_unclosed_quote_is_bounded_by_line_bytes_max() -> None:
    rows = "".join(f"a,T,a:{n},{'x' * 50}\n" for n in range(2, 200))
    text = 'node,type,clock,x\na,T,a:1,"open\n' + rows
    read = records(text, limits=Limits(line_bytes_max=2000))
    assert place(read[0]).endswith(":2")
    assert isinstance(read[1][1], Event)
    assert read[0][1].reason == (
        "the row is longer than 2000 bytes (limit line_bytes_max); check for an unclosed quote "
        f"(the row spans lines 2 to {int(place(read[1]).rpartition(':')[2]) - 1})"
    )


def test_a_rejected_row_of_several_lines_names_its_lines() -> None:
    head = "node,type,clock,x\n"
    assert reason(head + 'a,T,a:1,"open\na,T,a:2,1\na,T,a:3,1\n') == (
        "the row is not valid CSV: a quote is not closed (the row spans lines 2 to 4)"
    )
    assert reason(head + 'a,T,a:1,"open\na,T,a:2,"closed"\n') == (
        "the row is not valid CSV: ',' expected after '\"' (the row spans lines 2 to 3)"
    )
    assert reason(head + 'a,T,"a:1\n",1,2\n') == (
        "the row has 5 cells, but the header (the first row) has 4 (the row spans lines 2 to 3)"
    )
    assert reason('node,"type\nx\ny').endswith("a quote is not closed (the row spans lines 1 to 3)")
    assert reason("node,type,clock\ra,T,a:1\r") == (
        "no row can be read without the header: the row is not valid CSV: a carriage return "
        "without a line feed; end lines with \\n or \\r\\n"
    )


def test_rejected_row_of_several_lines_has_a_draft() -> None:
    text = 'node,type,clock,x\na,T,b:1,"two\nlines"\n'
    (one,) = records(text)
    assert isinstance(one[1].draft, Draft)
    assert one[1].draft.data == {"x": "two\nlines"}


def test_cell_may_be_long() -> None:
    (one,) = records(f"node,type,clock,x\na,T,a:1,{'y' * 500_000}\n")
    assert len(one[1].data["x"]) == 500_000


def test_blanks_before_a_cell_are_ignored() -> None:
    """Blanks are ignored in cells as in the header, but kept within quotes."""
    (one,) = records('node, type , clock, n, text, none\n a, T, a:1, 5, " x, y ", \n')
    assert one[1] == Event("a", "T", {"a": 1}, data={"n": 5, "text": " x, y "})


def test_header_is_required_and_unique() -> None:
    assert records("") == []
    assert records("\n\n") == []
    assert records("node,type,clock\n") == []
    (twice,) = records("node,type,clock,x,x\na,T,a:1,1,2\n")
    assert twice[1].reason == "the header has two columns named 'x', so no row can be read"
    (bad,) = records(b"node,\xff\na,T\n")
    assert bad[1].reason.startswith("no row can be read without the header: line 1 is not valid")


def test_header_may_have_many_columns() -> None:
    """To check them in quadratic time would take minutes."""
    columns = [f"c{number}" for number in range(100_000)]
    (twice,) = records(f"node,type,clock,{','.join(columns)},c0\n")
    assert twice[1].reason.startswith("the header has two columns named 'c0'")
    assert records(f"node,type,clock,{','.join(columns)}\n") == []


def table(path: Path, **columns: Any) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(columns), path, row_group_size=2)
    return path


def test_parquet_maps_and_structs_are_read(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    path = table(
        tmp_path / "x.parquet",
        node=["a", "b", "a"],
        type=["T", "U", "V"],
        clock=pyarrow.array(
            [[("a", 1)], [("a", 1), ("b", 1)], None],
            pyarrow.map_(pyarrow.string(), pyarrow.int64()),
        ),
        time=[datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC), None, None],
        data=[{"x": 1, "y": None}, {"x": 2, "y": "s"}, None],
        more=[1.5, None, 2.0],
    )
    log = read_log(path)
    assert list(log) == [
        Event("a", "T", {"a": 1}, time=3.0, data={"x": 1, "more": 1.5}),
        Event("b", "U", {"a": 1, "b": 1}, data={"x": 2, "y": "s"}),
    ]
    (lost,) = log.rejected
    assert lost.reason.startswith("the record has no clock")
    assert lost.place == f"{path}:3"


def test_parquet_struct_text_and_positional_clocks_are_read(tmp_path: Path) -> None:
    struct = table(tmp_path / "s.parquet", node=["a"], type=["T"], clock=[{"a": 1, "b": None}])
    assert list(read_log(struct)) == [Event("a", "T", {"a": 1})]
    text = table(
        tmp_path / "t.parquet", node=[1], type=["T"], clock=['{"1":2}'], data=['{"k":[1]}']
    )
    assert list(read_log(text)) == [Event("1", "T", {"1": 2}, data={"k": [1]})]
    listed = table(tmp_path / "noname", node=["b"], type=["T"], clock=[[3, 4]])
    assert list(read_log(listed, nodes=["a", "b"])) == [Event("b", "T", {"a": 3, "b": 4})]


@pytest.mark.parametrize("format", [None, "parquet"])
def test_parquet_cannot_be_read_from_a_stream(format: str | None) -> None:
    pytest.importorskip("pyarrow")

    class Stream:
        """A file with nothing but `read`."""

        def __init__(self) -> None:
            self.read = io.BytesIO(b"PAR1").read

    log = read_log(Stream(), format=format)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="<file>: Parquet cannot be read from a stream; save"):
        list(log)


def test_parquet_file_with_repeated_column_names_is_rejected(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = [pyarrow.array([text]) for text in ("a", "b", "T", "a:1")]
    names = ["node", "node", "type", "clock"]
    parquet.write_table(pyarrow.Table.from_arrays(columns, names), tmp_path / "x.parquet")
    log = read_log(tmp_path / "x.parquet")
    assert list(log) == []
    (twice,) = log.rejected
    assert twice.reason == "the table has two columns named 'node', so no row can be read"


def test_cells_of_parquet_equal_those_of_the_table_in_memory(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    path = table(
        tmp_path / "x.parquet",
        node=["a"] * 4,
        type=["T"] * 4,
        clock=["a:1", "a:2", "a:3", "a:4"],
        time=pyarrow.array([0.5, float("nan"), None, 2.0]),
        at=pyarrow.array([0, 1_000, 10**15, None], pyarrow.timestamp("ms")),
    )
    read = [record[1] for record in read_log(path).records()]
    assert [one.time for one in read if isinstance(one, Event)] == [0.5, None, 2.0]
    lost = read[2]
    assert isinstance(lost, Rejected)
    assert (lost.place, lost.reason[:25]) == (f"{path}:3", "a value cannot be read: d")
    of_table = pyarrow.parquet.read_table(path)
    assert list(read_log(of_table)) == [one for one in read if isinstance(one, Event)]


def test_damaged_parquet_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PAR1 nothing")
    pytest.importorskip("pyarrow")
    (lost,) = read_log(path).rejected
    assert lost.reason.startswith("the Parquet data is damaged from here on")


@pytest.mark.parametrize("missing", ["pyarrow", "pyarrow.parquet"])
def test_parquet_without_pyarrow_names_the_missing_package(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some builds of pyarrow lack the module `pyarrow.parquet`."""
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(SettingError, match=r"pip install 'ketal\[parquet\]'"):
        list(read_log(path))
