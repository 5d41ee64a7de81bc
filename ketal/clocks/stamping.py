"""From vector clocks to the stamps of another scheme, and back.

The one rule: events that are stamped by a scheme which decides, and translated back, are ordered
as before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from ketal.clocks.scheme import Clock, S, Scheme
from ketal.clocks.vector import happened_before


def direct_causes(events: Sequence[tuple[str, Clock]]) -> list[tuple[int, ...]]:
    """Return from which events of other nodes each event learned first hand.

    These are the sends that it must have received, if every event of the execution is there: the
    events that happened before it, not before its node's previous event, and before none of the
    others of these. Of an excerpt of an execution, what is there is linked as it was ordered.

    Parameters
    ----------
    events : sequence of (str, mapping of str to int)
        Node and vector clock of each event, in a linear extension.

    Returns
    -------
    list of tuple of int
        The numbers of the causes of each event.
    """
    counters: dict[str, list[int]] = {}
    numbers: dict[str, list[int]] = {}
    causes: list[tuple[int, ...]] = []
    for number, (node, clock) in enumerate(events):
        before = numbers.setdefault(node, [])
        previous: Clock = events[before[-1]][1] if before else {}
        learned = []
        for other, counter in clock.items():
            if other == node or counter <= previous.get(other, 0) or other not in counters:
                continue
            place = bisect_right(counters[other], counter)
            if place and counters[other][place - 1] > previous.get(other, 0):
                learned.append(numbers[other][place - 1])
        first_hand = [
            one
            for one in learned
            if not any(
                one != far and happened_before(*events[one], *events[far]) for far in learned
            )
        ]
        causes.append(tuple(sorted(first_hand)))
        counters.setdefault(node, []).append(clock[node])
        before.append(number)
    return causes


def vector_clocks(
    scheme: Scheme[S], stamps: Mapping[str, Sequence[S]]
) -> dict[str, list[dict[str, int]]]:
    """Return the vector clocks of events, by comparisons of their stamps.

    Of a scheme that decides they are exact. Of another they have each event that may have happened
    before: an execution whose linear extensions are all linear extensions of the one that was.

    The events of a node that happened before another event are its first ones, so each entry is
    searched for from the last one on: about 2 log2(n) comparisons for n events newly known.

    Parameters
    ----------
    scheme : Scheme
        What stamped the events.
    stamps : mapping of str to sequence of S
        The stamps of each node's events, in its order.

    Returns
    -------
    dict of str to list of dict
        Of each node, the clock of each event: the nth event of a node has the counter n.
    """
    before = scheme.order(chain.from_iterable(stamps.values()))
    out: dict[str, list[dict[str, int]]] = {}
    for node, own in stamps.items():
        known = dict.fromkeys(stamps, 0)
        out[node] = []
        for number, stamp in enumerate(own, start=1):
            for other, theirs in stamps.items():
                known[other] = _first_not_before(before, theirs, stamp, known[other])
            known[node] = number
            out[node].append({name: count for name, count in known.items() if count})
    return out


def _first_not_before(before: Callable[[S, S], bool], stamps: Sequence[S], of: S, low: int) -> int:
    """Return how many of a node's stamps are before one, of which `low` are known to be.

    The answer is near `low` where a node learns often: steps that double, then bisection.
    """
    high, step = low, 1
    while high < len(stamps) and before(stamps[high], of):
        low, high = high + 1, high + step
        step *= 2
    high = min(high, len(stamps))
    return bisect_left(stamps, True, low, high, key=lambda one: not before(one, of))
