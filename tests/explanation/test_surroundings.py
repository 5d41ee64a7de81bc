"""The few events around a verdict."""

from __future__ import annotations

import itertools
import random

import ketal
from ketal.errors import PatternError
from ketal.explanation.explaining import diagram, explanations
from ketal.explanation.judged_log import JudgedLog
from ketal.explanation.surroundings import EVENTS_MAX, rows_around
from ketal.grammar.printer import render
from ketal.model.events.causal_graph import CausalGraph
from tests.property.executions import execution
from tests.property.patterns import pattern_file
from tests.sampling import drawn


def test_events_of_every_verdict_are_shown_and_messages_lead_downwards() -> None:
    shown = messages = 0

    @drawn(100, 2_000)
    def holds(rng: random.Random) -> None:
        nonlocal shown, messages
        file = pattern_file(rng)
        # With more concurrent events, a `find any` would try too many orders.
        events = execution(rng, events_max=9)
        try:
            program = ketal.compile(render(file))
        except PatternError:
            return
        judged = JudgedLog(program, events)
        graph = CausalGraph(events)
        for one in explanations(judged, first=5):
            if one.verdict is None:
                continue
            rows = rows_around(one, graph)
            dots = [row.label.split()[0] for row in rows]
            assert len(set(dots)) == len(dots) <= EVENTS_MAX
            own = [str(step.event.dot) for step in one.steps]
            if one.event is not None:
                own.append(str(one.event.dot))
            assert {dot for dot, row in zip(dots, rows, strict=True) if row.marked} >= set(own)
            order = [graph[ketal.Dot(*_parts(dot))] for dot in dots]
            for above, below in itertools.combinations(order, 2):
                assert below.dot.counter > above.dot.counter or below.node != above.node
                assert above.clock.get(below.node, 0) < below.counter
            for row, event in zip(rows, order, strict=True):
                sources = {source.node for source in graph.messages_to(event)}
                assert set(row.senders) <= sources
                messages += len(row.senders)
            assert diagram(judged, one)[1:] == [] or len(diagram(judged, one)) == len(rows) + 1
            shown += 1

    assert shown > 30
    assert messages > 10


def _parts(dot: str) -> tuple[str, int]:
    node, _, counter = dot.rpartition("@")
    return node, int(counter)


def test_long_run_shows_its_last_events() -> None:
    program = ketal.compile(
        'pattern P { event A = type == "a"; event B = type == "b"; check A* B; }'
    )
    log = [ketal.Event(node="n", type="a", clock={"n": count}) for count in range(1, 100)]
    log += [ketal.Event(node="n", type="b", clock={"n": count}) for count in (100, 101)]
    judged = JudgedLog(program, log)
    (one,) = explanations(judged, first=1)
    lines = diagram(judged, one)
    assert lines[-2:] == ["◆    n@100 b  B", "◆    n@101 b  violation"]
    assert len(lines) == 8


def test_a_copy_that_is_offered_an_event_its_node_does_not_know_has_not_learned_of_it() -> None:
    program = ketal.compile(
        'pattern P { order CausalOrder; at every node all; event Push = type == "push"; '
        'event On = type == "on" && localhost; check On Push*; }'
    )
    push = ketal.Event(node="a", type="push", clock={"a": 1})
    for known, text, label in (
        ({}, "the copy of b begins", "begins"),
        ({"a": 1}, "b learned of it", "learned"),
    ):
        log = [push, ketal.Event(node="b", type="x", clock={**known, "b": 1})]
        judged = JudgedLog(program, log)
        _, of_b = explanations(judged, first=2)
        assert f"  {text} at b@1 x" in of_b.lines()
        assert f"b@1 x  {label}" in diagram(judged, of_b)[-1]


def test_match_by_inconsistent_clocks_is_explained_without_a_path() -> None:
    program = ketal.compile(
        'pattern P { order CausalOrder; event X = type == "x"; event Y = type == "y"; '
        "A = X; B = Causal(Y, A); find any A B; }"
    )
    # b@1 knows a@1 only from c@1, and c@1 only from b@1.
    clocks = {"a": {"a": 1}, "b": {"a": 1, "b": 1, "c": 1}, "c": {"a": 1, "b": 1, "c": 1}}
    types = {"a": "x", "b": "z", "c": "y"}
    log = [ketal.Event(node, types[node], clock) for node, clock in clocks.items()]
    judged = JudgedLog(program, log)
    (one,) = explanations(judged)
    (pair,) = one.pairs
    reason = (
        "c@1 is after a@1: c@1 knows a:1 >= 1; inconsistent clocks: c@1 knows a@1, but no chain"
    )
    assert pair.because.startswith(reason)
    assert list(pair.lines()) == [pair.because]
    assert pair.to_dict() == {
        "first": "a@1", "second": "c@1", "order": "before", "because": pair.because, "path": [],
    }  # fmt: skip
    assert [line[:1] for line in diagram(judged, one)[1:]] == ["◆", "┊"]
    assert pair.because in ketal.view(log, program).html.replace("\\u003e", ">")
