"""Events over TCP, sent as they happen to a `Collector`, of a program without a log.

What has a log sends that (`log_sender`). A sink that lost its connection connects again, and sends
the lines that it was sending anew: the collector drops one that was cut, and of those that had come
whole the monitor counts duplicates. Lines that wait are sent together: each time that the thread
gives up the interpreter's lock, a busy program makes it wait some milliseconds.

The one rule: the program that is watched never waits for the collector.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from collections.abc import Mapping

from ketal.trace.delivery.run_numbers import next_run
from ketal.trace.delivery.sending import (
    RETRY_S,
    Sending,
    address_of,
    connected,
    end_all,
    received_within,
)
from ketal.trace.plain_values import encoded

UNSENT_MAX = 100_000
"""Events that wait to be sent; of more, the tracer counts each as not written."""
_LINES_MAX = 1_000
"""Lines that are sent together."""


class SocketSink:
    """A sink that sends each event to a `Collector`, from a thread of its own.

    Parameters
    ----------
    host, port : str, int
        The collector's address; it need not be there yet.
    unsent_max : int
        Events that wait to be sent.

    Raises
    ------
    SettingError
        If the port is none.

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

    The next run of the program that sends there:

    >>> sink.incarnation("n1")
    2
    """

    def __init__(self, host: str, port: int, *, unsent_max: int = UNSENT_MAX) -> None:
        self._address = address_of(host, port)
        self._unsent_max = unsent_max
        self._begin()

    def _begin(self) -> None:
        """Begin in this process; the thread of a parent is not in the child of a fork."""
        self._unsent: deque[bytes] = deque()
        self._waking = threading.Event()
        self._closed = False
        self._sending = Sending("ketal sink", self._send_all, self._finish)

    def incarnation(self, node: str) -> int:
        """Return which run of a node this is of those that sent to the collector's address.

        Parameters
        ----------
        node : str
            The node's name, without an incarnation.
        """
        host, port = self._address
        return next_run(node, f"{host}:{port}")

    def write(self, event: Mapping[str, object]) -> None:
        """Append an event to those that wait to be sent.

        Parameters
        ----------
        event : mapping
            In the form of a ketal log.

        Raises
        ------
        OSError
            If too many wait already, or the sink is closed.
        """
        if self._sending.process != os.getpid():
            self._begin()
        if self._closed:
            raise OSError("the sink is closed")
        if len(self._unsent) >= self._unsent_max:
            raise OSError(f"{self._unsent_max:,} events wait to be sent")
        self._unsent.append(encoded(event) + b"\n")
        if not self._waking.is_set():
            self._waking.set()

    def close(self) -> None:
        """Send what waits, for some seconds at most, and end."""
        if not self._closed and self._sending.process == os.getpid():
            end_all([self._sending])

    def _finish(self) -> None:
        self._closed = True
        self._waking.set()

    def _send_all(self, over: threading.Event) -> None:
        while not over.is_set():
            if not self._unsent:
                if self._closed:
                    break
                self._waking.wait()
                continue
            try:
                with connected(self._address) as connection:
                    self._send(connection, over)
            except OSError:
                over.wait(RETRY_S)

    def _send(self, connection: socket.socket, over: threading.Event) -> None:
        """Send what waits, until the sink is closed; raises OSError if the connection broke."""
        unsent = self._unsent
        while not over.is_set():
            # First this, so that it is set again by a line that the next one does not see.
            self._waking.clear()
            lines = [unsent[number] for number in range(min(len(unsent), _LINES_MAX))]
            if lines:
                if received_within(connection, 0) is not None:
                    raise ConnectionError("the collector is gone: nothing would come")
                connection.sendall(b"".join(lines))
                for _ in lines:
                    unsent.popleft()
            elif self._closed:
                return
            else:
                self._waking.wait()
