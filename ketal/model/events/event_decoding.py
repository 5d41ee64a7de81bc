"""Events from JSON objects, decoded and checked by msgspec in one pass.

The one rule: what is decoded is the `Event` that its constructor makes of the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ketal.errors import EventError
from ketal.model.events.event import Event
from ketal.model.events.event_time import seconds

_force = msgspec.structs.force_setattr


class _Decoded(Event, frozen=True):
    """An event as msgspec's decoder makes it, in the moment before it is an Event.

    The decoder has checked the class of every field and the bounds of every
    counter in C, so only the own entry, zeros, names that are empty, the time and
    what is received are left to look at.
    """

    receives: tuple[str, ...] = ()  # as JSON has it

    def __post_init__(self) -> None:
        clock = self.clock
        if self.node not in clock or not all(clock.values()) or "" in clock or not self.type:
            self._normalise()
        elif self.time is not None:
            _force(self, "time", seconds(self.time))
        if self.receives:
            _force(self, "receives", self._received())
        _force(self, "__class__", Event)


decode_event: Callable[[bytes | str], Event] = msgspec.json.Decoder(_Decoded).decode
"""Decodes a JSON object that is an event as `Event` spells it.

It raises msgspec.DecodeError, UnicodeDecodeError, RecursionError or EventError for any other
object; what it returns is an `Event`.
"""


def decode_events(texts: Iterable[bytes]) -> list[Event] | None:
    """Return the events that JSON objects are; None if one is none as `decode_event` reads it."""
    try:
        return list(map(decode_event, texts))
    except (ValueError, RecursionError, EventError):
        return None
