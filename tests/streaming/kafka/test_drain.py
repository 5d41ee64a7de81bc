"""Changing a pattern under a running execution, and under a job: stop, fresh and drain."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, reject

import ketal
from ketal.analysis import registered_guards as guards
from ketal.cli.output import summary_text
from ketal.errors import SettingError, StateError
from ketal.logs import Source
from ketal.model import syntax
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.programs.program import Program
from ketal.runtime.execution import Execution
from ketal.runtime.state.records import RETIRING, decode_snapshot
from ketal.streaming import plan
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Job, Target
from ketal.streaming.kafka import pattern_migration
from ketal.streaming.kafka.process_engine import ProcessEngine
from tests.driven import Driven
from tests.property.executions import execution
from tests.property.test_engine import program_of
from tests.runtime.test_live_membership import membership_case
from tests.sampling import chances, drawn, examples
from tests.streaming.jobs import (
    END,
    WINDOWED_FORKS,
    HookRecorder,
    Topic,
    accept,
    committed,
    job_of,
    produce,
    run,
    written,
)
from tests.streaming.kafka.test_consumers import compacted
from tests.streaming.kafka.test_process_faults import KILLS, PATIENCE_S, Command, sending

KEPT = """
pattern Kept { order CausalOrder; partition by key;
    event A = type == "S.a"; event C = type == "S.c"; find any A C; within 4 s; }
"""
FREE = "order CausalOrder; partition by key;"
"""No event waits: `find any` without `not`."""
EAGER = "order CausalOrder;"


def resume(
    program: Program, state: bytes | dict[bytes, bytes], *, on_change: str = "stop"
) -> pattern_migration.Resumed:
    """Resume from records, or from a snapshot that holds the records in one piece."""
    records = decode_snapshot(state) if isinstance(state, bytes) else state
    return pattern_migration.resume(program, records, on_change=on_change)


def program(head: str, find: str, first: str = "S.a", *, kept: bool = False) -> Program:
    """Return a program with a windowed pattern P of two steps and, if `kept`, the pattern Kept."""
    return ketal.compile(
        f'pattern P {{ {head} event A = type == "{first}"; event B = type == "S.b";\n'
        f"    {find} A B; within 4 s; }}" + (KEPT if kept else "")
    )


def facts(verdicts: Iterable[Verdict]) -> Counter[str]:
    """Count matches and time-outs by fingerprint, kind, scope and steps."""
    return Counter(
        f"{v.fingerprint} {v.kind} {dict(v.scope)} {v.steps}"
        for v in verdicts
        if isinstance(v, ketal.Match | ketal.TimedOut)
    )


def standing_on(verdicts: Iterable[Verdict], dots: set[Any], some: bool) -> list[Verdict]:
    """Return the matches and time-outs with some, or with none, of these dots among their steps."""
    return [
        v
        for v in verdicts
        if isinstance(v, ketal.Match | ketal.TimedOut)
        and any(dot in dots for _, dot in v.steps) == some
    ]


def of_kept(verdicts: Iterable[Verdict]) -> list[Verdict]:
    return [v for v in verdicts if getattr(v, "pattern", "") == "Kept"]


def timed(rng: random.Random, **knobs: Any) -> list[Event]:
    return execution(rng, events_max=24, untimed=0.0, **knobs)


class Feeder:
    """Feeds events with the highest watermark at which no event is late."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events

    def feed(self, monitor: Execution, upto: int, start: int = 0) -> list[Verdict]:
        out: list[Verdict] = []
        for at in range(start, upto):
            out += self.one(monitor, at)
        return out

    def one(self, monitor: Execution, at: int) -> list[Verdict]:
        out = monitor.feed(self.events[at])
        left = [float(e.time) for e in self.events[at + 1 :] if e.time is not None]
        return out + (monitor.advance_time(min(left)) if left else [])


@pytest.mark.parametrize("find", ["find any", "find next", "find strict"])
@examples(20, 500)
@given(rng=chances())
def test_fresh_pattern_judges_the_events_released_after_the_change(
    find: str, rng: random.Random
) -> None:
    """Events that wait for events from before the change find these released."""
    events = timed(rng)
    cut = rng.randint(0, len(events))
    old, new = program(EAGER, find), program(EAGER, find, "S.c")
    before, whole = Driven(old), Driven(new)
    before.feed_many(events[:cut])
    whole.feed_many(events[:cut])
    after = Driven.restored(new, before.snapshot(), changed=True)
    held = {event.dot for event, _ in before.held_back()}
    consumed = {e.dot for e in events[:cut]}
    if find != "find any":  # `find any` has no queue
        assert held == {event.dot for event, _ in after.held_back()}
        consumed -= held
    verdicts = after.feed_many(events[cut:]) + after.close()
    if find == "find any":
        expected = list(ketal.run(new, events[cut:]))
    else:
        rest = whole.feed_many(events[cut:]) + whole.close()
        expected = standing_on(rest, consumed, False)
    assert facts(verdicts) == facts(expected)
    tally = after.counts.tally.to_dict()
    assert tally["read"] == tally["accepted"] == len(events), "the execution goes on"


@examples(20, 500)
@given(chances())
def test_unchanged_patterns_keep_their_runs(rng: random.Random) -> None:
    events = timed(rng)
    cut = rng.randint(0, len(events))
    old, new = program(EAGER, "find next", kept=True), program(EAGER, "find next", "S.c", kept=True)
    whole, before = Driven(old), Driven(old)
    expected = of_kept(whole.feed_many(events) + whole.close())
    verdicts = before.feed_many(events[:cut])
    after = Driven.restored(new, before.snapshot(), changed=True)
    verdicts += after.feed_many(events[cut:]) + after.close()
    assert of_kept(verdicts) == expected
    assert after.summary["patterns"]["Kept"] == whole.summary["patterns"]["Kept"]


HEADS = [(FREE, FREE), (EAGER, EAGER), (EAGER, FREE), (FREE, EAGER), ("order arrival;", EAGER)]


@pytest.mark.parametrize(("was", "now"), HEADS)
@examples(20, 500)
@given(rng=chances())
def test_each_match_is_reported_by_the_old_pattern_or_the_new_one(
    was: str, now: str, rng: random.Random
) -> None:
    """The old pattern's match has an event from before the change, the new pattern's has none."""
    events = timed(rng)
    find_was = "find any" if was == FREE else "find next"
    find_now = "find any" if now == FREE else "find next"
    old, new = program(was, find_was), program(now, find_now, "S.c")
    cut = rng.randint(0, len(events))
    feeder = Feeder(events)
    first, reference = Driven(old), Driven(old)
    verdicts = feeder.feed(first, cut)
    taken = resume(new, first.snapshot(), on_change="drain")
    drain = taken.execution
    for at in range(cut, len(events)):
        verdicts += feeder.one(drain, at)
        if rng.random() < 0.3:
            drain = resume(new, drain.state.snapshot()).execution
    verdicts += list(drain.conclude())
    consumed = {e.dot for e in events[:cut]}
    if was == now:  # The new pattern is offered the events that the queue holds.
        consumed -= {event.dot for event, _ in first.held_back()}
    expected = feeder.feed(reference, len(events)) + reference.close()
    later = Driven.restored(new, first.snapshot(), changed=True)
    suffix = feeder.feed(later, len(events), cut) + later.close()
    assert facts(verdicts) == facts(standing_on(expected, consumed, True) + suffix)
    if now == FREE:
        assert facts(suffix) == facts(ketal.run(new, events[cut:]))
    if was == FREE:
        assert facts(expected) == facts(ketal.run(old, events))
    assert drain.counts.tally.to_dict()["accepted"] == len(events)
    assert drain.retiring is None or drain.retiring.finished


@pytest.mark.parametrize(
    ("restarts", "losses"), [(False, False), (True, True)], ids=["leaves", "restarts"]
)
def test_retiring_pattern_reports_its_pending_verdicts_despite_leaves_and_losses(
    restarts: bool, losses: bool
) -> None:
    """Dropping it early loses no verdict: the reference is an old pattern that runs to the end."""
    dropped_early = reported_since = 0

    @drawn(75, 2_000)
    def holds(rng: random.Random) -> None:
        nonlocal dropped_early, reported_since
        case = membership_case(rng, restarts=restarts, losses=losses)
        compiled, (pattern,) = case.program.one, case.program.file.patterns
        if compiled.kind == "check" or compiled.pattern.deployment is not None:
            reject()
        file = case.program.file
        windowed = replace(pattern, window=syntax.Window(length=syntax.Duration(3, "s")))
        old = program_of(replace(file, patterns=(windowed,)))
        longer = replace(pattern, window=syntax.Window(length=syntax.Duration(4, "s")))
        new = program_of(replace(file, patterns=(longer,)))
        place = {str(event.id): at for at, event in enumerate(case.run.stamped)}
        records = [
            msgspec.structs.replace(r, time=place[str(r.id)] * 0.7 + rng.choice((0, 0, 0.5)))
            if isinstance(r, Event)
            else r
            for r in case.records
        ]
        cut = rng.randint(0, len(records))
        whole = Driven(old)
        whole.feed_many(records[:cut])
        drain = Driven.restored(new, whole.snapshot(), changed=True, retiring=old)
        assert drain.retiring is not None
        before = drain.retiring.before["P"]
        said, expected = [], []
        for record in records[cut:]:
            said += drain.feed(record)
            expected += whole.feed(record)
            watermark = len(place) * 0.7 * rng.random() - 1
            if rng.random() < 0.4:
                said += drain.advance_time(watermark)
                expected += whole.advance_time(watermark)
        dropped_early += drain.retiring.finished
        said += list(drain.conclude())
        own = [
            v
            for v in expected + whole.close()
            if isinstance(v, ketal.Match | ketal.TimedOut)
            and any(dot in before for _, dot in v.steps)
        ]
        found = [v for v in said if isinstance(v, ketal.Match | ketal.TimedOut)]
        of_old = [v for v in found if v.fingerprint == old.fingerprint]
        assert sorted(v.id for v in of_old) == sorted(v.id for v in own)
        reported_since += len(own)

    assert dropped_early > 10
    assert reported_since > 10


@examples(20, 500)
@given(chances())
def test_draining_job_can_be_restored_from_incremental_records(rng: random.Random) -> None:
    """After the last run has ended, no record of the old patterns is left."""
    events = timed(rng, linear=True)
    old, new = program(FREE, "find any", kept=True), program(FREE, "find any", "S.c", kept=True)
    cut = len(events) // 2
    feeder = Feeder(events)
    first, straight = Driven(old), Driven(old)
    feeder.feed(first, cut)
    feeder.feed(straight, cut)
    records = first.state.records()
    drain = resume(new, records, on_change="drain").execution
    expected = resume(new, straight.snapshot(), on_change="drain").execution
    for at in range(cut, len(events)):
        assert feeder.one(drain, at) == feeder.one(expected, at)
        if rng.random() < 0.5:
            for key, value in drain.state.changes().items():
                if value is None:
                    records.pop(key, None)
                else:
                    records[key] = value
            assert records == resume(new, records).execution.state.records()
        if rng.random() < 0.3:
            records = dict(drain.state.records())
            drain = resume(new, records).execution
    last = float(max(e.time for e in events if e.time is not None)) if events else 0.0
    assert drain.advance_time(last + 10) == expected.advance_time(last + 10)
    for key, value in drain.state.changes().items():
        if value is None:
            records.pop(key, None)
        else:
            records[key] = value
    assert drain.retiring is None or drain.retiring.finished
    assert not any(key.startswith(RETIRING) for key in records)
    assert resume(new, records).execution.retiring is None


def at(node: str, counter: int, kind: str, time: float, **clock: int) -> Event:
    return Event(node=node, type=kind, clock={node: counter, **clock}, time=time, data={"key": 1})


def test_draining_ends_with_the_last_run_of_the_old_pattern() -> None:
    old, new = program(FREE, "find any"), program(FREE, "find any", "S.c")
    first = Driven(old)
    first.feed(at("n", 1, "S.a", 10.0))
    first.feed(at("m", 1, "S.c", 11.0))
    taken = resume(new, first.snapshot(), on_change="drain")
    assert "draining P" in taken.notice
    drain = taken.execution
    assert drain.retiring is not None
    (verdict,) = drain.feed(at("k", 1, "S.b", 12.0))
    assert str(verdict) == "match P (key=1): A=n@1, B=k@1"
    assert drain.counts.summary["draining"] == {"P": {"matches": 1, "timed_out": 0}}
    assert drain.counts.summary["patterns"]["P"]["matches"] == 0
    lines = list(summary_text.lines(drain.counts.summary, new, None))
    assert "P: draining: 1 match of the previous version of the pattern" in lines
    assert drain.advance_time(13.9) == []
    assert not drain.retiring.finished
    drain.feed(at("n", 2, "S.a", 13.9))  # This run begins after the change: it is not reported.
    drain.advance_time(15.0)
    assert drain.retiring.finished
    assert "draining" in drain.counts.summary
    blob = drain.state.snapshot()
    assert drain.drop_retired() == ("P",)
    assert blob == drain.state.snapshot() == resume(new, blob).execution.state.snapshot()
    assert "draining" not in drain.counts.summary
    # The new pattern was offered the events since the change.
    drain.feed(at("m", 2, "S.c", 15.5))
    (verdict,) = drain.feed(at("k", 2, "S.b", 16.0))
    assert str(verdict) == "match P (key=1): A=m@2, B=k@2"


def test_end_of_the_stream_ends_draining() -> None:
    old, new = program(FREE, "find any"), program(FREE, "find any", "S.c")
    first = Driven(old)
    first.feed(at("n", 1, "S.a", 10.0))
    drain = resume(new, first.snapshot(), on_change="drain").execution
    (verdict,) = drain.feed(Control("end"))
    assert str(verdict) == "timed_out P (key=1): A=n@1"
    assert drain.counts.summary["draining"] == {"P": {"matches": 0, "timed_out": 1}}
    assert resume(new, drain.state.snapshot()).execution.retiring is None


def test_old_pattern_is_offered_events_of_a_node_that_the_new_topology_rejects() -> None:
    """The new program rejects the event each time; the old pattern is offered the event once."""
    old = program("order CausalOrder; topology { n -> m; }", "find any")
    new = program("order CausalOrder; topology { n -> k; }", "find any")
    first = Driven(old)
    first.feed(at("n", 1, "S.a", 10.0))
    drain = resume(new, first.snapshot(), on_change="drain").execution
    match, rejected = drain.feed(at("m", 1, "S.b", 12.0))
    assert str(match) == "match P: A=n@1, B=m@1"
    assert isinstance(rejected, ketal.Rejected)
    assert drain.feed(at("m", 1, "S.b", 12.0)) == [rejected]
    with pytest.raises(StateError, match="only a job can resume from it"):
        ketal.Monitor.restore(new, drain.state.snapshot())
    (rejected,) = drain.feed(at("x", 1, "S.b", 12.0))
    assert isinstance(rejected, ketal.Rejected)
    assert "no node x" in rejected.reason
    assert drain.counts.tally.to_dict()["accepted"] == 1
    assert drain.counts.tally.rejected == 3


def test_event_late_for_the_old_pattern_is_offered_to_the_new_one_only() -> None:
    old = program(FREE, "find any")
    assert old.source is not None
    new = ketal.compile(old.source.text.replace(" within 4 s;", ""))
    first = Driven(old)
    first.feed(at("n", 1, "S.a", 10.0))
    drain = resume(new, first.snapshot(), on_change="drain").execution
    assert drain.advance_time(13.0) == []
    assert drain.feed(at("k", 1, "S.b", 12.0)) == []
    assert drain.counts.tally.to_dict()["accepted"] == 2
    (verdict,) = drain.feed(at("n", 2, "S.a", 12.0))
    assert str(verdict) == "match P (key=1): A=n@2, B=k@1"
    (verdict,) = drain.advance_time(15.0)
    assert isinstance(verdict, ketal.TimedOut)
    assert verdict.fingerprint == old.fingerprint


def test_change_without_live_runs_needs_no_draining() -> None:
    old, new = program(FREE, "find any"), program(FREE, "find any", "S.c")
    first = Driven(old)
    first.feed(at("n", 1, "S.a", 10.0))
    first.advance_time(20.0)
    taken = resume(new, first.snapshot(), on_change="drain")
    assert taken.execution.retiring is None
    assert "no unfinished runs of P" in taken.notice


def test_events_held_back_at_the_change_go_to_the_new_pattern() -> None:
    """Also under other options of the queue; another policy applies from the next event on."""
    old = program(EAGER, "find next")
    first = Driven(old)
    first.feed(at("m", 1, "S.a", 0.0))
    first.feed(at("n", 2, "S.c", 1.0))
    first.feed(at("n", 3, "S.b", 2.0))
    blob = first.snapshot()
    for head in (EAGER, "order CausalOrder(gap = 1 h);", "order CausalOrder(idle = 1 h);"):
        same = Driven.restored(program(head, "find next", "S.c"), blob, changed=True)
        assert [event.dot for event, _ in same.held_back()] == [("n", 2), ("n", 3)]
        (verdict,) = same.feed(at("n", 1, "S.x", 0.0))
        assert str(verdict) == "match P: A=n@2, B=n@3"
    other = Driven.restored(
        program("order CausalOrder(frontier = 1 s);", "find next", "S.c"), blob, changed=True
    )
    assert other.held_back() == []
    assert other.feed(at("n", 1, "S.x", 0.0)) + other.close() == []


def test_gap_added_to_a_queue_counts_from_the_change() -> None:
    old = program(EAGER, "find next")
    first = Driven(old)
    first.feed(at("n", 2, "S.c", 1.0))
    first.feed(at("m", 1, "S.x", 50.0))
    new = program("order CausalOrder(gap = 10 s);", "find next", "S.c")
    after = Driven.restored(new, first.snapshot(), changed=True)
    assert after.feed(at("m", 2, "S.x", 59.0)) == []
    lost, timed_out = after.feed(at("m", 3, "S.x", 60.0)) + after.close()
    assert isinstance(lost, ketal.Gap)
    assert lost.dot == ("n", 1)
    assert isinstance(timed_out, ketal.TimedOut)


def test_node_removed_from_the_declared_nodes_is_no_longer_waited_for() -> None:
    old = program('order CausalOrder(total, nodes = ["n", "ghost"]);', "find next")
    first = Driven(old)
    assert first.feed_many([at("n", 1, "S.a", 0.0), at("n", 2, "S.b", 1.0)]) == []
    blob = first.snapshot()
    for nodes in ("", ', nodes = ["n"]'):
        after = Driven.restored(
            program(f"order CausalOrder(total{nodes});", "find next"), blob, changed=True
        )
        (verdict,) = after.feed(at("n", 3, "S.x", 2.0))
        assert str(verdict) == "match P: A=n@1, B=n@2"


@pytest.mark.parametrize(
    ("old", "why"),
    [
        ('pattern P { event A = type == "a"; check A*; }', "a check, whose runs have no end"),
        ('pattern P { event A = type == "a"; find next A A; }', "no time window"),
        ('pattern P { event A = type == "a"; find next A A; within 9 events; }', "no time window"),
        ('pattern P { at every node; event A = type == "a"; find next A A; within 9 s; }', "nodes"),
    ],
)
def test_pattern_that_time_does_not_end_cannot_be_drained(old: str, why: str) -> None:
    blob = Driven(ketal.compile(old)).snapshot()
    new = program(FREE, "find any", kept=True)
    with pytest.raises(
        StateError, match=f"pattern P was changed or removed, and cannot be drained.*{why}"
    ):
        resume(new, blob, on_change="drain")
    notice = resume(new, blob, on_change="fresh").notice
    assert notice.endswith("without the unfinished runs of changed patterns")
    # An unchanged pattern needs no end.
    both = ketal.compile(old + KEPT)
    assert resume(both, blob, on_change="drain").execution.retiring is None


def test_second_change_while_draining_is_refused() -> None:
    old, new = program(FREE, "find any"), program(FREE, "find any", "S.c")
    first = Driven(old)
    first.feed(at("n", 1, "S.a", 10.0))
    blob = resume(new, first.snapshot(), on_change="drain").execution.state.snapshot()
    for third in (old, program(FREE, "find any", "S.d")):
        for on_change in ("stop", "drain"):
            with pytest.raises(StateError, match=r"still draining .* P, and this is a second one"):
                resume(third, blob, on_change=on_change)
    fresh = resume(old, blob, on_change="fresh")
    assert fresh.execution.counts.live_runs == 0
    assert fresh.execution.feed(at("n", 1, "S.a", 10.0)) == [], "it was seen"
    assert fresh.execution.counts.tally.duplicates == 1
    assert resume(new, blob, on_change="drain").execution.retiring is not None, "it goes on"


def test_old_program_is_recompiled_with_its_parameters_guards_and_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guards, "_registry", {})
    text = (
        "param w = 4 s; param n = 1;\n"
        'pattern P { order CausalOrder; event A = type == "S.a" && odd(x); event B = x == n;\n'
        "    find any A B; within w; }"
    )
    new = program(FREE, "find any", kept=True)
    ketal.register_guard("odd", lambda x: bool(x % 2), version="1")
    limits = ketal.Limits(states_max=100)
    old = ketal.compile(text, limits=limits, w=ketal.model.syntax.Duration(0.5, "h"), n=7)
    first = Driven(old)
    first.feed(at("n", 1, "S.a", 10.0))
    first.feed(Event(node="n", type="S.a", clock={"n": 2}, time=10.0, data={"x": 3}))
    blob = first.snapshot()
    drain = resume(new, blob, on_change="drain").execution
    (verdict,) = drain.feed(Event(node="m", type="S.z", clock={"m": 1}, time=1800.0, data={"x": 7}))
    assert isinstance(verdict, ketal.Match)
    assert verdict.fingerprint == old.fingerprint
    ketal.register_guard("odd", lambda x: bool(x % 2), version="2")
    with pytest.raises(StateError, match=r"a registered guard \(odd\) changed"):
        resume(new, blob, on_change="drain")
    with pytest.raises(StateError, match="a registered guard"):
        resume(new, drain.state.snapshot())
    assert resume(new, blob, on_change="fresh").execution.retiring is None


def test_unusable_state_or_mode_of_change_is_refused() -> None:
    old, new = program(FREE, "find any"), program(FREE, "find any", "S.c")
    with pytest.raises(StateError, match="not a ketal snapshot"):
        resume(new, b"nothing", on_change="drain")
    bare = Program(old.compiled, old.file)
    blob = Driven(bare).snapshot()
    with pytest.raises(StateError, match="does not contain the text"):
        resume(new, blob, on_change="drain")
    with pytest.raises(StateError, match="another program"):
        resume(new, blob)
    with pytest.raises(TypeError, match="snapshot"):
        Driven.restored(new, "blob", changed=True)  # type: ignore[arg-type]
    with pytest.raises(SettingError):
        Driven.restored(new, blob, changed=True, limits=ketal.Limits(held_back_max=0))


def test_new_queue_waits_for_the_nodes_of_earlier_events() -> None:
    first = Driven(program(FREE, "find any"))
    first.feed_many([at("n", 1, "S.a", 0.0), at("m", 1, "S.c", 0.0)])
    new = program("order CausalOrder(total);", "find next", "S.c")
    after = Driven.restored(new, first.snapshot(), changed=True)
    assert after.feed_many([at("n", 2, "S.c", 1.0), at("m", 2, "S.x", 1.0)]) == []


def test_new_queue_knows_which_nodes_have_left() -> None:
    """`total` would wait for an event of a node that has left for ever."""
    old = program(FREE, "find any")
    first = Driven(old)
    first.feed_many([at("n", 1, "S.a", 0.0), at("m", 1, "S.c", 0.0)])
    first.leave("m")
    new = program("order CausalOrder(total);", "find next", "S.c")
    after = Driven.restored(new, first.snapshot(), changed=True)
    after.feed(at("n", 2, "S.c", 1.0))
    (verdict,) = after.feed(at("n", 3, "S.b", 2.0)) + after.feed(at("n", 4, "S.x", 3.0))
    assert str(verdict) == "match P: A=n@2, B=n@3"


# --- a job ---


@pytest.mark.parametrize(
    ("head", "find", "warned"),
    [
        (EAGER, "find next", True),
        ("order CausalOrder(total);", "find any", False),
        ("order CausalOrder(total);", "find next", True),
        ("order CausalOrder(gap = 1 s);", "find next", False),
        ("order CausalOrder(frontier = 1 s);", "find next", False),
        ("order arrival;", "find next", False),
    ],
)
def test_start_at_the_latest_offset_warns_of_orders_that_wait_for_ever(
    head: str, find: str, warned: bool
) -> None:
    started = program(head, find)
    job = Job(pattern="p", topics=["t"], bootstrap_servers="s", group_id="g", start="latest")
    warnings = [text for text in plan.warnings(started, job) if "for ever" in text]
    assert bool(warnings) == warned
    assert all("frontier" in text and "gap" in text for text in warnings)
    earliest = replace(job, start="earliest")
    assert not any("for ever" in text for text in plan.warnings(started, earliest))
    monitor = Driven(started)
    monitor.feed(at("n", 7, "S.a", 1.0))
    monitor.feed(at("n", 8, "S.b", 2.5))
    waits = [dot for _, dot in monitor.held_back() if dot is not None]
    assert bool(waits) == warned


OTHER = WINDOWED_FORKS.replace('"accept";', '"accept" && height > 0;')


def notices_with(recorder: HookRecorder, word: str) -> list[str]:
    return [notice for notice in recorder.notices if word in notice]


def matched_events(folder: Path) -> list[list[str]]:
    verdicts = written(folder / "verdicts.jsonl")
    return sorted(v["events"] for v in verdicts if v["verdict"] == "match")


@pytest.mark.parametrize("store", ["dir", "kafka"])
def test_job_with_a_changed_pattern_stops_or_drains(
    store: str, broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Each start resumes where the previous one stopped, also while draining."""
    source = topic()
    old, new = ketal.compile(WINDOWED_FORKS), ketal.compile(OTHER)
    options: dict[str, Any] = {"until_end": True, "lateness_ms": 0}
    if store == "kafka":
        options |= {
            "store": Target("kafka", compacted(broker, 1)),
            "source": Source(keyed_by="height"),
        }
        # Time ends the old runs even if the new pattern reads no time.
        new = ketal.compile(OTHER.replace(" within 10 s;", ""))
    job = job_of(broker, [source], tmp_path, **options)
    draining = job_of(broker, [source], tmp_path, on_change="drain", **options)
    produce(broker, [(source, 0, accept("a", 1, time=100))])
    run(job, old)
    with pytest.raises(StateError, match=r"pattern Forks changed: .*events") as caught:
        run(job, new)
    assert "--on-change fresh" in str(caught.value)
    assert "drain to let the old patterns finish" in str(caught.value)

    recorder = HookRecorder()
    produce(broker, [(source, 0, accept("b", 1, time=101))])
    commits: list[int] = []
    hooks = recorder.hooks()
    tell = hooks.notify

    def telling(notice: str) -> None:
        if "draining" in notice:
            commits.append(engine.figures.commits)
        tell(notice)

    engine = ProcessEngine(draining, new, replace(hooks, notify=telling))
    engine.run()
    assert notices_with(recorder, "draining Forks")
    assert commits == [1], "who is told of it is to need no --on-change any more"
    assert matched_events(tmp_path) == [["a@1", "b@1"]], (
        "a@1 is from before: the old pattern says it"
    )
    assert engine.summary is not None
    assert engine.summary["draining"] == {"Forks": {"matches": 1, "timed_out": 0}}
    assert engine.summary["kafka"] == {"messages": 2, "control": 0}

    with pytest.raises(StateError, match="still draining an earlier change of Forks") as caught:
        run(draining, old)
    assert "drain to let" not in str(caught.value)
    produce(broker, [(source, 0, accept("c", 1, time=105))])
    run(job, new)
    assert matched_events(tmp_path) == [["a@1", "b@1"], ["a@1", "c@1"], ["b@1", "c@1"]]
    fingerprints = {v["id"] for v in written(tmp_path / "verdicts.jsonl")}
    assert len(fingerprints) == 3

    recorder = HookRecorder()
    produce(broker, [(source, 0, accept("d", 1, 2, time=110))])
    engine = run(job, new, recorder)
    part = "part 0: " if store == "kafka" else ""
    assert f"{part}Forks: drained, the old patterns have ended" in recorder.notices
    assert engine.summary is not None
    assert engine.summary["events"]["accepted"] == 4
    engine = run(job, new)
    assert engine.summary is not None
    assert "draining" not in engine.summary
    if store == "kafka":
        with pytest.raises(StateError, match="no time window"):
            run(draining, old)
        return
    recorder = HookRecorder()
    run(draining, old, recorder)  # Now it may change again.
    assert notices_with(recorder, "draining Forks")


def test_fresh_pattern_does_not_wait_for_events_consumed_before(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Events after the change do not wait for events from before it."""
    source = topic()
    text = 'pattern P { order CausalOrder; event A = type == "accept"; find next A A; }'
    produce(broker, [(source, 0, accept("a", n)) for n in (1, 2, 5)])
    run(job_of(broker, [source], tmp_path, until_end=True), ketal.compile(text))
    produce(broker, [(source, 0, accept("a", n)) for n in (3, 2, 4)] + [(source, 0, END)])
    recorder = HookRecorder()
    changed = ketal.compile(text.replace("A A;", "A A A;"))
    engine = run(job_of(broker, [source], tmp_path, on_change="fresh"), changed, recorder)
    assert notices_with(recorder, "continuing without the unfinished runs of changed patterns")
    assert matched_events(tmp_path) == [["a@1", "a@2"], ["a@3", "a@4", "a@5"]]
    assert engine.summary is not None
    assert engine.summary["events"]["duplicates"] == 1
    assert engine.summary["kafka"] == {"messages": 7, "control": 1}


def test_kill_9_while_draining_loses_and_repeats_no_verdict(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source, sink = topic(), topic()
    command = Command(tmp_path, broker, source, f"kafka:{sink}")
    pattern = tmp_path / "forks.ketal"
    hour, chance = "within 1 h;", random.Random(5)
    pattern.write_text(WINDOWED_FORKS.replace("within 10 s;", hour))
    # The second event of some pairs, and both events of the others, come after the change.
    first = [accept("a", n, n, time=n) for n in range(1, 401)]
    later = [accept("b", n, n, time=n) for n in range(1, 801)]
    later += [accept("a", n, n, time=n) for n in range(401, 801)]
    chance.shuffle(later)
    produce(broker, [(source, 0, line) for line in first])
    with command.running("--until-end") as process:
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    pattern.write_text(OTHER.replace("within 10 s;", hour))
    messages = [(source, 0, line) for line in later]
    send = sending(broker, messages)
    send(len(messages) // 3)
    for _ in range(max(1, KILLS // 2)):
        before = command.snapshots()
        with command.running("--on-change", "drain") as process:
            command.await_snapshot(before + chance.randint(2, 4), process, send)
            time.sleep(chance.random() * 0.05)
            process.kill()
    send(len(messages))
    produce(broker, [(source, 0, END)])
    with command.running("--on-change", "drain") as process:
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    verdicts = committed(broker, sink, least=800)
    assert sorted(v["id"] for v in verdicts) == sorted({v["id"] for v in verdicts})
    new = ketal.compile(OTHER.replace("within 10 s;", hour))
    path = tmp_path / "later.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in later))
    expected = [v.to_dict() for v in ketal.run(new, ketal.read_log(path))]
    ids = {v["id"] for v in verdicts}
    assert {v["id"] for v in expected} <= ids
    old = [v for v in verdicts if v["id"] not in {v["id"] for v in expected}]
    pairs = sorted(sorted(v["events"]) for v in old)
    assert pairs == sorted([f"a@{n}", f"b@{n}"] for n in range(1, 401))
