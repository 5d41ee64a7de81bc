"""Counts attributes: how many events have each, with which kinds and which values.

Attributes are counted by path, separately for each type of event: the attributes inside objects are
counted, those inside lists are not, as in a pattern. The number of paths and the number of values
for each are bounded.

The one rule: an event counts once for each of its paths, whatever the value.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from ketal.auditing.contents.log_contents import AttributeStats
from ketal.model.attributes import ATTRIBUTE_KINDS
from ketal.model.limits import Limits

_KINDS = tuple(dict.fromkeys(ATTRIBUTE_KINDS.values()))
KEYS_MAX = 32
"""How many names the longest path has that is counted."""
EXAMPLES = 3
"""How many values of an attribute are shown: the most frequent, of ties the first."""
TEXT_CHARS_MAX = 100
"""The length of the longest text that is kept whole."""

_Path = tuple[str, ...]
_NAN = ("NaN", b"")
_TOO_DEEP = ("[…", b"")
"""The key of all lists that nest too deeply for JSON; they are not distinguished."""


K = TypeVar("K")


class BoundedCounts(Generic[K]):
    """Counts at most `keys_max` distinct keys."""

    __slots__ = ("counts", "keys_max", "not_counted")

    def __init__(self, keys_max: int) -> None:
        self.keys_max = keys_max
        self.counts: dict[K, int] = {}  # how often each key was counted
        self.not_counted = 0  # how often further keys, beyond the limit, occurred

    def add(self, key: K, number: int = 1) -> None:
        """Count a key, or its occurrences beyond the limit."""
        if key in self.counts:
            self.counts[key] += number
        elif len(self.counts) < self.keys_max:
            self.counts[key] = number
        else:
            self.not_counted += number

    def most_common(self) -> dict[K, int]:
        """Return the counts, the highest first, ties by key."""
        return dict(sorted(self.counts.items(), key=lambda item: (-item[1], item[0])))


class AttributeCounts:
    """The counts of one attribute path."""

    __slots__ = ("inner", "kinds", "values")

    def __init__(self, values_max: int) -> None:
        self.kinds: dict[str, int] = {}  # how many events have a value of each kind
        # How many events have each value, by the keys of `_value_key`; without null and objects.
        self.values: BoundedCounts[Any] = BoundedCounts(values_max)
        self.inner: dict[str, AttributeCounts] = {}  # the attributes inside objects at the path

    def merge(self, other: AttributeCounts) -> None:
        """Add the counts of the same path in other events."""
        for kind, number in other.kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0) + number
        for key, number in other.values.counts.items():
            self.values.add(key, number)
        self.values.not_counted += other.values.not_counted
        for name, inner in other.inner.items():
            self.inner.setdefault(name, AttributeCounts(self.values.keys_max)).merge(inner)


class AttributeTable:
    """Counts attributes, at most `stats_attributes_max` paths over all types."""

    def __init__(self, limits: Limits) -> None:
        self._left = limits.stats_attributes_max
        self._values_max = limits.stats_values_max
        self.not_counted = 0  # how many values had a path beyond that limit
        self.deep = 0  # how many values had a path of more than `KEYS_MAX` names

    def count(
        self, counts: dict[str, AttributeCounts], data: Mapping[str, Any], depth: int = 1
    ) -> None:
        """Count the attributes of an event in the counts of its type."""
        for name, value in data.items():
            one = counts.get(name)
            if one is None:
                if not self._left:
                    self.not_counted += 1
                    continue
                self._left -= 1
                one = counts[name] = AttributeCounts(self._values_max)
            kind = ATTRIBUTE_KINDS[value.__class__]
            one.kinds[kind] = one.kinds.get(kind, 0) + 1
            if kind == "object":
                if depth < KEYS_MAX:
                    self.count(one.inner, value, depth + 1)
                else:
                    self.deep += len(value)
            elif kind != "null":
                one.values.add(_value_key(value))

    def merge_types(
        self, tables: Iterable[dict[str, AttributeCounts]]
    ) -> dict[str, AttributeCounts]:
        """Return the sum of the counts of several types."""
        whole, part = AttributeCounts(self._values_max), AttributeCounts(self._values_max)
        for part.inner in tables:
            whole.merge(part)
        return whole.inner


def attribute_stats(
    counts: Mapping[str, AttributeCounts], events: int, within: _Path = ()
) -> Iterator[AttributeStats]:
    """Yield the statistics of attributes in order of first occurrence, each before inner ones.

    `events` is how many events were counted, `within` the path of the enclosing object.
    """
    for name, one in counts.items():
        path, values = (*within, name), one.values.counts
        common = sorted(values.items(), key=lambda item: -item[1])[:EXAMPLES]
        yield AttributeStats(
            path=path,
            events=sum(one.kinds.values()),
            of=events,
            kinds={kind: one.kinds[kind] for kind in _KINDS if kind in one.kinds},
            values=len(values),
            more_values=bool(one.values.not_counted),
            examples=tuple(_key_value(key) for key, _ in common),
        )
        yield from attribute_stats(one.inner, events, path)


def _value_key(value: Any) -> Any:
    """Return a hashable key that is equal for equal values only; true is not equal to 1.

    A short string or a number is its own key; other keys are tuples, with long text truncated.
    """
    kind = value.__class__
    if kind is str:
        return value if len(value) <= TEXT_CHARS_MAX else _truncated_key(value)
    if kind is int or kind is float:
        return value if value == value else _NAN
    if kind is bool:
        return (value,)
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return _TOO_DEEP
    return (text,) if len(text) <= TEXT_CHARS_MAX else _truncated_key(text)


def _truncated_key(text: str) -> tuple[str, bytes]:
    whole = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return f"{text[:TEXT_CHARS_MAX]}…", whole


def _key_value(key: Any) -> Any:
    """Return the value of a key of `_value_key`; truncated text for a long value."""
    if not isinstance(key, tuple):
        return key
    if key is _NAN:
        return math.nan
    return json.loads(key[0]) if len(key) == 1 and isinstance(key[0], str) else key[0]
