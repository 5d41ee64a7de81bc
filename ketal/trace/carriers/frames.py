"""A message and its clock as one frame on a stream of bytes.

    length of the header (4 bytes, big end first), length of the payload (4 bytes), header, payload

The one rule: a frame that is too long, or is cut, raises before any of it is used.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from ketal.trace import message_header

PREFIX = struct.Struct("!II")
PAYLOAD_MAX = 64 * 1024 * 1024
"""Bytes of a payload."""


def framed(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Return a frame.

    Parameters
    ----------
    headers : mapping
        What `Tracer.send` returned.
    payload : bytes
        The message.

    Raises
    ------
    ValueError
        If the message is too long.
    """
    header = headers.get(message_header.NAME, "").encode("ascii")
    checked(len(header), len(payload))
    return PREFIX.pack(len(header), len(payload)) + header + payload


def checked(header: int, payload: int) -> None:
    """Raise ValueError if a part of a frame has too many bytes."""
    for length, most, part in (
        (header, message_header.BYTES_MAX, "header"),
        (payload, PAYLOAD_MAX, "payload"),
    ):
        if length > most:
            raise ValueError(f"the {part} of a frame has {length:,} bytes, and {most:,} at most")
