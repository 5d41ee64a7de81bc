"""Translate the stamps of a scheme to vector clocks; `ketal.logs.restamping` is the reverse.

The one rule: translating to a scheme that decides happened-before, and back, preserves the order
of the events.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

from ketal.clocks.scheme import S


def vector_clocks(
    before: Callable[[S, S], bool], stamps: Mapping[str, Sequence[S]]
) -> dict[str, list[dict[str, int]]]:
    """Return the vector clocks of the events of each node, computed by comparing their stamps.

    `before` is the order of the stamps (`Scheme.order`), which are given for each node, in its
    order; the nth event of a node has the counter n.

    The clocks are exact if the scheme decides happened-before. Otherwise they contain every event
    that may have happened before: each linear extension of that order is also one of the actual
    execution.

    The events of a node that happened before an event are a prefix of its events, so each entry is
    searched from its previous value on: about 2 log2(n) comparisons for n newly known events.
    """
    out: dict[str, list[dict[str, int]]] = {}
    for node, own in stamps.items():
        known = dict.fromkeys(stamps, 0)
        out[node] = []
        for number, stamp in enumerate(own, start=1):
            for other, theirs in stamps.items():
                known[other] = _count_before(before, theirs, stamp, known[other])
            known[node] = number
            out[node].append({name: count for name, count in known.items() if count})
    return out


def _count_before(before: Callable[[S, S], bool], stamps: Sequence[S], stamp: S, low: int) -> int:
    """Return how many of a node's stamps are before `stamp`; the first `low` are known to be.

    Exponential search, then bisection, since the answer is near `low` if messages are frequent.
    """
    high, step = low, 1
    while high < len(stamps) and before(stamps[high], stamp):
        low, high = high + 1, high + step
        step *= 2
    high = min(high, len(stamps))
    return bisect_left(stamps, True, low, high, key=lambda candidate: not before(candidate, stamp))
