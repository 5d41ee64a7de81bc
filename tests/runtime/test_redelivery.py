"""An event that a full queue refused is not lost: when it is redelivered, it is judged."""

from __future__ import annotations

from typing import Any

import pytest

import ketal
from ketal import Event, Limits, Monitor
from tests.cases import e, p

ROOM = Limits(held_back_max=1)
SEEN = p("find next A", order="CausalOrder")
WITH_ARRIVAL = SEEN + p("find next A").replace("pattern P", "pattern Q")
TWO_QUEUES = SEEN + p("find next A", order="CausalOrder(idle = 1 h)").replace("P {", "Q {")
EVENTS = {n: e(f"n@{n}", "a") for n in range(1, 7)}


def counts(monitor: Monitor) -> dict[str, int]:
    events = dict(monitor.summary["events"])
    read: int = events.pop("read")
    assert read == sum(events.values())
    return {name: count for name, count in events.items() if count}


def outcomes(verdicts: list[Any]) -> list[str]:
    """Return the matches, as `P n@1`, and the names of the limits that were reached."""
    return [
        f"{v.pattern} {v.events[0]}" if isinstance(v, ketal.Match) else v.limit for v in verdicts
    ]


def feed(monitor: Monitor, *counters: int) -> list[str]:
    return outcomes([v for n in counters for v in monitor.feed(EVENTS[n])])


def full_monitor(text: str = SEEN, **more: Any) -> Monitor:
    """Return a monitor with a full queue that holds n@3 back and has refused n@5."""
    monitor = Monitor(ketal.compile(text), limits=ROOM, **more)
    assert "held_back_max" in feed(monitor, 3, 5)
    assert counts(monitor) == {"held_back": 1, "overflow": 1}
    return monitor


@pytest.mark.parametrize("restoring", [False, True], ids=["plain", "snapshot-restore"])
def test_a_refused_event_is_taken_once_there_is_room(restoring: bool) -> None:
    monitor = full_monitor()
    if restoring:
        monitor = Monitor.restore(monitor.program, monitor.snapshot(), limits=ROOM)
    assert feed(monitor, 1, 2) == ["P n@1", "P n@2", "P n@3"]
    assert feed(monitor, 5) == []
    assert [str(event.dot) for event, _ in monitor.held_back()] == ["n@5"]
    assert feed(monitor, 4) == ["P n@4", "P n@5"]
    assert counts(monitor) == {"accepted": 5, "overflow": 1}
    assert feed(monitor, 5) == []
    assert counts(monitor) == {"accepted": 5, "duplicates": 1, "overflow": 1}


def test_a_refused_event_is_refused_again_while_there_is_no_room() -> None:
    monitor = full_monitor()
    for times in (2, 3):
        assert feed(monitor, 5) == ["held_back_max"]
        assert counts(monitor) == {"held_back": 1, "overflow": times}


def test_an_event_that_was_taken_is_still_a_duplicate() -> None:
    monitor = full_monitor()
    assert feed(monitor, 3) == []
    assert counts(monitor) == {"held_back": 1, "overflow": 1, "duplicates": 1}


def test_a_refused_dot_with_other_content_is_still_a_contradiction() -> None:
    monitor = full_monitor()
    (rejected,) = monitor.feed(e("n@5", "b"))
    assert "other content" in rejected.to_dict()["reason"]
    feed(monitor, 1, 2, 5, 4)
    assert counts(monitor) == {"accepted": 5, "overflow": 1, "rejected": 1}


def test_a_pattern_without_a_queue_is_not_offered_a_redelivered_event_twice() -> None:
    monitor = Monitor(ketal.compile(WITH_ARRIVAL), limits=ROOM)
    assert feed(monitor, 3, 5) == ["Q n@3", "Q n@5", "held_back_max"]
    assert feed(monitor, 1, 2) == ["Q n@1", "P n@1", "Q n@2", "P n@2", "P n@3"]
    assert feed(monitor, 5, 4) == ["Q n@4", "P n@4", "P n@5"]
    assert counts(monitor) == {"accepted": 5, "overflow": 1}


def test_each_queue_that_refused_an_event_takes_it_and_one_verdict_reports_it() -> None:
    monitor = full_monitor(TWO_QUEUES)
    assert feed(monitor, 5) == ["held_back_max"]
    assert counts(monitor) == {"held_back": 1, "overflow": 2}
    feed(monitor, 1, 2)
    assert feed(monitor, 5) == []
    assert sorted(feed(monitor, 4)) == ["P n@4", "P n@5", "Q n@4", "Q n@5"]
    assert counts(monitor) == {"accepted": 5, "overflow": 2}


@pytest.mark.parametrize("order", ["CausalOrder(total)", "CausalOrder(frontier = 10 s)"])
def test_redelivery_under_the_other_policies(order: str) -> None:
    monitor = Monitor(ketal.compile(p("find next A", order=order)), limits=ROOM)
    events = [e(f"{node}@1", "a", time=n) for n, node in enumerate("abc")]
    # Each event waits for the others, or for time.
    waits = [e("a@2", "a", "b:1", time=0), *events[2:]]
    said = monitor.feed_many(waits)
    assert outcomes(said) == ["held_back_max"]
    assert outcomes(monitor.feed(waits[1])) == ["held_back_max"]
    assert counts(monitor) == {"held_back": 1, "overflow": 2}


def test_only_the_newest_refused_dots_are_remembered() -> None:
    monitor = Monitor(ketal.compile(SEEN), limits=Limits(held_back_max=1, dots_max=2))
    assert feed(monitor, 3, 4, 5, 6) == ["held_back_max"] * 3
    assert feed(monitor, 1, 2) == ["P n@1", "P n@2", "P n@3"]
    assert feed(monitor, 4) == []
    assert counts(monitor) == {"accepted": 3, "overflow": 3, "duplicates": 1}
    assert feed(monitor, 5) == []
    assert [str(event.dot) for event, _ in monitor.held_back()] == ["n@5"]


def test_redelivered_log_is_judged_completely_with_a_small_queue() -> None:
    """An at-least-once transport redelivers until every event is taken."""
    program = ketal.compile(SEEN)
    chain = [e(f"{'ab'[n % 2]}@{n // 2 + 1}", "a", _other(n)) for n in range(40)]
    shuffled: list[Event] = chain[20:] + chain[:20]
    monitor = Monitor(program, limits=Limits(held_back_max=3))
    matched: list[str] = []
    for _ in range(4):
        matched += [
            str(v.events[0]) for v in monitor.feed_many(shuffled) if isinstance(v, ketal.Match)
        ]
    assert matched == [str(event.dot) for event in chain]
    assert monitor.held_back() == []
    counts(monitor)


def _other(n: int) -> str:
    """Return the clock entry of the other node: each event knows all earlier events."""
    known = (n + 1) // 2
    return f"{'ba'[n % 2]}:{known}" if known else ""
