"""Monitor and run: the guarantees of the Python interface."""

from __future__ import annotations

import copy
import json
import logging
import math
import os
import pickle
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ketal
from ketal import (
    Control,
    Dot,
    Event,
    Incomplete,
    Late,
    Limits,
    Match,
    Monitor,
    NotAvailableError,
    Overflow,
    PatternError,
    Program,
    Rejected,
    SettingError,
    StateError,
    TimedOut,
    Transition,
    Violation,
)
from ketal.logs import Log, Record
from ketal.model.frozen_mapping import FrozenMapping
from ketal.model.verdicts.execution_verdicts import Gap
from ketal.runtime.state.records import FORMAT, decode_snapshot, encode_snapshot
from tests.cases import CHAIN, FORK, e, line, p
from tests.driven import Driven
from tests.sampling import drawn, examples

ROOT = Path(__file__).resolve().parents[2]
CAUSAL = "CausalOrder"


def program(*statements: str, order: str = "arrival", **knobs: Any) -> Program:
    return ketal.compile(p(*statements, order=order, **knobs))


def monitor(*statements: str, order: str = "arrival", **options: Any) -> Monitor:
    return Monitor(program(*statements, order=order), **options)


def texts(verdicts: Iterable[Any]) -> list[str]:
    return [str(v) for v in verdicts]


def adds_up(summary: Mapping[str, Any]) -> bool:
    events = dict(summary["events"])
    read: int = events.pop("read")
    return read == sum(events.values())


# --- feeding and closing ------------------------------------------------------------------


def test_feed_judges_before_it_returns_a_list() -> None:
    m = monitor("find next A B")
    assert m.feed(e("n@1", "a")) == []
    verdicts = m.feed(e("n@2", "b"))
    assert isinstance(verdicts, list)
    assert texts(verdicts) == ["match P: A=n@1, B=n@2"]
    assert m.summary["patterns"]["P"]["matches"] == 1


def test_feed_many_equals_feed_of_each_event() -> None:
    batched, single = monitor("find any A B"), monitor("find any A B")
    events = line("a b a b")
    assert batched.feed_many(iter(events)) == [v for event in events for v in single.feed(event)]
    assert batched.summary == single.summary


def test_feed_many_accepts_all_records_of_a_log() -> None:
    records: list[Event | Control | Rejected] = [
        e("n1@1", "a", "n2:1"),
        Control("leave", node="n2"),
        Rejected(place="x", reason="no"),
    ]
    program = ketal.compile(p("find next A", order="CausalOrder"))
    for several in (records, Log.of(records), iter(records)):
        m = Monitor(program)
        assert texts(m.feed_many(several)) == [
            "gap n2@1 declared lost", "match P: A=n1@1", "rejected x: no",
        ]  # fmt: skip
        assert m.summary["events"]["rejected"] == 1


def test_a_log_of_several_executions_is_not_fed_as_one() -> None:
    records: list[Record] = [(name, e("n@1", "a"), "", 0) for name in ("one", "two")]
    log = Log(lambda: iter(records))
    with pytest.raises(SettingError, match=r"several executions: one, two; feed each of log\.exec"):
        monitor("find any A").feed_many(log)
    m = monitor("find any A", execution="one")
    assert texts(m.feed_many(log.executions["one"])) == ["match [one] P: A=n@1"]


def test_rejection_in_a_log_that_is_fed_has_its_place(tmp_path: Path) -> None:
    ketal.write_jsonl([e("n@2", "a"), e("n@2", "b")], tmp_path / "run.jsonl")
    (rejected,) = monitor("find any B").feed_many(ketal.read_log(tmp_path / "run.jsonl"))
    assert str(rejected).startswith(f"rejected {tmp_path / 'run.jsonl'}:2: ")


def test_feed_accepts_events_only() -> None:
    with pytest.raises(TypeError, match=r"must be a ketal\.Event .*, not dict"):
        monitor("find next A").feed({"node": "n"})  # type: ignore[arg-type]


def test_close_ends_runs_and_windows_once() -> None:
    m = monitor("check (A B)*")
    m.feed(e("n@1", "a"))
    (verdict,) = m.close()
    assert isinstance(verdict, Incomplete)
    assert verdict.expected == ("B",)
    assert m.close() == []
    (refused,) = m.feed(e("n@2", "b"))
    assert isinstance(refused, Rejected)
    assert "ended" in refused.reason
    assert refused.place == "n@2"
    assert adds_up(m.summary)


def test_end_event_in_a_stream_closes_the_monitor() -> None:
    m = monitor("check (A B)*")
    m.feed(e("n@1", "a"))
    assert [v.kind for v in m.feed(Control("end"))] == ["incomplete"]
    assert m.close() == []


def test_control_events_after_the_end_change_nothing() -> None:
    m = monitor("find next A", order=CAUSAL)
    m.feed(e("b@1", "a", "a:1"))
    assert m.close() == []
    summary = m.summary
    assert m.leave("a") == []
    assert m.feed(Control("view", members=("b",))) == []
    assert m.advance_time(100) == []
    assert m.summary == summary
    assert summary["events"]["held_back"] == 1


def test_with_block_closes_unless_an_exception_leaves_it() -> None:
    verdicts: list[Any] = []
    with monitor("check (A B)*", on={"incomplete": verdicts.append}) as m:
        m.feed(e("n@1", "a"))
    assert texts(verdicts) == ["incomplete P: ended in q1, expected B"]
    verdicts.clear()
    m = monitor("check (A B)*", on={"incomplete": verdicts.append})

    def fails() -> None:
        with m:
            m.feed(e("n@1", "a"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert verdicts == []
    assert [v.kind for v in m.close()] == ["incomplete"], "it can still be closed"


def test_a_monitor_may_run_several_patterns_under_different_orders() -> None:
    both = ketal.compile(
        p("find next A B", order="arrival")
        + p("find next A B", order=CAUSAL).replace("pattern P", "pattern Q")
        + p("find any A B", order=CAUSAL).replace("pattern P", "pattern R")
    )
    a, b, _ = CHAIN
    m = Monitor(both)
    # b arrives before the a that it comes from: under arrival it is not a match.
    assert texts(m.feed(b)) == []
    assert [x.dot for x, _ in m.held_back()] == [b.dot]
    assert m.summary["events"]["held_back"] == 1
    found = m.feed(a)
    assert sorted(v.pattern for v in found if isinstance(v, Match)) == ["Q", "R"]
    assert m.held_back() == []
    ordered = Monitor(both).feed_many([a, b])
    assert sorted(v.pattern for v in ordered if isinstance(v, Match)) == ["P", "Q", "R"]
    assert adds_up(m.summary)


def test_find_any_without_not_holds_no_event_back() -> None:
    m = monitor("find any A B", order=CAUSAL)
    a, b, _ = FORK
    far = e("n2@9", "b", "n1:7")
    assert m.feed(far) == []
    assert texts(m.feed(a)) == ["match P: A=n1@1, B=n2@9"]
    assert m.held_back() == []
    assert texts(m.feed(b)) == ["match P: A=n1@1, B=n2@1"]


# --- duplicates, contradictions, counters --------------------------------------------------


def test_a_duplicate_is_counted_and_dropped() -> None:
    m = monitor("find any A B")
    m.feed_many(line("a b"))
    again = Event(node="n", type="b", clock={"n": 2, "m": 0}, time=1.0)
    assert m.feed(again) == []
    assert m.summary["events"]["duplicates"] == 1
    assert m.summary["patterns"]["P"]["matches"] == 1
    assert adds_up(m.summary)


@pytest.mark.parametrize(
    "other",
    [
        e("n@2", "b", x=1),
        e("n@2", "a", x=2),
        e("n@2", "a", x=True),
        e("n@2", "a", "m:1", x=1),
        e("n@2", "a", x=1, time=1),
        e("n@2", "a", x=1, id="other"),
    ],
)
def test_the_same_dot_with_other_content_is_rejected(other: Event) -> None:
    """At counter 1 this would be a restart: see tests/runtime/test_live_membership.py."""
    m = monitor("find any A B")
    m.feed_many([e("n@1", "a"), e("n@2", "a", x=1)])
    (verdict,) = m.feed(other, place="log:7")
    assert isinstance(verdict, Rejected)
    assert verdict.place == "log:7"
    assert "n@2" in verdict.reason
    assert "other content" in verdict.reason
    assert m.summary["events"]["rejected"] == 1
    assert adds_up(m.summary)
    restored = Monitor.restore(m.program, m.snapshot())
    assert [v.kind for v in restored.feed(other)] == ["rejected"]
    assert restored.feed(e("n@2", "a", x=1)) == []


def test_no_event_waits_for_a_node_that_left() -> None:
    leaves: list[Callable[[Monitor], list[ketal.Verdict]]] = [
        lambda m: m.leave("n"),
        lambda m: m.feed(Control("leave", node="n")),
        lambda m: m.feed(Control("view", members=("m",))),
    ]
    for leave in leaves:
        m = monitor("check B*", order=CAUSAL)
        assert m.feed(e("m@1", "b", "n:1")) == []
        assert [(str(event.dot), str(dot)) for event, dot in m.held_back()] == [("m@1", "n@1")]
        (gap,) = leave(m)
        assert isinstance(gap, Gap)
        assert gap.dot == Dot("n", 1)
        assert m.held_back() == []
        assert m.summary["gaps"] == 1
        assert adds_up(m.summary)
        assert m.feed(Control("join", node="n")) == []


def test_holes_are_missing_counters_below_known_ones() -> None:
    m = monitor("find any A B")
    m.feed_many([e("n@1", "a"), e("n@4", "a"), e("m@2", "b")])
    assert m.summary["holes"] == 3
    verdicts = ketal.run(program("find any A B", order=CAUSAL), [e("n@2", "a", "m:3")])
    list(verdicts)
    assert verdicts.summary["holes"] == 4, "what a clock refers to has happened"


# --- time ----------------------------------------------------------------------------------


def test_event_before_the_watermark_is_late_under_a_window() -> None:
    m = monitor("find next A B", "within 5 s")
    m.feed(e("n@1", "a", time=10))
    m.advance_time(12)
    (verdict,) = m.feed(e("n@2", "b", time=11))
    assert isinstance(verdict, Late)
    assert (verdict.event, verdict.time) == (Dot("n", 2), 11.0)
    assert "watermark" in verdict.reason
    assert m.feed(e("n@3", "b", time=12)) != [], "at the watermark is not before it"
    assert m.summary["events"]["late"] == 1
    assert adds_up(m.summary)
    untimed = monitor("find next A B")
    untimed.feed(e("n@1", "a", time=10))
    untimed.advance_time(12)
    assert texts(untimed.feed(e("n@2", "b", time=11))) == ["match P: A=n@1, B=n@2"]


def test_a_watermark_never_goes_back() -> None:
    m = monitor("find next A B", "within 5 s")
    m.feed(e("n@1", "a", time=10))
    assert texts(m.advance_time(15)) == ["timed_out P: A=n@1"]
    assert m.advance_time(3) == []
    assert [v.kind for v in m.feed(e("n@2", "b", time=12))] == ["late"]


@pytest.mark.parametrize("strategy", ["strict", "next", "any"])
@pytest.mark.parametrize("order", ["arrival", CAUSAL])
def test_windows_end_by_the_watermark_in_event_time_order(strategy: str, order: str) -> None:
    m = monitor(f"find {strategy} A B", "within 5 s", order=order)
    # Of three nodes, so that no order is offended; times are not those of arrival.
    for node, time in (("n1", 30), ("n2", 10), ("n3", 20)):
        # `strict` keeps only one run alive.
        m.feed(e(f"{node}@1", "a", time=time))
    assert m.advance_time(14) == []
    verdicts = m.advance_time(100)
    assert all(isinstance(v, TimedOut) for v in verdicts)
    expected = (
        [("n3", 20.0)] if strategy == "strict" else [("n2", 10.0), ("n3", 20.0), ("n1", 30.0)]
    )
    assert [
        (v.bindings["A"][0].node, v.time) for v in verdicts if isinstance(v, TimedOut)
    ] == expected
    assert m.close() == []


def test_window_ends_exactly_when_no_event_fits_any_more() -> None:
    m = monitor("find next A B", "within 5 s")
    m.feed(e("n@1", "a", time=10))
    assert m.advance_time(14.999999) == []
    assert texts(m.advance_time(15)) == ["timed_out P: A=n@1"]


def test_held_event_keeps_windows_open_however_many_are_released() -> None:
    m = monitor("find next A B", "within 5 s", order=CAUSAL)
    m.feed(e("n@1", "a", time=0))
    releasable = [e(f"r@{n}", "c", "q:1", time=50) for n in range(3, 1_101)]
    waiting = [e("x@1", "c", "y:1", time=49), e("w@1", "b", "y:1", time=2)]
    m.feed_many([e("r@1", "c", "q:1", time=0), Control("watermark", time=0), waiting[0]])
    m.feed_many([e("r@2", "c", "q:1", time=1), *releasable[:2], waiting[1], *releasable[2:]])
    m.feed_many([e("q@1", "c", time=50), e("x@2", "c", "y:1", time=50)])
    assert m.advance_time(60) == []
    assert texts(m.feed(e("y@1", "c", time=70))) == ["match P: A=n@1, B=w@1"]


def test_close_is_a_watermark_of_infinity() -> None:
    m = monitor("find next A B", "within 5 s")
    m.feed(e("n@1", "a", time=10))
    assert texts(m.close()) == ["timed_out P: A=n@1"]
    assert m.summary["patterns"]["P"]["timed_out"] == 1


def test_watermark_times_are_read_like_event_times() -> None:
    m = monitor("find next A B", "within 5 s")
    m.feed(e("n@1", "a", time=0))
    assert texts(m.advance_time("1970-01-01T00:00:05Z")) == ["timed_out P: A=n@1"]
    assert m.feed(Control("watermark", time=9.0)) == []
    assert [v.kind for v in m.feed(e("n@2", "b", time=8))] == ["late"]


# --- snapshot and restore --------------------------------------------------------------------


def named(name: str, *statements: str, order: str) -> str:
    return p(*statements, order=order).replace("pattern P", f"pattern {name}")


EVERYTHING = (
    named("C", "check (A B)*", "on violation resume", "partition by k", order="arrival")
    + named("N", "find next A B+", "within 5 s", order="arrival")
    + named("J", "S = Conc(B, all)", "find any A S", "return x = A.x", order=CAUSAL)
    + named("K", "find any A not N B", order=CAUSAL)
    + named("L", "at every node", "O = A && localhost", "check (O | B)*", order=CAUSAL)
    + named("W", "find any (A | B)+ N", "within 4 s", "limit 20", order=CAUSAL)
    + named("E", "find any A N* B", "within 6 events", "limit 9", order="arrival")
)


def stream(rng: random.Random) -> list[Event]:
    """Return shuffled events of three nodes, with a duplicate and a contradiction."""
    events = []
    clocks: dict[str, dict[str, int]] = {n: {} for n in ("n1", "n2", "n3")}
    for moment in range(14):
        node = rng.choice(list(clocks))
        clock = clocks[node]
        for other, counter in clocks[rng.choice(list(clocks))].items():
            clock[other] = max(clock.get(other, 0), counter)
        clock[node] = clock.get(node, 0) + 1
        data = {"k": rng.choice((1, 2, "1", 1.0)), "x": moment}
        events.append(Event(node, rng.choice("abn"), dict(clock), float(moment), data))
    rng.shuffle(events)
    return [*events, events[3], Event("n1", "zz", {"n1": 1})]


def test_monitor_has_exactly_the_documented_methods() -> None:
    public = {name for name in dir(Monitor(ketal.compile(EVERYTHING))) if name[0] != "_"}
    assert public - {"program"} == {
        "feed", "feed_many", "advance_time", "leave", "close", "held_back", "summary", "snapshot",
        "restore",
    }  # fmt: skip


def test_rejected_record_is_counted_and_passed_to_its_handler() -> None:
    handled: list[ketal.Verdict] = []
    m = Monitor(ketal.compile(EVERYTHING), on={"rejected": handled.append})
    rejected = Rejected(place="shop.log:12", reason="no JSON")
    assert m.feed_many([e("n@1", "a"), rejected]) == handled == [rejected]
    assert m.summary["events"]["rejected"] == 1
    assert adds_up(m.summary)


def test_snapshot_and_restore_after_every_event_change_nothing() -> None:
    both = ketal.compile(EVERYTHING)

    @drawn(10, 250)
    def holds(rng: random.Random) -> None:
        plain, other = Driven(both), Driven(both)
        for number, event in enumerate(stream(rng)):
            assert plain.feed(event) == other.feed(event)
            if number == 9:
                assert plain.advance_time(5) == other.advance_time(5)
            blob = other.snapshot()
            other = Driven.restored(both, blob)
            assert other.snapshot() == blob, "a snapshot is canonical"
            assert other.summary == plain.summary
            assert other.held_back() == plain.held_back()
            assert other.counts.live_runs == plain.counts.live_runs
            assert adds_up(other.summary)
        assert plain.close() == other.close()
        assert Monitor.restore(both, other.snapshot()).close() == []


def test_snapshot_is_the_same_in_every_process() -> None:
    code = (
        "import hashlib, random, ketal, tests.runtime.test_monitor as t\n"
        "m = ketal.Monitor(ketal.compile(t.EVERYTHING))\n"
        "v = m.feed_many(t.stream(random.Random(1)))\n"
        "v += m.close()\n"
        "ids = [x.id for x in v if hasattr(x, 'id')]\n"
        "print(hashlib.sha256(m.snapshot()).hexdigest(), len(ids), *ids)\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    _, count, *ids = outputs.pop().split()
    assert int(count) == len(ids) > 5
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[0-9a-f]{32}", i) for i in ids)


BASE = (
    "order arrival", 'event A = type == "a"', 'event B = type == "b" && x == 1', "S = B",
    "find next A S", "within 5 s",
)  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ("S = B", "T = B", "steps, body"),
        ("x == 1", "x == 2", "events"),
        ("S = B", "S = B && y == 1", "steps"),
        ("within 5 s", "within 6 s", "window"),
        ("find next", "find strict", "kind and strategy"),
        ("order arrival", "order CausalOrder", "order"),
        ("within 5 s", "within 5 s; partition by k", "partition"),
        ("within 5 s", "within 5 s; return z = A.x", "return and limit"),
        ("find next A S", "find next A S+", "body"),
        ("order arrival", "order arrival; at every node", "deployment"),
    ],
)
def test_restore_under_another_pattern_names_the_change(old: str, new: str, change: str) -> None:
    text = f"pattern P {{ {'; '.join(BASE)}; }}"
    m = Monitor(ketal.compile(text))
    m.feed(e("n@1", "a", time=1, x=1))
    changed = text.replace(old, new)
    if new == "T = B":
        changed = changed.replace("A S", "A T")
    assert changed != text
    with pytest.raises(StateError, match="another program") as caught:
        Monitor.restore(ketal.compile(changed), m.snapshot())
    assert f"pattern P changed: {change}" in str(caught.value)
    # Layout and comments do not count as a change.
    Monitor.restore(ketal.compile(text.replace(";", " ;  // so\n")), m.snapshot())


def test_restore_names_removed_and_added_patterns() -> None:
    two = ketal.compile(p("find next A") + p("find next B").replace("pattern P", "pattern Q"))
    with pytest.raises(StateError, match="pattern Q was removed"):
        Monitor.restore(two["P"], Monitor(two).snapshot())
    with pytest.raises(StateError, match="pattern Q was added"):
        Monitor.restore(two, Monitor(two["P"]).snapshot())


def test_damaged_bytes_are_a_state_error() -> None:
    m = monitor("find next A B", "partition by k", order=CAUSAL)
    m.feed_many([e("n@1", "a", k=1), e("n@3", "b", k=1)])
    blob = m.snapshot()
    for wrong in (b"", b"ketal", b"{}", b"x" * 50, blob[:8], blob[:-1], blob[: len(blob) // 2]):
        with pytest.raises(StateError, match=r"not a ketal snapshot|damaged"):
            Monitor.restore(m.program, wrong)
    for at in range(len(blob)):
        with pytest.raises(StateError):
            Monitor.restore(m.program, blob[:at] + bytes([blob[at] ^ 1]) + blob[at + 1 :])
    other_format = blob[:5] + bytes([99]) + blob[6:]
    with pytest.raises(StateError, match="has format 99; this version reads format"):
        Monitor.restore(m.program, other_format)


@pytest.mark.parametrize(
    "body",
    [b"\x91" * 100_000, msgspec.msgpack.encode("[" * 100_000)],
    ids=["MessagePack", "JSON"],
)
def test_record_nested_too_deeply_is_damaged(body: bytes) -> None:
    """In MessagePack, or in JSON, as which bodies with large numbers are saved."""
    m = monitor("find next A B")
    blob = encode_snapshot(decode_snapshot(m.snapshot()) | {b"core": bytes([0x92, FORMAT]) + body})
    with pytest.raises(StateError, match="the state is damaged: record core: maximum recursion"):
        Monitor.restore(m.program, blob)


def test_restore_accepts_the_options_of_a_monitor() -> None:
    m = monitor("find next A B", execution="one")
    m.feed(e("n@1", "a"))
    handled: list[Any] = []
    restored = Monitor.restore(m.program, m.snapshot(), on={"match": handled.append})
    (match,) = restored.feed(e("n@2", "b"))
    assert isinstance(match, Match)
    assert match.execution == "one"
    assert handled == [match]
    with pytest.raises(TypeError):
        Monitor.restore(m.program, m.snapshot(), nonsense=1)  # type: ignore[call-arg]


def test_name_of_an_execution_must_be_encodable() -> None:
    refusal = r"'\\ud800' is not a valid execution name: it cannot be encoded as UTF-8"
    with pytest.raises(SettingError, match=refusal):
        monitor("find next A B", execution="\ud800")
    m = monitor("find next A B")
    with pytest.raises(SettingError, match=refusal):
        Monitor.restore(m.program, m.snapshot(), execution="\ud800")


def test_restore_under_a_too_small_limit_is_an_error() -> None:
    m = monitor("find next A B", order=CAUSAL)
    m.feed_many([e("n@3", "a"), e("n@2", "a")])
    with pytest.raises(StateError, match=r"more than 1 \(limit held_back_max\)"):
        Monitor.restore(m.program, m.snapshot(), limits=Limits(held_back_max=1))


def test_several_full_queues_are_restored() -> None:
    rows = (("P", "a -> b"), ("Q", "c -> d"))
    text = "".join(
        named(name, "check A*", f"topology {{ {edge}; }}", order=CAUSAL) for name, edge in rows
    )
    m = Monitor(ketal.compile(text), limits=Limits(held_back_max=1))
    m.feed_many([e("b@2", "a"), e("d@2", "a")])
    again = Monitor.restore(m.program, m.snapshot(), limits=Limits(held_back_max=1))
    assert again.held_back() == m.held_back()
    assert len(again.held_back()) == 2


@pytest.mark.parametrize("order", ["arrival", CAUSAL])
def test_masks_of_many_atoms_survive_a_snapshot(order: str) -> None:
    events = "".join(f"event E{i} = x == {i};" for i in range(80))
    text = p("find any E79 E78+ E77", letters=events, order=order)
    m = Monitor(ketal.compile(text, limits=Limits(atoms_max=80)))
    for i, x in enumerate((79, 78, 78), 1):
        m.feed(e(f"n@{i}", "t", x=x))
        m = Monitor.restore(m.program, m.snapshot())
    assert len(m.feed(e("n@4", "t", x=77))) == 3


def test_values_of_any_size_survive_a_snapshot() -> None:
    m = monitor("find next A B", "partition by k", "return x = A.x")
    m.feed(e("n@1", "a", k=10**40, x=-(10**30)))
    restored = Monitor.restore(m.program, m.snapshot())
    (match,) = restored.feed(e("n@2", "b", k=10**40))
    assert isinstance(match, Match)
    assert match.to_dict()["scope"] == {"k": 10**40}
    assert match.to_dict()["return"] == {"x": -(10**30)}


# --- handlers --------------------------------------------------------------------------------


def test_handlers_are_called_by_kind_of_verdict() -> None:
    calls: list[str] = []

    def note(what: str) -> Callable[[Any], None]:
        return lambda verdict: calls.append(f"{what}: {verdict}")

    m = monitor(
        "check (A B)*",
        "on violation resume",
        on={"violation": note("v"), "incomplete": note("i"), "match": note("m")},
    )
    m.feed_many(line("a a"))
    m.close()
    assert calls == [
        "v: violation P: n@2 a: expected B",
        "i: incomplete P: ended in q1, expected B",
    ]


def test_handlers_are_called_on_entering_a_state() -> None:
    calls: list[str] = []
    m = Monitor(
        program(
            "check automaton { initial idle; final idle; idle -> busy on A; busy -> busy on B; "
            "busy -> idle on C; }"
        ),
        on={
            "P.busy": lambda v: calls.append(f"busy {v.event}"),
            "P.idle": lambda v: calls.append(f"idle {v.event}"),
        },
    )
    assert m.feed_many(line("a b b c a")) == [], "transitions were not asked for"
    assert calls == ["busy n@1", "idle n@4", "busy n@5"], "staying is not entering"


def test_handler_of_transitions_needs_no_trace() -> None:
    calls: list[Transition] = []
    m = monitor("check (A B)*", on={"transition": calls.append})
    assert m.feed_many(line("a b")) == [], "transitions were not asked for"
    assert [str(call.event) for call in calls] == ["n@1", "n@2"]


def test_failing_handler_is_logged_and_not_raised(caplog: pytest.LogCaptureFixture) -> None:
    def fails(verdict: Any) -> None:
        raise ZeroDivisionError("mine")

    calls: list[Any] = []
    m = monitor("find next A", on={"match": fails, "P.q1": calls.append})
    with caplog.at_level(logging.ERROR, logger="ketal"):
        assert len(m.feed(e("n@1", "a"))) == 1
        assert len(m.feed(e("n@2", "a"))) == 1
    assert m.summary["handler_failures"] == 2
    assert "a handler failed on: match P: A=n@1" in caplog.text
    assert "ZeroDivisionError: mine" in caplog.text
    assert len(calls) == 2, "the others are called"
    assert "handler_failures" not in monitor("find next A").summary


@pytest.mark.parametrize("key", ["matches", "P.q9", "Q.q0", "P", "", "P.q0.x"])
def test_an_unknown_handler_is_a_setting_error(key: str) -> None:
    with pytest.raises(SettingError, match=r"violation.*P\.q0, P\.q1") as caught:
        monitor("find next A", on={key: print})
    assert repr(key) in str(caught.value)


# --- trace -----------------------------------------------------------------------------------


def moves(verdicts: Sequence[Any]) -> list[tuple[str, str, str, str]]:
    return [
        (str(v.event), v.source, v.step, v.target) for v in verdicts if isinstance(v, Transition)
    ]


def test_trace_reports_every_transition_of_a_check() -> None:
    m = monitor("check (A B)*", "on violation resume", trace=True)
    verdicts = m.feed_many(line("a b b a a x"))
    assert moves(verdicts) == [
        ("n@1", "q0", "A", "q1"),
        ("n@2", "q1", "B", "q0"),
        ("n@4", "q0", "A", "q1"),
        ("n@5", "q0", "A", "q1"),
    ], "the fresh run takes the event that was refused"
    assert [v.kind for v in verdicts if not isinstance(v, Transition)] == ["violation"] * 2


@pytest.mark.parametrize("strategy", ["next", "any"])
@pytest.mark.parametrize("order", ["arrival", CAUSAL])
def test_trace_reports_every_transition_of_a_find(strategy: str, order: str) -> None:
    m = monitor(f"find {strategy} A B C", order=order, trace=True)
    verdicts = m.feed_many(line("a b c"))
    assert moves(verdicts) == [
        ("n@1", "q0", "A", "q1"),
        ("n@2", "q1", "B", "q2"),
        ("n@3", "q2", "C", "q3"),
    ]
    assert [v.kind for v in verdicts][-1] == "match"


def test_trace_of_a_join_reports_events_taken_out_of_order() -> None:
    m = monitor("find any A B", order=CAUSAL, trace=True)
    a, b, _ = FORK
    assert moves(m.feed(b)) == []
    assert moves(m.feed(a)) == [("n1@1", "q0", "A", "q1"), ("n2@1", "q1", "B", "q2")]


def test_trace_over_a_finite_log() -> None:
    kinds = [v.kind for v in ketal.run(program("check (A B)*"), line("a b"), trace=True)]
    assert kinds == ["transition", "transition"]


# --- limits ----------------------------------------------------------------------------------


def overflows(verdicts: Sequence[Any], limit: str) -> list[str]:
    """Return the dots of the overflows, all of which name the limit."""
    for v in verdicts:
        if isinstance(v, Overflow):
            assert v.limit == limit
            assert v.given_up
            assert limit in str(v)
            assert v.to_dict()["limit"] == limit
            assert v.to_dict()["event"] == str(v.event)
    reported = [v for v in verdicts if isinstance(v, Overflow)]
    assert len({v.id for v in reported}) == len(reported), "ids tell them apart"
    return [str(v.event) for v in reported]


def test_held_back_max() -> None:
    m = monitor("check A*", order=CAUSAL, limits=Limits(held_back_max=1))
    verdicts = m.feed_many(e(f"n@{i}", "a") for i in (3, 4, 1))
    assert overflows(verdicts, "held_back_max") == ["n@4"]
    events = m.summary["events"]
    assert (events["overflow"], events["held_back"], events["accepted"]) == (1, 1, 1)
    assert adds_up(m.summary)


def test_runs_max() -> None:
    for order, strategy in (("arrival", "next"), ("arrival", "any"), (CAUSAL, "any")):
        m = monitor(f"find {strategy} A B", order=order, limits=Limits(runs_max=2))
        verdicts = m.feed_many(line("a a a a b"))
        assert overflows(verdicts, "runs_max") == ["n@3"], "told once in a scope"
        # Under CausalOrder an A may still arrive for the B, so the B is kept too.
        assert m.summary["patterns"]["P"]["overflows"] == (3 if order == CAUSAL else 2)
        assert texts(v for v in verdicts if isinstance(v, Match)) == [
            "match P: A=n@1, B=n@5",
            "match P: A=n@2, B=n@5",
        ]


def test_continued_run_does_not_count_twice_towards_runs_max() -> None:
    m = monitor("find next A B+", limits=Limits(runs_max=1))
    assert overflows(m.feed_many(line("a b b b b")), "runs_max") == []


def test_candidates_max_bounds_the_events_that_runs_took() -> None:
    """Each `a` can be A or S, so it is kept twice, however many runs continue with it."""
    reads_s = ("S = A && x == 1", "find next (A | S)+ B")
    m = monitor(*reads_s, limits=Limits(candidates_max=4))
    verdicts = m.feed_many(line("a a a", x=1))
    assert overflows(verdicts, "candidates_max") == ["n@2"]
    m = monitor(*reads_s, limits=Limits(candidates_max=12))
    assert overflows(m.feed_many(line("a a a", x=1)), "candidates_max") == []


def test_check_beyond_configurations_max_reports_no_violation() -> None:
    """Without all configurations the run would report allowed events as violations."""
    reads_s = ("S = A && x == 1", "T = A && y == 1", "U = Causal(B, S)", "check (S | T)* U")
    events = [*line("a a a a", x=1, y=1), e("n@5", "b")]
    m = monitor(*reads_s, limits=Limits(configurations_max=3))
    verdicts = m.feed_many(events) + m.close()
    assert overflows(verdicts, "configurations_max") == ["n@3"]
    assert len(verdicts) == 1, "no violation, nor is it incomplete"
    assert m.summary["patterns"]["P"]["halted"] == 2
    assert monitor(*reads_s).feed_many(events) == []


def test_scopes_max() -> None:
    m = monitor("check A A*", "partition by x", limits=Limits(scopes_max=2))
    verdicts = m.feed_many(e(f"n@{i}", "a", x=x) for i, x in enumerate((1, 2, 3, 1, 4), 1))
    assert overflows(verdicts, "scopes_max") == ["n@3", "n@5"]
    assert [v.scope for v in verdicts if isinstance(v, Overflow)] == [{"x": 3}, {"x": 4}]


@pytest.mark.parametrize("order", ["arrival", CAUSAL])
@pytest.mark.parametrize(("lost_max", "uncertain"), [(2, [2, 4]), (1, [1, 2, 3, 4])])
def test_scope_that_had_no_room_is_uncertain_from_then_on(
    order: str, lost_max: int, uncertain: list[int]
) -> None:
    """Whether or not its later events know of the first one; beyond `lost_max` all scopes are."""
    limits = Limits(scopes_max=1, lost_max=lost_max)
    m = monitor("check (A B)*", "on violation skip", "partition by x", order=order, limits=limits)
    refused = [e("n1@1", "a", x=2), e("n1@2", "a", x=4)]
    m.feed_many([e("n0@1", "a", x=1), *refused, e("n0@2", "b", x=1)])
    for one in (m, Monitor.restore(m.program, m.snapshot(), limits=limits)):
        verdicts = one.feed_many(e(f"n2@{x}", "b", x=x) for x in (1, 2, 3, 4))
        found = [v for v in verdicts if isinstance(v, Violation)]
        assert [v.scope["x"] for v in found] == [1, 2, 3, 4]
        assert [v.scope["x"] for v in found if not v.certain] == uncertain


@pytest.mark.parametrize("order", ["arrival", CAUSAL])
def test_scopes_that_are_over_make_room_also_after_the_limit_was_reached(order: str) -> None:
    limits = Limits(scopes_max=1)
    m = monitor("check (A B)*", "partition by x", order=order, limits=limits)
    verdicts = m.feed_many([e("n@1", "a", x=1), e("n@2", "a", x=2), e("n@3", "b", x=1)])
    assert overflows(verdicts, "scopes_max") == ["n@2"]
    assert m.feed_many([e("n@4", "a", x=2), e("n@5", "b", x=2), e("n@6", "a", x=3)]) == []


def test_event_that_no_run_begins_with_needs_no_room_also_after_the_limit_was_reached() -> None:
    m = monitor("find next A B", "partition by x", limits=Limits(scopes_max=1))
    verdicts = m.feed_many([e("n@1", "a", x=1), e("n@2", "a", x=2), e("n@3", "b", x=3)])
    assert overflows(verdicts, "scopes_max") == ["n@2"]


def test_candidates_max() -> None:
    m = monitor("find any A B", order=CAUSAL, limits=Limits(candidates_max=1))
    verdicts = m.feed_many([e("n1@1", "b"), e("n2@1", "b"), e("n3@1", "a")])
    assert overflows(verdicts, "candidates_max") == ["n2@1"]
    assert texts(v for v in verdicts if isinstance(v, Match)) == ["match P: A=n3@1, B=n1@1"]


def test_unlearned_max() -> None:
    limits = Limits(unlearned_max=2)
    m = monitor("at every node", "check A*", limits=limits)
    assert m.feed_many(e(f"n@{i}", "a") for i in range(1, 5)) == []
    for one in (m, Monitor.restore(m.program, m.snapshot(), limits=limits)):
        verdicts = one.feed(e("k@1", "a", "n:3"))
        assert overflows(verdicts, "unlearned_max") == ["k@1"]
        assert "evicted events, up to n@2, of which k has learned" in str(verdicts[0])
        assert one.feed(e("k@2", "a", "n:4")) == []
        last = one.feed_many(e(f"{node}@9", "b") for node in ("k", "n", "l"))
        by_node = {v.scope["node"]: v.depends_on for v in last if isinstance(v, Violation)}
        assert by_node == {"k": (Dot("n", 2),), "n": (), "l": ()}


@pytest.mark.parametrize(
    ("most", "arrivals", "seen", "upto"),
    [
        (2, "n@3 n@1 n@2", "n:3", "n@1"),
        (3, "m@1 n@1 n@2 n@3", "m:1 n:3", "n@1"),
        (1, "n@3 n@1 n@5", "n:3", "n@3"),  # n@1 is evicted after n@3, which came first
    ],
)
def test_event_with_the_lowest_counter_of_the_node_with_most_is_evicted(
    most: int, arrivals: str, seen: str, upto: str
) -> None:
    m = monitor("at every node", "check A*", limits=Limits(unlearned_max=most))
    assert m.feed_many(e(dot, "a") for dot in arrivals.split()) == []
    (told,) = m.feed(e("k@1", "a", seen))
    assert f"evicted events, up to {upto}, of which k has learned" in str(told)


@pytest.mark.parametrize("order", ["arrival", CAUSAL])
def test_match_in_a_window_of_events_depends_on_the_evicted_ones(order: str) -> None:
    """With n@1 and n@2, B would be the fourth event of the copy of k."""
    others = [e("n@1", "a"), e("n@2", "a"), e("n@3", "b")]
    made = program("at every node", "find any A B", "within 2 events", order=order)
    events = [e("k@1", "a"), *others, e("k@2", "c", "n:3")]
    found = ketal.run(made, events, limits=Limits(unlearned_max=1))
    certain = {v.scope["node"]: v.certain for v in found if isinstance(v, Match)}
    assert certain == {"n": True, "k": False}


def test_unlearned_max_of_copies_that_are_offered_everything() -> None:
    limits = Limits(unlearned_max=2)
    m = monitor("at every node all", "check A*", "on violation skip", limits=limits)
    assert m.feed_many(e(f"n@{i}", "a") for i in range(1, 5)) == []
    (told, *_) = m.feed(e("k@1", "b"))
    assert "evicted events, up to n@2, of which k has learned" in str(told)
    verdicts = [v for v in m.feed(e("k@2", "b")) if isinstance(v, Violation)]
    assert {v.scope["node"]: v.certain for v in verdicts} == {"k": False, "n": True}


def test_evicted_event_does_not_keep_windows_open() -> None:
    limits = Limits(unlearned_max=2)
    m = monitor("at every node", "find next A B", "within 5 s", order=CAUSAL, limits=limits)
    m.feed(ketal.Event("n", "a", {"n": 1}, time=3.0))
    m.feed_many(ketal.Event("m", "b", {"m": i}, time=t) for i, t in enumerate((1, 50, 60), 1))
    for one in (m, Monitor.restore(m.program, m.snapshot(), limits=limits)):
        (ended,) = one.advance_time(20.0)
        assert isinstance(ended, TimedOut)
        assert str(ended) == "timed_out P (node=n): A=n@1"
        assert ended.depends_on == (Dot("m", 1),), "n may yet learn of it"


def test_time_out_does_not_depend_on_evicted_events_of_which_its_node_never_learns() -> None:
    for window in ("within 5 s", "within 2 events"):
        limits = Limits(unlearned_max=1)
        m = monitor("at every node", "find next A B", window, order=CAUSAL, limits=limits)
        m.feed_many([e("n@1", "a", time=1), e("m@1", "b", time=2), e("m@2", "b", time=3)])
        (ended,) = m.close()
        assert isinstance(ended, TimedOut)
        assert str(ended) == "timed_out P (node=n): A=n@1"
        assert ended.certain


def test_candidates_max_bounds_the_events_that_can_break_a_not() -> None:
    events = [e("n1@1", "a"), e("n2@1", "c"), e("n3@1", "b")]
    for most, given_up in ((1, ["n2@1"]), (2, [])):
        limits = Limits(candidates_max=most)
        m = monitor("find next A not C B", order=CAUSAL, limits=limits)
        assert overflows(m.feed_many(events), "candidates_max") == given_up


@pytest.mark.parametrize("strategy", ["any", "next"])
def test_matches_per_event_max(strategy: str) -> None:
    for order in ("arrival", CAUSAL):
        m = monitor(f"find {strategy} A B", order=order, limits=Limits(matches_per_event_max=2))
        verdicts = m.feed_many(line("a a a a b"))
        assert overflows(verdicts, "matches_per_event_max") == ["n@5"]
        assert sum(isinstance(v, Match) for v in verdicts) == 2
        assert m.summary["patterns"]["P"]["matches"] == 2
        # Two matches are missing, of one event: the events are counted, not the matches.
        (overflow,) = (v for v in verdicts if isinstance(v, Overflow))
        assert overflow.given_up.startswith("events of which matches are missing: 1; ")


def test_counters_max() -> None:
    m = monitor("find any A B", limits=Limits(counters_max=2))
    verdicts = m.feed_many(e(f"n@{i}", "a") for i in (2, 4, 6, 1, 6, 7))
    assert overflows(verdicts, "counters_max") == ["n@1"]
    assert m.summary["events"]["duplicates"] == 1
    assert m.summary["events"]["overflow"] == 1
    assert adds_up(m.summary)


def test_events_max() -> None:
    causal = program("check A*", order=CAUSAL)
    verdicts = ketal.run(causal, line("a a a a"), limits=Limits(events_max=2))
    assert overflows(list(verdicts), "events_max") == ["n@3", "n@4"]
    assert verdicts.summary["events"] == {
        "read": 4, "accepted": 2, "duplicates": 0, "rejected": 0, "late": 0, "held_back": 0,
        "overflow": 2,
    }  # fmt: skip
    # Under order arrival no event is kept, so the limit does not apply.
    arrival = ketal.run(program("check A*"), line("a a a a"), limits=Limits(events_max=2))
    assert list(arrival) == []


def test_dots_max_evicts_contents_but_no_dots() -> None:
    m = monitor("find any A B", limits=Limits(dots_max=2))
    m.feed_many(line("a a a a"))
    assert m.feed(e("n@2", "other")) == [], "its content is forgotten: it counts as a duplicate"
    assert [v.kind for v in m.feed(e("n@4", "other"))] == ["rejected"]
    assert m.summary["events"]["duplicates"] == 1
    assert adds_up(m.summary)


# --- counting and limiting --------------------------------------------------------------------


def test_return_count_lists_nothing_and_counts_all() -> None:
    for order in ("arrival", CAUSAL):
        verdicts = ketal.run(program("find any A B", "return count", order=order), line("a a b b"))
        assert list(verdicts) == []
        assert verdicts.summary["patterns"]["P"]["matches"] == 4


def test_limit_lists_the_first_and_counts_all() -> None:
    verdicts = ketal.run(program("find any A B", "limit 3"), line("a a b b"))
    listed = texts(list(verdicts))
    assert listed == texts(ketal.run(program("find any A B"), line("a a b b")))[:3]
    assert verdicts.summary["patterns"]["P"]["matches"] == 4
    m = monitor("find any A B", "limit 1")
    m.feed_many(line("a b"))
    restored = Monitor.restore(m.program, m.snapshot())
    assert restored.feed(e("n@3", "b")) == [], "the limit is of the execution"
    assert restored.summary["patterns"]["P"]["matches"] == 2


def test_without_listing_there_are_counts_only() -> None:
    m = monitor("check (A B)*", "on violation skip", listing=False)
    assert m.feed_many(line("a a a")) == []
    assert m.close() == []
    counts = m.summary["patterns"]["P"]
    assert (counts["violations"], counts["incomplete"]) == (2, 1)


# --- verdicts ---------------------------------------------------------------------------------


def samples() -> dict[str, Any]:
    """Return a verdict of each kind, made by the engine where possible."""
    events = [e("n1@1", "a", time=1.5, k=17), e("n2@1", "b", time=2, k=17)]
    find = program("find any A B", "within 5 s", "partition by k", "return k = A.k", order=CAUSAL)
    (match,) = ketal.run(find, events)
    (timed_out,) = ketal.run(find, events[:1])
    check = program("check (A B)*", "partition by k", order=CAUSAL)
    (incomplete,) = ketal.run(check, events[:1])
    (violation,) = ketal.run(check, events[1:])
    late = monitor("find next A B", "within 5 s")
    late.advance_time(9)
    over = monitor("check A*", order=CAUSAL, limits=Limits(held_back_max=1))
    traced = monitor("find next A", trace=True)
    rejected = monitor("find next A")
    rejected.feed(e("n@2", "a"))
    return {
        "match": match,
        "timed_out": timed_out,
        "incomplete": incomplete,
        "violation": violation,
        "late": late.feed(events[0])[0],
        "overflow": over.feed_many([e("n@3", "a"), e("n@5", "a")])[0],
        "transition": traced.feed(e("n@1", "a"))[0],
        "rejected": rejected.feed(e("n@2", "b"), place="shop.log:12")[0],
        "gap": Gap(pattern="P", fingerprint="", dot=Dot("n2", 14)),
    }


KEYS_OF_VERDICTS = {
    "match": ("pattern", "id", "scope", "events", "bindings", "return", "time"),
    "violation": ("pattern", "id", "scope", "event", "state", "expected", "reason", "time"),
    "incomplete": ("pattern", "id", "scope", "state", "expected"),
    "timed_out": ("pattern", "id", "scope", "bindings", "time"),
    "late": ("pattern", "id", "scope", "event", "reason", "time"),
    "gap": ("pattern", "id", "scope", "dot"),
    "overflow": ("pattern", "id", "scope", "limit", "given_up", "event"),
    "rejected": ("place", "reason"),
    "transition": ("pattern", "id", "scope", "event", "step", "from", "to"),
}


@pytest.mark.parametrize("kind", KEYS_OF_VERDICTS)
def test_every_kind_of_verdict_has_exactly_its_keys(kind: str) -> None:
    verdict = samples()[kind]
    fields = verdict.to_dict()
    assert fields["verdict"] == kind == verdict.kind
    assert next(iter(fields)) == "verdict"
    assert set(fields) == {"verdict", *KEYS_OF_VERDICTS[kind]}
    assert (
        json.loads(json.dumps(fields)) == fields == msgspec.json.decode(msgspec.json.encode(fields))
    )
    if "id" in fields:
        assert re.fullmatch("[0-9a-f]{32}", fields["id"])
    # The text is one line that begins with the kind.
    assert str(verdict).startswith(kind)
    assert "\n" not in str(verdict)
    # Frozen.
    for name in verdict.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(verdict, name, None)


def test_a_match_in_json() -> None:
    match = samples()["match"]
    assert match.to_dict() == {
        "verdict": "match",
        "pattern": "P",
        "id": match.id,
        "scope": {"k": 17},
        "events": ["n1@1", "n2@1"],
        "bindings": {"A": ["n1@1"], "B": ["n2@1"]},
        "return": {"k": 17},
        "time": "1970-01-01T00:00:02Z",
    }
    assert str(match) == "match P (k=17): A=n1@1, B=n2@1 → k=17"


def test_a_violation_in_json() -> None:
    violation = samples()["violation"]
    assert violation.to_dict() == {
        "verdict": "violation",
        "pattern": "P",
        "id": violation.id,
        "scope": {"k": 17},
        "event": "n2@1",
        "state": "q0",
        "expected": ["A"],
        "reason": "expected A",
        "time": "1970-01-01T00:00:02Z",
    }
    assert isinstance(violation, Violation)


def test_json_has_an_empty_scope_by_default_and_names_one_of_several_executions() -> None:
    (plain,) = ketal.run(program("find next A"), line("a"))
    assert isinstance(plain, Match)
    assert plain.to_dict()["scope"] == {}
    assert "execution" not in plain.to_dict()
    assert "return" not in plain.to_dict()
    assert "certain" not in plain.to_dict()
    assert msgspec.structs.replace(plain, certain=False).to_dict()["certain"] is False
    (named,) = monitor("find next A", execution="run 2").feed(e("n@1", "a"))
    assert isinstance(named, Match)
    assert named.to_dict()["execution"] == "run 2"
    assert str(named).startswith("match [run 2] P: ")
    assert named.id != Match(pattern="P", fingerprint=named.fingerprint, steps=named.steps).id


def test_ids_depend_on_all_fields_but_time_and_return() -> None:
    steps = (("A", Dot("n", 1)), ("B", Dot("m", 2)))
    base = Match(pattern="P", fingerprint="f", steps=steps)
    replaced = msgspec.structs.replace
    assert replaced(base, time=3.0, returns={"x": 1}).id == base.id
    others = [
        replaced(base, fingerprint="g"),
        replaced(base, pattern="Q"),
        replaced(base, execution="x"),
        *(
            replaced(base, scope=FrozenMapping((("k", value),)))
            for value in (1, "1", True, math.inf, -math.inf, "inf")
        ),
        replaced(base, steps=steps[::-1]),
        replaced(base, steps=(("A", Dot("n", 2)), steps[1])),
        TimedOut(pattern="P", fingerprint="f", steps=steps),
    ]
    assert len({v.id for v in others} | {base.id}) == len(others) + 1


def test_ids_do_not_depend_on_which_of_equal_keys_came_first() -> None:
    """1 and 1.0 are the same scope, whichever is offered first."""
    find = program("find any A B", "partition by k", order=CAUSAL)
    events = [e("n1@1", "a", k=1.0), e("n2@1", "b", k=1)]
    ids = [Monitor(find).feed_many(order)[0].id for order in (events, events[::-1])]  # type: ignore[union-attr]
    assert ids[0] == ids[1]
    (match,) = Monitor(find).feed_many(events)
    assert json.dumps(match.to_dict()["scope"]) == '{"k": 1}'


# --- Verdicts ------------------------------------------------------------------------------------


def two_executions() -> Iterator[Record]:
    """Yield the records of a log of two executions."""
    for number, event in enumerate(line("a b"), 1):
        for name in ("one", "two"):
            yield name, event, "shop.log", number
    yield "two", Rejected(place="shop.log:3", reason="no event", execution="two"), "shop.log", 3


@pytest.mark.parametrize("order", ["arrival", CAUSAL])
def test_several_executions_are_judged_separately(order: str) -> None:
    verdicts = ketal.run(program("find any A B", order=order), Log(two_executions))
    listed = list(verdicts)
    assert sorted((v.execution, v.kind) for v in listed) == [
        ("one", "match"),
        ("two", "match"),
        ("two", "rejected"),
    ]
    assert len({v.id for v in listed if isinstance(v, Match)}) == 2
    assert verdicts.summary["events"]["read"] == 5
    assert verdicts.summary["patterns"]["P"]["matches"] == 2
    assert adds_up(verdicts.summary)


def test_verdicts_of_a_finite_log_are_in_canonical_order_of_the_completing_event() -> None:
    a, b, c = FORK
    events = [c, b, a, e("n1@2", "b")]
    verdicts = ketal.run(program("find any B | C", order=CAUSAL), events)
    assert [str(v.events[-1]) for v in verdicts] == ["n2@1", "n1@2", "n3@1"]  # type: ignore[union-attr]


# --- not available on a stream -------------------------------------------------------------------


def test_monitor_refuses_a_mode_with_a_hint() -> None:
    """A mode needs every linear extension of a whole execution: tests/property/test_modal.py."""
    text = "order CausalOrder; mode possibly"
    made = ketal.compile(f'pattern P {{ {text}; event A = type == "a"; check A*; }}')
    message = "pattern P: `mode possibly` .* use ketal.run on a finite log"
    with pytest.raises(NotAvailableError, match=message):
        Monitor(made)


# --- the policies of CausalOrder on a stream ---------------------------------------------------


def test_total_on_a_stream_gives_the_matches_of_the_finite_log() -> None:
    """With declared `nodes`, the matches and their ids are the same in every order of arrival."""
    made = program("find next A B", order='CausalOrder(total, nodes = ["n", "m"])')
    events = [
        e("n@1", "a"),
        e("m@1", "a"),
        e("n@2", "b"),
        e("m@2", "b", "n:1"),
        e("n@3", "a", "m:2"),
        e("m@3", "b"),
    ]
    expected = [v.to_dict() for v in ketal.run(made, events)]
    assert expected

    @examples(20, 500)
    @given(st.permutations(events))
    def holds(shuffled: list[Event]) -> None:
        m = Monitor(made)
        said = []
        for event in shuffled:
            said += m.feed(event)
            m = Monitor.restore(made, m.snapshot())
        said += m.close()
        assert [v.to_dict() for v in said] == expected
        assert m.summary["events"]["accepted"] == len(events)

    holds()


def test_gap_names_its_dot_and_marks_verdicts_that_depend_on_it() -> None:
    """Dependants of a lost dot are released; verdicts with them are not certain."""
    m = monitor("find next A B", order="CausalOrder(gap = 30 s)")
    assert texts(m.feed(e("n@1", "a", time=1))) == []
    (before,) = m.feed(e("n@2", "b", time=2))
    assert before.to_dict().get("certain", True), "a match found before a gap stays"
    assert m.feed(e("m@2", "a", time=3)) == []
    assert m.feed(e("m@3", "b", time=4)) == []
    assert [str(dot) for _, dot in m.held_back()] == ["m@1", "m@1"]
    m = Monitor.restore(m.program, m.snapshot())
    gap, after = m.advance_time(40)
    assert isinstance(gap, Gap)
    assert gap.dot == Dot("m", 1)
    assert isinstance(after, Match)
    assert (after.certain, after.depends_on) == (False, (Dot("m", 1),))
    assert after.to_dict()["depends_on"] == ["m@1"]
    m.feed(e("k@1", "a", time=41))
    (outside,) = m.feed(e("k@2", "b", time=42))
    assert isinstance(outside, Match)
    assert outside.certain, "outside of the gap's future nothing is in doubt"
    (late,) = m.feed(e("m@1", "b", time=2))
    assert isinstance(late, Late)
    assert adds_up(m.summary)
    assert m.summary["events"]["late"] == m.summary["gaps"] == 1


def test_check_after_a_gap_is_uncertain() -> None:
    """The lost event could have been the event that the run expected."""
    m = monitor("check A B", order="CausalOrder(gap = 1 s)")
    m.feed(e("n@2", "b", time=1))
    verdicts = m.advance_time(10)
    assert [v.kind for v in verdicts] == ["gap", "violation"]
    assert verdicts[1].to_dict()["certain"] is False


def test_run_that_ends_without_a_match_after_a_loss_is_uncertain() -> None:
    """The lost event could have been the event that the run expected."""
    log = [e("n@1", "a", time=0), e("n@3", "unrelated", time=1)]
    for body, kind in (("check A B", "incomplete"), ("find next A B; within 3 s", "timed_out")):
        m = monitor(body, order="CausalOrder(gap = 5 s)")
        verdicts = m.feed_many(log)
        verdicts += m.advance_time(20)
        m = Monitor.restore(m.program, m.snapshot())
        verdicts += m.close()
        ended = [v.to_dict() for v in verdicts if v.kind == kind]
        assert ended
        assert all(v["certain"] is False and v["depends_on"] == ["n@2"] for v in ended), ended
        assert [v.kind for v in verdicts if v.kind == "gap"] == ["gap"]


def test_match_after_a_late_event_is_uncertain() -> None:
    """The late event is not offered, and could have been the `not` event that forbids the match."""
    m = monitor("find any A not C B; within 50 s", order=CAUSAL)
    m.feed(e("n@1", "a", time=0))
    m.advance_time(10)
    (late,) = m.feed(e("n@2", "c", time=5))
    assert isinstance(late, Late)
    (match,) = m.feed(e("n@3", "b", time=11))
    assert match.to_dict()["depends_on"] == ["n@2"]


def test_frontier_releases_a_filtered_stream_in_causal_order() -> None:
    """Despite many holes no event waits for ever, and causes are still released first."""
    m = monitor("find next A B", order="CausalOrder(frontier = 10 s)")
    verdicts = m.feed_many(
        [e("n@5", "a", time=1), e("m@9", "b", "n:5", time=0), e("k@7", "c", time=30)]
    )
    assert texts(verdicts) == ["match P: A=n@5, B=m@9"]
    assert texts(m.close()) == []
    assert m.summary["events"]["accepted"] == 3


@pytest.mark.parametrize(
    ("option", "length", "by_us"),
    [
        ("gap", "1 ns", 1),
        ("gap", "1.4 us", 2),
        ("gap", "2 us", 2),
        ("idle", "1 ns", 1),
        ("idle", "1.4 us", 2),
        # A frontier is passed by a watermark that is later, by at least a microsecond.
        ("frontier", "1 ns", 2),
        ("frontier", "1.4 us", 3),
    ],
)
def test_fractional_microseconds_of_a_wait_are_rounded_up(
    option: str, length: str, by_us: int
) -> None:
    """`b` waits for m@1, or for its own time; only k's events advance the time."""
    nodes = ', nodes = ["k", "m", "n"]' if option == "idle" else ""
    order = f"CausalOrder({option} = {length}{nodes})"
    text = p("find next B", order=order, letters='event B = type == "b";')
    for since_us in range(by_us + 1):
        m = Monitor(ketal.compile(text))
        verdicts = m.feed(e("n@1", "b", "" if option == "frontier" else "m:1", time=5))
        verdicts += m.feed(e("k@1", "c", time=5 + since_us / 1e6))
        assert bool(verdicts) is (since_us == by_us), f"{since_us} us later"


def test_late_event_does_not_hold_its_dependants_back() -> None:
    m = monitor("find next A B", "within 5 s", order=CAUSAL)
    m.advance_time(10)
    (late,) = m.feed(e("n@1", "a", time=1))
    assert isinstance(late, Late)
    m.feed(e("n@2", "a", time=11))
    (match,) = m.feed(e("n@3", "b", time=12))
    assert str(match) == "match P: A=n@2, B=n@3"
    assert m.held_back() == []
    assert adds_up(m.summary)


def test_idle_node_leaves_and_rejoins_with_its_next_event() -> None:
    m = monitor("find next A B", order='CausalOrder(idle = 10 s, nodes = ["n", "m"])')
    m.feed(e("n@1", "a", time=0))
    assert m.feed(e("n@2", "b", "m:1", time=5)) == []
    assert [str(dot) for _, dot in m.held_back()] == ["m@1"]
    gap, match = m.advance_time(16)
    assert isinstance(gap, Gap)
    assert gap.dot == Dot("m", 1)
    assert isinstance(match, Match)
    assert match.depends_on == (Dot("m", 1),)
    assert texts(m.feed(e("m@1", "a", time=16))) == [
        "late m@1: its place in the causal order has passed"
    ]
    assert m.feed(e("n@3", "b", "m:3", time=17)) == []
    assert [str(dot) for _, dot in m.held_back()] == ["m@2"], "m is back, and waited for"


def test_node_that_rejoins_is_waited_for_again() -> None:
    m = monitor("check B*", order=CAUSAL)
    m.leave("n")
    m.feed(Control("join", node="n"))
    m = Monitor.restore(m.program, m.snapshot())
    assert m.feed(e("m@1", "b", "n:1")) == []
    assert [str(dot) for _, dot in m.held_back()] == ["n@1"]
    assert texts(m.feed(Control("view", members=("m",)))) == ["gap n@1 declared lost"]


def test_full_queue_with_overflow_lost_declares_the_oldest_hole_lost() -> None:
    order = "CausalOrder(overflow = lost)"
    m = monitor("find next A B", order=order, limits=Limits(held_back_max=2))
    assert m.feed_many([e("n@2", "a"), e("m@2", "a")]) == []
    gap, overflow = m.feed(e("n@3", "c"))
    assert isinstance(gap, Gap)
    assert gap.dot == Dot("n", 1)
    assert isinstance(overflow, Overflow)
    assert (overflow.limit, overflow.event) == ("held_back_max", None)
    assert overflow.given_up.endswith(", 1 time")
    assert [str(dot) for _, dot in m.held_back()] == ["m@1"]
    assert m.summary["gaps"] == 1
    assert m.summary["patterns"]["P"]["overflows"] == 1
    assert adds_up(m.summary)


# --- registered guards ----------------------------------------------------------------------------


def big(x: float) -> bool:
    return x > 10


def far(event: ketal.Event, node: str) -> bool | None:
    return None if "far" not in event.data else event.node != node


def test_registered_guards_are_typed_predicates() -> None:
    ketal.register_guard("big_for_tests", big, version="1")
    ketal.register_guard("far_for_tests", far, version="1")
    find = program(
        "S = big_for_tests(x)",
        'T = !far_for_tests("n")',
        "find any S | T",
        letters="event E = true;",
    )
    events = [
        e("n@1", "t", x=11),
        e("n@2", "t", x=1),
        e("n@3", "t", x="11"),
        e("n@4", "t"),
        e("n@5", "t", far=1),
        e("m@1", "t", far=1),
    ]
    assert texts(ketal.run(find, events)) == ["match P: S=n@1", "match P: T=n@5"]


def test_version_of_a_registered_guard_is_part_of_the_fingerprint() -> None:
    prints = []
    programs = []
    for version in ("1", "2", "1"):
        ketal.register_guard("versioned_for_tests", big, version=version)
        programs.append(program("S = A && versioned_for_tests(x)", "find next S"))
        prints.append(programs[-1].fingerprint)
    assert prints[0] == prints[2] != prints[1]
    m = Monitor(programs[0])
    with pytest.raises(StateError, match="registered guards"):
        Monitor.restore(programs[1], m.snapshot())


def test_wrong_uses_of_registered_guards_are_pattern_errors() -> None:
    ketal.register_guard("big_for_tests", big, version="1")
    for guard in ('big_for_tests("a")', "big_for_tests(x, y)", "big_for_test(x)"):
        with pytest.raises(PatternError) as caught:
            program(f"S = {guard}", "find any S", letters="event E = true;")
        assert "big_for_tests" in str(caught.value)
    for name, function, version in (("true", big, "1"), ("a b", big, "1"), ("ok", big, "")):
        with pytest.raises(SettingError):
            ketal.register_guard(name, function, version=version)
    with pytest.raises(SettingError, match="fixed number"):
        ketal.register_guard("ok", lambda *a: True, version="1")


def test_an_event_held_in_one_queue_and_late_in_another_is_counted_once() -> None:
    m = Monitor(
        ketal.compile(
            named("P", "check (A B)*", order="CausalOrder(total)")
            + named("Q", "check (A B)*", order="CausalOrder(frontier = 2 s)")
        )
    )
    m.feed(e("B@20", "a", "A:17 C:17", time=14.9))
    m.feed(e("A@35", "b", "C:38 B:41", time=30.3))
    m.advance_time(20)
    m.feed(e("B@10", "a", "A:2", time=6.5))
    assert m.summary["events"]["late"] == 1
    assert min(m.summary["events"].values()) >= 0
    assert adds_up(m.summary)


def test_timers_fire_in_the_same_order_of_scopes_after_a_restore() -> None:
    order = 'CausalOrder(total, nodes = ["n"])'
    program = ketal.compile(p("find next A not N B", "partition by k", "within 4 s", order=order))
    ended = 0

    @drawn(70, 5_000)
    def holds(rng: random.Random) -> None:
        nonlocal ended
        events = [
            e(f"n@{n}", rng.choice("aanb"), time=n + rng.random(), k=rng.randrange(3))
            for n in range(1, 16)
        ]
        cut = rng.randrange(1, 15)
        whole = Monitor(program)
        whole.feed_many(events[:cut])
        again = Monitor.restore(program, whole.snapshot())
        said = [
            [
                v.to_dict()
                for v in (*m.advance_time(cut + 4), *m.feed_many(events[cut:]), *m.close())
            ]
            for m in (whole, again)
        ]
        assert said[0] == said[1]
        ended += sum(v["verdict"] == "timed_out" for v in said[0])

    assert ended > 100


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copying_or_pickling_a_monitor_points_to_snapshot(copied: Any) -> None:
    with pytest.raises(TypeError, match=r"a Monitor cannot be copied or pickled; snapshot\(\)"):
        copied(monitor("find A"))


def test_coroutine_function_is_refused_as_a_handler() -> None:
    async def alarm(verdict: object) -> None:
        raise AssertionError

    class Alarm:
        async def __call__(self, verdict: object) -> None:
            raise AssertionError

    for handler in (alarm, Alarm(), partial(alarm), partial(partial(Alarm()))):
        with pytest.raises(SettingError, match="the handler for 'match' is a coroutine function"):
            monitor("find next A", on={"match": handler})


def test_handler_may_feed_the_monitor() -> None:
    def again(match: Match) -> None:
        counter = match.events[0].counter + 1
        if counter < 4:
            seen.extend(m.feed(e(f"n@{counter}", "a")))

    seen: list[ketal.Verdict] = []
    m = monitor("find next A", on={"match": again})
    assert texts(m.feed(e("n@1", "a"))) == ["match P: A=n@1"]
    assert sorted(texts(seen)) == ["match P: A=n@2", "match P: A=n@3"]
    assert m.summary["patterns"]["P"]["matches"] == 3
