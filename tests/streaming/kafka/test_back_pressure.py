"""Back-pressure: no event is given up because a partition was read ahead of others."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer, TopicPartition

import ketal
from ketal.model.limits import Limits
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Job, Target
from ketal.streaming.job.outputs import Outputs
from ketal.streaming.kafka.connecting.clients import (
    make_consumer,
    make_producer,
    return_parked_records,
)
from ketal.streaming.kafka.job_session import Session
from ketal.streaming.kafka.process_engine import ProcessEngine, new_session
from tests.streaming.conftest import make_topic
from tests.streaming.jobs import END, HookRecorder, Message, Topic, job_of, produce, run

PATTERN = """
pattern Steps {{ order {order}; partition by key; event Step = type == "step"; check Step*; }}
"""
ORDERS = (
    "CausalOrder",
    'CausalOrder(total, nodes = ["n0", "n1", "n2", "n3"])',
    "CausalOrder(frontier = 1 s)",
)
ROUNDS = 600
LIMITS = Limits(held_back_max=400)
RESTARTS = 20
READ_S = 60
"""How long a test waits for messages."""


def _step(clock: dict[str, int], time_s: int) -> bytes:
    """Return an event of the last node of a clock."""
    own = {"node": [*clock][-1], "type": "step", "clock": clock, "time": time_s}
    return json.dumps({**own, "data": {"key": "x"}}).encode()


def _rounds(places: Sequence[tuple[str, int]]) -> Iterator[Message]:
    """Yield an event of each node in every round, which knows all events of the round before.

    The events of each node are in a partition of their own.
    """
    nodes = {f"n{number}": place for number, place in enumerate(places)}
    for counter in range(1, ROUNDS + 1):
        for node, (topic, partition) in nodes.items():
            known = {other: counter - 1 for other in nodes if other != node and counter > 1}
            yield topic, partition, _step({**known, node: counter}, counter)
    for topic, partition in places:
        yield topic, partition, END


def _counts(job: Job, order: str) -> dict[str, int]:
    engine = run(job, ketal.compile(PATTERN.format(order=order)))
    assert engine.summary is not None
    events: dict[str, int] = engine.summary["events"]
    return {name: count for name, count in events.items() if count}


def _job(broker: Broker, topics: Sequence[str], folder: Path, **options: Any) -> Job:
    # On a busy machine a test's own transaction may be open for longer than ten seconds.
    properties = {"max_poll_records": 50, "transaction_timeout_ms": 2_000 * READ_S}
    return job_of(broker, topics, folder, limits=LIMITS, properties=properties, **options)


@pytest.mark.parametrize("order", ORDERS)
def test_partitions_that_are_read_ahead_wait_for_the_others(
    order: str, broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Of `max_poll_records` of one partition after another, far more would have to wait."""
    name = topic(partitions=4)
    produce(broker, _rounds([(name, number) for number in range(4)]))
    counts = _counts(_job(broker, [name], tmp_path, lateness_ms=0), order)
    assert counts == {"read": 4 * ROUNDS, "accepted": 4 * ROUNDS}


def test_node_may_have_events_in_several_partitions(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Its events go to one partition after another, each of which has some that wait."""
    name = topic(partitions=4)
    steps = [(name, n // 200 % 4, _step({"n0": n + 1}, n)) for n in range(4 * ROUNDS)]
    produce(broker, [*steps, *((name, number, END) for number in range(4))])
    counts = _counts(_job(broker, [name], tmp_path, lateness_ms=0), ORDERS[0])
    assert counts == {"read": 4 * ROUNDS, "accepted": 4 * ROUNDS}


def test_partitions_that_are_read_ahead_wait_after_a_restart(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Of each start a poll of every partition that is ahead would be too many."""
    name = topic(partitions=4)
    produce(broker, _rounds([(name, number) for number in range(4)]))
    job = _job(broker, [name], tmp_path, lateness_ms=0)
    program = ketal.compile(PATTERN.format(order=ORDERS[0]))
    for _ in range(RESTARTS):
        engine = ProcessEngine(job, program, HookRecorder().hooks())
        with (
            closing(Outputs(job, engine.hooks)) as outputs,
            closing(new_session(engine, outputs)) as session,
        ):
            session.begin()
            _read(session, 1)
            session.commit()
    assert _counts(job, ORDERS[0]) == {"read": 4 * ROUNDS, "accepted": 4 * ROUNDS}


def test_partitions_of_a_part_wait_for_each_other(broker: Broker, tmp_path: Path) -> None:
    """With `keyed_by`, a part has a partition of each topic."""
    topics = [make_topic(broker) for _ in range(4)]
    produce(broker, _rounds([(name, 0) for name in topics]))
    source = ketal.logs.Source(keyed_by="key")
    store = Target("kafka", make_topic(broker, policy="compact"))
    job = _job(broker, topics, tmp_path, lateness_ms=0, source=source, store=store)
    assert job.is_shared
    assert _counts(job, ORDERS[2]) == {"read": 4 * ROUNDS, "accepted": 4 * ROUNDS}


@contextmanager
def _transaction_that_others_wait_for(
    broker: Broker, name: str, waiting: int, folder: Path
) -> Iterator[tuple[Session, KafkaProducer]]:
    """Yield a session, and the producer of an open transaction with a message in partition 0.

    This message cannot be read yet, and all messages of partition 1 wait for it.
    """
    job = _job(broker, [name], folder)
    program = ketal.compile(PATTERN.format(order=ORDERS[0]))
    engine = ProcessEngine(job, program, HookRecorder().hooks())
    with (
        closing(make_producer(job, f"test-{name}")) as producer,
        closing(new_session(engine, Outputs(job, engine.hooks))) as session,
    ):
        producer.begin_transaction()
        producer.send(name, _step({"n0": 1}, 0), partition=0).get(READ_S)
        produce(broker, [(name, 1, _step({"n0": 1, "n1": n + 1}, 0)) for n in range(waiting)])
        session.begin()
        yield session, producer


def test_partitions_are_read_on_while_the_others_have_an_open_transaction(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    name, waiting = topic(partitions=2), LIMITS.held_back_max
    with _transaction_that_others_wait_for(broker, name, waiting, tmp_path) as (session, producer):
        _read(session, waiting)
        producer.commit_transaction()
        _read(session, waiting + 1)
        tally = session.parts[0].execution.counts.tally
    assert (tally.accepted, tally.held_back) == (waiting + 1, 0)


def test_partition_is_read_on_while_one_has_an_open_transaction_and_another_new_messages(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """That the other returns messages does not mean that the first has any to read."""
    name, waiting = topic(partitions=3), LIMITS.held_back_max
    with _transaction_that_others_wait_for(broker, name, waiting, tmp_path) as (session, producer):
        (part,) = session.parts
        counter, deadline_s = 0, time.monotonic() + READ_S
        while part.positions[TopicPartition(name, 1)] < waiting:
            assert time.monotonic() < deadline_s
            counter += 1
            produce(broker, [(name, 2, _step({"n2": counter}, 0))])
            session._consume()
        producer.commit_transaction()
        _read(session, waiting + 1 + counter)
        tally = part.execution.counts.tally
    assert (tally.accepted, tally.held_back) == (waiting + 1 + counter, 0)


def test_resumed_partition_takes_turns_with_those_that_are_read(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Of each partition the client fetches some messages while it returns those of another."""
    name = topic(partitions=3)
    partitions = [TopicPartition(name, number) for number in range(3)]
    produce(broker, [(name, n % 3, b"%d" % (n // 3)) for n in range(3 * ROUNDS)])
    job = job_of(broker, [name], tmp_path, properties={"max_partition_fetch_bytes": 4_000})
    with closing(make_consumer(job, of_group=False)) as consumer:
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        read: dict[TopicPartition, list[int]] = {partition: [] for partition in partitions}
        current, count = None, 0
        while all(len(values) < ROUNDS for values in read.values()):
            batches = consumer.poll(timeout_ms=1_000, max_records=20)
            for partition, records in batches.items():
                read[partition] += [int(record.value) for record in records]
            if current is not None:
                consumer.resume(current)
            elif batches:
                current = [*batches][-1]
                count = len(read[current])
                consumer.pause(current)
            return_parked_records(consumer)
            time.sleep(0.01)  # The client fetches meanwhile.
    assert current is not None
    assert len(read[current]) > count
    assert all(values == [*range(len(values))] for values in read.values())


def _read(session: Session, messages: int) -> None:
    deadline_s = time.monotonic() + READ_S
    while session.engine.consumed < messages:
        assert time.monotonic() < deadline_s
        session._consume()


def test_partition_is_read_on_once_no_other_has_messages(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Its events wait for a lost one: what finds no room is given up, and all messages are read."""
    name, waiting = topic(partitions=2), LIMITS.held_back_max + 100
    lost = [(name, 0, _step({"lost": 1, "n0": n + 1}, 0)) for n in range(waiting)]
    others = [(name, 1, _step({"n1": n + 1}, 0)) for n in range(ROUNDS)]
    produce(broker, [*lost, *others])
    counts = _counts(_job(broker, [name], tmp_path, until_end=True), ORDERS[0])
    given_up = waiting - LIMITS.held_back_max
    assert counts == {
        "read": waiting + ROUNDS,
        "accepted": ROUNDS,
        "held_back": waiting - given_up,
        "overflow": given_up,
    }
