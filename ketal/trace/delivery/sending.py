"""What sends events to a `Collector`: a thread, which connects to it and ends with the program.

At the program's end all that send share a few seconds: what they wait for is mostly the same
collector, and it may never come.

The one rule: a program ends `LINGER_S` after it could have ended, or before.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from multiprocessing.util import Finalize

from ketal.errors import SettingError
from ketal.trace.forks import own

RETRY_S = 0.2
"""How long after a failure it is tried again."""
TIMEOUT_S = 30.0
LINGER_S = 5.0
"""How long a program that ends waits for what it has not sent."""
_SENDING: dict[int, list[Sending]] = {}
"""Process id → the senders of this process; the child of a fork has none yet."""


class Sending:
    """A thread of this process that sends events, and ends when the program does.

    `send_all` runs in it; its argument is an event that is set when no more is to be sent. `finish`
    asks it to send what there is and return, and waits for nothing.
    """

    def __init__(
        self, name: str, send_all: Callable[[threading.Event], object], finish: Callable[[], None]
    ) -> None:
        self.finish = finish
        self.process = os.getpid()
        self._send_all = send_all
        self._over = threading.Event()
        threading.Thread(target=self._run, daemon=True, name=name).start()
        if self.process not in _SENDING:
            _SENDING.clear()
            mine = _SENDING[self.process] = []
            # Not `atexit`: a child of multiprocessing ends without what that calls. Below 0, since
            # until then a program waits for its children, which may write to a log that it sends.
            Finalize(None, lambda: end_all([*mine]), exitpriority=-1)
        _SENDING[self.process].append(self)

    def _run(self) -> None:
        self._send_all(self._over)
        self._over.set()

    def wait_sent(self, timeout_s: float) -> None:
        """Wait until all is sent, for `timeout_s` at most; then stop the thread."""
        self._over.wait(timeout_s)
        self._over.set()


def end_all(sendings: Collection[Sending]) -> None:
    """Flush the queues of senders, for `LINGER_S` at most, and stop them."""
    end = time.monotonic() + LINGER_S
    for one in sendings:
        one.finish()
    for one in sendings:
        one.wait_sent(max(0.0, end - time.monotonic()))
        mine = _SENDING.get(os.getpid(), [])
        if one in mine:
            mine.remove(one)


def address_of(host: str, port: int) -> tuple[str, int]:
    """Return where to connect to; raise a SettingError if the port is none."""
    if port.__class__ is not int or not 0 < port < 1 << 16:
        raise SettingError(f"port is a whole number from 1 to 65,535, not {port!r}")
    return host, port


@contextmanager
def connected(address: tuple[str, int]) -> Iterator[socket.socket]:
    """Connect for the time of a `with`; raise an OSError after `TIMEOUT_S`, or before."""
    try:
        connection = socket.create_connection(address, timeout=TIMEOUT_S)
    except UnicodeError as error:
        raise OSError(f"{address[0]!r} is no name of a host: {error}") from None
    with connection:
        refuse_itself(connection)
        yield own(connection)


def received_within(connection: socket.socket, wait_s: float) -> bytes | None:
    """Return a byte that the other end sent, none if it closed the connection; None if neither."""
    connection.settimeout(wait_s)
    try:
        return connection.recv(1)
    except (BlockingIOError, TimeoutError):
        return None
    finally:
        connection.settimeout(TIMEOUT_S)


def refuse_itself(connection: socket.socket) -> None:
    """Raise a ConnectionError for a socket that is connected to itself.

    TCP allows it (simultaneous open) where nobody listens at an ephemeral port and it is tried
    often enough; the socket would receive all that it sends.
    """
    if connection.getsockname() == connection.getpeername():
        raise ConnectionError("nobody listens there")
