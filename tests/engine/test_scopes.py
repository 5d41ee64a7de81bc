"""The timers of a pattern's scopes."""

from __future__ import annotations

import gc
import random
from dataclasses import fields
from typing import Any

import msgspec
import pytest

import ketal
from ketal import Event
from ketal.engine.pattern_run import PatternRun
from ketal.engine.scopes import QUEUE_MIN, Counts, Scope
from ketal.model.limits import DEFAULT
from ketal.model.summaries import PatternCounts
from tests.cases import e
from tests.driven import Driven
from tests.property.test_records import Changelog, step
from tests.work import counted_lines

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


@pytest.mark.parametrize("falling_s", [0, 1])
def test_queue_of_timers_has_few_stale_entries_of_a_live_scope(falling_s: int) -> None:
    run = PatternRun(ketal.compile(TEXT).one, DEFAULT)
    count = 2 * QUEUE_MIN
    run.process([e(f"n@{i}", "a", time=count - falling_s * i, k=1) for i in range(1, count)])
    run.process([e("m@1", "a", time=count, k=2), e("m@2", "b", time=count, k=2)])
    assert len(run.scopes.timers._queue) <= 2


def test_scope_that_is_removed_before_it_is_saved_is_in_no_commit() -> None:
    driven = Driven(ketal.compile(TEXT))

    def changed(*events: Event) -> list[tuple[bytes, bool]]:
        """Return the records of scopes that are written (True) or removed once events were fed."""
        driven.feed_many(events)
        changes = driven.state.changes()
        return [(key, bool(changes[key])) for key in changes if key.startswith(b"scope/")]

    assert changed() == []
    saved = e("n@1", "a", time=1, k=1)
    assert changed(saved, e("n@2", "a", time=1, k=2), e("n@3", "b", time=2, k=2)) == [
        (b"scope/P/0", True)
    ]
    assert changed(e("n@4", "b", time=2, k=1)) == [(b"scope/P/0", False)]


COPIES = """pattern P {{
    order arrival; at every node; event A = type == "a"; event B = type == "b";
    event C = type == "c"; {}; within 5 s;
}}"""


class Resumed:
    """An execution that is restarted from its committed records after each item."""

    def __init__(self, find: str) -> None:
        self.log = Changelog(ketal.compile(COPIES.format(find)), None)

    def feed(self, *items: Any) -> list[Any]:
        """Return the kind and the bound events of each verdict."""
        verdicts = []
        for item in items:
            verdicts += [(v["verdict"], v["bindings"]) for v in step(self.log.monitor, item)]
            self.log.restart(random.Random(0))
        return verdicts


def test_timer_of_a_copy_waits_until_its_node_learns_of_older_events() -> None:
    resumed = Resumed("partition by k; find next A B")
    assert resumed.feed(e("n@1", "a", time=1, k=1), e("m@1", "c", time=2, k=2), 30.0) == []
    assert resumed.feed(e("n@2", "x", time=31), 32.0, 33.0) == [], "n does not know m@1"
    assert resumed.feed(e("n@3", "x", "m:1", time=34)) == []
    assert resumed.feed(35.0) == [("timed_out", {"A": ["n@1"]})]


def test_timer_that_earlier_versions_saved_without_its_time_waits_too() -> None:
    resumed = Resumed("partition by k; find next A B")
    resumed.feed(e("n@1", "a", time=1, k=1), e("m@1", "c", time=2, k=2), 30.0)
    log = resumed.log
    version, body = msgspec.msgpack.decode(log.records[b"scope/P/0"])
    assert body[5] == [1_000_000, True]
    body[5] = [None, True]
    log.records[b"scope/P/0"] = msgspec.msgpack.encode((version, body))
    log.monitor = Driven.restored(log.program, log.records)
    assert resumed.feed(33.0, e("n@2", "x", "m:1", time=34)) == []
    assert resumed.feed(35.0) == [("timed_out", {"A": ["n@1"]})]


def test_runs_that_earlier_versions_saved_with_the_nodes_of_their_rows_go_on() -> None:
    resumed = Resumed("find next A B")
    resumed.feed(e("n@1", "a", time=1))
    log = resumed.log
    version, body = msgspec.msgpack.decode(log.records[b"scope/P/0"])
    ((state, groups),) = body[6]["waiting"]
    body[6]["waiting"] = [[state, ["m", "n"], groups]]
    log.records[b"scope/P/0"] = msgspec.msgpack.encode((version, body))
    log.monitor = Driven.restored(log.program, log.records)
    assert resumed.feed(e("n@2", "b", time=2)) == [("match", {"A": ["n@1"], "B": ["n@2"]})]


def test_timer_of_a_copy_is_earlier_once_its_node_has_learned_of_an_earlier_start() -> None:
    resumed = Resumed("partition by k; find next A B")
    events = e("n@1", "a", time=2, k=1), e("m@1", "a", time=1, k=1), e("l@1", "c", time=3, k=2)
    assert resumed.feed(*events, 30.0) == []
    assert resumed.feed(e("n@2", "x", "m:1", time=31), 32.0) == [], "n does not know l@1"
    assert resumed.feed(e("n@3", "x", "l:1", time=33)) == []
    assert resumed.feed(34.0) == [("timed_out", {"A": ["m@1"]}), ("timed_out", {"A": ["n@1"]})]


def test_timer_of_a_copy_waits_after_an_earlier_window_has_ended() -> None:
    """Of the two windows that a watermark has passed, n has learned of all events of one."""
    driven = Driven(ketal.compile(COPIES.format("find next A B")))
    events = e("n@1", "a", time=5), e("n@2", "a", time=3), e("m@1", "c", time=9)
    *before, ended = [step(driven, item) for item in (*events, 30.0)]
    assert before == [[], [], []]
    assert [verdict["bindings"] for verdict in ended] == [{"A": ["n@2"]}]
    assert step(driven, e("n@3", "x", "m:1", time=31)) == []
    assert [verdict["bindings"] for verdict in step(driven, 32.0)] == [{"A": ["n@1"]}]


def test_scope_of_a_copy_without_a_timer_is_removed_once_it_is_over() -> None:
    """m@2 arrives after n has learned of it, and ends the run of n's copy; n@2 starts another."""
    resumed = Resumed("partition by k; find strict A B")
    assert resumed.feed(e("n@1", "a", "m:2", time=1, k=1), e("l@1", "c", time=2, k=2), 30.0) == []
    assert resumed.feed(e("m@2", "c", time=31, k=1)) == [("timed_out", {"A": ["n@1"]})]
    assert resumed.feed(e("n@2", "a", "m:2 l:1", time=32, k=1)) == []
    assert resumed.feed(40.0) == [("timed_out", {"A": ["n@2"]})]


def test_suspended_timers_of_a_copy_cost_an_event_of_its_node_nothing() -> None:
    """Of m, which sends n no message, n learns nothing, so that no window of n's copy ends."""

    def lines(keys: int) -> int:
        driven = Driven(ketal.compile(COPIES.format("partition by k; find next A B")))
        driven.feed(e("m@1", "c", time=0, k=0))
        driven.feed_many(e(f"n@{k}", "a", time=k, k=k) for k in range(1, keys))
        assert driven.advance_time(10 * keys) == []
        last = e(f"n@{keys}", "a", time=10 * keys, k=keys)
        _, lines = counted_lines(lambda: (driven.feed(last), driven.advance_time(10 * keys + 1)))
        assert sum(scope.suspended for scope in driven.runs[0].scopes.by_name.values()) == keys - 1
        return lines

    lines(1)
    assert lines(200) - lines(20) < 180, "less than a line for each further timer"
