"""Waits of a job that reads one partition far ahead of another, as it catches up.

Verdicts are those of `ketal.run` over the same events: no dot is lost, and no event is late.
"""

from __future__ import annotations

import json
import random
import time
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition

import ketal
from ketal.streaming.job.file import Job, Target
from ketal.streaming.kafka.job_session import least_watermark_s
from ketal.streaming.kafka.partition_state import Part
from ketal.streaming.kafka.process_engine import ProcessEngine
from ketal.streaming.kafka.state.topic_store import Changelog
from tests.streaming.jobs import HookRecorder

POLL = 500
"""How many messages of a partition are read before those of the other."""
PAIRS = 500
EVENTS_A_SECOND = 10


def pattern(order: str, kind: str) -> str:
    return f"""
    pattern Pair {{
        order {order}; partition by x;
        event P = type == "p"; event Q = type == "q";
        First = P; Second = Causal(Q, First); find {kind} First Second;
    }}
    """


def events() -> list[dict[str, Any]]:
    """Return pairs of events of three nodes, a send and its receipt, in causal order."""
    rng, nodes = random.Random(7), ("a", "b", "c")
    clocks: dict[str, dict[str, int]] = {node: {} for node in nodes}
    sent: list[tuple[int, str, dict[str, int]]] = []
    out: list[dict[str, Any]] = []

    def happen(node: str, kind: str, pair: int) -> None:
        clocks[node][node] = clocks[node].get(node, 0) + 1
        time_s = round(len(out) / EVENTS_A_SECOND, 1)
        event = {"node": node, "type": kind, "clock": dict(clocks[node]), "time": time_s}
        out.append({**event, "data": {"x": pair}})

    for pair in range(PAIRS):
        node = rng.choice(nodes)
        happen(node, "p", pair)
        sent.append((pair, node, dict(clocks[node])))
        other, sender, clock = sent.pop(rng.randrange(len(sent)))
        node = rng.choice([name for name in nodes if name != sender])
        for name, counter in clock.items():
            clocks[node][name] = max(clocks[node].get(name, 0), counter)
        happen(node, "q", other)
    return out


def part_of(text: str, recorder: HookRecorder | None = None) -> Part:
    job = Job(
        pattern="p", topics=["t"], bootstrap_servers="b", group_id="g",
        store=Target("kafka", "state"),
    )  # fmt: skip
    engine = ProcessEngine(job, ketal.compile(text), (recorder or HookRecorder()).hooks())
    return Part(engine, 0, {TopicPartition("t", n): 0 for n in (0, 1)}, Changelog(job, 0, 1))


def feed(part: Part, number: int, messages: list[dict[str, Any]]) -> list[ketal.Verdict]:
    one, out = TopicPartition("t", number), list[ketal.Verdict]()
    begin = part.positions[one]
    records: list[Any] = [
        SimpleNamespace(
            **one._asdict(), offset=begin + n, key=None, headers=[], value=json.dumps(item).encode()
        )
        for n, item in enumerate(messages)
    ]
    part.process(one, records, lambda found, _: out.extend(found))
    return out


def catch_up(part: Part, found: list[dict[str, Any]], poll: int) -> list[ketal.Verdict]:
    """Read the events, keyed into two partitions, in polls of one partition each."""
    keyed = [[event for event in found if event["data"]["x"] % 2 == number] for number in (0, 1)]
    out: list[ketal.Verdict] = []
    for begin in range(0, max(map(len, keyed)), poll):
        for number, messages in enumerate(keyed):
            if polled := messages[begin : begin + poll]:
                out += feed(part, number, polled)
    return out


@pytest.mark.parametrize(
    ("order", "kind"),
    [
        ("CausalOrder(frontier = 10 s)", "next"),
        ("CausalOrder(gap = 10 s)", "next"),
        ("CausalOrder(gap = 10 s)", "any"),
        ("CausalOrder(total, gap = 10 s, idle = 10 s)", "next"),
    ],
)
def test_no_wait_ends_by_the_time_of_another_partition(order: str, kind: str) -> None:
    text, found = pattern(order, kind), events()
    part = part_of(text)
    verdicts = catch_up(part, found, POLL)
    for number in (0, 1):
        verdicts += feed(part, number, [{"type": "ketal.end"}])
    expected = ketal.run(ketal.compile(text), [ketal.Event(**event) for event in found])
    assert sorted(map(str, verdicts)) == sorted(map(str, expected))
    numbers = part.summary_numbers
    assert (numbers["gaps"], numbers["events"]["late"]) == (0, 0)


def event_of(time_s: int, node: str, **clock: int) -> dict[str, Any]:
    return {"node": node, "type": "p", "clock": clock, "time": time_s, "data": {"x": node}}


@pytest.mark.parametrize(
    ("order", "kind"),
    [
        ("CausalOrder(gap = 10 s)", "next"),
        ("CausalOrder(gap = 10 s)", "any"),
        ("CausalOrder(idle = 10 s)", "next"),
    ],
)
def test_wait_ends_once_each_partition_is_read_past_its_length(order: str, kind: str) -> None:
    """The wait is counted from the largest time read when it began, not from the watermark."""
    part = part_of(pattern(order, kind))
    feed(part, 1, [event_of(50, "b", b=1)])
    assert feed(part, 0, [event_of(100, "a", a=1, b=2), event_of(200, "a", a=2, b=2)]) == []
    lateness_s = 5
    assert feed(part, 1, [event_of(109 + lateness_s, "c", c=1)]) == []
    lost = feed(part, 1, [event_of(110 + lateness_s, "c", c=2)])
    assert [str(verdict) for verdict in lost] == ["gap b@2 declared lost"]


def test_watermark_of_a_part_that_has_ended_does_not_count() -> None:
    text = pattern("arrival", "next").replace("First Second;", "First Second; within 1 s;")
    parts = [part_of(text) for _ in range(2)]
    for part, time_s in zip(parts, (100, 200), strict=True):
        assert least_watermark_s(parts) is None
        for number, node in enumerate("ab"):
            feed(part, number, [{"node": node, "type": "p", "clock": {node: 1}, "time": time_s}])
    assert least_watermark_s(parts) == 95
    for number in (0, 1):
        feed(parts[0], number, [{"type": "ketal.end"}])
    assert least_watermark_s(parts) == 195


def test_partition_whose_mark_is_far_ahead_is_reported_once() -> None:
    """All later events of the partition would be late without any other sign of the cause."""
    recorder = HookRecorder()
    part = part_of(pattern("CausalOrder(gap = 10 s)", "next"), recorder)
    now_s = int(time.time())
    feed(part, 0, [event_of(now_s + 1_000, "a", a=1), event_of(now_s, "b", b=1)])
    assert not recorder.notices
    feed(part, 0, [event_of(now_s, "a", a=2), event_of(4_000_000_000, "b", b=2)])
    feed(part, 0, [event_of(4_000_000_001, "b", b=3)])
    assert recorder.notices == [
        "warning: the time of b@2 (t/0/3) is far ahead of this machine's clock; once the watermark "
        "follows, all events before 2096-10-02T07:06:35Z are late"
    ]
    feed(part, 1, [{"type": "ketal.watermark", "time": "2100-01-01T00:00:00Z"}])
    assert recorder.notices[1:] == [
        "warning: the mark of t/1 is far ahead of this machine's clock; once the watermark "
        "follows, all events before 2100-01-01T00:00:00Z are late"
    ]
