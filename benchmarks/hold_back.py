"""The cost of the hold-back queue: for logs reversed, in order, and displaced within bounds.

Run by hand: `python benchmarks/hold_back.py [events]`. A fully reversed log is held back until its
last event, and must be released in linear time: ten times the events may take at most twelve times
as long. The largest memory in use, and the memory in use when the queue is empty again, are
printed. Garbage collection is set as the commands set it.

Below that are the costs of streams with lost events, and with shrunk clocks, for one, two and four
times the events.
"""

from __future__ import annotations

import gc
import random
import sys
import time
import tracemalloc
from collections.abc import Sequence
from typing import Any

import ketal
from benchmarks.executions import displaced, execution
from ketal.cli.process_state import COLLECT_AFTER
from ketal.model.events.event import Event
from ketal.operators.membership.members import MembershipStage
from ketal.operators.order.hold_back import HoldBackQueue
from ketal.operators.order.release_options import ReleaseOptions

NODES = 8
NAMES = tuple(f"n{i}" for i in range(NODES))
POLICIES: dict[str, dict[str, Any]] = {
    "eager": {"policy": "eager"},
    "eager, gap": {"policy": "eager", "gap_us": 10**12, "idle_us": 10**12},
    "total": {"policy": "total", "nodes": NAMES},
    "total, gap": {"policy": "total", "nodes": NAMES, "gap_us": 10**12, "idle_us": 10**12},
    "frontier": {"policy": "frontier", "frontier_us": 1_000_000},
}
ROUNDS = 5
BATCH = 512
"""How many events are taken together."""


def seconds(events: Sequence[Event], options: dict[str, Any]) -> float:
    """Return the shortest time in which a queue takes and releases all events."""
    best = float("inf")
    batches = [events[begin : begin + BATCH] for begin in range(0, len(events), BATCH)]
    for _ in range(ROUNDS):
        queue = HoldBackQueue(ReleaseOptions(held_back_max=len(events), **options))
        gc.collect()
        begun = time.process_time()
        released = sum(len(step.released) for batch in batches for step in queue.take(batch))
        released += len(queue.end().released)
        best = min(best, time.process_time() - begun)
        assert released == len(events), f"{released} of {len(events)} released"
    return best


def memory(events: Sequence[Event], options: dict[str, Any]) -> tuple[int, int]:
    """Return the bytes in use when most events are held back, and when the queue is empty."""
    gc.collect()
    tracemalloc.start()
    queue = HoldBackQueue(ReleaseOptions(held_back_max=len(events), **options))
    begun = tracemalloc.get_traced_memory()[0]
    for event in events[:-1]:
        queue.push(event)
    most = tracemalloc.get_traced_memory()[0] - begun
    queue.push(events[-1])
    if len(queue):
        queue.end()
    gc.collect()
    left = tracemalloc.get_traced_memory()[0] - begun
    tracemalloc.stop()
    return most, left


def time_with_losses(
    count: int, share: float, pattern: str, order: str = "order CausalOrder(gap = 1 s);"
) -> float:
    """Return the time of a monitor for `count` events, which are a share of an execution."""
    rng = random.Random(3)
    events = [event for event in execution(round(count / share)) if rng.random() < share]
    made = ketal.compile(
        f'pattern P {{ {order} event A = type == "a"; event B = type == "b"; {pattern} }}'
    )
    named = [
        Event(node=x.node, type="ab"[number % 2], clock=x.clock, time=x.time)
        for number, x in enumerate(events)
    ]
    monitor = ketal.Monitor(made)
    begun = time.process_time()
    monitor.feed_many(named)
    monitor.close()
    return time.process_time() - begun


def time_with_shrunk_clocks(count: int) -> float:
    """Return the time of `total` for a reversed log in the middle of which a node leaves."""
    events = execution(count)
    middle = count // 2
    staying = [event for event in events[middle:] if event.node != "n0"]
    for event in staying:
        event.clock.pop("n0", None)
    stage = MembershipStage()
    queue = HoldBackQueue(ReleaseOptions(policy="total", nodes=NAMES[1:]))
    queue.restore_clocks(stage.restorer)
    stage.leave("n0")
    queue.leave("n0")
    begun = time.process_time()
    for event in reversed(events[:middle] + staying):
        stage.arrived(event)
        stage.restorer.restore_so_far(event)
        queue.push(event)
    queue.end()
    return time.process_time() - begun


TOPOLOGY = "topology open { n0 -> n1; n1 -> n2; n2 -> n3 relaxed; n0 -> n3 relaxed; }"
LONG_GAP = "order CausalOrder(gap = 100 s);"
GROWTH: dict[str, Any] = {
    "find any, a tenth": lambda n: time_with_losses(
        n, 0.1, 'event C = type == "c"; find any A C; within 1 s;'
    ),
    "find any, matches": lambda n: time_with_losses(n, 0.1, "find any A B; within 20 ms;"),
    "check, a half": lambda n: time_with_losses(n, 0.5, "check (A | B)*;"),
    "check, long gap": lambda n: time_with_losses(n, 0.5, "check (A | B)*;", LONG_GAP),
    "check, topology": lambda n: time_with_losses(n, 0.5, "check (A | B)*;", LONG_GAP + TOPOLOGY),
    "find next, a half": lambda n: time_with_losses(n, 0.5, "find next A B;"),
    "total, shrunk": time_with_shrunk_clocks,
}


def growth(count: int) -> None:
    """Print the costs of streams with losses and with shrunk clocks."""
    counts = (count, 2 * count, 4 * count)
    print("seconds   " + "".join(f"{n:>10,}" for n in counts).rjust(41))
    for name, measured in GROWTH.items():
        print(f"{name:20}" + "".join(f"{measured(n):10.2f}" for n in counts), flush=True)


def main(count: int) -> None:
    gc.set_threshold(COLLECT_AFTER, 20, 50)
    events = execution(count)
    tenth = execution(count // 10)
    print(f"{count:,} events over {NODES} nodes; rates are events/s")
    print(f"{'':12} {'reversed':>10} {'÷ a tenth':>10} {'held MB':>8} {'left MB':>8}", end="")
    print(f" {'in order':>10} {'displaced':>10}")
    for name, options in POLICIES.items():
        if name == "frontier":
            # Reversed, all events but the last would be late, as their successors are released.
            print(f"{name:12} {'-':>10} {'-':>10} {'-':>8} {'-':>8}", end="")
        else:
            long, short = seconds(events[::-1], options), seconds(tenth[::-1], options)
            most, left = memory(events[::-1], options)
            print(f"{name:12} {count / long:10,.0f} {long / short:10.1f}", end="")
            print(f" {most / 1e6:8.1f} {left / 1e6:8.1f}", end="")
        print(f" {count / seconds(events, options):10,.0f}", end="")
        print(f" {count / seconds(displaced(events, 500), options):10,.0f}")


if __name__ == "__main__":
    events_count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    main(events_count)
    growth(events_count // 40)
