"""Events from JSON objects, decoded by msgspec, several at a time.

The decoder checks the class of every field and the bounds of every counter in C, so only the own
entry, zeros, names that are empty, the time, what is received and how deep data nest are left to
look at.

The one rule: what is decoded is the `Event` that its constructor makes of the same values.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ketal.errors import EventError
from ketal.model.attributes import DEPTH_MAX, refuse_deep
from ketal.model.events.event import Event, EventFields, received_dots
from ketal.model.events.event_time import seconds

_force = msgspec.structs.force_setattr
_FAULTS = (ValueError, TypeError, RecursionError, EventError)
_DEEP_BYTES_MIN = 2 * DEPTH_MAX
"""Data that nest too deeply take more bytes: each level has a bracket at both ends."""
_NESTED = frozenset((dict, list))


class _Decoded(EventFields, frozen=True):
    """The fields of an event as JSON has them."""

    receives: tuple[str, ...] = ()


_decode = msgspec.json.Decoder(_Decoded).decode


def decode_events(texts: Sequence[bytes]) -> list[Event | None]:
    """Return the events that JSON objects are.

    In the place of one that is no event as `Event` spells its fields there is None. It may be an
    event all the same, with a node that is a number: who asks decodes it field by field.
    """
    decoded: list[_Decoded | None] = []
    rest = map(_decode, texts)
    while len(decoded) < len(texts):
        try:
            decoded.extend(rest)
        except _FAULTS:
            # What was decoded before the fault is in the list.
            decoded.append(None)
    out: list[Event | None] = decoded  # type: ignore[assignment]
    if max(map(len, texts), default=0) > _DEEP_BYTES_MIN:
        _remove_deep(decoded, texts)
    for number, fields in enumerate(decoded):
        if fields is not None:
            clock = fields.clock
            try:
                if fields.node in clock and fields.type and "" not in clock and all(clock.values()):
                    if fields.time is not None:
                        _force(fields, "time", seconds(fields.time))
                    if fields.receives:
                        _force(fields, "receives", received_dots(fields))
                    # It has the fields of an Event, and is one from here on: none is copied.
                    _force(fields, "__class__", Event)
                else:
                    out[number] = Event(*msgspec.structs.astuple(fields))
            except EventError:
                out[number] = None
    return out


def _remove_deep(decoded: list[_Decoded | None], texts: Sequence[bytes]) -> None:
    """Put None in the place of what has data that nest too deeply."""
    for number, (fields, text) in enumerate(zip(decoded, texts, strict=True)):
        if fields is None or len(text) <= _DEEP_BYTES_MIN:
            continue
        # Most data need not be looked through: they are flat, or have too few brackets.
        flat = _NESTED.isdisjoint(map(type, fields.data.values()))
        if not flat and text.count(b"[") + text.count(b"{") > DEPTH_MAX:
            try:
                refuse_deep(fields.data)
            except EventError:
                decoded[number] = None
