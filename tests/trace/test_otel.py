"""OpenTelemetry: spans as events and clocks in baggage, tested with the real SDK."""

from __future__ import annotations

import pytest
from opentelemetry import baggage
from opentelemetry.context import Context
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import ketal
from ketal.trace import Tracer, message_header
from ketal.trace.otel import ClockPropagator, ClockSpanProcessor
from tests.trace.test_exactness import ListSink


class Service:
    """A program with spans."""

    def __init__(self, node: str, events: ListSink) -> None:
        self.clocks = Tracer(node, events)
        provider = TracerProvider()
        self.exported = InMemorySpanExporter()
        provider.add_span_processor(ClockSpanProcessor(self.clocks))
        provider.add_span_processor(SimpleSpanProcessor(self.exported))
        self.spans = provider.get_tracer("tests")
        parts = [TraceContextTextMapPropagator(), ClockPropagator(self.clocks)]
        self.propagator = CompositePropagator(parts)

    @property
    def ended(self) -> tuple[ReadableSpan, ...]:
        return self.exported.get_finished_spans()


def test_spans_are_events_and_messages_carry_the_clock() -> None:
    events = ListSink()
    shop, till = Service("shop", events), Service("till", events)
    headers: dict[str, str] = {}
    with shop.spans.start_as_current_span("order", attributes={"type": "book", "price": 7}):
        context = baggage.set_baggage("user", "eve")
        shop.propagator.inject(headers, context)
    assert {"traceparent", "baggage"} <= headers.keys()
    received = till.propagator.extract(headers)
    assert baggage.get_all(received) == {"user": "eve"}
    with till.spans.start_as_current_span("pay", context=received) as span:
        span.set_status(Status(StatusCode.ERROR, "no money"))
    assert [(e["node"], e["type"], e["clock"], e.get("receives")) for e in events] == [
        ("shop", "order", {"shop": 1}, None),
        ("shop", "send", {"shop": 2}, None),
        ("shop", "order", {"shop": 3}, None),
        ("till", "receive", {"shop": 2, "till": 1}, ["shop@2"]),
        ("till", "pay", {"shop": 2, "till": 2}, None),
        ("till", "pay", {"shop": 2, "till": 3}, None),
    ]
    start, end = events[0]["data"], events[2]["data"]
    assert (start["phase"], end["phase"]) == ("start", "end")
    assert (end["type"], end["price"], "error" in end) == ("book", 7, False)
    assert events[5]["data"]["error"] == "no money"
    assert len({e["data"]["trace"] for e in events if "trace" in e["data"]}) == 1
    for service, clock in ((shop, {"shop": 1}), (till, {"shop": 2, "till": 2})):
        (ended,) = service.ended
        assert ended.attributes is not None
        assert ended.attributes["ketal.node"] == service.clocks.node
        text = str(ended.attributes["ketal.clock"])
        assert message_header.decoded(text).clock == clock
        assert not service.clocks.failures
    assert len(list(ketal.run(ketal.compile("pattern P { event E = true; find any E; }"),
                              [ketal.Event(**e) for e in events]).matches)) == 6  # fmt: skip


def test_messages_without_a_valid_clock_are_passed_on() -> None:
    events = ListSink()
    till = Service("till", events)
    assert baggage.get_all(till.propagator.extract({"baggage": "user=eve"})) == {"user": "eve"}
    assert not events
    wrong = {"baggage": "user=eve,ketal.clock=nonsense"}
    assert baggage.get_all(till.propagator.extract(wrong, Context())) == {"user": "eve"}
    assert [e["clock"] for e in events] == [{"till": 1}]
    assert sum(till.clocks.failures.values()) == 1


def test_clock_too_long_for_baggage_is_counted() -> None:
    events = ListSink()
    shop = Service("shop", events)
    long = message_header.encoded("other", {"other": 1, "n" * message_header.SHORT_MAX: 1})
    shop.clocks.receive(long)
    headers: dict[str, str] = {}
    shop.propagator.inject(headers, baggage.set_baggage("user", "eve"))
    assert headers["baggage"] == "user=eve"
    reason = "a message's clock is longer than 4,096 bytes and was not sent"
    assert dict(shop.clocks.failures) == {reason: 1}


@pytest.mark.parametrize(
    ("clock", "users"),
    [
        # 4,000 bytes as text, and 6,000 with each `=` and `,` as three bytes.
        ({f"{node:05}": 1 for node in range(500)}, {}),
        ({f"{node:05}": 1 for node in range(250)}, {name: name * 4_000 for name in "pq"}),
        ({"other": 1}, {f"user{number}": "x" for number in range(180)}),
    ],
    ids=["percent-encoded", "beside long entries", "beside many entries"],
)
def test_clock_that_baggage_has_no_room_for_is_counted(
    clock: dict[str, int], users: dict[str, str]
) -> None:
    shop, till = Service("shop", ListSink()), Service("till", ListSink())
    shop.clocks.receive(message_header.encoded(next(iter(clock)), clock))
    context = Context()
    for name, value in users.items():
        context = baggage.set_baggage(name, value, context)
    headers: dict[str, str] = {}
    shop.propagator.inject(headers, context)
    assert baggage.get_all(till.propagator.extract(headers, Context())) == users
    reason = "a message's clock does not fit into its baggage and was not sent"
    assert dict(shop.clocks.failures) == {reason: 1}


def test_span_end_records_the_error() -> None:
    events = ListSink()
    shop = Service("shop", events)
    with pytest.raises(KeyError), shop.spans.start_as_current_span("order"):
        raise KeyError("book")
    assert events[1]["data"]["error"] == "KeyError: 'book'"
