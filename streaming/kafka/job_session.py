"""A session: the clients and the state from one commit until a fault, or the end of the job.

A session consumes, transforms and produces as in Kafka's KIP-98: a commit is one transaction with
the verdicts since the last commit, the offsets, and the name of the state of each part. The
transaction is atomic, so a reader with `read_committed` finds each verdict in its topic once.

The loop is the same for one consumer and for several. A single consumer has all partitions as one
part from the beginning (`whole_session`); one of several consumers has the parts that its group
assigns and revokes (`group_session`).

The one rule: state, offsets and verdicts are committed together or not at all.
"""

from __future__ import annotations

import contextlib
import json
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from kafka import TopicPartition
from kafka import errors as faults
from kafka.structs import OffsetAndMetadata

from ketal.model.events.dot import Dot
from ketal.model.summaries import total
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.runtime.execution import BATCH_EVENTS
from ketal.runtime.silence.vacuity import Findings, MetEvents, add_findings, findings
from ketal.streaming.job.outputs import PENDING_BYTES_MAX, Outputs
from ketal.streaming.kafka.back_pressure import BackPressure
from ketal.streaming.kafka.connecting import clients
from ketal.streaming.kafka.connecting.client_calls import StoppedError
from ketal.streaming.kafka.connecting.client_errors import OUT_OF_RANGE
from ketal.streaming.kafka.connection import Connection
from ketal.streaming.kafka.partition_state import Part
from ketal.streaming.kafka.running_job import RunningJob
from ketal.streaming.kafka.state.storage import make_storage
from ketal.streaming.kafka.watermarks import CHECK_MS

POLL_MS = 200
SAVING_SHARE = 5
"""Saving takes at most a fifth of the time, so a large state is committed less often."""
RECOMMIT_S = 3_600
"""How often a quiet job commits its offsets again, which would expire after some days."""
CHECK_S = CHECK_MS / 1e3
PARTITIONS_S = 30.0
STEADY_S = 10.0
"""How long a session without a fault and with nothing to commit runs until it has recovered."""


class ChangedError(Exception):
    """The topics have changed, so a new session must begin; this is not a failure."""


class Session(ABC):
    """The clients and parts of a job between two faults, and the loop over them."""

    def __init__(self, engine: RunningJob, outputs: Outputs) -> None:
        self.engine = engine
        self.job = engine.job
        self.connection = Connection(engine)
        self.storage = make_storage(engine.job)
        self.outputs = outputs
        self.count = 0
        """The number of parts of a job with several consumers; 0 for a single consumer."""
        self.parts: list[Part] = []
        self.part_of: dict[TopicPartition, Part] = {}
        self._back_pressure = BackPressure(
            self.connection,
            self.job.limits.held_back_max,
            self._count_unread,
            partial(self._unread, committed_only=True),
        )
        self._topic_ids: dict[str, int] = {}
        self._known_ends: dict[TopicPartition, int] = {}
        """The end offsets that Kafka returned last; the client knows them after a fetch only."""
        self._began_s = self._listed_s = time.monotonic()
        self._committed_s = self._commit_after_s = self._checked_s = 0.0

    # --- begin and end ---

    def begin(self) -> None:
        """Connect, open the parts that are assigned, and report the end of an outage."""
        self.connection.check_access()
        self._claim()
        self.connection.request_producer_metadata()
        self.engine.count_start()
        self.engine.report_recovery()

    @abstractmethod
    def _claim(self) -> None:
        """Connect the clients, and open the parts or join the group that assigns them."""

    @abstractmethod
    def _check_partitions(self) -> None:
        """Raise an error if the topics have other partitions than before."""

    def set_parts(self, parts: list[Part]) -> None:
        """Set the parts of this session, with all of their partitions active."""
        part_of = {partition: part for part in parts for partition in part.positions}
        self._known_ends |= self.connection.end_offsets(sorted(part_of))
        self.parts, self.part_of = parts, part_of
        self._back_pressure.begin(parts)
        for part in parts:
            part.mark_all_active()

    def record_ends(self, partitions: Sequence[TopicPartition]) -> None:
        """Under `until_end`, record the end offsets that the partitions have at the job's start."""
        if self.engine.end_offsets is None and self.job.until_end:
            self.engine.end_offsets = self.connection.end_offsets(partitions)

    def close(self) -> None:
        """Close the clients, and discard the state and the pending verdicts."""
        self.outputs.clear()
        for part in self.parts:
            part.store.close()
        self.connection.close()

    # --- live ---

    def run(self) -> None:
        """Run the session until the job must end, and make the last commit."""
        with contextlib.suppress(StoppedError):
            self._loop()
        if self._is_dirty:
            self.commit()
        self.update_summary()
        self.engine.awaited = awaited_dots(self.parts)
        self._check_clock()

    def _loop(self) -> None:
        """Consume, and commit when a commit is due, until the job must end."""
        engine = self.engine
        while not (engine.stopping or self._is_finished()):
            self._consume()
            now_s = time.monotonic()
            if now_s - self._committed_s >= RECOMMIT_S:
                for part in self.parts:
                    part.dirty = True
            due = now_s >= self._commit_after_s or self.outputs.pending_bytes >= PENDING_BYTES_MAX
            if due and self._is_dirty:
                self.commit()
                engine.failing_since_s = None
            if now_s - self._checked_s >= CHECK_S:
                self._checked_s = now_s
                self._check_clock()

    @property
    def _is_dirty(self) -> bool:
        """Whether some part is dirty."""
        return any(part.dirty for part in self.parts)

    def _consume(self) -> None:
        left_ms = 1e3 * (self._commit_after_s - time.monotonic())
        timeout_ms = max(1, min(POLL_MS, int(left_ms))) if self._is_dirty else POLL_MS
        try:
            batches = self._poll(timeout_ms)
        except OUT_OF_RANGE:
            self._check_topics()  # The offsets of a topic that was made anew may be smaller.
            raise
        except faults.CorruptRecordError as error:
            clients.refuse_header_name(self.connection.consumer, error)
            raise
        self._check_topics()
        self._mark_active(batches)
        for partition in sorted(batches):
            part = self.part_of[partition]
            if part.ended:
                continue
            self._process_records(partition, part, batches[partition])
            if part.ended:
                self.connection.consumer.pause(*part.positions)

    def _poll(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        """Return new messages of the session's parts, by partition."""
        return self._back_pressure.poll(timeout_ms)

    def _check_topics(self) -> None:
        """Raise a ChangedError if a topic was deleted and made anew: its messages are others then.

        That is an input topic, or the state's, which only the producer has metadata of.
        """
        consumer, producer = self.connection.consumer, self.connection.producer
        ids = {topic: clients.topic_id(consumer, "_cluster", topic) for topic in self.job.topics}
        if self.job.store.is_topic:
            ids[self.job.store.name] = clients.topic_id(producer, "_metadata", self.job.store.name)
        for topic, topic_id in ids.items():
            if topic_id and self._topic_ids.setdefault(topic, topic_id) != topic_id:
                raise ChangedError(f"the topic {topic} was deleted and recreated")

    def _mark_active(self, batches: Iterable[TopicPartition]) -> None:
        """Mark all partitions active that have messages, before a message advances the watermark.

        A poll returns messages of some partitions only, and an idle partition of the same part may
        have new messages too. So Kafka is asked, once for each poll, and only if some partition is
        idle. The next poll returns more messages after that wait, so the cost is small where the
        load is high.
        """
        active = [partition for partition in batches if not self.part_of[partition].ended]
        for partition in active:
            self.part_of[partition].mark_active(partition)
        parts = {self.part_of[partition] for partition in active}
        for partition in self._unread(
            sorted(other for part in parts for other in part.watermarks.idle)
        ):
            self.part_of[partition].mark_active(partition)

    def _unread(
        self, partitions: Sequence[TopicPartition], *, committed_only: bool = False
    ) -> list[TopicPartition]:
        """Ask Kafka which of these partitions have messages that are not read yet.

        Messages of an open transaction count, unless `committed_only`, since its commit may become
        visible in other partitions a moment earlier.
        """
        ends = self.connection.end_offsets(partitions, committed_only=committed_only)
        self._known_ends |= ends
        return [
            partition for partition in partitions if ends[partition] > self._position(partition)
        ]

    def _process_records(
        self, partition: TopicPartition, part: Part, records: Sequence[Any]
    ) -> None:
        """Process messages of a partition; commit in between if many verdicts are pending."""
        for start in range(0, len(records), BATCH_EVENTS):
            if self.outputs.pending_bytes >= PENDING_BYTES_MAX:
                self.commit()
            some = records[start : start + BATCH_EVENTS]
            part.mark_active(partition)
            self.engine.consumed += part.process(partition, some, self._add_verdicts)
            if part.ended:
                break

    def _add_verdicts(self, verdicts: list[Verdict], record: Any = None) -> None:
        for verdict in verdicts:
            self.outputs.add(verdict, None if record is None else record.key)
            self.engine.figures.count_verdicts(verdict.kind, getattr(verdict, "pattern", None))

    @property
    def _is_settled(self) -> bool:
        """Whether the assignment of parts to this session is complete."""
        return True

    def _is_finished(self) -> bool:
        """Return whether all parts have ended or, under `until_end`, reached the recorded ends.

        Without `until_end`, a process that has no part is not finished: it is on standby.
        """
        if not self._is_settled:
            return False
        ends = self.engine.end_offsets
        if ends is None:
            return bool(self.parts) and all(part.ended for part in self.parts)
        return all(
            part.ended or self._position(partition) >= ends.get(partition, 0)
            for partition, part in self.part_of.items()
        )

    def _count_unread(self, partition: TopicPartition) -> int:
        """Return how many messages of a partition are known and not read yet."""
        fetched = self.connection.consumer.highwater(partition) or 0
        end = max(fetched, self._known_ends.get(partition, 0))
        return max(0, end - self._position(partition))

    def _position(self, partition: TopicPartition) -> int:
        """Return the next offset to read; the client's own is past transaction markers."""
        position = clients.position(self.connection.consumer, partition)
        return self.part_of[partition].positions[partition] if position is None else position

    def _check_clock(self) -> None:
        """Mark idle partitions, drop drained patterns, check the topics, and report the figures."""
        behind = {partition: self._count_unread(partition) for partition in self.part_of}
        for part in self.parts:
            self._add_verdicts(part.mark_idle(behind, self._unread))
            if drained := part.drop_drained():
                self.engine.hooks.notify(drained)
        now_s = time.monotonic()
        if now_s - self._listed_s >= PARTITIONS_S:
            self._listed_s = now_s
            self._check_partitions()
            # The consumer retries silently, so a session that reads and commits nothing, or has no
            # part, would not notice an outage of Kafka without this call.
            partitions = sorted(self.part_of) or self.connection.input_partitions()
            self._known_ends |= self.connection.end_offsets(partitions)
        if now_s - self._began_s >= STEADY_S and not self._is_dirty:
            self.engine.failing_since_s = None
        self._report(now_s, behind)

    def _report(self, now_s: float, behind: Mapping[TopicPartition, int]) -> None:
        """Update and report the figures, and warn of patterns that are vacuous."""
        self.engine.figures.update(
            now_s=now_s,
            messages=self.engine.consumed,
            control=sum(part.counts["control"] for part in self.parts),
            lag={
                f"{partition.topic}/{partition.partition}": lag for partition, lag in behind.items()
            },
            events=total(part.execution.counts.tally.to_dict() for part in self.parts),
            live_runs=sum(part.execution.counts.live_runs for part in self.parts),
            watermark_s=least_watermark_s(self.parts),
            parts=(len(self.parts), self.count) if self.count else None,
        )
        if self.parts:
            compute = partial(findings_of_parts, self.engine, self.parts)
            self.engine.vacuity_watch.update(now_s, compute, partial(awaited_for_ever, self.parts))
        self.engine.hooks.report(self.engine.figures)

    # --- commit ---

    def commit(self) -> None:
        """Commit state, offsets and verdicts of the dirty parts in one transaction."""
        began_s = time.monotonic()
        parts = [part for part in self.parts if part.dirty]
        if not parts:
            return
        offsets = {}
        for part in parts:
            name = part.store.write(part.changes())
            part.metadata = {**self.storage.metadata(name), "owner": self.engine.owner}
            text = json.dumps(part.metadata)
            for partition, offset in part.positions.items():
                offsets[partition] = OffsetAndMetadata(offset, text, -1)
        saving_s = time.monotonic() - began_s
        self.outputs.write()
        producer = self.connection.producer
        producer.begin_transaction()
        sent = self.outputs.send(producer)
        for part in parts:
            sent += part.store.send(producer)
        self.connection.commit(offsets, sent, self._member)
        for part in parts:
            part.store.mark_committed()
            part.dirty = False
        self.outputs.clear()
        self.update_summary()
        self._committed_s = now_s = time.monotonic()
        self.engine.figures.count_commit(now_s - began_s)
        least_s = self.job.commit_interval_ms / 1e3
        self._commit_after_s = now_s + max(least_s, (SAVING_SHARE - 1) * saving_s)

    @property
    def _member(self) -> Any:
        """The group member in whose name offsets are committed."""
        return self.connection.consumer.group_metadata()

    def update_summary(self) -> None:
        """Set the job's summary from its parts, or from an empty part if there is none.

        Everything in the parts must be committed.
        """
        parts = self.parts or [Part(self.engine, 0, {}, self.storage.empty(0))]
        self.engine.summary = total(part.summary_numbers for part in parts)
        add_findings(self.engine.summary["patterns"], findings_of_parts(self.engine, parts))


def least_watermark_s(parts: Iterable[Part]) -> float | None:
    """Return the least watermark of the parts that have not ended; None if one has none yet."""
    marks_s = [part.watermarks.watermark_s for part in parts if not part.ended]
    known_s = [mark_s for mark_s in marks_s if mark_s is not None]
    return min(known_s, default=None) if len(known_s) == len(marks_s) else None


def awaited_dots(parts: Iterable[Part], *, for_ever: bool = False) -> Counter[Dot]:
    """Return the missing dots for which events are held back, and how many for each.

    With `for_ever`, only of events that no `gap` will release.
    """
    releases = [part.execution.release for part in parts]
    held = (pair for one in releases for pair in one.held_back(for_ever=for_ever))
    return Counter(dot for _, dot in held if dot is not None)


def awaited_for_ever(parts: Iterable[Part]) -> Counter[Dot]:
    """Return the missing dots for which events are held back that no `gap` will release."""
    return awaited_dots(parts, for_ever=True)


def findings_of_parts(engine: RunningJob, parts: Iterable[Part]) -> Findings:
    """Return the findings about the engine's program, over the events of all parts."""
    met = MetEvents.sum([part.execution.counts.met_events for part in parts])
    return findings(engine.program.compiled, met)
