"""Events, as `ketal.Event` makes them.

An event has a node, a type, a vector clock, and perhaps a time, data and an
id. Its dot (node, clock[node]) identifies it. Everything is normalised here,
at the border: zero entries are dropped from clocks, a node that is a number
becomes its decimal string, a time becomes seconds since the epoch, and data
becomes what JSON and a snapshot can hold.

The one rule: an event holds plain values of its own. What the caller does to
the mappings that an event was made of does not change the event.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from ketal.clocks import vector
from ketal.errors import EventError, class_name
from ketal.model import attributes
from ketal.model.events.control import CONTROL_PREFIX
from ketal.model.events.dot import Dot
from ketal.model.events.event_time import seconds

_force = msgspec.structs.force_setattr
_STR, _INT = frozenset((str,)), frozenset((int,))

Counter = Annotated[int, msgspec.Meta(ge=0, le=vector.COUNTER_MAX)]
"""An entry of a clock; msgspec's decoders hold it to these bounds, in C."""


class EventFields(msgspec.Struct, frozen=True, eq=True, forbid_unknown_fields=True, gc=False):
    """The fields of an event, as a decoder makes them."""

    node: str
    type: str
    clock: dict[str, Counter]
    time: float | int | str | None = None
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    id: str | None = None
    receives: Sequence[Dot | str] = ()


def received_dots(event: EventFields) -> tuple[Dot, ...]:
    """Return the dots of `receives`, each once and in order, so that equal ones are equal.

    Raises
    ------
    EventError
        If one is no dot, the event's own, or one that its clock does not know.
    """
    given: Any = event.receives
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise EventError(f"receives must be a list of node@counter, not {repr(given)[:60]}")
    own = (event.node, event.clock[event.node])
    dots = set()
    for one in given:
        if not isinstance(one, Dot | str):
            raise EventError(f"receives: {repr(one)[:60]} is not written node@counter, as n3@7")
        dot = Dot.parse(str(one))
        if event.clock.get(dot.node, 0) < dot.counter or dot == own:
            raise EventError(
                f"receives: {dot}, which the clock does not know; a message is received after "
                "it was sent"
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
        What happened, as `ReplicatedStack.push`.
    clock : mapping of str to int
        Its vector clock; an absent node counts 0, the own entry counts from 1.
    time : float, int, str, datetime or None
        Event time: seconds since the epoch, RFC 3339 or a datetime.
    data : mapping of str to Any
        Its attributes: None, booleans, integers, floats (infinities and NaN
        too), strings, lists, and mappings with strings for keys. A tuple
        becomes a list, a mapping of another class a dict, a value of a subclass
        (an enum, `numpy.float64`) or a numpy scalar the plain value it holds.
        Nothing else has a meaning in a pattern, JSON or a snapshot.
    id : str, int or None
        A name given by the program; identity is the dot.
    receives : sequence of Dot or str
        The events whose messages it received: the sends, and the calls within which they were
        sent. Its clock knows each of them. Held as a tuple of `Dot`.

    Raises
    ------
    EventError
        If it cannot be an event: an own entry that is missing or not positive,
        an entry that is no integer, a time that is none, a node or type that is
        empty, a type that begins with `ketal.` (see `Control`), an attribute that is no such
        value; the message names its path. An event that is received and that the clock does
        not know, or that is the event itself.

    Notes
    -----
    `clock` and `data` are copied, lists and mappings inside of them too. They are dicts, which
    Python lets anybody change; an event that was changed is another one to what has seen it.
    Make a new event of a copy: `{**event.data, "value": 8}`.

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
    ketal.errors.EventError: clock: the own entry of node 'n1' is ...
    """

    def __post_init__(self) -> None:
        clock = self._counted()
        if not self.type.isascii():
            attributes.text(self.type, "type")
        # Of a record the readers look at it: it is a control event there.
        if self.type.startswith(CONTROL_PREFIX):
            raise EventError(
                f"type {self.type!r} is reserved: types that begin with `{CONTROL_PREFIX}` are "
                "those of control events, as ketal.Control"
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

    def _counted(self) -> dict[str, int]:
        """Normalise node, type, clock and time; return the clock."""
        # The common case takes a few passes in C; `_normalise` names the fault.
        # A sum is an int only of ints and bools, a bool that is true hides among
        # the ones, and only strings can be joined.
        clock = self.clock
        try:
            counters = clock.values()
            least, total = min(counters), sum(counters)
            fine = (
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
            fine = False
        if not fine:
            clock = self._normalise()
        if self.time is not None:
            _force(self, "time", seconds(self.time))
        return clock

    def _normalise(self) -> dict[str, int]:
        node = attributes.name_of(self.node, "node")
        if not node:
            raise EventError("node is empty; it says where the event happened, as `n1`")
        _force(self, "node", node)
        if not isinstance(self.type, str):
            raise EventError(f"type must be a string, not {self.type!r}")
        if not self.type:
            raise EventError("type is empty; it says what happened, as `Stack.push`")
        _force(self, "type", str.__str__(self.type))
        clock: Any = self.clock
        if not isinstance(clock, Mapping):
            raise EventError(f"clock must map nodes to counters, not be {class_name(clock)}")
        clock = {name: attributes.unboxed(counter) for name, counter in clock.items()}
        if "" in clock:
            raise EventError("clock: a node's name is empty; an entry belongs to a node, as `n1`")
        clock = vector.checked(node, clock)
        _force(self, "clock", clock)
        return clock  # type: ignore[no-any-return]

    @property
    def counter(self) -> int:
        """The event's own entry: its place among its node's events, from 1."""
        return self.clock[self.node]

    @property
    def dot(self) -> Dot:
        """The event's identity."""
        return Dot(self.node, self.clock[self.node])

    @property
    def time_us(self) -> int | None:
        """Event time in whole microseconds since the epoch; None without a time."""
        return None if self.time is None else round(self.time * 1e6)  # type: ignore[operator]

    def __hash__(self) -> int:
        return hash((self.node, self.clock[self.node]))

    def __str__(self) -> str:
        return f"{self.node}@{self.clock[self.node]} {self.type}"


def received(event: Event) -> tuple[Dot, ...]:
    """Return the dots of `Event.receives`."""
    return event.receives  # type: ignore[return-value]


_BLANK = Event(node="n", type="t", clock={"n": 1})


def clean_event(
    node: str,
    type: str,
    clock: dict[str, int],
    time: float | int | str | None = None,
    data: dict[str, Any] | None = None,
    id: str | None = None,
    receives: Any = (),
) -> Event:
    """Return the Event of clean values, those of a JSON decoder.

    Only node, type, clock, time and `receives` are looked at; `data` is taken over as it is.

    Raises
    ------
    EventError
        As of `Event`.
    """
    # A copy is made without `__post_init__`, which would look at all of `data`.
    event = copy.copy(_BLANK)
    _force(event, "node", node)
    _force(event, "type", type)
    _force(event, "clock", clock)
    _force(event, "time", time)
    _force(event, "data", {} if data is None else data)
    _force(event, "id", id)
    event._counted()
    if receives:
        _force(event, "receives", receives)
        _force(event, "receives", received_dots(event))
    return event


def save_event(event: Event) -> tuple[Any, ...]:
    """Return an event as plain data."""
    fields = (event.node, event.type, event.clock, event.time, event.data, event.id)
    return (*fields, list(map(str, event.receives))) if event.receives else fields


def load_event(value: Sequence[Any]) -> Event:
    """Return the event that `save_event` gave."""
    return clean_event(*value)
