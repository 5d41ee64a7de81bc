"""The clients of one session, and the calls to Kafka through them.

The one rule: no call outlasts its deadline, and none goes on once the job is to end.
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
from ketal.streaming.kafka.connecting.client_calls import CLIENT_ERRORS, StoppedError, within
from ketal.streaming.kafka.running_job import Commit, Committed, RunningJob

T = TypeVar("T")


class Connection:
    """A consumer and a producer of a job."""

    def __init__(self, engine: RunningJob) -> None:
        self.consumer: Any = None
        self.producer: Any = None
        self._engine = engine
        self._job = engine.job
        self._call_s = engine.job.call_timeout_ms / 1e3
        self._uncommitted: Any = None
        """A consumer that reads uncommitted, for the ends of partitions."""

    # --- begin and end ---

    def check_access(self) -> None:
        """Connect once, so that a refusal and its reason are known at once."""
        servers = self._job.bootstrap_servers.split(",")
        self._call("connecting", check_access, self._job, calls=2 + len(servers))

    def connect_consumer(self) -> None:
        """Make the consumer."""
        self.consumer = self._call("connecting", clients.consumer_of, self._job, calls=2)

    def connect_producer(self, transactional_id: str) -> None:
        """Make the producer, which fences an earlier one with its transactional id."""
        self.producer = self._call(
            "a transaction", clients.producer_of, self._job, transactional_id, calls=4
        )

    def close(self) -> None:
        """Discard the clients."""
        if self.producer is not None:
            clients.close_producer(self.producer)
        for consumer in (self.consumer, self._uncommitted):
            if consumer is not None:
                clients.close_consumer(consumer)

    def _call(self, what: str, call: Callable[..., T], *args: Any, calls: int = 1) -> T:
        """Call Kafka, with a deadline of so many call timeouts, as `within` does."""
        return within(calls * self._call_s, what, call, *args, enough=lambda: self._engine.stopping)

    # --- topics ---

    def inputs(self) -> list[TopicPartition]:
        """Return all partitions of the input, if all topics of the job are there."""
        partitions = []
        for topic in self._job.topics:
            partitions += [TopicPartition(topic, n) for n in sorted(self.numbers(topic))]
        for target in self._job.outputs:
            if target.kind == "kafka":
                self.numbers(target.name)
        return partitions

    def numbers(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions.

        Raises
        ------
        SettingError
            If there is no such topic.
        TimeoutError
            If there was one when this process began: a broker that has just come back may not know
            of it yet.
        """
        # A client that does not know a topic asks until it is answered.
        ask = self.consumer.partitions_for_topic
        numbers: set[int] = self._call("asking for a topic", ask, topic)
        if numbers:
            return numbers
        self._call("asking for a topic", clients.check_visible, self._job, topic, calls=2)
        if self._engine.claimed:
            raise TimeoutError(f"there is no topic {topic} any more")
        raise SettingError(
            f"there is no topic {topic} at {self._job.bootstrap_servers}; create it first"
        )

    # --- offsets ---

    def group_offsets(self) -> dict[TopicPartition, Commit]:
        """Return the group's commits, of the topics of the job and of others."""
        offsets = self._call("asking for offsets", clients.group_offsets, self._job, calls=2)
        return {one: Commit.of(held) for one, held in offsets.items()}

    def committed(self, partitions: Sequence[TopicPartition]) -> Committed:
        """Return the commit of each partition; None where there is none."""
        out: dict[TopicPartition, Commit | None] = {}
        timeout_ms = self._job.call_timeout_ms
        for one in partitions:
            ask = self.consumer.committed
            held = self._call("asking for offsets", ask, one, True, timeout_ms)
            out[one] = None if held is None else Commit.of(held)
        return out

    def beginnings(self, committed: Committed, *, grown: bool = True) -> dict[TopicPartition, int]:
        """Return the first offset to read: that of the last commit, else as `start` says.

        Parameters
        ----------
        committed : mapping
            The commit of each partition; None where there is none.
        grown : bool
            Whether a partition without a commit, in a topic with one, was added to it: it is read
            whole.
        """
        timeout_ms = self._job.call_timeout_ms
        offsets = {one: held.offset for one, held in committed.items() if held is not None}
        fresh = committed.keys() - offsets
        known = {one.topic for one in offsets if grown}
        first = [one for one in fresh if self._job.start == "earliest" or one.topic in known]
        last = [one for one in fresh if one not in first]
        if first:
            ask = self.consumer.beginning_offsets
            offsets.update(self._call("asking for beginnings", ask, first, timeout_ms))
        if last:
            offsets.update(self.ends(last))
        return offsets

    def ends(
        self, partitions: Sequence[TopicPartition], *, committed_only: bool = True
    ) -> dict[TopicPartition, int]:
        """Return the ends of partitions: of committed messages, or of all."""
        if not partitions:
            return {}
        if not committed_only and self._uncommitted is None:
            make = partial(clients.consumer_of, of_group=False, committed_only=False)
            self._uncommitted = self._call("connecting", make, self._job, calls=2)
        consumer = self.consumer if committed_only else self._uncommitted
        timeout_ms = self._job.call_timeout_ms
        return self._call("asking for ends", consumer.end_offsets, list(partitions), timeout_ms)

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        sent: Sequence[tuple[str, Any]],
        member: Any,
    ) -> None:
        """Put offsets into the open transaction, and commit it, as a member of the group.

        `sent` are the topics and futures of the messages of the transaction. Where one fails, the
        calls after it may hang, and its error says more than theirs.
        """

        def is_in_vain() -> bool:
            is_away = self._engine.stopping and not clients.listens(self._job.bootstrap_servers)
            return is_away or any(future.failed() for _, future in sent)

        try:
            send = self.producer.send_offsets_to_transaction
            within(self._call_s, "sending offsets", send, offsets, member, enough=is_in_vain)
            commit = self.producer.commit_transaction
            within(self._call_s, "the commit", commit, enough=is_in_vain)
        except (StoppedError, *CLIENT_ERRORS) as error:
            for topic, future in sent:
                if future.failed():
                    raise client_errors.of_topic(topic, future.exception) from error
            raise
