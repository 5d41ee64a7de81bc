"""A long-running monitor with windows: its resident memory stays constant.

Run by hand: `python -m benchmarks.soak [events]`, with 20,000,000 events for the full result.
Events of eight nodes are generated as they are fed, a millisecond apart, and time is advanced with
each batch. Three patterns keep events for a second: a sequence under `order arrival`, a Conc chain
under CausalOrder, and runs of `next`, whose matches are discarded. It prints the largest resident
memory in each twentieth, and the share by which the largest of the later ones exceeds the second.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import ketal
from ketal.cli.process_state import COLLECT_AFTER

EVENTS = 20_000_000
NODES = 8
POINTS = 20
WARM_POINTS = 2
BATCH = 512
PATTERNS = """
event A = type == "A"; event B = type == "B"; event C = type == "C"; event Z = type == "Z";
pattern Sequence { find any A B Z; within 1 s; }
pattern Chain {
    order CausalOrder; B1 = Conc(B); Z1 = Conc(Z); find any A B1 Z1; within 1 s;
}
pattern Runs { find next A B C; within 1 s; }
"""


def batches(count: int) -> Iterator[list[ketal.Event]]:
    """Yield batches of events, without keeping earlier ones."""
    rng = random.Random(1)
    clocks: list[dict[str, int]] = [{} for _ in range(NODES)]
    for begin in range(0, count, BATCH):
        batch = []
        for number in range(begin, min(begin + BATCH, count)):
            place = rng.randrange(NODES)
            clock, node = clocks[place], f"n{place}"
            if rng.random() < 0.3:
                for other, counter in clocks[rng.randrange(NODES)].items():
                    if counter > clock.get(other, 0):
                        clock[other] = counter
            clock[node] = clock.get(node, 0) + 1
            batch.append(ketal.Event(node, rng.choice("ABCDEFGHIJ"), clock, number / 1_000))
        yield batch


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS
    gc.set_threshold(COLLECT_AFTER, 20, 50)
    monitor = ketal.Monitor(ketal.compile(PATTERNS))
    points: list[int] = []
    fed = largest = 0
    feeding_s = 0.0
    for batch in batches(count):
        begun = time.process_time()
        monitor.feed_many(batch)
        last_s = batch[-1].time
        assert last_s is not None
        monitor.advance_time(last_s)
        feeding_s += time.process_time() - begun
        fed += len(batch)
        largest = max(largest, resident())
        if fed * POINTS >= count * (len(points) + 1):
            points.append(largest)
            largest = 0
            print(f"{fed:>12,} events, {points[-1] / 1e6:.1f} MB", flush=True)
    growth = max(points[WARM_POINTS:]) / points[WARM_POINTS - 1] - 1
    matches = sum(one["matches"] for one in monitor.summary["patterns"].values())
    print(f"{fed} events, {feeding_s:.1f} s of a core, {matches} matches, growth {growth:.5f}")


if __name__ == "__main__":
    main()
