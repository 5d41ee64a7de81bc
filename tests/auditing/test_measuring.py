"""The statistics of an audit against brute force."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given

import ketal
from ketal.model.events.event import Event
from ketal.model.events.happened_before import concurrent, happened_before
from tests.property.executions import execution
from tests.sampling import chances, examples


def longest(events: list[Event]) -> int:
    """Return the length of the longest causal chain, by recursion over predecessors."""
    lengths: dict[ketal.Dot, int] = {}

    def upto(event: Event) -> int:
        if event.dot not in lengths:
            before = [upto(e) for e in events if happened_before(e, event)]
            lengths[event.dot] = 1 + max(before, default=0)
        return lengths[event.dot]

    return max(map(upto, events), default=0)


def held_back(events: list[Event]) -> int:
    """Return the maximum of waiting events if each is released after its whole past."""
    waiting: list[Event] = []
    released: set[tuple[str, int]] = set()
    most = 0
    for event in events:
        waiting.append(event)
        ready = True
        while ready:
            ready = False
            for one in list(waiting):
                past = {
                    (node, counter)
                    for node, upto in one.clock.items()
                    for counter in range(1, upto + 1)
                }
                if past - {one.dot} <= released:
                    waiting.remove(one)
                    released.add(one.dot)
                    ready = True
        most = max(most, len(waiting))
    return most


def expected(events: list[Event]) -> dict[str, int]:
    pairs = list(combinations(events, 2))
    dots = [event.dot for event in events]
    return {
        "nodes": len({event.node for event in events}),
        "events": len(events),
        "concurrent_pairs": sum(concurrent(a, b) for a, b in pairs),
        "ordered_pairs": sum(happened_before(a, b) or happened_before(b, a) for a, b in pairs),
        "longest_chain": longest(events),
        "inversions": sum(
            dot in dots[at + 1 :]
            for at, event in enumerate(events)
            for dot in event.clock.items()
            if dot[0] != event.node
        ),
        "inverted_pairs": sum(happened_before(b, a) for a, b in pairs),
        "held_back_max": held_back(events),
    }


@pytest.mark.parametrize("lost", [0.0, 0.2])
@examples(50, 3_000)
@given(rng=chances())
def test_every_statistic_equals_its_definition(lost: float, rng: random.Random) -> None:
    # In a shuffled file some lost events look like one wrong own entry.
    events = execution(rng, events_max=16, linear=True if lost else None)
    events = [event for event in events if rng.random() >= lost]
    counted = expected(events)
    again = [rng.choice(events) for _ in range(rng.randint(0, 3))] if events else []
    statistics = ketal.audit([*events, *again]).statistics.to_dict()
    assert statistics.items() >= counted.items()
    assert statistics["duplicates"] == len(again)
    pairs = counted["concurrent_pairs"] + counted["ordered_pairs"]
    ratio = counted["concurrent_pairs"] / pairs if pairs else 0
    assert statistics["concurrency_ratio"] == round(ratio, 6)


def test_long_log_is_measured_without_comparing_pairs() -> None:
    """Two hundred million pairs, all in the wrong order."""
    count = 5_000
    chain = [Event("a", "x", {"a": n, "b": 3 * n}) for n in range(1, count + 1)]
    other = [Event("b", "x", {"b": n}) for n in range(1, 3 * count + 1)]
    numbers = ketal.audit([*reversed(chain), *reversed(other)]).statistics
    ordered = sum(n * (n - 1) // 2 for n in (count, 3 * count)) + 3 * sum(range(count + 1))
    assert numbers.ordered_pairs == ordered
    assert numbers.concurrent_pairs == 4 * count * (4 * count - 1) // 2 - ordered
    assert numbers.inverted_pairs == ordered
    assert numbers.inversions == count
    assert numbers.longest_chain == 3 * count + 1
    assert numbers.held_back_max == 4 * count - 1


def test_huge_counters_need_no_memory() -> None:
    events = [Event("a", "x", {"a": 1}), Event("a", "x", {"a": 2**60, "b": 2**61})]
    audit = ketal.audit([*events, Event("b", "x", {"b": 1})])
    assert [fault.code for fault in audit.faults] == ["A004", "A006"]
    assert audit.statistics.ordered_pairs == 2
