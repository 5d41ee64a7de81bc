"""Snapshots: the state of a monitor in one piece.

A snapshot is the records of a state (`ketal.runtime.state.records`), their format and a checksum
before them; restored under another pattern it is a `StateError` that says what changed. Nothing
that depends on hash order is written, and nothing read back is executed.

The one rule: snapshot and restore at any point changes nothing.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from ketal.errors import StateError
from ketal.runtime.state.records import FORMAT


def encoded(records: dict[bytes, bytes]) -> bytes:
    """Return records as bytes, the format first."""
    body = msgspec.msgpack.encode(records)
    return b"ketal" + bytes([FORMAT]) + zlib.crc32(body).to_bytes(4, "big") + body


def decoded(blob: bytes) -> dict[bytes, bytes]:
    """Return the records of a snapshot.

    Raises
    ------
    StateError
        If the bytes are no snapshot, of another format, or damaged.
    """
    if blob[:5] != b"ketal" or len(blob) < 10:
        raise StateError("these bytes are no ketal snapshot")
    if blob[5] != FORMAT:
        raise StateError(
            f"the snapshot has format {blob[5]}; this ketal reads format {FORMAT}: "
            "start anew, or restore it with the ketal that wrote it"
        )
    body = blob[10:]
    if zlib.crc32(body) != int.from_bytes(blob[6:10], "big"):
        raise StateError("the snapshot is damaged: its checksum does not fit")
    try:
        return msgspec.msgpack.decode(body, type=dict[bytes, bytes])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StateError(f"the snapshot is damaged: {error}") from None


def changes(saved: dict[str, Any], now: dict[str, Any]) -> str:
    """Return, as a text, what changed between the marks (name → description) of two programs."""
    differences = []
    for name in saved:
        if name not in now:
            differences.append(f"pattern {name} is gone")
        elif saved[name]["fingerprint"] != now[name]["fingerprint"]:
            parts = [
                part
                for part in saved[name]
                if part != "fingerprint" and saved[name][part] != now[name].get(part)
            ]
            differences.append(f"pattern {name} changed: {', '.join(parts) or 'its compiled form'}")
    differences += [f"pattern {name} is new" for name in now if name not in saved]
    return "; ".join(differences)
