"""What is kept of the last events, however they came (`ketal.contents`)."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketal import Event
from ketal.columns import Columns, coded, coded_keys
from ketal.contents import Contents, Written, write_rows
from ketal.event import digest, digests, type_and_time

NODES = ("A", "B")


def events_of(count: int, first: int) -> list[Event]:
    """Return the next events of two nodes, in turn."""
    places = range(first, first + count)
    return [Event(NODES[n % 2], "t", {NODES[n % 2]: n // 2 + 1, "z": n + 1}) for n in places]


def columns_of(events: list[Event]) -> Columns:
    import numpy

    texts = [msgspec.json.encode(event) for event in events]
    counters = numpy.array([event.counter for event in events])
    nothing = coded_keys([None] * len(events))
    return Columns(coded([event.node for event in events]), counters, nothing, nothing, texts)


@given(
    most=st.integers(1, 9),
    parts=st.lists(st.tuples(st.integers(1, 12), st.booleans(), st.sampled_from("-nsrca"))),
)
def test_the_last_are_kept(most: int, parts: list[tuple[int, bool, str]]) -> None:
    contents, said_upto = Contents(most), 0
    came: list[Event] = []
    last: deque[Event] = deque(maxlen=most)
    for count, together, then in parts:
        events = events_of(count, len(came))
        came += events
        last.extend(events)
        if together:
            contents.add_block(columns_of(events))
        else:
            contents.read()
            for event in events:
                contents.held[event.node, event.counter] = event
                contents.oldest.append((event.node, event.counter))
            contents.evict()
        kept = [(e.node, e.counter, digest(e), e.clock) for e in last]
        firsts = {e.node: digest(e) for e in came if e.counter == 1}
        if then == "n":
            assert contents.newest(said_upto) == kept[-(len(came) - said_upto) :]
            said_upto = len(came)
            assert contents.newest(said_upto) == []
        if then == "s":
            assert contents.state()["evicted"] == len(came) - len(kept)
        if then == "r":
            rows, state = contents.newest(0), contents.state()
            half = len(rows) // 2
            written = [write_rows(some, clocks=True) for some in (rows[:half], rows[half:]) if some]
            contents = Contents(most)
            contents.restore(state, [Written(one, clocks=True) for one in written])
        if then == "c":
            assert list(contents.clocks()) == [(node, n, clock) for node, n, _, clock in kept]
        if then == "a":
            assert contents.first_contents() == firsts
        assert contents.taken == len(came)
    assert list(contents.newest(0)) == [(e.node, e.counter, digest(e), e.clock) for e in last]


@pytest.mark.parametrize(
    "more",
    [
        {}, {"time": 1.5}, {"time": -0.0}, {"time": 7}, {"time": 0.1234567}, {"id": "i"},
        {"time": "2020-01-01T00:00:00+01:00"}, {"data": {"k": 2**70, "t": "é\u0000"}},
        {"clock": {"A": 3, "B": 0}}, {"data": {"x": [1, {"y": None}]}},
    ],
)  # fmt: skip
def test_what_is_read_of_a_text_is_what_its_event_says(more: dict[str, Any]) -> None:
    text = msgspec.json.encode({"node": "A", "type": "t", "clock": {"A": 3}, **more})
    event = Event(**msgspec.json.decode(text))
    assert type_and_time(text) == (event.type, event.time)
    assert list(digests([text])) == [("A", 3, digest(event), event.clock)]
