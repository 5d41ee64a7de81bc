"""The sink of the verdicts of a batch: the function for `foreachBatch`.

After a crash before its commit Spark replays a batch, and the operator returns the same verdicts
with the same ids. The number and the offsets of the last batch that was written are stored beside
the checkpoint, so a replay of that batch only updates the state. A batch that a crash left
half-written is written again, and so are batches that a checkpoint has lost: at least once.

A batch is computed once, by all tasks, and cached by the executors. In the same pass its rows of
figures go to the driver, one for each key group that was called. They have sums since the
beginning, so they are idempotent, and the counts of the batch's verdicts by kind. Only if there are
verdicts, the batch is read again, once for each kind of output: verdicts for a topic are sent by
the executors, verdicts for a file or standard output go to the driver in pieces.

The one rule: when `Sink.write` returns, the batch is written, to the disk or to Kafka.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ketal.logs.source import MappedFields
from ketal.streaming.job.file import Job
from ketal.streaming.job.outputs import PENDING_BYTES_MAX, Outputs
from ketal.streaming.spark.checkpoint import Checkpoint
from ketal.streaming.spark.group import FIGURES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class RenderedVerdict:
    """A verdict that an executor has rendered, as the columns of its row."""

    kind: str
    id: str | None
    """The id of the verdict; None for a rejection."""
    json: str
    line: str
    """The verdict as a line for people."""

    def to_dict(self) -> Any:
        """Return the verdict as a JSON object."""
        return json.loads(self.json)

    def written(self) -> tuple[str | None, bytes]:
        """Return the id, and the JSON as the executor encoded it."""
        return self.id, self.json.encode()

    def __str__(self) -> str:
        return self.line


@dataclass(frozen=True)
class Sink:
    """Writes batches, records the last one in the checkpoint, and counts verdicts.

    `count` is called with a kind, a pattern, and the number of verdicts. A field that some row of a
    batch has is no longer absent in `mapped`.
    """

    job: Job
    options: Mapping[str, str]
    outputs: Outputs
    checkpoint: Checkpoint
    count: Callable[[str, str | None, int], None]
    mapped: MappedFields

    def write(self, batch: DataFrame, number: int) -> None:
        """Write a batch, unless it was written before; compute it anyway, to update the state."""
        if self.checkpoint.has_written(number):
            batch.write.format("noop").mode("overwrite").save()
            return
        batch = batch.persist()
        try:
            self._write_batch(batch, number)
        finally:
            batch.unpersist()

    def _write_batch(self, batch: DataFrame, number: int) -> None:
        from pyspark.sql import functions as F

        is_figures = F.col("verdict") == FIGURES
        rows = batch.where(is_figures).select("id", "json").collect()
        groups: dict[str, dict[str, Any]] = {row["id"]: json.loads(row["json"]) for row in rows}
        counts: Counter[tuple[str, str | None]] = Counter()
        for figures in groups.values():
            for kind, pattern, count in figures.pop("verdicts"):
                counts[kind, pattern] += count
            if (absent := figures.pop("absent")) is not None:
                self.mapped.mark_read(absent)
        targets = {self.job.output_of(kind).kind for kind, _ in counts}
        verdicts = batch.where(~is_figures).withColumn("topic", self._topic_column())
        if "kafka" in targets:
            self._send(verdicts.where(F.col("topic").isNotNull()))
        if targets - {"kafka"}:
            self._write_local(verdicts.where(F.col("topic").isNull()))
        for (kind, pattern), count in counts.items():
            self.count(kind, pattern, count)
        self.checkpoint.record_written(number, groups)

    def _write_local(self, verdicts: DataFrame) -> None:
        for row in verdicts.select("verdict", "id", "json", "line").toLocalIterator():
            verdict: Any = RenderedVerdict(*row)
            self.outputs.add(verdict)
            if self.outputs.pending_bytes >= PENDING_BYTES_MAX:
                self._flush_outputs()
        self._flush_outputs()

    def _flush_outputs(self) -> None:
        self.outputs.write()
        self.outputs.clear()

    def _topic_column(self) -> Column:
        """Return a column with the topic of a verdict; null if its output is not a topic."""
        from pyspark.sql import functions as F

        rejected, verdicts = (
            F.lit(target.name if target.is_topic else None).cast("string")
            for target in (self.job.rejected, self.job.verdicts)
        )
        return F.when(F.col("verdict") == "rejected", rejected).otherwise(verdicts)

    def _send(self, rows: DataFrame) -> None:
        from pyspark.sql import functions as F

        writer = rows.select("topic", F.col("id").alias("key"), F.col("json").alias("value")).write
        writer.format("kafka").options(**self.options).save()
