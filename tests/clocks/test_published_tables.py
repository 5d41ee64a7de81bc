"""Clocks and outcomes from public test suites of the field: their facts, in our own code.

Each test names the suite and the test from which its facts are taken.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from ketal.clocks.inexact.hybrid import HybridClocks, HybridStamp
from ketal.clocks.interval_tree import (
    DEPTH_MAX,
    Events,
    IntervalTreeClock,
    IntervalTreeClocks,
    join,
    leq,
)
from ketal.clocks.vector import compare
from ketal.clocks.vector import join as joined
from ketal.clocks.versions.version_vectors import StoreReplica, Version
from ketal.errors import EventError

# --- vector clocks --------------------------------------------------------------------


def _clock(*nodes: int | str) -> dict[str, int]:
    """Return the clock whose counters are the numbers of occurrences of each name."""
    clock: dict[str, int] = {}
    for node in map(str, nodes):
        clock[node] = clock.get(node, 0) + 1
    return clock


BEFORE, AFTER, EQUAL, CONCURRENT = (True, False), (False, True), (False, False), (False, False)

COMPARISONS = [
    # Voldemort, VectorClockTest.testComparisons.
    pytest.param((), (), EQUAL, id="voldemort: empty clocks"),
    pytest.param((1, 1, 2), (1, 1, 2), EQUAL, id="voldemort: identical clocks"),
    pytest.param((1, 1, 2), (1, 1, 2, 3), BEFORE, id="voldemort: one event more"),
    pytest.param((1,), (2,), CONCURRENT, id="voldemort: different events"),
    pytest.param((1, 1, 2), (1, 1, 3), CONCURRENT, id="voldemort: different events in part"),
    pytest.param((2, 2), (1, 2, 2, 3), BEFORE, id="voldemort: a part of the events"),
    pytest.param((1, 2, 2, 3), (2, 2), AFTER, id="voldemort: more events"),
    # Akka, VectorClockSpec.
    pytest.param((1, 2, 1), (1, 2, 1), EQUAL, id="akka: misc comparison test 1"),
    pytest.param((1, 2, 1), (1, 2, 1, 3), BEFORE, id="akka: misc comparison test 2"),
    pytest.param((1,), (2,), CONCURRENT, id="akka: misc comparison test 3"),
    pytest.param((1, 2, 1), (1, 1, 3), CONCURRENT, id="akka: misc comparison test 4"),
    pytest.param((2, 2), (1, 2, 2, 3), BEFORE, id="akka: misc comparison test 5"),
    pytest.param((1, 2), (1, 1), CONCURRENT, id="akka: misc comparison test 6"),
    pytest.param((1, 2, 2, 3), (1, 2, 2, 2, 2), CONCURRENT, id="akka: misc comparison test 7"),
    pytest.param((1, 3, 3), (1, 3, 2), CONCURRENT, id="akka: misc comparison test 8"),
    pytest.param((), (1,), BEFORE, id="akka: blank clock incrementing"),
    # Riak, vclock: example_test and equals_or_dominates_test.
    pytest.param(("a",), ("b",), CONCURRENT, id="riak: example"),
    pytest.param(("a", "a"), ("a", "a", "b", "c"), BEFORE, id="riak: example, a2 and c1"),
    pytest.param(("b",), ("a", "a", "b", "c"), BEFORE, id="riak: example, b1 and c1"),
    pytest.param(("a", "b", "a"), ("a", "b", "a", "b"), BEFORE, id="riak: dominates"),
]


@pytest.mark.parametrize(("a", "b", "outcome"), COMPARISONS)
def test_vector_clocks_are_ordered(
    a: tuple[int, ...], b: tuple[int, ...], outcome: tuple[bool, bool]
) -> None:
    first, second = _clock(*a), _clock(*b)
    assert (compare(first, second), compare(second, first)) == outcome
    assert (first == second) == (a == b)


MERGES = [
    # Voldemort, VectorClockTest.testMerge.
    pytest.param({}, {}, {}, id="voldemort: empty clocks"),
    pytest.param(
        _clock(1),
        _clock(2),
        _clock(1, 2),
        id="voldemort: one event each",
    ),
    pytest.param(
        _clock(1, 1, 1, 2, 3),
        _clock(1, 2, 2, 4),
        _clock(1, 1, 1, 2, 2, 3, 4),
        id="voldemort: the greater counts",
    ),
    # Akka, VectorClockSpec.
    pytest.param(
        _clock(1, 2, 2, 2, 2),
        _clock(1, 2, 2, 3),
        _clock(1, 2, 2, 2, 2, 3),
        id="akka: merge",
    ),
    pytest.param(
        _clock(4, 4),
        _clock(1, 2, 2, 3),
        _clock(1, 2, 2, 3, 4, 4),
        id="akka: disjoint clocks",
    ),
    # Riak, vclock: merge_test, merge_less_left_test, merge_same_id_test.
    pytest.param(
        {"1": 1, "2": 2, "4": 4},
        {"3": 3, "4": 3},
        {"1": 1, "2": 2, "3": 3, "4": 4},
        id="riak: merge",
    ),
    pytest.param({"5": 5}, {"6": 6, "7": 7}, {"5": 5, "6": 6, "7": 7}, id="riak: less left"),
    pytest.param(
        {"1": 1, "2": 1}, {"1": 1, "3": 1}, {"1": 1, "2": 1, "3": 1}, id="riak: the same id"
    ),
]


@pytest.mark.parametrize(("a", "b", "merged"), MERGES)
def test_vector_clocks_are_merged(
    a: dict[str, int], b: dict[str, int], merged: dict[str, int]
) -> None:
    assert joined([a, b]) == joined([b, a]) == merged
    assert all(one == merged or compare(one, merged) for one in (a, b))


# --- dotted version vectors -------------------------------------------------------------


def _entries(store: StoreReplica) -> dict[str, tuple[int, list[Any]]]:
    """Return each server's count and the values of its siblings, the newest first."""
    return {
        server: (
            count,
            [
                one.value
                for one in sorted(store.siblings, key=lambda one: -one.counter)
                if one.replica == server
            ],
        )
        for server, count in sorted(store.known.items())
    }


def _synchronised(server: str, store: StoreReplica) -> StoreReplica:
    """Return another server's replica after it has received all siblings of a store."""
    return StoreReplica(server).sync(store)


def test_join_of_the_dvvset_suite() -> None:
    """Gonçalves and Almeida, dvvset, join_test: the context that a reader gets."""
    a1 = StoreReplica("a").put("v1")
    assert a1.known == {"a": 1}
    b1 = _synchronised("b", a1).put("v2", a1.known)
    assert b1.known == {"a": 1, "b": 1}


def test_update_of_the_dvvset_suite() -> None:
    """dvvset, update_test: the siblings after writes with different contexts."""
    a0 = StoreReplica("a").put("v1")
    a1 = a0.put("v2", a0.known)
    assert _entries(a0) == {"a": (1, ["v1"])}
    assert _entries(a1) == {"a": (2, ["v2"])}
    assert _entries(_synchronised("b", a1).put("v3", a1.known)) == {"a": (2, []), "b": (1, ["v3"])}
    assert _entries(_synchronised("b", a1).put("v4", a0.known)) == {
        "a": (2, ["v2"]),
        "b": (1, ["v4"]),
    }
    assert _entries(a1.put("v5", a0.known)) == {"a": (3, ["v5", "v2"])}


def test_synchronised_updates_of_the_dvvset_suite() -> None:
    """dvvset, syn_update_test: Mary writes twice without reading, Peter read her first value."""
    a0 = StoreReplica("a").put("v1")
    context = a0.known
    a1 = a0.put("v2")
    a2 = a1.put("v3", context)
    assert _entries(a1) == {"a": (2, ["v2", "v1"])}
    assert _entries(a2) == {"a": (3, ["v3", "v2"])}


def test_events_of_the_dvvset_suite() -> None:
    """dvvset, event_test: a write without a read, at the same server and at another one."""
    a = StoreReplica("a").put("v1")
    assert _entries(a.put("v2")) == {"a": (2, ["v2", "v1"])}
    assert _entries(_synchronised("b", a).put("v2")) == {"a": (1, ["v1"]), "b": (1, ["v2"])}


def test_sync_of_the_dvvset_suite() -> None:
    """dvvset, sync_test: the siblings of two servers after each has received the other's."""
    a = StoreReplica("a").put("v1")
    a1 = a.put("v2", a.known)
    b, c = (StoreReplica(name).put("v3", a1.known) for name in "bc")
    other_v2 = StoreReplica("b").put("v2")
    assert _entries(c.sync(b)) == {"a": (2, []), "b": (1, ["v3"]), "c": (1, ["v3"])}
    assert _entries(a.sync(other_v2)) == {"a": (1, ["v1"]), "b": (1, ["v2"])}
    assert _entries(a.sync(a1)) == _entries(a1.sync(a)) == {"a": (2, ["v2"])}
    for one, other in ((a, a1), (b, c), (a, other_v2)):
        ours, theirs = (set(map(str, x.sync(y).siblings)) for x, y in ((one, other), (other, one)))
        assert ours == theirs


def test_less_of_the_dvvset_suite() -> None:
    """dvvset, less_test: which contexts are less than others."""
    a = StoreReplica("a").put("v1")
    b = a.put("v2", a.known)
    b2, b3 = (_synchronised(name, a).put("v2", a.known) for name in "bz")
    c = _synchronised("c", a).put("v3", b.known)
    d = _synchronised("d", b2).put("v4", c.known)
    of = {"a": a, "b": b, "b2": b2, "b3": b3, "c": c, "d": d}
    less = {"a b", "a c", "b c", "b d", "b2 d", "a d"}
    not_less = {"b2 c", "b b2", "b2 b", "a a", "c c", "d b2", "b3 d"}
    for pair in less | not_less:
        one, other = (of[name].known for name in pair.split())
        assert compare(one, other) == (pair in less)


def test_example_of_the_first_dotted_version_vectors() -> None:
    """Gonçalves, dottedvv, example_test: increments at a and b, merged and incremented at c."""
    a1, b1 = Version("a", 1, {}), Version("b", 1, {})
    a2 = Version("a", 2, a1.known)
    c1 = Version("c", 1, joined([a2.known, b1.known]))
    assert not a1.obsoletes(b1)
    assert not b1.obsoletes(a1)
    assert a2.obsoletes(a1)
    assert c1.obsoletes(a2)
    assert c1.obsoletes(b1)
    assert not b1.obsoletes(c1)


# --- interval tree clocks -----------------------------------------------------------------


def _tree(text: str) -> IntervalTreeClock:
    """Return the stamp of a tree in the papers' notation, which is JSON but for its brackets."""
    return IntervalTreeClocks().read(json.loads(text.translate(str.maketrans("()", "[]"))), "")


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        pytest.param("(3, 3, 0)", "(3, 0, 4)", "(6, 0, 1)", id="test_joins_1"),
        pytest.param("(3, 3, 0)", "(0, 0, 4)", "(4, 2, 0)", id="test_joins_2"),
        pytest.param("(0, 0, 1)", "1", "1", id="test_larger_leaf"),
        pytest.param("(0, 5, 0)", "(0, 0, 3)", "(3, 2, 0)", id="test_get_fragments_recombine"),
    ],
)
def test_event_trees_are_joined(a: str, b: str, expected: str) -> None:
    """Wasti, treeclocks, the tests of event_tree."""
    one, other = (_tree(text) for text in (a, b))
    assert join(one, other) == join(other, one)
    assert join(one, other) == _tree(expected)


@pytest.mark.parametrize(
    ("a", "b", "below", "above"),
    [
        pytest.param("(2, 1, 0)", "3", True, False, id="test_ordering_1"),
        pytest.param("(1, 3, 0)", "(2, 1, 4)", False, False, id="test_ordering_2"),
        pytest.param("5", "5", True, True, id="test_ordering_equal_leaves"),
        pytest.param("(1, 2, 3)", "(1, 2, 3)", True, True, id="test_ordering_equal_subtrees"),
        pytest.param(
            "(2, (0, 1, 0), 3)", "(2, (0, 1, 0), 3)", True, True, id="test_ordering_reflexive"
        ),
        pytest.param("2", "(1, 2, 3)", True, False, id="test_ordering_leaf_less_than_subtree"),
        pytest.param("(1, 2, 3)", "10", True, False, id="test_ordering_leaf_greater_than_subtree"),
        pytest.param("3", "(1, 0, 5)", False, False, id="test_ordering_leaf_incomparable"),
        pytest.param("(0, 1, 1)", "(0, 3, 3)", True, False, id="test_ordering_subtree_less"),
        pytest.param(
            "(0, (0, 1, 0), 0)", "(0, (0, 2, 0), 1)", True, False, id="test_ordering_nested"
        ),
    ],
)
def test_event_trees_are_ordered(a: str, b: str, below: bool, above: bool) -> None:
    """Wasti, treeclocks, the tests of event_tree."""
    one, other = (_tree(text).events for text in (a, b))
    assert (leq(one, other), leq(other, one)) == (below, above)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        pytest.param("3", 3, id="test_from_str_leaf"),
        pytest.param("(1, 2, (3, 4, 5))", (3, 0, (5, 0, 1)), id="test_from_str_subtree"),
        pytest.param("(6, 0, (0, 2, 1))", (6, 0, (1, 1, 0)), id="test_from_str_roundtrip"),
        pytest.param("(0, 0, 0)", 0, id="test_norm"),
    ],
)
def test_event_trees_are_read(text: str, tree: Events) -> None:
    """Wasti, treeclocks, the tests of event_tree, which does not normalise trees as we do."""
    assert _tree(text).events == tree


def test_tree_of_too_many_levels_is_an_error() -> None:
    def nested(levels: int) -> str:
        return "(1, 0, " * levels + "1" + ")" * levels

    assert _tree(nested(DEPTH_MAX))
    with pytest.raises(EventError, match="at most 200 levels"):
        _tree(nested(DEPTH_MAX + 1))


# --- hybrid logical clocks ------------------------------------------------------------------


def test_history_of_the_hybrid_clock_of_cockroachdb() -> None:
    """CockroachDB, hlc, TestHLCClock: time advances, jumps back, coincides, and catches up.

    A receive there reads the clock, updates it, and reads it again: two events here.
    """
    history: list[tuple[int, tuple[int, int] | None, tuple[int, int]]] = [
        (5, None, (5, 0)),
        (6, None, (6, 0)),
        (10, (10, 5), (10, 6)),
        (7, None, (10, 7)),  # the physical clock has jumped back
        (8, (10, 4), (10, 9)),  # the times coincide, and the own counter is greater
        (10, (10, 99), (10, 100)),  # the times coincide, and the other counter is greater
        (11, (10, 31), (11, 1)),  # the physical clock has caught up
        (11, None, (11, 2)),
    ]
    scheme = HybridClocks()
    replica = scheme.replicas(["n"])["n"]
    for physical_us, received, expected in history:
        messages = []
        if received is not None:
            replica, _ = scheme.event(replica, time_us=physical_us)
            messages.append(HybridStamp("other", *received))
        replica, stamp = scheme.event(replica, messages, time_us=physical_us)
        assert (stamp.time_us, stamp.counter) == expected


def test_hybrid_clock_follows_physical_time_like_that_of_cockroachdb() -> None:
    """CockroachDB, hlc, TestHLCLess: a tick of physical time, then two reads within it."""
    scheme = HybridClocks()
    replica = scheme.replicas(["n"])["n"]
    replica, first = scheme.event(replica, time_us=1)
    replica, second = scheme.event(replica, time_us=2)
    _, third = scheme.event(replica, time_us=2)
    assert scheme.precedes(first, second)
    assert scheme.precedes(second, third)
    assert not scheme.precedes(first, first)
