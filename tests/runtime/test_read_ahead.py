"""Back-pressure: which of several sources of events are read ahead of others."""

from __future__ import annotations

import pytest

from ketal.model.events.dot import Dot
from ketal.operators.order.hold_back import HoldBackQueue
from ketal.operators.order.release_options import ReleaseOptions
from ketal.runtime.read_ahead import ReadPositions, is_crowded
from tests.cases import e


def queue_of(*dots: str, held_back_max: int = 100) -> HoldBackQueue:
    """Return a queue that holds back these events, which wait for an event of `z`."""
    queue = HoldBackQueue(ReleaseOptions(held_back_max=held_back_max))
    for dot in dots:
        queue.push(e(dot, "t", "z:1"))
    return queue


def read(positions: ReadPositions[str], source: str, *dots: str) -> None:
    for dot in dots:
        node, counter = Dot.parse(dot)
        positions.record(source, {node: counter})


def test_held_events_are_those_of_the_sources_that_were_read_beyond_what_is_settled() -> None:
    queue = queue_of("a@1", "a@2", "b@1")
    queue.push(e("c@1", "t"))  # released
    positions = ReadPositions[str](10)
    read(positions, "one", "a@1", "a@2", "c@1")
    read(positions, "two", "b@1")
    assert sorted(positions.held(queue)) == [("one", "a", 2, 2), ("two", "b", 1, 1)]
    assert list(positions.held(None)) == []


def test_held_events_of_a_node_in_several_sources_may_be_in_each() -> None:
    queue = queue_of("a@1", "a@2", "a@3")
    positions = ReadPositions[str](10)
    read(positions, "one", "a@1")
    read(positions, "two", "a@2", "a@3")
    assert sorted(positions.held(queue)) == [("one", "a", 1, 1), ("two", "a", 3, 3)]


def test_event_that_only_numbers_its_incarnation_is_one_of_it() -> None:
    queue = queue_of("a#2@1", "a#2@2")
    positions = ReadPositions[str](10)
    read(positions, "one", "a@1")
    read(positions, "two", "a#2@1", "a@2")
    assert sorted(positions.held(queue)) == [("one", "a#2", 1, 1), ("two", "a#2", 2, 2)]


def test_sources_with_more_held_events_than_an_unread_one_are_ahead() -> None:
    queue = queue_of("a@1", "a@2", "b@1", "c@1", "c@2", "c@3")
    positions = ReadPositions[str](10)
    for source, *dots in (
        ("one", "a@1", "a@2"), ("two", "b@1"), ("three", "c@1", "c@2", "c@3"),
    ):  # fmt: skip
        read(positions, source, *dots)
    assert positions.ahead(queue, ["one", "three"]) == {"three"}
    assert positions.ahead(queue, ["two", "three"]) == {"one", "three"}
    assert positions.ahead(queue, ["one", "new"]) == {"one", "two", "three"}
    assert positions.ahead(queue, []) == set()
    positions.forget("three")
    assert positions.ahead(queue, ["two"]) == {"one"}


def test_source_with_too_many_nodes_counts_as_behind() -> None:
    queue = queue_of("a@1", "b@1", "c@1")
    positions = ReadPositions[str](2)
    read(positions, "one", "a@1", "b@1", "c@1")
    assert list(positions.held(queue)) == []
    read(positions, "one", "a@1")
    assert list(positions.held(queue)) == [("one", "a", 1, 1)]


def test_source_is_behind_while_others_know_events_that_were_not_read() -> None:
    positions = ReadPositions[str](10)
    assert not positions.is_behind("one", {"a": 1})
    read(positions, "one", "a@2", "b@5")
    assert not positions.is_behind("one", {"a": 2, "b": 4, "c": 9})
    assert positions.is_behind("one", {"a": 3})


@pytest.mark.parametrize(
    ("count", "are_waiting", "expected"),
    [(5, False, False), (6, False, True), (2, True, False), (3, True, True)],
)
def test_sources_wait_from_half_of_the_limit_down_to_a_quarter(
    count: int, are_waiting: bool, expected: bool
) -> None:
    queue = queue_of(*(f"n{number}@1" for number in range(count)), held_back_max=10)
    assert is_crowded(queue, are_waiting=are_waiting) is expected


def test_nothing_is_crowded_without_a_queue() -> None:
    assert not is_crowded(None, are_waiting=True)
