"""Two events of a log compared: their order, the evidence, the path, the common past."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given

import ketal
from ketal.errors import SettingError
from ketal.explanation.comparisons.comparison import EventComparison, compare_events
from ketal.logs import Record
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import happened_before
from ketal.model.limits import DEFAULT
from ketal.runtime.admission.execution_events import executions_of
from tests.cases import e
from tests.explanation.thinned import thinned
from tests.sampling import chances, examples

# a sends to b and goes on, b sends to c.
LOG = (
    e("a@1", "start"),
    e("a@2", "send", "a:2"),
    e("b@1", "receive", "a:2"),
    e("b@2", "send", "a:2"),
    e("c@1", "receive", "a:2 b:2"),
    e("a@3", "stop"),
)


def records(*parts: tuple[str, tuple[Event, ...]]) -> ketal.Log:
    held: list[Record] = [
        (name, event, "run.log", line)
        for name, events in parts
        for line, event in enumerate(events, 1)
    ]
    return ketal.Log(lambda: iter(held))


def compared(
    log: ketal.Log | list[Event],
    first: str,
    second: str,
    limits: ketal.Limits = DEFAULT,
    **options: str,
) -> EventComparison:
    executions = executions_of(log, DEFAULT)
    return compare_events(executions, Dot.parse(first), Dot.parse(second), limits, **options)


def test_ordered_events_are_shown_with_evidence_path_and_places() -> None:
    assert list(compared(records(("", LOG)), "a@1", "c@1").lines()) == [
        "c@1 is after a@1: c@1 knows a:2 >= 1",
        "  a@1 start (run.log:1)",
        "  c@1 receive (run.log:5)",
        "shortest path (4 links)",
        "  a@1 start (run.log:1)",
        "  then a@2 send (run.log:2)",
        "  message to b@1 receive (run.log:3)",
        "  then b@2 send (run.log:4)",
        "  message to c@1 receive (run.log:5)",
        "common past (last event of each node)",
        "  none: no event happened before both",
    ]
    back = compared(records(("", LOG)), "c@1", "b@1")
    assert (back.pair.order, next(back.lines())) == (
        "after",
        "b@1 is before c@1: c@1 knows b:2 >= 1",
    )
    assert [str(link.target.dot) for link in back.pair.path] == ["b@2", "c@1"]
    assert [str(one) for one in back.common_past] == ["a@2 send (run.log:2)"]


def test_concurrent_events_are_shown_with_both_clock_entries() -> None:
    comparison = compared(records(("", LOG)), "a@3", "b@2")
    assert list(comparison.lines()) == [
        "a@3 and b@2 are concurrent: b@2 knows a:2 < 3, a@3 knows b:0 < 2",
        "  a@3 stop (run.log:6)",
        "  b@2 send (run.log:4)",
        "last event of a known to b@2",
        "  a@2 send (run.log:2)",
        "last event of b known to a@3",
        "  none",
        "common past (last event of each node)",
        "  a@2 send (run.log:2)",
    ]
    assert comparison.to_dict() == {
        "first": {"event": "a@3", "type": "stop", "place": "run.log:6"},
        "second": {"event": "b@2", "type": "send", "place": "run.log:4"},
        "order": "concurrent",
        "because": "a@3 and b@2 are concurrent: b@2 knows a:2 < 3, a@3 knows b:0 < 2",
        "known": [{"event": "a@2", "type": "send", "place": "run.log:2"}, None],
        "common_past": [{"event": "a@2", "type": "send", "place": "run.log:2"}],
    }


def test_path_shows_the_number_of_missing_events() -> None:
    log = records(("", (LOG[0], LOG[4])))
    lines = list(compared(log, "a@1", "c@1").lines())
    assert "  message to c@1 receive (run.log:2) (1 event missing in between)" in lines


def test_events_of_different_incarnations_can_be_compared() -> None:
    log = records(("", (e("a@1", "x"), e("b@1", "y", "a:1"), e("a@1", "again", "b:1"))))
    comparison = compared(log, "a@1", "a#2@1")
    assert [str(link) for link in comparison.pair.path] == [
        "message to b@1 y (run.log:2)",
        "message to a#2@1 again (run.log:3)",
    ]


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ("a@1", "a@1", "cannot compare a@1 with itself"),
        ("a@9", "b@1", "no event a@9; nearest in the log: a@3$"),
        ("b@1", "c@7", "no event c@7; nearest in the log: c@1$"),
        ("b@1", "clock@7", "no node clock; its nodes are a, b, c$"),
        ("server@1", "b@1", "no node server; its nodes are"),
    ],
)
def test_missing_event_is_an_error_that_names_near_events(
    first: str, second: str, reason: str
) -> None:
    with pytest.raises(SettingError, match=reason):
        compared(list(LOG), first, second)


def test_missing_event_is_distinguished_from_an_unknown_one() -> None:
    gapped = [LOG[0], LOG[2]]
    with pytest.raises(SettingError, match=r"no event a@2, although b@1 is after it; near.*a@1$"):
        compared(gapped, "a@2", "b@1")
    long = [e(f"server{n}@1", "x") for n in range(7)]
    with pytest.raises(SettingError, match="no node sever3; did you mean server3"):
        compared(long, "sever3@1", "server1@1")
    with pytest.raises(SettingError, match=r"server4 and 2 more$"):
        compared(long, "x@1", "server1@1")


def test_error_for_a_missing_event_mentions_rejected_records() -> None:
    log = ketal.Log.of([*LOG, ketal.Rejected(place="run.log:9", reason="torn")])
    with pytest.raises(SettingError, match=r"nearest in the log: a@3; .*the first is run.log:9: t"):
        compared(log, "a@4", "b@1")


def test_events_are_compared_within_one_execution() -> None:
    log = records(("one", LOG[:3]), ("two", LOG[:5]))
    with pytest.raises(SettingError, match="several executions have both a@1 and b@1: one, two; "):
        compared(log, "a@1", "b@1")
    assert next(compared(log, "a@1", "b@1", execution="two").lines()) == "execution two"
    assert compared(log, "a@1", "c@1").to_dict()["execution"] == "two"
    with pytest.raises(SettingError, match="unknown execution 'three'; the log has one, two"):
        compared(log, "a@1", "b@1", execution="three")
    apart = records(("one", LOG[:1]), ("two", LOG[2:3]))
    with pytest.raises(SettingError, match="a@1 is in execution one, b@1 in execution two; "):
        compared(apart, "a@1", "b@1")


def test_path_longer_than_the_limit_is_replaced_by_the_limits_name() -> None:
    pair = compared(records(("", LOG)), "a@1", "c@1", ketal.Limits(path_links_max=3))
    assert list(pair.lines())[3:5] == [
        "the shortest path has more than 3 links (limit path_links_max)",
        "common past (last event of each node)",
    ]
    assert (pair.to_dict()["path"], pair.to_dict()["limit"]) == ([], "path_links_max")


@examples(50, 1_000)
@given(chances())
def test_order_is_happened_before_and_path_starts_at_the_earlier_event(
    rng: random.Random,
) -> None:
    events = thinned(rng, events_max=12)
    executions = executions_of(events, DEFAULT)
    for one, other in itertools.permutations(events, 2):
        pair = compare_events(executions, one.dot, other.dot, DEFAULT).pair
        before, after = happened_before(one, other), happened_before(other, one)
        assert (pair.order == "before", pair.order == "after") == (before, after)
        if before or after:
            ends = (one.dot, other.dot) if before else (other.dot, one.dot)
            assert (pair.path[0].source.dot, pair.path[-1].target.dot) == ends
