"""Send a log to a `Collector` while it is being written.

The sender announces its log and the log's size; the collector answers with the number of bytes that
it has processed, at the beginning and after the end of the log:

    sender:    {"ketal_log":"9f86d081…","bytes":5021}   (the digest of the log's first event)
    collector: 4096
    sender:    the log from byte 4096 on, and all that is appended to it
    collector: 9812

So no event is lost if the connection breaks, the program is killed or the collector restarts, and
little of what a collector has processed is sent again. If the log is now smaller than the offset
that the collector has, the log was truncated, and the collector requests it from the beginning.

An incomplete line at the end of the file is not sent until it is complete: the program may
still be writing it, or was killed while writing it, and then the program's next run ends it.

The one rule: only whole lines of the file are sent, directly from the file; no events are queued in
memory.
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

import msgspec

from ketal.errors import SettingError, printable
from ketal.trace.delivery.sending import (
    RETRY_S,
    SenderThread,
    checked_address,
    connected,
    end_all,
    receive_byte,
    send_slowly,
)

_LOG = logging.getLogger("ketal.trace")
POLL_S = 0.01
"""Interval at which the file is polled for new lines."""
_PART_BYTES = 1 << 20
"""Maximum bytes per send; a tracer's lines are shorter."""
_CUT_LINES_MAX = 100
"""Maximum lines at the beginning of a log that identify it, if none of them is JSON."""
_TAIL_BYTES = 64
"""The number of sent bytes that are compared with the file, to detect that it was truncated."""
_ANNOUNCEMENT = re.compile(rb'\{"ketal_log":"([0-9a-f]{64})","bytes":([0-9]{1,18})\}\n?')
_OFFSET = re.compile(rb"[0-9]{1,18}\n")


class LogSender:
    """Sends a file of JSON lines, and lines appended to it, to a `Collector`, from a thread.

    The program that writes the log never waits. If the file is truncated, or replaced by another
    file, it is sent from its beginning.

    Parameters
    ----------
    path : path
        The log; it need not exist yet.
    host, port : str, int
        The address of the collector, which need not be listening yet.

    Raises
    ------
    SettingError
        If the host is not a name, the port is not an integer from 1 to 65,535, or no file can have
        the name of the log.
    TypeError
        If the host is not a str.

    Examples
    --------
    A collector that starts late, or restarts, is sent all of the log:

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
        if "\0" in str(path):
            shown = printable(str(path))
            raise SettingError(f"cannot send {shown}: the name of a file cannot contain U+0000")
        self._address = checked_address(host, port)
        self._warned: set[str] = set()
        self._finishing = threading.Event()
        self._is_acknowledged = False
        self._sender = SenderThread("ketal sender", self._send_all, self._finishing.set)

    def close(self) -> bool:
        """Send all lines of the file, and stop; return whether the collector acknowledged them.

        Waits for a few seconds at most (`LINGER_S` of `sending`).
        """
        if self._sender.process != os.getpid():
            return False
        end_all([self._sender])
        return self._is_acknowledged

    def _send_all(self, stop: threading.Event) -> None:
        while not (stop.is_set() or self._is_acknowledged):
            # Read the flag before the file: lines written before `close` must be sent.
            finishing = self._finishing.is_set()
            try:
                with open(self._path, "rb", buffering=0) as log:
                    self._send(log, stop)
            except FileNotFoundError:
                self._is_acknowledged = finishing
                stop.wait(POLL_S)
            except OSError as error:
                # Refused connections have no file name; they are normal before a collector listens.
                if error.filename is not None:
                    self._warn_once("file", f"cannot send {self._path}: {error}")
                stop.wait(RETRY_S)
            except ValueError as error:
                host, port = self._address
                self._warn_once("collector", f"{host}:{port} is not a collector: {error}")
                stop.wait(RETRY_S)

    def _warn_once(self, subject: str, text: str) -> None:
        """Log a warning about the file or the collector, the first time only."""
        if subject not in self._warned:
            _LOG.warning("%s (retrying)", text)
        self._warned.add(subject)

    def _send(self, log: FileIO, stop: threading.Event) -> None:
        """Send a log until all of it is acknowledged, or it is replaced by another log.

        Raises an OSError if the connection breaks, and a ValueError if the other end does not
        answer like a collector.
        """
        beginning = self._wait_for_beginning(log)
        if not beginning:
            return
        with connected(self._address) as connection:
            size_bytes = os.fstat(log.fileno()).st_size
            connection.sendall(announcement(beginning, size_bytes))
            offset = _read_offset(connection)
            if offset > size_bytes:
                raise ValueError(f"it reports {offset:,} bytes of a log of {size_bytes:,} bytes")
            finishing = replaced = False
            log.seek(max(0, offset - _TAIL_BYTES))
            tail = log.read(min(offset, _TAIL_BYTES))
            while not (finishing or replaced):
                finishing, replaced = self._finishing.is_set(), self._is_replaced(log)
                size_bytes = log.seek(0, os.SEEK_END)
                while part := _whole_lines(log, offset, tail, size_bytes):
                    send_slowly(connection, part, stop)
                    offset += len(part)
                    tail = (tail + part)[-_TAIL_BYTES:]
                    if stop.is_set():
                        return
                replaced = replaced or part is None
                if not (finishing or replaced):
                    _wait_connected(connection)
            connection.shutdown(socket.SHUT_WR)
            _read_offset(connection)
            self._is_acknowledged = not replaced

    def _wait_for_beginning(self, log: FileIO) -> bytes:
        """Wait until the first lines of a log identify it, or `close` is called; return them.

        Returns no bytes if the log is empty or replaced by another log.
        """
        while True:
            finishing = self._finishing.is_set()
            beginning, identifies = _identifying_lines(log)
            if identifies:
                return beginning
            if self._is_replaced(log):
                return b""
            if finishing:
                self._is_acknowledged = not beginning
                return beginning
            self._finishing.wait(POLL_S)

    def _is_replaced(self, log: FileIO) -> bool:
        """Return whether the path now names another file, which is not empty."""
        try:
            named_file = os.stat(self._path)
        except OSError:
            return False
        return named_file.st_size > 0 and not os.path.samestat(os.fstat(log.fileno()), named_file)


def _identifying_lines(log: FileIO) -> tuple[bytes, bool]:
    """Return the first lines of a log, and whether they identify it.

    They end with the first line that is JSON, since truncated lines before it may be the same in
    two logs.
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


def _whole_lines(log: FileIO, offset: int, tail: bytes, end: int) -> bytes | None:
    """Return whole lines of a log between two offsets; None if the log was truncated.

    A log was truncated if the bytes before `offset` differ from `tail`. If a line is longer than
    `_PART_BYTES`, a part of it is returned.
    """
    log.seek(offset - len(tail))
    part = log.read(len(tail) + max(0, min(end - offset, _PART_BYTES)))
    if not part.startswith(tail):
        return None
    part = part[len(tail) :]
    return part[: part.rfind(b"\n") + 1] or (part if len(part) == _PART_BYTES else b"")


def _wait_connected(connection: socket.socket) -> None:
    """Wait `POLL_S`; raise if the other end sends anything or closes the connection."""
    answer = receive_byte(connection, POLL_S)
    if answer:
        raise ValueError("it sent unexpected data")
    if answer is not None:
        raise ConnectionError("the collector closed the connection")


def _read_offset(connection: socket.socket) -> int:
    """Read the offset that the collector answers; raise a ValueError for any other answer."""
    # Not with `makefile`: while its file is open, a forked child cannot close the socket.
    text = b""
    while not text.endswith(b"\n") and len(text) < 20:
        part = connection.recv(1)
        if not part:
            raise ConnectionError("the collector closed the connection")
        text += part
    if not _OFFSET.fullmatch(text):
        raise ValueError(f"it answered {text!r}")
    return int(text)


def announcement(beginning: bytes, size_bytes: int) -> bytes:
    """Return the line that announces a log, given its first lines and its size."""
    log = hashlib.sha256(beginning).hexdigest().encode()
    return b'{"ketal_log":"%s","bytes":%d}\n' % (log, size_bytes)


def parse_announcement(line: bytes) -> tuple[str, int] | None:
    """Return the digest and the size of the log that a line announces; None for any other line."""
    match = _ANNOUNCEMENT.fullmatch(line)
    return match and (match[1].decode(), int(match[2]))
