"""What runs on the executors: one key group's part of a batch through its `Monitor`.

A group's state is one binary value: the monitor's snapshot, which partitions have ended, and the
counts. Spark hands over the columns of the group's new rows; the operator puts them in the order
of topic, partition and offset, feeds them, and only then takes up the watermark, so that what is in
a batch is judged before what the batch ends. Verdicts go back as columns.

Rows of control events (`ketal.*`) come to every group; one of the copies is counted. What belongs
to no group, a malformed message, comes to one group of each family, and the first family tells it.

The one rule: what a group says depends on its state and its rows, never on the worker that it is
on. A worker that is used again keeps the program, and what it keeps of a group is used only if it
is the very state that Spark hands over.
"""

from __future__ import annotations

import gc
import hashlib
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ketal.errors import EventError, StateError
from ketal.event import Control, Event, canonical_key
from ketal.limits import Limits
from ketal.logs.jsonl import brief_reason
from ketal.logs.shape import Shape
from ketal.logs.source import Source
from ketal.monitor import Monitor
from ketal.program import Program
from ketal.streaming.messages import Reader
from ketal.verdicts import Rejected, Verdict

FORMAT = 1
FIGURES = "ketal.figures"
"""What stands for the verdict in a row of figures, which only a job asks for."""
COLUMNS = ("verdict", "pattern", "id", "execution", "scope", "json")
LINE = "line"
"""A further column of a job: the verdict as a line for people."""
PLAIN = ("copy", "topic", "partition", "offset", "value")
"""The columns of a row, where no field is in a message's key or headers."""
ALONE, HOME, COPY = 0, 1, 2
"""A row that one group of each family has; of a control event's rows the one that counts, and the
others."""
ROWS_MAX = 10_000
"""So many verdicts are handed back at once."""
COLLECT_AFTER = 100_000
"""Objects made between two looks for garbage cycles."""

Partition = tuple[str, int] | None
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Work:
    """What the executors are told, once.

    Parameters
    ----------
    programs : tuple of (int, Program)
        The number of each family's first group, and its patterns.
    limits : Limits
        Those of one group.
    source : Source or None
        How a message becomes an event; None for rows that have an event's columns.
    columns : tuple of str
        The columns of a row, after the group's number.
    headers : tuple of str
        The headers whose values are the columns `header0`, `header1`, ….
    partitions : int or None
        How many partitions must end before the execution has; None if that is not known.
    timed : bool
        Whether time decides anything.
    figures : bool
        Whether a row of figures is wanted from each group and batch.
    """

    programs: tuple[tuple[int, Program], ...]
    limits: Limits
    source: Source | None
    columns: tuple[str, ...]
    headers: tuple[str, ...]
    partitions: int | None
    timed: bool
    figures: bool

    @property
    def output(self) -> list[str]:
        """The columns that go back."""
        return [*COLUMNS, LINE] if self.figures else list(COLUMNS)

    def row(self, verdict: Verdict) -> tuple[str | None, ...]:
        """Return a verdict as columns."""
        said = verdict.to_dict()
        scope = said.get("scope")
        row = (
            said["verdict"],
            said.get("pattern"),
            said.get("id"),
            said.get("execution"),
            None if scope is None else msgspec.json.encode(scope).decode(),
            msgspec.json.encode(said).decode(),
        )
        return (*row, str(verdict)) if self.figures else row

    def family(self, group: int) -> tuple[int, Program]:
        """Return which family a group is of, by its place, and the patterns."""
        of = [n for n, (first, _) in enumerate(self.programs) if first <= group][-1]
        return of, self.programs[of][1]


class Message:
    """A row as `Reader` reads it; one is filled again and again."""

    __slots__ = ("headers", "key", "offset", "partition", "topic", "value")

    topic: str | None
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


# --- a worker ---------------------------------------------------------------------

_loaded: dict[bytes, Work] = {}
_kept: dict[tuple[bytes, int], tuple[bytes, Group]] = {}
_KEPT_MAX = 1_024


def _work(shipped: bytes, digest: bytes) -> Work:
    """Return what was shipped; a worker reads it once, and then calms its collector."""
    work = _loaded.get(digest)
    if work is None:
        _loaded.clear()
        _kept.clear()
        work = _loaded[digest] = pickle.loads(shipped)
        gc.collect()
        gc.freeze()
        gc.set_threshold(COLLECT_AFTER, 20, 50)
    return work


@dataclass(frozen=True)
class Operator:
    """What Spark calls.

    Parameters
    ----------
    shipped : bytes
        A pickled `Work`: the compiled tables, so that executors need no compiler.
    """

    shipped: bytes = field(repr=False)
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.blake2b(self.shipped, digest_size=16).digest()
        object.__setattr__(self, "digest", digest)

    def stateful(self, key: tuple[Any, ...], frames: Iterable[Any], state: Any) -> Iterator[Any]:
        """Take a batch's rows of one group: the function of `applyInPandasWithState`."""
        import pandas

        work = _work(self.shipped, self.digest)
        group = self._group(work, int(key[0]), state.get[0] if state.exists else None)
        said: list[tuple[str | None, ...]] = []
        if not state.hasTimedOut:
            said += map(work.row, group.take(_sorted(frames, work.columns)))
        if work.timed:
            mark_ms = state.getCurrentWatermarkMs()
            said += map(work.row, group.advance(mark_ms))
            if group.waits:
                state.setTimeoutTimestamp(max(0, mark_ms) + 1)
        if work.figures:
            said.append(group.figures())
        blob = group.state()
        state.update((blob,))
        self._keep(group, blob)
        for start in range(0, len(said), ROWS_MAX):
            yield pandas.DataFrame(said[start : start + ROWS_MAX], columns=work.output)

    def _group(self, work: Work, number: int, held: bytes | None) -> Group:
        kept = _kept.pop((self.digest, number), None)
        if kept is not None and held is not None and kept[0] == held:
            return kept[1]
        return Group(work, number, None if held is None else bytes(held))

    def _keep(self, group: Group, blob: bytes) -> None:
        if len(_kept) < _KEPT_MAX:
            _kept[self.digest, group.number] = (blob, group)

    def finite(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Take a partition of a table, its groups one after another, each in order, and end them.

        The function of `mapInArrow`; no more than a batch of rows is held.
        """
        work = _work(self.shipped, self.digest)
        group: Group | None = None
        said: list[tuple[str | None, ...]] = []
        for batch in batches:
            columns = [batch.column(name).to_pylist() for name in ("group", *work.columns)]
            numbers = columns[0]
            start = 0
            while start < len(numbers):
                number, stop = numbers[start], start
                while stop < len(numbers) and numbers[stop] == number:
                    stop += 1
                if group is None or group.number != number:
                    said += _ended(group, work)
                    group = Group(work, number, None)
                rows = zip(*(column[start:stop] for column in columns[1:]), strict=True)
                for verdict in group.take(rows):
                    said.append(work.row(verdict))
                    if len(said) >= ROWS_MAX:
                        yield _arrow(said, work.output)
                        said = []
                start = stop
        said += _ended(group, work)
        for start in range(0, len(said), ROWS_MAX):
            yield _arrow(said[start : start + ROWS_MAX], work.output)


def _ended(group: Group | None, work: Work) -> list[tuple[str | None, ...]]:
    if group is None:
        return []
    said = list(map(work.row, group.monitor.close()))
    return [*said, group.figures()] if work.figures else said


def _arrow(said: Sequence[tuple[str | None, ...]], names: Sequence[str]) -> Any:
    import pyarrow

    columns = zip(*said, strict=True)
    named = {
        name: pyarrow.array(column, pyarrow.string())
        for name, column in zip(names, columns, strict=True)
    }
    return pyarrow.record_batch(named)


def _sorted(frames: Iterable[Any], names: Sequence[str]) -> Iterable[Row]:
    """Return the rows of frames in the order of topic, partition and offset."""
    import numpy
    import pandas

    parts = [frame for frame in frames if len(frame)]
    if not parts:
        return ()
    frame = parts[0] if len(parts) == 1 else pandas.concat(parts, ignore_index=True)
    columns = {name: frame[name].to_numpy() for name in names}
    if "offset" not in columns:
        return zip(*(column.tolist() for column in columns.values()), strict=True)
    topics = columns["topic"]
    codes = [] if (topics == topics[0]).all() else [pandas.factorize(topics, sort=True)[0]]
    order = numpy.lexsort((columns["offset"], columns["partition"], *codes))
    return zip(*(column[order].tolist() for column in columns.values()), strict=True)


# --- a group ----------------------------------------------------------------------


class Group:
    """The part of the execution that one key group is offered.

    Parameters
    ----------
    work : Work
        What is done.
    number : int
        Which group.
    held : bytes or None
        The state that `state` gave; None for a group that is new.

    Raises
    ------
    StateError
        If the state is damaged, or of another program.
    """

    def __init__(self, work: Work, number: int, held: bytes | None) -> None:
        self.number = number
        self._work = work
        family, program = work.family(number)
        self._tells = family == 0
        self._at = {name: place for place, name in enumerate(work.columns)}
        self._headers = [(name, self._at[f"header{n}"]) for n, name in enumerate(work.headers)]
        self._message = Message()
        self._message.headers = ()
        self._plain = work.source is not None and work.columns == PLAIN
        self._shape = Shape(Source(), limits=work.limits)
        self._reader = Reader(work.source or Source(), work.limits)
        self.messages = self.control = 0
        self._ended: set[Partition] = set()
        self._marks_s: dict[Partition, float] = {}
        self._closed = False
        if held is None:
            self.monitor = Monitor(program, limits=work.limits)
            return
        try:
            known = msgspec.msgpack.decode(held)
            if known["format"] != FORMAT:
                raise StateError(
                    f"the state of a key group has format {known['format']}; "
                    f"this version reads format {FORMAT}"
                )
            self.messages, self.control, self._closed = known["counts"]
            self._ended = {None if one is None else (one[0], one[1]) for one in known["ended"]}
            self._marks_s = {None if one is None else (one[0], one[1]): mark
                             for one, mark in known["marks"]}  # fmt: skip
            blob = known["monitor"]
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as fault:
            raise StateError(f"the state of a key group is damaged: {fault}") from None
        self.monitor = Monitor.restore(program, blob, limits=work.limits)

    def state(self) -> bytes:
        """Return the state: `Group(work, number, blob)` goes on from it."""
        return msgspec.msgpack.encode(
            {
                "format": FORMAT,
                "counts": [self.messages, self.control, self._closed],
                "ended": sorted(self._ended, key=repr),
                "marks": sorted(self._marks_s.items(), key=repr),
                "monitor": self.monitor.snapshot(),
            }
        )

    @property
    def waits(self) -> bool:
        """Whether the passing of time can still bring something about."""
        if self._closed:
            return False
        return self.monitor.live_runs > 0 or self.monitor.tally.held_back > 0

    def advance(self, mark_ms: int) -> list[Verdict]:
        """Take up Spark's watermark; it stands at 0 until there is one."""
        return [] if mark_ms <= 0 or self._closed else self.monitor.advance_time(mark_ms / 1e3)

    def take(self, rows: Iterable[Row]) -> Iterator[Verdict]:
        """Take rows in turn; yield the verdicts they bring about."""
        if "offset" not in self._at:
            rows = self._in_canonical_order(rows)
        feed, read, message = self.monitor.feed, self._reader.item, self._message
        for row in rows:
            if self._plain and row[0] == ALONE and not self._ended:
                # The way of almost every row; `_item` says what is done here.
                _, message.topic, message.partition, message.offset, message.value = row
                self.messages += self._tells
                item = read(message)
                if item.__class__ is not Event:
                    self.messages -= self._tells
                    item = self._item(row)
            else:
                item = self._item(row)
            if item is None:
                continue
            verdicts = feed(item) if item.__class__ is Event else self._unusual(item)
            if verdicts:
                yield from self._placed(verdicts)

    def _item(self, row: Row) -> Any:
        """Return the item of a row; None where another group tells what it is."""
        at, message = self._at, self._message
        if "offset" in at:
            message.topic, message.partition, message.offset = row[1], row[2], row[3]
        else:
            message.topic, message.partition, message.offset = None, 0, 0
        copy = row[0]
        self.messages += self._tells and copy != COPY
        if self._ended and self._partition in self._ended:
            return self._told("its partition has ended (ketal.end)", copy)
        item = self._read(row)
        if copy == ALONE and item.__class__ is Event:
            return item
        if isinstance(item, Rejected):
            return item if self._tells and copy != COPY else None
        if isinstance(item, Control) is (copy == ALONE):
            return self._told("its type cannot be told: the record has several", copy)
        if isinstance(item, Control) and self._tells and copy == HOME:
            self.control += 1
        return item

    def _read(self, row: Row) -> Any:
        at, message = self._at, self._message
        message.value = row[at["value"]]
        if self._work.source is None:
            return self._record(row)
        message.key = row[at["key"]] if "key" in at else None
        if self._headers:
            message.headers = [(name, row[place]) for name, place in self._headers]
        return self._reader.item(message)

    def _record(self, row: Row) -> Any:
        """Return the item of a row that has an event's columns, of which JSON texts are apart."""
        at = self._at
        texts = [name for name in ("clock", "data") if name in at and row[at[name]] is not None]
        if not texts:
            item = self._reader.item(self._message)
            return item if item.__class__ is not Rejected else self._no_event(item.reason)
        record = msgspec.json.decode(row[at["value"]])
        try:
            for name in texts:
                record[name] = _decoded(row[at[name]], name)
            return self._shape.item(record)
        except EventError as fault:
            return self._no_event(fault.reason)

    def _no_event(self, reason: str) -> Rejected:
        said = brief_reason(
            reason.replace("the message", "the row").replace("the record", "the row")
        )
        return Rejected(place=self._place or "a row", reason=said)

    def _told(self, reason: str, copy: int) -> Rejected | None:
        """Return a rejection, once for all groups that have the row."""
        if not self._tells or copy == COPY:
            return None
        return Rejected(place=self._place or "a row", reason=reason)

    @property
    def _partition(self) -> Partition:
        message = self._message
        return None if message.topic is None else (message.topic, message.partition)

    @property
    def _place(self) -> str:
        message = self._message
        if message.topic is None:
            return ""
        return f"{message.topic}/{message.partition}/{message.offset}"

    def _placed(self, verdicts: list[Verdict]) -> Iterator[Verdict]:
        """Yield verdicts; say where what the monitor rejected was read, once."""
        for verdict in verdicts:
            if verdict.__class__ is not Rejected:
                yield verdict
            elif self._tells:
                yield msgspec.structs.replace(verdict, place=self._place or verdict.place)

    def _unusual(self, item: Any) -> list[Verdict]:
        """Take what is no event."""
        if isinstance(item, Rejected):
            return self.monitor.reject(item)
        one, known = self._partition, self._work.partitions
        if item.kind == "watermark":
            self._marks_s[one] = max(item.time, self._marks_s.get(one, item.time))
            return self._advance_by_marks()
        if item.kind != "end":
            return self.monitor.control(item)
        self._ended.add(one)
        if one is None or (known is not None and len(self._ended) >= known):
            self._closed = True
            return self.monitor.control(item)
        return self._advance_by_marks()

    def _advance_by_marks(self) -> list[Verdict]:
        """Advance by what control events say, once every partition that has not ended said one."""
        known = self._work.partitions
        marks = [
            mark for one, mark in self._marks_s.items() if one is None or one not in self._ended
        ]
        waits_for = 1 if None in self._marks_s else known
        if waits_for is None or not marks:
            return []
        if None not in self._marks_s and len(marks) + len(self._ended) < waits_for:
            return []
        return self.monitor.advance_time(min(marks))

    def _in_canonical_order(self, rows: Iterable[Row]) -> list[Row]:
        """Return rows without offsets in an order that respects happened-before, controls last."""
        keyed = []
        for row in rows:
            self._message.topic = None
            item = self._read(row)
            first = canonical_key(item) if isinstance(item, Event) else (0, "", 0)
            rank = 2 if isinstance(item, Control) else 1
            keyed.append(((rank, *first), row))
        keyed.sort(key=lambda pair: pair[0])
        return [row for _, row in keyed]

    def figures(self) -> tuple[str | None, ...]:
        """Return a row that says what became of all that this group was offered so far."""
        summary = self.monitor.summary
        said = {
            "group": self.number,
            "tells": self._tells,
            "messages": self.messages,
            "control": self.control,
            "live_runs": self.monitor.live_runs,
            "ended": self._closed,
            **summary,
        }
        text = msgspec.json.encode(said).decode()
        return FIGURES, None, str(self.number), None, None, text, None


def _decoded(text: str, what: str) -> Any:
    # A clock may be written in other ways; the shape reads those.
    if what == "clock":
        return text
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError) as fault:
        raise EventError(f"{what} is not JSON: {fault}") from None


__all__ = ["COLUMNS", "FIGURES", "LINE", "Operator", "Work"]
