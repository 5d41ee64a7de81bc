"""Trace files: JSON documents of spans, in OTLP, Zipkin v2 or Jaeger's JSON.

A file is one document, or one document per line, as OpenTelemetry's file exporters write
them. `ketal.logs.traces.otlp`, `zipkin` and `jaeger` read the spans of a document, and
`ketal.logs.traces.spans` converts the spans of all documents to events.

The one rule: a span that cannot be read is rejected with its line and the
reason, and every other span becomes one or two events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ketal.errors import EventError
from ketal.logs.log_records import rejected_record, too_many_error
from ketal.logs.streams import LogOrigin, read_whole
from ketal.logs.traces.documents import Text, trace_format
from ketal.logs.traces.jaeger import jaeger_spans
from ketal.logs.traces.otlp import otlp_spans
from ketal.logs.traces.rebuilding import Rebuilding
from ketal.logs.traces.spans import events_of_spans
from ketal.logs.traces.zipkin import merged, zipkin_spans
from ketal.model.limits import Limits
from ketal.model.log_arguments import Record

_READERS: dict[str, Callable[[Text, bytes], Iterator[Any]]] = {
    "otlp": otlp_spans,
    "zipkin": zipkin_spans,
    "jaeger": jaeger_spans,
}


def read_traces(
    origins: Iterable[LogOrigin], format: str, limits: Limits, rebuilding: Rebuilding
) -> Iterator[Record]:
    """Yield the records of all spans in trace files; together they are one execution.

    Resets the counts in `rebuilding`, and counts missing parents and links there.
    """
    rebuilding.reset()

    def read_spans() -> Iterator[Any]:
        items = (one for origin in origins for one in _read_spans(origin, format, limits))
        for number, item in enumerate(items, 1):
            if number > limits.events_max:
                raise too_many_error("spans", limits, "rebuilding clocks")
            yield item

    spans = merged(read_spans()) if format == "zipkin" else read_spans()
    yield from events_of_spans(spans, limits, rebuilding)


def _read_spans(origin: LogOrigin, format: str, limits: Limits) -> Iterator[Any]:
    def read_document(text: Text, document: bytes) -> Iterator[Any]:
        actual = trace_format(document) or format
        if actual == format:
            return _READERS[format](text, document)
        fault = EventError(f"the document has spans in the format {actual}; use --format {actual}")
        return iter([text.rejected_record(fault)])

    with origin.opened() as file:
        raw, damage = read_whole(
            origin.name, origin.chunks(file), limits.log_bytes_max, "trace file"
        )
    text = Text(origin.name, raw)
    yield from text.items(read_document)
    if damage is not None:
        yield rejected_record(damage, origin.name, text.line())
