"""What the runs of a pattern no longer need is freed at once, without the garbage collector.

Objects that refer to each other are freed only by the collector, which takes time in proportion to
all that is alive; until then the memory grows.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Sequence

import pytest

import ketal
from benchmarks.executions import execution

TYPES = ("A", "B", "C", "D")
DECLARED = "; ".join(f'event {one} = type == "{one}"' for one in TYPES) + ";"
COUNT, BATCH = 500, 50
LATE_S = 0.02

BODIES = (
    "check (A B* C)*;",
    "find next A B C; within 100 ms;",
    "find next A B+ C; within 100 events;",
    "find next (A | A B) B+ C; within 100 ms;",
    "find next A not B C; within 100 ms;",
    "First = A; find next First not (B && key == First.key) C; within 100 ms;",
    "find next A B; within 20 ms; partition by node;",
    "find next A B; within 20 ms; at every node all;",
    "find strict A B+ C; within 100 ms;",
    "find any A B C; within 20 ms;",
    "find any A B{1,2} C; within 10 ms;",
    "find any A not B C; within 20 ms;",
    "First = A; Last = B && key == First.key; find any First Last; within 20 ms;",
    "find any A B; within 20 ms; partition by node;",
    "find any A B; within 20 ms; at every node receiving;",
)
CAUSAL = (
    "First = A; Second = Causal(B); check (First Second*)*;",
    "First = A; Second = Causal(B); find next First Second; within 100 ms;",
    "First = A; Second = Causal(B); find next First not C Second; within 100 ms;",
    "First = A; Second = Causal(B); find any First Second; within 20 ms;",
    "First = A; Second = Conc(B); find any First Second; within 20 ms;",
    "First = A; Second = Causal(B); find any First not C Second; within 20 ms;",
    "find next A B; within 100 ms; at every node;",
)
PATTERNS = [
    *BODIES,
    *(f"order CausalOrder; {body}" for body in CAUSAL),
    *(f"order CausalOrder(total); {body}" for body in BODIES[:3]),
    *(f"order CausalOrder(gap = 200 ms); {body}" for body in (*BODIES, *CAUSAL)),
]


def arrivals() -> list[ketal.Event]:
    """Return an execution of which some events arrive out of order, twice or never."""
    events = execution(COUNT, types=TYPES)
    order = sorted(range(COUNT), key=lambda number: number + 30 * (number % 7 == 3))
    return [
        events[number]
        for number in order
        if number % 50 != 17
        for _ in range(2 if number % 40 == 5 else 1)
    ]


def feed(monitor: ketal.Monitor, events: Sequence[ketal.Event]) -> int:
    """Feed events and the watermarks that follow them; return how many verdicts there are."""
    verdicts = 0
    for begin in range(0, len(events), BATCH):
        batch = events[begin : begin + BATCH]
        verdicts += len(monitor.feed_many(batch))
        last_s = max(float(event.time or 0) for event in batch)
        verdicts += len(monitor.advance_time(last_s - LATE_S))
    return verdicts


@pytest.mark.parametrize("body", PATTERNS)
def test_nothing_is_left_to_the_garbage_collector(body: str) -> None:
    program = ketal.compile(f"pattern P {{ {DECLARED} {body} }}")
    events = arrivals()
    assert feed(ketal.Monitor(program), events)  # makes the plans, which further monitors use
    monitor = ketal.Monitor(program)
    gc.freeze()  # what exists now is not collected
    gc.disable()
    try:
        feed(monitor, events)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = Counter(type(one).__name__ for one in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.unfreeze()
    assert not left
