"""JSON documents in a file, and where their parts stand.

Traces come as one document, or as one a line. Parts of a document are decoded by
themselves, from their own bytes, so that each has a line, and one that cannot be
read costs no other.

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
from ketal.logs.log_records import rejected
from ketal.logs.shape import json_type_of
from ketal.logs.streams import LineNumbers
from ketal.model.log_arguments import Record

Span = TypeVar("Span")
decoded = msgspec.json.Decoder().decode
"""Return the decoded value of JSON."""
elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
"""Return the parts of a JSON array, undecoded."""
members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""Return the parts of a JSON object, undecoded."""


class Text:
    """The text of a file and how far it was read, for the line numbers of its parts."""

    def __init__(self, name: str, text: bytes) -> None:
        self.name = name
        self._text = text
        self._at = 0
        self._lines = LineNumbers(text)

    def items(
        self, read: Callable[[Text, bytes], Iterator[Span | Record]]
    ) -> Iterator[Span | Record]:
        """Yield what `read` yields of each JSON document: the whole text, or each line of it."""
        start = 0
        for document in self._text.split(b"\n") if self._is_by_lines() else [self._text]:
            if document.strip():
                self._at = start + len(document) - len(document.lstrip())
                fault = self._fault(document, start)
                yield from read(self, document) if fault is None else [self.rejected(fault)]
            start += len(document) + 1

    def _is_by_lines(self) -> bool:
        lines = [line for line in self._text.split(b"\n", 8)[:8] if line.strip()]
        for line in lines[:3] if len(lines) > 1 else ():
            with suppress(ValueError, RecursionError):
                if isinstance(decoded(line), dict | list):
                    return True
        return False

    def _fault(self, document: bytes, start: int) -> EventError | None:
        """Return why a document that begins somewhere cannot be read; None if it can."""
        try:
            decoded(document)
        except UnicodeDecodeError:
            return EventError("the document is not valid UTF-8")
        except (ValueError, RecursionError) as fault:
            why = why_not_json(document.decode(errors="replace"), fault)
            if at := re.search(r"byte (\d+)", str(fault)):
                self._at = start + min(int(at[1]), len(document))
                # Of the line, as that is what the place names.
                byte = self._at - self._text.rfind(b"\n", 0, self._at) - 1
                why = why.replace(at[0], f"byte {byte}")
            return EventError(f"the document {why}")
        return None

    def spans(
        self, raw: Iterable[msgspec.Raw], read: Callable[[dict[str, Any]], Span]
    ) -> Iterator[Span | Record]:
        """Yield the spans that parts of the document are, which follow each other.

        What `read` raises an EventError for is a record.
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
                yield self.rejected(fault)
            self._at += len(value) if at >= 0 else 0

    def line(self) -> int:
        """Return the line that was read last."""
        return self._lines.number(self._at)

    def rejected(self, fault: EventError) -> Record:
        """Return the record of what cannot be read here."""
        return rejected(fault, self.name, self.line())
