"""The JSON documents of a trace file, and the line numbers of their spans.

A trace file is one document, or one document per line. Each span of a document is decoded
separately, from its own bytes, so that its line number is known, and a span that cannot be
decoded does not affect the others.

The one rule: damage is an item in its place, not an exception.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from ketal.errors import EventError
from ketal.logs.json_faults import why_not_json
from ketal.logs.log_records import rejected_record
from ketal.logs.shape import json_type_of
from ketal.logs.streams import JSON_ARRAY, LineNumbers
from ketal.model.log_arguments import Record

Span = TypeVar("Span")
decoded = msgspec.json.Decoder().decode
"""Return the decoded value of JSON."""
undecoded = msgspec.json.Decoder(msgspec.Raw).decode
"""Return JSON as it is; its syntax is checked."""
elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
"""Return the elements of a JSON array, undecoded."""
members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""Return the members of a JSON object, their values undecoded."""

_OTLP = re.compile(
    rb'[\s\[]*\{\s*("trace"\s*:\s*\{\s*)?'
    rb'("resource(S|_s)pans"|"batches"\s*:\s*\[\s*\{\s*"resource")'
)
"""The beginning of an export, of several in an array, and of what Grafana Tempo returns."""
_KEY = re.compile(rb'"(traceI[dD]|spanID|operationName)"\s*:')
_JAEGER_KEYS = {b"traceID", b"spanID", b"operationName"}
"""The keys that all spans of Jaeger have; `traceId` is a key of the other formats only."""


def list_elements(
    raw: bytes | msgspec.Raw, names: tuple[str, ...], *, needed: bool = True
) -> list[msgspec.Raw]:
    """Return the elements of the list that an object has under any of some names, undecoded.

    Raises an EventError if the list is `needed` and a non-empty object lacks it.
    """
    try:
        fields = members(raw)
        # In document order, in which `Text.spans` searches them.
        lists = [bytes(value) for name, value in fields.items() if name in names]
        if not lists and needed and fields:
            raise EventError(f"the document has no {names[0]}; is it in another --format?")
        return [part for element in lists if element != b"null" for part in elements(element)]
    except msgspec.DecodeError as fault:
        raise EventError(f"{names[0]} cannot be read: {fault}") from None


def trace_format(head: bytes) -> str:
    """Return the format of a document of spans that begins with `head`; empty if it is none."""
    if _OTLP.match(head):
        return "otlp"
    is_array = JSON_ARRAY.match(head) is not None
    line = head.lstrip().partition(b"\n")[0]
    if not is_array and (line[:1] != b"{" or b'"node"' in line):
        return ""
    keys = {match[1] for match in _KEY.finditer(head)}
    if keys == _JAEGER_KEYS:
        return "jaeger"
    is_span = b'"traceId"' in (head if is_array else line)
    return "zipkin" if is_span and (is_array or b'"localEndpoint"' in line) else ""


class Text:
    """The text of a trace file, and the current offset in it, for line numbers."""

    def __init__(self, name: str, text: bytes) -> None:
        self.name = name
        self._text = text
        self._at = 0
        self._lines = LineNumbers(text)

    def items(
        self, read: Callable[[Text, bytes], Iterator[Span | Record]]
    ) -> Iterator[Span | Record]:
        """Yield the items that `read` yields for each document: the whole text, or each line.

        A document that is not JSON is yielded as a rejected record.
        """
        start = 0
        for document in self._text.split(b"\n") if self._has_document_per_line() else [self._text]:
            if document.strip():
                self._at = start + len(document) - len(document.lstrip())
                fault = self._document_error(document, start)
                yield from read(self, document) if fault is None else [self.rejected_record(fault)]
            start += len(document) + 1

    def _has_document_per_line(self) -> bool:
        with suppress(ValueError, RecursionError):
            undecoded(self._text)
            return False  # The text is one document, of which a line may be a document, too.
        lines = [line for line in self._text.split(b"\n", 8)[:8] if line.strip()]
        for line in lines[:3]:
            with suppress(ValueError, RecursionError):
                if isinstance(decoded(line), dict | list):
                    return True
        return False

    def _document_error(self, document: bytes, start: int) -> EventError | None:
        """Return the error of a document at offset `start`; None if it is JSON."""
        try:
            decoded(document)
        except UnicodeDecodeError:
            return EventError("the document is not valid UTF-8")
        except (ValueError, RecursionError) as fault:
            why = why_not_json(document.decode(errors="replace"), fault)
            if at := re.search(r"byte (\d+)", str(fault)):
                self._at = start + min(int(at[1]), len(document))
                # Relative to the line, since the place of the record is a line.
                byte = self._at - self._text.rfind(b"\n", 0, self._at) - 1
                why = why.replace(at[0], f"byte {byte}")
            return EventError(f"the document {why}")
        return None

    def spans(
        self, raw: Iterable[msgspec.Raw], read: Callable[[dict[str, Any]], Span]
    ) -> Iterator[Span | Record]:
        """Yield the spans that `read` makes of parts of the document, given in document order.

        A part for which `read` raises an EventError is yielded as a rejected record.
        """
        for part in raw:
            value = bytes(part)
            at = self._text.find(value, self._at)
            self._at = at if at >= 0 else self._at
            try:
                record = decoded(value)
                if not isinstance(record, dict):
                    raise EventError(f"the span is {json_type_of(record)}, not an object")
                yield read(record)
            except EventError as fault:
                yield self.rejected_record(fault)
            self._at += len(value) if at >= 0 else 0

    def line(self) -> int:
        """Return the line number of the current offset."""
        return self._lines.number(self._at)

    def rejected_record(self, fault: EventError) -> Record:
        """Return a rejected record, with the current line as its place."""
        return rejected_record(fault, self.name, self.line())
