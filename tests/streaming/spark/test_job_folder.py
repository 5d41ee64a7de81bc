"""A job's folder on a file system that only Spark can access: Hadoop's `viewfs://`."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import ketal
from ketal.errors import SettingError, StateError
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Target
from ketal.streaming.spark.checkpoint import Checkpoint
from ketal.streaming.spark.job_folder import HadoopFolder
from tests.streaming.jobs import FORKS, Topic, accept, committed, produce
from tests.streaming.spark.test_checkpoint import A, B, job, write_committed_batch
from tests.streaming.spark.test_engine import run, spark_job


@pytest.fixture
def address(spark: SparkSession, tmp_path: Path) -> str:
    """Return a URI that is mounted on `tmp_path/far`."""
    name, far = uuid.uuid4().hex, tmp_path / "far"
    far.mkdir()
    hadoop: Any = spark.sparkContext._jsc
    link = f"fs.viewfs.mounttable.{name}.link./jobs"
    hadoop.hadoopConfiguration().set(link, far.as_uri())
    return f"viewfs://{name}/jobs"


def test_file_is_written_as_a_whole_and_replaced(
    spark: SparkSession, address: str, tmp_path: Path
) -> None:
    folder = HadoopFolder(spark, f"{address}/some/job/")
    assert str(folder) == folder.address == f"{address}/some/job"
    assert folder.names("not there") == []
    with pytest.raises(FileNotFoundError):
        folder.read("a.json")
    for content in (b"", bytes(range(256)) * 1_000, b"short"):
        folder.write("a.json", content)
        assert folder.read("a.json") == content
    assert sorted(folder.names()) == ["a.json", "owner"]
    assert (tmp_path / "far" / "some" / "job" / "a.json").read_bytes() == b"short"


def test_process_that_starts_later_owns_the_folder(spark: SparkSession, address: str) -> None:
    one = HadoopFolder(spark, address + "/job")
    one.write("a", b"1")
    two = HadoopFolder(spark, address + "/job")
    with pytest.raises(
        SettingError, match=r"another process, started later, is running the job of viewfs://"
    ):
        one.write("a", b"2")
    assert two.read("a") == b"1"
    two.write("a", b"3")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("nothing://here/job", "cannot write nothing://here/job: .*nothing"),
        ("viewfs:///", "cannot"),
    ],
)
def test_unreachable_file_system_is_reported(spark: SparkSession, where: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        HadoopFolder(spark, where)


def test_checkpoint_works_on_a_remote_folder(
    spark: SparkSession, address: str, tmp_path: Path
) -> None:
    one, program = replace(job(tmp_path), store=Target("dir", address + "/job")), ketal.compile(A)
    at = tmp_path / "far" / "job"

    def opened() -> Checkpoint:
        return Checkpoint(one, program, spark)

    checkpoint = opened()
    assert checkpoint.begin({"t": 1}) == "earliest"
    assert checkpoint.address == f"{address}/job/checkpoint-0"
    write_committed_batch(at, '{"t":{"0":5}}', 3)
    checkpoint.record_written(3, {"0": {"messages": 5}})
    again = opened()
    assert again.has_written(3)
    assert again.written.groups == {"0": {"messages": 5}}
    with pytest.raises(StateError, match=f"the checkpoint {address}/job belongs to another job"):
        Checkpoint(one, ketal.compile(B), spark)
    fresh = Checkpoint(replace(one, on_change="fresh"), ketal.compile(B), spark)
    assert fresh.begin({"t": 2}) == '{"t": {"0": 5, "1": -2}}'
    assert fresh.address == f"{address}/job/checkpoint-1"
    (at / "job.json").unlink()
    with pytest.raises(StateError, match=r"is missing its job\.json"):
        opened()


def test_job_resumes_from_a_remote_folder(
    broker: Broker, topic: Callable[..., str] | Topic, tmp_path: Path, address: str
) -> None:
    source, sink, program = topic(2), topic(), ketal.compile(FORKS)
    to = {"verdicts": Target("kafka", sink), "rejected": Target("kafka", sink)}
    one = spark_job(broker, [source], tmp_path, store=Target("dir", address + "/forks"), **to)
    produce(broker, [(source, 0, accept("a", 1))])
    run(one, program)
    produce(broker, [(source, 1, accept("b", 1)), (source, 0, accept("a", 1))])
    second = run(one, program)
    (match,) = committed(broker, sink, least=1)
    assert sorted(match["events"]) == ["a@1", "b@1"]
    assert second.summary is not None
    assert second.summary["kafka"] == {"messages": 3, "control": 0}
    assert second.summary["events"]["duplicates"] == 1
    assert (tmp_path / "far" / "forks" / "checkpoint-0" / "commits").is_dir()
    assert not (tmp_path / "state").exists(), "nothing is beside it"
    with pytest.raises(StateError, match="pattern Forks changed"):
        run(one, ketal.compile(FORKS.replace("hash != First.hash", "true")))
