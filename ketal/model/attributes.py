"""Attributes: the values that an event's data can hold.

An attribute is a value that JSON can express: None, a boolean, a number, a string, a list, or a
mapping with strings for keys. Nothing else has a meaning in a pattern, in a verdict or in a
snapshot, so values passed by a program are converted, or refused with their path:

- a tuple becomes a list, a mapping of any class a dict, a value of a subclass
  (an enum, `numpy.float64`) or a numpy scalar the plain value that it holds;
- floats may be infinite or NaN, which JSON writes as null (comparisons with
  NaN are unknown);
- everything else is refused: sets (they have no order), Decimals (JSON would turn
  them into another kind), dates, bytes, objects, strings that UTF-8 cannot
  encode, integers too long for Python to print.

The one rule: the result shares no mutable object with the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any

from ketal.errors import EventError, class_name, value_text

DEPTH_MAX = 200
"""The maximal nesting depth of lists and mappings."""
DIGITS_MAX = 4_300
"""The most characters of an integer, its sign included: msgspec reads no longer one."""
_INTEGER_MIN, _INTEGER_MAX = 1 - 10 ** (DIGITS_MAX - 1), 10**DIGITS_MAX - 1
ATTRIBUTE_KINDS = {
    str: "string", int: "number", float: "number", bool: "boolean", NoneType: "null",
    list: "list", tuple: "list", dict: "object",
}  # fmt: skip
"""The kinds of attributes, by class."""

_FIXED = frozenset((bool, float, NoneType))
NESTED = frozenset((dict, list))
"""The classes of JSON values that hold others."""
_SUGGESTIONS = {
    "bytearray": "decode it to a string",
    "bytes": "decode it to a string",
    "date": "use its isoformat()",
    "datetime": "use its isoformat() or timestamp()",
    "Decimal": "use a float or a string",
    "frozenset": "use a sorted list",
    "ndarray": "use its tolist()",
    "set": "use a sorted list",
    "UUID": "use a string",
}
_Where = tuple[Any, str | int] | str
"""A place in data: its name, or the enclosing place and a key or an index."""


def attributes(data: Any, label: str = "data") -> dict[str, Any]:
    """Return an event's data as plain values, in new containers; messages call it `label`.

    An EventError if they are not a mapping, or with the path of a value that is not an attribute.
    """
    if data.__class__ is not dict and not isinstance(data, Mapping):
        raise EventError(f"{label} must be a mapping, not {class_name(data)}")
    return _plain(data, label, 0)  # type: ignore[no-any-return]


def _is_plain(data: dict[Any, Any]) -> bool:
    """Return whether a dict is flat and all its values are plain: the common case."""
    for name, value in data.items():
        kind = value.__class__
        if name.__class__ is not str or not name.isascii():
            return False
        if kind is str:
            if not value.isascii():
                return False
        elif kind is int:
            if not -(2**63) <= value < 2**63:
                return False
        elif kind not in _FIXED:
            return False
    return True


def refuse_deep(data: dict[str, Any]) -> None:
    """Raise an EventError if data of a JSON decoder are nested deeper than `DEPTH_MAX`.

    Writing, comparing or saving such data could fail later, when the event can no longer be
    rejected alone.
    """
    if NESTED.isdisjoint(map(type, data.values())):
        return  # Most data are flat.
    level: list[Any] = [data]
    for _ in range(DEPTH_MAX + 1):
        inner = [one.values() if one.__class__ is dict else one for one in level]
        level = [value for values in inner for value in values if value.__class__ in NESTED]
        if not level:
            return
    raise EventError(f"data is nested more than {DEPTH_MAX} levels deep")


def _plain(value: Any, where: _Where, depth: int) -> Any:
    if value.__class__ in _FIXED:
        return value
    if value.__class__ is dict and depth <= DEPTH_MAX and _is_plain(value):
        return value.copy()
    if isinstance(value, str):
        return text(value, where)
    if isinstance(value, int):
        if not _INTEGER_MIN <= value <= _INTEGER_MAX:
            raise EventError(
                f"{_path(where)} is an integer of {value.bit_length()} bits; "
                f"the maximum is {DIGITS_MAX} digits: use a string"
            )
        return int(value)
    if isinstance(value, float):
        return float(value)
    if depth > DEPTH_MAX:
        raise EventError(f"data is nested more than {DEPTH_MAX} levels deep, or contains itself")
    if isinstance(value, Mapping):
        return {
            _key(name, where): _plain(inner, (where, name), depth + 1)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(inner, (where, index), depth + 1) for index, inner in enumerate(value)]
    plain = unboxed(value)
    if isinstance(plain, bool | int | float):
        return _plain(plain, where, depth)
    name = type(value).__name__
    suggestion = _SUGGESTIONS.get(name, "convert it to one of these")
    raise EventError(
        f"{_path(where)} must be None, a boolean, a number, a string, a list, or a mapping with "
        f"string keys, not {name}; {suggestion}"
    )


def _key(name: Any, where: _Where) -> str:
    if not isinstance(name, str):
        raise EventError(
            f"{_path(where)} has the key {name!r}; keys must be strings, not {type(name).__name__}"
        )
    return text(name, where)


def text(value: str, where: _Where) -> str:
    """Return a string as a plain `str`; an EventError if UTF-8 cannot encode it."""
    plain = str.__str__(value)
    if not plain.isascii():
        try:
            plain.encode()
        except UnicodeEncodeError as fault:
            raise EventError(
                f"{_path(where)} contains a lone surrogate ({plain[fault.start]!a}), which is not "
                "a character; decode its source with errors='replace'"
            ) from None
    return plain


def name_of(value: object, label: str) -> str:
    """Return a node's name or an event's id: a string, or an integer in decimal.

    An EventError if it is neither.
    """
    if isinstance(value, str):
        return str.__str__(value)
    value = unboxed(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if not _INTEGER_MIN <= value <= _INTEGER_MAX:
            raise EventError(
                f"{label} is an integer of {value.bit_length()} bits; "
                f"the maximum is {DIGITS_MAX} digits"
            )
        return str(int(value))
    raise EventError(f"{label} must be a string or an integer, not {value_text(value)}")


def copied(value: Any) -> Any:
    """Return a deep copy of an attribute."""
    if value.__class__ is dict:
        return {name: copied(inner) for name, inner in value.items()}
    if value.__class__ is list:
        return [copied(inner) for inner in value]
    return value


def unboxed(value: Any) -> Any:
    """Return the Python value that a numpy scalar holds; any other value unchanged."""
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        # Only booleans and numbers: `item()` of a numpy time may be a count of nanoseconds.
        return value.item() if value.dtype.kind in "biuf" else value
    return value


def _path(where: _Where) -> str:
    """Return a place in the notation of patterns: `data.msg.tags[2]`."""
    if isinstance(where, str):
        return where
    outer, key = where
    if isinstance(key, str) and key.isidentifier():
        return f"{_path(outer)}.{key}"
    return f"{_path(outer)}[{key!a}]"
