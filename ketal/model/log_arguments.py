"""Logs as arguments of functions: what can be one, what it can hold, and how that is batched.

The one rule: what can be no log is refused before anything of it is read.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any

import msgspec

from ketal.errors import wrong_type
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.wording import place_at

LogItem = Event | Control | Rejected
"""What a record of a log may hold."""
Record = tuple[str, LogItem, str, int]
"""(execution, item, file, line) of one record of a log."""
_BATCH_RECORDS = 1_024
"""So many records of a log are processed together, where they are there already."""


@dataclass(slots=True)
class RecordBatch:
    """Records of one execution and one file that were read together.

    Attributes
    ----------
    execution : str
        The execution's name; empty where a log holds one only.
    items : sequence of Event, Control or Rejected
        What the records hold.
    file : str
        The file; empty for items that are in memory.
    lines : sequence of int
        Of each item its line.
    """

    execution: str
    items: Sequence[LogItem]
    file: str
    lines: Sequence[int]

    def place(self, number: int) -> str:
        """Return where an item was read."""
        return place_at(self.file, self.lines[number])

    def records(self) -> Iterator[Record]:
        """Yield the records."""
        return zip(repeat(self.execution), self.items, repeat(self.file), self.lines)

    def singly(self) -> Iterator[RecordBatch]:
        """Yield each record as a batch."""
        for item, line in zip(self.items, self.lines, strict=True):
            yield RecordBatch(self.execution, (item,), self.file, (line,))


def checked_log(log: Any, what: str = "log") -> Any:
    """Return a log argument, of the name `what`, after checking that it can be one.

    Raises
    ------
    TypeError
        If it can be none: a file or its name, bytes, a single event.
    """
    file = isinstance(log, str | bytes | bytearray | os.PathLike) or hasattr(log, "read")
    if file or not (hasattr(log, "records") or isinstance(log, Iterable)):
        wanted = "a ketal.Log, as ketal.read_log(path) returns, or an iterable of ketal.Event"
        raise wrong_type(what, wanted, log)
    return log


def batches_of(log: Any) -> Iterator[RecordBatch]:
    """Return the records of a Log, or of an iterable of events, in batches.

    Of what is no collection each record is a batch: the next one may be long in coming.
    Where the items end with an exception, the batch before it comes first.
    """
    if hasattr(log, "batches"):
        yield from log.batches()
        return
    size, items = _BATCH_RECORDS if isinstance(log, Collection) else 1, iter(log)
    some: list[LogItem] = []
    while True:
        try:
            some.extend(islice(items, size))
        except Exception:
            if some:
                yield RecordBatch("", some, "", [0] * len(some))
            raise
        if not some:
            return
        yield RecordBatch("", some, "", [0] * len(some))
        some = []


def batched(records: Iterable[Record], *, together: bool) -> Iterator[RecordBatch]:
    """Yield records in batches, of one each if they do not come together.

    Where the records end with an exception, the batch before it comes first.
    """
    size = _BATCH_RECORDS if together else 1
    items: list[LogItem] = []
    lines: list[int] = []
    execution = file = ""
    try:
        for of_execution, item, of_file, line in records:
            if items and (of_execution != execution or of_file != file):
                yield RecordBatch(execution, items, file, lines)
                items, lines = [], []
            execution, file = of_execution, of_file
            items.append(item)
            lines.append(line)
            if len(items) == size:
                yield RecordBatch(execution, items, file, lines)
                items, lines = [], []
    except Exception:
        if items:
            yield RecordBatch(execution, items, file, lines)
        raise
    if items:
        yield RecordBatch(execution, items, file, lines)


def no_log_item(item: object) -> TypeError:
    """Return the error for what a log cannot hold."""
    return wrong_type(
        "what a log holds", "a ketal.Event (ketal.read_log makes events of rows)", item
    )


def records_of(log: Any, what: str = "log") -> Iterator[Record]:
    """Yield (execution, item, file, line) of each record of a log argument, of the name `what`.

    Events after the end of their execution are rejected, as in a run.

    Raises
    ------
    TypeError
        If it can be no log, or holds what none can hold.
    """
    records = checked_log(log, what)
    records = log.records() if hasattr(log, "records") else (("", item, "", 0) for item in records)
    ended: set[str] = set()
    for execution, item, file, line in records:
        if isinstance(item, Control):
            if item.kind == "end":
                ended.add(execution)
        elif isinstance(item, Rejected):
            if execution in ended and item.draft is not None:
                item = msgspec.structs.replace(item, draft=None)
        elif not isinstance(item, Event):
            raise no_log_item(item)
        elif execution in ended:
            place = place_at(file, line) or str(item.dot)
            item = Rejected(place=place, reason=_ENDED, execution=execution)
        yield execution, item, file, line


_ENDED = "the execution has ended (ketal.end)"
