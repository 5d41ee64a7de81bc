"""Texts of columns, computed in the JVM: of JSON at paths, numbers as one text, times."""

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
"""Spark reads what ketal reads."""


def canonical(text: Column) -> Column:
    """Return a text that is the same for numbers that are equal."""
    number = text.try_cast("double")
    # Minus zero plus zero is zero.
    return F.coalesce((number + F.lit(0.0)).cast("string"), text)


def timestamp_of(text: Column, divisor: int) -> Column:
    """Return a timestamp of what an event may have for its time; null where it is none."""
    number = text.try_cast("double") / F.lit(float(divisor))
    within = number.between(F.lit(-_TIME_MAX_S / 4), F.lit(_TIME_MAX_S))
    return F.coalesce(F.when(within, F.timestamp_seconds(number)), F.try_to_timestamp(text))


def timestamp_by_format(text: Column, source: Source) -> Column:
    """Return a timestamp of what is a time in the format of a source; null where it is none.

    Formats are Python's, and not those of the JVM: Python reads them.
    """
    times = TimeReading(source.time_unit, source.time_format)

    def since_epoch(value: str | None) -> float | None:
        try:
            return None if value is None else seconds(times.read(value))
        except EventError:
            return None

    return F.timestamp_seconds(F.udf(since_epoch, T.DoubleType())(text))


def texts_at(text: Column, paths: Iterable[Path]) -> dict[Path, Column]:
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
            out[path] = functools.reduce(lambda column, key: column.getField(key), path, read)
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
