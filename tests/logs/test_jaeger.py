"""Jaeger's JSON: the same spans as in OTLP give the same events; corner cases of the format."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from ketal.errors import SettingError
from ketal.logs import Log, read_log
from ketal.logs.traces.span_fields import KINDS
from tests.sampling import drawn

TRACE = "0af7651916cd43dd8448eb211c80319c"
OTHER_TRACE = "1" * 32


def reference(number: int, type: str = "CHILD_OF", trace: str = TRACE) -> dict[str, str]:
    return {"refType": type, "traceID": trace, "spanID": f"{number:016x}"}


def span(number: int, begin: int, duration: int, *references: Any, **more: Any) -> dict[str, Any]:
    return {
        "traceID": TRACE,
        "spanID": f"{number:016x}",
        "operationName": f"s{number}",
        "references": list(references),
        "startTime": begin,
        "duration": duration,
        "processID": "p1",
        **more,
    }


def jaeger(path: Path, *spans: dict[str, Any], **processes: Any) -> Log:
    processes = processes or {"p1": {"serviceName": "shop"}}
    trace = {"traceID": TRACE, "spans": list(spans), "processes": processes}
    path.write_text(json.dumps({"data": [trace], "errors": None}, indent=1))
    return read_log(path, format="jaeger")


def test_spans_give_the_same_events_as_in_otlp(tmp_path: Path) -> None:
    @drawn(20, 500)
    def holds(rng: random.Random) -> None:
        jaeger_spans: list[Any] = []
        exports: list[Any] = []
        number = 0
        for service, (attributes, _) in SERVICES.items():
            otlp_spans: list[Any] = []
            for _ in range(rng.randrange(8)):
                number += 1
                one, other = span_in_both_formats(rng, number)
                jaeger_spans.append({**one, "processID": service})
                otlp_spans.append(other)
            exports.append({
                "resource": {"attributes": [otlp_text(*pair) for pair in attributes.items()]},
                "scopeSpans": [{"spans": otlp_spans}],
            })  # fmt: skip
        processes = {key: process for key, (_, process) in SERVICES.items()}
        log = jaeger(tmp_path / "j.json", *jaeger_spans, **processes)
        (tmp_path / "o.json").write_text(json.dumps({"resourceSpans": exports}))
        otlp = read_log(tmp_path / "o.json", format="otlp")
        assert list(log) == list(otlp)
        assert [one.reason for one in log.rejected] == [one.reason for one in otlp.rejected]


SERVICES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "p1": (
        {"service.name": "shop", "service.instance.id": "7"},
        {"serviceName": "shop", "tags": [{"key": "service.instance.id", "value": "7"}]},
    ),
    "p2": (
        {"service.name": "stock", "service.namespace": "eu"},
        {"serviceName": "stock", "tags": [{"key": "service.namespace", "value": "eu"}]},
    ),
    "p3": ({"service.name": "bank"}, {"serviceName": "bank"}),
}
"""Services with their attributes in OTLP and their processes in Jaeger."""


def otlp_text(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def span_in_both_formats(rng: random.Random, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    trace = rng.choice([TRACE, OTHER_TRACE])
    begin, duration = rng.randrange(1, 50), rng.randrange(10)
    parent = rng.choice([0, rng.randrange(1, 20)])
    # Without a parent in its own trace, the first reference to this trace would be the parent.
    links = rng.sample(range(1, 20), rng.choice([0, 0, 1, 2])) if parent or trace == TRACE else []
    kind, failed, size = rng.randrange(len(KINDS)), rng.random() < 0.2, rng.randrange(2**62)
    tags: list[Any] = [{"key": "size", "type": "int64", "value": rng.choice([size, str(size)])}]
    attributes: list[Any] = [{"key": "size", "value": {"intValue": str(size)}}]
    if KINDS[kind]:
        tags.append({"key": "span.kind", "type": "string", "value": KINDS[kind]})
        attributes.append(otlp_text("span.kind", KINDS[kind]))
    if failed:
        tags.append({"key": "error", "type": "bool", "value": True})
        attributes.append({"key": "error", "value": {"boolValue": True}})
    references = [reference(link, "FOLLOWS_FROM", OTHER_TRACE) for link in links]
    if parent:
        references.insert(rng.randrange(len(links) + 1), reference(parent, trace=trace))
    return span(number, begin, duration, *references, traceID=trace, tags=tags), {
        "traceId": trace,
        "spanId": f"{number:016x}",
        "parentSpanId": f"{parent:016x}",
        "name": f"s{number}",
        "kind": kind,
        "startTimeUnixNano": str(begin * 1_000),
        "endTimeUnixNano": str((begin + duration) * 1_000),
        "links": [{"traceId": OTHER_TRACE, "spanId": f"{link:016x}"} for link in links],
        "attributes": attributes,
        "status": {"code": 2 if failed else 0},
    }


def test_parent_is_the_first_child_of_reference_of_the_trace(tmp_path: Path) -> None:
    elsewhere = reference(9, trace=OTHER_TRACE)
    events = {
        event.type: event.data
        for event in jaeger(
            tmp_path / "j.json",
            span(1, 1, 9),
            span(2, 2, 1, reference(1, "FOLLOWS_FROM")),
            span(3, 3, 1, elsewhere, reference(2, "FOLLOWS_FROM"), reference(1)),
            span(4, 4, 1, elsewhere),
            span(5, 5, 1, parentSpanID="3"),
            # Without a trace, a reference is to the span's own; without a span, to none.
            span(6, 6, 1, {"refType": "CHILD_OF", "spanID": "3"}),
            span(7, 7, 1, {"refType": "CHILD_OF", "traceID": TRACE}, parentSpanID=f"{2:016x}"),
        )
    }
    parents = {name: data.get("parent", "")[-1:] for name, data in events.items()}
    assert parents == {
        "s1": "", "s2": "1", "s3": "1", "s4": "", "s5": "3", "s6": "3", "s7": "2",
    }  # fmt: skip
    assert {name: data["lost_links"] for name, data in events.items() if "lost_links" in data} == {
        "s3": 1,
        "s4": 1,
        "s7": 1,
    }


def test_spans_of_the_storage_name_their_own_process(tmp_path: Path) -> None:
    trace = jaeger(tmp_path / "j.json", span(1, 1, 9), span(2, 2, 1, reference(1)))
    lines = [
        {**one, "process": {"serviceName": "shop", "tags": []}, "processID": None}
        for one in (span(1, 1, 9), span(2, 2, 1, reference(1)))
    ]
    hits = [{"_index": "jaeger-span-2026-11-30", "_source": line} for line in lines]
    for stored_lines in (lines, hits):
        (tmp_path / "e.json").write_text("".join(json.dumps(line) + "\n" for line in stored_lines))
        stored = read_log(tmp_path / "e.json", format="jaeger")
        assert list(stored) == list(trace)
        assert {record[3] for record in stored.records()} == {1, 2}
        with pytest.raises(SettingError, match="--format jaeger"):
            list(read_log(tmp_path / "e.json"))
    (tmp_path / "s.json").write_text(json.dumps({"hits": {"total": 2, "hits": hits}}, indent=1))
    assert list(read_log(tmp_path / "s.json", format="jaeger")) == list(trace)


def test_tags_of_the_storage_are_texts_with_a_type_or_fields(tmp_path: Path) -> None:
    texts = [
        ("code", "int64", "200"),
        ("ok", "bool", "true"),
        ("rate", "float64", "0.5"),
        ("who", "string", "7"),
        ("odd", "bool", "maybe"),
        ("nan", "float64", "NaN"),
        ("deep", "string", "[" * 5_000),
        ("depth", "int64", "[" * 5_000),
    ]
    tags = [{"key": key, "type": kind, "value": value} for key, kind, value in texts]
    one = span(1, 1, 1, tags=tags, tag={"http@status_code": 404, "span@kind": "server"})
    process = {"serviceName": "shop", "tags": [], "tag": {"service@instance@id": "7"}}
    log = list(jaeger(tmp_path / "j.json", one, p1=process))
    assert {event.node for event in log} == {"shop/7"}
    assert log[0].data["kind"] == "server"
    assert log[0].data["attributes"] == {
        "http.status_code": 404, "span.kind": "server",
        "code": 200, "ok": True, "rate": 0.5, "who": "7", "odd": "maybe", "nan": "NaN",
        "deep": "[" * 5_000, "depth": "[" * 5_000,
    }  # fmt: skip


def test_only_the_values_true_of_the_error_tag_are_failures(tmp_path: Path) -> None:
    values = [True, "true", False, "false", "", None]
    for kind in ("bool", "string"):
        tags = [[{"key": "error", "type": kind, "value": value}] for value in values]
        spans = [span(number, number, 1, tags=tag) for number, tag in enumerate(tags, 1)]
        events = list(jaeger(tmp_path / "j.json", *spans))
        assert {event.type for event in events if "failed" in event.data} == {"s1", "s2"}


def test_traces_in_an_array_are_read_as_those_of_a_document(tmp_path: Path) -> None:
    expected = list(jaeger(tmp_path / "j.json", span(1, 1, 9), span(2, 2, 1, reference(1))))
    (trace,) = json.loads((tmp_path / "j.json").read_text())["data"]
    for text in (json.dumps([trace]), f"\n {json.dumps([trace])}", json.dumps(trace)):
        (tmp_path / "a.json").write_text(text)
        assert list(read_log(tmp_path / "a.json", format="jaeger")) == expected


def test_times_may_be_whole_floats_up_to_the_year_9999(tmp_path: Path) -> None:
    last = 253_402_300_799_000_000
    spans = [{**span(1, 1, 1), "startTime": 2.0, "duration": 3.0}, span(2, last, 1)]
    log = jaeger(tmp_path / "j.json", *spans)
    times = [event.time for event in log]
    assert log.rejected == []
    assert times == [0.000002, 0.000005, last / 10**6, (last + 1) / 10**6]


def test_ids_without_leading_zeros_are_the_same_ids(tmp_path: Path) -> None:
    short = span(1, 1, 9, traceID="a1", spanID="1")
    child = span(2, 2, 1, reference(1, trace=f"{0xA1:032x}"), traceID=f"{0xA1:032x}")
    (start, *_) = jaeger(tmp_path / "j.json", child, short)
    assert start.data["root"]
    assert start.data["trace"] == f"{0xA1:032x}"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"spanID": ""}, "no spanID"),
        ({"traceID": "0"}, "no traceID"),
        ({"spanID": "xyz"}, "is not a hex id"),
        ({"spanID": "1" * 17}, "is not a hex id"),
        ({"startTime": 0}, "no startTime, so it cannot be ordered"),
        ({"startTime": "yesterday"}, "is not a time in microseconds"),
        ({"startTime": "x" * 61}, f"startTime {'x' * 60!r} is not a time in microseconds"),
        ({"startTime": 1.5}, "startTime '1.5' is not a time in microseconds"),
        ({"startTime": True}, "startTime 'True' is not a time in microseconds"),
        ({"startTime": -1}, "startTime '-1' is not a time in microseconds"),
        ({"startTime": 253_402_300_800_000_000}, "is not a time in microseconds"),
        ({"startTime": 253_402_300_799_999_999}, "ends after the year 9999"),
        ({"spanID": "z" * 61}, f"spanID {'z' * 60!r} is not a hex id"),
        ({"spanID": 7}, "spanID '7' is not a hex id"),
        ({"duration": 10**18}, "is not a time in microseconds"),
        ({"duration": 253_402_300_799_999_999}, "ends after the year 9999"),
        ({"processID": "p2"}, "the process 'p2' of the span is not in processes"),
        ({"processID": ["p1"]}, "of the span is not in processes"),
        ({"references": {}}, "references must be an array, not an object"),
        ({"references": [1]}, "a reference must be an object"),
        ({"tags": [{"value": 1}]}, "a tag has no key"),
        ({"tags": {}}, "tags must be an array, not an object"),
        ({"tags": [1]}, "a tag must be an object, not a number"),
        ({"tag": [1]}, "tag must be an object, not an array"),
        ({"processID": "p" * 61}, f"the process {'p' * 60!r} of the span"),
    ],
)
def test_unreadable_spans_are_rejected(tmp_path: Path, wrong: dict[str, Any], reason: str) -> None:
    log = jaeger(tmp_path / "j.json", {**span(1, 1, 2), **wrong}, span(2, 1, 2))
    assert len(list(log)) == 2
    (rejected,) = log.rejected
    assert reason in rejected.reason
    text = (tmp_path / "j.json").read_text().split("\n")
    assert text[int(rejected.place.rpartition(":")[2]) - 1].strip() == "{"


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"data": [{"traceID": TRACE, "processes": {}}]}, "the document has no spans"),
        ({"data": [{"spans": [], "processes": [1]}]}, "processes must be an object, not an array"),
        ({"data": [{"spans": [], "processes": {"p1": 1}}]}, "a process must be an object"),
        ({"data": [3]}, "the trace cannot be read"),
        ({"data": 3}, "data cannot be read"),
        (
            {"data": None, "errors": [{"code": 404, "msg": "trace not found"}]},
            "Jaeger reports an error: trace not found",
        ),
        ({"data": None, "errors": [404]}, "an error must be an object, not a number"),
        ({"data": None, "errors": {}}, "errors must be an array, not an object"),
    ],
)
def test_unreadable_traces_are_rejected(tmp_path: Path, document: Any, reason: str) -> None:
    (tmp_path / "j.json").write_text(json.dumps(document))
    log = read_log(tmp_path / "j.json", format="jaeger")
    assert list(log) == []
    (rejected,) = log.rejected
    assert reason in rejected.reason


def test_span_without_process_is_a_node_by_itself(tmp_path: Path) -> None:
    (start, _) = jaeger(tmp_path / "j.json", span(1, 1, 2, processID=None))
    assert start.node == f"unknown_service/{1:016x}"


IDS = {"traceID": "1", "spanID": "2", "operationName": "get"}
"""The keys of Jaeger's spans, as attributes of something else."""


@pytest.mark.parametrize(
    ("format", "document"),
    [
        (
            "zipkin",
            [{"traceId": TRACE, "id": "1", "timestamp": 1, "duration": 2, "tags": IDS}],
        ),
        (
            "otlp",
            {
                "schemaUrl": "",
                "resourceSpans": [
                    {
                        "scopeSpans": [
                            {
                                "spans": [
                                    {
                                        "traceId": TRACE,
                                        "spanId": "1" * 16,
                                        "startTimeUnixNano": "1",
                                        "endTimeUnixNano": "2",
                                        "attributes": [otlp_text(*pair) for pair in IDS.items()],
                                    }
                                ]
                            }
                        ]
                    }
                ],
            },
        ),
    ],
)
def test_spans_with_attributes_named_like_fields_of_jaeger_are_read(
    tmp_path: Path, format: str, document: Any
) -> None:
    (tmp_path / "t.json").write_text(json.dumps(document))
    log = read_log(tmp_path / "t.json", format=format)
    assert len(list(log)) == 2
    assert not log.rejected


def test_events_with_ids_of_a_trace_are_no_trace(tmp_path: Path) -> None:
    event = {"host": "a", "traceID": "1", "spanID": "2"}
    (tmp_path / "e.jsonl").write_text(json.dumps(event) + "\n")
    log = read_log(tmp_path / "e.jsonl")
    assert list(log) == []
    (rejected,) = log.rejected
    assert "the record has no" in rejected.reason
