"""The clients of one session, and the calls to Kafka through them.

The one rule: no call outlasts its deadline, nor continues once the job must end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from ketal.errors import SettingError
from ketal.streaming.kafka.connecting import client_errors, clients
from ketal.streaming.kafka.connecting.access import check_access
from ketal.streaming.kafka.connecting.client_calls import (
    CLIENT_ERRORS,
    StoppedCommitError,
    StoppedError,
    call_with_deadline,
)
from ketal.streaming.kafka.running_job import Commit, Committed, RunningJob

T = TypeVar("T")


class Connection:
    """The consumer and the producer of a session."""

    def __init__(self, engine: RunningJob) -> None:
        self.consumer: Any = None
        self.producer: Any = None
        self._engine = engine
        self._job = engine.job
        self._timeout_ms = engine.job.call_timeout_ms
        self._call_s = self._timeout_ms / 1e3
        self._uncommitted: Any = None
        """A second consumer, with `read_uncommitted`, for the ends of partitions."""

    # --- begin and end ---

    def check_access(self) -> None:
        """Connect once, to find out whether Kafka refuses the connection, and why."""
        servers = self._job.bootstrap_servers.split(",")
        self._call("connecting", check_access, self._job, calls=2 + len(servers))

    def connect_consumer(self) -> None:
        """Make the consumer."""
        self.consumer = self._call("connecting", clients.make_consumer, self._job, calls=2)

    def connect_producer(self, transactional_id: str) -> None:
        """Make the producer, which fences an earlier producer with the same transactional id."""
        self.producer = self._call(
            "connecting the producer", clients.make_producer, self._job, transactional_id, calls=4
        )

    def close(self) -> None:
        """Close the clients."""
        if self.producer is not None:
            clients.close_producer(self.producer)
        for consumer in (self.consumer, self._uncommitted):
            if consumer is not None:
                clients.close_consumer(consumer)

    def _call(self, what: str, call: Callable[..., T], *args: Any, calls: int = 1) -> T:
        """Call Kafka as `call_with_deadline` does, with a deadline of `calls` call timeouts."""
        return call_with_deadline(
            calls * self._call_s, what, call, *args, should_stop=lambda: self._engine.stopping
        )

    # --- topics ---

    def input_partitions(self) -> list[TopicPartition]:
        """Return all partitions of the input topics; raise if a topic of the job is missing."""
        partitions = [
            TopicPartition(topic, number)
            for topic in self._job.topics
            for number in sorted(self.partition_numbers(topic))
        ]
        for topic in self._job.output_topics:
            self.partition_numbers(topic)
        return partitions

    def partition_numbers(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions.

        Raises
        ------
        SettingError
            If there is no such topic.
        TimeoutError
            If a session of this process has begun, so that the topic did exist: a broker that has
            just come back may not know it yet.
        """
        # For a topic that it does not know a client repeats the request until it is answered.
        ask = self.consumer.partitions_for_topic
        numbers: set[int] = self._call("requesting a topic", ask, topic)
        if numbers:
            return numbers
        self._call("requesting a topic", clients.check_visible, self._job, topic, calls=2)
        if self._engine.has_begun:
            raise TimeoutError(f"the topic {topic} no longer exists")
        raise SettingError(
            f"the topic {topic} does not exist at {self._job.bootstrap_servers}; create it first"
        )

    def request_producer_metadata(self) -> None:
        """Have the producer request the metadata of its topics, now and then regularly.

        By itself it requests those of a topic from its first message to it, and waits for them even
        if the job must end.
        """
        topics = list(self._job.output_topics)
        if self._job.store.is_topic:
            topics.append(self._job.store.name)
        for topic in topics:
            self._call("requesting a topic", self.producer.partitions_for, topic, calls=2)

    def topic_setting(self, topic: str, name: str) -> str:
        """Return the value of a topic's setting."""
        ask = clients.topic_setting
        return self._call("requesting a setting", ask, self._job, topic, name, calls=2)

    # --- offsets ---

    def group_offsets(self) -> dict[TopicPartition, Commit]:
        """Return the group's commits, in the job's topics and in others."""
        offsets = self._call("requesting offsets", clients.group_offsets, self._job, calls=2)
        return {partition: Commit.of(held) for partition, held in offsets.items()}

    def committed(self, partitions: Sequence[TopicPartition]) -> Committed:
        """Return the commit of each partition; None where there is none."""
        out: dict[TopicPartition, Commit | None] = {}
        for partition in partitions:
            ask = self.consumer.committed
            held = self._call("requesting offsets", ask, partition, True, self._timeout_ms)
            out[partition] = None if held is None else Commit.of(held)
        return out

    def start_offsets(
        self, committed: Committed, *, grown: bool = True
    ) -> dict[TopicPartition, int]:
        """Return the first offset to read: the committed offset, or without one as `start` says.

        With `grown`, a partition without a commit, in a topic where other partitions have one, was
        added to the topic; such a partition is read from its beginning.
        """
        offsets = {
            partition: held.offset for partition, held in committed.items() if held is not None
        }
        fresh = committed.keys() - offsets
        known = {partition.topic for partition in offsets if grown}
        first = [
            partition
            for partition in fresh
            if self._job.start == "earliest" or partition.topic in known
        ]
        if first:
            ask = partial(clients.partition_offsets, self.consumer.beginning_offsets)
            offsets.update(self._call("requesting start offsets", ask, first, self._timeout_ms))
        return {**offsets, **self.end_offsets([*fresh.difference(first)])}

    def end_offsets(
        self, partitions: Sequence[TopicPartition], *, committed_only: bool = True
    ) -> dict[TopicPartition, int]:
        """Return the end offsets of partitions, of committed messages or of all messages."""
        if not partitions:
            return {}
        if not committed_only and self._uncommitted is None:
            make = partial(clients.make_consumer, of_group=False, committed_only=False)
            self._uncommitted = self._call("connecting", make, self._job, calls=2)
        consumer = self.consumer if committed_only else self._uncommitted
        ask = partial(clients.partition_offsets, consumer.end_offsets)
        return self._call("requesting end offsets", ask, partitions, self._timeout_ms)

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        sent: Sequence[tuple[str, Any]],
        member: Any,
    ) -> None:
        """Add offsets to the open transaction as a member of the group, and commit it.

        `sent` has the topic and the future of each message of the transaction. After a message has
        failed, later calls may hang; so they are broken off, and the error of the message is
        raised, which is clearer than theirs.

        Raises a StoppedCommitError if the job must end and no server listens any more.
        """

        def is_in_vain() -> bool:
            is_away = self._engine.stopping and not clients.is_listening(
                self._job.bootstrap_servers
            )
            return is_away or any(future.failed() for _, future in sent)

        try:
            send = self.producer.send_offsets_to_transaction
            call_with_deadline(
                self._call_s, "sending offsets", send, offsets, member, should_stop=is_in_vain
            )
            commit = self.producer.commit_transaction
            call_with_deadline(self._call_s, "the commit", commit, should_stop=is_in_vain)
        except (StoppedError, *CLIENT_ERRORS) as error:
            for topic, future in sent:
                if future.failed():
                    raise client_errors.topic_error(topic, future.exception) from error
            if isinstance(error, StoppedError):
                raise StoppedCommitError from None
            raise
