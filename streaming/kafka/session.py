"""A session: one life of clients and state, from the last commit to whatever ends it.

Consume, transform, produce, as in Kafka's KIP-98: what was judged since the last commit becomes one
transaction that holds the verdicts, the offsets, and what says where the state of each part is. It
happens whole or not at all, so a topic that is read committed has each verdict once.

Which partitions a session reads is another's to say: `Alone` has all of them, a `Member` those that
its group gives it.

The one rule: state, offsets and verdicts move together or not at all.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from ketal.errors import SettingError
from ketal.model.verdicts import Verdict
from ketal.program import Program
from ketal.streaming.job.file import Job
from ketal.streaming.job.metrics import Figures, Hooks
from ketal.streaming.job.outputs import PENDING_BYTES_MAX, Outputs
from ketal.streaming.job.pattern_migration import told_as_over
from ketal.streaming.job.sharing import Watch
from ketal.streaming.kafka import clients
from ketal.streaming.kafka.access import check_access
from ketal.streaming.kafka.clients import CLIENT_ERRORS, StoppedError, within
from ketal.streaming.kafka.partition_state import Part, Store, total
from ketal.streaming.kafka.watermarks import LOOK_MS

T = TypeVar("T")

POLL_MS = 200
TAKEN_MAX = 1_000
"""After so many messages of one poll it is looked how much waits for the commit."""
SAVING_SHARE = 5
"""Saving takes a fifth of the time at most: a large state is saved less often."""
RECOMMIT_S = 3_600
"""Offsets that are committed no more expire, after days; a quiet job says them again."""
LOOK_S = LOOK_MS / 1e3
PARTITIONS_S = 30.0
STEADY_S = 10.0
"""So long without a fault, and with nothing to commit, a session has recovered."""


class ChangedError(Exception):
    """The session is of topics as they were; the next one is to begin. Nothing has failed."""


class RunningJob:
    """What of a job outlives its sessions.

    Parameters
    ----------
    job : Job
        What runs.
    program : Program
        The patterns.
    hooks : Hooks
        Where notices, metrics and flushes go.
    """

    def __init__(self, job: Job, program: Program, hooks: Hooks) -> None:
        self.job = job
        self.program = program
        self.hooks = hooks
        self.owner = uuid.uuid4().hex
        self.claimed = False
        self.stopping = False
        self.figures = Figures()
        self.summary: dict[str, Any] | None = None
        self.failing_since_s: float | None = None
        self.ends: dict[TopicPartition, int] | None = None
        self.elsewhere: dict[Any, Any] | None = None
        """What the group had committed of other topics when this process began again."""
        self.consumed = 0
        self.watch = None if job.changelog is None else Watch(job, program)
        self._outputs: Outputs | None = None

    @property
    def outputs(self) -> Outputs:
        """What the verdicts go through; its files are this engine's until it has run."""
        if self._outputs is None:
            self._outputs = Outputs(self.job, self.hooks.say, self.hooks.flush)
        return self._outputs

    def close_outputs(self) -> None:
        """Close the outputs' files, if any was opened."""
        if self._outputs is not None:
            self._outputs.close()
            self._outputs = None

    def stop(self) -> None:
        """Ask the engine to commit and to return."""
        self.stopping = True


class Session:
    """One life of clients and state.

    Parameters
    ----------
    engine : RunningJob
        The job that the session is of.
    """

    def __init__(self, engine: RunningJob) -> None:
        self.engine = engine
        self.job = engine.job
        self.program = engine.program
        self.call_s = engine.job.call_timeout_ms / 1e3
        self.producer: Any = None
        self.consumer: Any = None
        self.asker: Any = None
        """A client that is asked where partitions end, whatever is committed there."""
        self.outputs = engine.outputs
        self.parts: list[Part] = []
        self.part_of: dict[TopicPartition, Part] = {}
        self.ends_known: dict[TopicPartition, int] = {}
        """Where partitions ended when their part began; what a client fetches says it later."""
        self.to_tell: list[str] = []
        """What became of a change; it is so once the commit that begins with it is made."""
        self.settled = False
        self.began_s = self.listed_s = time.monotonic()
        self.committed_s = 0.0
        self.commit_after_s = 0.0
        self.looked_s = 0.0

    # --- what the kinds of sessions differ in ---

    def open(self) -> None:
        """Connect, and take up what there is to be taken up."""
        raise NotImplementedError

    def poll(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        """Return messages of the parts that are here."""
        raise NotImplementedError

    def note(self, part: Part) -> dict[str, str]:
        """Return what the offsets of a part say of it."""
        raise NotImplementedError

    def check_partitions(self) -> None:
        """Raise if the topics have other partitions than before."""
        raise NotImplementedError

    def membership(self) -> Any:
        """Return as whom the offsets are committed."""
        return self.consumer.group_metadata()

    # --- begin and end ---

    def ask(self, what: str, call: Callable[..., T], *args: Any, calls: int = 1) -> T:
        """Ask Kafka something that takes so many calls; a job that is to end waits for nothing.

        Raises
        ------
        StoppedError
            If the job is to end and the answer is not there.
        """
        timeout_s = calls * self.call_s
        return within(timeout_s, what, call, *args, enough=lambda: self.engine.stopping)

    def reach(self) -> None:
        """Connect once, so that what Kafka refuses is known at once, and why."""
        servers = self.job.bootstrap_servers.split(",")
        self.ask("connecting", check_access, self.job, calls=2 + len(servers))

    def group_offsets(self) -> dict[TopicPartition, Any]:
        """Return what the group has committed, of the topics of the job and of others."""
        return self.ask("asking for offsets", clients.group_offsets, self.job, calls=2)

    def refuse_other_job(
        self,
        offsets: Mapping[TopicPartition, Any],
        is_own: Callable[[Mapping[str, Any]], bool],
    ) -> None:
        """Refuse to begin where the group is another job's, before that one notices anything.

        A job is known by its state: another process that has it, or another consumer of the topic
        that holds it, is of the same job. `--on-change fresh` takes a group over without it.

        Parameters
        ----------
        offsets : mapping
            What the group has committed.
        is_own : callable
            Returns whether this process has the state that a commit names.

        Raises
        ------
        SettingError
            If the group is another job's.
        """
        job = self.job
        named = {one: metadata(held.metadata) for one, held in offsets.items()}
        others = {one: s for one, s in named.items() if "snapshot" in s or "changelog" in s}
        hint = (
            "\n  hint: give this job a --group-id of its own, and a --state where that is set"
            + ("" if job.group_id_given else "; the default is the name of the pattern file")
        )
        own = [said for one, said in others.items() if one.topic in job.topics]
        if others and not own:
            topics = ", ".join(sorted({one.topic for one in others}))
            raise SettingError(f"group {job.group_id} is another job's, which reads {topics}{hint}")
        if job.on_change != "fresh" and not all(map(is_own, own)):
            raise SettingError(
                f"group {job.group_id} has committed offsets of these topics with the state "
                f"elsewhere, and not in {job.store}: the group is another job's, or that state is "
                f"to be brought here{hint}; --on-change fresh takes the group over, and starts "
                "anew at the stored offsets"
            )

    def connect(self, transactional_id: str) -> None:
        """Make the clients; whoever had the transactional id before is fenced."""
        self.producer = self.ask(
            "a transaction", clients.producer_of, self.job, transactional_id, calls=4
        )
        self.consumer = self.ask("connecting", clients.consumer_of, self.job, calls=2)

    def hold(self, parts: list[Part]) -> None:
        """Have these parts from now on."""
        self.parts = parts
        self.part_of = {one: part for part in parts for one in part.positions}
        self.settled = True
        for part in parts:
            part.wake()

    def note_unread(self, partitions: list[TopicPartition]) -> None:
        """Ask where partitions end: what is there already is not idle, though none was fetched."""
        if partitions:
            self.ends_known |= self.ends_of(self.consumer, partitions)

    def ends_of(
        self, consumer: Any, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return where partitions end for a consumer: at what is committed, or at all there is."""
        timeout_ms = self.job.call_timeout_ms
        return self.ask("asking for ends", consumer.end_offsets, list(partitions), timeout_ms)

    def part(self, positions: dict[TopicPartition, int], store: Store) -> Part:
        """Return a part without state."""
        return Part(self.job, self.program, positions, store, self.engine.watch)

    def numbers(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions.

        Raises
        ------
        SettingError
            If there is no such topic.
        """
        # Where a client has not heard of a topic, it asks until it is answered.
        numbers: set[int] = self.ask(
            "asking for a topic", self.consumer.partitions_for_topic, topic
        )
        if numbers:
            return numbers
        self.ask("asking for a topic", clients.check_visible, self.job, topic, calls=2)
        if self.engine.claimed:
            # A broker that has just come back may not know of it yet.
            raise TimeoutError(f"there is no topic {topic} any more")
        raise SettingError(
            f"there is no topic {topic} at {self.job.bootstrap_servers}; create it first"
        )

    def inputs(self) -> list[TopicPartition]:
        """Return all partitions of the input; each topic, of the outputs too, must be there."""
        out = []
        for topic in self.job.topics:
            out += [TopicPartition(topic, n) for n in sorted(self.numbers(topic))]
        for target in self.job.outputs:
            if target.kind == "kafka":
                self.numbers(target.name)
        return out

    def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, Any]:
        """Return what is committed of each partition; None where nothing is."""
        timeout_ms = self.job.call_timeout_ms
        return {
            one: self.ask("asking for offsets", self.consumer.committed, one, True, timeout_ms)
            for one in partitions
        }

    def beginnings(
        self, committed: dict[TopicPartition, Any], *, grown: bool = True
    ) -> dict[TopicPartition, int]:
        """Return where to begin: where the last commit is, else as `start` says.

        Parameters
        ----------
        committed : dict
            What is committed of each partition; None where nothing is.
        grown : bool
            Whether one where nothing is was added to a topic that was read before.
        """
        timeout_ms = self.job.call_timeout_ms
        fresh = [one for one, held in committed.items() if held is None]
        known = {one.topic for one, held in committed.items() if grown and held is not None}
        # A partition that was added to a topic later is read whole.
        first = [one for one in fresh if self.job.start == "earliest" or one.topic in known]
        last = [one for one in fresh if one not in first]
        out = {one: held.offset for one, held in committed.items() if held is not None}
        if first:
            ask = self.consumer.beginning_offsets
            out.update(self.ask("asking for beginnings", ask, first, timeout_ms))
        if last:
            out.update(self.ends_of(self.consumer, last))
        return out

    def note_ends(self, partitions: list[TopicPartition]) -> None:
        """Remember where the topics end when the job starts, if that is where it is to end."""
        engine = self.engine
        if engine.ends is None and self.job.until_end:
            engine.ends = self.ends_of(self.consumer, partitions)

    def tell(self) -> None:
        """Tell what is committed now."""
        said, self.to_tell = self.to_tell, []
        for one in said:
            self.engine.hooks.tell(one)

    def opened(self) -> None:
        """Say that Kafka is there."""
        self.engine.claimed = True
        if self.engine.failing_since_s is not None:
            self.engine.hooks.tell("Kafka is back; going on from the last commit")

    def close(self) -> None:
        """Discard clients and state."""
        self.outputs.clear()
        for part in self.parts:
            part.store.close()
        if self.producer is not None:
            clients.close_producer(self.producer)
        for consumer in (self.consumer, self.asker):
            if consumer is not None:
                clients.close_consumer(consumer)

    # --- live ---

    def live(self) -> None:
        """Consume until there is a reason to stop, and commit."""
        with contextlib.suppress(StoppedError):
            self._go_on()
        if self.dirty:
            self.commit()
        self.sum_up()
        self._look()

    def _go_on(self) -> None:
        """Consume, and commit now and then, until there is a reason to stop."""
        engine = self.engine
        while not (engine.stopping or self._finished()):
            self._consume()
            now_s = time.monotonic()
            due = now_s >= self.commit_after_s or self.outputs.bytes >= PENDING_BYTES_MAX
            if due and (self.dirty or now_s - self.committed_s >= RECOMMIT_S):
                self.commit(self.parts if not self.dirty else None)
                engine.failing_since_s = None
            if now_s - self.looked_s >= LOOK_S:
                self.looked_s = now_s
                self._look()

    @property
    def dirty(self) -> bool:
        """Whether there is something to commit."""
        return any(part.dirty for part in self.parts)

    def _consume(self) -> None:
        left_ms = 1e3 * (self.commit_after_s - time.monotonic())
        timeout_ms = max(1, min(POLL_MS, int(left_ms))) if self.dirty else POLL_MS
        batches = self.poll(timeout_ms)
        self._hear(batches)
        for one in sorted(batches):
            part = self.part_of[one]
            if part.ended:
                continue
            self._take(one, part, batches[one])
            if part.ended:
                self.consumer.pause(*part.positions)

    def _hear(self, batches: Iterable[TopicPartition]) -> None:
        """Hear of all that there is, before anything of a poll is taken and moves time.

        A poll brings some partitions, and another one of the part may have woken at the same
        moment. Only where one is idle is Kafka asked, once a poll: a poll that had to wait for the
        answer is the larger, so that this costs little where messages are many.
        """
        brought: dict[Part, list[TopicPartition]] = {}
        for one in batches:
            if not self.part_of[one].ended:
                brought.setdefault(self.part_of[one], []).append(one)
        for part, partitions in brought.items():
            part.heard(partitions)
        idle = [one for part in brought for one in part.idle]
        for one in self._unread(idle):
            self.part_of[one].heard([one])

    def _unread(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Ask Kafka which of these have messages that are not read yet.

        Those of a transaction that has not ended are among them: those of its other partitions
        may be seen as committed a moment before these are.
        """
        if not partitions:
            return []
        if self.asker is None:
            self.asker = self.ask("connecting", clients.asker_of, self.job, calls=2)
        ends = self.ends_of(self.asker, partitions)
        self.ends_known |= ends
        return [one for one in partitions if ends[one] > self._position(one)]

    def _take(self, one: TopicPartition, part: Part, records: Sequence[Any]) -> None:
        """Take messages of a partition; commit in between where verdicts are many."""
        for start in range(0, len(records), TAKEN_MAX):
            if self.outputs.bytes >= PENDING_BYTES_MAX:
                self.commit()
            some = records[start : start + TAKEN_MAX]
            part.heard([one])
            self.engine.consumed += part.take(one, some, self._add)
            if part.ended:
                break

    def _add(self, verdicts: list[Verdict], record: Any = None) -> None:
        for verdict in verdicts:
            self.outputs.add(verdict, None if record is None else record.key)
            self.engine.figures.verdict(verdict.kind, getattr(verdict, "pattern", None))

    def _finished(self) -> bool:
        """Return whether all parts are over, or at the ends that there were at the start.

        A process that has no part has nothing to finish; it stands by for one, unless it is to go
        no further than those ends.
        """
        if not self.settled:
            return False
        ends = self.engine.ends
        if ends is None:
            return bool(self.parts) and all(part.ended for part in self.parts)
        return all(
            part.ended or self._position(one) >= ends.get(one, 0)
            for one, part in self.part_of.items()
        )

    def _position(self, one: TopicPartition) -> int:
        """Return what is read next; the client goes past the marks of transactions."""
        position = self.consumer.position(one, timeout_ms=self.job.call_timeout_ms)
        return self.part_of[one].positions[one] if position is None else int(position)

    def _look(self) -> None:
        """Look at the clock: idle partitions, new partitions, figures."""
        behind = {}
        for one in self.part_of:
            fetched, known = self.consumer.highwater(one), self.ends_known.get(one, 0)
            behind[one] = max(0, max(fetched or 0, known) - self._position(one))
        for part in self.parts:
            self._add(part.look(behind, self._unread))
            if drained := part.drained():
                self.engine.hooks.tell(told_as_over(drained))
        now_s = time.monotonic()
        if now_s - self.listed_s >= PARTITIONS_S:
            self.listed_s = now_s
            self.check_partitions()
            # Where nothing is to be read or committed, or no part was given, a Kafka that is gone
            # shows in nothing else: the consumer tries it again and says nothing.
            self.note_unread(sorted(self.part_of) or self.inputs())
        if now_s - self.began_s >= STEADY_S and not self.dirty:
            self.engine.failing_since_s = None
        marks_s = [p.watermarks.watermark_s for p in self.parts]
        known_s = [mark_s for mark_s in marks_s if mark_s is not None]
        self.engine.figures.look(
            now_s=now_s,
            messages=self.engine.consumed,
            control=sum(part.counts.control for part in self.parts),
            lag={f"{one.topic}/{one.partition}": lag for one, lag in behind.items()},
            executions=[part.execution for part in self.parts],
            watermark_s=min(known_s, default=None) if len(known_s) == len(marks_s) else None,
            parts=self.shares(),
        )
        self.engine.hooks.look(self.engine.figures)

    def shares(self) -> tuple[int, int] | None:
        """Return how many parts are here, and how many there are; None where there is one."""
        return None

    # --- commit ---

    def commit(self, parts: list[Part] | None = None) -> None:
        """Save what changed and commit it, the offsets and the verdicts in one transaction.

        Parameters
        ----------
        parts : list of Part, optional
            What is committed; by default what is dirty.
        """
        began_s = time.monotonic()
        chosen = [part for part in self.parts if part.dirty] if parts is None else parts
        if not chosen:
            return
        offsets = {}
        for part in chosen:
            part.name = part.store.write(part.changes())
            part.said = {**self.note(part), "owner": self.engine.owner}
            text = json.dumps(part.said)
            for one, offset in part.positions.items():
                offsets[one] = OffsetAndMetadata(offset, text, -1)
        saving_s = time.monotonic() - began_s
        self.outputs.write_files()
        self.producer.begin_transaction()
        sent = self.outputs.send(self.producer)
        for part in chosen:
            sent += part.store.send(self.producer)
        self._transact(offsets, sent)
        for part in chosen:
            part.store.committed(part.name)
            part.dirty = False
        self.outputs.clear()
        self.sum_up()
        now_s = time.monotonic()
        self.committed_s = now_s
        self.engine.figures.committed(now_s - began_s)
        least_s = self.job.commit_interval_ms / 1e3
        self.commit_after_s = now_s + max(least_s, (SAVING_SHARE - 1) * saving_s)

    def _transact(self, offsets: dict[TopicPartition, OffsetAndMetadata], sent: list[Any]) -> None:
        """Put the offsets to what was sent, and commit."""
        try:
            within(
                self.call_s,
                "sending offsets",
                self.producer.send_offsets_to_transaction,
                offsets,
                self.membership(),
                enough=self._is_in_vain,
            )
            commit = self.producer.commit_transaction
            within(self.call_s, "the commit", commit, enough=self._is_in_vain)
        except CLIENT_ERRORS as error:
            # What a message failed of says more than that the transaction did.
            for future in sent:
                if future.failed():
                    raise future.exception from error
            raise

    def _is_in_vain(self) -> bool:
        """Return whether nobody can commit any more: the job is to end, and Kafka is away."""
        return self.engine.stopping and not clients.listens(self.job.bootstrap_servers)

    def sum_up(self) -> None:
        """Take the sum over the parts; all of it is committed."""
        self.engine.summary = total(part.summary for part in self.parts)


def metadata(text: str | None) -> dict[str, Any]:
    """Return what a commit says beside the offset; nothing if it is not one of ketal's."""
    try:
        said = json.loads(text or "{}")
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
