"""The types that the columns of a user's DataFrame may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import types as T

from ketal.errors import SettingError

_Fits = Callable[[T.DataType], bool]


def _one_of(*kinds: type[T.DataType]) -> _Fits:
    return lambda kind: isinstance(kind, kinds)


def _or_null(fits: _Fits) -> _Fits:
    return lambda kind: isinstance(kind, T.NullType) or fits(kind)


_is_text = _one_of(T.StringType)
_is_bytes = _one_of(T.BinaryType)
_is_data = _one_of(T.StringType, T.MapType, T.StructType, T.VariantType)
_is_time = _one_of(T.StringType, T.NumericType, T.TimestampType, T.TimestampNTZType, T.DateType)


def _is_whole(kind: T.DataType) -> bool:
    return isinstance(kind, T.IntegralType) or (isinstance(kind, T.DecimalType) and kind.scale == 0)


def _is_clock(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return all(_is_whole(one.dataType) for one in kind.fields)
    return _is_text(kind) or (isinstance(kind, T.MapType) and _is_whole(kind.valueType))


def _is_name(kind: T.DataType) -> bool:
    return _is_text(kind) or _is_whole(kind)


def _is_text_array(kind: T.DataType) -> bool:
    return isinstance(kind, T.ArrayType) and _is_text(kind.elementType)


_Types = Mapping[str, tuple[_Fits, str]]
"""Name of a column → the test of its type, and the types that pass it in words."""
_PLACE_TYPES: _Types = {
    "partition": (_is_whole, "an integer"),
    "offset": (_is_whole, "an integer"),
}
EVENT_TYPES: _Types = {
    "node": (_is_name, "a string or an integer"),
    "type": (_is_text, "a string"),
    "clock": (_is_clock, "a map to integers, a struct of integers, or a string"),
    "time": (_or_null(_is_time), "a timestamp, a number or a string"),
    "id": (_or_null(_is_name), "a string or an integer"),
    "data": (_or_null(_is_data), "a struct, a map, or a JSON string"),
    "receives": (_or_null(_is_text_array), "an array of strings"),
    **_PLACE_TYPES,
}
KAFKA_TYPES: _Types = {
    "key": (_or_null(_is_bytes), "binary, as from Kafka's connector"),
    "value": (_or_null(_is_bytes), "binary, as from Kafka's connector"),
    "topic": (_is_text, "a string"),
    "timestamp": (_or_null(_one_of(T.TimestampType)), "a timestamp, as from Kafka's connector"),
    **_PLACE_TYPES,
}


def check_types(types: Mapping[str, T.DataType], wanted: _Types) -> None:
    """Raise a SettingError if a column has a type that its values cannot be decoded from."""
    for name, (fits, words) in wanted.items():
        if name in types and not fits(types[name]):
            raise SettingError(
                f"the column {name} must be {words}, not {types[name].simpleString()}"
            )
