"""Keys of key groups: Spark gives each task as many groups as any other."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

import ketal
from ketal.streaming.spark import detect
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


@pytest.mark.parametrize("tasks", [2, 3, 4, 5, 6, 8, 16])
def test_no_task_has_two_groups_more_than_another(spark: SparkSession, tasks: int) -> None:
    from pyspark.sql import functions as F

    frame = spark.createDataFrame([(key,) for key in keys(16) or ()], "group bigint")
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
