"""One key group: its share of the execution, and its state.

A group has an `Execution`, the partitions that have ended, their marks, and counts. A row of a
control event (`ketal.*`) goes to every group, and one of the copies is counted. A malformed message
goes to one group of each family, and the first family reports the rejection.

An event goes to one group of each family. Each of these groups decides for the whole program
whether the event is late or refused, and the first family reports that. The first family also
reports contradictions: if there is a second family, the first gets all events.

The one rule: a group depends on its state and its rows; every row is reported or counted by one
group.
"""

from __future__ import annotations

import itertools
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ketal.errors import StateError
from ketal.logs.source import Source
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.log_arguments import LogItem
from ketal.model.verdicts.execution_verdicts import Late, Rejected
from ketal.model.verdicts.identified_verdict import encode_json
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.runtime.execution import BATCH_EVENTS, Execution
from ketal.runtime.queues.reports import BEHIND_WATERMARK
from ketal.runtime.state.records import FORMAT
from ketal.runtime.stream_release import KeyGroupRelease, StreamRelease
from ketal.streaming.job.verdict_messages import written_message
from ketal.streaming.spark.families import Family
from ketal.streaming.spark.rows.keyed import KeyGroupCheck
from ketal.streaming.spark.rows.row_reader import (
    ALONE,
    COPY,
    HOME,
    SAMPLE,
    Row,
    RowReader,
    RowShape,
    SourcePartition,
)

FIGURES = "ketal.figures"
"""The value of the column `verdict` in a row of figures; in jobs only."""
COUNTED = "ketal.counted"
"""The value of the column `verdict` in a row of counts; with `detect` only."""
COLUMNS = ("verdict", "pattern", "id", "execution", "scope", "json")
LINE = "line"
"""An additional column in jobs: the verdict as a line for people."""
_CODEC, _LEVEL = "zstd", 1
OutputRow = tuple[str | None, ...]


@dataclass(frozen=True)
class Work:
    """The work of the executors, pickled once."""

    families: tuple[Family, ...]
    """The families of the program."""
    limits: Limits
    """The limits of one group."""
    shape: RowShape
    """The shape of the groups' rows."""
    partitions: int | None
    """How many partitions must end before the execution ends; None if that is not known."""
    timed: bool
    """Whether the program uses watermarks."""
    figures: bool
    counts: bool
    """Whether each group returns a row of figures, or of counts, in each batch."""
    placements: tuple[str, ...]
    """For each family, a description of how the driver computes the group of a row."""
    verdict_bytes_max: int | None = None
    rejection_bytes_max: int | None = None
    """The largest size of a verdict's JSON, and of a rejection's; None if there is no limit."""

    @property
    def output(self) -> list[str]:
        """The columns of the rows that groups return."""
        return [*COLUMNS, LINE] if self.figures else list(COLUMNS)

    def verdict_row(self, verdict: Verdict) -> OutputRow:
        """Return a verdict as a row; its JSON may be an overflow verdict, with the same id."""
        pattern, scope, bytes_max = None, None, self.rejection_bytes_max
        if not isinstance(verdict, Rejected):
            pattern, scope = verdict.pattern, encode_json(verdict.scope.copy()).decode()
            bytes_max = self.verdict_bytes_max
        name, text = written_message(verdict, bytes_max)
        row = (verdict.kind, pattern, name, verdict.execution or None, scope, text.decode())
        return (*row, str(verdict)) if self.figures else row

    def execution(self, family: int, held: Mapping[bytes, bytes] | None) -> Execution:
        """Return the execution of a group of a family, new or restored from its records."""
        own = self.families[family]
        others = (other for other in self.families if other is not own)
        options: dict[str, Any] = {
            "limits": self.limits,
            "beside": [compiled for other in others for compiled in other.program.compiled],
            "release": StreamRelease if own.groups == 1 else KeyGroupRelease,
        }
        if held is None:
            return Execution(own.program, **options)
        return Execution.restored(own.program, held, **options)


class GroupState(msgspec.Struct, kw_only=True):
    """The state of a group; the defaults are the state of a new group.

    The state is packed as one binary value: compressed msgpack. Spark passes it to the group's
    worker with every Arrow batch, many times if the group has many rows, and the JVM copies it each
    time. So its size matters more than the time to encode it.
    """

    counts: tuple[int, int, bool] = (0, 0, False)
    ended: list[SourcePartition] = []
    marks: list[tuple[SourcePartition, float]] = []
    monitor: list[tuple[bytes, bytes]] = []
    placed: str
    places: list[tuple[str, str, int, str]] = []

    def pack(self) -> bytes:
        """Return the state as bytes."""
        import pyarrow

        plain = msgspec.msgpack.encode(self)
        codec = pyarrow.Codec(_CODEC, compression_level=_LEVEL)
        compressed = codec.compress(plain, asbytes=True)
        check = _checksum(len(plain), compressed)
        return msgspec.msgpack.encode((FORMAT, check, len(plain), compressed))

    @classmethod
    def unpack(cls, held: bytes) -> GroupState:
        """Return the state from its bytes; a StateError if it is damaged or of another format."""
        import pyarrow

        try:
            known = msgspec.msgpack.decode(held)
            if known[0] != FORMAT:
                raise StateError(
                    f"the state of a key group has format {known[0]}; this version reads format "
                    f"{FORMAT}: begin a new checkpoint, or use the version of ketal that wrote it"
                )
            _, check, size, compressed = known
            if check != _checksum(size, compressed):
                raise ValueError("its checksum does not match")
            plain = pyarrow.Codec(_CODEC).decompress(compressed, size, asbytes=True)
            return msgspec.msgpack.decode(plain, type=cls)
        except (ValueError, LookupError, TypeError, OSError, ArithmeticError, RuntimeError) as why:
            raise StateError(f"the state of a key group is damaged: {why}") from None


def _checksum(size: int, compressed: bytes) -> int:
    return zlib.crc32(compressed, zlib.crc32(b"%d" % size))


class Group:
    """One key group; `held` is the state that `state` returned, None for a new group.

    Raises a StateError if the state is damaged, of another program, or of rows that are hashed in
    another way.
    """

    def __init__(self, work: Work, number: int, held: bytes | None) -> None:
        self.number = number
        self._work = work
        self._family = max(n for n, one in enumerate(work.families) if one.first <= number)
        self._reports = self._family == 0
        self._rows = RowReader(work.shape, work.limits)
        keyed_by = (work.shape.source or Source()).keyed_by or ""
        self._key_value = dict(work.families[self._family].program.compiled[0].partition).get(
            keyed_by
        )
        self._placement = work.placements[self._family]
        known = GroupState(placed=self._placement) if held is None else GroupState.unpack(held)
        if known.placed != self._placement:
            raise StateError(
                f"the rows of the checkpoint are in {known.placed}, but would now be in "
                f"{self._placement}, so keys would be separated from their state; begin a new "
                "checkpoint to change key_groups, keyed_by or the fields of `partition by`"
            )
        self._places = KeyGroupCheck(keyed_by, work.limits.placed_max, known.places)
        self.messages, self.control, self._closed = known.counts
        self._ended = set(known.ended)
        self._marks_s = dict(known.marks)
        self._held = dict(known.monitor)
        self.execution = work.execution(self._family, None if held is None else self._held)
        self._counted = self._current_counts() if work.counts and held is not None else {}
        """The counts up to the last row of counts, which the next row is the difference to."""

    def state(self) -> bytes:
        """Return the state as bytes, from which `Group(work, number, held)` continues."""
        return GroupState(
            counts=(self.messages, self.control, self._closed),
            ended=sorted(self._ended, key=repr),
            marks=sorted(self._marks_s.items(), key=repr),
            monitor=sorted(self._records().items()),
            placed=self._placement,
            places=self._places.state(),
        ).pack()

    def _records(self) -> dict[bytes, bytes]:
        """Return the execution's records: those of the last call with the changes since then."""
        for name, record in self.execution.state.changes().items():
            if record is None:
                self._held.pop(name, None)
            else:
                self._held[name] = record
        return self._held

    @property
    def awaits_watermark(self) -> bool:
        """Whether a higher watermark may still lead to verdicts."""
        if self._closed:
            return False
        return self.execution.counts.live_runs > 0 or self.execution.counts.tally.held_back > 0

    def advance(self, mark_ms: int) -> list[Verdict]:
        """Advance to Spark's watermark, which is 0 until there is one; return the verdicts."""
        return [] if mark_ms <= 0 or self._closed else self.execution.advance_time(mark_ms / 1e3)

    def process(self, rows: Iterable[Row]) -> Iterator[Verdict]:
        """Process rows in their order; yield their verdicts."""
        if not self._rows.has_offsets:
            rows = self._rows.in_canonical_order(list(rows))
        rows = iter(rows)
        while batch := list(itertools.islice(rows, BATCH_EVENTS)):
            if samples := [row for row in batch if row[0] == SAMPLE]:
                self._check_samples(samples)
                batch = [row for row in batch if row[0] != SAMPLE]
            yield from self._process_batch(batch)

    def _process_batch(self, batch: Sequence[Row]) -> Iterator[Verdict]:
        """Process rows; yield the verdicts that no other group reports."""
        items, rows = self._items(batch)
        for _, verdicts in self.execution.process(items, lambda at: self._rows.place(rows[at])):
            yield from filter(self._reports_verdict, verdicts)

    def _check_samples(self, samples: Sequence[Row]) -> None:
        """Check the keys of sampled messages, which other groups process."""
        groups, rows = zip(*map(self._rows.split_sample, samples), strict=True)
        for group, row, item in zip(groups, rows, self._rows.items(rows), strict=True):
            if isinstance(item, Event) and self._key_value is not None:
                self._places.check(self._key_value(item), group, self._rows.place(row))

    def _items(self, batch: Sequence[Row]) -> tuple[list[LogItem], list[Row]]:
        """Return the items of rows that this group processes or reports, and the row of each."""
        items: list[LogItem] = []
        sources: list[Row] = []
        for row, item in zip(batch, self._rows.items(batch), strict=True):
            copy = row[0]
            reports = self._reports and copy != COPY
            self.messages += reports
            if self._ended and self._rows.partition(row) in self._ended:
                item = self._rows.rejection(row, "its partition has ended (ketal.end)")
            elif isinstance(item, Event) is not (copy == ALONE) and not isinstance(item, Rejected):
                item = self._rows.rejection(
                    row, "its type cannot be determined: the record has several"
                )
            own: LogItem | None = item
            if isinstance(item, Rejected):
                own = item if reports else None
            elif isinstance(item, Control):
                self.control += self._reports and copy == HOME
                own = self._apply_control(self._rows.partition(row), item)
            if own is not None:
                items.append(own)
                sources.append(row)
        return items, sources

    def _reports_verdict(self, verdict: Verdict) -> bool:
        """Return whether this group reports a verdict, and no other group does."""
        if self._reports:
            return True
        # The first family reports rejections, and events that are late by the watermark.
        is_behind = isinstance(verdict, Late) and verdict.reason == BEHIND_WATERMARK
        return not (is_behind or isinstance(verdict, Rejected))

    def _apply_control(self, one: SourcePartition, control: Control) -> Control | None:
        """Apply a control event to its partition; return the one for the execution, if any."""
        known = self._work.partitions
        if control.kind == "watermark":
            assert control.time is not None
            self._marks_s[one] = max(control.time, self._marks_s.get(one, control.time))
            return self._least_mark()
        if control.kind == "end":
            self._ended.add(one)
            if one is not None and (known is None or len(self._ended) < known):
                return self._least_mark()
            self._closed = True
        return control

    def _least_mark(self) -> Control | None:
        """Return the least mark as a watermark, once each partition has a mark or has ended."""
        known = self._work.partitions
        marks = [
            mark for one, mark in self._marks_s.items() if one is None or one not in self._ended
        ]
        awaits_more = known is None or len(marks) + len(self._ended) < known
        if not marks or (None not in self._marks_s and awaits_more):
            return None
        return Control("watermark", time=min(marks))

    def figures_row(self, verdicts: Counter[tuple[str | None, str | None]]) -> OutputRow:
        """Return the row of figures: counts since the beginning, and `verdicts` of this batch.

        `absent` has the mapped fields that no row had which this worker has read; None without one.
        """
        mapped = self._rows.mapped
        figures = {
            "verdicts": [(kind, pattern, count) for (kind, pattern), count in verdicts.items()],
            "absent": sorted(mapped.absent) if mapped.is_read else None,
            "group": self.number,
            "tells": self._reports,
            "messages": self.messages,
            "control": self.control,
            "live_runs": self.execution.counts.live_runs,
            "ended": self._closed,
            **self.execution.counts.numbers,
            "met": self.execution.counts.met_events,
        }
        text = msgspec.json.encode(figures).decode()
        return FIGURES, None, str(self.number), None, None, text, None

    def counts_row(self) -> OutputRow:
        """Return the row of counts: the differences to the previous row of counts."""
        counts = self._current_counts()
        added = {name: count - self._counted.get(name, 0) for name, count in counts.items()}
        self._counted = counts
        return COUNTED, None, None, None, None, msgspec.json.encode(added).decode()

    def _current_counts(self) -> dict[str, int]:
        """Return the counts since the beginning; of records only if this group reports them."""
        summary = self.execution.counts.numbers
        out = dict(summary["events"]) if self._reports else {}
        out["restarts"] = summary.get("restarts", 0) if self._reports else 0
        out |= {"gaps": summary["gaps"], "doubtful": summary.get("doubtful", 0)}
        for pattern, counts in summary["patterns"].items():
            out |= {f"{pattern}.{name}": count for name, count in counts.items()}
        return out
