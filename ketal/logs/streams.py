"""The bytes of a log: open it, cut it into lines, in bounded memory.

The functions here, but for `read_whole`, are generators of bytes that hold one block at a time. The
one rule: damage is an item, not an exception. For a line that is too long, or compressed
data that ends early, `blocks` yields an `EventError` in place of the line, and continues if it can.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import BinaryIO

from ketal.errors import EventError, SettingError, refused_as_setting, wrong_type
from ketal.logs.decompression import BLOCK_BYTES, TornError, unpacked
from ketal.model.wording import unreadable_error

JSON_ARRAY = re.compile(rb"\s*\[[\s\[]*\{")
"""The beginning of an array of objects."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8."""
STDIN = "<stdin>"
"""The name of standard input, also of its file in Python."""


class LogOrigin:
    """An origin of a log's bytes: a file by its path, standard input, or an open file.

    Raises a SettingError if the file does not exist or cannot be read, and a TypeError if `where`
    is neither a path nor a file.
    """

    def __init__(self, where: str | os.PathLike[str] | BinaryIO) -> None:
        self._file: BinaryIO | None = None
        self._start = 0
        self._reading: BinaryIO | None = None
        self._reading_chunk = threading.Lock()
        self.is_stored = True
        """Whether all bytes are available and can be read again, unlike those of a pipe."""
        if isinstance(where, str | os.PathLike):
            self.name = os.fspath(where)  # the name in error messages
            if self.name == "-":
                if sys.stdin is None:  # as in a daemon
                    raise SettingError(f"cannot read {STDIN}: it is closed")
                self.name, self._file = STDIN, sys.stdin.buffer
                self.is_stored = False
            else:
                self._check_readable()
        else:
            if not hasattr(where, "read"):
                is_list = isinstance(where, list | tuple | set)
                several = " (pass several as separate arguments)" if is_list else ""
                raise wrong_type("a log to read", f"a path, a binary file or rows{several}", where)
            self._file = where
            self.name = str(getattr(where, "name", "<file>"))
            self.is_stored = _seekable(where)
            self._start = where.tell() if self.is_stored else 0

    def _check_readable(self) -> None:
        if not self.name:
            raise SettingError("the name of a log is empty")
        try:
            mode = os.stat(self.name).st_mode
        except (OSError, ValueError) as fault:
            instead = "pass the text of a log as a binary file (io.BytesIO), or on standard input"
            raise unreadable_error(self.name, fault, instead) from None
        if stat.S_ISDIR(mode):
            raise SettingError(f"{self.name} is a folder; name the log files in it")
        if not os.access(self.name, os.R_OK):
            raise SettingError(f"cannot read {self.name}: {os.strerror(errno.EACCES)}")
        self.is_stored = stat.S_ISREG(mode)

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Open the origin, as a context manager.

        Raises a SettingError if it cannot be opened, or has been read and cannot be read again.
        """
        if self._reading is not None and not self.is_stored:
            raise SettingError(
                f"{self.name} can be read only once; save it to a file to read it again"
            )
        if getattr(self._file, "closed", False):
            raise SettingError(f"cannot read {self.name}: the file is closed")
        with refused_as_setting(f"cannot read {self.name}"):
            own = self._file
            opening = open(self.name, "rb") if own is None else nullcontext(own)  # noqa: SIM115
        with opening as file:
            self._reading = file  # Another thread may set it before the next line.
            yield file

    def bytes_read(self) -> tuple[int, int] | None:
        """Return the number of bytes read and the size of the file; None if unknown."""
        if self._file is not None or not self.is_stored:
            return None
        try:
            size = os.stat(self.name).st_size
        except OSError:  # the file was removed
            return None
        if self._reading is None:
            return 0, size
        try:
            return self._reading.tell(), size
        except ValueError:  # the file is closed
            return size, size

    def rewind(self, file: BinaryIO, what: str) -> None:
        """Seek to the beginning of the open file; a SettingError if it is a stream.

        `what` names the format that cannot be read from a stream.
        """
        if not _seekable(file):
            raise SettingError(
                f"{self.name}: {what} cannot be read from a stream; save it to a file"
            )
        file.seek(self._start)

    def chunks(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield the decompressed bytes of the open file, as they become available."""
        return unpacked(self._raw_chunks(file), self.name if self._file is None else "")

    def _raw_chunks(self, file: BinaryIO) -> Iterator[bytes]:
        # `read1` returns the available bytes: reading a live pipe must not wait for a full block.
        read = getattr(file, "read1", file.read)
        at = self._start
        with refused_as_setting(f"cannot read {self.name}"):
            while True:
                # Other iterations, also in other threads, may read from the same open file.
                with self._reading_chunk:
                    if self.is_stored:
                        file.seek(at)
                    chunk = read(BLOCK_BYTES)
                if not chunk:
                    return
                if not isinstance(chunk, bytes):
                    raise SettingError(f"{self.name}: a log file must be opened in binary mode")
                at += len(chunk)
                yield chunk


def share_read(files: Sequence[LogOrigin]) -> float | None:
    """Return the fraction of the files' bytes read so far, 0 to 1; None if it is unknown."""
    shares = [part for file in files if (part := file.bytes_read()) is not None]
    size = sum(part[1] for part in shares)
    return sum(part[0] for part in shares) / size if size and len(shares) == len(files) else None


def _seekable(file: BinaryIO) -> bool:
    try:
        return file.seekable()
    except (AttributeError, ValueError):
        return False


class LongLineError(EventError):
    """A line is longer than `line_bytes_max`; `start` is its beginning."""

    def __init__(self, start: bytes, line_bytes_max: int) -> None:
        super().__init__(
            f"the line is longer than {line_bytes_max} bytes (limit line_bytes_max) and was skipped"
        )
        self.start = start


def blocks(
    chunks: Iterator[bytes], line_bytes_max: int
) -> Iterator[tuple[int, bytes | EventError]]:
    """Cut bytes into blocks of whole lines; yield (number of the first line, block).

    The line end after a block is not part of it; the last line may lack one. A line longer than
    `line_bytes_max` is replaced by a `LongLineError`, and never held in memory. Damage is yielded
    as an `EventError` too, as the last item.
    """
    parts: list[bytes] = []
    number, size = 1, 0
    fault: EventError | None = None
    try:
        for chunk in _sliced(chunks, min(BLOCK_BYTES, line_bytes_max)):
            end = chunk.rfind(b"\n")
            if end >= 0:
                first_end = chunk.index(b"\n")
                if size + first_end > line_bytes_max:
                    yield number, LongLineError(parts[0], line_bytes_max)
                    number += 1
                    parts, begin = [], first_end + 1
                else:
                    begin = 0
                if begin <= end:
                    block = b"".join(parts) + chunk[begin:end]
                    yield number, block
                    number += block.count(b"\n") + 1
                parts, size = [], 0
            tail = chunk[end + 1 :]
            size += len(tail)
            if size > line_bytes_max:
                del parts[1:]
            elif tail:
                parts.append(tail)
    except EventError as error:
        fault = error
    # A line in which the data is truncated is incomplete: the damage takes its place.
    if size and not isinstance(fault, TornError):
        is_long = size > line_bytes_max
        yield number, LongLineError(parts[0], line_bytes_max) if is_long else b"".join(parts)
        number += 1
    if fault is not None:
        yield number, fault


def read_whole(
    name: str, chunks: Iterator[bytes], log_bytes_max: int, what: str
) -> tuple[bytes, EventError | None]:
    """Return all bytes of a file, without a byte order mark, and the damage that ends it, if any.

    `what` is the kind of the file, for the SettingError if it has more than `log_bytes_max` bytes.
    """
    parts, size = [], 0
    damage: EventError | None = None
    try:
        for chunk in chunks:
            size += len(chunk)
            if size > log_bytes_max:
                raise SettingError(
                    f"{name} is larger than {log_bytes_max} bytes (limit log_bytes_max), "
                    f"and a {what} must be read whole; raise the limit or split the file"
                )
            parts.append(chunk)
    except EventError as fault:
        damage = fault
    return b"".join(parts).removeprefix(BYTE_ORDER_MARK), damage


class LineNumbers:
    """Line numbers of offsets in a text, each counted from the offset of the previous query."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._at, self._number = 0, 1

    def number(self, offset: int) -> int:
        """Return the number, from 1, of the line that contains the byte at `offset`."""
        if offset >= self._at:
            self._number += self._text.count(b"\n", self._at, offset)
        else:
            self._number -= self._text.count(b"\n", offset, self._at)
        self._at = offset
        return self._number


def _sliced(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield the bytes in slices of at most `size`, without a byte order mark."""
    mark = BYTE_ORDER_MARK
    for chunk in chunks:
        piece, mark = chunk.removeprefix(mark), b""
        for start in range(0, len(piece), size):
            yield piece[start : start + size]
