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

from collections.abc import Mapping
from functools import partial
from typing import Any

from kafka import TopicPartition

from ketal.errors import StateError
from ketal.streaming.job.locks import locked
from ketal.streaming.job.pattern_migration import drain_hint
from ketal.streaming.kafka import clients
from ketal.streaming.kafka.clients import LostError
from ketal.streaming.kafka.file_state_store import Claim, Saved
from ketal.streaming.kafka.partition_state import Part
from ketal.streaming.kafka.session import ChangedError, Session, metadata


class Alone(Session):
    """A session that has one part, with all partitions."""

    def open(self) -> None:
        """Connect, fence whoever was here before, take up the state, and claim it."""
        with locked(self.job.state, self.call_s, lambda: self.engine.stopping) as had:
            if had:
                self._begin_alone()

    def _begin_alone(self) -> None:
        """Begin, while nobody else begins with this folder."""
        # All that is found out here leaves a job that runs as it is; what comes next fences it.
        before = self.group_offsets()
        claim = Claim(self.job.state, self.job.group_id, self.job.topics)
        own = {one: held for one, held in before.items() if one.topic in self.job.topics}
        part: Part | None = None
        if self.engine.claimed:
            self._check_owner(own)
            self._check_elsewhere(before)
        else:
            self.refuse_other_job(before, partial(self._has_state, claim))
            if own:
                part = self._taken_up({one: held.offset for one, held in own.items()}, own, claim)
        self.connect(clients.transactional_id(self.job))
        partitions = self.inputs()
        self.consumer.assign(partitions)
        committed = self.committed(partitions)
        positions = self.beginnings(committed)
        for one, offset in positions.items():
            self.consumer.seek(one, offset)
        if part is None or _named(committed) != _named(own):
            self.to_tell.clear()
            part = self._taken_up(positions, committed, claim)
        self.note_ends(partitions)
        self.note_unread(partitions)
        self.hold([part])
        self.commit([part])
        claim.committed()
        self.tell()
        self.opened()

    def _has_state(self, claim: Claim, said: Mapping[str, Any]) -> bool:
        """Return whether the folder is that of the state which a commit names, damaged or not."""
        log = str(said.get("snapshot", "")).partition("@")[0]
        return bool(log) and (claim.begun or (self.job.state / log).exists())

    def _check_owner(self, own: Mapping[TopicPartition, Any]) -> None:
        """End this process if another one has claimed the offsets meanwhile."""
        owners = {metadata(held.metadata).get("owner") for held in own.values()}
        if owners - {None, self.engine.owner}:
            raise LostError(
                f"another process of group {self.job.group_id} has taken over (fenced)\n"
                "  hint: of two processes with one state the later one goes on; another job is to "
                "have a --group-id and a --state of its own"
            )

    def _check_elsewhere(self, offsets: Mapping[TopicPartition, Any]) -> None:
        """End this process if the group is another job's too, which reads other topics.

        Each begin of one fences the other, and no offsets of this one say so. A transaction that
        Kafka itself gave up ends a session in the same way; but then nobody has committed offsets
        of other topics since this process began again the last time.
        """
        found = {one: held for one, held in offsets.items() if one.topic not in self.job.topics}
        before, self.engine.elsewhere = self.engine.elsewhere, found
        if before is None or found == before:
            return
        topics = sorted({one.topic for one, held in found.items() if before.get(one) != held})
        raise LostError(
            f"group {self.job.group_id} is another job's too, which reads {', '.join(topics)}: "
            "each fences the other\n  hint: give this job a --group-id of its own, and a --state "
            "where that is set"
        )

    def _taken_up(
        self,
        positions: Mapping[TopicPartition, int],
        committed: Mapping[TopicPartition, Any],
        claim: Claim,
    ) -> Part:
        """Return the part with the state that the offsets name."""
        part = self.part(dict(positions), Saved(self.job.state))
        self._take_up(part, committed, claim)
        return part

    def _take_up(self, part: Part, committed: Mapping[TopicPartition, Any], claim: Claim) -> None:
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


def _named(committed: Mapping[TopicPartition, Any]) -> dict[TopicPartition, Any]:
    """Return what decides about the state: offsets, and the snapshots that they name."""
    return {
        one: None if held is None else (held.offset, held.metadata)
        for one, held in committed.items()
    }
