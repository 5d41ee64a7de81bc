"""Where a batch's verdicts go: the function of `foreachBatch`.

Spark calls it again with the same batch after a crash that came before the batch's commit. The
operator then says the same, with the same ids. The last batch that was written is noted beside the
checkpoint, its number and its offsets, so the very batch is run for its state alone; what a crash
left half written is written again, and so is what a checkpoint has lost: at least once.

A batch is computed once, by all tasks, and cached by the executors, while its rows of figures come
to the driver, one for each key group that was called. They hold sums since the beginning, so one
that is read twice is no more than one; and how many verdicts of each kind the batch has. Only where
there are any the batch is read again, once for each kind of output: what goes to a topic is sent by
the executors, what goes to a file or to standard output comes to the driver piece by piece.

The one rule: a batch that returns from here is written, to the disk or to Kafka.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ketal.model.verdicts import Rejected
from ketal.streaming.job.file import Job, Target
from ketal.streaming.job.outputs import PENDING_BYTES_MAX, Outputs
from ketal.streaming.spark.checkpoint import Checkpoint
from ketal.streaming.spark.group import FIGURES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class RenderedVerdict:
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
        return RenderedVerdict(said, text, line)
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
        Counts verdicts of a kind, of a pattern.
    """

    def __init__(
        self,
        job: Job,
        options: Mapping[str, str],
        outputs: Outputs,
        checkpoint: Checkpoint,
        count: Callable[[str, str | None, int], None],
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

        is_figures = F.col("verdict") == FIGURES
        rows = batch.where(is_figures).select("id", "json").collect()
        groups: dict[str, dict[str, Any]] = {row["id"]: json.loads(row["json"]) for row in rows}
        counts: Counter[tuple[str, str | None]] = Counter()
        for figures in groups.values():
            for kind, pattern, count in figures.pop("verdicts"):
                counts[kind, pattern] += count
        targets = {self._target(kind).kind for kind, _ in counts}
        verdicts = batch.where(~is_figures).withColumn("topic", self._topic())
        if "kafka" in targets:
            self._send(verdicts.where(F.col("topic").isNotNull()))
        if targets - {"kafka"}:
            self._write_local(verdicts.where(F.col("topic").isNull()))
        for (kind, pattern), count in counts.items():
            self._count(kind, pattern, count)
        self._checkpoint.wrote(number, groups)

    def _write_local(self, verdicts: DataFrame) -> None:
        for row in verdicts.select("json", "line").toLocalIterator():
            self._outputs.add(_verdict(row["json"], row["line"]))
            if self._outputs.bytes >= PENDING_BYTES_MAX:
                self._write_out()
        self._write_out()

    def _write_out(self) -> None:
        self._outputs.write_files()
        self._outputs.clear()

    def _topic(self) -> Column:
        """Return the topic of a verdict; null for one that goes elsewhere."""
        from pyspark.sql import functions as F

        rejected, verdicts = (
            F.lit(target.name if target.kind == "kafka" else None).cast("string")
            for target in (self._job.rejected, self._job.verdicts)
        )
        return F.when(F.col("verdict") == "rejected", rejected).otherwise(verdicts)

    def _target(self, kind: str) -> Target:
        """Return where verdicts of a kind go."""
        return self._job.rejected if kind == "rejected" else self._job.verdicts

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
