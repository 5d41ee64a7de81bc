"""A suspended broker: it accepts connections, answers nothing, and does not die."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ketal
from ketal.errors import LostError
from ketal.streaming.broker.server import Broker
from ketal.streaming.kafka.process_engine import ProcessEngine
from tests.streaming.conftest import make_topic
from tests.streaming.jobs import FORKS, HookRecorder, accept, job_of, produce, run

CALL_TIMEOUT_MS = 3_000


def test_suspended_broker_is_noticed(
    mortal_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a job without messages to read or offsets to commit, and by a job that is starting."""
    monkeypatch.setattr("ketal.streaming.kafka.job_session.PARTITIONS_S", 0.5)
    program = ketal.compile(FORKS)
    running = mortal_broker.running()
    assert running is not None
    assert running.pid is not None
    pid = running.pid
    source = make_topic(mortal_broker)
    produce(mortal_broker, [(source, 0, accept("a"))])
    job = job_of(
        mortal_broker, [source], tmp_path, call_timeout_ms=CALL_TIMEOUT_MS, lost_after_ms=0
    )
    commits: list[int] = []

    def look(figures: Any) -> None:
        commits.append(figures.commits)
        if commits[-3:] == [2, 2, 2]:  # the claim, and the event: now nothing is to be done
            os.kill(pid, signal.SIGSTOP)

    try:
        for hooks in (HookRecorder().hooks(look), HookRecorder().hooks()):
            with pytest.raises(LostError, match="has been failing for"):
                ProcessEngine(job, program, hooks).run()
            assert commits[-3:] == [2, 2, 2], "it stands still"
    finally:
        os.kill(pid, signal.SIGCONT)
    produce(mortal_broker, [(source, 0, accept("b"))])
    patient = replace(job, until_end=True, call_timeout_ms=30_000, lost_after_ms=60_000)
    engine = run(patient, program)
    assert engine.summary is not None
    assert engine.summary["patterns"]["Forks"]["matches"] == 1
    assert engine.summary["kafka"] == {"messages": 2, "control": 0}
