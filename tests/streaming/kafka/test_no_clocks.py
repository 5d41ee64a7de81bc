"""Topics whose messages have no clocks, `clock = "none"`: an event is its partition and offset."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaProducer

import ketal
from ketal.cli import main
from ketal.errors import SettingError
from ketal.logs.source import Source
from ketal.model.limits import DEFAULT
from ketal.runtime.execution import Execution
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Target
from ketal.streaming.job.messages import MessageReader
from tests.streaming.jobs import Topic, committed, job_of, produce, run, written

SOURCE = Source(clock="none", fields={"type": "event", "time": "ts"})
UNPAID = """
pattern Unpaid {
    partition by order;
    event Placed = type == "placed"; event Paid = type == "paid"; event Shipped = type == "shipped";
    find next Placed not Paid Shipped;
    within 5 s;
}
"""
PARTITIONS = 3


def _record(value: bytes, partition: int, offset: int) -> SimpleNamespace:
    return SimpleNamespace(
        topic="t", partition=partition, offset=offset, key=None, headers=[], value=value
    )


def _events(*places: tuple[int, int]) -> list[Any]:
    value = b'{"event": "placed", "node": "web1", "clock": "soon", "receives": 7}'
    records = [_record(value, *place) for place in places]
    return MessageReader(SOURCE, DEFAULT).items([value] * len(places), records.__getitem__)


def test_an_event_is_its_partition_and_the_offset_from_one() -> None:
    first, second = _events((0, 0), (2, 41))
    assert [(str(one), one.clock) for one in (first, second)] == [
        ("t/0@1 placed", {"t/0": 1}),
        ("t/2@42 placed", {"t/2": 42}),
    ]
    assert first.data["node"] == "web1", "what the message calls its node is an attribute"


def test_a_message_that_is_read_again_is_a_duplicate() -> None:
    program = ketal.compile('pattern P { event A = type == "placed"; find next A; }')
    execution = Execution(program.for_undecided_clocks("none"), limits=DEFAULT)
    items = _events((0, 0), (1, 0), (0, 1), (0, 0), (1, 0), (0, 1))
    found = [v for _, part in execution.process(items, str) for v in part]
    assert [v.to_dict()["events"] for v in found] == [["t/0@1"], ["t/1@1"], ["t/0@2"]]
    assert execution.counts.tally.duplicates == 3


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ({"fields": {"node": "host"}}, "the node of a message is its partition: remove node from"),
        ({"fields": {"clock": "vc"}}, "the field clock requires clocks, but clock is none"),
    ],
)
def test_fields_that_the_place_determines_are_refused(source: Any, error: str) -> None:
    with pytest.raises(SettingError, match=error):
        MessageReader(Source(clock="none", **source), DEFAULT)


def test_a_pattern_that_needs_clocks_ends_the_job_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.ketal").write_text(UNPAID.replace("find", "order CausalOrder; find"))
    text = 'pattern = "p.ketal"\n[source]\ntopics = ["t"]\nclock = "none"\n'
    (tmp_path / "job.toml").write_text(text)
    assert main(["stream", "--config", str(tmp_path / "job.toml"), "--dry-run"]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert "error[K306]: a log without clocks does not determine happened-before, which" in err


def _orders(count: int) -> list[tuple[int, dict[str, Any]]]:
    """Return messages of orders, each of which is in one partition, with that partition."""
    chance = random.Random(38)
    out, time = [], 1_780_000_000.0
    for number in range(count):
        time += chance.random() * 0.4
        partition = number % PARTITIONS
        kind = chance.choice(["placed", "paid", "shipped", "viewed"])
        order = f"{partition}-{number // (6 * PARTITIONS)}"
        out.append((partition, {"event": kind, "order": order, "ts": round(time, 3)}))
    return out


def _reckoned(orders: list[tuple[int, dict[str, Any]]], topic: str) -> set[tuple[str, str]]:
    """Return the matches of `UNPAID`, without ketal."""
    offsets = [0] * PARTITIONS
    by_order: dict[str, list[tuple[float, str, str]]] = {}
    for partition, fields in orders:
        offsets[partition] += 1
        dot = f"{topic}/{partition}@{offsets[partition]}"
        by_order.setdefault(fields["order"], []).append((fields["ts"], fields["event"], dot))
    out = set()
    for events in by_order.values():
        for number, (placed, kind, dot) in enumerate(events):
            later = [one for one in events[number + 1 :] if one[1] in ("paid", "shipped")]
            if kind == "placed" and later and later[0][1] == "shipped" and later[0][0] < placed + 5:
                out.add((dot, later[0][2]))
    return out


def test_a_job_that_is_resumed_gives_the_matches_of_each_partition(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Half of the messages are read before the job is stopped, and half afterwards."""
    source, sink, orders = topic(PARTITIONS), topic(), _orders(240)
    messages = [(source, number, json.dumps(fields).encode()) for number, fields in orders]
    job = job_of(
        broker, [source], tmp_path, source=SOURCE, verdicts=Target("kafka", sink), until_end=True
    )
    program = ketal.compile(UNPAID)
    expected = _reckoned(orders, source)
    assert len(expected) >= 8
    for half in (messages[:119], messages[119:], []):
        produce(broker, half)
        engine = run(job, program)
    assert engine.summary is not None
    assert engine.summary["events"]["accepted"] == 240
    found = [tuple(v["events"]) for v in committed(broker, sink, least=len(expected))]
    assert (len(found), set(found)) == (len(expected), expected)
    # A job that reads everything at once gives the same verdicts, with the same ids.
    again = replace(
        job, group_id=f"{job.group_id}-2", store=Target("dir", str(tmp_path / "other")),
        verdicts=Target("file", str(tmp_path / "verdicts.jsonl")),
    )  # fmt: skip
    run(again, program)
    ids = {v["id"] for v in written(tmp_path / "verdicts.jsonl") if v["verdict"] == "match"}
    assert ids == {v["id"] for v in committed(broker, sink)}


def test_offsets_that_are_no_messages_are_not_holes(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """A transaction ends with a marker, which has an offset of its own."""
    source = topic()
    with KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=f"tx-{source}"
    ) as producer:
        producer.init_transactions()
        for kind in (b"placed", b"shipped"):
            producer.begin_transaction()
            producer.send(source, b'{"event": "%s", "order": 1, "ts": 1}' % kind)
            producer.commit_transaction()
    engine = run(
        job_of(broker, [source], tmp_path, source=SOURCE, until_end=True), ketal.compile(UNPAID)
    )
    (match,) = written(tmp_path / "verdicts.jsonl")
    assert match["events"] == [f"{source}/0@1", f"{source}/0@3"]
    assert engine.summary is not None
    assert engine.summary["holes"] == 0


def test_a_job_whose_messages_were_all_rejected_does_not_succeed(
    broker: Broker, topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its messages have no clocks, and the job file does not say so."""
    source, pattern = topic(), tmp_path / "unpaid.ketal"
    pattern.write_text(UNPAID)
    produce(broker, [(source, 0, b'{"type": "paid", "node": "a"}')] * 2)
    code = main(
        ["stream", str(pattern), "-b", broker.bootstrap_servers, "--input", source,
         "--state", f"dir:{tmp_path / 'state'}", "--group-id", source, "--until-end"]
    )  # fmt: skip
    out, err = capsys.readouterr()
    assert code == 2
    assert '`clock = "none"` of the source if the messages have no clocks' in out
    assert "no event was read: all 2 records were rejected" in err
