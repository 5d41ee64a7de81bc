"""CausalOrder: the canonical linear extension, and the hold-back queue of a stream."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ketal
from ketal import semantics
from ketal.model.event import Dot, Event, canonical_key, concurrent, happened_before
from ketal.operators.causal_order import HoldBack, canonical, obvious_canonical
from tests.cases import CHAIN, FORK, e, p
from tests.property.executions import execution, executions


def respects_happened_before(order: list[Event]) -> bool:
    return not any(happened_before(b, a) for i, a in enumerate(order) for b in order[i + 1 :])


def pushed(queue: HoldBack, events: list[Event]) -> list[Event]:
    out: list[Event] = []
    for event in events:
        released = queue.push(event)
        assert released is not None
        out += released
    return out


def dots(events: list[Event]) -> list[str]:
    return [str(event.dot) for event in events]


# --- finite logs ---------------------------------------------------------------------


@given(executions(events_max=12))
def test_canonical_is_obvious_canonical(events: list[Event]) -> None:
    assert canonical(events) == obvious_canonical(events)


@given(executions(events_max=10), st.randoms(use_true_random=False))
def test_canonical_is_a_linear_extension_whatever_the_order_of_the_file(
    events: list[Event], rng: random.Random
) -> None:
    order = canonical(events)
    assert sorted(order, key=lambda x: x.dot) == sorted(events, key=lambda x: x.dot)
    assert respects_happened_before(order)
    assert canonical(rng.sample(events, len(events))) == order


def test_canonical_of_an_execution_with_holes_respects_happened_before() -> None:
    for seed in range(50):
        rng = random.Random(seed)
        events = [x for x in execution(rng, events_max=12) if rng.random() < 0.7]
        assert canonical(events) == obvious_canonical(events)
        assert respects_happened_before(canonical(events))


def test_wrong_turn_a_comparison_that_calls_concurrent_events_equal() -> None:
    """Being concurrent is no equivalence: a ∥ b and b ∥ c, and a → c.

    Sorted by a comparison that says "equal" of concurrent events, c, b, a stays
    as it is, and c comes before its cause.
    """
    a, b, c = e("n1@1", "a"), e("n2@1", "b"), e("n1@2", "c")
    assert concurrent(a, b)
    assert concurrent(b, c)
    assert happened_before(a, c)
    for order in itertools.permutations((a, b, c)):
        assert dots(canonical(order)) == ["n1@1", "n2@1", "n1@2"]
        keys = [canonical_key(x) for x in order]
        assert len(set(keys)) == 3, "no two events have the same key"


@given(executions(events_max=10))
def test_canonical_keys_are_a_strict_total_order_that_extends_happened_before(
    events: list[Event],
) -> None:
    assert len({canonical_key(x) for x in events}) == len(events)
    for a, b in itertools.permutations(events, 2):
        if happened_before(a, b):
            assert canonical_key(a) < canonical_key(b)


# --- the hold-back queue -------------------------------------------------------------


@given(executions(events_max=12), st.randoms(use_true_random=False))
def test_the_queue_releases_a_linear_extension_of_any_permutation(
    events: list[Event], rng: random.Random
) -> None:
    arrived = rng.sample(events, len(events))
    queue = HoldBack(100)
    out = pushed(queue, arrived)
    assert out == semantics.released(arrived)
    assert respects_happened_before(out)
    assert len(out) == len(events)
    assert len(queue) == 0
    assert queue.held_back() == []


@given(executions(events_max=12), st.randoms(use_true_random=False))
def test_what_a_lost_event_leads_to_is_held_back_and_nothing_else(
    events: list[Event], rng: random.Random
) -> None:
    arrived = [x for x in rng.sample(events, len(events)) if rng.random() < 0.8]
    queue = HoldBack(100)
    out = pushed(queue, arrived)
    assert out == semantics.released(arrived)
    held = queue.held_back()
    assert len(queue) == len(held) == len(arrived) - len(out)
    assert [x for x, _ in held] == [x for x in arrived if x not in out], "in order of arrival"
    for event, dot in held:
        assert dot != event.dot
        assert event.clock.get(dot.node, 0) >= dot.counter
        assert dot not in {x.dot for x in out}, "a dot that has been released is not missing"


def test_the_queue_is_indexed_by_one_missing_dot() -> None:
    a, b, c = CHAIN
    queue = HoldBack(10)
    assert queue.push(c) == []
    assert queue.push(b) == []
    assert queue.missing(b) == Dot("n1", 1)
    assert [(str(x.dot), str(dot)) for x, dot in queue.held_back()] == [
        ("n3@1", "n1@1"),
        ("n2@1", "n1@1"),
    ]
    assert dots(queue.push(a) or []) == ["n1@1", "n2@1", "n3@1"]


def test_wrong_turn_unequal_clock_sizes_are_no_reason_to_deliver() -> None:
    """The event's clock has more entries than anything released, and must wait."""
    queue = HoldBack(10)
    after = e("b@1", "b", "a:2")
    assert queue.push(after) == []
    assert dots(queue.push(e("a@1", "a")) or []) == ["a@1"]
    assert len(queue) == 1
    assert queue.missing(after) == Dot("a", 2)
    # One with fewer entries than what was released waits for its own node's past.
    assert queue.push(e("c@2", "c")) == []
    assert dots(queue.push(e("a@2", "a")) or []) == ["a@2", "b@1"]
    assert [str(x.dot) for x, _ in queue.held_back()] == ["c@2"]


def test_an_event_waits_for_its_own_nodes_past() -> None:
    queue = HoldBack(10)
    assert queue.push(e("n@3", "t")) == []
    assert queue.push(e("n@2", "t")) == []
    assert queue.held_back()[0][1] == Dot("n", 2)
    assert dots(queue.push(e("n@1", "t")) or []) == ["n@1", "n@2", "n@3"]


def test_ties_are_released_in_order_of_arrival() -> None:
    a = e("a@1", "t")
    waiters = [e(f"{name}@1", "t", "a:1") for name in "zmbk"]
    queue = HoldBack(10)
    for waiter in waiters:
        assert queue.push(waiter) == []
    assert queue.push(a) == [a, *waiters]


def test_a_tie_by_arrival_holds_across_what_was_missing() -> None:
    """Of two that one release makes ready at different moments, the ready one is first."""
    a, b = e("a@1", "t"), e("b@1", "t", "a:1")
    after_b, after_a = e("x@1", "t", "a:1 b:1"), e("y@1", "t", "a:1")
    queue = HoldBack(10)
    for event in (after_b, b, after_a):
        assert queue.push(event) == []
    assert dots(queue.push(a) or []) == ["a@1", "b@1", "x@1", "y@1"]


def test_a_full_queue_refuses_what_would_wait_and_takes_what_is_ready() -> None:
    a, b, c = FORK
    queue = HoldBack(1)
    assert queue.push(c) == []
    assert queue.push(e("n1@2", "t")) is None, "one too many"
    assert len(queue) == 1
    assert queue.push(a) == [a]
    assert queue.push(b) == [b, c]
    assert len(queue) == 0
    assert queue.push(e("n1@3", "t")) == [], "there is room again"


def test_an_event_that_arrives_first_with_gaps_of_several_nodes() -> None:
    last = e("d@1", "t", "a:2 b:1 c:1")
    others = [e("a@1", "t"), e("b@1", "t"), e("c@1", "t"), e("a@2", "t", "b:1")]
    for order in itertools.permutations(others):
        queue = HoldBack(10)
        out = pushed(queue, [last, *order])
        assert out[-1] == last
        assert respects_happened_before(out)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_duplicates_never_reach_the_queue(order: tuple[int, ...]) -> None:
    """The intake drops them, released or still waiting, so each event is offered once."""
    program = ketal.compile(p("find next A B C", order="CausalOrder"))
    monitor = ketal.Monitor(program)
    found = []
    for number in order:
        for _ in range(3):
            found += monitor.feed(CHAIN[number])
    assert [tuple(map(str, v.events)) for v in found] == [  # type: ignore[union-attr]
        ("n1@1", "n2@1", "n3@1")
    ]
    assert monitor.summary["events"]["duplicates"] == 6
    assert monitor.held_back() == []
