"""Kafka's clients, and the workarounds that a job needs (kafka-python 3.0.12).

kafka-python has eleven defects, each with a workaround here or in `group_session`:

1. `send_offsets_to_transaction` and `commit_transaction` have no timeout and hang for ever when the
   broker dies inside a transaction: `call_with_deadline` bounds every such call.
2. A producer that was fenced requests a new epoch after some errors, and thereby aborts the
   transaction of its successor: `make_producer` makes those errors fatal.
3. A producer cannot be used again after a failure: it is discarded with all state.
4. Listeners of a consumer run on its own thread: `group_session` makes that safe.
5. A consumer that rejoins its group, because its leader saw other metadata, stops joining if `poll`
   returns meanwhile, and is never assigned a partition: `keep_joining` makes it continue.
6. `group_metadata` changes at any time. Once heartbeats find that the group has removed the
   consumer, it is that of no member, generation -1, and offsets that are sent with it are not
   fenced: `group_session` commits with the metadata that it recorded with the assignment.
7. The setting `allow_auto_create_topics` is not applied to requests for metadata, so that a client
   makes a deleted topic again if the broker allows that: `make_no_topics` applies it.
8. A leader of a group that has the metadata of its topics only after it joined takes them for a
   change, and all members join again: `group_session` subscribes before it requests metadata.
9. What was fetched of a partition that was paused and resumed may never be returned, and keeps the
   rest from being fetched: `return_parked_records`.
10. A request for offsets fails if the leaders of some partitions are known, and not those of all:
   `partition_offsets` repeats it.
11. A consumer that is asked for its position waits while a partition has no leader, as long as a
   broker is away: `position` does not wait.

The one rule: no client makes a topic, and none is used again once it has failed.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka import errors as faults
from kafka.admin import ConfigResource
from kafka.cluster import collect_hosts
from kafka.coordinator.assignors.range import RangePartitionAssignor

from ketal.errors import SettingError
from ketal.streaming.job.file import Job
from ketal.streaming.kafka.connecting.client_calls import CLIENT_ERRORS, SLICE_S
from ketal.streaming.kafka.connecting.properties import refused_as_settings
from ketal.streaming.kafka.connecting.tokens import Tokens

TESTED_VERSION = "3.0.12"
TRANSACTION_TIMEOUT_MS = 10_000
CLOSE_TIMEOUT_S = 2
CONNECT_TIMEOUT_S = 1.0
POLL_RECORDS_MAX = 4_000
RECONNECT_MS_MAX = 2_000
"""The longest pause between two attempts to connect; the default would become 30 s."""
FETCH_WAIT_MS = 50
"""How long a fetch of partitions without new messages lasts.

A partition whose fetched messages have been read must wait for the end of such a fetch from the
same broker; with Kafka's 500 ms a topic with a quiet partition is read at 2 MB/s.
"""
METADATA_AGE_MS = 30_000
"""How often a client asks for metadata; the topics are compared as often
(`job_session.PARTITIONS_S`)."""


def client_properties(job: Job, client: Any) -> dict[str, Any]:
    """Return those properties of the job that a client class of kafka-python has."""
    given = {k: v for k, v in job.properties.items() if k in client.DEFAULT_CONFIG}
    if job.properties.get("sasl_mechanism") == "OAUTHBEARER":
        given["sasl_oauth_token_provider"] = Tokens(job.properties)
    return given


def make_consumer(job: Job, *, of_group: bool = True, committed_only: bool = True) -> Any:
    """Return a consumer; without `of_group` it belongs to no group, and commits nothing.

    The group uses the range assignor: if all topics have equally many partitions, a consumer gets
    the same partition numbers of each topic.
    """
    given = {
        "bootstrap_timeout_ms": job.call_timeout_ms,
        "metadata_max_age_ms": METADATA_AGE_MS,
        "metrics_enabled": False,
        "fetch_max_wait_ms": FETCH_WAIT_MS,
        "max_poll_records": POLL_RECORDS_MAX,
        "reconnect_backoff_max_ms": RECONNECT_MS_MAX,
        **client_properties(job, KafkaConsumer),
    }
    with refused_as_settings(job.properties):
        consumer = KafkaConsumer(
            bootstrap_servers=job.bootstrap_servers,
            group_id=job.group_id if of_group else None,
            auto_offset_reset="none",
            enable_auto_commit=False,
            isolation_level="read_committed" if committed_only else "read_uncommitted",
            partition_assignment_strategy=[RangePartitionAssignor],
            **given,
        )
    make_no_topics(consumer, "_cluster")
    return consumer


def _make_admin(job: Job) -> Any:
    given = client_properties(job, KafkaAdminClient)
    return KafkaAdminClient(
        bootstrap_servers=job.bootstrap_servers,
        **{"bootstrap_timeout_ms": job.call_timeout_ms, **given},
    )


def topic_setting(job: Job, topic: str, name: str) -> str:
    """Return the value of a topic's setting."""
    resource = ConfigResource("TOPIC", topic, [name])
    with _make_admin(job) as admin:
        settings = admin.describe_configs([resource], config_filter="all")["topic"][topic]
    if name not in settings:  # Kafka refused the request, and kafka-python drops that error.
        raise faults.TopicAuthorizationFailedError(topic)
    return str(settings[name]["value"])


def check_visible(job: Job, topic: str) -> None:
    """Raise an error if the user has no right to see a topic; do not if it does not exist."""
    with _make_admin(job) as admin:
        (description,) = admin.describe_topics([topic])
    if faults.for_code(description["error_code"]) is faults.TopicAuthorizationFailedError:
        raise faults.TopicAuthorizationFailedError(topic)


def group_offsets(job: Job) -> dict[Any, Any]:
    """Return the committed offsets of the job's group, in all topics."""
    until_s = time.monotonic() + job.call_timeout_ms / 1e3
    with _make_admin(job) as admin:
        while True:
            try:
                return dict(admin.list_group_offsets({job.group_id: None})[job.group_id])
            except faults.KafkaError as fault:
                # The first group of a new Kafka has to wait until the offsets topic is made.
                if not fault.retriable or time.monotonic() > until_s:
                    raise
            time.sleep(SLICE_S)


def is_listening(servers: str) -> bool:
    """Return whether one of Kafka's addresses accepts a TCP connection."""
    for host, port, _ in collect_hosts(servers):
        with (
            contextlib.suppress(OSError),
            socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S),
        ):
            return True
    return False


def transactional_id(job: Job) -> str:
    """Return the transactional id of a job, or the prefix of those of its consumers."""
    return f"ketal-{job.group_id}"


def make_producer(job: Job, transactional_id: str) -> Any:
    """Return a producer with transactions; `init_transactions`, called here, fences older ones."""
    given = {
        "bootstrap_timeout_ms": job.call_timeout_ms,
        "max_block_ms": job.call_timeout_ms,
        "metadata_max_age_ms": METADATA_AGE_MS,
        "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
        "metrics_enabled": False,
        "linger_ms": 5,
        "reconnect_backoff_max_ms": RECONNECT_MS_MAX,
        **client_properties(job, KafkaProducer),
    }
    with refused_as_settings(job.properties):
        producer = KafkaProducer(
            bootstrap_servers=job.bootstrap_servers, transactional_id=transactional_id, **given
        )
    try:
        make_fencing_fatal(producer)
        make_no_topics(producer, "_metadata")
        producer.init_transactions()
    except BaseException:
        close_producer(producer)
        raise
    return producer


def transaction_timeout_ms(job: Job) -> int:
    """Return the time after which Kafka aborts an open transaction of the job."""
    return int(job.properties.get("transaction_timeout_ms", TRANSACTION_TIMEOUT_MS))


def make_fencing_fatal(producer: Any) -> None:
    """Make those errors fatal after which kafka-python would request a new producer epoch."""
    manager = _private_attribute(producer, "_transaction_manager")
    risky = _private_attribute(manager, "_NEEDS_EPOCH_BUMP_ERRORS")
    fatal = _private_attribute(manager, "_FATAL_ERRORS")
    if not isinstance(risky, frozenset) or not isinstance(fatal, frozenset):
        raise _unknown_version()
    manager._NEEDS_EPOCH_BUMP_ERRORS = frozenset()
    manager._FATAL_ERRORS = fatal | risky


def make_no_topics(client: Any, cluster: str) -> None:
    """Stop a client's metadata requests from making topics.

    `cluster` is the attribute of the client that has its metadata.
    """
    config = _private_attribute(client, cluster, "config")
    if "allow_auto_create_topics" not in config:
        raise _unknown_version()
    config["allow_auto_create_topics"] = False


def partition_offsets(
    ask: Callable[[list[TopicPartition], float], dict[TopicPartition, int]],
    partitions: Iterable[TopicPartition],
    timeout_ms: float,
) -> dict[TopicPartition, int]:
    """Return what a consumer's `beginning_offsets` or `end_offsets` returns for partitions.

    While a partition has no known leader and others have one, kafka-python asks for the others
    only, and raises a KeyError. Raises a TimeoutError if that lasts longer than `timeout_ms`.
    """
    wanted, until_s = list(partitions), time.monotonic() + timeout_ms / 1e3
    while True:
        try:
            return ask(wanted, timeout_ms)
        except KeyError as unknown:
            if time.monotonic() > until_s:
                raise TimeoutError(f"no broker leads {unknown}") from None
        time.sleep(SLICE_S)


def topic_id(client: Any, cluster: str, topic: str) -> int:
    """Return the id by which Kafka distinguishes topics of the same name; 0 if it is unknown.

    `cluster` is the attribute of the client that has its metadata.
    """
    known = _private_attribute(client, cluster, "topic_id")(topic)
    return 0 if known is None else int(known.int)


def keep_joining(consumer: Any) -> None:
    """Make a consumer that has begun to join its group continue until it is a member.

    The consumer's own flag for rejoining is set only if the group requested that. If metadata
    changed, the consumer compares metadata instead, which are equal again as soon as it has been
    elected leader. A listener calls this whenever partitions are revoked, since that is how joining
    begins.
    """
    _private_attribute(consumer, "_coordinator", "request_rejoin")()


def return_parked_records(consumer: Any) -> None:
    """Have the next poll return what was fetched of partitions that were paused and resumed.

    kafka-python parks messages of a paused partition. It returns them after the partition is
    resumed, but only while no partition is being read, and meanwhile fetches no more of it: while
    others have messages, the parked ones would wait. So they take turns with what is being read.
    After a seek to another offset they are dropped.
    """
    fetcher = _private_attribute(consumer, "_fetcher")
    parked = _private_attribute(fetcher, "_paused_partition_records")
    is_paused = _private_attribute(consumer, "_subscription", "is_paused")
    resumed = next((partition for partition in parked if not is_paused(partition)), None)
    if resumed is not None:
        current = fetcher._next_partition_records
        fetcher._next_partition_records = parked.pop(resumed)
        if current:
            parked[current.topic_partition] = current


def position(consumer: Any, partition: TopicPartition) -> int | None:
    """Return the next offset that a consumer reads, past transaction markers; None if unknown."""
    state = _private_attribute(consumer, "_subscription", "assignment").get(partition)
    held = None if state is None else state.position
    return None if held is None else int(held.offset)


def refuse_header_name(consumer: Any, error: BaseException) -> None:
    """Raise a SettingError if a consumer failed at a header whose name is not valid UTF-8.

    The consumer can read neither that message nor those after it in its batch, now or later.
    """
    fault = error.__context__
    if isinstance(fault, UnicodeDecodeError):
        records = _private_attribute(consumer, "_fetcher", "_next_partition_records")
        topic, number = records.topic_partition
        raise SettingError(
            f"{topic}/{number}/{records.next_fetch_offset}: the message has a header whose name "
            f"{fault.object!r} is not valid UTF-8, which kafka-python cannot read\n  hint: use the "
            "engine spark"
        ) from None


def _private_attribute(client: Any, *names: str) -> Any:
    """Return a private attribute of a client, given by its path of names.

    If there is none, this is another version of kafka-python, which is a SettingError.
    """
    for name in names:
        client = getattr(client, name, None)
    if client is None:
        raise _unknown_version()
    return client


def _unknown_version() -> SettingError:
    return SettingError(
        f"kafka-python {kafka.__version__} is not {TESTED_VERSION}, the version with which "
        "transactions are safe: pip install 'ketal[stream]'"
    )


def close_producer(producer: Any) -> None:
    """Close a producer, whatever its state."""
    sender = producer._sender
    with contextlib.suppress(*CLIENT_ERRORS, RuntimeError):
        producer.close(timeout=CLOSE_TIMEOUT_S)
    # A failed flush leaves its thread running, which would retry for ever.
    with contextlib.suppress(*CLIENT_ERRORS, RuntimeError):
        sender.force_close()


def close_consumer(consumer: Any) -> None:
    """Close a consumer, whatever its state."""
    with contextlib.suppress(*CLIENT_ERRORS, RuntimeError):
        consumer.close(autocommit=False, timeout_ms=1_000 * CLOSE_TIMEOUT_S)
