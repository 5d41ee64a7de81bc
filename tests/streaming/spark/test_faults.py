"""The Spark engine when its driver is killed, with and without its JVM, and when the broker dies.

A driver killed at a random point is most often computing a batch, and seldom at the point that
matters: between the sink's write and the batch's commit. So some kills are aimed at that point: the
output has grown, and the batch is not yet in the checkpoint's `commits`. `KETAL_CHAOS` is the
number of kills of the process engine; the driver gets a fifth as many. `make chaos` sets a large
number.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition

import ketal
from ketal.errors import LostError
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Target
from ketal.streaming.spark.spark_engine import SparkEngine
from tests.sampling import in_long
from tests.streaming.conftest import QUICK_JVM, QUICK_RETURN, make_topic
from tests.streaming.jobs import (
    FORKS,
    HookRecorder,
    Running,
    Topic,
    committed,
    expected,
    job_of,
    until,
    written,
)
from tests.streaming.kafka.test_process_faults import KILLS, Load

DRIVERS = max(1, KILLS // 5)
AIMED = max(1, DRIVERS // 3)
MISSES_MAX = 5 * AIMED
KINDS = ["kafka", "file"] if KILLS > 2 else ["kafka"]
BROKERS = max(1, KILLS // 12)
PARTITIONS = 2
PATIENCE_S = 180.0
TOML = """\
pattern = "forks.ketal"
engine = "spark"
[kafka]
bootstrap_servers = "{servers}"
[source]
topics = ["{source}"]
keyed_by = "height"
[output]
verdicts = "{verdicts}"
[state]
store = "dir:state"
[time]
lateness_ms = 1000000000
[spark]
key_groups = 4
trigger_ms = 100
"""


def of_session(number: int) -> list[int]:
    """Return the live processes of an operating-system session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            if int(session) == number and state != "Z":
                found.append(int(stat.parent.name))
    return found


class Driver:
    """`ketal stream --engine spark` with the job of a folder, in a session of its own."""

    def __init__(self, folder: Path, broker: Broker, source: str, kind: str, sink: str) -> None:
        self.folder = folder
        self.starts = 0
        self._broker = broker
        self._sink = sink if kind == "kafka" else None
        where = f"kafka:{sink}" if kind == "kafka" else "file:verdicts.jsonl"
        (folder / "forks.ketal").write_text(FORKS)
        text = TOML.format(servers=broker.bootstrap_servers, source=source, verdicts=where)
        (folder / "job.toml").write_text(text)

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        self.starts += 1
        command = [sys.executable, "-m", "ketal", "stream", "--config", "job.toml"]
        with open(self.folder / f"driver-{self.starts}.err", "w") as log:
            process = subprocess.Popen(
                [*command, "--output", "json"],
                cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=log,
                start_new_session=True,
                env={**os.environ, "SPARK_LOCAL_DIRS": str(self.folder / "local")},
            )  # fmt: skip
        try:
            yield process
        finally:
            for number in of_session(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            process.communicate()

    def error_output(self) -> str:
        """Return the standard error of the driver that was started last."""
        return (self.folder / f"driver-{self.starts}.err").read_text()[-4_000:]

    def kill(self, process: subprocess.Popen[str], part: str = "all") -> None:
        """Kill the driver, or a part of it; return when all of it has gone.

        A JVM whose Python is gone ends by itself, a moment later; a Python without its JVM says
        that Spark is lost.
        """
        jvms = self._jvms(process)
        if part == "java" and jvms:
            for number in jvms:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            process.wait(PATIENCE_S)
            assert process.returncode == 4, self.error_output()
        elif part == "all":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()
        until(lambda: not of_session(process.pid), "Spark outlives its driver", PATIENCE_S)

    @staticmethod
    def _jvms(process: subprocess.Popen[str]) -> list[int]:
        found = []
        for number in of_session(process.pid):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{number}/comm").read_text().strip() == "java":
                    found.append(number)
        return found

    # --- how far it is ---

    def _newest(self, log: str) -> int:
        names = (path.name for path in (self.folder / "state/checkpoint-0" / log).glob("[0-9]*"))
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def committed(self) -> int:
        """Return the last batch that Spark has committed; -1 for none."""
        return self._newest("commits")

    def begun(self) -> int:
        """Return the last batch that was begun."""
        return self._newest("offsets")

    def noted(self) -> int:
        """Return the last batch whose output was written whole."""
        path = self.folder / "state/checkpoint-0.json"
        return int(json.loads(path.read_bytes())["batch"]) if path.exists() else -1

    @contextlib.contextmanager
    def sizes(self) -> Iterator[Callable[[], int]]:
        """Yield a function that says how much output there is."""
        if self._sink is None:
            path = self.folder / "verdicts.jsonl"
            yield lambda: path.stat().st_size if path.exists() else 0
            return
        of = TopicPartition(self._sink, 0)
        with closing(KafkaConsumer(bootstrap_servers=self._broker.bootstrap_servers)) as consumer:
            yield lambda: int(consumer.end_offsets([of])[of])

    def await_batch(self, process: subprocess.Popen[str]) -> None:
        """Return when a batch was committed."""
        before = self.committed()
        until(
            lambda: process.poll() is not None or self.committed() > before,
            self.error_output(),
            PATIENCE_S,
        )
        assert process.poll() is None, self.error_output()

    def await_write(self, process: subprocess.Popen[str]) -> int:
        """Return when the output of a batch is there, and its commit is not: the last commit."""
        end_s = time.monotonic() + PATIENCE_S
        with self.sizes() as size:
            last, before = self.committed(), size()
            while True:
                grown, now = size(), self.committed()
                if now != last:
                    last, before = now, size()
                elif grown > before:
                    return last
                assert process.poll() is None, self.error_output()
                assert time.monotonic() < end_s, self.error_output()
                # The watched job needs the core too, and writes nothing before a batch has begun.
                time.sleep(0.005 if self.begun() > now else 0.05)

    def output(self) -> list[dict[str, Any]]:
        if self._sink is None:
            return written(self.folder / "verdicts.jsonl")
        return committed(self._broker, self._sink)


class Kills:
    """Drivers that are killed one after another; counts the kinds of kills."""

    def __init__(self, driver: Driver, chance: random.Random) -> None:
        self.driver = driver
        self.chance = chance
        self.random = self.aimed = self.missed = self.half_written = 0

    def at_random(self) -> None:
        """Kill a driver while it starts, or while it runs."""
        with self.driver.running() as process:
            if self.chance.random() < 0.3:
                time.sleep(8 * self.chance.random())
            else:
                self.driver.await_batch(process)
                time.sleep(2 * self.chance.random())
            self.driver.kill(process, self.chance.choice(["all", "python", "java"]))
        self.random += 1

    def at_the_write(self) -> None:
        """Kill a driver between the sink's write and the commit of the batch, or count a miss."""
        with self.driver.running() as process:
            if self.chance.random() < 0.5:
                self.driver.await_batch(process)
            last = self.driver.await_write(process)
            self.driver.kill(process)
        if self.driver.committed() != last:
            self.missed += 1
            return
        assert self.driver.begun() == last + 1
        self.aimed += 1
        self.half_written += self.driver.noted() == last

    def count(self, figures: Counter[str], what: str) -> None:
        figures[f"{what}: kills of the driver"] += self.random + self.aimed + self.missed
        figures[f"{what}: between a batch's write and its commit"] += self.aimed
        figures[f"{what}: of those before the note of the write"] += self.half_written


@pytest.mark.usefixtures("connector")
@pytest.mark.parametrize("kind", KINDS)
def test_kill_9_of_the_driver_loses_no_verdict(
    kind: str, broker: Broker, topic: Topic, tmp_path: Path, figures: Counter[str]
) -> None:
    """Under load; a repeated verdict is equal and has the same id, and only kills repeat any."""
    chance = random.Random(kind)
    source, sink = topic(PARTITIONS), topic()
    driver = Driver(tmp_path, broker, source, kind, sink)
    kills = Kills(driver, chance)
    # A batch takes a second, so fewer messages are enough for each to have matches.
    with Load(broker, source, PARTITIONS, chance.randrange(10**6), pause_s=0.05) as load:
        while kills.aimed < AIMED:
            kills.at_the_write()
            assert kills.missed <= MISSES_MAX
            if kills.random < DRIVERS - AIMED:
                kills.at_random()
        while kills.random < DRIVERS - AIMED:
            kills.at_random()
        lines = load.finish()
    with driver.running() as process:
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, driver.error_output()
    assert not (tmp_path / "artifacts").exists(), "Spark's own, and empty"

    by_id: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for verdict in driver.output():
        by_id[verdict["id"]].append(verdict)
    wanted = {v["id"] for v in expected(ketal.compile(FORKS), lines, tmp_path)}
    again = sum(len(copies) - 1 for copies in by_id.values())
    kills.count(figures, f"spark, {kind}")
    figures[f"spark, {kind}: verdicts"] += len(wanted)
    figures[f"spark, {kind}: verdicts that came again"] += again
    assert by_id.keys() == wanted
    assert all(one == copies[0] for copies in by_id.values() for one in copies)
    assert again > 0 or not kills.half_written
    (summary,) = [json.loads(line)["summary"] for line in out.splitlines()]
    assert summary["kafka"] == {"messages": len(lines) + PARTITIONS, "control": PARTITIONS}
    assert summary["events"]["accepted"] == summary["events"]["read"] == len(lines)


class OnSpark(Running):
    """An engine on the Spark of the tests; `finish` re-raises its error."""

    def await_batch(self) -> None:
        """Return once a batch was written."""
        before = self.engine.figures.commits
        until(
            lambda: not self.is_alive() or self.engine.figures.commits > before,
            "no batch",
            PATIENCE_S,
        )
        if not self.is_alive():
            self.finish()

    def finish(self) -> None:
        self.join(PATIENCE_S)
        assert not self.is_alive(), "the engine does not end"
        if self.fault is not None:
            raise self.fault


@in_long
@pytest.mark.usefixtures("spark")
def test_kill_9_of_the_broker_during_a_query_loses_no_verdict(
    jars: Path, tmp_path: Path, figures: Counter[str]
) -> None:
    """An engine that must not wait gives up, and the next resumes; one that may wait recovers."""
    chance, program, recorder = random.Random(3), ketal.compile(FORKS), HookRecorder()
    with ExitStack() as stack:
        broker = stack.enter_context(
            Broker(tmp_path / "kafka", properties=QUICK_RETURN, jvm=QUICK_JVM)
        )
        source, sink = make_topic(broker, PARTITIONS), make_topic(broker)

        def job(lost_after_ms: int) -> Any:
            return job_of(
                broker, [source], tmp_path, engine="spark", key_groups=2, trigger_ms=100,
                source=ketal.logs.Source(keyed_by="height"), verdicts=Target("kafka", sink),
                lost_after_ms=lost_after_ms, call_timeout_ms=4_000,
                properties={"default.api.timeout.ms": 4_000, "request.timeout.ms": 2_000},
            )  # fmt: skip

        load = stack.enter_context(Load(broker, source, PARTITIONS, seed=3))
        first = OnSpark(SparkEngine(job(lost_after_ms=0), program, recorder.hooks()))
        first.start()
        first.await_batch()
        broker.kill()
        with pytest.raises(LostError, match="the job has been failing for"):
            first.finish()
        broker.start()

        second = OnSpark(SparkEngine(job(lost_after_ms=120_000), program, recorder.hooks()))
        second.start()
        for _ in range(BROKERS):
            second.await_batch()
            time.sleep(chance.random())
            broker.kill()
            time.sleep(3 * chance.random())
            broker.start()
        lines = load.finish()
        second.finish()
        wanted = {v["id"] for v in expected(program, lines, tmp_path)}
        assert {v["id"] for v in committed(broker, sink, least=len(wanted))} == wanted
        assert second.engine.summary is not None
        assert second.engine.summary["events"]["accepted"] == len(lines)
        figures["spark: deaths of the broker"] += BROKERS + 1
