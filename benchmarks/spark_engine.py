"""The Spark operator against an operator of the same shape that does nothing.

Run by hand: `python benchmarks/spark_engine.py [batches] [rows a batch] [tasks] [violations] [rows
an Arrow batch]`; it needs no broker. Events have two shapes: an event's columns, and Kafka's
messages with JSON values. In either, all operators get the same rows of 16 key groups and write a
state of bytes. One ignores the rows, one only decodes the events, and one judges them (a check,
10,000 keys, one of `violations` events a violation). The first batch, in which workers start, is
not measured.

CPU times, of the JVM and the workers together, are printed beside the rates, which other processes
on the machine disturb more. As many tasks as cores leave no core idle; half as many leave each
worker a core of its own beside that of its task in the JVM. Spark passes a group's state with each
Arrow batch, of 10,000 rows unless `spark.sql.execution.arrow.maxRecordsPerBatch` is set
(docs/spark.md); the last argument sets it for all operators.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

import ketal
from ketal.logs import Source
from ketal.model.limits import Limits
from ketal.runtime.execution import BATCH_EVENTS
from ketal.streaming.job.messages import MessageReader
from ketal.streaming.jvm.java import find_java, newest_for_spark, spark_home
from ketal.streaming.spark import detect
from ketal.streaming.spark.families import families
from ketal.streaming.spark.group import COLUMNS
from ketal.streaming.spark.operator import settle_worker
from ketal.streaming.spark.rows.row_reader import ALONE
from ketal.streaming.spark.rows.shaping import shape_rows
from ketal.streaming.spark.session import ROCKSDB

KEYS = 10_000
ROUNDS = 5
ARROW_ROWS = 10_000  # rows of an Arrow batch, Spark's default
PATTERN = """
pattern Turns {
    partition by key;
    event Open = type == "open"; event Work = type == "work"; event Close = type == "close";
    check Open Work* Close;
    on violation skip;
}
"""
SCHEMAS = {
    "columns": "node string, type string, clock map<string, bigint>, time double, "
    "data struct<key: bigint, text: string>, topic string, partition int, offset long",
    "messages": "key binary, value binary, topic string, partition int, offset long, "
    "timestamp timestamp, timestampType int",
}
_CLOCK = pyarrow.map_(pyarrow.string(), pyarrow.int64())
_DATA = pyarrow.struct({"key": pyarrow.int64(), "text": pyarrow.string()})


def write_events(folder: Path, batches: int, rows: int, each: int) -> None:
    """Write the same events in both shapes; each `each`-th is a violation."""
    chance = random.Random(1)
    opened: set[int] = set()
    number = 0
    for shape in SCHEMAS:
        (folder / shape).mkdir(parents=True)
    for batch in range(batches):
        keys, values, partitions, offsets = [], [], [], []
        nodes, types, clocks, times, data = [], [], [], [], []
        for _ in range(rows):
            number += 1
            node, counter, key = f"n{number % 10}", (number + 9) // 10, chance.randrange(KEYS)
            kind = "open" if key not in opened or number % each == 0 else "work"
            opened.add(key)
            keys.append(str(key).encode())
            values.append(
                f'{{"node":"{node}","type":"{kind}","clock":{{"{node}":{counter},"other":1}},'
                f'"time":{number / 1000},"data":{{"key":{key},"text":"{"x" * 80}"}}}}'.encode()
            )
            partitions.append(key % 4)
            offsets.append(number)
            nodes.append(node)
            types.append(kind)
            clocks.append([(node, counter), ("other", 1)])
            times.append(number / 1000)
            data.append({"key": key, "text": "x" * 80})
        place = {
            "topic": pyarrow.array(["events"] * rows, pyarrow.string()),
            "partition": pyarrow.array(partitions, pyarrow.int32()),
            "offset": pyarrow.array(offsets, pyarrow.int64()),
        }
        messages = {
            "key": pyarrow.array(keys, pyarrow.binary()),
            "value": pyarrow.array(values, pyarrow.binary()),
        }
        columns = {
            "node": pyarrow.array(nodes, pyarrow.string()),
            "type": pyarrow.array(types, pyarrow.string()),
            "clock": pyarrow.array(clocks, _CLOCK),
            "time": pyarrow.array(times, pyarrow.float64()),
            "data": pyarrow.array(data, _DATA),
        }
        for shape, own in (("messages", messages), ("columns", columns)):
            path = folder / shape / f"{batch:04}.parquet"
            pyarrow.parquet.write_table(  # type: ignore[no-untyped-call]
                pyarrow.table({**own, **place}), path, row_group_size=50_000
            )


class IdleOperator:
    """An operator of the same shape: all columns, all rows, a state of bytes, no output.

    Parameters
    ----------
    reads : bool
        Whether it decodes the messages, too.
    """

    settled = False

    def __init__(self, *, reads: bool = False) -> None:
        self.reads = reads

    def process_stream(
        self, key: tuple[Any, ...], frames: Iterable[Any], state: Any
    ) -> Iterator[Any]:
        """Consume the rows, and yield no verdicts."""
        import pandas

        if not IdleOperator.settled:
            settle_worker()
            IdleOperator.settled = True
        rows = 0
        reader = MessageReader(Source(), Limits())
        for frame in frames:
            rows += len(frame)
            values = frame["value"][frame["copy"] == ALONE].tolist() if self.reads else []
            for first in range(0, len(values), BATCH_EVENTS):
                some = values[first : first + BATCH_EVENTS]
                reader.items(some, some.__getitem__)
        state.update((rows.to_bytes(8, "big"),))
        yield pandas.DataFrame([], columns=list(COLUMNS))


def cpu_seconds() -> float:
    """Return the CPU seconds of all descendant processes."""
    stats, children = {}, defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        stats[int(folder.name)] = fields
        children[int(fields[1])].append(int(folder.name))
    ticks, below = 0, list(children[os.getpid()])
    while below:
        number = below.pop()
        below += children[number]
        ticks += sum(map(int, stats[number][11:15]))
    return float(ticks / os.sysconf("SC_CLK_TCK"))


def rate(spark: Any, frame: Any, folder: Path, rows: int) -> tuple[float, float]:
    """Return a query's rows per second, without its first batch, and CPU microseconds per row."""
    begin_s = cpu_seconds()
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    took_us = (cpu_seconds() - begin_s) / rows * 1e6
    done = [p for p in query.recentProgress if p["numInputRows"]][1:]
    measured = sum(p["numInputRows"] for p in done)
    return measured / (sum(p["durationMs"]["triggerExecution"] for p in done) / 1e3), took_us


def session(folder: Path, tasks: int, arrow_rows: int = ARROW_ROWS) -> Any:
    """Start a Spark session that runs `tasks` tasks at once, each in the JVM and a worker."""
    from pyspark.sql import SparkSession

    java = find_java(newest=newest_for_spark(version("pyspark")))
    os.environ["JAVA_HOME"] = str(spark_home(java))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.appName("spark_engine")
        .master(f"local[{tasks}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.shuffle.partitions", str(tasks))
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", str(arrow_rows))
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )


def compare(spark: Any, folder: Path, shape: str, rows: int) -> None:
    """Print the rates of all operators on events of one shape."""
    program = ketal.compile(PATTERN)
    source = Source(keyed_by="key") if shape == "messages" else None

    def events() -> Any:
        reader = spark.readStream.schema(SCHEMAS[shape]).option("maxFilesPerTrigger", "1")
        return reader.parquet(str(folder / shape))

    nothing = ", ".join(f"{name} string" for name in COLUMNS)
    operators = ("does nothing", "reads", "judges")
    ratios = []
    # The turn before the first warms up the JVM.
    for turn in range(-1, ROUNDS):
        rates, times_us = [], []
        for operator in operators:
            if operator == "judges":
                frame = detect(program, events(), source=source)
            else:
                rowed, _ = shape_rows(
                    events(), families(program, 16), source=source, lateness_ms=None,
                )  # fmt: skip
                frame = rowed.groupBy("group").applyInPandasWithState(
                    IdleOperator(reads=operator == "reads").process_stream,
                    nothing, "state binary", "append", "NoTimeout",
                )  # fmt: skip
            found = rate(spark, frame, folder / f"{shape}-{operator}-{turn}", rows)
            rates.append(found[0])
            times_us.append(found[1])
        if turn < 0:
            continue
        ratios.append([rates[-1] / each for each in rates[:-1]])
        print(
            f"{shape}: {', '.join(operators)}: "
            + ", ".join(f"{each:,.0f}" for each in rates)
            + " rows/s; processor "
            + ", ".join(f"{each:.1f}" for each in times_us)
            + " us a row: "
            + ", ".join(f"{each:.2f}" for each in ratios[-1])
            + "; by the processor "
            + ", ".join(f"{each / times_us[-1]:.2f}" for each in times_us[:-1]),
            flush=True,
        )
    medians = [statistics.median(column) for column in zip(*ratios, strict=True)]
    summary = ", ".join(f"{m:.2f} of {w}" for m, w in zip(medians, operators[:-1], strict=True))
    print(f"{shape}: {summary}", flush=True)


def main() -> None:
    given = [int(argument) for argument in sys.argv[1:]]
    defaults = (4, 1_000_000, 2, 33, ARROW_ROWS)
    batches, rows, tasks, each, arrow_rows = (*given, *defaults[len(given) :])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_events(folder, batches, rows, each)
        spark = session(folder, tasks, arrow_rows)
        for shape in SCHEMAS:
            compare(spark, folder, shape, batches * rows)
        spark.stop()


if __name__ == "__main__":
    main()
