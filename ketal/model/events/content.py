"""The content of events as bytes, by which a duplicate and a contradiction differ.

The one rule: equal bytes for equal content, whatever the order in which clocks and data are held.
"""

from __future__ import annotations

import hashlib

import msgspec

from ketal.model.events.event import Event, save_event

_pack = msgspec.msgpack.Encoder(order="deterministic").encode


def content(event: Event) -> bytes:
    """Return an event's content as bytes: equal bytes for equal content."""
    fields = save_event(event)
    try:
        return _pack(fields)
    except OverflowError:
        # MessagePack ends at 64 bits; an attribute may be any integer of JSON.
        return msgspec.json.encode(fields, order="deterministic")


DIGEST_BYTES = 8
"""Distinguishes a duplicate from a contradiction of the same dot, two events at most, so that
no more bytes are needed: the digests of the last events are half of many a state."""
_EMPTY = hashlib.blake2b(digest_size=DIGEST_BYTES)


def digest(event: Event) -> bytes:
    """Return a digest of an event's content, `DIGEST_BYTES` long."""
    made = _EMPTY.copy()
    made.update(content(event))
    return made.digest()
