"""Trace files: JSON documents of spans, in OTLP or Zipkin v2.

A file is one document, or one document per line, as OpenTelemetry's file exporters write
them. `ketal.logs.traces.otlp` and `ketal.logs.traces.zipkin` read the spans of a document, and
`ketal.logs.traces.spans` converts the spans of all documents to events.

The one rule: a span that cannot be read is rejected with its line and the
reason, and every other span becomes one or two events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ketal.logs.log_records import rejected_record, too_many_error
from ketal.logs.streams import LogOrigin, read_whole
from ketal.logs.traces.documents import Text
from ketal.logs.traces.otlp import otlp_spans
from ketal.logs.traces.rebuilding import Rebuilding
from ketal.logs.traces.spans import events_of_spans
from ketal.logs.traces.zipkin import merged, zipkin_spans
from ketal.model.limits import Limits
from ketal.model.log_arguments import Record


def read_traces(
    origins: Iterable[LogOrigin], format: str, limits: Limits, rebuilding: Rebuilding
) -> Iterator[Record]:
    """Yield the records of all spans in trace files; together they are one execution.

    Resets the counts in `rebuilding`, and counts missing parents and links there.
    """
    rebuilding.reset()
    read_document: Any = otlp_spans if format == "otlp" else zipkin_spans

    def read_spans() -> Iterator[Any]:
        items = (one for origin in origins for one in _read_spans(origin, read_document, limits))
        for number, item in enumerate(items, 1):
            if number > limits.events_max:
                raise too_many_error("spans", limits, "rebuilding clocks")
            yield item

    spans = read_spans() if format == "otlp" else merged(read_spans())
    yield from events_of_spans(spans, limits, rebuilding)


def _read_spans(origin: LogOrigin, read_document: Any, limits: Limits) -> Iterator[Any]:
    with origin.opened() as file:
        raw, damage = read_whole(
            origin.name, origin.chunks(file), limits.log_bytes_max, "trace file"
        )
    text = Text(origin.name, raw)
    yield from text.items(read_document)
    if damage is not None:
        yield rejected_record(damage, origin.name, text.line())
