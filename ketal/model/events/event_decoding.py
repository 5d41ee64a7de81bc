"""Events from JSON objects, decoded by msgspec, several at a time.

The decoder checks the class of every field and the bounds of every counter in C, so only the own
entry, zeros, names that are empty, the time and what is received are left to look at.

The one rule: what is decoded is the `Event` that its constructor makes of the same values.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ketal.errors import EventError
from ketal.model.events.event import Event, EventFields, received_dots
from ketal.model.events.event_time import seconds

_force = msgspec.structs.force_setattr
_FAULTS = (ValueError, TypeError, RecursionError, EventError)


class _Decoded(EventFields, frozen=True):
    """The fields of an event as JSON has them."""

    receives: tuple[str, ...] = ()


_decode = msgspec.json.Decoder(_Decoded).decode


def decode_events(texts: Sequence[bytes]) -> list[Event | None]:
    """Return the events that JSON objects are.

    In the place of one that is no event as `Event` spells its fields there is None.
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
    for number, fields in enumerate(decoded):
        if fields is not None:
            clock = fields.clock
            try:
                if fields.node in clock and fields.type and "" not in clock and all(clock.values()):
                    if fields.time is not None:
                        _force(fields, "time", seconds(fields.time))
                    if fields.receives:
                        _force(fields, "receives", received_dots(fields))
                    _force(fields, "__class__", Event)
                else:
                    out[number] = Event(*msgspec.structs.astuple(fields))
            except EventError:
                out[number] = None
    return out
