"""Expressions on text columns, computed in the JVM: values at JSON paths, numbers, timestamps."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from ketal.errors import EventError
from ketal.logs.source import Path, Source
from ketal.logs.times import TimeReading
from ketal.model.events.event_time import seconds

if TYPE_CHECKING:
    from pyspark.sql import Column

_TIME_MAX_S = 253_402_300_799.0
ANY_JSON = dict.fromkeys(("maxNumLen", "maxNestingDepth", "maxStringLen"), "2147483647")
"""Options that remove Spark's own limits of JSON, so that it decodes what ketal decodes."""


def canonical_text(text: Column) -> Column:
    """Return a text that is the same for equal numbers."""
    number = text.try_cast("double")
    # Adding zero turns minus zero into zero.
    return F.coalesce((number + F.lit(0.0)).cast("string"), text)


def timestamp_of(text: Column, divisor: int) -> Column:
    """Return the timestamp of an event time, a number or RFC 3339; null if it is neither."""
    # A cast that fails is slow.
    number = F.when(~text.contains(":"), text.try_cast("double")) / F.lit(float(divisor))
    within = number.between(F.lit(-_TIME_MAX_S / 4), F.lit(_TIME_MAX_S))
    # Spark reads no lower case, and no offset after hours or minutes; it completes a time without a
    # date by today's, and one without an offset by the time zone of the session, not by UTC.
    given = F.upper(F.btrim(text, F.lit(" \t\n\r\f\v")))
    given = F.regexp_replace(given, r"(^.{10}[T ]\d\d)(?=$|[Z+-])", "$1:00")
    given = F.regexp_replace(given, r"(^.{10}[T ]\d\d:\d\d)(?=$|[Z+-])", "$1:00")
    missing = (
        F.when(F.length(given) == len("2026-01-01"), F.lit("T00:00:00Z"))
        .when(~given.rlike("[T ].*[Z+-]"), F.lit("Z"))
        .otherwise(F.lit(""))
    )
    dated = given.rlike(r"^\d{4}-\d\d-\d\d(?:[T ]|$)")
    at = F.when(dated, F.try_to_timestamp(F.concat(given, missing)))
    return F.coalesce(F.when(within, F.timestamp_seconds(number)), at)


def timestamp_by_format(text: Column, source: Source) -> Column:
    """Return the timestamp of a time in the format of a source; null if it is not in that format.

    Formats are Python's, and not those of the JVM, so a Python function decodes them.
    """
    times = TimeReading(source.time_unit, source.time_format)

    def since_epoch(value: str | None) -> float | None:
        try:
            return None if value is None else seconds(times.read(value))
        except EventError:
            return None

    return F.timestamp_seconds(F.udf(since_epoch, T.DoubleType())(text))


def texts_at(text: Column, paths: Iterable[Path]) -> dict[Path, Column]:
    """Return the text at each path in a JSON object, with as few calls of `from_json` as needed."""
    out: dict[Path, Column] = {}
    left = sorted(set(paths))
    while left:
        together: list[Path] = []
        for path in left:
            if all(_fit_together(path, other) for other in together):
                together.append(path)
        read = F.from_json(text, _struct_of(together), ANY_JSON)  # type: ignore[arg-type]
        for path in together:
            out[path] = functools.reduce(lambda column, key: column.getField(key), path, read)
        left = [path for path in left if path not in out]
    return out


def _fit_together(one: Path, other: Path) -> bool:
    """Return whether two paths fit into one struct type: Spark ignores the case of field names.

    A path that begins with the other does not fit.
    """
    for key, another in zip(one, other, strict=False):
        if key != another:
            return key.casefold() != another.casefold()
    return False


def _struct_of(paths: Sequence[Path]) -> T.DataType:
    """Return the struct type of an object that has text at these paths."""
    if paths == [()]:
        return T.StringType()
    below: dict[str, list[Path]] = {}
    for path in paths:
        below.setdefault(path[0], []).append(path[1:])
    return T.StructType([T.StructField(key, _struct_of(rest)) for key, rest in below.items()])
