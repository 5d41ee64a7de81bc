"""Spans of Zipkin v2 JSON.

A document is an array of spans, or one span. By Zipkin's model a span is what one
host saw of an operation. Three things follow for who reads it:

- The server of a call may share the span id of its client, and says so
  (`shared`); old ones do not, but are servers. Both are spans of their own, the
  server the client's child. A child of that id belongs to the server if that is
  of the child's own service, else to the client.
- A span may be reported in pieces: its start, then its end, or tags when it is
  over. Pieces that say nothing different are one span. A timestamp or a duration
  of zero is none.
- Trace ids may have 64 or 128 bits in one trace; the lower half identifies it.

The one rule: pieces that contradict each other are not put together; the second
one is rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ketal.errors import EventError
from ketal.logs.documents import Text, elements, span_object
from ketal.logs.jsonl import Record, rejected
from ketal.logs.spans import KINDS, SERVER, TIME_NS_MAX, Span

_ID = re.compile(r"[0-9a-fA-F]{1,16}")
_TRACE_ID = re.compile(r"[0-9a-fA-F]{1,32}")


@dataclass(slots=True)
class Part:
    """What one report says of a span; empty or None is what it does not say.

    Attributes
    ----------
    trace, span, parent : str
        Ids as 16 hex digits.
    shared : bool
        Whether the id is the client's.
    begin_us, duration_us : int or None
        As reported.
    """

    trace: str
    span: str
    parent: str
    shared: bool
    service: str
    name: str
    kind: str
    begin_us: int | None
    duration_us: int | None
    file: str
    line: int
    tags: dict[str, Any] = field(default_factory=dict)
    again: list[Part] = field(default_factory=list)
    """Reports of the same that say the same."""

    @property
    def serves(self) -> bool:
        """Whether it is the server's side of a call."""
        return self.shared or self.kind == SERVER

    def said(self) -> tuple[Any, ...]:
        """Return what the report says, to be compared."""
        return (
            self.parent, self.shared, self.service, self.name, self.kind,
            self.begin_us, self.duration_us, self.tags,
        )  # fmt: skip

    def take(self, other: Part) -> bool:
        """Take over what another report of the span says; return False if they differ."""
        if self.said() == other.said():
            self.again.append(other)
            return True
        for mine, its in zip(self.said()[2:7], other.said()[2:7], strict=True):
            if mine not in ("", None) and its not in ("", None) and mine != its:
                return False
        if self.parent and other.parent and self.parent != other.parent:
            return False
        if any(self.tags.get(key, value) != value for key, value in other.tags.items()):
            return False
        self.parent = self.parent or other.parent
        self.shared = self.shared or other.shared
        self.service = self.service or other.service
        self.name = self.name or other.name
        self.kind = self.kind or other.kind
        if self.begin_us is None:
            self.begin_us = other.begin_us
        if self.duration_us is None:
            self.duration_us = other.duration_us
        self.tags = {**self.tags, **other.tags}
        return True


def zipkin_spans(text: Text, document: bytes) -> Iterator[Part | Record]:
    """Yield what a document says of spans; a record for each that cannot be read."""
    opening = document.lstrip()[:1]
    if opening not in (b"[", b"{"):
        yield text.rejected(EventError("the document is no array of spans"))
        return
    parts = elements(document) if opening == b"[" else [document.strip()]
    for part in text.parts(_flat(parts)):
        try:
            yield _part(span_object(part), text)
        except EventError as fault:
            yield text.rejected(fault)


def _flat(parts: Iterable[bytes | Any]) -> Iterator[Any]:
    # The API that lists traces answers with an array of arrays.
    for part in parts:
        if bytes(part).lstrip()[:1] == b"[":
            yield from elements(bytes(part))
        else:
            yield part


def _part(record: dict[str, Any], text: Text) -> Part:
    # Traces with 64 and with 128 bits of id are the same where the lower half is.
    trace = _id(record, "traceId", _TRACE_ID)[-16:]
    span, parent = _id(record, "id", _ID), _id(record, "parentId", _ID)
    if not trace or not span:
        raise EventError(f"the span has no {'traceId' if not trace else 'id'}")
    endpoint = record.get("localEndpoint")
    service = endpoint.get("serviceName") if isinstance(endpoint, dict) else None
    kind, name, tags = record.get("kind"), record.get("name"), record.get("tags")
    return Part(
        trace=trace,
        span=span,
        parent=parent,
        shared=record.get("shared") is True,
        service=service if isinstance(service, str) else "",
        name=name if isinstance(name, str) else "",
        kind=kind.lower() if isinstance(kind, str) and kind.lower() in KINDS else "",
        begin_us=_microseconds(record, "timestamp"),
        duration_us=_microseconds(record, "duration"),
        tags=tags if isinstance(tags, dict) else {},
        file=text.name,
        line=text.line(),
    )


def _id(record: dict[str, Any], what: str, form: re.Pattern[str]) -> str:
    value = record.get(what)
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or not form.fullmatch(value):
        raise EventError(f"{what} {str(value)[:60]!r} is no hex id")
    return value.lower().rjust(16, "0") if value.strip("0") else ""


def _microseconds(record: dict[str, Any], what: str) -> int | None:
    value = record.get(what)
    if value is None or value == 0:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if (
        not isinstance(value, int)
        or isinstance(value, bool)
        or not 0 < value < TIME_NS_MAX // 1_000
    ):
        raise EventError(f"{what} {str(value)[:60]!r} is no time in microseconds")
    return value


# --- spans of pieces --------------------------------------------------------------------


def merged(found: Iterable[Part | Record]) -> Iterator[Span | Record]:
    """Yield the spans of all reports; a record for each that is none.

    A report that says neither a kind nor when it began is about the one span of
    its id, whichever side that is.
    """
    sides: dict[tuple[str, str, str], Part] = {}
    late: list[Part] = []
    for item in found:
        if not isinstance(item, Part):
            yield item
        elif not item.serves and not item.kind and item.begin_us is None:
            late.append(item)
        else:
            yield from _put(sides, item)
    of_id: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for key in sides:
        of_id.setdefault(key[:2], []).append(key)
    for item in late:
        keys = of_id.get((item.trace, item.span), [])
        of_service = [key for key in keys if item.service and sides[key].service == item.service]
        yield from _put(sides, item, (of_service or keys or [(item.trace, item.span, "")])[0])
    for part in sides.values():
        yield from _spans(part)


def _put(
    sides: dict[tuple[str, str, str], Part],
    part: Part,
    key: tuple[str, str, str] | None = None,
) -> Iterator[Record]:
    """Put a report to the others of its span."""
    if key is None:
        key = part.trace, part.span, f"{SERVER}/{part.service}" if part.serves else ""
    first = sides.setdefault(key, part)
    if first is not part and not first.take(part):
        reason = (
            f"the span {part.span} was reported before with other content, "
            f"at {first.file}:{first.line}"
        )
        yield rejected(EventError(reason), part.file, part.line)


def _spans(part: Part) -> Iterator[Span | Record]:
    """Yield the span of a report, once for each time that it was reported alike."""
    reason = ""
    if part.begin_us is None:
        reason = f"the span {part.span} has no timestamp, so it has no place"
    elif part.begin_us + (part.duration_us or 0) >= TIME_NS_MAX // 1_000:
        reason = f"the span {part.span} ends after the year 9999"
    for one in (part, *part.again):
        yield rejected(EventError(reason), one.file, one.line) if reason else _span(part, one)


def _span(part: Part, at: Part) -> Span:
    trace, span, parent = part.trace, part.span, part.parent
    names: tuple[tuple[str, ...], ...] = ((trace, span),)
    parents: tuple[tuple[str, ...], ...] = ()
    if part.serves:
        names = (trace, span, SERVER, part.service), (trace, span, SERVER)
        parents = ((trace, span),)
    if parent:
        parents += (
            (trace, parent, SERVER, part.service), (trace, parent), (trace, parent, SERVER),
        )  # fmt: skip
    data: dict[str, Any] = {"trace": trace, "span": span}
    data |= {"parent": parent} if parent else {}
    data |= {"kind": part.kind} if part.kind else {}
    data |= {"attributes": part.tags} if part.tags else {}
    failed = "error" in part.tags
    if failed:
        data["failed"] = True
    begin_ns = (part.begin_us or 0) * 1_000
    return Span(
        names=names,
        parents=parents,
        links=(),
        service=part.service,
        name=part.name or "unnamed",
        kind=part.kind or (SERVER if part.shared else ""),
        begin_ns=begin_ns,
        end_ns=None if part.duration_us is None else begin_ns + part.duration_us * 1_000,
        failed=failed,
        has_parent=bool(parent) or part.shared,
        data=data,
        file=at.file,
        line=at.line,
    )
