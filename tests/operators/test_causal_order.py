"""CausalOrder: the canonical linear extension, and the hold-back queue of a stream."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given

import ketal
from ketal import semantics
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical, canonical_key, concurrent, happened_before
from ketal.model.limits import DEFAULT
from ketal.operators.order.hold_back import HoldBackQueue
from ketal.operators.order.release_options import ReleaseOptions
from ketal.runtime.admission.deduplication import Intake
from tests.cases import CHAIN, FORK, e, p
from tests.operators.ordering_oracle import past
from tests.property.executions import executions
from tests.sampling import chances


def respects_happened_before(order: list[Event]) -> bool:
    return not any(happened_before(b, a) for i, a in enumerate(order) for b in order[i + 1 :])


def queue_of(held_back_max: int) -> HoldBackQueue:
    return HoldBackQueue(ReleaseOptions(held_back_max=held_back_max))


def pushed(queue: HoldBackQueue, *events: Event) -> list[Event]:
    out: list[Event] = []
    for event in events:
        step = queue.push(event)
        assert not step.refused
        out += step.released
    return out


def dots(events: list[Event]) -> list[str]:
    return [str(event.dot) for event in events]


# --- finite logs ---------------------------------------------------------------------


def obvious_canonical(events: list[Event]) -> list[Event]:
    """Return the canonical linear extension, one minimal event at a time."""
    left = list(events)
    out: list[Event] = []
    while left:
        minimal = [e for e in left if not any(happened_before(f, e) for f in left)]
        least = min(minimal, key=canonical_key)
        left.remove(least)
        out.append(least)
    return out


@given(executions(events_max=12))
def test_canonical_order_equals_its_definition(events: list[Event]) -> None:
    assert canonical(events) == obvious_canonical(events)


@given(executions(events_max=10), chances())
def test_canonical_is_a_linear_extension_whatever_the_order_of_the_file(
    events: list[Event], rng: random.Random
) -> None:
    order = canonical(events)
    assert sorted(order, key=lambda x: x.dot) == sorted(events, key=lambda x: x.dot)
    assert respects_happened_before(order)
    assert canonical(rng.sample(events, len(events))) == order


@given(executions(events_max=12), chances())
def test_canonical_of_an_execution_with_holes_respects_happened_before(
    events: list[Event], rng: random.Random
) -> None:
    remaining = [x for x in events if rng.random() < 0.7]
    assert canonical(remaining) == obvious_canonical(remaining)
    assert respects_happened_before(canonical(remaining))


def test_wrong_turn_a_comparison_that_calls_concurrent_events_equal() -> None:
    """Concurrency is not transitive: a ∥ b and b ∥ c, but a → c.

    A sort by a comparison that calls concurrent events equal leaves c, b, a unchanged, with c
    before its cause.
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


@given(executions(events_max=12), chances())
def test_queue_releases_a_linear_extension_of_any_permutation(
    events: list[Event], rng: random.Random
) -> None:
    arrived = rng.sample(events, len(events))
    queue = queue_of(100)
    out = pushed(queue, *arrived)
    assert out == semantics.released(arrived)
    assert respects_happened_before(out)
    assert len(out) == len(events)
    assert len(queue) == 0
    assert queue.held_back() == []


@given(executions(events_max=12), chances())
def test_queue_holds_back_exactly_the_dependants_of_lost_events(
    events: list[Event], rng: random.Random
) -> None:
    arrived = [x for x in rng.sample(events, len(events)) if rng.random() < 0.8]
    queue = queue_of(100)
    out = pushed(queue, *arrived)
    assert out == semantics.released(arrived)
    held = queue.held_back()
    assert len(queue) == len(held) == len(arrived) - len(out)
    assert [x for x, _ in held] == [x for x in arrived if x not in out], "in order of arrival"
    for event, dot in held:
        assert dot is not None
        assert dot != event.dot
        assert event.clock.get(dot.node, 0) >= dot.counter
        assert dot not in {x.dot for x in out}, "a dot that has been released is not missing"


@given(executions(events_max=12), chances())
def test_queue_that_begins_later_counts_the_seen_events_as_released(
    events: list[Event], rng: random.Random
) -> None:
    arrived = [x for x in rng.sample(events, len(events)) if rng.random() < 0.9]
    seen = arrived[: rng.randint(0, len(arrived))]
    intake = Intake(DEFAULT)
    assert intake.admit(seen, named=True) == len(seen)
    queue = queue_of(100)
    queue.begin(intake.seen())
    settled = {x.dot for x in seen}
    waiting: list[Event] = []
    for event in arrived[len(seen) :]:
        waiting.append(event)
        while ready := [x for x in waiting if past(x) <= settled]:
            settled.add(ready[0].dot)
            waiting.remove(ready[0])
        pushed(queue, event)
        assert [x for x, _ in queue.held_back()] == waiting


def test_total_order_that_begins_later_goes_on_after_the_seen_events() -> None:
    queue = HoldBackQueue(ReleaseOptions(policy="total"))
    queue.begin({"n1": (2, [4])})
    out = pushed(queue, e("n1@3", "t"), e("n1@5", "t"), e("n1@6", "t"))
    assert [str(x.dot) for x in out] == ["n1@3", "n1@5", "n1@6"]


@given(executions(events_max=12), chances())
def test_events_that_depend_only_on_lost_events_of_nodes_that_left_are_released(
    events: list[Event], rng: random.Random
) -> None:
    arrived = [x for x in rng.sample(events, len(events)) if rng.random() < 0.7]
    lost = {x.dot for x in events} - {x.dot for x in arrived}
    queue = queue_of(100)
    out = pushed(queue, *arrived)
    for node in rng.sample(sorted({x.node for x in events}), len({x.node for x in events})):
        needed = {x for x in lost if x.node == node and any(_depends(y, x) for y in arrived)}
        lost -= {x for x in lost if x.node == node}
        step = queue.leave(node)
        out += step.released
        assert set(step.gaps) == needed
        held = [x for x, _ in queue.held_back()]
        assert held == [x for x in arrived if any(_depends(x, dot) for dot in lost)]
    assert len(out) == len(arrived)
    assert respects_happened_before(out)


def _depends(event: Event, dot: Dot) -> bool:
    return event.clock.get(dot.node, 0) >= dot.counter


def test_queue_indexes_each_event_by_one_missing_dot() -> None:
    a, b, c = CHAIN
    queue = queue_of(10)
    assert pushed(queue, c) == []
    assert pushed(queue, b) == []
    assert [(str(x.dot), str(dot)) for x, dot in queue.held_back()] == [
        ("n3@1", "n1@1"),
        ("n2@1", "n1@1"),
    ]
    assert dots(pushed(queue, a)) == ["n1@1", "n2@1", "n3@1"]


def test_wrong_turn_delivery_by_unequal_clock_sizes() -> None:
    """An event whose clock has more entries than any released event's must wait."""
    queue = queue_of(10)
    after = e("b@1", "b", "a:2")
    assert pushed(queue, after) == []
    assert dots(pushed(queue, e("a@1", "a"))) == ["a@1"]
    assert len(queue) == 1
    assert queue.held_back() == [(after, Dot("a", 2))]
    # An event with fewer entries than released ones waits for its own node's past.
    assert pushed(queue, e("c@2", "c")) == []
    assert dots(pushed(queue, e("a@2", "a"))) == ["a@2", "b@1"]
    assert [str(x.dot) for x, _ in queue.held_back()] == ["c@2"]


def test_an_event_waits_for_its_own_nodes_past() -> None:
    queue = queue_of(10)
    assert pushed(queue, e("n@3", "t")) == []
    assert pushed(queue, e("n@2", "t")) == []
    assert queue.held_back()[0][1] == Dot("n", 1), "the lowest that is missing"
    assert dots(pushed(queue, e("n@1", "t"))) == ["n@1", "n@2", "n@3"]


def test_ties_are_released_in_order_of_arrival() -> None:
    a = e("a@1", "t")
    waiters = [e(f"{name}@1", "t", "a:1") for name in "zmbk"]
    queue = queue_of(10)
    for waiter in waiters:
        assert pushed(queue, waiter) == []
    assert pushed(queue, a) == [a, *waiters]


def test_event_that_is_ready_earlier_is_released_before_an_earlier_arrival() -> None:
    """One release makes two events ready one after the other: they are released in that order."""
    a, b = e("a@1", "t"), e("b@1", "t", "a:1")
    after_b, after_a = e("x@1", "t", "a:1 b:1"), e("y@1", "t", "a:1")
    queue = queue_of(10)
    for event in (after_b, b, after_a):
        assert pushed(queue, event) == []
    assert dots(pushed(queue, a)) == ["a@1", "b@1", "x@1", "y@1"]


def test_full_queue_refuses_waiting_events_and_accepts_ready_ones() -> None:
    a, b, c = FORK
    queue = queue_of(1)
    assert pushed(queue, c) == []
    assert queue.push(e("n1@2", "t")).refused, "one too many"
    assert len(queue) == 1
    assert pushed(queue, a) == [a]
    assert pushed(queue, b) == [b, c]
    assert len(queue) == 0
    assert pushed(queue, e("n1@3", "t")) == [], "there is room again"


def test_an_event_that_arrives_first_with_gaps_of_several_nodes() -> None:
    last = e("d@1", "t", "a:2 b:1 c:1")
    others = [e("a@1", "t"), e("b@1", "t"), e("c@1", "t"), e("a@2", "t", "b:1")]
    for order in itertools.permutations(others):
        queue = queue_of(10)
        out = pushed(queue, last, *order)
        assert out[-1] == last
        assert respects_happened_before(out)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_duplicates_never_reach_the_queue(order: tuple[int, ...]) -> None:
    """The intake drops duplicates of released and of held-back events: each is offered once."""
    program = ketal.compile(p("find next A B C", order="CausalOrder"))
    monitor = ketal.Monitor(program)
    verdicts = []
    for number in order:
        for _ in range(3):
            verdicts += monitor.feed(CHAIN[number])
    assert [tuple(map(str, v.events)) for v in verdicts] == [  # type: ignore[union-attr]
        ("n1@1", "n2@1", "n3@1")
    ]
    assert monitor.summary["events"]["duplicates"] == 6
    assert monitor.held_back() == []
