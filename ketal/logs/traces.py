"""Readers of traces: OTLP JSON and Zipkin v2 JSON.

OTLP JSON is what OpenTelemetry exports: a document `{"resourceSpans": [...]}`, or
one such document a line (the collector's file exporter). Read as well: snake
case, `instrumentationLibrarySpans` of old exporters, ids in base64 as protobuf's
own JSON mapping has them, times as text or numbers. Zipkin v2 is an array of
spans, or one span or array a line; a server that shares its client's span id
(`shared`) is a span of its own.

The one rule: a span that cannot be read is rejected with its line and the
reason, and every other one is an event or two.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ketal.errors import EventError, SettingError
from ketal.limits import Limits
from ketal.logs.jsonl import Record, rejected
from ketal.logs.shape import kind_of, why_not_json
from ketal.logs.spans import CLIENT, SERVER, Span, stamped
from ketal.logs.streams import Origin

TRACES = ("otlp", "zipkin")
"""Formats of traces."""

_HEX = re.compile(r"[0-9a-fA-F]{1,32}")
_SPAN_LISTS = (
    ("resourceSpans", "resource_spans"),
    (
        "scopeSpans",
        "scope_spans",
        "instrumentationLibrarySpans",
        "instrumentation_library_spans",
    ),
)
_KINDS = ("", "internal", SERVER, CLIENT, "producer", "consumer")
_TIME_NS_MAX = 253_402_300_800 * 10**9

_decode = msgspec.json.Decoder().decode
_decode_raw_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

Found = Span | Record


def read_traces(origins: Iterable[Origin], format: str, limits: Limits) -> Iterator[Record]:
    """Yield the events of all spans of trace files; together they are one execution."""
    read = _otlp_spans if format == "otlp" else _zipkin_spans

    def spans() -> Iterator[Found]:
        count = 0
        for origin in origins:
            for item in _spans_of(origin, read, limits):
                count += 1
                if 2 * count > limits.events_max:
                    raise SettingError(
                        f"the traces have more than {limits.events_max} events "
                        "(limit events_max), and rebuilding clocks holds them all"
                    )
                yield item

    yield from stamped(spans(), limits)


def _spans_of(origin: Origin, read: Any, limits: Limits) -> Iterator[Found]:
    with origin.opened() as file:
        held, size = [], 0
        damage: EventError | None = None
        try:
            for chunk in origin.chunks(file):
                size += len(chunk)
                if size > limits.log_bytes_max:
                    raise SettingError(
                        f"{origin.name}: is larger than log_bytes_max ({limits.log_bytes_max} "
                        "bytes), and a trace file is read whole; raise the limit or split the file"
                    )
                held.append(chunk)
        except EventError as fault:
            damage = fault
    text = _Text(origin.name, b"".join(held).removeprefix(b"\xef\xbb\xbf"))
    for document in text.documents():
        if isinstance(document, EventError):
            yield text.rejected(document)
        else:
            yield from read(text, document)
    if damage is not None:
        yield rejected(damage, origin.name, text.line())


class _Text:
    """The text of a file and how far it was read, which is where its parts stand."""

    def __init__(self, name: str, text: bytes) -> None:
        self.name = name
        self._text = text
        self._at = 0
        self._counted = 0
        self._line = 1

    def documents(self) -> Iterator[bytes | EventError]:
        """Yield the JSON documents: the whole text, or each line of it."""
        if not self._text.strip():
            return
        if not self._by_lines():
            start = len(self._text) - len(self._text.lstrip())
            self._at = start
            yield from self._checked(self._text[start:])
            return
        start = 0
        for line in self._text.split(b"\n"):
            if line.strip():
                self._at = start
                yield from self._checked(line)
            start += len(line) + 1

    def _by_lines(self) -> bool:
        lines = [line for line in self._text.split(b"\n", 8)[:8] if line.strip()]
        if len(lines) < 2:
            return False
        for line in lines[:3]:
            try:
                if isinstance(_decode(line), dict | list):
                    return True
            except (ValueError, RecursionError):
                continue
        return False

    def _checked(self, document: bytes) -> Iterator[bytes | EventError]:
        try:
            _decode(document)
        except UnicodeDecodeError:
            yield EventError("the document is not valid UTF-8")
        except (ValueError, RecursionError) as fault:
            if at := re.search(r"byte (\d+)", str(fault)):
                self._at += min(int(at[1]), len(document))
            yield EventError(
                f"the document {why_not_json(document.decode(errors='replace'), fault)}"
            )
        else:
            yield document

    def parts(self, raw: Iterable[msgspec.Raw]) -> Iterator[bytes]:
        """Yield parts of the document that follow each other, noting where each stands."""
        for part in raw:
            found = bytes(part)
            at = self._text.find(found, self._at)
            self._at = at if at >= 0 else self._at
            yield found
            self._at += len(found) if at >= 0 else 0

    def line(self) -> int:
        """Return the line that was read last."""
        if self._at < self._counted:
            self._counted, self._line = 0, 1
        self._line += self._text.count(b"\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def rejected(self, fault: EventError) -> Record:
        """Return the record of what cannot be read here."""
        return rejected(fault, self.name, self.line())


# --- OTLP ----------------------------------------------------------------------------


def _otlp_spans(text: _Text, document: bytes) -> Iterator[Found]:
    raw = _decode_raw_list(document) if document.lstrip()[:1] == b"[" else [document]
    for export in raw:
        try:
            resources = _lists(bytes(export), _SPAN_LISTS[0])
        except EventError as fault:
            yield text.rejected(fault)
            continue
        for resource in resources:
            yield from _otlp_resource(text, bytes(resource))


def _otlp_resource(text: _Text, resource: bytes) -> Iterator[Found]:
    try:
        described = _decode(_decode_raw_object(resource).get("resource", msgspec.Raw(b"null")))
        attributes = _attributes((described or {}).get("attributes"))
        scopes = _lists(resource, _SPAN_LISTS[1], needed=False)
    except (EventError, msgspec.DecodeError, AttributeError) as fault:
        yield text.rejected(EventError(f"the resource cannot be read: {fault}"))
        return
    service = attributes.get("service.name")
    service = str(service) if service not in (None, "") else ""
    instance = attributes.get("service.instance.id")
    if service and instance not in (None, ""):
        service = f"{service}/{instance}"
    for scope in scopes:
        try:
            spans = _lists(bytes(scope), ("spans",), needed=False)
        except EventError as fault:
            yield text.rejected(fault)
            continue
        for part in text.parts(spans):
            try:
                yield _otlp_span(_object(part), service, text)
            except EventError as fault:
                yield text.rejected(fault)


def _lists(raw: bytes, names: tuple[str, ...], *, needed: bool = True) -> list[msgspec.Raw]:
    """Return the parts of an object's list, whichever of its names it has."""
    try:
        fields = _decode_raw_object(raw)
        found = [fields[name] for name in names if name in fields and fields[name] != b"null"]
        if not found and needed:
            raise EventError(f"the document has no {names[0]}")
        return [part for one in found for part in _decode_raw_list(one)]
    except msgspec.DecodeError as fault:
        raise EventError(f"{names[0]} cannot be read: {fault}") from None


def _object(raw: bytes) -> dict[str, Any]:
    record = _decode(raw)
    if not isinstance(record, dict):
        raise EventError(f"the span is {kind_of(record)}, not an object")
    return record


def _otlp_span(record: dict[str, Any], service: str, text: _Text) -> Span:
    trace = _otlp_id(_either(record, "traceId", "trace_id"), "traceId", 32)
    span = _otlp_id(_either(record, "spanId", "span_id"), "spanId", 16)
    if not trace or not span:
        raise EventError(f"the span has no {'traceId' if not trace else 'spanId'}")
    parent = _otlp_id(_either(record, "parentSpanId", "parent_span_id"), "parentSpanId", 16)
    begin = _nanoseconds(
        _either(record, "startTimeUnixNano", "start_time_unix_nano"), "startTimeUnixNano"
    )
    if begin is None:
        raise EventError(f"the span {span} has no startTimeUnixNano, so it has no place")
    end = _nanoseconds(_either(record, "endTimeUnixNano", "end_time_unix_nano"), "endTimeUnixNano")
    name = record.get("name")
    kind = _otlp_kind(record.get("kind"))
    status = record.get("status")
    code = status.get("code") if isinstance(status, dict) else None
    links = []
    for link in record.get("links") or ():
        if isinstance(link, dict):
            of = _otlp_id(_either(link, "traceId", "trace_id"), "traceId", 32) or trace
            links.append((of, _otlp_id(_either(link, "spanId", "span_id"), "spanId", 16)))
    data: dict[str, Any] = {"trace": trace, "span": span}
    data |= {"parent": parent} if parent else {}
    data |= {"kind": kind} if kind else {}
    if attributes := _attributes(record.get("attributes")):
        data["attributes"] = attributes
    failed = code in (2, "2", "STATUS_CODE_ERROR", "ERROR")
    if failed:
        data["failed"] = True
    return Span(
        key=(trace, span),
        parents=((trace, parent),) if parent else (),
        links=tuple(links),
        service=service,
        name=name if isinstance(name, str) and name else "unnamed",
        kind=kind,
        begin_ns=begin,
        end_ns=end,
        failed=failed,
        data=data,
        file=text.name,
        line=text.line(),
    )


def _either(record: dict[str, Any], *names: str) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), None)


def _otlp_id(value: Any, what: str, digits: int) -> str:
    """Return an id as hex digits; empty where there is none (all zeros are none)."""
    if value is None or value == "":
        return ""
    if not isinstance(value, str):
        raise EventError(f"{what} must be a string, not {kind_of(value)}")
    if len(value) == digits and _HEX.fullmatch(value):
        found = value.lower()
    else:
        try:
            found = base64.b64decode(value, validate=True).hex()
        except (binascii.Error, ValueError):
            found = ""
        if len(found) != digits:
            raise EventError(f"{what} {value[:60]!r} is neither {digits} hex digits nor base64")
    return found if found.strip("0") else ""


def _nanoseconds(value: Any, what: str) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if value in (None, 0, ""):
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < _TIME_NS_MAX:
        raise EventError(f"{what} {str(value)[:60]!r} is no time in nanoseconds")
    return value


def _otlp_kind(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(_KINDS):
        return _KINDS[value]
    if isinstance(value, str):
        named = value.removeprefix("SPAN_KIND_").lower()
        return named if named in _KINDS else ""
    return ""


def _attributes(listed: Any) -> dict[str, Any]:
    """Return OTLP's list of key and value as a mapping."""
    out: dict[str, Any] = {}
    for pair in listed if isinstance(listed, list) else ():
        if isinstance(pair, dict) and isinstance(pair.get("key"), str):
            out[pair["key"]] = _value(pair.get("value"))
    return out


def _value(value: Any) -> Any:
    if not isinstance(value, dict) or not value:
        return None
    kind, inner = next(iter(value.items()))
    match kind.replace("_", "").lower():
        case "intvalue":
            text = str(inner)
            return int(text) if re.fullmatch(r"-?\d{1,20}", text) else inner
        case "arrayvalue":
            listed = inner.get("values") if isinstance(inner, dict) else None
            return [_value(one) for one in listed or ()]
        case "kvlistvalue":
            return _attributes(inner.get("values") if isinstance(inner, dict) else None)
        case _:
            return inner


# --- Zipkin --------------------------------------------------------------------------


def _zipkin_spans(text: _Text, document: bytes) -> Iterator[Found]:
    is_list = document.lstrip()[:1] == b"["
    if not is_list and document.lstrip()[:1] != b"{":
        yield text.rejected(EventError("the document is no array of spans"))
        return
    parts = _decode_raw_list(document) if is_list else [msgspec.Raw(document.strip())]
    for part in text.parts(_flat(parts)):
        try:
            yield _zipkin_span(_object(part), text)
        except EventError as fault:
            yield text.rejected(fault)


def _flat(parts: Iterable[msgspec.Raw]) -> Iterator[msgspec.Raw]:
    # The API that lists traces answers with an array of arrays.
    for part in parts:
        if bytes(part).lstrip()[:1] == b"[":
            yield from _decode_raw_list(part)
        else:
            yield part


def _zipkin_span(record: dict[str, Any], text: _Text) -> Span:
    # Traces with 64 and with 128 bits of id are the same where the lower half is.
    trace = _zipkin_id(record, "traceId")[-16:]
    span, parent = _zipkin_id(record, "id"), _zipkin_id(record, "parentId")
    if not trace or not span:
        raise EventError(f"the span has no {'traceId' if not trace else 'id'}")
    endpoint = record.get("localEndpoint")
    service = endpoint.get("serviceName") if isinstance(endpoint, dict) else None
    service = service if isinstance(service, str) else ""
    kind = record.get("kind")
    kind = kind.lower() if isinstance(kind, str) and kind.lower() in _KINDS else ""
    begin = _microseconds(record, "timestamp")
    if begin is None:
        raise EventError(f"the span {span} has no timestamp, so it has no place")
    duration = _microseconds(record, "duration")
    tags = record.get("tags")
    tags = tags if isinstance(tags, dict) else {}
    # A server may share the id of its client, and is then the child of the client's side;
    # not every reporter says that it does.
    served = record.get("shared") is True or kind == SERVER
    parents: tuple[tuple[str, ...], ...] = ((trace, span),) if served else ()
    if parent:
        parents += ((trace, parent, SERVER), (trace, parent))
    data: dict[str, Any] = {"trace": trace, "span": span}
    data |= {"parent": parent} if parent else {}
    data |= {"kind": kind} if kind else {}
    data |= {"attributes": tags} if tags else {}
    failed = "error" in tags
    if failed:
        data["failed"] = True
    name = record.get("name")
    return Span(
        key=(trace, span, SERVER) if served else (trace, span),
        parents=parents,
        links=(),
        service=service,
        name=name if isinstance(name, str) and name else "unnamed",
        kind=kind,
        begin_ns=begin * 1_000,
        end_ns=None if duration is None else (begin + duration) * 1_000,
        failed=failed,
        data=data,
        file=text.name,
        line=text.line(),
    )


def _zipkin_id(record: dict[str, Any], what: str) -> str:
    value = record.get(what)
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise EventError(f"{what} {str(value)[:60]!r} is no hex id")
    return value.lower().rjust(16, "0") if value.strip("0") else ""


def _microseconds(record: dict[str, Any], what: str) -> int | None:
    value = record.get(what)
    if value is None or (value == 0 and what == "timestamp"):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _TIME_NS_MAX:
        raise EventError(f"{what} {str(value)[:60]!r} is no time in microseconds")
    return value
