"""The broker of the tests is real: messages, transactions, and data that survives kill -9."""

from __future__ import annotations

from contextlib import closing

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from ketal.streaming.broker.server import Broker
from ketal.streaming.kafka.connecting import clients
from tests.sampling import in_long
from tests.streaming.conftest import make_topic
from tests.streaming.jobs import PATIENCE_POLLS, POLL_MS, Topic, consume, produce

HUNDRED = [f"message {n}".encode() for n in range(100)]


def test_partition_delivers_messages_in_order(broker: Broker, topic: Topic) -> None:
    name = topic()
    produce(broker, [(name, 0, value) for value in HUNDRED])
    assert consume(broker, name) == HUNDRED


def test_messages_are_distributed_over_partitions(broker: Broker, topic: Topic) -> None:
    name = topic(partitions=4)
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap_servers)) as producer:
        for number, value in enumerate(HUNDRED):
            producer.send(name, value, key=str(number % 7).encode())
        producer.flush()
    assert sorted(consume(broker, name)) == sorted(HUNDRED)


def test_transaction_is_visible_as_a_whole_or_not_at_all(broker: Broker, topic: Topic) -> None:
    """Consumed offsets and produced messages are committed together."""
    source, sink = topic(), topic()
    produce(broker, [(source, 0, value) for value in HUNDRED])
    consumer = KafkaConsumer(
        source,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=f"{sink}-group",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        # Otherwise offsets are returned before their transaction has ended, and may be stale.
        isolation_level="read_committed",
    )
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        transactional_id=f"{sink}-0",
        transaction_timeout_ms=10_000,
    )
    part = TopicPartition(source, 0)
    with closing(consumer), closing(producer):
        producer.init_transactions()
        seen: list[bytes] = []
        for _ in range(PATIENCE_POLLS):
            if len(seen) == len(HUNDRED):
                break
            for records in consumer.poll(timeout_ms=POLL_MS).values():
                seen += [record.value for record in records]

        producer.begin_transaction()
        producer.send(sink, b"never to be seen")
        producer.flush()
        producer.abort_transaction()

        producer.begin_transaction()
        for value in seen:
            producer.send(sink, value.upper())
        offset = {part: OffsetAndMetadata(len(seen), "all of them", -1)}
        producer.send_offsets_to_transaction(offset, consumer.group_metadata())
        assert consume(broker, sink, isolation_level="read_committed") == []
        producer.commit_transaction()
        assert consumer.committed(part, metadata=True).metadata == "all of them"

    committed = consume(broker, sink, least=100, isolation_level="read_committed")
    assert committed == [value.upper() for value in HUNDRED]
    uncommitted = consume(broker, sink, isolation_level="read_uncommitted")
    assert uncommitted == [b"never to be seen", *committed]


def test_offsets_are_asked_for_until_the_leaders_of_all_partitions_are_known(
    broker: Broker, topic: Topic
) -> None:
    partitions = [TopicPartition(topic(), 0) for _ in range(2)]
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)) as consumer:
        consumer.end_offsets(partitions[:1])  # It knows one topic now.
        offsets = clients.partition_offsets(consumer.end_offsets, partitions, 60_000)
    assert offsets == dict.fromkeys(partitions, 0)


@in_long
def test_kill_9_of_the_broker_loses_no_acknowledged_message(mortal_broker: Broker) -> None:
    """The restarted broker has the same address."""
    address = mortal_broker.bootstrap_servers
    name = make_topic(mortal_broker)
    with closing(KafkaProducer(bootstrap_servers=address, acks="all")) as producer:
        for value in HUNDRED:
            producer.send(name, value).get(timeout=30)
        mortal_broker.kill()
        assert mortal_broker.running() is None
        running = mortal_broker.restart()
        assert running.bootstrap_servers == address
        # A producer that was connected before goes on.
        producer.send(name, b"after").get(timeout=60)
    assert consume(mortal_broker, name) == [*HUNDRED, b"after"]
