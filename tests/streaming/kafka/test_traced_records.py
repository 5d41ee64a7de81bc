"""Kafka records that carry clocks, and a program that gets its peers' events through Kafka."""

from __future__ import annotations

import time
import uuid
from typing import Any

import ketal
from ketal.streaming.broker.server import Broker
from ketal.streaming.kafka.event_topics import make_consumer, make_producer, make_topic
from ketal.trace import KafkaSink, TopicCollector, Tracer, kafka_headers

CONFLICT = """
pattern Conflict {
    order CausalOrder;
    event Write = type == "write";
    First = Write; Second = Conc(Write) && key == First.key;
    find any First Second;
}
"""


def test_monitor_in_a_program_gets_its_peers_events_through_kafka(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    events, orders = (f"{name}-{uuid.uuid4()}" for name in ("events", "orders"))
    for topic in (events, orders):
        make_topic(servers, topic, partitions=1)
    found: list[str] = []
    monitor = ketal.Monitor(
        ketal.compile(CONFLICT), on={"match": lambda match: found.append(str(match))}
    )
    producer, consumer = make_producer(servers), make_consumer(servers, orders)
    with TopicCollector(make_consumer(servers, events), monitor) as collector:
        sink = KafkaSink(producer, events)
        shop, till = Tracer("shop", sink), Tracer("till", sink, monitor=collector)
        shop.record("write", key="x")
        producer.send(orders, b"x", headers=[("own", b"1"), *kafka_headers(shop.send("order"))])
        record = _next(consumer)
        till.receive(record.headers, "ordered")
        till.record("write", key="x")
        assert found == []  # The shop's first write is before it.
        shop.record("write", key="x")
        producer.flush()
        assert collector.wait(5, timeout_s=30)
    producer.close()
    consumer.close()
    monitor.close()
    assert record.headers[0] == ("own", b"1")
    assert found == ["match Conflict: First=shop@3, Second=till@2"]
    counts: Any = monitor.summary["events"]
    assert (counts["accepted"], counts["duplicates"]) == (5, 2)
    assert not shop.failures + till.failures


def _next(consumer: Any) -> Any:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=200).values():
            return records[0]
    raise AssertionError("no record came")
