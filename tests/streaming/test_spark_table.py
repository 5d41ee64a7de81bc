"""Rows of a key group that are taken as a table are judged as rows taken in turn."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import numpy
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ketal
from ketal import Event
from ketal.columns import Columns
from ketal.limits import Limits
from ketal.logs import Source
from ketal.streaming.spark import operator
from ketal.streaming.spark.group import ALONE, COPY, HOME, PLACED, PLAIN, TOUCH, Group, Work
from ketal.streaming.spark.table import Table

JUDGED = (*PLAIN, "node", "type", "counter", "at0", "at1")
TURNS = """
pattern Turns {
    partition by key;
    event Open = type == "open"; event Work = type == "work" && size < 9;
    event Close = type == "close";
    check Open Work* Close;
    on violation %s;
}
"""
END = b'{"type": "ketal.end"}'
TIGHT = Limits(dots_max=16, counters_max=64, scopes_max=5)


def work(columns: tuple[str, ...], *, policy: str = "skip", limits: Limits | None = None) -> Work:
    return Work(
        programs=((0, ketal.compile(TURNS % policy)),), limits=limits or Limits(),
        source=Source(keyed_by="key") if columns == PLAIN else None, columns=columns, headers=(),
        partitions=2, timed=False, figures=True,
    )  # fmt: skip


def table(rows: list[tuple[Any, ...]], columns: tuple[str, ...]) -> Table:
    """Return rows as Spark hands them over: numbers are numbers, all else objects."""
    whole = {"copy": "int8", "partition": "int32", "offset": "int64", "counter": "int64"}
    arrays = {}
    for name, values in zip(columns, zip(*rows, strict=True), strict=True):
        array = numpy.empty(len(values), dtype=object)
        array[:] = values
        arrays[name] = array.astype(whole[name]) if name in whole else array
    return Table([arrays])


texts: Any = st.sampled_from(["a", "b", "", "a\0", "a\0b", "é", None])


@settings(deadline=None)
@given(
    parts=st.lists(st.lists(st.tuples(texts, st.integers(0, 3)), max_size=6), min_size=1),
    order=st.lists(st.integers(0, 999)),
    cuts=st.tuples(st.integers(0, 99), st.integers(0, 99)),
)
def test_a_column_is_its_values(
    parts: list[list[tuple[Any, int]]], order: list[int], cuts: tuple[int, int]
) -> None:
    def arrays(rows: list[tuple[Any, int]]) -> dict[str, Any]:
        text = numpy.empty(len(rows), dtype=object)
        # Equal texts are one object in a part, and are not in another.
        names = {row[0]: None if row[0] is None else "".join([*row[0]]) for row in rows}
        text[:] = [names[row[0]] for row in rows]
        return {"text": text, "number": numpy.array([row[1] for row in rows], dtype=numpy.int64)}

    given, rows = Table(list(map(arrays, parts))), [row for part in parts for row in part]
    if rows:
        order = [place % len(rows) for place in order]
        given, rows = given.ordered(numpy.array(order, dtype=int)), [rows[n] for n in order]
    first, last = sorted(cut % (len(rows) + 1) for cut in cuts)
    for table, some in (
        (given, rows),
        (given.part(first, last), rows[first:last]),
        (given.part(first, last).where(given.array("number")[first:last] > 1),
         [row for row in rows[first:last] if row[1] > 1]),
        (given.where(given.array("number") > 1), [row for row in rows if row[1] > 1]),
    ):  # fmt: skip
        wanted = [row[0] for row in some]
        assert table.count == len(some)
        assert list(table.rows()) == some
        assert table.column("text") == wanted
        assert table.column("number") == [row[1] for row in some]
        assert table.values("number") == {row[1] for row in some}
        picked = table.picked("text")
        assert len(picked) == len(some)
        assert list(picked) == list(picked[:]) == [picked[n] for n in range(len(some))] == wanted
        assert list(picked[1:3]) == wanted[1:3]
        for name, values in (("text", wanted), ("number", [row[1] for row in some])):
            coded = table.coded(name)
            assert len(set(coded.values)) == len(coded.values)
            assert [None if c < 0 else coded.values[c] for c in coded.codes] == values


def test_rows_come_by_topic_partition_and_offset() -> None:
    names = ("topic", "partition", "offset")
    rows: list[tuple[Any, ...]] = [
        ("b", 0, 1), ("a", 70_000, 0), (None, 3, 9), ("a", 2, 5), ("b", 0, 0), ("a", 2, 4),
        ("a\0", 0, 0), (None, -1, 0),
    ]  # fmt: skip
    frames = [pandas.DataFrame(rows[:3], columns=names), pandas.DataFrame([], columns=names),
              pandas.DataFrame(rows[3:], columns=names)]  # fmt: skip
    found = operator._ordered(iter(frames), names)
    assert found is not None
    assert list(found.rows()) == sorted(rows, key=lambda row: (row[0] or "", *row[1:]))
    assert operator._ordered(iter(frames[1:2]), names) is None


def message(node: str, counter: int, kind: str, key: Any, size: Any) -> bytes:
    data = {"key": key, "size": size}
    return json.dumps({"node": node, "type": kind, "clock": {node: counter}, "data": data}).encode()


names: Any = st.tuples(st.sampled_from("AB"), st.sampled_from([1, 1, 1, 1, 2, 7, 1_500]))
kinds: Any = st.sampled_from(["open", "work", "work", "work", "close", "other"])
keys: Any = st.sampled_from([1, 2, 3, "1", "a", True, 1.0, None, 2**70])
sizes: Any = st.sampled_from([1, 1, 1, 9, "1", None])
events: Any = st.tuples(names, kinds, keys, sizes)
strange: Any = st.sampled_from([b"{", None, b'{"node": "A"}', b'{"type": "ketal.join"}', b"\xff"])


@st.composite
def batches(draw: Any) -> list[list[tuple[Any, ...]]]:
    """Draw rows of Kafka in batches: events, some of them again, and what is none."""
    last = {"A": 0, "B": 0}
    sent: list[bytes] = []
    out: list[list[tuple[Any, ...]]] = []
    offset = 0
    for some in draw(st.lists(st.lists(events, max_size=150), min_size=1, max_size=3)):
        batch: list[tuple[Any, ...]] = []
        for (node, step), kind, key, size in some:
            last[node] += step
            sent.append(message(node, last[node], kind, key, size))
            batch.append((ALONE, "t", offset % 2, offset, sent[-1]))
            offset += 1
        for place in draw(st.lists(st.integers(0, 999), max_size=3)):
            row: tuple[Any, ...] = (TOUCH, "t", 0, offset, b"")
            match place % 5:
                case 0 if sent:
                    row = (ALONE, "t", 0, offset, sent[place % len(sent)])
                case 1 if sent:
                    other = sent[place % len(sent)].replace(b"work", b"open")
                    row = (ALONE, "t", 1, offset, other)
                case 2 if sent:
                    row = (PLACED, "t", 0, offset, b"3:" + sent[place % len(sent)])
                case 3:
                    row = (ALONE, "t", 0, offset, draw(strange))
            batch.insert(place % (len(batch) + 1), row)
            offset += 1
        if draw(st.integers(0, 9)) == 9:
            copy = draw(st.sampled_from([HOME, COPY]))
            batch.insert(len(batch) // 2, (copy, "t", 0, offset, END))
            offset += 1
        out.append(batch)
    return out


@pytest.mark.parametrize("limits", [None, TIGHT], ids=["roomy", "tight"])
@pytest.mark.parametrize("policy", ["skip", "resume", "halt"])
@settings(max_examples=40, deadline=None)
@given(given=batches(), restored=st.booleans())
def test_a_table_is_its_rows(
    policy: str, limits: Limits | None, given: list[Any], restored: bool
) -> None:
    at = work(PLAIN, policy=policy, limits=limits)
    as_table, as_rows = Group(at, 0, None), Group(at, 0, None)
    for rows in filter(None, given):
        said = [verdict.to_dict() for verdict in as_table.take_table(table(rows, PLAIN))]
        assert said == [verdict.to_dict() for verdict in as_rows.take(rows)]
        assert as_table.figures() == as_rows.figures()
        state = as_table.state()
        assert state == as_rows.state()
        if restored:
            as_table, as_rows = Group(at, 0, state), Group(at, 0, state)


def judged(row: tuple[Any, ...], *, plain: bool = True) -> tuple[Any, ...]:
    """Return a row of Kafka with the columns that Spark makes of an event's own."""
    event = json.loads(row[4])
    key, size = event["data"]["key"], event["data"]["size"]
    node = event["node"]
    return (*row, node, event["type"], event["clock"][node] if plain else 0, key, size)


@settings(max_examples=60, deadline=None)
@given(
    given=st.lists(
        st.tuples(names, kinds, st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 9])),
        min_size=1,
        max_size=400,
    ),
    closely=st.lists(st.integers(0, 399), max_size=3),
    again=st.lists(st.integers(0, 399), max_size=2),
)
def test_given_columns_are_the_rows(given: list[Any], closely: list[int], again: list[int]) -> None:
    last = {"A": 0, "B": 0}
    rows: list[tuple[Any, ...]] = []
    for (node, step), kind, key, size in given:
        last[node] += step
        value = message(node, last[node], kind, key, size)
        rows.append((ALONE, "t", 0, len(rows), value))
    for place in again:
        rows.insert(place % len(rows), rows[place * 7 % len(rows)])
    at = work(JUDGED)
    full = [judged(row, plain=place not in closely) for place, row in enumerate(rows)]
    as_table, as_rows = Group(at, 0, None), Group(at, 0, None)
    said = [verdict.to_dict() for verdict in as_table.take_table(table(full, JUDGED))]
    assert said == [verdict.to_dict() for verdict in as_rows.take(full)]
    assert as_table.state() == as_rows.state()


@pytest.mark.parametrize("shape", [PLAIN, JUDGED], ids=["messages", "columns"])
def test_most_rows_are_never_events(
    shape: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """But the first of a scope; of a violation no more than type and time is read."""
    looked_at: list[int] = []
    event = Columns.event

    def noted(self: Columns, row: int) -> Event:
        looked_at.append(row)
        return event(self, row)

    monkeypatch.setattr(Columns, "event", noted)
    rows = [
        (ALONE, "t", 0, n, message("A", n + 1, "open" if n < 4 else "work", n % 4, 1))
        for n in range(3_000)
    ]
    rows[2_000] = (ALONE, "t", 0, 2_000, message("A", 2_001, "open", 0, 1))
    at = work(shape)
    group = Group(at, 0, None)
    given = rows if shape == PLAIN else [judged(row) for row in rows]
    (violation,) = group.take_table(table(given, shape))
    assert violation.to_dict()["event"] == "A@2001"
    assert looked_at == [0, 1, 2, 3]


def test_garbage_of_a_worker_goes_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is frozen, and so is what turns out to be garbage: now and then all is seen."""

    class Cycle:
        def __init__(self) -> None:
            self.own = self

    monkeypatch.setattr(operator, "FROZEN_MAX", 3)
    gone = []
    try:
        for _ in range(9):
            cycle = Cycle()
            gone.append(weakref.ref(cycle))
            operator._leave_alone()
            del cycle
            assert gc.get_freeze_count() > 0
            assert sum(each() is not None for each in gone) <= 3
    finally:
        gc.unfreeze()
