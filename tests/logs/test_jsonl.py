"""JSON lines: valid ones become events, invalid ones are rejected in their place."""

from __future__ import annotations

import gzip
import io
import json
import re
import resource
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ketal.errors import EventError, SettingError
from ketal.logs import Log, Source, place, read_log, write_jsonl
from ketal.logs.decompression import BLOCK_BYTES
from ketal.logs.formats.jsonl import decoded
from ketal.logs.shape import Shape
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.verdicts.execution_verdicts import Rejected
from tests.work import counted_lines

# No deadline: the machine may be busy, and these tests do not measure time.
UNHURRIED = settings(suppress_health_check=[HealthCheck.too_slow])


def lines(*texts: str | bytes) -> io.BytesIO:
    return io.BytesIO(b"".join((t if isinstance(t, bytes) else t.encode()) + b"\n" for t in texts))


def items(*texts: str | bytes, **options: Any) -> list[Any]:
    return [record[1] for record in read_log(lines(*texts), format="jsonl", **options).records()]


def event(node: str = "a", counter: int = 1, **more: Any) -> str:
    return json.dumps({"node": node, "type": "T", "clock": {node: counter}, **more})


GOOD = event()


def test_plain_form_is_read() -> None:
    line = json.dumps(
        {
            "node": "n1",
            "type": "Stack.push",
            "clock": {"n1": 3, "n2": 1, "n3": 0},
            "time": "2024-05-01T10:00:00Z",
            "id": "x",
            "data": {"value": 7},
        }
    )
    (read,) = items(line)
    assert read == Event(
        node="n1",
        type="Stack.push",
        clock={"n1": 3, "n2": 1},
        time=1714557600.0,
        data={"value": 7},
        id="x",
    )
    assert type(read) is Event


def test_unknown_keys_are_data() -> None:
    assert items(event(x=1, data={"y": 2}))[0].data == {"x": 1, "y": 2}
    (read,) = items(event(y=1, data={"y": 2}))
    assert read.reason == "the key 'y' is both in the record and in its data"


def test_numbers_as_node_and_id_become_text() -> None:
    (read,) = items('{"node":4,"type":"T","clock":{"4":1},"id":9}')
    assert (read.node, read.id) == ("4", "9")


BAD = [
    ("not json", "the line is not JSON (pass --format"),
    ('{"node": "a",', "the line is not JSON: "),
    (
        "[1, 2]",
        "the line is an array, not a JSON object (convert an array to JSON lines with `jq -c",
    ),
    (
        "[" + GOOD + ",",
        "the line is not JSON: the array is incomplete (convert an array to JSON lines",
    ),
    (
        '  {"node":',
        "the line is not JSON: the object is incomplete (convert objects that span several",
    ),
    (
        GOOD + GOOD,
        f"the line is not JSON: trailing characters (byte {len(GOOD) + 1}) (a line holds one "
        "object and nothing else; `jq -c . FILE` writes such lines)",
    ),
    (
        GOOD + "\r" + GOOD,
        f"the line is not JSON: trailing characters (byte {len(GOOD) + 2}) (a line",
    ),
    ('{"node":"a",}', "the line is not JSON: trailing comma in object (byte 12)"),
    # Constants that Python's json writes.
    ('{"time":NaN}', "the line is not JSON: NaN is not a JSON value (write null instead)"),
    ('{"x":[-Infinity]}', "the line is not JSON: -Infinity is not a JSON value (write null"),
    (r'{"x":"\\\ud83d\ude00 \udc80"}', "the line is not JSON: \\udc80 is half of a surrogate pair"),
    (
        r'{"x":"\ud800"}',
        "the line is not JSON: \\ud800 is half of a surrogate pair, not a character",
    ),
    (r'{"x":"\ud800"', "the line is not JSON: the object is incomplete"),
    ("3", "the line is a number, not a JSON object"),
    (b'{"node":"\xff"}', "the line is not valid UTF-8 (byte 10)"),
    (b"\xff\xfe{", "the line is not valid UTF-8 (byte 1)"),
    ("\ufeff{}", "the line is not JSON: it begins with a byte order mark"),
    ("[" * 100_000, "the record is nested too deeply"),
    (event(x=json.loads("[" * 201 + "]" * 201)), "data is nested more than 200 levels deep"),
    ('{"node":"a","type":"T"}', "the record has no clock (pass --field clock=PATH to"),
    ('{"node":"a","event":"T","clock":{"a":1}}', "the record has no type (pass --field type=PATH"),
    ('{"type":"T","clock":{"a":1}}', "the record has no node"),
    ('{"node":"a","type":"T","clock":null}', "the record has no clock"),
    ('{"node":"a","type":"T","clock":{}}', "clock: the node's own entry 'a' is missing"),
    ('{"node":"a","type":"T","clock":{"b":1}}', "clock: the node's own entry 'a' is missing"),
    ('{"node":"a","type":"T","clock":{"a":0}}', "clock: the node's own entry 'a' is zero"),
    ('{"node":"a","type":"T","clock":{"a":-1}}', "clock: the entry for 'a' is negative"),
    ('{"node":"a","type":"T","clock":{"a":"1"}}', "clock: the entry for 'a' must be an integer"),
    ('{"node":"a","type":"T","clock":{"a":true}}', "clock: the entry for 'a' must be an integer"),
    ('{"node":"a","type":"T","clock":{"a":1.5}}', "clock: the entry for 'a' must be an integer"),
    (
        f'{{"node":"a","type":"T","clock":{{"a":{10**30}}}}}',
        "clock: the entry for 'a' is too large",
    ),
    (
        '{"node":"a","type":"T","clock":{"a":%s}}' % ("9" * 9999),
        f"the line cannot be read: the number {'9' * 39}… is out of range",
    ),
    ('{"node":"a","type":"T","clock":{"a":1e400}}', "the line cannot be read: the number 1e400 is"),
    (event(x="1e999")[:-1] + ',"y":-2.5E+999}', "the line cannot be read: the number -2.5E+999 is"),
    (
        '{"node":"a","type":"T","clock":{"a":1.0}}',
        "clock: the entry for 'a' must be an integer, not",
    ),
    (
        '{"node":"a","type":"T","clock":{"a":1e2}}',
        "clock: the entry for 'a' must be an integer, not",
    ),
    ('{"node":"a","type":"T","clock":{"a":1,"b":1e400}}', "the line cannot be read: the number 1e"),
    (
        '{"node":"a","type":"T","clock":"{\\"a\\":1e400}"}',
        "the clock '{\"a\":1e400}' cannot be read",
    ),
    (
        '{"node":"a","type":"T","clock":[1]}',
        "the clock is positional; name the nodes of its entries with --nodes A,B,C (pass --clock "
        "SCHEME if it is not a vector clock)",
    ),
    (
        '{"node":"a","type":"T","clock":{"dot":["a",1],"seen":{"b":2}}}',
        "clock: the entry for 'dot' must be an integer, not ['a', 1] (pass --clock SCHEME if it is "
        "not a vector clock)",
    ),
    ('{"node":"a","type":"T","clock":7}', "clock must map nodes to counters, not be a number"),
    ('{"node":"a","type":"T","clock":"x"}', "the clock 'x' is neither a JSON object nor"),
    ('{"node":1.5,"type":"T","clock":{"a":1}}', "node must be a string or an integer"),
    ('{"node":"a","type":7,"clock":{"a":1}}', "type must be a string"),
    (event(data=[1]), "data must be an object of attributes, not an array"),
    (event(time="soon"), "time 'soon' is neither RFC 3339 nor seconds"),
    (event(time="20240101T"), "time '20240101T' is neither RFC 3339 nor"),
    (event(time=True), "time must be RFC 3339 or a number"),
    (event(time=1e300), "time 1e+300 is outside the years"),
    (event(id=[1]), "id must be a string or an integer, not an array"),
    (
        '{"type":"ketal.bogus"}',
        "ketal.bogus is not a control event; choose from ketal.join, ketal.l",
    ),
    ('{"type":"ketal.join"}', "ketal.join has no node"),
    ('{"type":"ketal.watermark"}', "ketal.watermark has no time"),
    ('{"type":"ketal.view","members":"a"}', "the members of ketal.view must be a list"),
    ('{"type":"ketal.view","members":0}', "the members of ketal.view must be a list"),
    ('{"type":"ketal.view"}', "ketal.view has no members"),
    ('{"type":"ketal.view","members":null}', "ketal.view has no members"),
    (event(x="y" * 1_100_000), "the line is longer than 1048576 bytes (limit line_bytes_max)"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD, ids=range(len(BAD)))
def test_bad_line_is_rejected_and_the_rest_is_read(bad: str | bytes, reason: str) -> None:
    first, second, third = items(GOOD, bad, event(counter=2))
    assert isinstance(first, Event)
    assert isinstance(third, Event)
    assert isinstance(second, Rejected)
    assert second.reason.startswith(reason)
    assert len(second.reason) <= 400
    assert "\n" not in second.reason
    assert second.place == "<file>:2"


def test_places_count_every_line() -> None:
    stream = lines("", GOOD, "  ", "x", "", event(counter=2), "y")
    records = list(read_log(stream, format="jsonl").records())
    assert [place(r).rpartition(":")[2] for r in records] == ["2", "4", "6", "7"]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\n\n"])
def test_line_ends_and_byte_order_mark_are_accepted(end: bytes) -> None:
    log = read_log(io.BytesIO(b"\xef\xbb\xbf" + GOOD.encode() + b"\r\n" + GOOD.encode() + end))
    assert len(list(log)) == 2
    assert not log.rejected


@pytest.mark.parametrize("content", [b"", b"\n", b"\n \n"])
def test_empty_log_has_no_records(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_bytes(content)
    log = read_log(path)
    assert list(log.records()) == []
    assert list(log.executions) == [""]


@pytest.mark.parametrize("before", [b"", GOOD.encode() + b"\n"])
@pytest.mark.parametrize("after", [b"", b"\n" + GOOD.encode()])
def test_array_longer_than_a_line_is_reported_as_an_array(before: bytes, after: bytes) -> None:
    array = b" [\t" + b",".join([GOOD.encode()] * 30_000) + b"]"
    assert len(array) > 2**20
    (rejected,) = read_log(io.BytesIO(before + array + after), format="jsonl").rejected
    assert rejected.reason == (
        "the line is an array, not a JSON object (convert an array to JSON lines with "
        "`jq -c '.[]' FILE`)"
    )


def test_blank_lines_are_not_read_one_by_one() -> None:
    packed = io.BytesIO(gzip.compress(b"\n" * 10**6 + GOOD.encode() + b"\r\n" * 10**6))
    ((_, item, _, line),), work = counted_lines(lambda: list(read_log(packed).records()))
    assert isinstance(item, Event)
    assert line == 10**6 + 1
    assert work < 10**6


@pytest.mark.parametrize("together", [1_000, 1], ids=["before the events", "among the events"])
def test_events_of_a_log_with_control_events_are_decoded_together(together: int) -> None:
    def work(*texts: str) -> int:
        return counted_lines(lambda: items(*texts))[1]

    controls = [json.dumps({"type": "ketal.join", "node": f"n{n}"}) for n in range(1_000)]
    events = [event(counter=n) for n in range(1, 4_001)]
    assert len("".join(controls)) > BLOCK_BYTES  # The first block has no event.
    log: list[str] = []
    for n in range(0, 1_000, together):
        log += [*controls[n : n + together], *events[4 * n : 4 * (n + together)]]
    assert work(*log) < 1.2 * (work(*controls) + work(*events))


def test_huge_line_is_never_held_in_memory() -> None:
    class Huge(io.RawIOBase):
        """A line of 200 MB between two events."""

        left = 3200

        def readable(self) -> bool:
            return True

        def read(self, size: int = -1) -> bytes:
            self.left -= 1
            if self.left == 3199:
                return GOOD.encode() + b"\n"
            if self.left > 0:
                return b"x" * 65_536
            return b"\n" + GOOD.encode() if self.left == 0 else b""

    tracemalloc.start()
    records = list(read_log(Huge(), format="jsonl").records())  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [type(r[1]) for r in records] == [Event, Rejected, Event]
    assert [r[3] for r in records] == [1, 2, 3]
    assert peak < 8_000_000


@UNHURRIED
@given(
    st.lists(st.integers(0, 70), max_size=12), st.integers(1, 80), st.integers(1, 60), st.booleans()
)
def test_lines_do_not_depend_on_the_size_of_reads(
    lengths: list[int], read_size: int, limit: int, ended: bool
) -> None:
    """However a stream is cut into reads, each line is processed once, in its place."""
    from ketal.logs.streams import blocks

    texts = [b"%c" % (65 + i) * n for i, n in enumerate(lengths)]
    raw = b"\n".join(texts) + (b"\n" if ended and texts else b"")
    chunks = (raw[i : i + read_size] for i in range(0, len(raw), read_size))
    seen: dict[int, Any] = {}
    for number, block in blocks(chunks, limit):
        for offset, line in enumerate(
            [None] if isinstance(block, EventError) else block.split(b"\n")
        ):
            assert number + offset not in seen
            seen[number + offset] = line
    expected = {n: t if len(t) <= limit else None for n, t in enumerate(texts, 1)}
    assert {n: t for n, t in seen.items() if t != b""} == {
        n: t for n, t in expected.items() if t != b""
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**64) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
ENTRY = st.integers(-1, 3) | st.sampled_from([True, 1.0, "1", None, 2**63 - 1, 2**63])
NODE = st.sampled_from(["a", "b", "1"])
RECORD = st.fixed_dictionaries(
    {"node": NODE, "type": st.sampled_from(["T", "ketal.join", "ketal.x", 1])},
    optional={
        "clock": st.dictionaries(NODE, ENTRY, min_size=1) | JSON,
        "time": st.sampled_from([1, 1.5, "2024-01-01", "20240101", "7", None, True]) | JSON,
        "id": st.sampled_from(["i", 3, None]) | JSON,
        "data": st.dictionaries(st.sampled_from("xy"), JSON) | JSON,
        "x": JSON,
    },
)


@UNHURRIED
@given(st.lists(RECORD, max_size=6), st.booleans())
def test_the_fast_and_the_general_decoder_agree(records: list[Any], ascii_only: bool) -> None:
    texts = [json.dumps(r, ensure_ascii=ascii_only).encode() for r in records]
    shape = Shape(Source())
    expected: list[Any] = []
    for text in texts:
        try:
            expected.append(decoded(text, shape))
        except EventError as fault:
            expected.append(fault.reason[:100])
    got = [i.reason[:100] if isinstance(i, Rejected) else i for i in items(*texts)]
    assert got == expected


def test_line_numbers_are_kept_over_many_blocks(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    with path.open("w") as file:
        for n in range(1, 5001):
            file.write("oops\n" if n % 7 == 0 else event(counter=n, data={"n": n}) + "\n")
    for _, item, name, line in read_log(path).records():
        assert name == str(path)
        if isinstance(item, Rejected):
            assert line % 7 == 0
        else:
            assert item.data["n"] == line  # type: ignore[union-attr]


def test_control_events_are_read() -> None:
    assert items(
        '{"type":"ketal.join","node":7}',
        '{"type":"ketal.leave","node":"n","clock":{"n":1}}',
        '{"type":"ketal.view","members":["a",2]}',
        '{"type":"ketal.view","data":{"members":["b"]}}',
        '{"type":"ketal.view","members":[]}',
        '{"type":"ketal.watermark","time":"1970-01-01T00:01:00Z"}',
        '{"type":"\\u006betal.end"}',
        '{"node":"n","type":"ketal.leave","clock":{"n":1},"data":{}}',
    ) == [
        Control("join", node="7"),
        Control("leave", node="n"),
        Control("view", members=("a", "2")),
        Control("view", members=("b",)),
        Control("view", members=()),
        Control("watermark", time=60.0),
        Control("end"),
        Control("leave", node="n"),
    ]


def test_a_control_event_spelled_with_escapes_in_the_plain_form() -> None:
    line = '{"node":"n","type":"k\\u0065tal.leave","clock":{"n":1}}'
    assert items(line) == [Control("leave", node="n")]


def test_time_units_are_applied() -> None:
    for unit, value in (("s", 1.5), ("ms", 1500), ("us", 1_500_000), ("ns", 1_500_000_000)):
        assert items(event(time=value), time_unit=unit)[0].time == 1.5
        assert items(event(time=str(value)), time_unit=unit)[0].time == 1.5
    assert items(event(time="1970-01-01T00:00:02Z"), time_unit="ms")[0].time == 2.0


def test_fields_can_be_paths() -> None:
    line = '{"e":"T","a.b":{"n":"x"},"m":{"vc":{"x":2},"k":1},"pid":3}'
    fields = {"type": "e", "node": r"a\.b.n", "clock": "m.vc", "id": "pid"}
    assert items(line, fields=fields) == [
        Event("x", "T", {"x": 2}, data={"m": {"k": 1}}, id="3"),
    ]
    (lost,) = items('{"e":"T","a.b":{"n":"x"},"m":3}', fields=fields)
    assert lost.reason.startswith("the record has no clock at m.vc")


def test_data_may_be_the_object_that_holds_the_clock() -> None:
    fields = {"clock": "pkt.vc", "data": "pkt"}
    line = '{"node":"a","type":"T","pkt":{"vc":{"a":1},"to":2},"data":5,"z":0}'
    assert items(line, fields=fields)[0].data == {"to": 2, "data": 5, "z": 0}


def test_two_fields_may_have_the_same_path() -> None:
    line = '{"n":"a","type":"T","clock":{"a":1}}'
    assert items(line, fields={"node": "n", "id": "n"}) == [Event("a", "T", {"a": 1}, id="a")]


def test_nodes_option_is_for_positional_clocks_only() -> None:
    (lost,) = items(GOOD, nodes=["a", "b"])
    assert lost.reason.startswith(
        "the clock names its nodes itself; --nodes applies only to positional"
    )


def test_incarnation_number_is_read_from_its_field() -> None:
    line = '{"node":"a","type":"T","clock":{"a":1},"run":{"no":2,"of":3}}'
    (read,) = items(line, fields={"incarnation": "run.no"})
    assert read.data == {"incarnation": 2, "run": {"of": 3}}
    (without,) = items(GOOD, fields={"incarnation": "run.no"})
    assert without.data == {}
    (inside,) = items(
        '{"node":"a","type":"T","clock":{"a":1},"data":{"boot":"7","x":1}}',
        fields={"incarnation": "data.boot"},
    )
    assert inside.data == {"incarnation": "7", "x": 1}
    for text in (line, GOOD):
        (lost,) = items(text[:-1] + ',"incarnation":1}', fields={"incarnation": "run.no"})
        assert lost.reason.endswith(" but the number of the incarnation is at run.no")
    assert items(line[:-1] + ',"incarnation":1}')[0].data["incarnation"] == 1


def test_positional_clocks_are_read() -> None:
    line = '{"node":"b","type":"T","clock":[0,2,1]}'
    assert items(line, nodes=["a", "b", "c"]) == [Event("b", "T", {"b": 2, "c": 1})]
    (short,) = items(line, nodes=["a", "b"])
    assert short.reason == "the clock has 3 entries, but --nodes names 2 nodes"
    (other,) = items(line, nodes=["a", "c", "d"])
    assert other.reason == "the clock is positional, but --nodes does not name the node 'b'"
    number = '{"node":7,"type":"T","clock":[2,1]}'
    assert items(number, nodes=["6", "7"]) == [Event("7", "T", {"6": 2, "7": 1})]


def test_clock_with_too_many_entries_is_rejected() -> None:
    clock = {f"n{i}": 1 for i in range(50)}
    (read,) = items(json.dumps({"node": "n1", "type": "T", "clock": clock}))
    assert len(read.clock) == 50
    (lost,) = items(
        json.dumps({"node": "n1", "type": "T", "clock": clock}),
        limits=Limits(clock_entries_max=49),
    )
    assert lost.reason == "the clock has 50 entries, more than 49 (limit clock_entries_max)"


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_compressed_logs(pack: Any, tmp_path: Path) -> None:
    raw = b"".join(event(counter=n).encode() + b"\n" for n in range(1, 20_001))
    path = tmp_path / "run.jsonl.packed"
    # A sequence of two frames is one log.
    path.write_bytes(pack(raw[:100]) + pack(raw[100:]))
    log = read_log(path)
    assert [e.counter for e in log] == list(range(1, 20_001))
    assert not log.rejected
    path.write_bytes(pack(raw)[:-9])
    log = read_log(path, format="jsonl")
    assert "is truncated" in log.rejected[-1].reason
    path.write_bytes(pack(raw) + b"more, not packed")
    log = read_log(path, format="jsonl")
    at = re.search(r"is damaged (?:at|before) byte ([\d,]+) ", log.rejected[-1].reason)
    assert at is not None
    assert 0 < int(at[1].replace(",", "")) - len(pack(raw)) <= len(b"more, not packed") + 1
    assert len(list(log)) == 20_000


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_a_decompression_bomb_uses_little_memory(pack: Any) -> None:
    packed = pack(bytes(100_000_000)) + pack(b"\n" + GOOD.encode())
    tracemalloc.start()
    records = [r[1] for r in read_log(io.BytesIO(packed), format="jsonl").records()]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [type(i) for i in records] == [Rejected, Event]
    assert peak < 40_000_000


def test_log_can_be_iterated_repeatedly(tmp_path: Path) -> None:
    log = read_log(lines(GOOD, "x"), format="jsonl")
    assert list(log) == list(log)
    assert len(log.rejected) == 1
    path = tmp_path / "a.jsonl"
    path.write_text(GOOD)
    both = read_log(path, lines(event("b")))
    assert [e.node for e in both] == ["a", "b"] == [e.node for e in both]
    assert list(both.executions) == [""]


def test_second_reading_of_a_stream_is_an_error() -> None:
    class Once(io.BytesIO):
        def seekable(self) -> bool:
            return False

    log = read_log(Once(GOOD.encode()))
    assert len(list(log)) == 1
    with pytest.raises(SettingError, match="can be read only once"):
        list(log)


def test_iterations_over_one_open_file_do_not_disturb_each_other() -> None:
    count = 2_000
    log = read_log(lines(*(event(counter=n) for n in range(1, count + 1))))
    pairs = list(zip(log, log, strict=True))
    assert len(pairs) == count
    assert all(one == other for one, other in pairs)
    assert pairs[-1][0].counter == count

    class Switching(io.BytesIO):
        """A file that lets another thread run after each seek."""

        def seek(self, *place: int) -> int:
            at = super().seek(*place)
            time.sleep(0.001)
            return at

    log = read_log(Switching(lines(*(event(counter=n) for n in range(1, count + 1))).read()))
    with ThreadPoolExecutor(4) as pool:
        assert {*pool.map(lambda _: sum(1 for _ in log.records()), range(8))} == {count}


def test_closed_files_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    file = lines(GOOD)
    log = read_log(file)
    file.close()
    for closed in (log, read_log(file)):
        with pytest.raises(SettingError, match="cannot read <file>: the file is closed"):
            list(closed)
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(SettingError, match="cannot read <stdin>: it is closed"):
        read_log("-")


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Standard:
        buffer = lines(GOOD, "x")

    monkeypatch.setattr("sys.stdin", Standard)
    records = list(read_log("-").records())
    assert [place(r) for r in records] == ["<stdin>:1", "<stdin>:2"]


def test_event_is_yielded_before_the_next_is_read() -> None:
    seen: list[int] = []

    class Live(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            seen.append(len(seen))
            return event(counter=len(seen)).encode() + b"\n" if len(seen) < 4 else b""

    counters = []
    for read in read_log(Live()):  # type: ignore[arg-type]
        counters.append((read.counter, len(seen)))
    assert counters == [(1, 1), (2, 2), (3, 3)]


def test_log_of_events_in_memory() -> None:
    held = [Event("a", "T", {"a": 1}), Event("b", "T", {"b": 1})]
    log = Log.of(held)
    assert list(log) == held == list(log)
    assert [place(r) for r in log.records()] == ["", ""]


ATTRIBUTE = st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
EVENTS = st.builds(
    lambda node, kind, clock, time, data, name: Event(
        node=node, type=kind, clock={**clock, node: 1}, time=time, data=data, id=name
    ),
    st.text(min_size=1),
    st.text(min_size=1).filter(lambda t: not t.startswith("ketal.")),
    st.dictionaries(st.text(min_size=1), st.integers(0, 2**63 - 1), max_size=3),
    st.none() | st.floats(0, 4e9),
    st.dictionaries(st.text(), ATTRIBUTE | st.booleans() | st.none(), max_size=3),
    st.none() | st.text(),
)


@UNHURRIED
@given(st.lists(EVENTS, max_size=5))
def test_written_events_are_read_back(events: list[Event]) -> None:
    file = io.BytesIO()
    controls = [
        Control("join", node="n"),
        Control("view", members=()),
        Control("watermark", time=1.5),
        Control("end"),
    ]
    assert write_jsonl([*events, *controls], file) == len(events) + 4
    file.seek(0)
    read = [record[1] for record in read_log(file, format="jsonl").records()]
    assert read == [*events, *controls]


def test_log_is_written_to_a_path(tmp_path: Path) -> None:
    write_jsonl([Event("a", "T", {"a": 1})], tmp_path / "out.jsonl")
    assert msgspec.json.decode((tmp_path / "out.jsonl").read_bytes()) == {
        "node": "a",
        "type": "T",
        "clock": {"a": 1},
    }


def test_log_can_be_rewritten_into_its_own_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    first, last = Event("n", "a", {"n": 1}), Event("m", "a", {"m": 1})
    written: list[Event | Control] = [first, Control("leave", node="n"), last]
    assert write_jsonl(written, path) == 3
    with path.open("a") as file:
        file.write("no event\n")
    assert write_jsonl(read_log(path), path) == 3
    assert [item for _, item, _, _ in read_log(path).records()] == written


def test_a_log_with_several_executions_is_not_written_to_one_file(tmp_path: Path) -> None:
    """In one file the events of the second execution would be duplicates of the first."""
    path = tmp_path / "run.jsonl"
    event = Event(node="n", type="a", clock={"n": 1})
    rejected = Rejected(place="?", reason="damage")
    records: list[Any] = [("one", event, "", 1), ("", rejected, "", 2), ("two", event, "", 3)]
    log = Log(lambda: iter(records))
    with pytest.raises(SettingError, match="several executions, among them one and two; write"):
        write_jsonl(log, path)
    assert not path.exists()
    assert [write_jsonl(part, path) for part in log.executions.values()] == [1, 0, 1]


def test_a_file_is_unchanged_if_writing_fails(tmp_path: Path) -> None:
    def cut() -> Iterator[Event]:
        yield Event("n", "a", {"n": 1})
        raise OSError("cut")

    path = tmp_path / "run.jsonl"
    path.write_text("here")
    with pytest.raises(OSError, match="cut"):
        write_jsonl(cut(), path)
    assert path.read_text() == "here"


@pytest.mark.parametrize("event_count", [1, 2_000])
def test_full_temporary_folder_is_named_and_the_file_is_unchanged(
    tmp_path: Path, event_count: int
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("here")
    events = [Event("n", "a", {"n": n + 1}) for n in range(event_count)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(SettingError) as raised:
            write_jsonl(events, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    folder = re.escape(tempfile.gettempdir())
    assert re.fullmatch(rf"cannot write {folder}/\S+: File too large", str(raised.value))
    assert path.read_text() == "here"


@pytest.mark.parametrize("name", ["run.jsonl.gz", "run.zst"])
def test_the_name_of_a_compressed_file_is_refused_for_writing(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingError, match="the output is not compressed"):
        write_jsonl([], tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_name_that_no_file_can_have_is_refused_for_writing() -> None:
    with pytest.raises(
        SettingError, match=r"cannot write a\\x00b: the name .* cannot contain U\+0000"
    ):
        write_jsonl([], "a\0b")
