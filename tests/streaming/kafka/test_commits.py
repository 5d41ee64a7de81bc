"""When a job commits, and which files are synced to disk before."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

import ketal
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Job, Target
from ketal.streaming.kafka.process_engine import ProcessEngine
from ketal.streaming.kafka.state.folder_store import FolderStore
from tests.streaming.jobs import FORKS, HookRecorder, Topic, accept, committed, job_of, produce, run

PATIENCE_S = 120


def until(job: Job, condition: Callable[[ProcessEngine], bool]) -> ProcessEngine:
    """Run a job until a condition holds of its engine, and stop it."""
    engine = ProcessEngine(job, ketal.compile(FORKS), HookRecorder().hooks())
    thread = threading.Thread(target=engine.run, daemon=True)
    thread.start()
    end_s = time.monotonic() + PATIENCE_S
    try:
        while not condition(engine):
            assert thread.is_alive(), "it has ended"
            assert time.monotonic() < end_s, "it does not come"
            time.sleep(0.05)
    finally:
        engine.stop()
        thread.join(PATIENCE_S)
    return engine


def test_state_and_verdicts_are_synced_before_the_transaction_begins(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state that committed offsets refer to must survive a power failure."""
    source = topic()
    produce(broker, [(source, 0, accept("a")), (source, 0, accept("b"))])
    calls: list[str] = []
    fsync = os.fsync

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        calls.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).suffix)

    def noted(of: type, name: str) -> None:
        call = getattr(of, name)

        def then(self: Any, *given: Any) -> Any:
            out = call(self, *given)
            calls.append(name)
            return out

        monkeypatch.setattr(of, name, then)

    monkeypatch.setattr(os, "fsync", synced)
    noted(FolderStore, "write")
    transaction = ["begin_transaction", "send_offsets_to_transaction", "commit_transaction"]
    for name in transaction:
        noted(KafkaProducer, name)
    run(job_of(broker, [source], tmp_path, until_end=True), ketal.compile(FORKS))
    known = [one for one in calls if one in ("write", ".jsonl", *transaction)]
    claim = ["write", *transaction]
    assert known == [*claim, "write", ".jsonl", *transaction]


def test_job_without_messages_recommits_its_offsets(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise Kafka would expire the offsets while the job runs."""
    monkeypatch.setattr("ketal.streaming.kafka.job_session.RECOMMIT_S", 0.2)
    job = job_of(broker, [topic()], tmp_path)
    engine = until(job, lambda engine: engine.figures.commits >= 4)
    assert engine.consumed == 0


def test_pending_verdict_bytes_trigger_a_commit_before_the_interval(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if no further message arrives."""
    monkeypatch.setattr("ketal.streaming.kafka.job_session.PENDING_BYTES_MAX", 1)
    source, sink = topic(), topic()
    produce(broker, [(source, 0, accept("a")), (source, 0, accept("b"))])
    job = job_of(
        broker, [source], tmp_path, commit_interval_ms=10**9, verdicts=Target("kafka", sink)
    )
    until(job, lambda engine: engine.figures.commits >= 2)
    assert len(committed(broker, sink, least=1)) == 1
