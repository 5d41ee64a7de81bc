"""A job over all of its sessions, and the checks that its consumer group is its own.

A job is identified by its saved state: processes with the same state folder, or the same state
topic, belong to the same job. A process of another job is refused before it fences any process of
this one. In a job of one consumer each commit names the process that made it; a process that finds
the name of another process has been replaced, and ends.

The one rule: a group that is another job's is not changed.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from ketal.errors import LostError, SettingError
from ketal.programs.program import Program
from ketal.streaming.job.distribution import PartitionCheck
from ketal.streaming.job.file import Job
from ketal.streaming.job.job_engine import JobEngine
from ketal.streaming.job.metrics import Hooks
from ketal.streaming.kafka.state.storage import Storage

_HINT = "\n  hint: give this job its own --group-id, and its own --state if one is set"


class Commit(NamedTuple):
    """The committed offset of a partition, by this job or another job."""

    offset: int
    metadata: dict[str, Any]
    """The metadata stored with the offset; empty if it is not a JSON object."""

    @classmethod
    def of(cls, held: OffsetAndMetadata) -> Commit:
        """Decode a commit of kafka-python."""
        try:
            metadata = msgspec.json.decode(held.metadata or "{}", type=dict[str, Any])
        except (ValueError, RecursionError):
            metadata = {}
        return cls(held.offset, metadata)


Offsets = Mapping[TopicPartition, Commit]
Committed = Mapping[TopicPartition, Commit | None]
"""The commit of each partition; None where there is none."""


class RunningJob(JobEngine):
    """A job in this process, over all of its sessions."""

    def __init__(self, job: Job, program: Program, hooks: Hooks) -> None:
        super().__init__(job, program, hooks)
        self.owner = uuid.uuid4().hex
        self.end_offsets: dict[TopicPartition, int] | None = None
        """The end offsets of the partitions when the job started; None without `until_end`."""
        self._other_offsets: Offsets | None = None
        """The group's offsets in other topics when the last session began."""
        self.consumed = 0
        self.partition_check = PartitionCheck(job, program) if job.is_shared else None

    def refuse_other_job(self, storage: Storage, offsets: Offsets) -> None:
        """Raise a SettingError if the group belongs to another job.

        With `--on-change fresh` a group that reads the same topics is taken over.
        """
        job = self.job
        job_metadata = {
            partition: held.metadata
            for partition, held in offsets.items()
            if "snapshot" in held.metadata or "changelog" in held.metadata
        }
        is_default = not job.group_id_given
        hint = _HINT + ("; the default is the name of the pattern file" if is_default else "")
        same_topics = [
            metadata
            for partition, metadata in job_metadata.items()
            if partition.topic in job.topics
        ]
        if job_metadata and not same_topics:
            topics = ", ".join(sorted({partition.topic for partition in job_metadata}))
            raise SettingError(
                f"group {job.group_id} belongs to another job, which reads {topics}{hint}"
            )
        if job.on_change != "fresh" and not all(map(storage.has_state_of, same_topics)):
            raise SettingError(
                f"group {job.group_id} has committed offsets of these topics with their state "
                f"elsewhere, not in {job.store}: the group belongs to another job, or its state "
                f"was not moved along{hint}; or use --on-change fresh to take the group over and "
                "start over at the stored offsets"
            )

    def former_commits(self, storage: Storage, offsets: Offsets) -> Offsets:
        """Return the commits that name state of the job, of topics that it does not read any more.

        If such a topic was read after the others, only its commits name the newest state.
        """
        return {
            partition: held
            for partition, held in offsets.items()
            if partition.topic not in self.job.topics
            and storage.includes(partition.topic, held.metadata)
        }

    def check_owner(self, offsets: Offsets) -> None:
        """Check that no other process has taken over, and that no other job uses the group.

        Raises a LostError if another process has committed the offsets of the job's topics; or if
        offsets of other topics were committed since the last session began: then two jobs have this
        group and fence each other, which the offsets of this job's topics do not show.
        """
        job = self.job
        others = {
            partition: held
            for partition, held in offsets.items()
            if partition.topic not in job.topics
        }
        owners = {offsets[partition].metadata.get("owner") for partition in offsets.keys() - others}
        if owners - {None, self.owner}:
            raise LostError(
                f"another process of group {job.group_id} has taken over (fenced)\n"
                "  hint: of two processes with the same state, the later one continues; give "
                "another job its own --group-id and --state"
            )
        before, self._other_offsets = self._other_offsets, others
        if before is None:
            return
        topics = sorted({one.topic for one, held in others.items() if before.get(one) != held})
        if topics:
            raise LostError(
                f"group {job.group_id} also belongs to another job, which reads "
                f"{', '.join(topics)}: each fences the other{_HINT}"
            )
