"""The conversion of a user's DataFrame to rows of key groups.

A DataFrame may have the columns of Kafka's connector, or the columns of events. Both are converted
to rows with `group` (the key), `copy`, the place (`topic, partition, offset`) and `value`, one JSON
object, which the operator decodes like every other reader of ketal.

The group is `pmod(hash(partition), key_groups)`, computed in the JVM. Values that ketal treats as
equal must have the same group: numbers are hashed as doubles, so 17 and 17.0 have the same group;
that "17" has it too does no harm. If an object has a key several times, the last value counts, as
in every reader of ketal. So values are extracted with `from_json`, since `get_json_object` returns
the first one. If Kafka's key is the partition attribute (`keyed_by`), its bytes are hashed and no
JSON is decoded, which costs a third less; some messages are decoded nevertheless, to check their
keys (`ketal.streaming.spark.rows.keyed`).

Spark itself drops rows that are late by its watermark, without a verdict. So the operator does not
get the column of event time, but a null column with the same watermark: Spark keeps a watermark,
compares it with nulls, drops no row, and the operator decides which events are late.

The one rule: no row is dropped and none is read twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ketal.errors import SettingError
from ketal.logs.source import Source
from ketal.streaming.spark.families import Family
from ketal.streaming.spark.rows.events import DELAY, EventColumns
from ketal.streaming.spark.rows.message_columns import MessageColumns
from ketal.streaming.spark.rows.row_reader import ALONE, COPY, HOME, SAMPLE, RowShape

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset")
EVENT_COLUMNS = ("node", "type", "clock")


def shape_rows(
    events: DataFrame,
    families: Sequence[Family],
    *,
    source: Source | None,
    lateness_ms: int | None,
) -> tuple[DataFrame, RowShape]:
    """Return events as rows of key groups, and the shape of the rows.

    Unless `lateness_ms` is None, the column `mark` has Spark's watermark.

    Raises a SettingError if the columns are neither those of messages nor of events, or have wrong
    types, or if no column has a pattern's partition key.
    """
    _check_named_once(events)
    source_columns = _columns_of(events, families, source)
    frame = events if lateness_ms is None else with_watermark(events, source_columns, lateness_ms)
    columns = source_columns.columns()
    control = source_columns.control()
    groups = [_group_column(source_columns, family) for family in families]
    count = sum(family.groups for family in families)
    selected = {name: column.alias(name) for name, column in columns.items()}
    if lateness_ms is not None:
        selected["mark"] = (
            F.lit(None).cast("timestamp").alias("mark", metadata={DELAY: lateness_ms})
        )
    if count == 1:
        copy = F.when(control, F.lit(HOME)).otherwise(F.lit(ALONE)).cast("byte")
        out = frame.select(F.lit(0).alias("group"), copy.alias("copy"), *selected.values())
    else:
        out = _row_per_group(
            frame.withColumn("_control", control).withColumn("_home", groups[0]),
            F.array(*groups),
            count,
            selected,
            source_columns.key_samples(families),
        )
    return out, RowShape(("copy", *columns), source_columns.headers, source_columns.source)


def _columns_of(
    events: DataFrame, families: Sequence[Family], source: Source | None
) -> MessageColumns | EventColumns:
    """Return the columns of messages or of events, whichever the DataFrame has."""
    names = events.columns
    if all(name in names for name in KAFKA_COLUMNS) and "clock" not in names:
        return MessageColumns(events, source or Source(), families)
    if not all(name in names for name in EVENT_COLUMNS):
        raise SettingError(
            "events must have the columns of Kafka's connector (key, value, topic, partition, "
            f"offset) or those of an event (node, type, clock, …), not {', '.join(names)}"
        )
    if source is not None:
        raise SettingError(
            "source applies only to the messages of Kafka's connector; these events have the "
            "columns of an event"
        )
    return EventColumns(events, families)


def with_watermark(
    events: DataFrame, source_columns: MessageColumns | EventColumns, lateness_ms: int
) -> DataFrame:
    """Return events with a column of event time that has Spark's watermark."""
    at = source_columns.time()
    if at is None:
        return events
    # A control event does not advance Spark's watermark; `ketal.watermark` sets a separate mark.
    at = F.when(~source_columns.control(), at)
    return events.withColumn("_at", at).withWatermark("_at", f"{lateness_ms} milliseconds")


def _check_named_once(events: DataFrame) -> None:
    """Raise a SettingError if several columns have one name, which makes them ambiguous."""
    exact = events.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    named: dict[str, list[str]] = {}
    for name in events.columns:
        named.setdefault(name if exact else name.lower(), []).append(name)
    twice = ", ".join(name for same in named.values() if len(same) > 1 for name in same)
    if twice:
        raise SettingError(
            f"events have several columns with the same name: {twice}; select each once, or "
            "rename it (events.toDF(...), withColumnRenamed)"
        )


def _row_per_group(
    frame: DataFrame,
    own: Column,
    count: int,
    selected: Mapping[str, Column],
    samples: tuple[Column, Column] | None,
) -> DataFrame:
    """Return one row for each group that must see a row, out of `count` groups.

    The columns of `frame` include `_control` (whether a row is a control event) and `_home` (the
    group whose copy of a control event is counted). `own` has the groups of an event, `selected`
    the columns of the operator; `samples` has the sample of a message, or null, and the group that
    checks it.
    """
    at, control = F.col("_to"), F.col("_control")
    if samples is not None:
        sample, checker = samples
        frame = frame.withColumn("_sample", sample)
        own_and_checker = F.concat(own, F.array(F.lit(-1) - checker))
        own = F.when(F.col("_sample").isNotNull(), own_and_checker).otherwise(own)
        selected = {**selected, "_sample": F.col("_sample")}
    to = F.when(control, F.sequence(F.lit(0), F.lit(count - 1))).otherwise(own)
    copy = (
        F.when(at < 0, F.lit(SAMPLE))
        .when(~control, F.lit(ALONE))
        .when(at == F.col("_home"), F.lit(HOME))
        .otherwise(F.lit(COPY))
    )
    group = F.when(at < 0, -1 - at).otherwise(at)
    out = {name: F.col(name) for name in selected}
    if samples is not None:
        value = F.when(at < 0, out.pop("_sample")).otherwise(out["value"])
        out["value"] = value.alias("value")
    return frame.select(
        F.explode(to).alias("_to"),
        control,
        F.col("_home"),
        *selected.values(),
    ).select(group.alias("group"), copy.cast("byte").alias("copy"), *out.values())


def _group_column(source_columns: MessageColumns | EventColumns, family: Family) -> Column:
    if not family.partition:
        return F.lit(family.first)
    values = source_columns.partition(family.partition)
    return (F.pmod(F.hash(*values), F.lit(family.groups)) + F.lit(family.first)).cast("int")
