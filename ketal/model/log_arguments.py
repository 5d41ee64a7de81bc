"""Logs as arguments of functions: their types, the items that they can hold, and batches.

The one rule: an argument that cannot be a log is refused before any of it is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from itertools import chain, groupby, islice, repeat
from operator import itemgetter
from typing import Any, TypeVar

import msgspec

from ketal.clocks.scheme import NO_CLOCKS
from ketal.errors import SettingError, wrong_type
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.wording import place_at, undetermined

T = TypeVar("T")
LogItem = Event | Control | Rejected
"""The item that a record of a log holds."""
Record = tuple[str, LogItem, str, int]
"""(execution, item, file, line) of one record of a log."""
_BATCH_RECORDS = 1_024
"""The most records in one batch; records that arrive one by one are batches of one."""


@dataclass(slots=True)
class RecordBatch:
    """Records of one execution and one file that were read together."""

    execution: str  # the execution's name; empty if the log holds only one
    items: Sequence[LogItem]  # the items of the records
    file: str  # the file; empty for items that are in memory
    lines: Sequence[int]  # the line of each item

    def place(self, number: int) -> str:
        """Return the place where the item at an index was read."""
        return place_at(self.file, self.lines[number])

    def records(self) -> Iterator[Record]:
        """Yield the records."""
        return zip(repeat(self.execution), self.items, repeat(self.file), self.lines)

    def singly(self) -> Iterator[RecordBatch]:
        """Yield each record as a batch of its own."""
        for item, line in zip(self.items, self.lines, strict=True):
            yield RecordBatch(self.execution, (item,), self.file, (line,))


def checked_log(log: Any, what: str = "log") -> Any:
    """Return an argument, which `what` names; a TypeError if it cannot be a log.

    A file or its name, bytes, and a single event cannot.
    """
    file = isinstance(log, str | bytes | bytearray | os.PathLike) or hasattr(log, "read")
    if file or not (hasattr(log, "batches") or isinstance(log, Iterable)):
        wanted = "a ketal.Log, for example from ketal.read_log(path), or an iterable of ketal.Event"
        raise wrong_type(what, wanted, log)
    return log


def has_no_clocks(log: Any) -> bool:
    """Return whether an argument is a log without clocks, as `--clock none` reads it."""
    return getattr(getattr(log, "undecided", None), "scheme", None) == NO_CLOCKS


def deciding_log(log: Any, what: str = "log") -> Any:
    """Return an argument after checking that it can be a log whose clocks decide happened-before.

    A SettingError if they leave the order of some events open, as Lamport clocks do.
    """
    undecided = getattr(checked_log(log, what), "undecided", None)
    if undecided is not None:
        third = "stats" if undecided.scheme == NO_CLOCKS else "view"
        raise SettingError(
            f"{undetermined(undecided.scheme)} happened-before, which is required here; "
            f"use `run`, `explain` or `{third}`"
        )
    return log


def log_with_clocks(log: Any) -> Any:
    """Return a given log, to draw its events; a SettingError if it is one without clocks."""
    if has_no_clocks(log):
        raise SettingError(
            f"{undetermined(NO_CLOCKS)} happened-before, which a picture of its events (`view`, "
            "`--show`) shows; use `run`, `explain` or `stats`"
        )
    return log


def batches_of(log: Any) -> Iterator[RecordBatch]:
    """Yield the records of a Log, or of an iterable of events, in batches.

    If an iterable has no length, each record is a batch: the next one may take long to arrive.
    """
    if hasattr(log, "batches"):
        yield from log.batches()
        return
    for items in _slices(log, together=isinstance(log, Sized)):
        yield RecordBatch("", items, "", [0] * len(items))


def batched(records: Iterable[Record], *, together: bool) -> Iterator[RecordBatch]:
    """Yield records in batches; in batches of one record if not `together`."""
    for gathered in _slices(records, together=together):
        for (execution, file), group in groupby(gathered, key=itemgetter(0, 2)):
            part = list(group)
            items, lines = [item for _, item, _, _ in part], [line for _, _, _, line in part]
            yield RecordBatch(execution, items, file, lines)


def _slices(items: Iterable[T], *, together: bool) -> Iterator[list[T]]:
    """Yield items in lists, of one item if not `together`.

    If the iterable raises an exception, the items before it are yielded first.
    """
    size, rest = _BATCH_RECORDS if together else 1, iter(items)
    gathered: list[T] = []
    while True:
        try:
            gathered.extend(islice(rest, size))
        except Exception:
            if gathered:
                yield gathered
            raise
        if not gathered:
            return
        yield gathered
        gathered = []


def no_log_item(item: object, what: str = "an item of a log") -> TypeError:
    """Return the error for an item that a log cannot hold; `what` names its source."""
    return wrong_type(what, "a ketal.Event (ketal.read_log converts rows to events)", item)


def records_of(log: Any) -> Iterator[Record]:
    """Yield (execution, item, file, line) of each record of a log.

    After the end of an execution its events are rejected, as in a run, and a control event says no
    more than that it has ended. A TypeError if it cannot be a log, or an item of it cannot be in
    one.
    """
    ended: set[str] = set()
    batches = batches_of(checked_log(log))
    for execution, item, file, line in chain.from_iterable(map(RecordBatch.records, batches)):
        if isinstance(item, Control):
            if execution in ended:
                item = Control("end")
            elif item.kind == "end":
                ended.add(execution)
        elif isinstance(item, Rejected):
            if execution in ended and item.draft is not None:
                item = msgspec.structs.replace(item, draft=None)
        elif not isinstance(item, Event):
            raise no_log_item(item)
        elif execution in ended:
            place = place_at(file, line) or str(item.dot)
            reason = "the execution has ended (ketal.end)"
            item = Rejected(place=place, reason=reason, execution=execution)
        yield execution, item, file, line
