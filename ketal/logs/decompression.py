"""Compressed logs: gzip and Zstandard are decompressed, other compressions refused.

The first bytes of a file give its compression (RFC 1952, RFC 8878), whatever its name;
a name that ends in `.gz` or `.zst` must be right. What is decompressed must not be
compressed again. Decompression holds one block at a time.

The one rule: damage is reported with its place, in bytes of the file, and all data
before it has been yielded by then.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import zstandard

from ketal.errors import EventError

BLOCK_BYTES = 32_768
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_READ = {_GZIP: ("gzip", "gzip -dc"), _ZSTD: ("Zstandard", "zstd -dc")}
_PACKED_NAMES = {".gz": "gzip", ".zst": "Zstandard"}
_UNREAD = {
    b"BZh": ("bzip2", "bzip2 -dc"),
    b"\xfd7zX": ("xz", "xz -dc"),
    b"PK\x03\x04": ("zip", "unzip -p"),
}
# With a byte order mark or without: a log begins with ASCII, and the other bytes are zero.
_WIDE = {
    "UTF-16": re.compile(rb"\xff\xfe[^\0]\0|\xfe\xff\0[^\0]|([!-~]\0){2}|(\0[!-~]){2}", re.DOTALL),
    "UTF-32": re.compile(rb"\xff\xfe\0\0|\0\0\xfe\xff|[!-~]\0\0\0|\0\0\0[!-~]"),
}
# A few bytes at a time: each may unpack to some thousands, and what one call
# returns is held in memory.
_ZSTD_SLICE_BYTES = 512


class TornError(EventError):
    """Truncated data, perhaps in the midst of a line."""


def head_of(
    chunks: Iterator[bytes], enough: Callable[[bytes], bool]
) -> tuple[bytes, Iterator[bytes]]:
    """Return the first bytes, as many as are `enough`, and all bytes again."""
    seen, fault = b"", None
    try:
        for chunk in chunks:
            seen += chunk
            if enough(seen):
                break
    except EventError as error:
        fault = error
    return seen, _again([seen] if seen else [], chunks, fault)


def _again(seen: list[bytes], chunks: Iterator[bytes], fault: EventError | None) -> Iterator[bytes]:
    while seen:  # It may be large, and is not held while the next is made.
        yield seen.pop()
    yield from chunks
    if fault is not None:
        raise fault


def _first_four(chunks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return so many bytes as identify a file's format, and all bytes again."""
    head, chunks = head_of(chunks, lambda seen: len(seen) >= 4)
    return head[:4], chunks


def unpacked(chunks: Iterator[bytes], name: str = "") -> Iterator[bytes]:
    """Yield the bytes of a file, decompressed where they are compressed; a stream has no `name`.

    An EventError is raised if the data is damaged or of a kind that is not read.
    """
    head, chunks = _first_four(chunks)
    magic = next((magic for magic in _READ if head.startswith(magic)), None)
    if magic is None:
        if reason := _refused(head, name):
            raise EventError(reason)
        yield from chunks
        return
    kind, command = _READ[magic]
    head, pieces = _first_four(_gunzip(chunks) if magic == _GZIP else _unzstd(chunks))
    for inner, (inner_kind, _) in _READ.items():
        if head.startswith(inner):
            raise EventError(
                f"the file is packed twice, {inner_kind} within {kind}, and unpacked once here: "
                f"`{command} FILE | ketal ... -`"
            )
    if reason := _refused(head, ""):
        raise EventError(f"within the {kind} data {reason}")
    yield from pieces


def _refused(head: bytes, name: str) -> str:
    """Return why a file that is neither gzip nor Zstandard is not read; empty if it is."""
    for magic, (kind, command) in _UNREAD.items():
        if head.startswith(magic):
            return (
                f"the file is packed with {kind}, which is not read here: "
                f"`{command} FILE | ketal ... -`, or pack it with gzip or zstd"
            )
    for known, begin in _WIDE.items():
        if begin.match(head):
            return f"the text is {known}, and a log is UTF-8: `iconv -f {known} -t UTF-8 FILE`"
    for suffix, kind in _PACKED_NAMES.items():
        if name.lower().endswith(suffix):
            if not head:
                return f"the file is empty; packed as {suffix}, even an empty log has some bytes"
            return (
                f"this is no {kind} file, though its name ends in {suffix}; "
                f"if it is not packed, take {suffix} off the name"
            )
    return ""


def _gunzip(chunks: Iterator[bytes]) -> Iterator[bytes]:
    unpack = zlib.decompressobj(wbits=31)
    end = 0
    for chunk in chunks:
        end += len(chunk)
        more = True
        while more:
            if unpack.eof:
                if not chunk.strip(b"\0"):
                    break
                # Several members, one after the other, are one file.
                unpack = zlib.decompressobj(wbits=31)
            before = unpack.copy()
            try:
                piece = unpack.decompress(chunk, BLOCK_BYTES)
            except zlib.error:
                yield from _until_damage(before, chunk, end - len(chunk))
            if piece:
                yield piece
            chunk = unpack.unused_data if unpack.eof else unpack.unconsumed_tail
            # A full block may have left more behind, without input of its own.
            more = bool(chunk) or (not unpack.eof and len(piece) == BLOCK_BYTES)
    if not unpack.eof:
        raise TornError(f"the gzip data ends early, after byte {end:,}; what follows is lost")


def _until_damage(unpack: Any, chunk: bytes, start: int) -> Iterator[bytes]:
    """Decompress damaged data byte by byte up to the damage, and raise the fault.

    A call that fails returns nothing of what it decompressed before the damage.
    """
    for at in range(max(1, len(chunk))):
        try:
            piece = unpack.decompress(chunk[at : at + 1])
        except zlib.error as fault:
            why = str(fault).rpartition(": ")[2]
            if why in ("incorrect data check", "incorrect length check"):
                raise EventError(
                    f"the gzip data does not fit its checksum at byte {start + at + 1:,}: "
                    "not all that was read before is what was written"
                ) from None
            raise TornError(
                f"the gzip data is damaged at byte {start + at + 1:,} ({why}); what follows is lost"
            ) from None
        if piece:
            yield piece
    raise AssertionError("damaged data was unpacked")


def _unzstd(chunks: Iterator[bytes]) -> Iterator[bytes]:
    context = zstandard.ZstdDecompressor()
    unpack = context.decompressobj()
    fresh, end = True, 0
    for chunk in chunks:
        for start in range(0, len(chunk), _ZSTD_SLICE_BYTES):
            rest = chunk[start : start + _ZSTD_SLICE_BYTES]
            end += len(rest)
            while rest:
                try:
                    piece = unpack.decompress(rest)
                except zstandard.ZstdError as fault:
                    why = str(fault).rpartition(": ")[2]
                    raise TornError(
                        f"the Zstandard data is damaged before byte {end + 1:,} ({why}); "
                        "what follows is lost"
                    ) from None
                fresh = False
                if piece:
                    yield piece
                rest = b""
                if unpack.eof:
                    rest, fresh = unpack.unused_data, True
                    unpack = context.decompressobj()
    if not fresh:
        raise TornError(f"the Zstandard data ends early, after byte {end:,}; what follows is lost")
