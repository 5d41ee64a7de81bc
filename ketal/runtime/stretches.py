"""Stretches of a batch: consecutive events that can be admitted and offered together.

A batch may have watermarks between its events. If nothing is due at a watermark, its only effect is
that later events with earlier times are late, so the events on both sides are one stretch.

The one rule: processing a stretch gives the same result as processing its items one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.events.event_time import microseconds
from ketal.runtime.release import Release


class Stretch(NamedTuple):
    """A stretch of a batch.

    It has its events in order, with the index in the batch of each and the watermark before it, and
    the same for the first item after the stretch.
    """

    events: Sequence[Event]
    numbers: Sequence[int]
    marks_us: Sequence[int | None]
    end: int
    mark_us: int | None

    def after(self, count: int) -> tuple[int, int | None]:
        """Return the batch index after the first `count` events, and the watermark there."""
        if count == len(self.events):
            return self.end, self.mark_us
        return self.numbers[count], self.marks_us[count]


def stretch_of(
    batch: Sequence[Any], begin: int, end: int, mark_us: int | None, due: Release | None
) -> Stretch:
    """Return the stretch that begins at an index of a batch.

    It ends at the index `end` at the latest, before a late event, before a watermark at which
    something is due, and before an item that is neither an event nor a watermark. `mark_us` is the
    watermark at the beginning; the release `due` says when something is due, and is None where no
    pattern has a time window. Without either no event is late, and the stretch has all items up to
    `end`; events are admitted up to the first item that is none.
    """
    items = batch if end - begin == len(batch) else batch[begin:end]
    # Checking the whole rest of a batch for each of its stretches would take quadratic time.
    whole = len(items) == len(batch)
    if due is None or mark_us is None or (whole and _share_watermark(items, mark_us)):
        return Stretch(items, range(begin, end), [mark_us] * len(items), end, mark_us)
    due_us, window_us = due.due_us, due.window_us
    events: list[Event] = []
    numbers: list[int] = []
    marks_us: list[int | None] = []
    number = begin
    while number < end:
        item = batch[number]
        if isinstance(item, Event):
            time_us = microseconds(item.time)
            if time_us is not None:
                if time_us < mark_us:
                    break
                due_us = min(due_us, time_us + window_us)
            events.append(item)
            numbers.append(number)
            marks_us.append(mark_us)
        elif isinstance(item, Control) and item.kind == "watermark":
            watermark_us = microseconds(item.time)
            assert watermark_us is not None
            if watermark_us >= due_us:
                break
            mark_us = max(mark_us, watermark_us)
        else:
            break
        number += 1
    return Stretch(events, numbers, marks_us, number, mark_us)


def _share_watermark(items: Sequence[Any], mark_us: int) -> bool:
    """Return whether all items are events, and none is late by the watermark before them."""
    if not all(issubclass(cls, Event) for cls in set(map(type, items))):
        return False
    times = [item.time for item in items if item.time is not None]
    first_us = microseconds(min(times, default=None))
    return first_us is None or first_us >= mark_us
