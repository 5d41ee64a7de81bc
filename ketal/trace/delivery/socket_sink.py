"""Send events to a `Collector` over TCP as they happen, for a program without a log file.

For a program with a log file, use `log_sender`. After losing its connection, the sink reconnects
and sends the lines of its last batch again: the collector drops a truncated line, and the monitor
deduplicates the others. Lines are sent in batches, because each time that the sending thread
releases the interpreter lock, it waits some milliseconds to get it back from a busy program.

The one rule: the traced program never waits for the collector.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from collections.abc import Mapping

from ketal.errors import SettingError
from ketal.trace.delivery.run_numbers import Claims, next_run
from ketal.trace.delivery.sending import (
    RETRY_S,
    SenderThread,
    checked_address,
    connected,
    end_all,
    receive_byte,
    send_slowly,
)
from ketal.trace.plain_values import encoded

UNSENT_MAX = 100_000
"""Default maximum of unsent events; the tracer counts further ones as failures."""
_LINES_MAX = 1_000
"""Maximum lines per batch."""


class SocketSink:
    """A sink that sends each event to a `Collector`, from a thread of its own.

    Parameters
    ----------
    host, port : str, int
        The address of the collector, which need not be listening yet.
    unsent_max : int
        Maximum number of unsent events.

    Raises
    ------
    SettingError
        If the host is not a name, the port is not an integer from 1 to 65,535, or the maximum is
        not a positive integer.
    TypeError
        If the host is not a str.

    Examples
    --------
    >>> import ketal
    >>> from ketal.trace import Collector, SocketSink, Tracer
    >>> program = ketal.compile('pattern P { event A = type == "a"; find next A A; }')
    >>> monitor = ketal.Monitor(program, on={"match": print})
    >>> with Collector(monitor) as collector:
    ...     sink = SocketSink(*collector.address)
    ...     tracer = Tracer("n1", sink)
    ...     tracer.record("a")
    ...     sink.write({"node": "n1", "type": "a", "clock": {"n1": 2}})
    ...     sink.close()
    ...     collector.wait()
    match P: A=n1@1+n1@2
    True

    The next run of the node that sends to this address:

    >>> sink.incarnation("n1")
    2
    """

    def __init__(self, host: str, port: int, *, unsent_max: int = UNSENT_MAX) -> None:
        self._address = checked_address(host, port)
        if unsent_max.__class__ is not int or unsent_max < 1:
            raise SettingError(f"unsent_max must be a positive integer, not {unsent_max!r}")
        self._unsent_max = unsent_max
        self._claims = Claims()
        self._start()

    def _start(self) -> None:
        """Start the thread in this process; a child of a fork has no copy of its parent's."""
        self._unsent: deque[bytes] = deque()
        self._wake = threading.Event()
        self._closed = False
        self._sender = SenderThread("ketal sink", self._send_all, self._finish)

    def incarnation(self, node: str) -> int:
        """Return the number, from 1, of this run of a node among those that sent to the address.

        Parameters
        ----------
        node : str
            The node's name, without an incarnation.
        """
        host, port = self._address
        return next_run(node, f"{host}:{port}", self._claims)

    def write(self, event: Mapping[str, object]) -> None:
        """Queue an event for sending.

        Parameters
        ----------
        event : mapping
            The event, as in a ketal log.

        Raises
        ------
        OSError
            If the queue is full, or the sink is closed.
        """
        if self._sender.process != os.getpid():
            self._start()
        if self._closed:
            raise OSError("the sink is closed")
        if len(self._unsent) >= self._unsent_max:
            raise OSError(f"{self._unsent_max:,} events are already waiting to be sent")
        self._unsent.append(encoded(event) + b"\n")
        if not self._wake.is_set():
            self._wake.set()

    def close(self) -> None:
        """Send the queued events, for a few seconds at most, and stop the thread."""
        if not self._closed and self._sender.process == os.getpid():
            end_all([self._sender])
            self._claims = Claims()

    def _finish(self) -> None:
        self._closed = True
        self._wake.set()

    def _send_all(self, stop: threading.Event) -> None:
        while not stop.is_set():
            if not self._unsent:
                if self._closed:
                    break
                self._wake.wait()
                continue
            try:
                with connected(self._address) as connection:
                    self._send(connection, stop)
            except OSError:
                stop.wait(RETRY_S)

    def _send(self, connection: socket.socket, stop: threading.Event) -> None:
        """Send queued events until the sink is closed; raise OSError if the connection breaks."""
        unsent = self._unsent
        while not stop.is_set():
            # Clear before reading the queue: a line that is queued after that sets it again.
            self._wake.clear()
            lines = [unsent[number] for number in range(min(len(unsent), _LINES_MAX))]
            if lines:
                if receive_byte(connection, 0) is not None:
                    raise ConnectionError("the collector closed the connection")
                send_slowly(connection, b"".join(lines), stop)
                for _ in lines:
                    unsent.popleft()
            elif self._closed:
                return
            else:
                self._wake.wait()
