"""Locks: one process writes a file of verdicts, and one job at a time starts in a state folder."""

from __future__ import annotations

import errno
import fcntl
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ketal
from ketal.errors import SettingError
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Job, Target
from ketal.streaming.job.locks import lock, locked
from ketal.streaming.job.metrics import Hooks
from ketal.streaming.job.outputs import Outputs
from ketal.streaming.kafka import partition_state
from ketal.streaming.kafka.process_engine import ProcessEngine
from ketal.streaming.kafka.running_job import RunningJob
from tests.streaming.jobs import FORKS, HookRecorder, Topic, accept, job_of, produce, run, written

HOLDING = """
import sys, pathlib
from ketal.streaming.job.locks import locked
with locked(pathlib.Path(sys.argv[1]), 0, lambda: False) as had:
    print(had, flush=True)
    sys.stdin.read()
"""


def outputs(verdicts: Target, rejected: Target | None = None) -> Outputs:
    job = Job(
        pattern="p", topics=["t"], bootstrap_servers="b", group_id="g",
        verdicts=verdicts, rejected=rejected or verdicts,
    )  # fmt: skip
    return Outputs(job, Hooks(lambda verdict: None, lambda: None, lambda notice: None))


@contextmanager
def holding(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Have another process lock a folder."""
    command = [sys.executable, "-c", HOLDING, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_verdict_file_is_locked_by_one_job(tmp_path: Path) -> None:
    path, other = tmp_path / "verdicts.jsonl", Target("file", str(tmp_path / "other.jsonl"))
    mine, link = Target("file", str(path)), Target("file", str(tmp_path / "link"))
    (tmp_path / "link").symlink_to(path)
    first = outputs(mine, link)  # one job may write both to one file
    for verdicts, rejected in ((mine, other), (other, mine), (link, other)):
        with pytest.raises(SettingError, match=r"another job writes to this file(.|\n)*hint: "):
            outputs(verdicts, rejected)
    outputs(other).close()  # nothing of what was refused is left open
    first.close()
    outputs(mine).close()
    nobodys = Target("file", "/dev/null")
    both = [outputs(nobodys), outputs(nobodys)]
    for one in both:
        one.close()


def test_lock_is_released_when_its_process_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with holding(folder) as process:
        with (
            pytest.raises(
                SettingError,
                match=r"state: another job with its state in this folder is starting.*0\.1 s",
            ),
            locked(folder, 0.1, lambda: False),
        ):
            pass
        with locked(folder, 30, lambda: True) as had:
            assert not had
        process.send_signal(signal.SIGKILL)
        with locked(folder, 30, lambda: False) as had:
            assert had


def test_file_that_cannot_be_locked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system without locks is a setting error; any other error is raised as it is."""
    file = tmp_path / "file"
    file.touch()
    with (
        pytest.raises(SettingError, match=r"store state in .*/file: Not a directory"),
        locked(file, 0, lambda: False),
    ):
        pass
    with pytest.raises(OSError, match="Bad file descriptor"):
        lock(2**20, file)

    def unlockable(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unlockable)
    with pytest.raises(SettingError, match=r"cannot be locked \(No locks available\)(.|\n)*hint"):
        outputs(Target("file", str(file)))


def test_second_job_does_not_write_to_the_verdict_file_of_the_first(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """The first job keeps its lock even while it restarts its session."""
    source, program = topic(), ketal.compile(FORKS)
    produce(broker, [(source, 0, accept("a", 1))])
    job = job_of(broker, [source], tmp_path)
    second = replace(job, group_id="another", store=Target("dir", str(tmp_path / "another")))
    refused: list[str] = []

    def look(figures: Any) -> None:
        if not refused:
            with pytest.raises(SettingError, match="another job writes to this file") as caught:
                run(second, program)
            refused.append(str(caught.value))
            raise TimeoutError("as if Kafka had failed")
        if engine.figures.restarts:
            with pytest.raises(SettingError, match="another job writes to this file"):
                run(second, program)
            engine.stop()

    engine = ProcessEngine(job, program, HookRecorder().hooks(look))
    engine.run()
    assert str(tmp_path / "verdicts.jsonl") in refused[0]
    produce(broker, [(source, 0, accept("b", 1))])
    run(replace(second, until_end=True), program)
    assert len(written(tmp_path / "verdicts.jsonl")) == 1


def test_second_of_two_jobs_that_start_in_one_folder_at_once_is_refused(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second starts after the first has read the folder's owner, before it writes its own."""
    source, program = topic(), ketal.compile(FORKS)
    job = job_of(broker, [source], tmp_path, until_end=True)
    second = replace(
        job, group_id="second", verdicts=Target("stdout"), rejected=Target("stdout")
    )  # fmt: skip
    caught: list[Exception] = []
    open_part = partition_state.open_part

    def rival() -> None:
        try:
            run(second, program)
        except SettingError as fault:
            caught.append(fault)

    thread = threading.Thread(target=rival)

    def slowly(engine: RunningJob, *given: Any) -> Any:
        if engine.job is job:
            thread.start()
            thread.join(1.0)
            assert thread.is_alive(), "it waits"
        return open_part(engine, *given)

    monkeypatch.setattr("ketal.streaming.kafka.whole_session.open_part", slowly)
    run(job, program)
    thread.join(60)
    (fault,) = caught
    assert f"contains the state of group {job.group_id}" in str(fault)
