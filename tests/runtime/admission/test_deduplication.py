"""Intake: what was seen is known exactly, up to the limits, and beyond them at a steady cost."""

from __future__ import annotations

import random

import pytest
from hypothesis import given

from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.runtime.admission.deduplication import DUPLICATE, EVICTED, NEW, SEEN, Intake
from tests.sampling import chances, examples

KEPT = 160


def event(node: str, counter: int) -> Event:
    return Event(node=node, type="t", clock={node: counter})


def evicted(intake: Intake) -> dict[str, int]:
    """Of each node the counter up to which holes were closed."""
    return {node: seen.evicted for node, seen in intake.nodes.items() if seen.evicted}


def test_holes_for_ever_are_given_up_a_share_at_once() -> None:
    """As a part of an execution has them; finding the lowest for each event took a millisecond."""
    intake = Intake(Limits(counters_max=KEPT, dots_max=1))
    given_up, before = 0, evicted(intake)
    for counter in range(2, 4_000, 2):
        for node in "ab":
            assert intake.admit((event(node, counter),)) == 1
            assert sum(seen.beyond.count for seen in intake.nodes.values()) <= KEPT
        given_up += evicted(intake) != before
        before = evicted(intake)
    assert 0 < given_up <= 2 * 2_000 // (KEPT // 16)
    for node in "ab":
        gone = evicted(intake)[node]
        # What is above is known as exactly as ever.
        assert 3_998 - gone >= KEPT * 0.8
        for counter in range(gone + 1, 3_998):
            one, new = event(node, counter), counter % 2
            assert intake.status(one) == (NEW if new else SEEN)
            assert intake.admit((one,)) == new
            assert intake.status(one) == (DUPLICATE if new else SEEN)
        assert intake.admit((event(node, gone),)) == 0
        assert intake.status(event(node, gone)) == EVICTED
    assert intake.holes() == 0


def test_many_nodes_lose_a_share_each() -> None:
    intake = Intake(Limits(counters_max=KEPT, dots_max=1))
    for counter in (3, 5, 7, 9):
        for node in range(41):
            intake.admit((event(f"n{node}", counter),))
    assert KEPT * 0.8 < sum(seen.beyond.count for seen in intake.nodes.values()) <= KEPT
    assert set(evicted(intake).values()) == {2}


@pytest.mark.parametrize("apart", [2, 16, 1_000])
@examples(5, 100)
@given(rng=chances(2_048))
def test_what_is_given_up_is_the_lowest_however_far_apart_counters_are(
    apart: int, rng: random.Random
) -> None:
    intake = Intake(Limits(counters_max=KEPT, dots_max=1))
    seen: set[int] = set()
    counter = 1
    for _ in range(400):
        counter += rng.randint(1, 2 * apart)
        before = evicted(intake).get("a", 0)
        seen.add(counter)
        intake.admit((event("a", counter),))
        if evicted(intake).get("a", 0) != before:
            # The next one of those that were kept is seen; what is below it is not told apart.
            upto = evicted(intake)["a"] + 1
            assert upto in seen
            seen = {one for one in seen if one >= upto}
            share = KEPT // 16
            assert KEPT - share <= len(seen) <= KEPT
        of = intake.nodes["a"]
        assert list(of.beyond.after(of.upto)) == sorted(one for one in seen if one > of.upto)
    assert evicted(intake)["a"]
