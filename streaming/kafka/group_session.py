"""The session of one of several consumers, with the parts that its group assigns and revokes.

Kafka's range assignor assigns the partitions of each topic to the members in the same order. All
topics have equally many partitions, so all partitions of a part are assigned to the same member.

In a rebalance each member commits and releases all of its parts before any part is assigned.
kafka-python calls a listener on the consumer's own thread, while the engine's thread waits in
`poll` for that call to return, so only one of the two threads runs at a time. The listener may
commit, through the producer, and pause partitions. Calls to the consumer itself wait until `poll`
has returned; until then the partitions are paused. An exception of the listener is recorded, and
raised when `poll` returns.

A commit carries the generation in which the parts were assigned (KIP-447): the commit of a member
that the group has removed is refused, and its transaction aborted. The generation is recorded with
the assignment. The consumer's generation at the time of the commit would not do: heartbeats, which
have their own thread, may have found that the consumer is no longer a member, and the broker
accepts a commit without a member. The transactional id belongs to this process alone.

A part that is assigned again, and whose state is that of its last commit, is resumed. Any other
part is read from the changelog and restored on a separate thread, which calls no client, while this
thread polls the group, so that a large state does not cost the membership. If the parts are revoked
meanwhile, the state that was read is discarded. It belongs to the committed offsets only if these
are unchanged after the read; if they changed, a new session begins.

The one rule: a part is committed by the member that it is assigned to, or by nobody.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import wait
from typing import Any

from kafka import ConsumerRebalanceListener, TopicPartition
from kafka import errors as faults
from kafka.structs import OffsetAndMetadata

from ketal.errors import SettingError
from ketal.model.wording import counted
from ketal.streaming.job.outputs import Outputs
from ketal.streaming.kafka.connecting import clients
from ketal.streaming.kafka.connecting.client_calls import CLIENT_ERRORS, run_in_background
from ketal.streaming.kafka.connecting.clients import keep_joining
from ketal.streaming.kafka.job_session import Session
from ketal.streaming.kafka.partition_state import Part, open_part
from ketal.streaming.kafka.running_job import Committed, Offsets, RunningJob

GROUP_POLL_S = 0.05
"""How often the group is polled while parts are restored."""
SETTLE_S = 10.0
"""How long an assignment may lack partitions, if the group's leader did not know all topics yet."""


class GroupSession(Session, ConsumerRebalanceListener):  # type: ignore[misc]
    """The session of one consumer of a group; also the rebalance listener of the consumer."""

    def __init__(self, engine: RunningJob, outputs: Outputs) -> None:
        super().__init__(engine, outputs)
        self._is_closing = False
        self.listener_fault: BaseException | None = None
        """The exception that the listener raised, if any."""
        self._assigned: set[TopicPartition] | None = None
        """The assigned partitions whose parts are not open yet."""
        self._revoked: dict[int, Part] = {}
        """Parts that were committed and revoked, by number; resumed if they are assigned again."""
        self._former: Offsets = {}
        """The job's commits of topics that it does not read any more."""
        self._assigned_member: Any = None
        self._is_open = False
        self._waiting_since_s = time.monotonic()

    def _claim(self) -> None:
        """Check the topics, and join the group."""
        connection = self.connection
        offsets = connection.group_offsets()
        if not self.engine.has_begun:
            self.engine.refuse_other_job(self.storage, offsets)
        self._former = self.engine.former_commits(self.storage, offsets)
        connection.connect_consumer()
        connection.connect_producer(f"{clients.transactional_id(self.job)}-{self.engine.owner}")
        # Before the first request for metadata, for the consumer must have them when it joins.
        connection.consumer.subscribe(self.job.topics, listener=self)
        partitions = connection.input_partitions()
        self.count = self._partition_count()
        self.storage.check(connection.partition_numbers, connection.topic_setting, self.count)
        self.record_ends(partitions)

    def close(self) -> None:
        """Close the clients and discard the state; ignore later calls of the listener."""
        self._is_closing = True
        super().close()

    def _partition_count(self) -> int:
        """Return the number of partitions of each topic; a SettingError if the numbers differ."""
        counts = {topic: len(self.connection.partition_numbers(topic)) for topic in self.job.topics}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{topic} has {n}" for topic, n in counts.items())
            raise SettingError(
                "several consumers cannot share this job: the topics have different numbers of "
                f"partitions ({listed}), so the events of a scope would be in different "
                'partitions; give all topics the same number, or set `store = "dir:PATH"`, so that '
                "one consumer reads all partitions"
            )
        return next(iter(counts.values()))

    def _check_partitions(self) -> None:
        """Raise a SettingError if partitions were added, since scopes would move to other parts."""
        now = self._partition_count()
        if now != self.count:
            raise SettingError(
                f"the topics have {counted(now, 'partition')}, but had {self.count}: keys, and "
                "with them scopes, are in other partitions than before; use another group_id and "
                "state topic to start over"
            )

    # --- rebalances, on the consumer's thread ---

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Commit and release all parts."""
        self._release_parts(lost=False)

    def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        """Discard all parts without a commit: other members may have them by now."""
        self._release_parts(lost=True)

    def _release_parts(self, *, lost: bool) -> None:
        if self._is_closing:
            return
        try:
            keep_joining(self.connection.consumer)
            if not lost:
                self.commit()
        except BaseException as fault:
            self.listener_fault, lost = fault, True
        if lost:
            self.outputs.clear()
            self._revoked = {}
        else:
            # Parts of earlier assignments that were not opened since then stay available.
            self._revoked |= {part.number: part for part in self.parts}
        self.set_parts([])
        self._is_open = False
        self._assigned = None
        self._waiting_since_s = time.monotonic()

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Record the assigned partitions, and pause them until their parts are open."""
        if self._is_closing:
            return
        consumer = self.connection.consumer
        self._assigned = set(assigned)
        self._assigned_member = consumer.group_metadata()
        if self._assigned_member.generation_id < 0:
            self.listener_fault = faults.UnknownMemberIdError(
                "removed from the group while parts were assigned"
            )
        self._waiting_since_s = time.monotonic()
        for partition in self._assigned:
            consumer.pause(partition)
            consumer.seek(partition, 0)

    # --- opening parts, on the engine's thread ---

    def _poll(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        """Open the parts that were assigned; return messages of the open parts."""
        batches = self._poll_consumer(timeout_ms)
        if self._assigned is not None:
            self._open_parts(self._assigned)
            return {}
        # A member takes part in a rebalance when it polls.
        patience_ms = self.connection.consumer.config["max_poll_interval_ms"]
        patience_s = (patience_ms + self.job.call_timeout_ms) / 1e3
        if not self._is_open and time.monotonic() - self._waiting_since_s > patience_s:
            raise TimeoutError(f"the group {self.job.group_id} does not complete its rebalance")
        return {
            partition: records
            for partition, records in batches.items()
            if partition in self.part_of
        }

    def _poll_consumer(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        """Poll the consumer; raise the exception of the listener, if it raised one."""
        try:
            batches = super()._poll(timeout_ms)
        except CLIENT_ERRORS:
            if self.listener_fault is None:
                raise
        if self.listener_fault is not None:
            raise self.listener_fault
        return batches

    @property
    def _member(self) -> Any:
        # The member that the parts were assigned to; the consumer may have lost its membership.
        return self._assigned_member

    @property
    def _is_settled(self) -> bool:
        """Whether the parts are open, or no part was assigned for `SETTLE_S`."""
        waited_s = time.monotonic() - self._waiting_since_s
        return self._is_open and (bool(self.parts) or waited_s >= SETTLE_S)

    def _open_parts(self, assigned: set[TopicPartition]) -> None:
        """Open the parts of the assigned partitions, unless they are revoked meanwhile."""
        connection = self.connection
        numbers = sorted({partition.partition for partition in assigned})
        if not self._has_whole_parts(numbers, assigned):
            return
        committed = connection.committed(sorted(assigned))
        positions = connection.start_offsets(committed, grown=False)
        if self.job.start == "latest" and None in committed.values():
            self._commit_beginnings(positions, committed)
            committed = connection.committed(sorted(assigned))
        new = [n for n in numbers if not self._is_unchanged(n, committed)]
        loaded = self.storage.load(new, lambda: not self._is_still_assigned(assigned))
        if not self._is_still_assigned(assigned):
            return
        if new and connection.committed(sorted(assigned)) != committed:
            raise TimeoutError(
                f"the group {self.job.group_id} committed while this consumer read the state"
            )
        restored = self._restore_parts(assigned, loaded, positions, committed)
        if restored is None:
            return
        parts = [restored[n] if n in restored else self._revoked[n] for n in numbers]
        self._revoked = {}
        self._assigned = None
        self._is_open = True
        self.set_parts(parts)
        for partition, offset in positions.items():
            connection.consumer.seek(partition, offset)
            if not self.part_of[partition].ended:
                connection.consumer.resume(partition)
        # A part that was never committed has saved state from now on, for its next owner.
        self.commit()
        listed = ", ".join(str(number) for number in numbers) or "none"
        self.update_summary()
        for notice in filter(None, [part.notice for part in restored.values()]):
            self.engine.hooks.notify(notice)
        self.engine.hooks.notify(f"has {len(parts)} of {self.count} parts: {listed}")

    def _commit_beginnings(
        self, positions: Mapping[TopicPartition, int], committed: Committed
    ) -> None:
        """Commit the start offsets of partitions that were never committed, before they are read.

        Under `start = "latest"` a process that starts later would find another latest message. The
        commit names no state, since there is none yet.
        """
        text = json.dumps({**self.storage.metadata(""), "owner": self.engine.owner})
        fresh = [partition for partition, commit in committed.items() if commit is None]
        self.connection.producer.begin_transaction()
        offsets = {
            partition: OffsetAndMetadata(positions[partition], text, -1) for partition in fresh
        }
        self.connection.commit(offsets, [], self._assigned_member)

    def _restore_parts(
        self,
        assigned: set[TopicPartition],
        loaded: Mapping[int, Any],
        positions: Mapping[TopicPartition, int],
        committed: Committed,
    ) -> dict[int, Part] | None:
        """Restore parts from their loaded state; return None if they were revoked meanwhile."""
        cancelled = threading.Event()

        def restore() -> dict[int, Part]:
            parts: dict[int, Part] = {}
            for number, state in loaded.items():
                if cancelled.is_set():
                    break
                own = {
                    partition: positions[partition]
                    for partition in sorted(assigned)
                    if partition.partition == number
                }
                commits = {
                    partition: commit
                    for partition, commit in {**committed, **self._former}.items()
                    if partition.partition == number
                }
                parts[number] = open_part(self.engine, self.storage, number, own, commits, state)
            return parts

        restoring = run_in_background("restoring", restore)
        try:
            while not (restoring.done() or self.engine.stopping):
                if not self._is_still_assigned(assigned):
                    cancelled.set()
                wait([restoring], GROUP_POLL_S)
        finally:
            cancelled.set()
            if not self.engine.stopping:
                # Two threads must not use the check of partition keys at the same time.
                wait([restoring])
        return restoring.result() if self._is_still_assigned(assigned) else None

    def _is_still_assigned(self, assigned: set[TopicPartition]) -> bool:
        """Poll the group; return whether `assigned` is still its assignment to this consumer.

        All assigned partitions are paused, so the poll returns no messages.
        """
        if not self.engine.stopping:
            self._poll_consumer(0)
        return not self.engine.stopping and self._assigned is assigned

    def _has_whole_parts(self, numbers: Sequence[int], assigned: set[TopicPartition]) -> bool:
        """Return whether the assignment has all partitions of each of its parts.

        It may lack some for a while, if the group's leader does not know all topics yet.

        Raises
        ------
        SettingError
            If it lacks partitions for longer than `SETTLE_S`.
        TimeoutError
            If it has a part that the topics do not have, so that a new session must begin.
        """
        wanted = {TopicPartition(topic, n) for topic in self.job.topics for n in numbers}
        missing = sorted(wanted - assigned)
        if not missing:
            if numbers and numbers[-1] >= self.count:
                self._check_partitions()
                raise TimeoutError(
                    f"part {numbers[-1]} was assigned, but the topics have only "
                    f"{counted(self.count, 'partition')}"
                )
            return True
        if time.monotonic() - self._waiting_since_s >= SETTLE_S:
            topic, number = missing[0]
            raise SettingError(
                f"the group {self.job.group_id} assigned part {number} to this consumer without "
                f"{topic}/{number}: check that all its members read the same topics, with the same "
                "version of ketal"
            )
        return False

    def _is_unchanged(self, number: int, committed: Committed) -> bool:
        """Return whether a revoked part still has the state of its partitions' last commit."""
        part = self._revoked.get(number)
        return part is not None and all(
            (commit := committed[partition]) is not None and commit.metadata == part.metadata
            for partition in part.positions
        )
