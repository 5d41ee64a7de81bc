"""Decoding on the executors: a row of a key group to its event."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec

from ketal.errors import EventError
from ketal.logs.log_records import brief_reason
from ketal.logs.shape import TIME_HINT_OF_SOURCE, Item, Shape
from ketal.logs.source import Source
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical_key
from ketal.model.limits import Limits
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.streaming.job.messages import Reader, place_of

ALONE, HOME, COPY, PLACED = 0, 1, 2, 3
"""A row that one group of each family has; of a control event's rows the one that counts, and the
others; one that says where a value is."""
NO_TIMESTAMP = -1
"""The timestamp of a message that has none, as Kafka has it."""

Row = tuple[Any, ...]
SourcePartition = tuple[str, int] | None


@dataclass(frozen=True)
class RowShape:
    """What the rows of key groups have."""

    columns: tuple[str, ...]
    """The columns of a row, after the group's number."""
    headers: tuple[str, ...]
    """The headers whose values are the columns `header0`, `header1`, …."""
    source: Source | None
    """How a message becomes an event; None for rows that have an event's columns."""


class RowReader:
    """Reads rows, one after another."""

    def __init__(self, shape: RowShape, limits: Limits) -> None:
        self._at = {name: place for place, name in enumerate(shape.columns)}
        self._source = shape.source
        self._texts = [name for name in ("clock", "data") if name in self._at]
        self._headers = [(name, self._at[f"header{n}"]) for n, name in enumerate(shape.headers)]
        self._shape = Shape(Source(), limits=limits, kafka=True)
        self._reader = Reader(shape.source or Source(), limits)
        # A row as `Reader` reads it, reused for each.
        self._message = SimpleNamespace(
            topic=None, partition=0, offset=0, key=None, headers=(), timestamp=NO_TIMESTAMP
        )
        self.has_offsets = "offset" in self._at
        """Whether rows have an order of their own: topic, partition and offset."""
        self.value = self._at["value"]
        """The place of the message's value in a row."""

    def events(self, rows: Sequence[Row]) -> list[Event] | None:
        """Return the events of rows; None if one of them needs `item`."""
        if not rows or self._texts:
            return None
        value = self.value
        return self._reader.events([row[value] for row in rows])

    def begin(self, row: Row) -> None:
        """Begin a row: `place` and `partition` are its own from now on."""
        message = self._message
        if self.has_offsets:
            message.topic, message.partition, message.offset = row[1:4]

    @property
    def partition(self) -> SourcePartition:
        """The topic and partition of the row that was begun; None without offsets."""
        message = self._message
        return None if message.topic is None else (message.topic, message.partition)

    @property
    def place(self) -> str:
        """Where the row that was begun was read; empty without offsets."""
        return "" if self._message.topic is None else place_of(self._message)

    def item(self, row: Row) -> Item | Rejected:
        """Return the item of the row that was begun."""
        at, message = self._at, self._message
        message.value = row[self.value]
        if self._source is None:
            return self._of_columns(row)
        message.key = row[at["key"]] if "key" in at else None
        if "timestamp" in at:
            since_ms = row[at["timestamp"]]
            message.timestamp = NO_TIMESTAMP if since_ms is None else since_ms
        if self._headers:
            message.headers = [(name, row[place]) for name, place in self._headers]
        return self._reader.item(message)

    def _of_columns(self, row: Row) -> Item | Rejected:
        """Return the item of a row that has an event's columns, of which JSON texts are apart."""
        at = self._at
        texts = [name for name in self._texts if row[at[name]] is not None]
        if not texts:
            item = self._reader.item(self._message)
            return self._no_event(item.reason) if isinstance(item, Rejected) else item
        record = msgspec.json.decode(row[self.value])
        try:
            for name in texts:
                record[name] = _decoded(row[at[name]], name)
            return self._shape.item(record)
        except EventError as fault:
            return self._no_event(fault.reason)

    def _no_event(self, reason: str) -> Rejected:
        reason = reason.replace("the message", "the row").replace("the record", "the row")
        # Rows that have an event's columns have no source.
        reason = reason.removesuffix(TIME_HINT_OF_SOURCE)
        return self.rejected(brief_reason(reason))

    def rejected(self, reason: str) -> Rejected:
        """Return a rejection of the row that was begun."""
        return Rejected(place=self.place or "a row", reason=reason)

    def in_canonical_order(self, rows: Iterable[Row]) -> list[Row]:
        """Return rows without offsets in an order that respects happened-before, controls last."""
        keyed = []
        for row in rows:
            self.begin(row)
            item = self.item(row)
            first = canonical_key(item) if isinstance(item, Event) else (0, "", 0)
            rank = 2 if isinstance(item, Control) else 1
            keyed.append(((rank, *first), row))
        keyed.sort(key=lambda pair: pair[0])
        return [row for _, row in keyed]


def _decoded(text: str, what: str) -> Any:
    # A clock may be written in other ways; the shape reads those.
    if what == "clock":
        return text
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError) as fault:
        raise EventError(f"{what} is not JSON: {fault}") from None
