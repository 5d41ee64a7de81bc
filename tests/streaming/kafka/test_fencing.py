"""Who is fenced ends, or goes on: by who fenced it, and by what the group's offsets say."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from kafka import errors as faults

import ketal
from ketal.errors import LostError, SettingError, StateError
from ketal.logs import Source
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Target
from ketal.streaming.kafka.connecting import clients
from ketal.streaming.kafka.connecting.client_calls import CLIENT_ERRORS
from ketal.streaming.kafka.process_engine import ProcessEngine
from ketal.streaming.kafka.running_job import RunningJob
from tests.streaming.jobs import (
    FORKS,
    Running,
    Told,
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


def test_a_stranger_is_refused_and_the_job_whose_group_it_is_goes_on(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Before it fences anybody: what it lacks is the state, the topics, or the program."""
    source, other, sink, program = topic(), topic(), topic(), ketal.compile(FORKS)
    job = job_of(broker, [source], tmp_path, verdicts=Target("kafka", sink))
    told = Told()
    running = Running(ProcessEngine(job, program, told.hooks()))
    running.start()
    until(lambda: running.engine.has_begun)
    away = tmp_path / "away"
    away.mkdir()
    to = Target("kafka", sink)
    mine = {"group_id": job.group_id, "verdicts": to, "rejected": to, "until_end": True}
    shared = {**mine, "store": Target("kafka", "state"), "source": Source(keyed_by="height")}
    changed = ketal.compile(FORKS.replace("hash != First.hash", "true"))
    elsewhere = f"state elsewhere, and not in dir:{away / 'state'}(.|\n)*--group-id of its own"
    try:
        for reads, folder, options, text, wanted, said in (
            (other, away, mine, program, SettingError, f"another job's, which reads {source}"),
            (source, away, mine, program, SettingError, elsewhere),
            (source, away, {**mine, "group_id_given": False}, program, SettingError,
             "the default is the name of the pattern file"),
            (source, away, shared, program, SettingError, "elsewhere, and not in kafka:state"),
            (source, tmp_path, mine, changed, StateError, "another program"),
        ):  # fmt: skip
            with pytest.raises(wanted, match=said):
                run(job_of(broker, [reads], folder, **options), text)
        produce(broker, [(source, 0, accept(node)) for node in "ab"])
        assert len(committed(broker, sink, least=1)) == 1
        assert told.sentences == []
    finally:
        running.engine.stop()
        running.join(PATIENCE_S)
    assert running.fault is None
    # Who means it takes the group over without the state.
    run(job_of(broker, [source], away, on_change="fresh", **mine), program)


def test_of_two_jobs_of_one_group_and_other_topics_one_ends_and_says_why(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They begin at the same moment, when the group is nobody's, and each has its own folder."""
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
    told = [Told(), Told()]
    running = [
        Running(ProcessEngine(job, program, one.hooks()))
        for job, one in zip(jobs, told, strict=True)
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
    assert f"another job's too, which reads {other.topics[0]}" in str(lost.fault)
    assert "hint: give this job a --group-id of its own" in str(lost.fault)
    at = jobs.index(other)
    found = committed(broker, sinks[at], least=height)
    left.engine.stop()
    left.join(PATIENCE_S)
    assert left.fault is None
    assert len(found) == len({v["id"] for v in found}) == height


def test_a_job_that_kafka_itself_has_fenced_goes_on(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """As when a transaction took too long; here somebody takes its id, and commits nothing."""
    source, program = topic(), ketal.compile(FORKS)
    job = job_of(broker, [source], tmp_path, verdicts=Target("kafka", sink := topic()))
    running = Running(ProcessEngine(job, program, Told().hooks()))
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


def test_a_producer_that_is_fenced_leaves_the_transaction_of_its_successor_alone(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """That the guard is in force wherever a job makes a producer."""
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


def test_what_a_transaction_aborted_is_not_read(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """An input that is written in transactions: what was aborted never was."""
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
    told = Told()
    engine = run(
        job_of(broker, [source], tmp_path, until_end=True, verdicts=Target("stdout")), program, told
    )
    assert [v.to_dict()["events"] for v in told.verdicts] == [["a@1", "c@1"]]
    assert engine.summary is not None
    assert engine.summary["kafka"]["messages"] == 2
