"""The process engine when processes are killed, suspended and replaced, and when the broker dies.

`KETAL_CHAOS` is the number of kills for each kind of output; `make chaos` sets a large one.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

import ketal
from ketal.errors import LostError, SettingError
from ketal.logs import Source
from ketal.programs.program import Program
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Job, Target
from ketal.streaming.kafka.connecting.client_calls import call_with_deadline
from ketal.streaming.kafka.process_engine import ProcessEngine
from tests.streaming.conftest import make_topic
from tests.streaming.jobs import (
    END,
    FORKS,
    HookRecorder,
    Message,
    Topic,
    accept,
    committed,
    expected,
    job_of,
    produce,
    run,
    written,
)

KILLS = int(os.environ.get("KETAL_CHAOS", "2"))
DEATHS = max(1, KILLS // 6)
"""How often the broker dies under load: with the engine, the next time alone, and so on."""
FULL_DISKS = max(1, KILLS // 10)
PAIRS = 3_000 if KILLS > 2 else 1_500
PATIENCE_S = 180
TOML = """\
pattern = "forks.ketal"
[kafka]
bootstrap_servers = "{servers}"
group_id = "{source}"
call_timeout_ms = {call_timeout_ms}
[kafka.properties]
max_poll_records = 50
[source]
topics = ["{source}"]
[output]
verdicts = "{verdicts}"
[state]
store = "dir:state"
commit_interval_ms = 10
[time]
lateness_ms = 1000000000
"""


class Command:
    """`ketal stream` with the job of a folder, as a process of its own."""

    def __init__(
        self,
        folder: Path,
        broker: Broker,
        source: str,
        verdicts: str,
        call_timeout_ms: int = 30_000,
    ) -> None:
        self.folder = folder
        self.state = folder / "state"
        (folder / "forks.ketal").write_text(FORKS)
        text = TOML.format(
            servers=broker.bootstrap_servers,
            source=source,
            verdicts=verdicts,
            call_timeout_ms=call_timeout_ms,
        )
        (folder / "job.toml").write_text(text)

    @contextmanager
    def running(
        self, *words: str, stderr: int = subprocess.PIPE
    ) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-m", "ketal", "stream", "--config", "job.toml", *words]
        process = subprocess.Popen(
            command, cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=stderr
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def snapshots(self) -> int:
        """Return the number of the newest saved state."""
        numbers = [0]
        for path in self.state.glob("*.sqlite"):
            # The file may disappear meanwhile, or may just have been created.
            with contextlib.suppress(sqlite3.OperationalError):
                address = f"{path.absolute().as_uri()}?mode=ro"
                with contextlib.closing(sqlite3.connect(address, uri=True)) as database:
                    numbers += database.execute("SELECT max(number) FROM commits").fetchone()
        return max(numbers)

    def await_snapshot(
        self, number: int, process: subprocess.Popen[str], more: Callable[[], object] = lambda: None
    ) -> None:
        """Wait for a state of a number; `more` sends messages, where those there may run out.

        It does so after each commit: of messages that are all there at once, one commit may be all.
        """
        until_s, seen = time.monotonic() + PATIENCE_S, 0
        while (newest := self.snapshots()) < number:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until_s, "no snapshot comes"
            if newest > seen:
                more()
                seen = newest
            time.sleep(0.02)  # What is watched needs the core, too.


class Load(threading.Thread):
    """Sends events of two nodes until `finish`: the two events of each height are a match.

    Other events come between the two, so that a match often has one event from before a kill and
    one from after it. Messages are keyed by the height. `pause_s` is the time between two heights.
    """

    BETWEEN = 20

    def __init__(
        self, broker: Broker, topic: str, partitions: int, seed: int, pause_s: float = 0.02
    ) -> None:
        super().__init__(daemon=True)
        self._pause_s = pause_s
        self._servers = broker.bootstrap_servers
        self._topic = topic
        self._partitions = partitions
        self._chance = random.Random(seed)
        self._enough = threading.Event()
        self._lines: list[bytes] = []
        self._sent: list[Any] = []

    def __enter__(self) -> Load:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self.join()

    def run(self) -> None:
        height, waiting = 0, []
        with KafkaProducer(bootstrap_servers=self._servers, acks="all") as producer:
            while not self._enough.wait(self._pause_s):
                height += 1
                waiting.append(height)
                self._send(producer, "a", height)
                if len(waiting) > self.BETWEEN:
                    self._send(producer, "b", waiting.pop(self._chance.randrange(self.BETWEEN)))
            for one in waiting:
                self._send(producer, "b", one)
            self._sent += [
                producer.send(self._topic, END, partition=n) for n in range(self._partitions)
            ]
            producer.flush()

    def _send(self, producer: KafkaProducer, node: str, height: int) -> None:
        line = accept(node, height, height)
        self._lines.append(line)
        number, key = height % self._partitions, str(height).encode()
        self._sent.append(producer.send(self._topic, line, key=key, partition=number))

    def finish(self) -> list[bytes]:
        """Send the missing halves of pairs, and the end; return all events, which Kafka now has."""
        self._enough.set()
        self.join()
        for one in self._sent:
            one.get(timeout=0)
        return self._lines


def sending(broker: Broker, messages: list[Message]) -> Callable[..., None]:
    """Return a function that sends the next messages, for a job that may have read all others."""

    def send(count: int = 100) -> None:
        produce(broker, messages[:count])
        del messages[:count]

    return send


def pairs() -> list[bytes]:
    """Return events of which each consecutive two are a match."""
    return [accept(node, height, height) for height in range(1, PAIRS + 1) for node in "ab"]


@pytest.mark.parametrize("seed", range((KILLS + 1) // 2))
@pytest.mark.parametrize("kind", ["kafka", "file"])
def test_kill_9_loses_and_repeats_no_verdict(
    kind: str, seed: int, broker: Broker, topic: Topic, tmp_path: Path, figures: Counter[str]
) -> None:
    """For a reader with read_committed; a file may repeat a verdict, with the same id."""
    chance = random.Random(seed)
    source, sink = topic(3), topic()
    lines = pairs()
    messages = [(source, chance.randrange(3), line) for line in lines]

    send = sending(broker, messages)
    send(len(messages) // 3)
    where = f"kafka:{sink}" if kind == "kafka" else "file:verdicts.jsonl"
    command = Command(tmp_path, broker, source, where)
    for _ in range(2):
        before = command.snapshots()
        with command.running() as process:
            # The first commit is the claim; the others follow messages.
            command.await_snapshot(before + chance.randint(2, 4), process, send)
            time.sleep(chance.random() * 0.05)
            process.kill()
            process.wait()
        figures[f"process, {kind}: kills of the engine"] += process.returncode == -signal.SIGKILL
    send(len(messages))
    produce(broker, [(source, n, END) for n in range(3)])
    with command.running("--output", "json") as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    wanted = [v["id"] for v in expected(ketal.compile(FORKS), lines, tmp_path)]
    if kind == "kafka":
        reported_ids = [v["id"] for v in committed(broker, sink, least=PAIRS)]
        assert sorted(reported_ids) == sorted(wanted)
    else:
        reported_ids = [v["id"] for v in written(tmp_path / "verdicts.jsonl")]
        assert set(reported_ids) == set(wanted)
    figures[f"process, {kind}: verdicts"] += len(wanted)
    figures[f"process, {kind}: verdicts that came again"] += len(reported_ids) - len(wanted)
    (summary,) = map(json.loads, out.splitlines())
    assert summary["summary"]["events"]["read"] == len(lines)
    assert summary["summary"]["kafka"] == {"messages": len(lines) + 3, "control": 3}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signal_makes_the_job_commit_and_print_its_summary(
    number: int, code: int, broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source = topic()
    produce(broker, [(source, 0, accept("a", 1)), (source, 0, accept("b", 1))])
    command = Command(tmp_path, broker, source, "-")
    with command.running("--output", "json") as process:
        command.await_snapshot(2, process)
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, err
    assert "second process" not in err
    assert "the consumer group is" not in err, "it was named"
    verdict, summary = map(json.loads, out.splitlines())
    assert verdict["events"] == ["a@1", "b@1"]
    assert summary["summary"]["kafka"]["messages"] == 2
    with command.running("--output", "json", "--until-end") as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    # All verdicts were committed: none is reported again, and the counts go on.
    assert list(map(json.loads, out.splitlines())) == [summary]


def test_terminal_shows_a_live_status_line(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    source = topic()
    produce(broker, [(source, 0, accept("a", 1)), (source, 0, accept("b", 1))])
    command = Command(tmp_path, broker, source, "file:verdicts.jsonl")
    ours, theirs = os.openpty()
    with command.running("--until-end", stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        # A terminal whose last writer has gone is at its end, or an error (Linux).
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 4_096):
                seen += piece
        process.communicate(timeout=PATIENCE_S)
    os.close(ours)
    assert process.returncode == 0, seen
    assert b"2 messages" in seen
    assert b"lag 0" in seen
    assert b"1 match" in seen


def test_zombie_process_ends_and_its_successor_goes_on(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Both write to one folder; the zombie's uncommitted output is not visible."""
    source, sink = topic(), topic()
    command = Command(tmp_path, broker, source, f"kafka:{sink}")
    check_zombie(command, ketal.compile(FORKS), broker, source, sink)


def check_zombie(
    command: Command, program: Program, broker: Broker, source: str, sink: str
) -> None:
    """Suspend a process, let a second take over and a third go on; check all of their verdicts."""
    lines = pairs()[:2_000]
    messages: list[Message] = [(source, 0, line) for line in lines[:1_000]]
    send = sending(broker, messages)
    send(500)
    with command.running() as zombie:
        command.await_snapshot(3, zombie, lambda: send(10))
        zombie.send_signal(signal.SIGSTOP)
        send(len(messages))
        with command.running("--until-end") as successor:
            _, err = successor.communicate(timeout=PATIENCE_S)
            assert successor.returncode == 0, err
        produce(broker, [(source, 0, line) for line in lines[1_000:]])
        zombie.send_signal(signal.SIGCONT)
        _, err = zombie.communicate(timeout=PATIENCE_S)
        assert (zombie.returncode, "taken over" in err) == (4, True), err
    with command.running("--until-end") as last:
        _, err = last.communicate(timeout=PATIENCE_S)
        assert last.returncode == 0, err
    wanted = [v["id"] for v in expected(program, lines, command.folder)]
    reported_ids = [v["id"] for v in committed(broker, sink, least=len(wanted))]
    assert sorted(reported_ids) == sorted(wanted)


def test_full_disk_ends_the_job_and_loses_no_verdict(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source, program = topic(), ketal.compile(FORKS)
    produce(broker, [(source, 0, accept("a", 1)), (source, 0, accept("b", 1))])
    full = Target("file", "/dev/full")
    with pytest.raises(SettingError, match="cannot write /dev/full: No space"):
        run(job_of(broker, [source], tmp_path, until_end=True, verdicts=full), program)
    run(job_of(broker, [source], tmp_path, until_end=True), program)
    assert [v["events"] for v in written(tmp_path / "verdicts.jsonl")] == [["a@1", "b@1"]]


def test_disk_that_fills_up_during_a_save_leaves_the_last_commit_intact(
    broker: Broker, topic: Topic, tmp_path: Path, figures: Counter[str]
) -> None:
    """The state file ends anywhere within a record; the job resumes from the last commit."""
    chance = random.Random(11)
    source, sink = topic(), topic()
    lines = pairs()
    produce(broker, [(source, 0, line) for line in lines])
    command = Command(tmp_path, broker, source, f"kafka:{sink}")
    for _ in range(FULL_DISKS):
        with command.running() as process:
            command.await_snapshot(command.snapshots() + 2, process)
            size = max(file.stat().st_size for file in command.state.iterdir())
            most = size + chance.randrange(2_000)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))
            _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 2, err
        assert "cannot save the state in" in err
        figures["process: full disks under the snapshot"] += 1
    produce(broker, [(source, 0, END)])
    with command.running() as process:
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    wanted = [v["id"] for v in expected(ketal.compile(FORKS), lines, tmp_path)]
    reported_ids = [v["id"] for v in committed(broker, sink, least=len(wanted))]
    assert sorted(reported_ids) == sorted(wanted)


@pytest.mark.parametrize("several", [False, True], ids=["alone", "several"])
def test_broker_death_inside_a_transaction_repeats_the_work_since_the_commit(
    several: bool, mortal_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocked call times out, and the work since the last commit is repeated."""
    commit = KafkaProducer.commit_transaction
    deaths: list[float] = []
    source, sink = make_topic(mortal_broker), make_topic(mortal_broker)
    lines = pairs()[:40]
    produce(mortal_broker, [(source, 0, line) for line in lines])

    def dying(producer: KafkaProducer) -> None:
        # The first commit is the claim of the session; this one has verdicts.
        if len(deaths) == 1:
            mortal_broker.kill()
            threading.Timer(1.0, mortal_broker.start).start()
        deaths.append(time.monotonic())
        commit(producer)

    monkeypatch.setattr(KafkaProducer, "commit_transaction", dying)
    recorder = HookRecorder()
    job = job_of(
        mortal_broker, [source], tmp_path, until_end=True, verdicts=Target("kafka", sink),
        call_timeout_ms=4_000,
    )  # fmt: skip
    if several:
        # It cannot leave the group while the broker is down; the group waits for its timeout.
        job = replace(
            job, source=Source(keyed_by="height"),
            store=Target("kafka", make_topic(mortal_broker, policy="compact")),
            properties={"session_timeout_ms": 3_000, "heartbeat_interval_ms": 500},
        )  # fmt: skip
    engine = run(job, ketal.compile(FORKS), recorder)
    assert any("failed" in notice for notice in recorder.notices)
    assert "Kafka is back; resuming from the last commit" in recorder.notices
    assert engine.figures.restarts >= 1
    wanted = [v["id"] for v in expected(ketal.compile(FORKS), lines, tmp_path)]
    reported_ids = [v["id"] for v in committed(mortal_broker, sink, least=len(wanted))]
    assert sorted(reported_ids) == sorted(wanted)


def test_broker_death_under_load_loses_and_repeats_no_verdict(
    mortal_broker: Broker, tmp_path: Path, figures: Counter[str]
) -> None:
    """It dies at random points, alone or with the engine; a surviving engine goes on by itself."""
    chance = random.Random(7)
    source, sink = make_topic(mortal_broker, 3), make_topic(mortal_broker)
    command = Command(tmp_path, mortal_broker, source, f"kafka:{sink}", call_timeout_ms=4_000)
    with contextlib.ExitStack() as stack:
        load = stack.enter_context(Load(mortal_broker, source, 3, seed=7))
        process = stack.enter_context(command.running("--output", "json"))
        for number in range(DEATHS):
            command.await_snapshot(command.snapshots() + chance.randint(1, 10), process)
            time.sleep(chance.random() * 0.1)
            if number % 2 == 0:
                process.kill()
            mortal_broker.kill()
            time.sleep(chance.random() * 2)
            mortal_broker.start()
            if number % 2 == 0:
                process = stack.enter_context(command.running("--output", "json"))
        lines = load.finish()
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    wanted = [v["id"] for v in expected(ketal.compile(FORKS), lines, tmp_path)]
    reported_ids = [v["id"] for v in committed(mortal_broker, sink, least=len(wanted))]
    assert sorted(reported_ids) == sorted(wanted)
    (summary,) = [json.loads(line)["summary"] for line in out.splitlines()]
    assert summary["kafka"] == {"messages": len(lines) + 3, "control": 3}
    assert summary["events"]["accepted"] == summary["events"]["read"] == len(lines)
    figures["process: deaths of the broker"] += DEATHS
    figures["process: of those together with the engine's"] += (DEATHS + 1) // 2


def test_job_gives_up_a_broker_that_does_not_return(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Nothing listens at the address: the job reports this and gives up after `lost_after_ms`."""
    job = replace(
        job_of(broker, [topic()], tmp_path, lost_after_ms=0, call_timeout_ms=1_000),
        bootstrap_servers="127.0.0.1:9",
    )
    recorder = HookRecorder()
    with pytest.raises(LostError, match=r"127\.0\.0\.1:9 has been failing for"):
        run(job, ketal.compile(FORKS), recorder)
    assert "trying again" in recorder.notices[0]


def test_kafka_is_lost_after_lost_after_ms_of_failures() -> None:
    job = Job(
        pattern="p", topics=["t"], bootstrap_servers="b:1", group_id="g", lost_after_ms=60_000
    )
    recorder = HookRecorder()
    engine = ProcessEngine(job, ketal.compile(FORKS), recorder.hooks())
    engine._handle_failure(ConnectionError("no route"))
    engine.failing_since_s = time.monotonic() - 30.0
    engine._handle_failure(ConnectionError("no route"))
    assert recorder.notices == ["Kafka at b:1 failed (ConnectionError: no route); trying again"]
    assert engine.figures.restarts == 0, "no session has begun"
    engine.failing_since_s = time.monotonic() - 61.0
    with pytest.raises(LostError, match=r"b:1 has been failing for 6\d s .*no route"):
        engine._handle_failure(ConnectionError("no route"))


def test_blocked_call_times_out() -> None:
    never = threading.Event()
    with pytest.raises(TimeoutError, match=r"the commit took more than 0\.01 s"):
        call_with_deadline(0.01, "the commit", never.wait)
    never.set()
    assert call_with_deadline(10, "a sum", sum, [1, 2]) == 3
    with pytest.raises(ValueError, match="invalid literal"):
        call_with_deadline(10, "a number", int, "x")
