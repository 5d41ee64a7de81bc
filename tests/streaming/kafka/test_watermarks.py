"""When a partition is idle: where somebody looked for so long, and nothing was there."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, PropertyMock

import pytest
from kafka import TopicPartition

import ketal
from ketal.streaming.job.file import Job, Target
from ketal.streaming.kafka import partition_state as parts
from ketal.streaming.kafka.job_session import Session
from ketal.streaming.kafka.partition_state import Part
from ketal.streaming.kafka.process_engine import ProcessEngine
from ketal.streaming.kafka.state.topic_store import Changelog
from ketal.streaming.kafka.watermarks import CHECK_MS, STANDSTILL_MS, Watermarks
from tests.streaming.jobs import Told

IDLE_MS = 30_000
HERE, THERE = ("t", 0), ("t", 1)
NEXT = """
pattern Next {
    order arrival; partition by x;
    event P = type == "p"; event Q = type == "q"; First = P; Then = Q;
    within 10 s; find next First Then;
}
"""


def test_the_idle_partitions_of_a_part_are_looked_up_once_a_poll() -> None:
    """Not once for each partition that has messages: of many of both that would take seconds."""
    idle = PropertyMock(return_value=[TopicPartition(*THERE)])
    watermarks = type("Watermarks", (), {"idle": idle})()
    part = Mock(ended=False, watermarks=watermarks)
    partitions = [TopicPartition("t", number) for number in range(9)]
    unread = Mock(return_value=[])
    session: Any = SimpleNamespace(part_of=dict.fromkeys(partitions, part), _unread=unread)
    Session._mark_active(session, partitions[2:])
    assert idle.call_count == 1
    unread.assert_called_once_with([TopicPartition(*THERE)])


def marks() -> Watermarks:
    """Return the watermark of two partitions, at 100 s and 200 s."""
    out = Watermarks([HERE, THERE], lateness_ms=0, idle_ms=IDLE_MS, now_ms=0)
    out.observe(HERE, 200.0)
    out.observe(THERE, 100.0)
    assert out.advance() == 100.0
    return out


def looked(out: Watermarks, first_ms: int, last_ms: int, behind: set[Any]) -> None:
    for now_ms in range(first_ms, last_ms + 1, CHECK_MS):
        out.mark_active([HERE], now_ms)
        out.mark_idle(behind, now_ms)


def test_a_partition_is_idle_after_so_many_looks_that_found_nothing() -> None:
    out = marks()
    looked(out, 0, IDLE_MS - CHECK_MS, set())
    assert out.advance() is None
    looked(out, IDLE_MS, IDLE_MS, set())
    assert out.advance() == 200.0


def test_a_partition_that_was_idle_is_waited_for_once_it_has_messages() -> None:
    out = marks()
    looked(out, 0, IDLE_MS, set())
    assert out.advance() == 200.0
    out.observe(HERE, 300.0)
    out.mark_active([THERE], IDLE_MS)
    assert out.advance() is None
    looked(out, IDLE_MS, 2 * IDLE_MS, set())
    assert out.advance() == 300.0


def test_time_in_which_nobody_looked_does_not_count() -> None:
    """Of a day in which the process stood still, as much counts as a look may take."""
    out, day_ms = marks(), 86_400_000
    looked(out, 0, 0, set())
    looked(out, day_ms, day_ms + IDLE_MS - 3 * CHECK_MS, set())
    assert out.advance() is None
    looked(out, day_ms + IDLE_MS - 2 * CHECK_MS, day_ms + IDLE_MS, set())
    assert out.advance() == 200.0


@pytest.mark.parametrize("quiet_ms", [IDLE_MS - CHECK_MS, 2 * IDLE_MS])
def test_what_came_while_nobody_looked_has_time_to_be_read(quiet_ms: int) -> None:
    """Also in a partition that was about to be idle, or was."""
    out, day_ms = marks(), 86_400_000
    looked(out, 0, quiet_ms, set())
    out.advance()
    out.mark_active([HERE], day_ms)
    out.observe(HERE, 300.0)
    assert out.advance() is None
    looked(out, day_ms, day_ms + STANDSTILL_MS - CHECK_MS, set())
    assert out.advance() is None
    looked(out, day_ms + STANDSTILL_MS, day_ms + STANDSTILL_MS, set())
    assert out.advance() == 300.0


def test_looks_that_are_far_apart_find_what_is_idle_too() -> None:
    """A process that is busy, or saves a large state, waits longer, and not for ever."""
    out = marks()
    for now_ms in range(0, 2 * IDLE_MS, 4 * CHECK_MS):
        out.mark_active([HERE], now_ms)
        out.mark_idle(set(), now_ms)
    assert out.advance() is None
    out.mark_idle(set(), 2 * IDLE_MS)
    assert out.advance() == 200.0


def test_what_is_unread_is_not_idle() -> None:
    """It never becomes so, and it is so no more as soon as there is something."""
    out = marks()
    looked(out, 0, 2 * IDLE_MS, {THERE})
    assert out.advance() is None
    looked(out, 2 * IDLE_MS, 3 * IDLE_MS, set())
    assert out.advance() == 200.0
    looked(out, 3 * IDLE_MS, 3 * IDLE_MS, {THERE})
    out.observe(HERE, 300.0)
    assert out.advance() is None


def test_a_part_that_is_taken_up_waits_anew_for_all_of_its_partitions() -> None:
    out = marks()
    looked(out, 0, IDLE_MS, set())
    out.restart(2 * IDLE_MS)
    looked(out, 2 * IDLE_MS, 3 * IDLE_MS - CHECK_MS, set())
    out.observe(HERE, 300.0)
    assert out.advance() is None


class Reading:
    """A part of two partitions that takes one event after the other, by a clock that is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 0.0
        monkeypatch.setattr(parts, "now_ms", lambda: self.now_ms)
        job = Job(
            pattern="p", topics=["t"], bootstrap_servers="b", group_id="g", lateness_ms=0,
            idle_ms=IDLE_MS, store=Target("kafka", "state"),
        )  # fmt: skip
        self.offsets = {TopicPartition(*HERE): 0, TopicPartition(*THERE): 0}
        engine = ProcessEngine(job, ketal.compile(NEXT), Told().hooks())
        self.part = Part(engine, 0, self.offsets, Changelog(job, 0, 1))
        self.verdicts: list[ketal.Verdict] = []

    def process(self, place: tuple[str, int], kind: str, time_s: int) -> None:
        one = TopicPartition(*place)
        node, offset = f"n{one.partition}", self.offsets[one]
        event = {
            "node": node, "type": kind, "time": time_s, "clock": {node: offset + 1},
            "data": {"x": node},
        }  # fmt: skip
        record: Any = SimpleNamespace(
            **one._asdict(), offset=offset, key=None, headers=[], value=json.dumps(event).encode()
        )
        self.offsets[one] += 1
        self.part.mark_active(one)
        self.part.process(one, [record], lambda found, _: self.verdicts.extend(found))
        self.look()

    def look(self) -> None:
        self.verdicts += self.part.mark_idle(dict.fromkeys(self.offsets, 0), lambda partitions: [])


@pytest.mark.parametrize("away_ms", [CHECK_MS, 10 * IDLE_MS])
def test_nothing_is_late_because_the_process_stood_still(
    away_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first poll brings one partition; what the other one has comes with the next."""
    reading = Reading(monkeypatch)
    reading.process(HERE, "p", 100)
    reading.process(THERE, "p", 100)
    reading.now_ms += away_ms
    reading.process(HERE, "q", 200)
    reading.process(THERE, "q", 105)
    assert [v.kind for v in reading.verdicts] == ["match"]
    assert reading.part.summary_numbers["events"]["late"] == 0


def test_windows_close_without_a_partition_that_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    reading.process(HERE, "p", 100)
    reading.process(THERE, "p", 100)
    reading.process(HERE, "p", 200)
    for now_ms in range(CHECK_MS, IDLE_MS, CHECK_MS):
        reading.now_ms = now_ms
        reading.look()
    assert reading.verdicts == []
    reading.now_ms = IDLE_MS
    ended = []
    for time_s in (201, 209, 210):
        reading.process(HERE, "p", time_s)
        ended.append(len(reading.verdicts))
    assert ended == [2, 2, 3]
    assert {v.kind for v in reading.verdicts} == {"timed_out"}
