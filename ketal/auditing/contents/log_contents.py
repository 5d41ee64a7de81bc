"""The statistics of a log's contents: attributes, types, concurrency, messages, entries left out.

The one rule: the statistics are plain data, and `to_dict` has all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class AttributeStats:
    """The statistics of an attribute of events.

    Attributes
    ----------
    path : tuple of str
        The attribute's name; for one inside objects, the names that lead to it.
    events : int
        How many of the events have it, including null values.
    of : int
        How many events there are.
    kinds : dict of str to int
        How many events have a value of each kind: `string`, `number`, `boolean`, `null`, `list`,
        `object`.
    values : int
        How many distinct values it has, not counting null and objects.
    more_values : bool
        Whether it has more distinct values than were counted (`stats_values_max`).
    examples : tuple of values
        The most frequent values; a long one is truncated text that ends in `…`.
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
        """The share of the events that have the attribute."""
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
    """The statistics of the events of one type.

    Attributes
    ----------
    type : str
        The type.
    events : int
        How many events have the type.
    attributes : tuple of AttributeStats
        The attributes of these events, an object before the attributes inside it.
    """

    type: str
    events: int
    attributes: tuple[AttributeStats, ...]


@dataclass(frozen=True, kw_only=True)
class ConcurrencyStats:
    """How many pairs of events of one execution are concurrent.

    Attributes
    ----------
    events, of : int
        How many events were compared with each other, and how many there are with clocks.
    concurrent_pairs, ordered_pairs : int
        How many of the compared pairs are concurrent (a ∥ b), and ordered (a → b).
    seed : int or None
        The seed of the sample; None if all events were compared.
    """

    events: int
    of: int
    concurrent_pairs: int
    ordered_pairs: int
    seed: int | None

    @property
    def share(self) -> float:
        """The share of the pairs that is concurrent; 0 if there are no pairs."""
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
    """The messages that clocks imply.

    Attributes
    ----------
    receives : int
        How many events know events of other nodes which their node did not know before.
    pairs : int
        How many pairs there are of a receive and an event of another node that happened
        immediately before it.
    unknown : int
        How many events may be receives: the event before, or a newly known event, is not in the
        log, or too far away in it to have been kept (`stats_entries_max`).
    types : dict of (str, str) to int
        How many pairs each two types have, the sender's first; the most frequent first.
    nodes : dict of (str, str) to int
        Likewise for each two nodes.
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
    """A limit that was reached, and how much it left out of a table.

    Attributes
    ----------
    what : str
        The rows of the table: `types`, `nodes`, `attributes`, `inner attributes` (of objects in
        objects), `message types` or `message nodes`; or `dots`, by which duplicates are recognised.
    limit : str
        The name of the limit; for `inner attributes`, that of a constant.
    most : int
        The limit's value.
    number : int
        How many events, attribute values, pairs or dots are not in the table.
    """

    what: str
    limit: str
    most: int
    number: int

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)
