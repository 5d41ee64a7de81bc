"""DataFrames with the columns of events, and the operator's columns made from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from ketal.errors import SettingError
from ketal.logs.source import OWN_FIELDS, Source
from ketal.model import syntax
from ketal.model.events.control import CONTROL_PREFIX
from ketal.streaming.spark.families import Family, PartitionKey
from ketal.streaming.spark.rows.message_columns import PLACE
from ketal.streaming.spark.rows.text import canonical_text, texts_at, timestamp_of
from ketal.streaming.spark.rows.types import EVENT_TYPES, check_types

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DELAY = "spark.watermarkDelayMs"
"""The key in a column's metadata by which Spark marks the column with a watermark."""
_NO_ATTRIBUTES = (*OWN_FIELDS, *PLACE, "timestamp")
"""The columns that are not attributes; all other columns are."""


class EventColumns:
    """The columns of events: the event's own fields, and other columns as attributes."""

    source: Source | None = None
    headers: tuple[str, ...] = ()

    def __init__(self, events: DataFrame, families: Sequence[Family]) -> None:
        self._types = {one.name: one.dataType for one in events.schema.fields}
        self._marked = "time" in self._types and DELAY in events.schema["time"].metadata
        self._streaming = events.isStreaming
        check_types(self._types, EVENT_TYPES)
        self._check_partitions(families)

    def _check_partitions(self, families: Sequence[Family]) -> None:
        """Raise a SettingError for a pattern whose partition key is in no column."""
        for compiled in (one for family in families for one in family.program.compiled):
            for attribute in compiled.pattern.partition:
                if not self._key_columns(attribute):
                    name = (
                        attribute.name
                        if isinstance(attribute, syntax.Field)
                        else ".".join(attribute.path)
                    )
                    raise SettingError(
                        f"pattern {compiled.name} is partitioned by {name}, which is in no column; "
                        f"the columns are {', '.join(self._types)}"
                    )

    def _key_columns(self, attribute: syntax.Attribute | syntax.Field) -> list[Column]:
        """Return the columns, as text, that may have an attribute of a partition key.

        The first that is not null counts.
        """
        types = self._types
        if isinstance(attribute, syntax.Field):
            return (
                [_field_column(attribute.name, types[attribute.name]).cast("string")]
                if attribute.name in types
                else []
            )
        places = [("data", attribute.path)] if "data" in types else []
        if attribute.path[0] in types and attribute.path[0] not in _NO_ATTRIBUTES:
            places.append((attribute.path[0], attribute.path[1:]))
        texts = [_text_at_path(F.col(_quoted(name)), types[name], path) for name, path in places]
        return [text for text in texts if text is not None]

    def _is_text(self, name: str) -> bool:
        return isinstance(self._types.get(name), T.StringType)

    def columns(self) -> dict[str, Column]:
        """Return the operator's columns, by name."""
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
        out["value"] = self._json_column()
        for name in ("clock", "data"):
            if self._is_text(name):
                out[name] = F.col(name)
        return out

    def _json_column(self) -> Column:
        texts = [name for name in ("clock", "data") if self._is_text(name)]
        names = [name for name in OWN_FIELDS if name in self._types and name not in texts]
        own = [_field_column(name, self._types[name]) for name in names]
        beyond = [F.col(_quoted(name)) for name in self._types if name not in _NO_ATTRIBUTES]
        if beyond and "data" not in self._types:
            beyond = [F.struct(*beyond).alias("data")]
        # A session may be set to write nulls, but a null clock, data or time would be rejected.
        return F.to_json(F.struct(*own, *beyond), {"ignoreNullFields": "true"}).cast("binary")

    def control(self) -> Column:
        """Return a boolean column: whether a row is a control event."""
        return F.coalesce(F.col("type").startswith(CONTROL_PREFIX), F.lit(False))

    def partition(self, partition: PartitionKey) -> list[Column]:
        """Return the columns that are hashed to the number of a key group."""
        return [
            canonical_text(F.coalesce(*self._key_columns(attribute))) for attribute in partition
        ]

    def key_samples(self, families: Sequence[Family]) -> tuple[Column, Column] | None:
        """Return None: the values themselves are hashed, so no keys need to be checked."""
        return None

    def time(self) -> Column | None:
        """Return the event time as a timestamp; None if the column `time` has a watermark."""
        if "time" not in self._types:
            raise SettingError("the program uses event times, but the events have no column time")
        if self._marked:
            return None
        return timestamp_of(_field_column("time", self._types["time"]).cast("string"), 1)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _field_column(name: str, kind: T.DataType) -> Column:
    """Return a column of an event's own field, converted for the JSON of the event."""
    column = F.col(name)
    if name == "time" and isinstance(kind, T.TimestampType):
        return column.cast("double").alias(name)
    if name == "time" and isinstance(kind, T.TimestampNTZType):
        raise SettingError("the column time has no time zone; cast it to timestamp")
    if name in ("node", "type", "id"):
        return column.cast("string").alias(name)
    return column.alias(name)


def _text_at_path(column: Column, kind: T.DataType, path: tuple[str, ...]) -> Column | None:
    """Return the value at a path in a column, as text; None if its type has no such path."""
    for at, key in enumerate(path):
        if isinstance(kind, T.MapType) and kind.keyType != T.StringType():
            # The path has keys as the event's JSON has them: a date as its number of days.
            column, kind = F.to_json(column), T.StringType()
        if isinstance(kind, T.StringType):
            return texts_at(column, [path[at:]])[path[at:]]
        if isinstance(kind, T.MapType):
            column, kind = F.try_element_at(column, F.lit(key)), kind.valueType
        elif isinstance(kind, T.StructType) and key in kind.names:
            column, kind = column.getField(key), kind[key].dataType
        else:
            return F.lit(None).cast("string") if isinstance(kind, T.VariantType) else None
    return column.cast("string") if isinstance(kind, T.AtomicType) else F.lit(None).cast("string")
