"""Keys of key groups: Spark gives each task as many groups as any other."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

import ketal
from ketal.streaming.spark import detect
from ketal.streaming.spark import rows as rows_module
from ketal.streaming.spark.spread import SPREAD_MAX, hash_of, keys, number_of
from tests.streaming.jobs import FORKS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_key_says_the_number_of_its_group() -> None:
    assert [number_of(key) for key in keys(200) or ()] == list(range(200))
    assert keys(1) is None
    assert keys(SPREAD_MAX + 1) is None
    assert number_of(31_000) == 31_000


def test_the_hash_is_that_of_spark(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    some = [0, 1, 2**31, 2**32 - 1, 2**32, 2**62 + 17, *(keys(40) or ())]
    frame = spark.createDataFrame([(key,) for key in some], "key bigint")
    hashed = frame.select("key", F.hash("key").alias("hash")).collect()
    assert [(row.key, row.hash) for row in hashed] == [(key, hash_of(key)) for key in some]


@pytest.mark.parametrize(
    ("groups", "tasks"),
    [(16, 2), (16, 3), (16, 4), (16, 5), (16, 6), (16, 8), (16, 16), (32, 32), (64, 64), (100, 48)],
)
def test_no_task_has_two_groups_more_than_another(
    spark: SparkSession, groups: int, tasks: int
) -> None:
    from pyspark.sql import functions as F

    frame = spark.createDataFrame([(key,) for key in keys(groups) or ()], "group bigint")
    parts = frame.repartition(tasks, "group").select(F.spark_partition_id().alias("part"))
    found = Counter(row.part for row in parts.collect())
    assert len(found) == tasks
    assert max(found.values()) - min(found.values()) <= 1


@pytest.mark.parametrize("groups", [1, 7, SPREAD_MAX + 1])
@pytest.mark.filterwarnings("ignore:.*key.group:UserWarning")
def test_however_many_groups(spark: SparkSession, groups: int) -> None:
    program = ketal.compile(FORKS)
    schema = (
        "node string, type string, clock map<string,bigint>, data struct<height:int,hash:string>"
    )
    rows = [
        (f"n{node}", "accept", {f"n{node}": height + 1}, (height, f"n{node}"))
        for node in range(3)
        for height in range(20)
    ]
    verdicts = detect(program, spark.createDataFrame(rows, schema), key_groups=groups).collect()
    events = [
        ketal.Event(node, kind, clock, data=dict(zip(("height", "hash"), data, strict=True)))
        for node, kind, clock, data in rows
    ]
    alone = [verdict.to_dict()["id"] for verdict in ketal.run(program, events)]
    assert alone
    assert sorted(verdict.id for verdict in verdicts) == sorted(alone)


def test_a_checkpoint_whose_groups_had_other_keys_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = ketal.compile(FORKS)
    schema = (
        "node string, type string, clock map<string,bigint>, data struct<height:int,hash:string>"
    )

    def query(number: int) -> None:
        row = ("n0", "accept", {"n0": number}, (number, "n0"))
        spark.createDataFrame([row], schema).write.mode("append").parquet(str(tmp_path / "events"))
        events = spark.readStream.schema(schema).parquet(str(tmp_path / "events"))
        begun = detect(program, events).writeStream.format("noop").trigger(availableNow=True)
        begun.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    with monkeypatch.context() as before:
        before.setattr(rows_module, "keys", lambda count: None)
        query(1)
        query(2)
    with pytest.raises(StreamingQueryException, match="STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"):
        query(3)
