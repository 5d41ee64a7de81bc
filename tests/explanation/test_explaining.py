"""Explanations against the definition: the evidence of guards, and the steps of runs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import ketal
from ketal import semantics
from ketal.engine.pattern_run import PatternRun
from ketal.engine.verdict_building import flat
from ketal.errors import PatternError
from ketal.explanation.explaining import explain_verdict, explanations
from ketal.explanation.guard_evidence import GuardEvidence
from ketal.explanation.judged_log import JudgedLog
from ketal.explanation.reasons import Explanation, StepReason
from ketal.explanation.views.space_time import ViewedLog, space_times
from ketal.grammar.bare_names import DeclaredNames
from ketal.grammar.printer import render, render_guard
from ketal.model import syntax
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import happened_before
from ketal.model.limits import Limits
from ketal.programs.program import Program
from tests.property.executions import execution
from tests.property.patterns import pattern_file
from tests.sampling import drawn, sample
from tests.work import counted_calls

LIMITS = Limits(explained_runs_max=10_000)
Dots = tuple[tuple[str, Dot], ...]


def _case(rng: random.Random, **knobs: Any) -> tuple[semantics._Judge, Program, list[Event]] | None:
    """Return a random pattern, as syntax and compiled, and an execution."""
    knobs["without"] = (*knobs.get("without", ()), "params")  # they are values in a reason
    file = pattern_file(rng, **knobs)
    events = execution(rng, events_max=7, nodes_max=3)
    try:
        program = ketal.compile(render(file), limits=LIMITS)
    except PatternError:
        return None
    return semantics._Judge(file, file.patterns[0], {}, {}, 20_000), program, events


# --- what decides a guard -----------------------------------------------------


def _literals(guard: syntax.Guard, guards: Any) -> Iterator[Any]:
    """Yield the literals of a guard; for `Causal` and `Conc`, the relation without its guard."""
    match guard:
        case syntax.And(operands) | syntax.Or(operands):
            for operand in operands:
                yield from _literals(operand, guards)
        case syntax.Not(operand):
            yield from _literals(operand, guards)
        case syntax.Name(name):
            yield from _literals(guards[name], guards)
        case syntax.Causal(inner, _) | syntax.Conc(inner, _):
            yield from _literals(inner, guards)
            yield guard
        case _:
            yield guard


def _value(guard: syntax.Guard, guards: Any, truths: Any) -> bool | None:
    """Return the truth of a guard from the truths of its literals."""
    match guard:
        case syntax.And(operands):
            return semantics._kleene_and(_value(g, guards, truths) for g in operands)
        case syntax.Or(operands):
            return semantics._kleene_or(_value(g, guards, truths) for g in operands)
        case syntax.Not(operand):
            return semantics._kleene_not(_value(operand, guards, truths))
        case syntax.Name(name):
            return _value(guards[name], guards, truths)
        case syntax.Causal(inner, _) | syntax.Conc(inner, _):
            return semantics._kleene_and([_value(inner, guards, truths), truths[guard]])
    truth: bool | None = truths[guard]
    return truth


def _truth(evidence: GuardEvidence, literal: Any, at: semantics.Moment) -> bool | None:
    if isinstance(literal, syntax.Causal | syntax.Conc):
        literal = type(literal)(syntax.Truth(True), literal.anchor)
    truth: bool | None = evidence.truth(literal, at)
    return truth


def test_evidence_decides_the_guard_whatever_the_other_literals_are() -> None:
    decided = {True: 0, False: 0}

    @drawn(40, 3_000)
    def holds(rng: random.Random) -> None:
        case = _case(rng, without=("deployment", "localhost"))
        if case is None:
            return
        _, program, events = case
        (compiled,) = program.compiled
        evidence = GuardEvidence(compiled)
        steps = dict(compiled.guards)
        history: semantics.History = ()
        for event in events:
            for name, guard in steps.items():
                held, found = evidence.decide(guard, event, history)
                at = evidence.moment(event, history, None)
                assert held == (evidence.truth(guard, at) is True)
                literals = list(_literals(guard, evidence.guards))
                named = {one.guard for one in found}
                truths = {}
                for literal in literals:
                    written = {evidence.text(literal), evidence.text(syntax.Not(literal))}
                    known = bool(named & written)
                    truths[literal] = (
                        _truth(evidence, literal, at) if known else rng.choice((True, False, None))
                    )
                assert (_value(guard, evidence.guards, truths) is True) == held, (name, found)
                assert all(one.holds for one in found) == held
                decided[held] += 1
            history = (*history, (rng.choice(list(steps)), event))

    assert min(decided.values()) > 100


def test_evidence_of_a_false_guard_is_its_failing_literals() -> None:
    (compiled,) = ketal.compile(
        """pattern P { order CausalOrder; event A = type == "a"; event B = type == "b";
             X = A; Y = (B && !(x == 1)) || (B && Conc(B, X)); find any X Y; }"""
    ).compiled
    evidence = GuardEvidence(compiled)
    x = Event(node="n", type="a", clock={"n": 1})
    y = Event(node="m", type="b", clock={"m": 1, "n": 1}, data={"x": 1})
    held, found = evidence.decide(dict(compiled.guards)["Y"], y, (("X", x),))
    assert not held
    assert [str(one) for one in found] == [
        "!(x == 1) fails: x is 1",
        "Conc(B, X) fails: m@1 is after n@1: m@1 knows n:1 >= 1",
    ]
    held, found = evidence.decide(dict(compiled.guards)["Y"], y, ())
    assert [str(one) for one in found] == [
        'type == "b" holds: type is "b"',
        "Conc(B, X) holds: the step has no event yet",
    ]


def test_unknown_comparison_names_its_values() -> None:
    (compiled,) = ketal.compile('pattern P { event A = x < 3 || y == "b"; check A*; }').compiled
    event = Event(node="n", type="t", clock={"n": 1}, data={"x": "two"})
    held, found = GuardEvidence(compiled).decide(syntax.Name("A"), event, ())
    assert not held
    assert [str(one) for one in found] == [
        'x < 3 is unknown: x is "two", values of these kinds cannot be compared',
        'y == "b" is unknown: y is absent',
    ]


# --- what the runs had taken --------------------------------------------------


def _is_taken(one: ketal.Explanation) -> bool:
    """Return whether a run accepts the explained event."""
    return any(step.holds for run in one.runs for step in run.steps or ())


def _dots(bound: semantics.History) -> Dots:
    return tuple((step, event.dot) for step, event in bound)


def _scope_of(
    judge: semantics._Judge, order: list[Event], explained: Explanation
) -> semantics._Scope:
    """Return the scope of an explanation, as `ketal.semantics` has it."""
    wanted = _kinds((explained.scope or {}).items())
    (scope,) = [one for one in judge.scopes(order) if _kinds(one.name) == wanted]
    return scope


def _kinds(scope: Any) -> list[Any]:
    # 1 and true are two scopes.
    return sorted((name, type(value).__name__, str(value)) for name, value in scope)


def _readings(scope: semantics._Scope, dot: Dot) -> list[semantics.Configuration]:
    """Return the configurations of a check before an event; empty if it had ended."""
    policy = scope.judge.pattern.violation_policy
    run = [scope.start]
    for event in scope.offered:
        if event.dot == dot:
            return run
        after = [c for here in run for c in scope.successors(here, event)]
        if not after and policy == "halt":
            return []
        if not after and policy == "resume":
            after = scope.successors(scope.start, event) or [scope.start]
        run = after or run
    raise AssertionError(f"{dot} was not offered")


def _at(scope: semantics._Scope, bound: Dots) -> semantics.Configuration:
    """Return the configuration that a sequence of steps leads to."""
    events = {event.dot: event for event in scope.offered}
    here = scope.start
    for number, (_, dot) in enumerate(bound):
        (here,) = [
            after
            for after in scope.successors(here, events[dot])
            if _dots(after.bound) == bound[: number + 1]
        ]
    return here


def _first_failing(judge: semantics._Judge, guard: Any, at: Any, wanted: bool) -> Any:
    """Return the first literal in the text of the pattern whose truth is not the wanted one."""
    match guard:
        case syntax.Name(name):
            return _first_failing(judge, judge.guards[name], at, wanted)
        case syntax.Not(operand):
            return _first_failing(judge, operand, at, not wanted)
        case syntax.And(operands) | syntax.Or(operands):
            wrong = [g for g in operands if judge.truth(g, at) is not wanted]
            return _first_failing(judge, wrong[0], at, wanted)
        case syntax.Causal(inner, _) | syntax.Conc(inner, _):
            if judge.truth(inner, at) is not wanted:
                return _first_failing(judge, inner, at, wanted)
    return guard


def _agrees(scope: semantics._Scope, reason: StepReason, here: semantics.Configuration) -> bool:
    """Return whether the definition agrees with the reason of a step."""
    judge, event = scope.judge, reason.event.event
    guard = judge.guards[reason.step]
    if reason.holds != any(c.bound[-1][0] == reason.step for c in scope.successors(here, event)):
        return False
    at = judge.moment(event, here.bound, scope.node)
    if judge.truth(guard, at) is not True:
        literal = _first_failing(judge, guard, at, True)
        names = DeclaredNames(declared=frozenset(judge.guards))
        either = literal, syntax.Not(literal)
        return reason.failed[0].guard in {render_guard(one, names) for one in either}
    return reason.holds or reason.failed[0].guard.startswith(("not ", "within "))


@pytest.mark.parametrize("kind", ["check", "strict", "next", "any"])
def test_explained_runs_of_an_event_equal_those_of_the_oracle(kind: str) -> None:
    knobs: dict[str, Any] = {"kind": "check"} if kind == "check" else {"strategy": kind}
    explained = {"runs": 0, "taken": 0, "refused": 0}

    @drawn(80, 3_000)
    def holds(rng: random.Random) -> None:
        case = _case(rng, **knobs)
        if case is None:
            return
        judge, program, events = case
        order = semantics.canonical_order(events) if judge.causal else events
        event = rng.choice(events) if events else None
        if event is None:
            return
        try:
            for one in explanations(JudgedLog(program, events, event=event.dot)):
                _holds_of(judge, order, one, event, kind, explained)
        except semantics.TooLarge:
            return

    assert min(explained.values()) > 15, explained


def _holds_of(
    judge: semantics._Judge,
    order: list[Event],
    one: Explanation,
    event: Event,
    kind: str,
    explained: dict[str, int],
) -> None:
    if one.scope is None:
        for scope in judge.scopes(order):
            assert event.dot not in {x.dot for x in scope.offered}
        return
    scope = _scope_of(judge, order, one)
    found = {tuple((s, e.dot) for s, e in run.taken): run for run in one.runs}
    if kind == "check":
        readings = _readings(scope, event.dot)
        assert bool(readings) == bool(found)
        assert found.keys() <= {_dots(here.bound) for here in readings}
    if kind == "any":
        assert len(found) == len(one.runs)
        assert found.keys() == set(_partial(scope, event))
    for bound, run in found.items():
        at = readings if kind == "check" else [_at(scope, bound)]
        for reason in run.steps or ():
            # Equivalent readings are one run of a check, of which one reading is shown.
            expecting = [here for here in at if reason.step in scope.expected([here])]
            assert any(_agrees(scope, reason, here) for here in expecting)
            explained["refused"] += not reason.holds
        explained["runs"] += 1
        explained["taken"] += bool(bound)


def _partial(scope: semantics._Scope, event: Event) -> Iterator[Dots]:
    """Yield the partial matches of a `find any` that an event could continue."""
    stack = [scope.start]
    while stack:
        here = stack.pop()
        events = [x for _, x in here.bound]
        if not all(not scope._too_late(event, x) for x in events):
            continue
        if here.bound and not scope.fits([*events, event]):
            continue
        if not any(semantics.firsts(rest) for rest in here.rests):
            continue
        yield _dots(here.bound)
        for x in scope.offered:
            if x.dot != event.dot and not any(scope._too_late(x, y) for y in events):
                stack += scope.successors(here, x)


def test_every_verdict_is_explained() -> None:
    kinds = {"match": 0, "violation": 0, "incomplete": 0, "timed_out": 0}
    # One of the cases visits hundreds of thousands of events.
    limits = replace(LIMITS, visits_max=sample(5_000, LIMITS.visits_max))

    @drawn(150, 3_000)
    def holds(rng: random.Random) -> None:
        case = _case(rng)
        if case is None:
            return
        _, program, events = case
        judged = JudgedLog(program, events, limits)
        plain = ketal.run(program, events, limits=limits)
        assert judged.verdicts == list(plain)
        assert judged.summary == plain.summary
        for one in explanations(judged, first=20):
            if one.verdict is None:
                # A near miss of a find without a match.
                assert not any(verdict.kind == "match" for verdict in judged.verdicts)
                continue
            kinds[one.verdict.kind] += 1
            assert str(one).startswith(str(one.verdict))
            assert all(step.holds for step in one.steps)
            if one.verdict.kind == "violation":
                assert one.runs
                assert not _is_taken(one)
            for pair in one.pairs:
                _is_witness(pair)

    assert min(kinds.values()) > 10, kinds


@pytest.mark.parametrize("mode", ["possibly", "definitely"])
def test_order_that_explains_a_mode_gives_the_verdict(mode: str) -> None:
    explained = {"match": 0, "violation": 0}

    @drawn(60, 3_000)
    def holds(rng: random.Random) -> None:
        file = pattern_file(rng, order="causal", without=("params",))
        (pattern,) = file.patterns
        returns = None if pattern.returns is None or pattern.returns.count else pattern.returns
        pattern = replace(pattern, mode=mode, returns=returns)  # type: ignore[arg-type]
        events = execution(rng, events_max=6, nodes_max=3)
        try:
            program = ketal.compile(render(replace(file, patterns=(pattern,))))
        except PatternError:
            return
        judged = JudgedLog(program, events)
        for one in explanations(judged, first=3):
            verdict = one.verdict
            assert isinstance(verdict, ketal.Match | ketal.Violation)
            explained[verdict.kind] += 1
            order = [placed.event for placed in one.extension]
            _is_linear_extension(order, events)
            run = PatternRun(program.compiled[0], LIMITS)
            found = [v for event in order for v in flat(run.process((event,)))]
            given = [v for v in found if isinstance(v, type(verdict))]
            assert verdict.scope in [v.scope for v in given]
            if isinstance(verdict, ketal.Violation):
                assert verdict in given
                assert not _is_taken(one)
            assert all(step.holds for step in one.steps)
            assert str(one).startswith(str(verdict))

    assert min(explained.values()) > 10, explained


def _is_linear_extension(order: list[Event], events: list[Event]) -> None:
    """Assert that no event comes before an event of its past."""
    assert len({event.dot for event in order}) == len(order)
    assert {event.dot for event in order} <= {event.dot for event in events}
    for above, below in itertools.combinations(order, 2):
        assert not happened_before(below, above)


def _is_witness(pair: Any) -> None:
    """Check the path of a pair, or the last known events, against happened-before."""
    first, second = pair.first.event, pair.second.event
    if pair.order == "concurrent":
        assert not happened_before(first, second)
        assert not happened_before(second, first)
        for last, by in zip(pair.known, (second, first), strict=True):
            assert last is None or happened_before(last.event, by)
        return
    ends = (first, second) if pair.order == "before" else (second, first)
    assert happened_before(*ends)
    path = pair.path
    assert (path[0].source.event, path[-1].target.event) == ends
    for link, after in itertools.pairwise(path):
        assert link.target == after.source
    assert all(happened_before(link.source.event, link.target.event) for link in path)


# --- by hand ------------------------------------------------------------------

SESSION = """\
pattern Session { order CausalOrder; partition by token;
  event Login = type == "login"; event Use = type == "use";
  L = Login; U = Causal(Use, L);
  check (L U*)*;
}
"""


def _event(dot: str, type_: str, *known: str, **data: Any) -> Event:
    node, counter = dot.split("@")
    clock = {node: int(counter)} | {n: int(c) for n, c in (k.split(":") for k in known)}
    return Event(node=node, type=type_, clock=clock, data=data)


def test_violation_is_explained_by_the_taken_steps_and_failed_guards() -> None:
    log = [_event("a@1", "login", token=1), _event("b@1", "use", token=1)]
    (one,) = ketal.explain(ketal.compile(SESSION), log)
    assert list(one.lines()) == [
        "violation Session (token=1): b@1 use: expected L or U; "
        "not U: it is not causally after L (a@1)",
        "  in q1, after:",
        "    L = a@1 login",
        '    it does not satisfy L: type == "login" fails: type is "use"',
        "    it does not satisfy U: Causal(Use, L) fails: a@1 and b@1 are concurrent: "
        "b@1 knows a:0 < 1, a@1 knows b:0 < 1",
    ]
    assert one.to_dict()["runs"][0]["taken"] == [{"step": "L", "event": "a@1", "type": "login"}]


def test_violation_says_that_its_event_and_the_one_before_it_are_concurrent() -> None:
    program = ketal.compile(
        'pattern Turns { order CausalOrder; event Take = type == "take"; '
        'event Free = type == "free"; check (Take Free)*; on violation skip; }'
    )
    log = [_event("a@1", "take"), _event("b@1", "take"), _event("b@2", "take", "a:1")]
    concurrent, ordered, _ = ketal.explain(program, log)
    order = "a@1 and b@1 are concurrent: b@1 knows a:0 < 1, a@1 knows b:0 < 1"
    assert concurrent.statements == (order,)
    assert list(concurrent.lines())[:2] == [
        "violation Turns: b@1 take: expected Free",
        f"  {order}",
    ]
    assert concurrent.to_dict()["statements"] == [order]
    assert isinstance(ordered.verdict, ketal.Violation)
    assert ordered.verdict.event == ketal.Dot("b", 2)
    assert ordered.statements == ()


def test_explaining_a_violation_costs_nothing_for_the_events_that_were_skipped_before() -> None:
    program = ketal.compile(
        'pattern Turns { event Take = type == "take"; event Free = type == "free"; '
        "check (Take Free)*; on violation skip; }"
    )
    work = []
    for skipped in (10, 1_000):
        log = [_event(f"a@{n}", "take") for n in range(1, skipped + 2)]
        judged = JudgedLog(program, log, moves_max=0)
        first, *_, last = judged.explainable
        explain_verdict(judged, first)  # indexes the log
        explanation, calls = counted_calls(partial(explain_verdict, judged, last))
        assert [str(one.event.dot) for _, one in explanation.runs[0].taken] == ["a@1"]
        work.append(calls)
    assert work[1] < 1.5 * work[0]


@pytest.mark.parametrize("body", ["A Last", "A not N Last"])
def test_explaining_a_match_costs_nothing_for_the_other_events_of_its_scope(body: str) -> None:
    program = ketal.compile(
        'pattern P { order CausalOrder; event A = type == "a"; event B = type == "b"; '
        f'event N = type == "n"; Last = Causal(B, A); find any {body}; }}'
    )
    work = []
    for others in (10, 1_000):
        ends = ("a", "b", "a", "b")
        types = [*ends[:2], *("b" for _ in range(others)), *ends[2:]]
        log = [_event(f"a@{n}", kind) for n, kind in enumerate(types, 1)]
        judged = JudgedLog(program, log, moves_max=0)
        first, *_, last = judged.explainable
        explain_verdict(judged, first)  # indexes the log
        explanation, calls = counted_calls(partial(explain_verdict, judged, last))
        assert str(explanation.steps[0].event.event.dot) == f"a@{len(types) - 1}"
        work.append(calls)
    assert work[1] < 1.5 * work[0]


def test_explaining_a_verdict_of_a_mode_costs_nothing_for_other_scopes() -> None:
    program = ketal.compile("""pattern P {
        mode definitely; order CausalOrder; partition by key; event A = type == "a";
        event B = type == "b"; Last = Causal(B, A); find any A Last; }""")
    work = []
    for others in (5, 100):
        log = [
            Event(node="n", type="ab"[n % 2], clock={"n": n + 1}, data={"key": n // 2})
            for n in range(2 * others + 4)
        ]
        judged = JudgedLog(program, log, moves_max=0)
        first, *_, last = judged.explainable
        explain_verdict(judged, first)  # collects the events of each scope
        explanation, calls = counted_calls(partial(explain_verdict, judged, last))
        assert [str(one.event.dot) for one in explanation.extension] == [
            f"n@{2 * others + 3}", f"n@{2 * others + 4}",
        ]  # fmt: skip
        work.append(calls)
    assert work[1] < 1.5 * work[0]


def test_uncertain_violation_of_a_mode_is_explained() -> None:
    program = ketal.compile("""pattern P {
        mode possibly; order CausalOrder(gap = 1 s); event A = type == "a"; check A?; }""")
    log = [Event("n", "a", {"n": counter}) for counter in (1, 3)]
    (explanation,) = ketal.explain(program, log)
    assert isinstance(explanation.verdict, ketal.Violation)
    assert not explanation.verdict.certain
    assert "nothing may follow" in str(explanation)


def test_verdict_is_selected_by_itself_its_id_or_a_prefix_of_the_id() -> None:
    program = ketal.compile(SESSION.replace("token", "key"))
    log = [_event(f"n{n}@1", "use", key=n) for n in range(40)]
    first, second, *_ = ketal.run(program, log).violations
    for name in (second, second.id, second.id[:12]):
        (one,) = ketal.explain(program, log, verdict=name)
        assert one.verdict == second != first
    with pytest.raises(ketal.SettingError, match="no verdict has an id that begins with 'x'"):
        ketal.explain(program, log, verdict="x")
    with pytest.raises(ketal.SettingError, match="the id is empty; list the ids of verdicts"):
        ketal.explain(program, log[:1], verdict="")
    ids = [one.id for one in ketal.run(program, log).violations]
    with pytest.raises(ketal.SettingError, match="verdicts have an id that begins with"):
        ketal.explain(program, log, verdict=_shared(ids))


def _shared(ids: list[str]) -> str:
    """Return a prefix that at least two ids share."""
    return next(a[0] for a, b in itertools.pairwise(sorted(ids)) if a[0] == b[0])


def test_missing_event_is_an_error_that_names_near_events() -> None:
    program = ketal.compile(SESSION)
    log = [_event("a@1", "login", token=1), _event("a@2", "use", token=1)]
    with pytest.raises(ketal.SettingError, match=r"the log has no event a@7; nearest in .* a@2$"):
        ketal.explain(program, log, event="a@7")
    with pytest.raises(ketal.SettingError, match=r"c@1: it has no node c; its nodes are a$"):
        ketal.explain(program, log, event=Dot("c", 1))
    with pytest.raises(ketal.SettingError, match=r"no node aa; did you mean a\?$"):
        ketal.explain(program, log, event="aa@1")
    for text in ("c", "a@", f"a@{'9' * 5_000}"):
        with pytest.raises(
            ketal.SettingError, match=f"'{text[:60]}' is not a dot; write node@counter"
        ):
            ketal.explain(program, log, event=text)
    with pytest.raises(ketal.SettingError, match="not both"):
        ketal.explain(program, log, event="a@1", verdict="abc")


def test_event_of_a_restarted_node_is_found_by_its_incarnation() -> None:
    program = ketal.compile(SESSION)
    again = Event(node="a", type="use", clock={"a": 2}, data={"token": 1, "incarnation": 2})
    log = [_event("a@1", "login", token=1), again]
    with pytest.raises(ketal.SettingError, match="a restarted; did you mean a#2@2"):
        ketal.explain(program, log, event="a@2")


def test_path_does_not_contain_an_event_of_another_incarnation() -> None:
    program = ketal.compile(
        'pattern P { event A = type == "a"; First = A; Second = A; find next First Second; }'
    )
    again = Event(node="n", type="b", clock={"n": 2}, data={"incarnation": 2})
    log = [_event("n@1", "a"), again, _event("n@3", "a")]
    (found,) = ketal.explain(program, log)
    (link,) = found.pairs[0].path
    assert (str(link.source.dot), str(link.target.dot), link.missing) == ("n@1", "n@3", 1)
    assert "n@1" in ketal.view(log, program).html


def test_every_literal_has_a_reason() -> None:
    """A literal that reads no value of the event once had an empty reason."""

    def odd(event: Event) -> bool | None:
        return None if event.data else True

    ketal.register_guard("is_odd", odd, version="1")
    program = ketal.compile("pattern P { event A = true; First = A && is_odd(); find any First; }")
    (found,) = ketal.explain(program, [_event("n@1", "a")])
    assert [str(one) for one in found.steps[0].evidence] == [
        "true holds: for every event",
        "is_odd() holds: the registered guard returned True",
    ]
    (near,) = ketal.explain(program, [_event("n@1", "a", x=1)], event="n@1")
    assert "is_odd() is unknown: the registered guard did not return True or False" in str(near)


def test_literal_that_a_guard_has_several_times_is_evidence_once() -> None:
    program = ketal.compile("""pattern P {
        order CausalOrder;
        event Write = type == "write";
        A = Write; B = Conc(Write); C = Conc(Write, A) && Conc(Write, B);
        find any A B C;
    }""")
    (found,) = ketal.explain(program, [_event(f"{node}@1", "write") for node in "abc"])
    assert [one.guard for one in found.steps[2].evidence] == [
        'type == "write"',
        "Conc(Write, A)",
        "Conc(Write, B)",
    ]


@pytest.mark.parametrize(
    ("text", "node", "statement"),
    [
        ("check A", "n", "the run had already ended at a violation (`on violation halt`)"),
        ('at host("m"); check A', "n", "it was not offered to any copy of the pattern"),
    ],
)
def test_event_that_no_step_was_tried_with_is_explained(
    text: str, node: str, statement: str
) -> None:
    program = ketal.compile(f"pattern P {{ order arrival; event A = true; {text}; }}")
    log = [_event("m@1", "a"), *(_event(f"{node}@{n}", "a") for n in (1, 2, 3))]
    (one,) = ketal.explain(program, log, event="n@3")
    assert one.statements == (statement,)


def test_event_that_a_topology_refuses_is_said_to_be_in_the_log() -> None:
    text = "order CausalOrder; topology { p -> q; } event A = true; check A;"
    program = ketal.compile(f"pattern P {{ {text} }}")
    with pytest.raises(
        ketal.SettingError,
        match=r"no run was offered r@1: it is in the log, but was late or refuse",
    ):
        ketal.explain(program, [_event("p@1", "a"), _event("r@1", "a")], event="r@1")


def test_event_offered_to_no_scope_is_explained() -> None:
    program = ketal.compile(SESSION)
    log = [_event("a@1", "logn", token=1), _event("a@2", "use")]
    (one,) = ketal.explain(program, log, event="a@1")
    assert list(one.lines()) == [
        "Session: a@1 logn",
        "  it is not an event of the pattern:",
        '    type == "login" fails: type is "logn"',
        '    type == "use" fails: type is "logn"',
    ]
    (one,) = ketal.explain(program, log, event="a@2")
    assert one.statements == ("it lacks the time that `within` needs, or a key of `partition by`",)


def test_explanation_names_barring_events_and_the_window() -> None:
    program = ketal.compile(
        """pattern P { order CausalOrder; event A = type == "a"; event B = type == "b";
             event N = type == "n"; find any A not N B; within 10 s; }"""
    )
    log = [
        ketal.Event(node="m", type=kind, clock={"m": n}, time=n * 6)
        for n, kind in enumerate(["a", "b", "n", "b"], 1)
    ]
    (match,) = ketal.explain(program, log)
    assert [str(one) for one in match.steps[1].evidence] == [
        'type == "b" holds: type is "b"',
        "not N holds: the pattern has no event between m@1 and m@2",
        "within 10 s holds: m@2 is 6 s after m@1",
    ]
    (one,) = ketal.explain(program, log, event="m@3")
    assert not _is_taken(one)
    near = [ketal.Event(node="m", type=kind, clock={"m": n}, time=n)
            for n, kind in enumerate(["a", "n", "b"], 1)]  # fmt: skip
    (one,) = ketal.explain(program, near, event="m@3")
    (run,) = [run for run in one.runs if run.taken]
    assert [str(e) for e in (run.steps or ())[0].failed] == [
        "not N fails: m@2 n, between m@1 and m@3, satisfies the guard"
    ]


def test_explanations_of_an_event_name_the_execution() -> None:
    program = ketal.compile('pattern P { event A = type == "a"; find next A; }')
    log = ketal.Log(lambda: ((name, _event("m@1", "b"), "", 0) for name in ("one", "two")))
    heads = [next(iter(one.lines())) for one in ketal.explain(program, log, event="m@1")]
    assert [head.partition(":")[0] for head in heads] == ["[one] P", "[two] P"]


def test_partial_match_that_a_not_barred_is_not_continued() -> None:
    events = "".join(f'event {name} = type == "{name.lower()}"; ' for name in "ABCN")
    program = ketal.compile(f"pattern P {{ {events} find any A not N B C; }}")
    log = [_event(f"m@{n}", kind) for n, kind in enumerate("anbc", 1)]
    (one,) = ketal.explain(program, log, event="m@4")
    assert {step for run in one.runs for step, _ in run.taken} == {"A"}


def test_a_not_is_about_the_events_between_and_about_its_own_step() -> None:
    """k@1 is concurrent with m@2; after m@3, C is not barred, but B is."""
    events = "".join(f'event {name} = type == "{name.lower()}"; ' for name in "ABCN")
    program = ketal.compile(f"pattern P {{ order CausalOrder; {events} find any A not N B; }}")
    log = [_event("m@1", "a"), _event("k@1", "n", "m:1"), _event("m@2", "b")]
    (match,) = ketal.explain(program, log)
    because = "not N holds: the pattern has no event between m@1 and m@2"
    assert str(match.steps[1].evidence[-1]) == because
    program = ketal.compile(f"pattern P {{ {events} find next (A C | A not N B); }}")
    log = [_event("m@1", "a"), _event("m@2", "n"), _event("m@3", "b")]
    (one,) = ketal.explain(program, log, event="m@3")
    (run,) = [run for run in one.runs if run.taken]
    assert [(step.step, str(*step.failed)) for step in run.steps or ()] == [
        ("B", "not N fails: m@2 n, between m@1 and m@3, satisfies the guard"),
        ("C", 'type == "c" fails: type is "b"'),
    ]


def test_a_relation_to_all_events_fails_for_those_that_lack_it() -> None:
    program = ketal.compile(
        """pattern P { event A = type == "a"; event B = type == "b"; event C = type == "c";
             After = Causal(C, all); find next A B After; }"""
    )
    log = [_event("m@1", "a"), _event("k@1", "b"), _event("m@2", "c")]
    (one,) = ketal.explain(program, log, event="m@2")
    (run,) = [run for run in one.runs if run.taken]
    (failed,) = (run.steps or ())[0].failed
    assert str(failed).startswith("Causal(C, all) fails: k@1 and m@2 are concurrent")


def test_lengths_of_time_are_exact() -> None:
    program = ketal.compile(
        'pattern P { event A = type == "a"; event B = type == "b"; find next A B; within 12 d; }'
    )
    log = [
        ketal.Event(node="m", type=kind, clock={"m": n}, time=time)
        for n, (kind, time) in enumerate([("a", 0), ("b", 1_036_799.999998), ("a", 1_036_800)], 1)
    ]
    match, timed_out = ketal.explain(program, log)
    because = "within 12 d holds: m@2 is 1036799.999998 s after m@1"
    assert str(match.steps[1].evidence[-1]) == because
    assert timed_out.statements == ("the window `within 12 d` ended before a match; expected B",)


def test_window_of_events_at_one_time_names_the_first_and_the_last() -> None:
    program = ketal.compile(
        'pattern P { event A = type == "a"; event B = type == "b"; find next A B; within 1 s; }'
    )
    log = [
        ketal.Event(node="m", type=kind, clock={"m": n}, time=1) for n, kind in enumerate("ab", 1)
    ]
    (match,) = ketal.explain(program, log)
    because = "within 1 s holds: m@2 is 0 s after m@1"
    assert str(match.steps[1].evidence[-1]) == because


@pytest.mark.parametrize("strategy", ["next", "any"])
def test_a_window_that_timed_out_names_the_steps_that_were_expected(strategy: str) -> None:
    program = ketal.compile(
        f"""pattern P {{ event A = type == "a"; event B = type == "b"; event C = type == "c";
             find {strategy} A (B | C) A; within 10 s; }}"""
    )
    log = [ketal.Event(node="m", type="a", clock={"m": 1}, time=0)]
    one, *_ = ketal.explain(program, log)
    assert one.statements == ("the window `within 10 s` ended before a match; expected B or C",)


@pytest.mark.parametrize(
    ("between", "because"),
    [
        ("", "the pattern has no event between m@1 and m@2"),
        ("c", "m@2, between m@1 and m@3, does not satisfy the guard"),
        ("cc", "none of the pattern's 2 events between m@1 and m@4 satisfies the guard"),
    ],
)
def test_the_events_that_a_not_does_not_exclude_are_counted(between: str, because: str) -> None:
    program = ketal.compile(
        """pattern P { event A = type == "a"; event B = type == "b"; event C = type == "c";
             event N = type == "n"; find next A not N B; }"""
    )
    log = [_event(f"m@{n}", kind) for n, kind in enumerate(f"a{between}b", 1)]
    (match,) = ketal.explain(program, log)
    assert f"not N holds: {because}" in [str(one) for one in match.steps[1].evidence]


@pytest.mark.parametrize("mode", ["possibly", "definitely"])
def test_match_of_a_mode_is_explained_by_the_events_of_its_order(mode: str) -> None:
    program = ketal.compile(
        f"""pattern P {{ mode {mode}; order CausalOrder; event A = type == "a";
             event B = type == "b"; event C = type == "c"; event N = type == "n";
             find next A not N B; within 5 events; }}"""
    )
    log = [_event(f"m@{n}", kind) for n, kind in enumerate("acb", 1)]
    (match,) = ketal.explain(program, log)
    assert [str(one) for one in match.steps[1].evidence[1:]] == [
        "not N holds: m@2, between m@1 and m@3, does not satisfy the guard",
        "within 5 events holds: m@3 is 2 events after m@1",
    ]


@pytest.mark.parametrize("strategy", ["next", "any"])
def test_events_of_an_earlier_scope_of_the_same_key_explain_nothing(strategy: str) -> None:
    program = ketal.compile(
        f"""pattern P {{ order arrival; partition by key; event A = type == "a";
             event B = type == "b"; event C = type == "c"; event N = type == "n";
             find {strategy} A not N B; within 3 events; }}"""
    )
    # The first scope is over after m@4, at the latest.
    log = [_event(f"m@{n}", kind, key=1) for n, kind in enumerate("acnccacb", 1)]
    *_, match = ketal.explain(program, log)
    assert [str(one) for one in match.steps[1].evidence[1:]] == [
        "not N holds: m@7, between m@6 and m@8, does not satisfy the guard",
        "within 3 events holds: m@8 is 2 events after m@6",
    ]
    (one,) = ketal.explain(program, log, event="m@8")
    assert [[str(event.event.dot) for _, event in run.taken] for run in one.runs] == [["m@6"], []]


def test_explained_runs_beyond_the_limit_name_it() -> None:
    program = ketal.compile(
        'pattern P { event A = type == "a"; event B = type == "b"; find any A A B; }',
        limits=Limits(explained_runs_max=5),
    )
    log = [_event(f"n@{n}", "a") for n in range(1, 30)]
    (one,) = ketal.explain(program, log, event="n@29")
    assert len(one.runs) == 5
    assert one.statements[-1] == "stopped after 5 runs (limit explained_runs_max)"


def test_events_for_which_there_is_no_room_change_no_reading() -> None:
    text = 'event A = type == "a"; event B = type == "b"; check (A B)*;'
    program = ketal.compile(f"pattern P {{ partition by k; {text} }}")
    log = [
        Event(node="n", type=kind, clock={"n": count}, data={"k": key})
        for count, (kind, key) in enumerate([("a", 1), ("b", 1), ("a", 2), ("a", 1), ("b", 1)], 1)
    ]
    for dot in ("n@4", "n@5"):
        (one,) = ketal.explain(program, log, event=dot, limits=Limits(scopes_max=1))
        assert "limit scopes_max" in one.statements[0]
        taken = [(step, event.dot) for step, event in one.runs[0].taken]
        assert taken == [("A", Dot("n", 1)), ("B", Dot("n", 2))]


def test_path_longer_than_the_limit_is_replaced_by_the_limits_name() -> None:
    program = ketal.compile(
        """pattern P { order CausalOrder; event A = type == "a"; event B = type == "b";
                       find any A B; }""",
        limits=Limits(path_links_max=3),
    )
    log = [_event("n@1", "a"), *(_event(f"n@{n}", "b") for n in range(2, 6))]
    *short, long = ketal.explain(program, log)
    assert [len(pair.path) for one in short for pair in one.pairs] == [1, 2, 3]
    assert str(long).splitlines()[3:5] == [
        "  n@5 is after n@1: on n, 5 > 1",
        "    the shortest path has more than 3 links (limit path_links_max)",
    ]
    (pair,) = long.to_dict()["pairs"]
    assert (pair["path"], pair["limit"]) == ([], "path_links_max")
    assert "limit" not in short[0].to_dict()["pairs"][0]
    # A diagram of a few events has no space for the path, and the page has the same text.
    (view,) = space_times(
        ViewedLog(log, Limits(path_links_max=3)), program, Limits(path_links_max=3)
    )
    assert [len(verdict["paths"]) for verdict in view.verdicts] == [1, 1, 1, 0]


def test_steps_of_a_long_run_are_computed_on_demand() -> None:
    """The steps may be as many as the events, and every event may be a violation."""
    program = ketal.compile(
        'pattern P { on violation skip; event A = type == "a"; event B = type == "b"; check A+; }'
    )
    log = [_event(f"n@{n}", "ab"[n % 2]) for n in range(1, 4_001)]
    judged = JudgedLog(program, log)
    assert len(judged.explainable) == 2_000
    (run,) = judged.runs
    runs = [live for offer in run.observed.violated.values() for live in offer.live]
    assert not any(live.read.cache_info().currsize for live in runs)
    (live,) = explain_verdict(judged, judged.explainable[-1]).runs
    assert len(live.taken) == 1_999


def _calls(judged: JudgedLog) -> int:
    """Return the number of function calls to explain all verdicts of a log."""
    verdicts = len(judged.explainable)
    explained, calls = counted_calls(lambda: explanations(judged, first=verdicts))
    assert len(explained) == verdicts
    return calls


def _violating(events: int) -> JudgedLog:
    """Judge a log in which every event violates the pattern in each copy that learns of it."""
    program = ketal.compile(
        'pattern P { at every node; event A = type == "a"; event B = type == "b"; '
        "check (A B)*; on violation resume; }"
    )
    log = []
    for number in range(1, events // 2 + 1):
        log.append(ketal.Event(node="m", type="b", clock={"m": number}))
        log.append(ketal.Event(node="n", type="b", clock={"m": number, "n": number}))
    judged = JudgedLog(program, log)
    assert len(judged.explainable) == events // 2 * 3, "n learns of each event of m"
    return judged


def test_cost_of_an_explanation_does_not_grow_with_the_number_of_verdicts() -> None:
    assert _calls(_violating(400)) < 5 * _calls(_violating(100))


@pytest.mark.parametrize(("links", "shown"), [(8, 8), (9, 9), (10, 9), (11, 9)])
def test_links_are_left_out_only_if_that_leaves_fewer_lines(links: int, shown: int) -> None:
    program = ketal.compile(
        f"pattern P {{ order CausalOrder; event Begin = n == 0; event End = n == {links}; "
        "A = Begin; B = Causal(End); find any A B; }"
    )
    log = [Event("a", "e", {"a": n + 1}, data={"n": n}) for n in range(links + 1)]
    (explanation,) = ketal.explain(program, log)
    lines = str(explanation).splitlines()
    assert sum(line.strip().startswith(("then a@", "…")) for line in lines) == shown
    assert not any("… 1 more" in line for line in lines)
