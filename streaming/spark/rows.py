"""From a user's DataFrame to the rows of key groups.

Two shapes are taken: the columns of Kafka's connector, and an event's own columns. Either becomes
rows of `group` (the key), `copy`, the place (`topic, partition, offset`) and `value`, one JSON
object, which the operator decodes as every other reader of ketal does.

The group is `pmod(hash(partition), key_groups)`, computed in the JVM. Values that ketal calls equal
have to meet in one group: numbers are hashed as doubles, so 17 and 17.0 meet; that "17" meets them
too does no harm. Where Kafka's key is the partition attribute (`keyed_by`), its bytes are hashed
and no JSON is read, which costs a third less.

Of some messages the value is read all the same, to see whether its key leads where it promises
(`ketal.streaming.spark.keyed`).

Where several families are partitioned, a row of each has the groups of all of them (`homes`).

Spark itself drops rows that are late by its watermark, and says so in no verdict. The column of
event time therefore ends before the operator, and a null column that bears its mark goes on: Spark
has a watermark, compares it with null, drops nothing, and the operator tells what is late.

The one rule: no row is dropped and none is read twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from ketal import pattern as syntax
from ketal.clocks.vector import COUNTER_MAX
from ketal.columns import Reads
from ketal.errors import SettingError
from ketal.event import CONTROL_PREFIX
from ketal.logs.shape import KAFKA, Shape
from ketal.logs.source import OWN_FIELDS, Source
from ketal.operators.membership import ATTRIBUTE
from ketal.streaming.spark.families import Family, Partition, Path, by_key, paths_of
from ketal.streaming.spark.group import ALONE, COPY, HOME, HOMES, PLACED, TOUCH
from ketal.streaming.spark.judging import AT, COUNTER
from ketal.streaming.spark.keyed import BETWEEN, READ_EACH, READ_FIRST
from ketal.streaming.spark.spread import keys

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset")
PLACE = ("topic", "partition", "offset")
_NO_ATTRIBUTES = (*OWN_FIELDS, *PLACE, "timestamp")
"""The columns beside which all are attributes."""
EVENT_COLUMNS = ("node", "type", "clock")
DELAY = "spark.watermarkDelayMs"
"""What Spark calls the mark of a column of event time."""
_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_TEXT: T.DataType = T.StringType()
"""A text that equals no other; one that has a collation may."""
_TIME_MAX_S = 253_402_300_799.0
TOUCHED_FIRST, TOUCHED_EACH = 100, 10_000
"""So many offsets of each partition are for all groups to see, and one of so many later on."""


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
    touched_since: Mapping[str, Mapping[str, int]] | None = None,
    read: Reads | None = None,
    bytes_max: int = 0,
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
    touched_since : mapping, optional
        The offsets of a change that all groups have to take up soon, by topic and partition.
    read : Reads, optional
        What the program reads of an event, where that is enough to judge it (`ketal.columns`).
    bytes_max : int
        The length, as JSON, up to which it is.

    Raises
    ------
    SettingError
        If the columns are those of neither shape, or a path cannot be read by Spark.
    """
    names = events.columns
    _check_named_once(events)
    of: _Kafka | _Events
    if all(name in names for name in KAFKA_COLUMNS) and "clock" not in names:
        of = _Kafka(events, source or Source())
    elif all(name in names for name in EVENT_COLUMNS):
        if source is not None:
            raise SettingError("source says where the fields of Kafka's messages are; these events "
                               "have columns of their own")  # fmt: skip
        of = _Events(events)
    else:
        raise SettingError(
            "events have the columns of Kafka's connector (key, value, topic, partition, offset) "
            f"or an event's (node, type, clock, …); these have {', '.join(names)}"
        )
    frame = events
    if lateness_ms is not None:
        frame = of.marked(frame, lateness_ms)
    columns = of.columns()
    if read is not None and isinstance(of, _Events):
        columns |= of.judged(read, bytes_max)
    control = of.control()
    groups = [_group(of, family) for family in families]
    count = sum(family.groups for family in families)
    further: dict[str, Column] = {}
    if len(families) > 1 and families[0].partition:
        # A family that is not partitioned sees all that any other sees, and tells it.
        further[HOMES] = F.array(*groups).alias(HOMES)
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
            F.array(*groups) if touched_since is None else _touching(groups, count, touched_since),
            count,
            selected | further,
            of.placed(families),
        )
    return Shaped(out, ("copy", *columns, *further), of.headers, of.source)


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
        The groups of an event; below zero, from -1 on, those that are only called.
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
        told = F.concat(own, F.array(F.lit(-1 - count) - teller))
        own = F.when(F.col("_said").isNotNull(), told).otherwise(own)
        selected = {**selected, "_said": F.col("_said")}
    to = F.when(control, F.sequence(F.lit(0), F.lit(count - 1))).otherwise(own)
    copy = (
        F.when(at < -count, F.lit(PLACED))
        .when(at < 0, F.lit(TOUCH))
        .when(~control, F.lit(ALONE))
        .when(at == F.col("_home"), F.lit(HOME))
        .otherwise(F.lit(COPY))
    )
    group = F.when(at < 0, F.pmod(-1 - at, F.lit(count))).otherwise(at)
    out = {name: F.col(name) for name in selected}
    if placed is not None:
        value = F.when(at < -count, out.pop("_said")).otherwise(out["value"])
        out["value"] = value.alias("value")
    return frame.select(
        F.explode(to).alias("_to"),
        control,
        F.col("_home"),
        *(column.alias(name) for name, column in selected.items()),
    ).select(_keyed(group, count).alias("group"), copy.cast("byte").alias("copy"), *out.values())


def _keyed(group: Column, count: int) -> Column:
    """Return the key of a group, one of so many, by its number."""
    known = keys(count)
    if known is None:
        return group
    return F.element_at(F.array(*(F.lit(key).cast("bigint") for key in known)), group + 1)


def _touching(
    groups: Sequence[Column], count: int, since: Mapping[str, Mapping[str, int]]
) -> Column:
    """Return the groups of an event, and of some events all the others, to be called."""
    own = F.array(*groups)
    every = F.concat(own, F.sequence(F.lit(-1), F.lit(-count)))
    return F.when(_first_after(since), every).otherwise(own)


def _first_after(since: Mapping[str, Mapping[str, int]]) -> Column:
    """Return whether a message is among the first of its partition, or one of many."""
    first = F.lit(0)
    for topic, partitions in sorted(since.items()):
        for number, offset in sorted(partitions.items()):
            here = (F.col("topic") == topic) & (F.col("partition") == int(number))
            first = F.when(here, F.lit(offset)).otherwise(first)
    after = F.col("offset") - first
    spread = F.pmod(F.hash("topic", "partition", "offset"), F.lit(TOUCHED_EACH)) == 0
    return after.between(0, TOUCHED_FIRST - 1) | spread


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


def json_path(keys: Sequence[str]) -> str:
    """Return a path as `get_json_object` takes it.

    Raises
    ------
    SettingError
        If a key is one that it cannot name.
    """
    for key in keys:
        if "'" in key or "?" in key:
            raise SettingError(f"Spark's get_json_object cannot name the key {key!r}")
    return "$" + "".join(f"['{key}']" for key in keys)


class _Kafka:
    """Kafka's columns."""

    def __init__(self, events: DataFrame, source: Source) -> None:
        self.source: Source | None = source
        self._source = source
        paths = Shape(source, kafka=True).paths
        self._paths = paths
        self._text = F.col("value").cast("string")
        outside = [path[1:] for path in paths.values() if path[0] == KAFKA]
        self._wants_key = ("key",) in outside
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
        for number, name in enumerate(self.headers):
            out[f"header{number}"] = _header(name)
        return out

    def _own(self, name: str) -> Column:
        """Return a field's text."""
        return self._at(self._paths[name])

    def _at(self, path: Path) -> Column:
        """Return the text at a path."""
        if path[0] != KAFKA:
            return F.get_json_object(self._text, json_path(path))
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

    def judged(self, read: Reads, bytes_max: int) -> dict[str, Column]:
        """Return the columns by which events are judged; none where a row does not have them so.

        A counter of 0 says that the event has to be looked at itself.

        Parameters
        ----------
        read : Reads
            What is read of an event.
        bytes_max : int
            A longer event has to be looked at.
        """
        types = self._types
        time, clock = types.get("time", T.DoubleType()), types["clock"]
        if not (
            types["node"] == types["type"] == _TEXT
            and isinstance(clock, T.MapType)
            and clock.keyType == _TEXT
            and isinstance(clock.valueType, _WHOLE)
            and isinstance(time, T.NumericType | T.TimestampType)
            and not isinstance(time, T.DecimalType)
        ):
            return {}
        if ATTRIBUTE in types or ("data" in types and self._beyond()):
            return {}  # With attributes in two places the JSON is not that of an event.
        names = [read.key, *read.attributes]
        found = [one for one in map(self._attribute, names) if one is not None]
        if len(found) < len(names):
            return {}
        of = {"node": (F.col("node"), _TEXT), "type": (F.col("type"), _TEXT)}
        of |= {f"{AT}{n}": one for n, one in enumerate(found)}
        texts = F.concat_ws(" ", *(column for column, kind in of.values() if kind == _TEXT))
        plain = (
            (F.col("node") != "")
            & (F.col("type") != "")
            & ~self._has(ATTRIBUTE)
            & (F.octet_length(self._json()) <= bytes_max)
            & ~F.map_contains_key("clock", "")
            & F.forall(F.map_values("clock"), lambda c: c.between(1, COUNTER_MAX))
            & F.is_valid_utf8(texts)  # Arrow hands over no other bytes.
        )
        if "time" in types:
            at = _cast("time", time).cast("double")
            plain &= at.isNull() | (at.between(0, _TIME_MAX_S) & ~F.isnan(at))
        own = F.coalesce(F.try_element_at("clock", F.col("node")).cast("bigint"), F.lit(0))
        counter = F.when(plain, own).otherwise(F.lit(0))
        given = {
            name: F.try_validate_utf8(column) if kind == _TEXT else column
            for name, (column, kind) in of.items()
        }
        return {COUNTER: counter, **given}

    def _has(self, name: str) -> Column:
        """Return whether the column data may have an attribute."""
        data = self._types.get("data")
        if isinstance(data, T.MapType):
            return F.coalesce(F.map_contains_key("data", name), F.lit(False))
        return F.lit(isinstance(data, T.StructType) and name in data.names)

    def _attribute(self, name: str) -> tuple[Column, T.DataType] | None:
        """Return an attribute and its type; None if JSON says it in another way."""
        if name in _NO_ATTRIBUTES:
            return None
        data, found = self._types.get("data"), (F.lit(None).cast("string"), _TEXT)
        if name in self._types:
            found = F.col(_quoted(name)), self._types[name]
        elif isinstance(data, T.MapType) and data.keyType == _TEXT:
            found = F.try_element_at("data", F.lit(name)), data.valueType
        elif isinstance(data, T.StructType):
            # To Spark names that differ in the case of their letters are one.
            if [other.lower() for other in data.names].count(name.lower()) > 1:
                return None
            if name in data.names:
                found = F.col("data").getField(name), data[name].dataType
        elif data is not None:
            return None
        return found if isinstance(found[1], _WHOLE) or found[1] == _TEXT else None

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
            return F.get_json_object(column, json_path(path[at:]))
        if isinstance(kind, T.MapType):
            column, kind = F.try_element_at(column, F.lit(key)), kind.valueType
        elif isinstance(kind, T.StructType) and key in kind.names:
            column, kind = column.getField(key), kind[key].dataType
        else:
            return F.lit(None).cast("string")
    if isinstance(kind, T.AtomicType):
        return column.cast("string")
    return F.lit(None).cast("string")
