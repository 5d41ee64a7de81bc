"""Topics that are deleted while a job runs, and topics that it cannot decompress."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, OffsetOutOfRangeError

import ketal
from ketal.errors import LostError, SettingError, StateError
from ketal.logs import Source
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Target
from ketal.streaming.job.outputs import Outputs
from ketal.streaming.kafka import job_session
from ketal.streaming.kafka.job_session import ChangedError, Session
from ketal.streaming.kafka.process_engine import ProcessEngine, new_session
from tests.streaming.conftest import make_topic
from tests.streaming.jobs import (
    FORKS,
    HookRecorder,
    Running,
    Topic,
    accept,
    job_of,
    produce,
    recreate,
    run,
    until,
)

SOON = {"metadata_max_age_ms": 200}


@pytest.mark.parametrize("which", ["source", "sink"])
def test_deleted_topic_is_not_created_again(
    which: str, broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker with auto-creation would create the topic with other settings.

    kafka-python ignores `allow_auto_create_topics`.
    """
    if which == "source":
        monkeypatch.setattr(job_session, "PARTITIONS_S", 0.5)
    topics = {"source": topic(), "sink": topic()}
    produce(broker, [(topics["source"], 0, accept("a"))])
    job = job_of(
        broker, [topics["source"]], tmp_path, verdicts=Target("kafka", topics["sink"]),
        lost_after_ms=1_000, call_timeout_ms=4_000, properties=SOON,
    )  # fmt: skip
    running = Running(ProcessEngine(job, ketal.compile(FORKS), HookRecorder().hooks()))
    running.start()
    until(lambda: running.engine.figures.commits > 1)
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_topics([topics[which]])
        if which == "sink":
            produce(broker, [(topics["source"], 0, accept("b"))])
        running.join(timeout=60)
        running.engine.stop()
        assert topics[which] not in admin.list_topics()
    assert isinstance(running.fault, LostError)
    assert f"the topic {topics[which]} no longer exists" in str(running.fault)


def test_recreated_topic_is_not_taken_for_the_deleted_one(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Otherwise its first messages would be skipped as already read."""
    source = topic()
    produce(broker, [(source, 0, accept("a", n)) for n in (1, 2, 3)])
    job, recorder = job_of(broker, [source], tmp_path, properties=SOON), HookRecorder()
    running = Running(ProcessEngine(job, ketal.compile(FORKS), recorder.hooks()))
    running.start()
    until(lambda: running.engine.figures.commits > 1)
    recreate(broker, source, pause_s=2)  # the job requests metadata of the topic all the time
    produce(broker, [(source, 0, accept("b", n)) for n in range(1, 7)])
    running.join(timeout=60)
    running.engine.stop()
    assert isinstance(running.fault, StateError)
    made_anew = f"the topic {source} was deleted and recreated; resuming from the last commit"
    assert made_anew in recorder.notices
    assert running.engine.consumed == 3


def test_recreated_state_topic_is_reported_while_the_job_runs(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """The commits continue in the new topic, whose state no start could restore."""
    source, state, recorder = topic(), make_topic(broker, 1, "compact"), HookRecorder()
    job = job_of(broker, [source], tmp_path, properties=SOON, store=Target("kafka", state))
    running = Running(ProcessEngine(job, ketal.compile(FORKS), recorder.hooks()))
    running.start()
    for counter in (1, 2, 3):
        produce(broker, [(source, 0, accept("a", counter))])
        until(lambda: running.engine.figures.commits > counter)  # noqa: B023
    recreate(broker, state, "compact")
    produce(broker, [(source, 0, accept("a", 4))])
    running.join(timeout=60)
    running.engine.stop()
    assert isinstance(running.fault, StateError)
    made_anew = f"the topic {state} was deleted and recreated; resuming from the last commit"
    assert made_anew in recorder.notices


def test_recreated_state_topic_is_reported_before_the_first_commit(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """One of several consumers does not write to the topic until it has read a message."""
    source, state, recorder = topic(), make_topic(broker, 1, "compact"), HookRecorder()
    produce(broker, [(source, 0, accept("a", 1))])
    job = job_of(
        broker, [source], tmp_path, source=Source(keyed_by="height"), until_end=True,
        properties=SOON, store=Target("kafka", state),
    )  # fmt: skip
    program = ketal.compile(FORKS)
    run(job, program)
    running = Running(ProcessEngine(replace(job, until_end=False), program, recorder.hooks()))
    running.start()
    until(lambda: "has 1 of 1 parts: 0" in recorder.notices)
    recreate(broker, state, "compact")
    running.join(timeout=60)
    running.engine.stop()
    assert isinstance(running.fault, StateError)


def test_recreated_topic_is_distinguished_from_expired_messages(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job may get an offset-out-of-range error before it sees the new topic id."""
    source = topic()
    job = job_of(broker, [source], tmp_path)
    engine = ProcessEngine(job, ketal.compile(FORKS), HookRecorder().hooks())
    outputs = Outputs(job, engine.hooks)
    with closing(outputs), closing(new_session(engine, outputs)) as session:
        session.begin()

        def knows_the_topic() -> bool:
            session._consume()
            return source in session._topic_ids

        def out_of_range(timeout_ms: int) -> None:
            raise OffsetOutOfRangeError({TopicPartition(source, 0): 3})

        until(knows_the_topic)
        monkeypatch.setattr(session, "_poll", out_of_range)
        with pytest.raises(OffsetOutOfRangeError):
            session._consume()
        session._topic_ids[source] = "of a topic before"  # type: ignore[assignment]
        with pytest.raises(ChangedError, match=f"{source} was deleted and recreated"):
            session._consume()


def test_messages_that_cannot_be_decompressed_end_the_job(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry does not help; kafka-python needs libraries for lz4 and snappy."""
    source = topic()
    options = {"bootstrap_servers": broker.bootstrap_servers, "compression_type": "gzip"}
    with closing(KafkaProducer(**options)) as producer:
        # A message that compression does not shorten is sent uncompressed.
        producer.send(source, accept("a", note="x" * 2_000)).get(timeout=30)
    monkeypatch.setattr("kafka.codec.has_gzip", lambda: False)
    job = job_of(broker, [source], tmp_path, until_end=True)
    with pytest.raises(SettingError, match=f"{source} are compressed.* gzip .*\n  hint: pip inst"):
        run(job, ketal.compile(FORKS))


def test_return_of_kafka_is_reported_once_until_the_job_recovers(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile the job retries at growing intervals."""
    sessions = []

    def fail(session: Session) -> None:
        sessions.append(session)
        raise KafkaError("again")

    monkeypatch.setattr(Session, "run", fail)
    recorder = HookRecorder()
    job = job_of(broker, [topic()], tmp_path, lost_after_ms=6_000)
    with pytest.raises(LostError, match=r"KafkaError: again$"):
        run(job, ketal.compile(FORKS), recorder)
    assert len(sessions) > 2
    assert [notice for notice in recorder.notices if "is back" in notice] == [
        "Kafka is back; resuming from the last commit"
    ]
