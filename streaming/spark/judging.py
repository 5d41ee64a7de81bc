"""Columns of rows, as `ketal.columns` judges them, from either shape of events.

Of Kafka's messages they are read; of rows that have an event's columns they are given
(`ketal.streaming.spark.rows`). Rows of which one has to be looked at closely come between them, so
that every row comes in its turn.

The one rule: every row is in one of the parts, and the parts are in the order of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from operator import contains
from typing import Any

from ketal.columns import Columns, Reader, coded, coded_keys
from ketal.event import Event
from ketal.monitor import BATCH_EVENTS
from ketal.operators.membership import ATTRIBUTE
from ketal.streaming.messages import Reader as MessageReader
from ketal.streaming.spark.table import Table

COUNTER, AT, KEY = "counter", "at", "at0"
"""Columns of rows that have an event's columns and are judged by them: its own entry, 0 where the
event has to be looked at; the attribute that tells scopes, and those that guards read, `at1`,
`at2`, …. Beside them there are `node` and `type`."""
TOGETHER_MIN = 64
"""Fewer rows, between two that have to be looked at, are looked at one by one, too."""

Judged = tuple[Columns | int, int]
"""Columns of rows, or up to where rows have to be looked at; and which row is the first."""


def columns_read(reader: Reader, messages: MessageReader, table: Table) -> Iterator[Judged]:
    """Yield the columns of messages, and between them the rows that have to be looked at.

    Parameters
    ----------
    reader : Reader
        What makes the columns.
    messages : ketal.streaming.messages.Reader
        What reads messages.
    table : Table
        Rows of Kafka.
    """
    values = table.column("value")
    some = _Lists(reader)
    for first in range(0, len(values), BATCH_EVENTS):
        texts = values[first : first + BATCH_EVENTS]
        events = messages.events(texts)
        if events is not None:
            data = [event.data for event in events]
            if not any(map(contains, data, repeat(ATTRIBUTE))):
                some.add(events, data, texts)
                continue
        if some.texts:
            yield some.columns(), first - len(some.texts)
        yield first + len(texts), first
        some = _Lists(reader)
    if some.texts:
        yield some.columns(), len(values) - len(some.texts)


def columns_given(reader: Reader, table: Table) -> Iterator[Judged]:
    """Yield the columns that Spark made, and between them the rows that have to be looked at.

    Parameters
    ----------
    reader : Reader
        What makes the columns.
    table : Table
        Rows with an event's columns.
    """
    names = {name: f"{AT}{n}" for n, name in enumerate(reader.guarded, 1)}
    if not all(map(table.whole_numbers, (KEY, *names.values()))):
        yield table.count, 0
        return
    first = 0
    for last in [*(table.array(COUNTER) == 0).nonzero()[0].tolist(), table.count]:
        if last - first >= TOGETHER_MIN:
            some = table.part(first, last)
            columns = reader.columns(
                some.coded("node"),
                some.array(COUNTER),
                some.coded("type"),
                some.coded(KEY),
                {name: some.column(column) for name, column in names.items()},
                some.picked("value"),
            )
            yield columns, first
            first = last
        if last < table.count:
            yield last + 1, first
            first = last + 1
    if first < table.count:
        yield table.count, first


class _Lists:
    """The columns of events, as lists that grow.

    Parameters
    ----------
    reader : Reader
        What says which are read.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._nodes: list[str] = []
        self._types: list[str] = []
        self._counters: list[int] = []
        self._keys: list[Any] = []
        self._data: dict[str, list[Any]] = {name: [] for name in reader.guarded}
        self.texts: list[bytes] = []

    def add(
        self, events: Sequence[Event], data: Sequence[Mapping[str, Any]], texts: list[bytes]
    ) -> None:
        """Put in events, their attributes and what they were read of."""
        nodes = [event.node for event in events]
        self._nodes += nodes
        self._types += [event.type for event in events]
        self._counters += [e.clock[node] for e, node in zip(events, nodes, strict=True)]
        key = self._reader.key
        self._keys += [of.get(key) for of in data]
        for name, column in self._data.items():
            column += [of.get(name) for of in data]
        self.texts += texts

    def columns(self) -> Columns:
        """Return the columns."""
        return self._reader.columns(
            coded(self._nodes),
            self._counters,
            coded(self._types),
            coded_keys(self._keys),
            self._data,
            self.texts,
        )
