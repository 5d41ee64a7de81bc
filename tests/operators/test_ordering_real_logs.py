"""Real logs through the live CausalOrder: shuffled, duplicated, with a hole, filtered.

In `make long` each log is delivered in 200 random arrival orders, and up to 2,000 of its events,
which is all events of most logs, are dropped one at a time.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

import ketal
from ketal.engine.losses import NAMED_MAX
from ketal.logs import read_log
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical, happened_before
from ketal.model.limits import DEFAULT
from ketal.operators.order.release_options import Policy
from ketal.runtime.admission.deduplication import Intake
from tests.logs.test_real_logs import SEVERAL, SHIVIZ, TRACE, WEB
from tests.operators.marked_queue import MarkedQueue, Released
from tests.sampling import sample

ORDERS = sample(2, 200)
DROPS = sample(4, 2_000)
SHARES = 1 + DROPS // 500
"""The number of tests into which the drops are split, for workers to share."""
S = 1_000_000
CAUSAL: tuple[Policy, ...] = ("eager", "total")
LOGS = [
    *(name for name, *_ in SHIVIZ),
    "VectorClocksTests",
    *(f"{name}/{part}" for name, pieces in SEVERAL for part in pieces),
]
"""Files with one execution, and each execution of files with several."""


@pytest.fixture(scope="module", params=LOGS)
def log(request: pytest.FixtureRequest, shared_data: Path) -> list[Event]:
    """Return the events of a log, in file order."""
    if request.param == "VectorClocksTests":
        path = shared_data / "tlaplus" / "VectorClocksTests.ndjson"
        fields = {"type": "event", "clock": "pkt.vc", "data": "pkt"}
        return list(read_log(path, fields=fields))
    name, _, part = request.param.partition("/")
    if part:
        whole = read_log(shared_data / "shiviz" / f"{name}.log", regex=WEB, delimiter=TRACE)
        return list(whole.executions[part])
    regex = next(regex for name, regex, *_ in SHIVIZ if name == request.param)
    return list(read_log(shared_data / "shiviz" / f"{request.param}.log", regex=regex))


@dataclass
class Delivery:
    """The output of a queue for one arrival order."""

    released: list[Released]
    gaps: list[Dot]
    late: list[Event]
    queue: MarkedQueue

    @property
    def order(self) -> list[Event]:
        return [r.event for r in self.released]


def delivered(queue: MarkedQueue, arrival: Iterable[Event]) -> Delivery:
    """Push the events that an intake finds new, and end the queue."""
    intake = Intake(DEFAULT)
    steps = [queue.push(x) for x in arrival if intake.admit((x,))]
    steps.append(queue.end())
    assert not any(step.refused for step in steps)
    return Delivery(
        [r for step in steps for r in step.released],
        [dot for step in steps for dot in step.gaps],
        [x for step in steps for x in step.late],
        queue,
    )


def is_linear_extension(order: list[Event]) -> bool:
    """Return whether no event comes after one that it happened before."""
    seen: dict[str, int] = {}
    for event in order:
        if seen.get(event.node, 0) >= event.counter:
            return False
        for node, counter in event.clock.items():
            seen[node] = max(counter, seen.get(node, 0))
    return True


def nodes(events: list[Event]) -> tuple[str, ...]:
    return tuple(sorted({x.node for x in events}))


def with_duplicates(rng: random.Random, events: list[Event]) -> list[Event]:
    twice = [*events, *(x for x in events if rng.random() < 0.2)]
    return rng.sample(twice, len(twice))


def test_all_events_are_released_in_any_arrival_order_and_total_is_canonical(
    log: list[Event],
) -> None:
    order = canonical(log)
    assert is_linear_extension(order)
    for seed in range(ORDERS):
        arrival = with_duplicates(random.Random(seed), log)
        eager = delivered(MarkedQueue(), arrival)
        assert is_linear_extension(eager.order)
        assert canonical(eager.order) == order
        assert len(eager.queue) == 0
        total = delivered(MarkedQueue(policy="total", nodes=nodes(log)), arrival)
        assert total.order == order
        frontier = delivered(MarkedQueue(policy="frontier", frontier_us=S), arrival)
        assert is_linear_extension(frontier.order)
        for delivery in (eager, total):
            assert not delivery.gaps
            assert not delivery.late
            assert not any(r.after for r in delivery.released)


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("policy", CAUSAL)
def test_exactly_the_causal_future_of_a_lost_event_is_held_back_or_marked(
    log: list[Event], policy: Policy, share: int
) -> None:
    rng = random.Random(1)
    order, names = canonical(log), nodes(log)
    for lost in rng.sample(log, min(len(log), DROPS))[share::SHARES]:
        arrival = [x for x in rng.sample(log, len(log)) if x is not lost]
        future = {x.dot for x in log if happened_before(lost, x)}
        rest = [x for x in order if x is not lost and x.dot not in future]
        without = delivered(MarkedQueue(policy=policy, nodes=names), arrival)
        assert canonical(without.order) == rest
        assert without.order == rest or policy == "eager"
        held = without.queue.held_back()
        assert {x.dot for x, _ in held} == future
        assert {dot for _, dot in held} <= {lost.dot}
        gap = delivered(MarkedQueue(policy=policy, nodes=names, gap_us=30 * S), arrival)
        assert len(gap.order) == len(log) - 1
        assert gap.gaps == [lost.dot] * bool(future)
        assert is_linear_extension(gap.order)
        for r in gap.released:
            assert r.after == ({lost.dot} if r.event.dot in future else frozenset())


def test_verdicts_outside_the_future_of_a_lost_event_are_certain(log: list[Event]) -> None:
    """Each event is a match in a Monitor; matches that are not after the gap are not marked."""
    rng = random.Random(2)
    made = ketal.compile(
        "pattern P { order CausalOrder(gap = 30 s); event E = true; find next E; }"
    )
    for lost in rng.sample(log, min(len(log), ORDERS)):
        monitor = ketal.Monitor(made)
        arrival = [x for x in with_duplicates(rng, log) if x is not lost]
        verdicts = [*monitor.feed_many(arrival), *monitor.close()]
        future = {x.dot for x in log if happened_before(lost, x)}
        matches = [v for v in verdicts if isinstance(v, ketal.Match)]
        assert {v.events[0] for v in matches} == {x.dot for x in log if x is not lost}
        for match in matches:
            after = match.events[0] in future
            assert match.certain is not after
            assert match.depends_on == (lost.dot,) * after
            assert match.to_dict().get("certain", True) is not after
        gaps = [v.dot for v in verdicts if isinstance(v, ketal.Gap)]
        assert gaps == [lost.dot] * bool(future)
        assert monitor.summary["events"]["accepted"] == len(log) - 1


def tenth(rng: random.Random, events: list[Event], skew_s: float) -> list[Event]:
    """Return a tenth of the events in canonical order, a second apart on skewed clocks."""
    skews = {node: rng.uniform(-skew_s, skew_s) for node in nodes(events)}
    return [
        Event(node=x.node, type=x.type, clock=x.clock, time=second + skews[x.node], data=x.data)
        for second, x in enumerate(canonical(events))
        if rng.random() < 0.1
    ]


def test_frontier_releases_all_events_of_a_filtered_log(log: list[Event]) -> None:
    for seed in range(ORDERS):
        rng = random.Random(seed)
        for skew_s in (0.0, 7.0, 3_600.0):
            kept = tenth(rng, log, skew_s)
            # A causal order of arrival, with a frontier of any length.
            near = delivered(MarkedQueue(policy="frontier", frontier_us=10 * S), kept)
            # Events are up to 20 s late, and the frontier covers the skew of the clocks.
            places = {id(x): i + rng.random() * 20 for i, x in enumerate(kept)}
            arrival = sorted(kept, key=lambda x: places[id(x)])
            wait_s = 20 * 30 + 2 * skew_s  # twenty places are seldom more than 600 s
            far = delivered(MarkedQueue(policy="frontier", frontier_us=round(wait_s * S)), arrival)
            for delivery in (near, far):
                assert canonical(delivery.order) == canonical(kept)
                assert is_linear_extension(delivery.order)
                assert delivery.late == []


class Due:
    """The events held by a frontier, by definition: an event is due at its past's largest time.

    Every due time is the time of a seen event, so held events are due between the watermark and
    the largest time seen, which is the watermark plus `frontier`.
    """

    def __init__(self, frontier_us: int) -> None:
        self.frontier_us = frontier_us
        self.now = -(2**63)
        self.arrived: list[Event] = []
        self.released: list[Event] = []
        self.due: dict[Dot, int] = {}

    def push(self, event: Event) -> None:
        assert event.time_us is not None
        self.now = max(self.now, event.time_us)
        if not any(happened_before(event, other) for other in self.released):
            self.arrived.append(event)
            self.due[event.dot] = event.time_us
            for other in self.arrived:
                if happened_before(event, other):
                    self.due[other.dot] = max(self.due[other.dot], event.time_us)
                elif happened_before(other, event):
                    self.due[event.dot] = max(self.due[event.dot], self.due[other.dot])
        held = self.held()
        self.released = [x for x in self.arrived if x.dot not in held]

    def held(self) -> set[Dot]:
        watermark = self.now - self.frontier_us
        return {dot for dot, due in self.due.items() if watermark <= due <= self.now}


@pytest.mark.parametrize("skew_s", [0.0, 7.0, 60.0, 3_600.0])
def test_frontier_holds_exactly_the_events_due_after_the_watermark(
    log: list[Event], skew_s: float
) -> None:
    second = {x.dot: place for place, x in enumerate(canonical(log))}
    for seed in range(ORDERS):
        rng = random.Random(seed)
        kept = tenth(rng, log, skew_s)[:300]
        places = {x.dot: place + rng.random() * 20 for place, x in enumerate(kept)}
        shuffled = sorted(kept, key=lambda x: places[x.dot])
        offs = [(x.time_us or 0) / S - second[x.dot] for x in kept]
        for arrival in (kept, shuffled):
            queue, due = MarkedQueue(policy="frontier", frontier_us=10 * S), Due(10 * S)
            for x in arrival:
                queue.push(x)
                due.push(x)
                assert {held.dot for held, _ in queue.held_back()} == due.held()
            if arrival is kept and kept:
                # In a causal order of arrival these are the events that arrived within `frontier`
                # plus the skew of the clocks, however long the log is.
                span = 10 + max(offs) - min(offs)
                seconds = [second[x.dot] for x in kept]
                near = (bisect_right(seconds, s + span + 1e-6) - i for i, s in enumerate(seconds))
                assert queue.high_water <= max(near)


def test_eager_reports_the_holes_of_a_filtered_log_and_does_not_wait_for_ever(
    log: list[Event],
) -> None:
    kept = tenth(random.Random(1), log, 0.0)
    waiting = delivered(MarkedQueue(), kept)
    assert all(dot is not None for _, dot in waiting.queue.held_back())
    assert len(waiting.queue) + len(waiting.order) == len(kept)
    gap = delivered(MarkedQueue(gap_us=5 * S), kept)
    assert canonical([*gap.order, *gap.late]) == kept
    assert is_linear_extension(gap.order)
    assert gap.queue.high_water <= 12
    lost = set(gap.gaps)
    for r in gap.released:
        past = {d for d in lost if d != r.event.dot and r.event.clock.get(d.node, 0) >= d.counter}
        assert r.after == set(sorted(past)[:NAMED_MAX])
