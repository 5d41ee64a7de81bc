"""Decoding: a Kafka message to an event.

A message's value is one JSON object, decoded as a line of a log is. Its key, its headers and its
timestamp are available to `[source] fields`, as `kafka.key`, `kafka.header.NAME` and
`kafka.timestamp`, in the unit of the source's times.

The one rule: a message that is no event is a rejection that names topic, partition and offset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from ketal.errors import EventError
from ketal.logs.formats.jsonl import decoded, may_hold_control
from ketal.logs.log_records import brief_reason
from ketal.logs.shape import KAFKA, Item, Shape
from ketal.logs.source import Source
from ketal.logs.times import TIME_UNITS
from ketal.model.events.event import Event
from ketal.model.events.event_decoding import decode_events
from ketal.model.limits import Limits
from ketal.model.verdicts.execution_verdicts import Rejected


def place_of(record: Any) -> str:
    """Return where a record was read: `topic/partition/offset`."""
    return f"{record.topic}/{record.partition}/{record.offset}"


class Outside:
    """What the fields of an event need of a message beside its value.

    Attributes
    ----------
    key, timestamp : bool
        Whether they need its key, its timestamp.
    headers : tuple of str
        The names of the headers that they need.
    """

    def __init__(self, paths: Mapping[str, tuple[str, ...]]) -> None:
        needed = {path[1:] for path in paths.values() if path[0] == KAFKA}
        self.key = ("key",) in needed
        self.timestamp = ("timestamp",) in needed
        self.headers = tuple(sorted(path[1] for path in needed if path[0] == "header"))


class Reader:
    """Reads messages, of `line_bytes_max` at most, as a source says."""

    def __init__(self, source: Source, limits: Limits) -> None:
        self._shape = Shape(source, limits=limits, kafka=True)
        self._plain = self._shape.plain
        self._bytes_max = limits.line_bytes_max
        # Up to this length no message exceeds a limit: a clock's entry takes five bytes at least.
        self._short = min(5 * limits.clock_entries_max, limits.line_bytes_max)
        self._needed = Outside(self._shape.paths)
        self._units = TIME_UNITS[source.time_unit]

    def items(
        self, values: Sequence[bytes | None], record: Callable[[int], Any]
    ) -> list[Item | Rejected]:
        """Return what each of some messages is: an event, a control event, or why it is neither.

        `record` returns the ConsumerRecord of a number, for a message whose value is not enough.
        """
        return [
            self._decoded(record(number)) if event is None else event
            for number, event in enumerate(self._plain_events(values))
        ]

    def _plain_events(self, values: Sequence[bytes | None]) -> Sequence[Event | None]:
        """Return the events that are written plainly; None for what may be anything else."""
        if self._plain and None not in values:
            written = cast("Sequence[bytes]", values)
            longest = max(map(len, written), default=0)
            if longest <= self._short and not may_hold_control(b" ".join(written)):
                return decode_events(written)
        if not self._plain or len(values) == 1:
            return [None] * len(values)
        return [event for value in values for event in self._plain_events((value,))]

    def _decoded(self, record: Any) -> Item | Rejected:
        """Return what a record is, decoded field by field, which finds why it is no event."""
        try:
            return self._item(record)
        except EventError as fault:
            return Rejected(place=place_of(record), reason=brief_reason(_of_message(fault.reason)))

    def _item(self, record: Any) -> Item:
        value = record.value
        if value is None:
            raise EventError("the message has no value (a tombstone)")
        if len(value) > self._bytes_max:
            raise EventError(
                f"the message has {len(value)} bytes; line_bytes_max is {self._bytes_max}"
            )
        return decoded(value, self._shape, self._outside(record))

    def _outside(self, record: Any) -> dict[str, Any]:
        out: dict[str, Any] = {}
        if self._needed.key and record.key is not None:
            out["key"] = _text(record.key, "key")
        if self._needed.timestamp and record.timestamp >= 0:  # else it has none
            out["timestamp"] = record.timestamp * self._units / 1_000
        headers = {
            name: _text(value, f"header {name}")
            for name, value in record.headers
            if name in self._needed.headers and value is not None
        }
        if headers:
            out["header"] = headers
        return out


def _text(value: bytes, what: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as fault:
        raise EventError(
            f"the message's {what} is not valid UTF-8 (byte {fault.start + 1})"
        ) from None


def _of_message(reason: str) -> str:
    """Return a reason about a line of a file as one about a message, without hints about files."""
    if not reason.startswith("the line "):
        return reason
    return "the message " + reason.removeprefix("the line ").partition(" (")[0]
