"""Decoding of rows of key groups to events, on the executors."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec

from ketal.errors import EventError
from ketal.logs.json_faults import why_not_json
from ketal.logs.log_records import brief_reason
from ketal.logs.record_terms import MESSAGE_IN_TOPIC, ROW_OF_EVENT
from ketal.logs.source import MappedFields, Source
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical_key
from ketal.model.limits import Limits
from ketal.model.log_arguments import LogItem
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.streaming.job.messages import MessageReader, place_of
from ketal.streaming.spark.rows.keyed import SEPARATOR

ALONE, HOME, COPY, SAMPLE = 0, 1, 2, 3
"""The kind of a row: an event, which one group of each family gets; the copy of a control event
that is counted; another copy of a control event; a sample (`keyed`)."""
NO_TIMESTAMP = -1
"""Kafka's timestamp of a message without one."""

Row = tuple[Any, ...]
SourcePartition = tuple[str, int] | None


@dataclass(frozen=True)
class RowShape:
    """The columns of the rows of key groups, and what they mean."""

    columns: tuple[str, ...]
    """The columns of a row, after the group's number."""
    headers: tuple[str, ...]
    """The names of the headers in the columns `header0`, `header1`, …."""
    source: Source | None
    """How messages are decoded; None if the rows were made from the columns of events."""


class RowReader:
    """Decodes the rows of one shape."""

    def __init__(self, shape: RowShape, limits: Limits) -> None:
        self._at = {name: place for place, name in enumerate(shape.columns)}
        self._source = shape.source
        self._texts = [name for name in ("clock", "data") if name in self._at]
        self._headers = [(name, self._at[f"header{n}"]) for n, name in enumerate(shape.headers)]
        terms = ROW_OF_EVENT if shape.source is None else MESSAGE_IN_TOPIC
        source = shape.source or Source()
        self.mapped = MappedFields(source.fields)
        """The mapped fields that no row has had."""
        self._reader = MessageReader(source, limits, terms=terms, mapped=self.mapped)
        self.has_offsets = "offset" in self._at
        """Whether rows have topic, partition and offset, and so an order."""

    def items(self, rows: Sequence[Row]) -> list[LogItem]:
        """Return for each row its event, its control event, or the rejection of it."""
        if self._texts:
            return [self._decode_columns(row) for row in rows]
        value = self._at["value"]
        items = self._reader.items([row[value] for row in rows], lambda n: self._message(rows[n]))
        if self._source is None:
            for number, item in enumerate(items):
                if isinstance(item, Rejected):
                    items[number] = self.rejection(rows[number], item.reason)
        return items

    def _message(self, row: Row) -> SimpleNamespace:
        """Return a row as the record of a message, for `MessageReader`."""
        values = {name: row[place] for name, place in self._at.items()}
        since_ms = values.get("timestamp")
        return SimpleNamespace(
            topic=values.get("topic"),
            partition=values.get("partition", 0),
            offset=values.get("offset", 0),
            key=values.get("key"),
            value=values["value"],
            timestamp=NO_TIMESTAMP if since_ms is None else since_ms,
            headers=[(name, row[place]) for name, place in self._headers],
        )

    def _decode_columns(self, row: Row) -> LogItem:
        """Decode a row whose clock or data is JSON text in a column of its own."""
        record = msgspec.json.decode(row[self._at["value"]])
        try:
            for name in self._texts:
                if (text := row[self._at[name]]) is not None:
                    record[name] = _decode_json(text, name)
            return self._reader.shape.item(record)
        except EventError as fault:
            return self.rejection(row, brief_reason(fault.reason))

    def rejection(self, row: Row, reason: str) -> Rejected:
        """Return a rejection of a row."""
        return Rejected(place=self.place(row) or "a row", reason=reason)

    def place(self, row: Row) -> str:
        """Return the place of a row: topic, partition and offset; empty without offsets."""
        return "" if self.partition(row) is None else place_of(self._message(row))

    def partition(self, row: Row) -> SourcePartition:
        """Return the topic and the partition of a row; None without offsets."""
        return (row[1], row[2]) if self.has_offsets and row[1] is not None else None

    def split_sample(self, row: Row) -> tuple[int, Row]:
        """Return the group of a sampled message's key, and the row of the message itself."""
        at = self._at["value"]
        group, _, value = bytes(row[at]).partition(SEPARATOR.encode())
        return int(group), (*row[:at], value, *row[at + 1 :])

    def in_canonical_order(self, rows: Sequence[Row]) -> list[Row]:
        """Sort rows without offsets: events in canonical order, control events last.

        Rejected rows come first.
        """
        ranked = []
        for row, item in zip(rows, self.items(rows), strict=True):
            first = canonical_key(item) if isinstance(item, Event) else (0, "", 0)
            rank = 2 if isinstance(item, Control) else 1
            ranked.append(((rank, *first), row))
        ranked.sort(key=operator.itemgetter(0))
        return [row for _, row in ranked]


def _decode_json(text: str, what: str) -> Any:
    # A clock may have another syntax than JSON, which the shape decodes.
    if what == "clock":
        return text
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError) as fault:
        raise EventError(f"{what} {why_not_json(text, fault)}") from None
