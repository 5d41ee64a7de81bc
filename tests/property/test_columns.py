"""What is judged of columns is judged as events one by one (`ketal.columns`)."""

from __future__ import annotations

from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ketal
from ketal import Event, Limits, Monitor
from ketal import columns as columns_module
from ketal import steps as steps_module
from ketal.columns import SPARSE, Columns, coded, coded_keys
from ketal.counters import bits_of

EVENTS = 'event Open = type == "o"; event Work = type == "w"; event Close = type == "c";'
GUARDED = EVENTS.replace('"w"', '"w" && x >= 0 && node != "B"')
PATTERNS = {
    "skip": "partition by k; %s check Open Work* Close; on violation skip;",
    "resume": "partition by k; %s check Open Work* Close; on violation resume;",
    "halt": "partition by k; %s check Open Work* Close; on violation halt;",
    "repeated": "partition by k; %s check (Open Work* Close)+; on violation resume;",
    "register": "partition by k; %s S = Close && x == Open.x; check (Open S)+; on violation skip;",
    "anew": "partition by k; %s S = Close && x == Open.x; check Open S; on violation resume;",
}
TIGHT = Limits(dots_max=4, counters_max=70, scopes_max=3, configurations_max=2)

PLAIN_KEYS = [1, 2, 3, "1", "a"]
ANY_KEYS = [*PLAIN_KEYS, True, 1.0, 1.5, None, [1], {}, 2**70]


def steps(keys: list[Any]) -> Any:
    """Return a strategy of the steps of a stream."""
    return st.tuples(
        st.sampled_from("AAAB"),  # node
        st.sampled_from([1, 1, 1, 1, 2, 3, 700, 9_000]),  # how far it is after the last one
        st.sampled_from("owwcq"),
        st.sampled_from(keys),
        st.integers(-1, 1),
    )


def stream_of(taken: list[Any], again: list[int], other: list[int]) -> list[Event]:
    """Return events of nodes with holes; those at some places come again, some of them changed."""
    last = {"A": 0, "B": 0}
    out = []
    for node, step, kind, key, x in taken:
        last[node] += step
        out.append(Event(node, kind, {node: last[node], "z": 1}, data={"k": key, "x": x}))
    for number, place in enumerate(again):
        if out:
            event = out[place % len(out)]
            if place in other:
                event = Event(event.node, "w", event.clock, data={"k": number, "x": 1})
            out.insert((place * 7 + number) % (len(out) + 1), event)
    return out


def fed(monitor: Monitor, events: list[Event], size: int) -> list[Any]:
    """Feed events as columns, so many at once, and what is left of a part one by one."""
    out: list[tuple[int, list[Any]]] = []
    assert monitor.reader is not None
    for first in range(0, len(events), size):
        some = events[first : first + size]
        reader = monitor.reader
        columns = reader.columns(
            coded([event.node for event in some]),
            [event.counter for event in some],
            coded([event.type for event in some]),
            coded_keys([event.data.get(reader.key) for event in some]),
            {name: [event.data.get(name) for event in some] for name in reader.guarded},
            [msgspec.json.encode(event) for event in some],
        )
        count, said = monitor.feed_columns(columns)
        out += [(first + row, verdicts) for row, verdicts in said]
        for row, event in enumerate(some[count:], first + count):
            if verdicts := monitor.feed(event):
                out.append((row, verdicts))
    return [(number, [verdict.to_dict() for verdict in said]) for number, said in out]


def one_by_one(monitor: Monitor, events: list[Event]) -> list[Any]:
    said = ((number, monitor.feed(event)) for number, event in enumerate(events))
    return [(number, [v.to_dict() for v in verdicts]) for number, verdicts in said if verdicts]


@pytest.mark.parametrize("limits", [None, TIGHT], ids=["roomy", "tight"])
@pytest.mark.parametrize("declared", [EVENTS, GUARDED], ids=["types", "guards"])
@pytest.mark.parametrize("body", PATTERNS.values(), ids=PATTERNS)
@settings(max_examples=40)
@given(
    taken=st.one_of(
        st.lists(steps(PLAIN_KEYS), max_size=150), st.lists(steps(ANY_KEYS), max_size=150)
    ),
    again=st.lists(st.integers(0, 149), max_size=4),
    other=st.lists(st.integers(0, 149), max_size=2),
    size=st.sampled_from([1, 3, 70, 100]),
    cut=st.integers(0, 150),
    restored=st.booleans(),
    listing=st.booleans(),
    lanes_min=st.sampled_from([1, steps_module.LANES_MIN]),
)
def test_columns_as_one_by_one(
    body: str,
    declared: str,
    limits: Limits | None,
    taken: list[Any],
    again: list[int],
    other: list[int],
    size: int,
    cut: int,
    restored: bool,
    listing: bool,
    lanes_min: int,
) -> None:
    with mock.patch.object(steps_module, "LANES_MIN", lanes_min):
        compare(
            body, declared, limits, stream_of(taken, again, other), size, cut, restored, listing
        )


def compare(
    body: str,
    declared: str,
    limits: Limits | None,
    events: list[Event],
    size: int,
    cut: int,
    restored: bool,
    listing: bool,
) -> None:
    """Offer a stream as columns to one monitor and one by one to another."""
    program = ketal.compile("pattern P { " + body.replace("%s", declared) + " }")
    columns = Monitor(program, limits=limits, listing=listing)
    single = Monitor(program, limits=limits, listing=listing)
    held: dict[bytes, bytes] = {}
    for some in (events[:cut], events[cut:]):
        assert fed(columns, some, size) == one_by_one(single, some)
        assert columns.summary == single.summary
        assert columns.live_runs == single.live_runs
        changes, others = columns.changes(), single.changes()
        # A chunk of counters that came and went before anybody asked may be named as gone; of
        # clocks, once a monitor was restored, those that come begin a chunk of their own.
        anew = restored and held
        names = {n for n in (*changes, *others) if not (anew and n.startswith(b"clocks/"))}
        assert {n: changes.get(n) for n in names} == {n: others.get(n) for n in names}
        held |= {name: record for name, record in changes.items() if record is not None}
        for name, record in changes.items():
            if record is None:
                held.pop(name, None)
        if restored:
            columns = Monitor.from_records(program, held, limits=limits, listing=listing)
    assert columns.snapshot() == single.snapshot()
    assert [v.to_dict() for v in columns.close()] == [v.to_dict() for v in single.close()]


@given(
    events=st.lists(
        st.tuples(
            st.sampled_from("ABC"),
            st.integers(1, 9) | st.integers(1, 9_000) | st.sampled_from([2**40, 2**63 - 1]),
        ),
        min_size=1,
    ),
    stretch=st.integers(0, 40),
)
def test_the_lines_of_columns_are_their_counters(
    events: list[tuple[str, int]], stretch: int
) -> None:
    import numpy

    events += [("B", n) for n in range(5_000, 5_000 + stretch)]
    nodes = coded([node for node, _ in events])
    counters = numpy.array([counter for _, counter in events])
    nothing = coded_keys([None] * len(events))
    columns = Columns(nodes._replace(values=[*nodes.values, "D"]), counters, nothing, nothing, [])
    for sparse in (0, SPARSE, 2**70):
        if sparse == 2**70 and max(counters) > 10_000:
            continue
        with mock.patch.object(columns_module, "SPARSE", sparse):
            lines = {line.node: line for line in columns.lines()}
        assert lines.keys() == {node for node, _ in events}
        for node, line in lines.items():
            own = [counter for name, counter in events if name == node]
            assert (line.least, line.most, line.number) == (min(own), max(own), len(own))
            if line.bits is None:
                assert sorted(own) == list(range(line.least, line.most + 1))
            else:
                assert line.bits == bits_of(own)
