"""Events from JSON objects, decoded by msgspec, several at a time.

The decoder checks the class of every field and the bounds of every counter in C. Left to check are
the own entry, zero entries, empty names, the time, `receives`, and the nesting of data.

The one rule: a decoded event equals the `Event` that the constructor makes of the same values.
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
"""The least bytes of data that are nested too deeply: each level has two brackets."""
_NESTED = frozenset((dict, list))
_decode = msgspec.json.Decoder(EventFields).decode


def decode_events(texts: Sequence[bytes]) -> list[Event | None]:
    """Return the events of JSON objects, None for an object that does not have an Event's fields.

    Such an object may still be an event, for example with a number as its node, so the caller
    decodes it field by field.
    """
    decoded: list[EventFields | None] = []
    rest = map(_decode, texts)
    while len(decoded) < len(texts):
        try:
            decoded.extend(rest)
        except _FAULTS:
            # The list has all objects that were decoded before the fault.
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
                    # It has the fields of an Event; changing the class avoids a copy.
                    _force(fields, "__class__", Event)
                else:
                    out[number] = Event(*msgspec.structs.astuple(fields))
            except EventError:
                out[number] = None
    return out


def _remove_deep(decoded: list[EventFields | None], texts: Sequence[bytes]) -> None:
    """Replace objects whose data are nested too deeply by None."""
    for number, (fields, text) in enumerate(zip(decoded, texts, strict=True)):
        if fields is None or len(text) <= _DEEP_BYTES_MIN:
            continue
        # Most data need no traversal: they are flat, or have too few brackets.
        flat = _NESTED.isdisjoint(map(type, fields.data.values()))
        if not flat and text.count(b"[") + text.count(b"{") > DEPTH_MAX:
            try:
                refuse_deep(fields.data)
            except EventError:
                decoded[number] = None
