"""`Source`: how a log is read, its format and the paths of the fields of an event.

A `Source` is the `[source]` table of a configuration file, or the equivalent options of
the command line: format, regular expressions, the mapping from an event's fields to
paths in a record, the nodes of positional clocks, the unit of time. The one rule: a
source is validated on construction, so that a wrong option is an error before any event
is read.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from ketal.clocks.scheme import NO_CLOCKS, Scheme
from ketal.clocks.schemes import scheme_named
from ketal.clocks.vector import VectorClocks
from ketal.errors import SettingError, faults_placed, near, refused_as_setting, value_text
from ketal.logs.times import TIME_UNITS, check_time_format
from ketal.model.events.incarnation import INCARNATION
from ketal.model.limits import DEFAULT, Limits
from ketal.model.values import dig
from ketal.model.wording import counted

TRACES = ("otlp", "zipkin", "jaeger")
"""Formats of trace files."""
FORMATS = ("jsonl", "shiviz", "csv", "parquet", *TRACES)
_REQUIRED = ("node", "type", "clock")
OWN_FIELDS = (*_REQUIRED, "time", "id", "data", "receives")
PLAIN: Mapping[str, str] = {name: name for name in OWN_FIELDS}
"""The default paths of the fields: their own names."""
MESSAGE = "message"
"""The field with the id of a message, which the send and its receives share."""
FIELDS = (*OWN_FIELDS, INCARNATION, MESSAGE)
"""The fields whose paths a source may set: paths in a record, and for `MESSAGE` in an event."""
TIMESTAMP = "kafka.timestamp"
"""The path of the timestamp of a Kafka message."""
LOG_NODE = "log"
"""The node of the events of a log without clocks, if the records do not name one."""
KAFKA = "\0kafka"
"""The key under which a record holds the key, headers, timestamp and partition of its Kafka
message, the argument `outside` of `jsonl.decoded`."""
VECTOR = VectorClocks.name
"""The scheme of an event's clock, and the default scheme of a source."""
NESTED_MAX = 20
"""Maximum nesting of a configuration file; tables made by dotted keys count too."""
MESSAGES_EXAMPLE = "id=msg.id,send=type:send,receive=type:recv"
SETTINGS = ("pattern", "engine")
"""The settings of a job before the tables of its configuration file."""
TABLES = (
    "params",
    "kafka",
    "source",
    "output",
    "state",
    "time",
    "limits",
    "spark",
)

_ESCAPED = re.compile(r"\\(.)", re.DOTALL)

Path = tuple[str, ...]
"""The keys that lead to a value in a record."""


def path_of(text: str) -> Path:
    r"""Read a path: keys joined by `.`, `\.` for a literal dot, `\\` for a backslash.

    Raises a SettingError if a key is empty.
    """
    keys = tuple(_ESCAPED.sub(r"\1", key) for key in split_unescaped(text, "."))
    if not all(keys):
        raise SettingError(
            f"the path {text!r} has an empty key; join keys by dots, for example pkt.vc"
        )
    return keys


def kafka_path(text: str) -> Path:
    """Return the keys of `kafka.key`, `kafka.timestamp`, `kafka.header.NAME`; else no keys."""
    if text in ("kafka.key", TIMESTAMP):
        return (KAFKA, text.removeprefix("kafka."))
    name = text.removeprefix("kafka.header.")
    return (KAFKA, "header", name) if name and name != text else ()


def split_unescaped(text: str, mark: str, most: int | None = None) -> list[str]:
    """Split at each unescaped `mark`, `most` times at most; backslashes are kept."""
    pieces: list[str] = []
    start = 0
    for part in re.finditer(r"\\?.", text, re.DOTALL):
        if part[0] == mark and (most is None or len(pieces) < most):
            pieces.append(text[start : part.start()])
            start = part.end()
    return [*pieces, text[start:]]


def parse_fields(options: Iterable[str]) -> dict[str, str]:
    """Parse the `NAME=PATH` of `--field` options.

    Raises a SettingError if an option is not of that form, or a field is given twice.
    """
    out: dict[str, str] = {}
    for option in options:
        name, equals, path = option.partition("=")
        if not equals:
            raise SettingError(
                f"--field {option!r} is not of the form NAME=PATH, for example clock=pkt.vc"
            )
        if name in out:
            raise SettingError(f"--field {name} is given twice")
        out[name] = path
    return out


def parse_nodes(option: str) -> tuple[str, ...]:
    """Parse the `A,B,C` of `--nodes`."""
    return tuple(name.strip() for name in option.split(","))


@dataclass(frozen=True, kw_only=True)
class Source:
    """How a log is read; the `[source]` table of a configuration file.

    Parameters
    ----------
    format, regex, delimiter, fields, nodes, time_unit, time_format, rebuild, clock
        As for `ketal.read_log`.
    topics, keyed_by
        Kafka topics and the meaning of message keys; unused for files.

    Raises
    ------
    SettingError
        If an option is unknown or excluded by another one.
    """

    format: str | None = None
    regex: str | None = None
    delimiter: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    nodes: Sequence[str] | None = None
    time_unit: str = "s"
    time_format: str | None = None
    rebuild: str | None = None
    clock: str = VECTOR
    topics: Sequence[str] = ()
    keyed_by: str | None = None

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise SettingError(
                f"unknown format {value_text(self.format)}{near(self.format, FORMATS)}"
            )
        for name in ("regex", "delimiter"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise SettingError(f"{name} must be a regular expression, not {value_text(value)}")
            if value == "":
                raise SettingError(f"{name} is empty; omit it instead")
            if value and self.format not in (None, "shiviz"):
                raise SettingError(
                    f"{name} applies only to ShiViz logs, but the format is {self.format}"
                )
        if self.rebuild is not None and not isinstance(self.rebuild, str):
            raise SettingError(
                f"rebuild must be a string, for example {MESSAGES_EXAMPLE}, "
                f"not {value_text(self.rebuild)}"
            )
        if self.time_unit not in tuple(TIME_UNITS):
            raise SettingError(
                f"unknown time unit {value_text(self.time_unit)}{near(self.time_unit, TIME_UNITS)}"
            )
        if self.time_format is not None:
            check_time_format(self.time_format)
        self._check_fields()
        self._check_nodes()
        self._check_clock()
        for name in ("fields", "nodes", "time_format", "rebuild", "clock"):
            given = self.clock != VECTOR if name == "clock" else getattr(self, name)
            if given and self.format in TRACES:
                raise SettingError(
                    f"{name} applies only to logs of events, but the format is {self.format}"
                )
            if given and name in ("nodes", "clock") and self.rebuild is not None:
                raise SettingError(
                    f"{name} and rebuild cannot be combined: rebuild ignores the clocks of the log"
                )

    def _check_fields(self) -> None:
        if not isinstance(self.fields, Mapping):
            raise SettingError(f"fields must map names to paths, not be {value_text(self.fields)}")
        for name, path in self.fields.items():
            if name not in FIELDS:
                raise SettingError(f"unknown field {name!r}{near(name, FIELDS)}")
            if not isinstance(path, str):
                raise SettingError(f"the path of {name} must be a string, not {value_text(path)}")
            path_of(path)
        if MESSAGE in self.fields and self.rebuild is not None:
            raise SettingError(
                "the field message and rebuild cannot be combined: rebuild pairs the messages"
            )
        if self.time_format is not None and self.fields.get("time") == TIMESTAMP:
            raise SettingError(
                f"time_format applies only to times as text, but {TIMESTAMP} is a number"
            )

    def _check_clock(self) -> None:
        if not isinstance(self.clock, str):
            raise SettingError(f"clock must be the name of a scheme, not {value_text(self.clock)}")
        if self.clock != NO_CLOCKS:
            scheme_named(self.clock, NO_CLOCKS)
        for name in ("clock", "receives", INCARNATION, MESSAGE):
            if self.clock == NO_CLOCKS and name in self.fields:
                raise SettingError(
                    f"the field {name} requires clocks, but clock is {NO_CLOCKS}: no clocks are "
                    "read"
                )
        if self.nodes is not None and self.clock != VECTOR:
            raise SettingError(
                f"nodes applies only to positional vector clocks, but clock is {self.clock}"
            )

    @property
    def scheme(self) -> Scheme[Any] | None:
        """The timestamping scheme of the log's clocks; None for vector clocks or no clocks."""
        return None if self.clock in (VECTOR, NO_CLOCKS) else scheme_named(self.clock)

    @property
    def undecided(self) -> str:
        """The name of the scheme, or of no clocks, if it does not decide happened-before."""
        decides = self.clock != NO_CLOCKS and (self.scheme is None or self.scheme.decides)
        return "" if decides else self.clock

    def _check_nodes(self) -> None:
        if self.nodes is None:
            return
        if isinstance(self.nodes, str) or not isinstance(self.nodes, Sequence):
            raise SettingError(f"nodes must be a list of names, not {value_text(self.nodes)}")
        names = tuple(
            str(n) if isinstance(n, int) and not isinstance(n, bool) else n for n in self.nodes
        )
        if not names or not all(isinstance(name, str) and name for name in names):
            raise SettingError("nodes must be non-empty names, for example A,B,C")
        if len(set(names)) < len(names):
            repeated = next(name for name in names if names.count(name) > 1)
            raise SettingError(f"nodes lists {repeated!r} twice")
        object.__setattr__(self, "nodes", names)


class MappedFields:
    """The optional fields that a source maps, and which of them no record has: likely mistyped.

    A record without one of the other fields is rejected. `is_divided` is whether the delimiter of
    the source, if it has one, divides a file. `unpaired` counts the events with the id of a message
    that are neither its send nor after it.
    """

    def __init__(self, fields: Mapping[str, str]) -> None:
        # With the default paths, records are decoded without a look at their keys.
        mapped = {name: path for name, path in fields.items() if PLAIN.get(name) != path}
        self._fields = {name: mapped[name] for name in mapped if name not in _REQUIRED}
        self.reset()

    def reset(self) -> None:
        """Mark all fields absent, for another reading of the log."""
        self.absent = {
            name: kafka_path(path) or path_of(path) for name, path in self._fields.items()
        }
        """Field → the keys of its path, for fields that no record has had so far."""
        self.is_read = False  # whether some record was read
        self.unpaired = 0
        self.is_divided: bool | None = None  # None if no file was read by a delimiter

    def mark_present(self, record: Mapping[str, Any]) -> None:
        """Remove the fields of a record from `absent`, except `MESSAGE`, which events have."""
        self.is_read = True
        for name, path in list(self.absent.items()):
            if name != MESSAGE and dig(record, path) is not None:
                self.absent.pop(name, None)  # Another thread that reads the log may have.

    def mark_read(self, absent: Iterable[str]) -> None:
        """Keep as absent only fields that are also in `absent`, those of records read elsewhere."""
        self.is_read = True
        for name in self.absent.keys() - absent:
            del self.absent[name]

    def sentences(self) -> Iterator[str]:
        """Yield a sentence for each field that no record has, if any record was read."""
        for name in self.absent if self.is_read else ():
            path = self._fields[name]
            yield f"{name}={path}: no record that was read has a value at this path"
        if self.unpaired:
            yield (
                f"{MESSAGE}={self._fields[MESSAGE]}: {counted(self.unpaired, 'event')} with the id "
                "of a message whose send did not happen before it, so that it is not a receive"
            )


@dataclass(frozen=True, kw_only=True)
class Config:
    """A configuration file: its source, its limits, and the complete document."""

    source: Source = Source()
    limits: Limits = DEFAULT
    document: Mapping[str, Any] = field(default_factory=dict)


def load_config(
    path: str | os.PathLike[str], keys: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> Config:
    """Read `[source]` and `[limits]` of a TOML file.

    `keys` are those of the other tables, by table; a table that is not in it may have any keys.

    Raises a SettingError, which names the file, if it cannot be read, is not TOML, or has an
    unknown key.
    """
    name = os.fspath(path)
    try:
        with refused_as_setting(f"cannot read {name}"), open(path, "rb") as file:
            # Some editors write a byte order mark.
            document = tomllib.loads(file.read().decode("utf-8-sig"))
    except UnicodeDecodeError as fault:
        raise SettingError(
            f"{name} is not valid UTF-8 (byte {fault.start + 1}); save it as UTF-8"
        ) from None
    except ValueError as fault:  # TOMLDecodeError; that of int() is bare.
        raise SettingError(f"{name} is not valid TOML: {fault}") from None
    except RecursionError:
        raise SettingError(f"{name} is nested too deeply") from None
    with faults_placed(f"{name}: "):
        _check_values(document)
        _check_keys(document, {**keys, "source": [item.name for item in fields(Source)]})
        with faults_placed("[source] "):
            source = Source(**table_of(document, "source"))
        limits = Limits.named(table_of(document, "limits"))
    return Config(source=source, limits=limits, document=document)


def _check_values(document: Mapping[str, Any]) -> None:
    """Refuse integers of more than 64 bits, and nesting deeper than `NESTED_MAX`."""
    stack: list[tuple[Path, Any]] = [((), document)]
    while stack:
        keys, value = stack.pop()
        if len(keys) > NESTED_MAX:
            raise SettingError(f"{'.'.join(keys[:3])} is nested too deeply")
        if isinstance(value, dict):
            stack += [((*keys, key), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            stack += [((*keys, "[]"), inner) for inner in value]
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise SettingError(f"{'.'.join(keys)}: an integer in TOML has at most 64 bits")


def _check_keys(document: Mapping[str, Any], keys: Mapping[str, Sequence[str]]) -> None:
    """Refuse unknown keys of the document and of the tables in `keys`."""
    limits = [item.name for item in fields(Limits)]
    places = {"": SETTINGS, **keys, "source.fields": FIELDS, "limits": limits}
    for table, known in {"": (*SETTINGS, *TABLES), **keys}.items():
        for key in table_of(document, table) if table else document:
            if key in known:
                continue
            place = f" in [{table}]" if table else ""
            where = next((other for other, names in places.items() if key in names), None)
            hint = near(key, known)
            if where is not None:
                hint = f"; it belongs {f'in [{where}]' if where else 'before the first table'}"
            raise SettingError(f"unknown key {key!r}{place}{hint}")


def table_of(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a table of a configuration file."""
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise SettingError(f"{name} must be a table, [{name}]")
    return table
