"""The cost that lint reports for a pattern, against the work of its runs."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, reject

import ketal
from ketal.compiler.pipeline import compile_pattern
from ketal.engine.check_run import CheckRun
from ketal.engine.costs import cost_classes as costs
from ketal.engine.costs.cost_classes import Cost, cost_of
from ketal.engine.find_any.occurrences import AnyFind
from ketal.engine.find_any.search import Search
from ketal.engine.find_next.runs import RunsFind
from ketal.engine.pattern_run import PatternRun
from ketal.errors import PatternError
from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical
from tests.cases import e
from tests.outcomes import LIMITS
from tests.property.executions import execution
from tests.property.patterns import pattern_file
from tests.sampling import chances, examples
from tests.work import counted_lines

EVENTS = """
    event A = type == "S.a"; event B = type == "S.b"; event C = type == "S.c";
"""
FLAT = (costs.FLAT, costs.FLAT_BY_VALUE)
FORWARD = (*FLAT, costs.FORWARD_DEAD_ENDS)
SEARCHED = (costs.SEARCH, costs.SEARCH_DEAD_ENDS)

# (pattern, class of cost, text that decides it, whether matches can be counted).
TABLE: list[tuple[str, str, str, bool | None]] = [
    ("order arrival; find any A B C;", costs.FLAT, "order arrival", True),
    ("order arrival; find any A B* C;", costs.FLAT, "order arrival", True),
    ("order arrival; find any A B C; within 3 events;", costs.FLAT, "order arrival", False),
    ("order arrival; D = Conc(B); find any A D C;", costs.FLAT, "order arrival", True),
    ("order CausalOrder; D = Causal(B); find any A D+;", costs.FLAT, "Causal(B)", True),
    ("order CausalOrder; D = Causal(B, all); find any A D D;", costs.FLAT, "Causal(B, all)", False),
    ("order CausalOrder; D = Causal(B); find any A not C D;", costs.FLAT, "Causal(B)", False),
    ("order CausalOrder; find any A+;", costs.FLAT, "find any A+", True),
    ("order arrival; D = C && x == A.x; find any A B D;", costs.FLAT_BY_VALUE, "x == A.x", False),
    (
        "order CausalOrder; D = Causal(B) && x == A.x; find any A D;",
        costs.FLAT_BY_VALUE, "x == A.x", False,
    ),
    (
        "order CausalOrder; D = Causal(B) && x == A.x; find any A not C D;",
        costs.FLAT_BY_VALUE, "x == A.x", False,
    ),
    (
        "order arrival; D = B && x == A.x; E = C && y == A.y; find any A D E;",
        costs.FORWARD_DEAD_ENDS, "y == A.y", False,
    ),
    (
        "order arrival; D = Conc(C, all); find any A B D;",
        costs.FORWARD_DEAD_ENDS, "Conc(C, all)", False,
    ),
    ("order CausalOrder; D = Conc(B); find any A D;", costs.SEARCH, "Conc(B)", False),
    ("order CausalOrder; find any A B C;", costs.SEARCH, 'type == "S.b"', False),
    ("order CausalOrder; find any A B C A;", costs.SEARCH_DEAD_ENDS, 'type == "S.b"', False),
    ("order CausalOrder; D = Conc(B); find any A D+;", costs.SEARCH_DEAD_ENDS, "D+", False),
    (
        "order CausalOrder; D = Conc(C, A); find any A B D;",
        costs.SEARCH_DEAD_ENDS, "Conc(C, A)", False,
    ),
    (
        "order CausalOrder; D = B && x == A.x; find any A D C;",
        costs.SEARCH_DEAD_ENDS, "x == A.x", False,
    ),
    ("order CausalOrder; find any A not C B;", costs.SEARCH_DEAD_ENDS, "not C", False),
    ("order arrival; D = B && x > A.x; find any A D;", costs.SCAN, "x > A.x", False),
    ("order arrival; D = B && x == A.x && y > A.y; find any A D;", costs.SCAN, "y > A.y", False),
    (
        "order arrival; D = Causal(B) || (B && x == A.x); find any A D;",
        costs.SCAN, "Causal(B)", False,
    ),
    ("order arrival; find any A not C B not Causal(C) A;", costs.SCAN, "not Causal(C)", False),
    (
        "order CausalOrder; D = Causal(B); find any A not C D not (C && x == A.x) D;",
        costs.SCAN, "not (C && x == A.x)", False,
    ),
    ("find next A B C;", costs.GROUPS, "find next A B C", False),
    ("D = B && x == A.x; find next A D C;", costs.GROUPS_APART, "x == A.x", False),
    ("order CausalOrder; find next A not C B;", costs.GROUPS_APART, "not C", False),
    ("order CausalOrder; find strict A not C B;", costs.GROUPS, "find strict A not C B", False),
    (
        "find next A not B C not (B && x == A.x) A;",
        costs.GROUPS_APART, "not (B && x == A.x)", False,
    ),
    ("check (A | B C)*; on violation skip;", costs.LOOK_UP, "check (A | B C)*", None),
    ("order CausalOrder; D = Causal(B); check (A | B | C D)*;", costs.REGISTERS, "Causal(B)", None),
]  # fmt: skip


def timed(events: list[Event]) -> list[Event]:
    """Return the events with times that increase in the order offered."""
    return [
        Event(e.node, e.type, dict(e.clock), time=float(n), data=dict(e.data))
        for n, e in enumerate(events)
    ]


def check_run(cost: Cost, run: PatternRun) -> None:
    """Assert that runs over events in order do the work that the reported cost allows."""
    for scope in run.scopes.by_name.values():
        if isinstance(scope.run, CheckRun):
            machine = run.machine
            taken = [
                known
                for state, decided in enumerate(machine.decided)
                for mask, known in decided.items()
                if machine.plans[state][mask]
            ]
            assert None not in taken or cost.name != costs.LOOK_UP
        elif isinstance(scope.run, RunsFind):
            assert cost.name in (costs.GROUPS, costs.GROUPS_APART)
        else:
            forward = scope.run._store.search.forward
            assert forward or cost.name not in FORWARD
            assert not (forward and cost.name in SEARCHED)
            assert scope.run._store.counting or not cost.counts


@pytest.mark.parametrize(("body", "name", "guard", "counts"), TABLE)
def test_class_of_cost_of_a_pattern(body: str, name: str, guard: str, counts: bool | None) -> None:
    compiled = ketal.compile(f"pattern P {{ {EVENTS} {body} }}").compiled[0]
    cost = cost_of(compiled)
    assert (cost.name, cost.place.text, cost.counts) == (name, guard, counts)
    assert cost.place.span is not None
    assert bool(cost.flat_with) == (name not in (*FLAT, costs.GROUPS, costs.LOOK_UP))
    for seed in range(20):
        events = canonical(execution(random.Random(seed), events_max=20))
        run = PatternRun(compiled, LIMITS, listing=False)
        run.process(events)
        check_run(cost, run)
        finds = [s.run for s in run.scopes.by_name.values() if isinstance(s.run, AnyFind)]
        types = {event.type for event in events}
        if counts is False and types >= {"S.a", "S.b", "S.c"}:
            assert not any(find._store.counting for find in finds)


def test_advice_about_a_not_makes_the_pattern_flat() -> None:
    def cost(guard: str) -> Cost:
        body = f"order arrival; find any A not C B not {guard} A;"
        return cost_of(ketal.compile(f"pattern P {{ {EVENTS} {body} }}").one)

    advice = "a `not` whose guard compares its event with no other; a window (`within`) bounds n"
    for guard in ("Causal(C)", "Conc(C)", "(C && x == A.x)"):
        assert cost(guard).flat_with == advice
    assert cost("(C && x == 1)").name == costs.FLAT


@pytest.mark.parametrize(
    ("body", "without", "advice"),
    [
        (
            "D = Causal(B, A); find next A D C;",
            "D = Causal(B); find next A D C;",
            "no step by name, and no `all`, in a guard; `partition by` instead of an equality",
        ),
        (
            "D = B && x == A.x; find next A D C;",
            "partition by x; find next A B C;",
            "no step by name, and no `all`, in a guard; `partition by` instead of an equality",
        ),
        (
            "order CausalOrder; find next A not C B;",
            "order arrival; find next A not C B;",
            "`order arrival`, or no `not`",
        ),
    ],
)
def test_advice_about_runs_makes_them_groups(body: str, without: str, advice: str) -> None:
    cost, other = (
        cost_of(ketal.compile(f"pattern P {{ {EVENTS} {one} }}").one) for one in (body, without)
    )
    assert (cost.name, cost.flat_with) == (costs.GROUPS_APART, advice)
    assert (other.name, other.flat_with) == (costs.GROUPS, "")


@pytest.mark.parametrize(("anchor", "event"), [("B", "O(1)"), ("B, all", "O(P)")])
def test_event_of_a_check_costs_its_clock_only_where_it_is_compared_with_all(
    anchor: str, event: str
) -> None:
    text = f"pattern P {{ {EVENTS} order CausalOrder; D = Causal({anchor}); check A D; }}"
    assert cost_of(ketal.compile(text).one).event == event


def test_cost_of_a_shared_event_is_placed_in_the_body() -> None:
    text = """event A = type == "a"; event B = type == "b";
    pattern P { order CausalOrder; find any A B; }"""
    place = cost_of(ketal.compile(text).compiled[0]).place
    assert place.span is not None
    assert (place.text, place.span.line) == ("B", 2)


def test_place_of_several_lines_is_named_by_its_pattern() -> None:
    for gap, text in ((" ", "find any A+"), ("\n        ", "P")):
        file = f"pattern P {{ order CausalOrder; {EVENTS}\nfind any{gap}A+; }}"
        assert cost_of(ketal.compile(file).one).place.text == text


def test_cost_of_a_mode_is_the_number_of_cuts() -> None:
    text = f"pattern P {{ order CausalOrder; mode possibly; {EVENTS} find any A B; }}"
    cost = cost_of(ketal.compile(text).compiled[0])
    assert (cost.name, cost.place.text, cost.counts) == (costs.CUTS, "mode possibly", None)


def test_flat_search_visits_only_events_of_matches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For any pattern: a pattern reported as flat is flat, and its cost holds for its runs."""
    visits, flat = 0, False
    visit, find = Search._visit, Search.find

    def counted(search: Search, count: int) -> bool:
        nonlocal visits
        visits += count
        return visit(search, count)

    def found(search: Search, *args: Any) -> Any:
        before = visits
        out = find(search, *args)
        if flat and search.forward:
            assert visits - before <= sum(len(taken) - 1 for taken in out[0])
        return out

    monkeypatch.setattr(Search, "_visit", counted)
    monkeypatch.setattr(Search, "find", found)
    met = set()

    @examples(50, 5_000)
    @given(chances())
    def holds(rng: random.Random) -> None:
        nonlocal flat
        # Where a copy learns of events their times fall, and then what is too old is looked at.
        file = pattern_file(rng, strategy="any", without={"deployment"})
        try:
            compiled = compile_pattern(file, file.patterns[0])
        except PatternError:
            reject()
        cost = cost_of(compiled)
        met.add(cost.name)
        flat = cost.name in FLAT
        for listing in (True, False):
            run = PatternRun(compiled, LIMITS, listing=listing)
            run.process(timed(canonical(execution(rng, events_max=14))))
            if not (listing and cost.counts):
                check_run(cost, run)

    holds()
    assert met >= {costs.FLAT, costs.SEARCH_DEAD_ENDS, costs.SCAN}


@pytest.mark.parametrize("body", ["find next X Z", "find next X Y Z"])
def test_event_that_moves_one_run_costs_the_same_however_many_runs_wait(body: str) -> None:
    """Of the runs that took the same event last, with a value each, one takes an event."""
    steps = "X = A; Y = B; Z = C && x == X.x;"
    compiled = ketal.compile(f"pattern P {{ {EVENTS} {steps} {body}; }}").one

    def lines(waiting: int) -> int:
        run = PatternRun(compiled, LIMITS)
        types = "a" * waiting + "b"
        run.process([e(f"n@{i}", f"S.{one}", x=i) for i, one in enumerate(types, 1)])
        first, second = (e(f"n@{waiting + i}", "S.c", x=waiting - i) for i in (2, 3))
        run.process([first])  # makes the index of the values
        matches, lines = counted_lines(lambda: run.process([second]))
        assert len(matches) == 1
        return lines

    assert lines(200) <= lines(20)


def test_event_costs_the_same_however_many_nodes_had_a_run() -> None:
    compiled = ketal.compile(f"pattern P {{ {EVENTS} Y = Causal(B); find next A Y; }}").one

    def lines(nodes: int) -> int:
        run = PatternRun(compiled, LIMITS)
        for n in range(nodes):
            assert len(run.process([e(f"n{n}@1", "S.a"), e(f"n{n}@2", "S.b")])) == 1
        matches, lines = counted_lines(lambda: run.process([e("m@1", "S.a"), e("m@2", "S.b")]))
        assert len(matches) == 1
        return lines

    assert lines(200) == lines(20)
