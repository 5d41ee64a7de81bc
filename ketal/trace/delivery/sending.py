"""Threads that send events to a `Collector`, and end with the program.

At the end of the program all senders share one timeout, since most of them wait for the same
collector, which may never start.

The one rule: sending delays the end of a program by `LINGER_S` at most.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from multiprocessing.util import Finalize

from ketal.errors import SettingError, checked_text
from ketal.trace.forks import close_in_child

RETRY_S = 0.2
"""Delay before retrying after a failure."""
TIMEOUT_S = 30.0
"""Timeout of connecting, sending and receiving."""
LINGER_S = 5.0
"""Maximum time that a program waits at its end for unsent events."""
_SENDERS: dict[int, list[SenderThread]] = {}
"""Process id → the senders of this process; no entry yet in the child of a fork."""


class SenderThread:
    """A thread of this process that sends events, and ends with the program.

    The thread runs `send_all`, whose argument is set when it must stop sending. `finish` asks it to
    send the remaining events and return; it does not block.
    """

    def __init__(
        self, name: str, send_all: Callable[[threading.Event], object], finish: Callable[[], None]
    ) -> None:
        self.finish = finish
        self.process = os.getpid()
        self._send_all = send_all
        self._stop = threading.Event()
        threading.Thread(target=self._run, daemon=True, name=name).start()
        if self.process not in _SENDERS:
            _SENDERS.clear()
            own_senders = _SENDERS[self.process] = []
            # Not `atexit`, whose functions are not called in a child of multiprocessing. Priority
            # below 0, to run after the program has joined its children, which may write to a log
            # that it sends.
            Finalize(None, lambda: end_all([*own_senders]), exitpriority=-1)
        _SENDERS[self.process].append(self)

    def _run(self) -> None:
        self._send_all(self._stop)
        self._stop.set()

    def wait_sent(self, timeout_s: float) -> None:
        """Wait until all events are sent, for `timeout_s` at most; then stop the thread."""
        self._stop.wait(timeout_s)
        self._stop.set()


def end_all(senders: Collection[SenderThread]) -> None:
    """Let senders send their remaining events, for `LINGER_S` at most in total, and stop them."""
    end = time.monotonic() + LINGER_S
    for sender in senders:
        sender.finish()
    for sender in senders:
        sender.wait_sent(max(0.0, end - time.monotonic()))
        own_senders = _SENDERS.get(os.getpid(), [])
        if sender in own_senders:
            own_senders.remove(sender)


def checked_address(host: str, port: int, *, port_min: int = 1) -> tuple[str, int]:
    """Return an address.

    Raises a SettingError if the host is not a name, or the port is not an integer from `port_min`
    to 65,535, and a TypeError if the host is not a str.
    """
    try:
        checked_text("host", host).encode("idna")
    except UnicodeError as error:
        raise SettingError(f"{host!r} is not a valid host name: {error}") from None
    if port.__class__ is not int or not port_min <= port < 1 << 16:
        raise SettingError(f"port must be an integer from {port_min} to 65535, not {port!r}")
    return host, port


@contextmanager
def connected(address: tuple[str, int]) -> Iterator[socket.socket]:
    """Connect to an address, as a context manager; raise an OSError on failure or timeout."""
    connection = socket.create_connection(address, timeout=TIMEOUT_S)
    with connection:
        refuse_self_connection(connection)
        yield close_in_child(connection)


def send_slowly(connection: socket.socket, data: bytes, stop: threading.Event) -> None:
    """Send data, however slowly it is received; raise a TimeoutError if `stop` is set meanwhile.

    `sendall` would limit the whole time to the timeout of the socket.
    """
    unsent = memoryview(data)
    while unsent:
        try:
            unsent = unsent[connection.send(unsent) :]
        except TimeoutError:
            if stop.is_set():
                raise


def receive_byte(connection: socket.socket, wait_s: float) -> bytes | None:
    """Wait for a byte; return it, `b""` if the connection was closed, or None on timeout."""
    connection.settimeout(wait_s)
    try:
        return connection.recv(1)
    except (BlockingIOError, TimeoutError):
        return None
    finally:
        connection.settimeout(TIMEOUT_S)


def refuse_self_connection(connection: socket.socket) -> None:
    """Raise a ConnectionError if a socket is connected to itself.

    TCP allows that (simultaneous open) if connecting to an unused ephemeral port is retried often
    enough; the socket would then receive everything that it sends.
    """
    if connection.getsockname() == connection.getpeername():
        raise ConnectionError("no collector is listening there")
