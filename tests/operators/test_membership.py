"""Membership: the view, clocks that shrink, nodes that restart."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ketal
from ketal.errors import EventError
from ketal.event import Control, Event, canonical_key, content, happened_before
from ketal.limits import Limits
from ketal.operators.causal_order import HoldBack, canonical
from ketal.operators.membership import (
    ClockMemory,
    Incarnations,
    Membership,
    Restorer,
    name_of,
    obvious_restored,
    present_order,
    restored,
)
from tests.cases import e
from tests.property.executions import executions, linear_extension

Clock = dict[str, int]


# --- executions whose clocks shrink, whose nodes restart ---------------------------------


@dataclass
class Process:
    """A process of the simulation: what it knows, and what its clock still says of it."""

    name: str
    true: Clock = field(default_factory=dict)
    shown: Clock = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    stamp: Clock = field(default_factory=dict)


@dataclass
class Run:
    """An execution: each event as its program stamped it, and as it truly was."""

    stamped: list[Event] = field(default_factory=list)
    true: list[Event] = field(default_factory=list)
    left: set[str] = field(default_factory=set)
    at: list[tuple[int, str]] = field(default_factory=list)


def base(name: str) -> str:
    return name.partition("#")[0]


def number(name: str) -> int:
    return int(name.partition("#")[2] or 1)


def simulate(rng: random.Random, *, restarts: bool, events_max: int = 60) -> Run:
    """Simulate nodes that send, receive, join, leave, drop entries and restart.

    A message of a node that the receiver has dropped is discarded, or it brings the
    node's entry back; an entry that comes back may be old.
    """
    run = Run()
    # With restarts, an entry that comes back old would look like one of a new incarnation.
    returning = not restarts and rng.random() < 0.5
    chatter, churn = rng.choice((0.2, 0.5, 0.8)), rng.choice((0.05, 0.15, 0.3))
    names = [f"n{i}" for i in range(1, rng.randint(2, 6) + 1)]
    live = {n: Process(n) for n in names[:2]}
    unborn = names[2:]
    messages: list[tuple[str, Clock, Clock]] = []
    while len(run.true) < events_max:
        if unborn and rng.random() < 0.1:
            name = unborn.pop(0)
            live[name] = Process(name)
        if len(live) > 1 and rng.random() < churn / 2:
            _leave(rng, run, live, restarts)
        process = live[rng.choice(sorted(live))]
        gone = sorted(run.left & process.shown.keys())
        if gone and rng.random() < churn * 2:
            name = rng.choice(gone)
            process.dropped.add(name)
            del process.shown[name]
        if messages and rng.random() < chatter:
            _receive(process, rng.choice(messages), returning)
        own = process.name
        process.true[own] = process.shown[own] = process.true.get(own, 0) + 1
        _happen(run, process)
        if rng.random() < chatter:
            messages.append((own, dict(process.true), dict(process.shown)))
    return run


def _leave(rng: random.Random, run: Run, live: dict[str, Process], restarts: bool) -> None:
    name = rng.choice(sorted(live))
    if name not in live[name].true:
        return
    del live[name]
    run.left.add(name)
    run.at.append((len(run.true), name))
    if restarts and rng.random() < 0.7:
        again = name_of(base(name), number(name) + 1)
        live[again] = Process(again)
        # It is up before anyone can hear of it.
        live[again].true[again] = live[again].shown[again] = 1
        _happen(run, live[again])


def _latest(clock: Clock) -> dict[str, str]:
    """Return the latest incarnation of each node that a clock knows."""
    return {base(n): n for n in sorted(clock, key=number)}


def _receive(process: Process, message: tuple[str, Clock, Clock], returning: bool) -> None:
    sender, true, shown = message
    if base(sender) == base(process.name) or (sender in process.dropped and not returning):
        return
    known = {n: max(process.true.get(n, 0), true.get(n, 0)) for n in {*process.true, *true}}
    before, latest = _latest(process.true), _latest(known)
    if latest[base(sender)] != sender:
        # Its entry has no room beside the later incarnation's.
        return
    for b, name in latest.items():
        if b in before and before[b] != name and process.stamp.get(b) == known[name]:
            return  # The clock could not tell that it was another incarnation's.
    process.true.update(known)
    for name, counter in shown.items():
        if name == process.name or name != latest[base(name)]:
            continue
        if name not in process.dropped or returning:
            process.shown[name] = max(process.shown.get(name, 0), counter)
    for name in [n for n in process.shown if n != latest[base(n)]]:
        del process.shown[name]


def _happen(run: Run, process: Process) -> None:
    type = f"T.{len(run.true)}"
    run.true.append(Event(node=process.name, type=type, clock=dict(process.true)))
    named = {base(n): c for n, c in process.shown.items() if base(n) != base(process.name)}
    named[base(process.name)] = process.true[process.name]
    process.stamp = named
    run.stamped.append(Event(node=base(process.name), type=type, clock=named))


def runs(**knobs: Any) -> st.SearchStrategy[tuple[Run, random.Random]]:
    return st.randoms(use_true_random=False).map(lambda rng: (simulate(rng, **knobs), rng))


class Seen:
    """What Intake knows, with everything kept."""

    def __init__(self) -> None:
        self.contents: dict[Any, bytes] = {}

    def status(self, event: Event) -> str:
        known = self.contents.get(event.dot)
        if known is None:
            return "new"
        return "duplicate" if known == content(event) else "contradiction"


class Stage:
    """The stage as a driver calls it, before a hold-back queue."""

    def __init__(self, limits: Limits | None = None, attribute: str | None = "incarnation") -> None:
        self.seen = Seen()
        self.stage = Membership(limits or Limits(), attribute=attribute)
        self.queue = HoldBack(1_000_000)

    def take(self, event: Event) -> tuple[str, list[Event]]:
        event = self.stage.rename(event, self.seen.status)
        status = self.seen.status(event)
        if status != "new":
            return status, []
        self.seen.contents[event.dot] = content(event)
        self.stage.arrived(event)
        released = self.queue.push(event)
        assert released is not None
        return status, [self.stage.restore(ready) for ready in released]

    def taken(self, event: Event) -> tuple[str, list[Event]]:
        """Take an event; return the reason where it is rejected."""
        try:
            return self.take(event)
        except EventError as error:
            return str(error), []

    def through(self, events: list[Event]) -> list[Event]:
        return [ready for event in events for ready in self.take(event)[1]]

    def snapshot(self) -> None:
        """Go on from a snapshot, as written and read."""
        written = msgspec.msgpack.encode(self.stage.state())
        self.stage = Membership.restored(msgspec.msgpack.decode(written), self.stage.limits)


def respects(order: list[Event], run: Run) -> bool:
    true = {x.type: x for x in run.true}
    at = [true[x.type] for x in order]
    return not any(happened_before(b, a) for i, a in enumerate(at) for b in at[i + 1 :])


# --- clocks that shrink ----------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(runs(restarts=False))
def test_a_finite_log_gets_its_clocks_back_whatever_its_order(
    drawn: tuple[Run, random.Random],
) -> None:
    run, rng = drawn
    stamped, true = run.stamped[:], run.true[:]
    pairs = rng.sample(list(zip(stamped, true, strict=True)), len(true))
    found = restored([s for s, _ in pairs], run.left)
    assert found == [t for _, t in pairs]
    assert canonical(found) == canonical(run.true)


@settings(max_examples=60, deadline=None)
@given(runs(restarts=False))
def test_released_events_have_their_clocks_back_whatever_the_arrival(
    drawn: tuple[Run, random.Random],
) -> None:
    """Readiness is tested on the shrunk clocks: nothing is early, nothing waits for ever."""
    run, rng = drawn
    stage = Stage()
    for name in run.left:
        stage.stage.leave(name)
    out = stage.through(rng.sample(run.stamped, len(run.stamped)))
    assert len(stage.queue) == 0
    assert sorted(out, key=canonical_key) == sorted(run.true, key=canonical_key)
    assert respects(out, run)
    assert stage.stage.restorer.doubtful == stage.stage.restorer.beyond == 0


@settings(max_examples=40, deadline=None)
@given(runs(restarts=False))
def test_leaves_in_the_place_where_they_happened_are_enough(
    drawn: tuple[Run, random.Random],
) -> None:
    run, _ = drawn
    stage = Stage()
    leaves = dict(run.at)
    out = []
    for place, event in enumerate(run.stamped):
        if place in leaves:
            stage.stage.control(Control("leave", node=leaves[place]))
        out += stage.take(event)[1]
    assert out == run.true


@settings(max_examples=40, deadline=None)
@given(runs(restarts=False))
def test_without_announcements_a_clock_is_never_too_high_and_a_dropped_entry_is_seen(
    drawn: tuple[Run, random.Random],
) -> None:
    run, rng = drawn
    stage = Stage()
    true = {x.type: x.clock for x in run.true}
    for event in stage.through(rng.sample(run.stamped, len(run.stamped))):
        assert all(c <= true[event.type].get(n, 0) for n, c in event.clock.items())
    assert stage.stage.retired <= run.left
    # In hindsight all is known, but for entries that were never there on their own node.
    for event in restored(run.stamped, stage.stage.retired):
        wrong = true[event.type].items() - event.clock.items()
        assert not {n for n, _ in wrong} & stage.stage.retired


@settings(max_examples=60, deadline=None)
@given(runs(restarts=False, events_max=25), st.sampled_from((0.0, 0.2, 0.6)))
def test_restored_is_obvious_restored_with_holes_too(
    drawn: tuple[Run, random.Random], lost: float
) -> None:
    run, rng = drawn
    kept = [x for x in run.stamped if rng.random() >= lost]
    rng.shuffle(kept)
    left = {n for n in run.left if rng.random() < 0.8}
    assert restored(kept, left) == obvious_restored(kept, left)


@settings(max_examples=60, deadline=None)
@given(executions(events_max=12))
def test_whole_clocks_are_left_as_they_are(events: list[Event]) -> None:
    """The events themselves come back, also when a node left whose entry nobody dropped."""
    assert all(a is b for a, b in zip(restored(events, ["n1", "n2"]), events, strict=True))
    stage = Stage()
    stage.stage.leave("n1")
    for event in stage.through(events):
        assert any(event is x for x in events)


@settings(max_examples=40, deadline=None)
@given(runs(restarts=False))
def test_restored_clocks_never_go_backwards(drawn: tuple[Run, random.Random]) -> None:
    run, _ = drawn
    last: dict[str, Clock] = {}
    for event in restored(run.stamped, run.left):
        before = last.get(event.node, {})
        assert all(event.clock.get(n, 0) >= c for n, c in before.items())
        last[event.node] = event.clock


@settings(max_examples=60, deadline=None)
@given(executions(events_max=12))
def test_present_order_of_whole_clocks_is_a_linear_extension(events: list[Event]) -> None:
    order = present_order(events)
    assert sorted(order, key=canonical_key) == sorted(events, key=canonical_key)
    assert not any(happened_before(b, a) for i, a in enumerate(order) for b in order[i + 1 :])


def test_clocks_that_know_each_other_in_a_circle_come_to_an_end() -> None:
    a, b = e("n1@1", "a", "n2:1"), e("n2@1", "b", "n1:1")
    c = e("n3@1", "c", "n1:1 n2:1")
    assert [x.type for x in present_order([c, b, a])] == ["a", "b", "c"]
    assert restored([c, b, a], ["n1", "n2", "n3"]) == [c, b, a]
    assert obvious_restored([c, b, a]) == [c, b, a]


def test_an_entry_that_is_there_but_old_is_raised_for_a_node_that_left() -> None:
    """n3 still has its old entry of n1; n2 knew more, dropped it, and sent to n3."""
    log = [
        e("n1@1", "a"),
        e("n3@1", "b", "n1:1"),
        e("n1@2", "c"),
        e("n2@1", "d", "n1:2"),
        e("n2@2", "e"),
        e("n3@2", "f", "n1:1 n2:2"),
    ]
    assert restored(log)[5].clock == {"n1": 2, "n2": 2, "n3": 2}
    assert restored(log)[4].clock == {"n1": 2, "n2": 2}


def test_a_clock_that_is_intransitive_is_no_concern_where_nobody_left() -> None:
    log = [e("n1@1", "a"), e("n2@1", "b", "n1:1"), e("n3@1", "c", "n2:1")]
    assert restored(log) == log
    assert restored(log, ["n1"])[2].clock == {"n1": 1, "n2": 1, "n3": 1}


def test_a_lost_event_leaves_a_doubt_until_all_is_known() -> None:
    stage = Membership()
    stage.leave("n1")
    log = [e("n1@1", "a"), e("n3@1", "b", "n2:4"), e("n3@2", "c", "n1:1 n2:4")]
    for event in log:
        stage.arrived(event)
    assert [stage.restore(x) for x in log] == log
    assert (stage.restorer.doubtful, stage.restorer.beyond) == (1, 0)


def test_beyond_the_limit_it_says_so_and_no_clock_is_too_high() -> None:
    beyond = 0
    for seed in range(30):
        run = simulate(random.Random(seed), restarts=False)
        stage = Stage(Limits(dots_max=4))
        for name in run.left:
            stage.stage.leave(name)
        true = {x.type: x.clock for x in run.true}
        for event in stage.through(run.stamped):
            low = {n for n, c in true[event.type].items() if event.clock.get(n, 0) < c}
            assert all(c <= true[event.type].get(n, 0) for n, c in event.clock.items())
            assert not low or stage.stage.restorer.beyond
        assert len(stage.stage.restorer.memory) <= 4
        beyond += stage.stage.restorer.beyond
    assert beyond


def test_a_restored_clock_has_at_most_clock_entries_max_entries() -> None:
    restorer = Restorer(ClockMemory(10), {"n1", "n2"}, 2)
    restorer.restore(e("n3@1", "a", "n1:1 n2:1"))
    assert restorer.restore(e("n3@2", "b")).clock == {"n1": 1, "n3": 2}
    assert restorer.beyond == 1


def test_a_glimpse_changes_nothing() -> None:
    for seed in range(20):
        run = simulate(random.Random(seed), restarts=False)
        stage, other = Stage(), Stage()
        for name in run.left:
            stage.stage.leave(name)
            other.stage.leave(name)
        for event in run.stamped:
            assert stage.stage.restorer.glimpse(event) == run.true[run.stamped.index(event)]
            assert stage.take(event) == other.take(event)


def test_events_released_together_are_restored_together() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        run = simulate(rng, restarts=False)
        stage = Membership()
        for name in run.left:
            stage.leave(name)
        order = rng.sample(range(len(run.true)), len(run.true))
        found = stage.restorer.restore_all(run.stamped[i] for i in order)
        assert found == [run.true[i] for i in order]


# --- nodes that restart ----------------------------------------------------------------


def arrival(rng: random.Random, run: Run) -> list[int]:
    """Return an arrival in a random linear extension in which restarts come in order."""
    order = linear_extension(rng, _with_restarts(run))
    place = {x.type: i for i, x in enumerate(run.true)}
    return [place[x.type] for x in order]


def _with_restarts(run: Run) -> list[Event]:
    """Return the events with each incarnation after the one before it."""
    lasts: dict[str, int] = {}
    for x in run.true:
        lasts[x.node] = x.counter
    out = []
    for x in run.true:
        earlier = {name_of(base(x.node), k): 0 for k in range(1, number(x.node))}
        clock = {**{n: lasts[n] for n in earlier}, **x.clock}
        out.append(Event(node=x.node, type=x.type, clock=clock))
    # Knowing the restart is knowing what it comes after.
    return restored(out, {n for x in out for n in x.clock})


@settings(max_examples=60, deadline=None)
@given(runs(restarts=True, events_max=40), st.booleans())
def test_incarnations_are_told_apart_or_rejected_as_ambiguous(
    drawn: tuple[Run, random.Random], numbered: bool
) -> None:
    run, rng = drawn
    stage = Stage()
    taken: list[Event] = []
    for place in arrival(rng, run):
        event, true = run.stamped[place], run.true[place]
        if numbered:
            data = {"incarnation": number(true.node)}
            event = msgspec.structs.replace(event, data=data)
            true = msgspec.structs.replace(true, data=data)
        if taken and rng.random() < 0.2:
            # Duplicates, also of the incarnation before, are known as such.
            assert stage.take(rng.choice(taken)) == ("duplicate", [])
        for name in sorted(run.left):
            stage.stage.retired.add(name)
        try:
            status, out = stage.take(event)
        except EventError:
            return
        assert status == "new"
        assert out == [true]
        taken.append(event)
    for x in run.true:
        current = max((y.node for y in run.true if base(y.node) == base(x.node)), key=number)
        assert stage.stage.is_live(x.node) == (x.node == current)


def test_many_executions_with_restarts_are_not_ambiguous() -> None:
    """Hence the property above is not an empty one."""
    stages = [(Stage(), simulate(random.Random(seed), restarts=True)) for seed in range(40)]
    reasons = [[stage.taken(x)[0] for x in run.stamped] for stage, run in stages]
    whole = [r for r, (_, run) in zip(reasons, stages, strict=True) if set(r) == {"new"}]
    assert sum("#" in " ".join(stage.stage.live) for stage, _ in stages) > 30
    assert len(whole) >= 15


@settings(max_examples=40, deadline=None)
@given(runs(restarts=True, events_max=40))
def test_incarnations_that_the_program_names_go_in_any_order(
    drawn: tuple[Run, random.Random],
) -> None:
    """With the names in nodes and clocks nothing is left to infer."""
    run, rng = drawn
    out = Stage().through(rng.sample(run.true, len(run.true)))
    assert sorted(out, key=canonical_key) == sorted(run.true, key=canonical_key)


def restarted(*more: Event) -> Stage:
    """Return a stage in which A made seven events and began again."""
    stage = Stage()
    for counter in (1, 2, 3, 4, 6, 7):
        stage.take(e(f"A@{counter}", f"old{counter}", "B:1"))
    for event in (e("A@1", "new1"), *more):
        stage.take(event)
    return stage


def test_a_counter_that_restarts_with_other_content_is_a_new_incarnation() -> None:
    stage = restarted()
    assert stage.stage.live == ["A#2"]
    assert stage.stage.incarnations.names("A") == ["A", "A#2"]
    assert str(stage.stage.rename(e("A@2", "new2"), stage.seen.status)) == "A#2@2 new2"
    assert str(stage.stage.rename(e("A@2", "old2", "B:1"), stage.seen.status)) == "A@2 old2"


def test_the_same_content_is_a_duplicate() -> None:
    stage = restarted()
    assert stage.take(e("A@1", "old1", "B:1")) == ("duplicate", [])
    assert stage.take(e("A@1", "new1")) == ("duplicate", [])
    assert stage.take(e("A@7", "old7", "B:1")) == ("duplicate", [])
    assert stage.stage.incarnations.names("A") == ["A", "A#2"]


def test_a_late_event_fills_the_hole_of_the_earlier_incarnation_if_its_clock_fits_there_only() -> (
    None
):
    more = [e(f"A@{c}", f"new{c}", "C:2") for c in (2, 3, 4)]
    stage = restarted(*more)
    named = stage.stage.rename(e("A@5", "late", "B:1"), stage.seen.status)
    assert str(named) == "A@5 late", "after A#2@4, which knows C, it would have forgotten C"
    named = stage.stage.rename(e("A@5", "new5", "C:2"), stage.seen.status)
    assert str(named) == "A#2@5 new5", "A@4 knew B"


def test_an_event_that_fits_both_incarnations_is_rejected() -> None:
    stage = restarted()
    with pytest.raises(EventError, match=r"A restarted, and this may be A@5 or A#2@5"):
        stage.take(e("A@5", "which", "B:1"))
    with pytest.raises(EventError, match=r"may be A@9 or A#2@9"):
        stage.take(e("A@9", "far", "B:1"))


def test_a_missing_first_event_is_late_and_no_restart() -> None:
    stage = Stage()
    stage.take(e("A@2", "second"))
    assert str(stage.stage.rename(e("A@1", "first"), stage.seen.status)) == "A@1 first"
    assert stage.stage.incarnations.names("A") == ["A"]


def test_a_later_counter_with_other_content_is_no_restart() -> None:
    stage = Stage()
    stage.take(e("A@1", "a"))
    stage.take(e("A@2", "b"))
    assert stage.take(e("A@2", "c")) == ("contradiction", [])


def test_an_entry_of_a_restarted_node_is_read_as_the_holder_read_it_until_it_goes_backwards() -> (
    None
):
    stage = Stage()
    stage.take(e("A@1", "old1"))
    stage.take(e("A@2", "old2"))
    stage.take(e("B@1", "b1", "A:2"))
    stage.take(e("A@1", "new1"))
    assert stage.take(e("B@2", "b2", "A:2"))[1][0].clock == {"A": 2, "B": 2}
    assert stage.take(e("B@3", "b3", "A:1"))[1][0].clock == {"A": 2, "A#2": 1, "B": 3}
    # C learns it from B; D has nothing but a number.
    assert stage.take(e("C@1", "c1", "A:1 B:3"))[1][0].clock == {"A": 2, "A#2": 1, "B": 3, "C": 1}
    with pytest.raises(EventError, match=r"entry A: 1 may be A@1 or A#2@1; name the incarnation"):
        stage.take(e("D@1", "d1", "A:1"))
    assert stage.take(e("D@1", "d1", "A#2:1"))[0] == "new"


def test_an_entry_beyond_the_old_incarnations_end_is_of_the_new_one() -> None:
    stage = Stage()
    stage.take(e("A@1", "old1"))
    stage.take(e("A@1", "new1"))
    assert stage.stage.rename(e("B@1", "b", "A:2"), stage.seen.status).clock == {"A#2": 2, "B": 1}


def test_an_attribute_numbers_incarnations() -> None:
    stage = Stage()
    assert stage.take(e("A@1", "a", incarnation=1))[1][0].node == "A"
    assert stage.take(e("A@1", "a", incarnation="2"))[1][0].node == "A#2"
    assert stage.take(e("A@2", "b", incarnation=1))[1][0].node == "A"
    assert stage.take(e("A@3", "c"))[1][0].node == "A", "without a number it is the first run's"
    assert stage.stage.live == ["A#2"]
    with pytest.raises(EventError, match="incarnation must be a whole number, not 'x'"):
        stage.take(e("A@1", "a", incarnation="x"))
    with pytest.raises(EventError, match="numbers its incarnations only now"):
        restarted(e("A@2", "x", incarnation=3))


def test_zero_and_large_numbers_are_names_too() -> None:
    stage = Stage()
    assert stage.take(e("A@1", "a", incarnation=0))[1][0].node == "A#0"
    assert stage.take(e("A@1", "b", incarnation=1_700_000_000))[1][0].node == "A#1700000000"
    assert stage.take(e("A@1", "c", incarnation=1))[1][0].node == "A"
    assert stage.take(e("A@1", "d"))[0] == "contradiction"


def test_without_an_attribute_it_is_data_like_any_other() -> None:
    stage = Stage(attribute=None)
    assert stage.take(e("A@1", "a", incarnation=7))[1][0].node == "A"


def test_a_restart_is_told_however_long_ago_the_first_event_was() -> None:
    stage = Membership(Limits(dots_max=8))
    contents: dict[Any, bytes] = {}

    def status(event: Event) -> str:
        """Say what an Intake says that keeps eight contents."""
        if event.dot not in contents:
            return "new"
        kept = list(contents)[-8:]
        same = contents[event.dot] == content(event)
        return ("duplicate" if same else "contradiction") if event.dot in kept else "forgotten"

    for run in ("old", "new"):
        for counter in range(1, 40):
            event = stage.rename(e(f"A@{counter}", f"{run}{counter}"), status)
            assert event.node == {"old": "A", "new": "A#2"}[run]
            assert status(event) == "new"
            contents[event.dot] = content(event)
            stage.arrived(event)


def test_restarts_are_limited() -> None:
    memory = ClockMemory(10)
    one = Incarnations(memory, set(), incarnations_max=2)
    for type in "ab":
        one.rename(e("A@1", type), lambda _: "new")
    with pytest.raises(EventError, match="limit incarnations_max is 2"):
        one.rename(e("A@1", "c"), lambda _: "new")


def test_names_that_the_program_gives_are_names() -> None:
    """`A#2` in a log is a node of its own: nobody says that `A` is over."""
    stage = Stage()
    stage.take(e("A@1", "a"))
    stage.take(e("A#2@1", "b"))
    assert stage.stage.live == ["A", "A#2"]


# --- the view ------------------------------------------------------------------------------


def test_nodes_join_by_appearing_by_join_and_by_view() -> None:
    stage = Membership(nodes=["n9"])
    assert stage.arrived(e("n1@1", "a")).joined == ("n1",)
    assert stage.arrived(e("n1@2", "a")).joined == ()
    assert stage.control(Control("join", node="n2")).joined == ("n2",)
    change = stage.control(Control("view", members=("n3", "n1")))
    assert change == (("n3",), ("n2", "n9"))
    assert stage.live == ["n1", "n3"]
    assert stage.control(Control("end")) == ((), ())


def test_an_event_in_flight_brings_nobody_back_but_after_idle_time() -> None:
    stage = Membership()
    stage.arrived(e("n1@1", "a"))
    stage.arrived(e("n2@1", "a"))
    assert stage.leave("n1").left == ("n1",)
    assert stage.leave("n2", idle=True).left == ("n2",)
    assert stage.leave("n2").left == (), "who is gone does not leave again"
    stage.join("n2")
    stage.leave("n2", idle=True)
    assert stage.arrived(e("n1@2", "b")) == ((), ())
    assert stage.arrived(e("n2@2", "b")).joined == ("n2",)
    assert stage.join("n1").joined == ("n1",)
    assert stage.join("n1").joined == ()
    assert stage.live == ["n1", "n2"]


def test_a_restart_ends_the_incarnation_before_and_a_leave_ends_the_latest() -> None:
    stage = restarted().stage
    assert stage.live == ["A#2"]
    assert stage.arrived(e("A@5", "late", "B:1")) == ((), ())
    assert stage.leave("A").left == ("A#2",)
    assert stage.join("A").joined == ("A#2",)
    assert stage.view(["A"]) == ((), ())


# --- snapshots -----------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(runs(restarts=True, events_max=25), st.booleans())
def test_snapshot_and_restore_after_every_event_change_nothing(
    drawn: tuple[Run, random.Random], small: bool
) -> None:
    run, rng = drawn
    limits = Limits(dots_max=5) if small else None
    whole, again = Stage(limits), Stage(limits)
    events = run.stamped[:]
    if rng.random() < 0.5:
        rng.shuffle(events)
    leaves = dict(run.at)
    for place, event in enumerate(events):
        if place in leaves:
            assert whole.stage.leave(base(leaves[place])) == again.stage.leave(base(leaves[place]))
        assert again.taken(event) == whole.taken(event)
        again.snapshot()
        assert again.stage.state() == whole.stage.state()


@pytest.mark.parametrize("name", ["RpcClientServer", "facebook", "simpledb"])
def test_real_logs_are_left_as_they_are(shared_data: Path, name: str) -> None:
    log = ketal.read_log(shared_data / "shiviz" / f"{name}.log")
    events = list({x.dot: x for x in log if isinstance(x, Event)}.values())
    assert events
    for left in ((), {x.node for x in events}):
        assert all(a is b for a, b in zip(restored(events, left), events, strict=True))
