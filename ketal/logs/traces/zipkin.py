"""Read spans of Zipkin v2 JSON.

A document is an array of spans, or one span. In Zipkin's model a span is the view that one
host has of an operation. Three things follow for a reader:

- The server of a call may share the span id of its client, and its span is then marked `shared`
  (in old versions it is only of kind server). Client and server are two spans, the server's a child
  of the client's. Several servers may share the id: their local endpoints (service and address)
  distinguish them. The parent of a span whose parent id is shared is the server with the span's
  own endpoint, else the only server of its service, else the client, else the only server.
- A span may be reported in several parts: its start, its end, or tags added later.
  Reports that do not contradict each other are merged to one span. A timestamp or
  duration of zero means absent.
- Trace ids of one trace may have 64 or 128 bits; the lower 64 bits identify the trace.

The one rule: reports that contradict each other are not merged; the later one is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ketal.errors import EventError
from ketal.logs.log_records import rejected_record
from ketal.logs.traces.documents import Text, elements
from ketal.logs.traces.span_fields import (
    SERVER,
    checked_microseconds,
    checked_object,
    hex_id,
    kind_named,
    time_error,
)
from ketal.logs.traces.spans import TraceSpan, span_data
from ketal.model.log_arguments import Record

_OPTIONAL_FIELDS = ("parent", "service", "name", "kind", "begin_us", "duration_us")
"""The fields that a report of a span may lack; absent ones are falsy."""


@dataclass(slots=True)
class SpanReport:
    """The content of one report of a span; absent fields are empty or None.

    Equality ignores the place of a report in its file.
    """

    trace: str
    """16 hex digits, as the other ids."""
    span: str
    parent: str
    shared: bool
    """Whether this is a server's span with the id of its client."""
    service: str
    address: str = field(compare=False)
    """Addresses and port of the local endpoint."""
    name: str
    kind: str
    begin_us: int | None
    duration_us: int | None
    tags: dict[str, Any]
    file: str = field(compare=False)
    line: int = field(compare=False)
    duplicates: list[SpanReport] = field(default_factory=list, compare=False)
    """Duplicates of this report."""

    @property
    def is_server(self) -> bool:
        """Whether the report is of the server's side of a call."""
        return self.shared or self.kind == SERVER

    @property
    def side(self) -> tuple[str, ...]:
        """The side of a call: the server with its endpoint; empty for the client."""
        return (SERVER, self.service, self.address) if self.is_server else ()

    def merge(self, other: SpanReport) -> bool:
        """Merge another report of the same span; return False if the two contradict each other."""
        if self == other:
            self.duplicates.append(other)
            return True
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in _OPTIONAL_FIELDS}
        if any(own and theirs and own != theirs for own, theirs in pairs.values()):
            return False
        if any(self.tags.get(key, value) != value for key, value in other.tags.items()):
            return False
        for name, (own, theirs) in pairs.items():
            setattr(self, name, own or theirs)
        self.shared = self.shared or other.shared
        self.tags |= other.tags
        return True


def zipkin_spans(text: Text, document: bytes) -> Iterator[SpanReport | Record]:
    """Yield the reports in a document, and a rejected record for each that cannot be read."""
    opening = document.lstrip()[:1]
    if opening not in (b"[", b"{"):
        yield text.rejected_record(EventError("the document is not an array of spans"))
        return
    parts = elements(document) if opening == b"[" else [document.strip()]
    yield from text.spans(_flattened(parts), partial(_report, text=text))


def _flattened(parts: Iterable[bytes | Any]) -> Iterator[Any]:
    # Zipkin's API that lists traces returns an array of arrays.
    for part in parts:
        if bytes(part).lstrip()[:1] == b"[":
            yield from elements(part)
        else:
            yield part


def _report(record: dict[str, Any], text: Text) -> SpanReport:
    trace = hex_id(record, "traceId", 32)[-16:]
    span, parent = hex_id(record, "id", 16), hex_id(record, "parentId", 16)
    if not trace or not span:
        raise EventError(f"the span has no {'traceId' if not trace else 'id'}")
    endpoint, tags = (checked_object(record.get(name), name) for name in ("localEndpoint", "tags"))
    service, name = endpoint.get("serviceName"), record.get("name")
    return SpanReport(
        trace=trace,
        span=span,
        parent=parent,
        shared=record.get("shared") is True,
        service=service if isinstance(service, str) else "",
        address=" ".join(str(endpoint[k]) for k in ("ipv4", "ipv6", "port") if endpoint.get(k)),
        name=name if isinstance(name, str) else "",
        kind=kind_named(record.get("kind")),
        begin_us=checked_microseconds(record, "timestamp"),
        duration_us=checked_microseconds(record, "duration"),
        tags=tags,
        file=text.name,
        line=text.line(),
    )


# --- reports to spans -------------------------------------------------------------------


def merged(reports: Iterable[SpanReport | Record]) -> Iterator[TraceSpan | Record]:
    """Merge the reports of each span; yield the spans, and a rejected record for each bad report.

    A report with neither a kind nor a timestamp may be of any side of a call, and a server's report
    without an address of any server of its service; these reports are merged last.
    """
    sides: dict[_Side, SpanReport] = {}
    no_address: list[SpanReport] = []
    no_side: list[SpanReport] = []
    for item in reports:
        if not isinstance(item, SpanReport):
            yield item
        elif item.is_server and not item.address:
            no_address.append(item)
        elif item.is_server or item.kind or item.begin_us is not None:
            yield from _merge_report(sides, item)
        else:
            no_side.append(item)
    for delayed in (no_address, no_side):
        by_id: dict[tuple[str, str], list[SpanReport]] = {}
        for report in sides.values():
            by_id.setdefault((report.trace, report.span), []).append(report)
        for item in delayed:
            yield from _merge_report(
                sides, item, _matching_report(item, by_id.get((item.trace, item.span), []))
            )
    for report in sides.values():
        yield from _report_spans(report)


_Side = tuple[str, str, tuple[str, ...]]
"""Trace id, span id, and the side of a call."""


def _matching_report(item: SpanReport, reports: list[SpanReport]) -> SpanReport:
    """Return the report of the same span id to merge `item` into, or `item` itself."""
    same_service = [report for report in reports if item.service and report.service == item.service]
    if item.is_server:
        return next((report for report in same_service if report.is_server), item)
    same_address = [report for report in same_service if report.address == item.address]
    return (same_address or same_service or reports or [item])[0]


def _merge_report(
    sides: dict[_Side, SpanReport], report: SpanReport, target: SpanReport | None = None
) -> Iterator[Record]:
    """Merge a report into that of its side, or of `target`'s; reject it if the two contradict."""
    first = sides.setdefault((report.trace, report.span, (target or report).side), report)
    if first is not report and not first.merge(report):
        reason = (
            f"the span {report.span} was reported before with other content, "
            f"at {first.file}:{first.line}"
        )
        yield rejected_record(EventError(reason), report.file, report.line)


def _report_spans(report: SpanReport) -> Iterator[TraceSpan | Record]:
    """Yield the span of a merged report, and once more for each duplicate of the report."""
    reason = time_error(report.span, "timestamp", report.begin_us, report.duration_us)
    for copy in (report, *report.duplicates):
        yield (
            rejected_record(EventError(reason), copy.file, copy.line)
            if reason
            else _span(report, copy)
        )


def _span(report: SpanReport, copy: SpanReport) -> TraceSpan:
    trace, span, parent = report.trace, report.span, report.parent
    names: tuple[tuple[str, ...], ...] = ((trace, span),)
    parents: tuple[tuple[str, ...], ...] = ()
    if report.is_server:
        names = tuple((trace, span, *report.side[:length]) for length in (3, 2, 1))
        parents = ((trace, span),)
    if parent:
        parents += (
            (trace, parent, SERVER, report.service, report.address),
            (trace, parent, SERVER, report.service),
            (trace, parent),
            (trace, parent, SERVER),
        )
    failed = "error" in report.tags
    begin_ns = (report.begin_us or 0) * 1_000
    return TraceSpan(
        names=names,
        parents=parents,
        links=(),
        service=report.service,
        name=report.name or "unnamed",
        kind=report.kind or (SERVER if report.shared else ""),
        begin_ns=begin_ns,
        end_ns=None if report.duration_us is None else begin_ns + report.duration_us * 1_000,
        failed=failed,
        has_parent=bool(parent) or report.shared,
        data=span_data(trace, span, parent, report.kind, report.tags, failed=failed),
        file=copy.file,
        line=copy.line,
    )
