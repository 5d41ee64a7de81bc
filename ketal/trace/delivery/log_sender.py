"""A log sent to a `Collector` while it is written.

The sender announces its log, and how many bytes that has; the collector answers how many of them it
has taken, at the beginning and when no more come:

    sender:    {"ketal_log":"9f86d081…","bytes":5021}   (the digest of the log's first event)
    collector: 4096
    sender:    the log from there on, and what is appended to it
    collector: 9812

So nothing is lost where a connection breaks, the program is killed or the collector starts again,
and of what a collector has taken little is sent twice. Of a log that has fewer bytes than it has
taken, as it was cut short, the collector takes all anew.

What a file has after its last line end is sent by nobody until it is a whole line: its program may
still be writing it, or was killed amid it, and then the program's next run ends it.

The one rule: what is sent is the whole lines that the file holds; nothing waits in memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import socket
import threading
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import msgspec

from ketal.trace.delivery.sending import (
    RETRY_S,
    Sending,
    address_of,
    connected,
    end_all,
    received_within,
)

_LOG = logging.getLogger("ketal.trace")
POLL_S = 0.01
"""How often the file is looked at."""
_PART_BYTES = 1 << 20
"""Bytes that are sent together; a line of a tracer has fewer."""
_CUT_LINES_MAX = 100
"""Lines at the beginning of a log that distinguish it, if none of them is JSON."""
_TAIL_BYTES = 64
"""Of what was sent, the last bytes, which are compared with those of the file."""
_ANNOUNCEMENT = re.compile(rb'\{"ketal_log":"([0-9a-f]{64})","bytes":([0-9]{1,18})\}\n?')
_NUMBER = re.compile(rb"[0-9]{1,18}\n")


class Announcement(NamedTuple):
    """The announcement of a log."""

    log: str
    """The digest of its beginning, by which logs are distinguished."""
    size_bytes: int


class LogSender:
    """Sends a file of JSON lines, and what is appended to it, to a `Collector`, from a thread.

    The program that writes it never waits. Where the file is cut short, or another one has its
    name, that is sent from its beginning.

    Parameters
    ----------
    path : path
        The log; it need not be there yet.
    host, port : str, int
        The collector's address; it need not be there yet.

    Raises
    ------
    SettingError
        If the port is none.

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
        self._path = Path(path).absolute()
        self._address = address_of(host, port)
        self._complaints: set[str] = set()
        self._finishing = threading.Event()
        self._is_taken = False
        self._sending = Sending("ketal sender", self._send_all, self._finishing.set)

    def close(self) -> bool:
        """Send what the file holds, wait some seconds at most until it is taken; say if it was."""
        if self._sending.process != os.getpid():
            return False
        end_all([self._sending])
        return self._is_taken

    def _send_all(self, over: threading.Event) -> None:
        while not (over.is_set() or self._is_taken):
            # First this: what is written until a sender is closed is sent.
            finishing = self._finishing.is_set()
            try:
                with open(self._path, "rb", buffering=0) as log:
                    self._send(log, over)
            except FileNotFoundError:
                self._is_taken = finishing
                over.wait(POLL_S)
            except OSError as error:
                # That nobody listens is how it is before a collector is there.
                if error.filename is not None:
                    self._complain("file", f"{self._path} is not sent: {error}")
                over.wait(RETRY_S)
            except ValueError as error:
                host, port = self._address
                self._complain("collector", f"{host}:{port} is no collector: {error}")
                over.wait(RETRY_S)

    def _complain(self, of: str, text: str) -> None:
        """Log what is wrong with something, once."""
        if of not in self._complaints:
            _LOG.warning("%s (tried again)", text)
        self._complaints.add(of)

    def _send(self, log: FileIO, over: threading.Event) -> None:
        """Send a log until all is taken, or another one is to be sent.

        An OSError is raised if the connection broke, a ValueError if who is at its other end is no
        collector.
        """
        beginning = self._beginning(log)
        if not beginning:
            return
        with connected(self._address) as connection:
            size_bytes = os.fstat(log.fileno()).st_size
            connection.sendall(announcement(beginning, size_bytes))
            position = _number(connection)
            if position > size_bytes:
                raise ValueError(f"it has {position:,} of {size_bytes:,} bytes")
            finishing = replaced = False
            log.seek(max(0, position - _TAIL_BYTES))
            tail = log.read(min(position, _TAIL_BYTES))
            while not (finishing or replaced):
                finishing, replaced = self._finishing.is_set(), self._is_replaced(log)
                size_bytes = log.seek(0, os.SEEK_END)
                while part := _whole_lines(log, position, tail, size_bytes):
                    connection.sendall(part)
                    position += len(part)
                    tail = (tail + part)[-_TAIL_BYTES:]
                    if over.is_set():
                        return
                replaced = replaced or part is None
                if not (finishing or replaced):
                    _wait_unanswered(connection)
            connection.shutdown(socket.SHUT_WR)
            _number(connection)
            self._is_taken = not replaced

    def _beginning(self, log: FileIO) -> bytes:
        """Return a log's beginning, once it is distinct, or no more is to come.

        It is empty if there is none, or another log is to be sent.
        """
        while True:
            finishing = self._finishing.is_set()
            beginning, is_distinct = _distinct_lines(log)
            if is_distinct:
                return beginning
            if self._is_replaced(log):
                return b""
            if finishing:
                self._is_taken = not beginning
                return beginning
            self._finishing.wait(POLL_S)

    def _is_replaced(self, log: FileIO) -> bool:
        """Return whether another log has this one's name, and is not empty."""
        try:
            named = os.stat(self._path)
        except OSError:
            return False
        return named.st_size > 0 and not os.path.samestat(os.fstat(log.fileno()), named)


def _distinct_lines(log: FileIO) -> tuple[bytes, bool]:
    """Return a log's lines as far as the first that is JSON, and whether they distinguish it.

    A line that was cut is no JSON, and may be the same in two logs.
    """
    log.seek(0)
    lines = b""
    for _ in range(_CUT_LINES_MAX):
        line = log.readline()
        if not line.endswith(b"\n"):
            return lines, False
        lines += line
        with contextlib.suppress(ValueError, RecursionError):
            msgspec.json.decode(line)
            break
    return lines, True


def _whole_lines(log: FileIO, position: int, tail: bytes, end: int) -> bytes | None:
    """Return whole lines from a position on, before an end; None if the log was cut short.

    Then other bytes than the tail are before the position. Of a line that is longer than those of
    tracers are, a part is returned.
    """
    log.seek(position - len(tail))
    part = log.read(len(tail) + max(0, min(end - position, _PART_BYTES)))
    if not part.startswith(tail):
        return None
    part = part[len(tail) :]
    return part[: part.rfind(b"\n") + 1] or (part if len(part) == _PART_BYTES else b"")


def _wait_unanswered(connection: socket.socket) -> None:
    """Wait `POLL_S`; raise if the other end sends anything, or is gone."""
    more = received_within(connection, POLL_S)
    if more:
        raise ValueError("it sends more than how much it has")
    if more is not None:
        raise ConnectionError("the collector is gone")


def _number(connection: socket.socket) -> int:
    """Return how many bytes the collector has; raise ValueError if it answers otherwise."""
    text = b""
    while not text.endswith(b"\n") and len(text) < 20:
        part = connection.recv(1)
        if not part:
            raise ConnectionError("the collector is gone")
        text += part
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"it answers {text!r}")
    return int(text)


def announcement(beginning: bytes, size_bytes: int) -> bytes:
    """Return the line that announces the log that begins with some lines."""
    log = hashlib.sha256(beginning).hexdigest().encode()
    return b'{"ketal_log":"%s","bytes":%d}\n' % (log, size_bytes)


def announced(line: bytes) -> Announcement | None:
    """Return the announcement that a line is; None if it is another line."""
    match = _ANNOUNCEMENT.fullmatch(line)
    return match and Announcement(match[1].decode(), int(match[2]))
