"""`ketal.stats` against brute force, and the numbers that limits leave out."""

from __future__ import annotations

import itertools
import math
import random
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ketal
from ketal.auditing.contents.contents_report import WIDTH, LogStats
from ketal.auditing.contents.log_contents import AttributeStats
from ketal.errors import columns
from ketal.model.events.happened_before import concurrent, happened_before
from tests.property.executions import execution
from tests.sampling import chances, examples, sample
from tests.test_real_logs import LOGS, read

KINDS = {"str": "string", "int": "number", "float": "number", "bool": "boolean"}
KINDS |= {"NoneType": "null", "list": "list", "dict": "object"}
NESTED: tuple[Any, ...] = ({"a": 1}, {"a": "1", "b": {"c": None}}, [1, 2], [1, {"a": 2}], {}, 7)


def attribute_values(event: ketal.Event) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each path of an event's data, with its value."""

    def within(data: dict[str, Any], path: tuple[str, ...]) -> Iterator[Any]:
        for name, value in data.items():
            yield (*path, name), value
            if isinstance(value, dict):
                yield from within(value, (*path, name))

    return within(event.data, ())


def attributes(events: list[ketal.Event]) -> dict[tuple[str, ...], Any]:
    """Return the expected counts of each path: events, kinds, values."""
    values: dict[tuple[str, ...], list[Any]] = {}
    for event in events:
        for path, value in attribute_values(event):
            values.setdefault(path, []).append(value)
    out = {}
    for path, found in values.items():
        kinds = Counter(KINDS[type(value).__name__] for value in found)
        distinct = {
            (KINDS[type(value).__name__], repr(float(value)) if type(value) is int else repr(value))
            for value in found
            if value is not None and not isinstance(value, dict)
        }
        out[path] = (len(found), len(events), dict(kinds), len(distinct))
    return out


def counted(found: tuple[AttributeStats, ...]) -> dict[tuple[str, ...], Any]:
    assert len({one.path for one in found}) == len(found)
    assert not any(one.more_values for one in found)
    return {one.path: (one.events, one.of, one.kinds, one.values) for one in found}


def received(events: list[ketal.Event]) -> list[tuple[ketal.Event, ketal.Event]]:
    """Return the ordered pairs of events of different nodes without an event between them."""
    return [
        (a, b)
        for a, b in itertools.permutations(events, 2)
        if a.node != b.node
        and happened_before(a, b)
        and not any(happened_before(a, c) and happened_before(c, b) for c in events)
    ]


def nested(rng: random.Random, event: ketal.Event) -> ketal.Event:
    """Return an event with an attribute that may be a nested object."""
    if rng.random() < 0.5:
        return event
    data = {**event.data, "msg": rng.choice(NESTED)}
    return ketal.Event(event.node, event.type, event.clock, event.time, data)


@examples(60, 3_000)
@given(rng=chances())
def test_every_statistic_equals_its_definition(rng: random.Random) -> None:
    events = [nested(rng, event) for event in execution(rng, events_max=16)]
    again = [rng.choice(events) for _ in range(rng.randint(0, 3))] if events else []
    stats = ketal.stats([*events, *again])
    assert (stats.events, stats.duplicates, stats.records) == (
        len(events),
        len(again),
        len(events) + len(again),
    )
    assert (stats.repeated, stats.rejected, stats.left_out) == (0, 0, ())
    assert stats.nodes == Counter(event.node for event in events)
    types = Counter(event.type for event in events)
    assert {one.type: one.events for one in stats.types} == types
    for one in stats.types:
        assert counted(one.attributes) == attributes([e for e in events if e.type == one.type])
    assert counted(stats.attributes) == attributes(events)
    times = [event.time for event in events if event.time is not None]
    assert stats.timed == len(times)
    assert stats.first_time == min(times, default=None)
    assert stats.last_time == max(times, default=None)
    pairs = list(itertools.combinations(events, 2))
    assert stats.concurrency.concurrent_pairs == sum(concurrent(a, b) for a, b in pairs)
    assert stats.concurrency.ordered_pairs == len(pairs) - stats.concurrency.concurrent_pairs
    messages = received(events)
    assert stats.messages.pairs == len(messages)
    assert stats.messages.receives == len({b.dot for _, b in messages})
    assert stats.messages.types == Counter((a.type, b.type) for a, b in messages)
    assert stats.messages.nodes == Counter((a.node, b.node) for a, b in messages)
    assert stats.messages.unknown == 0


@examples(40, 2_000)
@given(rng=chances())
def test_lost_events_add_no_messages(rng: random.Random) -> None:
    """An execution with lost events has only messages of the whole execution."""
    events = execution(rng, events_max=14)
    some = [event for event in events if rng.random() < 0.8]
    found = ketal.stats(some).messages
    whole = received(events)
    assert set(found.types) <= {(a.type, b.type) for a, b in whole}
    lost = {event.dot for event in events} - {event.dot for event in some}
    for (sender, receiver), number in found.nodes.items():
        between = [1 for a, b in whole if (a.node, b.node) == (sender, receiver)]
        assert number <= len(between)
    if not lost:
        assert found.pairs == len(whole)


@examples(30, 1_000)
@given(rng=chances(), most=st.integers(1, 60))
def test_messages_found_with_a_small_limit_are_real_messages(rng: random.Random, most: int) -> None:
    events = execution(rng, events_max=16)
    found = ketal.stats(events, limits=ketal.Limits(stats_entries_max=most)).messages
    whole = Counter((a.type, b.type) for a, b in received(events))
    assert all(number <= whole[pair] for pair, number in found.types.items())
    assert found.receives + found.unknown >= len({b.dot for _, b in received(events)})


def chain(length: int, nodes: int = 2) -> list[ketal.Event]:
    """Return events of nodes that pass one message around."""
    clock: dict[str, int] = {}
    events = []
    for number in range(length):
        node = f"n{number % nodes}"
        clock[node] = clock.get(node, 0) + 1
        events.append(ketal.Event(node, "pass", dict(clock)))
    return events


def test_messages_of_a_long_log_are_found_within_a_window() -> None:
    limits = ketal.Limits(stats_entries_max=40)
    found = ketal.stats(chain(1_000), limits=limits).messages
    assert (found.receives, found.pairs, found.unknown) == (999, 999, 0)
    apart = sorted(chain(1_000), key=lambda event: event.node)
    found = ketal.stats(apart, limits=limits).messages
    assert found.pairs < 50
    assert found.unknown + found.receives == 999


def test_concurrency_of_a_long_log_is_estimated_from_a_sample() -> None:
    rng = random.Random(3)
    clocks: dict[str, dict[str, int]] = {f"n{n}": {} for n in range(4)}
    events = []
    for _ in range(3_000):
        node, other = rng.sample(sorted(clocks), 2)
        if rng.random() < 0.2:
            for name, counter in clocks[other].items():
                clocks[node][name] = max(clocks[node].get(name, 0), counter)
        clocks[node][node] = clocks[node].get(node, 0) + 1
        events.append(ketal.Event(node, "x", dict(clocks[node])))
    whole = ketal.stats(events).concurrency
    assert (whole.events, whole.of, whole.seed) == (3_000, 3_000, None)
    limits = ketal.Limits(stats_entries_max=2_000)
    some = ketal.stats(events, limits=limits).concurrency
    assert (some.of, some.seed) == (3_000, 17)
    assert 450 < some.events < 700
    assert some.concurrent_pairs + some.ordered_pairs == some.events * (some.events - 1) // 2
    assert abs(some.share - whole.share) < 0.1 * whole.share
    assert some == ketal.stats(events, limits=limits).concurrency
    assert "of the pairs of events in a sample" in str(ketal.stats(events, limits=limits))


def test_sample_is_uniform_if_clocks_differ_in_size() -> None:
    """The room that an evicted wide clock leaves is not for any later events with small ones."""
    wide = {f"m{n}": 1 for n in range(400)}
    events = [ketal.Event(f"w{n}", "wide", wide | {f"w{n}": 1}) for n in range(700)]
    events += [ketal.Event("z", "small", {"z": n}) for n in range(1, 301)]
    sampled = ketal.stats(events, limits=ketal.Limits(stats_entries_max=20_000)).concurrency
    small = (1 + math.isqrt(1 + 8 * sampled.ordered_pairs)) // 2  # they are a chain
    assert (sampled.of, sampled.seed) == (1_000, 17)
    assert 0.2 < small / sampled.events < 0.4


def test_statistics_report_what_limits_leave_out() -> None:
    events = [
        ketal.Event(f"n{n}", f"t{n}", {f"n{n}": 1}, data={f"a{n}": 1, "x": n}) for n in range(5)
    ]
    limits = ketal.Limits(
        stats_types_max=2, stats_nodes_max=3, stats_attributes_max=5, stats_values_max=2
    )
    stats = ketal.stats(events, limits=limits)
    assert [one.type for one in stats.types] == ["t0", "t1"]
    assert list(stats.nodes) == ["n0", "n1", "n2"]
    found = {one.what: (one.limit, one.most, one.number) for one in stats.left_out}
    assert found == {
        "types": ("stats_types_max", 2, 3),
        "nodes": ("stats_nodes_max", 3, 2),
        "attributes": ("stats_attributes_max", 5, 5),
    }
    text = str(stats)
    assert "types (more than 2)" in text
    assert "left out: 3 events of other types (limit stats_types_max = 2)" in text
    assert "left out: 2 events of other nodes (limit stats_nodes_max = 3)" in text
    assert "left out: 5 values of other attributes (limit stats_attributes_max = 5)" in text


def test_values_beyond_the_limit_are_not_distinguished() -> None:
    events = [ketal.Event("n", "t", {"n": n}, data={"x": n % 7}) for n in range(1, 50)]
    (one,) = ketal.stats(events, limits=ketal.Limits(stats_values_max=7)).attributes
    assert (one.values, one.more_values, one.events) == (7, False, 49)
    (one,) = ketal.stats(events, limits=ketal.Limits(stats_values_max=6)).attributes
    assert (one.values, one.more_values, one.events) == (6, True, 49)
    assert "6+ values: 1, 2, 3" in str(ketal.stats(events, limits=ketal.Limits(stats_values_max=6)))


def test_pairs_beyond_the_limit_are_counted_together() -> None:
    stats = ketal.stats(chain(10, nodes=5), limits=ketal.Limits(stats_pairs_max=2))
    assert stats.messages.pairs == 9
    assert stats.messages.nodes == {("n0", "n1"): 2, ("n1", "n2"): 2}
    assert "left out: 5 messages between other nodes (limit stats_pairs_max = 2)" in str(stats)


def test_long_example_values_are_truncated() -> None:
    values = [True, 1, 1.0, "1", [1, "a"], "x" * 200, "x" * 199, float("nan"), float("nan")]
    events = [ketal.Event("n", "t", {"n": n}, data={"x": v}) for n, v in enumerate(values, 1)]
    (one,) = ketal.stats(events).attributes
    assert one.values == 7  # 1 is 1.0
    assert one.kinds == {"string": 3, "number": 4, "boolean": 1, "list": 1}
    for value, shown in [
        (True, True),
        ([1, "a"], [1, "a"]),
        ("x" * 200, "x" * 100 + "…"),
        (None, None),
        (float("inf"), float("inf")),
    ]:
        data = {"x": value}
        (one,) = ketal.stats([ketal.Event("n", "t", {"n": 1}, data=data)]).attributes
        assert one.examples == (() if value is None else (shown,))


def test_nan_is_shown_as_nan() -> None:
    stats = ketal.stats([ketal.Event("n", "t", {"n": 1}, data={"x": float("nan")})])
    assert str(stats.attributes[0].examples) == "(nan,)"
    assert "  x  number  NaN" in str(stats)


def test_deeply_nested_lists_are_counted() -> None:
    for depth in range(300, 1_000, sample(2, 1)):
        line = f'{{"node":"a","type":"t","clock":{{"a":1}},"x":{"[" * depth}{"]" * depth}}}'
        stats = ketal.stats(ketal.read_log(BytesIO(line.encode()), format="jsonl"))
        assert [one.kinds for one in stats.attributes] == [{"list": 1}] * stats.events


def test_restart_is_counted_and_its_events_are_not_compared() -> None:
    first = ketal.Event("a", "x", {"a": 1}, data={"run": 1})
    second = ketal.Event("a", "x", {"a": 1}, data={"run": 2})
    stats = ketal.stats([first, second, first])
    assert (stats.events, stats.duplicates, stats.repeated) == (2, 1, 1)
    assert stats.concurrency.of == 1
    assert "not compared: 1 event with the dot of another event" in str(stats)


def test_restart_is_recognised_after_the_contents_before_it_were_evicted() -> None:
    runs = [[ketal.Event("a", f"x{run}", {"a": n}) for n in (1, 2, 3)] for run in (1, 2)]
    stats = ketal.stats([*runs[0], *runs[1]], limits=ketal.Limits(dots_max=1))
    assert (stats.events, stats.duplicates, stats.repeated) == (6, 0, 3)


def test_duplicate_is_recognised_after_its_content_was_evicted() -> None:
    events = [ketal.Event("a", "x", {"a": n}) for n in range(1, 50)]
    stats = ketal.stats([*events, *events], limits=ketal.Limits(dots_max=5))
    assert (stats.events, stats.duplicates) == (49, 49)


def test_duplicates_out_of_order_are_recognised_up_to_a_limit() -> None:
    events = [ketal.Event("a", "x", {"a": n}) for n in range(50, 1, -1)]
    assert ketal.stats([*events, *events]).duplicates == 49
    stats = ketal.stats([*events, *events], limits=ketal.Limits(counters_max=10))
    assert stats.duplicates == 10
    assert "left out: 78 dots, whose duplicates are counted as events" in str(stats)


def test_duplicates_of_evicted_dots_count_as_events() -> None:
    far = [ketal.Event("a", "x", {"a": n}) for n in range(50, 1, -1)]
    near = [ketal.Event("b", "x", {"b": n}) for n in range(1, 200)]
    for limits in ({"dots_max": 60}, {"stats_entries_max": 40}, {"stats_entries_max": 130}):
        stats = ketal.stats([*far, *far, *near], limits=ketal.Limits(counters_max=10, **limits))
        assert stats.duplicates == 10


def test_control_events_and_rejected_records_are_counted() -> None:
    log = ketal.Log.of(
        [
            ketal.Event("a", "x", {"a": 1}),
            ketal.Control("leave", node="a"),
            ketal.Rejected(place="f:3", reason="no event"),
            ketal.Control("end"),
            ketal.Event("a", "x", {"a": 2}),
        ]
    )
    stats = ketal.stats(log)
    assert (stats.records, stats.events, stats.controls, stats.rejected) == (5, 1, 2, 2)
    assert stats.first_rejected == "f:3: no event"
    head = str(stats).splitlines()[:2]
    assert head == [
        "5 records = 1 event + 2 control events + 2 rejected",
        "first rejected: f:3: no event",
    ]


def test_executions_are_compared_separately() -> None:
    a, b = ketal.Event("a", "x", {"a": 1}), ketal.Event("b", "y", {"a": 1, "b": 1})
    records = [("one", a, "", 0), ("one", b, "", 0), ("two", a, "", 0), ("two", b, "", 0)]
    stats = ketal.stats(ketal.Log(lambda: iter(records)))
    assert (stats.executions, stats.events, stats.duplicates) == (2, 4, 0)
    assert (stats.concurrency.concurrent_pairs, stats.concurrency.ordered_pairs) == (0, 2)
    assert stats.messages.types == {("x", "y"): 2}


def test_nested_attributes_are_counted_up_to_a_depth() -> None:
    deep: dict[str, Any] = {"z": 1}
    for _ in range(60):
        deep = {"x": deep}
    stats = ketal.stats([ketal.Event("a", "x", {"a": 1}, data=deep)])
    assert [len(one.path) for one in stats.attributes] == list(range(1, 33))
    assert [(one.what, one.number) for one in stats.left_out] == [("inner attributes", 1)]
    assert "left out: 1 value inside 32 or more nested objects" in str(stats)


def test_many_types_are_summarised_by_their_first_words() -> None:
    kinds = [("Send to n%d", 30), ("Take %d", 10)]
    types = [form % number for form, count in kinds for number in range(count)]
    events = [ketal.Event("a", type, {"a": n}) for n, type in enumerate(types, 1)]
    lines = str(ketal.stats(events)).splitlines()
    assert "  `type matches /^Send /` accepts 30 of them" in lines
    assert "                    … and 20 more (--rows, --output json)" in lines


def test_names_are_written_in_pattern_syntax() -> None:
    data = {"node": 1, "content-type": 2, "msg": {"a b": 3}}
    text = str(ketal.stats([ketal.Event("a", 'say "x"\n', {"a": 1}, data=data)]))
    for name in ("data.node", 'data["content-type"]', 'msg["a b"]', r'"say \"x\"\n"'):
        assert name in text


@examples(15, 1_000)
@given(
    texts=st.lists(st.text(min_size=1, max_size=150), min_size=1, max_size=30),
    values=st.lists(st.text(max_size=80) | st.integers() | st.floats(), min_size=1, max_size=30),
)
def test_no_line_is_wider_than_a_terminal(texts: list[str], values: list[Any]) -> None:
    texts = [text.encode(errors="replace").decode() for text in texts]
    values = [v.encode(errors="replace").decode() if isinstance(v, str) else v for v in values]
    clock: dict[str, int] = {}
    events = []
    for text, value in itertools.zip_longest(texts, values, fillvalue="x"):
        name = str(text) or "x"
        clock[name] = clock.get(name, 0) + 1
        events.append(ketal.Event(name, name, dict(clock), data={name: value, "o": {name: 1}}))
    limits = ketal.Limits(stats_entries_max=20, stats_attributes_max=5)
    for one in (ketal.stats(events), ketal.stats(events, limits=limits)):
        for line in str(one).splitlines():
            assert columns(line) <= WIDTH, line
            assert line.isprintable()


def test_json_has_the_documented_keys() -> None:
    stats = ketal.stats(chain(3))
    assert set(stats.to_dict()) == {
        "records",
        "events",
        "duplicates",
        "rejected",
        "controls",
        "repeated",
        "executions",
        "time",
        "nodes",
        "types",
        "attributes",
        "concurrency",
        "messages",
        "left_out",
    }
    assert stats.to_dict()["messages"] == {
        "receives": 2,
        "pairs": 2,
        "unknown": 0,
        "types": [{"from": "pass", "to": "pass", "pairs": 2}],
        "nodes": [{"from": "n0", "to": "n1", "pairs": 1}, {"from": "n1", "to": "n0", "pairs": 1}],
    }


def test_empty_log_has_empty_statistics() -> None:
    stats = ketal.stats([])
    assert (stats.records, stats.executions, stats.types) == (0, 0, ())
    assert str(stats) == "0 records = 0 events"
    assert isinstance(stats, LogStats)


def test_argument_that_is_no_log_is_a_type_error() -> None:
    for wrong in ("run.jsonl", 7, [7]):
        with pytest.raises(TypeError, match=r"ketal\."):
            ketal.stats(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", LOGS)
def test_pairs_of_real_logs(shared_data: Path, name: str) -> None:
    _, _, events, pairs = LOGS[name]
    stats = ketal.stats(read(shared_data, name))
    assert (stats.events, stats.concurrency.concurrent_pairs) == (events, pairs)
    assert stats.messages.unknown == 0
    assert stats.messages.pairs >= stats.messages.receives > 0


def test_messages_of_a_real_log(shared_data: Path) -> None:
    """Each `<` is a receive, from at most one `>` that was not known before."""
    stats = ketal.stats(read(shared_data, "VectorClocksTests"))
    assert stats.messages.types == {(">", "<"): 831}
    assert {one.type for one in stats.types} == {"<", ">", "d"}


def wild(number: int) -> Iterator[ketal.Event]:
    """Yield ever new nodes, types, attributes and values, and events of one hub node."""
    for at in range(1, number + 1):
        data = {f"a{at}": at, "x": f"value {at}" * 20, "o": {f"b{at}": [at, "y" * 500]}}
        yield ketal.Event(f"n{at}", f"type {at}", {f"n{at}": 1, f"n{at - 1}": 1}, data=data)
        yield ketal.Event("hub", "t", {"hub": 3 * at, f"n{at}": 1}, data={"x": at})


def test_memory_does_not_grow_with_the_log() -> None:
    limits = ketal.Limits(
        stats_types_max=50,
        stats_nodes_max=50,
        stats_attributes_max=100,
        stats_values_max=10,
        stats_pairs_max=50,
        stats_entries_max=400,
        dots_max=100,
        counters_max=100,
    )
    peaks = []
    for number in sample((500, 4_000), (1_000, 8_000)):
        tracemalloc.start()
        stats = ketal.stats(wild(number), limits=limits)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert stats.events == 2 * number
        assert len(stats.left_out) == 6
    assert peaks[1] < 1.2 * peaks[0]
