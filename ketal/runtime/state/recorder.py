"""The recorder: which records of an execution's state are dirty.

Parts that cannot be compared cheaply mark what is dirty (`Scopes.dirty`, the counters beyond
holes, `ClockMemory.dirty`), and only while a recorder tracks them; all else is compared with
what was saved last.

The one rule: the records of the first save, with all later changes applied, load the state of
the last one.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from ketal.engine.copies import Unlearned
from ketal.engine.pattern_run import PatternRun
from ketal.engine.scopes import Scope
from ketal.model.event import Dot, Event, load_event, save_event
from ketal.operators.membership.clock_memory import Clock, ClockMemory
from ketal.runtime.deduplication import Intake
from ketal.runtime.identification import Admission
from ketal.runtime.release import Queues
from ketal.runtime.seen_digests import Contents, Row, load_rows, save_rows
from ketal.runtime.state.records import Changes, Records, encode_record

SEEN_SPAN = 128
"""Contents in one chunk; the last one is saved again until it is full."""
CLOCKS_SPAN = 64
"""Clocks in one chunk, which is saved again when one of them is given a closure."""

K = TypeVar("K")
V = TypeVar("V")


class _SmallRecords:
    """Small records, saved when they differ from what was saved last."""

    def __init__(self) -> None:
        self._last: dict[bytes, bytes] = {}

    def put(self, key: bytes, body: Any, out: Changes) -> None:
        """Add a record to the changes if it differs."""
        value = encode_record(body)
        if self._last.get(key) != value:
            out[key] = self._last[key] = value

    def loaded(self, records: Records) -> None:
        """Mark what was loaded as saved."""
        self._last = {
            "/".join((kind, *rest)).encode(): value
            for kind in ("program", "core", "queue", "pattern")
            for rest, value in records.kinds[kind]
        }


class _RowRecords(Generic[K, V]):
    """A dict whose new keys come last, a record each.

    Parameters
    ----------
    prefix : str
        How the keys of its records begin.
    write : callable
        Returns a key and its value as plain data.
    """

    def __init__(self, prefix: str, write: Callable[[K, V], Any]) -> None:
        self._prefix = prefix
        self._write = write
        self._saved: dict[K, tuple[int, V]] = {}
        self._next = 0

    def _key(self, number: int) -> bytes:
        return f"{self._prefix}/{number}".encode()

    def changes(self, held: Mapping[K, V], out: Changes) -> None:
        """Save what is new or has another value; remove the records of keys that are not held."""
        saved, last = self._saved, -1
        for key, value in held.items():
            at = saved.get(key)
            if at is not None and at[0] > last:
                last, before = at
                if before is value:
                    continue
            else:
                if at is not None:  # Removed and added again, so its place is another one.
                    out[self._key(at[0])] = None
                last = self._next
                self._next += 1
            saved[key] = (last, value)
            out[self._key(last)] = encode_record(self._write(key, value))
        if len(saved) > len(held):
            for key in [key for key in saved if key not in held]:
                out[self._key(saved.pop(key)[0])] = None

    def loaded(self, numbers: Sequence[int], held: Mapping[K, V]) -> None:
        """Mark what was loaded as saved."""
        self._saved = {k: (n, v) for n, (k, v) in zip(numbers, held.items(), strict=True)}
        self._next = max(numbers, default=-1) + 1


class _HeldRecords:
    """The events that queues hold, a record each; numbers of released events are used again."""

    def __init__(self) -> None:
        self._saved: dict[int, tuple[int, Event]] = {}
        self._free: list[int] = []
        self._numbers_now: dict[int, int] = {}
        self.out: Changes = {}

    def number(self, event: Event) -> int:
        """Return the number of an event, saving it if it is new."""
        at = id(event)
        number = self._numbers_now.get(at)
        if number is None:
            saved = self._saved.get(at)
            if saved is None:
                number = heapq.heappop(self._free) if self._free else len(self._saved)
                self._saved[at] = (number, event)
                self.out[b"held/%d" % number] = encode_record(save_event(event))
            else:
                number = saved[0]
            self._numbers_now[at] = number
        return number

    def finish(self) -> Changes:
        """Return the changes, after `number` was called for every event that is held."""
        if len(self._numbers_now) < len(self._saved):
            for at in [at for at in self._saved if at not in self._numbers_now]:
                number, _ = self._saved.pop(at)
                heapq.heappush(self._free, number)
                self.out[b"held/%d" % number] = None
        out, self.out, self._numbers_now = self.out, {}, {}
        return out

    def loaded(self, events: Mapping[int, Event]) -> list[Any]:
        """Mark the events that were loaded as saved; return them by number."""
        self._saved = {id(event): (number, event) for number, event in events.items()}
        table: list[Any] = [None] * (max(events, default=-1) + 1)
        for number, event in events.items():
            table[number] = event
        self._free = [number for number, event in enumerate(table) if event is None]
        return table


class _ContentRecords:
    """The contents of the last events, in chunks by order of arrival."""

    def __init__(self) -> None:
        self._upto = 0
        self._chunks: deque[int] = deque()
        self._begin(0)

    def _begin(self, number: int) -> None:
        """Begin a chunk with the content of this number."""
        self._start = number
        self._rows: list[Row] = []

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
    ) -> Iterator[Row]:
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
    """The counters seen beyond holes, in chunks of bits (`ketal.model.counter_sets`).

    Parameters
    ----------
    intake : Intake
        Marks the chunks that change as dirty.
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
        for node, counters in sorted(self._intake.beyond.items()):
            dirty, upto = counters.dirty, self._intake.upto.get(node, 0)
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

    def changes(self, memory: ClockMemory | None, tracking: bool, out: Changes) -> None:
        """Save the chunks in which a clock is dirty."""
        if memory is None:
            return
        dirty = memory.dirty
        if memory is not self._memory or dirty is None:
            self._memory = memory
            dirty = {(node, counter): True for node, counter, _ in memory.items()}
        if tracking:
            memory.dirty = {}
        touched: dict[int, None] = {}
        for dot, arrived in dirty.items():
            there, number = memory.has(*dot), self._numbers.get(dot)
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

    def loaded_memory(self, memory: ClockMemory | None) -> None:
        """Mark the clocks of a membership that was loaded as saved."""
        self._memory = memory
        if memory is not None:
            memory.dirty = {}


class _PatternRecords:
    """The records of one pattern's runs."""

    def __init__(self, run: PatternRun) -> None:
        self.run = run
        self.name = run.compiled.name
        self._unlearned: _RowRecords[int, Unlearned] = _RowRecords(
            f"unlearned/{self.name}", lambda _, unlearned: unlearned.save()
        )

    def changes(self, tracking: bool, out: Changes) -> None:
        """Save the scopes that are dirty, all without tracking, and the events held for copies."""
        scopes, prefix = self.run.scopes, f"scope/{self.name}/".encode()
        dirty: Mapping[int, Scope | None]
        if tracking:
            dirty = scopes.take_dirty()
        else:
            dirty = {scope.number: scope for scope in scopes.values()}
        for number, scope in dirty.items():
            out[prefix + b"%d" % number] = None if scope is None else encode_record(scope.save())
        if self.run.copies is not None:
            held = {unlearned.number: unlearned for unlearned in self.run.copies.unlearned()}
            self._unlearned.changes(held, out)

    def load(self, records: Records, tracking: bool) -> None:
        """Load the records of the pattern into its run."""
        rows = [
            (number, Unlearned.load(body))
            for number, body in records.numbered("unlearned", self.name)
        ]
        self.run.load(
            records.one("pattern", self.name),
            [unlearned for _, unlearned in rows],
            (body for _, body in records.numbered("scope", self.name)),
        )
        self._unlearned.loaded(
            [number for number, _ in rows], {unlearned.number: unlearned for _, unlearned in rows}
        )
        if tracking:
            self.run.scopes.take_dirty()


class Recorder:
    """Returns the records of a state, and later those that changed.

    Parameters
    ----------
    admission : Admission
    queues : Queues
    runs : sequence of PatternRun
        Whose state it is.
    tracking : bool
        Whether the parts mark what is dirty from the first call on; without, `changes` is
        called once, and changes nothing in them.
    """

    def __init__(
        self,
        admission: Admission,
        queues: Queues,
        runs: Sequence[PatternRun],
        *,
        tracking: bool = True,
    ) -> None:
        self.admission = admission
        self.queues = queues
        self.tracking = tracking
        self._patterns = [_PatternRecords(run) for run in runs]
        self._sections = _SmallRecords()
        self._seen = _ContentRecords()
        self._beyond = _CounterRecords(admission.intake, tracking=tracking)
        self._clocks = _ClockRecords()
        self._first: _RowRecords[str, Clock] = _RowRecords(
            "first", lambda node, first: [node, first]
        )
        self._held = _HeldRecords()
        self._reported: _RowRecords[tuple[str, Dot], None] = _RowRecords(
            "told", lambda at, _: [at[0], [*at[1]]]
        )
        self._refused: dict[str, _RowRecords[Dot, None]] = {}
        if tracking:
            for run in runs:
                run.scopes.dirty = None  # The first call gives all.

    def changes(self, program: Any, core: dict[str, Any]) -> Changes:
        """Return what changed since the last call; the first time, all.

        Parameters
        ----------
        program : Any
            What the state is of, as plain data.
        core : dict
            The monitor's own state.
        """
        out: Changes = {}
        put = self._sections.put
        put(b"program", program, out)
        put(b"core", self._core(core), out)
        intake, membership = self.admission.intake, self.admission.membership
        self._seen.changes(intake.contents, membership is None, out)
        self._beyond.changes(out)
        memory = None if membership is None else membership.memory
        self._clocks.changes(memory, self.tracking, out)
        self._first.changes(self.admission.first, out)
        for queue in self.queues.queues:
            put(f"queue/{queue.name}".encode(), queue.state(self._held.number), out)
            self._refused_of(queue.name).changes(queue.refused, out)
        out.update(self._held.finish())
        self._reported.changes(self.queues.reports.once, out)
        for pattern in self._patterns:
            put(f"pattern/{pattern.name}".encode(), pattern.run.save(), out)
            pattern.changes(self.tracking, out)
        return out

    def _core(self, core: dict[str, Any]) -> dict[str, Any]:
        return {**core, "admission": self.admission.state(), "queues": self.queues.counts()}

    def _refused_of(self, name: str) -> _RowRecords[Dot, None]:
        if name not in self._refused:
            self._refused[name] = _RowRecords(f"refused/{name}", lambda dot, _: [*dot])
        return self._refused[name]

    def load(self, records: Records, membered: Callable[[], None]) -> None:
        """Load a state into fresh parts.

        Parameters
        ----------
        records : Records
            The state.
        membered : callable
            Called when the membership is restored, before the queues are.
        """
        self.load_admission(records, membered)
        self._load_queues(records, records.one("core")["queues"])
        self.load_patterns(records, [pattern.name for pattern in self._patterns])

    def load_admission(self, records: Records, membered: Callable[[], None]) -> None:
        """Load the admission, which has the membership; the arguments are those of `load`."""
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
        self._first.loaded([number for number, _ in first], self.admission.first)
        self._sections.loaded(records)
        membered()
        membership = self.admission.membership
        if self.tracking:
            self._clocks.loaded_memory(None if membership is None else membership.memory)

    def load_patterns(self, records: Records, names: Collection[str]) -> None:
        """Load the runs of some patterns, of which there are records."""
        for pattern in self._patterns:
            if pattern.name in names:
                pattern.load(records, self.tracking)

    def _load_queues(self, records: Records, counts: list[int]) -> None:
        events = {number: load_event(row) for number, row in records.numbered("held")}
        table = self._held.loaded(events)
        for queue in self.queues.queues:
            refused = list(records.numbered("refused", queue.name))
            state = records.one("queue", queue.name)
            queue.restore(state, table, [dot for _, dot in refused])
            self._refused_of(queue.name).loaded([number for number, _ in refused], queue.refused)
        reported = list(records.numbered("told"))
        self.queues.restore(counts, {(kind, Dot(*dot)): None for _, (kind, dot) in reported})
        self._reported.loaded([number for number, _ in reported], self.queues.reports.once)
