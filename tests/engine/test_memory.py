"""How much memory the events that a run keeps take, beside the events themselves."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import ketal
from benchmarks.executions import execution

COUNT = 20_000


def bytes_after(statement: str, events: Sequence[ketal.Event]) -> int:
    """Return how many bytes a monitor of a pattern takes after it is fed some events."""
    program = ketal.compile(
        f'pattern P {{ event A = type == "A"; event B = type == "B"; {statement} }}'
    )
    monitor = ketal.Monitor(program)
    tracemalloc.start()
    try:
        assert monitor.feed_many(events) == []
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_a_start_that_waits_for_the_last_event_takes_at_most_64_bytes() -> None:
    """Its indexing is deferred; a check sees the same events and keeps none."""
    events = execution(COUNT, types="A")
    waiting = bytes_after("find any A B; within 1000 s;", events)
    assert (waiting - bytes_after("check A*;", events)) / COUNT <= 64
