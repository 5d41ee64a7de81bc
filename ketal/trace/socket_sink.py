"""Events over TCP, sent as they happen to a `Collector`, of a program without a log.

What has a log sends that (`log_sender`). A sink that lost its connection connects again, and sends
the line that it was sending anew: the collector drops one that was cut, and of one that had come
whole the monitor counts a duplicate.

The one rule: the program that is watched never waits for the collector.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections.abc import Mapping
from multiprocessing.util import Finalize

import msgspec

from ketal.trace.run_numbers import next_run

UNSENT_MAX = 100_000
"""Events that wait to be sent; of more, the tracer counts each as not written."""
RETRY_S = 0.2
LINGER_S = 5.0
"""How long a program that ends waits for the events that it has not sent."""


class SocketSink:
    """A sink that sends each event to a `Collector`, from a thread of its own.

    Parameters
    ----------
    host, port : str, int
        The collector's address; it need not be there yet.
    unsent_max : int
        Events that wait to be sent.

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
        self._address = (host, port)
        self._unsent_max = unsent_max
        self._begin()

    def _begin(self) -> None:
        """Begin in this process; the thread of a parent is not in the child of a fork."""
        self._process = os.getpid()
        self._unsent: queue.Queue[bytes | None] = queue.Queue(self._unsent_max)
        self._sent = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._send_all, daemon=True, name="ketal sink")
        self._thread.start()
        # Not `atexit`: a child of multiprocessing ends without what that calls.
        self._at_end = Finalize(None, self.close, exitpriority=0)

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
        """Have an event sent.

        Parameters
        ----------
        event : mapping
            In the form of a ketal log.

        Raises
        ------
        OSError
            If too many wait already, or the sink is closed.
        """
        if self._process != os.getpid():
            self._begin()
        if self._closing:
            raise OSError("the sink is closed")
        try:
            self._unsent.put_nowait(msgspec.json.encode(event) + b"\n")
        except queue.Full:
            raise OSError(f"{self._unsent_max:,} events wait to be sent") from None

    def close(self) -> None:
        """Send what waits, for some seconds at most, and end."""
        if self._closing or self._process != os.getpid():
            return
        self._closing = True
        self._at_end.cancel()
        end = time.monotonic() + LINGER_S
        try:
            self._unsent.put(None, timeout=LINGER_S)
        except queue.Full:
            return
        self._sent.wait(max(0.0, end - time.monotonic()))

    def _send_all(self) -> None:
        line = self._unsent.get()
        while line is not None:
            try:
                with socket.create_connection(self._address, timeout=30) as connection:
                    while line is not None:
                        connection.sendall(line)
                        line = self._unsent.get()
            except OSError:
                time.sleep(RETRY_S)
        self._sent.set()
