"""Streams that are not executions: cyclic clocks, invalid numbers, as faulty peers may send them.

None of them may stop a Monitor, and a snapshot does not change its verdicts.
Without the bounds on work that these tests check, some of them would never end.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

import ketal
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.programs.program import Program
from ketal.runtime.monitor import Monitor
from tests.cases import e
from tests.sampling import drawn

Record = Event | Control


def program(order: str, body: str) -> Program:
    return ketal.compile(
        f'pattern P {{ order {order}; event A = type == "a"; event B = type == "b";'
        f" X = A; Y = Causal(B, X); {body}; }}"
    )


def held_back(monitor: Monitor) -> list[tuple[str, str]]:
    return [(str(event.dot), str(dot)) for event, dot in monitor.held_back()]


LEFT = Control("leave", node="z")
CIRCLE = [e("n1@1", "a", "n2:1"), e("n2@1", "a", "n1:1")]


@pytest.mark.parametrize("before", [[], [LEFT]], ids=["whole", "shrunk"])
@pytest.mark.parametrize("order", ["CausalOrder", "CausalOrder(total)"])
def test_events_in_a_cycle_of_clocks_are_held_back(order: str, before: list[Record]) -> None:
    """They wait for each other; `total` once moved each behind the other without end."""
    monitor = Monitor(program(order, "find next X"))
    after = e("n3@1", "a", "n1:1")  # depends on the cycle without being a part of it
    assert monitor.feed_many([*before, *CIRCLE, after]) == []
    assert held_back(monitor) == [("n1@1", "None"), ("n2@1", "None"), ("n3@1", "None")]
    assert monitor.close() == []
    assert monitor.summary["events"]["held_back"] == 3


def test_the_past_of_a_circle_is_released_and_large_sums_cost_nothing() -> None:
    monitor = Monitor(program("CausalOrder(total)", "find next X"))
    far = 2**62
    records: list[Record] = [
        LEFT,
        Event(node="n1", type="a", clock={"n1": 2, "n2": 1}),
        Event(node="n2", type="a", clock={"n2": 1, "n1": 2, "n3": far}),
        e("n1@1", "a"),
    ]
    said = [*monitor.feed_many(records), *monitor.close()]
    assert [str(v) for v in said] == ["match P: X=n1@1"]
    assert [dot for dot, _ in held_back(monitor)] == ["n1@2", "n2@1"]


@pytest.mark.parametrize("before", [[], [LEFT]], ids=["whole", "shrunk"])
@pytest.mark.parametrize(
    "order", ["CausalOrder(overflow = lost)", "CausalOrder(total, overflow = lost)"]
)
def test_full_queue_releases_events_of_a_cycle(order: str, before: list[Record]) -> None:
    """There is no hole to declare lost, so events are released before their turn, each once."""
    monitor = Monitor(program(order, "find next X"), limits=Limits(held_back_max=1))
    verdicts = [str(v).split(":")[0] for v in monitor.feed_many([*before, *CIRCLE])]
    verdicts += [str(v).split(":")[0] for v in monitor.close()]
    assert verdicts.count("match P") == 2
    assert monitor.summary["patterns"]["P"]["matches"] == 2
    assert monitor.held_back() == []
    assert monitor.summary["events"]["accepted"] == 2


@pytest.mark.parametrize("bad", ["x", -1, 1.5, True, None, [1]])
@pytest.mark.parametrize("body", ["find any X Y", "find next X Y"])
def test_malformed_incarnation_number_leaves_a_restorable_state(body: str, bad: Any) -> None:
    made = program("CausalOrder", body)
    monitor = Monitor(made)
    (rejected,) = monitor.feed(e("d@1", "a", incarnation=bad))
    assert rejected.kind == "rejected"
    monitor = Monitor.restore(made, monitor.snapshot())
    (match,) = monitor.feed_many([e("n@1", "a"), e("m@1", "b", "n:1")])
    assert str(match) == "match P: X=n@1, Y=m@1"
    assert monitor.summary["events"]["rejected"] == 1


def test_a_late_event_may_move_an_event_whose_place_was_known() -> None:
    """b@1 was declared lost; when it arrives, it shows that a#2@3 is in the past of b@2."""
    made = program("CausalOrder(total)", "find next X")
    records: list[Record] = [
        e("b@2", "a", "a:4 c:2 d:2"),
        Control("view", members=("d",)),
        Control("view", members=("b", "a#2", "a")),
        e("d@1", "c", "b:2"),
        e("d@4", "a", "a:1 c:3"),
        e("b@1", "c", "a:2 c:4 a#2:3"),
        Control("end"),
    ]
    said = [str(v) for v in Monitor(made).feed_many(records) if v.kind == "match"]
    assert said == ["match P: X=d@4", "match P: X=b@2"], "sums of 10 and 13"
    assert said == [
        str(v) for v in run_restoring_after_each_record(made, records)[0] if v.kind == "match"
    ]


def test_a_view_includes_nodes_that_only_a_held_event_names() -> None:
    """Of two events that are processed together only the second names d."""
    made = program("CausalOrder", "find next X")
    view = Control("view", members=("c",))
    records: list[Record] = [e("c@1", "a", "b:1"), e("c@2", "a", "b:1 d:1"), view]
    monitor = Monitor(made)
    said = [str(v) for v in monitor.feed_many(records)]
    assert said == [str(v) for v in run_restoring_after_each_record(made, records)[0]]
    gaps = ["gap b@1 declared lost", "gap d@1 declared lost"]
    assert said == [*gaps, "match P: X=c@1", "match P: X=c@2"]
    assert held_back(monitor) == []


# --- whatever peers may send ---------------------------------------------------------------

ORDERS = (
    *("CausalOrder", "CausalOrder(gap = 5 s)", "CausalOrder(overflow = lost)"),
    *("CausalOrder(frontier = 4 s)", "CausalOrder(total)", "CausalOrder(total, gap = 5 s)"),
    *("CausalOrder(total, idle = 5 s)", "CausalOrder(total, overflow = lost)"),
    'CausalOrder(total, nodes = ["a", "b"])',
)
NODES = ("a", "b", "c", "d", "a#2")


def junk(rng: random.Random) -> list[Record]:
    """Return records that belong to no execution."""
    out: list[Record] = []
    for _ in range(rng.randint(3, 12)):
        kind = rng.random()
        if kind < 0.12:
            out.append(Control(rng.choice(["leave", "join"]), node=rng.choice("abc")))
        elif kind < 0.2:
            out.append(Control("view", members=tuple(rng.sample(NODES, rng.randint(1, 3)))))
        else:
            node = rng.choice("abcd")
            clock = {n: rng.randint(1, 4) for n in rng.sample(NODES, rng.randint(0, 4))}
            clock[node] = rng.choice((1, 2, 3, 4, 4, 10**15))
            data = {"incarnation": rng.choice([1, 2, 0, "2", "x"])} if rng.random() < 0.1 else {}
            time = float(rng.randint(0, 12)) if rng.random() < 0.7 else None
            out.append(Event(node, rng.choice("abc"), clock, time, data))
    return out


def run_restoring_after_each_record(
    made: Program, records: list[Record], limits: Limits | None = None
) -> tuple[list[Any], ketal.Summary, Any]:
    monitor = Monitor(made, limits=limits)
    verdicts = []
    for record in records:
        verdicts += monitor.feed(record)
        monitor = Monitor.restore(made, monitor.snapshot(), limits=limits)
    verdicts += monitor.close()
    return verdicts, monitor.summary, held_back(monitor)


def test_a_monitor_survives_any_records_and_a_snapshot_changes_nothing() -> None:
    busy = 0

    @drawn(50, 2_000)
    def holds(rng: random.Random) -> None:
        nonlocal busy
        made = program(
            rng.choice(ORDERS), rng.choice(["find next X", "find any X Y", "check (X | Y)*"])
        )
        records, limits = junk(rng), Limits(held_back_max=rng.choice((2, 4, 1000)))
        monitor = Monitor(made, limits=limits)
        said = [*monitor.feed_many(records), *monitor.close()]
        again, summary, waiting = run_restoring_after_each_record(made, records, limits)
        assert list(map(str, again)) == list(map(str, said))
        assert (summary, waiting) == (monitor.summary, held_back(monitor))
        events = dict(summary["events"])
        assert events.pop("read") == sum(events.values())
        busy += bool(said)

    assert busy > 30
