"""Events processed in batches give the verdicts of single events (`Execution.process`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ketal
from ketal import Event, EventError, Limits, Monitor
from ketal.model.attributes import DEPTH_MAX
from ketal.model.events.control import Control
from ketal.model.events.event import decode_events
from ketal.model.events.incarnation import INCARNATION
from tests.driven import Driven
from tests.sampling import examples

EVENTS = 'event Open = type == "o"; event Work = type == "w" && x >= 0; event Close = type == "c";'
HEAVY = "heavy_for_tests(x)"
PATTERNS = {
    "skip": "partition by k; %s check Open Work* Close; on violation skip;",
    "resume": "partition by k; %s check Open Work* Close; on violation resume;",
    "halt": "partition by k; %s check Open Work* Close; on violation halt;",
    "repeated": "partition by k; %s check (Open Work* Close)*; on violation resume;",
    "register": "partition by k; %s S = Close && x == Open.x; check (Open S)*; on violation skip;",
    "whole": "%s check (Open Work* Close)*; on violation skip;",
    "two keys": "partition by k, x; %s check (Open Work* Close)*; on violation skip;",
    "find": "partition by k; %s find next Open Close;",
    "clocks": "%s S = Causal(Close, Open); check (Open S)*; on violation resume;",
}
TIGHT = Limits(nodes_max=3, dots_max=4, counters_max=3, scopes_max=3, configurations_max=2)

keys: Any = st.sampled_from([1, 2, "1", "a", True, 1.0, 1.5, None, [1], {}])
events = st.builds(
    lambda node, counter, kind, k, x, named, others: Event(
        node,
        kind,
        {**dict.fromkeys(others, 1), node: counter},
        data={"k": k, "x": x, **({INCARNATION: 1} if named else {})},
    ),
    st.sampled_from("AB"),
    st.integers(1, 12),
    st.sampled_from("owcq"),
    keys,
    st.integers(-1, 1),
    st.integers(0, 40).map(lambda number: number == 40),
    st.sampled_from(["z", "z", "z", "zy", "AB", ""]),
)
controls = st.sampled_from([Control("leave", node="A"), Control("watermark", time=1.0)])
streams = st.lists(st.one_of(events, events, events, events, events, controls), max_size=40)


def compiled(body: str, declared: str = EVENTS) -> ketal.Program:
    return ketal.compile("pattern P { " + body.replace("%s", declared) + " }")


def monitors(body: str, limits: Limits | None, declared: str = EVENTS) -> tuple[Driven, Driven]:
    program = compiled(body, declared)
    return Driven(program, limits=limits), Driven(program, limits=limits)


def nonempty_verdicts(pairs: Any) -> list[tuple[int, list[Any]]]:
    return [(number, [v.to_dict() for v in verdicts]) for number, verdicts in pairs if verdicts]


def check_together(body: str, limits: Limits | None, stream: list[Any], cut: int) -> None:
    """Assert that processing a stream in two batches equals processing its events singly."""
    together, one_by_one = monitors(body, limits)
    for some in (stream[:cut], stream[cut:]):
        found = nonempty_verdicts(together.process(some))
        assert found == nonempty_verdicts(
            (n, one_by_one.feed(event)) for n, event in enumerate(some)
        )
        assert together.summary == one_by_one.summary
        assert together.state.changes() == one_by_one.state.changes()
    assert together.snapshot() == one_by_one.snapshot()


@pytest.mark.parametrize("limits", [None, TIGHT], ids=["roomy", "tight"])
@pytest.mark.parametrize("body", PATTERNS.values(), ids=PATTERNS)
@examples(10, 1_500)
@given(stream=streams, end=st.integers(0, 60), cut=st.integers(0, 40))
def test_joint_processing_equals_single_events(
    body: str, limits: Limits | None, stream: list[Any], end: int, cut: int
) -> None:
    if end < len(stream):
        stream = [*stream[:end], Control("end"), *stream[end:]]
    check_together(body, limits, stream, cut)


@examples(10, 1_500)
@given(
    steps=st.lists(st.tuples(st.sampled_from("AB"), st.sampled_from(["z", "z", "z", "zy", "y"]))),
    swapped=st.sets(st.integers(0, 40), max_size=4),
    cut=st.integers(0, 40),
)
def test_joint_processing_of_shrinking_clocks_equals_single_events(
    steps: list[tuple[str, str]], swapped: set[int], cut: int
) -> None:
    counters = dict.fromkeys("AB", 0)
    stream = []
    for node, others in steps:
        counters[node] += 1
        clock = {**dict.fromkeys(others, 1), node: counters[node]}
        stream.append(Event(node, "oc"[counters[node] % 2], clock, data={"x": 1}))
    for place in sorted(swapped):
        stream[place : place + 2] = reversed(stream[place : place + 2])
    check_together(PATTERNS["clocks"], None, stream, cut)


def test_many_events_are_processed_together() -> None:
    together, one_by_one = monitors(PATTERNS["repeated"], None)
    stream = [
        Event("A", "owc"[n % 3], {"A": n + 1}, data={"k": n % 7, "x": 1}) for n in range(5_000)
    ]
    stream[1_500:1_500] = stream[:20]  # duplicates
    found = nonempty_verdicts(together.process(stream))
    assert found == nonempty_verdicts((n, one_by_one.feed(event)) for n, event in enumerate(stream))
    assert found
    assert together.snapshot() == one_by_one.snapshot()


def test_handler_is_called_before_the_next_event_is_processed() -> None:
    program = compiled(PATTERNS["whole"])
    accepted: list[int] = []
    monitor = Monitor(
        program, on={"violation": lambda _: accepted.append(monitor.summary["events"]["accepted"])}
    )
    monitor.feed_many([Event("A", "w", {"A": n}, data={"x": 1}) for n in (1, 2, 3)])
    assert accepted == [1, 2, 3]


def test_registered_guard_is_called_once_per_event() -> None:
    calls = 0

    def heavy(x: Any) -> bool:
        nonlocal calls
        calls += 1
        raise ValueError(x)

    ketal.register_guard("heavy_for_tests", heavy, version="1")
    together, one_by_one = monitors(PATTERNS["skip"], None, EVENTS.replace("x >= 0", HEAVY))
    stream = [Event("A", "owwc"[n % 4], {"A": n + 1}, data={"k": n % 3, "x": 1}) for n in range(40)]
    found = nonempty_verdicts(together.process(stream))
    called, calls = calls, 0
    assert found == nonempty_verdicts((n, one_by_one.feed(event)) for n, event in enumerate(stream))
    assert called == calls > 0
    assert together.summary == one_by_one.summary


def test_live_stream_is_processed_event_by_event() -> None:
    monitor, _ = monitors(PATTERNS["whole"], None)
    accepted = []

    def alive() -> Iterator[Event]:
        for counter in (1, 2, 3):
            accepted.append(monitor.summary["events"]["accepted"])
            yield Event("A", "w", {"A": counter}, data={"x": 1})
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        monitor.feed_many(alive())
    assert accepted == [0, 1, 2]
    assert monitor.summary["events"]["accepted"] == 3


# --- decoding -----------------------------------------------------------------------------------

texts = st.fixed_dictionaries(
    {
        "node": st.sampled_from(["A", "A", "A", "A", "", "B", 1]),
        "type": st.sampled_from(["o", "o", "o", "ö", "", "ketal.", "ketal.end"]),
        "clock": st.sampled_from([{"A": 1}, {"A": 2}, {"A": 3, "B": 0}, {"A": 1, "": 2}, {}, 1]),
    },
    optional={
        "time": st.sampled_from(
            [0, -0.0, 5, 1.25, 1e-7, -1e-300, 123.4567894, "1970-01-01", None, 1e300, True]
        ),
        "data": st.sampled_from([{}, {"k": [1, {"x": None}]}, {"": ""}, None, 3]),
        "id": st.sampled_from(["i", None, 7]),
        "more": st.just(1),
    },
)


CLASSES: dict[str, Any] = {
    "node": str, "type": str, "clock": dict, "data": dict, "id": str | None,
    "time": float | int | str | None,
}  # fmt: skip


@given(st.lists(texts, max_size=3))
def test_jointly_decoded_events_equal_constructed_events(records: list[Any]) -> None:
    together = decode_events([json.dumps(record).encode() for record in records])
    for record, decoded in zip(records, together, strict=True):
        made = None
        if all(isinstance(value, CLASSES.get(name, ())) for name, value in record.items()):
            with suppress(EventError):
                made = Event(**record)
        # The sign of a zero is visible in its text.
        assert repr(decoded) == repr(made)
        assert decoded == made
        assert type(decoded) is type(made)


def test_plain_events_are_decoded_together() -> None:
    plain = b'{"node":"A","type":"o","clock":{"A":1},"time":3.0000001,"data":{"k":"x"},"id":"i"}'
    one, other = decode_events([plain, b'{"node":"A","type":"o","clock":{"A":2}}'])
    assert one == Event("A", "o", {"A": 1}, time=3.0, data={"k": "x"}, id="i")
    assert other == Event("A", "o", {"A": 2})
    assert decode_events([plain, b"{", plain]) == [one, None, one]
    for control in (b'"ketal."', rb'"\u006betal.end"'):
        assert decode_events([plain, plain.replace(b'"o"', control)]) == [one, None]
    (zero,) = decode_events([plain.replace(b"3.0000001", b"-0.0")])
    assert zero is not None
    assert str(zero.time) == "0.0"


@pytest.mark.parametrize("counter", [b"1", b'1,"B":0'], ids=["plain", "with a zero"])
def test_too_deeply_nested_data_are_refused_by_every_decoder(counter: bytes) -> None:
    def text(depth: int) -> bytes:
        x = b"[" * depth + b"]" * depth
        return b'{"node":"A","type":"o","clock":{"A":%s},"data":{"x":%s}}' % (counter, x)

    deepest, deeper = text(DEPTH_MAX), text(DEPTH_MAX + 1)
    assert decode_events([deepest]) == [Event(**json.loads(deepest))]
    assert decode_events([deeper]) == [None]
