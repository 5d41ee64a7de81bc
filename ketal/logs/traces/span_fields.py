"""The fields of spans that several trace formats have, checked.

The one rule: an absent field is null, and a field of another shape raises an EventError that names
the field.
"""

from __future__ import annotations

import re
from typing import Any

from ketal.errors import EventError
from ketal.logs.shape import json_type_of

CLIENT, SERVER = "client", "server"
KINDS = ("", "internal", SERVER, CLIENT, "producer", "consumer")
"""The kinds of spans, indexed by OTLP's numbers."""
TIME_NS_MAX = 253_402_300_800 * 10**9
"""The end of the year 9999."""

_HEX = re.compile(r"[0-9a-fA-F]+")


def checked_object(value: Any, what: str) -> dict[str, Any]:
    """Return a JSON object, empty if it is absent or null; raise an EventError for other types."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise EventError(f"{what} must be an object, not {json_type_of(value)}")
    return value


def checked_list(value: Any, what: str) -> list[Any]:
    """Return a JSON array, empty if it is absent or null; raise an EventError for other types."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise EventError(f"{what} must be an array, not {json_type_of(value)}")
    return value


def service_node(attributes: dict[str, Any]) -> str:
    """Return the node of a process's spans: namespace, name and instance of its service.

    Empty if the service has no name. Names are unique in a namespace, and instances in a service.
    """
    names = ("service.namespace", "service.name", "service.instance.id")
    namespace, name, instance = (
        "" if attributes.get(key) is None else str(attributes[key]) for key in names
    )
    return "/".join(part for part in (namespace, name, instance) if part) if name else ""


def kind_named(value: Any) -> str:
    """Return the kind of a span by its name in any case; empty if it is none of `KINDS`."""
    name = value.lower() if isinstance(value, str) else ""
    return name if name in KINDS else ""


def hex_id(record: dict[str, Any], what: str, digits: int) -> str:
    """Return an id of at most `digits` hex digits with its leading zeros.

    Empty if it is absent or all zeros, which means no id.
    """
    value = record.get(what)
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or len(value) > digits or not _HEX.fullmatch(value):
        raise EventError(f"{what} {str(value)[:60]!r} is not a hex id")
    return value.lower().rjust(digits, "0") if value.strip("0") else ""


def checked_microseconds(record: dict[str, Any], what: str) -> int | None:
    """Return a time or duration in microseconds; None if it is absent or zero."""
    value = record.get(what)
    if value is None or value == 0:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if (
        not isinstance(value, int)
        or isinstance(value, bool)
        or not 0 < value < TIME_NS_MAX // 1_000
    ):
        raise EventError(f"{what} {str(value)[:60]!r} is not a time in microseconds")
    return value


def time_error(span: str, field: str, begin_us: int | None, duration_us: int | None) -> str:
    """Return why a span with these times has no place in an order; empty if it has one."""
    if begin_us is None:
        return f"the span {span} has no {field}, so it cannot be ordered"
    if begin_us + (duration_us or 0) >= TIME_NS_MAX // 1_000:
        return f"the span {span} ends after the year 9999"
    return ""
