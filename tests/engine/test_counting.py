"""`return count` and `--count`: the exact number of matches without listing them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, reject

import ketal
from ketal.compiler.pipeline import compile_pattern
from ketal.engine.find_any.occurrences import AnyFind
from ketal.engine.pattern_run import PatternRun
from ketal.errors import PatternError
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from tests.outcomes import LIMITS
from tests.property.executions import execution
from tests.property.patterns import pattern_file
from tests.sampling import chances, examples

STEPS = """
    event A = type == "S.a"; event B = type == "S.b"; event C = type == "S.c";
    B1 = Causal(B); C1 = Causal(C); B2 = Conc(B); C2 = Conc(C); M = Causal(A) || Causal(B);
"""
COUNTED = [
    "order arrival; {} find any A B C;",
    "order arrival; {} find any A B* C;",
    "order arrival; {} find any A B1 C1;",
    "order arrival; {} find any A B2 C2;",
    "order arrival; {} find any A (B1 | C2)+;",
    "order CausalOrder; {} find any A B1 C1;",
    "order CausalOrder; {} find any A B1+ C1;",
    "order CausalOrder; {} find any A M C1;",
    "order CausalOrder; {} S = true; T = Causal(true); find any S T T;",
]


def count(compiled: Any, events: list[Event], *, listing: bool) -> tuple[int, PatternRun]:
    """Return the number of matches, listed or counted, and the run."""
    run = PatternRun(compiled, LIMITS, listing=listing)
    run.process(events)
    run.validate_state()
    return run.counts.matches, run


def counts_still(run: PatternRun) -> bool:
    """Return whether every scope still counts instead of listing."""
    finds = [s.run for s in run.scopes.by_name.values() if isinstance(s.run, AnyFind)]
    return bool(finds) and all(find._store.counting for find in finds)


@pytest.mark.parametrize("body", COUNTED)
def test_counted_matches_equal_listed_matches(body: str) -> None:
    compiled = ketal.compile(f"pattern P {{ {body.format(STEPS)} }}").compiled[0]
    most = 0

    @examples(30, 300)
    @given(chances())
    def holds(rng: random.Random) -> None:
        nonlocal most
        events = execution(rng, events_max=14, linear=True)
        listed, _ = count(compiled, events, listing=True)
        counted, run = count(compiled, events, listing=False)
        assert counted == listed
        if run.scopes.by_name:
            assert counts_still(run)
        most = max(most, counted)

    holds()
    assert most > 3


@examples(40, 5_000)
@given(chances())
def test_any_pattern_counts_as_many_matches_as_it_lists(rng: random.Random) -> None:
    """Whether matches can be counted or must be listed, in any order of events."""
    file = pattern_file(rng, strategy="any")
    try:
        compiled = compile_pattern(file, file.patterns[0])
    except PatternError:
        reject()
    events = execution(rng, events_max=9, linear=True)
    if not compiled.causal or compiled.order_free:
        events = rng.sample(events, len(events))
    listed, run = count(compiled, events, listing=True)
    if run.counts.overflows:
        reject()
    assert count(compiled, events, listing=False)[0] == listed


def test_out_of_order_event_switches_counting_to_listing() -> None:
    """An event out of order may be anywhere in a match, so later matches are listed."""
    text = f"pattern P {{ order CausalOrder; {STEPS} find any A B1; }}"
    compiled = ketal.compile(text).compiled[0]
    a = Event(node="n", type="S.a", clock={"n": 1})
    b = Event(node="n", type="S.b", clock={"n": 2})
    last = Event(node="n", type="S.b", clock={"n": 3})
    matches, run = count(compiled, [b, a, last], listing=False)
    assert matches == 2
    assert not counts_still(run)


def test_uncertain_matches_are_counted_one_by_one() -> None:
    """A match that a missed event could change is counted as uncertain, listed or not."""
    text = f"pattern P {{ order CausalOrder; {STEPS} find any A B1; }}"
    compiled = ketal.compile(text).compiled[0]
    events = [
        Event(node="n", type="S.a", clock={"n": 1}),
        Event(node="n", type="S.b", clock={"n": 3}),
    ]
    answers = []
    for listing in (True, False):
        run = PatternRun(compiled, LIMITS, listing=listing)
        run.process(events[:1])
        run.miss(Dot("n", 2))
        run.process(events[1:])
        answers.append((run.counts.matches, run.counts.uncertain))
    assert answers[0] == answers[1]
    assert answers[0][0] == 1


def test_matches_of_three_steps_over_ten_thousand_events_are_counted() -> None:
    """There are more matches than could be listed; the expected number is a sum over pairs."""
    rng = random.Random(1)
    clocks: dict[str, dict[str, int]] = {f"n{i}": {} for i in range(5)}
    events = []
    for _ in range(10_000):
        node = rng.choice(sorted(clocks))
        clock = clocks[node]
        if rng.random() < 0.3:
            for other, counter in clocks[rng.choice(sorted(clocks))].items():
                clock[other] = max(counter, clock.get(other, 0))
        clock[node] = clock.get(node, 0) + 1
        events.append(Event(node=node, type=rng.choice(["S.a", "S.b", "S.c"]), clock=dict(clock)))
    text = f"pattern P {{ order CausalOrder; {STEPS} find any A B1 C1; return count; }}"
    verdicts = ketal.run(ketal.compile(text), events)
    assert list(verdicts) == []
    sums: dict[str, list[int]] = {node: [0] for node in clocks}
    ways_of: dict[str, list[int]] = {node: [0] for node in clocks}
    total = 0
    for event in events:
        # The number of A's, and of pairs A B, of each node up to each of its counters.
        known = {n: event.clock.get(n, 0) - (n == event.node) for n in clocks}
        starts = sum(sums[n][known[n]] for n in clocks)
        pairs = sum(ways_of[n][known[n]] for n in clocks)
        total += pairs * (event.type == "S.c")
        sums[event.node].append(sums[event.node][-1] + (event.type == "S.a"))
        ways_of[event.node].append(ways_of[event.node][-1] + starts * (event.type == "S.b"))
    assert verdicts.summary["patterns"]["P"]["matches"] == total > 10**9
