"""Compressed logs: gzip and Zstandard are decompressed, other compressions are refused.

The first bytes of a file identify its compression (RFC 1952, RFC 8878), whatever its name; but a
file whose name ends in `.gz` or `.zst` must be compressed accordingly. Data that is still
compressed after one decompression is refused. Decompression holds one block at a time.

The one rule: damage is reported with its byte offset in the file, after all data before it has been
yielded.
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
_SUPPORTED = {
    _GZIP: ("gzip", "gzip -dc"),
    # `pzstd` begins a file with a skippable frame, which contains no data.
    **dict.fromkeys(
        [_ZSTD, *(bytes([first, *b"\x2a\x4d\x18"]) for first in range(0x50, 0x60))],
        ("Zstandard", "zstd -dc"),
    ),
}
"""The kind of compressed data, and the command that decompresses it, by the first bytes."""
_SUFFIXES = {".gz": "gzip", ".zst": "Zstandard"}
_UNSUPPORTED = {
    b"BZh": ("bzip2", "bzip2 -dc"),
    b"\xfd7zX": ("xz", "xz -dc"),
    b"PK\x03\x04": ("zip", "unzip -p"),
}
# With or without a byte order mark: a log begins with ASCII, whose other bytes are zero here.
_WIDE_ENCODINGS = {
    "UTF-16": re.compile(rb"\xff\xfe[^\0]\0|\xfe\xff\0[^\0]|([!-~]\0){2}|(\0[!-~]){2}", re.DOTALL),
    "UTF-32": re.compile(rb"\xff\xfe\0\0|\0\0\xfe\xff|[!-~]\0\0\0|\0\0\0[!-~]"),
}
# Small, because one byte may decompress to thousands, and one call returns all of them at once.
_ZSTD_SLICE_BYTES = 512


class TornError(EventError):
    """Truncated data, perhaps in the middle of a line."""


def read_head(
    chunks: Iterator[bytes], enough: Callable[[bytes], bool]
) -> tuple[bytes, Iterator[bytes]]:
    """Read chunks until they are `enough`; return what was read, and an iterator of all bytes.

    An EventError while reading is raised by the iterator, in its place.
    """
    seen, fault = b"", None
    try:
        for chunk in chunks:
            seen += chunk
            if enough(seen):
                break
    except EventError as error:
        fault = error
    return seen, _rejoin_head([seen] if seen else [], chunks, fault)


def _rejoin_head(
    seen: list[bytes], chunks: Iterator[bytes], fault: EventError | None
) -> Iterator[bytes]:
    while seen:  # Drop the reference: the chunk may be large.
        yield seen.pop()
    yield from chunks
    if fault is not None:
        raise fault


def _read_magic(chunks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return the first four bytes, which identify a compression, and an iterator of all bytes."""
    head, chunks = read_head(chunks, lambda seen: len(seen) >= 4)
    return head[:4], chunks


def unpacked(chunks: Iterator[bytes], name: str = "") -> Iterator[bytes]:
    """Yield the bytes of a file, decompressed if they are compressed; `name` is empty for a stream.

    Raises an EventError if the data is damaged, or compressed or encoded in an unsupported way.
    """
    head, chunks = _read_magic(chunks)
    magic = next((magic for magic in _SUPPORTED if head.startswith(magic)), None)
    if magic is None:
        if reason := _refusal(head, name, "FILE"):
            raise EventError(reason)
        yield from chunks
        return
    kind, command = _SUPPORTED[magic]
    head, pieces = _read_magic(
        _decompress_gzip(chunks) if magic == _GZIP else _decompress_zstd(chunks)
    )
    for inner, (inner_kind, _) in _SUPPORTED.items():
        if head.startswith(inner):
            raise EventError(
                f"the file is compressed twice ({inner_kind} within {kind}), but decompressed "
                f"only once; use `{command} FILE | ketal ... -`"
            )
    if reason := _refusal(head, "", f"<({command} FILE)"):
        raise EventError(f"within the {kind} data: {reason}")
    yield from pieces


def _refusal(head: bytes, name: str, file: str) -> str:
    """Return why data that are neither gzip nor Zstandard are refused; empty if they are not.

    `file` is how a shell command names the data.
    """
    for magic, (kind, command) in _UNSUPPORTED.items():
        if head.startswith(magic):
            return (
                f"the file is compressed with {kind}, which is not supported; use "
                f"`{command} {file} | ketal ... -`, or recompress it with gzip or zstd"
            )
    for encoding, begin in _WIDE_ENCODINGS.items():
        if begin.match(head):
            return (
                f"the text is {encoding}, but a log must be UTF-8; convert it with "
                f"`iconv -f {encoding} -t UTF-8 {file}`"
            )
    for suffix, kind in _SUFFIXES.items():
        if name.lower().endswith(suffix):
            if not head:
                return f"the file is empty, but a valid {suffix} file never is"
            return (
                f"this is not a {kind} file, although its name ends in {suffix}; "
                f"if it is not compressed, remove {suffix} from the name"
            )
    return ""


def _decompress_gzip(chunks: Iterator[bytes]) -> Iterator[bytes]:
    decompressor = zlib.decompressobj(wbits=31)
    end = 0
    for chunk in chunks:
        end += len(chunk)
        has_more = True
        while has_more:
            if decompressor.eof:
                if not chunk.strip(b"\0"):
                    break
                # A gzip file may be a sequence of members.
                decompressor = zlib.decompressobj(wbits=31)
            before = decompressor.copy()
            try:
                piece = decompressor.decompress(chunk, BLOCK_BYTES)
            except zlib.error:
                yield from _decompress_to_damage(before, chunk, end - len(chunk))
            if piece:
                yield piece
            chunk = decompressor.unused_data if decompressor.eof else decompressor.unconsumed_tail
            # After a full block the decompressor may hold more output that needs no more input.
            has_more = bool(chunk) or (not decompressor.eof and len(piece) == BLOCK_BYTES)
    if not decompressor.eof:
        raise TornError(f"the gzip data is truncated after byte {end:,}; the rest is lost")


def _decompress_to_damage(decompressor: Any, chunk: bytes, start: int) -> Iterator[bytes]:
    """Yield what a damaged chunk decompresses to before the damage, then raise its EventError.

    Decompresses byte by byte, since a call that fails returns none of its output. `start` is the
    offset of the chunk in the file.
    """
    for at in range(max(1, len(chunk))):
        try:
            piece = decompressor.decompress(chunk[at : at + 1])
        except zlib.error as fault:
            why = str(fault).rpartition(": ")[2]
            if why in ("incorrect data check", "incorrect length check"):
                raise EventError(
                    f"the gzip data does not match its checksum at byte {start + at + 1:,}: "
                    "some of the data before it is damaged"
                ) from None
            raise TornError(
                f"the gzip data is damaged at byte {start + at + 1:,} ({why}); the rest is lost"
            ) from None
        if piece:
            yield piece
    raise AssertionError("damaged data was decompressed")


def _decompress_zstd(chunks: Iterator[bytes]) -> Iterator[bytes]:
    context = zstandard.ZstdDecompressor()
    decompressor = context.decompressobj()
    is_frame_end, end = True, 0
    for chunk in chunks:
        for start in range(0, len(chunk), _ZSTD_SLICE_BYTES):
            rest = chunk[start : start + _ZSTD_SLICE_BYTES]
            end += len(rest)
            while rest:
                try:
                    piece = decompressor.decompress(rest)
                except zstandard.ZstdError as fault:
                    why = str(fault).rpartition(": ")[2]
                    state = f"is damaged before byte {end + 1:,} ({why}); the rest is lost"
                    if "too much memory" in why:
                        state = (
                            "needs a window of more than 128 MiB, as after `zstd --long`; "
                            "use `zstd -dc --long=31 FILE | ketal ... -`"
                        )
                    raise TornError(f"the Zstandard data {state}") from None
                is_frame_end = False
                if piece:
                    yield piece
                rest = b""
                if decompressor.eof:
                    rest, is_frame_end = decompressor.unused_data, True
                    decompressor = context.decompressobj()
    if not is_frame_end:
        raise TornError(f"the Zstandard data is truncated after byte {end:,}; the rest is lost")
