"""The sink of a batch's verdicts: the function of `foreachBatch`.

Spark replays a batch after a crash before its commit; the operator returns the same verdicts, with
the same ids. The number and offsets of the last batch that was written are stored beside the
checkpoint, so a replay of that batch runs for its state alone. A batch that a crash left half
written is written again, and so are batches that a checkpoint has lost: at least once.

A batch is computed once, by all tasks, and cached by the executors, while its rows of figures go
to the driver, one for each key group that was called. They hold sums since the beginning, so they
are idempotent, and the counts of the batch's verdicts by kind. Only where there are verdicts the
batch is read again, once for each kind of output: those for a topic are sent by the executors,
those for a file or standard output go to the driver in pieces.

The one rule: a batch that returns from here is written, to the disk or to Kafka.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ketal.streaming.job.file import Job
from ketal.streaming.job.outputs import PENDING_BYTES_MAX, Outputs
from ketal.streaming.spark.checkpoint import Checkpoint
from ketal.streaming.spark.group import FIGURES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class RenderedVerdict:
    """A verdict of an executor, as the columns of its row have it."""

    kind: str
    id: str | None
    """A rejection has none."""
    json: str
    line: str
    """The verdict for people."""

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
    """Writes batches, stores which was the last, and counts verdicts of a kind, of a pattern."""

    job: Job
    options: Mapping[str, str]
    outputs: Outputs
    checkpoint: Checkpoint
    count: Callable[[str, str | None, int], None]

    def write(self, batch: DataFrame, number: int) -> None:
        """Write a batch. It is computed in any case, and once, since that updates the state."""
        if self.checkpoint.has_written(number):
            batch.write.format("noop").mode("overwrite").save()
            return
        batch = batch.persist()
        try:
            self._written(batch, number)
        finally:
            batch.unpersist()

    def _written(self, batch: DataFrame, number: int) -> None:
        from pyspark.sql import functions as F

        is_figures = F.col("verdict") == FIGURES
        rows = batch.where(is_figures).select("id", "json").collect()
        groups: dict[str, dict[str, Any]] = {row["id"]: json.loads(row["json"]) for row in rows}
        counts: Counter[tuple[str, str | None]] = Counter()
        for figures in groups.values():
            for kind, pattern, count in figures.pop("verdicts"):
                counts[kind, pattern] += count
        targets = {self.job.output_of(kind).kind for kind, _ in counts}
        verdicts = batch.where(~is_figures).withColumn("topic", self._topic())
        if "kafka" in targets:
            self._send(verdicts.where(F.col("topic").isNotNull()))
        if targets - {"kafka"}:
            self._write_local(verdicts.where(F.col("topic").isNull()))
        for (kind, pattern), count in counts.items():
            self.count(kind, pattern, count)
        self.checkpoint.wrote(number, groups)

    def _write_local(self, verdicts: DataFrame) -> None:
        for row in verdicts.select("verdict", "id", "json", "line").toLocalIterator():
            verdict: Any = RenderedVerdict(*row)
            self.outputs.add(verdict)
            if self.outputs.bytes >= PENDING_BYTES_MAX:
                self._write_out()
        self._write_out()

    def _write_out(self) -> None:
        self.outputs.write()
        self.outputs.clear()

    def _topic(self) -> Column:
        """Return the topic of a verdict; null for one of another output."""
        from pyspark.sql import functions as F

        rejected, verdicts = (
            F.lit(target.name if target.kind == "kafka" else None).cast("string")
            for target in (self.job.rejected, self.job.verdicts)
        )
        return F.when(F.col("verdict") == "rejected", rejected).otherwise(verdicts)

    def _send(self, rows: DataFrame) -> None:
        from pyspark.sql import functions as F

        fits = F.octet_length("json") <= self.job.limits.message_bytes_max
        value = F.when(fits, F.col("json")).otherwise(_too_large())
        writer = rows.select("topic", F.col("id").alias("key"), value.alias("value")).write
        writer.format("kafka").options(**self.options).save()


def _too_large() -> Column:
    """Return the overflow verdict that replaces one too large for a message."""
    from pyspark.sql import functions as F

    given_up = F.concat(F.lit("the content of a "), F.col("verdict"), F.lit(" verdict of "),
                        F.octet_length("json").cast("string"), F.lit(" bytes"))  # fmt: skip
    return F.to_json(
        F.struct(
            F.lit("overflow").alias("verdict"),
            "pattern",
            "id",
            "execution",
            F.lit("message_bytes_max").alias("limit"),
            given_up.alias("given_up"),
        )
    )
