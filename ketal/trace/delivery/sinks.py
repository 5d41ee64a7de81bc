"""Sinks of a tracer's events: a file of JSON lines, a Kafka topic, or an object of the user.

A sink is an object with `write(event)`, where an event is a mapping as in a ketal log, and
optionally `incarnation(node)`. It is called by one thread at a time; the tracer counts exceptions
as failures.

The one rule: `write` returns after the whole event is written, or raises.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import logging
import os
import re
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from ketal.errors import EventError, checked_text, write_errors, wrong_type
from ketal.model.values import base_node
from ketal.trace.delivery.run_numbers import Claims, claim_run, next_run, warn_of_live_run
from ketal.trace.plain_values import encoded

_LOG = logging.getLogger("ketal.trace")
_READ_BYTES = 1 << 20
_NUMBER_MIN = 512
"""Minimum number of the descriptor of a log; few programs open as many files at their start."""

FOLDER_VARIABLE = "KETAL_TRACE"
"""The environment variable that names the folder for logs of tracers without a sink."""


def log_of(node: str) -> str:
    """Return the file name of a node's log in the folder of `FOLDER_VARIABLE`."""
    return f"{quote(checked_text('node', node), safe='')}.jsonl"


def default_sink(node: str) -> EventSink:
    """Return the default sink of a tracer; raise a SettingError if its file cannot be written."""
    folder = os.environ.get(FOLDER_VARIABLE)
    return JsonLines(Path(folder) / log_of(node)) if folder else Nowhere()


class EventSink(Protocol):
    """The interface of a sink."""

    def write(self, event: Mapping[str, object]) -> object:
        """Write an event, or raise."""


class Nowhere:
    """The sink of a tracer that writes no events, and only sends clocks with messages."""

    def write(self, event: Mapping[str, object]) -> None:
        """Discard an event."""


class JsonLines:
    """A file of JSON lines, which `ketal run` reads.

    Each event is appended by one `write` system call before the program continues, so `kill -9`
    loses no event, and several processes may share a file. If a line is truncated, by a full disk
    or by `kill -9` of any process, the next event starts a new line; an event that was appended to
    a line truncated at the same time is appended again, on a line of its own. So a reader rejects
    the truncated line and no event is lost. There is no lock that a stopped process could hold.

    Parameters
    ----------
    path : path
        The file; it is created, or appended to.

    Raises
    ------
    SettingError
        If the file cannot be written.

    Examples
    --------
    >>> from ketal.trace import JsonLines, Tracer
    >>> tracer = Tracer("n1", JsonLines("n1.jsonl"))
    >>> tracer.record("started")
    >>> import ketal
    >>> [str(event) for event in ketal.read_log("n1.jsonl")]
    ['n1@1 started']

    A later run with the same file has the next number:

    >>> sink = JsonLines("n1.jsonl")
    >>> sink.incarnation("n1")
    2
    >>> sink.write({"node": "n1#2", "type": "by hand", "clock": {"n1#2": 1}})
    >>> sink.close()
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        with write_errors(str(path)):
            self._path = Path(path).absolute()
            # The content of a device or a pipe cannot be read again.
            self._is_file = not self._path.exists() or self._path.is_file()
            access = os.O_RDWR if self._is_file else os.O_WRONLY
            self._file = _moved_up(os.open(self._path, access | os.O_APPEND | os.O_CREAT, 0o644))
        self._descriptor = _Descriptor(self._file)
        # Not at exit, since later functions at exit may record events.
        weakref.finalize(self, self._descriptor.close).atexit = False
        self._is_closed = False
        self._claims = Claims()
        self._process = os.getpid()
        self._claimants: dict[str, object] = {}  # Of each node, who uses the sink's own descriptor.
        self._is_short = False

    def incarnation(self, node: str) -> int:
        """Return the number, from 1, of this run of a node, and claim it.

        It is greater than those of all runs with events in the file, or in one that it was rotated
        to, and not claimed by another open run.

        Parameters
        ----------
        node : str
            The node's name, without an incarnation.
        """
        if not self._is_file:
            return 1
        latest = _LatestRun(node)
        latest.add_rotated(self._path)
        run = 0
        log = self._file_of_claim(node)
        with open(self._path, "rb") as file:
            while True:
                latest.add(iter(partial(file.read, _READ_BYTES), b""))
                if latest.number < run:  # The claimed run had no event before the claim.
                    warn_of_live_run(log, node, run)
                    return run
                run = latest.number + 1
                while not claim_run(log, node, run):
                    run += 1

    def _file_of_claim(self, node: str) -> int:
        """Return a descriptor that claims no run of a node yet.

        It is the sink's own for the first run of each node. For any other run the file is opened
        again: claims of one descriptor, which the children of a fork share, exclude no claim.
        """
        claimant = object()
        if (
            not self._is_closed
            and self._process == os.getpid()
            and self._claimants.setdefault(node, claimant) is claimant
        ):
            return self._file
        return self._claims.hold(os.open(self._path, os.O_RDWR))

    def write(self, event: Mapping[str, object]) -> None:
        """Append an event.

        Parameters
        ----------
        event : mapping
            The event, as in a ketal log.

        Raises
        ------
        OSError
            If the event was not written completely, or the sink is closed.
        """
        if self._is_closed:
            raise OSError("the sink is closed")
        line = encoded(event) + b"\n"
        try:
            self._write(line)
        except OSError as error:
            # If the program closed the descriptor, another file may get its number later.
            self._is_closed |= error.errno == errno.EBADF
            raise

    def _write(self, line: bytes) -> None:
        if not self._is_file:
            self._append(b"\n" + line if self._is_short else line)
            return
        end = os.lseek(self._file, 0, os.SEEK_END)
        if end > 0 and os.pread(self._file, 1, end - 1) != b"\n":
            self._append(b"\n" + line)
            return
        self._append(line)
        if os.pread(self._file, len(line), end) != line and not self._has_line(line, end):
            self._append(b"\n" + line)

    def _append(self, data: bytes) -> None:
        written = os.write(self._file, data)
        self._is_short = written != len(data)
        if self._is_short:
            raise OSError(f"only {written} of {len(data)} bytes were written to {self._path}")

    def _has_line(self, line: bytes, begin: int) -> bool:
        """Return whether the file contains a line at or after the offset `begin` of a line."""
        block = b"\n"
        while part := os.pread(self._file, _READ_BYTES, begin):
            block = block[-len(line) :] + part
            if b"\n" + line in block:
                return True
            begin += len(part)
        return False

    def close(self) -> None:
        """Close the file; later events are counted as failures."""
        self._is_closed = True
        self._descriptor.disable()
        self._claims = Claims()

    def __reduce__(self) -> tuple[Any, ...]:
        # Opened again: in another process the number of the descriptor is that of another file.
        return JsonLines, (str(self._path),)


def _moved_up(file: int) -> int:
    """Return a descriptor of the same file with a number of at least `_NUMBER_MIN`, if possible.

    A program that becomes a daemon closes all descriptors, and the files that it opens next get the
    lowest numbers. So the next event finds its descriptor closed, and is not written to one of
    them.
    """
    try:
        from fcntl import F_DUPFD_CLOEXEC, fcntl

        moved = fcntl(file, F_DUPFD_CLOEXEC, _NUMBER_MIN)
    except (ImportError, OSError):  # Not on Unix; or the process may not open as many files.
        return file
    os.close(file)
    return moved


class _Descriptor:
    """A descriptor that this module opened, which the program may close all the same.

    The file that has its number then must not be closed here.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._opened = os.fstat(number)

    def is_open(self) -> bool:
        """Return whether the descriptor still refers to the file that was opened."""
        try:
            return os.path.samestat(os.fstat(self._number), self._opened)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            return False

    def disable(self) -> None:
        """Make the descriptor one that cannot be written, and whose number remains taken.

        A thread in `write` must fail, and not write to another file with this number.
        """
        if self.is_open():
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, self._number, inheritable=False)
            self._opened = os.fstat(null)
            os.close(null)

    def close(self) -> None:
        """Close the descriptor."""
        if self.is_open():
            os.close(self._number)


class _LatestRun:
    """The number of the latest run of a node with events in logs, which are read in chunks."""

    def __init__(self, node: str) -> None:
        self.number = 0
        name = re.escape(msgspec.json.encode(node)[1:-1])
        self._event_line = re.compile(
            rb'^\{"node":"' + name + rb'(?:/[^"#]*)?(?:#([0-9]+))?",', re.MULTILINE
        )
        self._rest = b""

    def add(self, chunks: Iterable[bytes]) -> None:
        """Add the next chunks of the log; it may grow between two calls."""
        for chunk in chunks:
            block = self._rest + chunk
            numbers = (int(match[1] or 1) for match in self._event_line.finditer(block))
            self.number = max([self.number, *numbers])
            self._rest = block[block.rfind(b"\n") + 1 :][-_READ_BYTES:]

    def add_rotated(self, path: Path) -> None:
        """Add the newest file with events of the node that a log was rotated to.

        The names of these files begin with that of the log: `n1.jsonl.1`, `n1.jsonl-20261129.gz`.
        """
        rotated = path.parent.glob(f"{glob.escape(path.name)}?*")
        for file in sorted(rotated, key=_modified_s, reverse=True):
            # Imported here, since most logs are not rotated.
            from ketal.logs.decompression import unpacked

            try:
                with open(file, "rb") as content:
                    self.add(unpacked(iter(partial(content.read, _READ_BYTES), b"")))
            except (OSError, EventError) as error:
                _LOG.warning("cannot read which runs are in %s: %s", file, error)
            self._rest = b""
            if self.number:
                return


def _modified_s(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


class KafkaSink:
    """A Kafka topic, to which the user's producer sends the events.

    The key is the node's name without its incarnation, so that all events of a node are in one
    partition, in their order, and those of a later run come after those of the earlier runs.

    Parameters
    ----------
    producer : kafka.KafkaProducer
        An object with `send(topic, key=…, value=…)`, where key and value are bytes.
    topic : str
        The topic.

    Examples
    --------
    >>> from ketal.trace import KafkaSink, Tracer
    >>> class Producer:
    ...     def send(self, topic, key, value):
    ...         print(topic, key)
    >>> sink = KafkaSink(Producer(), "events")
    >>> Tracer("n1", sink).record("started")
    events b'n1'
    >>> sink.write({"node": "n2", "type": "by hand", "clock": {"n2": 1}})
    events b'n2'

    The next run:

    >>> sink.incarnation("n1")
    2
    """

    def __init__(self, producer: Any, topic: str) -> None:
        if not callable(getattr(producer, "send", None)):
            raise wrong_type("producer", "an object with send(topic, key=…, value=…)", producer)
        self._producer = producer
        self._topic = checked_text("topic", topic)
        self._claims = Claims()
        self._process = os.getpid()
        self._undelivered: deque[BaseException] = deque()

    def incarnation(self, node: str) -> int:
        """Return the number, from 1, of this run of a node among the runs that wrote to the topic.

        Parameters
        ----------
        node : str
            The node's name, without an incarnation.
        """
        return next_run(node, self._topic, self._claims)

    def write(self, event: Mapping[str, object]) -> None:
        """Pass an event to the producer.

        Raises also if the producer could not deliver an earlier event, once for each.

        Parameters
        ----------
        event : mapping
            The event, as in a ketal log.

        Raises
        ------
        OSError
            In the child of a fork: the thread that sends what the producer is passed is its
            parent's.
        """
        if self._process != os.getpid():
            raise OSError(
                "the producer was made before a fork, and does not send in the child: make the "
                "producer, the KafkaSink and the Tracer in the child"
            )
        key = base_node(str(event["node"])).encode()
        sent = self._producer.send(self._topic, key=key, value=encoded(event))
        if hasattr(sent, "add_errback"):
            sent.add_errback(self._undelivered.append)
        if self._undelivered:
            raise self._undelivered.popleft()
