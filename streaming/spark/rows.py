"""From a user's DataFrame to the rows of key groups.

Two shapes are taken: the columns of Kafka's connector, and an event's own columns. Either becomes
rows of `group` (the key), `copy`, the place (`topic, partition, offset`) and `value`, one JSON
object, which the operator decodes as every other reader of ketal does.

The group is `pmod(hash(partition), key_groups)`, computed in the JVM. Values that ketal calls equal
have to meet in one group: numbers are hashed as doubles, so 17 and 17.0 meet; that "17" meets them
too does no harm. Of a key that an object has several times the last value counts, as it does to
every reader of ketal: so values are found by `from_json`, for `get_json_object` finds the first.
Where Kafka's key is the partition attribute (`keyed_by`), its bytes are hashed and no JSON is read,
which costs a third less.

Of some messages the value is read all the same, to see whether its key leads where it promises
(`ketal.streaming.spark.keyed`).

Spark itself drops rows that are late by its watermark, and says so in no verdict. The column of
event time therefore ends before the operator, and a null column that bears its mark goes on: Spark
has a watermark, compares it with null, drops nothing, and the operator tells what is late.

The one rule: no row is dropped and none is read twice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from ketal.errors import SettingError
from ketal.logs.shape import KAFKA, Shape
from ketal.logs.source import OWN_FIELDS, Source
from ketal.model import syntax
from ketal.model.event import CONTROL_PREFIX
from ketal.streaming.spark.families import Family, Partition, Path, by_key, paths_of
from ketal.streaming.spark.group import ALONE, COPY, HOME, PLACED
from ketal.streaming.spark.keyed import BETWEEN, READ_EACH, READ_FIRST

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset")
PLACE = ("topic", "partition", "offset")
_NO_ATTRIBUTES = (*OWN_FIELDS, *PLACE, "timestamp")
"""The columns beside which all are attributes."""
EVENT_COLUMNS = ("node", "type", "clock")
DELAY = "spark.watermarkDelayMs"
"""What Spark calls the mark of a column of event time."""
_TIME_MAX_S = 253_402_300_799.0
ANY_JSON = dict.fromkeys(("maxNumLen", "maxNestingDepth", "maxStringLen"), "2147483647")
"""Spark reads what ketal reads."""


@dataclass(frozen=True)
class Shaped:
    """A DataFrame in the operator's shape, and what the operator has to know of it.

    Parameters
    ----------
    frame : DataFrame
        The columns `group` and `columns`, and `mark` where there is a watermark.
    columns : tuple of str
        What the operator reads.
    headers : tuple of str
        The names of the headers among them.
    source : Source or None
        How a message becomes an event; None for rows that have an event's columns.
    """

    frame: DataFrame
    columns: tuple[str, ...]
    headers: tuple[str, ...]
    source: Source | None


def shaped(
    events: DataFrame,
    families: Sequence[Family],
    *,
    source: Source | None,
    lateness_ms: int | None,
) -> Shaped:
    """Return events as rows of key groups.

    Parameters
    ----------
    events : DataFrame
        Kafka's columns, or an event's.
    families : sequence of Family
        The groups there are.
    source : Source or None
        Where the fields are in Kafka's messages.
    lateness_ms : int or None
        How far Spark's watermark is behind the latest time; None for none.

    Raises
    ------
    SettingError
        If the columns are those of neither shape, or of wrong types, or what a pattern is
        partitioned by is in none of them.
    """
    names = events.columns
    _check_named_once(events)
    of: _Kafka | _Events
    if all(name in names for name in KAFKA_COLUMNS) and "clock" not in names:
        of = _Kafka(events, source or Source(), families)
    elif all(name in names for name in EVENT_COLUMNS):
        if source is not None:
            raise SettingError("source says where the fields of Kafka's messages are; these events "
                               "have columns of their own")  # fmt: skip
        of = _Events(events)
        of.check(families)
    else:
        raise SettingError(
            "events have the columns of Kafka's connector (key, value, topic, partition, offset) "
            f"or an event's (node, type, clock, …); these have {', '.join(names)}"
        )
    frame = events
    if lateness_ms is not None:
        frame = of.marked(frame, lateness_ms)
    columns = of.columns()
    control = of.control()
    groups = [_group(of, family) for family in families]
    count = sum(family.groups for family in families)
    selected = {name: column.alias(name) for name, column in columns.items()}
    if lateness_ms is not None:
        selected["mark"] = (
            F.lit(None).cast("timestamp").alias("mark", metadata={DELAY: lateness_ms})
        )
    if count == 1:
        one = [F.lit(0).alias("group"), F.lit(ALONE).cast("byte").alias("copy")]
        home = F.when(control, F.lit(HOME)).otherwise(F.lit(ALONE)).cast("byte").alias("copy")
        out = frame.select(one[0], home, *selected.values())
    else:
        out = _divided(
            frame.withColumn("_control", control).withColumn("_home", groups[0]),
            F.array(*groups),
            count,
            selected,
            of.placed(families),
        )
    return Shaped(out, ("copy", *columns), of.headers, of.source)


def _check_named_once(events: DataFrame) -> None:
    """Refuse columns of one name, which Spark cannot tell apart.

    Raises
    ------
    SettingError
        Naming them.
    """
    exact = events.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    named: dict[str, list[str]] = {}
    for name in events.columns:
        named.setdefault(name if exact else name.lower(), []).append(name)
    twice = ", ".join(name for same in named.values() if len(same) > 1 for name in same)
    if twice:
        raise SettingError(
            f"events have columns of one name: {twice}; select each once, or rename it "
            "(events.toDF(...), withColumnRenamed)"
        )


def _divided(
    frame: DataFrame,
    own: Column,
    count: int,
    selected: Mapping[str, Column],
    placed: tuple[Column, Column] | None,
) -> DataFrame:
    """Return rows, each as often as a group is to see it.

    Parameters
    ----------
    frame : DataFrame
        Events, with `_control` and `_home`.
    own : Column
        The groups of an event.
    count : int
        How many groups there are.
    selected : mapping of str to Column
        What else a row has.
    placed : tuple of (Column, Column), optional
        A message with the group that its key led to, or null, and the group that is told so.
    """
    at, control = F.col("_to"), F.col("_control")
    if placed is not None:
        said, teller = placed
        frame = frame.withColumn("_said", said)
        told = F.concat(own, F.array(F.lit(-1) - teller))
        own = F.when(F.col("_said").isNotNull(), told).otherwise(own)
        selected = {**selected, "_said": F.col("_said")}
    to = F.when(control, F.sequence(F.lit(0), F.lit(count - 1))).otherwise(own)
    copy = (
        F.when(at < 0, F.lit(PLACED))
        .when(~control, F.lit(ALONE))
        .when(at == F.col("_home"), F.lit(HOME))
        .otherwise(F.lit(COPY))
    )
    group = F.when(at < 0, -1 - at).otherwise(at)
    out = {name: F.col(name) for name in selected}
    if placed is not None:
        value = F.when(at < 0, out.pop("_said")).otherwise(out["value"])
        out["value"] = value.alias("value")
    return frame.select(
        F.explode(to).alias("_to"),
        control,
        F.col("_home"),
        *(column.alias(name) for name, column in selected.items()),
    ).select(group.alias("group"), copy.cast("byte").alias("copy"), *out.values())


def _group(of: _Kafka | _Events, family: Family) -> Column:
    if family.groups == 1 and not family.partition:
        return F.lit(family.first)
    values = of.partition(family.partition)
    return (F.pmod(F.hash(*values), F.lit(family.groups)) + F.lit(family.first)).cast("int")


def _canonical(text: Column) -> Column:
    """Return a text that is the same for numbers that are equal."""
    number = text.try_cast("double")
    # Minus zero plus zero is zero.
    return F.coalesce((number + F.lit(0.0)).cast("string"), text)


def _time(text: Column, divisor: int) -> Column:
    """Return a timestamp of what an event may have for its time; null where it is none."""
    number = text.try_cast("double") / F.lit(float(divisor))
    within = number.between(F.lit(-_TIME_MAX_S / 4), F.lit(_TIME_MAX_S))
    return F.coalesce(F.when(within, F.timestamp_seconds(number)), F.try_to_timestamp(text))


def _texts_at(text: Column, paths: Iterable[Path]) -> dict[Path, Column]:
    """Return the text at each path in a JSON object, from as few readings of it as will do."""
    out: dict[Path, Column] = {}
    left = sorted(set(paths))
    while left:
        together: list[Path] = []
        for path in left:
            if all(_apart(path, other) for other in together):
                together.append(path)
        read = F.from_json(text, _struct_of(together), ANY_JSON)  # type: ignore[arg-type]
        for path in together:
            out[path] = functools.reduce(lambda found, key: found.getField(key), path, read)
        left = [path for path in left if path not in out]
    return out


def _apart(one: Path, other: Path) -> bool:
    """Return whether two paths fit into one struct; to Spark the case of letters is nothing."""
    for key, another in zip(one, other, strict=False):
        if key != another:
            return key.casefold() != another.casefold()
    return False


def _struct_of(paths: Sequence[Path]) -> T.DataType:
    """Return the type of an object that has text at these paths."""
    if paths == [()]:
        return T.StringType()
    below: dict[str, list[Path]] = {}
    for path in paths:
        below.setdefault(path[0], []).append(path[1:])
    return T.StructType([T.StructField(key, _struct_of(rest)) for key, rest in below.items()])


class _Kafka:
    """Kafka's columns."""

    def __init__(self, events: DataFrame, source: Source, families: Sequence[Family]) -> None:
        _check_types({one.name: one.dataType for one in events.schema.fields}, _KAFKA_TYPES)
        self.source: Source | None = source
        self._source = source
        paths = Shape(source, kafka=True).paths
        self._paths = paths
        self._text = F.col("value").cast("string")
        read = [paths["type"], paths["time"]]
        read += (one for f in families for of in f.partition for one in paths_of(of, paths))
        self._found = _texts_at(self._text, (path for path in read if path[0] != KAFKA))
        outside = [path[1:] for path in paths.values() if path[0] == KAFKA]
        self._wants_key = ("key",) in outside
        self._wants_timestamp = ("timestamp",) in outside
        if self._wants_timestamp and "timestamp" not in events.columns:
            raise SettingError(
                "kafka.timestamp is read, and the events have no column timestamp, which Kafka's "
                "connector has"
            )
        self.headers = tuple(sorted({path[1] for path in outside if path[0] == "header"}))
        if self.headers and "headers" not in events.columns:
            raise SettingError(
                f"the header {self.headers[0]} is read, and the events have no column headers: "
                'read the topic with .option("includeHeaders", "true")'
            )
        self._divisor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[source.time_unit]

    def columns(self) -> dict[str, Column]:
        out = {name: F.col(name) for name in PLACE}
        out["value"] = F.col("value")
        if self._wants_key:
            out["key"] = F.col("key")
        if self._wants_timestamp:
            out["timestamp"] = F.unix_millis("timestamp")
        for number, name in enumerate(self.headers):
            out[f"header{number}"] = _header(name)
        return out

    def _own(self, name: str) -> Column:
        """Return a field's text."""
        return self._at(self._paths[name])

    def _at(self, path: Path) -> Column:
        """Return the text at a path."""
        if path[0] != KAFKA:
            return self._found[path]
        if path[1] == "timestamp":
            since_ms = F.unix_millis("timestamp")
            return F.when(since_ms >= 0, since_ms * self._divisor / 1_000).cast("string")
        return F.col("key").cast("string") if path[1] == "key" else _header(path[2]).cast("string")

    def control(self) -> Column:
        told = self._own("type").startswith(CONTROL_PREFIX)
        if self._paths["type"][0] != KAFKA:
            # An escape may spell any letter of the prefix.
            may = self._text.contains(CONTROL_PREFIX) | self._text.contains("\\u00")
            told = F.when(may, told)
        return F.coalesce(told, F.lit(False))

    def partition(self, partition: Partition) -> list[Column]:
        if by_key(partition, self._source) is not None:
            return [F.col("key")]
        found = [paths_of(of, self._paths) for of in partition]
        return [_canonical(F.coalesce(*map(self._at, paths))) for paths in found]

    def placed(self, families: Sequence[Family]) -> tuple[Column, Column] | None:
        """Return some messages with the group that their key led to, and the group to be told."""
        for family in families:
            keyed = by_key(family.partition, self._source)
            if keyed is None or family.groups == 1:
                continue
            value = _canonical(F.coalesce(*map(self._at, paths_of(keyed, self._paths))))
            groups = F.lit(family.groups)
            led_to = F.pmod(F.hash(F.col("key")), groups).cast("string")
            spread = F.pmod(F.hash("topic", "partition", "offset"), F.lit(READ_EACH)) == 0
            read = (F.col("offset") < READ_FIRST) | spread
            first = F.concat(led_to, F.lit(BETWEEN)).cast("binary")
            said = F.when(read, F.when(value.isNotNull(), F.concat(first, F.col("value"))))
            return said, F.pmod(F.hash(value), groups) + F.lit(family.first)
        return None

    def marked(self, frame: DataFrame, lateness_ms: int) -> DataFrame:
        # What is no event has no time: `ketal.watermark` says one of its own.
        at = F.when(~self.control(), _time(self._own("time"), self._divisor))
        return frame.withColumn("_at", at).withWatermark("_at", f"{lateness_ms} milliseconds")


def _header(name: str) -> Column:
    """Return the bytes of a header; of several of one name the last, as everywhere."""
    of = F.filter(F.col("headers"), lambda one: one["key"] == F.lit(name))
    return F.try_element_at(of, F.lit(-1))["value"]


class _Events:
    """An event's own columns; columns beyond those are attributes, as in a log."""

    source: Source | None = None
    headers: tuple[str, ...] = ()

    def __init__(self, events: DataFrame) -> None:
        self._types = {one.name: one.dataType for one in events.schema.fields}
        self._marked = any(
            one.name == "time" and DELAY in one.metadata for one in events.schema.fields
        )
        self._streaming = events.isStreaming

    def check(self, families: Sequence[Family]) -> None:
        """Refuse columns that make no event of any row, and patterns without a scope for any.

        Raises
        ------
        SettingError
            Naming the column or the pattern.
        """
        _check_types(self._types, _EVENT_TYPES)
        for compiled in (one for family in families for one in family.program.compiled):
            for of in compiled.pattern.partition:
                if not self._may_have(of):
                    name = of.name if isinstance(of, syntax.Field) else ".".join(of.path)
                    raise SettingError(
                        f"pattern {compiled.name} is partitioned by {name}, which no column "
                        f"holds; there are {', '.join(self._types)}"
                    )

    def _may_have(self, of: syntax.Attribute | syntax.Field) -> bool:
        """Return whether an event may have a part of a partition."""
        if isinstance(of, syntax.Field):
            return of.name in self._types
        beside = of.path[0] in self._types and of.path[0] not in _NO_ATTRIBUTES
        inside = "data" in self._types and _leads(self._types["data"], of.path)
        return inside or (beside and _leads(self._types[of.path[0]], of.path[1:]))

    def _is_text(self, name: str) -> bool:
        return isinstance(self._types.get(name), T.StringType)

    def columns(self) -> dict[str, Column]:
        out: dict[str, Column] = {}
        if "offset" in self._types:
            for name, kind in zip(PLACE, ("string", "int", "bigint"), strict=True):
                given = F.col(name) if name in self._types else F.lit(None)
                out[name] = given.cast(kind) if kind == "string" else (
                    F.coalesce(given.cast(kind), F.lit(0).cast(kind))
                )  # fmt: skip
        elif not self._streaming:
            out["topic"] = F.lit(None).cast("string")
            out["partition"] = F.lit(0)
            out["offset"] = F.monotonically_increasing_id()
        out["value"] = self._json()
        for name in ("clock", "data"):
            if self._is_text(name):
                out[name] = F.col(name)
        return out

    def _beyond(self) -> list[Column]:
        """Return the columns that are attributes."""
        names = (name for name in self._types if name not in _NO_ATTRIBUTES)
        return [F.col(_quoted(name)) for name in names]

    def _json(self) -> Column:
        own = [_cast(name, self._types[name]) for name in OWN_FIELDS if self._in_json(name)]
        beyond = self._beyond()
        if beyond and "data" not in self._types:
            beyond = [F.struct(*beyond).alias("data")]
        # A session may want nulls to be written, and null is no clock, data or time.
        return F.to_json(F.struct(*own, *beyond), {"ignoreNullFields": "true"}).cast("binary")

    def _in_json(self, name: str) -> bool:
        return name in self._types and not (name in ("clock", "data") and self._is_text(name))

    def control(self) -> Column:
        return F.coalesce(F.col("type").startswith(CONTROL_PREFIX), F.lit(False))

    def partition(self, partition: Partition) -> list[Column]:
        return [_canonical(self._value(of)) for of in partition]

    def _value(self, of: syntax.Attribute | syntax.Field) -> Column:
        if isinstance(of, syntax.Field):
            if of.name not in self._types:
                return F.lit(None).cast("string")
            return _cast(of.name, self._types[of.name]).cast("string")
        found = []
        if "data" in self._types:
            found.append(_dug(F.col("data"), self._types["data"], of.path))
        if of.path[0] in self._types and of.path[0] not in _NO_ATTRIBUTES:
            name = of.path[0]
            found.append(_dug(F.col(_quoted(name)), self._types[name], of.path[1:]))
        return F.coalesce(*found) if found else F.lit(None).cast("string")

    def placed(self, families: Sequence[Family]) -> tuple[Column, Column] | None:
        """Return None: of columns the value itself is hashed."""
        return None

    def marked(self, frame: DataFrame, lateness_ms: int) -> DataFrame:
        if "time" not in self._types:
            raise SettingError("the program goes by time, and the events have no column time")
        if self._marked:
            return frame
        at = F.when(~self.control(), _time(_cast("time", self._types["time"]).cast("string"), 1))
        return frame.withColumn("_at", at).withWatermark("_at", f"{lateness_ms} milliseconds")


def _is_whole(kind: T.DataType) -> bool:
    return isinstance(kind, T.IntegralType) or (isinstance(kind, T.DecimalType) and kind.scale == 0)


def _is_clock(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return all(_is_whole(one.dataType) for one in kind.fields)
    return isinstance(kind, T.StringType) or (
        isinstance(kind, T.MapType) and _is_whole(kind.valueType)
    )


def _is_text(kind: T.DataType) -> bool:
    return isinstance(kind, T.StringType)


def _is_timestamp(kind: T.DataType) -> bool:
    return isinstance(kind, T.TimestampType)


def _is_bytes(kind: T.DataType) -> bool:
    return isinstance(kind, T.BinaryType)


def _is_name(kind: T.DataType) -> bool:
    return isinstance(kind, T.StringType) or _is_whole(kind)


def _is_time(kind: T.DataType) -> bool:
    return isinstance(
        kind, T.StringType | T.NumericType | T.TimestampType | T.TimestampNTZType | T.DateType
    )


def _is_data(kind: T.DataType) -> bool:
    return isinstance(kind, T.StringType | T.MapType | T.StructType | T.VariantType)


def _or_null(fits: Callable[[T.DataType], bool]) -> Callable[[T.DataType], bool]:
    return lambda kind: isinstance(kind, T.NullType) or fits(kind)


_Types = Mapping[str, tuple[Callable[[T.DataType], bool], str]]
"""Of columns: which types they may have, and those in words."""
_PLACE_TYPES: _Types = {
    "partition": (_is_whole, "a whole number"),
    "offset": (_is_whole, "a whole number"),
}
_EVENT_TYPES: _Types = {
    "node": (_is_name, "text or a whole number"),
    "type": (_is_text, "text"),
    "clock": (_is_clock, "a map to whole numbers, a struct of them, or text"),
    "time": (_or_null(_is_time), "a timestamp, a number or text"),
    "id": (_or_null(_is_name), "text or a whole number"),
    "data": (_or_null(_is_data), "a struct, a map, or JSON text"),
    **_PLACE_TYPES,
}
_KAFKA_TYPES: _Types = {
    "key": (_or_null(_is_bytes), "binary, as Kafka's connector has it"),
    "value": (_or_null(_is_bytes), "binary, as Kafka's connector has it"),
    "topic": (_is_text, "text"),
    "timestamp": (_or_null(_is_timestamp), "a timestamp, as Kafka's connector has it"),
    **_PLACE_TYPES,
}


def _check_types(types: Mapping[str, T.DataType], wanted: _Types) -> None:
    """Refuse a column of a type that no row could be read with.

    Raises
    ------
    SettingError
        Naming the column.
    """
    for name, (fits, words) in wanted.items():
        if name in types and not fits(types[name]):
            raise SettingError(
                f"the column {name} is {types[name].simpleString()}; it must be {words}"
            )


def _leads(kind: T.DataType, path: tuple[str, ...]) -> bool:
    """Return whether there may be a value at a path; what text or a map holds is not known."""
    for key in path:
        if isinstance(kind, T.MapType):
            kind = kind.valueType
        elif isinstance(kind, T.StructType):
            if key not in kind.names:
                return False
            kind = kind[key].dataType
        else:
            return isinstance(kind, T.StringType | T.VariantType)
    return True


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _cast(name: str, kind: T.DataType) -> Column:
    """Return an event's own column as JSON has it."""
    column = F.col(name)
    if name == "time" and isinstance(kind, T.TimestampType):
        return column.cast("double").alias(name)
    if name == "time" and isinstance(kind, T.TimestampNTZType):
        raise SettingError("the column time has no time zone; cast it to timestamp")
    if name in ("node", "type", "id"):
        return column.cast("string").alias(name)
    return column.alias(name)


def _dug(column: Column, kind: T.DataType, path: tuple[str, ...]) -> Column:
    """Return the text of what is at a path in a column."""
    for at, key in enumerate(path):
        if isinstance(kind, T.StringType):
            return _texts_at(column, [path[at:]])[path[at:]]
        if isinstance(kind, T.MapType):
            column, kind = F.try_element_at(column, F.lit(key)), kind.valueType
        elif isinstance(kind, T.StructType) and key in kind.names:
            column, kind = column.getField(key), kind[key].dataType
        else:
            return F.lit(None).cast("string")
    if isinstance(kind, T.AtomicType):
        return column.cast("string")
    return F.lit(None).cast("string")
