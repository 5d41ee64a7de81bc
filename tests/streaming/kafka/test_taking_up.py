"""How a consumer starts its parts: from which offset, and with a state that takes long to restore.

The consumer group and its other members are real.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

import ketal
from ketal.logs import Source
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Job, Target
from ketal.streaming.job.outputs import Outputs
from ketal.streaming.kafka.connecting import clients
from ketal.streaming.kafka.group_session import GroupSession
from ketal.streaming.kafka.partition_state import Part
from ketal.streaming.kafka.process_engine import ProcessEngine
from tests.streaming.conftest import make_topic
from tests.streaming.jobs import FORKS, HookRecorder, Topic, accept, job_of, produce, run, written

PATIENCE_S = 180
PATIENCE_MS = 2_000
"""The `max_poll_interval_ms` of a member."""


def shared(broker: Broker, topics: Sequence[str], folder: Path, parts: int, **options: Any) -> Job:
    """Return a job that several consumers may share."""
    given: dict[str, Any] = {"until_end": True, "source": Source(keyed_by="height"), **options}
    return job_of(
        broker, topics, folder, store=Target("kafka", make_topic(broker, parts, "compact")), **given
    )


def matches(engine: ProcessEngine) -> int:
    assert engine.summary is not None
    count: int = engine.summary["patterns"]["Forks"]["matches"]
    return count


class DeathError(Exception):
    """Ends an engine, which does not catch this error."""


def test_messages_after_a_latest_start_survive_the_death_of_the_first_owner(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner was assigned its parts, and died before it had a state to commit."""
    source, program = topic(2), ketal.compile(FORKS)
    produce(broker, [(source, n, accept("old", 1, n)) for n in range(2)])
    job = shared(broker, [source], tmp_path, 2, start="latest")

    def dying(*given: Any, **options: Any) -> None:
        raise DeathError

    with monkeypatch.context() as patch:
        patch.setattr("ketal.streaming.kafka.state.storage.load", dying)
        with pytest.raises(DeathError):
            run(job, program)
    produce(broker, [(source, n, accept(node, 1, n)) for n in range(2) for node in "ab"])
    engine = run(job, program)
    assert matches(engine) == 2
    assert [v["events"] for v in written(tmp_path / "verdicts.jsonl")] == [["a@1", "b@1"]] * 2
    assert engine.summary is not None
    assert engine.summary["kafka"]["messages"] == 4
    # A part that has begun resumes like any other, and is committed with its state.
    produce(broker, [(source, 0, accept("c", 1, 0))])
    assert matches(run(job, program)) == 4


def test_part_without_offsets_starts_at_the_beginning_if_another_part_is_committed(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Only one of two first owners has committed the start of its part."""
    source, program = topic(2), ketal.compile(FORKS)
    produce(broker, [(source, n, accept(node, 1, n)) for n in range(2) for node in "ab"])
    job = shared(broker, [source], tmp_path, 2, start="latest")
    metadata = json.dumps({"changelog": job.store.name, "owner": "somebody"})
    begun = {TopicPartition(source, 0): OffsetAndMetadata(0, metadata, -1)}
    owner = clients.make_consumer(job)
    owner.commit(begun)
    clients.close_consumer(owner)
    engine = run(job, program)
    assert engine.summary is not None
    assert (matches(engine), engine.summary["kafka"]["messages"]) == (1, 2)


def slow_restore(
    monkeypatch: pytest.MonkeyPatch, wait: Callable[[], None]
) -> list[threading.Thread]:
    """Make each restore wait first; return a list of the threads that restored."""
    restore, threads = Part.restore, []

    def slowly(self: Part, *given: Any) -> str:
        threads.append(threading.current_thread())
        wait()
        return restore(self, *given)

    monkeypatch.setattr(Part, "restore", slowly)
    return threads


def test_consumer_stays_in_the_group_while_it_restores_a_large_state(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Restoring takes longer than `max_poll_interval_ms`."""
    source, program = topic(2), ketal.compile(FORKS)
    produce(broker, [(source, n, accept("a", 1, n)) for n in range(2)])
    job = shared(
        broker, [source], tmp_path, 2, lost_after_ms=0,
        properties={"max_poll_interval_ms": PATIENCE_MS},
    )  # fmt: skip
    run(job, program)
    produce(broker, [(source, n, accept("b", 1, n)) for n in range(2)])
    threads = slow_restore(monkeypatch, lambda: time.sleep(1.5 * PATIENCE_MS / 1e3))
    recorder = HookRecorder()
    engine = run(job, program, recorder)
    assert len(threads) == 2
    assert (engine.figures.restarts, matches(engine)) == (0, 2)
    assert recorder.notices == ["has 2 of 2 parts: 0, 1"]


def test_parts_revoked_while_they_are_restored_are_dropped(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another consumer joins meanwhile; then each part has one owner, and no verdict is lost."""
    source, program = topic(2), ketal.compile(FORKS)
    produce(broker, [(source, n, accept("a", 1, n)) for n in range(2)])
    job = shared(broker, [source], tmp_path, 2)
    run(job, program)
    produce(broker, [(source, n, accept("b", 1, n)) for n in range(2)])
    ours, recorder = replace(job, until_end=False), HookRecorder()
    theirs = replace(ours, rejected=replace(job.rejected, name=f"{job.rejected.name}-2"),
                     verdicts=replace(job.verdicts, name=f"{job.verdicts.name}-2"))  # fmt: skip
    second = ProcessEngine(theirs, program, HookRecorder().hooks())
    other = threading.Thread(target=second.run, daemon=True)
    taken_away = threading.Event()
    revoked = GroupSession.on_partitions_revoked

    def give_up(self: GroupSession, partitions: Any) -> None:
        revoked(self, partitions)
        if self.job is ours and other.ident:
            taken_away.set()

    def wait() -> None:
        if not other.ident:
            other.start()
            assert taken_away.wait(PATIENCE_S), "the group is not polled"

    monkeypatch.setattr(GroupSession, "on_partitions_revoked", give_up)
    threads = slow_restore(monkeypatch, wait)
    found = [0, 0]

    def look(figures: Any) -> None:
        found[0] = figures.verdicts["match", "Forks"]
        found[1] = second.figures.verdicts["match", "Forks"]
        if sum(found) == 2:
            engine.stop()

    engine = ProcessEngine(ours, program, recorder.hooks(look))
    try:
        engine.run()
    finally:
        second.stop()
        other.join(PATIENCE_S)
    assert len(threads) >= 3, "what was restored first was dropped"
    assert engine.figures.restarts == second.figures.restarts == 0
    assert not any("has 2 of 2 parts" in notice for notice in recorder.notices), recorder.notices
    assert matches(run(job, program)) == 2


def test_stopped_job_does_not_wait_for_its_state_to_be_restored(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, program, restored = topic(), ketal.compile(FORKS), threading.Event()
    produce(broker, [(source, 0, accept("a"))])
    job = shared(broker, [source], tmp_path, 1)
    run(job, program)

    def wait() -> None:
        engine.stop()
        assert restored.wait(PATIENCE_S)

    threads = slow_restore(monkeypatch, wait)
    engine = ProcessEngine(job, program, HookRecorder().hooks())
    engine.run()
    restored.set()
    threads[0].join(PATIENCE_S)
    monkeypatch.undo()
    produce(broker, [(source, 0, accept("b"))])
    assert matches(run(job, program)) == 1


def test_many_verdicts_of_one_poll_are_committed_in_between(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdicts that wait for a commit are bounded, however many messages a poll returns."""
    monkeypatch.setattr("ketal.streaming.kafka.job_session.BATCH_EVENTS", 10)
    monkeypatch.setattr("ketal.streaming.kafka.job_session.PENDING_BYTES_MAX", 1)
    source, program = topic(), ketal.compile(FORKS)
    produce(broker, [(source, 0, accept(node, h, h)) for h in range(1, 51) for node in "ab"])
    job = job_of(broker, [source], tmp_path, until_end=True, commit_interval_ms=10**9)
    waiting: list[int] = []
    add = Outputs.add

    def counted(self: Outputs, *given: Any) -> None:
        add(self, *given)
        waiting.append(len(self._pending))

    monkeypatch.setattr(Outputs, "add", counted)
    engine = run(job, program)
    assert (len(waiting), max(waiting)) == (50, 5)
    assert engine.figures.commits >= 10
    # The last messages of the poll are committed as well.
    assert run(job, program).summary == engine.summary
    assert len(written(tmp_path / "verdicts.jsonl")) == 50
