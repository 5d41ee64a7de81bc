"""Events of a log without clocks: `--clock none`.

What is known of such a log is the order of its records. So the nth event of a node in the log has
the counter n, and its clock has no entry of another node. Nothing is known of the order between
nodes: the log names `none` in `undecided`, and patterns that ask for happened-before are refused.
A message of a topic is identified by its partition and offset instead
(`ketal.streaming.job.messages`).

The one rule: an event is identified by its place among the records, so that each reading gives it
the same dot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ketal.logs.shape import with_clock
from ketal.model.events.event import Event
from ketal.model.log_arguments import LogItem, RecordBatch


def with_own_entry(event: Event, counter: int) -> Event:
    """Return an event with a clock that has only its node's own entry."""
    return with_clock(event, {event.node: counter}, (), 1)


def numbered(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Yield the batches, each event with its place among its node's events as its counter."""
    counters: Counter[tuple[str, str]] = Counter()

    def with_counter(execution: str, item: LogItem) -> LogItem:
        if not isinstance(item, Event):
            return item
        counters[execution, item.node] += 1
        return with_own_entry(item, counters[execution, item.node])

    for batch in batches:
        yield replace(batch, items=[with_counter(batch.execution, item) for item in batch.items])
