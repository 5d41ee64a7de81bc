"""The live CausalOrder against its definitions, and each decision of docs/ordering.md."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any, get_args

import msgspec
import pytest

from ketal.model import syntax
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical, canonical_key, happened_before
from ketal.model.limits import DEFAULT, Limits
from ketal.model.syntax import Topology, TopologyEdge
from ketal.model.values import base_node
from ketal.operators.order.frontier import Frontier
from ketal.operators.order.held_events import HeldEvents
from ketal.operators.order.hold_back import HoldBackQueue
from ketal.operators.order.release_options import Policy, ReleaseOptions
from ketal.operators.order.step import ReleaseStep
from ketal.operators.order.total import Total
from ketal.operators.topology.domain_order import DomainPast
from ketal.operators.topology.domains import nodes_of
from ketal.semantics import released as obviously_released
from tests.cases import CHAIN, e
from tests.operators.marked_queue import MarkedQueue
from tests.operators.ordering_oracle import Obvious, past
from tests.property.executions import execution
from tests.sampling import drawn

POLICIES = get_args(Policy)
S = 1_000_000
NODES = ("n1", "n2", "n3", "n4", "n5")


def restored(queue: MarkedQueue, options: dict[str, Any]) -> MarkedQueue:
    """Return a new queue restored from the encoded state of another."""
    table: list[Event] = []

    def number(event: Event) -> int:
        table.append(event)
        return len(table) - 1

    state = msgspec.msgpack.decode(msgspec.msgpack.encode(queue.save(number)))
    other = MarkedQueue(**options)
    other.load(state, table)
    other.losses.load(queue.losses.save())
    other.high_water = queue.high_water
    return other


def out(step: Any) -> list[str]:
    """Return the dots of released events, with their marks behind a bar."""
    return ["|".join([str(r.event.dot), *sorted(map(str, r.after))]) for r in step.released]


def gaps(step: ReleaseStep) -> list[str]:
    return [str(dot) for dot in step.gaps]


def late(step: ReleaseStep) -> list[str]:
    return [str(event.dot) for event in step.late]


def waits(queue: MarkedQueue) -> list[str]:
    return [f"{event.dot} {dot}" for event, dot in queue.held_back()]


# --- against the obvious form ----------------------------------------------------------


def random_options(rng: random.Random, policy: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "policy": policy,
        "gives_up": rng.choice((False, True)),
        "held_back_max": rng.choice((1, 2, 4, 100, 100)),
    }
    if policy == "frontier":
        return options | {"frontier_us": rng.choice((0, S, 3 * S, 20 * S))}
    return options | {
        "gap_us": rng.choice((None, S, 4 * S)),
        "idle_us": rng.choice((None, 2 * S, 5 * S)),
        "nodes": rng.choice(((), NODES[:2], NODES)),
    }


def random_calls(rng: random.Random) -> list[tuple[str, Any]]:
    share = rng.choice((1.0, 1.0, 0.8, 0.5))
    events = execution(rng, events_max=12, untimed=rng.choice((0.0, 0.2, 1.0)))
    calls: list[tuple[str, Any]] = [("push", x) for x in events if rng.random() < share]
    for _ in range(rng.choice((0, 0, 1, 3))):
        call: tuple[str, Any] = rng.choice(
            (
                ("advance", rng.randint(-1, 14) * S),
                ("join", rng.choice(NODES)),
                ("leave", rng.choice(NODES)),
                ("view", rng.sample(NODES, 2)),
            )
        )
        calls.insert(rng.randint(0, len(calls)), call)
    return calls


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_equals_its_definition_and_can_be_restored_anywhere(
    policy: str,
) -> None:
    @drawn(40, 2_000)
    def holds(rng: random.Random) -> None:
        options = random_options(rng, policy)
        queue, again, obvious = MarkedQueue(**options), MarkedQueue(**options), Obvious(**options)
        after = [("push", e(dot, "after the end")) for dot in ("z@1", "n1@99")]
        for call, argument in [*random_calls(rng), ("end", None), *after]:
            arguments = () if call == "end" else (argument,)
            step = getattr(queue, call)(*arguments)
            assert step == getattr(obvious, call)(*arguments), f"{call} {argument}"
            assert step == getattr(again, call)(*arguments), "restored"
            held = queue.held_back()
            assert [event for event, _ in held] == obvious.held
            assert len(queue) == len(held) <= options["held_back_max"]
            for event, dot in held:
                missing = set() if policy == "frontier" else obvious.missing(event)
                assert dot in missing if dot is not None else not missing
            assert queue.lost == obvious.named
            again = restored(queue, options)
            assert (again.high_water, again.held_back()) == (queue.high_water, held)


def random_topology(rng: random.Random) -> Topology:
    pairs = list(itertools.permutations(NODES, 2))
    edges = rng.sample(pairs, rng.randint(1, 8))
    relaxed = rng.choice((0.0, 0.3, 1.0))
    return Topology(
        tuple(TopologyEdge(p, q, rng.random() < relaxed) for p, q in edges), rng.random() < 0.4
    )


def same_step(one: ReleaseStep, other: ReleaseStep) -> bool:
    """Compare steps; dots lost at the same moment have no order within a topology."""
    return replace(one, gaps=sorted(one.gaps)) == replace(other, gaps=sorted(other.gaps))


def test_every_option_equals_its_definition_within_a_topology() -> None:
    held_less = widened = 0

    @drawn(100, 2_000)
    def holds(rng: random.Random) -> None:
        nonlocal held_less, widened
        where = random_topology(rng)
        options = random_options(rng, "eager")
        plain = MarkedQueue(**options)
        queue = MarkedQueue(**options, domains=DomainPast(where))
        again = MarkedQueue(**options, domains=DomainPast(where))
        obvious = Obvious(**options, topology=where)
        for call, argument in [*random_calls(rng), ("end", None)]:
            arguments = () if call == "end" else (argument,)
            if call == "push":
                if not where.open and base_node(argument.node) not in nodes_of(where):
                    continue
                obvious.meet(argument)
            getattr(plain, call)(*arguments)
            step = getattr(queue, call)(*arguments)
            expected = getattr(obvious, call)(*arguments)
            assert same_step(step, expected), f"{call} {argument}"
            assert step == getattr(again, call)(*arguments), "restored"
            assert step.limit == ""
            held = queue.held_back()
            assert [event for event, _ in held] == obvious.held
            for event, dot in held:
                assert dot in obvious.missing_behind(event), event
            held_less += len(queue) < len(plain)
            widened += bool(step.gaps and held)
            again = restored(queue, {**options, "domains": DomainPast(where)})
            assert again.held_back() == held

    assert held_less > 30
    assert widened > 5, "the cases must not be empty ones"


@pytest.mark.parametrize("policy", POLICIES)
def test_events_pushed_together_are_released_as_one_by_one(policy: str) -> None:
    several = 0

    @drawn(40, 3_000)
    def holds(rng: random.Random) -> None:
        nonlocal several
        options = ReleaseOptions(**random_options(rng, policy))
        together, single = HoldBackQueue(options), HoldBackQueue(options)
        calls = random_calls(rng)
        while calls:
            run = list(itertools.takewhile(lambda call: call[0] == "push", calls))
            if not run:
                call, argument = calls.pop(0)
                assert getattr(together, call)(argument) == getattr(single, call)(argument)
                continue
            calls = calls[len(run) :]
            expected = [single.push(x) for _, x in run]
            for step in together.take([x for _, x in run]):
                ends = step.ends
                assert step.only_releases or len(ends) == 1
                for begin, end in zip([0, *ends], ends, strict=False):
                    assert replace(step, released=step.released[begin:end]) == expected.pop(0)
                several += len(ends) > 1
            assert not expected
            assert together.held_back() == single.held_back()
            assert together.missing() == single.missing()
            assert together.save(hash) == single.save(hash)

    assert several


@pytest.mark.parametrize("policy", POLICIES)
def test_every_event_is_released_once_in_an_order_that_respects_happened_before(
    policy: str,
) -> None:
    @drawn(27, 1_000)
    def holds(rng: random.Random) -> None:
        queue, calls = MarkedQueue(**random_options(rng, policy)), random_calls(rng)
        steps = [getattr(queue, call)(x) for call, x in calls]
        steps.append(queue.end())
        pushed = [x for call, x in calls if call == "push"]
        order = [r.event for step in steps for r in step.released]
        others = [x for step in steps for x in (*step.late, *step.refused)]
        held = [x for x, _ in queue.held_back()]
        assert sorted(str(x.dot) for x in [*order, *others, *held]) == sorted(
            str(x.dot) for x in pushed
        )
        for place, x in enumerate(order):
            assert not any(happened_before(y, x) for y in order[place + 1 :])


def test_eager_releases_as_the_semantics_define() -> None:
    @drawn(27, 1_000)
    def holds(rng: random.Random) -> None:
        arrival = execution(rng, events_max=12)
        queue = MarkedQueue()
        order = [r.event for x in arrival for r in queue.push(x).released]
        assert order == obviously_released(arrival)
        assert len(queue) == 0


def test_total_with_declared_nodes_is_the_canonical_order() -> None:
    @drawn(27, 1_000)
    def holds(rng: random.Random) -> None:
        arrival = execution(rng, events_max=12)
        queue = MarkedQueue(policy="total", nodes=NODES)
        order = [r.event for x in arrival for r in queue.push(x).released]
        assert order == canonical(arrival)[: len(order)]
        order += [r.event for r in queue.end().released]
        assert order == canonical(arrival)


def test_total_without_declared_nodes_is_canonical_except_for_late_events() -> None:
    seen_late = 0

    @drawn(27, 1_000)
    def holds(rng: random.Random) -> None:
        nonlocal seen_late
        arrival = execution(rng, events_max=12)
        queue = MarkedQueue(policy="total")
        steps = [*map(queue.push, arrival), queue.end()]
        late_events = [x for step in steps for x in step.late]
        order = [r.event for step in steps for r in step.released]
        assert order == canonical(x for x in arrival if x not in late_events)
        seen_late += len(late_events)

    assert seen_late


@pytest.mark.parametrize("policy", ["eager", "total"])
def test_exactly_the_causal_future_of_a_lost_event_is_held_back_or_marked(policy: Policy) -> None:
    @drawn(27, 1_000)
    def holds(rng: random.Random) -> None:
        arrival = execution(rng, events_max=12)
        if not arrival:
            return
        lost = arrival.pop(rng.randrange(len(arrival)))
        future = [x for x in arrival if happened_before(lost, x)]
        without = MarkedQueue(policy=policy, nodes=NODES)
        steps = [*map(without.push, arrival), without.end()]
        assert [x for x, _ in without.held_back()] == future
        assert not without.lost
        assert {d for _, d in without.held_back()} <= {lost.dot}
        assert not any(r.after for step in steps for r in step.released)
        gap = MarkedQueue(policy=policy, nodes=NODES, gap_us=100 * S)
        steps = [*map(gap.push, arrival), gap.end()]
        answers = [r for step in steps for r in step.released]
        assert len(answers) == len(arrival)
        assert [d for step in steps for d in step.gaps] == [lost.dot] * bool(future)
        for answer in answers:
            assert answer.after == ({lost.dot} if answer.event in future else frozenset())


# --- eager, and what it costs ------------------------------------------------------------


def test_held_back_event_names_a_dot_that_did_not_arrive() -> None:
    a, b, c = CHAIN
    queue = MarkedQueue()
    assert queue.push(c) == ReleaseStep()
    assert waits(queue) == ["n3@1 n1@1"]
    queue.push(b)
    # c also waits for b, which has arrived; both wait for a.
    assert waits(queue) == ["n3@1 n1@1", "n2@1 n1@1"]
    assert out(queue.push(a)) == ["n1@1", "n2@1", "n3@1"]
    assert (len(queue), queue.high_water) == (0, 2)


def reversed_log(count: int, nodes: int = 8) -> list[Event]:
    rng = random.Random(1)
    clocks: list[dict[str, int]] = [{} for _ in range(nodes)]
    events = []
    for _ in range(count):
        place = rng.randrange(nodes)
        clock = clocks[place]
        for node, counter in clocks[rng.randrange(nodes)].items():
            clock[node] = max(counter, clock.get(node, 0))
        clock[f"n{place}"] = clock.get(f"n{place}", 0) + 1
        events.append(Event(node=f"n{place}", type="e", clock=dict(clock)))
    return events[::-1]


def test_reversed_log_costs_a_few_readiness_checks_per_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The checks are counted; benchmarks/hold_back.py measures time."""
    looks = 0
    unsettled = HeldEvents.unsettled

    def counted(self: HeldEvents, event: Event) -> Any:
        nonlocal looks
        looks += 1
        return unsettled(self, event)

    monkeypatch.setattr(HeldEvents, "unsettled", counted)
    for count in (500, 5_000):
        looks = 0
        queue = MarkedQueue()
        steps = [queue.push(x) for x in reversed_log(count)]
        assert sum(len(step.released) for step in steps) == count
        assert max(len(step.released) for step in steps) > 0.9 * count
        assert looks < 4 * count


def test_queue_frees_its_memory_except_for_a_few_numbers_per_node() -> None:
    queue = MarkedQueue(gap_us=S)
    for x in reversed_log(3_000):
        queue.push(x)
    state = queue.save(lambda event: 0)
    assert state["policy"]["held"] == []
    assert len(msgspec.msgpack.encode(state)) < 100_000  # the steps of the gap, up to 1,024
    assert not any(x.held or x.waiters or x.given_up for x in queue._store.nodes.values())


# --- gap -----------------------------------------------------------------------------


def test_gap_counts_from_the_stream_time_when_the_first_waiter_arrives() -> None:
    queue = MarkedQueue(gap_us=10 * S)
    queue.push(e("x@1", "x", time=100))
    # b has an old time, but the dot that it waits for is missing since 100 s, the stream's time.
    queue.push(e("b@1", "b", "a:1", time=50))
    queue.push(e("c@1", "c", "a:2", time=105))
    assert queue.push(e("x@2", "x", time=109.9)).gaps == []
    step = queue.push(e("x@3", "x", time=110))
    assert (gaps(step), out(step)) == (["a@1"], ["x@3", "b@1|a@1"])
    assert waits(queue) == ["c@1 a@2"]
    step = queue.advance(115 * S)
    assert (gaps(step), out(step)) == (["a@2"], ["c@1|a@1|a@2"])
    assert queue.lost == {Dot("a", 1), Dot("a", 2)}


def test_gap_counts_from_the_time_of_an_event_that_did_not_wait() -> None:
    queue = MarkedQueue(gap_us=S)
    for x in (e("a@1", "x", time=0), e("a@2", "x", time=100), e("b@1", "x", "a:3")):
        queue.push(x)
    assert gaps(queue.advance(101 * S - 1)) == []
    assert gaps(queue.advance(101 * S)) == ["a@3"]


def test_gap_counts_from_the_first_watermark_if_no_time_was_known() -> None:
    queue = MarkedQueue(gap_us=10 * S)
    queue.push(e("b@1", "b", "a:1"))
    assert queue.advance(1_000 * S) == ReleaseStep()
    assert gaps(queue.advance(1_010 * S)) == ["a@1"]


def test_waits_end_by_watermarks_alone_where_time_goes_by_them() -> None:
    """As in a job that reads one partition far ahead of another."""
    for gap_us, idle_us in ((10 * S, None), (None, 10 * S)):
        queue = MarkedQueue(gap_us=gap_us, idle_us=idle_us, by_watermark=True)
        queue.push(e("a@1", "x", time=0))
        assert queue.push(e("b@1", "x", "a:2", time=0)) == ReleaseStep()
        assert gaps(queue.push(e("c@1", "x", time=100))) == []
        assert gaps(queue.advance(10 * S - 1)) == []
        assert gaps(queue.advance(10 * S)) == ["a@2"]
    queue = MarkedQueue(policy="frontier", frontier_us=10 * S, by_watermark=True)
    queue.push(e("a@1", "x", time=5))
    assert queue.push(e("b@1", "x", time=100)) == ReleaseStep()
    assert queue.advance(5 * S) == ReleaseStep()
    assert out(queue.advance(5 * S + 1)) == ["a@1"]


def test_event_that_arrives_within_the_gap_is_accepted_whatever_its_time() -> None:
    queue = MarkedQueue(gap_us=10 * S)
    queue.push(e("b@1", "b", "a:1", time=0))
    assert out(queue.push(e("a@1", "a", time=99))) == ["a@1", "b@1"]
    assert queue.lost == frozenset()


def test_lost_dot_that_arrives_is_late() -> None:
    queue = MarkedQueue(gap_us=10 * S)
    queue.push(e("b@1", "b", "a:2", time=0))
    queue.push(e("a@1", "a", time=1))
    assert out(queue.advance(10 * S)) == ["b@1|a@2"]
    assert late(queue.push(e("a@2", "a"))) == ["a@2"]
    # Later events of the node come after the gap.
    assert out(queue.push(e("a@3", "a"))) == ["a@3|a@2"]
    assert out(queue.push(e("c@1", "c", "a:1"))) == ["c@1"]


def test_no_dot_is_lost_without_gap() -> None:
    queue = MarkedQueue()
    queue.push(e("b@1", "b", "a:1", time=0))
    assert queue.advance(10**12 * S) == ReleaseStep()
    assert queue.end() == ReleaseStep()
    assert waits(queue) == ["b@1 a@1"]


def test_end_is_a_watermark_of_infinity() -> None:
    queue = MarkedQueue(gap_us=10**9 * S)
    queue.push(e("b@1", "b", "a:1"))
    step = queue.end()
    assert (gaps(step), out(step)) == (["a@1"], ["b@1|a@1"])
    assert late(queue.push(e("a@1", "a"))) == ["a@1"]


def test_hole_longer_than_the_limit_is_reported_by_its_ends() -> None:
    queue = MarkedQueue(gap_us=S, lost_max=100)
    far = 2**62
    queue.push(e(f"a@{far}", "a", time=0))
    step = queue.advance(S)
    assert gaps(step) == ["a@1", f"a@{far - 1}"]
    assert step.unnamed == {Dot("a", 1): far - 3}
    assert out(step) == [f"a@{far}|a@1|a@{far - 1}"]
    # An event after a part of the hole is marked, too.
    assert out(queue.push(e("b@1", "b", "a:1000"))) == ["b@1|a@1"]
    assert restored(queue, {"gap_us": S, "lost_max": 100}).lost == queue.lost


def test_events_after_a_loss_are_marked_beyond_the_limit_of_losses() -> None:
    options: dict[str, Any] = {"gap_us": 0, "lost_max": 10}
    queue = MarkedQueue(**options)
    lost: list[Dot] = []
    for counter in range(2, 200, 2):
        step = queue.push(e(f"a@{counter}", "a", time=counter))
        lost += step.gaps
        (answer,) = step.released
        assert answer.after == queue.lost == set(lost[-10:])
    assert lost == [Dot("a", counter) for counter in range(1, 199, 2)]
    for one in (restored(queue, options), queue):
        assert out(one.push(e("b@1", "b", "a:7"))) == ["b@1|a@1"]


def test_events_after_a_late_event_are_marked_beyond_the_limit() -> None:
    options: dict[str, Any] = {"policy": "frontier", "frontier_us": S, "lost_max": 10}
    queue = MarkedQueue(**options)
    queue.push(e("b@1", "x", "a:100", time=0))
    assert out(queue.push(e("c@1", "x", time=5))) == ["b@1"]
    for counter in range(1, 31):
        assert late(queue.push(e(f"a@{counter}", "x", time=0))) == [f"a@{counter}"]
        assert queue.lost == {Dot("a", n) for n in range(max(1, counter - 9), counter + 1)}
    for one in (restored(queue, options), queue):
        assert out(one.push(e("d@1", "x", "a:7", time=0))) == ["d@1|a@1"]


# --- membership ------------------------------------------------------------------------


def test_missing_events_of_a_node_that_left_are_lost() -> None:
    queue = MarkedQueue()
    queue.push(e("b@1", "b", "a:1 c:1"))
    step = queue.leave("a")
    assert (gaps(step), out(step)) == (["a@1"], [])
    assert out(queue.push(e("c@1", "c"))) == ["c@1", "b@1|a@1"]
    # Later events do not wait for the node either.
    step = queue.push(e("b@2", "b", "a:2 c:1"))
    assert (gaps(step), out(step)) == (["a@2"], ["b@2|a@1|a@2"])
    # An event from before the leave that no event waited for is not late, and is not a rejoin.
    assert out(queue.push(e("a@3", "a"))) == ["a@3|a@1|a@2"]
    assert gaps(queue.push(e("b@3", "b", "a:4 c:1"))) == ["a@4"]
    queue.join("a")
    assert late(queue.push(e("a@4", "a"))) == ["a@4"]
    assert queue.push(e("b@4", "b", "a:5 c:1")) == ReleaseStep()


def test_nodes_outside_a_view_have_left() -> None:
    queue = MarkedQueue()
    queue.push(e("b@1", "b", "a:1 c:1"))
    assert gaps(queue.view(["b", "c"])) == ["a@1"]
    assert waits(queue) == ["b@1 c@1"]
    assert out(queue.view(["a", "b"])) == ["b@1|a@1|c@1"]
    queue.push(e("b@2", "b", "a:2 c:1"))
    assert waits(queue) == ["b@2 a@2"]


@pytest.mark.parametrize(("call", "argument"), [("leave", "c"), ("view", ["a", "b"])])
def test_node_that_only_the_clock_of_a_held_event_names_can_leave(call: str, argument: Any) -> None:
    queue = MarkedQueue()
    queue.push(e("b@1", "b"))
    queue.push(e("b@2", "b", "a:1 c:1"))
    assert gaps(getattr(queue, call)(argument)) == ["c@1"]
    assert out(queue.push(e("a@1", "a"))) == ["a@1", "b@2|c@1"]


def test_restored_queue_loses_the_missing_dots_of_a_node_that_leaves() -> None:
    queue = MarkedQueue()
    for x in (e("b@1", "x"), e("b@2", "x", "a:1")):
        queue.push(x)
    again = restored(queue, {})
    again.push(e("b@3", "x", "a:1 c:1"))
    assert [gaps(again.leave(node)) for node in "ac"] == [["a@1"], ["c@1"]]


def test_dots_that_become_missing_together_are_lost_in_the_order_of_their_nodes() -> None:
    event = e("b@1", "x", "z:1 c:1 a:1", time=0)
    queue = MarkedQueue(gap_us=S)
    queue.push(event)
    assert gaps(queue.advance(S)) == ["a@1", "c@1", "z@1"]
    queue = MarkedQueue()
    for node in ("z", "c", "a"):
        queue.leave(node)
    assert gaps(queue.push(event)) == ["a@1", "c@1", "z@1"]


def test_total_waits_for_the_members() -> None:
    queue = MarkedQueue(policy="total", nodes=("a", "b", "c"))
    assert out(queue.push(e("a@1", "x"))) == ["a@1"]
    assert queue.push(e("a@2", "x")) == ReleaseStep()
    assert out(queue.push(e("b@1", "x"))) == ["b@1"]
    assert queue.push(e("b@2", "x", "a:1")) == ReleaseStep()
    assert waits(queue) == ["a@2 None", "b@2 None"]
    assert out(queue.leave("c")) == ["a@2"]
    assert queue.join("d") == ReleaseStep()
    # d's events of sum 1 and 2 sort before a@2, which was released: they are late.
    assert late(queue.push(e("d@1", "x"))) == ["d@1"]
    assert late(queue.push(e("c@1", "x"))) == ["c@1"]
    # An event after a late event does not wait for it, and is marked.
    queue.push(e("b@3", "x", "a:1 d:1"))
    assert out(queue.end()) == ["b@2", "b@3|d@1"]


def test_total_waits_for_the_first_event_of_a_node_that_joined() -> None:
    queue = MarkedQueue(policy="total", nodes=("b", "c"))
    assert out(queue.push(e("c@1", "x"))) == []
    assert out(queue.push(e("b@1", "x"))) == ["b@1", "c@1"]
    queue.join("a")
    assert out(queue.push(e("d@1", "x"))) == []
    assert out(queue.leave("a")) == ["d@1"]


def test_total_does_not_wait_for_a_node_that_only_clocks_name() -> None:
    queue = MarkedQueue(policy="total", nodes=("b",), gap_us=0)
    assert out(queue.push(e("b@1", "x", "a:1", time=0))) == ["b@1|a@1"]
    assert out(queue.push(e("b@2", "x", "a:1", time=0))) == ["b@2|a@1"]


LATE = [
    *(e(f"p@{n}", "x", time=n) for n in (1, 2, 3)),
    e("q@2", "x", time=4),
    e("p@4", "x", "q:1", time=5),
    e("p@5", "x", "q:1", time=6),
]
NEXT = e("q@3", "x", "p:5", time=7)


def after_a_late_event(gap_us: int | None = None) -> MarkedQueue:
    """Return a total order with a late q@2 and a missing q@1, on which p@4 depends."""
    queue = MarkedQueue(policy="total", gap_us=gap_us)
    steps = [queue.push(x) for x in LATE]
    assert [late(step) for step in steps] == [[], [], [], ["q@2"], [], []]
    assert [out(step) for step in steps] == [["p@1"], ["p@2"], ["p@3"], [], [], []]
    return queue


def test_missing_predecessor_of_a_late_event_is_waited_for_by_its_dependants() -> None:
    queue = after_a_late_event()
    assert out(queue.push(NEXT)) == []
    assert waits(queue) == ["p@4 q@1", "p@5 q@1", "q@3 q@1"]
    assert queue.end() == ReleaseStep()
    assert len(queue) == 3


def test_lost_predecessor_of_a_late_event_marks_its_dependants() -> None:
    # q@1 is missing since q@2 arrived, the first event whose past has it.
    queue = after_a_late_event(gap_us=4 * S)
    assert queue.push(NEXT) == ReleaseStep()
    step = queue.advance(8 * S)
    assert gaps(step) == ["q@1"]
    assert out(step) == ["p@4|q@1", "p@5|q@1"]
    assert late(queue.push(e("q@1", "x", time=9))) == ["q@1"]
    assert out(queue.end()) == ["q@3|q@1|q@2"]


def test_dot_known_to_a_late_event_only_is_declared_lost_too() -> None:
    queue = MarkedQueue(policy="total", gap_us=4 * S)
    for event in LATE[:4]:
        queue.push(event)
    assert gaps(queue.advance(8 * S - 1)) == []
    assert gaps(queue.advance(8 * S)) == ["q@1"]
    assert queue.end() == ReleaseStep()


def test_place_of_a_lost_event_is_bounded_by_the_event_before_it() -> None:
    queue = MarkedQueue(policy="total")
    for x in (
        *(e(f"a@{n}", "x") for n in range(1, 7)),
        e("p@1", "x", "a:3"), e("p@4", "x", "a:6"), e("b@1", "x", "p:5"),
    ):  # fmt: skip
        queue.push(x)
    step = queue.leave("p")
    assert gaps(step) == ["p@2", "p@3", "p@5"]
    assert sorted(step.lowest_keys.values()) == [(5, "p", 2), (6, "p", 3), (11, "p", 5)]


def test_missing_predecessor_of_a_late_event_is_lost_at_the_end() -> None:
    queue = after_a_late_event(gap_us=30 * S)
    step = queue.end()
    assert (gaps(step), out(step)) == (["q@1"], ["p@4|q@1", "p@5|q@1"])


def test_late_event_is_not_lost_with_its_missing_predecessor() -> None:
    queue = after_a_late_event()
    queue.push(NEXT)
    for one in (restored(queue, {"policy": "total"}), queue):
        assert gaps(one.leave("q")) == ["q@1"]
        assert not any(x.given_up or x.arrived for x in one._store.nodes.values())


def test_predecessor_of_a_late_event_is_late_and_frees_its_dependants() -> None:
    queue = after_a_late_event()
    step = queue.push(e("q@1", "x", time=7))
    assert (late(step), out(step)) == (["q@1"], [])
    assert waits(queue) == ["p@4 None", "p@5 None"]  # a q@3 may still sort before them
    assert out(queue.push(NEXT)) == ["p@4|q@1", "p@5|q@1"]


def test_late_event_frees_its_dependants_at_once() -> None:
    queue = MarkedQueue(policy="total")
    for x in (e("a@1", "x"), e("a@2", "x"), e("b@1", "x", "c:1")):
        queue.push(x)
    step = queue.push(e("c@1", "x"))
    assert (late(step), out(step)) == (["c@1"], ["b@1|c@1"])


def test_turn_in_the_total_order_does_not_wait_for_a_late_events_predecessor() -> None:
    queue = MarkedQueue(policy="total")
    for x in LATE[:4]:
        queue.push(x)
    # Future events of q come after q@2: p@4 waits for these, and not for q@1.
    assert out(queue.push(e("p@4", "x"))) == []
    assert out(queue.push(e("q@3", "x", "p:4"))) == ["p@4"]
    assert waits(queue) == ["q@3 q@1"]


def test_idle_node_leaves_and_rejoins_with_its_next_event() -> None:
    queue = MarkedQueue(policy="total", nodes=("a", "b"), idle_us=10 * S)
    assert out(queue.push(e("a@1", "x", time=0))) == ["a@1"]
    assert out(queue.push(e("a@2", "x", time=5))) == []
    assert out(queue.push(e("a@3", "x", time=10))) == ["a@2", "a@3"]  # b has left
    assert late(queue.push(e("b@1", "x", time=11))) == ["b@1"]
    assert out(queue.push(e("a@4", "x", time=12))) == []  # b is back
    assert out(queue.push(e("b@2", "x", "a:3", time=13))) == ["a@4"]


def test_idle_node_outside_a_later_view_does_not_rejoin_with_its_next_event() -> None:
    queue = MarkedQueue(policy="total", nodes=("a", "b"), idle_us=10 * S)
    queue.push(e("a@1", "x", time=0))
    assert out(queue.push(e("a@2", "x", time=10))) == ["a@2"]  # b, which never appeared, has left
    queue.view(["a"])
    queue.push(e("b@1", "x", "a:2", time=11))
    assert out(queue.push(e("a@3", "x", "b:1", time=12))) == ["b@1", "a@3"]
    assert out(queue.push(e("a@4", "x", "b:1", time=12))) == ["a@4"]
    assert out(queue.push(e("a@5", "x", "b:1", time=12))) == ["a@5"], "does not wait for b@2"


def test_idle_node_is_waited_for_again_once_a_clock_names_a_new_event() -> None:
    queue = MarkedQueue(idle_us=10 * S)
    queue.push(e("a@1", "x", time=0))
    queue.push(e("b@1", "x", time=20))
    queue.push(e("b@2", "x", "a:2", time=21))
    assert waits(queue) == ["b@2 a@2"]
    queue.push(e("c@1", "x", "a:2", time=25))  # its clock names nothing new
    step = queue.advance(31 * S)
    assert (gaps(step), out(step)) == (["a@2"], ["b@2|a@2", "c@1|a@2"])


def test_node_that_a_clock_named_first_can_be_idle_under_an_option_that_is_new() -> None:
    queue = MarkedQueue()
    for x in (e("b@1", "x", "a:1", time=0), e("a@1", "x", time=1), e("b@2", "x", "a:2", time=2)):
        queue.push(x)
    again = restored(queue, {"idle_us": S})
    assert gaps(again.advance(3 * S)) == ["a@2"]


def test_clock_that_names_an_event_that_arrived_does_not_make_its_node_active() -> None:
    queue = MarkedQueue(policy="total", nodes=("a", "b"), idle_us=10 * S)
    queue.push(e("b@1", "x", time=0))
    queue.push(e("a@1", "x", time=0))
    assert out(queue.push(e("a@2", "x", "b:1", time=5))) == []
    assert out(queue.push(e("a@3", "x", "b:1", time=10))) == ["a@2", "a@3"]


def test_clock_that_names_a_held_event_does_not_make_its_node_active() -> None:
    queue = MarkedQueue(idle_us=4 * S)
    queue.push(e("a@1", "x", time=0))
    queue.push(e("a@3", "x", time=1))
    queue.push(e("b@1", "x", "a:3", time=3))
    assert waits(queue) == ["a@3 a@2", "b@1 a@2"]
    assert gaps(queue.push(e("c@1", "x", time=6))) == ["a@2"]


def test_event_after_one_that_waits_for_its_turn_names_the_dot_missing_between_them() -> None:
    queue = MarkedQueue(policy="total", nodes=("a", "0"))
    queue.leave("c")
    queue.join("c")
    for x in (e("a@1", "x"), e("a@2", "x", "c:1"), e("a@3", "x")):
        queue.push(x)
    assert waits(queue) == ["a@1 None", "a@2 c@1", "a@3 c@1"]


def test_lost_events_of_a_node_bound_the_place_of_its_next_one() -> None:
    queue = MarkedQueue(policy="total", nodes=("a", "b", "c"), gap_us=S)
    for x in (e("a@1", "x"), e("c@1", "x"), e("c@2", "x"), e("c@3", "x")):
        queue.push(x)
    assert out(queue.push(e("b@1", "x", "a:3", time=0))) == ["c@1"]
    step = queue.advance(S)
    assert (gaps(step), out(step)) == (["a@2", "a@3"], ["c@2", "c@3"])


@pytest.mark.parametrize("before_us", [None, 100 * S])
def test_waits_are_counted_from_a_change_of_the_options(before_us: int | None) -> None:
    queue = MarkedQueue(gap_us=before_us)
    for x in (e("b@1", "x", time=0), e("b@2", "x", "a:1", time=0), e("c@1", "x", time=50)):
        queue.push(x)
    queue = restored(queue, {"gap_us": S})
    assert gaps(queue.advance(51 * S - 1)) == []
    assert gaps(queue.advance(51 * S)) == ["a@1"]


def test_node_that_is_not_declared_any_more_is_live_if_it_had_an_event() -> None:
    for x_event, expected in (([], ["a@1", "a@2", "a@3"]), ([e("x@2", "x")], ["a@1"])):
        queue = MarkedQueue(policy="total", nodes=("a", "x", "A"))
        for x in (*x_event, e("a@1", "x"), e("a@2", "x")):
            queue.push(x)
        queue = restored(queue, {"policy": "total", "nodes": ("a",)})
        assert out(queue.push(e("a@3", "x"))) == expected


def test_node_that_left_is_not_live_because_it_is_declared_later() -> None:
    queue = MarkedQueue(policy="total", nodes=("a",))
    queue.leave("x")
    queue = restored(queue, {"policy": "total", "nodes": ("a", "x")})
    queue.push(e("a@1", "x"))
    assert out(queue.push(e("a@2", "x"))) == ["a@2"]


# --- capacity -------------------------------------------------------------------------


def test_refused_event_is_still_the_next_one_of_its_node() -> None:
    queue = MarkedQueue(policy="total", nodes=("a", "b", "c"), held_back_max=1)
    queue.push(e("c@1", "c", "b:3"))
    for event in (e("a@1", "a", "b:4"), e("b@1", "b")):
        assert queue.push(event).refused == [event], "b@1 waits for a@1, which may be redelivered"


def test_full_queue_refuses_exactly_the_events_that_would_wait() -> None:
    queue = MarkedQueue(held_back_max=1)
    queue.push(e("b@1", "b", "a:1"))
    step = queue.push(e("b@2", "b", "a:1"))
    assert [str(x.dot) for x in step.refused] == ["b@2"]
    assert out(queue.push(e("c@1", "c"))) == ["c@1"]
    assert out(queue.push(e("a@1", "a"))) == ["a@1", "b@1"]


def test_full_queue_declares_the_oldest_hole_lost() -> None:
    queue = MarkedQueue(held_back_max=2, gives_up=True)
    queue.push(e("b@1", "b", "a:2 z:1"))
    queue.push(e("d@1", "d", "c:1"))
    step = queue.push(e("f@1", "f", "e:1"))
    # The first waiter is b@1, for a@1, a@2 and z@1; the holes are lost one node at a time.
    assert (gaps(step), out(step), step.given_up) == (
        ["a@1", "a@2", "z@1"], ["b@1|a@1|a@2|z@1"], 2,
    )  # fmt: skip
    assert queue.high_water == 2


def test_event_under_total_does_not_cost_a_visit_of_every_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    visits = []
    next_key = Total._next_key

    def counted(policy: Total, node: str) -> Any:
        visits.append(node)
        return next_key(policy, node)

    monkeypatch.setattr(Total, "_next_key", counted)
    names = [f"n{number:04}" for number in range(400)]
    queue = HoldBackQueue(ReleaseOptions(policy="total", nodes=tuple(names)))
    events = [e(f"{name}@{counter}", "x") for counter in (1, 2) for name in names]
    steps = list(queue.take(events))
    assert len(visits) < 4 * len(events)
    released = [str(event.dot) for step in steps for event in step.released]
    assert released == [f"{name}@1" for name in names] + [f"{name}@2" for name in names]


def test_full_total_order_gives_up_the_waits_of_its_first_event() -> None:
    queue = MarkedQueue(policy="total", nodes=("a", "b"), held_back_max=1, gives_up=True)
    queue.push(e("a@2", "x"))
    step = queue.push(e("a@3", "x"))
    assert (gaps(step), out(step), step.given_up) == (["a@1"], ["a@2|a@1"], 2)
    assert late(queue.push(e("b@1", "x"))) == ["b@1"]


def test_event_that_was_declared_lost_is_late_after_a_full_queue_gave_up_a_lower_one() -> None:
    queue = MarkedQueue(policy="total", gives_up=True, held_back_max=3)
    for x in (e("x@1", "x"), e("x@2", "x", "y:1 w:9"), e("a@1", "x", "x:5")):
        queue.push(x)
    assert gaps(queue.leave("x")) == ["x@3", "x@4", "x@5"]
    queue.push(e("c@1", "x", "x:2 z:1"))
    assert gaps(queue.push(e("c@2", "x", "x:2 z:1"))) == ["z@1"]
    assert late(queue.push(e("x@4", "x"))) == ["x@4"]


def test_full_total_order_accepts_events_that_free_held_back_ones() -> None:
    queue = MarkedQueue(policy="total", nodes=("a", "b"), held_back_max=1)
    queue.push(e("a@2", "x"))
    assert [str(x.dot) for x in queue.push(e("a@3", "x")).refused] == ["a@3"]
    assert out(queue.push(e("a@1", "x"))) == ["a@1"]
    assert out(queue.push(e("b@1", "x"))) == ["b@1", "a@2"]


# --- frontier ----------------------------------------------------------------------------


def test_full_total_queue_takes_an_event_that_lets_another_be_released() -> None:
    """n2@1 waited for n1, whose first event comes after it and depends on it."""
    queue = MarkedQueue(policy="total", nodes=("n1", "n2"), held_back_max=1)
    assert out(queue.push(e("n2@1", "x"))) == []
    assert out(queue.push(e("n1@1", "x", "n2:1"))) == ["n2@1", "n1@1"]


def test_frontier_makes_an_event_due_at_the_largest_time_of_its_past() -> None:
    queue = MarkedQueue(policy="frontier", frontier_us=10 * S)
    queue.push(e("a@7", "x", time=100))
    queue.push(e("b@9", "x", "a:7", time=92))  # b's physical clock is behind
    queue.push(e("c@3", "x", time=93))
    assert out(queue.push(e("a@30", "x", time=104))) == ["c@3"]
    assert waits(queue) == ["a@7 None", "b@9 None", "a@30 None"]
    assert out(queue.advance(100 * S)) == []
    assert out(queue.advance(100 * S + 1)) == ["a@7", "b@9"]


def test_event_after_one_of_a_later_time_is_due_with_it_in_any_order_of_arrival() -> None:
    events = [e("a@1", "x", time=10), e("a@2", "x", time=5), e("a@3", "x", time=7)]
    for order in itertools.permutations([*events, e("b@1", "x", "a:3", time=1)]):
        queue = MarkedQueue(policy="frontier", frontier_us=20 * S)
        for x in order:
            queue.push(x)
        assert out(queue.push(e("c@1", "x", time=30))) == []
        assert out(queue.advance(10 * S + 1)) == ["a@1", "a@2", "a@3", "b@1"]


def test_event_is_due_at_the_largest_of_any_times_in_any_order_of_arrival() -> None:
    for times in itertools.permutations((5, 20, 50)):
        events = [e(f"a@{n}", "x", time=time) for n, time in enumerate(times, start=1)]
        for known in (1, 2, 3):
            for order in itertools.permutations([*events, e("b@1", "x", f"a:{known}", time=1)]):
                queue = MarkedQueue(policy="frontier", frontier_us=60 * S)
                for x in order:
                    queue.push(x)
                due = max(times[:known]) * S
                assert "b@1" not in out(queue.advance(due))
                assert "b@1" in out(queue.advance(due + 1))


def test_cause_that_arrives_in_time_holds_its_dependants_back() -> None:
    queue = MarkedQueue(policy="frontier", frontier_us=10 * S)
    queue.push(e("b@9", "x", "a:7", time=92))
    queue.push(e("a@7", "x", time=100))
    assert out(queue.push(e("c@1", "x", time=105))) == []
    assert out(queue.push(e("c@2", "x", time=111))) == ["a@7", "b@9"]


def test_event_that_arrives_after_a_released_dependant_is_late() -> None:
    queue = MarkedQueue(policy="frontier", frontier_us=S)
    queue.push(e("b@9", "x", "a:7", time=0))
    assert out(queue.push(e("c@1", "x", time=5))) == ["b@9"]
    assert late(queue.push(e("a@7", "x", time=4.9))) == ["a@7"]
    assert out(queue.push(e("a@8", "x", time=3))) == ["a@8|a@7"]
    # An old event of which no released event depends is not late.
    assert out(queue.push(e("d@1", "x", time=-100))) == ["d@1"]


def test_events_without_a_time_get_the_time_of_their_arrival() -> None:
    queue = MarkedQueue(policy="frontier", frontier_us=S)
    assert queue.push(e("a@1", "x")) == ReleaseStep()
    assert out(queue.push(e("b@1", "x", time=50))) == []  # a@1 counts as of 50 s
    queue.push(e("c@1", "x"))
    assert out(queue.push(e("b@2", "x", time=52))) == ["a@1", "b@1", "c@1"]
    untimed = MarkedQueue(policy="frontier", frontier_us=S)
    for x in reversed(CHAIN):
        assert untimed.push(x) == ReleaseStep()
    assert out(untimed.end()) == ["n1@1", "n2@1", "n3@1"]


def test_event_given_up_before_any_time_was_known_counts_as_one_of_the_first_time() -> None:
    queue = MarkedQueue(policy="frontier", frontier_us=S, held_back_max=1, gives_up=True)
    queue.push(e("a@1", "x"))
    assert out(queue.push(e("b@1", "x"))) == ["a@1"]
    assert out(queue.push(e("b@2", "x", time=4.5))) == ["b@1"]
    # a@1 is of 4.5 s, so a@2 is not due, but is given up as the first in the order.
    step = queue.push(e("a@2", "x", time=1.5))
    assert (out(step), step.given_up) == (["a@2"], 1)


def test_frontier_keeps_no_times_of_nodes_that_are_silent_since_the_watermark() -> None:
    queue = HoldBackQueue(ReleaseOptions(policy="frontier", frontier_us=S))
    policy = queue._policy
    assert isinstance(policy, Frontier)
    for second in range(1, 1001):
        queue.push(e(f"m{second}@1", "x", time=second))
        assert len(policy._times) <= 2


def test_full_frontier_releases_the_event_that_is_due_first() -> None:
    queue = MarkedQueue(policy="frontier", frontier_us=S, held_back_max=2, gives_up=True)
    queue.push(e("a@1", "x", time=10))
    queue.push(e("b@1", "x", "a:1", time=9.5))
    step = queue.push(e("c@1", "x", time=9.8))
    assert (out(step), step.given_up) == (["c@1"], 1)
    reject = MarkedQueue(policy="frontier", frontier_us=S, held_back_max=1)
    reject.push(e("a@1", "x", time=10))
    assert reject.push(e("b@1", "x", time=10)).refused
    assert reject.push(e("c@1", "x", time=9)).refused, "the watermark has not passed its time"
    # A frontier does not wait for refused events: events after them are marked.
    assert out(reject.end()) == ["a@1"]


def timed(rng: random.Random, count: int, skew_s: float) -> list[Event]:
    """Return a long execution in a linear extension, with an event each tenth of a second."""
    skews = [rng.uniform(-skew_s, skew_s) for _ in range(6)]
    clocks: list[dict[str, int]] = [{} for _ in skews]
    events = []
    for number in range(count):
        place = rng.randrange(6)
        clock = clocks[place]
        if rng.random() < 0.4:
            for node, counter in clocks[rng.randrange(6)].items():
                clock[node] = max(counter, clock.get(node, 0))
        clock[f"n{place}"] = clock.get(f"n{place}", 0) + 1
        events.append(
            Event(node=f"n{place}", type="e", clock=dict(clock), time=number / 10 + skews[place])
        )
    return events


@pytest.mark.parametrize("skew_s", [0.0, 5.0, 1_000.0])
def test_frontier_releases_a_filtered_stream_under_any_clock_skew(skew_s: float) -> None:
    """In any causal order of arrival, and in any other that differs by less than the frontier."""
    for seed in range(5):
        rng = random.Random(seed)
        kept = [x for x in timed(rng, 3_000, skew_s) if rng.random() < 0.1]
        moved = {id(x): i / 1 + rng.random() * 30 for i, x in enumerate(kept)}
        shuffled = sorted(kept, key=lambda x: moved[id(x)])
        for arrival, frontier_s in ((kept, 1.0), (shuffled, 60.0 + 2 * skew_s)):
            queue = MarkedQueue(policy="frontier", frontier_us=round(frontier_s * S))
            steps = [*map(queue.push, arrival), queue.end()]
            order = [r.event for step in steps for r in step.released]
            assert not any(step.late for step in steps)
            assert sorted(map(canonical_key, order)) == sorted(map(canonical_key, kept))
            for place, x in enumerate(order):
                assert not any(happened_before(y, x) for y in order[place + 1 :])
            # In flight: what happened within the frontier and the skew, a tenth of it kept.
            assert queue.high_water <= min(len(kept), 30 + 2 * (frontier_s + 2 * skew_s))


# --- from a pattern ---------------------------------------------------------------------


def duration(amount: int) -> syntax.Duration:
    return syntax.Duration(amount, "s")


def test_release_options_are_read_from_an_order() -> None:
    order = syntax.Order("causal", total=True, nodes=("a",), gap=duration(30), overflow="lost")
    options = ReleaseOptions.of(order, Limits(held_back_max=7))
    assert options.policy == "total"
    assert options.nodes == ("a",)
    assert options.gap_us == 30 * S
    assert options.gives_up
    assert options.held_back_max == 7
    assert options.lost_max == DEFAULT.lost_max
    assert ReleaseOptions.of(syntax.Order("causal")).policy == "eager"
    assert ReleaseOptions.of(syntax.Order("causal", frontier=duration(1))).policy == "frontier"


def test_past_of_the_oracle_is_the_dots_below_the_clock() -> None:
    assert sorted(map(str, past(e("b@2", "x", "a:1")))) == ["a@1", "b@1"]


def test_dots_that_a_late_event_of_a_departed_node_needs_are_lost_at_once() -> None:
    queue = MarkedQueue(policy="total")
    for event in (e("a@1", "t"), e("b@9", "t")):
        queue.push(event)
    queue.leave("a")
    assert out(queue.leave("b"))[-1].startswith("b@9")
    step = queue.push(e("a@3", "t"))
    assert (late(step), gaps(step)) == (["a@3"], ["a@2"])
