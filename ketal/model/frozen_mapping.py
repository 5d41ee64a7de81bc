"""Scopes in verdicts: immutable mappings.

The one rule: a mapping equals the dict of its items if the values are of the same kinds.
"""

from __future__ import annotations

import math
from collections.abc import ItemsView, Iterator, KeysView, Mapping
from typing import Any, NoReturn

import msgspec

from ketal.model.values import same

ScopeKey = tuple[tuple[str, Any], ...]
"""A scope: ((name, value), …), partition keys in their order, then `node`."""

_encode = msgspec.json.Encoder().encode


def _json_value(value: float) -> Any:
    # JSON has no infinities: both would be null. A list is unambiguous: no scope has a list.
    return value if math.isfinite(value) else [repr(value)]


class FrozenMapping(Mapping[str, Any]):
    """An immutable mapping: equal to the dict of its items, and hashable.

    Values of different kinds are not equal: `{"x": 1}` and `{"x": True}` are two scopes. All values
    are hashable.
    """

    __slots__ = ("_held", "_pairs")
    _held: dict[str, Any]
    _pairs: bytes | None

    def __init__(self, items: ScopeKey = ()) -> None:
        _set_held(self, dict(items))
        _set_pairs(self, None)

    def pairs(self) -> bytes:
        """Return the items as a JSON list of pairs, from which ids are computed."""
        pairs = self._pairs
        if pairs is None:
            pairs = _encode(
                [
                    (name, _json_value(value) if value.__class__ is float else value)
                    for name, value in self._held.items()
                ]
            )
            _set_pairs(self, pairs)
        return pairs

    def __getitem__(self, name: str) -> Any:
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def items(self) -> ItemsView[str, Any]:
        """Return the names and values."""
        return self._held.items()

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._held.keys()

    def copy(self) -> dict[str, Any]:
        """Return a dict of the items."""
        return self._held.copy()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return same(self._held, dict(other))

    def __hash__(self) -> int:
        return hash(frozenset(self._held.items()))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a FrozenMapping cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a FrozenMapping cannot be changed")

    def __reduce__(self) -> tuple[object, ...]:
        return FrozenMapping, (tuple(self._held.items()),)

    def __repr__(self) -> str:
        return repr(self._held)


_set_held = FrozenMapping.__dict__["_held"].__set__
_set_pairs = FrozenMapping.__dict__["_pairs"].__set__
NO_SCOPE = FrozenMapping()
"""The scope of a verdict of a pattern without scopes."""
