"""Logs as arguments of functions: what can be one, and what it can hold.

The one rule: what can be no log is refused before anything of it is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from ketal.errors import wrong_type
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.wording import place_at

T = TypeVar("T")

_BATCH_RECORDS = 1_024
"""So many records of a log are processed together, where they are there already."""


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


def batches_of(log: Any) -> Iterator[Sequence[tuple[str, Any, str, int]]]:
    """Return the records of a Log, or of an iterable of events, in batches.

    Of an iterator each record is a batch: the next one may be long in coming.
    """
    if hasattr(log, "batches"):
        return iter(log.batches())
    records = (("", item, "", 0) for item in log)
    return batched(records, together=not isinstance(log, Iterator))


def batched(records: Iterable[T], *, together: bool) -> Iterator[Sequence[T]]:
    """Yield records in batches, of one each if they do not come together.

    Where the records end with an exception, the batch before it comes first.
    """
    size = _BATCH_RECORDS if together else 1
    batch: list[T] = []
    try:
        for record in records:
            batch.append(record)
            if len(batch) == size:
                yield batch
                batch = []
    except Exception:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def no_log_item(item: object) -> TypeError:
    """Return the error for what a log cannot hold."""
    return wrong_type(
        "what a log holds", "a ketal.Event (ketal.read_log makes events of rows)", item
    )


def records_of(
    log: Any, what: str = "log"
) -> Iterator[tuple[str, Event | Control | Rejected, str, int]]:
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
