"""A key group's state as one binary value: msgpack, compressed.

Spark passes a group's state to its worker with every batch of Arrow, so for a group with many rows
many times, and the JVM copies it each time: its size matters more than the time to encode it.

The one rule: `unpacked` returns what was packed, or raises a StateError.
"""

from __future__ import annotations

import zlib
from typing import TypeVar

import msgspec

from ketal.errors import StateError
from ketal.runtime.state.records import FORMAT

T = TypeVar("T", bound=msgspec.Struct)

_CODEC, _LEVEL = "zstd", 1


def packed(body: msgspec.Struct) -> bytes:
    """Return a state as bytes."""
    import pyarrow

    plain = msgspec.msgpack.encode(body)
    codec = pyarrow.Codec(_CODEC, compression_level=_LEVEL)
    compressed = codec.compress(plain, asbytes=True)
    check = _check(len(plain), compressed)
    return msgspec.msgpack.encode((FORMAT, check, len(plain), compressed))


def unpacked(held: bytes, kind: type[T]) -> T:
    """Return the state that was packed; a StateError if it is damaged or of another format."""
    import pyarrow

    try:
        known = msgspec.msgpack.decode(held)
        if known[0] != FORMAT:
            raise StateError(
                f"the state of a key group has format {known[0]}; this version reads format "
                f"{FORMAT}: begin a new checkpoint, or go on with the ketal that wrote it"
            )
        _, check, size, compressed = known
        if check != _check(size, compressed):
            raise ValueError("its checksum does not fit")
        plain = pyarrow.Codec(_CODEC).decompress(compressed, size, asbytes=True)
        return msgspec.msgpack.decode(plain, type=kind)
    except (ValueError, LookupError, TypeError, OSError, ArithmeticError, RuntimeError) as fault:
        raise StateError(f"the state of a key group is damaged: {fault}") from None


def _check(size: int, compressed: bytes) -> int:
    return zlib.crc32(compressed, zlib.crc32(b"%d" % size))
