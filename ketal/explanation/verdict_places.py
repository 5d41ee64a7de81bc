"""The places of verdicts' events in the log: file and line.

An event's place is where its dot was read first, as later records of the dot are duplicates. Once a
node has restarted, the execution reports the places of its events (`record_place`), as a dot alone
does not tell the incarnation of a record. The latest records are kept, and indexed when a place is
requested; the place of an event that was read long before its verdict is unknown. For a log that is
held in memory, all records are kept.

The one rule: an unknown place is left out, never guessed.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.incarnation import numbered_dot
from ketal.model.log_arguments import RecordBatch
from ketal.model.verdicts.check_verdicts import Violation
from ketal.model.verdicts.execution_verdicts import Late, Rejected
from ketal.model.verdicts.find_verdicts import FindVerdict
from ketal.model.verdicts.run_verdicts import Overflow
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.model.wording import place_at

RECORDS_MAX = 32_768
"""How many records are kept unless all are, with at most twice as many places.

A single batch may have more records.
"""
_PLACES_SHOWN = 4
"""How many places of a match are shown; of more, the first and the last."""


class VerdictPlaces:
    """The places of verdicts' events, from the latest records or, if `all_kept`, from all."""

    def __init__(self, *, all_kept: bool) -> None:
        self._records_max = sys.maxsize if all_kept else RECORDS_MAX
        self._unread: deque[RecordBatch] = deque()
        """The latest batches, not yet indexed in `_places`."""
        self._unread_records = 0
        self._places: dict[tuple[str, Dot], str] = {}

    def watched(self, batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        """Pass on batches of records, and keep the latest ones."""
        for batch in batches:
            self.keep(batch)
            yield batch

    def keep(self, batch: RecordBatch) -> None:
        """Keep a batch, and evict the oldest ones that exceed the limit."""
        self._unread.append(batch)
        self._unread_records += len(batch.items)
        while self._unread_records > self._records_max and len(self._unread) > 1:
            self._unread_records -= len(self._unread.popleft().items)

    def record_place(self, execution: str, dot: Dot, place: str) -> None:
        """Record the place of an event whose node has restarted, under its incarnation's name."""
        self._places[execution, dot] = place
        self._evict()

    def at(self, execution: str, dot: Dot) -> str:
        """Return the place of an event; empty if unknown."""
        return self.of_dots(execution, (dot,))[0]

    def of_dots(self, execution: str, dots: Iterable[Dot]) -> list[str]:
        """Return the place of each event; empty if unknown."""
        if self._unread:
            for batch in self._unread:
                for item, line in zip(batch.items, batch.lines, strict=True):
                    if isinstance(item, Event):
                        read = batch.execution, numbered_dot(item)
                        self._places.setdefault(read, place_at(batch.file, line))
            self._unread.clear()
            self._unread_records = 0
            self._evict()
        places = self._places
        return [places.get((execution, dot), "") for dot in dots]

    def _evict(self) -> None:
        """Evict the oldest places down to the limit once there are twice as many."""
        places = self._places
        if len(places) > 2 * self._records_max:
            for key in list(islice(places, len(places) - self._records_max)):
                del places[key]

    # --- of verdicts ---

    def of(self, verdict: Verdict) -> str:
        """Return the place of a verdict's event; empty if it has none or the place is unknown."""
        if isinstance(verdict, Rejected):
            return verdict.place
        if isinstance(verdict, Violation | Overflow | Late) and verdict.event is not None:
            return self.at(verdict.execution, verdict.event)
        return ""

    def of_steps(self, verdict: FindVerdict) -> list[str]:
        """Return the place of each event of a verdict's steps; empty if unknown."""
        return self.of_dots(verdict.execution, [dot for _, dot in verdict.steps])

    def text(self, verdict: Verdict) -> str:
        """Return the places of a verdict's events in order; `…` replaces the middle of many."""
        if isinstance(verdict, Violation):
            return self.of(verdict)
        if not isinstance(verdict, FindVerdict):
            return ""
        places = [place or "?" for place in self.of_steps(verdict)]
        half = _PLACES_SHOWN // 2
        if len(places) > _PLACES_SHOWN:
            places[half:-half] = ["…"]
        return "" if set(places) <= {"?", "…"} else ", ".join(places)
