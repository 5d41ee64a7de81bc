"""Rows of a key group are judged alike in batches and one by one."""

from __future__ import annotations

import gc
import importlib
import json
import pickle
import sys
import weakref
import zipfile
import zipimport
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ketal
from ketal.logs import Source
from ketal.model.limits import Limits
from ketal.streaming.spark import operator
from ketal.streaming.spark.families import families, row_placements
from ketal.streaming.spark.group import Group, Work
from ketal.streaming.spark.rows.row_reader import ALONE, COPY, HOME, SAMPLE, RowShape
from tests.sampling import examples

PLAIN = ("copy", "topic", "partition", "offset", "value")
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


def work(*, messages: bool, policy: str, limits: Limits | None) -> Work:
    found = families(ketal.compile(TURNS % policy), 1)
    return Work(
        families=found, placements=row_placements(found, None), counts=False,
        limits=limits or Limits(),
        shape=RowShape(PLAIN, (), Source(keyed_by="key") if messages else None),
        partitions=2, timed=False, figures=True,
    )  # fmt: skip


def test_rows_are_sorted_by_topic_partition_and_offset() -> None:
    import pandas

    names = ("topic", "partition", "offset")
    rows: list[tuple[Any, ...]] = [
        ("b", 0, 1), ("a", 70_000, 0), (None, 3, 9), ("a", 2, 5), ("b", 0, 0), ("a", 2, 4),
        ("a\0", 0, 0), (None, -1, 0),
    ]  # fmt: skip
    frames = [pandas.DataFrame(rows[:3], columns=names), pandas.DataFrame([], columns=names),
              pandas.DataFrame(rows[3:], columns=names)]  # fmt: skip
    ordered = operator._sorted_rows(iter(frames), names)
    assert ordered == sorted(rows, key=lambda row: (row[0] or "", *row[1:]))
    assert operator._sorted_rows(iter(frames[1:2]), names) == []


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
    """Draw rows of Kafka in batches: events, duplicates, and messages that are not events."""
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
            row: tuple[Any, ...]
            match place % 4:
                case 0 if sent:
                    row = (ALONE, "t", 0, offset, sent[place % len(sent)])
                case 1 if sent:
                    other = sent[place % len(sent)].replace(b"work", b"open")
                    row = (ALONE, "t", 1, offset, other)
                case 2 if sent:
                    row = (SAMPLE, "t", 0, offset, b"3:" + sent[place % len(sent)])
                case _:
                    row = (ALONE, "t", 0, offset, draw(strange))
            batch.insert(place % (len(batch) + 1), row)
            offset += 1
        if draw(st.integers(0, 9)) == 9:
            copy = draw(st.sampled_from([HOME, COPY]))
            batch.insert(len(batch) // 2, (copy, "t", 0, offset, END))
            offset += 1
        out.append(batch)
    return out


@pytest.mark.parametrize("messages", [True, False], ids=["messages", "columns"])
@pytest.mark.parametrize("limits", [None, TIGHT], ids=["roomy", "tight"])
@pytest.mark.parametrize("policy", ["skip", "resume", "halt"])
@examples(25, 1_000)
@given(given=batches(), restored=st.booleans())
def test_batch_gives_the_verdicts_and_state_of_its_rows_one_by_one(
    policy: str, limits: Limits | None, messages: bool, given: list[Any], restored: bool
) -> None:
    at = work(messages=messages, policy=policy, limits=limits)
    in_batches, one_by_one = Group(at, 0, None), Group(at, 0, None)
    for rows in filter(None, given):
        if not messages:  # Spark writes the value of every row, as an object.
            rows = [row for row in rows if row[4] not in (None, b"{", b"\xff")]
        verdicts = [verdict.to_dict() for verdict in in_batches.process(rows)]
        assert verdicts == [v.to_dict() for row in rows for v in one_by_one.process([row])]
        assert in_batches.figures_row(Counter()) == one_by_one.figures_row(Counter())
        state = in_batches.state()
        assert state == one_by_one.state()
        if restored:
            in_batches, one_by_one = Group(at, 0, state), Group(at, 0, state)


def test_garbage_of_a_worker_is_collected_eventually(monkeypatch: pytest.MonkeyPatch) -> None:
    """Live objects are frozen, and garbage among them; now and then all objects are unfrozen."""

    class Cycle:
        def __init__(self) -> None:
            self.own = self

    monkeypatch.setattr(operator, "FROZEN_MAX", 3)
    gone = []
    try:
        for _ in range(9):
            cycle = Cycle()
            gone.append(weakref.ref(cycle))
            operator._exempt_groups()
            del cycle
            assert gc.get_freeze_count() > 0
            assert sum(each() is not None for each in gone) <= 3
    finally:
        gc.unfreeze()


def test_task_does_not_read_package_archives_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyspark invalidates the importers of all packages in an archive before each task."""
    path, jar = str(tmp_path / "pyspark.zip"), str(tmp_path / "spark-core_2.13-4.0.0.jar")
    packages = ("__init__.py", "inner/__init__.py", "inner/late.py")
    for one, names in ((path, packages), (jar, ("a.class",))):
        with zipfile.ZipFile(one, "w") as archive:
            for name in names:
                archive.writestr(f"shipped/{name}", "")
        monkeypatch.syspath_prepend(one)
    monkeypatch.setattr(ketal, "__loader__", zipimport.zipimporter(path))
    monkeypatch.setattr(operator, "settle_worker", lambda: None)

    def read_again() -> list[str]:
        return [one for one in sys.path_importer_cache if one.startswith((path, jar))]

    try:
        importlib.import_module("shipped.inner")
        assert len(read_again()) >= 3
        of = operator.Operator(pickle.dumps(work(messages=True, policy="skip", limits=None)))
        assert list(of.process_table([])) == []
        assert read_again() == []
        importlib.import_module("shipped.inner.late")
        assert list(of.process_table([])) == []
        assert read_again() == []
    finally:
        for name in ("shipped", "shipped.inner", "shipped.inner.late"):
            sys.modules.pop(name, None)
