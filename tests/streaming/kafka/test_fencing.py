"""Whether a fenced job ends or goes on, by who fenced it and by the offsets of its group."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition
from kafka import errors as faults

import ketal
from ketal.errors import LostError, SettingError, StateError
from ketal.logs import Source
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Job, Target
from ketal.streaming.kafka.connecting import clients
from ketal.streaming.kafka.connecting.client_calls import CLIENT_ERRORS
from ketal.streaming.kafka.process_engine import ProcessEngine
from ketal.streaming.kafka.running_job import Commit, RunningJob
from tests.streaming.jobs import (
    FORKS,
    HookRecorder,
    Running,
    Topic,
    accept,
    committed,
    consume,
    job_of,
    produce,
    run,
    until,
)

PATIENCE_S = 180


def test_foreign_job_is_refused_without_fencing_the_groups_job(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """It is refused before it fences: its state, its topics or its program differ."""
    source, other, sink, program = topic(), topic(), topic(), ketal.compile(FORKS)
    job = job_of(broker, [source], tmp_path, verdicts=Target("kafka", sink))
    recorder = HookRecorder()
    running = Running(ProcessEngine(job, program, recorder.hooks()))
    running.start()
    until(lambda: running.engine.has_begun)
    away = tmp_path / "away"
    away.mkdir()
    to = Target("kafka", sink)
    mine = {"group_id": job.group_id, "verdicts": to, "rejected": to, "until_end": True}
    shared = {**mine, "store": Target("kafka", "state"), "source": Source(keyed_by="height")}
    changed = ketal.compile(FORKS.replace("hash != First.hash", "true"))
    elsewhere = f"state elsewhere, not in dir:{away / 'state'}(.|\n)*its own --group-id"
    try:
        for reads, folder, options, text, wanted, message in (
            (other, away, mine, program, SettingError,
             f"belongs to another job, which reads {source}"),
            (source, away, mine, program, SettingError, elsewhere),
            (source, away, {**mine, "group_id_given": False}, program, SettingError,
             "the default is the name of the pattern file"),
            (source, away, shared, program, SettingError, "elsewhere, not in kafka:state"),
            (source, tmp_path, mine, changed, StateError, "another program"),
        ):  # fmt: skip
            with pytest.raises(wanted, match=message):
                run(job_of(broker, [reads], folder, **options), text)
        produce(broker, [(source, 0, accept(node)) for node in "ab"])
        assert len(committed(broker, sink, least=1)) == 1
        assert recorder.notices == []
    finally:
        running.engine.stop()
        running.join(PATIENCE_S)
    assert running.fault is None
    # `--on-change fresh` takes the group over without the state.
    run(job_of(broker, [source], away, on_change="fresh", **mine), program)


def test_one_of_two_jobs_with_one_group_and_different_topics_ends_with_a_reason(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They start at the same moment, while the group is unclaimed, each with its own folder."""
    refuse, second_looked = RunningJob.refuse_other_job, threading.Event()

    def look(engine: RunningJob, *given: Any) -> None:
        refuse(engine, *given)
        if engine is running[1].engine:
            second_looked.set()
            until(lambda: running[0].engine.has_begun)
        assert second_looked.wait(PATIENCE_S)

    monkeypatch.setattr(RunningJob, "refuse_other_job", look)
    sources, sinks, program = [topic(), topic()], [topic(), topic()], ketal.compile(FORKS)
    for source in sources:
        (tmp_path / source).mkdir()
    jobs = [
        job_of(
            broker, [source], tmp_path / source, group_id=f"group-{sources[0]}",
            verdicts=Target("kafka", sink),
        )
        for source, sink in zip(sources, sinks, strict=True)
    ]  # fmt: skip
    recorders = [HookRecorder(), HookRecorder()]
    running = [
        Running(ProcessEngine(job, program, one.hooks()))
        for job, one in zip(jobs, recorders, strict=True)
    ]
    height = 0
    for one in running:
        one.start()
    for one in running:
        until(lambda one=one: one.engine.has_begun or not one.is_alive())  # type: ignore[misc]
    end_s = time.monotonic() + PATIENCE_S
    while all(one.is_alive() for one in running) and time.monotonic() < end_s:
        height += 1
        produce(broker, [(s, 0, accept(node, height, height)) for s in sources for node in "ab"])
    (lost,) = [one for one in running if not one.is_alive()]
    (left,) = [one for one in running if one is not lost]
    assert isinstance(lost.fault, LostError)
    other = left.engine.job
    assert f"also belongs to another job, which reads {other.topics[0]}" in str(lost.fault)
    assert "hint: give this job its own --group-id" in str(lost.fault)
    at = jobs.index(other)
    found = committed(broker, sinks[at], least=height)
    left.engine.stop()
    left.join(PATIENCE_S)
    assert left.fault is None
    assert len(found) == len({v["id"] for v in found}) == height


def test_job_fenced_without_a_successor_goes_on(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """As after a transaction timeout; here a producer takes the id and commits nothing."""
    source, program = topic(), ketal.compile(FORKS)
    job = job_of(broker, [source], tmp_path, verdicts=Target("kafka", sink := topic()))
    running = Running(ProcessEngine(job, program, HookRecorder().hooks()))
    running.start()
    for height in range(1, 5):
        until(lambda: running.engine.has_begun)
        clients.close_producer(clients.make_producer(job, f"ketal-{job.group_id}"))
        restarts = running.engine.figures.restarts
        produce(broker, [(source, 0, accept(node, height, height)) for node in "ab"])
        until(lambda r=restarts: running.engine.figures.restarts > r)  # type: ignore[misc]
        assert len(committed(broker, sink, least=height)) == height
    running.engine.stop()
    running.join(PATIENCE_S)
    assert running.fault is None
    assert not running.is_alive()


def test_fenced_producer_does_not_abort_its_successors_transaction(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """The guard of `clients` applies to each producer that a job makes."""
    job = job_of(broker, [name := topic()], tmp_path)
    old: Any = clients.make_producer(job, f"guarded-{name}")
    new: Any = None
    try:
        for error in (faults.InvalidProducerEpochError, faults.OutOfOrderSequenceNumberError):
            assert old._transaction_manager.classify_batch_error(error, None) == "FATAL"
        old.begin_transaction()
        old.send(name, b"old").get(timeout=30)
        new = clients.make_producer(job, f"guarded-{name}")
        new.begin_transaction()
        new.send(name, b"new").get(timeout=30)
        with pytest.raises(CLIENT_ERRORS):
            old.send(name, b"late").get(timeout=30)
        with contextlib.suppress(*CLIENT_ERRORS):
            old.abort_transaction()
        new.commit_transaction()
    finally:
        for one in (old, new):
            if one is not None:
                clients.close_producer(one)
    assert consume(broker, name, least=1, isolation_level="read_committed") == [b"new"]


def test_messages_of_aborted_transactions_are_not_read(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """The input is written in transactions."""
    source, program = topic(), ketal.compile(FORKS)
    job = job_of(broker, [source], tmp_path, until_end=True)
    producer = clients.make_producer(job, f"input-{source}")
    try:
        for node, commits in (("a", True), ("b", False), ("c", True)):
            producer.begin_transaction()
            producer.send(source, accept(node), partition=0).get(timeout=30)
            if commits:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    finally:
        clients.close_producer(producer)
    recorder = HookRecorder()
    engine = run(
        job_of(broker, [source], tmp_path, until_end=True, verdicts=Target("stdout")),
        program,
        recorder,
    )
    assert [v.to_dict()["events"] for v in recorder.verdicts] == [["a@1", "c@1"]]
    assert engine.summary is not None
    assert engine.summary["kafka"]["messages"] == 2


def test_offsets_of_other_topics_that_expire_are_not_those_of_another_job() -> None:
    job = Job(pattern="p", topics=["t"], bootstrap_servers="b:1", group_id="g")
    engine = ProcessEngine(job, ketal.compile(FORKS), HookRecorder().hooks())
    offsets = {TopicPartition("other", number): Commit(7, {}) for number in range(2)}
    engine.check_owner(offsets)
    engine.check_owner({TopicPartition("other", 0): Commit(7, {})})
    with pytest.raises(LostError, match="belongs to another job, which reads other: each fences"):
        engine.check_owner({TopicPartition("other", 0): Commit(8, {})})
