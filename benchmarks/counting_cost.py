"""The cost of counting for vacuity and for unknown comparisons.

Run by hand: `python -m benchmarks.counting_cost [events]`. Each work runs alternately with and
without the counting, after both are warm; the median of the ratios of adjacent runs is printed. The
goal is at most 1.03.
"""

from __future__ import annotations

import gc
import inspect
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median, quantiles
from textwrap import dedent
from typing import Any
from unittest.mock import patch

import ketal
from benchmarks.executions import TYPES, execution
from benchmarks.rows import CAUSAL, CHECK, CONC, EVENTS, ORDERED
from ketal.engine.statistics.comparison_kinds import ProgramKinds
from ketal.engine.statistics.log_names import LogNames
from ketal.engine.statistics.mask_counts import MaskCounts

BATCH = 512
TURNS = 21
PATTERNS = {
    "check": CHECK,
    "check, compared": f"{EVENTS} S = A && time >= 0; check (S|{'|'.join(TYPES[1:])})*;",
    "find any": f"{EVENTS} find any A B Z; within 1000 events;",
    "find any, equal": f"{EVENTS} B1 = B && node == A.node; find any A B1 Z; within 1000 events;",
    "find next": f"{EVENTS} find next A B C; within 1000 events;",
    "Causal chain": f"{ORDERED} {EVENTS} {CAUSAL}",
    "Conc chain": f"{ORDERED} {EVENTS} {CONC}",
}


def _without_counts() -> Any:
    """Return `MaskCounts.add` without the line that counts events."""
    source = dedent(inspect.getsource(MaskCounts.add))
    line = "counted.events += 1\n"
    assert source.count(line) == 1
    names: dict[str, Any] = {"Iterable": Iterable}
    exec(source.replace(line, "\n"), names)
    return names["add"]


def _count_nothing(self: object, batch: Sequence[object]) -> None:
    pass


@contextmanager
def without_counting() -> Iterator[None]:
    """Disable the counting."""
    with (
        patch.object(MaskCounts, "add", _without_counts()),
        patch.object(LogNames, "look", _count_nothing),
        patch.object(ProgramKinds, "look", _count_nothing),
    ):
        yield


def seconds(program: ketal.Program, events: Sequence[ketal.Event]) -> float:
    """Return the CPU seconds that a monitor takes."""
    monitor = ketal.Monitor(program)
    gc.collect()
    began = time.process_time()
    for start in range(0, len(events), BATCH):
        monitor.feed_many(events[start : start + BATCH])
    return time.process_time() - began


def ratios(run: Callable[[], float]) -> list[float]:
    """Return the ratios of adjacent runs with and without the counting."""
    out = []
    for turn in range(TURNS + 2):
        if turn % 2:  # the order alternates
            with_s = run()
            with without_counting():
                without_s = run()
        else:
            with without_counting():
                without_s = run()
            with_s = run()
        if turn >= 2:
            out.append(with_s / without_s)
    return out


def main() -> None:
    """Print a row for each work."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    events = list(execution(count))
    print(f"{'work':16} {'median':>7} {'quartiles':>15}")
    for name, body in PATTERNS.items():
        program = ketal.compile(f"pattern P {{ {body} }}")
        found = ratios(lambda program=program: seconds(program, events))  # type: ignore[misc]
        low, _, high = quantiles(found, n=4)
        print(f"{name:16} {median(found):7.3f} {low:7.3f} {high:7.3f}", flush=True)


if __name__ == "__main__":
    main()
