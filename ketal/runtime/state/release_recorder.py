"""The recorder of a release: which records of its queues and runs changed since the last save.

The one rule: as of `ketal.runtime.state.recorder`, of which this is the part that a program that
retires has of its own.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar

from ketal.engine.copies import Unlearned
from ketal.engine.pattern_run import PatternRun
from ketal.engine.scopes import Scope
from ketal.model.event import Dot, Event, load_event, save_event
from ketal.program import Program
from ketal.runtime.retirement import RetiringRelease
from ketal.runtime.state.records import RETIRING, Changes, Records, encode_record
from ketal.runtime.stream_release import StreamRelease

K = TypeVar("K")
V = TypeVar("V")


class _SmallRecords:
    """Small records, written when they differ from what was written last."""

    def __init__(self) -> None:
        self._last: dict[bytes, bytes] = {}

    def put(self, key: bytes, body: Any, out: Changes) -> None:
        value = encode_record(body)
        if self._last.get(key) != value:
            out[key] = self._last[key] = value

    def loaded(self, records: Records) -> None:
        """Mark as saved what there are records of."""
        self._last = {
            "/".join((kind, *rest)).encode(): value
            for kind in ("program", "core", "queue", "pattern")
            for rest, value in records.kinds[kind]
        }


class RowRecords(Generic[K, V]):
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
            out[self._key(last)] = encode_record(self._write(key, value))
        if len(known) > len(held):
            for key in [key for key in known if key not in held]:
                out[self._key(known.pop(key)[0])] = None

    def loaded(self, numbers: Sequence[int], held: Mapping[K, V]) -> None:
        """Mark as saved what there are records of."""
        self._known = {k: (n, v) for n, (k, v) in zip(numbers, held.items(), strict=True)}
        self._next = max(numbers, default=-1) + 1


class _HeldRecords:
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
                self.out[b"held/%d" % number] = encode_record(save_event(event))
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

    def loaded(self, events: Mapping[int, Event]) -> list[Any]:
        """Mark as saved what there are records of; return the events by number."""
        self._known = {id(event): (number, event) for number, event in events.items()}
        table: list[Any] = [None] * (max(events, default=-1) + 1)
        for number, event in events.items():
            table[number] = event
        self._free = [number for number, event in enumerate(table) if event is None]
        return table


class _PatternRecords:
    """The records of one pattern's runs."""

    def __init__(self, run: PatternRun) -> None:
        self.run = run
        self.name = run.compiled.name
        self._unlearned: RowRecords[int, Unlearned] = RowRecords(
            f"unlearned/{self.name}", lambda _, unlearned: unlearned.save()
        )

    def changes(self, tracking: bool, out: Changes) -> None:
        """Write the scopes that are dirty, without tracking all, and the events held."""
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
        """Put the records of the pattern into its run."""
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


class ReleaseRecorder:
    """Says of a release, again and again, what changed: its queues, and its runs.

    Parameters
    ----------
    release : StreamRelease
        Whose state it is.
    tracking : bool
        As for `Recorder`.
    """

    def __init__(self, release: StreamRelease, *, tracking: bool) -> None:
        self.queues = release.queues
        self._tracking = tracking
        self._patterns = [_PatternRecords(run) for run in release.runs]
        self._sections = _SmallRecords()
        self._held = _HeldRecords()
        self._told: RowRecords[tuple[str, Dot], None] = RowRecords(
            "told", lambda at, _: [at[0], [*at[1]]]
        )
        self._refused: dict[str, RowRecords[Dot, None]] = {}
        if tracking:
            for run in release.runs:
                run.scopes.dirty = None  # The first call gives all.

    def changes(self, program: Any, core: dict[str, Any]) -> Changes:
        """Return what changed since the last call; the first time, all.

        Parameters
        ----------
        program : Any
            What the state is of, as plain data; None where that is as it was.
        core : dict
            What is small of the rest.
        """
        out: Changes = {}
        put = self._sections.put
        if program is not None:
            put(b"program", program, out)
        put(b"core", {**core, "queues": self.queues.counts()}, out)
        for queue in self.queues.queues:
            put(f"queue/{queue.name}".encode(), queue.state(self._held.number), out)
            self._refused_of(queue.name).changes(queue.refused, out)
        out.update(self._held.finish())
        self._told.changes(self.queues.reports.once, out)
        for pattern in self._patterns:
            put(f"pattern/{pattern.name}".encode(), pattern.run.save(), out)
            pattern.changes(self._tracking, out)
        return out

    def _refused_of(self, name: str) -> RowRecords[Dot, None]:
        if name not in self._refused:
            self._refused[name] = RowRecords(f"refused/{name}", lambda dot, _: [*dot])
        return self._refused[name]

    def load(self, records: Records) -> None:
        """Put back the queues and the runs."""
        self._sections.loaded(records)
        events = {number: load_event(row) for number, row in records.numbered("held")}
        table = self._held.loaded(events)
        for queue in self.queues.queues:
            refused = list(records.numbered("refused", queue.name))
            state = records.one("queue", queue.name)
            queue.restore(state, table, [dot for _, dot in refused])
            self._refused_of(queue.name).loaded([number for number, _ in refused], queue.refused)
        told = list(records.numbered("told"))
        counts = records.one("core")["queues"]
        self.queues.restore(counts, {(what, Dot(*dot)): None for _, (what, dot) in told})
        self._told.loaded([number for number, _ in told], self.queues.reports.once)
        self.load_patterns(records)

    def load_patterns(self, records: Records, names: Collection[str] | None = None) -> None:
        """Put back the runs of some patterns, or of all, of which there are records."""
        for pattern in self._patterns:
            if names is None or pattern.name in names:
                pattern.load(records, self._tracking)


class RetiringRecorder(ReleaseRecorder):
    """Says what changed of retiring patterns, in records whose keys begin with `RETIRING`.

    Parameters
    ----------
    retiring : RetiringRelease
        Whose state it is; once it is over there are no records any more.
    about : callable
        Returns what a program is, as plain data.
    tracking : bool
        As for `Recorder`.
    """

    def __init__(
        self, retiring: RetiringRelease, about: Callable[[Program], Any], *, tracking: bool
    ) -> None:
        super().__init__(retiring, tracking=tracking)
        self._retiring = retiring
        self._about = about
        self._keys: set[bytes] = set()

    def prefixed_changes(self) -> Changes:
        """Return what changed since the last call; the first time, all."""
        if self._retiring.over:
            gone, self._keys = sorted(self._keys), set()
            return dict.fromkeys(gone)
        program = None
        if RETIRING + b"program" not in self._keys:  # it stays what it is, and may be large
            before = {name: before.save() for name, before in self._retiring.before.items()}
            program = {**self._about(self._retiring.program), "before": before}
        changes = self.changes(program, {"reported": self._retiring.reported})
        out = {RETIRING + key: value for key, value in changes.items()}
        for key, value in out.items():
            (self._keys.discard if value is None else self._keys.add)(key)
        return out

    def load(self, records: Records) -> None:
        """Put back the queues, the runs, and what was reported."""
        self._retiring.load(records.one("core")["reported"], records.one("program")["before"])
        super().load(records)
        self._keys = {RETIRING + key for key in records.keys}
