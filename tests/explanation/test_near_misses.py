"""Explanations of a `find` without a match, against the definition of the language."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

import ketal
from ketal import semantics
from ketal.errors import PatternError
from ketal.explanation.guard_evidence import GuardEvidence
from ketal.explanation.judged_log import JudgedLog
from ketal.explanation.near_misses import near_misses
from ketal.explanation.reasons import Explanation
from ketal.explanation.step_reasons import StepReasons
from ketal.grammar import parse
from ketal.model import syntax
from ketal.model.events.event import Event
from ketal.model.events.happened_before import happened_before
from ketal.model.limits import Limits
from tests.property.executions import execution
from tests.sampling import drawn


def _near(program: ketal.Program, events: list[Event]) -> Explanation | None:
    return next(near_misses(JudgedLog(program, events)), None)


def _furthest(file: syntax.File, events: list[Event]) -> int:
    """Return the length in blocks of the longest prefix with a match, by the definition."""
    (pattern,) = file.patterns
    assert isinstance(pattern.body, syntax.Sequence)
    items = pattern.body.items
    for length in range(len(items), 0, -1):
        if isinstance(items[length - 1], syntax.Absent):
            continue
        one = replace(pattern, body=syntax.Sequence(items[:length]), returns=None)
        if semantics.judge(replace(file, patterns=(one,)), "P", events, work_max=20_000).matches:
            return length
    return 0


def _pattern(rng: random.Random) -> str:
    """Return a find of two to four steps, some related to the one before, perhaps with a `not`."""
    names = ["P", "Q", "R", "S"][: rng.randint(2, 4)]
    lines, body = [], names[:1]
    for before, name in zip(["", *names], names, strict=False):
        guard = rng.choice(("A", "B", "C", "A || B"))
        if before:
            body += [f"not {rng.choice('ABC')}"] * (rng.random() < 0.2)
            body.append(name)
            guard = rng.choice((guard, f"Causal({guard})", f"Conc({guard})"))
            guard = f"({guard}) && x == {before}.x" if rng.random() < 0.3 else guard
        lines.append(f"{name} = {guard};")
    events = "".join(f'event {letter} = type == "S.{letter.lower()}"; ' for letter in "ABC")
    order = rng.choice(("order CausalOrder; ", ""))
    strategy = rng.choice(("any", "any", "next", "strict"))
    return f"pattern P {{ {order}{events}{' '.join(lines)} find {strategy} {' '.join(body)}; }}"


def test_near_miss_includes_events_declared_through_another_event() -> None:
    text = """
event Ready = x == 1;
event First = Ready && type == "a";
pattern P { event B = type == "b"; find any First B; }
"""
    log = [Event("n", "a", {"n": 1}, data={"x": 1}), Event("n", "c", {"n": 2})]
    near = _near(ketal.compile(text), log)
    assert near is not None
    assert "n@1" in str(near)


def test_near_miss_is_the_longest_run_and_near_events_fail_its_next_step() -> None:
    met = [0, 0, 0]

    @drawn(80, 8_000)
    def holds(rng: random.Random) -> None:
        text = _pattern(rng)
        file = parse(text)
        body = file.patterns[0].body
        assert isinstance(body, syntax.Sequence)
        events = execution(rng, events_min=1, events_max=7, nodes_max=3, linear=True)
        try:
            program = ketal.compile(text)
            furthest = _furthest(file, events)
        except (PatternError, semantics.TooLarge):
            return
        near = _near(program, events)
        if near is None:
            assert furthest == len(body.items) or not ketal.run(program, events).summary["events"]
            return
        assert furthest < len(body.items)
        (run,) = near.runs
        assert len(run.taken) == sum(isinstance(x, syntax.Step) for x in body.items[:furthest])
        met[min(len(run.taken), 2)] += 1
        (compiled,) = program.compiled
        evidence = GuardEvidence(compiled)
        taken: semantics.History = ()
        for step, placed in run.taken:
            assert evidence.decide(dict(compiled.guards)[step], placed.event, taken)[0]
            taken = (*taken, (step, placed.event))
        for one in near.near:
            assert not one.holds
            assert one.failed
            assert one.event.event not in [event for _, event in taken]
            if program.needs_order:
                assert not any(happened_before(one.event.event, event) for _, event in taken)

    assert min(met) > 5, met


LATE = """
pattern Late {
    order CausalOrder;
    event Expire = type == "expire"; event Write = type == "write";
    Ended = Expire; Late = Conc(Write) && worker == Ended.worker;
    find any Ended Late;
}
"""


def _log() -> list[Event]:
    ann, bob = {"worker": "ann"}, {"worker": "bob"}
    return [
        Event(node="s", type="expire", clock={"s": 1}, data=ann),
        Event(node="a", type="write", clock={"a": 1, "s": 1}, data=ann),
        Event(node="b", type="write", clock={"b": 1}, data=bob),
        Event(node="c", type="write", clock={"c": 1, "s": 1}, data=bob),
    ]


def test_nearest_events_are_listed_first_with_their_reasons() -> None:
    (explanation,) = ketal.explain(ketal.compile(LATE), _log())
    assert str(explanation).splitlines() == [
        "Late: no match",
        "  in q1, after:",
        "    Ended = s@1 expire",
        "  closest candidates for the next step:",
        '    b@1 write does not satisfy Late: worker == Ended.worker fails: worker is "bob", '
        'Ended.worker is "ann"',
        "    a@1 write does not satisfy Late: Conc(Write) fails: "
        "a@1 is after s@1: a@1 knows s:1 >= 1",
        "    c@1 write does not satisfy Late: Conc(Write) fails: "
        "c@1 is after s@1: c@1 knows s:1 >= 1",
    ]
    assert [one["event"] for one in explanation.to_dict()["near"]] == ["b@1", "a@1", "c@1"]


def test_events_before_a_candidate_are_searched_once_for_a_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[str] = []
    between = StepReasons._between

    def counting(self: StepReasons, prior: Event, event: Event) -> Iterable[Event]:
        searched.append(str(event.dot))
        return between(self, prior, event)

    monkeypatch.setattr(StepReasons, "_between", counting)
    program = ketal.compile(LATE.replace("Ended Late", "Ended not Write Late"))
    (explanation,) = ketal.explain(program, _log())
    assert sorted(searched) == ["a@1", "b@1", "c@1"]
    assert len(explanation.near) == 3


def test_condition_that_a_guard_has_twice_counts_once() -> None:
    program = ketal.compile("""
        pattern P { event Y = y == 1; event A = type == "a"; event B = type == "b";
                    Last = B && Y && z == 1 && w == 1 && Y; find next A Last; }
    """)
    first = Event("n", "a", {"n": 1})
    two_fail = Event("n", "b", {"n": 2}, data={"y": 1, "z": 0, "w": 0})
    one_fails = Event("n", "b", {"n": 3}, data={"y": 0, "z": 1, "w": 1})
    (explanation,) = ketal.explain(program, [first, two_fail, one_fails])
    assert [str(one.event.dot) for one in explanation.near] == ["n@3", "n@2"]


def test_near_miss_without_following_events_is_reported() -> None:
    log = [Event(node="s", type="expire", clock={"s": 1}, data={"worker": "ann"})]
    (explanation,) = ketal.explain(ketal.compile(LATE), log)
    assert "  no event can follow the partial match; expected Late" in str(explanation).splitlines()


def test_near_events_are_limited_by_near_misses_max() -> None:
    limits = Limits(near_misses_max=1)
    (explanation,) = ketal.explain(ketal.compile(LATE), _log(), limits=limits)
    assert len(explanation.near) == 1
    assert "  stopped after 1 candidate (limit near_misses_max)" in str(explanation).splitlines()


def test_find_with_a_match_has_no_near_miss() -> None:
    log = [*_log(), Event(node="d", type="write", clock={"d": 1}, data={"worker": "ann"})]
    (explanation,) = ketal.explain(ketal.compile(LATE), log)
    assert explanation.verdict is not None
