"""Stamps printed in the papers, with the numbers of their figures."""

from __future__ import annotations

from typing import Any

import pytest

from ketal.clocks.dotted import DottedClocks, DottedVector
from ketal.clocks.interval_tree import (
    SEED,
    IntervalTreeClock,
    event,
    fork,
    join,
    leq,
    literal,
    peek,
)
from ketal.clocks.scheme import StampOrder
from ketal.clocks.schemes import scheme_named
from ketal.clocks.versions.version_vectors import ObjectReplica, StoreReplica, Version
from tests.clocks.executions import SampleRun

# Baquero, "Causality is Graphically Simple", Figs. 2-4 and 10: Alice, Bob and Chris. Alice's second
# event reaches Bob's second, Bob's third Chris's third.
NODES = ["a", "a", "b", "b", "b", "c", "c", "c", "a"]
CAUSES: list[tuple[int, ...]] = [(), (), (), (1,), (), (), (), (4,), ()]
FIGURE_3 = {
    "a1": "a1", "a2": "a1 a2", "a3": "a1 a2 a3",
    "b1": "b1", "b2": "a1 a2 b1 b2", "b3": "a1 a2 b1 b2 b3",
    "c1": "c1", "c2": "c1 c2", "c3": "a1 a2 b1 b2 b3 c1 c2 c3",
}  # fmt: skip
FIGURE_4 = {
    "a1": [1, 0, 0], "a2": [2, 0, 0], "a3": [3, 0, 0],
    "b1": [0, 1, 0], "b2": [2, 2, 0], "b3": [2, 3, 0],
    "c1": [0, 0, 1], "c2": [0, 0, 2], "c3": [2, 3, 3],
}  # fmt: skip
FIGURE_10 = {"a1": 1, "a2": 2, "a3": 3, "b1": 1, "b2": 3, "b3": 4, "c1": 1, "c2": 2, "c3": 5}


def _by_name(scheme: str) -> dict[str, Any]:
    seen: dict[str, int] = {}
    out = {}
    stamps = scheme_named(scheme).stamped(SampleRun(NODES, CAUSES).happenings())
    for node, stamp in zip(NODES, stamps, strict=True):
        seen[node] = seen.get(node, 0) + 1
        out[f"{node}{seen[node]}"] = stamp
    return out


def test_figure_3_causal_histories() -> None:
    stamps = {name: {f"{n}{c}" for n, c in s.dots} for name, s in _by_name("history").items()}
    assert stamps == {name: set(dots.split()) for name, dots in FIGURE_3.items()}


def test_figure_4_vector_clocks() -> None:
    stamps = {n: [s.clock.get(of, 0) for of in "abc"] for n, s in _by_name("vector").items()}
    assert stamps == FIGURE_4


def test_figure_10_lamport_clocks() -> None:
    assert {n: s.entries[0] for n, s in _by_name("lamport").items()} == FIGURE_10


def test_dotted_form_of_b2() -> None:
    b2 = _by_name("dvv")["b2"]
    assert b2 == DottedVector("b", 2, {"a": 2, "b": 1})
    a2, b3 = _by_name("dvv")["a2"], _by_name("dvv")["b3"]
    assert DottedClocks().precedes(a2, b3)


def test_difference_of_two_vectors() -> None:
    """[2,3,3] - [2,3,2] = {c3}."""
    of = _by_name("history")
    without_c3 = of["b3"].dots | of["c2"].dots
    assert of["c3"].dots - without_c3 == {("c", 3)}


def test_figures_5_and_6_a_conflict_is_merged() -> None:
    a, b, c = ObjectReplica("a").update(), ObjectReplica("b").update(), ObjectReplica("c")
    assert (a.versions, b.versions, c.versions) == (({"a": 1},), ({"b": 1},), ())
    both = b.receive(a)
    assert both.in_conflict
    merged = both.update()
    assert merged.versions == ({"a": 1, "b": 2},)
    assert c.receive(merged).versions == ({"a": 1, "b": 2},)  # no new version
    assert merged.receive(merged) == merged
    assert a.update().versions == ({"a": 2},)


def test_figure_7_a_conflict_is_kept() -> None:
    both = ObjectReplica("b").update().receive(ObjectReplica("a").update())
    assert sorted(map(str, both.versions)) == ["{'a': 1}", "{'b': 1}"]
    assert both.update().versions == ({"a": 1, "b": 2},)


def test_figures_8_and_9_dotted_version_vectors() -> None:
    s = StoreReplica("s").put("of B").put("of A")
    assert s.siblings == (Version("s", 1, {}, "of B"), Version("s", 2, {}, "of A"))
    t = StoreReplica("t", (Version("t", 3, {"t": 2}, "of T"),))
    t = t.sync(s)
    assert {str(v) for v in t.siblings} == {"[t:2]t3", "[]s1", "[]s2"}
    values, context = s.get()
    assert (values, context) == (("of B", "of A"), {"s": 2})
    assert list(map(str, s.put("both", context).siblings)) == ["[s:2]s3"]
    elsewhere = t.put("both", context)
    assert {str(v) for v in elsewhere.siblings} == {"[t:2]t3", "[s:2]t4"}
    assert {str(v) for v in s.sync(elsewhere).siblings} == {"[t:2]t3", "[s:2]t4"}


# Almeida, Baquero and Fonte, "Interval Tree Clocks", section 5.1: the run with three replicas.
def test_example_run_of_interval_tree_clocks() -> None:
    a, b = fork(SEED)
    assert (literal(a), literal(b)) == ("((1, 0), 0)", "((0, 1), 0)")
    a, b = event(a), event(b)
    assert (literal(a), literal(b)) == ("((1, 0), (0, 1, 0))", "((0, 1), (0, 0, 1))")
    a, c = fork(a)
    assert (literal(a), literal(c)) == ("(((1, 0), 0), (0, 1, 0))", "(((0, 1), 0), (0, 1, 0))")
    a = event(a)
    assert literal(a) == "(((1, 0), 0), (0, (1, 1, 0), 0))"
    b = event(b)
    assert literal(b) == "((0, 1), (0, 0, 2))"
    b = join(b, c)
    assert literal(b) == "(((0, 1), 1), (1, 0, 1))"
    b, c = fork(b)
    assert (literal(b), literal(c)) == (
        "(((0, 1), 0), (1, 0, 1))",
        "((0, 1), (1, 0, 1))",
    )
    a = join(a, b)
    assert literal(a) == "((1, 0), (1, (0, 1, 0), 1))"
    assert literal(event(a)) == "((1, 0), 2)"


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (0, 1),
        (0, (0, 1, 0)),
        ((0, 1, 0), 1),
        ((0, 1, 0), (0, 1, 1)),
        ((1, (0, 1, 0), 0), (1, 1, 0)),
        ((0, (0, 1, 0), 0), (0, 1, 3)),
    ],
)
def test_order_of_event_trees(less: Any, more: Any) -> None:
    assert leq(less, more)
    assert not leq(more, less)


def test_anonymous_clock_or_overlapping_identities_are_refused() -> None:
    a, b = fork(SEED)
    with pytest.raises(ValueError, match="anonymous"):
        event(peek(a))
    with pytest.raises(ValueError, match="overlapping"):
        join(a, a)
    assert join(a, b) == SEED
    assert join(a, peek(b)) == a
    assert fork(IntervalTreeClock(0, 3)) == (IntervalTreeClock(0, 3), IntervalTreeClock(0, 3))


# Benavides et al., "Implementation of causal control operators to detect distributed events".
@pytest.mark.parametrize(
    ("nodes", "causes", "clocks"),
    [
        pytest.param(
            "aabcc",
            [(), (), (), (2,), (1,)],
            [[1, 0, 0], [2, 0, 0], [0, 1, 0], [0, 1, 1], [2, 1, 2]],
            id="Fig. 8",
        ),
        pytest.param(
            "abc", [(), (0,), (0,)], [[1, 0, 0], [1, 1, 0], [1, 0, 1]], id="Fig. 10: a, b, c"
        ),
    ],
)
def test_vectors_of_the_operators_paper(
    nodes: str, causes: list[tuple[int, ...]], clocks: list[list[int]]
) -> None:
    scheme = scheme_named("vector")
    stamps = scheme.stamped(SampleRun([*nodes], causes).happenings())
    assert [[stamp.clock.get(of, 0) for of in "abc"] for stamp in stamps] == clocks


def test_figure_10_of_the_operators_paper_b_and_c_are_concurrent() -> None:
    scheme = scheme_named("vector")
    a, b, c = scheme.stamped(SampleRun([*"abc"], [(), (0,), (0,)]).happenings())
    order = scheme.order((a, b, c))
    assert [scheme.relation(order, *pair) for pair in ((a, b), (a, c), (b, c))] == [
        StampOrder.BEFORE,
        StampOrder.BEFORE,
        StampOrder.CONCURRENT,
    ]
