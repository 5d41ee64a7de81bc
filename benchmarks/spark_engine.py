"""The Spark operator against one of the same shape that does nothing.

Run by hand: `python benchmarks/spark_engine.py [batches] [rows a batch] [tasks]`; it needs no
broker. All operators get the same rows of 16 key groups and write a state of bytes. One does not
look at them, one reads their JSON and no more, and one judges them (a check, 10,000 keys, 3 %
verdicts). 85 % of the rate of the first are asked for; the second says what is left for judging.
The first batch, in which workers start, is not part of it. Beside the rates, which others on the
machine disturb, stand the processor's times, of the JVM and the workers together. As many tasks as
there are cores leave none idle; half as many leave each worker a core of its own beside that of its
task in the JVM.
"""

from __future__ import annotations

import gc
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
from ketal.limits import Limits
from ketal.logs import Source
from ketal.monitor import BATCH_EVENTS
from ketal.streaming.folders import cache_folder
from ketal.streaming.java import find_java, newest_for_spark, spark_home
from ketal.streaming.messages import Reader
from ketal.streaming.spark import detect
from ketal.streaming.spark.families import families
from ketal.streaming.spark.group import ALONE, COLUMNS
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
    """An operator of the same shape: all columns, all rows, a state of bytes, no answer.

    Parameters
    ----------
    reads : bool
        Whether it reads the messages, too.
    """

    settled = False

    def __init__(self, *, reads: bool = False) -> None:
        self.reads = reads

    def stateful(self, key: tuple[Any, ...], frames: Iterable[Any], state: Any) -> Iterator[Any]:
        """Take the rows, and say nothing."""
        import pandas

        if not Nothing.settled:
            gc.collect()
            gc.freeze()
            Nothing.settled = True
        rows = 0
        reader = Reader(Source(), Limits())
        for frame in frames:
            rows += len(frame)
            values = frame["value"][frame["copy"] == ALONE].tolist() if self.reads else []
            for first in range(0, len(values), BATCH_EVENTS):
                assert reader.events(values[first : first + BATCH_EVENTS]) is not None
        state.update((rows.to_bytes(8, "big"),))
        yield pandas.DataFrame([], columns=list(COLUMNS))


def processor_s() -> float:
    """Return the processor's seconds that the processes below this one have taken."""
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
    """Return a query's rows a second, its first batch left out, and microseconds a row."""
    begin_s = processor_s()
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    took_us = (processor_s() - begin_s) / rows * 1e6
    done = [p for p in query.recentProgress if p["numInputRows"]][1:]
    measured = sum(p["numInputRows"] for p in done)
    return measured / (sum(p["durationMs"]["triggerExecution"] for p in done) / 1e3), took_us


def session(folder: Path, tasks: int) -> Any:
    """Start a Spark that runs so many tasks at once, each in the JVM and a worker."""
    from pyspark.sql import SparkSession

    java = find_java(newest=newest_for_spark(version("pyspark")))
    os.environ["JAVA_HOME"] = str(spark_home(java, cache_folder()))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.appName("spark_engine")
        .master(f"local[{tasks}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.shuffle.partitions", str(tasks))
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )


def main() -> None:
    batches = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    rows = int(sys.argv[2]) if len(sys.argv) > 2 else 500_000
    tasks = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    program, source = ketal.compile(PATTERN), Source(keyed_by="key")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "events").mkdir()
        write_events(folder / "events", batches, rows)
        spark = session(folder, tasks)

        def events() -> Any:
            reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1")
            return reader.parquet(str(folder / "events"))

        nothing = ", ".join(f"{name} string" for name in COLUMNS)
        ratios = []
        for turn in range(ROUNDS):
            rates, times_us = [], []
            for what in ("nothing", "reads", "judges"):
                if what == "judges":
                    frame = detect(program, events(), source=source)
                else:
                    rowed = shaped(events(), families(program, 16), source=source, lateness_ms=None)
                    frame = rowed.frame.groupBy("group").applyInPandasWithState(
                        Nothing(reads=what == "reads").stateful,
                        nothing, "state binary", "append", "NoTimeout",
                    )  # fmt: skip
                found = rate(spark, frame, folder / f"{what}-{turn}", batches * rows)
                rates.append(found[0])
                times_us.append(found[1])
            ratios.append(rates[2] / rates[0])
            print(
                "does nothing, reads, judges: "
                + ", ".join(f"{each:,.0f}" for each in rates)
                + " rows/s; processor "
                + ", ".join(f"{each:.1f}" for each in times_us)
                + f" us a row: {ratios[-1]:.2f} of nothing's rate, {rates[2] / rates[1]:.2f} of "
                + f"reading's; by the processor {times_us[0] / times_us[2]:.2f} and "
                + f"{times_us[1] / times_us[2]:.2f}",
                flush=True,
            )
        print(f"ratio {statistics.median(ratios):.2f}; 0.85 is asked for")
        spark.stop()


if __name__ == "__main__":
    main()
