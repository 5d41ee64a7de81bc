"""The parts of what is in a log: attributes, types, concurrency, messages, what was left out.

The one rule: a part is plain data, and its `to_dict` has all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class AttributeStats:
    """An attribute of some events.

    Attributes
    ----------
    path : tuple of str
        Its name; of one inside of objects the names that lead to it.
    events : int
        How many of the events have it, with a null too.
    of : int
        How many events there are.
    kinds : dict of str to int
        How many have a `string`, `number`, `boolean`, `null`, `list` or `object` there.
    values : int
        How many different values it has; null and objects are none.
    more_values : bool
        Whether there are more than were told apart (`stats_values_max`).
    examples : tuple of values
        The most frequent ones; a long one is the text that it begins with, and `…`.
    """

    path: tuple[str, ...]
    events: int
    of: int
    kinds: dict[str, int]
    values: int
    more_values: bool
    examples: tuple[Any, ...]

    @property
    def name(self) -> str:
        """The path, its names joined by dots."""
        return ".".join(self.path)

    @property
    def share(self) -> float:
        """The share of the events that have it."""
        return self.events / self.of

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "attribute": self.name,
            "path": list(self.path),
            "events": self.events,
            "share": round(self.share, 6),
            "kinds": dict(self.kinds),
            "values": self.values,
            "more_values": self.more_values,
            "examples": list(self.examples),
        }


@dataclass(frozen=True, kw_only=True)
class TypeStats:
    """The events of one type.

    Attributes
    ----------
    type : str
        The type.
    events : int
        How many there are.
    attributes : tuple of AttributeStats
        Their attributes, an object before what is inside of it.
    """

    type: str
    events: int
    attributes: tuple[AttributeStats, ...]


@dataclass(frozen=True, kw_only=True)
class ConcurrencyStats:
    """How many pairs of events, each of one execution, are concurrent.

    Attributes
    ----------
    events, of : int
        How many events were compared, each with each, and how many there are.
    concurrent_pairs, ordered_pairs : int
        Pairs a ∥ b and a → b among those that were compared.
    seed : int or None
        What the sample was drawn with; None where all events were compared.
    """

    events: int
    of: int
    concurrent_pairs: int
    ordered_pairs: int
    seed: int | None

    @property
    def share(self) -> float:
        """The share of the pairs that is concurrent; 0 where there are no pairs."""
        pairs = self.concurrent_pairs + self.ordered_pairs
        return self.concurrent_pairs / pairs if pairs else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "events": self.events,
            "of": self.of,
            "concurrent_pairs": self.concurrent_pairs,
            "ordered_pairs": self.ordered_pairs,
            "share": round(self.share, 6),
            "seed": self.seed,
        }


@dataclass(frozen=True, kw_only=True)
class MessageStats:
    """The messages that clocks show.

    Attributes
    ----------
    receives : int
        Events that know events of other nodes which their node did not know before.
    pairs : int
        Pairs of such an event and one that happened immediately before it at another node.
    unknown : int
        Events that may be receives: the event before, or one that is newly known, is not in the
        log, or so far away in it that it was not kept (`stats_entries_max`).
    types : dict of (str, str) to int
        How many pairs there are of each two types, that of the sender first; the highest first.
    nodes : dict of (str, str) to int
        Likewise of each two nodes.
    """

    receives: int
    pairs: int
    unknown: int
    types: dict[tuple[str, str], int]
    nodes: dict[tuple[str, str], int]

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "receives": self.receives,
            "pairs": self.pairs,
            "unknown": self.unknown,
            "types": _pairs(self.types),
            "nodes": _pairs(self.nodes),
        }


def _pairs(counts: Mapping[tuple[str, str], int]) -> list[dict[str, Any]]:
    return [{"from": a, "to": b, "pairs": number} for (a, b), number in counts.items()]


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """What a limit left out of a table.

    Attributes
    ----------
    what : str
        What the table has: `types`, `nodes`, `attributes`, `inner attributes` (of objects in
        objects), `message types` or `message nodes`; or `dots`, which duplicates are known by.
    limit : str
        The name of the limit; of `inner attributes` that of a constant.
    most : int
        Its value.
    number : int
        How many events, values of attributes, pairs or dots are not in the table.
    """

    what: str
    limit: str
    most: int
    number: int

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)
