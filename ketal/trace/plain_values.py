"""Convert values of a program to JSON attributes of bounded size.

The one rule: no value raises an exception, and none makes an event too large.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from ketal.errors import raise_of_signal
from ketal.model.attributes import unboxed

TEXT_MAX = 1_000
"""Maximum characters of a text, which is cut if it is longer."""
ITEMS_MAX = 100
"""Maximum items of a list or a mapping; the others are left out."""
DEPTH_MAX = 4
"""Maximum nesting of lists and mappings; deeper values are text."""
VALUES_MAX = 100_000
"""Maximum values in the lists and mappings of one attribute; further ones are left out."""
EVENT_BYTES_MAX = 900_000
"""Maximum bytes of an event as JSON: readers refuse longer lines, Kafka brokers longer records."""
_EXACT_MAX = 2**63
_THREAD = threading.local()
_CONTAINERS = (Mapping, list, tuple, set, frozenset)


def plain(value: Any) -> Any:
    """Convert a value to JSON data of bounded size; a value without a JSON form to its `repr`.

    A numpy scalar, and a value of a subclass, as an enum, is converted to the value that it holds.
    """
    return _plain(value, 0, [VALUES_MAX])


def _plain(value: Any, depth: int, room: list[int]) -> Any:
    """Convert a value at a depth; `room` holds how many values of lists and mappings may follow.

    A list or a mapping at `DEPTH_MAX` becomes the text of its own conversion, of `ITEMS_MAX` values
    at most: a `repr` of lists that contain each other could take for ever.
    """
    try:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return cut_text(value)
        if isinstance(value, int):
            return int(value) if -_EXACT_MAX <= value < _EXACT_MAX else cut_text(repr(value))
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else repr(float(value))
        if isinstance(value, _CONTAINERS):
            if depth != DEPTH_MAX:
                return _plain_items(value, depth, room) if depth < 2 * DEPTH_MAX else "…"
            room_of_text = [min(room[0], ITEMS_MAX)]
            room[0] -= room_of_text[0]
            text = repr(_plain_items(value, depth, room_of_text))
            room[0] += room_of_text[0]
            return cut_text(text)
        number = unboxed(value)
        if isinstance(number, int | float):
            return _plain(number, depth, room)
        return cut_text(_repr(value[:TEXT_MAX] if isinstance(value, bytes | bytearray) else value))
    except Exception as error:
        # A `repr` that the program defines may raise any exception.
        raise_of_signal(error)
        return f"<{type(value).__name__}>"


def _repr(value: object) -> str:
    """Return the `repr` of a value, or its class within the `repr` of another one.

    A `repr` may call traced functions, whose events have values with a `repr` that calls them, too.
    """
    if getattr(_THREAD, "is_in_repr", False):
        return f"<{type(value).__name__}>"
    _THREAD.is_in_repr = True
    try:
        return repr(value)
    finally:
        _THREAD.is_in_repr = False


def _plain_items(value: Any, depth: int, room: list[int]) -> Any:
    """Convert the values of a list or a mapping at a depth."""
    if isinstance(value, Mapping):
        items = _within(room, value.items())
        return {_key(name): _plain(item, depth + 1, room) for name, item in items}
    return [_plain(item, depth + 1, room) for item in _within(room, value)]


def _within(room: list[int], values: Iterable[Any]) -> Iterator[Any]:
    """Yield the first values, `ITEMS_MAX` and as many as there is room for at most."""
    for value in islice(values, ITEMS_MAX):
        if not room[0]:
            return
        room[0] -= 1
        yield value


def type_name(value: object) -> str:
    """Return the name of a value's class, also of a proxy that has no object at present."""
    try:
        return value.__class__.__name__
    except Exception as error:
        raise_of_signal(error)
        return type(value).__name__


def encoded(event: Mapping[str, object]) -> bytes:
    """Return an event as JSON of at most `EVENT_BYTES_MAX` bytes.

    If it is larger, each long attribute is replaced by its JSON text, cut to `TEXT_MAX`. Raises a
    ValueError if the event is too large even so, with too many attributes or too long a clock.
    """
    json = msgspec.json.encode(event)
    if len(json) <= EVENT_BYTES_MAX:
        return json
    data = event.get("data")
    if not isinstance(data, Mapping):
        data = {}
    texts = {name: msgspec.json.encode(value).decode() for name, value in data.items()}
    cut = {n: data[n] if len(text) <= TEXT_MAX else cut_text(text) for n, text in texts.items()}
    json = msgspec.json.encode({**event, "data": cut})
    if len(json) > EVENT_BYTES_MAX:
        raise ValueError(f"the event has more than {EVENT_BYTES_MAX:,} bytes")
    return json


def _key(name: Any) -> str:
    return cut_text(name if isinstance(name, str) else str(name))


def cut_text(text: str) -> str:
    """Return a text cut to `TEXT_MAX` characters, without halves of surrogate pairs."""
    text = str.__str__(text)  # A subclass, as an enum, may define another one.
    if len(text) > TEXT_MAX:
        text = text[: TEXT_MAX - 1] + "…"
    # UTF-8, and so JSON, cannot represent half of a surrogate pair.
    return text.encode("utf-8", "replace").decode() if not text.isascii() else text
