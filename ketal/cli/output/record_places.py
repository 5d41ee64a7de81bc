"""Where the events of verdicts stand in the log: file and line.

The one rule: an event stands where its dot was read first; what has the dot again is a duplicate,
or of a node that started again without a number for its incarnation. The records that were read
last are kept, and looked through when a place is asked for; of an event that was read long before
its verdict the place is not known. Where a log is held in memory to be judged, all of its records
are kept.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.wording import place_at
from ketal.operators.membership.incarnations import numbered_dot

if TYPE_CHECKING:
    from ketal.logs import Record

RECORDS_MAX = 32_768
"""Records that are kept where not all are; one batch may go beyond it."""
_TOGETHER_MAX = 1_024
"""Records that are evicted together, and looked through together."""


@dataclass(slots=True)
class _RecordsTogether:
    """Records that were read one after the other."""

    records: list[Record] = field(default_factory=list)
    places: dict[tuple[str, Dot], str] = field(default_factory=dict)
    placed: int = 0
    """How many of the records have their place in `places`."""

    def of(self, execution: str, dot: Dot) -> str:
        """Return the place of an event; empty where it is not one of these."""
        for part, item, file, line in self.records[self.placed :]:
            if isinstance(item, Event):
                self.places.setdefault((part, numbered_dot(item)), place_at(file, line))
        self.placed = len(self.records)
        return self.places.get((execution, dot), "")


class RecordPlaces:
    """The places of the records that were read last, or of all."""

    def __init__(self, *, all_kept: bool) -> None:
        self._most = sys.maxsize if all_kept else RECORDS_MAX
        self._together = sys.maxsize if all_kept else _TOGETHER_MAX
        self._stretches: deque[_RecordsTogether] = deque()
        self._records = 0

    def watched(self, batches: Iterator[Sequence[Record]]) -> Iterator[Sequence[Record]]:
        """Yield batches of records, keeping the last ones."""
        for batch in batches:
            self.keep(batch)
            yield batch

    def keep(self, batch: Sequence[Record]) -> None:
        """Keep a batch, and no more of the older ones than there is room for."""
        if not self._stretches or len(self._stretches[-1].records) >= self._together:
            self._stretches.append(_RecordsTogether())
        self._stretches[-1].records.extend(batch)
        self._records += len(batch)
        while self._records > self._most and len(self._stretches) > 1:
            self._records -= len(self._stretches.popleft().records)

    def of(self, execution: str, dot: Dot) -> str:
        """Return the place of an event; empty where it is not known."""
        for stretch in self._stretches:
            if place := stretch.of(execution, dot):
                return place
        return ""
