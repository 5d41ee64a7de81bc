"""A job that is stopped while Kafka is unreachable does not wait for Kafka."""

from __future__ import annotations

import itertools
import pkgutil
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer

import ketal
from ketal.logs import Source
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Job, Target
from ketal.streaming.kafka.process_engine import ProcessEngine
from tests.streaming.conftest import make_topic
from tests.streaming.jobs import (
    FORKS,
    HookRecorder,
    Running,
    accept,
    job_of,
    produce,
    run,
    until,
)

CALL_TIMEOUT_MS = 300_000
PATIENCE_S = 120
"""Less than the timeout of a call of Kafka."""


def stop(running: Running, case: object = "it") -> None:
    running.engine.stop()
    running.join(PATIENCE_S)
    assert not running.is_alive(), f"{case} waits for Kafka"
    assert running.fault is None, case


def connecting_sessions() -> int:
    """Return the number of sessions that wait to connect to Kafka, abandoned ones included."""
    return sum(one.name == "ketal connecting" for one in threading.enumerate())


def test_shutdown_does_not_wait_for_pending_calls_when_the_broker_is_gone(
    mortal_broker: Broker, tmp_path: Path
) -> None:
    """The pending call is an unanswered commit, or the connection of a new session."""
    program = ketal.compile(FORKS)
    source = make_topic(mortal_broker)
    job = job_of(
        mortal_broker, [source], tmp_path, call_timeout_ms=CALL_TIMEOUT_MS,
        commit_interval_ms=10 * CALL_TIMEOUT_MS,
    )  # fmt: skip
    produce(mortal_broker, [(source, 0, accept("a", 1)), (source, 0, accept("b", 1))])
    running = Running(ProcessEngine(job, program, HookRecorder().hooks()))
    running.start()
    until(lambda: running.engine.consumed == 2, "it reads nothing", PATIENCE_S)
    mortal_broker.kill()
    stop(running)
    # Only the claim from the start of the session is committed.
    assert running.engine.summary is not None
    assert running.engine.summary["kafka"]["messages"] == 0
    silent = socket.create_server(("127.0.0.1", 0))
    at = f"127.0.0.1:{silent.getsockname()[1]}"
    for several in (False, True):
        begins = replace(job, bootstrap_servers=at, store=Target("dir", str(tmp_path / "state")))
        if several:
            begins = replace(
                begins, source=Source(keyed_by="height"), store=Target("kafka", "state")
            )
        running = Running(ProcessEngine(begins, program, HookRecorder().hooks()))
        before, end_s = connecting_sessions(), time.monotonic() + PATIENCE_S
        running.start()
        while connecting_sessions() <= before:
            assert time.monotonic() < end_s, "it does not begin"
            time.sleep(0.01)
        stop(running)
        assert running.engine.summary is None
    silent.close()
    mortal_broker.start()
    again = Running(ProcessEngine(replace(job, until_end=True), program, HookRecorder().hooks()))
    again.start()
    again.join(3 * PATIENCE_S)
    assert again.engine.summary is not None
    assert again.engine.summary["kafka"]["messages"] == 2


AWAITED = ("connecting.clients.topic_setting", "state.storage.load")
"""The calls of a session for its state topic: for its setting, and for its messages."""


def test_shutdown_does_not_wait_for_the_state_topic_when_the_broker_is_gone(
    mortal_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is killed when four jobs, two of each kind, are about to make a call each."""
    program = ketal.compile(FORKS)
    jobs: dict[tuple[str, bool], Job] = {}
    for awaited, several in itertools.product(AWAITED, (False, True)):
        source, state = make_topic(mortal_broker), make_topic(mortal_broker, policy="compact")
        (folder := tmp_path / source).mkdir()
        job = job_of(
            mortal_broker, [source], folder, store=Target("kafka", state), until_end=True,
            source=Source(keyed_by="height" if several else None),
        )  # fmt: skip
        run(job, program)
        jobs[awaited, several] = replace(job, call_timeout_ms=CALL_TIMEOUT_MS)
    all_called = threading.Barrier(len(jobs) + 1, mortal_broker.kill)
    for awaited in AWAITED:
        waiting = {jobs[awaited, several].group_id for several in (False, True)}
        target = f"ketal.streaming.kafka.{awaited}"
        call = pkgutil.resolve_name(target)

        def call_without_broker(
            job: Job, *given: Any, _call: Any = call, _waiting: set[str] = waiting, **options: Any
        ) -> Any:
            if job.group_id in _waiting:
                all_called.wait(PATIENCE_S)
            return _call(job, *given, **options)

        monkeypatch.setattr(target, call_without_broker)
    running = {
        case: Running(ProcessEngine(job, program, HookRecorder().hooks()))
        for case, job in jobs.items()
    }
    for one in running.values():
        one.start()
    all_called.wait(PATIENCE_S)
    for case, one in running.items():
        stop(one, case)


@pytest.mark.parametrize("several", [False, True])
def test_job_does_not_wait_for_the_position_of_a_partition_without_a_leader(
    several: bool, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kafka-python's method waits for a leader; the state topic is read twice."""
    source, state = make_topic(broker), make_topic(broker, policy="compact")
    job = job_of(
        broker, [source], tmp_path, store=Target("kafka", state), until_end=True,
        source=Source(keyed_by="height" if several else None),
    )  # fmt: skip
    monkeypatch.delattr(KafkaConsumer, "position")
    for node in "ab":
        produce(broker, [(source, 0, accept(node, 1))])
        engine = run(job, ketal.compile(FORKS))
    assert engine.summary is not None
    assert engine.summary["patterns"]["Forks"]["matches"] == 1


def test_commit_that_stopping_breaks_off_is_not_repeated(
    mortal_broker: Broker, tmp_path: Path
) -> None:
    """The broker is killed while a verdict of the commit is shown."""
    source, recorder = make_topic(mortal_broker), HookRecorder()
    job = job_of(mortal_broker, [source], tmp_path, verdicts=Target("stdout"))
    produce(mortal_broker, [(source, 0, accept("a", 1)), (source, 0, accept("b", 1))])

    def show(verdict: ketal.Verdict) -> None:
        recorder.verdicts.append(verdict)
        if len(recorder.verdicts) == 1:
            mortal_broker.kill()
            engine.stop()

    hooks = replace(recorder.hooks(), show=show)
    engine = ProcessEngine(job, ketal.compile(FORKS), hooks)
    engine.run()
    assert len(recorder.verdicts) == 1
    assert recorder.notices == []
    assert engine.summary is not None
    assert engine.summary["kafka"]["messages"] == 0


def test_commit_does_not_wait_for_the_metadata_of_its_first_topic(
    mortal_broker: Broker, tmp_path: Path
) -> None:
    """The broker is killed before the first message to the topic of rejections."""
    source, sink, recorder = make_topic(mortal_broker), make_topic(mortal_broker), HookRecorder()
    job = job_of(
        mortal_broker, [source], tmp_path, verdicts=Target("stdout"), commit_interval_ms=2_000,
        rejected=Target("kafka", sink), call_timeout_ms=CALL_TIMEOUT_MS,
    )  # fmt: skip
    lines = [accept("a", 1), b"poison", accept("b", 1)]
    produce(mortal_broker, [(source, 0, line) for line in lines])

    def show(verdict: ketal.Verdict) -> None:
        mortal_broker.kill()
        running.engine.stop()

    hooks = replace(recorder.hooks(), show=show)
    running = Running(ProcessEngine(job, ketal.compile(FORKS), hooks))
    running.start()
    until(lambda: running.engine.stopping, "it shows nothing", PATIENCE_S)
    stop(running)
