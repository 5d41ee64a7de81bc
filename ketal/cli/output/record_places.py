"""Where the events of verdicts stand in the log: file and line.

The one rule: the batches that were read last are kept as they are, and looked through when a place
is asked for; of an event that was read long before its verdict the place is not known. Where a log
is held in memory to be judged, all of its batches are kept.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.wording import place_at

if TYPE_CHECKING:
    from ketal.logs import Record

RECORDS_MAX = 32_768
"""Records that are kept where not all are; one batch may go beyond it."""


class RecordPlaces:
    """The places of the records that were read last, or of all."""

    def __init__(self, *, all_kept: bool) -> None:
        self._most = sys.maxsize if all_kept else RECORDS_MAX
        self._batches: deque[Sequence[Record]] = deque()
        self._places: dict[int, dict[tuple[str, Dot], str]] = {}
        self._records = 0

    def watched(self, batches: Iterator[Sequence[Record]]) -> Iterator[Sequence[Record]]:
        """Yield batches of records, keeping the last ones."""
        for batch in batches:
            self.keep(batch)
            yield batch

    def keep(self, batch: Sequence[Record]) -> None:
        """Keep a batch, and no more of the older ones than there is room for."""
        self._batches.append(batch)
        self._records += len(batch)
        while self._records > self._most and len(self._batches) > 1:
            gone = self._batches.popleft()
            self._records -= len(gone)
            self._places.pop(id(gone), None)

    def of(self, execution: str, dot: Dot) -> str:
        """Return the place of an event; empty where it is not known."""
        for batch in reversed(self._batches):
            places = self._places.get(id(batch))
            if places is None:
                places = self._places[id(batch)] = {
                    (part, item.dot): place_at(file, line)
                    for part, item, file, line in batch
                    if isinstance(item, Event)
                }
            if place := places.get((execution, dot)):
                return place
        return ""
