"""Idle partitions that resume together: no event is late, whichever partition is read first."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer, TopicPartition

import ketal
from ketal.logs import Source
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Job, Target
from ketal.streaming.job.outputs import Outputs
from ketal.streaming.kafka.connecting.clients import make_producer
from ketal.streaming.kafka.job_session import Session
from ketal.streaming.kafka.process_engine import ProcessEngine, new_session
from tests.streaming.conftest import make_topic
from tests.streaming.jobs import HookRecorder, Topic, job_of, produce

IDLE_MS, LATENESS_MS, PAIRS, READ_S = 1_000, 5_000, 30, 180
NEAR = """
pattern Near {
    order CausalOrder; partition by key;
    event A = type == "a"; event B = type == "b"; First = A; Second = B;
    find any First Second; within 1 s;
}
"""


class Reading:
    """A session of two topics that the test drives step by step, with a clock that it sets."""

    def __init__(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        self.session = session
        self.now_ms = 0.0
        monkeypatch.setattr("ketal.streaming.kafka.partition_state.now_ms", lambda: self.now_ms)

    def read(self, messages: int) -> None:
        """Poll until `messages` were consumed in all: a poll of a dirty session waits 1 ms only."""
        end_s = time.monotonic() + READ_S
        while self.session.engine.consumed < messages and time.monotonic() < end_s:
            self.session._consume()
        assert self.session.engine.consumed == messages

    def wait_idle(self) -> None:
        """Advance the clock until all partitions are idle."""
        for _ in range(2 * IDLE_MS // 500):
            self.now_ms += 500
            self.session._check_clock()
        assert len(self.session.parts[0].watermarks.idle) == 2

    @property
    def summary(self) -> Any:
        return self.session.parts[0].summary_numbers


@pytest.fixture(params=["alone", "several"])
def job(request: pytest.FixtureRequest, broker: Broker, topic: Topic, tmp_path: Path) -> Job:
    """Return a job with a single part, which has one partition of each of two topics."""
    # On a busy machine a test's own transaction may be open for longer than ten seconds.
    properties = {"transaction_timeout_ms": 1_000 * READ_S}
    options: dict[str, Any] = {
        "lateness_ms": LATENESS_MS, "idle_ms": IDLE_MS, "properties": properties
    }  # fmt: skip
    if request.param == "several":
        state = make_topic(broker, policy="compact")
        options |= {"source": Source(keyed_by="key"), "store": Target("kafka", state)}
    return job_of(broker, [topic(), topic()], tmp_path, **options)


@pytest.fixture
def most() -> int:
    """Return the largest number of messages of a poll."""
    return 4 * PAIRS


@pytest.fixture
def reading(job: Job, most: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reading]:
    from dataclasses import replace

    job = replace(job, properties={"max_poll_records": most})
    engine = ProcessEngine(job, ketal.compile(NEAR), HookRecorder().hooks())
    session = new_session(engine, Outputs(job, engine.hooks))
    one = Reading(session, monkeypatch)
    with closing(session):
        session.begin()
        yield one


def event(kind: str, counter: int, time_s: float, key: int) -> bytes:
    own = {"node": kind, "type": kind, "clock": {kind: counter}, "time": time_s}
    return json.dumps({**own, "data": {"key": key}}).encode()


def begin(reading: Reading, broker: Broker, first: str, second: str) -> None:
    """Send an event to each partition, and wait until both are idle."""
    produce(broker, [(first, 0, event("a", 1, 1_000, 0)), (second, 0, event("b", 1, 1_000, 0))])
    reading.read(2)
    reading.wait_idle()


@pytest.mark.parametrize("most", [4 * PAIRS, PAIRS])
def test_idle_partitions_that_resume_in_one_transaction_lose_no_event(
    most: int, job: Job, reading: Reading, broker: Broker
) -> None:
    """One poll returns both partitions, or each of two polls returns one."""
    first, second = job.topics
    begin(reading, broker, first, second)
    with closing(make_producer(job, f"test-{first}")) as producer:
        producer.begin_transaction()
        for n in range(1, PAIRS + 1):
            producer.send(first, event("a", 1 + n, 2_000 + n, n), partition=0)
            producer.send(second, event("b", 1 + n, 2_000.5 + n, n), partition=0)
        producer.commit_transaction()
    reading.read(2 + 2 * PAIRS)
    assert reading.summary["events"]["late"] == 0
    assert reading.summary["patterns"]["Near"]["matches"] == 1 + PAIRS


def test_watermark_waits_for_an_open_transaction(
    job: Job, reading: Reading, broker: Broker
) -> None:
    """Of a transaction over two partitions, one may become readable before the other."""
    first, second = job.topics
    begin(reading, broker, first, second)
    with closing(make_producer(job, f"test-{first}")) as producer:
        producer.begin_transaction()
        producer.send(second, event("b", 2, 2_000, 1), partition=0).get(READ_S)
        produce(broker, [(first, 0, event("a", 2, 2_000, 1)), (first, 0, event("a", 3, 3_000, 2))])
        reading.read(4)
        producer.commit_transaction()
    reading.read(5)
    assert reading.summary["events"]["late"] == 0
    assert reading.summary["patterns"]["Near"]["matches"] == 2


def test_kafka_is_asked_for_unread_messages_before_a_partition_is_idle(
    job: Job, reading: Reading, broker: Broker
) -> None:
    """Only Kafka knows of messages that no poll has fetched."""
    first, second = job.topics
    produce(broker, [(first, 0, event("a", 1, 2_000, 0)), (second, 0, event("b", 1, 1_000, 0))])
    reading.read(2)
    produce(broker, [(second, 0, event("b", 2, 1_000.5, 1))])
    for _ in range(2 * IDLE_MS // 500):
        reading.now_ms += 500
        reading.session._check_clock()
    assert [topic for topic, _ in reading.session.parts[0].watermarks.idle] == [first]
    reading.read(3)
    assert reading.summary["events"]["late"] == 0


def test_kafka_is_asked_about_idle_partitions_only(
    job: Job, reading: Reading, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not at all while no partition is idle."""
    first, second = job.topics
    asked: list[list[TopicPartition]] = []
    ask = reading.session._unread

    def noted(partitions: Any) -> Any:
        asked.append(list(partitions))
        return ask(partitions)

    monkeypatch.setattr(reading.session, "_unread", noted)
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap_servers)) as producer:
        for n in range(1, 4):
            producer.send(first, event("a", n, 1_000 + n, n), partition=0).get(READ_S)
            reading.read(n)
    assert not any(asked)
    for _ in range(2 * IDLE_MS // 500):
        reading.now_ms += 500
        reading.session.parts[0].mark_active(TopicPartition(first, 0))
        reading.session._check_clock()
    asked.clear()
    produce(broker, [(first, 0, event("a", 4, 1_004, 4))])
    reading.read(4)
    assert [one for one in asked if one] == [[TopicPartition(second, 0)]]
