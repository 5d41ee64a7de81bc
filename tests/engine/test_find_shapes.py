"""Executions designed for one case of `find any`, each in every mode, small ones by the oracle.

Random executions seldom reach the edges of a range: bars and floors of a `not`, ends of a window,
blocks of a column.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest

import ketal
from ketal import semantics
from ketal.engine.find_any.columns import BLOCK, REGION
from ketal.engine.find_any.occurrences import AnyFind
from ketal.engine.pattern_run import PatternRun
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from tests.cases import facts
from tests.driven import Driven
from tests.outcomes import LIMITS, collected, outcome
from tests.property.modes import MODES, PLAIN, agrees, answer, compared
from tests.sampling import sample

ORACLE_MAX = 10
"""The largest number of events of an execution for which the oracle is run."""
CAUSAL = "order CausalOrder;"
ARRIVAL = "order arrival;"
EVENTS = "".join(f'event {name} = type == "{name}";' for name in "ABCNZ")


def happen(*lines: str) -> list[Event]:
    """Return events in this order, each given by node, type, known nodes and attributes.

    `"q B <p t=3 k=1"`: the next event of q, whose clock merges the current clock of p.
    """
    clocks: dict[str, dict[str, int]] = {}
    events = []
    for line in lines:
        node, kind, *more = line.split()
        clock = clocks.setdefault(node, {})
        data: dict[str, float] = {}
        for word in more:
            if word.startswith("<"):
                for other, counter in clocks[word[1:]].items():
                    clock[other] = max(counter, clock.get(other, 0))
            else:
                name, value = word.split("=")
                data[name] = float(value)
        clock[node] = clock.get(node, 0) + 1
        time = data.pop("t", None)
        events.append(Event(node=node, type=kind, clock=dict(clock), time=time, data=data))
    return events


def matches(body: str, events: Sequence[Event]) -> int:
    """Return the number of matches; assert that every mode and the oracle find the same."""
    program = ketal.compile(f"pattern P {{ {EVENTS} {body} }}")
    (compiled,) = program.compiled
    differ, count = compared(compiled, events, random.Random(1), drawn=99)
    assert not differ
    if len(events) <= ORACLE_MAX:
        expected = facts(semantics.judge(program.file, "P", events))
        assert facts(outcome(program.file, events)) == expected
        assert len(expected["matches"]) == count
    return count


def in_every_order(body: str, events: Sequence[Event]) -> int:
    """Return the number of matches; assert that it is the same in every order of offering."""
    program = ketal.compile(f"pattern P {{ {CAUSAL} {EVENTS} {body} }}")
    assert program.compiled[0].order_free
    expected = facts(semantics.judge(program.file, "P", events))
    for order in itertools.permutations(events):
        assert facts(outcome(program.file, events, released=order)) == expected
    return len(expected["matches"])


def as_offered(body: str, events: Sequence[Event]) -> int:
    """Return the number of matches of every mode when events are offered in exactly this order."""
    compiled = ketal.compile(f"pattern P {{ {EVENTS} {body} }}").compiled[0]
    expected = answer(compiled, list(events), PLAIN)
    for mode in MODES:
        if mode.applies(compiled):
            assert agrees(compiled, list(events), mode, expected), mode.name
    return sum(kind == "Match" for kind, _, _ in expected)


# --- what can be reached ----------------------------------------------------------


@pytest.mark.parametrize("count", [3, 40])
def test_no_match_if_every_c_is_before_every_a(count: int) -> None:
    """Each C happened before each A: there is no match until a C that did not."""
    lines = ["r C"] * count + ["p A <r"] + ["p A", "q B"] * count
    assert matches(f"{CAUSAL} find any A B C;", happen(*lines)) == 0
    lines += ["r C"]
    assert matches(f"{CAUSAL} within 1 events; find any A B C;", happen(*lines)) == 0
    late = ["p Z", "q B <p"]
    assert matches(f"{CAUSAL} S = Causal(B); find any A S C;", happen(*lines, *late)) == count + 1


@pytest.mark.parametrize("count", [3, 60])
def test_matches_of_an_a_before_alternating_b_and_z(count: int) -> None:
    """One A is before everything, B and Z are on other nodes; only the last Z is after a B."""
    lines = ["p A", "q B <p", "r Z <p", *["q B", "r Z"] * (count - 1), "r Z <q"]
    assert matches(f"{CAUSAL} T = Causal(Z); find any A B T;", happen(*lines)) == count
    assert matches(f"{CAUSAL} find any A B C;", happen(*lines)) == 0
    assert matches(f"{ARRIVAL} T = Causal(Z); find any A B T;", happen(*lines)) == count


@pytest.mark.parametrize("step", range(4))
@pytest.mark.parametrize("count", [2, 20])
def test_each_step_can_be_a_dead_end(step: int, count: int) -> None:
    """All events of a step are after those of the later steps, except for one at the end.

    The nodes of the other steps receive nothing: without that step all sequences would match.
    """
    kinds = "ABCZ"
    others = [kind for place, kind in enumerate(kinds) if place != step]
    lines = [f"{kind} {kind}" for kind in others for _ in range(count if kind == others[0] else 1)]
    dead = kinds[step]
    if step < 3:  # after some event of the next step
        lines += [f"dead {dead} <{kinds[step + 1]}"] * count
    else:  # before the events of the earlier steps
        lines = [f"dead {dead}"] * count + [f"{kind} {kind} <dead" for kind in others] * count
    assert matches(f"{CAUSAL} find any A B C Z;", happen(*lines)) == 0
    expected = count**3 if step == 3 else count
    if expected < 300:
        assert matches(f"{CAUSAL} find any A B C Z;", happen(*lines, f"live {dead}")) == expected


def test_late_a_makes_earlier_bs_reachable() -> None:
    """In each order of five events, B and C wait for an A that comes last, or between."""
    events = happen("q B", "r C", "q B", "p A", "r C <q")
    assert in_every_order("find any A B C;", events) == 4
    assert in_every_order("S = Conc(B); T = Causal(C); find any A S T;", events) == 2
    assert in_every_order("S = Conc(B); T = Causal(C, S); find any A S T;", events) == 2
    assert in_every_order("S = B; T = Conc(C, all); find any A S T;", events) == 2


def test_raised_bounds_are_propagated_over_a_whole_range() -> None:
    """A late A raises the bounds of two B's; the C is after one B and concurrent with the other."""
    assert in_every_order("find any A B C Z;", happen("p A", "q B", "r C", "s Z")) == 1
    events = happen("q B", "r C <q", "q B", "p A", "s Z <r")
    body = "S = Conc(C); T = Causal(Z); find any A B S T;"
    assert in_every_order(body, events) == 1
    events = happen("q B", "r C", "q B <r", "p A", "s Z <q")
    assert in_every_order(body, events) == 1


def test_event_of_two_steps_can_still_be_reached_as_the_later_one() -> None:
    """The A of r can be first, or follow the C that it knows; in one match it cannot be both."""
    events = happen("p B", "q C", "r A <q", "t A", "u Z <r")
    body = "S = Conc(B); T = Conc(C); U = Causal(A); V = Causal(Z); find any A S T U V;"
    assert in_every_order(body, events) == 1


def test_many_nodes_that_know_few_others() -> None:
    """Each request has two nodes of its own: an A leads to the B and the C of its request alone."""
    requests = [(f"p{n} A", f"q{n} B <p{n}", f"p{n} C <q{n}") for n in range(12)]
    in_turn = happen(*itertools.chain(*requests))
    beside = happen(*itertools.chain(*zip(*requests, strict=True)))
    for events in (in_turn, beside):
        assert matches(f"{CAUSAL} S = Causal(B); T = Causal(C); find any A S T;", events) == 12
        assert matches(f"{CAUSAL} S = Causal(B); T = Conc(C); find any A S T;", events) == 12 * 11
        assert matches(f"{CAUSAL} S = Conc(B); T = Causal(C); find any A S T;", events) == 12 * 11
        assert matches(f"{CAUSAL} S = Causal(B); T = Causal(C, A); find any A S T;", events) == 12


@pytest.mark.parametrize("lines", ["p A|q Z|r B <p", "p Z|q Z|r B <p"])
def test_event_is_kept_for_a_late_start_within_the_window(lines: str) -> None:
    """The B is kept while it is within a window of events, even if earlier starts have expired."""
    early = happen("p A", *lines.split("|"), "q Z", "s C <r")
    late_a, *others = early
    body = f"{CAUSAL} S = Causal(B); T = Causal(C); find any A S T; within 4 events;"
    assert as_offered(body, [*others[:4], late_a, others[4]]) == 1


def test_event_without_a_start_is_kept_for_a_late_one() -> None:
    """A B offered before any A is kept: the A that it is after may come late."""
    a, b, c = happen("p A", "q B <p", "r C <q")
    body = f"{CAUSAL} S = Causal(B); T = Causal(C); find any A S T;"
    assert as_offered(body, [b, a, c]) == as_offered(body, [b, c, a]) == 1


def test_scope_is_removed_when_its_last_start_expires() -> None:
    """A B that waits to be indexed does not keep a scope whose only start has expired."""
    body = f"{ARRIVAL} partition by x; {EVENTS} within 6 s; find any A B C;"
    run = PatternRun(ketal.compile(f"pattern P {{ {body} }}").compiled[0], Limits())
    run.process(happen("p A t=0 x=1", "p B t=5 x=1"))
    assert len(run.steps.advance(6_000_000)) == 1
    assert not run.scopes.by_name
    run.validate_state()


def test_unindexed_events_do_not_count_against_another_scope() -> None:
    """At `runs_max` no event is dropped for the sake of events that indexing would discard."""
    body = f"{ARRIVAL} partition by x; {EVENTS} E = B && k == A.k; find any A E C;"
    run = PatternRun(ketal.compile(f"pattern P {{ {body} }}").compiled[0], Limits(runs_max=3))
    useless = ["p B x=1 k=2"] * 2
    lines = ["p A x=1 k=1", *useless, "p A x=2 k=1", "p B x=2 k=1", "p C x=2"]
    run.process(happen(*lines))
    assert (run.counts.matches, run.counts.overflows) == (1, 0)
    assert run.live_runs() == 3
    run.validate_state()


def test_matches_under_an_arrival_that_is_no_linear_extension() -> None:
    """Under arrival order the places of a node's events may decrease along its counters."""
    first, second, b, c = happen("p A", "p A", "q B <p", "q C")
    body = f"{ARRIVAL} S = Causal(B); T = Causal(C); find any A S T;"
    assert matches(body, [second, b, first, c]) == 1
    assert matches(body, [second, first, b, c]) == 2
    assert matches(body, [second, first, c, b]) == 0
    assert matches(body.replace("A S T", "A+ S? T"), [second, b, first, c]) == 4


@pytest.mark.parametrize("relation", ["B", "Conc(B)"])
def test_late_a_raises_bounds_of_hundreds_of_events(relation: str) -> None:
    """The bounds of hundreds of B's and of the C's behind them are raised by one A."""
    lines = ["q B", "r C"] * 150 + ["r C <q", "p A"]
    body = f"{CAUSAL} S = {relation}; T = Causal(C); find any A S T;"
    assert matches(body, happen(*lines)) == 150


EDGES = [n + d for n in (BLOCK, REGION) for d in (-1, 0, 1)]


@pytest.mark.parametrize(
    ("low", "width"),
    sample(
        list(zip(EDGES, itertools.cycle((1, BLOCK + 1)))),
        list(itertools.product(EDGES, (1, BLOCK - 1, BLOCK, BLOCK + 1))),
    ),
)
def test_matches_of_ranges_at_the_edges_of_blocks(low: int, width: int) -> None:
    """B's of one node: those up to `low` before every A, those beyond `low + width` unknown."""
    lines = ["q B"] * low + ["p A <q"] + ["q B"] * width + ["r C <q"] + ["q B"] * (BLOCK + 3)
    body = f"{CAUSAL} T = Causal(C); find any A B T;"
    assert matches(body, happen(*lines)) == width
    if low < REGION - 1:  # without bounds the search would look at too many pairs
        pairs = (width**2 - width) // 2
        assert matches(body.replace("A B T", "A B B T"), happen(*lines)) == pairs


@pytest.mark.parametrize("seed", range(sample(1, 10)))
def test_matches_over_more_than_a_region_of_blocks(seed: int) -> None:
    """Columns of hundreds of events, of which a window leaves few to match."""
    rng = random.Random(seed)
    lines = []
    for number in range(REGION + 5 * BLOCK):
        node = rng.choice("pqqqqqqq")
        heard = f"<{rng.choice('pq')}" if rng.random() < 0.2 and number > 20 else ""
        kind = rng.choice("BBBBBBA" if node == "q" else "BBBBBBC")
        lines.append(f"{node} {kind} {heard} t={number + rng.choice((0, 0, -3))}")
    events = happen("p Z t=0", "q Z t=0", *lines)
    assert matches(f"{CAUSAL} find any A B C; within 5 s;", events)
    matches(f"{CAUSAL} S = Conc(B); T = Causal(C, A); find any A S T; within 5 s;", events)


# --- bars and floors of a `not` ---------------------------------------------------

BOTH = 'event X = type == "A" || type == "N";'  # an N can be the first as well
NOT = f"{BOTH} find any X not N B;"


@pytest.mark.parametrize(
    ("order", "lines", "expected"),
    [
        # From N's own node: what came before it is barred, itself not, nor what is after it.
        (CAUSAL, "p A|p N|p A|q B <p", 2),
        (CAUSAL, "p A|p A|p N|q B <p", 1),
        (CAUSAL, "p N|p N|q B <p", 1),
        # From another node: what N knows of it is barred, the next event not.
        (CAUSAL, "p A|p A|q N <p|p A|r B <q <p", 2),
        (CAUSAL, "p A|q N <p|r B <q", 1),
        # An N that B does not know, or which does not know A, bars nothing.
        (CAUSAL, "p A|p N|q B", 2),
        (CAUSAL, "p A|q N|r B <p <q", 2),
        # Two N's: the later one of a node knows more, each node's own counts.
        (CAUSAL, "p A|q N|p A|q N <p|p A|r N <p|p A|s B <q <r", 3),
        # N is B: it bars what is before itself only for what comes after it.
        (ARRIVAL, "p A|p N|p A|q B", 2),
        (ARRIVAL, "p A|p A|p N|q B", 1),
        (ARRIVAL, "p A|q B|p N|q B", 2),
        (ARRIVAL, "p A|q N|q B|q B", 2),
    ],
)
def test_barring_events_at_the_edges_of_their_range(order: str, lines: str, expected: int) -> None:
    assert matches(f"{order} {NOT}", happen(*lines.split("|"))) == expected


@pytest.mark.parametrize("order", [CAUSAL, ARRIVAL])
def test_n_taken_by_a_step_does_not_bar_its_own_match(order: str) -> None:
    """The step accepts N's: the N that it takes is not between the steps."""
    body = f'{order} {BOTH} event Y = type == "B" || type == "N"; find any A not N Y;'
    assert matches(body, happen("p A", "p N", "p N", "p B")) == 1
    assert matches(body, happen("p A", "q N <p", "q B")) == 1


@pytest.mark.parametrize("order", [CAUSAL, ARRIVAL])
def test_barring_event_is_compared_with_an_earlier_step(order: str) -> None:
    """An N with the A's key bars the A, an N with another key does not."""
    body = f"{order} find any A not (N && k == A.k) B;"
    events = happen("p A k=1", "p A k=2", "q N <p k=1", "q B", "p N k=2", "p A k=2", "q B <p")
    # Under CausalOrder the first B is also one that did not happen before the last A.
    assert matches(body, events) == (3 if order == CAUSAL else 2)
    assert matches(body, happen("p A k=1", "p N k=1", "p A k=1", "p B")) == 1


# --- windows --------------------------------------------------------------------


@pytest.mark.parametrize("order", [CAUSAL, ARRIVAL])
@pytest.mark.parametrize(("last", "expected"), [(2.999_999, 1), (3, 0), (3.000_001, 0)])
def test_matches_at_the_end_of_a_window_of_time(order: str, last: float, expected: int) -> None:
    events = happen("p A t=0", "q B t=1", f"r C t={last}")
    assert matches(f"{order} find any A B C; within 3 s;", events) == expected
    events = happen("r C t=9", f"q A t={9 - last}", "p B t=8", "q C t=9 <p")
    assert matches(f"{order} T = Causal(C); find any A B T; within 3 s;", events) == expected


@pytest.mark.parametrize("order", [CAUSAL, ARRIVAL])
@pytest.mark.parametrize(("between", "expected"), [(1, 2), (2, 1), (3, 0)])
def test_matches_at_the_end_of_a_window_of_events(order: str, between: int, expected: int) -> None:
    """`within 4 events`: the first and the last are at most three places apart."""
    lines = ["p A", "p A", *["p Z"] * between, "p C"]
    declared = 'event D = type == "Z";'
    body = f"{order} {declared} T = Causal(C); find any A T; within 4 events;"
    assert matches(body, happen(*lines)) == expected


@pytest.mark.parametrize("order", [CAUSAL, ARRIVAL])
@pytest.mark.parametrize("guards", ["S = B; T = C;", "S = Causal(B); T = Causal(C);"])
def test_matches_with_times_that_go_backwards(order: str, guards: str) -> None:
    """The last event of a column is not the newest: an A at 1 s, then one at 0 s; a C at 4 s."""
    body = f"{order} {guards} find any A S T; within 4 s;"
    assert matches(body, happen("p A t=1", "p A t=0", "p B t=2", "p C t=4")) == 1
    assert matches(body, happen("p A t=9", "p B t=8", "p B t=5", "p C t=11", "p C t=6")) == 2
    lines = [f"p {kind} t={time}" for time in (3, 0, 7, 7, 1, 5) for kind in "ABC"]
    assert matches(body, happen(*lines))


@pytest.mark.parametrize("order", [CAUSAL, ARRIVAL])
def test_matches_with_equal_times(order: str) -> None:
    body = f"{order} T = Causal(C); find any A B T; within 1 us;"
    events = happen(*["p A t=5", "q B t=5"] * 3, "r C t=5 <p <q", "r C t=5")
    assert matches(body, events) == (18 if order == CAUSAL else 12)


# --- steps that share events -------------------------------------------------------


@pytest.mark.parametrize("order", [CAUSAL, ARRIVAL])
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("find any A A;", (6, 6)),
        ("find any A A A;", (4, 4)),
        ("S = A || B; find any A S;", (10, 6)),
        ("S = Causal(A); find any A S A;", (4, 2)),
        ("find any A+;", (15, 15)),
        ("S = Conc(A, all); find any A (S | A);", (6, 6)),
    ],
)
def test_event_on_two_edges_is_taken_once(order: str, body: str, expected: tuple[int, int]) -> None:
    """Two A's on each of two nodes without messages; no A is twice in a match."""
    events = happen("p A", "p A", "q A", "q A")
    assert matches(f"{order} {body}", events) == expected[order == ARRIVAL]


def test_equality_with_a_step_on_two_edges_reaches_back_to_its_first_event() -> None:
    """The first A can only be taken on the one edge, the second on the other too."""
    events = happen("p A k=1", "p B", "p A k=1", "p C k=1")
    assert matches(f"{ARRIVAL} T = C && k == A.k; find any A+ B T;", events) == 1


@pytest.mark.parametrize("order", [CAUSAL, ARRIVAL])
@pytest.mark.parametrize(
    ("relation", "expected"),
    [("Causal(C, A)", (2, 1)), ("Conc(C, A)", (3, 2)), ("C && k == A.k", (3, 1))],
)
def test_named_anchor_is_the_last_event_of_its_step(
    order: str, relation: str, expected: tuple[int, int]
) -> None:
    """The anchor is the second of two A's, with or without a B in between."""
    events = happen("p A k=1", "q B k=1", "q A k=2", "r C <p k=1", "s C <q k=2", "t C k=1")
    count = matches(f"{order} T = {relation}; find any A A T;", events)
    assert count == expected[order == ARRIVAL]
    for body in ("A B? A T", "A B A T", "A+ T", "A A T T"):
        assert matches(f"{order} T = {relation}; find any {body};", events) or "T T" in body


# --- keys ------------------------------------------------------------------------


@pytest.mark.parametrize("order", [CAUSAL, ARRIVAL])
@pytest.mark.parametrize("guards", ["T = C && k == A.k;", "T = Causal(C) && k == A.k;"])
def test_columns_of_finished_keys_are_removed(order: str, guards: str) -> None:
    """Keys finish and return; at the end no events of any key are kept."""
    lines = []
    for number in range(40):
        key, time = number % 4, 10 * number
        lines += [f"p A k={key} t={time}", f"q B <p k=9 t={time + 1}"]
        lines += [f"p A k={key} t={time - 2}", f"q C <p k={(number + number // 20) % 5} t={time}"]
    body = f"{order} {guards} find any A B T; within 5 s;"
    assert matches(body, happen(*lines)) > 5
    run = PatternRun(ketal.compile(f"pattern P {{ {EVENTS} {body} }}").compiled[0], LIMITS)
    for event in happen(*lines):
        run.process((event,))
        assert event.time_us is not None
        run.steps.advance(event.time_us - 2_000_000)
        run.validate_state()
    assert 0 < run.live_runs() < 10
    run.steps.advance(10**12)
    (scope,) = run.scopes.by_name.values()
    assert isinstance(scope.run, AnyFind)
    assert not list(scope.run.entries())


# --- saved state ---------------------------------------------------------------------

SAVED = {
    "bounds": "S = Conc(B); T = Causal(C); find any A S T;",
    "late": "S = Causal(B); T = Causal(C); find any A S T;",
    "not": "T = Causal(C); find any A not N T; within 9 s;",
    "not of a key": "find any A not (N && k == A.k) B; within 20 events;",
    "key": "T = C && k == A.k; find any A B T;",
    "windows": "find any A B; within 2 s;",
    "repeated": "S = Causal(A); find any A S+ C; within 5 s;",
}


@pytest.mark.parametrize("order", [CAUSAL, ARRIVAL])
@pytest.mark.parametrize("body", SAVED.values(), ids=SAVED)
def test_snapshot_after_every_event_changes_no_match(order: str, body: str) -> None:
    """A Monitor that is saved and restored after every event equals an uninterrupted run."""
    rng = random.Random(7)
    lines = []
    for number in range(40):
        node = rng.choice("pqr")
        heard = f"<{rng.choice('pqr')}" if number > 9 and rng.random() < 0.5 else ""
        lines.append(f"{node} {rng.choice('ABCN')} {heard} k={rng.randrange(3)} t={number / 2}")
    events = happen("p Z t=0", "q Z t=0", "r Z t=0", *lines)
    program = ketal.compile(f"pattern P {{ {order} {EVENTS} {body} }}")
    if program.compiled[0].order_free:
        rng.shuffle(events)
    plain, saved = Driven(program), Driven(program)
    expected: list[Any] = []
    found: list[Any] = []
    for event in events:
        expected += plain.feed(event)
        saved = Driven.restored(program, saved.snapshot())
        found += saved.feed(event)
    expected += plain.close()
    found += saved.close()
    outcomes = [facts(collected(m.runs[0], v)) for m, v in ((plain, expected), (saved, found))]
    assert outcomes[0] == outcomes[1]
    assert outcomes[0]["matches"]
