"""JSON lines: one object per line.

A line with the default fields, `{"node", "type", "clock"}` and perhaps `time`, `id`
and `data`, is decoded directly to an `Event` by msgspec's typed decoder. Every
other line, and every line of a source with paths of its own, is decoded to a mapping first and
converted by `Shape`, which also finds the reason to reject a line. The one
rule: both ways return the same item for the same line; the first is only faster.
"""

from __future__ import annotations

import codecs
import io
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, cast

import msgspec

from ketal.errors import EventError, SettingError, write_error, write_errors, wrong_type
from ketal.logs.json_faults import why_not_json
from ketal.logs.log_records import rejected_item
from ketal.logs.record_terms import RecordTerms
from ketal.logs.shape import Item, Shape, json_type_of
from ketal.logs.source import KAFKA
from ketal.logs.streams import JSON_ARRAY, LongLineError, blocks
from ketal.model.events.control import CONTROL_PREFIX, Control
from ketal.model.events.event import Draft, Event, decode_events
from ketal.model.limits import Limits
from ketal.model.log_arguments import LogItem, Record, RecordBatch, deciding_log
from ketal.model.verdicts.execution_verdicts import Rejected

_TRUNCATED = "Input data was truncated"
_TRAILING = "trailing characters"
_object_decoder = msgspec.json.Decoder()


def read_lines(
    name: str, chunks: Iterator[bytes], shape: Shape, limits: Limits
) -> Iterator[RecordBatch]:
    """Yield the records of a file of JSON lines in order, one batch per block."""
    plain = shape.plain
    # A clock entry takes at least five bytes, so no clock in a shorter block exceeds the limit.
    short = 5 * limits.clock_entries_max
    for number, block in blocks(chunks, limits.line_bytes_max):
        if isinstance(block, EventError):
            if isinstance(block, LongLineError) and JSON_ARRAY.match(block.start):
                block = _no_object([], shape.terms)
            yield RecordBatch("", [rejected_item(block, name, number)], name, [number])
            continue
        if block.isspace():  # The compressed file may be a thousand times smaller than its blanks.
            continue
        lines = block.split(b"\n")
        decoding = plain and len(block) < short
        events = decode_events(lines) if decoding else [None] * len(lines)
        if all(events):
            places = range(number, number + len(lines))
            yield RecordBatch("", cast("list[Event]", events), name, places)
            continue
        items: list[LogItem] = []
        numbers: list[int] = []
        for at, (line, event) in enumerate(zip(lines, events, strict=True), number):
            item = _line_item(line, shape, name, at) if event is None else event
            if item is not None:
                items.append(item)
                numbers.append(at)
        if items:
            yield RecordBatch("", items, name, numbers)
        if decoding:
            # Stop trying the typed decoder if it fails for most events.
            together = len(events) - events.count(None)
            plain = [*map(type, items)].count(Event) <= 2 * together


def _line_item(line: bytes, shape: Shape, name: str, at: int) -> LogItem | None:
    """Return the item of a line; None if it is blank."""
    if not line or line.isspace():
        return None
    try:
        return decoded(line, shape)
    except EventError as fault:
        return rejected_item(fault, name, at)


def decoded(line: bytes, shape: Shape, outside: dict[str, Any] | None = None) -> Item:
    """Decode a JSON object to an event or a control event.

    `outside` has the `key`, `header`s and `timestamp` of the Kafka message, if `shape` has paths to
    them. Raises an EventError if the bytes are not a JSON object, or it is not a valid event.
    """
    try:
        record: Any = _object_decoder.decode(line)
    except (ValueError, RecursionError) as fault:
        raise EventError(_text_error(line, fault, shape.terms)) from None
    if record.__class__ is not dict:
        raise _no_object(record, shape.terms)
    if outside:
        record[KAFKA] = outside
    return shape.item(record)


def _no_object(value: Any, terms: RecordTerms) -> EventError:
    """Return the error for a text that is JSON, but not an object."""
    hint = terms.hint("array") if isinstance(value, list) else ""
    return EventError(f"the {terms.text} is {json_type_of(value)}, not a JSON object{hint}")


def _text_error(text: bytes, fault: Exception, terms: RecordTerms) -> str:
    """Return why the text of a record is not JSON."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return f"the {terms.text} is not valid UTF-8 (byte {error.start + 1})"
    if isinstance(fault, RecursionError):
        return f"the {terms.record} is nested too deeply"
    not_json = f"the {terms.text} is not JSON"
    if b"\0" in text:
        return f"{not_json}: it contains NUL bytes{terms.hint('format')}"
    if text.startswith(codecs.BOM_UTF8):
        return f"{not_json}: it begins with a byte order mark"
    if text.lstrip()[:1] not in (b"{", b"["):
        return f"{not_json}{terms.hint('format')}" if text.strip() else f"{not_json}: it is empty"
    why = why_not_json(text.decode(), fault)
    if why.endswith(_TRUNCATED):
        # Most often this is not damage but indented JSON.
        kind = "array" if text.lstrip().startswith(b"[") else "object"
        return f"{not_json}: the {kind} is incomplete{terms.hint(kind)}"
    return f"the {terms.text} {why}{terms.hint('trailing') if _TRAILING in why else ''}"


def write_jsonl(
    events: Iterable[Event | Control | Draft], file: str | os.PathLike[str] | BinaryIO
) -> int:
    """Write events as JSON lines; `read_log` reads equal events.

    Parameters
    ----------
    events : iterable of Event or Control
        The events to write, in this order; rejected records of a `Log` are left out. A draft is
        written unchanged, with its clock. JSON has no NaN and no infinities; they become null.
    file : path or binary file
        The destination. The file at a path is overwritten only when all events have been
        serialised, so a log can be written to the file that it is read from.

    Returns
    -------
    int
        The number of events written.

    Raises
    ------
    SettingError
        If the file cannot be written, its name ends in `.gz` or `.zst`, or the log has several
        executions: a file of JSON lines holds one.
    TypeError
        If an argument has the wrong type.

    Examples
    --------
    >>> import ketal
    >>> events = [ketal.Event(node="n1", type="push", clock={"n1": 1}, data={"value": 7})]
    >>> ketal.write_jsonl(events, "run.jsonl")
    1
    >>> list(ketal.read_log("run.jsonl")) == events
    True
    """
    deciding_log(events, "events")
    if isinstance(file, str | os.PathLike):
        name = os.fsdecode(file)
        refuse_compressed(name)
        with write_errors(name):
            buffer = tempfile.NamedTemporaryFile()  # noqa: SIM115
        try:
            event_count = write_jsonl(events, buffer)
            with write_errors(buffer.name):
                buffer.seek(0)
            with write_errors(name), open(name, "wb") as target:
                shutil.copyfileobj(buffer, target)
        finally:
            with write_errors(buffer.name):  # `close` writes what a full disk did not take
                buffer.close()
        return event_count
    if not hasattr(file, "write") or isinstance(file, io.TextIOBase):
        raise wrong_type("file", "a path or a binary file", file)
    encode = msgspec.json.Encoder().encode
    event_count = 0
    items = _items_of_execution(events.records()) if hasattr(events, "records") else events
    for event in items:
        line = encode(object_of(event)) + b"\n"
        try:
            file.write(line)
        except OSError as fault:
            raise write_error(str(getattr(file, "name", "")), fault) from None
        event_count += 1
    return event_count


def _items_of_execution(records: Iterable[Record]) -> Iterator[Any]:
    """Yield the items of records but rejected ones; raise a SettingError at another execution."""
    first: str | None = None
    for execution, item, _, _ in records:
        if isinstance(item, Rejected):
            continue
        first = execution if first is None else first
        if execution != first:
            raise SettingError(
                f"the log has several executions, among them {first or 'one without a name'} and "
                f"{execution or 'one without a name'}; write each of log.executions to its own file"
            )
        yield item


def refuse_compressed(name: str, hint: str = "pass a binary file that compresses it") -> None:
    """Raise a SettingError if the name of a file to be written is that of a compressed one."""
    if name.endswith((".gz", ".zst")):
        raise SettingError(f"{name}: the output is not compressed; {hint}")


def object_of(event: Event | Control | Draft) -> dict[str, Any]:
    """Return the JSON object of an event, as `write_jsonl` writes it."""
    if isinstance(event, Control):
        fields = {"node": event.node, "time": event.time, "members": event.members or None}
        if event.kind == "view":
            fields["members"] = event.members
        present = {key: value for key, value in fields.items() if value is not None}
        return {"type": CONTROL_PREFIX + event.kind, **present}
    if not isinstance(event, Event | Draft):
        raise wrong_type("an event to write", "a ketal.Event", event)
    out: dict[str, Any] = {"node": event.node, "type": event.type, "clock": event.clock}
    if event.time is not None:
        out["time"] = event.time
    if event.id is not None:
        out["id"] = event.id
    if event.data:
        out["data"] = event.data
    if event.receives:
        out["receives"] = list(map(str, event.receives))
    return out
