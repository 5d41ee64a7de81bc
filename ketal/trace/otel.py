"""Trace programs that use OpenTelemetry: clocks in spans and in baggage.

Convention: a span has the clock of its beginning in the attributes `ketal.node` and
`ketal.clock`, and a message has the clock of its send in the entry `ketal.clock` of its W3C
baggage, in the format of `ketal.trace.message_header`. Services without ketal that pass baggage
on, as OpenTelemetry does, pass on the clock too.

    tracer = Tracer("shop", "shop.jsonl", activity="task")
    provider = TracerProvider()
    provider.add_span_processor(ClockSpanProcessor(tracer))
    propagate.set_global_textmap(CompositePropagator(
        [TraceContextTextMapPropagator(), ClockPropagator(tracer)]))

The one rule: apart from the clock's own entries, spans and baggage are unchanged.
"""

from __future__ import annotations

from typing import Any

from opentelemetry import baggage
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import (
    CarrierT,
    Getter,
    Setter,
    TextMapPropagator,
    default_getter,
    default_setter,
)
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from ketal.trace import message_header
from ketal.trace.tracer import Tracer, checked_tracer, count_failure

ENTRY = "ketal.clock"
"""The name of the clock's entry in the baggage, and of its span attribute."""
NODE = "ketal.node"


class ClockSpanProcessor(SpanProcessor):
    """Records an event at the beginning and at the end of each span.

    The type of the events is the name of the span; `phase` is `start` or `end`, `trace` and `span`
    are its ids. The end also has the attributes of the span, and `error` if the span failed.

    Parameters
    ----------
    tracer : Tracer
        The tracer that records the events.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = checked_tracer(tracer)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Record the beginning of a span, and set the clock in its attributes."""
        headers = self._tracer.send(span.name, phase="start", **_span_ids(span))
        if message_header.NAME in headers:
            span.set_attribute(NODE, self._tracer.node)
            span.set_attribute(ENTRY, headers[message_header.NAME])

    def on_end(self, span: ReadableSpan) -> None:
        """Record the end of a span."""
        attributes = {
            n: value for n, value in (span.attributes or {}).items() if n not in (NODE, ENTRY)
        }
        error = {} if span.status.is_ok else {"error": span.status.description or "error"}
        self._tracer.record(span.name, **{**attributes, "phase": "end", **_span_ids(span), **error})


def _span_ids(span: ReadableSpan) -> dict[str, str]:
    context = span.get_span_context()
    if context is None:
        return {}
    return {"trace": f"{context.trace_id:032x}", "span": f"{context.span_id:016x}"}


class ClockPropagator(TextMapPropagator):
    """OpenTelemetry's propagator of baggage, with the clock of the message as an entry.

    It replaces `W3CBaggagePropagator`: injecting records an event `send`, extracting an event
    `receive`.

    Parameters
    ----------
    tracer : Tracer
        The tracer that sends and receives.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = checked_tracer(tracer)
        self._baggage = W3CBaggagePropagator()

    def inject(
        self,
        carrier: CarrierT,
        context: Context | None = None,
        setter: Setter[CarrierT] = default_setter,
    ) -> None:
        """Write baggage and clock into the headers of a message."""
        headers = self._tracer.send_within(message_header.SHORT_MAX)
        if message_header.NAME in headers:
            with_clock = baggage.set_baggage(ENTRY, headers[message_header.NAME], context)
            # The baggage percent-encodes the clock once more, and has no room for all entries.
            written: dict[str, str] = {}
            self._baggage.inject(written, with_clock)
            if baggage.get_baggage(ENTRY, self._baggage.extract(written, Context())):
                context = with_clock
            else:
                count_failure(
                    self._tracer, "a message's clock does not fit into its baggage and was not sent"
                )
        self._baggage.inject(carrier, context, setter)

    def extract(
        self,
        carrier: CarrierT,
        context: Context | None = None,
        getter: Getter[CarrierT] = default_getter,
    ) -> Context:
        """Read baggage and clock from the headers of a message."""
        context = self._baggage.extract(carrier, context, getter)
        text: Any = baggage.get_baggage(ENTRY, context)
        if text:
            self._tracer.receive(str(text))
            # The clock is only for this message: later sends in this context add their own.
            context = baggage.remove_baggage(ENTRY, context)
        return context

    @property
    def fields(self) -> set[str]:
        """The names of the headers that `inject` writes."""
        return self._baggage.fields
