"""Causal, Conc and `all`: the fast forms equal the definitions, and known mistakes stay wrong."""

from __future__ import annotations

import random

from hypothesis import given

import ketal
from ketal import semantics
from ketal.clocks import vector
from ketal.engine.configurations import Seen
from ketal.model.events.event import Event
from ketal.model.events.happened_before import concurrent, happened_before
from ketal.model.syntax import ALL
from ketal.operators import causal, conc
from ketal.operators.history import EMPTY, History
from tests.cases import CHAIN, FORK, PEERS, e, p
from tests.property.executions import executions
from tests.sampling import chances


def seen(event: Event, place: int = 0) -> Seen:
    return Seen(event, 0, place)


def history(events: list[Event]) -> History:
    out = EMPTY
    for event in events:
        out = out.add(event.node, event.counter, event.clock)
    return out


# --- fast == obvious ---------------------------------------------------------------


@given(executions(events_max=12))
def test_dot_test_equals_the_comparison_of_whole_clocks(events: list[Event]) -> None:
    for a in events:
        for b in events:
            below = vector.compare(a.clock, b.clock)
            assert happened_before(a, b) is below
            assert vector.happened_before(a.node, a.clock, b.node, b.clock) is below


@given(executions(events_max=12))
def test_fast_causal_equals_its_definition(events: list[Event]) -> None:
    for a in events:
        for b in events:
            assert causal.fast(seen(b), seen(a)) is causal.obvious(b, [a])


@given(executions(events_max=12))
def test_fast_conc_equals_its_definition(events: list[Event]) -> None:
    for a in events:
        for b in events:
            assert conc.fast(seen(b), seen(a)) is conc.obvious(b, [a])
            assert concurrent(a, b) is conc.obvious(b, [a])


@given(executions(events_max=10), chances())
def test_history_answers_for_all_events_of_a_run(events: list[Event], rng: random.Random) -> None:
    taken = rng.sample(events, rng.randint(0, len(events)))
    summary = history(taken)
    for x in events:
        assert summary.all_before(x.node, x.counter, x.clock) is causal.obvious(x, taken)
        assert summary.all_concurrent(x.node, x.counter, x.clock) is conc.obvious(x, taken)


@given(executions(events_max=8), chances())
def test_history_does_not_depend_on_the_order_of_its_events(
    events: list[Event], rng: random.Random
) -> None:
    one, two = history(events), history(rng.sample(events, len(events)))
    assert one == two
    assert hash(one) == hash(two)


def test_history_is_immutable() -> None:
    a, b, _ = CHAIN
    one = EMPTY.add(a.node, a.counter, a.clock)
    before = (dict(one.first), dict(one.last), dict(one.join))
    one.add(b.node, b.counter, b.clock)
    assert (one.first, one.last, one.join) == before
    assert not EMPTY.first
    assert not EMPTY.join


def test_unbound_anchor_accepts_every_event() -> None:
    for event in FORK:
        assert causal.fast(seen(event), None)
        assert conc.fast(seen(event), None)
        assert causal.obvious(event, [])
        assert conc.obvious(event, [])
        assert EMPTY.all_before(event.node, event.counter, event.clock)
        assert EMPTY.all_concurrent(event.node, event.counter, event.clock)


@given(executions(events_max=12))
def test_exactly_one_relation_holds_between_two_events(events: list[Event]) -> None:
    for a in events:
        for b in events:
            held = [
                a.dot == b.dot,
                causal.fast(seen(b), seen(a)),
                causal.fast(seen(a), seen(b)),
                conc.fast(seen(b), seen(a)),
            ]
            assert held.count(True) == 1
            assert conc.fast(seen(a), seen(b)) is held[3], "Conc is symmetric"


# --- mistaken readings of the relations -----------------------------------------------------


def matches(text: str, events: tuple[Event, ...]) -> set[tuple[str, ...]]:
    """Return the dots of each match of the engine; assert that the oracle has the same."""
    program = ketal.compile(text)
    found = {tuple(map(str, v.events)) for v in ketal.run(program, events)}  # type: ignore[union-attr]
    judged = semantics.judge(program.file, "P", events).matches
    assert found == {tuple(str(dot) for _, dot in steps) for _, steps, _ in judged}
    return found


def test_wrong_turn_the_causal_test_reversed() -> None:
    a, b, _ = CHAIN
    assert causal.fast(seen(b), seen(a))
    assert not causal.fast(seen(a), seen(b))
    assert causal.obvious(b, [a])
    assert not causal.obvious(a, [b])
    assert history([a]).all_before(b.node, b.counter, b.clock)
    assert not history([b]).all_before(a.node, a.counter, a.clock)
    # Under arrival b may be offered before a: a reversed test would match.
    text = p("X = Causal(A)", "find any B X")
    assert matches(text, (b, a)) == set()
    assert matches(p("X = Causal(B)", "find any A X"), (a, b)) == {("n1@1", "n2@1")}


def test_wrong_turn_the_causal_test_reflexive() -> None:
    for x in (*CHAIN, *FORK, *PEERS):
        assert not happened_before(x, x)
        assert not vector.compare(x.clock, x.clock)
        assert not causal.fast(seen(x), seen(x))
        assert not causal.obvious(x, [x])
        assert not history([x]).all_before(x.node, x.counter, x.clock)


def test_wrong_turn_concurrent_with_itself_or_its_own_node() -> None:
    one, two, _ = PEERS
    assert not conc.fast(seen(one), seen(one))
    assert not conc.obvious(one, [one])
    assert not history([one]).all_concurrent(one.node, one.counter, one.clock)
    for x, y in ((one, two), (two, one)):
        assert not conc.fast(seen(x), seen(y))
        assert not history([y]).all_concurrent(x.node, x.counter, x.clock)


def test_wrong_turn_conc_as_not_both_before() -> None:
    """`!(a <= b && b <= a)` is true of every ordered pair."""
    a, b, _ = CHAIN
    for x, y in ((a, b), (b, a)):
        assert not conc.fast(seen(x), seen(y))
        assert not conc.obvious(x, [y])
        assert not concurrent(x, y)
        assert not history([y]).all_concurrent(x.node, x.counter, x.clock)
    assert matches(p("X = Conc(B)", "find any A X", order="CausalOrder"), (a, b)) == set()
    assert matches(p("X = Conc(A)", "find any B X", order="CausalOrder"), (a, b)) == set()
    peers = FORK[:2]
    assert matches(p("X = Conc(B)", "find any A X", order="CausalOrder"), peers) == {
        ("n1@1", "n2@1")
    }


def test_wrong_turn_a_zero_entry_is_no_entry() -> None:
    """{a:1, b:0} equals {a:1}: neither is after the other."""
    zero, bare = {"a": 1, "b": 0}, {"a": 1}
    assert not vector.compare(zero, bare)
    assert not vector.compare(bare, zero)
    assert e("a@1", "t", "b:0") == e("a@1", "t")
    assert e("a@1", "t", "b:0").clock == {"a": 1}
    assert vector.checked("a", zero) == bare
    # With or without the zero, another node's first event is concurrent.
    for clock in ("b:0", ""):
        a, b = e("a@1", "t", clock), e("b@1", "t")
        assert concurrent(a, b)
        assert conc.fast(seen(a), seen(b))
        assert conc.fast(seen(b), seen(a))
        assert not causal.fast(seen(a), seen(b))
    assert vector.compare({"a": 1, "b": 0}, {"a": 1, "b": 1})
    assert vector.compare({"a": 1, "b": 0, "c": 0}, {"a": 2}), "zeros make no clock larger"
    assert not vector.compare({"a": 2}, {"a": 1, "b": 0, "c": 0})
    # An intake that distinguished them would call the second a contradiction.
    program = ketal.compile(p("find any A"))
    monitor = ketal.Monitor(program)
    monitor.feed(e("a@1", "a", "b:0"))
    monitor.feed(e("a@1", "a"))
    assert monitor.summary["events"]["duplicates"] == 1


def test_wrong_turn_unequal_sizes_compare_by_the_entries_they_have() -> None:
    """A clock without an entry of a node knows none of its events; its size has no meaning."""
    small, large = e("a@5", "t"), e("b@1", "t", "a:4 c:1")
    assert concurrent(small, large)
    assert conc.fast(seen(small), seen(large))
    assert conc.obvious(small, [large])
    after = e("b@1", "t", "a:5 c:1")
    assert causal.fast(seen(after), seen(small))
    assert not causal.fast(seen(small), seen(after))


def test_anchor_all_relates_to_every_taken_event() -> None:
    assert ALL == "all"
    a, b, _ = FORK
    # c is after a but not after b, so it is not after all.
    c = e("n3@1", "c", "n1:1")
    text = p("X = Causal(C, all)", "find any A B X", order="CausalOrder")
    assert matches(text, (a, b, c)) == set()
    assert matches(text, (a, b, FORK[2])) == {("n1@1", "n2@1", "n3@1")}
