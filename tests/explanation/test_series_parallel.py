"""The parts of an execution are series, parallel or prime by definition."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given

from ketal.errors import EventError
from ketal.explanation.cuts.series_parallel import EventOrder, OrderPart
from ketal.model.events.causal_graph import CausalGraph
from ketal.model.events.event import Event
from ketal.model.events.happened_before import concurrent, happened_before
from tests.cases import e
from tests.explanation.thinned import thinned
from tests.sampling import chances, examples


def events_of(order: EventOrder, part: OrderPart) -> list[Event]:
    return [
        event
        for line, (start, stop) in part.pieces.items()
        for event in order.lines[line][start:stop]
    ]


def connected(events: list[Event], linked: set[tuple[Event, Event]]) -> bool:
    """Return whether every event can be reached from the first, by links in either direction."""
    reached = {events[0]}
    while True:
        further = {
            e for e in events if any((e, r) in linked or (r, e) in linked for r in reached)
        } - reached
        if not further:
            return len(reached) == len(events)
        reached |= further


def shape(order: EventOrder, part: OrderPart) -> object:
    """Return the kinds of a part and of its parts; for a prime part, its size."""
    inner = [shape(order, one) for one in part.parts]
    return {"event": "event", "prime": part.size}.get(part.kind) or (part.kind, inner)


def whole(events: list[Event]) -> object:
    order = EventOrder(CausalGraph(events))
    return shape(order, order.decompose()[0])


def test_nested_parts_are_decomposed() -> None:
    # a starts b and c, which run in parallel, and goes on when both are done.
    fork = [e("a@1", "x"), e("b@1", "x", "a:1"), e("c@1", "x", "a:1"), e("a@2", "x", "b:1 c:1")]
    assert whole(fork) == ("series", ["event", ("parallel", ["event", "event"]), "event"])
    # Two nodes, of which the second learns of the first in the middle.
    letter_n = [e("a@1", "x"), e("a@2", "x"), e("b@1", "x"), e("b@2", "x", "a:1")]
    assert whole(letter_n) == 4
    beside = [*letter_n, e("c@1", "x"), e("c@2", "x")]
    assert whole(beside) == ("parallel", [4, ("series", ["event", "event"])])


@examples(100, 2_000)
@given(chances())
def test_each_part_satisfies_the_definition_of_its_kind(rng: random.Random) -> None:
    events = thinned(rng, events_min=1, events_max=14)
    if not events:
        return
    order = EventOrder(CausalGraph(events))
    for part in order.decompose():
        own = events_of(order, part)
        ordered = {(a, b) for a in own for b in own if happened_before(a, b)}
        apart = {(a, b) for a in own for b in own if concurrent(a, b)}
        assert (part.kind == "event") == (len(own) == 1)
        if part.parts:
            parts = [events_of(order, one) for one in part.parts]
            assert sorted(map(str, itertools.chain(*parts))) == sorted(map(str, own))
            for one, two in itertools.combinations(parts, 2):
                between = set(itertools.product(one, two))
                assert between <= (ordered if part.kind == "series" else apart)
        if len(own) > 1:
            assert connected(own, ordered) == (part.kind != "parallel")
            assert connected(own, apart) == (part.kind != "series")


def test_impossible_clocks_are_refused() -> None:
    # The clock of the event is lower than that of an event before it.
    backwards = [e("a@1", "x", "c:9"), e("b@1", "x", "a:1")]
    with pytest.raises(EventError, match=r"b@1 is after a@1, .*`ketal audit`"):
        EventOrder(CausalGraph(backwards))
    falling = [e("a@1", "x", "c:9"), e("a@2", "x")]
    with pytest.raises(EventError, match="a@2 is after a@1"):
        EventOrder(CausalGraph(falling))
