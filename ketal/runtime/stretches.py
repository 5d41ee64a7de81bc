"""Stretches of a batch: events that may be admitted and offered together.

Between two events a watermark may advance. While nothing is due, all that follows from it is which
of the later events are late, so the events on both sides of it are one stretch.

The one rule: what becomes of a stretch is what would become of its items one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.runtime.release import Release


class Stretch(NamedTuple):
    """A stretch of a batch.

    Attributes
    ----------
    events : sequence of Event
        Its events, in order.
    numbers : sequence of int
        Of each its number in the batch.
    marks_us : sequence of int or None
        Of each the watermark before it, in microseconds.
    end : int
        The number of the first item that is left.
    mark_us : int or None
        The watermark there.
    """

    events: Sequence[Event]
    numbers: Sequence[int]
    marks_us: Sequence[int | None]
    end: int
    mark_us: int | None

    def after(self, count: int) -> tuple[int, int | None]:
        """Return the number of the item after the first so many events, and the watermark there."""
        if count == len(self.events):
            return self.end, self.mark_us
        return self.numbers[count], self.marks_us[count]


def stretch_of(
    batch: Sequence[Any], begin: int, end: int, mark_us: int | None, due: Release | None
) -> Stretch:
    """Return the stretch that begins at an item.

    A late event ends it, the first watermark or one at which something is due, and what is neither.

    Parameters
    ----------
    batch : sequence of Event, Control or Rejected
        The items.
    begin, end : int
        From where to where they are looked through.
    mark_us : int or None
        The watermark at the beginning.
    due : Release or None
        Has what may be due at a watermark; None where no pattern has a time window.
    """
    some = batch if end - begin == len(batch) else batch[begin:end]
    # What is left of a batch is looked at as far as its stretch goes, not to its end each time.
    looked_at = mark_us is None or len(some) == len(batch)
    if due is None or (looked_at and _is_under_one_mark(some, mark_us)):
        return Stretch(some, range(begin, end), [mark_us] * len(some), end, mark_us)
    due_us, window_us = due.due_us, due.window_us
    events: list[Event] = []
    numbers: list[int] = []
    marks_us: list[int | None] = []
    number = begin
    while number < end:
        item = batch[number]
        if isinstance(item, Event):
            time_us = item.time_us
            if time_us is not None:
                if mark_us is not None and time_us < mark_us:
                    break
                due_us = min(due_us, time_us + window_us)
            events.append(item)
            numbers.append(number)
            marks_us.append(mark_us)
        elif isinstance(item, Control) and item.kind == "watermark":
            assert item.time is not None
            given_us = round(item.time * 1e6)
            if mark_us is None or given_us >= due_us:
                break
            mark_us = max(mark_us, given_us)
        else:
            break
        number += 1
    return Stretch(events, numbers, marks_us, number, mark_us)


def _is_under_one_mark(items: Sequence[Any], mark_us: int | None) -> bool:
    """Return whether no watermark is among some items, and none is late by that before them."""
    types = set(map(type, items))
    if mark_us is None or not all(issubclass(of, Event) for of in types):
        return mark_us is None and Control not in types
    times = [item.time for item in items if item.time is not None]
    return not times or round(min(times) * 1e6) >= mark_us
