"""The promise of `keyed_by` is checked on Spark too: a scope in two key groups ends the job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaProducer

import ketal
from ketal.errors import SettingError, StateError
from ketal.logs import Source
from ketal.streaming.broker.server import Broker
from ketal.streaming.spark import detect
from ketal.streaming.spark.families import families, group_limits, row_placements
from ketal.streaming.spark.group import Group, Work
from ketal.streaming.spark.rows.keyed import KeyGroupCheck
from ketal.streaming.spark.rows.row_reader import ALONE, SAMPLE, RowShape
from tests.streaming.jobs import FORKS, Topic, accept, written
from tests.streaming.spark.frames import data_frame
from tests.streaming.spark.test_detect import collected_verdicts
from tests.streaming.spark.test_engine import run, spark_job

PLAIN = ("copy", "topic", "partition", "offset", "value")
"""The columns of a row whose fields are all in its value."""

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KAFKA = "key binary, value binary, topic string, partition int, offset bigint"
KEYED = Source(keyed_by="height")


def table(spark: SparkSession, messages: Sequence[tuple[bytes, bytes]]) -> DataFrame:
    rows = [(key, v, "t", 0, n) for n, (key, v) in enumerate(messages)]
    return data_frame(spark, rows, KAFKA)


@pytest.mark.filterwarnings("ignore:.*key.group:UserWarning")
def test_value_under_two_message_keys_is_an_error_in_a_table(spark: SparkSession) -> None:
    """A key may have any encoding, and a message that is not an event may have any key."""
    program = ketal.compile(FORKS)
    right = [(b"k%d" % h, accept(node, h, h)) for h in range(1, 13) for node in "ab"]
    right += [(b"elsewhere", b'{"data": {"height": 1}}'), (b"elsewhere", b"poison")]
    beside = ketal.compile(FORKS + FORKS.replace("Forks", "Other").replace("by height", "by node"))
    for one in (program, beside):
        found = collected_verdicts(detect(one, table(spark, right), source=KEYED))
        assert sorted(v["verdict"] for v in found) == ["match"] * 12 + ["rejected"] * 2

    wrong = [(node.encode(), accept(node, h, h)) for h in (7, 8) for node in "abcdef"]
    twice = r"t/0/\d+: height = [78] has another key than at t/0/\d+.*not keyed by height"
    for one in (program, beside):
        with pytest.raises(Exception, match=twice):
            collected_verdicts(detect(one, table(spark, wrong), source=KEYED))
    # Without `keyed_by` the value itself is hashed.
    assert len(collected_verdicts(detect(program, table(spark, wrong)))) == 2 * 15


def test_value_under_two_message_keys_ends_a_job(
    spark: SparkSession, broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Also if the first key was read before a restart of the job."""
    source, program = topic(2), ketal.compile(FORKS)
    job = spark_job(broker, [source], tmp_path, key_groups=16, source=KEYED)

    def produce(number: int, key: bytes, *values: bytes) -> None:
        with closing(KafkaProducer(bootstrap_servers=broker.bootstrap_servers)) as producer:
            for value in values:
                producer.send(source, value, key=key, partition=number).get(timeout=30)

    produce(0, b"1", accept("a"), accept("b"))
    run(job, program)
    produce(1, b"one", accept("c"))
    with pytest.raises(SettingError, match=rf"{source}/1/0: height = 1 .* at {source}/0/\d, so"):
        run(job, program)
    assert len(written(tmp_path / "verdicts.jsonl")) == 1


def work(source: Source, key_groups: int = 4) -> Work:
    found = families(ketal.compile(FORKS), key_groups)
    return Work(
        families=found, limits=ketal.Limits(), shape=RowShape(PLAIN, (), source),
        partitions=1, timed=False, figures=False, counts=False,
        placements=row_placements(found, source),
    )  # fmt: skip


def test_latest_key_values_are_remembered() -> None:
    places = KeyGroupCheck("height", 2)
    # The first and the third are one double, and no two values are one.
    values = (10**18, 10**18, 10**18 + 1, 10**400)
    for offset, value in enumerate(values):
        places.check(value, offset // 2, f"t/0/{offset}")
    places.check(None, 9, "t/0/9")
    assert [json.loads(value) for _, value, _, _ in places.state()] == [10**18 + 1, 10**400]
    places.check(10**18, 7, "t/0/9")
    again = KeyGroupCheck("height", 2, places.state())
    with pytest.raises(SettingError, match=r"t/1/1: height = 1e\+18 has .* at t/0/9"):
        again.check(1e18, 1, "t/1/1")
    limits = ketal.Limits(placed_max=32)
    assert group_limits(limits, 16) == replace(
        limits, placed_max=2, dots_max=limits.dots_max // 16, counters_max=limits.counters_max // 16
    )


def test_group_remembers_key_values_without_counting_their_rows() -> None:
    at = work(KEYED)
    group = Group(at, 0, None)
    given = [
        (SAMPLE, "t", 0, 5, b"1:" + accept("a", 1, 17)),
        (ALONE, "t", 0, 6, accept("a")),
        (SAMPLE, "t", 0, 7, b"2:" + accept("a", 2, 18)),
        # A message that is not an event, or whose value is text, may have any key.
        (SAMPLE, "t", 0, 8, b'3:{"height": 18}'),
        (SAMPLE, "t", 0, 9, b"3:" + accept("a", data={"height": "18"})),
    ]
    assert list(group.process(given)) == []
    assert (group.messages, group.execution.counts.tally.accepted) == (1, 1)
    group = Group(at, 0, group.state())
    with pytest.raises(SettingError, match="t/1/9: height = 18 has another key than at t/0/7"):
        list(group.process([(SAMPLE, "t", 1, 9, b"0:" + accept("b", 1, 18))]))


def test_checkpoint_of_another_keying_is_refused() -> None:
    """`detect` has no job folder that records the keying."""
    state = Group(work(KEYED), 0, None).state()
    for source, groups, now in (
        (Source(), 4, r"4 key groups by data.height or height \(hashing \d+\)"),
        (KEYED, 8, r"8 key groups by the messages' key \(hashing \d+\)"),
        (KEYED, 1, "one key group"),
    ):
        with pytest.raises(
            StateError, match=f"4 key groups by the messages' key.*would now be in {now}"
        ):
            Group(work(source, groups), 0, state)
