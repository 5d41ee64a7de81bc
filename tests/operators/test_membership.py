"""Membership: views, clocks that shrink, nodes that restart."""

from __future__ import annotations

import random
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ketal
from ketal import Monitor
from ketal.errors import EventError
from ketal.model.events.content import content
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical, canonical_key, happened_before
from ketal.model.events.incarnation import name_of
from ketal.model.limits import Limits
from ketal.operators.membership.clock_memory import ClockMemory
from ketal.operators.membership.clock_restoration import (
    Restorer,
    dropped_nodes,
    possibly_low,
    present_order,
    restored_with_doubts,
)
from ketal.operators.membership.incarnation_names import IncarnationTable, later_run
from ketal.operators.membership.members import MembershipStage
from ketal.operators.order.step import ReleaseStep
from tests.cases import e, p
from tests.operators.marked_queue import MarkedQueue
from tests.property.executions import executions, linear_extension
from tests.property.memberships import Clock, Run, base, number, runs, simulate
from tests.sampling import chances, drawn, examples
from tests.work import calls_at_most, counted_lines


class Seen:
    """An Intake that evicts no content but those before the last `most`."""

    def __init__(self, most: int = 1_000) -> None:
        self.contents: dict[Any, bytes] = {}
        self.most = most

    def status(self, event: Event) -> str:
        if event.dot not in self.contents:
            return "new"
        if event.dot not in list(self.contents)[-self.most :]:
            return "presumed"
        return "duplicate" if self.contents[event.dot] == content(event) else "contradiction"

    def possible_runs(self, event: Event) -> set[str]:
        """Return all later incarnations of an event's node, possible or not."""
        return {dot.node for dot in self.contents if base(dot.node) == event.node != dot.node}


def rows(stage: MembershipStage) -> list[Any]:
    return stage.memory.rows((node, counter) for node, counter, _ in stage.memory.items())


class Stage:
    """A membership stage in front of a hold-back queue, called as by a driver."""

    def __init__(
        self,
        limits: Limits | None = None,
        **options: Any,
    ) -> None:
        self.seen = Seen()
        self.options = options
        self.stage = MembershipStage(limits or Limits())
        self.queue = MarkedQueue(**options)
        self.queue.restore_clocks(self.stage.restorer)

    def take(self, event: Event) -> tuple[str, list[Event]]:
        event = self.stage.rename(event, self.seen)
        status = self.seen.status(event)
        if status != "new":
            return status, []
        self.seen.contents[event.dot] = content(event)
        self.stage.arrived(event)
        self.stage.restorer.restore_so_far(event)
        step = self.queue.push(event)
        assert not step.refused
        assert not step.late
        return status, [r.event for r in step.released]

    def taken(self, event: Event) -> tuple[str, list[Event]]:
        """Take an event; return its status, or the reason if it is rejected."""
        try:
            return self.take(event)
        except EventError as error:
            return str(error), []

    def through(self, events: list[Event]) -> list[Event]:
        return [ready for event in events for ready in self.take(event)[1]]

    def end(self) -> list[Event]:
        return [r.event for r in self.queue.end().released]

    def snapshot(self) -> None:
        """Replace the stage by one restored from its encoded snapshot."""
        table: list[Event] = []

        def number(event: Event) -> int:
            table.append(event)
            return len(table) - 1

        state = self.stage.save(), rows(self.stage), self.queue.save(number)
        stage, clocks, queue = msgspec.msgpack.decode(msgspec.msgpack.encode(state))
        self.stage = MembershipStage(self.stage.limits)
        self.stage.memory.load(clocks)
        self.stage.load(stage)
        self.queue = MarkedQueue(**self.options)
        self.queue.restore_clocks(self.stage.restorer)
        self.queue.load(queue, table)


def respects(order: list[Event], run: Run) -> bool:
    true = {x.type: x for x in run.true}
    at = [true[x.type] for x in order]
    return not any(happened_before(b, a) for i, a in enumerate(at) for b in at[i + 1 :])


# --- clocks that shrink ----------------------------------------------------------------


@examples(40, 1_500)
@given(runs(restarts=False))
def test_clocks_of_a_finite_log_are_restored_whatever_its_order(
    drawn: tuple[Run, random.Random],
) -> None:
    run, rng = drawn
    stamped, true = run.stamped[:], run.true[:]
    pairs = rng.sample(list(zip(stamped, true, strict=True)), len(true))
    restored = restored_with_doubts([s for s, _ in pairs], run.left)[0]
    assert restored == [t for _, t in pairs]
    assert canonical(restored) == canonical(run.true)


@examples(40, 1_500)
@given(runs(restarts=False))
def test_clocks_of_released_events_are_restored_in_any_arrival_order(
    drawn: tuple[Run, random.Random],
) -> None:
    """Readiness is checked on shrunk clocks: no event is released early or waits for ever."""
    run, rng = drawn
    stage = Stage()
    for name in run.left:
        stage.stage.leave(name)
    out = stage.through(rng.sample(run.stamped, len(run.stamped)))
    assert len(stage.queue) == 0
    assert sorted(out, key=canonical_key) == sorted(run.true, key=canonical_key)
    assert respects(out, run)
    assert stage.stage.restorer.in_doubt == 0


@examples(27, 1_000)
@given(runs(restarts=False))
def test_leaves_at_their_original_places_suffice_to_restore_clocks(
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


@examples(27, 1_000)
@given(runs(restarts=False))
def test_clock_without_announced_leaves_is_never_restored_too_high(
    drawn: tuple[Run, random.Random],
) -> None:
    run, rng = drawn
    stage = Stage()
    true = {x.type: x.clock for x in run.true}
    for event in stage.through(rng.sample(run.stamped, len(run.stamped))):
        assert all(c <= true[event.type].get(n, 0) for n, c in event.clock.items())
    assert stage.stage.departed <= run.left
    # Afterwards every clock is whole, except for entries that its own node never had.
    for event in restored_with_doubts(run.stamped, stage.stage.departed)[0]:
        wrong = true[event.type].items() - event.clock.items()
        assert not {n for n, _ in wrong} & stage.stage.departed


def obvious_restored(events: list[Event], left: Collection[str] = ()) -> list[Event]:
    """Return the events of `restored_with_doubts`, by raising clocks until none is too low."""
    departed = set(left)
    closures = {e.dot: dict(e.clock) for e in events}
    for event in events:
        before = [f for f in events if f.node == event.node and f.counter < event.counter]
        if before:
            departed |= max(before, key=lambda f: f.counter).clock.keys() - event.clock.keys()
    changed = True
    while changed:
        changed = False
        for event in events:
            mine = closures[event.dot]
            for f in events:
                if f.counter <= event.clock.get(f.node, 0) and f.dot != event.dot:
                    for name, counter in closures[f.dot].items():
                        if name != event.node and counter > mine.get(name, 0):
                            mine[name] = counter
                            changed = True
    return [
        msgspec.structs.replace(
            e,
            clock=e.clock
            | {n: c for n, c in closures[e.dot].items() if n in departed and n != e.node},
        )
        for e in events
    ]


@examples(40, 1_500)
@given(runs(restarts=False, events_max=25), st.sampled_from((0.0, 0.2, 0.6)))
def test_restored_clocks_equal_their_definition_in_logs_with_holes(
    drawn: tuple[Run, random.Random], lost: float
) -> None:
    run, rng = drawn
    kept = [x for x in run.stamped if rng.random() >= lost]
    rng.shuffle(kept)
    left = {n for n in run.left if rng.random() < 0.8}
    assert restored_with_doubts(kept, left)[0] == obvious_restored(kept, left)


@examples(40, 1_500)
@given(runs(restarts=False, events_max=25))
def test_dropped_entries_are_found_whatever_the_order_of_the_log(
    drawn: tuple[Run, random.Random],
) -> None:
    run, rng = drawn
    # Some entries are dropped and come back, as in no real execution.
    clocks = [
        {node: n for node, n in x.clock.items() if node == x.node or rng.random() < 0.9}
        for x in run.stamped
    ]
    events = [Event(x.node, x.type, c) for x, c in zip(run.stamped, clocks, strict=True)]
    dropped = {
        name
        for before in events
        for after in events
        if before.node == after.node and before.counter < after.counter
        for name in before.clock.keys() - after.clock.keys()
    }
    assert dropped_nodes(rng.sample(events, len(events))) == dropped


def events_possibly_low(events: list[Event]) -> list[Event]:
    """Return the events of `possibly_low`, of events that arrived in this order."""
    memory = ClockMemory(len(events) + 1)
    memory.begin((x.node, x.counter, x.clock) for x in events)
    seen = {}
    for node in {x.node for x in events}:
        counters = {x.counter for x in events if x.node == node}
        upto = next(n for n in range(len(events) + 1) if n + 1 not in counters)
        seen[node] = upto, sorted(c for c in counters if c > upto)
    low = {(node, counter) for node, counter, _ in possibly_low(memory, seen)}
    return [x for x in events if x.dot in low]


def test_only_events_with_an_unseen_or_shrunk_past_are_possibly_low() -> None:
    whole = [e("a@1", "x"), e("a@2", "x"), e("c@1", "x", "a:2")]
    unseen = [e("b@1", "x", "z:1"), e("b@2", "x", "z:1"), e("d@1", "x", "b:1 z:1")]
    shrunk = [e("f@1", "x", "c:1"), e("g@1", "x", "c:1 f:1 a:2")]
    assert events_possibly_low([*whole, *unseen, *shrunk]) == [*unseen, *shrunk]
    assert events_possibly_low(whole) == []


@examples(100, 5_000)
@given(runs(restarts=False, events_max=25), st.sampled_from((0.0, 0.1, 0.3)))
def test_clocks_that_are_not_possibly_low_are_whole(
    drawn: tuple[Run, random.Random], lost: float
) -> None:
    run, rng = drawn
    kept = [x for x in run.stamped if rng.random() >= lost]
    rng.shuffle(kept)
    low, true = events_possibly_low(kept), {x.type: x for x in run.true}
    assert all(x in low or x == true[x.type] for x in kept)
    assert not events_possibly_low(rng.sample(run.true, len(run.true)))


@examples(40, 1_500)
@given(executions(events_max=12))
def test_whole_clocks_are_not_changed(events: list[Event]) -> None:
    """The same event objects are returned, even if a node left whose entry no node dropped."""
    assert all(
        a is b for a, b in zip(restored_with_doubts(events, ["n1", "n2"])[0], events, strict=True)
    )
    stage = Stage()
    stage.stage.leave("n1")
    for event in stage.through(events):
        assert any(event is x for x in events)


@examples(27, 1_000)
@given(runs(restarts=False))
def test_restored_clocks_never_go_backwards(drawn: tuple[Run, random.Random]) -> None:
    run, _ = drawn
    last: dict[str, Clock] = {}
    for event in restored_with_doubts(run.stamped, run.left)[0]:
        before = last.get(event.node, {})
        assert all(event.clock.get(n, 0) >= c for n, c in before.items())
        last[event.node] = event.clock


@examples(40, 1_500)
@given(executions(events_max=12))
def test_present_order_of_whole_clocks_is_a_linear_extension(events: list[Event]) -> None:
    order = present_order(events)
    assert sorted(order, key=canonical_key) == sorted(events, key=canonical_key)
    assert not any(happened_before(b, a) for i, a in enumerate(order) for b in order[i + 1 :])


def test_present_order_of_a_clock_that_shrank_below_its_cause() -> None:
    """The cause is itself waiting, and its clock has the larger sum."""
    log = [e("n1@1", "c", "n2:1"), e("n2@1", "b", "n3:5 n4:5"), e("n3@5", "a")]
    assert [x.type for x in present_order(log)] == ["a", "b", "c"]


def test_present_order_of_clocks_in_a_cycle_terminates() -> None:
    a, b = e("n1@1", "a", "n2:1"), e("n2@1", "b", "n1:1")
    c = e("n3@1", "c", "n1:1 n2:1")
    assert [x.type for x in present_order([c, b, a])] == ["a", "b", "c"]
    assert restored_with_doubts([c, b, a], ["n1", "n2", "n3"])[0] == [c, b, a]
    assert obvious_restored([c, b, a]) == [c, b, a]


def test_outdated_entry_of_a_node_that_left_is_raised() -> None:
    """n3 still has its old entry of n1; n2 knew more, dropped it, and sent to n3."""
    log = [
        e("n1@1", "a"),
        e("n3@1", "b", "n1:1"),
        e("n1@2", "c"),
        e("n2@1", "d", "n1:2"),
        e("n2@2", "e"),
        e("n3@2", "f", "n1:1 n2:2"),
    ]
    assert restored_with_doubts(log)[0][5].clock == {"n1": 2, "n2": 2, "n3": 2}
    assert restored_with_doubts(log)[0][4].clock == {"n1": 2, "n2": 2}


def test_intransitive_clock_is_not_changed_if_no_node_left() -> None:
    log = [e("n1@1", "a"), e("n2@1", "b", "n1:1"), e("n3@1", "c", "n2:1")]
    assert restored_with_doubts(log)[0] == log
    assert restored_with_doubts(log, ["n1"])[0][2].clock == {"n1": 1, "n2": 1, "n3": 1}


def test_clock_behind_a_lost_event_is_doubtful() -> None:
    stage = MembershipStage()
    stage.leave("n1")
    log = [e("n1@1", "a"), e("n3@1", "b", "n2:4"), e("n3@2", "c", "n1:1 n2:4")]
    for event in log:
        stage.arrived(event)
    assert [stage.restorer.restore(x) for x in log] == log
    assert stage.restorer.in_doubt == 1


def test_doubtful_clock_is_counted_once() -> None:
    """Whether it is doubtful at its release or found too low later, by any number of queues."""
    stage = MembershipStage()
    stage.leave("n1")
    released, later = e("n3@1", "b", "n2:4"), e("n3@2", "c", "n1:1 n2:4")
    for event in (released, later):
        stage.arrived(event)
    stage.restorer.restore(released)
    assert stage.restorer.in_doubt == 1
    for _ in range(2):
        stage.restorer.count_doubtful(released)
    assert stage.restorer.in_doubt == 1
    for _ in range(2):
        stage.restorer.count_doubtful(later)
        stage.restorer.load(stage.restorer.save())
    assert stage.restorer.in_doubt == 2


def test_clock_memory_that_starts_late_keeps_at_most_its_limit() -> None:
    memory = ClockMemory(16)
    memory.begin(("a", n, {"a": n}) for n in range(40, 0, -1))
    assert [counter for _, counter, _ in memory.items()] == list(range(16, 0, -1))
    below, above = memory.below("a", 17), memory.above("a", 3)
    assert below is not None
    assert above is not None
    assert (below.counter, above.counter) == (16, 4)


class ObviousMemory:
    """What a `ClockMemory` holds: of each dot, in order of arrival, clock, closure and `final`."""

    def __init__(self, clocks_max: int, entries_max: int) -> None:
        self.clocks_max, self.entries_max = clocks_max, entries_max
        self.held: dict[tuple[str, int], tuple[Clock, Clock | None, bool]] = {}

    def room(self) -> int:
        """Return how many entries the closures have that are no clocks of events."""
        return sum(len(c) for clock, c, _ in self.held.values() if c is not None and c != clock)

    def evict(self, count: int) -> None:
        for dot in list(self.held)[:count]:
            del self.held[dot]

    def put(self, dot: tuple[str, int], clock: Clock) -> None:
        if dot not in self.held:
            self.held[dot] = clock, None, False
            if len(self.held) > self.clocks_max:
                self.evict(max(1, self.clocks_max // 8))

    def close(self, dot: tuple[str, int], clock: Clock, closure: Clock, final: bool) -> None:
        arrived = self.held[dot][0] if dot in self.held else clock
        added = 0 if closure == arrived else len(closure)
        while added and self.room() and self.room() + added > self.entries_max:
            self.evict(max(1, len(self.held) // 8))
        self.put(dot, arrived)
        self.held[dot] = arrived, closure, final


@given(chances())
def test_clock_memory_equals_its_definition_and_is_saved_by_what_is_dirty(
    rng: random.Random,
) -> None:
    limits = rng.choice((2, 8, 17, 32)), rng.choice((1, 6, 20, 10**6))
    memory, obvious = ClockMemory(*limits), ObviousMemory(*limits)
    memory.dirty = {}
    written: dict[tuple[str, int], Any] = {}
    for _ in range(rng.randint(1, 60)):
        node, counter = rng.choice("ab"), rng.randint(1, 20)
        others = {n: rng.randint(1, 3) for n in "cdef" if rng.random() < 0.5}
        clock = obvious.held[node, counter][0] if (node, counter) in obvious.held else others
        if rng.random() < 0.5:
            memory.put(node, counter, clock)
            obvious.put((node, counter), clock)
        else:
            closure = dict(clock) | ({"g": rng.randint(1, 3)} if rng.random() < 0.7 else {})
            final = rng.random() < 0.5
            memory.close(node, counter, dict(clock), closure, final=final)
            obvious.close((node, counter), clock, closure, final)
        memory.validate_state()
        held = {(n, c): memory.find(n, c) for n, c, _ in memory.items()}
        assert {
            dot: (known.clock, known.closure, known.final) for dot, known in held.items() if known
        } == obvious.held
        assert list(held) == list(obvious.held)
        here = sorted(c for n, c in held if n == node)
        below, above = memory.below(node, counter), memory.above(node, counter)
        assert (below and below.counter) == max((c for c in here if c < counter), default=None)
        assert (above and above.counter) == min((c for c in here if c > counter), default=None)
        if rng.random() < 0.3:
            for dot, arrived in memory.dirty.items():
                if arrived or dot not in held:
                    written.pop(dot, None)
                if dot in held:
                    (written[dot],) = memory.rows([dot])
            memory.dirty = {}
            assert written == {dot: memory.rows([dot])[0] for dot in held}
            assert list(written) == list(held)
    again = ClockMemory(*limits)
    again.load(msgspec.json.decode(msgspec.json.encode(memory.rows(obvious.held))))
    again.validate_state()
    assert list(again.items()) == list(memory.items())
    assert again.rows(obvious.held) == memory.rows(obvious.held)


def test_closure_that_equals_the_clock_takes_no_room() -> None:
    memory = ClockMemory(16)
    memory.put("a", 1, {"a": 1, "b": 1})
    # After a restore, an event that is held back has a clock of its own.
    own = {"a": 1, "b": 1}
    memory.close("a", 1, own, own)
    known = memory.find("a", 1)
    assert known is not None
    assert known.restored_count == 0


@pytest.mark.parametrize("limits", [Limits(dots_max=4), Limits(restored_entries_max=12)], ids=repr)
def test_evicted_clocks_are_counted_and_no_clock_is_restored_too_high(limits: Limits) -> None:
    beyond = 0

    @drawn(20, 750)
    def holds(rng: random.Random) -> None:
        nonlocal beyond
        run = simulate(rng, restarts=False)
        stage, released = Stage(limits), []
        for name in run.left:
            stage.stage.leave(name)
        true = {x.type: x.clock for x in run.true}
        for event in run.stamped:
            released += stage.through([event])
            stage.stage.memory.validate_state()
        for event in released:
            low = {n for n, c in true[event.type].items() if event.clock.get(n, 0) < c}
            assert all(c <= true[event.type].get(n, 0) for n, c in event.clock.items())
            assert not low or stage.stage.restorer.in_doubt
        beyond += stage.stage.restorer.in_doubt

    assert beyond


def test_a_restored_clock_has_at_most_clock_entries_max_entries() -> None:
    restorer = Restorer(ClockMemory(10), {"n1", "n2"}, 2)
    restorer.restore(e("n3@1", "a", "n1:1 n2:1"))
    assert restorer.restore(e("n3@2", "b")).clock == {"n1": 1, "n3": 2}
    assert restorer.in_doubt == 1
    restorer.restore(e("n4@1", "c"))
    assert restorer.in_doubt == 1, "its own clock has room"
    # A clock that arrived with more is only raised in its own entries.
    larger = Restorer(ClockMemory(10), {"n0", "n1", "n2"}, 2)
    larger.restore(e("n3@1", "a", "n0:1 n1:2 n2:1"))
    assert larger.restore(e("n4@1", "b", "n1:1 n3:1")).clock == {"n1": 2, "n3": 1, "n4": 1}


def test_final_closure_outlasts_the_clocks_that_it_was_computed_from() -> None:
    restorer = Restorer(ClockMemory(3), {"n0"}, 10)
    for event in (e("n0@1", "a"), e("n1@1", "a", "n0:1")):
        restorer.restore(event)
    shrunk = e("n2@1", "b", "n1:1")
    whole = {"n0": 1, "n1": 1, "n2": 1}
    assert restorer.restore(shrunk).clock == whole
    for event in (e("n3@1", "c"), e("n4@1", "c")):
        restorer.restore(event)
    assert restorer.memory.find("n1", 1) is None
    # Another queue may release it once more.
    assert restorer.restore(shrunk).clock == whole
    assert restorer.in_doubt == 0


def test_highest_counter_of_a_node_does_not_fall() -> None:
    restorer = Restorer(ClockMemory(10), set(), 10)
    for counter in (2, 1, 3, 2):
        restorer.restore(e(f"n1@{counter}", "a"))
    assert restorer.highest == {"n1": 3}


def test_an_entry_is_raised_in_a_clock_that_has_no_room_for_others() -> None:
    restorer = Restorer(ClockMemory(10), {"n1"}, 3)
    for event in (e("n1@1", "a"), e("n1@2", "a"), e("n2@1", "a", "n1:2")):
        restorer.restore(event)
    assert restorer.restore(e("n3@1", "b", "n1:1 n2:1")).clock == {"n1": 2, "n2": 1, "n3": 1}
    assert restorer.in_doubt == 0


class Uncounted(set[str]):
    """A set whose members cannot be visited one by one."""

    def __iter__(self) -> Any:
        raise AssertionError("nodes that left are visited")


def test_an_event_costs_the_same_however_many_nodes_left() -> None:
    left = Uncounted(f"n{number}" for number in range(1_000))
    restorer = Restorer(ClockMemory(10), left, 10)
    restorer.restore(e("n1@1", "a"))
    low = restorer.restore(e("m@1", "a", "n1:1"))
    high = restorer.restore(e("m@2", "a"))
    assert high.clock == {"m": 2, "n1": 1}
    assert not restorer.may_be_low(high)
    restorer.restore(e("n2@1", "a"))
    assert restorer.may_be_low(low), "it lacks n2@1"
    assert restorer.may_be_low(high)
    assert not restorer.may_be_low(restorer.restore(e("m@3", "a", "n2:1")))


def test_event_released_before_a_part_of_its_past_is_doubtful_once_a_node_leaves() -> None:
    restorer = Restorer(ClockMemory(10), set(), 10)
    for _ in range(2):  # for two queues
        restorer.restore(e("n@1", "a", "m:1"))
    assert restorer.in_doubt == 0
    for name in ("x", "y"):
        restorer.mark_departed([name])
        assert restorer.in_doubt == 1


def test_event_judged_before_a_part_of_its_past_is_doubtful_once_a_node_leaves() -> None:
    restorer = Restorer(ClockMemory(10), set(), 10)
    restorer.restore_at_once(e("n@1", "a", "m:1"))
    for name in ("x", "y"):
        restorer.mark_departed([name])
        assert restorer.in_doubt == 1


def test_event_released_with_a_low_entry_is_doubtful_once_the_node_of_the_entry_leaves() -> None:
    restorer = Restorer(ClockMemory(10), set(), 10)
    low = e("m@1", "a", "n:1")
    for event in (e("x@1", "a"), e("n@1", "a", "x:1"), low):
        assert restorer.restore(event) == event
    for name, in_doubt in (("n", 0), ("x", 1), ("y", 1)):
        restorer.mark_departed([name])
        assert restorer.in_doubt == in_doubt


def test_no_event_may_lack_a_node_that_left_without_an_event() -> None:
    stage = MembershipStage()
    for kind in ("join", "leave"):
        stage.restorer.add_named(["x"])
        stage.control(Control(kind, node="x"))
    event = e("n@1", "a")
    stage.arrived(event)
    assert not stage.restorer.may_be_low(stage.restorer.restore(event))
    assert stage.in_doubt == 0


def test_the_entry_of_its_own_node_is_never_too_low() -> None:
    restorer = Restorer(ClockMemory(10), {"x"}, 10)
    restorer.restore(e("x@2", "a"))
    assert not restorer.may_be_low(restorer.restore(e("x@1", "a")))


@examples(20, 500)
@given(runs(restarts=False))
def test_clock_of_an_event_judged_at_once_is_restored_as_far_as_known(
    drawn: tuple[Run, random.Random],
) -> None:
    run, _ = drawn
    stage = MembershipStage()
    for name in run.left:
        stage.leave(name)
    for event, true in zip(run.stamped, run.true, strict=True):
        stage.arrived(event)
        assert stage.restorer.restore_so_far(event) == true
        assert stage.restorer.last_restored(event) == true


def test_clock_is_restored_from_an_event_that_arrived_after_others_that_know_it() -> None:
    stage = MembershipStage()
    stage.leave("x")
    restored = {}
    for event in (e("n@1", "a", "m:1"), e("m@1", "a", "x:1"), e("n@2", "a", "m:1")):
        stage.arrived(event)
        restored[str(event.dot)] = stage.restorer.restore_so_far(event).clock.get("x")
    assert restored == {"n@1": None, "m@1": 1, "n@2": 1}


def timed(rng: random.Random, run: Run) -> None:
    """Give the events times by skewed physical clocks."""
    skews = {name: rng.choice((-3, 0, 0, 2)) for name in sorted({x.node for x in run.true})}
    for place, true in enumerate(run.true):
        time = place + skews[true.node]
        run.true[place] = msgspec.structs.replace(true, time=time)
        run.stamped[place] = msgspec.structs.replace(run.stamped[place], time=time)


@examples(50, 3_750)
@given(runs(restarts=False), st.sampled_from(("eager", "total", "frontier")))
def test_each_policy_releases_shrunk_clocks_like_whole_clocks(
    drawn: tuple[Run, random.Random], policy: Any
) -> None:
    """In the same order, with restored clocks, and with snapshots restored at any point."""
    run, rng = drawn
    timed(rng, run)
    options: dict[str, Any] = {"policy": policy}
    if policy == "total":
        options["nodes"] = tuple(sorted({x.node for x in run.true}))
    if policy == "frontier":
        # A cause that arrives after its dependants is seen in whole clocks only.
        options["frontier_us"] = rng.choice((0, 3, 10)) * 1_000_000
        order = linear_extension(rng, run.true)
    else:
        order = rng.sample(run.true, len(run.true))
    stamped = {true.type: x for x, true in zip(run.stamped, run.true, strict=True)}
    whole, shrunk = MarkedQueue(**options), Stage(**options)
    for name in run.left:
        shrunk.stage.departed.add(name)
    expected: list[Event] = []
    found: list[Event] = []
    for true in order:
        expected += [r.event for r in whole.push(true).released]
        found += shrunk.take(stamped[true.type])[1]
        if rng.random() < 0.2:
            shrunk.snapshot()
        if policy != "total":
            # A bound from shrunk clocks may be lower, so that `total` waits for more.
            assert found == expected
    expected += [r.event for r in whole.end().released]
    assert found + shrunk.end() == expected
    assert shrunk.stage.restorer.in_doubt == 0


def test_frontier_uses_a_leave_shown_by_a_later_clock() -> None:
    """n3@2 shows that x left; n1@1, restored, is then due before n2@1, whose clock has it."""
    stage, queue = MembershipStage(), MarkedQueue(policy="frontier", frontier_us=60_000_000)
    queue.restore_clocks(stage.restorer)
    for event in (
        e("n0@1", "a", "x:5", time=0), e("n2@1", "a", "n1:1", time=1),
        e("n3@1", "a", "x:1", time=2), e("n3@2", "a", time=3), e("n1@1", "a", "n0:1", time=5),
    ):  # fmt: skip
        stage.arrived(event)
        queue.push(event)
    released = [str(r.event.dot) for r in queue.end().released]
    assert released == ["n3@1", "n3@2", "n0@1", "n1@1", "n2@1"]


@pytest.mark.parametrize("time", [2, 50])
def test_full_frontier_gives_up_no_event_before_its_past(time: int) -> None:
    """n1@2, which dropped the entry of x, arrives before n1@1, which shows that it had x:5."""
    stage = Stage(policy="frontier", frontier_us=60_000_000, held_back_max=2, gives_up=True)
    stage.stage.leave("x")
    events = [e("n1@2", "a", time=time), e("x@5", "a", time=50), e("n1@1", "a", "x:5", time=1)]
    assert [str(x.dot) for x in stage.through(events)] == ["x@5"]
    assert [str(x.dot) for x in stage.end()] == ["n1@1", "n1@2"]


def test_full_frontier_restores_the_clocks_before_an_event_that_it_gives_up() -> None:
    """n1@3 dropped the entries of m and x, and arrives first; n1@2 shows the one, m@5 the other."""
    stage = Stage(policy="frontier", frontier_us=60_000_000, held_back_max=3, gives_up=True)
    stage.stage.leave("x")
    stage.stage.leave("m")
    events = [
        e("n1@3", "a", time=3), e("n1@2", "a", "m:5", time=10), e("m@5", "a", "x:5", time=1),
        e("x@5", "a", time=50),
    ]  # fmt: skip
    assert [str(x.dot) for x in stage.through(events)] == ["x@5"]
    assert [str(x.dot) for x in stage.end()] == ["m@5", "n1@2", "n1@3"]


def test_full_frontier_gives_up_in_the_order_of_clocks_restored_before() -> None:
    """The watermark passes the time of n1@2, and its clock shows that it is due with x@5."""
    stage = Stage(policy="frontier", frontier_us=60_000_000, held_back_max=3, gives_up=True)
    stage.stage.leave("x")
    events = [e("n1@2", "a", time=2), e("x@5", "a", time=50), e("n1@1", "a", "x:5", time=1)]
    assert stage.through(events) == []
    assert stage.queue.advance(5_000_000).released == []
    assert [str(x.dot) for x in stage.through([e("m@1", "a", time=55)])] == ["x@5"]
    assert [str(x.dot) for x in stage.end()] == ["m@1", "n1@1", "n1@2"]


def test_each_event_before_one_that_is_due_is_visited_once() -> None:
    """Each event has two others just before it, so that the paths to it are too many."""
    stage = Stage(policy="frontier", frontier_us=100_000_000)
    stage.stage.leave("x")
    for n in range(1, 11):
        stage.take(e(f"n1@{n}", "a", f"n2:{n - 1} x:1", time=n))
        stage.take(e(f"n2@{n}", "a", f"n1:{n} x:1", time=n))
    with calls_at_most(20_000):
        assert len(stage.end()) == 20


def test_place_of_the_first_event_rises_with_a_node_that_is_found_to_have_left() -> None:
    """n1@2 shows that z left, whose entry n2@1 lacks: n2@1 has the clock sum 3, not 2."""
    stage = Stage(policy="total", nodes=("n1", "n15", "n2"))
    early = stage.through(
        [e("z@1", "a"), e("n15@1", "a"), e("n1@1", "a", "z:1"), e("n2@1", "a", "n1:1")]
    )
    assert [str(event.dot) for event in early] == ["n15@1", "z@1", "n1@1"]
    late = stage.through([e("n1@2", "a"), e("n15@2", "a", "n1:2")]) + stage.end()
    assert [str(event.dot) for event in late] == ["n1@2", "n2@1", "n15@2"]


def test_event_that_raises_the_place_of_the_first_one_is_refused_by_a_full_queue() -> None:
    """n1@2 shows that x left; only at the place without the entry of x could n2@2 be released."""
    stage = MembershipStage()
    queue = MarkedQueue(policy="total", nodes=("n0", "n1", "n2"), gap_us=0, held_back_max=1)
    queue.restore_clocks(stage.restorer)
    steps = []
    for event in (
        e("n0@1", "a", time=0), e("n1@1", "a", "x:1"), e("n2@1", "a"), e("n0@2", "a"),
        e("n0@3", "a"), e("n2@2", "a", "n1:1"), e("n1@2", "a", "n0:1"),
    ):  # fmt: skip
        stage.arrived(event)
        stage.restorer.restore_so_far(event)
        steps.append(queue.push(event))
    assert [str(x.dot) for step in steps for x in step.refused] == ["n1@2"]
    assert [str(x.dot) for x, _ in queue.held_back()] == ["n2@2"]


def test_event_is_late_once_its_place_is_known_to_have_passed() -> None:
    """n2 dropped the entry of n1, which left; its place is unknown until its causes arrive."""
    stage = MembershipStage()
    queue = MarkedQueue(policy="total", nodes=("n2", "n3"))
    queue.restore_clocks(stage.restorer)
    out: list[str] = []

    def push(event: Event) -> list[str]:
        stage.arrived(event)
        stage.restorer.restore_so_far(event)
        step = queue.push(event)
        out.extend(str(r.event.dot) for r in step.released)
        return [str(x.dot) for x in step.late]

    for event in (e("n1@1", "a"), e("n1@2", "a"), e("n1@3", "a")):
        push(event)
    stage.leave("n1")
    queue.leave("n1")
    push(e("n3@1", "a", "n1:3"))
    push(e("n2@1", "a", "n1:3"))
    push(e("n3@2", "a", "n1:3"))
    assert out == ["n1@1", "n1@2", "n1@3", "n2@1", "n3@1"]
    # By its stamped clock it would sort before n3@1; by its restored clock it does not.
    assert push(e("n2@2", "a")) == []
    assert push(e("n3@3", "a")) == []
    assert out[5:] == ["n2@2", "n3@2"]
    # A new node that cannot know n1 is late at once; one that may know it is not.
    assert push(e("n4@1", "a")) == ["n4@1"]
    assert push(e("n5@1", "a", "n2:3")) == []
    # Its place has passed, as is known once its past has arrived.
    assert push(e("n6@1", "a", "n7:1")) == []
    assert push(e("n7@1", "a")) == ["n7@1", "n6@1"]
    # One that has n1's last entry is late at once, whether its past has arrived or not.
    assert push(e("n0@2", "a", "n1:3")) == ["n0@2"]
    assert [str(x.dot) for x, _ in queue.held_back()] == ["n3@3", "n5@1"]


def test_node_is_waited_for_again_once_the_past_of_its_last_event_is_released() -> None:
    """n1@1 depends on n2@1, whose clock sum is 6; until that is released, n1 bounds nothing."""
    stage = Stage(policy="total", nodes=("n1", "n2"))
    stage.stage.leave("x")
    stage.queue.leave("x")
    out = stage.through([e("n1@1", "a", "n2:1"), e("n2@1", "a", "x:5"), e("n2@2", "a")])
    assert [str(x.dot) for x in out] == ["n2@1", "n1@1", "n2@2"]
    assert stage.through([e("n2@3", "a")]) == []
    assert [str(x.dot) for x in stage.through([e("n1@2", "a")])] == ["n1@2", "n2@3"]


@pytest.mark.parametrize("restored", [False, True])
def test_event_that_waits_for_a_held_one_does_so_after_a_snapshot(restored: bool) -> None:
    """n1@1 depends on n2@1, whose clock sum is 6; n3 can still send an earlier event."""
    stage = Stage(policy="total", nodes=("n1", "n2", "n3"))
    stage.stage.leave("x")
    stage.queue.leave("x")
    first, *others = [
        e("n1@1", "a", "n2:1"), e("n4@1", "a", "x:9"), e("n2@1", "a", "x:5"), e("n5@1", "a", "x:10")
    ]  # fmt: skip
    assert stage.through([first, *others]) == []
    if restored:  # for another queue
        stage.stage.restorer.restore_so_far(first)
    stage.snapshot()
    assert [str(r.event.dot) for r in stage.queue.leave("n3").released] == ["n2@1", "n1@1"]
    assert [str(x.dot) for x in stage.end()] == ["n4@1", "n5@1"]


def test_event_that_waits_for_a_missing_one_keeps_its_place() -> None:
    stage = Stage(policy="total", nodes=("n1", "n2"))
    events = [e("n1@1", "a", "y:1"), e("n2@1", "a"), e("n2@2", "a"), e("n1@2", "a", "y:1 n2:1")]
    assert [str(x.dot) for x in stage.through(events)] == ["n2@1"]
    released = stage.through([e("y@1", "a"), e("y@2", "a", "n2:2")])
    assert [str(x.dot) for x in released] == ["y@1", "n1@1", "n2@2"]


def test_late_event_raises_the_place_of_the_first_event() -> None:
    """The lost l@1 arrives late; its clock shows that n1@1, which depends on it, had x:5."""
    stage = MembershipStage()
    queue = MarkedQueue(policy="total", nodes=("n1", "n2"), gap_us=1_000_000)
    queue.restore_clocks(stage.restorer)

    def push(event: Event) -> ReleaseStep:
        stage.arrived(event)
        stage.restorer.restore_so_far(event)
        step: ReleaseStep = queue.push(event)
        return step

    stage.leave("x")
    queue.leave("x")
    push(e("n1@1", "a", "l:1", time=0))
    assert [str(dot) for dot in queue.advance(1_000_000).gaps] == ["l@1"]
    assert [str(x.dot) for x in push(e("l@1", "a", "x:5")).late] == ["l@1"]
    queue.leave("l")
    assert [str(r.event.dot) for r in queue.leave("n2").released] == ["n1@1"]
    assert [str(x.dot) for x in push(e("n3@1", "a", "x:3")).late] == ["n3@1"]


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
    return restored_with_doubts(out, {n for x in out for n in x.clock})[0]


@pytest.mark.parametrize("numbered", [False, True])
def test_incarnations_are_distinguished_or_rejected_as_ambiguous(numbered: bool) -> None:
    distinguished = 0

    @drawn(27, 1_000)
    def holds(rng: random.Random) -> None:
        nonlocal distinguished
        run = simulate(rng, restarts=True, events_max=40)
        stage = Stage()
        taken: list[Event] = []
        for place in arrival(rng, run):
            event, true = run.stamped[place], run.true[place]
            if numbered:
                data = {"incarnation": number(true.node)}
                event = msgspec.structs.replace(event, data=data)
                true = msgspec.structs.replace(true, data=data)
            if taken and rng.random() < 0.2:
                # Duplicates, also of the previous incarnation, are recognised.
                assert stage.take(rng.choice(taken)) == ("duplicate", [])
            stage.stage.departed.update(run.left)
            try:
                status, out = stage.take(event)
            except EventError:
                return
            assert status == "new"
            assert out == [true]
            taken.append(event)
        for x in run.true:
            current = max((y.node for y in run.true if base(y.node) == base(x.node)), key=number)
            assert (x.node in stage.stage.live) == (x.node == current)
        distinguished += any("#" in x.node for x in run.true)

    assert distinguished >= 10, "many executions are not ambiguous"


@examples(27, 1_000)
@given(runs(restarts=True, events_max=40))
def test_named_incarnations_can_arrive_in_any_order(
    drawn: tuple[Run, random.Random],
) -> None:
    """With names in nodes and clocks, no incarnation has to be inferred."""
    run, rng = drawn
    out = Stage().through(rng.sample(run.true, len(run.true)))
    assert sorted(out, key=canonical_key) == sorted(run.true, key=canonical_key)


def restarted(*more: Event) -> Stage:
    """Return a stage in which A had seven events, of which one is missing, and restarted."""
    stage = Stage()
    for counter in (1, 2, 3, 4, 6, 7):
        stage.take(e(f"A@{counter}", f"old{counter}", "B:1"))
    for event in (e("A@1", "new1"), *more):
        stage.take(event)
    return stage


def test_restarted_counter_with_other_content_is_a_new_incarnation() -> None:
    stage = restarted()
    assert stage.stage.live == {"A#2"}
    assert stage.stage.incarnations.names("A") == ["A", "A#2"]
    assert str(stage.stage.rename(e("A@2", "new2"), stage.seen)) == "A#2@2 new2"
    assert str(stage.stage.rename(e("A@2", "old2", "B:1"), stage.seen)) == "A@2 old2"


def test_event_with_the_same_content_is_a_duplicate() -> None:
    stage = restarted()
    assert stage.take(e("A@1", "old1", "B:1")) == ("duplicate", [])
    assert stage.take(e("A@1", "new1")) == ("duplicate", [])
    assert stage.take(e("A@7", "old7", "B:1")) == ("duplicate", [])
    assert stage.stage.incarnations.names("A") == ["A", "A#2"]


def test_event_fills_a_hole_of_the_earlier_incarnation_if_it_fits_only_there() -> None:
    more = [e(f"A@{c}", f"new{c}", "C:2") for c in (2, 3, 4)]
    stage = restarted(*more)
    named = stage.stage.rename(e("A@5", "late", "B:1"), stage.seen)
    assert str(named) == "A@5 late", "after A#2@4, which knows C, it would have forgotten C"
    named = stage.stage.rename(e("A@5", "new5", "C:2"), stage.seen)
    assert str(named) == "A#2@5 new5", "A@4 knew B"


def test_an_event_that_fits_both_incarnations_is_rejected() -> None:
    stage = restarted()
    with pytest.raises(EventError, match=r"A restarted, and this event may be A@5 or A#2@5"):
        stage.take(e("A@5", "which", "B:1"))
    with pytest.raises(EventError, match=r"may be A@9 or A#2@9"):
        stage.take(e("A@9", "far", "B:1"))


def test_run_that_ended_before_the_counters_of_the_latest_one_does_not_go_on() -> None:
    stage = Stage()
    stage.through([e("A@1", "old1"), e("A@2", "old2")])
    stage.through([e(f"A@{c}", f"new{c}") for c in (1, 2, 3)])
    assert str(stage.stage.rename(e("A@5", "new5"), stage.seen)) == "A#2@5 new5"


def test_late_first_event_is_not_a_restart() -> None:
    stage = Stage()
    stage.take(e("A@2", "second"))
    assert str(stage.stage.rename(e("A@1", "first"), stage.seen)) == "A@1 first"
    assert stage.stage.incarnations.names("A") == ["A"]


def test_later_counter_with_other_content_is_a_contradiction() -> None:
    stage = Stage()
    stage.take(e("A@1", "a"))
    stage.take(e("A@2", "b"))
    assert stage.take(e("A@2", "c")) == ("contradiction", [])


def test_rejection_names_the_first_ambiguous_entry_by_node_name() -> None:
    """Independent of the hashes of names, like the saved table of resolved entries."""
    nodes = "BCDEFGHA"
    stage = Stage()
    for node in nodes:
        stage.take(e(f"{node}@1", "old"))
        stage.take(e(f"{node}@1", "new"))
    with pytest.raises(EventError, match="the clock entry A: 1 may refer to A@1 or A#2@1"):
        stage.take(e("Z@1", "z", " ".join(f"{node}:1" for node in nodes)))
    stage.take(e("Z@1", "z", " ".join(f"{node}#2:1" for node in nodes)))
    resolved = stage.stage.incarnations.save()[2][1]
    assert list(resolved) == [f"{node}#2" for node in sorted(nodes)]


def test_entry_keeps_its_incarnation_until_its_counter_goes_backwards() -> None:
    stage = Stage()
    stage.take(e("A@1", "old1"))
    stage.take(e("A@2", "old2"))
    stage.take(e("B@1", "b1", "A:2"))
    stage.take(e("A@1", "new1"))
    assert stage.take(e("B@2", "b2", "A:2"))[1][0].clock == {"A": 2, "B": 2}
    assert stage.take(e("B@3", "b3", "A:1"))[1][0].clock == {"A": 2, "A#2": 1, "B": 3}
    # C learns the incarnation from B; D has only a number.
    assert stage.take(e("C@1", "c1", "A:1 B:3"))[1][0].clock == {"A": 2, "A#2": 1, "B": 3, "C": 1}
    with pytest.raises(EventError, match="entry A: 1 may refer to A@1 or A#2@1; name the inc"):
        stage.take(e("D@1", "d1", "A:1"))
    assert stage.take(e("D@1", "d1", "A#2:1"))[0] == "new"


def test_entry_beyond_the_old_incarnations_end_is_of_the_new_one() -> None:
    stage = Stage()
    stage.take(e("A@1", "old1"))
    stage.take(e("A@1", "new1"))
    assert stage.stage.rename(e("B@1", "b", "A:2"), stage.seen).clock == {"A#2": 2, "B": 1}


def test_entry_is_not_resolved_to_an_incarnation_that_follows_the_event() -> None:
    """A@2 was lost, so only that contradiction shows that A: 2 is not of the new incarnation."""
    stage = Stage()
    stage.take(e("A@1", "old1"))
    stage.take(e("A@1", "new1", "B:1"))
    with pytest.raises(EventError, match="entry A: 2 refers to no known event"):
        stage.take(e("B@1", "b", "A:2"))
    second = stage.stage.rename(e("B@2", "c", "A:2"), stage.seen)
    assert second.clock == {"A#2": 2, "B": 2}


def test_attribute_numbers_incarnations() -> None:
    stage = Stage()
    assert stage.take(e("A@1", "a", incarnation=1))[1][0].node == "A"
    assert stage.take(e("A@1", "a", incarnation="2"))[1][0].node == "A#2"
    assert stage.take(e("A@2", "b", incarnation=1))[1][0].node == "A"
    assert stage.take(e("A@3", "c"))[1][0].node == "A", "without a number it is the first run's"
    assert stage.stage.live == {"A#2"}
    stage.stage.incarnations.table.validate_state()
    with pytest.raises(EventError, match="incarnation must be an integer of 0 or more, not 'x'"):
        stage.take(e("A@1", "a", incarnation="x"))
    with pytest.raises(EventError, match=r"incarnation must be an integer of 0 or more, not -1$"):
        stage.take(e("A@1", "a", incarnation=-1))
    with pytest.raises(EventError, match=r"must be an integer of 0 or more, not '1{59}$"):
        stage.take(e("A@1", "a", incarnation="1" * 5_000))
    with pytest.raises(EventError, match="A restarted before it began to number"):
        restarted(e("A@2", "x", incarnation=3))


@pytest.mark.parametrize("number", [1, 3])
def test_incarnation_number_that_contradicts_the_name_is_rejected(number: int) -> None:
    says = f"incarnation is {number}, but A#2 is the name of incarnation 2"
    with pytest.raises(EventError, match=says):
        Stage().take(e("A#2@1", "a", incarnation=number))


def test_incarnation_number_that_repeats_the_name_changes_nothing() -> None:
    stage = Stage()
    assert stage.take(e("A#2@1", "a", incarnation=2))[1][0].node == "A#2"
    assert stage.take(e("A#2@2", "b", incarnation="2"))[1][0].clock == {"A#2": 2}
    assert stage.take(e("A@1", "c", incarnation=1))[1][0].node == "A"
    assert stage.take(e("A@3", "d", incarnation=2))[1][0].node == "A#2"
    assert stage.take(e("A#0@1", "d", incarnation=0))[1][0].node == "A#0"
    assert stage.take(e("A#2@1", "again", incarnation=2))[0] == "contradiction"
    assert stage.take(e("B@1", "e", "A:1 A#2:1"))[1][0].clock == {"A": 1, "A#2": 1, "B": 1}


def test_zero_and_large_incarnation_numbers_are_accepted() -> None:
    stage = Stage()
    assert stage.take(e("A@1", "a", incarnation=0))[1][0].node == "A#0"
    assert stage.take(e("A@1", "b", incarnation=1_700_000_000))[1][0].node == "A#1700000000"
    assert stage.take(e("A@1", "c", incarnation=1))[1][0].node == "A"
    assert stage.take(e("A@1", "d"))[0] == "contradiction"


def test_name_with_too_many_digits_is_not_an_incarnation() -> None:
    stage = Stage()
    stage.take(e("A@1", "old"))
    stage.take(e("A@1", "new"))
    name = "B#" + "1" * 5_000
    assert stage.take(Event(name, "b", {name: 1}))[1][0].node == name


def test_restart_is_detected_however_long_ago_the_first_event_was() -> None:
    stage = MembershipStage(Limits(dots_max=8))
    seen = Seen(most=8)
    for run in ("old", "new"):
        for counter in range(1, 40):
            event = stage.rename(e(f"A@{counter}", f"{run}{counter}"), seen)
            assert event.node == {"old": "A", "new": "A#2"}[run]
            assert seen.status(event) == "new"
            seen.contents[event.dot] = content(event)
            stage.arrived(event)


def test_a_node_that_numbers_its_first_event_has_no_earlier_incarnation() -> None:
    table = IncarnationTable(9)
    table.begin({"A#3": 1})
    assert table.names("A") == ["A", "A#3"]
    table.add("A", 5, e("A@1", "x"), with_first=False)
    assert table.names("A") == ["A#3", "A#5"]
    table.validate_state()


def test_number_of_incarnations_is_limited() -> None:
    stage = MembershipStage(Limits(incarnations_max=2))
    for type in "ab":
        stage.rename(e("A@1", type), Seen())
    with pytest.raises(EventError, match=r"already 2 incarnations \(limit incarnations_max\)"):
        stage.rename(e("A@1", "c"), Seen())


def test_first_event_is_not_compared_with_those_of_all_incarnations() -> None:
    """As in a log whose counters do not grow: each event would be a restart."""

    def work(limit: int) -> int:
        monitor = Monitor(ketal.compile(p("find next A")), limits=Limits(incarnations_max=limit))
        monitor.feed_many(e("A@1", "a", x=n) for n in range(limit))
        more = [e("A@1", "a", x=limit + n) for n in range(100)]
        verdicts, lines = counted_lines(lambda: monitor.feed_many(more))
        assert [verdict.kind for verdict in verdicts] == ["rejected"] * 100
        return lines

    work(10)  # what is computed only once
    assert work(400) < 1.5 * work(10)


def test_duplicate_of_a_named_incarnation_is_no_restart() -> None:
    """A's program writes the number 2 once in the name of the node, and once as an attribute."""
    monitor = Monitor(ketal.compile(p("find next A")))
    named = e("A#2@1", "a", x=0)
    monitor.feed_many([named, e("A@1", "a", x=1), e("A@2", "b", x=2, incarnation=2)])
    assert monitor.feed(named) == []
    assert monitor.summary["events"]["duplicates"] == 1


def test_events_of_a_numbered_incarnation_take_its_place_only_once() -> None:
    """A node that numbers only its first run has no incarnation beside itself."""
    stage = Stage(Limits(incarnations_max=2))
    runs_of_events = [("A", 1), ("B", 1), ("A", 2), ("A", 2), ("A", 1)]
    for counter, (node, run) in enumerate(runs_of_events, 1):
        status, _ = stage.taken(e(f"{node}@{counter}", "a", incarnation=run))
        assert status == "new"


def test_incarnation_beyond_the_limit_leaves_the_node_unchanged() -> None:
    stage = Stage(Limits(incarnations_max=2))
    stage.through([e("A@1", "a"), e("A@1", "b")])
    assert "incarnations_max" in stage.taken(e("B@1", "c", incarnation=2))[0]
    assert [x.dot for x in stage.take(e("B@1", "d"))[1]] == [("B", 1)]


def test_names_of_incarnations_in_a_log_are_used_as_given() -> None:
    """`A#2` in a log is a distinct node and ends `A`; clock entries are not resolved."""
    stage = Stage()
    stage.take(e("A@1", "a"))
    stage.take(e("A#2@1", "b"))
    assert stage.stage.live == {"A#2"}
    assert stage.take(e("B@1", "c", "A:1"))[1][0].clock == {"B": 1, "A": 1}


# --- the view ------------------------------------------------------------------------------


def test_nodes_join_by_an_event_a_join_or_a_view() -> None:
    stage = MembershipStage()
    stage.control(Control("join", node="n9"))
    assert stage.arrived(e("n1@1", "a")) == ()
    assert stage.arrived(e("n1@2", "a")) == ()
    stage.control(Control("join", node="n2"))
    assert stage.live == {"n1", "n2", "n9"}
    stage.control(Control("view", members=("n3", "n1")))
    assert stage.live == {"n1", "n3"}


def test_event_in_flight_does_not_rejoin_its_node() -> None:
    stage = MembershipStage()
    stage.arrived(e("n1@1", "a"))
    for _ in range(2):
        stage.leave("n1")
        assert stage.live == set()
    assert stage.arrived(e("n1@2", "b")) == ()
    assert stage.live == set()
    for _ in range(2):
        stage.join("n1")
        assert stage.live == {"n1"}


def test_restart_ends_the_previous_incarnation_and_leave_the_latest() -> None:
    stage = restarted().stage
    assert stage.live == {"A#2"}
    assert stage.arrived(e("A@5", "late", "B:1")) == ()
    stage.leave("A")
    assert stage.live == set()
    for change in (stage.join, lambda node: stage.view([node])):
        change("A")
        assert stage.live == {"A#2"}


# --- snapshots -----------------------------------------------------------------------------


@examples(30, 750)
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
            for one in (whole, again):
                one.stage.leave(base(leaves[place]))
        assert again.taken(event) == whole.taken(event)
        again.snapshot()
        again.stage.incarnations.table.validate_state()
        assert again.stage.save() == whole.stage.save()
        assert rows(again.stage) == rows(whole.stage)


@pytest.mark.parametrize("name", ["RpcClientServer", "facebook", "simpledb"])
def test_clocks_of_real_logs_are_not_changed(shared_data: Path, name: str) -> None:
    log = ketal.read_log(shared_data / "shiviz" / f"{name}.log")
    events = list({x.dot: x for x in log if isinstance(x, Event)}.values())
    assert events
    for left in ((), {x.node for x in events}):
        assert all(
            a is b for a, b in zip(restored_with_doubts(events, left)[0], events, strict=True)
        )


def test_runs_that_the_program_named_are_the_same_after_a_restore() -> None:
    """Also if the counter of such a run restarts, which is then a node with incarnations."""
    stage = Stage()
    for event in (e("A@1", "a"), e("A#2@1", "a"), e("A#2@1", "b")):
        stage.take(event)
    table = stage.stage.incarnations.table
    names = {"A": ["A", "A#2"], "A#2": ["A#2", "A#2#2"]}
    assert {node: table.names(node) for node in names} == names
    stage.snapshot()
    table = stage.stage.incarnations.table
    assert {node: table.names(node) for node in names} == names


@pytest.mark.parametrize("name", ["A", "A#1", "A#02", "A#", "A#x"])
def test_other_names_are_no_later_runs(name: str) -> None:
    assert later_run(name) is None
    assert later_run("A#2") == ("A", 2)
