"""Values of a program as attributes of an event: JSON, of bounded size.

The one rule: no value makes it raise, and none makes an event large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec

TEXT_MAX = 1_000
"""Characters of a text; what is longer is cut."""
ITEMS_MAX = 100
"""Items of a list or a mapping; the others are left out."""
DEPTH_MAX = 4
"""Lists and mappings within one another; what is deeper is text."""
EVENT_BYTES_MAX = 900_000
"""Bytes of an event in JSON: readers refuse longer lines, and brokers of Kafka longer records."""
_EXACT_MAX = 2**63


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON has it; what is none as its `repr`."""
    if value is None or isinstance(value, bool):
        return value
    try:
        if isinstance(value, str):
            return cut_text(str(value))
        if isinstance(value, int):
            return int(value) if -_EXACT_MAX <= value < _EXACT_MAX else cut_text(repr(value))
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else repr(value)
        if depth < DEPTH_MAX:
            if isinstance(value, Mapping):
                items = islice(value.items(), ITEMS_MAX)
                return {cut_text(str(name)): plain(one, depth + 1) for name, one in items}
            if isinstance(value, list | tuple | set | frozenset):
                return [plain(one, depth + 1) for one in islice(value, ITEMS_MAX)]
        return cut_text(repr(value[:TEXT_MAX] if isinstance(value, bytes | bytearray) else value))
    except Exception:
        # A `repr` of the program may raise anything.
        return f"<{type(value).__name__}>"


def encoded(event: Mapping[str, object]) -> bytes:
    """Return an event as JSON; of one that is too large each long attribute as its JSON, cut.

    A ValueError is raised if it is too large even so: it has too many attributes, or too long a
    clock.
    """
    whole = msgspec.json.encode(event)
    if len(whole) <= EVENT_BYTES_MAX:
        return whole
    data = event.get("data")
    if not isinstance(data, Mapping):
        data = {}
    texts = {name: msgspec.json.encode(value).decode() for name, value in data.items()}
    cut = {n: data[n] if len(text) <= TEXT_MAX else cut_text(text) for n, text in texts.items()}
    whole = msgspec.json.encode({**event, "data": cut})
    if len(whole) > EVENT_BYTES_MAX:
        raise ValueError(f"the event has more than {EVENT_BYTES_MAX:,} bytes")
    return whole


def cut_text(text: str) -> str:
    """Return a text as JSON has it: of `TEXT_MAX` characters, without halves of characters."""
    if len(text) > TEXT_MAX:
        text = text[: TEXT_MAX - 1] + "…"
    # Half of a surrogate pair is no character, and JSON in UTF-8 has none.
    return text.encode("utf-8", "replace").decode() if not text.isascii() else text
