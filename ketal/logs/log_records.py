"""Records of a log, whatever its format: an item and its place.

The one rule: what is no event is a record all the same, a `Rejected` in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from ketal.errors import EventError, SettingError
from ketal.model.events.draft import Draft
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.log_arguments import Record
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.wording import place_at, shortened

_REASON_CHARS_MAX = 400


def place(record: Record) -> str:
    """Return where a record stands: `file:line`, `row N`; empty where it came from code."""
    return place_at(record[2], record[3])


def rejected(fault: EventError, name: str, line: int, execution: str = "") -> Record:
    """Return the record of a line that is no event."""
    return execution, rejection(fault, name, line, execution), name, line


def rejection(fault: EventError, name: str, line: int, execution: str = "") -> Rejected:
    """Return what a line holds that is no event."""
    reason = brief_reason(fault.reason)
    draft = fault.draft if isinstance(fault.draft, Draft) else None
    return Rejected(place=place_at(name, line), reason=reason, execution=execution, draft=draft)


def held(records: Iterable[Record], limits: Limits, what: str) -> list[Record]:
    """Return all records of a log, at most `events_max`; `what` says what holds them all."""
    rest = iter(records)
    out = list(islice(rest, limits.events_max))
    if next(rest, None) is not None:
        raise too_many("records", limits, what)
    return out


def too_many(items: str, limits: Limits, what: str) -> SettingError:
    """Make the error of a log with more `items` than `what`, which holds them all, may hold."""
    return SettingError(
        f"the log has more than {limits.events_max} {items} (limit events_max), and {what} "
        "holds them all"
    )


def replaced(records: Iterable[Record], item_of: Callable[[int, Event], Event]) -> Iterator[Record]:
    """Yield the records, each event replaced by `item_of(number, event)`.

    Where that raises an EventError the record is rejected.
    """
    for number, (execution, item, name, line) in enumerate(records):
        try:
            if isinstance(item, Event):
                item = item_of(number, item)
        except EventError as fault:
            yield rejected(fault, name, line, execution)
        else:
            yield execution, item, name, line


def brief_reason(reason: str) -> str:
    """Return a reason cut short: it may quote what it was given, and that may be a megabyte."""
    return shortened(reason, _REASON_CHARS_MAX)
