"""OpenTelemetry: the clocks of a program that has spans already.

Convention: a span bears the clock of its beginning in the attributes `ketal.node` and
`ketal.clock`, and a message bears the clock of its send in the entry `ketal.clock` of its baggage
(W3C), in the form of `ketal.trace.message_header`. Who knows nothing of ketal and passes baggage
on, as OpenTelemetry does, loses none of it.

    tracer = Tracer("shop", "shop.jsonl", activity="task")
    provider = TracerProvider()
    provider.add_span_processor(ClockSpanProcessor(tracer))
    propagate.set_global_textmap(CompositePropagator(
        [TraceContextTextMapPropagator(), ClockPropagator(tracer)]))

The one rule: spans and baggage are as they would be without; the clock is one entry more.
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
from ketal.trace.tracer import Tracer

ENTRY = "ketal.clock"
"""The entry in the baggage, and the attribute of a span."""
NODE = "ketal.node"


class ClockSpanProcessor(SpanProcessor):
    """Makes an event of the beginning and of the end of each span.

    Their type is the span's name; `phase` is `start` or `end`, `trace` and `span` its ids, and the
    end has its attributes and, of one that failed, `error`.

    Parameters
    ----------
    tracer : Tracer
        Whose events they are.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Record that a span begins, and write the clock into its attributes."""
        headers = self._tracer.send(span.name, phase="start", **_ids(span))
        if message_header.NAME in headers:
            span.set_attribute(NODE, self._tracer.node)
            span.set_attribute(ENTRY, headers[message_header.NAME])

    def on_end(self, span: ReadableSpan) -> None:
        """Record that a span has ended."""
        given = {n: value for n, value in (span.attributes or {}).items() if n not in (NODE, ENTRY)}
        error = {} if span.status.is_ok else {"error": span.status.description or "error"}
        self._tracer.record(span.name, **{**given, "phase": "end", **_ids(span), **error})


def _ids(span: ReadableSpan) -> dict[str, str]:
    context = span.get_span_context()
    if context is None:
        return {}
    return {"trace": f"{context.trace_id:032x}", "span": f"{context.span_id:016x}"}


class ClockPropagator(TextMapPropagator):
    """OpenTelemetry's propagator of baggage, with the clock of the message in it.

    It takes the place of `W3CBaggagePropagator`: what is injected is a send, an event `send`, and
    what is extracted a receipt, an event `receive`.

    Parameters
    ----------
    tracer : Tracer
        Who sends and receives.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
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
            context = baggage.set_baggage(ENTRY, headers[message_header.NAME], context)
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
            # It is of this message: what is sent from here has a clock of its own.
            context = baggage.remove_baggage(ENTRY, context)
        return context

    @property
    def fields(self) -> set[str]:
        """The headers that it writes."""
        return self._baggage.fields
