"""The recorder: which records of an execution's state are dirty.

Parts that cannot be compared cheaply mark what is dirty (`Scopes.dirty`, the counters beyond
holes, `ClockMemory.dirty`), and only while a recorder tracks them; all else is compared with
what was saved last.

The one rule: the records of the first save, with all later changes applied, load the state of
the last one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from ketal.operators.membership.clock_memory import Clock, ClockMemory
from ketal.runtime.admission.deduplication import Intake
from ketal.runtime.admission.identification import Admission
from ketal.runtime.admission.seen_digests import ContentRow, Contents, load_rows, save_rows
from ketal.runtime.state.records import Changes, Records, encode_record
from ketal.runtime.state.release_recorder import ReleaseRecorder, RetiringRecorder, RowRecords

SEEN_SPAN = 128
"""Contents in one chunk; the last one is saved again until it is full."""
CLOCKS_SPAN = 64
"""Clocks in one chunk, which is saved again when one of them is given a closure."""


class _ContentRecords:
    """The contents of the last events, in chunks by order of arrival."""

    def __init__(self) -> None:
        self._upto = 0
        self._chunks: deque[int] = deque()
        self._begin(0)

    def _begin(self, number: int) -> None:
        """Begin a chunk with the content of this number."""
        self._start = number
        self._rows: list[ContentRow] = []

    def changes(self, contents: Contents, clocks: bool, out: Changes) -> None:
        """Save the contents that are new and not evicted; remove the chunks that are."""
        rows = contents.newest(self._upto)
        number = contents.taken - len(rows)
        if number != self._upto:
            self._begin(number)
        at = 0
        while at < len(rows):
            if number % SEEN_SPAN == 0:
                self._begin(number)
            some = rows[at : at + SEEN_SPAN - number % SEEN_SPAN]
            self._rows += some
            at, number = at + len(some), number + len(some)
            chunk = self._start // SEEN_SPAN
            if not self._chunks or self._chunks[-1] != chunk:
                self._chunks.append(chunk)
            body = [self._start, *save_rows(self._rows, clocks=clocks)]
            out[b"seen/%d" % chunk] = encode_record(body)
        self._upto = number
        while self._chunks and (self._chunks[0] + 1) * SEEN_SPAN <= contents.evicted:
            out[b"seen/%d" % self._chunks.popleft()] = None

    def loaded(
        self, chunks: Iterable[tuple[int, Any]], evicted: int, *, clocks: bool
    ) -> Iterator[ContentRow]:
        """Yield the contents of chunks that were loaded, as `Intake.restore` takes them."""
        for chunk, (start, *written) in chunks:
            rows = list(load_rows(written, clocks=clocks))
            self._chunks.append(chunk)
            self._upto = start + len(rows)
            if self._upto % SEEN_SPAN:
                # The next content belongs to it, if it is the last one.
                self._begin(start)
                self._rows += rows
            yield from rows[max(0, evicted - start) :]


class _CounterRecords:
    """The counters seen beyond holes, in chunks of bits (`ketal.model.sets.counter_sets`).

    Parameters
    ----------
    intake : Intake
        Marks chunks dirty.
    tracking : bool
        Whether it does.
    """

    def __init__(self, intake: Intake, *, tracking: bool) -> None:
        self._intake = intake
        self._tracking = tracking
        self._whole = True
        if tracking:
            intake.track()

    def changes(self, out: Changes) -> None:
        """Save the chunks that are dirty; the first time, all."""
        for node, seen in sorted(self._intake.nodes.items()):
            counters, upto = seen.beyond, seen.upto
            dirty = counters.dirty
            for number in sorted(counters.chunks if self._whole else dirty or ()):
                bits = counters.packed(number, upto)
                key = f"beyond/{number}/{node}".encode()
                out[key] = None if bits is None else encode_record([node, number, bits])
            if self._tracking and dirty:
                dirty.clear()
        self._whole = not self._tracking

    def loaded(self, bodies: Iterable[Any]) -> Iterator[tuple[str, int, bytes]]:
        """Yield the chunks that were loaded, as `Intake.restore` takes them."""
        self._whole = not self._tracking
        yield from bodies


class _ClockRecords:
    """The clocks of the last events, once there is a membership, in chunks by arrival."""

    def __init__(self) -> None:
        self._memory: ClockMemory | None = None
        self._numbers: dict[tuple[str, int], int] = {}
        self._chunks: dict[int, dict[int, tuple[str, int]]] = {}
        self._next = 0

    def changes(self, memory: ClockMemory, tracking: bool, out: Changes) -> None:
        """Save the chunks in which a clock is dirty."""
        dirty = memory.dirty
        if memory is not self._memory or dirty is None:
            self._memory = memory
            dirty = {(node, counter): True for node, counter, _ in memory.items()}
        if tracking:
            memory.dirty = {}
        touched: dict[int, None] = {}
        for dot, arrived in dirty.items():
            there, number = memory.find(*dot) is not None, self._numbers.get(dot)
            if number is not None:
                chunk = number // CLOCKS_SPAN
                touched[chunk] = None
                if there and not arrived:
                    continue
                del self._chunks[chunk][number], self._numbers[dot]
            if there:
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

    def loaded(self, chunks: Iterable[tuple[int, Any]]) -> Iterator[Any]:
        """Yield the chunks that were loaded, as `ClockMemory.load` takes them."""
        for chunk, rows in chunks:
            # Numbers of evicted clocks are free; which ones they were does not matter.
            for number, row in enumerate(rows, chunk * CLOCKS_SPAN):
                self._add(number, (row[0], row[1]))
            self._next = (chunk + 1) * CLOCKS_SPAN
            yield rows

    def loaded_memory(self, memory: ClockMemory) -> None:
        """Mark the clocks of a membership that was loaded as saved."""
        self._memory = memory
        memory.dirty = {}


class Recorder:
    """Returns the records of a state, and later those that changed.

    Parameters
    ----------
    admission : Admission
    release : ReleaseRecorder
    retiring : RetiringRecorder or None
        The parts of the state.
    tracking : bool
        Whether the parts mark what is dirty from the first call on; without, `changes` is
        called once, and changes nothing in them.
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
        self._beyond = _CounterRecords(admission.intake, tracking=tracking)
        self._clocks = _ClockRecords()
        self._first: RowRecords[str, Clock] = RowRecords("first", lambda node, first: [node, first])

    def changes(self, program: Any, core: dict[str, Any]) -> Changes:
        """Return what changed since the last call; the first time, all.

        Parameters
        ----------
        program : Any
            The program, as plain data.
        core : dict
            The small parts of the state that are the execution's own.
        """
        out = self.release.changes(program, {**core, "admission": self.admission.state()})
        intake, membership = self.admission.intake, self.admission.membership
        self._seen.changes(intake.contents, membership is None, out)
        self._beyond.changes(out)
        if membership is not None:
            self._clocks.changes(membership.memory, self.tracking, out)
        self._first.changes(self.admission.first, out)
        if self.retiring is not None:
            out |= self.retiring.prefixed_changes()
        return out

    def load(self, records: Records) -> None:
        """Load a state into fresh parts."""
        self.load_admission(records)
        self.release.load(records)
        if self.retiring is not None and records.retiring is not None:
            self.retiring.load(records.retiring)

    def load_admission(self, records: Records) -> None:
        """Load the admission, which has the membership, before any queue is loaded."""
        state = records.one("core")
        evicted = state["admission"]["intake"]["evicted"]
        first = list(records.numbered("first"))
        self.admission.restore(
            state["admission"],
            beyond=self._beyond.loaded(records.all("beyond")),
            contents=self._seen.loaded(
                records.numbered("seen"), evicted, clocks=state["admission"]["membership"] is None
            ),
            clocks=self._clocks.loaded(records.numbered("clocks")),
            first=dict(body for _, body in first),
        )
        self._first.loaded(first, self.admission.first)
        self.release.restore_clocks()
        membership = self.admission.membership
        if self.tracking and membership is not None:
            self._clocks.loaded_memory(membership.memory)
