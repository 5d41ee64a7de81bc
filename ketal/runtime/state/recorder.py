"""The recorder: which records of an execution's state are dirty.

Parts that cannot be compared cheaply mark what is dirty (`Scopes.dirty` and `Copies.dirty`, which
are `DirtyRecords`; the counters beyond holes, `ClockMemory.dirty`), and only while a recorder
tracks them; all other parts are compared with the records saved last.

The one rule: the records of the first save, with all later changes applied, restore the state at
the last save.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from ketal.operators.membership.clock_memory import Clock, ClockMemory
from ketal.runtime.admission.deduplication import Intake
from ketal.runtime.admission.identification import Admission
from ketal.runtime.admission.seen_digests import ContentRow, load_rows, save_rows
from ketal.runtime.state.records import Changes, Records, encode_record
from ketal.runtime.state.release_recorder import ReleaseRecorder, RetiringRecorder, RowRecords

SEEN_SPAN = 128
"""Contents in one chunk; the last chunk is saved again until it is full."""
CLOCKS_SPAN = 64
"""Clocks in one chunk, which is saved again when one of its clocks is given a closure."""


class _ContentRecords:
    """The records of the contents of the last events, in chunks by order of arrival."""

    def __init__(self) -> None:
        self._upto = 0
        self._chunks: deque[int] = deque()
        self._rows: list[ContentRow] = []  # of the last chunk

    def changes(self, intake: Intake, clocks: bool, out: Changes) -> None:
        """Save the new contents that are not evicted; remove the chunks that are evicted."""
        rows = intake.contents.newest(self._upto)
        number = intake.contents.taken - len(rows)
        if number != self._upto:
            self._rows = []  # The next contents were evicted before they were saved.
        self._upto = intake.contents.taken
        for chunk, numbered_rows in groupby(
            enumerate(rows, number), lambda one: one[0] // SEEN_SPAN
        ):
            if not self._chunks or self._chunks[-1] != chunk:
                self._chunks.append(chunk)
                self._rows = []
            numbers, added = zip(*numbered_rows, strict=True)
            self._rows += added
            start = numbers[-1] + 1 - len(self._rows)
            out[b"seen/%d" % chunk] = encode_record([start, *save_rows(self._rows, clocks=clocks)])
        while self._chunks and (self._chunks[0] + 1) * SEEN_SPAN <= intake.contents.evicted:
            out[b"seen/%d" % self._chunks.popleft()] = None

    def mark_saved(
        self, chunks: Iterable[tuple[int, Any]], evicted: int, *, clocks: bool
    ) -> Iterator[ContentRow]:
        """Mark loaded chunks as saved; yield their contents, as `Intake.load` takes them."""
        for chunk, (start, *written) in chunks:
            rows = list(load_rows(written, clocks=clocks))
            self._chunks.append(chunk)
            self._upto, self._rows = start + len(rows), rows
            yield from rows[max(0, evicted - start) :]


class _ClockRecords:
    """The records of the last events' clocks, once there is a membership, in chunks by arrival."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int], int] = {}
        self._chunks: dict[int, dict[int, tuple[str, int]]] = {}
        self._next = 0

    def changes(self, memory: ClockMemory, tracking: bool, out: Changes) -> None:
        """Save the chunks in which a clock is dirty (all, if changes are not tracked)."""
        dirty = memory.dirty if tracking else None
        if dirty is None:
            dirty = {(node, counter): True for node, counter, _ in memory.items()}
        if tracking:
            memory.dirty = {}
        touched: dict[int, None] = {}
        for dot, arrived in dirty.items():
            remembered, number = memory.find(*dot) is not None, self._numbers.get(dot)
            if number is not None:
                chunk = number // CLOCKS_SPAN
                touched[chunk] = None
                if remembered and not arrived:
                    continue
                del self._chunks[chunk][number], self._numbers[dot]
            if remembered:
                touched[self._add(self._next, dot)] = None
        for chunk in touched:
            dots = self._chunks[chunk].values()
            out[b"clocks/%d" % chunk] = encode_record(memory.rows(dots)) if dots else None
            if not dots:
                del self._chunks[chunk]

    def _add(self, number: int, dot: tuple[str, int]) -> int:
        chunk = number // CLOCKS_SPAN
        self._numbers[dot] = number
        self._chunks.setdefault(chunk, {})[number] = dot
        self._next = number + 1
        return chunk

    def mark_saved(self, chunks: Iterable[tuple[int, Any]]) -> Iterator[Any]:
        """Mark loaded chunks as saved; yield them, as `ClockMemory.load` takes them."""
        for chunk, rows in chunks:
            # The numbers of evicted clocks are not saved: clocks may be numbered anew.
            for number, row in enumerate(rows, chunk * CLOCKS_SPAN):
                self._add(number, (row[0], row[1]))
            self._next = (chunk + 1) * CLOCKS_SPAN
            yield rows


class Recorder:
    """Returns all records of a state, and later those that changed.

    If `tracking`, its parts mark what is dirty from the first call of `changes` on. If not,
    `changes` is called once, and leaves the parts as they are.
    """

    def __init__(
        self,
        admission: Admission,
        release: ReleaseRecorder,
        retiring: RetiringRecorder | None,
        *,
        tracking: bool,
    ) -> None:
        self.admission = admission
        self.release = release
        self.retiring = retiring
        self.tracking = tracking
        self._seen = _ContentRecords()
        self._clocks = _ClockRecords()
        self._first: RowRecords[str, Clock] = RowRecords("first", lambda node, first: [node, first])
        if tracking:
            admission.intake.track()
            if admission.membership is not None:
                admission.membership.memory.dirty = None  # The first call returns all clocks.

    def changes(self, program: Any, core: dict[str, Any]) -> Changes:
        """Return the records that changed since the last call; all records at the first call.

        `program` is the program as plain data; `core` has the small parts of the state that are the
        execution's own.
        """
        out = self.release.changes(program, {**core, "admission": self.admission.save()})
        intake, membership = self.admission.intake, self.admission.membership
        self._seen.changes(intake, membership is None, out)
        self._save_counters(out)
        if membership is not None:
            self._clocks.changes(membership.memory, self.tracking, out)
        self._first.changes(self.admission.entries.first, out)
        if self.retiring is not None:
            out |= self.retiring.prefixed_changes()
        return out

    def _save_counters(self, out: Changes) -> None:
        """Save the dirty chunks (all, if changes are not tracked) of counters beyond holes."""
        for node, seen in sorted(self.admission.intake.nodes.items()):
            counters, dirty = seen.beyond, seen.beyond.dirty
            for number in sorted((dirty or ()) if self.tracking else counters.chunks):
                bits = counters.packed(number, seen.upto)
                key = f"beyond/{number}/{node}".encode()
                out[key] = None if bits is None else encode_record([node, number, bits])
            if self.tracking and dirty:
                dirty.clear()

    def load(self, records: Records) -> None:
        """Load a state into parts just made."""
        self.load_admission(records)
        self.release.load(records)
        if self.retiring is not None and records.retiring is not None:
            self.retiring.load(records.retiring)

    def load_admission(self, records: Records) -> None:
        """Load the admission, which has the membership; this is done before queues are loaded."""
        state = records.body("core")
        evicted = state["admission"]["intake"]["evicted"]
        first = list(records.numbered("first"))
        self.admission.load(
            state["admission"],
            beyond=records.bodies("beyond"),
            contents=self._seen.mark_saved(
                records.numbered("seen"), evicted, clocks=state["admission"]["membership"] is None
            ),
            clocks=self._clocks.mark_saved(records.numbered("clocks")),
            first=dict(body for _, body in first),
        )
        self._first.mark_saved(first, self.admission.entries.first)
        self.release.restore_clocks()
        membership = self.admission.membership
        if self.tracking and membership is not None:
            membership.memory.dirty = {}
