"""Events over TCP, taken: those that `SocketSink` and `LogSender` send, for a running `Monitor`.

A connection carries JSON lines. A line that was cut is sent again over another connection, so it
is dropped here. The sender of a log announces it first; the collector answers from which byte on it
wants the log, and at the end up to which byte it has taken it.

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
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from ketal.logs.formats.jsonl import read_lines
from ketal.logs.source import Source
from ketal.model.limits import DEFAULT
from ketal.trace.delivery.log_sender import Announcement, announced
from ketal.trace.delivery.monitor_feeding import MonitorFeeder, wait_until
from ketal.trace.delivery.own_sockets import own
from ketal.trace.delivery.sinks import Feeding

_LOG = logging.getLogger("ketal.trace")
CONNECTIONS_MAX = 1_000
"""Connections of a collector; more are closed."""
LOGS_MAX = 10_000
"""Logs of which a collector knows how much it has taken; of more, the one of which nothing came for
longest is forgotten, and sent anew if its connection breaks."""


class Collector(MonitorFeeder):
    """Takes the events of tracers over TCP, and feeds them to a monitor, one after the other.

    Its handlers (`Monitor(program, on=…)`) are called in the collector's threads. The order in
    which events come does not matter to a pattern with `order CausalOrder`.

    A child of a fork takes no events of others; its copy of the monitor goes on with its own.

    Parameters
    ----------
    monitor : Monitor
        What is fed; `collector.lock` is held meanwhile.
    host, port : str, int
        Where it listens; port 0 is a free one.

    Attributes
    ----------
    address : tuple of (str, int)
        Where it listens.
    lock : Lock
        To be held by who uses the monitor besides.

    Raises
    ------
    OSError
        If it cannot listen there.

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

    def __init__(self, monitor: Feeding, *, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(monitor)
        self._taken: dict[str, int] = {}
        self._server = _Server((host, port), self._take)
        self.address: tuple[str, int] = self._server.server_address[:2]  # type: ignore[assignment]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def _take(self, connection: socket.socket, peer: str) -> None:
        """Feed what comes over a connection, until it is closed."""
        chunks = _whole_lines(connection, DEFAULT.line_bytes_max)
        first = next(chunks, b"")
        opening, _, rest = first.partition(b"\n")
        announcement = announced(opening)
        if announcement is None:
            chunks = chain([first], chunks)
        else:
            chunks = self._wanted(announcement, connection, chain([rest], chunks))
        for records in read_lines(peer, chunks, Source(), DEFAULT):
            with self.lock:
                for _, item, name, number in records:
                    self._monitor.feed(item, place=f"{name}:{number}")

    def _wanted(
        self, announcement: Announcement, connection: socket.socket, chunks: Iterator[bytes]
    ) -> Iterator[bytes]:
        """Yield what is wanted of a log, and answer; a part is taken when the next is asked for."""
        log, size_bytes = announcement
        with self.lock:
            position = self._taken.get(log, 0)
            if position > size_bytes:
                position = 0  # The log was cut short.
            self._set_taken(log, position)
        with contextlib.suppress(OSError):
            connection.sendall(b"%d\n" % position)
        for chunk in chunks:
            yield chunk
            position += len(chunk)
            with self.lock:
                # An earlier connection of the same log may not be at its end yet.
                self._set_taken(log, max(self._taken.get(log, 0), position))
        with contextlib.suppress(OSError):
            connection.sendall(b"%d\n" % position)

    def _set_taken(self, log: str, position: int) -> None:
        """Set how much of a log is taken, and forget the longest unused of too many."""
        self._taken.pop(log, None)
        self._taken[log] = position
        if len(self._taken) > LOGS_MAX:
            del self._taken[next(iter(self._taken))]

    def wait(self, *, timeout_s: float | None = None) -> bool:
        """Wait until no connection is open; return whether that is so.

        Parameters
        ----------
        timeout_s : float, optional
            How long at most.
        """
        return wait_until(lambda: not self._server.is_busy(), timeout_s)

    def close(self) -> None:
        """Listen no more; connections that are open go on to their end."""
        if self._server.is_here():
            self._server.shutdown()
            self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = CONNECTIONS_MAX

    def __init__(
        self, address: tuple[str, int], take: Callable[[socket.socket, str], None]
    ) -> None:
        self.take = take
        self._counting = threading.Lock()
        self._open = 0
        self._refused = False
        self._process = os.getpid()
        super().__init__(address, _EventReceiver)
        own(self.socket)

    def is_here(self) -> bool:
        """Return whether it serves in this process, and not in one of which this is a fork."""
        return self._process == os.getpid()

    def is_busy(self) -> bool:
        """Return whether a connection is open, or waits to be accepted."""
        if not self.is_here():
            return False
        # One that is accepted is counted before, so it is seen here or there.
        waiting = self.socket.fileno() >= 0 and _is_readable(self.socket)
        with self._counting:
            return waiting or self._open > 0

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection."""
        self._count(1)
        try:
            connection, peer = super().get_request()
        except OSError:
            self._count(-1)
            raise
        # Else a peer whose machine is gone would have its connection, one of the most, for ever.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return own(connection), peer

    def verify_request(self, request: object, client_address: object) -> bool:
        """Return whether there is room for a connection."""
        with self._counting:
            is_room = self._open <= CONNECTIONS_MAX
        if not (is_room or self._refused):
            _LOG.warning("more than %s connections: others are closed", f"{CONNECTIONS_MAX:,}")
            self._refused = True
        return is_room

    def handle_error(self, request: object, client_address: Any) -> None:
        """Log what ended a connection."""
        _LOG.exception("events of %s:%s are taken no more", *client_address[:2])

    def shutdown_request(self, request: Any) -> None:
        """Close a connection that is done with."""
        super().shutdown_request(request)
        self._count(-1)

    def _count(self, by: int) -> None:
        with self._counting:
            self._open += by


def _is_readable(one: socket.socket) -> bool:
    # `select.select` takes no socket whose number is above 1,023.
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ)
        return bool(selector.select(0))


class _EventReceiver(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        host, port = self.client_address[:2]
        self.server.take(self.request, f"{host}:{port}")


def _whole_lines(connection: socket.socket, most: int) -> Iterator[bytes]:
    """Yield what comes, up to the end of the last whole line; what is cut is dropped."""
    rest = b""
    while True:
        try:
            part = connection.recv(1 << 16)
        except OSError:
            return
        if not part:
            return
        whole, end, rest = (rest + part).rpartition(b"\n")
        if end:
            yield whole + end
        elif len(rest) > most:
            # It is no line of an event: let the reader refuse it, and go on. No byte is added, so
            # that a log's bytes are counted right.
            yield rest[:-1] + b"\n"
            rest = b""
