"""The Spark operator against one of the same shape that does nothing.

Run by hand: `python benchmarks/spark_engine.py [batches] [rows a batch]`; it needs no broker. Both
operators get the same rows of 16 key groups, put in the same order, and write a state of bytes; one
judges them (a check, 10,000 keys, 3 % verdicts), the other does not look. 85 % of the rate of the
latter are asked for. The first batch, in which workers start, is not part of it.
"""

from __future__ import annotations

import gc
import random
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

import ketal
from ketal.logs import Source
from ketal.streaming.folders import cache_folder
from ketal.streaming.java import find_java, newest_for_spark, spark_home
from ketal.streaming.spark import detect
from ketal.streaming.spark.families import families
from ketal.streaming.spark.group import COLUMNS
from ketal.streaming.spark.rows import shaped
from ketal.streaming.spark.session import ROCKSDB

KEYS = 10_000
ROUNDS = 3
PATTERN = """
pattern Turns {
    partition by key;
    event Open = type == "open"; event Work = type == "work"; event Close = type == "close";
    check Open Work* Close;
    on violation skip;
}
"""
SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "timestampType int"
)


def write_events(folder: Path, batches: int, rows: int) -> None:
    """Write files with Kafka's columns: each 33rd event is a violation."""
    chance = random.Random(1)
    opened: set[int] = set()
    number = 0
    for batch in range(batches):
        keys, values, partitions, offsets = [], [], [], []
        for _ in range(rows):
            number += 1
            node, counter, key = f"n{number % 10}", (number + 9) // 10, chance.randrange(KEYS)
            kind = "open" if key not in opened or number % 33 == 0 else "work"
            opened.add(key)
            keys.append(str(key).encode())
            values.append(
                f'{{"node":"{node}","type":"{kind}","clock":{{"{node}":{counter},"other":1}},'
                f'"time":{number / 1000},"data":{{"key":{key},"text":"{"x" * 80}"}}}}'.encode()
            )
            partitions.append(key % 4)
            offsets.append(number)
        table = pyarrow.table(
            {
                "key": pyarrow.array(keys, pyarrow.binary()),
                "value": pyarrow.array(values, pyarrow.binary()),
                "topic": pyarrow.array(["events"] * rows, pyarrow.string()),
                "partition": pyarrow.array(partitions, pyarrow.int32()),
                "offset": pyarrow.array(offsets, pyarrow.int64()),
            }
        )
        path = folder / f"{batch:04}.parquet"
        pyarrow.parquet.write_table(table, path, row_group_size=50_000)  # type: ignore[no-untyped-call]


class Nothing:
    """An operator of the same shape: all columns, all rows, a state of bytes, no answer."""

    settled = False

    def stateful(self, key: tuple[Any, ...], frames: Iterable[Any], state: Any) -> Iterator[Any]:
        """Take the rows, and say nothing."""
        import pandas

        if not Nothing.settled:
            gc.collect()
            gc.freeze()
            Nothing.settled = True
        rows = sum(len(frame) for frame in frames)
        state.update((rows.to_bytes(8, "big"),))
        yield pandas.DataFrame([], columns=list(COLUMNS))


def rate(spark: Any, frame: Any, folder: Path) -> float:
    """Return the rows a second of a query, its first batch left out."""
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    done = [p for p in query.recentProgress if p["numInputRows"]][1:]
    rows = sum(p["numInputRows"] for p in done)
    return float(rows / (sum(p["durationMs"]["triggerExecution"] for p in done) / 1e3))


def session(folder: Path) -> Any:
    """Start a Spark of two cores."""
    import os

    from pyspark.sql import SparkSession

    java = find_java(newest=newest_for_spark(version("pyspark")))
    os.environ["JAVA_HOME"] = str(spark_home(java, cache_folder()))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.appName("spark_engine")
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )


def main() -> None:
    batches = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    rows = int(sys.argv[2]) if len(sys.argv) > 2 else 500_000
    program, source = ketal.compile(PATTERN), Source(keyed_by="key")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "events").mkdir()
        write_events(folder / "events", batches, rows)
        spark = session(folder)

        def events() -> Any:
            reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1")
            return reader.parquet(str(folder / "events"))

        nothing = [f"{name} string" for name in COLUMNS]
        ratios = []
        for turn in range(ROUNDS):
            frame = shaped(events(), families(program, 16), source=source, lateness_ms=None).frame
            idle = frame.groupBy("group").applyInPandasWithState(
                Nothing().stateful, ", ".join(nothing), "state binary", "append", "NoTimeout"
            )
            idle_rate = rate(spark, idle, folder / f"idle-{turn}")
            judging_rate = rate(
                spark, detect(program, events(), source=source), folder / f"judging-{turn}"
            )
            ratios.append(judging_rate / idle_rate)
            print(
                f"does nothing {idle_rate:,.0f} rows/s, judges {judging_rate:,.0f} rows/s, "
                f"ratio {ratios[-1]:.2f}"
            )
        print(f"ratio {statistics.median(ratios):.2f}; 0.85 is asked for")
        spark.stop()


if __name__ == "__main__":
    main()
