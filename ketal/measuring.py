"""What an execution measures: events, pairs, chains, inversions, held-back events.

All of it is read off the clocks, exactly and without comparing pairs. An event's
past is as large as its clock says, so that summing sizes counts the ordered
pairs; all others are concurrent.

The one rule: what cannot be is not counted. Entries that name an event which the
log does not have add nothing.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ketal.event import Event, canonical_key
from ketal.operators.causal_order import HoldBack


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Numbers about a log.

    Attributes
    ----------
    nodes, events : int
        How many there are; duplicates are counted once.
    duplicates, rejected : int
        Events that were there before, and records that are no event.
    first_rejected : str
        The first of these, with its place; empty where there is none.
    concurrent_pairs, ordered_pairs : int
        Pairs of events a ∥ b, and a → b.
    longest_chain : int
        How many events the longest causal chain has.
    inversions : int
        Entries of clocks that name an event of another node which comes later
        in the file.
    inverted_pairs : int
        Pairs a → b of which b comes first in the file.
    held_back_max : int
        How many events would wait at most, were the log replayed in file order.
    messages : dict of str to int or None
        Pairs of sends and receives, where messages were matched: `pairs`,
        `unreceived`, `unsent`, `ambiguous`.
    executions : dict of str to Statistics
        Where a log holds several, each of them.
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
        """Return the share of the pairs that is concurrent; 0 where there are no pairs."""
        pairs = self.concurrent_pairs + self.ordered_pairs
        return self.concurrent_pairs / pairs if pairs else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the `statistics` object of `ketal audit --output json`."""
        out: dict[str, Any] = {
            "nodes": self.nodes,
            "events": self.events,
            "duplicates": self.duplicates,
            "rejected": self.rejected,
            "concurrent_pairs": self.concurrent_pairs,
            "ordered_pairs": self.ordered_pairs,
            "concurrency_ratio": round(self.concurrency_ratio, 6),
            "longest_chain": self.longest_chain,
            "inversions": self.inversions,
            "inverted_pairs": self.inverted_pairs,
            "held_back_max": self.held_back_max,
        }
        if self.first_rejected:
            out["first_rejected"] = self.first_rejected
        if self.messages is not None:
            out["messages"] = dict(self.messages)
        if self.executions is not None:
            out["executions"] = {name: part.to_dict() for name, part in self.executions.items()}
        return out


def measured(events: Sequence[Event]) -> dict[str, int]:
    """Return the numbers of one execution's events, given in file order.

    No two events may have one dot.
    """
    present: dict[str, list[int]] = {}
    for event in events:
        present.setdefault(event.node, []).append(event.counter)
    for counters in present.values():
        counters.sort()
    pasts = [_past(event, present) for event in events]
    ordered = sum(pasts)
    pairs = len(events) * (len(events) - 1) // 2
    ordered = min(ordered, pairs)
    return {
        "nodes": len(present),
        "events": len(events),
        "ordered_pairs": ordered,
        "concurrent_pairs": pairs - ordered,
        "longest_chain": _longest_chain(events, present),
        "inversions": _inversions(events),
        "inverted_pairs": max(0, ordered - _seen_before(events)),
        "held_back_max": _held_back(events),
    }


def _past(event: Event, present: dict[str, list[int]]) -> int:
    """Return how many events of the log happened-before an event."""
    size = -1
    for node, counter in event.clock.items():
        counters = present.get(node)
        if counters is None:
            continue
        # Without a hole the counter is the number of events up to it.
        full = counter <= len(counters) and counters[counter - 1] == counter
        size += counter if full else bisect_right(counters, counter)
    return size


def _inversions(events: Sequence[Event]) -> int:
    """Return how many entries for other nodes name an event that comes later in the file."""
    seen: set[tuple[str, int]] = set()
    count = 0
    dots = {(event.node, event.counter) for event in events}
    for event in events:
        for dot in event.clock.items():
            if dot not in seen and dot[0] != event.node and dot in dots:
                count += 1
        seen.add((event.node, event.counter))
    return count


def _seen_before(events: Iterable[Event]) -> int:
    """Return how many pairs a → b have a first in the file."""
    seen: dict[str, list[int]] = {}
    count = 0
    for event in events:
        for node, counter in event.clock.items():
            counters = seen.get(node)
            if counters is not None:
                count += bisect_right(counters, counter)
        insort(seen.setdefault(event.node, []), event.counter)
    return count


def _longest_chain(events: Iterable[Event], present: dict[str, list[int]]) -> int:
    """Return how many events the longest chain of happened-before has."""
    length: dict[tuple[str, int], int] = {}
    longest = 0
    for event in sorted(events, key=canonical_key):
        best = 0
        own = event.counter
        for node, counter in event.clock.items():
            reached = counter - 1 if node == event.node else counter
            got = length.get((node, reached))
            if got is None and node in present:
                rank = bisect_right(present[node], reached)
                got = length.get((node, present[node][rank - 1])) if rank else None
            if got is not None and got > best:
                best = got
        length[event.node, own] = best + 1
        longest = max(longest, best + 1)
    return longest


def _held_back(events: Sequence[Event]) -> int:
    """Return the high-water mark of a hold-back queue that is fed in file order."""
    queue = HoldBack(len(events) + 1)
    most = 0
    for event in events:
        queue.push(event)
        most = max(most, len(queue))
    return most


def summed(parts: dict[str, Statistics]) -> Statistics:
    """Return the statistics of a log of several executions."""
    all_parts = list(parts.values())
    messages: dict[str, int] | None = None
    for part in all_parts:
        if part.messages is not None:
            messages = messages or {}
            for key, number in part.messages.items():
                messages[key] = messages.get(key, 0) + number
    return Statistics(
        nodes=sum(p.nodes for p in all_parts),
        events=sum(p.events for p in all_parts),
        duplicates=sum(p.duplicates for p in all_parts),
        rejected=sum(p.rejected for p in all_parts),
        first_rejected=next((p.first_rejected for p in all_parts if p.first_rejected), ""),
        concurrent_pairs=sum(p.concurrent_pairs for p in all_parts),
        ordered_pairs=sum(p.ordered_pairs for p in all_parts),
        longest_chain=max((p.longest_chain for p in all_parts), default=0),
        inversions=sum(p.inversions for p in all_parts),
        inverted_pairs=sum(p.inverted_pairs for p in all_parts),
        held_back_max=max((p.held_back_max for p in all_parts), default=0),
        messages=messages,
        executions=parts,
    )
