"""Spans as events: OTLP and Zipkin samples, and the odd corners of both formats."""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import ketal
from ketal.event import Event, concurrent, happened_before
from ketal.logs import Log, read_log

TRACE = "0af7651916cd43dd8448eb211c80319c"


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


def named(log: Log) -> dict[str, Event]:
    """Return the events by `name phase`; every log is a valid execution in a right order."""
    audit = ketal.audit(log)
    assert audit.clean, str(audit)
    assert audit.statistics.inversions == 0
    return {f"{e.type} {e.data['phase']}": e for e in log}


CALL = (
    resource("shop", span(1, 1, 9, kind=2), span(2, 2, 8, 1, kind=3)),
    resource("stock", span(3, 103, 104, 2, kind="SPAN_KIND_SERVER")),
)
"""A request that calls another service, whose clock is ahead by more than the call took."""


def test_a_call_and_its_reply(tmp_path: Path) -> None:
    events = named(otlp(tmp_path / "t.json", *CALL))
    order = ["s1 start", "s2 start", "s3 start", "s3 end", "s2 end", "s1 end"]
    for first, second in pairwise(order):
        assert happened_before(events[first], events[second])
    assert events["s3 end"].clock == {"shop": 2, "stock": 2}
    assert events["s3 end"].time == 104
    assert events["s3 start"].data == {
        "phase": "start", "trace": TRACE, "span": f"{3:016x}", "parent": f"{2:016x}",
        "kind": "server",
    }  # fmt: skip


def test_forms_of_a_document(tmp_path: Path) -> None:
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


def test_ids_in_base64_and_times_as_numbers(tmp_path: Path) -> None:
    one = span(1, 1, 2)
    other = {
        **one,
        "traceId": base64.b64encode(bytes.fromhex(TRACE)).decode(),
        "spanId": base64.b64encode(bytes.fromhex(one["spanId"])).decode(),
        "startTimeUnixNano": 1_000_000_000,
    }
    same = list(otlp(tmp_path / "a.json", resource("a", one)))
    assert list(otlp(tmp_path / "b.json", resource("a", other))) == same


def test_a_missing_parent_and_several_roots(tmp_path: Path) -> None:
    events = named(
        otlp(tmp_path / "t.json", resource("a", span(1, 1, 2, 77)), resource("b", span(2, 1, 2)))
    )
    assert events["s1 start"].data["orphan"] is True
    assert events["s2 start"].data["root"] is True
    assert concurrent(events["s1 start"], events["s2 end"])


def test_a_clock_that_contradicts_the_causes(tmp_path: Path) -> None:
    """The child of a call to another service and back begins before the call, by the clock."""
    events = named(
        otlp(
            tmp_path / "t.json",
            resource("a", span(1, 10, 20), span(3, 1, 2, 2)),
            resource("b", span(2, 5, 6, 1)),
        )
    )
    assert happened_before(events["s1 start"], events["s3 start"])
    assert events["s1 start"].data["moved"] is True


def test_an_end_before_its_start(tmp_path: Path) -> None:
    events = named(otlp(tmp_path / "t.json", resource("a", span(1, 5, 4))))
    assert happened_before(events["s1 start"], events["s1 end"])
    assert events["s1 end"].time == 4


def test_a_client_that_did_not_wait(tmp_path: Path) -> None:
    server = resource("b", span(2, 1, 50, 1, kind=2))
    events = named(otlp(tmp_path / "t.json", resource("a", span(1, 1, 3, kind=3)), server))
    assert concurrent(events["s1 end"], events["s2 end"])
    failed = span(1, 1, 99, kind=3, status={"code": 2})
    events = named(otlp(tmp_path / "u.json", resource("a", failed), server))
    assert concurrent(events["s1 end"], events["s2 end"])
    assert events["s1 end"].data["failed"] is True


def test_links(tmp_path: Path) -> None:
    link = {"traceId": TRACE, "spanId": f"{1:016x}"}
    log = otlp(
        tmp_path / "t.json",
        resource("a", span(1, 1, 2, kind=4)),
        resource("b", span(2, 1, 2, kind=5, links=[link])),
    )
    events = named(log)
    assert happened_before(events["s1 start"], events["s2 start"])
    assert concurrent(events["s1 end"], events["s2 start"])


def test_links_that_close_a_round(tmp_path: Path) -> None:
    def link(number: int) -> dict[str, str]:
        return {"traceId": TRACE, "spanId": f"{number:016x}"}

    log = otlp(
        tmp_path / "t.json",
        resource("a", span(1, 1, 2, links=[link(2)])),
        resource("b", span(2, 1, 2, links=[link(1)])),
    )
    assert len(named(log)) == 4
    assert not log.rejected


def test_duplicates_and_contradictions(tmp_path: Path) -> None:
    one = span(1, 1, 2)
    log = otlp(tmp_path / "t.json", resource("a", one, one, {**one, "name": "other"}))
    assert ketal.audit(log).statistics.duplicates == 2
    assert ["other content" in item.reason for item in log.rejected] == [True]


def test_spans_that_are_their_own_ancestors(tmp_path: Path) -> None:
    log = otlp(
        tmp_path / "t.json",
        resource("a", span(1, 1, 2, 2), span(2, 1, 2, 1), span(3, 1, 2, 1), span(4, 1, 2, 4)),
    )
    assert set(named(log)) == {"s3 start", "s3 end"}
    assert len(log.rejected) == 3
    assert all("its own ancestor" in item.reason for item in log.rejected)


def test_spans_of_no_service_and_instances(tmp_path: Path) -> None:
    log = otlp(
        tmp_path / "t.json",
        resource(None, span(1, 1, 2), span(2, 3, 4)),
        resource("a", span(3, 1, 2), service_instance_id="x"),
        resource("a", span(4, 3, 4), service_instance_id="y"),
    )
    events = named(log)
    assert concurrent(events["s1 end"], events["s2 start"])
    assert concurrent(events["s3 end"], events["s4 start"])
    assert {e.node for e in events.values()} == {
        f"unknown_service/{1:016x}", f"unknown_service/{2:016x}", "a/x", "a/y",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"startTimeUnixNano": "0"}, "no startTimeUnixNano"),
        ({"startTimeUnixNano": "soon"}, "no time in nanoseconds"),
        ({"spanId": ""}, "no spanId"),
        ({"traceId": "0" * 32}, "no traceId"),
        ({"spanId": "xyz"}, "neither 16 hex digits nor base64"),
        ({"spanId": 7}, "must be a string"),
    ],
)
def test_spans_that_cannot_be_read(tmp_path: Path, wrong: dict[str, Any], reason: str) -> None:
    log = otlp(tmp_path / "t.json", resource("a", {**span(1, 1, 2), **wrong}, span(2, 1, 2)))
    assert [reason in item.reason for item in log.rejected] == [True]
    assert len(list(log)) == 2


@pytest.mark.parametrize("format", ["otlp", "zipkin"])
@pytest.mark.parametrize(
    "text", [b"{", b"nonsense", b"[1, 2", b"\xff\xfe", b"3", b'{"other": 1}', b"[3]", b"[[3]]"]
)
def test_documents_that_are_none(tmp_path: Path, format: str, text: bytes) -> None:
    (tmp_path / "t.json").write_bytes(text)
    log = read_log(tmp_path / "t.json", format=format)
    assert list(log) == []
    assert len(log.rejected) == 1


def test_nothing_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(b"")
    assert list(read_log(tmp_path / "t.json", format="otlp").records()) == []
    assert list(otlp(tmp_path / "u.json", {"resource": {}, "scopeSpans": []}).records()) == []


def test_options_that_a_trace_does_not_take(tmp_path: Path) -> None:
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


def test_a_shared_span(tmp_path: Path) -> None:
    log = zipkin(
        tmp_path / "z.json",
        z(1, "shop", 1_000, 900, kind="CLIENT"),
        z(1, "stock", 9_000, 500, kind="SERVER", shared=True, name="served", traceId=TRACE[16:]),
        z(2, "stock", 9_100, 100, parentId=f"{1:016x}"),
    )
    events = named(log)
    assert happened_before(events["z1 start"], events["served start"])
    assert happened_before(events["served end"], events["z1 end"])
    assert happened_before(events["served start"], events["z2 start"])
    assert events["z1 start"].time == 0.001


def test_producers_and_consumers(tmp_path: Path) -> None:
    events = named(
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


def test_zipkin_spans_a_line_and_lists_of_traces(tmp_path: Path) -> None:
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


def test_zipkin_spans_without_a_place(tmp_path: Path) -> None:
    log = zipkin(tmp_path / "z.json", {"traceId": TRACE, "id": "1"}, z(2, "a", 1, "long"), 3)  # type: ignore[arg-type]
    assert ["timestamp" in log.rejected[0].reason, "duration" in log.rejected[1].reason] == [
        True, True,
    ]  # fmt: skip
    assert len(log.rejected) == 3
