"""Events and their dots.

An event has a node, a type, a vector clock, and perhaps a time, data and an
id. Its dot (node, clock[node]) identifies it. Everything is normalised here,
at the border: zero entries are dropped from clocks, a node that is a number
becomes its decimal string, a time becomes seconds since the epoch, and data
becomes what JSON and a snapshot can hold. Event time has a resolution of one
microsecond; finer digits are rounded.

The one rule: an event holds plain values of its own. What the caller does to
the mappings that an event was made of does not change the event.

Happened-before (Lamport, "Time, clocks, and the ordering of events in a distributed
system", 1978) is computed by `ketal.clocks.vector`.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NamedTuple

import msgspec

from ketal.clocks import vector
from ketal.errors import EventError, wrong_type
from ketal.model import attributes

CONTROL_PREFIX = "ketal."
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_MIN_S = -62_135_596_800.0  # 0001-01-01
_TIME_MAX_S = 253_402_300_800.0  # 10000-01-01
_force = msgspec.structs.force_setattr
_STR, _INT = frozenset((str,)), frozenset((int,))

Counter = Annotated[int, msgspec.Meta(ge=0, le=vector.COUNTER_MAX)]
"""An entry of a clock; msgspec's decoders hold it to these bounds, in C."""


class Dot(NamedTuple):
    """The identity of an event: the node where it happened and its counter there.

    Written `node@counter`.

    Examples
    --------
    >>> import ketal
    >>> dot = ketal.Dot("n3", 7)
    >>> str(dot), dot.node, dot.counter
    ('n3@7', 'n3', 7)
    """

    node: str
    counter: int

    def __str__(self) -> str:
        return f"{self.node}@{self.counter}"

    @classmethod
    def parse(cls, text: str) -> Dot:
        """Read `node@counter`, split at the last `@`.

        Raises
        ------
        EventError
            If `text` is no dot.

        Examples
        --------
        >>> import ketal
        >>> ketal.Dot.parse("n3@7")
        Dot(node='n3', counter=7)
        >>> ketal.Dot.parse("user@example.org@7").node
        'user@example.org'
        """
        node, at, counter = text.rpartition("@")
        if not at or not counter.isascii() or not counter.isdigit() or int(counter) < 1:
            raise EventError(f"{text!r} is no dot; a dot is written node@counter, as n3@7")
        return cls(node, int(counter))


def parsed_time(text: str) -> datetime:
    """Return the time that RFC 3339 text says.

    Raises
    ------
    EventError
        If it is no such text.
    """
    try:
        # Python also reads 20240101 as a day, which RFC 3339 does not.
        return datetime.fromisoformat(text.strip() if "-" in text else "")
    except ValueError:
        raise EventError(
            f"time {text[:60]!r} is neither RFC 3339 nor seconds since the epoch"
        ) from None


def seconds(value: Any) -> float:
    """Return a time as seconds since the epoch, rounded to a microsecond.

    Parameters
    ----------
    value : int, float, str or datetime
        Seconds since the epoch, RFC 3339 text, or an aware datetime (a naive
        one is read as UTC).

    Raises
    ------
    EventError
        If it is no time between the years 1 and 9999.
    """
    if value.__class__ is float and _TIME_MIN_S <= value < _TIME_MAX_S:
        return round(value * 1e6) / 1e6
    if isinstance(value, str):
        value = parsed_time(value)
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (aware - _EPOCH) / timedelta(microseconds=1) / 1e6
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EventError(f"time must be RFC 3339 or a number, not {type(value).__name__}")
    if not _TIME_MIN_S <= value < _TIME_MAX_S or not math.isfinite(value):
        raise EventError(f"time {value!r} is outside of the years 1 to 9999")
    return round(value * 1e6) / 1e6


def rfc3339(time: float) -> str:
    """Write seconds since the epoch as RFC 3339 in UTC."""
    whole_s, us = divmod(round(time * 1e6), 1_000_000)
    text = _second(whole_s)
    return text + (f".{us:06d}".rstrip("0") if us else "") + "Z"


@functools.lru_cache(maxsize=4_096)
def _second(whole_s: int) -> str:
    return (_EPOCH + timedelta(seconds=whole_s)).isoformat(timespec="seconds")[:19]


class Event(msgspec.Struct, frozen=True, eq=True, forbid_unknown_fields=True):
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
        empty, an attribute that is no such value; the message names its path. An event that is
        received and that the clock does not know, or that is the event itself.

    Notes
    -----
    `clock` and `data` are copied, lists and mappings inside of them too.

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

    node: str
    type: str
    clock: dict[str, Counter]
    time: float | int | str | None = None
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    id: str | None = None
    receives: Sequence[Dot | str] = ()

    def __post_init__(self) -> None:
        clock = self._counted()
        if not self.type.isascii():
            attributes.text(self.type, "type")
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
            _force(self, "id", attributes.text(_name(self.id, "id"), "id"))
        if self.receives != ():
            _force(self, "receives", self._received())

    def _received(self) -> tuple[Dot, ...]:
        """Return the dots of `receives`, each once and in order, so that equal ones are equal."""
        given: Any = self.receives
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise EventError(f"receives must be a list of node@counter, not {repr(given)[:60]}")
        dots = set()
        for one in given:
            if not isinstance(one, Dot | str):
                raise EventError(f"receives: {repr(one)[:60]} is not written node@counter, as n3@7")
            dot = Dot.parse(str(one))
            if self.clock.get(dot.node, 0) < dot.counter or dot == self.dot:
                raise EventError(
                    f"receives: {dot}, which the clock does not know; a message is received after "
                    "it was sent"
                )
            dots.add(dot)
        return tuple(sorted(dots))

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
            return self._normalise()
        if self.time is not None:
            _force(self, "time", seconds(self.time))
        return clock

    def _normalise(self) -> dict[str, int]:
        node = _name(self.node, "node")
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
            raise EventError(f"clock must map nodes to counters, not be {type(clock).__name__}")
        clock = {name: attributes.unboxed(counter) for name, counter in clock.items()}
        if "" in clock:
            raise EventError("clock: a node's name is empty; an entry belongs to a node, as `n1`")
        clock = vector.checked(node, clock)
        _force(self, "clock", clock)
        if self.time is not None:
            _force(self, "time", seconds(self.time))
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
    """Return what an event receives as far as another clock for it knows that.

    An event whose clock is corrected may have named what it cannot have received.
    """
    if not isinstance(event.receives, Sequence):
        return ()
    dots = []
    for one in event.receives:
        with suppress(EventError):
            dots.append(Dot.parse(str(one)))
    return tuple(dot for dot in dots if clock.get(dot.node, 0) >= dot.counter)


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
        _force(event, "receives", event._received())
    return event


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


def save_event(event: Event) -> tuple[Any, ...]:
    """Return an event as plain data."""
    fields = (event.node, event.type, event.clock, event.time, event.data, event.id)
    return (*fields, list(map(str, event.receives))) if event.receives else fields


def load_event(value: Sequence[Any]) -> Event:
    """Return the event that `save_event` gave."""
    return clean_event(*value)


CONTROL_KINDS = ("join", "leave", "view", "watermark", "end")
_ABSENT: tuple[str, ...] = ("",)
"""Stands for absent members: no name is empty."""


class Control(msgspec.Struct, frozen=True, eq=True, forbid_unknown_fields=True):
    """A control event: it is about the execution and not part of it.

    In a log its type is `ketal.` and the kind; it needs no clock.

    Parameters
    ----------
    kind : str
        One of `join`, `leave`, `view`, `watermark`, `end`.
    node : str or None
        Who joins or leaves; for a view who announces it, where that is known.
    members : sequence of str
        The nodes of a view, required there; empty for a view without members.
    time : float, int, str, datetime or None
        The watermark.

    Raises
    ------
    EventError
        If the kind is unknown, or what the kind needs is missing.

    Examples
    --------
    >>> import ketal
    >>> left = ketal.Control("leave", node="n3")
    >>> view = ketal.Control("view", members=["n1", "n2"])
    >>> ketal.Control("watermark", time="2024-05-01T12:00:00Z").time
    1714564800.0
    >>> program = ketal.compile('pattern P { event E = type == "e"; check E*; }')
    >>> ketal.Monitor(program).feed_many([left, view, ketal.Control("end")])
    []
    """

    kind: str
    node: str | None = None
    members: tuple[str, ...] = _ABSENT
    time: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in CONTROL_KINDS:
            known = ", ".join(CONTROL_PREFIX + kind for kind in CONTROL_KINDS)
            raise EventError(f"{CONTROL_PREFIX}{self.kind} is no control event; there are {known}")
        if self.node is not None:
            _force(self, "node", _named(self.node, f"the node of {CONTROL_PREFIX}{self.kind}"))
        elif self.kind in ("join", "leave"):
            raise EventError(f"{CONTROL_PREFIX}{self.kind} has no node")
        if self.members is _ABSENT:
            if self.kind == "view":
                raise EventError(
                    f"{CONTROL_PREFIX}view has no members; it lists the nodes that are there"
                )
            _force(self, "members", ())
        if isinstance(self.members, str) or not isinstance(self.members, Sequence):
            raise EventError(f"the members of {CONTROL_PREFIX}{self.kind} must be a list of nodes")
        what = f"a member of {CONTROL_PREFIX}{self.kind}"
        _force(self, "members", tuple(_named(member, what) for member in self.members))
        if self.time is not None:
            _force(self, "time", seconds(self.time))
        elif self.kind == "watermark":
            raise EventError(f"{CONTROL_PREFIX}watermark has no time")


def _named(node: object, what: str) -> str:
    name = _name(node, what)
    if not name:
        raise EventError(f"{what} is empty; a node has a name, as `n1`")
    return attributes.text(name, what)


def _name(node: object, what: str) -> str:
    if isinstance(node, str):
        return str.__str__(node)
    node = attributes.unboxed(node)
    if isinstance(node, int) and not isinstance(node, bool):
        if node.bit_length() > attributes.ATTRIBUTE_BITS_MAX:
            raise EventError(
                f"{what} is an integer of {node.bit_length()} bits; no name is as long"
            )
        return str(int(node))
    raise EventError(f"{what} must be a string or an integer, not {node!r}")


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


def checked_log(log: Any) -> Any:
    """Return a log argument after checking that it can be one.

    Raises
    ------
    TypeError
        If it can be none: a file or its name, bytes, a single event.
    """
    file = isinstance(log, str | bytes | bytearray | os.PathLike) or hasattr(log, "read")
    if file or not (hasattr(log, "records") or isinstance(log, Iterable)):
        wanted = "a ketal.Log, as ketal.read_log(path) returns, or an iterable of ketal.Event"
        raise wrong_type("log", wanted, log)
    return log


def no_log_item(item: object) -> TypeError:
    """Return the error for what a log cannot hold."""
    return wrong_type(
        "what a log holds", "a ketal.Event (ketal.read_log makes events of rows)", item
    )


def happened_before(a: Event, b: Event) -> bool:
    """Return whether a → b: a ≠ b and b's past contains a."""
    return vector.happened_before(a.node, a.clock, b.node, b.clock)


def concurrent(a: Event, b: Event) -> bool:
    """Return whether a ∥ b: neither a → b nor b → a, and a ≠ b."""
    if a.node == b.node:
        # One node's events are totally ordered, and an event is not its own peer.
        return False
    return not happened_before(a, b) and not happened_before(b, a)


def canonical_key(event: Event) -> tuple[int, str, int]:
    """Return the sort key of the canonical linear extension.

    The sum of the clock's entries, then node, then counter: a → b makes b's
    sum the larger one, so sorting by it respects happened-before, and it is a
    strict total order, as dots are unique.
    """
    return sum(event.clock.values()), event.node, event.clock[event.node]
