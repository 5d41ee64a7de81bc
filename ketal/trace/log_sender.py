"""A log sent to a `Collector` while it is written.

Who connects says which log it sends, and the collector answers how many bytes of it it has taken:

    sender:    {"ketal_log":"9f86d081…"}         (the digest of the log's first line)
    collector: 4096
    sender:    the log from there on, and what is appended to it

So nothing is lost where a connection breaks, the program is killed or the collector starts again,
and of what a collector has taken little is sent twice.

The one rule: what is sent is what the file holds; nothing waits in memory.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import select
import socket
import threading
import time
from multiprocessing.util import Finalize
from pathlib import Path
from typing import BinaryIO

_LOG = logging.getLogger("ketal.trace")
POLL_S = 0.01
"""How often the file is looked at."""
RETRY_S = 0.2
LINGER_S = 5.0
"""How long a program that ends waits until all is taken."""
TIMEOUT_S = 30.0
_PART_BYTES = 1 << 18
_ANNOUNCEMENT = re.compile(rb'\{"ketal_log":"([0-9a-f]{64})"\}\n?')


class LogSender:
    """Sends a file of JSON lines, and what is appended to it, to a `Collector`, from a thread.

    The program that writes it never waits.

    Parameters
    ----------
    path : path
        The log; it need not be there yet.
    host, port : str, int
        The collector's address; it need not be there yet.

    Examples
    --------
    A collector that comes late, or again, is sent all from the beginning:

    >>> import ketal
    >>> from ketal.trace import Collector, LogSender, Tracer
    >>> program = ketal.compile('pattern P { event A = type == "a"; find next A A; }')
    >>> tracer = Tracer("n1", "n1.jsonl")
    >>> for type in ("a", "a", "b"):
    ...     tracer.record(type)
    >>> for _ in range(2):
    ...     monitor = ketal.Monitor(program, on={"match": print})
    ...     with Collector(monitor) as collector:
    ...         sender = LogSender("n1.jsonl", *collector.address)
    ...         sender.close()
    match P: A=n1@1+n1@2
    True
    match P: A=n1@1+n1@2
    True
    """

    def __init__(self, path: str | os.PathLike[str], host: str, port: int) -> None:
        self._path = Path(path)
        self._address = (host, port)
        self._closing = threading.Event()
        self._done = threading.Event()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._send_all, daemon=True, name="ketal sender")
        self._thread.start()
        # Not `atexit`: a child of multiprocessing ends without what that calls.
        self._at_end = Finalize(None, self.close, exitpriority=0)

    def close(self) -> bool:
        """Send what the file holds, wait some seconds at most until it is taken; say if it was."""
        if self._process != os.getpid():
            return False
        self._at_end.cancel()
        self._closing.set()
        is_taken = self._done.wait(LINGER_S)
        self._done.set()
        return is_taken

    def _send_all(self) -> None:
        complained = False
        while not self._done.is_set():
            try:
                with (
                    open(self._path, "rb") as log,
                    socket.create_connection(self._address, timeout=TIMEOUT_S) as connection,
                ):
                    self._send(log, connection)
            except FileNotFoundError:
                time.sleep(POLL_S)
                if self._closing.is_set():
                    self._done.set()
            except OSError:
                time.sleep(RETRY_S)
            except ValueError as error:
                if not complained:
                    _LOG.warning("%s:%s is no collector: %s (tried again)", *self._address, error)
                complained = True
                time.sleep(RETRY_S)

    def _send(self, log: BinaryIO, connection: socket.socket) -> None:
        """Send a log over a connection, until all is taken; raises if it broke.

        Raises
        ------
        OSError, ValueError
            If the connection broke, or who is at its other end is no collector.
        """
        while not (line := log.readline()).endswith(b"\n"):
            log.seek(0)
            if self._closing.is_set():
                self._done.set()
                return
            self._closing.wait(POLL_S)
        connection.sendall(announcement(line))
        log.seek(_position(connection))
        while True:
            closing = self._closing.is_set()
            while part := log.read(_PART_BYTES):
                connection.sendall(part)
            if closing:
                break
            if select.select([connection], [], [], POLL_S)[0]:
                raise ConnectionError("the collector is gone")
        connection.shutdown(socket.SHUT_WR)
        # It closes when it has taken all.
        if connection.recv(1):
            raise ValueError("more came than a position")
        self._done.set()


def _position(connection: socket.socket) -> int:
    """Return how many bytes the collector has; raises ValueError if it does not say."""
    text = b""
    while not text.endswith(b"\n") and len(text) < 20:
        part = connection.recv(1)
        if not part:
            raise ConnectionError("the collector is gone")
        text += part
    return int(text)


def announcement(line: bytes) -> bytes:
    """Return what a sender says of the log that begins with a line."""
    return b'{"ketal_log":"%s"}\n' % hashlib.sha256(line).hexdigest().encode()


def announced(line: bytes) -> str | None:
    """Return the digest of a log that a sender speaks of; None if the line is another."""
    found = _ANNOUNCEMENT.fullmatch(line)
    return found and found[1].decode()
