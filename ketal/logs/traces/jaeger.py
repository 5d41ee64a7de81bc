"""Read spans of Jaeger's JSON, which its HTTP API and its user interface export.

A document is `{"data": [...]}`, a list of traces, or one trace. A trace has `spans` and
`processes`; a span names its process by `processID`, and a process has the name of its service.
Jaeger's storage in Elasticsearch has spans alone, each with its `process`; a search or a dump of it
gives each as the `_source` of a hit.
The parent of a span is its first reference of type CHILD_OF within the trace, else the first of
type FOLLOWS_FROM; all others are links. Jaeger records only spans that ended.

The one rule: a span whose process, ids or times cannot be read is rejected with its line, and
fields that Jaeger does not define are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from ketal.errors import EventError
from ketal.logs.traces.documents import Text, decoded, elements, list_elements, members
from ketal.logs.traces.span_fields import (
    checked_list,
    checked_microseconds,
    checked_object,
    hex_id,
    kind_named,
    service_node,
    time_error,
)
from ketal.logs.traces.spans import Name, TraceSpan, span_data
from ketal.model.log_arguments import Record
from ketal.model.wording import shortened

_VALUE_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    "bool": msgspec.json.Decoder(bool),
    "int64": msgspec.json.Decoder(int),
    "float64": msgspec.json.Decoder(float | int),
}
"""Decoders of the values of tags, by Jaeger's names of the types that are no text."""


def jaeger_spans(text: Text, document: bytes) -> Iterator[TraceSpan | Record]:
    """Yield the spans of a document, and a rejected record for each that cannot be read."""
    try:
        traces = _traces(document)
    except (EventError, msgspec.DecodeError) as fault:
        yield text.rejected_record(EventError(f"the document cannot be read: {fault}"))
        return
    for trace in traces:
        try:
            fields = members(trace)
            if "_source" in fields:
                trace = fields["_source"]
                fields = members(trace)
            processes = decoded(fields.get("processes", b"null"))
            services = {
                key: _service(process)
                for key, process in checked_object(processes, "processes").items()
            }
            spans = [trace] if "spanID" in fields else list_elements(trace, ("spans",))
        except (EventError, msgspec.DecodeError) as fault:
            yield text.rejected_record(EventError(f"the trace cannot be read: {fault}"))
            continue
        yield from text.spans(spans, partial(_span, services=services, text=text))


def _traces(document: bytes) -> list[Any]:
    if document.lstrip()[:1] == b"[":
        return elements(document)
    fields = members(document)
    if errors := checked_list(decoded(fields.get("errors", b"null")), "errors"):
        message = checked_object(errors[0], "an error").get("msg")
        raise EventError(f"Jaeger reports an error: {shortened(str(message), 200)}")
    if "hits" in fields:
        return list_elements(fields["hits"], ("hits",))
    return list_elements(document, ("data",)) if "data" in fields else [document]


def _service(process: Any) -> str:
    description = checked_object(process, "a process")
    return service_node({**_tags(description), "service.name": description.get("serviceName")})


def _span(record: dict[str, Any], services: dict[str, str], text: Text) -> TraceSpan:
    trace, span = hex_id(record, "traceID", 32), hex_id(record, "spanID", 16)
    if not trace or not span:
        raise EventError(f"the span has no {'traceID' if not trace else 'spanID'}")
    begin_us, duration_us = (
        checked_microseconds(record, "startTime"),
        checked_microseconds(record, "duration"),
    )
    if fault := time_error(span, "startTime", begin_us, duration_us):
        raise EventError(fault)
    parent, links = _references(record, trace)
    tags = _tags(record)
    kind, name = kind_named(tags.get("span.kind")), record.get("operationName")
    failed = tags.get("error") in (True, "true")
    begin_ns = (begin_us or 0) * 1_000
    return TraceSpan(
        names=((trace, span),),
        parents=((trace, parent),) if parent else (),
        links=links,
        service=_service_of(record, services),
        name=name if isinstance(name, str) and name else "unnamed",
        kind=kind,
        begin_ns=begin_ns,
        end_ns=begin_ns + (duration_us or 0) * 1_000,
        failed=failed,
        has_parent=bool(parent),
        data=span_data(trace, span, parent, kind, tags, failed=failed),
        file=text.name,
        line=text.line(),
    )


def _service_of(record: dict[str, Any], services: dict[str, str]) -> str:
    """Return the node of a span's process, which is its own or one of its trace."""
    if record.get("process") is not None:
        return _service(record["process"])
    process = record.get("processID")
    if process is None:
        return ""
    if not isinstance(process, str) or process not in services:
        raise EventError(f"the process {str(process)[:60]!r} of the span is not in processes")
    return services[process]


def _references(record: dict[str, Any], trace: str) -> tuple[str, tuple[Name, ...]]:
    """Return the id of a span's parent, empty if there is none, and the names of other causes."""
    child_of: list[Name] = []
    follows_from: list[Name] = []
    for element in checked_list(record.get("references"), "references"):
        reference = checked_object(element, "a reference")
        names = child_of if reference.get("refType") == "CHILD_OF" else follows_from
        names.append((hex_id(reference, "traceID", 32) or trace, hex_id(reference, "spanID", 16)))
    names = child_of + follows_from
    parent = next((name for name in names if name[0] == trace and name[1]), None)
    if parent is None:
        return hex_id(record, "parentSpanID", 16), tuple(names)  # of versions without references
    names.remove(parent)
    return parent[1], tuple(names)


def _tags(owner: dict[str, Any]) -> dict[str, Any]:
    """Return the tags of a span or of a process.

    They are a list of keys and values; the storage may have some in an object, `tag`, where `@`
    replaces the dots of a key.
    """
    fields = checked_object(owner.get("tag"), "tag")
    tags = {key.replace("@", "."): value for key, value in fields.items()}
    for element in checked_list(owner.get("tags"), "tags"):
        tag = checked_object(element, "a tag")
        key, value = tag.get("key"), tag.get("value")
        if not isinstance(key, str):
            raise EventError("a tag has no key")
        tags[key] = _of_type(str(tag.get("type")), value) if isinstance(value, str) else value
    return tags


def _of_type(name: str, text: str) -> Any:
    """Return the value of a tag with a type, given as text; the text if it is not of this type.

    The storage has all values as text, and Jaeger's interface large integers.
    """
    if (decoder := _VALUE_DECODERS.get(name)) is not None:
        with suppress(ValueError):
            return decoder.decode(text)
    return text
