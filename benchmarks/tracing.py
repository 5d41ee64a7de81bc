"""The cost of tracing a call, compared with the bare call.

Run by hand: `python -m benchmarks.tracing [calls]`. The works run alternately in one process; for
each, the median time per call is printed, and its difference from the bare call.
"""

from __future__ import annotations

import queue
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from ketal.trace import TracedQueue, Tracer

TURNS = 9


class _Nowhere:
    """A sink that discards events."""

    def write(self, event: object) -> None:
        pass


def _bare(value: int, key: str = "k") -> int:
    return value + len(key)


def _works(folder: Path) -> dict[str, Callable[[], Any]]:
    nowhere, file = Tracer("n", _Nowhere()), Tracer("n", folder / "n.jsonl")
    task = Tracer("n", folder / "t.jsonl", activity="task")
    plain: queue.Queue[int] = queue.Queue()
    traced = TracedQueue(queue.Queue(), file)
    unstamped, stamped = nowhere.event(_bare), file.event(_bare)
    in_task, short = task.event(_bare), file.event(arguments=False, result=False)(_bare)
    headers = {"ketal-clock": "1;m;" + ",".join(f"n{k}=7" for k in range(9)) + ",m=3"}

    def through(jobs: Any) -> None:
        jobs.put(1)
        jobs.get()

    return {
        "the bare call": lambda: _bare(3),
        "@event, to nowhere": lambda: unstamped(3),
        "@event, to a file": lambda: stamped(3),
        "@event, a line for each task": lambda: in_task(3),
        "@event, without arguments and result": lambda: short(3),
        "send": file.send,
        "receive, of ten nodes": lambda: file.receive(headers),
        "a queue, put and get": lambda: through(plain),
        "a traced queue, put and get": lambda: through(traced),
    }


def main(calls: int) -> None:
    """Print the time of each work."""
    with tempfile.TemporaryDirectory() as folder:
        works = _works(Path(folder))
        taken: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(TURNS):
            for name, work in works.items():
                began = time.perf_counter()
                for _ in range(calls):
                    work()
                taken[name].append((time.perf_counter() - began) / calls * 1e6)
    bare = median(taken["the bare call"])
    for name, times in taken.items():
        print(f"{name:38} {median(times):7.2f} us  +{median(times) - bare:6.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000)
