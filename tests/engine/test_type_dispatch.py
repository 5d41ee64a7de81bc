"""Dispatch by type: verdicts and counts are those of patterns that are offered every event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ketal
from ketal.engine.pattern_run import PatternRun
from ketal.engine.statistics.comparison_kinds import ComparisonKinds, ProgramKinds
from ketal.engine.type_dispatch import TypeDispatch
from ketal.model.events import type_table
from ketal.model.events.event import Event
from ketal.model.limits import DEFAULT

PATTERNS = """\
event Any = type in ["a", "b", "c"];

pattern chain       { event A = type == "a"; event B = type == "b" && v > 1; find next A B; }
pattern both        { event A = type == "a"; event B = type == "b"; order CausalOrder;
                      find any A B; }
pattern either      { event E = type == "c" || v == 2; find any E; }
pattern no_type     { event E = v == 3 && node == "n1"; check E; }
pattern negated     { event E = type != "a" && v == 1; order CausalOrder; find any E; }
pattern globbed     { event E = type matches /^[ab]$/ && host("n*"); find next E E; }
pattern counted     { event A = type == "a"; event B = type == "zz"; find any A B; }
pattern at_nodes    { event A = type == "a"; event C = type == "c"; at every node;
                      order CausalOrder; find any A C; }
pattern ordered     { event A = type == "a"; order CausalOrder; check A*; }
pattern called      { event A = call(* a(..)); event B = call(* d(..)); find any A B; }
pattern partitioned { event A = type == "a"; event C = type == "c"; partition by v;
                      find any A C; }
pattern without     { event A = type == "a"; event B = type == "b"; event D = type == "d" && v > 1;
                      find next A not D B; }
pattern windowed    { event A = type == "a"; event C = type == "c"; find any A C; within 3 s; }
"""


PROGRAM = ketal.compile(PATTERNS)


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """Draw events of a few nodes in order of arrival, with some of them lost."""
    clocks: dict[str, dict[str, int]] = {}
    events: list[Event] = []
    for _ in range(draw(st.integers(1, 14))):
        node = draw(st.sampled_from(["n1", "n2", "m"]))
        clock = clocks.get(node, {})
        if learned := clocks.get(draw(st.sampled_from(["n1", "n2", "m"]))):
            clock = {n: max(clock.get(n, 0), learned.get(n, 0)) for n in {*clock, *learned}}
        clocks[node] = clock = {**clock, node: clock.get(node, 0) + 1}
        data = {"v": draw(st.sampled_from([1, 2, 3, "x"]))} if draw(st.booleans()) else {}
        type_ = draw(st.sampled_from(["a", "b", "c", "d", "e"]))
        time = len(events) + draw(st.integers(0, 2))
        events.append(Event(node=node, type=type_, clock=dict(clock), data=data, time=time))
    kept = [event for event in events if draw(st.integers(0, 9))]
    return list(draw(st.permutations(kept)))


def _verdicts_and_summary(verdicts: Iterable[Any], summary: Mapping[str, Any]) -> Any:
    return [verdict.to_dict() for verdict in verdicts], summary


def _judged_log(events: list[Event]) -> Any:
    verdicts = ketal.run(PROGRAM, events)
    return _verdicts_and_summary(list(verdicts), verdicts.summary)


def _judged_stream(events: list[Event], size: int) -> Any:
    """Return the verdicts over batches, after which missing events are declared lost."""
    monitor = ketal.Monitor(PROGRAM)
    verdicts: list[Any] = []
    for begin in range(0, len(events), size):
        verdicts += monitor.feed_many(events[begin : begin + size])
        verdicts += monitor.advance_time(begin)
    verdicts += monitor.leave("n1")
    verdicts += monitor.close()
    return _verdicts_and_summary(verdicts, monitor.summary)


@contextmanager
def _without_dispatch() -> Iterator[None]:
    """Make the engine offer every event to every pattern."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PatternRun, "concerned_by", lambda run, event: True)
        yield


@given(logs())
def test_dispatch_does_not_change_the_verdicts_of_a_log(events: list[Event]) -> None:
    with _without_dispatch():
        expected = _judged_log(events)
    assert _judged_log(events) == expected


@given(logs(), st.integers(1, 8))
def test_dispatch_does_not_change_the_verdicts_of_a_stream(events: list[Event], size: int) -> None:
    with _without_dispatch():
        expected = _judged_stream(events, size)
    assert _judged_stream(events, size) == expected


def test_event_is_offered_to_the_patterns_that_name_its_type() -> None:
    names = PROGRAM.names
    runs = [PatternRun(compiled, DEFAULT) for compiled in PROGRAM.compiled]
    dispatch = TypeDispatch(runs)
    offered = {
        of: {names[n] for n in dispatch.concerned(Event(node="n1", type=of, clock={"n1": 1}))}
        for of in ("a", "d", "zz")
    }
    always = {"either", "no_type", "negated", "at_nodes", "called"}  # no single type decides them
    of_a = {"chain", "both", "globbed", "counted", "ordered", "partitioned", "windowed",
            "without"}  # fmt: skip
    assert offered == {
        "a": always | of_a,
        "d": always | {"without"},
        "zz": (always | {"counted"}) - {"called"},
    }
    runs[0].miss_event(Event(node="n1", type="a", clock={"n1": 1}))
    dispatch.process([Event(node="n1", type="d", clock={"n1": 2})])
    assert 0 in dispatch.concerned(Event(node="n1", type="d", clock={"n1": 2}))


@given(logs())
def test_kinds_of_compared_values_are_counted_as_over_all_events(events: list[Event]) -> None:
    kinds = ProgramKinds(PROGRAM.compiled)
    kinds.sample(events)
    expected = {}
    for compiled in PROGRAM.compiled:
        of_pattern = ComparisonKinds(compiled)
        of_pattern.count(events)
        expected[compiled.name] = of_pattern.save()
    assert kinds.met() == expected


def test_table_of_types_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type_table, "TYPES_MAX", 3)
    events = [
        Event(node="n1", type=of, clock={"n1": counter})
        for counter, of in enumerate("abcdefgabcdefgab", start=1)
    ]
    with _without_dispatch():
        expected = _judged_log(events)
    assert _judged_log(events) == expected
