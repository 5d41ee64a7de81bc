"""The size and the time of commits, over a long stream with many scopes.

Run by hand: `python benchmarks/saved_state.py [events]`; it needs no broker. Events of 10,000 keys
are fed to an execution, with a check and a find whose runs continue across commits. Each 10,000
events, `ExecutionState.changes` is written to the database of
`ketal.streaming.kafka.state.folder_store`, as by the process engine. Each line is a tenth of the
stream: bytes and milliseconds per commit, the size of the state, and its size on disk. All lines
should be equal. Then the store alone, with 1,000,000 records of 100 bytes: the first commit, 1,000
commits of 100 records, ten of 10,000, one of all records, and the time to read it.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import ketal
from ketal.model.events.event import Event
from ketal.runtime.execution import Execution
from ketal.streaming.kafka.state.folder_store import FolderStore

KEYS = 10_000
NODES = 20
EACH = 10_000
RECORDS = 1_000_000
PATTERNS = """
event A = type == "a"; event B = type == "b";
pattern Turns { order arrival; check (A B)*; on violation skip; partition by key; }
pattern Pairs { order CausalOrder; find next A B; within 60 s; partition by key; return count; }
"""


def events(count: int) -> Iterator[Event]:
    """Yield events of nodes without messages, with keys that occur on all nodes."""
    chance = random.Random(1)
    for number in range(count):
        node, counter = f"n{number % NODES}", number // NODES + 1
        data = {"key": chance.randrange(KEYS), "text": "x" * 80}
        yield Event(node, chance.choice("ab"), {node: counter}, number / 1_000, data)


def store() -> None:
    """Print the times of the store's commits, by the clock and of the CPU."""
    chance = random.Random(1)
    keys = [b"scope/P/%d" % number for number in range(RECORDS)]
    with tempfile.TemporaryDirectory() as folder:
        saved, name = FolderStore(Path(folder)), ""
        for commits, each in ((1, RECORDS), (1_000, 100), (10, 10_000), (1, RECORDS)):
            some = [
                {key: os.urandom(90) for key in chance.sample(keys, each)} for _ in range(commits)
            ]
            begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
            for changes in some:
                name = saved.write(changes)
                saved.mark_committed()
            print(
                f"{commits:>10,} commits of {each:,} records: "
                f"{1e3 * (time.perf_counter() - begin_s) / commits:,.1f} ms a commit, "
                f"{1e3 * (time.process_time() - begin_cpu_s) / commits:,.1f} ms of a core"
            )
        saved.close()
        begin_s = time.perf_counter()
        FolderStore(Path(folder)).read(name)
        disk = sum(path.stat().st_size for path in Path(folder).iterdir())
        print(f"read in {time.perf_counter() - begin_s:.1f} s, on disk {disk / 1e6:.0f} MB")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    execution = Execution(ketal.compile(PATTERNS), listing=False)
    tenth: list[tuple[int, float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        saved = FolderStore(Path(folder))
        for number, event in enumerate(events(count), 1):
            execution.feed(event)
            if number % EACH:
                continue
            execution.advance_time(number / 1_000 - 1)
            begin = time.perf_counter()
            changes = execution.state.changes()
            made_s = time.perf_counter() - begin
            saved.write(changes)
            saved.mark_committed()
            written = sum(len(key) + len(value or b"") for key, value in changes.items())
            tenth.append((written, made_s, time.perf_counter() - begin))
            if number % (count // 10) == 0:
                sizes, making_s, took_s = map(median, zip(*tenth, strict=True))
                whole = len(execution.state.snapshot())
                disk = sum(path.stat().st_size for path in Path(folder).iterdir())
                print(
                    f"{number:>10,} events: {sizes:,.0f} bytes a commit of {EACH:,}, "
                    f"{1e3 * took_s:.0f} ms ({1e3 * making_s:.0f} ms to make, most "
                    f"{1e3 * max(t for _, _, t in tenth):.0f} ms), "
                    f"state {whole / 1e6:.1f} MB, on disk {disk / 1e6:.1f} MB"
                )
                tenth.clear()
        saved.close()
    store()


if __name__ == "__main__":
    main()
