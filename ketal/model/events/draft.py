"""Records that would be events if their clocks were valid.

The one rule: a draft's `clock` and `receives` are the record's values, unchecked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ketal.errors import EventError
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event


class Draft(NamedTuple):
    """The fields of a record that would be an event if its clock were valid.

    `clock` is the record's value, unchecked.
    """

    node: str
    type: str
    clock: Any
    time: float | None
    data: dict[str, Any]
    id: str | None
    receives: Any = ()


def known_receives(event: Event | Draft, clock: Mapping[str, int]) -> tuple[Dot, ...]:
    """Return the dots in an event's `receives` that are in the past of a corrected clock.

    An event whose clock is corrected may have named events that it cannot have received.
    """
    if not isinstance(event.receives, Sequence):
        return ()
    dots = []
    for one in event.receives:
        with suppress(EventError):
            dots.append(Dot.parse(str(one)))
    own = Dot(event.node, clock.get(event.node, 0))
    return tuple(dot for dot in dots if clock.get(dot.node, 0) >= dot.counter and dot != own)
