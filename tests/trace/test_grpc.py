"""gRPC calls between a real server and a real client, with threads and with asyncio."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc import aio

from ketal.trace import Tracer, grpc_aio_interceptors, message_header
from ketal.trace.grpc_interceptors import ClientInterceptor, ServerInterceptor
from tests.trace.test_exactness import ListSink

KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


ANSWERS = {
    "unary_unary": b"a!", "unary_stream": [b"a", b"a"], "stream_unary": b"ab",
    "stream_stream": [b"a", b"b"],
}  # fmt: skip
"""To a call of each kind with a, or with a and b."""


class Service:
    """Functions that serve each kind of call; an asyncio server runs them in threads."""

    def unary_unary(self, request: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((("own", "kept"),))
        if request == b"fail":
            context.abort(grpc.StatusCode.NOT_FOUND, "no")
        if request == b"pass on":
            passed_on = [
                (key, value) for key, value in context.invocation_metadata() if key != "user-agent"
            ]
            context.set_trailing_metadata(passed_on)
            return ",".join(key for key, _ in passed_on).encode()
        return request + b"!"

    def unary_stream(self, request: bytes, context: Any) -> Iterator[bytes]:
        yield request
        yield request

    def stream_unary(self, requests: Iterator[bytes], context: Any) -> bytes:
        return b"".join(requests)

    def stream_stream(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        yield from requests


def _handlers(service: Any) -> grpc.GenericRpcHandler:
    handlers = {
        kind: getattr(grpc, f"{kind}_rpc_method_handler")(getattr(service, kind)) for kind in KINDS
    }
    return grpc.method_handlers_generic_handler("s.S", handlers)


@pytest.fixture
def calls(request: pytest.FixtureRequest) -> Iterator[tuple[ListSink, Tracer, Any]]:
    """Yield the events, the client's tracer and its channel; the parameter: how many calls fail."""
    events = ListSink()
    client, server_tracer = Tracer("client", events), Tracer("server", events)
    server = grpc.server(ThreadPoolExecutor(4), interceptors=[ServerInterceptor(server_tracer)])
    server.add_generic_rpc_handlers((_handlers(Service()),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    yield events, client, grpc.intercept_channel(channel, ClientInterceptor(client))
    channel.close()
    server.stop(None).wait()
    assert (client.failures + server_tracer.failures).total() == getattr(request, "param", 0)


def _clocks(events: ListSink) -> list[tuple[str, dict[str, int]]]:
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
def test_call_is_a_request_and_a_response_message(
    calls: tuple[ListSink, Tracer, Any], kind: str
) -> None:
    events, _, channel = calls
    stub = getattr(channel, kind)(f"/s.S/{kind}")
    given: Any = iter([b"a", b"b"]) if kind.startswith("stream") else b"a"
    answer = stub(given, timeout=30)
    got = list(answer) if kind.endswith("stream") else answer
    assert got == ANSWERS[kind]
    assert _clocks(events) == WHOLE
    assert {event["data"]["method"] for event in events} == {f"/s.S/{kind}"}


def test_failing_call_raises_and_is_recorded(calls: tuple[ListSink, Tracer, Any]) -> None:
    events, _, channel = calls
    with pytest.raises(grpc.RpcError) as failed:
        channel.unary_unary("/s.S/unary_unary")(b"fail", timeout=30)
    error: Any = failed.value
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert _clocks(events) == WHOLE
    (answered,) = (event for event in events if event["type"] == "grpc.answered")
    assert answered["data"]["status"] == "NOT_FOUND"


def test_metadata_of_the_service_is_kept(calls: tuple[ListSink, Tracer, Any]) -> None:
    _, _, channel = calls
    _, call = channel.unary_unary("/s.S/unary_unary").with_call(
        b"a", timeout=30, metadata=(("x", "y"),)
    )
    assert {"own": "kept"}.items() <= dict(call.trailing_metadata()).items()


def test_metadata_that_is_passed_on_has_no_other_clock(
    calls: tuple[ListSink, Tracer, Any],
) -> None:
    """As from a service that calls another one with the metadata of the call that it serves."""
    events, _, channel = calls
    other = ("ketal-clock", "1;other;other=7")
    served, call = channel.unary_unary("/s.S/unary_unary").with_call(
        b"pass on", timeout=30, metadata=(other, ("x", "y"))
    )
    assert served == b"x,ketal-clock"
    assert [tuple(pair) for pair in call.trailing_metadata()] == [
        ("x", "y"), ("ketal-clock", "1;server;client=1,server=2"),
    ]  # fmt: skip
    assert _clocks(events) == WHOLE


def test_call_by_future_is_recorded(calls: tuple[ListSink, Tracer, Any]) -> None:
    events, _, channel = calls
    done = threading.Event()
    future = channel.unary_unary("/s.S/unary_unary").future(b"a", timeout=30)
    future.add_done_callback(lambda _: done.set())
    assert done.wait(30)
    assert future.result() == b"a!"
    assert _clocks(events) == WHOLE


@pytest.mark.parametrize("calls", [2], indirect=True)
def test_a_clock_too_long_for_metadata_is_dropped_and_the_call_succeeds(
    calls: tuple[ListSink, Tracer, Any],
) -> None:
    """gRPC servers refuse calls with more than about 8,000 bytes of metadata."""
    events, client, channel = calls
    client.receive(message_header.encoded("m", {"m": 1, "n" * 20_000: 1}))
    assert channel.unary_unary("/s.S/unary_unary")(b"a", timeout=30) == b"a!"
    served = next(event for event in events if event["type"] == "grpc.served")
    assert served["clock"] == {"server": 1}
    assert list(client.failures) == [
        "a message's clock is longer than 4,096 bytes and was not sent"
    ]


# --- grpc.aio ---


class AioService:
    """Coroutines that serve each kind of call."""

    async def unary_unary(self, request: bytes, context: Any) -> bytes:
        assert isinstance(context, aio.ServicerContext)
        context.set_trailing_metadata((("own", "kept"),))
        if request == b"fail":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no")
        if request == b"fail with metadata":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no", (("own", "other"),))
        if request == b"raise":
            raise ValueError("no")
        if request == b"wait":
            await asyncio.sleep(60)
        return request + b"!"

    async def unary_stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield request
        yield request

    async def stream_unary(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        return b"".join([request async for request in requests])

    async def stream_stream(self, requests: AsyncIterator[bytes], context: Any) -> None:
        async for request in requests:
            await context.write(request)


@asynccontextmanager
async def aio_calls(
    service: Any, activity: Any = "process", failures: int = 0
) -> AsyncIterator[tuple[ListSink, Tracer, aio.Channel]]:
    """Yield the events, the client's tracer, and its channel to a server."""
    events = ListSink()
    client = Tracer("client", events, activity=activity)
    server_tracer = Tracer("server", events)
    server = aio.server(
        ThreadPoolExecutor(4),
        interceptors=[grpc_aio_interceptors.AioServerInterceptor(server_tracer)],
    )
    server.add_generic_rpc_handlers((_handlers(service),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    interceptors = grpc_aio_interceptors.client_interceptors(client)
    async with aio.insecure_channel(f"127.0.0.1:{port}", interceptors=interceptors) as channel:
        yield events, client, channel
    await server.stop(None)
    assert (client.failures + server_tracer.failures).total() == failures


async def _requests(*requests: bytes) -> AsyncIterator[bytes]:
    for request in requests:
        yield request


@pytest.mark.parametrize("service", [AioService(), Service()], ids=["coroutines", "functions"])
@pytest.mark.parametrize("kind", KINDS)
def test_asyncio_call_is_a_request_and_a_response_message(service: Any, kind: str) -> None:
    async def main() -> None:
        async with aio_calls(service) as (events, _, channel):
            stub = getattr(channel, kind)(f"/s.S/{kind}")
            given: Any = _requests(b"a", b"b") if kind.startswith("stream") else b"a"
            call = stub(given, timeout=30)
            got = [one async for one in call] if kind.endswith("stream") else await call
            assert got == ANSWERS[kind]
            assert _clocks(events) == WHOLE
            assert {event["data"]["method"] for event in events} == {f"/s.S/{kind}"}
            assert await call.code() is grpc.StatusCode.OK
            assert len(events) == 4

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["stream_unary", "stream_stream"])
def test_asyncio_request_stream_can_be_written(kind: str) -> None:
    async def main() -> None:
        async with aio_calls(AioService()) as (events, _, channel):
            call = getattr(channel, kind)(f"/s.S/{kind}")(timeout=30)
            for request in (b"a", b"b"):
                await call.write(request)
            await call.done_writing()
            if kind == "stream_unary":
                assert await call == b"ab"
            else:
                assert [await call.read() for _ in range(3)] == [b"a", b"b", aio.EOF]
            assert _clocks(events) == WHOLE

    asyncio.run(main())


@pytest.mark.parametrize("service", [AioService(), Service()], ids=["coroutines", "functions"])
def test_failing_asyncio_call_raises_and_is_recorded(service: Any) -> None:
    async def main() -> None:
        async with aio_calls(service) as (events, _, channel):
            with pytest.raises(aio.AioRpcError) as failed:
                await channel.unary_unary("/s.S/unary_unary")(b"fail", timeout=30)
            assert failed.value.code() is grpc.StatusCode.NOT_FOUND
            assert failed.value.details() == "no"
            assert dict(failed.value.trailing_metadata())["own"] == "kept"
            assert _clocks(events) == WHOLE
            assert events[-1]["data"]["status"] == "NOT_FOUND"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("request_", "status", "own"),
    [(b"fail with metadata", "NOT_FOUND", "other"), (b"raise", "UNKNOWN", "kept")],
)
def test_asyncio_response_has_the_metadata_of_the_service(
    request_: bytes, status: str, own: str
) -> None:
    async def main() -> None:
        async with aio_calls(AioService()) as (events, _, channel):
            call = channel.unary_unary("/s.S/unary_unary")(
                request_, timeout=30, metadata=(("x", "y"),)
            )
            assert (await call.code()).name == status
            assert dict(await call.trailing_metadata())["own"] == own
            assert _clocks(events) == WHOLE
            with pytest.raises(aio.AioRpcError):
                await call

    asyncio.run(main())


def test_cancelled_asyncio_call_has_no_response_clock() -> None:
    async def main() -> None:
        async with aio_calls(AioService(), failures=1) as (events, client, channel):
            call = channel.unary_unary("/s.S/unary_unary")(b"wait", timeout=30)
            while len(events) < 2:
                await asyncio.sleep(0.01)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            while len(events) < 4:
                await asyncio.sleep(0.01)
            statuses = [e["data"]["status"] for e in events if e["type"] == "grpc.answered"]
            assert statuses == ["CANCELLED"]
            assert list(client.failures) == [
                "a message without the header ketal-clock was received"
            ]

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_task_that_awaits_a_call_merges_the_servers_clock(kind: str) -> None:
    """Each task has a clock; the lines of gRPC's own tasks are reused."""

    async def work(client: Tracer, channel: Any) -> None:
        stub = getattr(channel, kind)(f"/s.S/{kind}")
        for _ in range(20):
            client.record("before")
            given: Any = _requests(b"a") if kind.startswith("stream") else b"a"
            call = stub(given, timeout=30)
            if kind.endswith("stream"):
                assert [one async for one in call]
            else:
                assert await call
            client.record("after")

    async def main() -> None:
        async with aio_calls(AioService(), "task") as (events, client, channel):
            await asyncio.gather(*(work(client, channel) for _ in range(2)))
            by_type: dict[str, list[Any]] = {}
            for event in events:
                by_type.setdefault(event["type"], []).append(event)
            answered, after = by_type["grpc.answered"], by_type["after"]
            assert len(answered) == len(after) == 40
            # The waiting task merges the clock of the answer.
            lines = {event["node"] for event in by_type["before"]}
            assert len(lines) == 2
            assert {event["node"] for event in answered} == lines
            assert len({event["node"] for event in events}) <= 8
            # After each answer the task knows what the server knew at that answer, and no more.
            for event in after:
                latest = max(
                    one["clock"]["server"]
                    for one in answered
                    if one["node"] == event["node"]
                    and one["clock"][one["node"]] < event["clock"][event["node"]]
                )
                assert event["clock"]["server"] == latest

    asyncio.run(main())


def test_second_task_that_awaits_a_call_knows_of_no_later_event_of_the_first() -> None:
    async def main() -> None:
        async with aio_calls(AioService(), "task") as (events, client, channel):
            call = channel.unary_unary("/s.S/unary_unary")(b"a", timeout=30)

            async def wait(type: str) -> None:
                await call
                client.record(type)

            await asyncio.create_task(wait("first"))
            await asyncio.create_task(wait("second"))
            first, second = (event for event in events if event["type"] in ("first", "second"))
            assert second["clock"]["server"] == 2
            counter = first["clock"][first["node"]]
            assert second["clock"][first["node"]] == counter - 1

    asyncio.run(main())


def test_second_task_that_awaits_a_call_merges_the_servers_clock() -> None:
    async def main() -> None:
        async with aio_calls(AioService(), "task") as (events, client, channel):
            call = channel.unary_unary("/s.S/unary_unary")(b"a", timeout=30)

            async def wait() -> None:
                await call
                client.record("after")

            await asyncio.gather(wait(), wait())
            afters = [event["clock"] for event in events if event["type"] == "after"]
            assert [clock["server"] for clock in afters] == [2, 2]
            assert sum(event["type"] == "grpc.answered" for event in events) == 1

    asyncio.run(main())


def test_task_that_the_second_task_starts_knows_the_servers_clock_too() -> None:
    async def main() -> None:
        async with aio_calls(AioService(), "task") as (events, client, channel):
            call = channel.unary_unary("/s.S/unary_unary")(b"a", timeout=30)

            async def record() -> None:
                client.record("started")

            async def wait() -> None:
                await call
                await asyncio.create_task(record())

            await asyncio.create_task(wait())
            await asyncio.create_task(wait())
            started = [event["clock"] for event in events if event["type"] == "started"]
            assert [clock.get("server") for clock in started] == [2, 2]

    asyncio.run(main())
