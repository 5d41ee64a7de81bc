"""Poison messages and messages that are too large, in either engine.

Each becomes a rejection in the dead-letter topic that names its place and reason, the events around
it are matched as if it were not there, and every message is in one count.
"""

from __future__ import annotations

import json
import random
import re
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

import ketal
from ketal.errors import SettingError
from ketal.logs.source import Source
from ketal.model.limits import DEFAULT
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Target
from ketal.streaming.job.messages import MessageReader
from ketal.streaming.kafka import process_engine
from ketal.streaming.spark import spark_engine
from tests.streaming.jobs import (
    END,
    FORKS,
    HookRecorder,
    Topic,
    accept,
    committed,
    expected,
    job_of,
    run,
)

PARTITIONS = 2
LARGE_BYTES = 4_000_000
ENGINES = {"process": process_engine.ProcessEngine, "spark": spark_engine.SparkEngine}


def event(clock: bytes = b'{"a": 1}', hash: bytes = b"a") -> bytes:
    data = b'{"height": 1, "hash": "%s"}' % hash
    return b'{"node": "a", "type": "accept", "clock": %s, "data": %s}' % (clock, data)


def nested(depth: int) -> bytes:
    data = b'{"height": 1, "hash": "a", "x": %s%s}' % (b"[" * depth, b"]" * depth)
    return b'{"node": "a", "type": "accept", "clock": {"a": 1}, "data": %s}' % data


POISON: list[tuple[bytes | None, str]] = [
    (random.Random(1).randbytes(200), "not valid UTF-8"),
    (event(hash=b"\xff"), "not valid UTF-8"),
    (None, "the message has no value (a tombstone)"),
    (b"", "the message is not JSON: it is empty"),
    ("\ufeff".encode() + event(), "the message is not JSON: it begins with a byte order mark"),
    (b"\0" * 20, "the message is not JSON"),
    (event()[:-2], "the message is not JSON: the object is incomplete"),
    (event() + event(), f"the message is not JSON: trailing characters (byte {len(event()) + 1})"),
    (event(clock=b"NaN"), "NaN is not a JSON value (write null instead)"),
    (nested(100_000), "the record is nested too deeply"),
    (nested(201), "data is nested more than 200 levels deep"),
    (b'{"node": "a", "type": "accept"}', "the record has no clock"),
    (event(clock=b'"soon"'), "the clock 'soon' is neither"),
    (event(clock=b'{"b": 1}'), "clock: the node's own entry 'a' is missing"),
    (event(clock=b'{"a": 0}'), "clock: the node's own entry 'a' is zero"),
    (event(clock=b'{"a": -1}'), "clock: the entry for 'a' is negative"),
    (event(clock=b'{"a": 1.5}'), "clock: the entry for 'a' must be an integer"),
    (event(clock=b'{"a": 99999999999999999999}'), "clock: the entry for 'a' is too large"),
    (b'{"type": "ketal.none"}', "ketal.none is not a control event"),
    (b'{"type": "ketal.watermark", "time": "soon"}', "time 'soon' is neither RFC 3339"),
    (
        event(hash=b"x" * DEFAULT.line_bytes_max),
        f"more than {DEFAULT.line_bytes_max} (limit line_bytes_max)",
    ),
]
"""(message, part of the reason for its rejection)."""


@pytest.fixture
def large(broker: Broker) -> str:
    """Create a topic that accepts larger messages than the job does; return its name."""
    name = f"topic-{uuid.uuid4().hex[:12]}"
    configs = {"max.message.bytes": str(LARGE_BYTES)}
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics(
            {name: {"num_partitions": PARTITIONS, "configs": configs}}, wait_for_metadata=True
        )
    return name


def placed(broker: Broker, topic: str, values: list[bytes | None]) -> Iterator[tuple[str, int]]:
    """Send values round-robin to the partitions; yield the place of each and its index."""
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, acks="all", max_request_size=LARGE_BYTES
    )
    with closing(producer):
        sent = [
            producer.send(topic, value, key=b"k", partition=index % PARTITIONS)
            for index, value in enumerate(values)
        ]
        for index, future in enumerate(sent):
            at = future.get(timeout=30)
            yield f"{at.topic}/{at.partition}/{at.offset}", index


def check(name: str, broker: Broker, source: str, topic: Topic, folder: Path) -> None:
    """Run an engine on a topic where one message in three is poison, and one is too large."""
    program, sink, dead = ketal.compile(FORKS), topic(), topic()
    near = event(hash=b"y" * (DEFAULT.line_bytes_max - 200))
    good = [near, accept("b", 1)]
    good += [accept(node, h, h) for h in range(2, len(POISON) + 1) for node in "ab"]
    mixed: list[bytes | None] = []
    for (poison, _), *pair in zip(POISON, good[::2], good[1::2], strict=True):
        mixed += [poison, *pair]
    place_of = dict(placed(broker, source, [*mixed, END, END]))
    recorder = HookRecorder()
    job = job_of(
        broker, [source], folder, engine=name, key_groups=2, trigger_ms=100,
        verdicts=Target("kafka", sink), rejected=Target("kafka", dead),
    )  # fmt: skip
    engine: Any = ENGINES[name](job, program, recorder.hooks())
    engine.run()

    rejected = committed(broker, dead, least=len(POISON))
    assert {v["verdict"] for v in rejected} == {"rejected"}
    reasons = {place_of[v["place"]]: v["reason"] for v in rejected}
    assert len(reasons) == len(rejected) == len(POISON)
    for number, (_, reason) in enumerate(POISON):
        assert re.search(re.escape(reason), reasons[3 * number]), reasons[3 * number]
    wanted = sorted(v["id"] for v in expected(program, good, folder))
    assert len(wanted) == len(POISON)
    assert sorted(v["id"] for v in committed(broker, sink, least=len(wanted))) == wanted
    assert engine.summary["events"] == {
        "read": 3 * len(POISON), "accepted": 2 * len(POISON), "duplicates": 0,
        "rejected": len(POISON), "late": 0, "held_back": 0, "overflow": 0,
    }  # fmt: skip
    assert engine.summary["kafka"] == {"messages": len(mixed) + 2, "control": 2}


def test_process_engine_rejects_poison_and_matches_the_rest(
    broker: Broker, large: str, topic: Topic, tmp_path: Path
) -> None:
    check("process", broker, large, topic, tmp_path)


@pytest.mark.parametrize(
    ("value", "source", "reason"),
    [
        (b'{"type": "t", "clock": {"a": 1}}', Source(), "the record has no node"),
        (b'{"node": "a", "clock": {"a": 1}, "y": 1}', Source(), "no type; its other keys are y"),
        (
            b'{"node": "a", "type": "t", "x": 1}',
            Source(),
            'has no clock (set `clock` of `fields` to its path, or `clock = "none"` of the source '
            "if the messages have no clocks); its other keys are x",
        ),
        (
            b'{"node": "a", "type": "t", "clock": [1]}',
            Source(),
            "entries with `nodes` of the source",
        ),
        (
            b'{"node": "a", "type": "t", "clock": [1, 2]}',
            Source(nodes=("a",)),
            "has 2 entries, but `nodes` of the source names 1 node",
        ),
        (
            b'{"node": "a", "type": "t", "clock": {"a": 1}}',
            Source(nodes=("a",)),
            "itself; `nodes` of the source applies only to positional clocks",
        ),
        (
            b'{"node": "a", "type": "t", "clock": {"a": 1}, "time": "5/27/2013"}',
            Source(),
            "since the epoch (set `time_format` of the source to the format of times)",
        ),
        (
            b'{"node": "a", "type": "t", "clock": {"a": 1}, "time": "27/5/2013"}',
            Source(time_format="%m/%d/%Y"),
            "time '27/5/2013' does not match the time format '%m/%d/%Y'",
        ),
    ],
)
def test_rejection_of_a_message_names_no_command_line_flag(
    value: bytes, source: Source, reason: str
) -> None:
    """A streaming job and `detect` have no flags for fields and nodes."""
    record = SimpleNamespace(topic="t", partition=0, offset=0, key=None, headers=[], value=value)
    (item,) = MessageReader(source, DEFAULT).items([value], [record].__getitem__)
    assert isinstance(item, Rejected)
    assert reason in item.reason
    assert "--" not in item.reason


def test_clock_is_read_from_a_dotted_version_vector_in_a_message() -> None:
    value = b'{"node": "a", "type": "t", "clock": {"dot": ["a", 2], "past": {"a": 1, "b": 3}}}'
    record = SimpleNamespace(topic="t", partition=0, offset=0, key=None, headers=[], value=value)
    (item,) = MessageReader(Source(clock="dvv"), DEFAULT).items([value], [record].__getitem__)
    assert isinstance(item, ketal.Event)
    assert item.clock == {"a": 2, "b": 3}


def test_rejection_has_the_key_of_its_message_unless_it_is_too_large(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """A large key arrives compressed, but would be too large to send uncompressed."""
    source, dead = topic(), topic()
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, max_request_size=LARGE_BYTES,
        compression_type="gzip",
    )  # fmt: skip
    with closing(producer):
        for key in (b"k", b"k" * 3_000_000, b"k" * (DEFAULT.message_bytes_max - 10)):
            producer.send(source, b"x", key=key).get(timeout=30)
    job = job_of(broker, [source], tmp_path, until_end=True, rejected=Target("kafka", dead))
    run(job, ketal.compile(FORKS))
    given = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 30_000}
    servers = broker.bootstrap_servers
    with closing(KafkaConsumer(dead, bootstrap_servers=servers, **given)) as consumer:
        found = [next(consumer) for _ in range(3)]
    assert [one.key for one in found] == [b"k", None, None]
    assert [json.loads(one.value)["place"] for one in found] == [
        f"{source}/0/{n}" for n in range(3)
    ]


@pytest.mark.usefixtures("spark")
def test_spark_engine_rejects_poison_and_matches_the_rest(
    broker: Broker, large: str, topic: Topic, tmp_path: Path
) -> None:
    check("spark", broker, large, topic, tmp_path)


class _Latin1(str):
    """Text that a producer encodes as Latin-1, as clients in C may."""

    def encode(self, *_: Any) -> bytes:
        return super().encode("latin-1")


def test_message_with_a_header_name_that_is_not_utf8_ends_the_job(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """The client can read neither it nor the messages after it in its batch."""
    source = topic()
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap_servers)) as producer:
        for name in ("näme", _Latin1("näme")):
            producer.send(source, event(), headers=[(name, b"1")]).get(timeout=30)
    job = job_of(broker, [source], tmp_path, until_end=True)
    with pytest.raises(SettingError, match=rf"^{source}/0/1: .* name b'n\\xe4me' is not valid UTF"):
        run(job, ketal.compile(FORKS))
