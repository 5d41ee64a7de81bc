"""The content of events as bytes, which distinguishes a duplicate from a contradiction.

The one rule: equal contents give equal bytes, whatever the order of entries in clocks and data.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from ketal.model.events.event import Event, save_event

_pack = msgspec.msgpack.Encoder(order="deterministic").encode


def content(event: Event) -> bytes:
    """Return an event's content as bytes: equal bytes for equal content."""
    return _encoded(save_event(event))


def _encoded(fields: tuple[Any, ...]) -> bytes:
    try:
        return _pack(fields)
    except OverflowError:
        # Integers of MessagePack have at most 64 bits; those of attributes may have more.
        return msgspec.json.encode(fields, order="deterministic")


DIGEST_BYTES = 8
"""Bytes of a digest. A digest is compared only with that of another event of the same dot, so few
bytes suffice; the digests of the last events are often half of a saved state."""
_EMPTY = hashlib.blake2b(digest_size=DIGEST_BYTES)


def digest(event: Event) -> bytes:
    """Return a digest of an event's content, `DIGEST_BYTES` long."""
    return _digest(content(event))


def unnamed_digest(event: Event) -> bytes:
    """Return a digest of the part of an event's content that has no names of incarnations."""
    return _digest(_encoded((event.type, event.time, event.data, event.id)))


def _digest(encoded: bytes) -> bytes:
    hasher = _EMPTY.copy()
    hasher.update(encoded)
    return hasher.digest()
