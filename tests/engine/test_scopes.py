"""The timers of a pattern's scopes."""

from __future__ import annotations

import gc
from dataclasses import fields

import ketal
from ketal import Event
from ketal.engine.scopes import QUEUE_MIN, Counts, Scope
from ketal.model.summaries import PatternCounts

TEXT = """pattern P {
    event A = type == "a"; event B = type == "b"; partition by k;
    find next A B; within 1 d;
}"""


def test_every_count_of_a_summary_is_counted_or_a_finding() -> None:
    declared = PatternCounts.__annotations__.keys() - {"vacuous", "unknown"}
    assert declared < {one.name for one in fields(Counts)}


def test_scopes_that_are_over_do_not_wait_for_their_timers() -> None:
    monitor = ketal.Monitor(ketal.compile(TEXT), limits=ketal.Limits(dots_max=8))
    before = sum(isinstance(one, Scope) for one in gc.get_objects())
    for number in range(3 * QUEUE_MIN):
        first, last = 2 * number + 1, 2 * number + 2
        monitor.feed(Event("n", "a", {"n": first}, time=number, data={"k": number}))
        if number != 5:
            monitor.feed(Event("n", "b", {"n": last}, time=number, data={"k": number}))
    held = sum(isinstance(one, Scope) for one in gc.get_objects()) - before
    assert held <= QUEUE_MIN + 1, "they are over, and their windows are not"
    assert [v.kind for v in monitor.advance_time(86_400 + 6)] == ["timed_out"], "of the fifth key"
