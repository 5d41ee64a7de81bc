"""The limit `nodes_max`: what a stream remembers of nodes does not grow without end."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import pytest

import ketal
from ketal import Control, Event, Limits, Monitor, Overflow
from tests.driven import Driven

NODES_MAX = 20
LIMITS = Limits(nodes_max=NODES_MAX, dots_max=8, held_back_max=10)
ORDERS = {
    "arrival": "order arrival;",
    "eager": "order CausalOrder;",
    "gap": "order CausalOrder(gap = 2 s);",
    "total": "order CausalOrder(total, idle = 5 s);",
    "frontier": "order CausalOrder(frontier = 1 s);",
}
BODIES = (
    "Late = Conc(A); check (A | Late)*; on violation skip;",
    "find any A A; within 2 events;",
    "at every node; check A*; on violation skip;",
)
GIVEN_UP = "the event, which names a node beyond those that are remembered"


def program(order: str, *bodies: str) -> ketal.Program:
    head = f'{order} event A = type == "a";'
    patterns = [f"pattern P{n} {{ {head} {body} }}" for n, body in enumerate(bodies)]
    return ketal.compile("\n".join(patterns))


def a(node: str, counter: int, **others: int) -> Event:
    return Event(node, "a", {node: counter, **others})


def given_up(monitor: Monitor | Driven, events: Iterator[Any] | list[Any]) -> list[str]:
    """Return at which events a monitor reports that it has no room for a node."""
    verdicts = [verdict for event in events for verdict in monitor.feed(event)]
    overflows = [one for one in verdicts if isinstance(one, Overflow)]
    assert all(one.limit == "nodes_max" for one in overflows)
    assert all(one.given_up == GIVEN_UP for one in overflows if one.event is not None)
    return [str(one.event) if one.event else one.given_up.split(",")[0] for one in overflows]


# --- memory -----------------------------------------------------------------------------


def senders(count: int) -> Iterator[Any]:
    """Yield events of ever new nodes, which know the one before them."""
    for number in range(count):
        known = {f"pod-{number - 1}": 1} if number else {}
        yield Event(f"pod-{number}", "a", {**known, f"pod-{number}": 1}, time=number)


def senders_that_leave(count: int) -> Iterator[Any]:
    """Yield such events, after each of which the node before leaves."""
    for number, one in enumerate(senders(count)):
        yield one
        yield Control("leave", node=f"pod-{max(0, number - 1)}")


def receiver(count: int) -> Iterator[Any]:
    """Yield events of one node whose clocks name ever new nodes, and drop the one before."""
    for number in range(count):
        yield Event("all", "a", {"all": number + 1, f"pod-{number}": 1}, time=number)


def announcements(count: int) -> Iterator[Any]:
    """Yield control events about ever new nodes."""
    for number in range(count):
        yield Control("join", node=f"pod-{number}")
        yield Control("view", members=(f"pod-{number}", f"pod-{number + 1}"))
        yield Control("leave", node=f"pod-{number}")


def names_within(root: object) -> set[str]:
    """Return the names of pods that an object refers to, directly or indirectly."""
    seen, waiting, names = {id(root)}, [root], set()
    while waiting:
        holder = waiting.pop()
        held = gc.get_referents(holder)
        if isinstance(holder, dict):
            held += holder  # `get_referents` leaves out keys that are text
        for one in held:
            if isinstance(one, str):
                names.add(one)
            elif id(one) not in seen and not isinstance(one, type | FunctionType | ModuleType):
                seen.add(id(one))
                waiting.append(one)
    return {name for name in names if name.startswith("pod-")}


@pytest.mark.parametrize("stream", [senders, senders_that_leave, receiver, announcements])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_names_do_not_accumulate(order: str, stream: Callable[[int], Iterator[Any]]) -> None:
    limited = Monitor(program(order, *BODIES), limits=LIMITS)
    limited.feed_many(stream(100))
    assert len(names_within(limited)) <= NODES_MAX
    roomy = Monitor(program(order, *BODIES), limits=Limits(dots_max=8))
    roomy.feed_many(stream(100))
    assert len(names_within(roomy)) >= 100, "they accumulate without the limit"


# --- what is given up -------------------------------------------------------------------


def test_event_of_a_node_beyond_the_limit_is_given_up() -> None:
    m = Monitor(program("", "find any A A;"), limits=Limits(nodes_max=2))
    assert given_up(m, [a("n1", 1), a("n2", 1), a("n3", 1), a("n1", 2), a("n3", 1)]) == [
        "n3@1",
        "n3@1",
    ]
    assert m.summary["patterns"]["P0"]["matches"] == 3, "of the events of n1 and n2"
    assert m.summary["events"] == {
        "read": 5, "accepted": 3, "duplicates": 0, "rejected": 0, "late": 0, "held_back": 0,
        "overflow": 2,
    }  # fmt: skip


def test_nodes_that_only_clocks_name_count_where_clocks_are_read() -> None:
    events = [a("n1", 1, n2=1), a("n1", 2, n2=1, n3=1), a("n2", 1), a("n1", 2, n2=1)]
    causal = Monitor(program("order CausalOrder;", "find any A A;"), limits=Limits(nodes_max=2))
    assert given_up(causal, events) == ["n1@2"]
    assert causal.summary["events"]["accepted"] == 3
    arrival = Monitor(program("", "check A*;"), limits=Limits(nodes_max=2))
    assert given_up(arrival, [*events, a("n3", 1)]) == ["n3@1"]


def test_control_event_about_a_node_beyond_the_limit_is_not_applied() -> None:
    m = Monitor(program("order CausalOrder(total);", "check A*;"), limits=Limits(nodes_max=2))
    stream = [
        Control("join", node="n1"),
        a("n2", 1),
        Control("leave", node="n3"),
        Control("view", members=("n2", "n4")),
    ]
    assert given_up(m, stream) == ["ketal.leave of n3", "ketal.view of n2"]
    assert [str(event.dot) for event, _ in m.held_back()] == ["n2@1"], "n1 is awaited"
    assert m.summary["events"]["read"] == 1


def test_control_event_that_is_given_up_counts_for_the_patterns_that_read_clocks() -> None:
    both = ketal.compile(
        'pattern Ordered { order CausalOrder; event A = type == "a"; check A*; }\n'
        'pattern Arriving { order arrival; event A = type == "a"; check A*; }'
    )
    m = Driven(both, limits=Limits(nodes_max=2))
    m.feed(Control("view", members=("n1", "n2")))
    members = tuple(f"n{number}" for number in range(1_000))
    (overflow,) = m.feed(Control("view", members=members))
    assert isinstance(overflow, Overflow)
    assert overflow.given_up.startswith("ketal.view of n0, n1, n2, ")
    assert len(overflow.given_up) < 150, "some members of many"
    m = Driven.restored(both, m.snapshot(), limits=Limits(nodes_max=2))
    patterns = m.summary["patterns"]
    assert [patterns[name].get("overflows", 0) for name in ("Ordered", "Arriving")] == [1, 0]
    # Control events are no records.
    assert m.summary["events"]["read"] == m.summary["events"]["overflow"] == 0


def test_restarts_do_not_take_the_room_of_known_nodes() -> None:
    limits = Limits(nodes_max=2)
    m = Monitor(program("order CausalOrder;", "check A*;"), limits=limits)
    numbered = [
        Event("n1", "a", {"n1": 1}, data={"incarnation": 3}),
        Event("n2", "a", {"n1": 1, "n2": 1}),
        Event("n2", "a", {"n1": 1, "n2": 2}),
        Event("n1", "a", {"n1": 2}, data={"incarnation": 3}),
        Event("n3", "a", {"n3": 1}),
    ]
    assert given_up(m, numbered) == ["n3@1"]


@pytest.mark.parametrize("order", ["arrival", "eager"])
def test_new_incarnation_of_a_known_node_takes_room(order: str) -> None:
    m = Monitor(program(ORDERS[order], "check A*;"), limits=Limits(nodes_max=2))
    restarted = Event("n1", "a", {"n1": 1}, data={"try": 2})
    assert given_up(m, [a("n1", 1), a("n2", 1), restarted, a("n2", 2)]) == ["n1#2@1"]


@pytest.mark.parametrize("begun", [False, True], ids=["no membership", "membership"])
def test_restored_monitor_has_the_same_room(begun: bool) -> None:
    causal, limits = program("order CausalOrder;", "check A*;"), Limits(nodes_max=4)
    m = Monitor(causal, limits=limits)
    m.feed_many([a("n1", 1, n2=1), *([Control("leave", node="n3")] if begun else []), a("n4", 1)])
    for monitor in (m, Monitor.restore(causal, m.snapshot(), limits=limits)):
        events = [a("n1", 2, n2=1), a("n5", 1), a("n6", 1), a("n2", 1), a("n7", 1)]
        beyond = ["n5@1", "n6@1", "n7@1"] if begun else ["n6@1", "n7@1"]
        assert given_up(monitor, events) == beyond


def test_given_up_event_is_taken_after_the_limit_was_raised() -> None:
    causal = program("order CausalOrder;", "check A*;")
    m = Monitor(causal, limits=Limits(nodes_max=1))
    assert given_up(m, [a("n1", 1), a("n2", 1)]) == ["n2@1"]
    raised = Monitor.restore(causal, m.snapshot(), limits=Limits(nodes_max=2))
    assert given_up(raised, [a("n2", 1), a("n3", 1)]) == ["n3@1"]
    lowered = Monitor.restore(causal, raised.snapshot(), limits=Limits(nodes_max=1))
    assert given_up(lowered, [a("n2", 2, n1=1), a("n3", 1)]) == ["n3@1"], "known nodes stay"


def test_clocks_that_only_a_retiring_pattern_reads_are_bounded() -> None:
    limits, new = Limits(nodes_max=2), program("", "check A*;")
    m = Driven(old := program("order CausalOrder;", "find next A A; within 1 s;"), limits=limits)
    m.feed(Event("n1", "a", {"n1": 1}, time=0))
    m = Driven.restored(new, m.snapshot(), changed=True, retiring=old, limits=limits)
    assert given_up(m, [a("n1", 2, n2=1), a("n1", 3, n2=1, n3=1)]) == ["n1@3"]


def test_finite_log_in_memory_is_bounded_by_events_max_alone() -> None:
    causal = program("order CausalOrder;", "check A*;")
    log = [a("n1", 1, n2=1), a("n3", 1, n4=1)]
    outcome = ketal.run(causal, log, limits=Limits(nodes_max=1, events_max=2))
    assert list(outcome) == []
    assert outcome.summary["events"]["accepted"] == 2
