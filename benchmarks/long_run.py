"""A long-running job: its state, and the time of a commit or a batch, stay constant.

Run by hand: `python benchmarks/long_run.py [events] [process|spark]`, with 10,000,000 events for
the full result; it needs no broker. There are 10,000 keys, a check, and a find with a window over 3
% of the events. `process` is the process engine without Kafka: an `Execution` whose changes are
written to a folder (`FolderStore`) each 20,000 events; `spark` is Spark on files, in 60 batches,
with 16 key groups and RocksDB. Both print ten points. The state grows until windows and limits are
reached; from then on all columns are flat. The last limit is `counters_max`, after 1,000,000 events
with holes, which only the groups of Spark have.
"""

from __future__ import annotations

import gc
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow
import pyarrow.parquet

import ketal
from ketal.cli.process_state import COLLECT_AFTER
from ketal.logs import Source
from ketal.model.events.event import Event, decode_events
from ketal.runtime.execution import Execution
from ketal.streaming.job.file import Job
from ketal.streaming.kafka.state.folder_store import FolderStore
from ketal.streaming.spark import detect
from ketal.streaming.spark.session import spark_session

KEYS = 10_000
NODES = 10
POINTS = 10
COMMIT_EACH = 20_000
BATCHES = 60
EVENTS_PER_S = 1_000
LATENESS_S = 5
SCHEMA = "key binary, value binary, topic string, partition int, offset long"
PATTERN = """
pattern Turns {
    partition by key;
    event Good = type == "good"; event Bad = type == "bad";
    check Good*;
    on violation skip;
}
pattern Together {
    order CausalOrder; partition by key;
    event Bad = type == "bad";
    First = Bad; Second = Conc(Bad);
    find any First Second; within 60 s;
}
"""


def keyed_events(first: int, count: int, chance: random.Random) -> Iterator[tuple[int, bytes]]:
    """Yield the keys and the JSON of events; each 33rd one is bad."""
    for number in range(first, first + count):
        kind = "bad" if number % 33 == 0 else "good"
        node, counter = f"n{number % NODES}", number // NODES + 1
        key = chance.randrange(KEYS)
        yield (
            key,
            f'{{"node":"{node}","type":"{kind}","clock":{{"{node}":{counter}}},'
            f'"time":{number / EVENTS_PER_S},"data":{{"key":{key},"text":"{"x" * 80}"}}}}'.encode(),
        )


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files in a folder; files that vanish meanwhile are skipped."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def latest_changelog_bytes(folder: Path) -> int:
    """Return the bytes of the latest changelog of each of Spark's state stores: the whole state."""
    last: dict[Path, tuple[int, int]] = {}
    for path in folder.rglob("[0-9]*.changelog"):
        one = int(path.name.partition(".")[0]), path.stat().st_size
        last[path.parent] = max(one, last.get(path.parent, (0, 0)))
    return sum(length for _, length in last.values())


def run_execution(program: ketal.Program, count: int, folder: Path) -> None:
    """Feed an execution and save its changes, as the process engine does."""
    print(
        f"{'events':>12} {'events/s':>10} {'commit ms':>10} {'worst':>8} {'MB a commit':>12} "
        f"{'MB on disk':>11} {'live runs':>10} {'MB, most':>9}"
    )
    chance = random.Random(1)
    execution, store = Execution(program), FolderStore(folder)
    at = 0
    for point in range(1, POINTS + 1):
        feeding_s, commits_s, written = 0.0, [], []
        begin = at
        end = count * point // POINTS
        while at < end:
            step = min(COMMIT_EACH, end - at)
            events = decode_events([value for _, value in keyed_events(at, step, chance)])
            assert None not in events
            at += step
            start = time.perf_counter()
            execution.process(cast("list[Event]", events))
            execution.advance_time(at / EVENTS_PER_S - LATENESS_S)
            fed = time.perf_counter()
            changes = execution.state.changes()
            store.write(changes)
            store.mark_committed()
            commits_s.append(time.perf_counter() - fed)
            written.append(sum(len(one or b"") for one in changes.values()))
            feeding_s += fed - start
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{at:>12,} {(at - begin) / (feeding_s + sum(commits_s)):>10,.0f} "
            f"{1e3 * sum(commits_s) / len(commits_s):>10.1f} {1e3 * max(commits_s):>8.1f} "
            f"{sum(written) / len(written) / 1e6:>12.2f} {folder_bytes(folder) / 1e6:>11.1f} "
            f"{execution.counts.live_runs:>10,} {most:>9.0f}",
            flush=True,
        )
    store.close()


def write_files(folder: Path, count: int) -> None:
    """Write a file for each batch, with Kafka's columns."""
    chance = random.Random(1)
    at = 0
    for batch in range(BATCHES):
        step = count * (batch + 1) // BATCHES - at
        rows = list(keyed_events(at, step, chance))
        numbers = range(at, at + step)
        table = pyarrow.table(
            {
                "key": pyarrow.array([b"%d" % key for key, _ in rows], pyarrow.binary()),
                "value": pyarrow.array([value for _, value in rows], pyarrow.binary()),
                "topic": pyarrow.array(["events"] * step, pyarrow.string()),
                "partition": pyarrow.array([n % 4 for n in numbers], pyarrow.int32()),
                "offset": pyarrow.array([n // 4 for n in numbers], pyarrow.int64()),
            }
        )
        write: Any = pyarrow.parquet.write_table  # it ships no types
        write(table, folder / f"{batch:04}.parquet")
        at += step


def run_on_spark(program: ketal.Program, count: int, folder: Path) -> None:
    """Run a streaming query over the files, one per batch."""
    (folder / "events").mkdir()
    write_files(folder / "events", count)
    job = Job(pattern="", topics=["events"], bootstrap_servers="", group_id="long")
    spark, _ = spark_session(job, print)
    # By default Spark keeps the state of 100 batches, and removes older ones once a minute.
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "2")
    spark.conf.set("spark.sql.streaming.stateStore.maintenanceInterval", "5s")
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1")
    source = Source(keyed_by="key")
    verdicts = detect(
        program, reader.parquet(str(folder / "events")), source=source,
        lateness_ms=1_000 * LATENESS_S,
    )  # fmt: skip
    checkpoint = folder / "checkpoint"
    each = BATCHES // POINTS
    took_s: list[float] = []
    verdict_count = at = 0
    print(
        f"{'events':>12} {'events/s':>10} {'batch ms':>10} {'worst':>8} {'MB of state':>12} "
        f"{'MB on disk':>11} {'verdicts':>9}"
    )

    def measure_batch(rows: Any, number: int) -> None:
        nonlocal verdict_count, at
        start = time.perf_counter()
        verdict_count += rows.count()
        took_s.append(time.perf_counter() - start)
        if len(took_s) < each:
            return
        before, at = at, count * (number + 1) // BATCHES
        print(
            f"{at:>12,} {(at - before) / sum(took_s):>10,.0f} {1e3 * sum(took_s) / each:>10,.0f} "
            f"{1e3 * max(took_s):>8,.0f} "
            f"{latest_changelog_bytes(checkpoint / 'state') / 1e6:>12.2f} "
            f"{folder_bytes(checkpoint) / 1e6:>11.1f} {verdict_count:>9,}",
            flush=True,
        )
        took_s.clear()
        verdict_count = 0

    writer = verdicts.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(
        measure_batch
    )
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    ways = sys.argv[2:] or ["process", "spark"]
    program = ketal.compile(PATTERN)
    # As the commands set it.
    gc.set_threshold(COLLECT_AFTER, 20, 50)
    for way in ways:
        with tempfile.TemporaryDirectory() as name:
            print(way)
            {"process": run_execution, "spark": run_on_spark}[way](program, count, Path(name))


if __name__ == "__main__":
    main()
