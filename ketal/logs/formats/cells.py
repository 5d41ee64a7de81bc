"""Convert cells of tables to JSON values.

Rows come from Python, pandas, polars, Arrow and Parquet, which have more types of values than
JSON. None, NaN, NaT and pandas's NA are absent. Dates and times become ISO 8601 text, durations
seconds, decimals numbers, bytes text, and scalars and arrays of numpy Python values. Only the
time of an event stays a datetime, so that it is not read by the format of times that are text. A
row with a value of any other type is rejected.

The one rule: a row becomes the record that a JSON line with the same names would be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from ketal.errors import EventError
from ketal.logs.shape import Item, Shape, json_type_of
from ketal.model.attributes import DIGITS_MAX, attributes, unboxed
from ketal.model.values import dig

_JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_ABSENT = ("NaTType", "NAType")
"""The classes of absent values in pandas; NaT is an instance of datetime, too."""


def item_of_row(row: Any, shape: Shape, *, typed: bool) -> Item:
    """Convert a row to an event or a control event; raise an EventError if it is neither.

    If columns are `typed`, as in Arrow, null in a struct means that the key is absent, and a map
    is a list of pairs.
    """
    if not isinstance(row, Mapping):
        raise EventError(f"the row is {json_type_of(row)}, not a mapping of names to values")
    try:
        record = attributes(_present_cells(row.items(), typed), "row")
        if (event_time := _datetime_at(row, shape.paths["time"])) is not None:
            *outer, last = shape.paths["time"]
            dig(record, tuple(outer))[last] = event_time
    except RecursionError:
        raise EventError("the record is nested too deeply") from None
    except (ValueError, ArithmeticError) as fault:
        raise EventError(f"a value is out of range: {fault}") from None
    return shape.item(record)


def value_of_text(text: str) -> Any:
    """Return the value of a cell that is text: a number in JSON's syntax, a boolean, or the text.

    So `007` stays text.
    """
    if _JSON_NUMBER.fullmatch(text):
        try:
            return msgspec.json.decode(text)
        except ValueError:
            # A number of thousands of digits is an identifier, not a quantity.
            return text
    return {"true": True, "false": False}.get(text, text)


def _present_cells(pairs: Iterable[tuple[Any, Any]], typed: bool) -> dict[Any, Any]:
    """Return the cells of a mapping, given as its pairs, as JSON values, without absent ones."""
    cells = ((_column_name(name), _json_value(value, typed)) for name, value in pairs)
    return {name: value for name, value in cells if value is not None}


def _column_name(name: Any) -> Any:
    if name.__class__ is str:
        return name
    name = unboxed(name)
    if isinstance(name, list | dict):  # as in a map of Arrow
        raise EventError(f"the key {name!r} of a map is {json_type_of(name)}, not a string")
    return str(name) if isinstance(name, int) and not isinstance(name, bool) else name


def _json_value(value: Any, typed: bool) -> Any:
    """Return a cell as a JSON value; None if it is absent."""
    if value is None or isinstance(value, str | int):
        return value
    if value.__class__ is dict or isinstance(value, Mapping):
        if typed:
            return _present_cells(value.items(), typed)
        return {_column_name(name): _json_value(inner, typed) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        if typed and value and all(type(pair) is tuple for pair in value):
            return _present_cells(value, typed)
        return [_json_value(inner, typed) for inner in value]
    if not isinstance(value, float):
        value = _python_value(value)
    if isinstance(value, float):
        return None if value != value else value
    if type(value).__name__ in _ABSENT:
        return None
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        if value.is_finite() and value == value.to_integral_value():
            # A larger one is refused unconverted: its conversion takes quadratic time.
            return int(value) if not value or value.adjusted() < DIGITS_MAX else value
        return None if value.is_nan() else float(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    if isinstance(value, list):
        return _json_value(value, typed)
    return str(value) if isinstance(value, UUID) else value


def _python_value(value: Any) -> Any:
    """Return the Python value of a numpy scalar or array; other values unchanged."""
    if type(value).__module__ != "numpy":
        return value
    if value.dtype.kind in "mM":
        # `tolist` of nanoseconds would return a number without a unit.
        value = value.astype(f"{value.dtype.kind}8[us]")
        return value.tolist()
    return value.tolist() if value.ndim else unboxed(value)


def _datetime_at(row: Any, path: tuple[str, ...]) -> datetime | None:
    """Return the datetime at a path in a row, cut to microseconds; None if there is none."""
    for name in path:
        if not isinstance(row, Mapping):
            return None
        row = row.get(name)
    value = _python_value(row)
    if not isinstance(value, date) or type(value).__name__ in _ABSENT:
        return None
    if not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    # A pandas Timestamp has nanoseconds.
    return value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value
