"""Spans as events: OTLP and Zipkin samples, and corner cases of both formats."""

from __future__ import annotations

import base64
import json
import random
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import ketal
from ketal.errors import SettingError
from ketal.logs import Log, read_log
from ketal.logs.traces.rebuilding import Rebuilding
from ketal.model.events.event import Event
from ketal.model.events.happened_before import concurrent, happened_before
from tests.sampling import drawn
from tests.work import counted_lines

TRACE = "0af7651916cd43dd8448eb211c80319c"
PHASES = ("start", "end")


def span(number: int, begin: float, end: float | None, parent: int = 0, **more: Any) -> Any:
    out = {
        "traceId": TRACE,
        "spanId": f"{number:016x}",
        "name": f"s{number}",
        "startTimeUnixNano": str(int(begin * 1e9)),
        "endTimeUnixNano": str(int((end or 0) * 1e9)),
        **more,
    }
    return out | ({"parentSpanId": f"{parent:016x}"} if parent else {})


def attribute(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def listing(kind: str, value: Any) -> dict[str, Any]:
    return {"key": "k", "value": {kind: value}}


def resource(service: str | None, *spans: Any, **more: str) -> dict[str, Any]:
    attributes = [attribute(key.replace("_", "."), value) for key, value in more.items()]
    if service is not None:
        attributes.append(attribute("service.name", service))
    return {"resource": {"attributes": attributes}, "scopeSpans": [{"spans": list(spans)}]}


def otlp(path: Path, *resources: Any, indent: int | None = None) -> Log:
    path.write_text(json.dumps({"resourceSpans": list(resources)}, indent=indent))
    return read_log(path, format="otlp")


def zipkin(path: Path, *spans: Any) -> Log:
    path.write_text(json.dumps(list(spans)))
    return read_log(path, format="zipkin")


def events_by_name(log: Log) -> dict[str, Event]:
    """Return the events by `name phase`; check that the log is valid and a linear extension."""
    audit = ketal.audit(log)
    assert audit.clean, str(audit)
    assert audit.statistics.inversions == 0
    return {f"{e.type} {e.data['phase']}": e for e in log}


CALL = (
    resource("shop", span(1, 1, 9, kind=2), span(2, 2, 8, 1, kind=3)),
    resource("stock", span(3, 103, 104, 2, kind="SPAN_KIND_SERVER")),
)
"""A request that calls another service, whose clock is ahead by more than the call took."""


def test_call_and_reply_are_ordered(tmp_path: Path) -> None:
    events = events_by_name(otlp(tmp_path / "t.json", *CALL))
    order = ["s1 start", "s2 start", "s3 start", "s3 end", "s2 end", "s1 end"]
    for first, second in pairwise(order):
        assert happened_before(events[first], events[second])
    assert events["s3 end"].clock == {"shop": 2, "stock": 2}
    assert events["s3 end"].time == 104
    assert events["s3 start"].data == {
        "phase": "start", "trace": TRACE, "span": f"{3:016x}", "parent": f"{2:016x}",
        "kind": "server",
    }  # fmt: skip


def test_forms_of_an_otlp_document_are_read_alike(tmp_path: Path) -> None:
    plain = list(otlp(tmp_path / "t.json", *CALL))
    pretty = otlp(tmp_path / "pretty.json", *CALL, indent=2)
    assert list(pretty) == plain
    lines = [record[3] for record in pretty.records()]
    assert len(set(lines)) == 3
    text = (tmp_path / "pretty.json").read_text().split("\n")
    assert all(text[line - 1].strip() == "{" for line in lines)
    (tmp_path / "lines.json").write_text(
        "".join(json.dumps({"resourceSpans": [one]}) + "\n" for one in CALL)
    )
    by_lines = read_log(tmp_path / "lines.json", format="otlp")
    assert list(by_lines) == plain
    assert {record[3] for record in by_lines.records()} == {1, 2}
    snake = json.dumps({"resource_spans": CALL})
    for camel, other in (("scopeSpans", "scope_spans"), ("traceId", "trace_id"),
                         ("spanId", "span_id"), ("parentSpanId", "parent_span_id"),
                         ("startTimeUnixNano", "start_time_unix_nano"),
                         ("endTimeUnixNano", "end_time_unix_nano")):  # fmt: skip
        snake = snake.replace(f'"{camel}"', f'"{other}"')
    (tmp_path / "snake.json").write_text(snake)
    assert list(read_log(tmp_path / "snake.json", format="otlp")) == plain
    old = json.dumps({"resourceSpans": CALL}).replace("scopeSpans", "instrumentationLibrarySpans")
    (tmp_path / "old.json").write_text(old)
    assert list(read_log(tmp_path / "old.json", format="otlp")) == plain


def test_document_of_which_a_line_is_a_document_is_read(tmp_path: Path) -> None:
    """One span per line, in the two names that a list of scopes has had."""
    one, two, three, four = (json.dumps(span(number, number, None)) for number in range(1, 5))
    path = tmp_path / "t.json"
    path.write_text(
        '{"resourceSpans":[{"instrumentationLibrarySpans":[{"spans":[\n'
        f'{one},\n{two}\n]}}],"scopeSpans":[{{"spans":[\n{three},\n{four}\n]}}]}}]}}\n'
    )
    records = read_log(path, format="otlp").records()
    assert {item.type: line for _, item, _, line in records if isinstance(item, Event)} == {
        "s1": 2, "s2": 3, "s3": 5, "s4": 6,
    }  # fmt: skip
    spans = [json.dumps(z(number, "a", number, 1)) for number in (1, 2)]
    path.write_text(f"[\n{spans[0]}\n,{spans[1]}\n]")
    log = read_log(path, format="zipkin")
    assert (len(list(log)), log.rejected) == (4, [])


def test_base64_ids_and_numeric_times_are_read(tmp_path: Path) -> None:
    one = span(1, 1, 2)
    other = {
        **one,
        "traceId": base64.b64encode(bytes.fromhex(TRACE)).decode(),
        "spanId": base64.b64encode(bytes.fromhex(one["spanId"])).decode(),
        "startTimeUnixNano": 1_000_000_000,
    }
    same = list(otlp(tmp_path / "a.json", resource("a", one)))
    assert list(otlp(tmp_path / "b.json", resource("a", other))) == same


def test_orphans_and_several_roots_are_marked(tmp_path: Path) -> None:
    events = events_by_name(
        otlp(tmp_path / "t.json", resource("a", span(1, 1, 2, 77)), resource("b", span(2, 1, 2)))
    )
    assert events["s1 start"].data["orphan"] is True
    assert events["s2 start"].data["root"] is True
    assert concurrent(events["s1 start"], events["s2 end"])


def test_causes_take_precedence_over_span_times(tmp_path: Path) -> None:
    """By its clock, a span called back from another service begins before the call to there."""
    events = events_by_name(
        otlp(
            tmp_path / "t.json",
            resource("a", span(1, 10, 20), span(3, 1, 2, 2)),
            resource("b", span(2, 5, 6, 1)),
        )
    )
    assert happened_before(events["s1 start"], events["s3 start"])
    assert events["s1 start"].data["moved"] is True


def test_only_events_whose_service_contradicts_the_causes_are_moved(tmp_path: Path) -> None:
    """A span of `c` waits for `a`, whose clock contradicts the causes; that of `c` does not."""
    events = events_by_name(
        otlp(
            tmp_path / "t.json",
            resource("a", span(1, 200, 300), span(2, 100, 150, 1)),
            resource("c", span(3, 10, 15, 1), span(4, 20, 25)),
        )
    )
    assert [name for name, event in events.items() if "moved" in event.data] == ["s1 start"]
    assert happened_before(events["s3 end"], events["s4 start"])


def test_clock_skew_between_services_is_ignored(tmp_path: Path) -> None:
    """The server's clock is an hour behind: by the clocks, its span is before the call."""
    events = events_by_name(
        otlp(
            tmp_path / "t.json",
            resource("b", span(3, 400, 401, 2), span(2, 399, 402, 1, kind=2)),
            resource("a", span(1, 4_000, 4_010, kind=3), span(4, 4_011, 4_012)),
        )
    )
    order = ["s1 start", "s2 start", "s3 start", "s3 end", "s2 end", "s1 end", "s4 start"]
    for first, second in pairwise(order):
        assert happened_before(events[first], events[second])
    assert not any("moved" in event.data for event in events.values())
    assert events["s2 start"].time == 399


def test_parent_that_ends_before_its_child_orders_starts_only(tmp_path: Path) -> None:
    """A call that is not waited for: across services, only the begins are ordered."""
    child = span(2, 2, 50, 1)
    events = events_by_name(
        otlp(tmp_path / "t.json", resource("a", span(1, 1, 3)), resource("b", child))
    )
    assert happened_before(events["s1 start"], events["s2 start"])
    assert concurrent(events["s1 end"], events["s2 start"])
    assert concurrent(events["s1 end"], events["s2 end"])
    # Within one service, the service's own clock orders more.
    events = events_by_name(otlp(tmp_path / "u.json", resource("a", span(1, 1, 3), child)))
    assert [e.clock["a"] for e in events.values()] == [1, 2, 3, 4]
    assert happened_before(events["s1 end"], events["s2 end"])


def test_otlp_producer_is_before_its_consumer(tmp_path: Path) -> None:
    producer, consumer = span(1, 1, 2, kind=4), span(2, 3, 4, 1, kind=5)
    log = otlp(tmp_path / "t.json", resource("a", producer), resource("b", consumer))
    events = events_by_name(log)
    assert happened_before(events["s1 start"], events["s2 start"])
    assert concurrent(events["s1 end"], events["s2 start"])
    assert events["s2 start"].data["kind"] == "consumer"


def test_spans_without_duration_are_ordered(tmp_path: Path) -> None:
    log = otlp(tmp_path / "t.json", resource("a", span(1, 5, 5), span(2, 5, 5, 1), span(3, 5, 7)))
    events = events_by_name(log)
    for number in (1, 2, 3):
        assert happened_before(events[f"s{number} start"], events[f"s{number} end"])
    assert happened_before(events["s1 start"], events["s2 start"])
    assert happened_before(events["s2 end"], events["s1 end"])


def test_unfinished_span_has_a_start_only(tmp_path: Path) -> None:
    events = events_by_name(
        otlp(tmp_path / "t.json", resource("a", span(1, 5, None), span(2, 6, 7, 1)))
    )
    assert set(events) == {"s1 start", "s2 start", "s2 end"}


def test_span_ids_of_different_traces_are_distinct(tmp_path: Path) -> None:
    log = otlp(
        tmp_path / "t.json",
        resource("a", span(1, 1, 2)),
        resource("c", span(1, 3, 4, traceId="ab" * 16, name="other")),
        resource("b", span(2, 1, 2, 1)),
        resource("d", span(2, 1, 2, 1, traceId="ab" * 16, name="child")),
    )
    events = events_by_name(log)
    assert not log.rejected
    assert concurrent(events["s2 start"], events["other start"])
    assert concurrent(events["s1 start"], events["child start"])
    assert happened_before(events["other start"], events["child start"])


def test_resources_without_a_service_name_are_read(tmp_path: Path) -> None:
    """A batch may have no resource, one without attributes, or one without service.name."""
    nameless: list[Any] = [
        {"scopeSpans": [{"spans": [span(1, 1, 2)]}]},
        {"resource": None, "scopeSpans": [{"spans": [span(2, 1, 2)]}]},
        {"resource": {"attributes": None}, "scopeSpans": [{"spans": [span(3, 1, 2)]}]},
        resource(None, span(4, 1, 2), service_instance_id="x"),
        resource("", span(5, 1, 2)),
        {"resource": {}, "scopeSpans": None},
        {"resource": {}, "scopeSpans": [{"spans": None}, {}]},
    ]
    log = otlp(tmp_path / "t.json", *nameless)
    assert not log.rejected
    nodes = {event.node for event in events_by_name(log).values()}
    assert nodes == {f"unknown_service/{number:016x}" for number in (1, 2, 3, 4, 5)}


def test_services_of_two_namespaces_are_distinct(tmp_path: Path) -> None:
    log = otlp(
        tmp_path / "t.json",
        resource("a", span(1, 1, 2), service_namespace="shop"),
        resource("a", span(2, 1, 2), service_namespace="bank", service_instance_id="7"),
    )
    assert {event.node for event in events_by_name(log).values()} == {"shop/a", "bank/a/7"}


def test_fields_that_the_specification_ignores(tmp_path: Path) -> None:
    text = '{"resourceSpans": null, "new": [1]}\n{"resourceSpans": []}\n'
    (tmp_path / "t.jsonl").write_text(text)
    log = read_log(tmp_path / "t.jsonl", format="otlp")
    assert list(log.records()) == []
    more = span(1, 1, 2, flags=257, traceState="x=1", events=[{"name": "e"}], droppedLinksCount=0)
    values = [
        {"key": "s", "value": {"stringValue": "text"}},
        {"key": "i", "value": {"intValue": "7"}},
        {"key": "d", "value": {"doubleValue": 0.5}},
        {"key": "b", "value": {"boolValue": True}},
        {"key": "l", "value": {"arrayValue": {"values": [{"intValue": 1}, {}]}}},
        {"key": "m", "value": {"kvlistValue": {"values": [{"key": "k", "value": {}}]}}},
        {"key": "none"},
    ]  # fmt: skip
    log = otlp(tmp_path / "u.json", resource("a", {**more, "attributes": values}))
    (start, _) = log
    assert start.data["attributes"] == {
        "s": "text", "i": 7, "d": 0.5, "b": True, "l": [1, None], "m": {"k": None}, "none": None,
    }  # fmt: skip


def test_zero_ids_capital_ids_and_named_kinds_are_read(tmp_path: Path) -> None:
    root = span(1, 1, 9, parentSpanId="0" * 16, kind="SPAN_KIND_CLIENT", traceId=TRACE.upper())
    failed = {"code": "STATUS_CODE_ERROR"}
    child = span(2, 2, 3, 1, kind="SPAN_KIND_SERVER", status=failed)
    log = otlp(tmp_path / "t.json", resource("a", root), resource("b", child))
    events = events_by_name(log)
    assert events["s1 start"].data["root"] is True
    assert happened_before(events["s2 end"], events["s1 end"])
    assert events["s2 end"].data["failed"] is True


def test_end_time_before_the_start_keeps_the_order(tmp_path: Path) -> None:
    events = events_by_name(otlp(tmp_path / "t.json", resource("a", span(1, 5, 4))))
    assert happened_before(events["s1 start"], events["s1 end"])
    assert events["s1 end"].time == 4


def test_client_that_did_not_wait_is_concurrent_with_the_server(tmp_path: Path) -> None:
    server = resource("b", span(2, 1, 50, 1, kind=2))
    events = events_by_name(otlp(tmp_path / "t.json", resource("a", span(1, 1, 3, kind=3)), server))
    assert concurrent(events["s1 end"], events["s2 end"])
    failed = span(1, 1, 99, kind=3, status={"code": 2})
    events = events_by_name(otlp(tmp_path / "u.json", resource("a", failed), server))
    assert concurrent(events["s1 end"], events["s2 end"])
    assert events["s1 end"].data["failed"] is True


def test_links_order_spans(tmp_path: Path) -> None:
    link = {"traceId": TRACE, "spanId": f"{1:016x}"}
    log = otlp(
        tmp_path / "t.json",
        resource("a", span(1, 1, 2, kind=4)),
        resource("b", span(2, 1, 2, kind=5, links=[link])),
        resource("c", span(3, 1, 2, kind=5, links=[{"spanId": f"{1:016x}"}])),
    )
    events = events_by_name(log)
    for consumer in ("s2", "s3"):
        assert happened_before(events["s1 start"], events[f"{consumer} start"])
        assert concurrent(events["s1 end"], events[f"{consumer} start"])


def test_links_to_other_traces_and_files_are_resolved(tmp_path: Path) -> None:
    """A batch handles two requests of other traces, in a file that is read first."""
    other = "ab" * 16
    links = [
        {"traceId": TRACE, "spanId": f"{1:016X}"},
        {"traceId": other, "spanId": f"{1:016x}"},
        # A link to a span that is in no file, and a link without ids.
        {"traceId": other, "spanId": f"{9:016x}"}, {"spanId": ""}, None,
    ]  # fmt: skip
    files = [tmp_path / "batch.json", tmp_path / "one.json", tmp_path / "two.json"]
    otlp(files[0], resource("batch", span(7, 1, 2, kind=5, links=links, traceId="cd" * 16)))
    otlp(files[1], resource("a", span(1, 8, 9, kind=4)))
    otlp(files[2], resource("b", span(1, 8, 9, kind=4, traceId=other)))
    log = read_log(*files, format="otlp")
    starts = {e.node: e for e in log if e.data["phase"] == "start"}
    assert happened_before(starts["a"], starts["batch"])
    assert happened_before(starts["b"], starts["batch"])
    assert concurrent(starts["a"], starts["b"])
    assert starts["batch"].data["root"] is True
    assert ketal.audit(log).clean
    # Without the other file, both linked spans are missing.
    assert all(e.clock.keys() == {"batch"} for e in read_log(files[0], format="otlp"))


def test_missing_parents_and_links_are_counted(tmp_path: Path) -> None:
    links = [{"traceId": TRACE, "spanId": f"{number:016x}"} for number in (1, 8, 9)]
    log = otlp(
        tmp_path / "t.json",
        resource("a", span(1, 1, 2), span(2, 3, 4, parent=7)),
        resource("b", span(3, 1, 2, links=links), span(4, 1, 2, links=links[:1])),
    )
    events = events_by_name(log)
    lost = {name: event.data["lost_links"] for name, event in events.items()
            if "lost_links" in event.data}  # fmt: skip
    assert lost == {"s3 start": 2, "s3 end": 2}
    assert log.rebuilding == Rebuilding(orphans=1, lost_links=2)
    assert list(Rebuilding(orphans=1, lost_links=2).sentences()) == [
        "1 span whose parent is missing",
        "2 links to a missing span",
    ]


@pytest.mark.parametrize("absent", [True, False], ids=["absent", "null"])
@pytest.mark.parametrize(
    "path",
    [
        ("resource",), ("resource", "attributes"), ("scopeSpans", 0, "scope"),
        ("scopeSpans", 0, "spans", 0, "attributes"), ("scopeSpans", 0, "spans", 0, "links"),
        ("scopeSpans", 0, "spans", 0, "events"), ("scopeSpans", 0, "spans", 0, "status"),
        ("scopeSpans", 0, "spans", 0, "kind"), ("scopeSpans", 0, "spans", 0, "parentSpanId"),
        ("scopeSpans", 0, "spans", 0, "attributes", 0, "value"),
        ("scopeSpans", 0, "spans", 0, "attributes", 0, "value", "arrayValue"),
        ("scopeSpans", 0, "spans", 0, "attributes", 0, "value", "arrayValue", "values"),
    ],
    ids=lambda path: ".".join(map(str, path)),
)  # fmt: skip
def test_null_counts_as_absent(tmp_path: Path, path: tuple[Any, ...], absent: bool) -> None:
    """In protobuf's JSON mapping, null is the default value of a field."""
    listed = {"key": "x", "value": {"arrayValue": {"values": [{"stringValue": "y"}]}}}
    more: dict[str, Any] = {"events": [], "status": {"code": 1}, "links": [], "kind": 1}
    one = resource("a", span(1, 1, 2, **more, attributes=[listed]))
    one["scopeSpans"][0]["scope"] = {"name": "lib"}
    part: Any = one
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = None
    if absent:
        del part[path[-1]]
    log = otlp(tmp_path / "t.json", one, resource("b", span(2, 1, 2)))
    assert log.rejected == []
    assert sorted(event.type for event in log) == ["s1", "s1", "s2", "s2"]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"attributes": {"k": "v"}}, "attributes must be an array, not an object"),
        ({"attributes": [5]}, "an element of attributes must be an object, not a number"),
        ({"attributes": [{"value": {}}]}, "a key in attributes must be a string, not null"),
        ({"attributes": [{"key": 5}]}, "a key in attributes must be a string, not a number"),
        (
            {"attributes": [{"key": "k", "value": "v"}]},
            "the value of an attribute must be an object, not a string",
        ),
        ({"attributes": [listing("arrayValue", [])]}, "arrayValue must be an object, not an array"),
        *(
            (
                {"attributes": [listing(kind, {"values": values})]},
                f"{kind}.values must be an array, not {what}",
            )
            for kind in ("arrayValue", "kvlistValue")
            for values, what in ((5, "a number"), ("text", "a string"), ({"a": 1}, "an object"))
        ),
        ({"links": {"spanId": "1"}}, "links must be an array, not an object"),
        ({"links": ["1"]}, "a link must be an object, not a string"),
    ],
)
def test_wrong_json_types_are_rejected_by_name(
    tmp_path: Path, more: dict[str, Any], reason: str
) -> None:
    """A malformed resource is rejected with its spans, which would have no service."""
    log = otlp(tmp_path / "t.json", resource("a", span(1, 1, 2, **more), span(2, 3, 4)))
    assert [one.reason for one in log.rejected] == [reason]
    assert {event.type for event in log} == {"s2"}
    if "attributes" in more:
        wrong = {"resource": more, "scopeSpans": [{"spans": [span(1, 1, 2)]}]}
        log = otlp(tmp_path / "t.json", wrong, resource("b", span(2, 3, 4)))
        assert [one.reason for one in log.rejected] == [f"the resource cannot be read: {reason}"]
        assert {event.type for event in log} == {"s2"}


@pytest.mark.parametrize(
    "document",
    [
        "{}", '{"resourceSpans": null}', '{"resourceSpans": []}',
        '{"resourceSpans": [{"scopeSpans": null}]}', '{"resourceSpans": [{}]}',
        '{"resourceSpans" : [ { "resource" : null , "scopeSpans" : [ { "spans" : null } ] } ] }',
    ],
)  # fmt: skip
def test_documents_without_spans_are_accepted(tmp_path: Path, document: str) -> None:
    """An export without spans does not affect the exports beside it."""
    path = tmp_path / "t.json"
    whole = json.dumps({"resourceSpans": [resource("a", span(1, 1, 2))]})
    path.write_text(f"{document}\n{whole}\n")
    log = read_log(path, format="otlp")
    assert log.rejected == []
    assert [event.type for event in log] == ["s1", "s1"]


def link(number: int) -> dict[str, str]:
    return {"traceId": TRACE, "spanId": f"{number:016x}"}


def test_links_that_close_a_cycle(tmp_path: Path) -> None:
    """One of the two links is dropped and counted; no event is moved."""
    log = otlp(
        tmp_path / "t.json",
        resource("a", span(1, 1, 2, links=[link(2)])),
        resource("b", span(2, 1, 2, links=[link(1)])),
    )
    events = events_by_name(log)
    assert len(events) == 4
    assert not log.rejected
    assert happened_before(events["s1 start"], events["s2 start"])
    assert not any("moved" in event.data for event in events.values())
    assert log.rebuilding == Rebuilding(round_links=1)
    assert list(Rebuilding(round_links=1).sentences()) == ["1 link dropped to avoid a cycle"]
    # The later event of the same node must come before it: that event is moved.
    itself = otlp(
        tmp_path / "u.json",
        resource("a", span(1, 1, 2, links=[link(1), link(3)]), span(3, 4, 5)),
    )
    events = events_by_name(itself)
    assert events["s3 start"].data["moved"] is True
    assert [name for name, event in events.items() if "moved" in event.data] == ["s3 start"]
    assert itself.rebuilding == Rebuilding(round_links=1)


def test_a_link_that_closes_no_cycle_is_kept(tmp_path: Path) -> None:
    """Of two links of a span one closes a cycle; the other is to a span of another cycle."""
    log = otlp(
        tmp_path / "t.json",
        resource("a", span(1, 1, 2, links=[link(2), link(3)])),
        resource("b", span(2, 3, 4, links=[link(1)])),
        resource("c", span(3, 5, 6, links=[link(4)])),
        resource("d", span(4, 7, 8, links=[link(3)])),
    )
    events = events_by_name(log)
    assert happened_before(events["s3 start"], events["s1 start"])
    assert log.rebuilding == Rebuilding(round_links=2)


def test_events_are_moved_and_links_dropped_only_in_cycles(tmp_path: Path) -> None:
    """Cycles of causes, links and the times of each service; without one, nothing is changed."""

    @drawn(50, 2_000)
    def holds(rng: random.Random) -> None:
        times = rng.sample(range(1, 100), 12)
        numbers = range(1, 7)
        services: dict[str, list[Any]] = {"a": [], "b": [], "c": []}
        after: dict[str, set[str]] = {f"s{n} {phase}": set() for n in numbers for phase in PHASES}
        links: set[tuple[str, str]] = set()
        at: dict[str, int] = {}
        for n in numbers:
            begin, end = sorted(times[2 * n - 2 : 2 * n])
            parent = rng.randrange(n)
            linked = [m for m in numbers if m != n and rng.random() < 0.1]
            more = {"links": [link(m) for m in linked]}
            rng.choice([*services.values()]).append(span(n, begin, end, parent, **more))
            at |= {f"s{n} start": begin, f"s{n} end": end}
            after[f"s{n} start"].add(f"s{n} end")
            if parent:
                after[f"s{parent} start"].add(f"s{n} start")
            links |= {(f"s{m} start", f"s{n} start") for m in linked}
        for cause, effect in links:
            after[cause].add(effect)
        log = otlp(tmp_path / "t.json", *(resource(name, *own) for name, own in services.items()))
        events = events_by_name(log)
        linked_only = {name: _reached(name, after) for name in after}
        for node in services:
            ordered = sorted(
                (name for name in after if events[name].node == node), key=at.__getitem__
            )
            for first, second in pairwise(ordered):
                after[first].add(second)
        in_cycle = {name for name in after if name in _reached(name, after)}
        moved = {name for name, event in events.items() if "moved" in event.data}
        assert moved <= in_cycle
        dropped = {one for one in links if not happened_before(events[one[0]], events[one[1]])}
        assert all(cause in linked_only[effect] for cause, effect in dropped)
        for name, later in after.items():
            for other in () if in_cycle else later:
                assert happened_before(events[name], events[other])


def _reached(name: str, after: dict[str, set[str]]) -> set[str]:
    """Return what follows an event; with itself if it is in a cycle."""
    reached: set[str] = set()
    pending = [name]
    while pending:
        new = after[pending.pop()] - reached
        reached |= new
        pending.extend(new)
    return reached


def test_many_causes_of_one_span_take_linear_work(tmp_path: Path) -> None:
    """The links of a consumer to its producers, and the replies that a client waits for."""

    def read(count: int) -> int:
        numbers = range(2, count + 2)
        servers = [span(n, n, n + 1, 1, kind=2) for n in numbers]
        client = span(1, 1, count + 3, kind=3)
        consumer = span(count + 2, 1, 2, kind=5, links=[link(n) for n in numbers])
        log = otlp(
            tmp_path / "t.json", resource("a", *servers), resource("b", client),
            resource("c", consumer),
        )  # fmt: skip
        return len(list(log.records()))

    (few, once), (many, twice) = (counted_lines(partial(read, n)) for n in (400, 800))
    assert many - few == 800
    assert twice < 2.5 * once


def test_duplicate_and_contradicting_spans(tmp_path: Path) -> None:
    one = span(1, 1, 2)
    log = otlp(tmp_path / "t.json", resource("a", one, one, {**one, "name": "other"}))
    assert ketal.audit(log).statistics.duplicates == 2
    assert ["other content" in item.reason for item in log.rejected] == [True]


def test_spans_that_are_their_own_ancestors_are_rejected(tmp_path: Path) -> None:
    log = otlp(
        tmp_path / "t.json",
        resource("a", span(1, 1, 2, 2), span(2, 1, 2, 1), span(3, 1, 2, 1), span(4, 1, 2, 4)),
    )
    assert set(events_by_name(log)) == {"s3 start", "s3 end"}
    assert len(log.rejected) == 3
    assert all("its own ancestor" in item.reason for item in log.rejected)


def test_spans_without_a_service_and_service_instances(tmp_path: Path) -> None:
    log = otlp(
        tmp_path / "t.json",
        resource(None, span(1, 1, 2), span(2, 3, 4)),
        resource("a", span(3, 1, 2), service_instance_id="x"),
        resource("a", span(4, 3, 4), service_instance_id="y"),
    )
    events = events_by_name(log)
    assert concurrent(events["s1 end"], events["s2 start"])
    assert concurrent(events["s3 end"], events["s4 start"])
    assert {e.node for e in events.values()} == {
        f"unknown_service/{1:016x}", f"unknown_service/{2:016x}", "a/x", "a/y",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"startTimeUnixNano": "0"}, "no startTimeUnixNano"),
        ({"startTimeUnixNano": "soon"}, "not a time in nanoseconds"),
        ({"spanId": ""}, "no spanId"),
        ({"traceId": "0" * 32}, "no traceId"),
        ({"spanId": "xyz"}, "neither 16 hex digits nor base64"),
        ({"spanId": 7}, "must be a string"),
        ({"spanId": "AAAAAAAA AAE="}, "neither 16 hex digits nor base64"),
        ({"spanId": "x" * 61}, f"spanId {'x' * 60!r} is neither 16 hex digits nor base64"),
    ],
)
def test_unreadable_spans_are_rejected(tmp_path: Path, wrong: dict[str, Any], reason: str) -> None:
    log = otlp(tmp_path / "t.json", resource("a", {**span(1, 1, 2), **wrong}, span(2, 1, 2)))
    assert [reason in item.reason for item in log.rejected] == [True]
    assert len(list(log)) == 2


@pytest.mark.parametrize(
    ("before", "by_line"),
    [
        ("", True),
        ("\n" * 7, True),
        ("nonsense\n" * 2, True),
        ("nonsense\n" * 3, False),
        ("\n" * 8, False),
    ],
)
def test_documents_are_lines_if_one_of_the_first_lines_is_a_document(
    tmp_path: Path, before: str, by_line: bool
) -> None:
    """One of the first three lines that are not blank, within the first eight."""
    lines = [json.dumps([z(number, "a", number, 1)]) for number in (1, 2)]
    path = tmp_path / "t.json"
    path.write_text(before + "\n".join(lines))
    log = read_log(path, format="zipkin")
    assert len(list(log)) == (4 if by_line else 0)
    assert len(log.rejected) == (before.count("nonsense") if by_line else 1)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("\n[\n3,\n3,\n\n  33, 3]\n", [3, 4, 6, 6]),
        ("[\n[3]\n]", [2]),  # of which a line is a document, too
        ('[3,3]\n\n[3,\t3]\n{"resourceSpans": []}\n[\n', [1, 1, 3, 3, 4, 5]),
    ],
)
def test_place_of_a_rejected_span_is_its_own_among_equal_ones(
    tmp_path: Path, text: str, lines: list[int]
) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    rejected = read_log(path, format="zipkin").rejected
    assert [int(one.place.rpartition(":")[2]) for one in rejected] == lines


def test_document_that_is_not_text_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b'{"resourceSpans": "\xff"}')
    (one,) = read_log(path, format="otlp").rejected
    assert one.reason == "the document is not valid UTF-8"


@pytest.mark.parametrize("format", ["otlp", "zipkin", "jaeger"])
@pytest.mark.parametrize(
    "text", [b"{", b"nonsense", b"[1, 2", b"\xff\xfe", b"3", b'{"other": 1}', b"[3]", b"[[3]]"]
)
def test_invalid_documents(tmp_path: Path, format: str, text: bytes) -> None:
    (tmp_path / "t.json").write_bytes(text)
    log = read_log(tmp_path / "t.json", format=format)
    assert list(log) == []
    assert len(log.rejected) == 1


def test_a_document_of_the_other_format_is_rejected_with_its_format(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"resourceSpans": [resource("a", span(1, 1, 2))]}))
    assert "--format otlp" in read_log(path, format="zipkin").rejected[0].reason
    path.write_text(json.dumps([z(1, "a", 1, 2)]))
    assert "--format zipkin" in read_log(path, format="otlp").rejected[0].reason
    path.write_text(json.dumps({"traceId": TRACE, "id": "1"}))
    (one,) = read_log(path, format="otlp").rejected
    assert one.reason == "the document has no resourceSpans; is it in another --format?"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b'{"resourceSpans": [x]}', (1, 19)),
        (b'\n\n\n{"resourceSpans": [x]}', (4, 19)),
        (b'{\n "resourceSpans":\n  [x]\n}', (3, 3)),
        (b'\n\n {"resourceSpans": []}\n  {"resourceSpans": [x]}\n', (4, 21)),
    ],
)
def test_reported_byte_is_within_the_reported_line(
    tmp_path: Path, text: bytes, place: tuple[int, int]
) -> None:
    line, byte = place
    assert text.split(b"\n")[line - 1][byte : byte + 1] == b"x"
    (tmp_path / "t.json").write_bytes(text)
    (one,) = read_log(tmp_path / "t.json", format="otlp").rejected
    assert one.place.endswith(f"t.json:{line}")
    assert one.reason == f"the document is not JSON: invalid character (byte {byte})"


def test_empty_documents_have_no_rejections(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(b"")
    assert list(read_log(tmp_path / "t.json", format="otlp").records()) == []
    assert list(otlp(tmp_path / "u.json", {"resource": {}, "scopeSpans": []}).records()) == []


def test_options_that_do_not_apply_to_traces_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(b"[]")
    with pytest.raises(ketal.SettingError, match="zipkin"):
        read_log(tmp_path / "t.json", format="zipkin", nodes=["a"])
    with pytest.raises(ketal.SettingError, match="log_bytes_max"):
        list(read_log(tmp_path / "t.json", format="otlp", limits=ketal.Limits(log_bytes_max=1)))


# --- Zipkin ---------------------------------------------------------------------------


def z(number: int, service: str | None, begin: int, duration: int | None, **more: Any) -> Any:
    out = {"traceId": TRACE, "id": f"{number:016x}", "name": f"z{number}", "timestamp": begin}
    out |= {} if duration is None else {"duration": duration}
    out |= {} if service is None else {"localEndpoint": {"serviceName": service}}
    return out | more


def test_the_limit_of_events_counts_the_ends_that_spans_have(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"

    def read(spans: int, duration: int | None) -> int:
        path.write_text(json.dumps([z(number + 1, "s", 1, duration) for number in range(spans)]))
        return len(list(read_log(path, format="zipkin", limits=ketal.Limits(events_max=10))))

    assert (read(10, None), read(5, 1)) == (10, 10)
    with pytest.raises(SettingError, match=r"more than 10 events \(limit events_max\)"):
        read(6, 1)
    with pytest.raises(SettingError, match=r"more than 10 spans \(limit events_max\)"):
        read(11, None)


def test_span_that_begins_as_its_parent_ends_at_once_is_inside_it(tmp_path: Path) -> None:
    log = otlp(tmp_path / "o.json", resource("a", span(1, 2, 2), span(2, 2, 2, parent=1)))
    events = events_by_name(log)
    assert list(events) == ["s1 start", "s2 start", "s2 end", "s1 end"]
    assert not any("moved" in event.data for event in events.values())


@pytest.mark.parametrize("kind", [{"kind": "SERVER"}, {}])
def test_zipkin_shared_span_has_client_and_server_events(
    tmp_path: Path, kind: dict[str, str]
) -> None:
    log = zipkin(
        tmp_path / "z.json",
        z(1, "shop", 1_000, 900, kind="CLIENT"),
        z(1, "stock", 9_000, 500, **kind, shared=True, name="served", traceId=TRACE[16:]),
        z(2, "stock", 9_100, 100, parentId=f"{1:016x}"),
    )
    events = events_by_name(log)
    assert happened_before(events["z1 start"], events["served start"])
    assert happened_before(events["served end"], events["z1 end"])
    assert happened_before(events["served start"], events["z2 start"])
    assert events["z1 start"].time == 0.001


def test_zipkin_producer_is_before_its_consumer(tmp_path: Path) -> None:
    events = events_by_name(
        zipkin(
            tmp_path / "z.json",
            z(1, "a", 100, 1, kind="PRODUCER"),
            z(2, "b", 5, 50, kind="CONSUMER", parentId=f"{1:016x}"),
            z(3, None, 1, None),
        )
    )
    assert happened_before(events["z1 start"], events["z2 start"])
    assert concurrent(events["z1 end"], events["z2 end"])
    assert "z3 end" not in events


def test_zipkin_lines_and_lists_of_traces_are_read_alike(tmp_path: Path) -> None:
    spans = [z(1, "a", 1, 2), z(2, "b", 3, 4, parentId=f"{1:016x}")]
    plain = list(zipkin(tmp_path / "z.json", *spans))
    (tmp_path / "lines.json").write_text("".join(json.dumps(one) + "\n" for one in spans))
    assert list(read_log(tmp_path / "lines.json", format="zipkin")) == plain
    (tmp_path / "lists.json").write_text(json.dumps([[spans[0]], [spans[1]]]))
    assert list(read_log(tmp_path / "lists.json", format="zipkin")) == plain
    halves = [tmp_path / "1.json", tmp_path / "2.json"]
    for half, one in zip(halves, spans, strict=True):
        half.write_text(json.dumps([one]))
    assert list(read_log(*halves, format="zipkin")) == plain


def test_invalid_zipkin_spans_are_rejected(tmp_path: Path) -> None:
    log = zipkin(tmp_path / "z.json", {"traceId": TRACE, "id": "1"}, z(2, "a", 1, "long"), 3)  # type: ignore[arg-type]
    reasons = sorted(item.reason for item in log.rejected)
    wanted = ["duration", "no timestamp", "not an object"]
    assert all(what in reason for what, reason in zip(wanted, reasons, strict=True))
    assert list(log) == []


def test_single_side_of_a_shared_span_is_an_orphan(tmp_path: Path) -> None:
    """The client's span was not sampled, or is in another file."""
    served = z(1, "stock", 9_000, 500, kind="SERVER", shared=True)
    log = zipkin(tmp_path / "z.json", served, z(2, "stock", 9_100, 100, parentId=f"{1:016x}"))
    events = events_by_name(log)
    assert events["z1 start"].data["orphan"] is True
    assert happened_before(events["z1 start"], events["z2 start"])
    # A server's span with an id of its own and without a parent is a root.
    log = zipkin(tmp_path / "y.json", z(1, "stock", 9_000, 500, kind="SERVER"))
    assert events_by_name(log)["z1 start"].data["root"] is True


def test_old_servers_are_not_marked_as_shared(tmp_path: Path) -> None:
    log = zipkin(
        tmp_path / "z.json",
        z(1, "stock", 50, 5, kind="SERVER", name="served"),
        z(1, "shop", 1_000, 900, kind="CLIENT"),
    )
    events = events_by_name(log)
    assert happened_before(events["z1 start"], events["served start"])
    assert happened_before(events["served end"], events["z1 end"])


def test_children_of_a_shared_span_belong_to_their_own_service(tmp_path: Path) -> None:
    log = zipkin(
        tmp_path / "z.json",
        z(1, "shop", 1_000, 900, kind="CLIENT"),
        z(1, "stock", 9_000, 500, kind="SERVER", shared=True, name="served"),
        z(2, "stock", 9_100, 100, parentId=f"{1:016x}"),
        z(3, "shop", 1_100, 100, parentId=f"{1:016x}"),
        z(4, "other", 5, 1, parentId=f"{1:016x}"),
    )
    events = events_by_name(log)
    assert happened_before(events["served start"], events["z2 start"])
    assert concurrent(events["served start"], events["z3 start"])
    # A span of a third service is only ordered after the begin of the call.
    assert happened_before(events["z1 start"], events["z4 start"])
    assert concurrent(events["served start"], events["z4 start"])


def test_two_servers_of_one_call_are_distinct(tmp_path: Path) -> None:
    """A call to two hosts, whose spans both share the client's id."""
    log = zipkin(
        tmp_path / "z.json",
        z(1, "shop", 1_000, 900, kind="CLIENT"),
        z(1, "east", 9_000, 500, kind="SERVER", shared=True, name="first"),
        z(1, "west", 7_000, 500, kind="SERVER", shared=True, name="second"),
        z(2, "west", 7_100, 100, parentId=f"{1:016x}"),
    )
    events = events_by_name(log)
    assert not log.rejected
    assert happened_before(events["z1 start"], events["first start"])
    assert happened_before(events["second start"], events["z2 start"])
    assert concurrent(events["first start"], events["second start"])


def endpoint(service: str, address: str, port: int = 80) -> dict[str, Any]:
    return {"localEndpoint": {"serviceName": service, "ipv4": address, "port": port}}


def test_servers_of_a_service_at_several_addresses_are_distinct(tmp_path: Path) -> None:
    """A call to all instances of a service: five servers' spans with the client's id."""
    spans = [
        z(1, "stock", 9_000 + n, 500, kind="SERVER", shared=True, name=f"served{n}")
        | endpoint("stock", f"10.0.0.{n}")
        for n in range(1, 6)
    ]
    spans.insert(2, z(1, "shop", 1_000, 900, kind="CLIENT"))
    # By their node's clock these two began before all servers, so their order shows their causes.
    spans.append(z(2, "stock", 2, 1, parentId=f"{1:016x}") | endpoint("stock", "10.0.0.4"))
    spans.append(z(3, "stock", 1, 1, parentId=f"{1:016x}"))
    log = zipkin(tmp_path / "z.json", *spans)
    events = events_by_name(log)
    assert not log.rejected
    for n in range(1, 6):
        assert happened_before(events["z1 start"], events[f"served{n} start"])
        assert happened_before(events[f"served{n} end"], events["z1 end"])
    assert happened_before(events["served4 start"], events["z2 start"])
    assert happened_before(events["z2 start"], events["served5 start"])
    # The server that is the parent of the third span is unknown: it is only after the call's begin.
    assert happened_before(events["z1 start"], events["z3 start"])
    assert happened_before(events["z3 start"], events["served1 start"])


@pytest.mark.parametrize("address", [{}, {"ipv4": "10.0.0.2", "port": 80}])
def test_reports_of_a_server_some_without_its_address(
    tmp_path: Path, address: dict[str, Any]
) -> None:
    id = {"traceId": TRACE, "id": f"{1:016x}"}
    shared = {**id, "kind": "SERVER", "shared": True}
    pieces: list[dict[str, Any]] = [
        {**id, "tags": {"late": "yes"}, "localEndpoint": {"serviceName": "stock", **address}},
        {**shared, "duration": 500, "localEndpoint": {"serviceName": "stock"}},
        {**shared, "name": "served", "timestamp": 9_000} | endpoint("stock", "10.0.0.2"),
        z(1, "shop", 1_000, 900, kind="CLIENT") | endpoint("shop", "10.0.0.1"),
    ]
    log = zipkin(tmp_path / "z.json", *pieces)
    events = events_by_name(log)
    assert not log.rejected
    assert set(events) == {"z1 start", "z1 end", "served start", "served end"}
    assert events["served end"].data["attributes"] == {"late": "yes"}


def test_sides_without_a_service_are_two_processes(tmp_path: Path) -> None:
    log = zipkin(
        tmp_path / "z.json",
        z(1, None, 1_000, 900, kind="CLIENT"),
        z(1, None, 1, 500, kind="SERVER", shared=True, name="served"),
    )
    events = events_by_name(log)
    assert events["z1 start"].node == f"unknown_service/{1:016x}"
    assert events["served start"].node == f"unknown_service/{1:016x}/server"
    assert not any("moved" in event.data for event in events.values())
    assert happened_before(events["served end"], events["z1 end"])


def test_a_span_reported_in_parts(tmp_path: Path) -> None:
    """A span reported in parts: its start, its end, and later tags without a time."""
    id = {"traceId": TRACE, "id": f"{1:016x}"}
    pieces: list[dict[str, Any]] = [
        {**id, "tags": {"late": "yes"}},
        {**id, "kind": "CLIENT", "timestamp": 100, "localEndpoint": {"serviceName": "shop"}},
        {**id, "kind": "CLIENT", "duration": 50, "name": "get", "tags": {"code": "200"}},
    ]
    log = zipkin(tmp_path / "z.json", *pieces)
    events = events_by_name(log)
    assert not log.rejected
    assert set(events) == {"get start", "get end"}
    assert events["get end"].node == "shop"
    assert events["get end"].time == 0.00015
    assert events["get end"].data["attributes"] == {"code": "200", "late": "yes"}
    # Neither the order of the reports nor their files matter.
    files = [tmp_path / f"{number}.json" for number in range(3)]
    for file, piece in zip(files, reversed(pieces), strict=True):
        file.write_text(json.dumps(piece))
    assert list(read_log(*files, format="zipkin")) == list(log)


def test_late_tags_belong_to_the_side_of_their_service(tmp_path: Path) -> None:
    late = {"traceId": TRACE, "id": f"{1:016x}", "tags": {"late": "yes"}}
    log = zipkin(
        tmp_path / "z.json",
        {**late, "localEndpoint": {"serviceName": "stock"}},
        z(1, "shop", 1_000, 900, kind="CLIENT"),
        z(1, "stock", 9_000, 500, kind="SERVER", shared=True, name="served"),
    )
    events = events_by_name(log)
    assert events["served start"].data["attributes"] == {"late": "yes"}
    assert "attributes" not in events["z1 start"].data


def test_reports_that_contradict_each_other(tmp_path: Path) -> None:
    one = z(1, "a", 100, 50, tags={"code": "200"})
    others: list[dict[str, Any]] = [
        {"timestamp": 101}, {"name": "other"}, {"tags": {"code": "500"}}, {"parentId": "7"},
    ]  # fmt: skip
    for other in others[:3]:
        log = zipkin(tmp_path / "z.json", one, {**one, **other})
        assert ["other content" in item.reason for item in log.rejected] == [True]
        assert len(list(log)) == 2
    log = zipkin(tmp_path / "z.json", {**one, "parentId": "8"}, {**one, **others[3]})
    assert len(log.rejected) == 1
    log = zipkin(tmp_path / "z.json", one, one, one)
    assert ketal.audit(log).statistics.duplicates == 4


def test_absent_times(tmp_path: Path) -> None:
    """A timestamp or duration of zero is absent; a span without an end has one event."""
    log = zipkin(tmp_path / "z.json", z(1, "a", 0, 50), z(2, "a", 100, 0), z(3, "a", 99, None))
    assert set(events_by_name(log)) == {"z2 start", "z3 start"}
    assert ["no timestamp" in item.reason for item in log.rejected] == [True]
    wrongs: list[dict[str, Any]] = [
        {"timestamp": -5}, {"timestamp": "soon"}, {"duration": True}, {"timestamp": 1e30},
    ]  # fmt: skip
    for wrong in wrongs:
        log = zipkin(tmp_path / "z.json", {**z(1, "a", 1, 1), **wrong})
        assert ["not a time in microseconds" in item.reason for item in log.rejected] == [True]
    far = zipkin(tmp_path / "z.json", z(1, "a", 2 * 10**17, 10**17))
    assert ["year 9999" in item.reason for item in far.rejected] == [True]


def test_zipkin_roots_skew_and_ignored_fields(tmp_path: Path) -> None:
    other = "ab" * 8
    log = zipkin(
        tmp_path / "z.json",
        z(1, "a", 10_000, 100, debug=True, annotations=[{"timestamp": 5, "value": "x"}]),
        z(2, "b", 1, 1, parentId=f"{1:016x}", remoteEndpoint={"serviceName": "a"}),
        z(3, "a", 20_000, 1, traceId=other, kind="NEW"),
        z(4, "b", 2, 1, traceId=other, parentId=f"{8:016x}"),
    )
    events = events_by_name(log)
    assert not log.rejected
    assert happened_before(events["z1 start"], events["z2 start"])
    assert {e.type for e in events.values() if e.data.get("root")} == {"z1", "z3"}
    assert {e.type for e in events.values() if e.data.get("orphan")} == {"z4"}


def test_trace_ids_of_64_and_128_bits_are_matched(tmp_path: Path) -> None:
    log = zipkin(
        tmp_path / "z.json",
        z(1, "a", 5, 5),
        z(2, "b", 1, 1, parentId="1", traceId=TRACE[16:].upper(), id="2"),
        z(3, "c", 1, 1, parentId="1", traceId="ffffffffffffffff" + TRACE[16:]),
    )
    events = events_by_name(log)
    assert happened_before(events["z1 start"], events["z2 start"])
    assert happened_before(events["z1 start"], events["z3 start"])
    wrong = zipkin(tmp_path / "w.json", z(1, "a", 5, 5, id="1" * 17), z(2, "a", 5, 5, traceId="x"))
    assert ["not a hex id" in item.reason for item in wrong.rejected] == [True, True]


def test_zipkin_span_of_a_wrong_shape_is_rejected(tmp_path: Path) -> None:
    one = {"traceId": "1", "id": "1", "timestamp": 5}
    log = zipkin(tmp_path / "z.json", one | {"tags": ["x"]}, one | {"localEndpoint": "shop"}, one)
    assert [rejected.reason for rejected in log.rejected] == [
        "tags must be an object, not an array",
        "localEndpoint must be an object, not a string",
    ]
    assert [event.type for event in log] == ["unnamed"]


@pytest.mark.parametrize("name", ["", None, 7])
def test_span_without_a_name_is_an_event_of_the_type_unnamed(tmp_path: Path, name: Any) -> None:
    named = otlp(tmp_path / "o.json", resource("a", span(1, 1, None, name=name)))
    assert {event.type for event in named} == {"unnamed"}
    jaeger = {"traceID": "1", "spanID": "1", "startTime": 5, "duration": 1, "operationName": name}
    trace = {"data": [{"spans": [{**jaeger, "process": {"serviceName": "a"}}]}]}
    (tmp_path / "j.json").write_text(json.dumps(trace))
    assert {e.type for e in read_log(tmp_path / "j.json", format="jaeger")} == {"unnamed"}
