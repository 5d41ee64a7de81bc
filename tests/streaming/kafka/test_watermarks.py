"""When a partition is idle: after checks over `idle_ms` that found no message in it."""

from __future__ import annotations

import json
import math
import random
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, PropertyMock

import msgspec
import pytest
from hypothesis import given
from kafka import TopicPartition

import ketal
from ketal.model.events.event_time import seconds
from ketal.streaming.job.file import Job, Target
from ketal.streaming.kafka import partition_state as parts
from ketal.streaming.kafka.job_session import Session
from ketal.streaming.kafka.partition_state import Part
from ketal.streaming.kafka.process_engine import ProcessEngine
from ketal.streaming.kafka.state.topic_store import Changelog
from ketal.streaming.kafka.watermarks import CHECK_MS, STANDSTILL_MS, Watermarks
from tests.sampling import chances, examples
from tests.streaming.jobs import HookRecorder
from tests.work import counted_lines

IDLE_MS = 30_000
HERE, THERE = ("t", 0), ("t", 1)
NEXT = """
pattern Next {
    order arrival; partition by x;
    event P = type == "p"; event Q = type == "q"; First = P; Then = Q;
    within 10 s; find next First Then;
}
"""


def test_idle_partitions_of_a_part_are_checked_once_per_poll() -> None:
    """Once for each partition with messages would take seconds if there are many of both kinds."""
    idle = PropertyMock(return_value=[TopicPartition(*THERE)])
    watermarks = type("Watermarks", (), {"idle": idle})()
    part = Mock(ended=False, watermarks=watermarks)
    partitions = [TopicPartition("t", number) for number in range(9)]
    unread = Mock(return_value=[])
    session: Any = SimpleNamespace(part_of=dict.fromkeys(partitions, part), _unread=unread)
    Session._mark_active(session, partitions[2:])
    assert idle.call_count == 1
    unread.assert_called_once_with([TopicPartition(*THERE)])


def test_watermark_is_a_time_although_the_lateness_reaches_back_beyond_the_first() -> None:
    """Go's zero time in a message ended the job with 2, and so did every next start."""
    zero_s = seconds("0001-01-01T00:00:00Z")
    watermarks = Watermarks([HERE, THERE], lateness_ms=5_000, idle_ms=IDLE_MS, now_ms=0)
    watermarks.observe(HERE, zero_s)
    restored = Watermarks([HERE, THERE], lateness_ms=5_000, idle_ms=IDLE_MS, now_ms=0)
    restored.restore(watermarks.state())
    restored.observe(THERE, 100.0)
    mark_s = restored.advance()
    assert mark_s == zero_s
    ketal.Monitor(ketal.compile(NEXT)).advance_time(mark_s)
    restored.observe(HERE, zero_s + 1)
    assert restored.advance() is None
    restored.observe(HERE, zero_s + 6)
    assert restored.advance() == zero_s + 1


def marks() -> Watermarks:
    """Return the watermark of two partitions, at 100 s and 200 s."""
    out = Watermarks([HERE, THERE], lateness_ms=0, idle_ms=IDLE_MS, now_ms=0)
    out.observe(HERE, 200.0)
    out.observe(THERE, 100.0)
    assert out.advance() == 100.0
    return out


def check_idle(out: Watermarks, first_ms: int, last_ms: int, behind: set[Any]) -> None:
    for now_ms in range(first_ms, last_ms + 1, CHECK_MS):
        out.mark_active([HERE], now_ms)
        out.mark_idle(behind, now_ms)


def test_partition_is_idle_after_idle_ms_of_checks_without_messages() -> None:
    out = marks()
    check_idle(out, 0, IDLE_MS - CHECK_MS, set())
    assert out.advance() is None
    check_idle(out, IDLE_MS, IDLE_MS, set())
    assert out.advance() == 200.0


def test_idle_partition_holds_the_watermark_again_once_it_has_messages() -> None:
    out = marks()
    check_idle(out, 0, IDLE_MS, set())
    assert out.advance() == 200.0
    out.observe(HERE, 300.0)
    out.mark_active([THERE], IDLE_MS)
    assert out.advance() is None
    check_idle(out, IDLE_MS, 2 * IDLE_MS, set())
    assert out.advance() == 300.0


def test_time_without_checks_does_not_count_as_idle() -> None:
    """Of a day in which the process was suspended, only the length of one check counts."""
    out, day_ms = marks(), 86_400_000
    check_idle(out, 0, 0, set())
    check_idle(out, day_ms, day_ms + IDLE_MS - 3 * CHECK_MS, set())
    assert out.advance() is None
    check_idle(out, day_ms + IDLE_MS - 2 * CHECK_MS, day_ms + IDLE_MS, set())
    assert out.advance() == 200.0


@pytest.mark.parametrize("quiet_ms", [IDLE_MS - CHECK_MS, 2 * IDLE_MS])
def test_messages_that_arrived_during_a_suspension_have_time_to_be_read(quiet_ms: int) -> None:
    """Also in a partition that was idle, or about to become idle."""
    out, day_ms = marks(), 86_400_000
    check_idle(out, 0, quiet_ms, set())
    out.advance()
    out.mark_active([HERE], day_ms)
    out.observe(HERE, 300.0)
    assert out.advance() is None
    check_idle(out, day_ms, day_ms + STANDSTILL_MS - CHECK_MS, set())
    assert out.advance() is None
    check_idle(out, day_ms + STANDSTILL_MS, day_ms + STANDSTILL_MS, set())
    assert out.advance() == 300.0


def test_infrequent_checks_still_find_idle_partitions() -> None:
    """A process that is busy, or saves a large state, waits longer, but not for ever."""
    out = marks()
    for now_ms in range(0, 2 * IDLE_MS, 4 * CHECK_MS):
        out.mark_active([HERE], now_ms)
        out.mark_idle(set(), now_ms)
    assert out.advance() is None
    out.mark_idle(set(), 2 * IDLE_MS)
    assert out.advance() == 200.0


def test_partition_with_unread_messages_is_not_idle() -> None:
    """It does not become idle, and an idle partition becomes active once it has messages."""
    out = marks()
    check_idle(out, 0, 2 * IDLE_MS, {THERE})
    assert out.advance() is None
    check_idle(out, 2 * IDLE_MS, 3 * IDLE_MS, set())
    assert out.advance() == 200.0
    check_idle(out, 3 * IDLE_MS, 3 * IDLE_MS, {THERE})
    out.observe(HERE, 300.0)
    assert out.advance() is None


def test_restarted_part_waits_for_all_of_its_partitions_again() -> None:
    out = marks()
    check_idle(out, 0, IDLE_MS, set())
    out.restart(2 * IDLE_MS)
    check_idle(out, 2 * IDLE_MS, 3 * IDLE_MS - CHECK_MS, set())
    out.observe(HERE, 300.0)
    assert out.advance() is None


class Reading:
    """A part of two partitions that takes one event after another, with a clock that tests set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 0.0
        monkeypatch.setattr(parts, "now_ms", lambda: self.now_ms)
        job = Job(
            pattern="p", topics=["t"], bootstrap_servers="b", group_id="g", lateness_ms=0,
            idle_ms=IDLE_MS, store=Target("kafka", "state"),
        )  # fmt: skip
        self.offsets = {TopicPartition(*HERE): 0, TopicPartition(*THERE): 0}
        engine = ProcessEngine(job, ketal.compile(NEXT), HookRecorder().hooks())
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
def test_suspension_of_the_process_makes_no_event_late(
    away_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first poll after it returns one partition, and the next poll the other."""
    reading = Reading(monkeypatch)
    reading.process(HERE, "p", 100)
    reading.process(THERE, "p", 100)
    reading.now_ms += away_ms
    reading.process(HERE, "q", 200)
    reading.process(THERE, "q", 105)
    assert [v.kind for v in reading.verdicts] == ["match"]
    assert reading.part.summary_numbers["events"]["late"] == 0


def test_windows_end_without_waiting_for_an_idle_partition(monkeypatch: pytest.MonkeyPatch) -> None:
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


@examples(100, 2_000)
@given(chances())
def test_watermark_advances_only_where_a_raised_mark_asks_for_it(chance: random.Random) -> None:
    """Partitions are raised, active, idle, ended in any order; one begins from saved state."""
    partitions = [("t", number) for number in range(chance.randint(1, 4))]
    out = Watermarks(partitions, lateness_ms=0, idle_ms=2 * CHECK_MS, now_ms=0)
    for step in range(chance.randint(1, 30)):
        one = chance.choice(partitions)
        match chance.choice(["raise", "raise", "idle", "end", "restart", "save"]):
            case "raise":
                out.mark_active([one], step * CHECK_MS)
                before = out.state()
                is_due = out.observe(one, float(chance.randint(0, 9)))
                if not is_due and out.state() != before:
                    assert out.advance() is None
                if not is_due:
                    continue
            case "idle":
                out.mark_idle(
                    [other for other in partitions if chance.random() < 0.5], step * CHECK_MS
                )
            case "end":
                out.ended.add(one)
            case "restart":
                out.restart(step * CHECK_MS)
            case _:
                saved = out.state()
                partitions = chance.sample(partitions, chance.randint(1, len(partitions)))
                out = Watermarks(
                    partitions, lateness_ms=0, idle_ms=2 * CHECK_MS, now_ms=step * CHECK_MS
                )
                out.restore(saved)
                continue
        out.advance()


@examples(100, 2_000)
@given(chances())
def test_watermark_is_the_least_mark_of_the_active_partitions(chance: random.Random) -> None:
    """If none is active, it is the largest mark; it never goes back, also after a restore."""
    marks_s = {("t", number): -math.inf for number in range(chance.randint(1, 4))}
    ended, watermark_s, now_ms = set[tuple[str, int]](), -math.inf, 0
    out = Watermarks(marks_s, lateness_ms=500, idle_ms=2 * CHECK_MS, now_ms=now_ms)
    for _ in range(chance.randint(1, 30)):
        one, now_ms = chance.choice(sorted(marks_s)), now_ms + CHECK_MS
        match chance.choice(["observe", "observe", "raise", "idle", "end", "restore"]):
            case "observe":
                out.mark_active([one], now_ms)
                time_s = chance.randint(0, 9)
                out.observe(one, time_s)
                marks_s[one] = max(marks_s[one], time_s - 0.5)
            case "raise":
                out.mark_active([one], now_ms)
                time_s = chance.randint(0, 9)
                out.raise_mark(one, time_s)
                marks_s[one] = max(marks_s[one], time_s)
            case "idle":
                out.mark_idle([other for other in marks_s if chance.random() < 0.5], now_ms)
            case "end":
                out.ended.add(one)
                ended.add(one)
            case _:
                saved = msgspec.json.decode(msgspec.json.encode(out.state()))
                kept = chance.sample(sorted(marks_s), chance.randint(1, len(marks_s)))
                marks_s = {("t", now_ms): -math.inf} | {other: marks_s[other] for other in kept}
                ended &= marks_s.keys()
                out = Watermarks(marks_s, lateness_ms=500, idle_ms=2 * CHECK_MS, now_ms=now_ms)
                out.restore(saved)
        assert out.ended == ended
        assert out.all_ended == (len(ended) == len(marks_s))
        active = marks_s.keys() - ended - out.idle
        mark_s = min(map(marks_s.__getitem__, active)) if active else max(marks_s.values())
        assert out.advance() == (mark_s if mark_s > watermark_s else None)
        watermark_s = max(watermark_s, mark_s)
        assert (-math.inf if out.watermark_s is None else out.watermark_s) == watermark_s


def test_work_for_an_event_does_not_grow_with_the_number_of_partitions() -> None:
    """Other partitions than the one with the least mark cannot advance the watermark."""

    def lines(count: int) -> int:
        partitions = [("t", number) for number in range(count)]
        out = Watermarks(partitions, lateness_ms=0, idle_ms=IDLE_MS, now_ms=0)
        for one in partitions[1:]:
            out.observe(one, 100.0)
        out.advance()

        def read() -> None:
            for time_s in range(200, 300):
                if out.observe(partitions[-1], float(time_s)):
                    out.advance()

        return counted_lines(read)[1]

    assert lines(200) == lines(2)
