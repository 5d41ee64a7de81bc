"""The events of a log as a run reads them: named by incarnation, clocks restored, with places."""

from __future__ import annotations

import random

import pytest
from hypothesis import given

from ketal.errors import SettingError
from ketal.logs import Log
from ketal.model.events.control import Control
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.limits import DEFAULT, Limits
from ketal.runtime.admission.execution_events import executions_of, missing_dots
from tests.cases import e
from tests.explanation.thinned import thinned
from tests.sampling import chances, examples


def clocks(*items: Event | Control) -> dict[str, dict[str, int]]:
    """Return the clock of each event by its dot, after the log was read."""
    part = executions_of(Log.of(items), DEFAULT)[""]
    return {str(event.dot): event.clock for event in part.events()}


def test_clock_entry_dropped_after_a_leave_is_restored() -> None:
    before = (e("a@1", "x"), e("b@1", "x", "a:1"))
    after = e("c@1", "x", "b:1")
    assert clocks(*before, after)["c@1"] == {"b": 1, "c": 1}
    left = Control("leave", node="a")
    assert clocks(*before, left, after)["c@1"] == {"a": 1, "b": 1, "c": 1}
    ended = Control("end")
    assert clocks(*before, after, ended, left)["c@1"] == {"b": 1, "c": 1}, "as in a run"


def test_restarted_node_gets_an_incarnation_name() -> None:
    part = executions_of([e("a@1", "x"), e("a@1", "y", "b:1")], DEFAULT)[""]
    assert [str(event.dot) for event in part.events()] == ["a@1", "a#2@1"]
    assert (len(part), part.duplicates, part.rejected) == (2, 0, 0)


def test_event_keeps_its_place_in_the_log() -> None:
    log = Log(lambda: iter([("", e("a@1", "x"), "run.log", 7), ("", e("a@2", "x"), "", 0)]))
    part = executions_of(log, DEFAULT)[""]
    assert [part.place(Dot("a", count)) for count in (1, 2)] == ["run.log:7", ""]


def test_more_counters_than_the_limit_are_an_error_that_names_it() -> None:
    far = [e(f"a@{2 * count}", "x") for count in range(40, 0, -1)]
    with pytest.raises(SettingError, match=r"\(limit counters_max\)"):
        executions_of(far, Limits(counters_max=8))


def test_an_item_that_is_no_event_is_an_error_of_the_caller() -> None:
    with pytest.raises(TypeError, match="an item of a log must be"):
        executions_of([{"node": "a"}], DEFAULT)  # type: ignore[list-item]
    with pytest.raises(TypeError, match="log"):
        executions_of("run.jsonl", DEFAULT)  # type: ignore[arg-type]


@examples(35, 1_000)
@given(chances())
def test_missing_dots_are_those_in_some_clock_without_an_event(rng: random.Random) -> None:
    events = thinned(rng, events_max=14)
    known = {
        Dot(node, counter)
        for event in events
        for node, upto in event.clock.items()
        for counter in range(1, upto + 1)
    }
    assert missing_dots(events) == len(known - {event.dot for event in events})
