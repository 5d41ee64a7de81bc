"""How often a batch of verdicts is read, and how its verdicts are counted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ketal
from ketal.logs.source import MappedFields
from ketal.streaming.job.file import Target
from ketal.streaming.job.outputs import Outputs
from ketal.streaming.spark.checkpoint import Checkpoint
from ketal.streaming.spark.group import COLUMNS, FIGURES, LINE
from ketal.streaming.spark.sink import Sink
from tests.streaming.jobs import FORKS, HookRecorder, written
from tests.streaming.spark.test_checkpoint import job, write_committed_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MATCH = json.dumps({"verdict": "match", "pattern": "Forks", "id": "i", "events": ["a@1", "b@1"]})
BAD = json.dumps({"verdict": "rejected", "place": "t/0/1", "reason": "no JSON"})


def figures(group: int, *verdicts: tuple[str, str | None, int]) -> tuple[str | None, ...]:
    absent = ["time", "id"][group : group + 1]
    text = json.dumps({"group": group, "verdicts": verdicts, "absent": absent})
    return FIGURES, None, str(group), None, None, text, None


@pytest.mark.parametrize(
    ("rows", "jobs", "counts"),
    [
        ([figures(0), figures(1)], 1, {}),
        (
            [
                ("match", "Forks", "i", None, "null", MATCH, "a match"),
                figures(0, ("match", "Forks", 1)),
                ("rejected", None, None, None, None, BAD, "rejected"),
                figures(1, ("rejected", None, 1)),
            ],
            3,
            {("match", "Forks"): 1, ("rejected", None): 1},
        ),
    ],
    ids=["no verdicts", "verdicts"],
)
def test_batch_is_read_a_second_time_only_if_it_has_verdicts(
    rows: list[Any], jobs: int, counts: dict[Any, int], spark: SparkSession, tmp_path: Path
) -> None:
    """Once for its figures, and once more, partition by partition, if it has verdicts."""
    path = tmp_path / "verdicts.jsonl"
    target = Target("file", str(path))
    one = job(tmp_path / "state", verdicts=target, rejected=target)
    schema = ", ".join(f"{name} string" for name in (*COLUMNS, LINE))
    batch = spark.createDataFrame(spark.sparkContext.parallelize(rows, 2), schema)
    checkpoint = Checkpoint(one, ketal.compile(FORKS))
    hooks = HookRecorder().hooks()
    outputs = Outputs(one, hooks)
    counted: Counter[Any] = Counter()
    mapped = MappedFields({"time": "at", "id": "name"})

    def count(kind: str, pattern: str | None, number: int) -> None:
        counted[kind, pattern] += number

    spark.sparkContext.setJobGroup(tmp_path.name, "")
    try:
        Sink(one, {}, outputs, checkpoint, count, mapped).write(batch, 0)
        tracker = spark.sparkContext.statusTracker()
        assert len(tracker.getJobIdsForGroup(tmp_path.name)) == jobs
        assert counted == counts
        assert [v["verdict"] for v in written(path)] == ["match", "rejected"][: len(counts)]
        assert checkpoint.written.groups == {"0": {"group": 0}, "1": {"group": 1}}
        write_committed_batch(tmp_path / "state", "{}")
        checkpoint.record_written(0, {})
        Sink(one, {}, outputs, checkpoint, count, mapped).write(batch, 0)
        assert not mapped.absent, "each field is in rows of one group"
        assert counted == counts, "a batch that is written is not written again"
        assert len(written(path)) == len(counts)
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        outputs.close()
        checkpoint.close()
