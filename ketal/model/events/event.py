"""Events, as `ketal.Event` makes them.

An event has a node, a type, a vector clock, and perhaps a time, data and an id. Its dot (node,
clock[node]) identifies it. All fields are normalised here, when an event is made: zero entries are
dropped from clocks, a node that is a number becomes its decimal string, a time becomes seconds
since the epoch, and data become values that JSON and a snapshot can hold.

The one rule: an event holds plain values of its own, which changes to the mappings that a caller
passed do not change. A decoded event equals the one that the constructor makes of the same values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

import msgspec

from ketal.clocks import vector
from ketal.errors import EventError, class_name, value_text
from ketal.model import attributes
from ketal.model.events.control import CONTROL_PREFIX
from ketal.model.events.dot import Dot, dot_of
from ketal.model.events.event_time import microseconds, seconds

_force = msgspec.structs.force_setattr
_STR, _INT = frozenset((str,)), frozenset((int,))
_FAULTS = (ValueError, TypeError, RecursionError, EventError)
_DEEP_BYTES_MIN = 2 * attributes.DEPTH_MAX
"""The least bytes of data that are nested too deeply: each level has two brackets."""

_Name = Annotated[str, msgspec.Meta(min_length=1)]
_Counter = Annotated[int, msgspec.Meta(ge=0, le=vector.COUNTER_MAX)]
"""Types that msgspec's decoders check, in C: a text that is not empty, an entry of a clock."""


class Draft(NamedTuple):
    """The fields of a record that would be an event if its clock were valid.

    `clock` is the record's value, and `receives` its list, the elements of which may not be dots.
    """

    node: str
    type: str
    clock: Any
    time: float | None
    data: dict[str, Any]
    id: str | None
    receives: Any = ()


class EventFields(msgspec.Struct, frozen=True, eq=True, forbid_unknown_fields=True, gc=False):
    """The fields of an event, as JSON has them."""

    node: str
    type: _Name
    clock: dict[str, _Counter]
    time: float | str | None = None
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    id: str | None = None
    receives: tuple[str, ...] = ()


_decode = msgspec.json.Decoder(EventFields).decode


def received_dots(event: EventFields) -> tuple[Dot, ...]:
    """Return the dots of `receives` sorted and without duplicates, as equality of events requires.

    An EventError if one is not a dot, is the event's own, or is not in the past of its clock.
    """
    receives: Any = event.receives
    if isinstance(receives, str) or not isinstance(receives, Sequence):
        raise EventError(
            f"receives must be a list of dots such as n3@7, not {value_text(receives)[:60]}"
        )
    own = (event.node, event.clock[event.node])
    dots = set()
    for one in receives:
        if not isinstance(one, Dot | str):
            raise EventError(
                f"receives: {repr(one)[:60]} is not a dot; write node@counter, for example n3@7"
            )
        dot = Dot.parse(str(one))
        if event.clock.get(dot.node, 0) < dot.counter or dot == own:
            raise EventError(
                f"receives: {dot} is not in the past of the event's clock; a message is received "
                "after it was sent"
            )
        dots.add(dot)
    return tuple(sorted(dots))


class Event(EventFields, frozen=True):
    """One event of a distributed execution.

    Parameters
    ----------
    node : str
        The process where it happened; a number becomes its decimal string.
    type : str
        The kind of thing that happened, as `ReplicatedStack.push`.
    clock : mapping of str to int
        Its vector clock; an absent entry is 0, the node's own entry is at least 1.
    time : float, int, str, datetime or None
        Event time: seconds since the epoch, RFC 3339 or a datetime.
    data : mapping of str to Any
        Its attributes: None, booleans, integers, floats (infinities and NaN too), strings, lists,
        and mappings with strings for keys. A tuple becomes a list, a mapping of another class a
        dict, a value of a subclass (an enum, `numpy.float64`) or a numpy scalar the plain value it
        holds. Nothing else has a meaning in a pattern, JSON or a snapshot.
    id : str, int or None
        A name given by the program; the identity of the event is its dot.
    receives : sequence of Dot or str
        The events whose messages it received: the sends, and the calls within which they were
        sent. All are in the past that its clock describes. Stored as a tuple of `Dot`.

    Raises
    ------
    EventError
        If an argument is invalid: an own entry of the clock that is missing or not positive, an
        entry that is not an integer, an invalid time, an empty node or type, a type that begins
        with `ketal.` (see `Control`), a value that is not an attribute (the message names its
        path), or a received event that is not in the past of the clock, or is the event itself.

    Notes
    -----
    `clock` and `data` are deep copies of the arguments. They are dicts, which
    Python lets anybody change, but an event must not be changed: it would no longer equal the
    event that a monitor has seen. Make a new event from a copy: `{**event.data, "value": 8}`.

    Examples
    --------
    >>> import ketal
    >>> event = ketal.Event(
    ...     node="n1", type="Stack.push", clock={"n1": 3, "n2": 1},
    ...     time="2024-05-01T12:00:00.5Z", data={"value": 7},
    ... )
    >>> print(event)
    n1@3 Stack.push
    >>> event.dot, event.counter, event.data["value"]
    (Dot(node='n1', counter=3), 3, 7)
    >>> event.time, event.time_us
    (1714564800.5, 1714564800500000)
    >>> ketal.Event(node="n1", type="push", clock={"n2": 1})
    Traceback (most recent call last):
    ...
    ketal.errors.EventError: clock: the node's own entry 'n1' is ...
    """

    receives: Sequence[Dot | str] = ()  # type: ignore[assignment]

    def __post_init__(self) -> None:
        clock = self._normalise_fields()
        if not self.type.isascii():
            attributes.text(self.type, "type")
        # The readers of logs make a control event of such a record before they come here.
        if self.type.startswith(CONTROL_PREFIX):
            raise EventError(
                f"type {self.type!r} is reserved: types that begin with `{CONTROL_PREFIX}` are "
                "those of control events (ketal.Control)"
            )
        if _STR.issuperset(map(type, clock)) and _INT.issuperset(map(type, clock.values())):
            clock = clock.copy()
        else:
            clock = {str.__str__(node): int(counter) for node, counter in clock.items()}
        if not "".join(clock).isascii():
            for node in clock:
                attributes.text(node, "clock: a node's name")
        _force(self, "clock", clock)
        _force(self, "data", attributes.attributes(self.data))
        if self.id is not None:
            _force(self, "id", attributes.text(attributes.name_of(self.id, "id"), "id"))
        if self.receives != ():
            _force(self, "receives", received_dots(self))

    def _normalise_fields(self) -> dict[str, int]:
        """Normalise node, type, clock and time; return the clock."""
        # The common case takes a few passes in C; `_normalise` names the fault.
        # A sum is an int only of ints and bools, a bool that is true hides among
        # the ones, and only strings can be joined.
        clock = self.clock
        try:
            counters = clock.values()
            least, total = min(counters), sum(counters)
            is_plain = (
                least > 0
                and total.__class__ is int
                and total <= vector.COUNTER_MAX
                and (least > 1 or bool not in map(type, counters))
                and self.node in clock
                and "" not in clock
                and "".join(clock)
                and clock.__class__ is dict
                and self.node.__class__ is str
                and self.type.__class__ is str
                and self.type
            )
        except (AttributeError, TypeError, ValueError):
            is_plain = False
        if not is_plain:
            clock = self._normalise_slowly()
        if self.time is not None:
            _force(self, "time", seconds(self.time))
        return clock

    def _normalise_slowly(self) -> dict[str, int]:
        node = attributes.name_of(self.node, "node")
        if not node:
            raise EventError("node is empty; name where the event happened, for example `n1`")
        _force(self, "node", node)
        if not isinstance(self.type, str):
            raise EventError(f"type must be a string, not {value_text(self.type)}")
        if not self.type:
            raise EventError("type is empty; name what happened, for example `Stack.push`")
        _force(self, "type", str.__str__(self.type))
        clock: Any = self.clock
        if not isinstance(clock, Mapping):
            raise EventError(f"clock must map nodes to counters, not be {class_name(clock)}")
        clock = {name: attributes.unboxed(counter) for name, counter in clock.items()}
        if "" in clock:
            raise EventError("clock: a node's name is empty; name the node, for example `n1`")
        clock = vector.checked(node, clock)
        _force(self, "clock", clock)
        return clock  # type: ignore[no-any-return]

    @property
    def counter(self) -> int:
        """The event's own entry in its clock: its number among its node's events, from 1."""
        return self.clock[self.node]

    @property
    def dot(self) -> Dot:
        """The event's identity."""
        return dot_of((self.node, self.clock[self.node]))

    @property
    def time_us(self) -> int | None:
        """Event time in whole microseconds since the epoch; None without a time."""
        return microseconds(self.time)

    def __hash__(self) -> int:
        return hash((self.node, self.clock[self.node]))

    def __str__(self) -> str:
        return f"{self.node}@{self.clock[self.node]} {self.type}"


def received(event: Event) -> tuple[Dot, ...]:
    """Return `Event.receives`, which holds dots after construction."""
    return event.receives  # type: ignore[return-value]


def clean_event(
    node: str,
    type: str,
    clock: dict[str, int],
    time: float | int | str | None,
    data: dict[str, Any],
    id: str | None,
    receives: Any = (),
) -> Event:
    """Return an Event of plain values, such as a JSON decoder returns; an EventError if invalid.

    Only node, type, clock, time and `receives` are checked; `data` is not copied.
    """
    event: Any = EventFields(node, type, clock, time, data, id, receives or ())
    # Its fields are those of an Event, whose `__post_init__` would check all of `data`.
    _force(event, "__class__", Event)
    event._normalise_fields()
    if receives:
        _force(event, "receives", received_dots(event))
    return event  # type: ignore[no-any-return]


def decode_events(texts: Sequence[bytes]) -> list[Event | None]:
    """Return the events of JSON objects, None for an object that does not have an Event's fields.

    Such an object may still be an event or a control event, for example with a number as its node,
    so the caller decodes it field by field. The decoder checks the class of every field and the
    bounds of every counter in C; left to check are the own entry, empty names of nodes, the type of
    a control event, the time, `receives`, and the nesting of data.
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
    types = {fields.type for fields in decoded if fields is not None}
    reserved = {type for type in types if type.startswith(CONTROL_PREFIX)}
    for number, fields in enumerate(decoded):
        if fields is not None:
            clock = fields.clock
            try:
                if not all(clock.values()) and "" not in clock:
                    clock = {name: counter for name, counter in clock.items() if counter}
                    _force(fields, "clock", clock)
                refused = "" in clock or (reserved and fields.type in reserved)
                if refused or fields.node not in clock:
                    out[number] = None
                    continue
                time = fields.time
                if time is not None and ((time_s := seconds(time)) != time or not time_s):
                    _force(fields, "time", time_s)  # also in place of -0.0
                if fields.receives:
                    _force(fields, "receives", received_dots(fields))
                # It has the fields of an Event; changing the class avoids a copy.
                _force(fields, "__class__", Event)
            except EventError:
                out[number] = None
    return out


def _remove_deep(decoded: list[EventFields | None], texts: Sequence[bytes]) -> None:
    """Replace objects whose data are nested too deeply by None."""
    for number, (fields, text) in enumerate(zip(decoded, texts, strict=True)):
        if fields is None or len(text) <= _DEEP_BYTES_MIN:
            continue
        if text.count(b"[") + text.count(b"{") > attributes.DEPTH_MAX:
            try:
                attributes.refuse_deep(fields.data)
            except EventError:
                decoded[number] = None


def known_receives(event: Event | Draft, clock: Mapping[str, int]) -> tuple[Dot, ...]:
    """Return the dots in an event's `receives` that are in the past of a corrected clock.

    An event whose clock is corrected may have named events that it cannot have received.
    """
    dots = []
    for one in event.receives:
        with suppress(EventError):
            dots.append(Dot.parse(str(one)))
    own = Dot(event.node, clock.get(event.node, 0))
    return tuple(dot for dot in dots if clock.get(dot.node, 0) >= dot.counter and dot != own)


def save_event(event: Event) -> tuple[Any, ...]:
    """Return an event as plain data."""
    fields = (event.node, event.type, event.clock, event.time, event.data, event.id)
    return (*fields, list(map(str, event.receives))) if event.receives else fields


def load_event(value: Sequence[Any]) -> Event:
    """Return the event that `save_event` encoded."""
    return clean_event(*value)
