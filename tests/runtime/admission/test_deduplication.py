"""Intake: seen counters are stored exactly up to the limits; beyond them at a steady cost."""

from __future__ import annotations

import random

import pytest
from hypothesis import given

from ketal.model.events.counter_sets import SPAN
from ketal.model.events.event import Event
from ketal.model.limits import DEFAULT, Limits
from ketal.runtime.admission.deduplication import DUPLICATE, EVICTED, NEW, PRESUMED, Intake
from tests.sampling import chances, examples

COUNTERS_MAX = 160


def event(node: str, counter: int) -> Event:
    return Event(node=node, type="t", clock={node: counter})


def evicted_upto(intake: Intake) -> dict[str, int]:
    """Return for each node the counter up to which holes were closed by eviction."""
    return {node: seen.evicted for node, seen in intake.nodes.items() if seen.evicted}


def test_holes_that_are_never_filled_are_evicted_a_share_at_once() -> None:
    """A part of an execution has such holes; a search for each event took a millisecond."""
    intake = Intake(Limits(counters_max=COUNTERS_MAX, dots_max=1))
    evictions, before = 0, evicted_upto(intake)
    for counter in range(2, 4_000, 2):
        for node in "ab":
            assert intake.admit((event(node, counter),)) == 1
            assert sum(seen.beyond.count for seen in intake.nodes.values()) <= COUNTERS_MAX
        evictions += evicted_upto(intake) != before
        before = evicted_upto(intake)
    assert 0 < evictions <= 2 * 2_000 // (COUNTERS_MAX // 16)
    for node in "ab":
        gone = evicted_upto(intake)[node]
        # Counters above are still stored exactly.
        assert 3_998 - gone >= COUNTERS_MAX * 0.8
        for counter in range(gone + 1, 3_998):
            one, new = event(node, counter), counter % 2
            assert intake.status(one) == (NEW if new else PRESUMED)
            assert intake.admit((one,)) == new
            assert intake.status(one) == (DUPLICATE if new else PRESUMED)
        assert intake.admit((event(node, gone),)) == 0
        assert intake.status(event(node, gone)) == EVICTED
    assert intake.holes() == 0


def test_no_counter_is_evicted_within_the_limit() -> None:
    intake = Intake(Limits(counters_max=3, dots_max=1))
    for counter, evicted in ((2, {}), (4, {}), (6, {}), (8, {"a": 1})):
        intake.admit((event("a", counter),))
        assert evicted_upto(intake) == evicted


def test_counters_before_the_first_hole_take_no_room() -> None:
    """There is always a hole: each event arrives before the one that fills the hole before it."""
    intake = Intake(DEFAULT)
    intake.admit((event("a", 2),))
    for counter in range(4, 4 * SPAN, 2):
        assert intake.admit((event("a", counter), event("a", counter - 3))) == 2
        assert intake.holes() == 1
        assert len(intake.nodes["a"].beyond.chunks) <= 2


def test_each_of_many_nodes_evicts_a_share() -> None:
    intake = Intake(Limits(counters_max=COUNTERS_MAX, dots_max=1))
    for counter in (3, 5, 7, 9):
        for node in range(41):
            intake.admit((event(f"n{node}", counter),))
    assert (
        COUNTERS_MAX * 0.8
        < sum(seen.beyond.count for seen in intake.nodes.values())
        <= COUNTERS_MAX
    )
    assert set(evicted_upto(intake).values()) == {2}


@pytest.mark.parametrize("apart", [2, 16, 1_000])
@examples(5, 100)
@given(rng=chances(2_048))
def test_the_lowest_counters_are_evicted_however_far_apart_they_are(
    apart: int, rng: random.Random
) -> None:
    intake = Intake(Limits(counters_max=COUNTERS_MAX, dots_max=1))
    seen: set[int] = set()
    counter = 1
    for _ in range(400):
        counter += rng.randint(1, 2 * apart)
        before = evicted_upto(intake).get("a", 0)
        seen.add(counter)
        intake.admit((event("a", counter),))
        if evicted_upto(intake).get("a", 0) != before:
            # The lowest kept counter is remembered; counters below it all count as seen.
            upto = evicted_upto(intake)["a"] + 1
            assert upto in seen
            seen = {one for one in seen if one >= upto}
            share = COUNTERS_MAX // 16
            assert COUNTERS_MAX - share <= len(seen) <= COUNTERS_MAX
        of = intake.nodes["a"]
        assert list(of.beyond.after(of.upto)) == sorted(one for one in seen if one > of.upto)
    assert evicted_upto(intake)["a"]
