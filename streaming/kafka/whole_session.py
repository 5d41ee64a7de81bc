"""The session of a single consumer, which has all partitions as one part.

Each session begins with a commit, which fences an earlier process of the job and names this process
as the owner of the offsets. All checks that may refuse the job come before that commit, so that a
process that is refused does not disturb a running one.

The one rule: of two processes of one job the later one goes on.
"""

from __future__ import annotations

from typing import Any

from ketal.streaming.kafka.connecting import clients
from ketal.streaming.kafka.connecting.client_calls import StoppedError
from ketal.streaming.kafka.job_session import ChangedError, Session
from ketal.streaming.kafka.partition_state import Part, open_part
from ketal.streaming.kafka.running_job import Offsets

READS_AHEAD_MAX = 5
"""How many times the state is read before fencing, while another process keeps committing."""


class WholeSession(Session):
    """All partitions, as one part."""

    def _claim(self) -> None:
        """Fence an earlier process, restore the state, and commit as the new owner."""
        with self.storage.exclusive(lambda: self.engine.stopping):
            self._take_over()

    def _take_over(self) -> None:
        connection = self.connection
        offsets = connection.group_offsets()
        if self.engine.has_begun:
            self.engine.check_owner(offsets)
        else:
            self.engine.refuse_other_job(self.storage, offsets)
        connection.connect_consumer()
        partitions = connection.input_partitions()
        self.storage.check(connection.partition_numbers, connection.topic_setting, 1)
        own_commits = self._own_commits(offsets)
        part = None
        if own_commits and not self.engine.has_begun:
            part, own_commits = self._open_ahead(own_commits)
        connection.connect_producer(clients.transactional_id(self.job))
        connection.consumer.assign(partitions)
        committed = connection.committed(sorted({*partitions, *own_commits}))
        positions = connection.start_offsets({one: committed[one] for one in partitions})
        for partition, offset in positions.items():
            connection.consumer.seek(partition, offset)
        if part is not None and committed != own_commits:
            part.store.close()
            part = None
        if part is None:
            loaded = self._load_state(open_too=True)
            part = open_part(self.engine, self.storage, 0, positions, committed, loaded)
        self.record_ends(partitions)
        part.dirty = True  # The first commit names the owner.
        self.set_parts([part])
        self.commit()
        if part.notice:
            self.engine.hooks.notify(part.notice)

    def _own_commits(self, offsets: Offsets) -> Offsets:
        """Return the commits of the job's topics, and of those that it does not read any more."""
        own = {
            partition: held
            for partition, held in offsets.items()
            if partition.topic in self.job.topics
        }
        return {**own, **self.engine.former_commits(self.storage, offsets)}

    def _open_ahead(self, own_commits: Offsets) -> tuple[Part | None, Offsets]:
        """Open the part before any process is fenced; return it and the commits it belongs to.

        The part is None if another process commits during each of the reads. It is also None if
        nobody commits and yet the state belongs to another commit: then the end of that commit's
        transaction is not in the topic yet, and the next producer completes the transaction.
        """
        for _ in range(READS_AHEAD_MAX):
            loaded = self._load_state(open_too=False)
            names = [self.storage.state_name(held.metadata) for held in own_commits.values()]
            if self.storage.belongs_to(loaded, names):
                positions = {
                    partition: held.offset
                    for partition, held in own_commits.items()
                    if partition.topic in self.job.topics
                }
                return open_part(
                    self.engine, self.storage, 0, positions, own_commits, loaded
                ), own_commits
            before, own_commits = own_commits, self._own_commits(self.connection.group_offsets())
            if own_commits == before:
                break
        return None, own_commits

    def _load_state(self, *, open_too: bool) -> Any:
        """Return the loaded state of the part; raise a StoppedError if the job must end."""
        loaded = self.storage.load([0], lambda: self.engine.stopping, open_too=open_too)
        if not loaded:
            raise StoppedError("reading the state")
        return loaded[0]

    def _check_partitions(self) -> None:
        """Raise a ChangedError, so that a new session begins, if partitions were added."""
        if set(self.connection.input_partitions()) != set(self.part_of):
            raise ChangedError("the partitions of the topics have changed")
