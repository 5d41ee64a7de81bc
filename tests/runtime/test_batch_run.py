"""Verdicts of a finite log that are shown, and clocks that no execution can have."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ketal
from ketal import Event, SettingError
from ketal.model.event import canonical_key, happened_before
from tests.property.executions import execution
from tests.sampling import chances

PAIR = """pattern Pair {
    order %s;
    event E = type == "e";
    A = E; B = E;
    find any A B;
}
"""
EVENTS = [Event("a", "e", {"a": n}) for n in (1, 2)]


def pair(order: str = "CausalOrder") -> ketal.Program:
    return ketal.compile(PAIR % order)


# --- Verdicts in a notebook: shown at any time, they stay what they are -----------------------


@pytest.mark.parametrize("order", ["arrival", "CausalOrder"])
@pytest.mark.parametrize("show", [repr, lambda v: v._repr_html_()], ids=["repr", "html"])
def test_to_show_verdicts_takes_none(order: str, show: Callable[[ketal.Verdicts], str]) -> None:
    events = iter(EVENTS)
    verdicts = ketal.run(pair(order), events)
    assert "nothing read yet: iterate for the verdicts" in show(verdicts)
    assert "0" not in show(verdicts)
    said = [next(verdicts)]
    assert "1 matches" in show(verdicts)
    assert "not all judged yet" in show(verdicts)
    said += verdicts
    assert [str(v) for v in said] == ["match Pair: A=a@1, B=a@2"]
    for _ in range(2):
        assert "2 read, 2 accepted" in show(verdicts)
        assert "yet" not in show(verdicts)
    assert verdicts.summary["patterns"]["Pair"]["matches"] == 1


def test_verdicts_in_a_notebook_are_a_table() -> None:
    verdicts = ketal.run(pair(), EVENTS)
    list(verdicts)
    assert verdicts._repr_html_().startswith("<table><tr><td>Pair</td><td>1 matches</td></tr>")


def test_without_pandas_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(SettingError, match="to_pandas needs pandas, which is not installed"):
        ketal.run(pair(), EVENTS).to_pandas()


# --- impossible clocks ------------------------------------------------------------------------


def impossible(events: list[Event]) -> int:
    verdicts = ketal.run(pair(), events)
    list(verdicts)
    count: int = verdicts.summary.get("impossible", 0)
    return count


def test_a_cycle_is_noticed() -> None:
    cycle = [Event("a", "e", {"a": 1, "b": 1}), Event("b", "e", {"a": 1, "b": 1})]
    assert impossible(cycle) == 1
    longer = [
        Event("a", "e", {"a": 1, "c": 1}),
        Event("b", "e", {"b": 1, "a": 1}),
        Event("c", "e", {"c": 1, "b": 1}),
    ]
    assert impossible(longer) == 1
    backwards = [Event("a", "e", {"a": 1, "b": 9}), Event("a", "e", {"a": 2, "b": 1})]
    assert impossible(backwards) == 1


def test_holes_are_not_impossible() -> None:
    assert impossible([Event("a", "e", {"a": 3}), Event("b", "e", {"a": 7, "b": 2})]) == 0
    verdicts = ketal.run(pair(), [Event("a", "e", {"a": 1}), Event("b", "e", {"a": 2, "b": 1})])
    list(verdicts)
    assert "impossible" not in verdicts.summary
    assert verdicts.summary["holes"] == 1


def test_an_event_that_is_not_judged_contradicts_nothing() -> None:
    timed = PAIR.replace("find any A B;", "find any A B; within 9 s;") % "CausalOrder"
    log = [
        Event("c", "e", {"c": 1}, time=50),
        ketal.Control("watermark", time=40),
        Event("a", "e", {"a": 1}, time=10),
        Event("b", "e", {"a": 1, "b": 1}, time=60),
    ]
    verdicts = ketal.run(ketal.compile(timed), log)
    list(verdicts)
    assert verdicts.summary["events"]["late"] == 1
    assert "impossible" not in verdicts.summary


@given(chances(), st.integers(0, 8))
def test_what_canonical_order_contradicts_is_noticed(rng: random.Random, wrong: int) -> None:
    """Some event knows of one that comes later in canonical order: exactly then it is counted."""
    events = execution(rng, types=("e",))
    for _ in range(wrong if events else 0):
        at = rng.randrange(len(events))
        e, other = events[at], rng.choice(events).node
        # An entry that is there and then is not would say that the other node left.
        stays = all(other in f.clock for f in events if f.node == e.node)
        if other != e.node and stays:
            clock = {**e.clock, other: rng.randint(1, 6)}
            events[at] = Event(e.node, e.type, clock, time=e.time, data=e.data)
    order = sorted(events, key=canonical_key)
    contradicted = any(
        happened_before(later, e) for at, e in enumerate(order) for later in order[at + 1 :]
    )
    assert (impossible(events) > 0) == contradicted
    if not wrong:
        assert not contradicted
    if contradicted:
        assert ketal.audit(events).faults
