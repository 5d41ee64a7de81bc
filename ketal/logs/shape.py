"""From a decoded record to an event.

A record is a mapping from keys to values, in whatever format it was written. A `Shape`
describes which of its keys hold the event's own fields; every other key is an
attribute. A record that is not a valid event, or whose attributes collide, is an `EventError`
with the reason.

The one rule: a key is either an own field of the event or an attribute, never both,
never neither.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from ketal.clocks import vector
from ketal.clocks.scheme import NO_CLOCKS, Scheme
from ketal.errors import EventError, SettingError
from ketal.logs.json_faults import why_not_json
from ketal.logs.record_terms import LINE, RecordTerms
from ketal.logs.source import (
    KAFKA,
    LOG_NODE,
    MESSAGE,
    PLAIN,
    TIMESTAMP,
    MappedFields,
    Path,
    Source,
    kafka_path,
    path_of,
)
from ketal.logs.times import TimeReading
from ketal.model.attributes import NESTED, refuse_deep
from ketal.model.events.control import CONTROL_PREFIX, Control
from ketal.model.events.event import Draft, Event, clean_event
from ketal.model.events.incarnation import INCARNATION
from ketal.model.limits import DEFAULT, Limits
from ketal.model.values import dig
from ketal.model.wording import counted, shortened

Item = Event | Control
"""The item of a well-formed record."""


_ENTRY_SEPARATOR = re.compile(r"\s*;\s*")
_COUNTER_INSIDE = re.compile(r":[0-9]+[\s,]")
"""A counter inside a name: the clock is not separated by `;`."""


class Shape:
    """How the keys of a record become the fields of an event.

    `defaults` are the default paths of the format, for fields that `source` does not map; a field
    in neither mapping is not read from the record. `clock_entries_max` of the limits bounds the
    entries of a clock. If records are messages by the `terms` of error messages, `kafka.key`,
    `kafka.timestamp` and `kafka.header.NAME` are valid paths. `mapped` tracks which mapped fields
    some record has.

    Raises a SettingError if a path needs a Kafka source, or a time format is given but no path of
    the time.
    """

    def __init__(
        self,
        source: Source,
        defaults: Mapping[str, str] = PLAIN,
        limits: Limits = DEFAULT,
        *,
        terms: RecordTerms = LINE,
        mapped: MappedFields | None = None,
    ) -> None:
        _refuse_unfitting(source, terms)
        path_texts = {
            name: at for name, at in {**defaults, **source.fields}.items() if name != MESSAGE
        }
        self.paths: dict[str, Path] = {
            name: kafka_path(text) or path_of(text) for name, text in path_texts.items()
        }
        """Field → the keys of its path."""
        self._path_texts = path_texts
        has_no_clocks = source.clock == NO_CLOCKS
        if has_no_clocks and terms.is_message:
            self.paths["node"] = (KAFKA, "partition")
        self._default_node = LOG_NODE if has_no_clocks and "node" not in source.fields else None
        self.terms = terms
        self.mapped = MappedFields({}) if mapped is None else mapped
        self._nodes = source.nodes
        self._scheme = source.scheme
        self._clockless = source.rebuild is not None or has_no_clocks
        absent = {"node": self._default_node is not None, "clock": self._clockless}
        self.required = tuple(n for n in ("type", "node", "clock") if not absent.get(n))
        """The fields without which a record is rejected."""
        if source.time_format is not None and "time" not in path_texts:
            raise SettingError(
                "a time format is given, but no field contains the time; pass --field time=PATH to "
                "name it"
            )
        hints = terms.hint("time"), terms.hint("time unit")
        self.times = TimeReading(source.time_unit, source.time_format, *hints)
        """Reads the times of events."""
        self._read_time = self.times.read
        self._entries_max = limits.clock_entries_max
        self._own_paths = [(name, path) for name, path in self.paths.items() if name != "data"]
        self._data_path = self.paths.get("data")
        keys = [path[0] for _, path in self._own_paths if len(path) == 1]
        self._has_flat_paths = len(set(keys)) == len(self._own_paths)
        own_times = source.time_unit == "s" and source.time_format is None
        own_clocks = not self._clockless and self._nodes is None and self._scheme is None
        self.plain = path_texts == PLAIN and own_times and own_clocks
        """Whether the keys of a record are those of `Event`, with vector clocks and seconds."""

    def item(self, record: dict[str, Any]) -> Item:
        """Convert a record to an event or a control event.

        Takes ownership of the record, and modifies it. Raises an EventError if the record is not a
        valid event.
        """
        try:
            return self._item(record)
        except RecursionError:
            raise EventError(f"the {self.terms.record} is nested too deeply") from None
        except (ValueError, OverflowError) as fault:
            # An integer of thousands of digits fails in any conversion.
            raise EventError(f"a value is out of range: {fault}") from None

    def _item(self, record: dict[str, Any]) -> Item:
        if self.mapped.absent:
            self.mapped.mark_present(record)
        if self._has_flat_paths:
            own = {name: record.pop(path[0], None) for name, path in self._own_paths}
        else:
            # Two fields may share a path, so read all fields before removing any.
            own = {name: dig(record, path) for name, path in self._own_paths}
            for _, path in self._own_paths:
                _remove(record, path)
        type_ = own.get("type")
        if type_.__class__ is str and type_.startswith(CONTROL_PREFIX):
            members = self._attributes(record).get("members")
            return Control(
                kind=type_.removeprefix(CONTROL_PREFIX),
                node=own.get("node"),
                time=self._read_time(own.get("time")),
                **({} if members is None else {"members": members}),
            )
        if self._clockless:
            # A placeholder: the clock is made once the event, or all events, are read. Other
            # missing fields are reported below.
            if own.get("node") is None:
                own["node"] = self._default_node
            own["clock"] = {str(own.get("node")): 1}
        for name in ("clock", "node", "type"):
            value = own.get(name)
            if value is None or value == "":
                fault = EventError(self._missing_reason(name, value, record))
                if name == "clock":
                    fault.draft = self._draft(own, None, record)
                raise fault
        identifier = _identifier(own.get("id"))
        if self._scheme is not None:
            return self._stamped_event(self._scheme, own, record)
        data: dict[str, Any] | None = None
        try:
            clock = self._clock(own["clock"], own["node"])
            time = self._read_time(own.get("time"))
            data = self._event_data(own, record)
            return clean_event(
                node=own["node"],
                type=type_,  # type: ignore[arg-type]
                clock=clock,
                time=time,
                data=data,
                id=identifier,
                receives=() if self._clockless else _received_dots(own.get("receives")),
            )
        except EventError as fault:
            fault.draft = self._draft(own, data, record)
            raise

    def _stamped_event(
        self, scheme: Scheme[Any], own: dict[str, Any], record: dict[str, Any]
    ) -> Event:
        """Return the event of a record whose clock is a stamp of `scheme`."""
        event = self._placeholder_event(own, self._event_data(own, record))
        receives = _received_dots(own.get("receives"))
        try:
            stamp = scheme.read(_decode_json_text(own["clock"]), event.node)
        except RecursionError:
            raise EventError(f"clock: the {scheme.name} clock is nested too deeply") from None
        clock = scheme.clock_of(stamp)
        if clock is not None:
            return with_clock(event, dict(clock), receives, self._entries_max)
        fields = {name: getattr(event, name) for name in Event.__struct_fields__}
        return StampedEvent(**fields, stamp=stamp, claimed_receives=receives)

    def _placeholder_event(self, own: dict[str, Any], data: dict[str, Any]) -> Event:
        """Return the event of own fields and data, with the clock of a node's first event."""
        return clean_event(
            node=own["node"],
            type=own["type"],
            clock={str(own["node"]): 1},
            time=self._read_time(own.get("time")),
            data=data,
            id=_identifier(own.get("id")),
        )

    def _draft(
        self, own: dict[str, Any], data: dict[str, Any] | None, record: dict[str, Any]
    ) -> Draft | None:
        """Return the draft of a record that only lacks a valid clock; None for other errors."""
        try:
            data = self._event_data(own, record) if data is None else data
            event = self._placeholder_event(own, data)
            receives = _received_dots(own.get("receives"))
        except (EventError, KeyError):
            return None
        clock = own.get("clock")
        with suppress(EventError):
            clock = self._clock(clock, event.node)
        if clock.__class__ is dict:
            if "" in clock:
                return None  # No counter would make its entry valid.
            with suppress(EventError):
                vector.checked(event.node, clock)
                return None  # The clock is valid, but refused, for example by a limit.
        if not isinstance(receives, list | tuple):
            return None
        return Draft(event.node, event.type, clock, event.time, event.data, event.id, receives)  # type: ignore[arg-type]

    def _missing_reason(self, name: str, value: Any, record: Mapping[str, Any]) -> str:
        path = self._path_texts.get(name, name)
        where = "" if path == name else f" at {path}"
        noun = self.terms.record
        fault = f"the {noun} has no {name}{where}"
        if value is not None:
            fault = f"the {noun}'s {name}{where} is empty"
        keys = ", ".join(list(record)[:8]) if self.terms.has_keys else ""
        has = f"; its other keys are {keys}" if keys else ""
        return f"{fault}{self.terms.hint(name)}{has}"

    def _event_data(self, own: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
        data = self._attributes(record)
        if INCARNATION in own:
            if INCARNATION in data:
                raise EventError(
                    f"the {self.terms.record} has an attribute {INCARNATION!r}, but the number of "
                    f"the incarnation is at {self._path_texts[INCARNATION]}"
                )
            if own[INCARNATION] is not None:
                data[INCARNATION] = own[INCARNATION]
        refuse_deep(data)
        return data

    def _attributes(self, record: dict[str, Any]) -> dict[str, Any]:
        if self._data_path is None:
            return record
        data = _decode_json_text(dig(record, self._data_path))
        if data is None:
            _remove(record, self._data_path)
            return record
        if data.__class__ is not dict:
            shown = brief(data) if isinstance(data, str) else json_type_of(data)
            raise EventError(
                f"{self._path_texts['data']} must be an object of attributes, not {shown}"
            )
        _remove(record, self._data_path)
        if not record:
            return data
        for key in record:
            if key in data:
                raise EventError(
                    f"the key {key!r} is both in the {self.terms.record} and in its "
                    f"{self._path_texts['data']}"
                )
        record.update(data)
        return record

    def _clock(self, clock: Any, node: Any) -> Any:
        if clock.__class__ is str:
            clock = parse_clock(clock, node)
        if isinstance(clock, list):
            if self._nodes is None:
                hints = self.terms.hint("nodes") + self.terms.hint("scheme")
                raise EventError(f"the clock is positional{hints}")
            if len(clock) != len(self._nodes):
                raise EventError(
                    f"the clock has {counted(len(clock), 'entry', 'entries')}, but "
                    f"{self.terms.nodes_option} names {counted(len(self._nodes), 'node')}"
                )
            clock = dict(zip(self._nodes, clock, strict=True))
            if node.__class__ in (str, int) and str(node) not in clock:
                raise EventError(
                    f"the clock is positional, but {self.terms.nodes_option} does not name the "
                    f"node {node!r}"
                )
        elif clock.__class__ is not dict:
            raise EventError(
                f"clock must map nodes to counters, not be {json_type_of(clock)}"
                f"{self.terms.hint('scheme')}"
            )
        elif self._nodes is not None:
            raise EventError(
                f"the clock names its nodes itself; {self.terms.nodes_option} applies only to "
                "positional clocks"
            )
        elif not NESTED.isdisjoint(map(type, clock.values())):
            name, entry = next(one for one in clock.items() if one[1].__class__ in NESTED)
            raise EventError(vector.no_counter_text(name, entry) + self.terms.hint("scheme"))
        return checked_size(clock, self._entries_max)


def _refuse_unfitting(source: Source, terms: RecordTerms) -> None:
    """Raise a SettingError if `source` describes what records by these terms cannot have."""
    is_message = terms.is_message
    for name, path in source.fields.items():
        if not is_message and kafka_path(path):
            raise SettingError(
                f"the path {path} of {name} requires a Kafka source: "
                "records of a file have no key, headers or timestamp"
            )
        if is_message and path.startswith("kafka.") and not kafka_path(path):
            raise SettingError(
                f"unknown path {path!r} of {name}; choose from kafka.key, {TIMESTAMP}, "
                "kafka.header.NAME"
            )
    if is_message and MESSAGE in source.fields:
        raise SettingError(
            "the field message pairs the sends and receives of a whole log, not of a stream; "
            "list the sends in the field receives of each event instead"
        )
    if is_message and source.clock == NO_CLOCKS and "node" in source.fields:
        raise SettingError(
            f"with clock {NO_CLOCKS} the node of a message is its partition: remove node "
            "from fields, and use its attribute in patterns"
        )
    if is_message and source.scheme is not None and not source.scheme.states_clocks:
        raise SettingError(
            f"clock {source.clock}: converting these clocks to vector clocks requires a whole "
            "log, not a stream (docs/clocks.md lists the clocks that are read from a stream)"
        )


class StampedEvent(Event, frozen=True):
    """An event with the stamp of a scheme, whose vector clock is not known yet."""

    stamp: Any = None
    claimed_receives: Any = ()
    """The sends that the record names in `receives`; the vector clock must include them."""


def with_clock(event: Event, clock: dict[str, int], receives: Any, entries_max: int) -> Event:
    """Return an event with `clock` and `receives` in place of its own.

    Raises an EventError if the clock does not include a send in `receives`, or has more than
    `entries_max` entries.
    """
    return clean_event(
        node=event.node,
        type=event.type,
        clock=checked_size(clock, entries_max),
        time=event.time,
        data=event.data,
        id=event.id,
        receives=receives,
    )


def checked_size(clock: dict[str, Any], entries_max: int) -> dict[str, Any]:
    """Return `clock`; raise an EventError if it has more than `entries_max` entries."""
    if len(clock) > entries_max:
        raise EventError(
            f"the clock has {len(clock)} entries, more than {entries_max} (limit clock_entries_max)"
        )
    return clock


def _decode_json_text(value: Any) -> Any:
    """Decode text that is JSON, as a cell or a regular expression's group; return others as is."""
    if value.__class__ is str:
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(value)
    return value


def _received_dots(value: Any) -> Any:
    """Return the dots in a field `receives`; text is a JSON array, or dots separated by spaces."""
    if value.__class__ is not str:
        return value or ()
    if not value.startswith("["):
        return value.split()
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        raise EventError(
            f"receives must be a list of dots (node@counter), not {brief(value)}"
        ) from None


def _identifier(value: Any) -> str | None:
    if value is None or value.__class__ is str:
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise EventError(f"id must be a string or an integer, not {json_type_of(value)}")


def _remove(record: dict[str, Any], path: Path) -> None:
    if len(path) == 1:
        record.pop(path[0], None)
        return
    inner = record.get(path[0])
    if inner.__class__ is dict:
        was_nonempty = bool(inner)
        _remove(inner, path[1:])
        if was_nonempty and not inner:
            # The object is now empty: its only value was removed.
            del record[path[0]]


def json_type_of(value: object) -> str:
    """Return the name of a value's JSON type, for an error message."""
    if value is None:
        return "null"
    for kind, name in (
        (bool, "a boolean"),
        (int | float, "a number"),
        (str, "a string"),
        (list, "an array"),
        (Mapping, "an object"),
    ):
        if isinstance(value, kind):
            return name
    return type(value).__name__


def parse_clock(text: str, own: Any) -> dict[str, Any] | list[Any]:
    """Parse a clock that is text: JSON, or `node:3;m:2` (split at the last `:`).

    `own` is the node of the event. A name that has a counter inside is accepted only if the clock
    has an entry of `own`: without one, the entries are separated by something else than `;`.
    """
    text = text.strip()
    if text[:1] in ("{", "["):
        try:
            decoded = msgspec.json.decode(text)
        except (ValueError, RecursionError) as fault:
            raise EventError(f"the clock {brief(text)} {why_not_json(text, fault)}") from None
        if text.count(":") > len(decoded):
            # A name contains a colon, or occurs twice: the decoder keeps the last entry only.
            json.loads(text, object_pairs_hook=lambda pairs: _unique_entries(pairs, text))
        return decoded  # type: ignore[no-any-return]
    entries: list[tuple[str, Any]] = []
    for entry in _ENTRY_SEPARATOR.split(text.rstrip("; ")) if text else ():
        node, colon, counter = entry.rpartition(":")
        node, counter = node.strip(), counter.strip()
        if not colon or not re.fullmatch(r"-?[0-9]{1,100}", counter):
            raise _no_clock(text)
        entries.append((node, int(counter)))
    clock = _unique_entries(entries, text)
    if str(own) not in clock and any(map(_COUNTER_INSIDE.search, clock)):
        raise _no_clock(text)
    return clock


def _no_clock(text: str) -> EventError:
    return EventError(
        f"the clock {brief(text)} is neither a JSON object nor of the form node:3;m:2"
    )


def _unique_entries(pairs: list[tuple[str, Any]], text: str) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for name, value in pairs:
        if name in entries:
            raise EventError(f"the clock {brief(text)} has two entries for {name!r}")
        entries[name] = value
    return entries


def brief(text: str) -> str:
    """Return text quoted and shortened, for an error message."""
    return repr(shortened(text))
