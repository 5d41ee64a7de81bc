"""A part of a job: some partitions, and the state of all that was read in them.

One consumer has one part, with all partitions of all topics. Several consumers share the partition
numbers: the part of number p has partition p of every topic; `keyed_by` puts all events of a scope
there. A part has its own execution, watermark, counts and offsets, so that the group can assign it
to another consumer.

A part's state is saved in its store: a folder (`Saved`), or a topic (`Changelog`). Both write the
records that are dirty, and restore all. A part is opened with the state that its committed offsets
name, or the job ends, except that `--on-change fresh` begins anew.

The one rule: parts share nothing; the verdicts of a part depend on its own messages alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kafka import TopicPartition

from ketal.errors import OtherProgramError, StateError
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.runtime.execution import Execution, Item
from ketal.runtime.state.records import (
    OTHERS,
    Changes,
    damage_refused,
    decode_record,
    encode_record,
)
from ketal.streaming.job.distribution import uses_time
from ketal.streaming.job.messages import Reader, place_of
from ketal.streaming.kafka.pattern_migration import resume
from ketal.streaming.kafka.running_job import Committed, RunningJob
from ketal.streaming.kafka.state.storage import Storage, Store
from ketal.streaming.kafka.watermarks import Watermarks

PROGRESS = OTHERS + b"progress"
"""The record of what is saved of a part beside its execution: how far it has come."""

Ask = Callable[[Sequence[TopicPartition]], Iterable[TopicPartition]]


def now_ms() -> float:
    """Return the time of the clock that idle partitions are judged by."""
    return 1e3 * time.monotonic()


class Part:
    """Some partitions, and the state of what was read in them; `positions` are next offsets."""

    def __init__(
        self, engine: RunningJob, number: int, positions: Mapping[TopicPartition, int], store: Store
    ) -> None:
        self.number = number
        self._job = job = engine.job
        self._program = program = engine.program
        self.positions = dict(positions)
        self.store = store
        self.execution = Execution(program, limits=job.limits)
        self.watermarks = Watermarks(
            sorted(positions),
            lateness_ms=job.lateness_ms,
            idle_ms=job.idle_ms,
            now_ms=now_ms(),
        )
        self.counts = {"messages": 0, "control": 0}
        """The `kafka` object of the summary; `messages` are the execution's `read`, and control."""
        self.dirty = True
        """Whether it is to be committed: a part without state is, for its next owner."""
        self.metadata: dict[str, Any] = {}
        """The metadata of its last commit, beside the offsets."""
        self.notice = ""
        """What is to be reported of its opening, if anything."""
        self._timed = uses_time(program)
        self._reader = Reader(job.source, job.limits)
        self._watch = engine.watch

    # --- state ---

    def restore(self, records: Mapping[bytes, bytes], on_change: str = "stop") -> str:
        """Load the state that `changes` returned; return how a change of the program was handled.

        Raises
        ------
        StateError
            If it is damaged, of other offsets than those of the part, or of another program that
            `on_change` does not allow.
        SettingError
            If a live scope is in a partition of another number too.
        """
        inner = {k: v for k, v in records.items() if not k.startswith(OTHERS)}
        self.execution, notice = resume(
            self._program, inner, on_change=on_change, limits=self._job.limits
        )
        with damage_refused():
            saved = decode_record(PROGRESS.decode(), records[PROGRESS])
            self.counts = {name: saved["counts"][name] for name in self.counts}
            self.watermarks.restore(saved["watermarks"])
            held = {(topic, number): offset for topic, number, offset in saved["offsets"]}
        # A partition that the job did not read for a while has an older offset.
        for one, position in self.positions.items():
            if held.get(one, position) != position:
                raise StateError(
                    f"the saved state is of offset {held[one]} of {one.topic}/{one.partition}, and "
                    f"committed is {position}: it does not belong to what is committed"
                )
        # The old patterns have windows, whatever the new ones have.
        self._timed = self._timed or self.execution.retiring is not None
        if self._watch is not None:
            self._watch.restored(self.execution, self.number)
        return notice

    def drained(self) -> tuple[str, ...]:
        """Drop the retiring patterns if they are drained; return their names, else nothing."""
        names = self.execution.drop_retired()
        if names:
            self._timed = uses_time(self._program)
        return names

    def changes(self) -> Changes:
        """Return the records that are dirty since the last call, or since the restore."""
        changes = self.execution.state.changes()
        progress = {
            "counts": self.counts,
            "watermarks": self.watermarks.state(),
            "offsets": [(*one, offset) for one, offset in sorted(self.positions.items())],
        }
        changes[PROGRESS] = encode_record(progress)
        return changes

    # --- messages ---

    @property
    def ended(self) -> bool:
        """Whether nothing more is to come in any partition."""
        return self.watermarks.all_ended

    def wake(self) -> None:
        """Restart the clocks of idle partitions: its messages are read from now on."""
        self.watermarks.restart(now_ms())

    def mark_active(self, one: TopicPartition) -> None:
        """Mark a partition active that has messages, read or not."""
        self.dirty = True
        self.watermarks.mark_active([one], now_ms())

    def take(
        self,
        one: TopicPartition,
        records: Sequence[Any],
        add: Callable[[list[Verdict], Any], None],
    ) -> int:
        """Process a batch of one partition's messages until all have ended; return how many."""
        items, sources, taken = self._items(one, records)

        def place(at: int) -> str:
            return place_of(sources[at])

        if self._watch is not None:
            self._watch.check(items, one.partition, place)
        for at, verdicts in self.execution.process(items, place):
            add(verdicts, sources[at])
        self.positions[one] = records[taken - 1].offset + 1
        self.counts["messages"] += taken
        return taken

    def _items(
        self, one: TopicPartition, records: Sequence[Any]
    ) -> tuple[list[Item], list[Any], int]:
        """Return the items of messages, the message of each, and how many were read.

        A watermark that a message raises is an item too. All are read, unless all partitions end.
        """
        items: list[Item] = []
        sources: list[Any] = []
        timed, over, count = self._timed, one in self.watermarks.ended, 0
        read = self._reader.items([record.value for record in records], records.__getitem__)
        for record, item in zip(records, read, strict=True):
            count += 1
            if over:
                reason = "its partition has ended (ketal.end)"
                item = Rejected(place=place_of(record), reason=reason)
            if isinstance(item, Control):
                own = self._control(one, item)
                over = one in self.watermarks.ended
            else:
                items.append(item)
                sources.append(record)
                if not timed:
                    continue
                own = self._observed(one, item)
            items += own
            sources += [record] * len(own)
            if over and self.ended:
                break
        return items, sources, count

    def _control(self, one: TopicPartition, control: Control) -> list[Item]:
        """Return what a control event of a partition is to the execution."""
        self.counts["control"] += 1
        if control.kind == "watermark":
            assert control.time is not None
            self.watermarks.raise_mark(one, control.time)
            return self._raised()
        if control.kind == "end":
            self.watermarks.ended.add(one)
            if not self.ended:
                return self._raised()
        return [control]

    def _observed(self, one: TopicPartition, item: Item) -> list[Item]:
        """Return the watermark, if the time of an event raises it."""
        if not isinstance(item, Event) or item.time is None:
            return []
        return self._raised() if self.watermarks.observe(one, float(item.time)) else []

    def _raised(self) -> list[Item]:
        """Return the watermark, if it is higher now."""
        mark_s = self.watermarks.advanced()
        if mark_s is None:
            return []
        self.dirty = True
        return [Control("watermark", time=mark_s)]

    def mark_idle(self, behind: Mapping[TopicPartition, int], ask: Ask) -> list[Verdict]:
        """Mark partitions idle, and advance the watermark.

        Parameters
        ----------
        behind : mapping of TopicPartition to int
            How many messages are not read yet, as far as is known.
        ask : callable
            Returns those of some partitions that have messages which are not read yet; called
            before one becomes idle.
        """
        if not self._timed:
            return []
        now = now_ms()
        waiting = {one for one, lag in behind.items() if lag}
        if quiet := self.watermarks.newly_idle(waiting, now):
            waiting.update(ask(sorted(quiet)))
        self.watermarks.mark_idle(waiting, now)
        return [verdict for item in self._raised() for verdict in self.execution.feed(item)]

    @property
    def summed(self) -> dict[str, Any]:
        """The numbers of the execution's summary, with the counts of messages."""
        return {**self.execution.counts.numbers, "kafka": dict(self.counts)}


def open_part(
    engine: RunningJob,
    storage: Storage,
    number: int,
    positions: Mapping[TopicPartition, int],
    committed: Committed,
    loaded: Any,
) -> Part:
    """Return a part with the state that belongs to the offsets that are committed.

    `positions` and `committed` are the next offsets, and the commits or None; `loaded` is what the
    storage has loaded. Its `notice` says how a change of the program was handled.

    Raises
    ------
    StateError
        If the state does not fit, and `on_change` does not allow that.
    """
    job = engine.job
    # One consumer restores only what it has committed itself, once it has begun.
    on_change = "stop" if engine.claimed and not job.is_shared else job.on_change
    held = [one.metadata for one in committed.values() if one is not None]
    named = [storage.name_in(metadata) for metadata in held]
    names = [name for name in named if name]
    try:
        if None in named:
            raise StateError(
                f"the offsets of group {job.group_id} were committed by another program, or with "
                "the state elsewhere"
            )
        store, records = storage.open(number, loaded, names)
        part = Part(engine, number, positions, store)
        if not names:
            return part
        notice = part.restore(records, on_change)
        part.dirty = bool(notice) or len(names) < len(committed)
        part.metadata = held[0]
        part.notice = f"part {number}: {notice}" if notice and job.is_shared else notice
    except StateError as fault:
        if on_change != "fresh":
            raise StateError(f"{fault}\n  hint: {_hint(storage, fault, held)}") from None
        if not held:
            then = f"beginning anew at the {job.start} messages"
        elif job.is_shared:
            then = f"part {number} starts anew at the stored offsets"
        else:
            then = "starting anew at the stored offsets, with nothing of what was before"
        part = Part(engine, number, positions, storage.empty(number, loaded))
        part.notice = f"{fault}; {then}"
    return part


def _hint(storage: Storage, fault: StateError, held: list[dict[str, Any]]) -> str:
    if not held:
        return (
            "--on-change fresh begins anew, where [kafka] start says; another group_id and "
            "another [state] store do so too, and leave what is there"
        )
    is_changed = isinstance(fault, OtherProgramError)
    drain = ", drain lets the old patterns finish" if is_changed else ""
    return f"--on-change fresh starts anew at the stored offsets{drain}; {storage.anew}"
