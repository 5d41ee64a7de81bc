"""A part of a job: some partitions, and the state of the messages that were read from them.

A single consumer has one part, with all partitions of all topics. Several consumers divide the
partition numbers: the part of number p has partition p of every topic, and `keyed_by` ensures that
all events of a scope are in the same part. A part has its own execution, watermark, counts and
offsets, so that the group can assign it to another consumer.

A part is opened with the state that its committed offsets name (`ketal.streaming.kafka.state`); if
that is impossible the job ends, unless `--on-change fresh` begins anew.

The one rule: parts share nothing; the verdicts of a part depend on its own messages alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from kafka import TopicPartition

from ketal.errors import OtherProgramError, StateError
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.events.event_time import rfc3339
from ketal.model.log_arguments import LogItem
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.operators.order.hold_back import HoldBackQueue
from ketal.runtime.execution import Execution
from ketal.runtime.read_ahead import ReadPositions, is_crowded
from ketal.runtime.state.records import (
    OTHERS,
    Changes,
    damage_refused,
    decode_record,
    encode_record,
)
from ketal.runtime.stream_release import JobRelease, PartRelease
from ketal.streaming.job.distribution import uses_time
from ketal.streaming.job.messages import MessageReader, place_of
from ketal.streaming.kafka.pattern_migration import resume
from ketal.streaming.kafka.running_job import Committed, RunningJob
from ketal.streaming.kafka.state.storage import Storage, Store
from ketal.streaming.kafka.watermarks import Watermarks

PROGRESS = OTHERS + b"progress"
"""The name of the record with the part's own progress: counts, watermarks and offsets."""

AHEAD_S = 3_600.0
"""How far the mark of a partition may be ahead of this machine's clock without a warning."""

FindUnread = Callable[[Sequence[TopicPartition]], Iterable[TopicPartition]]


def now_ms() -> float:
    """Return the monotonic time, by which partitions are found idle."""
    return 1e3 * time.monotonic()


class Part:
    """Some partitions and the state of the messages read from them.

    `positions` are the next offsets to read.
    """

    def __init__(
        self, engine: RunningJob, number: int, positions: Mapping[TopicPartition, int], store: Store
    ) -> None:
        self.number = number
        self._job = job = engine.job
        self._program = program = engine.program
        self.positions = dict(positions)
        self.store = store
        self._release = PartRelease if job.is_shared else JobRelease
        self.execution = Execution(program, limits=job.limits, release=self._release)
        self.watermarks = Watermarks(
            sorted(positions),
            lateness_ms=job.lateness_ms,
            idle_ms=job.idle_ms,
            now_ms=now_ms(),
        )
        self.counts = {"messages": 0, "control": 0}
        """The `kafka` object of the summary; `messages` is the sum of `read` and `control`."""
        self.dirty = True
        """Whether the next commit includes it; at first True, so that a new part gets a state."""
        self.metadata: dict[str, Any] = {}
        """The metadata that its last commit stored with the offsets."""
        self.notice = ""
        """A notice to report about how the part was opened; empty for none."""
        self._last_read = ReadPositions[TopicPartition](job.limits.nodes_max)
        """Recorded only if there are several partitions; of one, all held events are."""
        self._notify = engine.hooks.notify
        self._ahead: set[TopicPartition] = set()
        """The partitions of which it was warned that their mark is far ahead."""
        self._uses_time = uses_time(program)
        self._reader = MessageReader(job.source, job.limits, mapped=engine.mapped)
        self._partition_check = engine.partition_check

    # --- state ---

    def restore(self, records: Mapping[bytes, bytes], on_change: str = "stop") -> str:
        """Load saved records; return a notice of how a change of the program was handled.

        `records` are all records that calls of `changes` returned; the notice may be empty.

        Raises
        ------
        StateError
            If the state is damaged, belongs to other offsets than those of the part, or is of
            another program and `on_change` does not allow that.
        SettingError
            If a live scope is in a partition of another number too.
        """
        inner = {k: v for k, v in records.items() if not k.startswith(OTHERS)}
        self.execution, notice = resume(
            self._program, inner, self._release, on_change=on_change, limits=self._job.limits
        )
        with damage_refused():
            saved = decode_record(PROGRESS.decode(), records[PROGRESS])
            self.counts = {name: saved["counts"][name] for name in self.counts}
            self.watermarks.restore(saved["watermarks"])
            offsets = {(topic, number): offset for topic, number, offset in saved["offsets"]}
            # A state of an earlier version does not have them.
            for topic, number, node, counter in saved.get("last_read", ()):
                if (partition := TopicPartition(topic, number)) in self.positions:
                    self._last_read.record(partition, {node: counter})
        # The state may lack a partition, if the job did not read its topic for a while.
        for partition, position in self.positions.items():
            if offsets.get(partition, position) != position:
                topic, number = partition
                raise StateError(
                    f"the saved state is of offset {offsets[partition]} of {topic}/{number}, but "
                    f"the group continues at offset {position} there: the state does not belong to "
                    "the commit, or the topic was deleted and recreated, with its offsets"
                )
        # The retiring patterns have time windows, even if the new patterns have none.
        self._uses_time = self._uses_time or self.execution.retiring is not None
        if self._partition_check is not None:
            self._partition_check.check_restored(self.execution, self.number)
        return notice

    def drop_drained(self) -> str:
        """Drop the retiring patterns if they are drained; return a notice of that, or ""."""
        names = self.execution.drop_retired()
        if not names:
            return ""
        self._uses_time = uses_time(self._program)
        return self.named(f"{', '.join(names)}: drained, the old patterns have ended")

    def named(self, notice: str) -> str:
        """Return a notice about this part, with its number if there are others."""
        return f"part {self.number}: {notice}" if self._job.is_shared else notice

    def changes(self) -> Changes:
        """Return the records that are dirty since the last call, or since the restore."""
        changes = self.execution.state.changes()
        progress = {
            "counts": self.counts,
            "watermarks": self.watermarks.state(),
            "offsets": [
                (*partition, offset) for partition, offset in sorted(self.positions.items())
            ],
            "last_read": [
                (*partition, node, counter)
                for partition, node, counter, _ in self._last_read.held(self._fullest_queue())
            ],
        }
        changes[PROGRESS] = encode_record(progress)
        return changes

    # --- messages ---

    @property
    def ended(self) -> bool:
        """Whether every partition has ended (`ketal.end`)."""
        return self.watermarks.all_ended

    def mark_all_active(self) -> None:
        """Mark every partition active: this session reads their messages from now on."""
        self.watermarks.restart(now_ms())

    def mark_active(self, partition: TopicPartition) -> None:
        """Mark a partition active, since it has messages, read or not; mark the part dirty."""
        self.dirty = True
        self.watermarks.mark_active([partition], now_ms())

    def process(
        self,
        partition: TopicPartition,
        records: Sequence[Any],
        add: Callable[[list[Verdict], Any], None],
    ) -> int:
        """Process a batch of messages of one partition; return how many were processed.

        Processing stops where all partitions have ended. `add` is called with the verdicts of each
        message, and the message.
        """
        items, sources, taken = self._items(partition, records)
        if len(self.positions) > 1:
            counters = {item.node: item.counter for item in items if isinstance(item, Event)}
            self._last_read.record(partition, counters)
        if self._uses_time:
            self._warn_if_ahead(partition, items, sources)

        def place(index: int) -> str:
            return place_of(sources[index])

        if self._partition_check is not None:
            self._partition_check.check(items, partition.partition, place)
        for index, verdicts in self.execution.process(items, place):
            add(verdicts, sources[index])
        self.positions[partition] = records[taken - 1].offset + 1
        self.counts["messages"] += taken
        return taken

    def _warn_if_ahead(
        self, partition: TopicPartition, items: Sequence[LogItem], sources: Sequence[Any]
    ) -> None:
        """Warn once of a partition whose mark is far ahead of this machine's clock.

        `items` are those of the batch that raised the mark, if it was not raised earlier, and
        `sources` the messages of these.
        """
        mark_s, latest_s = self.watermarks.mark_s(partition), time.time() + AHEAD_S
        if mark_s <= latest_s or partition in self._ahead:
            return
        self._ahead.add(partition)
        topic, number = partition
        subject = f"the mark of {topic}/{number}"
        for item, record in zip(items, sources, strict=True):
            if isinstance(item, Event) and item.time is not None and float(item.time) > latest_s:
                subject = f"the time of {item.dot} ({place_of(record)})"
                break
        self._notify(
            f"warning: {subject} is far ahead of this machine's clock; once the watermark follows, "
            f"all events before {rfc3339(mark_s)} are late"
        )

    def _items(
        self, partition: TopicPartition, records: Sequence[Any]
    ) -> tuple[list[LogItem], list[Any], int]:
        """Return the items of messages, the message of each item, and how many messages were read.

        A watermark that a message advances is an item too. All messages are read, unless all
        partitions end before.
        """
        items: list[LogItem] = []
        sources: list[Any] = []
        uses_watermark, has_ended, count = self._uses_time, partition in self.watermarks.ended, 0
        read = self._reader.items([record.value for record in records], records.__getitem__)
        for record, item in zip(records, read, strict=True):
            count += 1
            if has_ended:
                reason = "its partition has ended (ketal.end)"
                item = Rejected(place=place_of(record), reason=reason)
            if isinstance(item, Control):
                own = self._apply_control(partition, item)
                has_ended = partition in self.watermarks.ended
            else:
                items.append(item)
                sources.append(record)
                if not uses_watermark or not isinstance(item, Event) or item.time is None:
                    continue
                if not self.watermarks.observe(partition, float(item.time)):
                    continue
                own = self._advanced_watermark()
            items += own
            sources += [record] * len(own)
            if has_ended and self.ended:
                break
        return items, sources, count

    def _apply_control(self, partition: TopicPartition, control: Control) -> list[LogItem]:
        """Apply a control event to its partition; return the control events for the execution.

        `ketal.end` of one of several partitions is not passed on; it may advance the watermark.
        """
        self.counts["control"] += 1
        if control.kind == "watermark":
            assert control.time is not None
            self.watermarks.raise_mark(partition, control.time)
            return self._advanced_watermark()
        if control.kind == "end":
            self.watermarks.ended.add(partition)
            if not self.ended:
                return self._advanced_watermark()
        return [control]

    def _advanced_watermark(self) -> list[LogItem]:
        """Return the new watermark as an item, if it has advanced; mark the part dirty then."""
        mark_s = self.watermarks.advance()
        if mark_s is None:
            return []
        self.dirty = True
        return [Control("watermark", time=mark_s)]

    def mark_idle(
        self, behind: Mapping[TopicPartition, int], find_unread: FindUnread
    ) -> list[Verdict]:
        """Mark partitions idle, and advance the watermark; return the verdicts of that.

        `behind` has the number of messages of each partition that are known and not read yet.
        `find_unread` returns which of some partitions have unread messages according to Kafka; it
        is called before a partition becomes idle.
        """
        if not self._uses_time:
            return []
        now = now_ms()
        waiting = {partition for partition, lag in behind.items() if lag}
        if quiet := self.watermarks.newly_idle(waiting, now):
            waiting.update(find_unread(sorted(quiet)))
        self.watermarks.mark_idle(waiting, now)
        return [
            verdict for item in self._advanced_watermark() for verdict in self.execution.feed(item)
        ]

    # --- back-pressure ---

    def is_crowded(self, *, are_waiting: bool) -> bool:
        """Return whether too many events are held back for reading all partitions.

        `are_waiting` is whether some are paused already.
        """
        return is_crowded(self._fullest_queue(), are_waiting=are_waiting)

    def ahead(self, unread: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions that have more events held back than one that is unread."""
        return self._last_read.ahead(self._fullest_queue(), unread)

    def _fullest_queue(self) -> HoldBackQueue | None:
        return self.execution.release.fullest_queue()

    @property
    def summary_numbers(self) -> dict[str, Any]:
        """The numbers of the execution's summary, with the counts of the part's messages."""
        return {**self.execution.counts.numbers, "kafka": dict(self.counts)}


def open_part(
    engine: RunningJob,
    storage: Storage,
    number: int,
    positions: Mapping[TopicPartition, int],
    committed: Committed,
    loaded: Any,
) -> Part:
    """Return part `number` with the state that belongs to the committed offsets.

    `positions` and `committed` have the next offset to read and the last commit of each partition
    of the part, `committed` also of partitions of it that the job does not read any more; `loaded`
    is what `Storage.load` returned for it.

    Raises a StateError if the state does not fit, and `on_change` does not allow that. If it does,
    the part begins anew, and its `notice` says so.
    """
    job = engine.job
    # Once a single consumer has begun, it restores only what it has committed itself.
    on_change = "stop" if engine.has_begun and not job.is_shared else job.on_change
    metadata = [commit.metadata for commit in committed.values() if commit is not None]
    state_names = [storage.state_name(partition) for partition in metadata]
    names = [name for name in state_names if name]
    try:
        if None in state_names:
            raise StateError(
                f"the offsets of group {job.group_id} were committed by another program, or with "
                "their state elsewhere"
            )
        store, records = storage.open(number, loaded, names)
        part = Part(engine, number, positions, store)
        if not names:
            return part
        notice = part.restore(records, on_change)
        part.dirty = bool(notice) or len(names) < len(committed)
        part.metadata = metadata[0]
        if part.ended:
            notice = (
                "the execution has ended (ketal.end); use another group_id, and another [state] "
                "store if one is set, to begin a new one"
            )
        part.notice = part.named(notice) if notice else ""
    except StateError as fault:
        if on_change != "fresh":
            raise StateError(f"{fault}\n  hint: {_hint(storage, fault, metadata)}") from None
        if not metadata:
            then = f"starting over at the {job.start} messages"
        elif job.is_shared:
            then = f"part {number} starts over at the stored offsets"
        else:
            then = "starting over at the stored offsets, without any of the old state"
        part = Part(engine, number, positions, storage.empty(number, loaded, names))
        part.notice = f"{fault}; {then}"
    return part


def _hint(storage: Storage, fault: StateError, metadata: list[dict[str, Any]]) -> str:
    if not metadata:
        return (
            "use another [state] store, which leaves the existing state unchanged; or, if no other "
            "job uses that state, --on-change fresh to discard it and start over where [kafka] "
            "start says"
        )
    is_changed = isinstance(fault, OtherProgramError)
    drain = ", drain to let the old patterns finish" if is_changed else ""
    return (
        "use --on-change fresh to continue at the stored offsets without what cannot be restored"
        f"{drain}, or {storage.restart_hint}"
    )
