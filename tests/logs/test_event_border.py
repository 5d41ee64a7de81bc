"""The constructor of Event: arguments from Python code are normalised or refused."""

from __future__ import annotations

import copy
import datetime as dt
import enum
import io
import pickle
from collections import OrderedDict
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ketal
from ketal.errors import EventError
from ketal.model.attributes import DEPTH_MAX
from ketal.model.events.content import content
from ketal.model.events.control import Control
from ketal.model.events.event import Event, clean_event, decode_events, load_event, save_event
from ketal.runtime.state.records import decode_record, encode_record
from tests.cases import p

REFUSED: list[tuple[Any, str]] = [
    ({"a": 1, 2: 3}, "must be a string, not 2"),
    ({"a": True}, "must be an integer, not a boolean"),
    ({"a": 2, "b": True}, "must be an integer, not a boolean"),
    ({"a": 2, "b": 1.0}, "must be an integer, not 1.0"),
    ({"a": 2, "b": float("nan")}, "must be an integer, not nan"),
    ({"a": 2, "b": False}, "must be an integer, not a boolean"),
    ({"a": 2**63}, "too large"),
    ({"a": 10**5000}, "too large"),
    ({"a": 2, "b": -1}, "negative"),
    ({"a": -(10**5000)}, "negative"),
    ({"a": 0}, "is zero"),
    ({}, "is missing"),
    ({"a": 1, "": 1}, "a node's name is empty"),
    ({"a": 1, "\ud800": 1}, "clock: a node's name contains a lone surrogate"),
    (None, "must map"),
    (7, "must map"),
]


@pytest.mark.parametrize(("clock", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_an_invalid_clock(clock: Any, reason: str) -> None:
    with pytest.raises(EventError, match=reason):
        Event("a", "T", clock)


def test_zero_entries_are_dropped() -> None:
    assert Event("a", "T", {"a": 1, "b": 0}).clock == {"a": 1}
    assert Event("a", "T", {"a": 2**63 - 1, "b": 2**63 - 1}).clock["b"] == 2**63 - 1


def test_decoded_event_equals_a_constructed_one() -> None:
    (read,) = decode_events([b'{"node":"a","type":"T","clock":{"a":1,"b":0},"time":2}'])
    assert type(read) is Event
    assert read == Event("a", "T", {"a": 1}, time=2)
    assert pickle.loads(pickle.dumps(read)) == read == copy.deepcopy(read)
    assert repr(read) == repr(Event("a", "T", {"a": 1}, time=2))
    assert decode_events([b'{"node":"a","type":"T","clock":{"a":1,"":0}}']) == [None]
    assert decode_events([b'{"node":"a","type":"T","clock":{"a":0,"b":1}}']) == [None]


def test_content_digest_handles_integers_beyond_64_bits() -> None:
    big = Event("a", "T", {"a": 1}, data={"x": 10**30})
    assert content(big) == content(Event("a", "T", {"a": 1}, data={"x": 10**30}))
    assert content(big) != content(Event("a", "T", {"a": 1}, data={"x": 10**30 + 1}))


def test_an_unknown_control_event_lists_the_known_ones() -> None:
    with pytest.raises(EventError, match=r"ketal\.join, ketal\.leave, ketal\.view"):
        Control("joined", node="a")


# --- data -------------------------------------------------------------------------------------


def data_of(**data: Any) -> dict[str, Any]:
    return Event("a", "T", {"a": 1}, data=data).data


def through_a_snapshot(event: Event) -> Event:
    return load_event(decode_record("held/0", encode_record(save_event(event))))


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Tagged(str):
    __slots__ = ()


NORMALISED: list[tuple[Any, Any]] = [
    ((1, (2, "x")), [1, [2, "x"]]),
    (OrderedDict(b=1), {"b": 1}),
    (MappingProxyType({"k": (1,)}), {"k": [1]}),
    (Colour.RED, "red"),
    (Tagged("x"), "x"),
    ({Colour.RED: 1}, {"red": 1}),
    (Level.HIGH, 3),
    (numpy.float64(0.5), 0.5),
    (numpy.float32(0.5), 0.5),
    (numpy.int64(3), 3),
    (numpy.bool_(True), True),
    (numpy.str_("x"), "x"),
    (10**30, 10**30),
    ([None, True, 1, 1.5, "größe"], [None, True, 1, 1.5, "größe"]),
]


def classes(value: Any) -> Any:
    """Return a value with the class of each part, since 1 == 1.0 == True in Python."""
    if isinstance(value, dict):
        return type(value), {k: (type(k), classes(v)) for k, v in value.items()}
    if isinstance(value, list):
        return type(value), [classes(v) for v in value]
    return type(value), value


@pytest.mark.parametrize(("value", "normalised"), NORMALISED, ids=range(len(NORMALISED)))
def test_data_are_normalised_to_plain_values(value: Any, normalised: Any) -> None:
    for data, expected in (
        (data_of(x=value), {"x": normalised}),
        (data_of(x=[value]), {"x": [normalised]}),
    ):
        assert classes(data) == classes(expected)
    event = Event("a", "T", {"a": 1}, data={"x": value})
    assert classes(through_a_snapshot(event).data) == classes(event.data)


REFUSED_DATA: list[tuple[Any, str]] = [
    ({"x": object()}, r"data\.x must be None, a boolean, .*, not object"),
    ({"x": {"k": [0, {1}]}}, r"data\.x\.k\[1\] must be .*, not set; use a sorted list"),
    ({"x": Decimal("1.5")}, r"data\.x must be .*, not Decimal; use a float or a string"),
    ({"x": dt.datetime(2024, 1, 1)}, r"data\.x must be .*, not datetime; .*isoformat"),
    ({"x": numpy.datetime64("2024-01-01", "ns")}, r"data\.x must be .*, not datetime64; "),
    ({"x": numpy.arange(2)}, r"data\.x must be .*, not ndarray; .*tolist"),
    ({"x": b"raw"}, r"data\.x must be .*, not bytes; decode"),
    ({"x": {"a b": {3: 1}}}, r"data\.x\['a b'\] has the key 3; keys must be strings, not int"),
    ({3: 1}, r"data has the key 3; keys must be strings, not int"),
    ({"x": "\ud800"}, r"data\.x contains a lone surrogate \('\\ud800'\)"),
    ({"x": {"\udc00": 1}}, r"data\.x contains a lone surrogate"),
    ({"x": 10**4300}, r"data\.x is an integer of \d+ bits"),
    ({"x": -(10**4299)}, r"data\.x is an integer of \d+ bits"),
    ({"x": {"y": -(10**5000)}}, r"data\.x\.y is an integer of \d+ bits"),
    ([1], "data must be a mapping, not list"),
]


def test_longest_decodable_integers_are_accepted() -> None:
    for value in (10**4300 - 1, 1 - 10**4299, 2**14000):
        event = Event("a", "T", {"a": 1}, data={"x": value})
        assert decode_events([line_of(event)]) == [event]
        assert through_a_snapshot(event) == event


def line_of(event: Event) -> bytes:
    file = io.BytesIO()
    ketal.write_jsonl([event], file)
    return file.getvalue()


@pytest.mark.parametrize(("data", "reason"), REFUSED_DATA, ids=range(len(REFUSED_DATA)))
def test_data_that_a_snapshot_cannot_hold_are_refused(data: Any, reason: str) -> None:
    with pytest.raises(EventError, match=reason):
        Event("a", "T", {"a": 1}, data=data)


def test_cyclic_and_too_deeply_nested_data() -> None:
    loop: dict[str, Any] = {}
    loop["x"] = loop
    deep: Any = 0
    for _ in range(DEPTH_MAX):
        deep = [deep]
    assert through_a_snapshot(Event("a", "T", {"a": 1}, data={"x": deep})).data == {"x": deep}
    for data in (loop, {"x": [deep]}):
        with pytest.raises(EventError, match=f"nested more than {DEPTH_MAX} levels deep"):
            Event("a", "T", {"a": 1}, data=data)


VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), VALUE, max_size=3))
def test_accepted_events_are_restored_from_a_snapshot(data: dict[str, Any]) -> None:
    event = Event("a", "T", {"a": 1}, data=data)
    restored = through_a_snapshot(event)
    assert restored == event
    assert classes(restored.data) == classes(event.data)


def test_a_monitor_resumes_from_a_snapshot_of_accepted_events() -> None:
    program = ketal.compile(p("find next A B", "return x = A.x, y = A.y"))
    monitor = ketal.Monitor(program)
    monitor.feed(Event("n", "a", {"n": 1}, data={"x": (1, {"k": float("inf")}), "y": 10**40}))
    (match,) = ketal.Monitor.restore(program, monitor.snapshot()).feed(Event("n", "b", {"n": 2}))
    assert match.to_dict()["return"] == {"x": [1, {"k": float("inf")}], "y": 10**40}


def test_changing_the_arguments_does_not_change_an_event() -> None:
    clock, data = {"a": 1}, {"x": 1, "inner": {"list": [1]}}
    flat = {"x": 1}
    event, other = Event("a", "T", clock, data=data), Event("a", "T", clock, data=flat)
    clock["a"] = 7
    clock["b"] = 1
    data["x"] = 2
    flat["x"] = 2
    data["inner"]["list"].append(2)  # type: ignore[index]
    assert event == Event("a", "T", {"a": 1}, data={"x": 1, "inner": {"list": [1]}})
    assert other == Event("a", "T", {"a": 1}, data={"x": 1})


def test_readers_construct_clean_events() -> None:
    data = {"x": [1]}
    event = clean_event("a", "T", {"a": 1, "b": 0}, None, data, None)
    assert type(event) is Event
    assert event.data is data
    assert event.clock == {"a": 1}


# --- names ------------------------------------------------------------------------------------


def test_empty_or_non_text_names_are_refused() -> None:
    for node, clock in (("", {"": 1}), ("", {"a": 1})):
        with pytest.raises(EventError, match=r"node is empty; .*, for example `n1`"):
            Event(node, "T", clock)
    with pytest.raises(EventError, match=r"type is empty; .*, for example `Stack\.push`"):
        Event("a", "", {"a": 1})
    with pytest.raises(EventError, match=r"type 'ketal\.leave' is reserved: .*\(ketal\.Control\)"):
        Event("a", "ketal.leave", {"a": 1})
    with pytest.raises(EventError, match="type contains a lone surrogate"):
        Event("a", "\ud800", {"a": 1})
    with pytest.raises(EventError, match="id must be a string or an integer, not <object"):
        Event("a", "T", {"a": 1}, id=object())  # type: ignore[arg-type]
    with pytest.raises(EventError, match="id contains a lone surrogate"):
        Event("a", "T", {"a": 1}, id="\ud800")
    with pytest.raises(EventError, match="node is an integer of 16610 bits"):
        Event(10**5000, "T", {"a": 1})  # type: ignore[arg-type]
    for more in ({"kind": "leave", "node": ""}, {"kind": "view", "members": ("",)}):
        with pytest.raises(EventError, match=r"of ketal\.(leave|view) is empty"):
            Control(**more)


def test_names_become_plain_strings() -> None:
    number: Any = numpy.int64(7)
    event = Event(Colour.RED, Tagged("T"), {Colour.RED: Level.HIGH}, id=number)
    assert event == Event("red", "T", {"red": 3}, id="7")
    parts = (event.node, event.type, event.id, *event.clock)
    assert {type(part) for part in parts} == {str}
    assert type(event.counter) is int
    boxed: Any = numpy.int64(4)
    assert Event(boxed, "T", {"4": boxed}).dot == ("4", 4)


def test_empty_names_in_a_log_are_rejected() -> None:
    lines = (
        b'{"node":"","type":"T","clock":{"":1}}',
        b'{"node":"","type":"T","clock":{"a":1}}',
        b'{"node":"a","type":"","clock":{"a":1},"x":1}',
        b'{"node":"a","type":"T","clock":{"a":1,"":2}}',
        b'{"node":"a","type":"T","clock":{"a":1}}',
        b'{"type":"ketal.leave","node":""}',
    )
    log = ketal.read_log(io.BytesIO(b"\n".join(lines)), format="jsonl")
    assert [(r.place, r.reason) for r in log.rejected] == [
        ("<file>:1", "the record's node is empty (pass --field node=PATH to name its field)"),
        ("<file>:2", "the record's node is empty (pass --field node=PATH to name its field)"),
        (
            "<file>:3",
            "the record's type is empty (pass --field type=PATH to name its field); "
            "its other keys are x",
        ),
        ("<file>:4", "clock: a node's name is empty; name the node, for example `n1`"),
        ("<file>:6", "the node of ketal.leave is empty; name the node, for example `n1`"),
    ]
    assert [str(event) for event in log] == ["a@1 T"]
    mapped = ketal.read_log(
        io.BytesIO(b'{"n":"a","e":"","clock":{"a":1}}'),
        format="jsonl",
        fields={"node": "n", "type": "e"},
    )
    assert mapped.rejected[0].reason.startswith(
        "the record's type at e is empty (pass --field type="
    )


def test_text_clock_with_a_repeated_node_is_rejected() -> None:
    text = "a T {0}\n"
    twice, once = '{"a":1,"a":2}', '{"a:1":3, "a": 1}'
    log = ketal.read_log(
        io.BytesIO((text.format(twice) + text.format(once)).encode()),
        regex=r"(?<host>\S*) (?<event>\S*) (?<clock>{.*})",
    )
    (rejected,) = log.rejected
    assert rejected.reason == f"the clock {twice!r} has two entries for 'a'"
    assert [event.clock for event in log] == [{"a:1": 3, "a": 1}]
