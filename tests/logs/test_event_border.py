"""The border of Event: what Python code hands in is normalised or refused."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from ketal.errors import EventError
from ketal.event import Control, Event, content, event_decoder

REFUSED: list[tuple[Any, str]] = [
    ({"a": 1, 2: 3}, "must be a string, not 2"),
    ({"a": True}, "must be an integer, not True"),
    ({"a": 2, "b": True}, "must be an integer, not True"),
    ({"a": 2, "b": 1.0}, "must be an integer, not 1.0"),
    ({"a": 2, "b": float("nan")}, "must be an integer, not nan"),
    ({"a": 2, "b": False}, "must be an integer, not False"),
    ({"a": 2**63}, "too large"),
    ({"a": 10**5000}, "too large"),
    ({"a": 2, "b": -1}, "negative"),
    ({"a": -(10**5000)}, "negative"),
    ({"a": 0}, "is zero"),
    ({}, "is missing"),
    (None, "must map"),
    (7, "must map"),
]


@pytest.mark.parametrize(("clock", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_a_clock_that_is_none(clock: Any, reason: str) -> None:
    with pytest.raises(EventError, match=reason):
        Event("a", "T", clock)


def test_zero_entries_are_dropped() -> None:
    assert Event("a", "T", {"a": 1, "b": 0}).clock == {"a": 1}
    assert Event("a", "T", {"a": 2**63 - 1, "b": 2**63 - 1}).clock["b"] == 2**63 - 1


def test_a_decoded_event_is_an_event() -> None:
    read = event_decoder().decode(b'{"node":"a","type":"T","clock":{"a":1,"b":0},"time":2}')
    assert type(read) is Event
    assert read == Event("a", "T", {"a": 1}, time=2)
    assert pickle.loads(pickle.dumps(read)) == read == copy.deepcopy(read)
    assert repr(read) == repr(Event("a", "T", {"a": 1}, time=2))


def test_content_of_integers_beyond_64_bits() -> None:
    big = Event("a", "T", {"a": 1}, data={"x": 10**30})
    assert content(big) == content(Event("a", "T", {"a": 1}, data={"x": 10**30}))
    assert content(big) != content(Event("a", "T", {"a": 1}, data={"x": 10**30 + 1}))


def test_an_unknown_control_event_names_those_there_are() -> None:
    with pytest.raises(EventError, match=r"ketal\.join, ketal\.leave, ketal\.view"):
        Control("joined", node="a")
