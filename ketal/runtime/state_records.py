"""Records: the state of a monitor in pieces, and which of them changed (DESIGN 7).

A state is a mapping of keys to values, both bytes, as a changelog holds it: Kafka Streams
keeps its stores so, and a record that is gone is a tombstone. What grows with the number of
events or of scopes is spread over many records, so that a commit writes what is new and no
more; the rest is a few small ones, written when they differ from what was written last.

==========================  ========================================================
key                         value
==========================  ========================================================
``program``                 of each pattern, what it says, part by part; the text of all
``core``                    tally, watermark, counters of nodes, who is there
``queue/P``                 the hold-back queue whose first pattern by name is P
``held/N``                  an event that a queue holds
``refused/P/N``, ``told/N``  what a queue had no room for; what was said once
``pattern/P``               counts of a pattern, copies of it
``scope/P/N``               scope N of a pattern, with its own events
``kept/P/N``               an event kept for copies
``seen/N``                  contents of events, in chunks
``beyond/N/A``              counters of node A beyond holes, a bit each
``clocks/N``, ``first/N``   clocks of the last events in chunks; each node's entries
==========================  ========================================================

A value is msgpack: a format and a body. Numbers are in the order in which things came up, so
that the order in which records are read does not matter. No key begins with ``job/``,
``old/`` or ``draining``: those are of whoever keeps the records.

The one rule: records, with changes put in, restore what was there at the last change.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from ketal.engine.scopes import Changed, Kept, PatternRun, Scope
from ketal.errors import StateError
from ketal.model.event import Dot, Event
from ketal.operators.membership.clock_memory import Clock, ClockMemory
from ketal.runtime.deduplication import Intake
from ketal.runtime.identification import Admission
from ketal.runtime.release import Queues
from ketal.runtime.seen_digests import Contents, Row, read_rows, write_rows
from ketal.runtime.snapshots import (
    event_row,
    kept_state,
    pattern_state,
    read_event,
    restore_kept,
    restore_pattern,
    restore_scope,
    scope_state,
)

FORMAT = 5
OTHERS = b"job/"
"""How the keys begin of what is saved beside a monitor's state."""
SEEN_SPAN = 128
"""Contents in one chunk: the last one is written again until it is full."""
CLOCKS_SPAN = 64
"""Clocks in one chunk, which is written again when one of them is closed."""

K = TypeVar("K")
V = TypeVar("V")
Changes = dict[bytes, bytes | None]
"""Of each record what it is now; None where there is none any more."""
_encode = msgspec.msgpack.Encoder().encode


def _packed(body: Any) -> bytes:
    return _encode((FORMAT, body))


class Records:
    """Records as they were read: by kind, decoded when they are asked for.

    Parameters
    ----------
    records : mapping of bytes to bytes
        What `Recorder.changes` gave, with later changes put in.

    Raises
    ------
    StateError
        If one is damaged, of another format, or of no kind that there is.
    """

    KINDS = (
        "program", "core", "queue", "held", "refused", "told", "pattern", "scope", "kept",
        "seen", "beyond", "clocks", "first",
    )  # fmt: skip

    def __init__(self, records: Mapping[bytes, bytes]) -> None:
        self.kinds: dict[str, list[tuple[list[str], bytes]]] = {kind: [] for kind in self.KINDS}
        self._of: dict[tuple[str, str], list[tuple[list[str], bytes]]] = {}
        # Of keys that begin alike, the longer ones have the higher numbers.
        for key in sorted(sorted(records), key=len):
            if key.startswith(OTHERS):
                continue
            try:
                kind, *rest = key.decode().split("/", 2)
                self.kinds[kind].append((rest, records[key]))
            except (KeyError, UnicodeDecodeError):
                _body(repr(key), records[key])  # of another format, there were other kinds
                raise StateError(f"{key!r} is no record of a monitor's state") from None
            if len(rest) > 1:
                self._of.setdefault((kind, rest[0]), []).append((rest, records[key]))
        if not self.kinds["program"] or not self.kinds["core"]:
            raise StateError("these records are no state of a monitor: some are missing")

    def one(self, kind: str, *rest: str) -> Any:
        """Return the body of the only record of a kind, or of the one of a name."""
        for name, value in self.kinds[kind]:
            if name == list(rest):
                return _body("/".join((kind, *rest)), value)
        raise StateError(f"the state is damaged: there is no record {'/'.join((kind, *rest))}")

    def numbered(self, kind: str, name: str | None = None) -> Iterator[tuple[int, Any]]:
        """Yield (number, body) of the records of a kind, and of a pattern, in order."""
        rows = self.kinds[kind] if name is None else self._of.get((kind, name), [])
        for rest, value in rows:
            yield int(rest[-1]), _body(kind, value)

    def all(self, kind: str) -> Iterator[Any]:
        """Yield the bodies of the records of a kind."""
        for _, value in self.kinds[kind]:
            yield _body(kind, value)


def _body(name: str, value: bytes) -> Any:
    try:
        format_, body = msgspec.msgpack.decode(value)
    except (msgspec.DecodeError, TypeError, ValueError) as error:
        raise StateError(f"the state is damaged: record {name}: {error}") from None
    if format_ != FORMAT:
        raise StateError(
            f"record {name} of the state has format {format_}; this ketal reads format {FORMAT}: "
            "start anew, or go on with the ketal that wrote it"
        )
    return body


class _Sections:
    """Small records, written when they differ from what was written last."""

    def __init__(self) -> None:
        self._last: dict[bytes, bytes] = {}

    def put(self, key: bytes, body: Any, out: Changes) -> None:
        value = _packed(body)
        if self._last.get(key) != value:
            out[key] = self._last[key] = value

    def restored(self, records: Records) -> None:
        """Take note of what there are records of."""
        self._last = {
            "/".join((kind, *rest)).encode(): value
            for kind in ("program", "core", "queue", "pattern")
            for rest, value in records.kinds[kind]
        }


class _Rows(Generic[K, V]):
    """A dict whose new keys come last, a record each.

    Parameters
    ----------
    prefix : str
        How the keys of its records begin.
    write : callable
        Gives plain data of a key and its value.
    """

    def __init__(self, prefix: str, write: Callable[[K, V], Any]) -> None:
        self._prefix = prefix
        self._write = write
        self._known: dict[K, tuple[int, V]] = {}
        self._next = 0

    def _key(self, number: int) -> bytes:
        return f"{self._prefix}/{number}".encode()

    def changes(self, held: Mapping[K, V], out: Changes) -> None:
        """Write what is new or has another value, and remove what is gone."""
        known, last = self._known, -1
        for key, value in held.items():
            at = known.get(key)
            if at is not None and at[0] > last:
                last, before = at
                if before is value:
                    continue
            else:
                if at is not None:  # It went and came again, so its place is another one.
                    out[self._key(at[0])] = None
                last = self._next
                self._next += 1
            known[key] = (last, value)
            out[self._key(last)] = _packed(self._write(key, value))
        if len(known) > len(held):
            for key in [key for key in known if key not in held]:
                out[self._key(known.pop(key)[0])] = None

    def restored(self, numbers: Sequence[int], held: Mapping[K, V]) -> None:
        """Take note of what there are records of."""
        self._known = {k: (n, v) for n, (k, v) in zip(numbers, held.items(), strict=True)}
        self._next = max(numbers, default=-1) + 1


class _Held:
    """The events that queues hold, a record each; the numbers of those that go are used again."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, Event]] = {}
        self._free: list[int] = []
        self._named: dict[int, int] = {}
        self.out: Changes = {}

    def number(self, event: Event) -> int:
        """Return the number of an event, writing it if it is new."""
        at = id(event)
        number = self._named.get(at)
        if number is None:
            known = self._known.get(at)
            if known is None:
                number = heapq.heappop(self._free) if self._free else len(self._known)
                self._known[at] = (number, event)
                self.out[b"held/%d" % number] = _packed(event_row(event))
            else:
                number = known[0]
            self._named[at] = number
        return number

    def finish(self) -> Changes:
        """Return what changed, when every event that is held has been named."""
        if len(self._named) < len(self._known):
            for at in [at for at in self._known if at not in self._named]:
                number, _ = self._known.pop(at)
                heapq.heappush(self._free, number)
                self.out[b"held/%d" % number] = None
        out, self.out, self._named = self.out, {}, {}
        return out

    def restored(self, events: Mapping[int, Event]) -> list[Any]:
        """Take note of what there are records of; return the events by number."""
        self._known = {id(event): (number, event) for number, event in events.items()}
        table: list[Any] = [None] * (max(events, default=-1) + 1)
        for number, event in events.items():
            table[number] = event
        self._free = [number for number, event in enumerate(table) if event is None]
        return table


class _Seen:
    """The contents of the last events, in chunks by how many came before them."""

    def __init__(self) -> None:
        self._upto = 0
        self._chunks: deque[int] = deque()
        self._begin(0)

    def _begin(self, number: int) -> None:
        """Begin a chunk, of which `number` is the first."""
        self._start = number
        self._rows: list[Row] = []

    def changes(self, contents: Contents, clocks: bool, out: Changes) -> None:
        """Write the contents that are new and not yet gone again."""
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
            body = [self._start, *write_rows(self._rows, clocks=clocks)]
            out[b"seen/%d" % chunk] = _packed(body)
        self._upto = number
        while self._chunks and (self._chunks[0] + 1) * SEEN_SPAN <= contents.evicted:
            out[b"seen/%d" % self._chunks.popleft()] = None

    def restored(
        self, chunks: Iterable[tuple[int, Any]], evicted: int, *, clocks: bool
    ) -> Iterator[Row]:
        """Yield what `Intake.restore` takes."""
        for chunk, (start, *written) in chunks:
            rows = list(read_rows(written, clocks=clocks))
            self._chunks.append(chunk)
            self._upto = start + len(rows)
            if self._upto % SEEN_SPAN:
                # It goes on, if it is the last one.
                self._begin(start)
                self._rows += rows
            yield from rows[max(0, evicted - start) :]


class _Beyond:
    """The counters seen beyond holes, in chunks of bits (`ketal.model.counter_sets`).

    Parameters
    ----------
    intake : Intake
        What notes which chunks change.
    tracking : bool
        Whether it is to.
    """

    def __init__(self, intake: Intake, *, tracking: bool) -> None:
        self._intake = intake
        self._tracking = tracking
        self._whole = True
        if tracking:
            intake.track()

    def changes(self, out: Changes) -> None:
        """Write the chunks that changed since the last time; the first time, all."""
        for node, line in sorted(self._intake.beyond.items()):
            changed, upto = line.changed, self._intake.upto.get(node, 0)
            for number in sorted(line.chunks if self._whole else changed or ()):
                packed = line.packed(number, upto)
                key = f"beyond/{number}/{node}".encode()
                out[key] = None if packed is None else _packed([node, number, packed])
            if self._tracking and changed:
                changed.clear()
        self._whole = not self._tracking

    def restored(self, bodies: Iterable[Any]) -> Iterator[tuple[str, int, bytes]]:
        """Yield the chunks of which there are records, as `Intake.restore` takes them."""
        self._whole = not self._tracking
        yield from bodies


class _Clocks:
    """The clocks of the last events, once a membership keeps them, in chunks by arrival."""

    def __init__(self) -> None:
        self._memory: ClockMemory | None = None
        self._numbers: dict[tuple[str, int], int] = {}
        self._chunks: dict[int, dict[int, tuple[str, int]]] = {}
        self._next = 0

    def changes(self, memory: ClockMemory | None, tracking: bool, out: Changes) -> None:
        """Write the chunks in which something changed."""
        if memory is None:
            return
        changed = memory.changed
        if memory is not self._memory or changed is None:
            self._memory = memory
            changed = {(node, counter): True for node, counter, _ in memory.items()}
        if tracking:
            memory.changed = {}
        touched: dict[int, None] = {}
        for dot, came in changed.items():
            there, number = memory.has(*dot), self._numbers.get(dot)
            if number is not None:
                chunk = number // CLOCKS_SPAN
                touched[chunk] = None
                if there and not came:
                    continue
                del self._chunks[chunk][number], self._numbers[dot]
            if there:
                touched[self._add(self._next, dot)] = None
        for chunk in touched:
            dots = self._chunks[chunk].values()
            out[b"clocks/%d" % chunk] = _packed(memory.rows(dots)) if dots else None
            if not dots:
                del self._chunks[chunk]

    def _add(self, number: int, dot: tuple[str, int]) -> int:
        chunk = number // CLOCKS_SPAN
        self._numbers[dot] = number
        self._chunks.setdefault(chunk, {})[number] = dot
        self._next = number + 1
        return chunk

    def restored(self, chunks: Iterable[tuple[int, Any]]) -> Iterator[Any]:
        """Yield the tables of which there are records."""
        for chunk, rows in chunks:
            # What was given up left its number behind; which one it was does not matter.
            for number, row in enumerate(rows, chunk * CLOCKS_SPAN):
                self._add(number, (row[0], row[1]))
            self._next = (chunk + 1) * CLOCKS_SPAN
            yield rows

    def kept_by(self, memory: ClockMemory | None) -> None:
        """Hear where the clocks are that were restored."""
        self._memory = memory
        if memory is not None:
            memory.changed = {}


def _scope(scope: Scope) -> bytes:
    try:
        return _packed(scope_state(scope, checked=False))
    except OverflowError:
        return _packed(scope_state(scope))


class _Pattern:
    """The records of one pattern's runs."""

    def __init__(self, run: PatternRun) -> None:
        self.run = run
        self.name = run.compiled.name
        self._scope = f"scope/{self.name}/".encode()
        self._kept: set[int] = set()

    def changes(self, tracking: bool, out: Changes) -> None:
        run = self.run
        source = run if run.changed is None or not tracking else run.changed
        scopes = source.scopes.values()
        for scope in scopes:
            out[self._scope + b"%d" % scope.number] = _scope(scope)
        if tracking:
            for number in () if run.changed is None else run.changed.gone:
                out[self._scope + b"%d" % number] = None
            for scope in scopes:
                scope.saved = scope.clean = True
            run.changed = Changed()
        if run.kept_count or self._kept:
            self._kept_changes(
                {k.number: k for line in run.kept.values() for k in line.values()}, out
            )

    def _kept_changes(self, held: dict[int, Kept], out: Changes) -> None:
        for number, kept in held.items():
            if number not in self._kept:
                out[self._kept_key(number)] = _packed(kept_state(kept))
                self._kept.add(number)
        if len(self._kept) > len(held):
            for number in sorted(self._kept - held.keys()):
                out[self._kept_key(number)] = None
            self._kept &= held.keys()

    def _kept_key(self, number: int) -> bytes:
        return f"kept/{self.name}/{number}".encode()

    def restore(self, records: Records, tracking: bool) -> None:
        run = self.run
        restore_pattern(run, records.one("pattern", self.name))
        for number, body in records.numbered("kept", self.name):
            self._kept.add(number)
            restore_kept(run, body)
        for _, body in records.numbered("scope", self.name):
            restore_scope(run, body)
        if tracking:
            for scope in run.scopes.values():
                scope.saved = scope.clean = True
            run.changed = Changed()


class Recorder:
    """Says of a state, again and again, what changed.

    Parameters
    ----------
    admission : Admission
    queues : Queues
    runs : sequence of PatternRun
        Whose state it is.
    tracking : bool
        Whether the parts are to take note of what changes from the first call on; without, it
        may be asked once, and leaves no trace in them.
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
        self._patterns = [_Pattern(run) for run in runs]
        self._sections = _Sections()
        self._seen = _Seen()
        self._beyond = _Beyond(admission.intake, tracking=tracking)
        self._clocks = _Clocks()
        self._first: _Rows[str, Clock] = _Rows("first", lambda node, first: [node, first])
        self._held = _Held()
        self._told: _Rows[tuple[str, Dot], None] = _Rows("told", lambda at, _: [at[0], [*at[1]]])
        self._refused: dict[str, _Rows[Dot, None]] = {}
        if tracking:
            for run in runs:
                run.changed = None  # The first call gives all.

    def changes(self, program: Any, core: dict[str, Any]) -> Changes:
        """Return what changed since the last call; the first time, all.

        Parameters
        ----------
        program : Any
            What the state is of, as plain data.
        core : dict
            What the monitor itself knows.
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
        self._told.changes(self.queues.reports.once, out)
        for pattern in self._patterns:
            put(f"pattern/{pattern.name}".encode(), pattern_state(pattern.run), out)
            pattern.changes(self.tracking, out)
        return out

    def _core(self, core: dict[str, Any]) -> dict[str, Any]:
        return {**core, "admission": self.admission.state(), "queues": self.queues.counts()}

    def _refused_of(self, name: str) -> _Rows[Dot, None]:
        if name not in self._refused:
            self._refused[name] = _Rows(f"refused/{name}", lambda dot, _: [*dot])
        return self._refused[name]

    def restore(self, records: Records, membered: Callable[[], None]) -> None:
        """Put a state into parts that are fresh.

        Parameters
        ----------
        records : Records
            The state.
        membered : callable
            Called once it is known who is there, before the queues are restored.
        """
        self.restore_admission(records, membered)
        self._restore_queues(records, records.one("core")["queues"])
        self.restore_patterns(records, [pattern.name for pattern in self._patterns])

    def restore_admission(self, records: Records, membered: Callable[[], None]) -> None:
        """Put back what was seen, and who is there; the arguments are those of `restore`."""
        state = records.one("core")
        evicted = state["admission"]["intake"]["evicted"]
        first = list(records.numbered("first"))
        self.admission.restore(
            state["admission"],
            beyond=self._beyond.restored(records.all("beyond")),
            contents=self._seen.restored(
                records.numbered("seen"), evicted, clocks=state["admission"]["membership"] is None
            ),
            clocks=self._clocks.restored(records.numbered("clocks")),
            first=dict(body for _, body in first),
        )
        self._first.restored([number for number, _ in first], self.admission.first)
        self._sections.restored(records)
        membered()
        membership = self.admission.membership
        if self.tracking:
            self._clocks.kept_by(None if membership is None else membership.memory)

    def restore_patterns(self, records: Records, names: Collection[str]) -> None:
        """Put back the runs of some patterns, of which there are records."""
        for pattern in self._patterns:
            if pattern.name in names:
                pattern.restore(records, self.tracking)

    def _restore_queues(self, records: Records, counts: list[int]) -> None:
        events = {number: read_event(row) for number, row in records.numbered("held")}
        table = self._held.restored(events)
        for queue in self.queues.queues:
            refused = list(records.numbered("refused", queue.name))
            state = records.one("queue", queue.name)
            queue.restore(state, table, [dot for _, dot in refused])
            self._refused_of(queue.name).restored([number for number, _ in refused], queue.refused)
        told = list(records.numbered("told"))
        self.queues.restore(counts, {(what, Dot(*dot)): None for _, (what, dot) in told})
        self._told.restored([number for number, _ in told], self.queues.reports.once)
