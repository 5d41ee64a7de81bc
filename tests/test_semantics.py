"""The oracle against cases computed by hand (`tests.cases`) and against naive definitions."""

from __future__ import annotations

import copy
import itertools
import random
from typing import Any

import pytest
from hypothesis import given, reject

from ketal import semantics
from ketal.grammar import parse
from ketal.model import syntax as ast
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import happened_before
from ketal.semantics import History, Scope
from tests.cases import CASES, CHAIN, FIG_1, FORK, PEERS, Case, e, facts, line, p
from tests.property.executions import execution
from tests.property.patterns import pattern_file
from tests.sampling import chances, drawn, examples


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.construct}: {c.name}")
def test_oracle_gives_the_hand_computed_outcome(case: Case) -> None:
    outcome = semantics.judge(parse(case.text), "P", case.events, params=case.params)
    assert facts(outcome) == case.expected


def test_names_of_cases_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_canonical_linear_extension_sorts_by_sum_then_node_then_counter() -> None:
    shuffled = random.Random(1).sample(FIG_1, len(FIG_1))
    assert [str(x.dot) for x in semantics.canonical_order(shuffled)] == [
        "A@1", "B@1", "B@2", "C@1", "C@2"
    ]  # fmt: skip
    assert semantics.canonical_order(reversed(FORK)) == list(FORK)


def test_linear_extensions_are_all_orders_that_respect_happened_before() -> None:
    assert list(semantics.linear_extensions(CHAIN)) == [list(CHAIN)]
    assert len(list(semantics.linear_extensions(FORK))) == 2
    orders = list(semantics.linear_extensions(PEERS))
    assert len(orders) == 3
    for order in orders:
        assert not any(happened_before(b, a) for i, a in enumerate(order) for b in order[i:])


def test_event_is_released_after_all_events_before_it() -> None:
    a, b, c = CHAIN
    assert semantics.released([c, b, a]) == [a, b, c]
    assert semantics.released([c, a]) == [a]
    assert semantics.released([FORK[1], FORK[2], FORK[0]]) == [FORK[1], FORK[0], FORK[2]]
    assert semantics.released([e("n@2", "t"), e("n@1", "t")]) == [e("n@1", "t"), e("n@2", "t")]


def test_event_is_learned_just_before_the_first_local_event_after_it() -> None:
    a, b, c = CHAIN
    assert semantics.learned("n3", [a, b, c]) == [a, b, c]
    assert semantics.learned("n1", [a, b, c]) == [a]
    assert semantics.learned("n2", [b, a, c]) == [b, a]


def test_matches_are_the_same_for_every_arrival_order() -> None:
    text = p("Z = Conc(B) || Causal(C, A)", "find any A Z B?", order="CausalOrder")
    events = [*FORK, e("n2@2", "b"), e("n1@2", "a", "n2:1")]
    expected = facts(semantics.judge(parse(text), "P", events))
    assert expected["matches"]
    for order in itertools.permutations(events):
        assert facts(semantics.judge(parse(text), "P", order)) == expected


def test_without_not_matches_are_those_of_some_linear_extension() -> None:
    """`find any` over each linear extension as arrival order restates the definition."""
    body = ("Z = Conc(B) || Causal(C, A)", "find any A Z B?")
    events = [*FORK, e("n2@2", "b"), e("n1@2", "a", "n2:1")]
    causal = parse(p(*body, order="CausalOrder"))
    arrival = parse(p(*body))
    union: set[str] = set()
    for order in semantics.linear_extensions(events):
        union |= set(facts(semantics.judge(arrival, "P", order))["matches"])
    # No match here has a mirror image, so the lists can be compared.
    assert union == set(facts(semantics.judge(causal, "P", events))["matches"])


def _judge(rng: random.Random, **knobs: Any) -> tuple[semantics._Judge, list[Event]]:
    """Return a random pattern and a random execution, ready to be judged."""
    file = pattern_file(rng, **knobs)
    events = execution(rng, events_max=6, nodes_max=3)
    return semantics._Judge(file, file.patterns[0], {}, {}, 5_000), events


def _found(judge: semantics._Judge, order: list[Event]) -> set[tuple[Scope, History]]:
    return {(scope.name, bound) for scope in judge.scopes(order) for bound in scope.find_any()}


def test_random_find_any_matches_are_those_of_some_linear_extension() -> None:
    compared = 0

    @drawn(100, 5_000)
    def holds(rng: random.Random) -> None:
        nonlocal compared
        causal, events = _judge(rng, strategy="any", order="causal", without=("absent",))
        arrival = copy.copy(causal)
        arrival.causal = False
        if causal.window_events is not None:
            reject()  # positions are those of the canonical linear extension
        if (where := causal.pattern.deployment) is not None and not where.everything:
            reject()  # a copy learns of an event just before one of its own, in each extension
        expected = _found(causal, semantics.canonical_order(events))
        extensions = semantics.linear_extensions(events)
        union: set[tuple[Scope, History]] = set()
        for order in extensions:
            union |= _found(arrival, order)
        assert union == expected
        compared += bool(expected)

    assert compared > 30


@examples(80, 5_000)
@given(chances())
def test_words_of_a_body_equal_a_naive_expansion(rng: random.Random) -> None:
    longest = 4

    def concatenate(*languages: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
        out: set[tuple[str, ...]] = {()}
        for language in languages:
            out = {a + b for a in out for b in language if len(a + b) <= longest}
        return out

    def expand(body: ast.Body) -> set[tuple[str, ...]]:
        match body:
            case ast.Step(name):
                return {(name,)}
            case ast.Sequence(items):
                return concatenate(*(expand(i) for i in items if not isinstance(i, ast.Absent)))
            case ast.Alternation(items):
                return set().union(*map(expand, items))
            case ast.Together(items):
                orders = itertools.permutations(map(expand, items))
                return set().union(*(concatenate(*order) for order in orders))
            case ast.Repeat(item, least, most):
                counts = range(least, (longest + least if most is None else most) + 1)
                return set().union(*(concatenate(*[expand(item)] * n) for n in counts))
        paths: set[tuple[tuple[str, ...], str]] = {((), body.initial)}
        for _ in range(longest):
            paths |= {
                ((*w, x.step), x.target) for w, at in paths for x in body.edges if x.source == at
            }
        return {
            word
            for word, state in paths
            if len(word) <= longest and (body.finals is None or state in body.finals)
        }

    def derive(rest: semantics.Rest, left: int) -> set[tuple[str, ...]]:
        out: set[tuple[str, ...]] = {()} if semantics.may_end(rest) else set()
        for _, step, after in semantics.firsts(rest) if left else ():
            out |= {(step, *word) for word in derive(after, left - 1)}
        return out

    judge, _ = _judge(rng)
    body = judge.pattern.body
    assert derive((body,), longest) == expand(body)


def test_guards_equal_on_probe_events_accept_the_same_events() -> None:
    same = 0

    @drawn(80, 5_000)
    def holds(rng: random.Random) -> None:
        nonlocal same
        judge, events = _judge(rng, without=("repeat",))
        steps = [step.name for step in judge.pattern.steps]
        for one, other in itertools.combinations(steps, 2):
            if judge.guards[one] == judge.guards[other]:
                continue
            try:
                alike = judge.same_guard(one, other)
            except semantics.TooManyProbesError:
                reject()  # more probe events than the oracle allows
            if alike:
                same += 1
                for event in events:
                    at = judge.moment(event, (), None)
                    assert judge.can_accept(judge.guards[one], at) == judge.can_accept(
                        judge.guards[other], at
                    )

    assert same > 10


def test_check_of_forked_events_depends_on_the_linear_extension() -> None:
    sensitive = parse(p("check A B C"))
    insensitive = parse(p("check {A & B} C"))
    verdicts = [semantics.judge(sensitive, "P", o) for o in semantics.linear_extensions(FORK)]
    assert sorted(len(v.violations) for v in verdicts) == [0, 1]
    verdicts = [semantics.judge(insensitive, "P", o) for o in semantics.linear_extensions(FORK)]
    assert [len(v.violations) for v in verdicts] == [0, 0]


def test_file_may_contain_several_patterns_and_comments() -> None:
    text = "/* two */ " + p("find A") + "// and\n" + p("find B").replace("pattern P", "pattern Q")
    both = [semantics.judge(parse(text), name, line("a b")).matches for name in "PQ"]
    assert [[steps[0][0] for _, steps, _ in found] for found in both] == [["A"], ["B"]]


def test_registered_guards_are_unknown_for_other_kinds() -> None:
    def positive(x: float) -> bool:
        return x > 0

    text = p("Y = positive(x)", "N2 = !positive(x)", "find any Y | N2", letters="event E = true;")
    events = (e("n@1", "t", x=1), e("n@2", "t", x=-1), e("n@3", "t", x="a"), e("n@4", "t"))
    outcome = semantics.judge(parse(text), "P", events, registered={"positive": positive})
    assert [steps for _, steps, _ in outcome.matches] == [
        (("Y", Dot("n", 1)),),
        (("N2", Dot("n", 2)),),
    ]


def test_integers_beyond_the_range_of_floats_are_numbers() -> None:
    huge = 10**400
    text = p("X = n > 1", "Y = n - X.n == 0", "find any X Y", letters="event E = true;")
    events = (e("n@1", "t", n=huge), e("n@2", "t", n=huge), e("n@3", "t", n=1))
    ((_, steps, _),) = semantics.judge(parse(text), "P", events).matches
    assert steps == (("X", Dot("n", 1)), ("Y", Dot("n", 2)))


def test_work_is_bounded_on_demand() -> None:
    file = parse(p("find any A*B", order="CausalOrder"))
    events = [e(f"n{i}@1", "a") for i in range(9)] + [e("m@1", "b")]
    with pytest.raises(semantics.TooLarge):
        semantics.judge(file, "P", events, work_max=1_000)


def test_oracle_ignores_limit() -> None:
    outcome = semantics.judge(parse(p("find any A", "limit 1")), "P", line("a a"))
    assert len(outcome.matches) == 2
