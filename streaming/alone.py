"""One consumer that reads all partitions, with its state in a folder.

Each session begins with a commit of its own, which fences an earlier process of the job and says
whose the offsets are now; a process that finds another one's name there was replaced, and ends.

While a process begins, it has the folder for itself (`locked`), until the folder says whose it is:
of two jobs that are started in one folder at the same moment, the second one finds the first there.
Once it has begun it does not keep others out, for a second process of the group takes over.

The folder is of one group, and says which, and which topics its state is of: two jobs that went by
one name would remove each other's logs. It says too that something was committed; where Kafka then
knows of nothing, its offsets have expired, and to begin as if nothing had been would be to say all
verdicts again.

The one rule: the snapshot that the committed offsets name is the state, or it is a StateError.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kafka import TopicPartition

from ketal.errors import StateError
from ketal.streaming import clients
from ketal.streaming.clients import LostError
from ketal.streaming.drain import drain_hint
from ketal.streaming.locks import locked
from ketal.streaming.parts import Part
from ketal.streaming.saved import Claim, Saved
from ketal.streaming.sessions import ChangedError, Session, metadata


class Alone(Session):
    """A session that has one part, with all partitions."""

    def open(self) -> None:
        """Connect, fence whoever was here before, take up the state, and claim it."""
        with locked(self.job.state, self.call_s, lambda: self.engine.stopping) as had:
            if had:
                self._begin_alone()

    def _begin_alone(self) -> None:
        """Begin, while nobody else begins with this folder."""
        self._check_owner()
        # Before the transactional id fences the job that the folder may be of.
        claim = Claim(self.job.state, self.job.group_id, self.job.topics)
        self.connect(f"ketal-{self.job.group_id}")
        partitions = self.inputs()
        self.consumer.assign(partitions)
        committed = self.committed(partitions)
        positions = self.beginnings(committed)
        for one, offset in positions.items():
            self.consumer.seek(one, offset)
        part = self.part(positions, Saved(self.job.state))
        self._take_up(part, committed, claim)
        self.note_ends(partitions)
        self.note_unread(partitions)
        self.hold([part])
        self.commit([part])
        claim.committed()
        self.tell()
        self.opened()

    def _check_owner(self) -> None:
        """End this process if another one has claimed the offsets meanwhile."""
        if not self.engine.claimed:
            return
        # The job's own consumer is made once the transactional id is this session's.
        make = partial(clients.consumer_of, self.job, committed_only=False)
        consumer = self.ask("connecting", make, calls=2)
        timeout_ms = self.job.call_timeout_ms
        try:
            for topic in self.job.topics:
                first = TopicPartition(topic, 0)
                held = self.ask("asking for offsets", consumer.committed, first, True, timeout_ms)
                owner = None if held is None else metadata(held.metadata).get("owner")
                if owner is not None and owner != self.engine.owner:
                    raise LostError(
                        f"another process of group {self.job.group_id} has taken over (fenced)"
                    )
        finally:
            clients.close_consumer(consumer)
        self._check_elsewhere()

    def _check_elsewhere(self) -> None:
        """End this process if the group is another job's too, which reads other topics.

        Each begin of one fences the other, and no offsets of this one say so. A transaction that
        Kafka itself gave up ends a session in the same way; but then nobody has committed offsets
        of other topics since this process began again the last time.
        """
        found = self.ask("asking for offsets", clients.offsets_elsewhere, self.job, calls=2)
        before, self.engine.elsewhere = self.engine.elsewhere, found
        if before is None or found == before:
            return
        topics = sorted({one.topic for one, held in found.items() if before.get(one) != held})
        raise LostError(
            f"group {self.job.group_id} is another job's too, which reads {', '.join(topics)}: "
            "each fences the other\n  hint: give this job a --group-id of its own, and a --state "
            "where that is set"
        )

    def _take_up(self, part: Part, committed: dict[TopicPartition, Any], claim: Claim) -> None:
        """Restore the state that the offsets name, or begin with none."""
        held = [metadata(one.metadata) for one in committed.values() if one is not None]
        names = [str(one.get("snapshot", "")) for one in held]
        # What this process has committed is of its own program.
        on_change = "stop" if self.engine.claimed else self.job.on_change
        if not held:
            self._begin_without(claim, on_change)
            return
        assert isinstance(part.store, Saved)
        try:
            if "" in names:
                raise StateError(
                    f"the offsets of group {self.job.group_id} were committed by another program, "
                    "or with the state elsewhere"
                )
            # A topic that was left out for a while has an older one.
            told = part.restore(part.store.read(max(names)), on_change)
            if told:
                self.to_tell.append(told)
        except StateError as fault:
            if on_change == "fresh":
                told = "starting anew at the stored offsets, with nothing of what was before"
                self.to_tell.append(f"{fault}; {told}")
                part.store = Saved(self.job.state)  # which has read nothing
                return
            raise StateError(
                f"{fault}\n  hint: --on-change fresh starts anew at the stored offsets"
                f"{drain_hint(fault)}; another group_id starts at the beginning of the topics"
            ) from None

    def _begin_without(self, claim: Claim, on_change: str) -> None:
        """Begin where nothing is committed, unless something was."""
        if not claim.begun:
            return
        fault = (
            f"group {self.job.group_id} has no offsets at {self.job.bootstrap_servers}, and "
            f"{self.job.state} holds the state of what it had committed: they have expired or were "
            "deleted, or this is another Kafka"
        )
        if on_change != "fresh":
            raise StateError(
                f"{fault}\n  hint: --on-change fresh begins anew, where [kafka] start says; "
                "another group_id and another [state] store do so too, and leave what is there"
            )
        self.to_tell.append(f"{fault}; beginning anew at the {self.job.start} messages")

    def poll(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        """Return messages."""
        batches: dict[TopicPartition, list[Any]] = self.consumer.poll(timeout_ms=timeout_ms)
        return batches

    def note(self, part: Part) -> dict[str, str]:
        """Return the name of the snapshot."""
        return {"snapshot": part.name}

    def check_partitions(self) -> None:
        """Begin again if a topic has other partitions than before."""
        if set(self.inputs()) != set(self.part_of):
            raise ChangedError("the topics have other partitions than before")
