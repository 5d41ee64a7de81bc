"""Records of a log in any format: an item and its place.

The one rule: malformed input is a record too, with a `Rejected` as its item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from ketal.errors import EventError, SettingError
from ketal.model.events.event import Draft, Event
from ketal.model.limits import Limits
from ketal.model.log_arguments import Record
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.wording import place_at, shortened

_REASON_CHARS_MAX = 400


def place(record: Record) -> str:
    """Return the place of a record: `file:line` or `row N`; empty if it came from code."""
    return place_at(record[2], record[3])


def rejected_record(fault: EventError, name: str, line: int, execution: str = "") -> Record:
    """Return the record of a rejected line, with the reason of `fault`."""
    return execution, rejected_item(fault, name, line, execution), name, line


def rejected_item(fault: EventError, name: str, line: int, execution: str = "") -> Rejected:
    """Return the item of a rejected line, with the reason and the draft of `fault`."""
    reason = brief_reason(fault.reason)
    draft = fault.draft if isinstance(fault.draft, Draft) else None
    return Rejected(place=place_at(name, line), reason=reason, execution=execution, draft=draft)


def read_all(records: Iterable[Record], limits: Limits, what: str) -> list[Record]:
    """Return all records of a log as a list.

    `what` names the operation that needs them all, for the SettingError of a log with more than
    `events_max` records.
    """
    rest = iter(records)
    out = list(islice(rest, limits.events_max))
    if next(rest, None) is not None:
        raise too_many_error("records", limits, what)
    return out


def too_many_error(items: str, limits: Limits, what: str) -> SettingError:
    """Return the error for a log with more than `events_max` `items`, which `what` must hold."""
    return SettingError(
        f"the log has more than {limits.events_max} {items} (limit events_max), and {what} "
        "keeps all of them in memory"
    )


def map_events(
    records: Iterable[Record], item_of: Callable[[int, Event], Event]
) -> Iterator[Record]:
    """Yield the records, with each event replaced by `item_of(number, event)`.

    `number` is the position of the record, from 0. An EventError rejects the record.
    """
    for number, (execution, item, name, line) in enumerate(records):
        try:
            if isinstance(item, Event):
                item = item_of(number, item)
        except EventError as fault:
            yield rejected_record(fault, name, line, execution)
        else:
            yield execution, item, name, line


def brief_reason(reason: str) -> str:
    """Return a reason, shortened: it may quote input of any length."""
    return shortened(reason, _REASON_CHARS_MAX)
