"""Feed a `Monitor` with events from other processes: over TCP, or from topics of Kafka.

The senders over TCP are `SocketSink` and `LogSender`. A connection carries JSON lines. A truncated
line is dropped, since its sender sends it again over another connection. The sender of a log
announces it first; the collector answers with the offset to start from, and acknowledges at the end
the offset up to which it has processed the log.

The one rule: the monitor is fed one event at a time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import socketserver
import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Self

from ketal.errors import refused_as_setting, wrong_type
from ketal.logs.formats.jsonl import read_lines
from ketal.logs.shape import Shape
from ketal.logs.source import Source
from ketal.model.limits import DEFAULT
from ketal.model.log_arguments import RecordBatch
from ketal.trace.delivery.connection_pauses import ConnectionPauses
from ketal.trace.delivery.log_sender import parse_announcement
from ketal.trace.delivery.sending import checked_address
from ketal.trace.feeding import Feedable, LockedMonitor
from ketal.trace.forks import close_in_child

_LOG = logging.getLogger("ketal.trace")
CONNECTIONS_MAX = 1_000
"""Maximum open connections of a collector; further ones are closed."""
LOGS_MAX = 10_000
"""Maximum logs whose offset a collector stores. The least recently used one is evicted; if its
connection breaks, its sender sends the log from the beginning."""
POLL_MS = 100
_SHAPE = Shape(Source())
"""The shape of the events that tracers write; it maps no fields, so reading does not change it."""


class MonitorFeeder(LockedMonitor, ABC):
    """Base of the collectors."""

    def _feed_records(self, batch: RecordBatch, numbers: range) -> None:
        """Feed some records of a batch, by their indexes; the lock is held."""
        for number in numbers:
            self._monitor.feed(batch.items[number], place=batch.place(number))

    @abstractmethod
    def close(self) -> None:
        """Stop receiving events from other processes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class Collector(MonitorFeeder):
    """Receives the events of tracers over TCP, and feeds them to a monitor, one at a time.

    The monitor's handlers (`Monitor(program, on=…)`) are called in the collector's threads. The
    order in which events arrive does not matter to a pattern with `order CausalOrder`.

    In the child of a fork, the collector receives no events from other processes; the child's copy
    of the monitor is fed only the child's own events.

    Parameters
    ----------
    monitor : Monitor
        The monitor to feed; `collector.lock` is held while it is fed.
    host, port : str, int
        The address to listen on; port 0 chooses a free port.

    Attributes
    ----------
    address : tuple of (str, int)
        The address that it listens on.
    lock : Lock
        Must be held while other code uses the monitor; the lock of all monitors of this process.

    Raises
    ------
    TypeError
        If the monitor is not an object with `feed`, or the host is not a str.
    SettingError
        If the host is not a name, the port is not an integer from 0 to 65,535, or it cannot listen
        on the address.

    Examples
    --------
    >>> import ketal
    >>> from ketal.trace import Collector
    >>> program = ketal.compile('pattern P { event A = type == "a"; find next A A; }')
    >>> collector = Collector(ketal.Monitor(program))
    >>> collector.address[0]
    '127.0.0.1'
    >>> collector.feed(ketal.Event(node="n", type="a", clock={"n": 1}))
    []
    >>> collector.wait(timeout_s=0)
    True
    >>> collector.close()
    """

    def __init__(self, monitor: Feedable, *, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(monitor)
        self._offsets: OrderedDict[str, int] = OrderedDict()
        self._pauses = ConnectionPauses(monitor)
        address = checked_address(host, port, port_min=0)
        with refused_as_setting(f"events cannot be received on port {port} of {host}"):
            self._server = _Server(address, self._process_connection)
        self.address: tuple[str, int] = self._server.server_address[:2]  # type: ignore[assignment]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def _process_connection(self, connection: socket.socket, peer: str) -> None:
        """Feed the events that arrive over a connection, until it is closed."""
        chunks = _received_lines(connection, DEFAULT.line_bytes_max)
        first = next(chunks, b"")
        opening, _, rest = first.partition(b"\n")
        announcement = parse_announcement(opening)
        if announcement is None:
            chunks = chain([first], chunks)
        else:
            chunks = self._acknowledged_chunks(*announcement, connection, chain([rest], chunks))
        with self.lock:
            self._pauses.open(connection, of_log=announcement is not None)
        try:
            for batch in read_lines(peer, chunks, _SHAPE, DEFAULT):
                self._feed_batch(connection, batch)
        finally:
            with self.lock:
                self._pauses.close(connection)

    def _feed_batch(self, connection: socket.socket, batch: RecordBatch) -> None:
        """Feed a batch of records of a connection, in portions; wait while it is paused."""
        begin, count = 0, len(batch.items)
        while begin < count:
            with self.lock:
                portion = self._pauses.portion(connection)
                end = count if portion is None else min(count, begin + portion)
                self._feed_records(batch, range(begin, end))
                if portion is not None:
                    self._pauses.record(connection, batch.items[begin:end])
            begin = end
            if portion == 0:
                self._pauses.wait(connection)

    def _acknowledged_chunks(
        self, log: str, size_bytes: int, connection: socket.socket, chunks: Iterator[bytes]
    ) -> Iterator[bytes]:
        """Answer the announcement of a log; yield the chunks that are sent, and acknowledge them.

        A chunk counts as processed when the next one is requested.
        """
        with self.lock:
            offset = self._offsets.get(log, 0)
            if offset > size_bytes:
                offset = 0  # The log was truncated.
            self._set_offset(log, offset)
        with contextlib.suppress(OSError):
            connection.sendall(b"%d\n" % offset)
        for chunk in chunks:
            yield chunk
            offset += len(chunk)
            with self.lock:
                # An earlier connection of the same log may not be at its end yet.
                self._set_offset(log, max(self._offsets.get(log, 0), offset))
                if offset >= size_bytes:
                    self._pauses.catch_up(connection)
        with contextlib.suppress(OSError):
            connection.sendall(b"%d\n" % offset)

    def _set_offset(self, log: str, offset: int) -> None:
        """Store the processed offset of a log; evict the least recently used beyond `LOGS_MAX`."""
        self._offsets.pop(log, None)
        self._offsets[log] = offset
        if len(self._offsets) > LOGS_MAX:
            self._offsets.popitem(last=False)

    def wait(self, *, timeout_s: float | None = None) -> bool:
        """Wait until no connection is open; return False if that takes longer than `timeout_s`.

        Parameters
        ----------
        timeout_s : float, optional
            Maximum time to wait, in seconds.
        """
        return wait_until(lambda: not self._server.is_busy(), timeout_s)

    def close(self) -> None:
        """Stop listening; open connections continue until their senders close them."""
        if self._server.is_own_process():
            self._server.shutdown()
            self._server.server_close()


def wait_until(holds: Callable[[], bool], timeout_s: float | None) -> bool:
    """Wait until a condition holds; return False if that takes longer than `timeout_s`."""
    end = None if timeout_s is None else time.monotonic() + timeout_s
    while not holds():
        if end is not None and time.monotonic() >= end:
            return False
        time.sleep(0.01)
    return True


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = CONNECTIONS_MAX

    def __init__(
        self, address: tuple[str, int], process_connection: Callable[[socket.socket, str], None]
    ) -> None:
        self.process_connection = process_connection
        self._open_lock = threading.Lock()
        self._open = 0
        self._refused = False
        self._process = os.getpid()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, socketserver.BaseRequestHandler)
        close_in_child(self.socket)

    def is_own_process(self) -> bool:
        """Return whether the server was started in this process, not in a parent of a fork."""
        return self._process == os.getpid()

    def is_busy(self) -> bool:
        """Return whether a connection is open, or waits to be accepted."""
        if not self.is_own_process():
            return False
        # A connection is counted before it is accepted, so one of the two tests detects it.
        waiting = self.socket.fileno() >= 0 and _is_readable(self.socket)
        return waiting or self._open > 0

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection."""
        self._add_open(1)
        try:
            connection, peer = super().get_request()
        except OSError:
            self._add_open(-1)
            raise
        # Without keep-alive, the connection of a crashed machine would stay open for ever.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return close_in_child(connection), peer

    def verify_request(self, request: object, client_address: object) -> bool:
        """Return whether there are at most `CONNECTIONS_MAX` connections."""
        has_room = self._open <= CONNECTIONS_MAX
        if not (has_room or self._refused):
            _LOG.warning(
                "more than %s connections: further ones are closed", f"{CONNECTIONS_MAX:,}"
            )
            self._refused = True
        return has_room

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Process a connection until it is closed."""
        host, port = client_address[:2]
        self.process_connection(request, f"{host}:{port}")

    def handle_error(self, request: object, client_address: Any) -> None:
        """Log the exception that ended a connection."""
        _LOG.exception("stopped receiving events from %s:%s", *client_address[:2])

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        super().shutdown_request(request)
        self._add_open(-1)

    def _add_open(self, by: int) -> None:
        with self._open_lock:
            self._open += by


def _is_readable(connection: socket.socket) -> bool:
    # `select.select` does not support descriptors above 1,023.
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        return bool(selector.select(0))


def _received_lines(connection: socket.socket, line_bytes_max: int) -> Iterator[bytes]:
    """Yield blocks of whole lines from a connection; drop a truncated line at its end.

    A line longer than `line_bytes_max` is yielded in pieces; the reader rejects it as one line.
    """
    rest = b""
    while True:
        try:
            part = connection.recv(1 << 16)
        except OSError:
            return
        if not part:
            return
        lines, end, rest = (rest + part).rpartition(b"\n")
        if end:
            yield lines + end
        elif len(rest) > line_bytes_max:
            yield rest
            rest = b""


class TopicCollector(MonitorFeeder):
    """Consumes the events of tracers from Kafka topics, and feeds them to a monitor.

    The monitor's handlers (`Monitor(program, on=…)`) are called in the collector's thread. The
    order in which events arrive does not matter to a pattern with `order CausalOrder`.

    Parameters
    ----------
    consumer : kafka.KafkaConsumer
        An object whose `poll(timeout_ms=…)` returns lists of messages by partition; the values of
        the messages are bytes. It is polled in the collector's thread until `close`, and closed
        there.
    monitor : Monitor
        The monitor to feed; `collector.lock` is held while it is fed.

    Attributes
    ----------
    lock : Lock
        Must be held while other code uses the monitor; the lock of all monitors of this process.
    taken : int
        The number of messages processed.

    Examples
    --------
    >>> import ketal
    >>> from collections import namedtuple
    >>> from ketal.trace import TopicCollector
    >>> Message = namedtuple("Message", "topic partition offset value")
    >>> line = b'{"node": "n", "type": "a", "clock": {"n": 1}}'
    >>> class Consumer:
    ...     batches = [{"events": [Message("events", 0, 0, line)]}]
    ...     def poll(self, timeout_ms):
    ...         return self.batches.pop() if self.batches else {}
    ...     def close(self):
    ...         print("closed")
    >>> program = ketal.compile('pattern P { event A = type == "a"; find next A; }')
    >>> monitor = ketal.Monitor(program, on={"match": print})
    >>> with TopicCollector(Consumer(), monitor) as collector:
    ...     collector.wait(1, timeout_s=10)
    ...     collector.feed(ketal.Event(node="n", type="b", clock={"n": 2}))
    ...     collector.close()
    match P: A=n@1
    True
    []
    closed
    """

    def __init__(self, consumer: Any, monitor: Feedable) -> None:
        super().__init__(monitor)
        if not callable(getattr(consumer, "poll", None)):
            raise wrong_type("consumer", "an object with poll(timeout_ms=…)", consumer)
        self.taken = 0
        self._consumer = consumer
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        try:
            while not self._closed.is_set():
                for messages in self._consumer.poll(timeout_ms=POLL_MS).values():
                    for message in messages:
                        self._process_message(message)
        except Exception:
            _LOG.exception("stopped consuming events from Kafka")
        finally:
            self._consumer.close()

    def _process_message(self, message: Any) -> None:
        place = f"{message.topic}/{message.partition}/{message.offset}"
        line = (message.value or b"").replace(b"\n", b" ")
        for batch in read_lines(place, iter([line]), _SHAPE, DEFAULT):
            with self.lock:
                self._feed_records(batch, range(len(batch.items)))
        self.taken += 1

    def wait(self, messages: int, *, timeout_s: float | None = None) -> bool:
        """Wait until a number of messages were processed; return whether they were.

        Returns False after `timeout_s`, or if the collector ends first.

        Parameters
        ----------
        messages : int
            The number of messages.
        timeout_s : float, optional
            Maximum time to wait, in seconds.
        """
        wait_until(lambda: self.taken >= messages or not self._thread.is_alive(), timeout_s)
        return self.taken >= messages

    def close(self) -> None:
        """Stop polling, and close the consumer."""
        self._closed.set()
        if threading.current_thread() is not self._thread:  # A handler may call `close`.
            self._thread.join()
