"""Bytes of a log: opened, unpacked, and cut into lines, in bounded memory.

Everything here is a generator of bytes that holds one block at a time. The one
rule: damage is an item, not an exception. A line that is too long, or packed
data that ends early, comes out of `blocks` as an `EventError` in the place where
the line would have been, and reading goes on where it can.
"""

from __future__ import annotations

import os
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, BinaryIO

import zstandard

from ketal.errors import EventError, SettingError

BLOCK_BYTES = 32_768
_HEAD_BYTES = 65_536
_GZIP, _ZSTD, _PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".shiviz": "shiviz",
}


class Origin:
    """One thing that a log is read from: a file, standard input, an open file.

    Raises
    ------
    SettingError
        If there is no such file, or it cannot be read.
    """

    def __init__(self, where: str | os.PathLike[str] | BinaryIO) -> None:
        self._file: BinaryIO | None = None
        self._start = 0
        self._spent = False
        self._again = True
        if isinstance(where, str | os.PathLike):
            self.name = os.fspath(where)
            if self.name == "-":
                self.name, self._file = "<stdin>", sys.stdin.buffer
                self._again = False
            else:
                self._check()
        else:
            self._file = where
            self.name = str(getattr(where, "name", "<file>"))
            self._again = _seekable(where)
            self._start = where.tell() if self._again else 0

    def _check(self) -> None:
        try:
            mode = os.stat(self.name).st_mode
        except (OSError, ValueError) as fault:
            raise SettingError(f"{self.name}: {_why(fault)}") from None
        if stat.S_ISDIR(mode):
            raise SettingError(f"{self.name}: is a folder; name the log files in it")
        if not os.access(self.name, os.R_OK):
            raise SettingError(f"{self.name}: permission denied")
        self._again = stat.S_ISREG(mode)

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Open it at its beginning.

        Raises
        ------
        SettingError
            If it cannot be opened, or was read and cannot be read again.
        """
        if self._spent and not self._again:
            raise SettingError(
                f"{self.name} can be read only once; save it to a file to read it again"
            )
        self._spent = True
        if self._file is not None:
            if self._again:
                self._file.seek(self._start)
            yield self._file
            return
        try:
            file = open(self.name, "rb")  # noqa: SIM115 - closed below
        except OSError as fault:
            raise SettingError(f"{self.name}: {_why(fault)}") from None
        with file:
            yield file

    def rewind(self, file: BinaryIO) -> None:
        """Go back to the beginning of the open file, where it has one."""
        if _seekable(file):
            file.seek(self._start)

    def chunks(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield the bytes of the open file, unpacked, as they come."""
        raw = self._raw(file)
        head, raw = _head(raw, lambda seen: len(seen) >= 4)
        if head.startswith(_GZIP):
            return _gunzip(raw)
        if head.startswith(_ZSTD):
            return _unzstd(raw)
        return raw

    def _raw(self, file: BinaryIO) -> Iterator[bytes]:
        # `read1` gives what is there: a live pipe must not wait for a full block.
        read = getattr(file, "read1", file.read)
        try:
            while chunk := read(BLOCK_BYTES):
                if not isinstance(chunk, bytes):
                    raise SettingError(f"{self.name}: a log file must be opened in binary mode")
                yield chunk
        except OSError as fault:
            raise SettingError(f"{self.name}: {_why(fault)}") from None


def _seekable(file: BinaryIO) -> bool:
    try:
        return file.seekable()
    except (AttributeError, ValueError):
        return False


def _why(fault: Exception) -> str:
    text = getattr(fault, "strerror", None) or str(fault)
    return text[:1].lower() + text[1:]


def _head(chunks: Iterator[bytes], enough: Any) -> tuple[bytes, Iterator[bytes]]:
    """Return the first bytes, as many as are `enough`, and all bytes again."""
    seen, fault = b"", None
    try:
        for chunk in chunks:
            seen += chunk
            if enough(seen):
                break
    except EventError as error:
        fault = error
    return seen, chain([seen] if seen else [], chunks, _raised(fault))


def _raised(fault: EventError | None) -> Iterator[bytes]:
    if fault is not None:
        raise fault
    yield from ()


def _gunzip(chunks: Iterator[bytes]) -> Iterator[bytes]:
    unpack = zlib.decompressobj(wbits=31)
    for chunk in chunks:
        while chunk:
            if unpack.eof:
                if not chunk.strip(b"\0"):
                    break
                # Several members, one after the other, are one file.
                unpack = zlib.decompressobj(wbits=31)
            try:
                piece = unpack.decompress(chunk, BLOCK_BYTES)
            except zlib.error as fault:
                raise EventError(f"the gzip data is damaged from here on ({fault})") from None
            if piece:
                yield piece
            chunk = unpack.unused_data if unpack.eof else unpack.unconsumed_tail
            while not chunk and not unpack.eof and len(piece) == BLOCK_BYTES:
                piece = unpack.decompress(b"", BLOCK_BYTES)
                if piece:
                    yield piece
    if not unpack.eof:
        raise EventError("the gzip data ends early; what follows is lost")


def _unzstd(chunks: Iterator[bytes]) -> Iterator[bytes]:
    context = zstandard.ZstdDecompressor()
    unpack = context.decompressobj()
    fresh = True
    for chunk in chunks:
        # A few bytes at a time: each byte may unpack to some thousands, and
        # what one call returns is held in memory.
        for start in range(0, len(chunk), 512):
            rest = chunk[start : start + 512]
            while rest:
                try:
                    piece = unpack.decompress(rest)
                except zstandard.ZstdError as fault:
                    raise EventError(f"the zstd data is damaged from here on ({fault})") from None
                fresh = False
                if piece:
                    yield piece
                rest = b""
                if unpack.eof:
                    rest, fresh = unpack.unused_data, True
                    unpack = context.decompressobj()
    if not fresh:
        raise EventError("the zstd data ends early; what follows is lost")


def blocks(
    chunks: Iterator[bytes], line_bytes_max: int
) -> Iterator[tuple[int, bytes | EventError]]:
    """Cut bytes at line ends; yield (number of the first line, whole lines).

    A block ends before a line end; the last one needs none. A line longer than
    `line_bytes_max` is an `EventError` in its place, and is never held; damage
    is one too, and the last item.
    """
    too_long = EventError(
        f"the line is longer than line_bytes_max ({line_bytes_max} bytes) and was skipped"
    )
    number, held, size = 1, [b""], 0
    fault: EventError | None = None
    try:
        for chunk in _sliced(chunks, min(BLOCK_BYTES, line_bytes_max)):
            end = chunk.rfind(b"\n")
            if end >= 0:
                opening = chunk.index(b"\n")
                if size + opening > line_bytes_max:
                    yield number, too_long
                    number += 1
                    held, begin = [], opening + 1
                else:
                    begin = 0
                if begin <= end:
                    block = b"".join(held) + chunk[begin:end]
                    yield number, block
                    number += block.count(b"\n") + 1
                held, size = [], 0
            tail = chunk[end + 1 :]
            size += len(tail)
            if size <= line_bytes_max:
                held.append(tail)
            else:
                held.clear()
    except EventError as error:
        fault = error
    if size:
        yield number, b"".join(held) if size <= line_bytes_max else too_long
        number += 1
    if fault is not None:
        yield number, fault


def _sliced(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield the bytes in pieces of at most `size`, without a byte order mark."""
    mark = b"\xef\xbb\xbf"
    for chunk in chunks:
        piece, mark = chunk.removeprefix(mark), b""
        for start in range(0, len(piece), size):
            yield piece[start : start + size]


def found(name: str, chunks: Iterator[bytes]) -> tuple[str, Iterator[bytes]]:
    """Find out a log's format, from its name, then from its first lines.

    Returns
    -------
    tuple of (str, iterator of bytes)
        The format, and all the bytes again.
    """
    stem, suffix = os.path.splitext(name.lower())
    if suffix in (".gz", ".zst"):
        suffix = os.path.splitext(stem)[1]
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix], chunks
    head, chunks = _head(chunks, lambda seen: b"\n" in seen.lstrip() or len(seen) >= _HEAD_BYTES)
    return _of_head(head), chunks


def _of_head(head: bytes) -> str:
    if head.startswith(_PARQUET):
        return "parquet"
    line = head.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")[0]
    if line.startswith((b"{", b"[")) or not line:
        return "jsonl"
    columns = {c.strip(b' "\r') for c in line.replace(b"\t", b",").replace(b";", b",").split(b",")}
    if {b"node", b"clock"} <= columns and b"(?" not in line:
        return "csv"
    return "shiviz"
