"""Read spans of OTLP JSON, which OpenTelemetry exports.

A document is `{"resourceSpans": [...]}`: a list of resources, each with scopes, each with
spans. The service is an attribute of the resource. By the OTLP specification
("JSON Protobuf Encoding") ids are hex digits, enums are numbers, 64-bit integers are
numbers or text, and null means absent. Accepted as well, because some
exporters write them: names in snake case, `instrumentationLibrarySpans` of old versions, and ids
in base64 and enums by name, as in protobuf's own JSON mapping.

The one rule: a span or a resource that the specification calls invalid is rejected with its line,
and fields that it does not define are ignored.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from ketal.errors import EventError
from ketal.logs.shape import json_type_of
from ketal.logs.traces.documents import Text, decoded, elements, list_elements, members
from ketal.logs.traces.span_fields import (
    KINDS,
    TIME_NS_MAX,
    checked_list,
    checked_object,
    kind_named,
    service_node,
)
from ketal.logs.traces.spans import TraceSpan, span_data
from ketal.model.log_arguments import Record

_HEX = re.compile(r"[0-9a-fA-F]+")
_CAPITAL = re.compile("[A-Z]")
_RESOURCES = ("resourceSpans", "resource_spans", "batches")
"""The names of the list of resources in a document; the last one is Grafana Tempo's."""
_SCOPES = (
    "scopeSpans",
    "scope_spans",
    "instrumentationLibrarySpans",
    "instrumentation_library_spans",
)


def otlp_spans(text: Text, document: bytes) -> Iterator[TraceSpan | Record]:
    """Yield the spans of a document, and a rejected record for each that cannot be read."""
    exports = elements(document) if document.lstrip()[:1] == b"[" else [document]
    for export in exports:
        try:
            resources = list_elements(_unwrapped(export), _RESOURCES)
        except EventError as fault:
            yield text.rejected_record(fault)
            continue
        for resource in resources:
            yield from _resource_spans(text, resource)


def _unwrapped(export: bytes | msgspec.Raw) -> bytes | msgspec.Raw:
    """Return the export that the second version of Tempo's API wraps, or else the export itself."""
    with suppress(msgspec.DecodeError):
        return members(export).get("trace", export)
    return export


def _resource_spans(text: Text, resource: msgspec.Raw) -> Iterator[TraceSpan | Record]:
    try:
        description = decoded(members(resource).get("resource", b"null"))
        service = service_node(
            _attributes(checked_object(description, "resource").get("attributes"))
        )
        scopes = list_elements(resource, _SCOPES, needed=False)
    except (EventError, msgspec.DecodeError) as fault:
        yield text.rejected_record(EventError(f"the resource cannot be read: {fault}"))
        return
    for scope in scopes:
        try:
            spans = list_elements(scope, ("spans",), needed=False)
        except EventError as fault:
            yield text.rejected_record(fault)
            continue
        yield from text.spans(spans, partial(_span, service=service, text=text))


def _span(record: dict[str, Any], service: str, text: Text) -> TraceSpan:
    trace, span = _id(record, "traceId", 32), _id(record, "spanId", 16)
    if not trace or not span:
        raise EventError(f"the span has no {'traceId' if not trace else 'spanId'}")
    parent = _id(record, "parentSpanId", 16)
    begin = _nanoseconds(record, "startTimeUnixNano")
    if begin is None:
        raise EventError(f"the span {span} has no startTimeUnixNano, so it cannot be ordered")
    end = _nanoseconds(record, "endTimeUnixNano")
    name = record.get("name")
    kind = _kind(record.get("kind"))
    status = record.get("status")
    code = status.get("code") if isinstance(status, dict) else None
    failed = code in (2, "2", "STATUS_CODE_ERROR", "ERROR")
    attributes = _attributes(record.get("attributes"))
    return TraceSpan(
        names=((trace, span),),
        parents=((trace, parent),) if parent else (),
        links=tuple(_links(record, trace)),
        service=service,
        name=name if isinstance(name, str) and name else "unnamed",
        kind=kind,
        begin_ns=begin,
        end_ns=end,
        failed=failed,
        has_parent=bool(parent),
        data=span_data(trace, span, parent, kind, attributes, failed=failed),
        file=text.name,
        line=text.line(),
    )


def _links(record: dict[str, Any], trace: str) -> Iterator[tuple[str, str]]:
    for element in checked_list(record.get("links"), "links"):
        link = checked_object(element, "a link")
        yield _id(link, "traceId", 32) or trace, _id(link, "spanId", 16)


def _field(record: dict[str, Any], name: str) -> Any:
    """Return a field by its name in camel case or snake case; None if it is absent."""
    value = record.get(name)
    return record.get(_CAPITAL.sub(r"_\g<0>", name).lower()) if value is None else value


def _id(record: dict[str, Any], what: str, digits: int) -> str:
    """Return an id as hex digits; empty if it is absent or all zeros, which means no id."""
    value = _field(record, what)
    if value is None or value == "":
        return ""
    if not isinstance(value, str):
        raise EventError(f"{what} must be a string, not {json_type_of(value)}")
    if len(value) == digits and _HEX.fullmatch(value):
        lowered = value.lower()
    else:
        try:
            lowered = base64.b64decode(value, validate=True).hex()
        except (binascii.Error, ValueError):
            lowered = ""
        if len(lowered) != digits:
            raise EventError(f"{what} {value[:60]!r} is neither {digits} hex digits nor base64")
    return lowered if lowered.strip("0") else ""


def _nanoseconds(record: dict[str, Any], what: str) -> int | None:
    value = _field(record, what)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if value in (None, 0, ""):
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < TIME_NS_MAX:
        raise EventError(f"{what} {str(value)[:60]!r} is not a time in nanoseconds")
    return value


def _kind(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(KINDS):
        return KINDS[value]
    return kind_named(value.removeprefix("SPAN_KIND_") if isinstance(value, str) else value)


def _attributes(entries: Any, what: str = "attributes") -> dict[str, Any]:
    """Return OTLP's list of keys and values as a mapping."""
    out: dict[str, Any] = {}
    for element in checked_list(entries, what):
        pair = checked_object(element, f"an element of {what}")
        key = pair.get("key")
        if not isinstance(key, str):
            raise EventError(f"a key in {what} must be a string, not {json_type_of(key)}")
        out[key] = _attribute_value(pair.get("value"))
    return out


def _attribute_value(value: Any) -> Any:
    kind, inner = next(iter(checked_object(value, "the value of an attribute").items()), ("", None))
    match kind.replace("_", "").lower():
        case "intvalue":
            text = str(inner)
            return int(text) if re.fullmatch(r"-?\d{1,20}", text) else inner
        case "arrayvalue":
            return [
                _attribute_value(element) for element in checked_list(*_inner_values(inner, kind))
            ]
        case "kvlistvalue":
            return _attributes(*_inner_values(inner, kind))
        case _:
            return inner


def _inner_values(inner: Any, kind: str) -> tuple[Any, str]:
    """Return the values of a list value, and their path for an error message."""
    return checked_object(inner, kind).get("values"), f"{kind}.values"
