"""Calls of gRPC between a real server and a real client."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from ketal.trace import Tracer, message_header
from ketal.trace.grpc_interceptors import ClientInterceptor, ServerInterceptor
from tests.trace.test_exactness import Collected

KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class Service:
    """What the calls of each kind do."""

    def unary_unary(self, request: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((("own", "kept"),))
        if request == b"fail":
            context.abort(grpc.StatusCode.NOT_FOUND, "no")
        return request + b"!"

    def unary_stream(self, request: bytes, context: Any) -> Iterator[bytes]:
        yield request
        yield request

    def stream_unary(self, requests: Iterator[bytes], context: Any) -> bytes:
        return b"".join(requests)

    def stream_stream(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        yield from requests


@pytest.fixture
def calls(request: pytest.FixtureRequest) -> Iterator[tuple[Collected, Tracer, Any]]:
    """The events, the client's tracer, its channel to a server; the parameter: how many fail."""
    events = Collected()
    client, server_tracer = Tracer("client", events), Tracer("server", events)
    service = Service()
    handlers = {
        kind: getattr(grpc, f"{kind}_rpc_method_handler")(getattr(service, kind)) for kind in KINDS
    }
    server = grpc.server(ThreadPoolExecutor(4), interceptors=[ServerInterceptor(server_tracer)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s.S", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    yield events, client, grpc.intercept_channel(channel, ClientInterceptor(client))
    channel.close()
    server.stop(None).wait()
    assert (client.failures + server_tracer.failures).total() == getattr(request, "param", 0)


def _clocks(events: Collected) -> list[tuple[str, dict[str, int]]]:
    deadline = time.monotonic() + 10
    while len(events) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    order = ("grpc.call", "grpc.served", "grpc.answer", "grpc.answered")
    return sorted(
        ((event["type"], dict(event["clock"])) for event in events),
        key=lambda one: order.index(one[0]),
    )


WHOLE = [
    ("grpc.call", {"client": 1}), ("grpc.served", {"client": 1, "server": 1}),
    ("grpc.answer", {"client": 1, "server": 2}), ("grpc.answered", {"client": 2, "server": 2}),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_is_a_message_there_and_one_back(
    calls: tuple[Collected, Tracer, Any], kind: str
) -> None:
    events, _, channel = calls
    stub = getattr(channel, kind)(f"/s.S/{kind}")
    given: Any = iter([b"a", b"b"]) if kind.startswith("stream") else b"a"
    answer = stub(given, timeout=30)
    got = list(answer) if kind.endswith("stream") else answer
    assert got == {
        "unary_unary": b"a!", "unary_stream": [b"a", b"a"], "stream_unary": b"ab",
        "stream_stream": [b"a", b"b"],
    }[kind]  # fmt: skip
    assert _clocks(events) == WHOLE
    assert {event["data"]["method"] for event in events} == {f"/s.S/{kind}"}


def test_a_call_that_fails_fails_and_is_recorded(calls: tuple[Collected, Tracer, Any]) -> None:
    events, _, channel = calls
    with pytest.raises(grpc.RpcError) as failed:
        channel.unary_unary("/s.S/unary_unary")(b"fail", timeout=30)
    error: Any = failed.value
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert _clocks(events) == WHOLE
    (answered,) = (event for event in events if event["type"] == "grpc.answered")
    assert answered["data"]["status"] == "NOT_FOUND"


def test_the_own_metadata_is_kept(calls: tuple[Collected, Tracer, Any]) -> None:
    _, _, channel = calls
    _, call = channel.unary_unary("/s.S/unary_unary").with_call(
        b"a", timeout=30, metadata=(("x", "y"),)
    )
    assert {"own": "kept"}.items() <= dict(call.trailing_metadata()).items()


def test_a_call_that_is_not_waited_for(calls: tuple[Collected, Tracer, Any]) -> None:
    events, _, channel = calls
    done = threading.Event()
    future = channel.unary_unary("/s.S/unary_unary").future(b"a", timeout=30)
    future.add_done_callback(lambda _: done.set())
    assert done.wait(30)
    assert future.result() == b"a!"
    assert _clocks(events) == WHOLE


@pytest.mark.parametrize("calls", [2], indirect=True)
def test_a_clock_that_is_too_long_for_metadata_does_not_travel_and_the_call_does(
    calls: tuple[Collected, Tracer, Any],
) -> None:
    """A server of gRPC refuses a call with more than some 8,000 bytes of metadata."""
    events, client, channel = calls
    client.receive(message_header.encoded("m", {"m": 1, "n" * 20_000: 1}))
    assert channel.unary_unary("/s.S/unary_unary")(b"a", timeout=30) == b"a!"
    served = next(event for event in events if event["type"] == "grpc.served")
    assert served["clock"] == {"server": 1}
    assert list(client.failures) == [
        "a message's clock is longer than 4,096 bytes, and did not travel"
    ]
