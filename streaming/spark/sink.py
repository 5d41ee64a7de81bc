"""Where a batch's verdicts go: the function of `foreachBatch`.

Spark calls it again with the same batch after a crash that came before the batch's commit. The
operator then says the same, with the same ids. The last batch that was written is noted beside the
checkpoint, its number and its offsets, so the very batch is run for its state alone; what a crash
left half written is written again, and so is what a checkpoint has lost: at least once.

A batch is computed once, by all tasks, and kept by the executors; what goes to a file or to
standard output then comes to the driver piece by piece.

Rows of figures are taken out here, and kept by key group: each is the sum since the beginning, so
one that comes twice is no more than one.

The one rule: a batch that returns from here is written, to the disk or to Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ketal.streaming.job import Job
from ketal.streaming.outputs import PENDING_BYTES_MAX, Outputs
from ketal.streaming.spark.checkpoint import Checkpoint
from ketal.streaming.spark.group import FIGURES
from ketal.verdicts import Rejected

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Said:
    """A verdict that an executor said: the JSON it is, and the line it is for people."""

    def __init__(self, said: dict[str, Any], text: str, line: str) -> None:
        self.kind: str = said["verdict"]
        self._said = said
        self._text = text
        self._line = line

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as the JSON object of INTERFACE."""
        return self._said

    def written(self) -> tuple[str, bytes]:
        """Return the id, and the JSON as the executor wrote it."""
        return self._said["id"], self._text.encode()

    def __str__(self) -> str:
        return self._line


def _verdict(text: str, line: str) -> Any:
    said = json.loads(text)
    if said["verdict"] != "rejected":
        return Said(said, text, line)
    execution = said.get("execution", "")
    return Rejected(place=said["place"], reason=said["reason"], execution=execution)


class Sink:
    """Writes batches.

    Parameters
    ----------
    job : Job
        Says where to.
    options : mapping
        How Spark's connector reaches Kafka.
    outputs : Outputs
        The files and standard output.
    checkpoint : Checkpoint
        Keeps how far they are.
    count : callable
        Is told of so many verdicts of a kind.
    """

    def __init__(
        self,
        job: Job,
        options: Mapping[str, str],
        outputs: Outputs,
        checkpoint: Checkpoint,
        count: Callable[[str, int], None],
    ) -> None:
        self._job = job
        self._options = dict(options)
        self._outputs = outputs
        self._checkpoint = checkpoint
        self._count = count

    def write(self, batch: DataFrame, number: int) -> None:
        """Write a batch; it is computed once, and always, for that is what makes its state."""
        if self._checkpoint.has_written(number):
            batch.write.format("noop").mode("overwrite").save()
            return
        batch = batch.persist()
        try:
            self._written(batch, number)
        finally:
            batch.unpersist()

    def _written(self, batch: DataFrame, number: int) -> None:
        from pyspark.sql import functions as F

        local = batch
        if any(target.kind == "kafka" for target in self._job.outputs):
            batch = batch.withColumn("topic", self._topic())
            remote = batch.where(F.col("topic").isNotNull())
            for row in remote.groupBy("verdict").count().collect():
                self._count(row["verdict"], row["count"])
            self._send(remote)
            local = batch.where(F.col("topic").isNull())
        else:
            batch.write.format("noop").mode("overwrite").save()
        groups: dict[str, dict[str, Any]] = {}
        for row in local.select("verdict", "id", "json", "line").toLocalIterator():
            if row["verdict"] == FIGURES:
                groups[row["id"]] = json.loads(row["json"])
            else:
                self._count(row["verdict"], 1)
                self._outputs.add(_verdict(row["json"], row["line"]))
                if self._outputs.bytes >= PENDING_BYTES_MAX:
                    self._write_out()
        self._write_out()
        self._checkpoint.wrote(number, groups)

    def _write_out(self) -> None:
        self._outputs.write_files()
        self._outputs.clear()

    def _topic(self) -> Column:
        """Return the topic of a row; null for what goes elsewhere."""
        from pyspark.sql import functions as F

        rejected, verdicts = (
            F.lit(target.name if target.kind == "kafka" else None).cast("string")
            for target in (self._job.rejected, self._job.verdicts)
        )
        return (
            F.when(F.col("verdict") == "rejected", rejected)
            .when(F.col("verdict") != FIGURES, verdicts)
            .otherwise(F.lit(None).cast("string"))
        )

    def _send(self, rows: DataFrame) -> None:
        from pyspark.sql import functions as F

        fits = F.octet_length("json") <= self._job.limits.message_bytes_max
        value = F.when(fits, F.col("json")).otherwise(_too_large())
        writer = rows.select("topic", F.col("id").alias("key"), value.alias("value")).write
        writer.format("kafka").options(**self._options).save()


def _too_large() -> Column:
    """Return what is said instead of a verdict that Kafka would not take."""
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
