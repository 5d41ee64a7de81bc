"""One key group: the part of the execution that it is offered, and its state.

A group is one `Monitor`, and what the rows say beyond events: which partitions have ended, how far
time is in each, what was counted. Rows of control events (`ketal.*`) come to every group; one of
the copies is counted. What belongs to no group, a malformed message, comes to one group of each
family, and the first family tells it.

Of the groups that an event comes to, one in each family, every one decides for the whole program
whether it is late or refused, so the first family tells that. Two events with one dot and different
content may meet in a group of a later family alone: then that one tells it. For this a later family
keeps, of each dot, to which groups of the families before it its event went (`homes`).

Where the program was changed and the old one is drained, a group whose state is of the old one
takes the change up when it is called the next time (`ketal.streaming.drain`). So that each is
called soon, some rows go to all groups (`TOUCH`), which read nothing in them.

The one rule: a group depends on its state and its rows; every row is told or counted by one group.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ketal.columns import Columns
from ketal.errors import EventError, StateError
from ketal.event import Control, Dot, Event, canonical_key
from ketal.limits import Limits
from ketal.logs.jsonl import brief_reason
from ketal.logs.shape import Shape
from ketal.logs.source import Source
from ketal.monitor import BATCH_EVENTS, Monitor
from ketal.program import Program
from ketal.streaming.drain import Draining, take_up
from ketal.streaming.messages import Reader
from ketal.streaming.spark.judging import COUNTER, columns_given, columns_read
from ketal.streaming.spark.keyed import BETWEEN, Places
from ketal.streaming.spark.packing import packed, unpacked
from ketal.streaming.spark.table import Row, Table
from ketal.verdicts import Late, Rejected, Verdict

FIGURES = "ketal.figures"
"""What stands for the verdict in a row of figures, which only a job asks for."""
COLUMNS = ("verdict", "pattern", "id", "execution", "scope", "json")
LINE = "line"
"""A further column of a job: the verdict as a line for people."""
PLAIN = ("copy", "topic", "partition", "offset", "value")
"""The columns of a row, where no field is in a message's key or headers."""
HOMES = "homes"
"""A further column, where several families are partitioned: a row's group in each of them."""
ALONE, HOME, COPY, TOUCH, PLACED = 0, 1, 2, 3, 4
"""A row that one group of each family has; of a control event's rows the one that counts, and the
others; a row that has a group called and nothing else; one that says where a value is."""

Partition = tuple[str, int] | None
Homes = tuple[int, ...]
CONFLICTS_MAX = 3
"""Of a table in which so many parts have events that are not plainly new the rest is taken row by
row."""


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
    change : int
        How many changes of the program there were that groups took up.
    was : tuple of Program
        Each family's patterns before the last one, as long as they are drained.
    placed : tuple of str
        For each family, what decides to which of its groups a row goes.
    """

    programs: tuple[tuple[int, Program], ...]
    limits: Limits
    source: Source | None
    columns: tuple[str, ...]
    headers: tuple[str, ...]
    partitions: int | None
    timed: bool
    figures: bool
    change: int = 0
    was: tuple[Program, ...] = ()
    placed: tuple[str, ...] = ()

    @property
    def output(self) -> list[str]:
        """The columns that go back."""
        return [*COLUMNS, LINE] if self.figures else list(COLUMNS)

    def row(self, verdict: Verdict) -> tuple[str | None, ...]:
        """Return a verdict as columns."""
        name, said = verdict.written()
        pattern, scope = None, None
        if not isinstance(verdict, Rejected):
            pattern, scope = verdict.pattern, verdict.scope.written()[0].decode()
        row = (verdict.kind, pattern, name, verdict.execution or None, scope, said.decode())
        return (*row, str(verdict)) if self.figures else row

    def family(self, group: int) -> int:
        """Return which family a group is of, by its place."""
        return [n for n, (first, _) in enumerate(self.programs) if first <= group][-1]

    def monitor(self, family: int, held: Mapping[bytes, bytes] | None) -> Monitor | Draining:
        """Return the monitor of one of a family's groups, with the state that it had."""
        program = self.programs[family][1]
        others = (other for n, (_, other) in enumerate(self.programs) if n != family)
        beside = [compiled for other in others for compiled in other.compiled]
        if held is None:
            return Monitor(program, limits=self.limits, beside=beside)
        was = self.was[family] if self.was else None
        on_change = "stop" if was is None else "drain"
        taken = take_up(
            program, held, on_change=on_change, was=was, limits=self.limits, beside=beside
        )
        return taken.monitor


class Message:
    """A row as `Reader` reads it; one is filled again and again."""

    __slots__ = ("headers", "key", "offset", "partition", "topic", "value")

    topic: str | None
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


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
        self._family = work.family(number)
        self._tells = self._family == 0
        self._at = {name: place for place, name in enumerate(work.columns)}
        self._headers = [(name, self._at[f"header{n}"]) for n, name in enumerate(work.headers)]
        self._message = Message()
        self._message.headers = ()
        self._plain = work.source is not None and work.columns == PLAIN
        self._shape = Shape(Source(), limits=work.limits, kafka=True)
        self._reader = Reader(work.source or Source(), work.limits)
        self.messages = self.control = 0
        self._ended: set[Partition] = set()
        self._marks_s: dict[Partition, float] = {}
        self._closed = False
        self._held: dict[bytes, bytes] = {}
        self._drained: dict[str, Any] = {}
        """What old patterns have said that are over."""
        keyed_by = (work.source or Source()).keyed_by or ""
        self._value_of = dict(work.programs[self._family][1].compiled[0].partition).get(keyed_by)
        self._places = Places(keyed_by, work.limits.placed_max)
        self._placed = work.placed[self._family] if work.placed else ""
        # A column that the first family has no use for: it tells what it sees.
        self._homes: dict[Dot, Homes] | None = None
        if HOMES in self._at and not self._tells:
            self._homes = {}
        if held is None:
            self.monitor = work.monitor(self._family, None)
            return
        try:
            known = unpacked(held)
            placed = known["placed"]
            if placed != self._placed:
                raise StateError(
                    f"the checkpoint is of rows that go to {placed}, and they go to "
                    f"{self._placed} now, so that keys would leave their state: a checkpoint keeps "
                    "its key_groups, its keyed_by and the fields of `partition by`; begin a new one"
                )
            self._places = Places(keyed_by, work.limits.placed_max, known["places"])
            self.messages, self.control, self._closed = known["counts"]
            self._ended = {None if one is None else (one[0], one[1]) for one in known["ended"]}
            self._marks_s = {None if one is None else (one[0], one[1]): mark
                             for one, mark in known["marks"]}  # fmt: skip
            self._held = dict(known["monitor"])
            change, drained = known["drained"]
            self._drained = drained if change == work.change else {}
            if self._homes is not None:
                self._homes |= {Dot(node, count): tuple(at) for node, count, *at in known[HOMES]}
        except (KeyError, TypeError, ValueError) as fault:
            raise StateError(f"the state of a key group is damaged: {fault}") from None
        self.monitor = work.monitor(self._family, self._held)

    def state(self) -> bytes:
        """Return the state: `Group(work, number, blob)` goes on from it."""
        records = sorted(self._records().items())
        if isinstance(self.monitor, Draining) and self.monitor.over:
            self._drained = self.monitor.summary["draining"]
            self.monitor = self.monitor.new
        return packed(
            {
                "counts": [self.messages, self.control, self._closed],
                "ended": sorted(self._ended, key=repr),
                "marks": sorted(self._marks_s.items(), key=repr),
                "monitor": records,
                "drained": [self._work.change, self._drained],
                "placed": self._placed,
                "places": self._places.state(),
                HOMES: [(*dot, *at) for dot, at in (self._homes or {}).items()],
            }
        )

    def _records(self) -> dict[bytes, bytes]:
        """Return the monitor's state; a worker that kept the group says only what changed anew."""
        for name, record in self.monitor.changes().items():
            if record is None:
                self._held.pop(name, None)
            else:
                self._held[name] = record
        return self._held

    @property
    def waits(self) -> bool:
        """Whether the passing of time can still bring something about."""
        if self._closed:
            return False
        if isinstance(self.monitor, Draining):
            return True  # It has to learn when it is over.
        return self.monitor.live_runs > 0 or self.monitor.tally.held_back > 0

    def advance(self, mark_ms: int) -> list[Verdict]:
        """Take up Spark's watermark; it stands at 0 until there is one."""
        return [] if mark_ms <= 0 or self._closed else self.monitor.advance_time(mark_ms / 1e3)

    def take_table(self, table: Table) -> Iterator[Verdict]:
        """Take rows in turn, as columns where that is enough; yield the verdicts."""
        reader = self.monitor.reader if isinstance(self.monitor, Monitor) else None
        columnar = "offset" in self._at and (self._plain or COUNTER in self._at)
        kinds = table.values("copy")
        if (
            reader is None
            or not columnar
            or self._homes is not None
            or self._ended
            or not kinds <= {ALONE, TOUCH, PLACED}
        ):
            yield from self.take(table.rows())
            return
        if kinds != {ALONE}:
            alone = table.array("copy") == ALONE
            self._without_watched(list(table.where(~alone).rows()))
            table = table.where(alone)
        given = not self._plain
        made = columns_given(reader, table) if given else columns_read(reader, self._reader, table)
        for columns, first in made:
            if isinstance(columns, int):
                yield from self.take(table.rows(first, columns))
            else:
                yield from self._take_columns(columns, table, first)

    def _take_columns(self, columns: Columns, table: Table, first: int) -> Iterator[Verdict]:
        """Take events of which there are columns, from a row of the table on."""
        assert isinstance(self.monitor, Monitor)
        at, most, conflicts = 0, columns.rows, 0
        while at < columns.rows:
            taken, said = self.monitor.feed_columns(columns.part(at, at + most))
            self.messages += taken if self._tells else 0
            for _, verdicts in said:
                yield from verdicts
            at += taken
            most *= 2
            if not taken:
                # After a duplicate there are most often more of them.
                conflicts += 1
                most = BATCH_EVENTS if conflicts < CONFLICTS_MAX else columns.rows
                last = min(at + most, columns.rows)
                yield from self.take(table.rows(first + at, first + last))
                at = last

    def take(self, rows: Iterable[Row]) -> Iterator[Verdict]:
        """Take rows in turn; yield the verdicts they bring about."""
        if "offset" not in self._at:
            rows = self._in_canonical_order(rows)
        rows = iter(rows)
        while batch := list(itertools.islice(rows, BATCH_EVENTS)):
            copies = {row[0] for row in batch}
            if not copies.isdisjoint((TOUCH, PLACED)):
                batch = self._without_watched(batch)
            events = self._events(batch) if copies <= {ALONE, TOUCH, PLACED} else None
            if events is None:
                for row in batch:
                    yield from self._take(row)
                continue
            self.messages += len(batch) if self._tells else 0
            for number, verdicts in self.monitor.feed_each(events):
                row = batch[number]
                self._at_row(row)
                yield from self._told_here(verdicts, events[number], row)

    def _events(self, batch: Sequence[Row]) -> list[Event] | None:
        """Return the events of rows; None where one has to be looked at by itself."""
        if not batch or not self._plain or self._ended or self._homes is not None:
            return None
        return self._reader.events([row[4] for row in batch])

    def _without_watched(self, batch: Sequence[Row]) -> list[Row]:
        """Take the rows that are for this group and of another group's messages out of a batch."""
        at = self._at["value"]
        for row in batch:
            if row[0] == PLACED:
                self._at_row(row)
                led_to, _, value = bytes(row[at]).partition(BETWEEN.encode())
                item = self._read((*row[:at], value, *row[at + 1 :]))
                if item.__class__ is Event and self._value_of is not None:
                    self._places.saw(self._value_of(item), int(led_to), self._place)
        return [row for row in batch if row[0] < TOUCH]

    def _at_row(self, row: Row) -> None:
        message = self._message
        if "offset" in self._at:
            message.topic, message.partition, message.offset = row[1], row[2], row[3]
        else:
            message.topic, message.partition, message.offset = None, 0, 0

    def _take(self, row: Row) -> Iterator[Verdict]:
        item = self._item(row)
        if item is None:
            return
        is_event = item.__class__ is Event
        verdicts = self.monitor.feed(item) if is_event else self._unusual(item)
        if verdicts:
            yield from self._told_here(verdicts, item, row)
        if is_event and self._homes is not None:
            self._note_homes(self._homes, item.dot, row)

    def _item(self, row: Row) -> Any:
        """Return the item of a row; None where another group tells what it is."""
        self._at_row(row)
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

    def _told_here(self, verdicts: list[Verdict], item: Any, row: Row) -> Iterator[Verdict]:
        """Yield the verdicts that no other group tells; of a rejection say where it was read."""
        for verdict in verdicts:
            if isinstance(verdict, Rejected):
                if self._tells or self._seen_here_alone(item, row):
                    yield msgspec.structs.replace(verdict, place=self._place or verdict.place)
            elif not (isinstance(verdict, Late) and self._told_as_late(item)):
                yield verdict

    def _told_as_late(self, item: Any) -> bool:
        """Return whether the first family tells that an event is late: the watermark says so."""
        return not self._tells and isinstance(item, Event) and self.monitor.passed(item)

    def _homes_of(self, row: Row) -> Homes:
        return tuple(map(int, row[self._at[HOMES]][: self._family]))

    def _note_homes(self, homes: dict[Dot, Homes], dot: Dot, row: Row) -> None:
        """Keep where the first event of a dot went, as long as a monitor keeps its content."""
        if dot not in homes:
            homes[dot] = self._homes_of(row)
            if len(homes) > self._work.limits.dots_max:
                del homes[next(iter(homes))]

    def _seen_here_alone(self, item: Any, row: Row) -> bool:
        """Return whether no family before this one rejects what this one does."""
        if self._homes is None or not isinstance(item, Event):
            return False
        if self._closed or self.monitor.refuses(item):
            return False
        before = self._homes.get(item.dot, ())
        return not any(map(int.__eq__, before, self._homes_of(row)))

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
        summary = {"draining": self._drained, **self.monitor.summary}
        said = {
            "change": self._work.change,
            "under_way": isinstance(self.monitor, Draining) and not self.monitor.over,
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
