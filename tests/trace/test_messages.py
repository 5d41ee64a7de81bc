"""Messages between two processes: the receiver knows all that the sender knew at the send."""

from __future__ import annotations

import asyncio
import contextvars
import http.client
import http.server
import multiprocessing
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ketal.trace import (
    AsgiMiddleware,
    TracedQueue,
    TracedSocket,
    TracedStreams,
    Tracer,
    kafka_headers,
    message_header,
)
from ketal.trace.carriers.sockets import PAYLOAD_MAX, PREFIX
from tests.trace.test_exactness import ListSink


def _traced_pair() -> tuple[ListSink, Tracer, Tracer]:
    """Return the tracers of two processes and their common sink, after one event of the first."""
    events = ListSink()
    one, other = Tracer("a", events), Tracer("b", events)
    one.record("first")
    return events, one, other


def _received(events: ListSink) -> list[tuple[str, dict[str, int], str]]:
    return [
        (event["type"], event["clock"], *event["receives"])
        for event in events
        if "receives" in event
    ]


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    with left, right:
        yield left, right


def test_socket_messages_carry_the_clock(sockets: tuple[socket.socket, socket.socket]) -> None:
    events, one, other = _traced_pair()
    left, right = TracedSocket(sockets[0], one), TracedSocket(sockets[1], other)
    large = bytes(300_000)
    sending = threading.Thread(target=left.send, args=(large, "push"), kwargs={"key": "k"})
    sending.start()
    assert right.receive("apply", key="k") == large
    sending.join()
    right.send(b"")
    assert left.receive() == b""
    assert _received(events) == [
        ("apply", {"a": 2, "b": 1}, "a@2"), ("receive", {"a": 3, "b": 2}, "b@2"),
    ]  # fmt: skip
    assert not one.failures
    sockets[0].close()
    with pytest.raises(EOFError):
        right.receive()


def _parts(frame: bytes) -> tuple[bytes, ...]:
    """Return a frame in four parts, cut within its lengths, its header and its payload."""
    return frame[:5], frame[5:12], frame[12:-2], frame[-2:]


def _bytes_of(payload: bytes, tracer: Tracer) -> bytes:
    """Return the bytes that sending a message writes."""
    left, right = socket.socketpair()
    with left, right:
        TracedSocket(left, tracer).send(payload)
        return right.recv(1 << 16)


def test_receive_continues_a_message_after_a_timeout(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    events, one, other = _traced_pair()
    sockets[1].settimeout(0.01)
    right = TracedSocket(sockets[1], other)
    for part in _parts(_bytes_of(b"hello", one)):
        with pytest.raises(TimeoutError):
            right.receive()
        sockets[0].sendall(part)
    assert right.receive("apply") == b"hello"
    assert _received(events) == [("apply", {"a": 2, "b": 1}, "a@2")]


def test_receive_continues_a_message_after_a_cancellation() -> None:
    events, one, other = _traced_pair()

    async def main() -> bytes:
        reader = asyncio.StreamReader()
        writer: Any = None  # nothing is sent
        streams = TracedStreams(reader, writer, other)
        for part in _parts(_bytes_of(b"hello", one)):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(streams.receive(), 0.01)
            reader.feed_data(part)
        return await streams.receive("apply")

    assert asyncio.run(main()) == b"hello"
    assert _received(events) == [("apply", {"a": 2, "b": 1}, "a@2")]


def test_an_invalid_frame_is_an_error(sockets: tuple[socket.socket, socket.socket]) -> None:
    events, _, other = _traced_pair()
    sockets[0].sendall(PREFIX.pack(1, PAYLOAD_MAX + 1))
    with pytest.raises(ValueError, match="the payload of a frame has 67,108,865 bytes"):
        TracedSocket(sockets[1], other).receive()
    assert len(events) == 1


def test_asyncio_stream_messages_carry_the_clock() -> None:
    events, one, other = _traced_pair()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        streams = TracedStreams(reader, writer, other)
        await streams.send(await streams.receive("ask") + b"!", "answer")
        writer.close()

    async def main() -> bytes:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            streams = TracedStreams(reader, writer, one)
            await streams.send(b"hello")
            got = await streams.receive("answered")
            with pytest.raises(EOFError):
                await streams.receive()
            writer.close()
        return got

    assert asyncio.run(main()) == b"hello!"
    assert _received(events) == [
        ("ask", {"a": 2, "b": 1}, "a@2"), ("answered", {"a": 3, "b": 2}, "b@2"),
    ]  # fmt: skip


def test_http_messages_carry_the_clock() -> None:
    events, one, other = _traced_pair()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            other.receive(self.headers, "request")
            self.send_response(200)
            for name, value in other.send("response").items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.handle_request)
        serving.start()
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
        connection.request("GET", "/", headers=one.send("ask"))
        one.receive(connection.getresponse().headers, "answered")
        connection.close()
        serving.join()
    assert _received(events) == [
        ("request", {"a": 2, "b": 1}, "a@2"), ("answered", {"a": 3, "b": 2}, "b@2"),
    ]  # fmt: skip
    assert not one.failures
    assert not other.failures


def test_asgi_messages_carry_the_clock() -> None:
    events, one, other = _traced_pair()
    sent: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x", b"y")]})
        await send({"type": "http.response.body", "body": b""})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError

    headers = [(name.title().encode(), value.encode()) for name, value in one.send().items()]
    scope = {"type": "http", "method": "GET", "path": "/p", "headers": headers}
    asyncio.run(AsgiMiddleware(application, other)(scope, receive, send))
    asyncio.run(AsgiMiddleware(application, other)({"type": "lifespan"}, receive, send))
    one.receive(sent[0]["headers"], "answered")
    assert sent[0]["headers"][0] == (b"x", b"y")
    assert sent[2]["headers"] == [(b"x", b"y")]
    assert _received(events) == [
        ("http.request", {"a": 2, "b": 1}, "a@2"), ("answered", {"a": 3, "b": 2}, "b@2"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "passed_on",
    [
        lambda old, new: [*kafka_headers(old), *kafka_headers(new)],
        lambda old, new: {message_header.NAME: ", ".join([*old.values(), *new.values()])},
        lambda old, new: ",".join([*old.values(), *new.values()]).encode(),
    ],
    ids=["two headers", "joined headers", "joined bytes"],
)
def test_clock_of_a_message_is_that_of_its_send_not_one_that_is_passed_on(
    passed_on: Callable[[dict[str, str], dict[str, str]], Any],
) -> None:
    """`a` sends to `b`, which sends the headers on to `c`, with its own."""
    events, one, other = _traced_pair()
    third = Tracer("c", events)
    received = one.send()
    other.receive(received)
    third.receive(passed_on(received, other.send()))
    assert _received(events)[-1] == ("receive", {"a": 2, "b": 2, "c": 1}, "b@2")
    assert not third.failures


def test_asgi_response_has_no_clock_of_another_response() -> None:
    """The application passes on the headers of a response that it received."""
    events, one, other = _traced_pair()
    response = Tracer("c", events).send("answer")
    sent: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        other.receive(response)
        pairs = [(name.title().encode(), value.encode()) for name, value in response.items()]
        await send({"type": "http.response.start", "status": 200, "headers": pairs})

    async def send(message: Any) -> None:
        sent.extend(message["headers"])

    async def receive() -> Any:
        raise AssertionError

    scope = {"type": "http", "method": "GET", "path": "/p", "headers": [*one.send().items()]}
    asyncio.run(AsgiMiddleware(application, other)(scope, receive, send))
    assert sent == [(b"ketal-clock", b"1;b;a=2,b=3,c=1")]


def test_queue_messages_carry_the_clock() -> None:
    events, one, other = _traced_pair()
    jobs: queue.Queue[Any] = queue.Queue(maxsize=1)
    TracedQueue(jobs, one, "jobs").put("job", timeout=1)
    assert TracedQueue(jobs, other, "jobs").get(timeout=1) == "job"
    with pytest.raises(queue.Empty):
        TracedQueue(jobs, other).get_nowait()
    assert TracedQueue(jobs, other).empty()
    shared = multiprocessing.get_context("spawn").Queue()
    TracedQueue(shared, other).put({"k": 1})
    assert TracedQueue(shared, one).get(timeout=30) == {"k": 1}
    shared.close()
    assert _received(events) == [
        ("get", {"a": 2, "b": 1}, "a@2"), ("get", {"a": 3, "b": 2}, "b@2"),
    ]  # fmt: skip


def test_full_queue_that_refuses_an_item_records_no_send() -> None:
    events, one, _ = _traced_pair()
    queues: list[Any] = [queue.Queue(1), multiprocessing.get_context("spawn").Queue(1)]
    for jobs in queues:
        putting = TracedQueue(jobs, one)
        putting.put("job", False)
        with pytest.raises(queue.Full):
            putting.put_nowait("another")
        with pytest.raises(queue.Full):
            putting.put("another", block=False)
    tasks = TracedQueue(asyncio.Queue(1), one)
    tasks.put_nowait("job")
    with pytest.raises(asyncio.QueueFull):
        tasks.put_nowait("another")
    simple: queue.SimpleQueue[Any] = queue.SimpleQueue()
    TracedQueue(simple, one).put_nowait("job")
    assert [event["type"] for event in events] == ["first", *["put"] * 4]


def test_payload_that_cannot_be_sent_records_no_send(
    sockets: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    events, one, _ = _traced_pair()
    monkeypatch.setattr("ketal.trace.carriers.sockets.PAYLOAD_MAX", 5)
    for payload, error in ((b"longer", ValueError), ("text", TypeError)):
        with pytest.raises(error):
            TracedSocket(sockets[0], one).send(payload)  # type: ignore[arg-type]
    assert len(events) == 1


def test_traced_priority_queue_keeps_its_order() -> None:
    events, one, other = _traced_pair()
    jobs: queue.Queue[Any] = queue.PriorityQueue()
    putting, getting = TracedQueue(jobs, one), TracedQueue(jobs, other)
    for priority in (3, 1, 2):
        putting.put(priority)
    jobs.put(0)
    assert [getting.get_nowait() for _ in range(4)] == [0, 1, 2, 3]
    assert [event["receives"] for event in events if "receives" in event] == [
        ["a@3"], ["a@4"], ["a@2"],
    ]  # fmt: skip


def test_an_item_put_by_other_means_is_returned_and_counted() -> None:
    events, one, _ = _traced_pair()
    jobs: queue.Queue[Any] = queue.Queue()
    items: list[Any] = [None, ({}, 3)]
    for item in items:
        jobs.put(item)
        assert TracedQueue(jobs, one).get() == item
    assert dict(one.failures) == {"a message without the header ketal-clock was received": 2}
    assert [event["type"] for event in events] == ["first", "get", "get"]


def test_a_clock_too_long_for_a_message_is_dropped(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    """The message itself is sent."""
    events, one, other = _traced_pair()
    one.receive(message_header.encoded("m", {"m": 1, "n" * 60_000: 1}))
    many = {"m": 1, **{f"{'n' * 5_000}{number}": 1 for number in range(14)}}
    for name, counter in many.items():
        one.receive(message_header.encoded(name, {name: counter}))
    TracedSocket(sockets[0], one).send(b"hello")
    assert TracedSocket(sockets[1], other).receive() == b"hello"
    reason = "a message's clock is longer than 65,000 bytes and was not sent"
    assert dict(one.failures) == {reason: 1}
    assert events[-1]["clock"] == {"b": 1}
    assert one.send_within(message_header.SHORT_MAX) == {}
    assert other.send_within(message_header.SHORT_MAX) == {message_header.NAME: "1;b;b=2"}


def test_http_response_with_a_too_long_clock_is_sent_without_it() -> None:
    events, one, other = _traced_pair()
    other.receive(message_header.encoded("m", {"m": 1, "n" * 5_000: 1}))
    sent: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x", b"y")]})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError

    scope = {"type": "http", "method": "GET", "path": "/p", "headers": [*one.send().items()]}
    asyncio.run(AsgiMiddleware(application, other)(scope, receive, send))
    assert sent[0]["headers"] == [(b"x", b"y")]
    assert sum(other.failures.values()) == 1
    assert [event["type"] for event in events][-2:] == ["http.request", "http.response"]


def test_a_clock_of_too_many_entries_ends_the_recording_and_stops_growing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ketal.trace.activities.ENTRIES_MAX", 10)
    monkeypatch.setattr("ketal.trace.recording.ENTRIES_MAX", 10)
    events = ListSink()
    tracer = Tracer("n", events, activity="thread")
    for number in range(9):
        tracer.receive(message_header.encoded(f"m{number}", {f"m{number}": 1}), "apply")
    assert len(events[-1]["clock"]) == 10
    headers = [message_header.encoded("z", {"z": 1, f"other{n}": 1}) for n in range(100)]
    for header in headers:
        tracer.receive(header, "apply")
    assert tracer.send("order") == {}, "what it knows cannot be sent"
    context = contextvars.copy_context()
    heir = threading.Thread(target=context.run, args=(tracer.record, "inherits"))
    heir.start()
    heir.join()
    assert len(events) == 9, "an event after it would lack a part of its past"
    (reason,) = tracer.failures
    assert reason.endswith("the clock has more than 10 entries (limit clock_entries_max)")
    assert tracer.failures[reason] == 102
    with tracer._recorder.activities.current() as line:
        assert len(line.copy_clock()) == 11
