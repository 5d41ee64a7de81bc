"""One consumer with its state in a topic: for any pattern, and without a state folder."""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition

import ketal
from ketal.errors import SettingError, StateError
from ketal.streaming import plan
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Job, Target
from ketal.streaming.kafka.process_engine import ProcessEngine
from tests.sampling import sample
from tests.streaming.conftest import make_topic
from tests.streaming.jobs import (
    END,
    FORKS,
    HookRecorder,
    Running,
    Topic,
    accept,
    committed,
    expected,
    job_of,
    produce,
    run,
    until,
)
from tests.streaming.kafka.test_process_faults import (
    PATIENCE_S,
    Command,
    check_zombie,
    pairs,
    sending,
)

WHOLE_FORKS = FORKS.replace(
    "order CausalOrder; partition by height;", "order CausalOrder(total);"
).replace("hash != First.hash", "hash != First.hash && height == First.height")
"""Neither partitioned nor order-independent: several consumers cannot share it."""
KILLS = sample(2, 3)


class TopicCommand(Command):
    """`ketal stream` with its state in a topic."""

    def __init__(self, folder: Path, broker: Broker, source: str, verdicts: str) -> None:
        super().__init__(folder, broker, source, verdicts)
        (folder / "forks.ketal").write_text(WHOLE_FORKS)
        self.reader = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
        self.topic = make_topic(broker, 1, "compact")
        job = folder / "job.toml"
        job.write_text(job.read_text().replace("dir:state", f"kafka:{self.topic}"))

    def snapshots(self) -> int:
        """Return the end offset of the topic."""
        part = TopicPartition(self.topic, 0)
        return int(self.reader.end_offsets([part])[part])


def in_topic(broker: Broker, source: str, folder: Path, **options: Any) -> Job:
    """Return a job with its state in a topic."""
    store = options.pop("store", None) or Target("kafka", make_topic(broker, 1, "compact"))
    return job_of(broker, [source], folder, until_end=True, store=store, **options)


def test_kill_9_loses_and_repeats_no_verdict(broker: Broker, topic: Topic, tmp_path: Path) -> None:
    """Each process resumes from the last commit, with nothing but the topics."""
    chance = random.Random(1)
    source, sink = topic(3), topic()
    lines = pairs()[:2_000]
    messages = [(source, chance.randrange(3), line) for line in lines]
    send = sending(broker, messages)
    send(len(messages) // 3)
    command = TopicCommand(tmp_path, broker, source, f"kafka:{sink}")
    for _ in range(KILLS):
        before = command.snapshots()
        with command.running() as process:
            command.await_snapshot(before + chance.randint(4, 12), process, lambda: send(5))
            time.sleep(chance.random() * 0.05)
            process.kill()
            process.wait()
    send(len(messages))
    produce(broker, [(source, n, END) for n in range(3)])
    with command.running("--output", "json") as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    wanted = [v["id"] for v in expected(ketal.compile(WHOLE_FORKS), lines, tmp_path)]
    assert len(wanted) == len(lines) // 2
    found = [v["id"] for v in committed(broker, sink, least=len(wanted))]
    assert sorted(found) == sorted(wanted)
    (summary,) = map(json.loads, out.splitlines())
    assert summary["summary"]["kafka"] == {"messages": len(lines) + 3, "control": 3}
    assert not command.state.exists()


def test_zombie_process_ends_and_its_successor_goes_on(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source, sink = topic(), topic()
    command = TopicCommand(tmp_path, broker, source, f"kafka:{sink}")
    check_zombie(command, ketal.compile(WHOLE_FORKS), broker, source, sink)


def test_refused_job_does_not_disturb_the_running_job(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """It has another program or another topic; the running job commits all the time."""
    source, sink, recorder = topic(), topic(), HookRecorder()
    program, changed = ketal.compile(WHOLE_FORKS), ketal.compile(FORKS)
    job = in_topic(broker, source, tmp_path, verdicts=Target("kafka", sink), commit_interval_ms=1)
    running = Running(ProcessEngine(replace(job, until_end=False), program, recorder.hooks()))
    running.start()
    until(lambda: running.engine.has_begun)
    away = make_topic(broker, 1, "compact")
    quiet = replace(job, verdicts=Target("stdout"), rejected=Target("stdout"))
    try:
        for number in range(1, 4):
            produce(broker, [(source, 0, accept("a", number, number))])
            with pytest.raises(StateError, match="another program"):
                run(quiet, changed)
            with pytest.raises(SettingError, match=f"elsewhere, not in kafka:{away}"):
                run(replace(quiet, store=Target("kafka", away)), program)
        produce(broker, [(source, 0, accept("b", 1, 1))])
        assert len(committed(broker, sink, least=1)) == 1
        assert recorder.notices == []
        assert running.engine.figures.restarts == 0
    finally:
        running.engine.stop()
        running.join(PATIENCE_S)
    assert running.fault is None


def test_foreign_state_is_refused_and_discarded_by_fresh(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """The state is of another group or several consumers, or its topic has several partitions."""
    source, program = topic(2), ketal.compile(WHOLE_FORKS)
    produce(broker, [(source, n, accept("a", n + 1, n)) for n in range(2)])
    job = in_topic(broker, source, tmp_path)
    run(job, program)
    with pytest.raises(
        StateError,
        match=r"the state belongs to another group, or the offsets(.|\n)*--on-change fresh",
    ):
        run(replace(job, group_id=f"{job.group_id}-other"), program)
    recorder = HookRecorder()
    run(replace(job, group_id=f"{job.group_id}-other", on_change="fresh"), program, recorder)
    assert any("starting over at the earliest messages" in one for one in recorder.notices)
    with pytest.raises(
        SettingError, match="has 2 partitions, but the state of one consumer requires 1"
    ):
        run(
            in_topic(broker, topic(), tmp_path, store=Target("kafka", make_topic(broker, 2))),
            program,
        )


def test_added_partition_is_read(broker: Broker, topic: Topic, tmp_path: Path) -> None:
    from kafka import KafkaAdminClient

    source, program = topic(), ketal.compile(WHOLE_FORKS)
    produce(broker, [(source, 0, accept("a", 1, 1))])
    job = in_topic(broker, source, tmp_path)
    run(job, program)
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_partitions({source: 2})
    produce(broker, [(source, 1, accept("b", 1, 1)), (source, 1, END), (source, 0, END)])
    engine = run(job, program)
    assert engine.summary is not None
    assert engine.summary["patterns"]["Forks"]["matches"] == 1


def test_dry_run_prints_that_one_consumer_reads_all_partitions() -> None:
    program = ketal.compile(WHOLE_FORKS)
    job = Job(
        pattern="p",
        topics=["t"],
        bootstrap_servers="b",
        group_id="g",
        store=Target("kafka", "state"),
    )
    text = "\n".join(plan.lines(job, program))
    assert "one consumer that reads all partitions" in text
    assert "state: kafka:state" in text
    assert "all of them in this process" in text
