"""Decoding of Kafka messages to events.

The value of a message is one JSON object, which is decoded like a line of a log. `[source] fields`
can also take fields from its key, its headers and its timestamp, as `kafka.key`,
`kafka.header.NAME` and `kafka.timestamp`, which is in the unit of the source's times.

If the messages have no clocks (`clock = "none"`), the node of an event is `topic/partition` and its
counter is the offset plus one, so that a message that is read again is a duplicate.

The one rule: a message that is not an event is a rejection that names topic, partition and offset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ketal.clocks.scheme import NO_CLOCKS
from ketal.errors import EventError
from ketal.logs.clock_translation import with_own_entry
from ketal.logs.formats.jsonl import decoded
from ketal.logs.log_records import brief_reason
from ketal.logs.record_terms import MESSAGE_IN_TOPIC, RecordTerms
from ketal.logs.shape import Item, Shape
from ketal.logs.source import KAFKA, MappedFields, Path, Source
from ketal.logs.times import TIME_UNITS
from ketal.model.events.event import Event, decode_events
from ketal.model.limits import Limits
from ketal.model.log_arguments import LogItem
from ketal.model.verdicts.execution_verdicts import Rejected


def place_of(record: Any) -> str:
    """Return the place of a record: `topic/partition/offset`."""
    return f"{record.topic}/{record.partition}/{record.offset}"


def message_paths(source: Source) -> dict[str, Path]:
    """Return the path of each field of an event in the messages of a source."""
    return Shape(source, terms=MESSAGE_IN_TOPIC).paths


class MessageMetadata:
    """The parts of a message, beside its value, that the fields of an event are taken from.

    `key`, `timestamp` and `partition` are whether some field is taken from there; `headers` are the
    names of the headers that fields are taken from.
    """

    def __init__(self, paths: Mapping[str, Path]) -> None:
        needed = {path[1:] for path in paths.values() if path[0] == KAFKA}
        self.key = ("key",) in needed
        self.timestamp = ("timestamp",) in needed
        self.partition = ("partition",) in needed
        self.headers = tuple(sorted(path[1] for path in needed if path[0] == "header"))


class MessageReader:
    """Decodes messages of at most `line_bytes_max` bytes, as a source describes them.

    `mapped` tracks which fields some message has.
    """

    def __init__(
        self,
        source: Source,
        limits: Limits,
        *,
        terms: RecordTerms = MESSAGE_IN_TOPIC,
        mapped: MappedFields | None = None,
    ) -> None:
        self.shape = Shape(source, limits=limits, terms=terms, mapped=mapped)
        """Where the fields of an event are in the JSON object."""
        self._noun = terms.text
        self._plain = self.shape.plain
        self._bytes_max = limits.line_bytes_max
        # A message of this length cannot exceed a limit: a clock entry takes at least five bytes.
        self._short = min(5 * limits.clock_entries_max, limits.line_bytes_max)
        self._needed = MessageMetadata(self.shape.paths)
        self._units = TIME_UNITS[source.time_unit]
        self._has_clocks = source.clock != NO_CLOCKS

    def items(self, values: Sequence[bytes | None], record: Callable[[int], Any]) -> list[LogItem]:
        """Return for each message its event, its control event, or the rejection of it.

        `record` returns the ConsumerRecord of the message at an index; it is called for messages
        that the fast path, which needs the value only, does not decode.
        """
        return [
            self._decode_record(record(number)) if event is None else event
            for number, event in enumerate(self._plain_events(values))
        ]

    def _plain_events(self, values: Sequence[bytes | None]) -> Sequence[Event | None]:
        """Decode the messages that the fast path can decode; return None for each other one.

        The fast path is for sources without mapped fields, and for short messages.
        """
        if not self._plain:
            return [None] * len(values)
        short = self._short
        # An empty text is not JSON, so it is not decoded here either.
        return decode_events([v if v is not None and len(v) <= short else b"" for v in values])

    def _decode_record(self, record: Any) -> LogItem:
        """Decode a record field by field, which finds the reason if it is not an event."""
        try:
            return self._item(record)
        except EventError as fault:
            return Rejected(place=place_of(record), reason=brief_reason(fault.reason))

    def _item(self, record: Any) -> Item:
        value = record.value
        if value is None:
            raise EventError(f"the {self._noun} has no value (a tombstone)")
        if len(value) > self._bytes_max:
            raise EventError(
                f"the {self._noun} has {len(value)} bytes, more than {self._bytes_max} "
                "(limit line_bytes_max)"
            )
        item = decoded(value, self.shape, self._metadata(record))
        if self._has_clocks or not isinstance(item, Event):
            return item
        return with_own_entry(item, record.offset + 1)

    def _metadata(self, record: Any) -> dict[str, Any]:
        out: dict[str, Any] = {}
        if self._needed.key and record.key is not None:
            out["key"] = _utf8_text(record.key, "key")
        if self._needed.timestamp and record.timestamp >= 0:  # else it has none
            out["timestamp"] = record.timestamp * self._units / 1_000
        if self._needed.partition:
            out["partition"] = f"{record.topic}/{record.partition}"
        last = {name: value for name, value in record.headers if name in self._needed.headers}
        headers = {
            name: _utf8_text(value, f"header {name}")
            for name, value in last.items()
            if value is not None
        }
        if headers:
            out["header"] = headers
        return out


def _utf8_text(value: bytes, what: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as fault:
        raise EventError(
            f"the message's {what} is not valid UTF-8 (byte {fault.start + 1})"
        ) from None
