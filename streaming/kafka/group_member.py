"""One of several consumers: a member of the group, which gives it parts and takes them away.

Kafka's range assignor lays out the members over the partitions of each topic in the same order, so
that topics with equally many partitions fall apart alike, and a part comes to one member whole.

When the group changes, each member commits what it has done and gives up all of its parts before
any member is given one. kafka-python says so by calling a listener on the consumer's own thread,
while the thread of the engine waits in `poll` for that very call to return: so one of the two is at
work at a time. What the listener may do there is commit, through the producer, and mark partitions;
what asks the consumer itself something waits until `poll` has returned, and until then the
partitions are paused. What fails there is raised where `poll` returns.

A commit bears the generation in which the parts were given (KIP-447): one that was given up for
dead, and comes back, is refused, and what it had sent is aborted. The generation is noted when the
parts come. What the consumer says of itself at the commit would not do: its heartbeats, on a thread
of their own, may have learnt meanwhile that it is a member no more, and a commit of no member at
all is one that the broker takes. Its own transactional id serves one process alone.

A part that comes back as the process has left it is still here, and goes on. Any other is read from
the changelog and restored, and the group is polled meanwhile, so that a large state costs nobody
its membership: restoring, which asks no client anything, is done on a thread of its own. If the
group takes the parts away meanwhile, what was read is dropped, and nothing is committed of it. What
is read is the state of the offsets that were asked for only if these are the same afterwards; if
not, the session begins again.

The one rule: a part is committed by whom the group gave it to, or by nobody.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from kafka import ConsumerRebalanceListener, TopicPartition
from kafka import errors as faults
from kafka.structs import OffsetAndMetadata

from ketal.errors import SettingError, StateError
from ketal.streaming.job.pattern_migration import drain_hint
from ketal.streaming.kafka import clients
from ketal.streaming.kafka.clients import CLIENT_ERRORS, keep_joining
from ketal.streaming.kafka.partition_state import Part, total
from ketal.streaming.kafka.session import RunningJob, Session, metadata
from ketal.streaming.kafka.topic_state_store import Changelog, Loaded, check_topic, load

KEEP_S = 0.05
"""So often the group is polled while parts are restored."""
SETTLE_S = 10.0
"""So long an assignment that makes no sense may last: its leader did not know all topics yet."""


class Member(Session):
    """A session that has the parts which the group gives it."""

    def __init__(self, engine: RunningJob) -> None:
        super().__init__(engine)
        self.count = 0
        self.given: set[TopicPartition] | None = None
        self.resting: dict[int, Part] = {}
        self.given_as: Any = None
        """As which member of which generation the parts were given."""
        self.fault: BaseException | None = None
        self.closing = False
        self.waiting_since_s = time.monotonic()

    # --- begin and end ---

    def open(self) -> None:
        """Connect, look at the topics, and join the group."""
        if not self.engine.claimed:
            topic = self.job.changelog
            self.refuse_other_job(self.group_offsets(), lambda s: s.get("changelog") == topic)
        self.connect(f"{clients.transactional_id(self.job)}-{self.engine.owner}")
        partitions = self.inputs()
        self.count = self._equal_count()
        if not self.engine.claimed:
            check_topic(self.job, self.count, self.numbers)
        self.note_ends(partitions)
        self.consumer.subscribe(self.job.topics, listener=_Listener(self))
        self.opened()

    def _equal_count(self) -> int:
        """Return how many partitions each topic has."""
        counts = {topic: len(self.numbers(topic)) for topic in self.job.topics}
        if len(set(counts.values())) > 1:
            said = ", ".join(f"{topic} has {n}" for topic, n in counts.items())
            raise SettingError(
                f"several consumers: the topics have unequal numbers of partitions: {said}; the "
                "events of a scope would be in different ones. Give them equally many, or choose "
                '`store = "dir:PATH"`: one consumer reads all partitions'
            )
        return next(iter(counts.values()))

    def check_partitions(self) -> None:
        """End the job if partitions were added: a scope goes on in another one."""
        now = self._equal_count()
        if now != self.count:
            raise SettingError(
                f"the topics have {now} partitions, and had {self.count}: keys are in other "
                "partitions than before, and scopes with them; another group_id and state topic "
                "begin anew"
            )

    def close(self) -> None:
        """Discard clients and state, and leave the group."""
        self.closing = True
        super().close()

    # --- what the group does, on the consumer's thread ---

    def revoked(self) -> None:
        """Commit what is done, and give up all parts."""
        if self.closing:
            return
        try:
            keep_joining(self.consumer)
            self.commit()
        except BaseException as fault:
            self.fault = fault
            self.resting = {}
        else:
            # Where a part was not opened again yet, it rests as it was.
            self.resting |= {_number(part): part for part in self.parts}
        self._give_up()

    def lost(self) -> None:
        """Discard all parts: others have them by now."""
        if self.closing:
            return
        try:
            keep_joining(self.consumer)
        except SettingError as fault:
            self.fault = fault
        self.outputs.clear()
        self.resting = {}
        self._give_up()

    def _give_up(self) -> None:
        self.hold([])
        self.settled = False
        self.given = None
        self.waiting_since_s = time.monotonic()

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Keep partitions still until their parts are open."""
        if self.closing:
            return
        self.given = set(partitions)
        self.given_as = self.consumer.group_metadata()
        if self.given_as.generation_id < 0:
            self.fault = faults.UnknownMemberIdError("given up for dead while parts were given")
        self.waiting_since_s = time.monotonic()
        for one in self.given:
            self.consumer.pause(one)
            self.consumer.seek(one, 0)

    # --- what comes of it, on the engine's ---

    def poll(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        """Return messages of the parts that are open; open what the group has given."""
        batches = self._polled(timeout_ms)
        if self.given is not None:
            self._open_parts(self.given)
            return {}
        if not self.settled and time.monotonic() - self.waiting_since_s > self._patience_s():
            raise TimeoutError(f"the group {self.job.group_id} does not come together")
        return {one: records for one, records in batches.items() if one in self.part_of}

    def _polled(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        """Return what the consumer has; raise what failed in the listener."""
        try:
            batches: dict[TopicPartition, list[Any]] = self.consumer.poll(timeout_ms=timeout_ms)
        except CLIENT_ERRORS:
            if self.fault is not None:
                raise self.fault from None
            raise
        if self.fault is not None:
            raise self.fault
        return batches

    def membership(self) -> Any:
        """Return the member that was given the parts, whatever the consumer is by now."""
        return self.given_as

    def _patience_s(self) -> float:
        """Return how long a group may take: each member may be at work until it polls again."""
        interval_ms: float = self.consumer.config["max_poll_interval_ms"]
        return interval_ms / 1e3 + self.call_s

    def _finished(self) -> bool:
        """Return as a session does; without a part, not before it is plain that none comes."""
        waited_s = time.monotonic() - self.waiting_since_s
        return super()._finished() and (bool(self.parts) or waited_s >= SETTLE_S)

    def _open_parts(self, given: set[TopicPartition]) -> None:
        """Take up the parts that were given."""
        numbers = sorted({one.partition for one in given})
        if not self._is_whole(numbers, given):
            return
        committed = self.committed(sorted(given))
        positions = self.beginnings(committed, grown=False)
        if self.job.start == "latest" and None in committed.values():
            self._commit_beginnings(positions, committed)
            committed = self.committed(sorted(given))
        new = [n for n in numbers if not self._rests(n, committed)]
        loaded = load(self.job, new, lambda: not self._keeps(given))
        if not self._keeps(given):
            return
        if new and self.committed(sorted(given)) != committed:
            raise TimeoutError(
                f"the group {self.job.group_id} moved on while this consumer read the state"
            )
        restored = self._restored(given, loaded, positions, committed)
        if restored is None:
            return
        self.note_unread(sorted(given))
        parts = [restored[n] if n in restored else self.resting[n] for n in numbers]
        self.resting = {}
        self.given = None
        self.hold(parts)
        for one, offset in positions.items():
            self.consumer.seek(one, offset)
            if not self.part_of[one].ended:
                self.consumer.resume(one)
        # A part that was never committed has a state from now on, for whoever comes next.
        self.commit()
        self.tell()
        self.sum_up()
        said = ", ".join(str(number) for number in numbers) or "none"
        self.engine.hooks.tell(f"has {len(parts)} of {self.count} parts: {said}")

    def _commit_beginnings(
        self, positions: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, Any]
    ) -> None:
        """Commit where partitions begin that were never committed, before anything else is done.

        The latest message is another one for whoever comes after this process. That there is no
        state yet is told from the commit's having no name.
        """
        text = json.dumps({"changelog": self.job.changelog, "owner": self.engine.owner})
        fresh = [one for one, held in committed.items() if held is None]
        self.producer.begin_transaction()
        self._transact({one: OffsetAndMetadata(positions[one], text, -1) for one in fresh}, [])

    def _restored(
        self,
        given: set[TopicPartition],
        loaded: Mapping[int, Loaded],
        positions: Mapping[TopicPartition, int],
        committed: Mapping[TopicPartition, Any],
    ) -> dict[int, Part] | None:
        """Return the parts of what was loaded; None if they were taken away meanwhile."""
        parts: dict[int, Part] = {}
        told: list[str] = []
        fault: list[BaseException] = []
        enough = threading.Event()

        def restore() -> None:
            try:
                for number, one in loaded.items():
                    if enough.is_set():
                        return
                    own = {p: positions[p] for p in sorted(given) if p.partition == number}
                    held = {p: committed[p] for p in own}
                    parts[number] = self._opened_part(number, own, held, one, told)
            except BaseException as error:
                fault.append(error)

        thread = threading.Thread(target=restore, name="ketal restoring", daemon=True)
        thread.start()
        try:
            while thread.is_alive() and not self.engine.stopping:
                if not self._keeps(given):
                    enough.set()
                thread.join(KEEP_S)
        finally:
            enough.set()
            if not self.engine.stopping:
                # Who restores next must not share the watch with one who still does.
                thread.join()
        if not self._keeps(given):
            return None
        if fault:
            raise fault[0]
        self.to_tell = told
        return parts

    def _keeps(self, given: set[TopicPartition]) -> bool:
        """Stay in the group; return whether these parts are still to be taken up.

        Whatever is given is paused, so that there is nothing to read here.
        """
        if not self.engine.stopping:
            self._polled(0)
        return not self.engine.stopping and self.given is given

    def _is_whole(self, numbers: list[int], given: set[TopicPartition]) -> bool:
        """Return whether each part is here whole; a leader may have to learn of a topic first."""
        wanted = {TopicPartition(topic, n) for topic in self.job.topics for n in numbers}
        missing = sorted(wanted - given)
        if not missing:
            if numbers and numbers[-1] >= self.count:
                self.check_partitions()
                raise TimeoutError(f"there is a part {numbers[-1]}, and {self.count} partitions")
            return True
        if time.monotonic() - self.waiting_since_s >= SETTLE_S:
            one = missing[0]
            raise SettingError(
                f"the group {self.job.group_id} gave this consumer a piece of part "
                f"{one.partition}, without {one.topic}/{one.partition}: do all its members read "
                "the same topics, with the same version of ketal?"
            )
        return False

    def _rests(self, number: int, committed: dict[TopicPartition, Any]) -> bool:
        """Return whether a part is here as it was committed last."""
        part = self.resting.get(number)
        if part is None:
            return False
        held = [committed[one] for one in part.positions]
        return all(one is not None and metadata(one.metadata) == part.said for one in held)

    def _opened_part(
        self,
        number: int,
        positions: dict[TopicPartition, int],
        committed: dict[TopicPartition, Any],
        loaded: Loaded,
        told: list[str],
    ) -> Part:
        """Return a part with the state that belongs to the offsets that are committed.

        What became of a change of the program is added to `told`.
        """
        store = Changelog(self.job, number, self.count)
        part = self.part(positions, store)
        known = [metadata(one.metadata) for one in committed.values() if one is not None]
        held = [one for one in known if not _only_begun(one)]
        part.dirty = len(held) < len(committed)
        try:
            if any(one.get("changelog") != self.job.changelog for one in known):
                raise StateError(
                    f"the offsets of group {self.job.group_id} were committed by another program, "
                    "or with the state elsewhere"
                )
            if not held:
                if loaded.segments:
                    raise StateError(
                        f"the changelog {self.job.changelog}/{number} holds state, and group "
                        f"{self.job.group_id} has committed nothing: it is of another group"
                    )
                return part
            if said := part.restore(store.restore(loaded), self.job.on_change):
                told.append(f"part {number}: {said}")
                part.dirty = True
            part.said = held[0]
        except StateError as fault:
            if self.job.on_change != "fresh":
                raise StateError(
                    f"{fault}\n  hint: --on-change fresh starts anew at the stored offsets"
                    f"{drain_hint(fault)}; another group_id and state topic start at the beginning "
                    "of the topics"
                ) from None
            told.append(f"{fault}; part {number} starts anew at the stored offsets")
            store = Changelog(self.job, number, self.count)
            store.discard(loaded)
            part = self.part(positions, store)
            part.dirty = True
        return part

    def note(self, part: Part) -> dict[str, str]:
        """Return where the state is, and which commit it is of."""
        assert self.job.changelog is not None
        return {"changelog": self.job.changelog, "commit": part.name}

    def shares(self) -> tuple[int, int]:
        """Return how many parts are here, and how many there are."""
        return len(self.parts), self.count

    def sum_up(self) -> None:
        """Take the sum over the parts that are here, or what there is of none."""
        parts = self.parts or [self.part({}, Changelog(self.job, 0, self.count))]
        self.engine.summary = total(part.summary for part in parts)


def _number(part: Part) -> int:
    number: int = next(iter(part.positions)).partition
    return number


def _only_begun(said: Mapping[str, Any]) -> bool:
    """Return whether a commit says where a partition begins, and no more."""
    return "changelog" in said and "commit" not in said


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Hands on what kafka-python says; it is called on the consumer's own thread."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._member.revoked()

    def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        self._member.lost()

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._member.assigned(assigned)
