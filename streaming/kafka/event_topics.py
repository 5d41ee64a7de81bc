"""Kafka clients for a topic of events that tracers write, for programs without their own clients.

The one rule: every event that was sent is with the broker once the producer is closed.
"""

from __future__ import annotations

from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer


def make_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Make a topic, and wait until it exists."""
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        admin.create_topics({topic: {"num_partitions": partitions}}, wait_for_metadata=True)


def make_producer(bootstrap_servers: str) -> Any:
    """Return a producer for `KafkaSink`."""
    return KafkaProducer(bootstrap_servers=bootstrap_servers, acks="all")


def make_consumer(bootstrap_servers: str, topic: str) -> Any:
    """Return a consumer for `TopicCollector`, which reads a topic from its beginning."""
    return KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        group_id=None,
    )
