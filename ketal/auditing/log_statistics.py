"""The measures of an execution: events, pairs, chains, inversions, held-back events.

All numbers are computed from the clocks, exactly and without comparing pairs. The size of an
event's past is the sum of its clock, so summing the sizes counts the ordered pairs; all others are
concurrent.

The one rule: only events of the log are counted. Entries that name an event which the log does not
have add nothing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import comb
from typing import Any, NamedTuple

from ketal.model.events.event import Event
from ketal.operators.order.hold_back import HoldBackQueue
from ketal.operators.order.release_options import ReleaseOptions


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Numbers about a log.

    Attributes
    ----------
    nodes, events : int
        How many nodes and events there are; duplicates are counted once.
    duplicates, rejected : int
        How many events repeat an earlier one, and how many records are not events.
    first_rejected : str
        The first rejected record, its place and the reason; empty if there is none.
    concurrent_pairs, ordered_pairs : int
        How many pairs of events are concurrent (a ∥ b), and ordered (a → b).
    longest_chain : int
        How many events the longest causal chain has.
    inversions : int
        How many entries of clocks name an event of another node which comes later in the file.
    inverted_pairs : int
        How many pairs a → b have b first in the file.
    held_back_max : int
        How many events a hold-back queue has at most if the log is replayed in file order.
    messages : dict of str to int or None
        The counts of sends and receives, if messages are matched: `pairs`, `unreceived`, `unsent`,
        `ambiguous`.
    executions : dict of str to Statistics
        The statistics of each execution, if the log has several.
    """

    nodes: int = 0
    events: int = 0
    duplicates: int = 0
    rejected: int = 0
    first_rejected: str = ""
    concurrent_pairs: int = 0
    ordered_pairs: int = 0
    longest_chain: int = 0
    inversions: int = 0
    inverted_pairs: int = 0
    held_back_max: int = 0
    messages: dict[str, int] | None = None
    executions: dict[str, Statistics] | None = None

    @property
    def concurrency_ratio(self) -> float:
        """The share of the pairs that is concurrent; 0 if there are no pairs."""
        pairs = self.concurrent_pairs + self.ordered_pairs
        return self.concurrent_pairs / pairs if pairs else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the `statistics` object of `ketal audit --output json`."""
        out: dict[str, Any] = {name: getattr(self, name) for name in _NUMBERS}
        out["concurrency_ratio"] = round(self.concurrency_ratio, 6)
        if self.first_rejected:
            out["first_rejected"] = self.first_rejected
        if self.messages is not None:
            out["messages"] = dict(self.messages)
        if self.executions is not None:
            out["executions"] = {name: part.to_dict() for name, part in self.executions.items()}
        return out


_NUMBERS = (
    "nodes", "events", "duplicates", "rejected", "concurrent_pairs", "ordered_pairs",
    "longest_chain", "inversions", "inverted_pairs", "held_back_max",
)  # fmt: skip
_HIGHEST = ("longest_chain", "held_back_max")
"""The numbers of which, for several executions, the maximum is taken and not the sum."""


def measure(events: Sequence[Event]) -> Statistics:
    """Return the statistics of one execution's events, given in file order.

    No two events may have one dot.
    """
    ranks = _Ranks(events)
    pairs = comb(len(events), 2)
    ordered = ordered_pairs(events, ranks)
    inversions, before = _count_inversions(events, ranks)
    return Statistics(
        nodes=len(ranks.counters),
        events=len(events),
        ordered_pairs=ordered,
        concurrent_pairs=pairs - ordered,
        longest_chain=_longest_chain(events, ranks),
        inversions=inversions,
        inverted_pairs=max(0, ordered - before),
        held_back_max=_max_held_back(events),
    )


class DotAndClock(NamedTuple):
    """The dot and the clock of an event."""

    node: str
    counter: int
    clock: dict[str, int]


def ordered_pairs(
    events: Sequence[Event] | Sequence[DotAndClock], ranks: _Ranks | None = None
) -> int:
    """Return how many pairs a → b there are among events of one execution.

    No two events may have one dot.
    """
    count_upto = (ranks or _Ranks(events)).count_upto
    # The sum for an event includes the event itself.
    ordered = sum(sum(map(count_upto, e.clock, e.clock.values())) - 1 for e in events)
    return min(ordered, comb(len(events), 2))


class _Ranks:
    """The rank of each dot among its node's events in the log, from 1."""

    def __init__(self, events: Iterable[Event] | Iterable[DotAndClock]) -> None:
        self.counters: dict[str, list[int]] = {}
        for event in events:
            self.counters.setdefault(event.node, []).append(event.counter)
        self._tables: dict[str, array[int]] = {}
        for node, counters in self.counters.items():
            counters.sort()
            # With few holes, a table is no larger than twice the list, and needs no search.
            if counters[-1] <= 2 * len(counters):
                self._tables[node] = _rank_table(counters)

    def count_upto(self, node: str, counter: int) -> int:
        """Return how many events of a node have at most this counter."""
        table = self._tables.get(node)
        if table is not None:
            return table[counter] if counter < len(table) else table[-1]
        return bisect_right(self.counters.get(node, ()), counter)


def _rank_table(counters: list[int]) -> array[int]:
    """Return, for each counter from 0 on, how many of the sorted counters are at most that."""
    table = array("q", bytes(8 * (counters[-1] + 1)))
    for counter in counters:
        table[counter] = 1
    return array("q", accumulate(table))


_BLOCK = 1_024


class _ArrivedRanks:
    """Which events of a node have arrived, by rank, and how many of the first n."""

    def __init__(self, size: int) -> None:
        self._marks = bytearray(size)
        self._blocks = [0] * (size // _BLOCK + 1)
        self._first = 0  # all ranks up to this one have arrived

    def add(self, rank: int) -> None:
        """Record the arrival of an event, by its rank."""
        self._marks[rank - 1] = 1
        self._blocks[(rank - 1) // _BLOCK] += 1
        while self._first < len(self._marks) and self._marks[self._first]:
            self._first += 1

    def __contains__(self, rank: int) -> bool:
        return bool(self._marks[rank - 1])

    def count_upto(self, rank: int) -> int:
        """Return how many of the first `rank` events have arrived."""
        if rank <= self._first:
            return rank
        block = rank // _BLOCK
        return sum(self._blocks[:block]) + self._marks.count(1, block * _BLOCK, rank)


def _count_inversions(events: Iterable[Event], ranks: _Ranks) -> tuple[int, int]:
    """Return the number of inversions, and how many pairs a → b have a first in the file.

    An inversion is an entry for another node that names an event later in the file.
    """
    seen = {node: _ArrivedRanks(len(counters)) for node, counters in ranks.counters.items()}
    inversions = before = 0
    for event in events:
        for node, counter in event.clock.items():
            arrived = seen.get(node)
            if arrived is None:
                continue
            rank = ranks.count_upto(node, counter)
            before += arrived.count_upto(rank)
            if rank and node != event.node and ranks.counters[node][rank - 1] == counter:
                inversions += rank not in arrived
        seen[event.node].add(ranks.count_upto(event.node, event.counter))
    return inversions, before


def _longest_chain(events: Iterable[Event], ranks: _Ranks) -> int:
    """Return the number of events in the longest chain of happened-before."""
    lengths = {node: [0] * (len(counters) + 1) for node, counters in ranks.counters.items()}
    # The events in an event's past have smaller sums.
    for event in sorted(events, key=lambda e: sum(e.clock.values())):
        own, best = event.node, 0
        for node, counter in event.clock.items():
            if node in lengths:
                length = lengths[node][ranks.count_upto(node, counter) - (node == own)]
                best = max(best, length)
        lengths[own][ranks.count_upto(own, event.counter)] = best + 1
    return max((max(line) for line in lengths.values()), default=0)


def _max_held_back(events: Sequence[Event]) -> int:
    """Return the maximum length of a hold-back queue that is fed in file order."""
    queue = HoldBackQueue(ReleaseOptions(held_back_max=len(events) + 1))
    most = 0
    for event in events:
        queue.push(event)
        most = max(most, len(queue))
    return most


def sum_executions(parts: dict[str, Statistics]) -> Statistics:
    """Return the statistics of a log with several executions, from those of each."""
    matched = [part.messages for part in parts.values() if part.messages is not None]
    numbers = {name: [getattr(part, name) for part in parts.values()] for name in _NUMBERS}
    return Statistics(
        **{
            name: max(values) if name in _HIGHEST else sum(values)
            for name, values in numbers.items()
        },
        first_rejected=next((p.first_rejected for p in parts.values() if p.first_rejected), ""),
        messages={key: sum(m[key] for m in matched) for key in matched[0]} if matched else None,
        executions=parts,
    )
