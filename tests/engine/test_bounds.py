"""The state of a pattern stays bounded: windows, scopes, barring events of `not`.

Each test would reach a limit, which is counted, if finished runs and scopes were kept.
"""

from __future__ import annotations

import inspect
import random
import sys
from typing import Any

import pytest
from hypothesis import given

import ketal
from ketal import semantics
from ketal.engine import machine
from ketal.engine.copies import Unlearned, UnlearnedEvents
from ketal.engine.find import breakers as kept
from ketal.engine.pattern_run import PatternRun
from ketal.model.limits import Limits
from tests.cases import facts
from tests.outcomes import collected, outcome
from tests.property.test_engine import case, program_of
from tests.sampling import chances, drawn, examples

EVENTS = 'event A = type == "A"; event B = type == "B"; event N = type == "N";'


def stream(count: int, *, types: str = "AB", nodes: int = 3, seed: int = 1) -> list[ketal.Event]:
    """Return events 10 ms apart, of nodes that exchange messages now and then."""
    rng = random.Random(seed)
    clocks: dict[str, dict[str, int]] = {f"n{i}": {} for i in range(nodes)}
    events = []
    for number in range(count):
        node = rng.choice(sorted(clocks))
        clock = clocks[node]
        if rng.random() < 0.3:
            for other, counter in clocks[rng.choice(sorted(clocks))].items():
                clock[other] = max(counter, clock.get(other, 0))
        clock[node] = clock.get(node, 0) + 1
        events.append(
            ketal.Event(
                node=node,
                type=rng.choice(types),
                clock=dict(clock),
                time=number / 100,
                data={"k": number // 4, "v": rng.randrange(5)},
            )
        )
    return events


def judged(body: str, events: list[ketal.Event], **limits: int) -> dict[str, Any]:
    """Return the counts of a pattern with this body over a finite log."""
    program = ketal.compile(f"pattern P {{ {body} }}", limits=Limits(**limits))
    return dict(ketal.run(program, events).summary["patterns"]["P"])


WINDOWS = {
    "any": f"order CausalOrder; {EVENTS} find any A B; within 1 s;",
    "any-not": f"order CausalOrder; {EVENTS} find any A not N B; within 1 s;",
    "next": f"order CausalOrder; {EVENTS} B1 = B && v == 7; find next A B1; within 1 s;",
    "at-every-node": f"order CausalOrder; at every node; {EVENTS} find any A B; within 1 s;",
    "places": f"order CausalOrder; {EVENTS} find any A B; within 100 events;",
    "places-arrival": f"{EVENTS} find any A B; within 100 events;",
}


@pytest.mark.parametrize("body", WINDOWS.values(), ids=WINDOWS)
def test_events_behind_a_window_are_evicted(body: str) -> None:
    """A finite log ends its windows as it goes: 2,000 events, at most 100 in a window."""
    counts = judged(body, stream(2_000), runs_max=600, candidates_max=600)
    assert "overflows" not in counts
    assert counts["matches"] + counts["timed_out"] > 500


def test_wide_window_reaches_the_limit() -> None:
    """The test above can fail: a window over the whole log exceeds the limit."""
    body = WINDOWS["any"].replace("1 s", "1000 s")
    assert judged(body, stream(1_500), runs_max=600)["overflows"] > 0


SCOPES = {
    "check": f"partition by k; {EVENTS} check (A | B)*;",
    "next": f"partition by k; {EVENTS} X = A || B; Y = A || B; find next X Y X Y; within 1 s;",
    "any": f"order CausalOrder; partition by k; {EVENTS} find any A B; within 1 s;",
}


@pytest.mark.parametrize("body", SCOPES.values(), ids=SCOPES)
def test_finished_scopes_are_evicted(body: str) -> None:
    """1,000 keys with four events each: only unfinished scopes are kept."""
    body = f"order CausalOrder; {body}" if "CausalOrder" not in body else body
    counts = judged(body, stream(4_000), scopes_max=60)
    assert "overflows" not in counts
    assert counts["matches"] + counts["timed_out"] > 100 or "check" in body


def test_evicted_scope_starts_fresh() -> None:
    """A key that returns after its scope finished starts fresh; a halted scope stays halted."""
    body = "partition by k; event A = type == 'A'; event B = type == 'B'; check (A B)*;"
    body = body.replace("'", '"')
    run = PatternRun(ketal.compile(f"pattern P {{ {body} }}").compiled[0], Limits())

    def offer(counter: int, kind: str, key: int) -> list[Any]:
        event = ketal.Event(node="n", type=kind, clock={"n": counter}, data={"k": key})
        return [v for _, verdicts in run.process((event,)) for v in verdicts]

    assert [len(offer(n, kind, 1)) for n, kind in enumerate("ABAB", 1)] == [0, 0, 0, 0]
    assert not run.scopes.by_name
    assert [len(offer(n, kind, 2)) for n, kind in enumerate("BA", 5)] == [1, 0]
    assert run.counts.halted == 1
    assert len(run.scopes.by_name) == 1


def test_runs_max_counts_the_runs_of_all_scopes() -> None:
    """`runs_max` limits a pattern, not a scope."""
    body = f"partition by v; {EVENTS} find any A B;"
    counts = judged(body, stream(400), runs_max=100)
    assert counts["overflows"] > 0
    run = PatternRun(ketal.compile(f"pattern P {{ {body} }}").compiled[0], Limits())
    run.process(list(stream(400)))
    live: list[Any] = [scope.run for scope in run.scopes.by_name.values()]
    assert len(live) == 5
    assert run.live_runs() == sum(find.kept for find in live) > 100


def test_reached_limit_is_reported_once_per_scope_and_counted() -> None:
    """The first event that cannot be kept is a verdict, and each one is counted."""
    program = ketal.compile(f"pattern P {{ {EVENTS} find any A A B; within 1000 s; }}")
    verdicts = ketal.run(program, stream(240), limits=Limits(runs_max=20))
    overflows = [v for v in verdicts if isinstance(v, ketal.Overflow)]
    assert [v.limit for v in overflows] == ["runs_max"]
    assert overflows[0].given_up.startswith("events kept for later ones: ")
    assert verdicts.summary["patterns"]["P"]["overflows"] > 50


# --- the fast forms against the oracle, where what is over is let go of early ------------


def one_each(types: str) -> list[ketal.Event]:
    """Return concurrent events of these types, each of a node of its own."""
    return [
        ketal.Event(node=f"n{number}", type=type, clock={f"n{number}": 1}, data={"k": number})
        for number, type in enumerate(types)
    ]


def test_search_for_a_long_match_stops_at_a_limit() -> None:
    """No match ends in the B; the search for one tries ever longer rows of concurrent A's."""
    body = f"order CausalOrder; {EVENTS} S = B && k + A.k < 0; find any A+ S;"
    monitor = ketal.Monitor(ketal.compile(f"pattern P {{ {body} }}"))
    (overflow,) = monitor.feed_many(one_each("A" * 520 + "BA"))
    assert isinstance(overflow, ketal.Overflow)
    assert overflow.limit == "match_events_max"


@pytest.mark.parametrize(("events", "matches"), [(3, 0), (4, 1), (5, 5)])
def test_matches_have_at_most_match_events_max_events(events: int, matches: int) -> None:
    counts = judged(f"{EVENTS} find any A{{4}};", stream(events, types="A"), match_events_max=4)
    assert (counts["matches"], counts.get("overflows", 0)) == (matches, 0)
    counts = judged(f"{EVENTS} find any A{{4}};", stream(events, types="A"), match_events_max=3)
    assert (counts["matches"], counts.get("overflows", 0) > 0) == (0, matches > 0)


def test_matches_as_long_as_match_events_max_reach_no_limit() -> None:
    """The search for a longer match than A A B finds no other event."""
    body = f"order CausalOrder; {EVENTS} find any A+ B+;"
    program = ketal.compile(f"pattern P {{ {body} }}")
    monitor = ketal.Monitor(program, limits=Limits(match_events_max=3))
    assert [v.kind for v in monitor.feed_many(one_each("ABA"))] == ["match"] * 3


def test_start_that_comes_last_raises_the_bounds_of_a_long_row_of_steps() -> None:
    """Each step of the row is one call if raising bounds is recursive."""
    program = ketal.compile(
        f"pattern P {{ order CausalOrder; {EVENTS} find any A B{{60}}; }}",
    )
    monitor = ketal.Monitor(program)
    row = [ketal.Event(node="b", type="B", clock={"b": n}) for n in range(1, 61)]
    first = ketal.Event(node="a", type="A", clock={"a": 1})
    monitor.feed_many(row[:59])
    before = sys.getrecursionlimit()
    depth = len(inspect.stack())
    sys.setrecursionlimit(depth + 50)
    try:
        assert monitor.feed(first) == []
    finally:
        sys.setrecursionlimit(before)


def test_finite_log_that_ends_windows_early_equals_the_oracle() -> None:
    """Ending a window once no event can fit it changes no verdict."""
    ended = 0

    @drawn(80, 3_000)
    def holds(rng: random.Random) -> None:
        nonlocal ended
        file, events = case(rng, order="causal", kind="find")
        program = program_of(file)
        if program.compiled[0].window_us is None:
            return
        verdicts = list(ketal.run(program, events))
        run = PatternRun(program.compiled[0], Limits())
        run.counts.unscoped = run.counts.untimed = 0
        said = collected(run, verdicts)
        expected = facts(semantics.judge(file, "P", events))
        got = facts(said)
        assert got["matches"] == expected["matches"]
        assert got["timed_out"] == expected["timed_out"]
        ended += bool(expected["timed_out"])

    assert ended > 5


def test_barring_events_of_not_are_evicted_without_changing_verdicts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a sweep at every event the engine still equals the oracle."""
    monkeypatch.setattr(kept, "SWEEP_MIN", 1)
    swept = 0

    @drawn(80, 3_000)
    def holds(rng: random.Random) -> None:
        nonlocal swept
        file, events = case(rng, order="causal", kind="find")
        if not program_of(file).compiled[0].automaton.nots:
            return
        expected = facts(semantics.judge(file, "P", events))
        assert facts(outcome(file, events)) == expected
        swept += 1

    assert swept > 20


def test_watermark_does_not_end_a_window_before_its_copy_has_learned() -> None:
    """`at every node`: the window of a copy waits for events that the copy has not learned of."""
    body = f"order CausalOrder; at every node; {EVENTS} find any A B; within 5 s;"
    program = ketal.compile(f"pattern P {{ {body} }}")

    def event(node: str, kind: str, time: float, **clock: int) -> ketal.Event:
        return ketal.Event(node=node, type=kind, clock=clock, time=time)

    events = [
        event("b", "X", 0, b=1),
        event("a", "A", 1, a=1),
        event("a", "B", 2, a=2),
        event("b", "X", 30, a=2, b=2),  # b learns of both events
    ]
    expected = [v.to_dict()["id"] for v in ketal.run(program, events)]
    assert len(expected) == 2
    with ketal.Monitor(program) as monitor:
        found = []
        for item in events:
            found += monitor.feed(item)
            assert item.time is not None
            found += monitor.advance_time(item.time)
        found += monitor.advance_time(100)
    assert [v.to_dict()["id"] for v in found] == expected


def test_barring_events_of_not_do_not_accumulate() -> None:
    """2,700 of 8,000 events are an N: those that no run can need are evicted."""
    body = f"order CausalOrder; {EVENTS} find any A not N B; within 1 s;"
    counts = judged(body, stream(8_000, types="ABN"), candidates_max=2_000)
    assert "overflows" not in counts
    assert counts["matches"] > 1_000


def test_cache_of_the_states_that_a_mask_concerns_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "PLANS_MAX", 16)
    events = [f"event {name} = x == {number};" for number, name in enumerate("ABCDE")]
    one = machine.Machine(ketal.compile(f"pattern P {{ {' '.join(events)} find A B C D E; }}").one)
    sets = range(0, 32, 2)
    for mask in range(32):
        for waiting in sets:
            states = (0, *(state for state in range(1, 5) if waiting >> state & 1))
            expected = any(one.plans[state][mask] is not None for state in states)
            assert bool(one.concerned[mask] & (waiting | 1)) == expected
    assert len(one.concerned) <= machine.PLANS_MAX


@examples(80, 5_000)
@given(chances())
def test_unlearned_events_equal_their_definition(rng: random.Random) -> None:
    """They equal a scan of all events, which are added in any order; the first are removed."""
    counters = rng.sample(range(1, 9), rng.randrange(1, 9))
    events = [ketal.Event("a", "A", {"a": c}, rng.choice((None, *range(9)))) for c in counters]
    held = UnlearnedEvents(timed=True)
    expected: dict[int, Unlearned] = {}
    while events or expected:
        if events and (not expected or rng.random() < 0.6):
            one = Unlearned(events.pop(), 0, 0, ())
            held.add(one)
            expected[one.event.counter] = one
            if rng.random() < 0.2:
                one = expected[one.event.counter] = Unlearned(one.event, 0, 0, ("b",))
                held.add(one)
        else:
            first = min(expected)
            assert held.pop_first() == (first, expected.pop(first))
        held.validate_state("a")
        assert len(held) == len(expected)
        for low in range(10):
            assert held.get(low) is expected.get(low)
            left = {counter: one for counter, one in expected.items() if counter > low}
            times = [one.event.time_us for one in left.values() if one.event.time_us is not None]
            assert held.earliest_us_after(low) == min(times, default=None)
            high = rng.randrange(10)
            between = [left[counter] for counter in sorted(left) if counter <= high]
            assert held.between(low, high) == between
