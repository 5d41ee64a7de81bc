"""`ketal stream` with the Spark engine, as a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from ketal.streaming.broker.server import Broker
from ketal.streaming.spark.session import spark_session
from tests.sampling import in_long
from tests.streaming.jobs import FORKS, Topic, accept, job_of, produce


@in_long
@pytest.mark.usefixtures("connector")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_stream_command_starts_its_own_spark_and_stops_it_on_a_signal(
    number: signal.Signals, code: int, broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """The summary counts the verdicts, and the exit code is that of the signal.

    No files are left where it ran, and neither Spark, its Java nor the download of its jars
    prints anything for a job without faults.
    """
    source = topic(2)
    produce(broker, [(source, 0, accept("a", 1)), (source, 1, accept("b", 1))])
    (tmp_path / "forks.ketal").write_text(FORKS)
    (tmp_path / "job.toml").write_text(
        f'''
        pattern = "forks.ketal"
        engine = "spark"
        [kafka]
        bootstrap_servers = "{broker.bootstrap_servers}"
        [source]
        topics = ["{source}"]
        [state]
        store = "dir:state"
        [spark]
        key_groups = 2
        trigger_ms = 100
        '''
    )
    command = [sys.executable, "-m", "ketal", "stream", "--config", str(tmp_path / "job.toml")]
    job = subprocess.Popen(
        [*command, "--output", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=tmp_path,
    )  # fmt: skip
    try:
        assert job.stdout is not None
        match = json.loads(job.stdout.readline() or "{}")
        assert not (tmp_path / "artifacts").exists(), "Spark's own, and empty"
        job.send_signal(number)
        rest, error_output = job.communicate(timeout=120)
    finally:
        job.kill()
    assert job.returncode == code, error_output
    assert match["events"] == ["a@1", "b@1"], error_output
    assert error_output == ""
    assert json.loads(rest)["summary"]["kafka"] == {"messages": 2, "control": 0}
    assert not (tmp_path / "artifacts").exists()


def test_handler_of_interrupts_is_kept(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyspark sets its own when it makes a context, which cancels the batch that runs."""
    before = signal.getsignal(signal.SIGINT)
    contexts = [spark.sparkContext]

    def get_or_create(conf: object = None) -> SparkContext:
        if contexts:
            signal.signal(signal.SIGINT, lambda number, frame: None)
        return contexts.pop() if contexts else spark.sparkContext

    monkeypatch.setattr(SparkContext, "getOrCreate", get_or_create)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
    try:
        spark_session(job_of(broker, ["t"], tmp_path), print)
        assert not contexts
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, before)
