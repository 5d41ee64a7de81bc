"""Impossible clocks, which no execution can have, in a finite log."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

import ketal
from ketal import Event
from ketal.model.events.happened_before import canonical_key, happened_before
from tests.property.executions import execution
from tests.sampling import chances

PAIR = """pattern Pair {
    order %s;
    event E = type == "e";
    A = E; B = E;
    find any A B;
}
"""


def pair() -> ketal.Program:
    return ketal.compile(PAIR % "CausalOrder")


def impossible(events: list[Event]) -> int:
    return ketal.run(pair(), events).summary.get("impossible", 0)


def test_a_cycle_is_counted_as_impossible() -> None:
    cycle = [Event("a", "e", {"a": 1, "b": 1}), Event("b", "e", {"a": 1, "b": 1})]
    assert impossible(cycle) == 1
    longer = [
        Event("a", "e", {"a": 1, "c": 1}),
        Event("b", "e", {"b": 1, "a": 1}),
        Event("c", "e", {"c": 1, "b": 1}),
    ]
    assert impossible(longer) == 1
    backwards = [Event("a", "e", {"a": 1, "b": 9}), Event("a", "e", {"a": 2, "b": 1})]
    assert impossible(backwards) == 1


def test_holes_do_not_count_as_impossible() -> None:
    assert impossible([Event("a", "e", {"a": 3}), Event("b", "e", {"a": 7, "b": 2})]) == 0
    verdicts = ketal.run(pair(), [Event("a", "e", {"a": 1}), Event("b", "e", {"a": 2, "b": 1})])
    assert "impossible" not in verdicts.summary
    assert verdicts.summary["holes"] == 1


def test_late_event_does_not_make_clocks_impossible() -> None:
    timed = PAIR.replace("find any A B;", "find any A B; within 9 s;") % "CausalOrder"
    log: list[Event | ketal.Control] = [
        Event("c", "e", {"c": 1}, time=50),
        ketal.Control("watermark", time=40),
        Event("a", "e", {"a": 1}, time=10),
        Event("b", "e", {"a": 1, "b": 1}, time=60),
    ]
    verdicts = ketal.run(ketal.compile(timed), log)
    assert verdicts.summary["events"]["late"] == 1
    assert "impossible" not in verdicts.summary


@given(chances(), st.integers(0, 8))
def test_an_event_whose_past_is_later_in_canonical_order_is_counted(
    rng: random.Random, wrong: int
) -> None:
    """An event is counted exactly if its past has an event that is later in canonical order."""
    events = execution(rng, types=("e",))
    for _ in range(wrong if events else 0):
        at = rng.randrange(len(events))
        e, other = events[at], rng.choice(events).node
        # An entry that is there and then is not would say that the other node left.
        stays = all(other in f.clock for f in events if f.node == e.node)
        if other != e.node and stays:
            clock = {**e.clock, other: rng.randint(1, 6)}
            events[at] = Event(e.node, e.type, clock, time=e.time, data=e.data)
    order = sorted(events, key=canonical_key)
    contradicted = any(
        happened_before(later, e) for at, e in enumerate(order) for later in order[at + 1 :]
    )
    assert (impossible(events) > 0) == contradicted
    if not wrong:
        assert not contradicted
    if contradicted:
        assert ketal.audit(events).faults
