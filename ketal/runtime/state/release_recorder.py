"""The recorder of a release: which records of its queues and runs are dirty.

An execution has a recorder for its release, and one for the release of its retiring patterns.

The one rule: that of `ketal.runtime.state.recorder`, which has these recorders as parts.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Generic, TypeVar

from ketal.engine.copies import Unlearned
from ketal.engine.pattern_run import PatternRun
from ketal.engine.scopes import Scope
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event, load_event, save_event
from ketal.runtime.retirement import RetiringRelease
from ketal.runtime.state.records import RETIRING, Changes, Records, encode_record
from ketal.runtime.stream_release import StreamRelease

K = TypeVar("K")
V = TypeVar("V")


class RowRecords(Generic[K, V]):
    """The records of a dict, one per entry, numbered in the order of the dict.

    The keys of the records begin with `prefix`; `write` returns an entry as plain data.
    """

    def __init__(self, prefix: str, write: Callable[[K, V], Any]) -> None:
        self._prefix = prefix
        self._write = write
        self._known: dict[K, tuple[int, V]] = {}
        self._next = 0

    def _key(self, number: int) -> bytes:
        return f"{self._prefix}/{number}".encode()

    def changes(self, held: Mapping[K, V], out: Changes) -> None:
        """Add to `out` the records of new and changed entries, and removals of deleted ones."""
        saved, last_number = self._known, -1
        for key, value in held.items():
            entry = saved.get(key)
            if entry is not None and entry[0] > last_number:
                last_number, saved_value = entry
                if saved_value is value:
                    continue
            else:
                if entry is not None:  # Removed and added again since: now it is among the last.
                    out[self._key(entry[0])] = None
                last_number = self._next
                self._next += 1
            saved[key] = (last_number, value)
            out[self._key(last_number)] = encode_record(self._write(key, value))
        if len(saved) > len(held):
            for key in [key for key in saved if key not in held]:
                out[self._key(saved.pop(key)[0])] = None

    def mark_saved(self, records: Iterable[tuple[int, Any]], held: Mapping[K, V]) -> None:
        """Mark the entries whose numbered records were loaded as saved."""
        numbers = [number for number, _ in records]
        self._known = {k: (n, v) for n, (k, v) in zip(numbers, held.items(), strict=True)}
        self._next = max(numbers, default=-1) + 1


class _HeldRecords:
    """The records of the events that queues hold; numbers of released events are reused."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, Event]] = {}
        self._free: list[int] = []
        self._named: dict[int, int] = {}
        self.out: Changes = {}

    def number(self, event: Event) -> int:
        """Return the number of an event's record, which is added to the changes if it is new."""
        identity = id(event)
        number = self._named.get(identity)
        if number is None:
            saved = self._known.get(identity)
            if saved is None:
                number = heapq.heappop(self._free) if self._free else len(self._known)
                self._known[identity] = (number, event)
                self.out[b"held/%d" % number] = encode_record(save_event(event))
            else:
                number = saved[0]
            self._named[identity] = number
        return number

    def finish(self) -> Changes:
        """Return the changed records, after `number` was called with every held event."""
        if len(self._named) < len(self._known):
            for identity in [identity for identity in self._known if identity not in self._named]:
                number, _ = self._known.pop(identity)
                heapq.heappush(self._free, number)
                self.out[b"held/%d" % number] = None
        out, self.out, self._named = self.out, {}, {}
        return out

    def mark_saved(self, events: Mapping[int, Event]) -> list[Any]:
        """Mark the events that were loaded as saved; return them by number."""
        self._known = {id(event): (number, event) for number, event in events.items()}
        table: list[Any] = [None] * (max(events, default=-1) + 1)
        for number, event in events.items():
            table[number] = event
        self._free = [number for number, event in enumerate(table) if event is None]
        return table


class ReleaseRecorder:
    """Returns all records of a release, its queues and runs, and later those that changed.

    `tracking` is as for `Recorder`.
    """

    def __init__(self, release: StreamRelease, *, tracking: bool) -> None:
        self.queues = release.queues
        self._release = release
        self._tracking = tracking
        self._last: dict[bytes, bytes] = {}  # small records, as they were saved last
        self._held = _HeldRecords()
        self._reported: RowRecords[tuple[str, Dot], None] = RowRecords(
            "reported", lambda key, _: [key[0], [*key[1]]]
        )
        self._refused: dict[str, RowRecords[Dot, None]] = {}
        if tracking:  # The first call returns all scopes, and all events of copies.
            for run in release.runs:
                run.scopes.dirty.changed = None
                if run.copies is not None:
                    run.copies.dirty.changed = None

    def changes(self, program: Any, core: dict[str, Any]) -> Changes:
        """Return the records that changed since the last call; all records at the first call.

        `program` is the program of the state as plain data, None if it is saved already; `core` has
        the small parts of the state that are not the release's own.
        """
        out: Changes = {}
        if program is not None:
            self._save("program", program, out)
        self._save("core", {**core, "queues": self.queues.save()}, out)
        for queue in self.queues.queues:
            self._save(f"queue/{queue.name}", queue.save(self._held.number), out)
            self._refused_records(queue.name).changes(queue.refused, out)
        out.update(self._held.finish())
        self._reported.changes(self.queues.reports.reported, out)
        for run in self._release.runs:
            self._save(f"pattern/{run.compiled.name}", run.save(), out)
            self._save_scopes(run, out)
        return out

    def _save(self, key: str, body: Any, out: Changes) -> None:
        """Add a small record to the changes, if it differs from the one saved last."""
        value = encode_record(body)
        if self._last.get(key.encode()) != value:
            out[key.encode()] = self._last[key.encode()] = value

    def _save_scopes(self, run: PatternRun, out: Changes) -> None:
        """Save what is dirty of the scopes and of the events of copies; all, if not `tracking`."""
        scopes: Mapping[int, Scope | None]
        unlearned: Mapping[int, Unlearned | None] = {}
        if self._tracking:
            scopes = run.scopes.take_dirty()
            if run.copies is not None:
                unlearned = run.copies.take_dirty()
        else:
            scopes = run.scopes.numbered()
            if run.copies is not None:
                unlearned = run.copies.numbered()
        for kind, dirty in (("scope", scopes), ("unlearned", unlearned)):
            prefix = f"{kind}/{run.compiled.name}/".encode()
            for number, one in dirty.items():
                out[prefix + b"%d" % number] = None if one is None else encode_record(one.save())

    def _refused_records(self, name: str) -> RowRecords[Dot, None]:
        if name not in self._refused:
            self._refused[name] = RowRecords(f"refused/{name}", lambda dot, _: [*dot])
        return self._refused[name]

    def restore_clocks(self) -> None:
        """Make the release restore clocks, if a membership was loaded."""
        self._release.restore_clocks(saved=True)

    def load(self, records: Records) -> None:
        """Load the queues and the runs."""
        small = b"program", b"core", b"queue/", b"pattern/"
        self._last = {k: value for k, value in records.own.items() if k.startswith(small)}
        self.load_queues(records, {queue.name: queue.name for queue in self.queues.queues})
        self.load_patterns(records)

    def load_queues(self, records: Records, saved: Mapping[str, str]) -> None:
        """Load the queues, and the dots that they reported.

        `saved` has, for the name of a queue, that of the saved queue from which it resumes.
        """
        events = {number: load_event(row) for number, row in records.numbered("held")}
        table = self._held.mark_saved(events)
        for queue in self.queues.queues:
            name = saved.get(queue.name)
            if name is not None:
                refused = list(records.numbered("refused", name))
                queue.load(records.body("queue", name), table, [fields for _, fields in refused])
                self._refused_records(queue.name).mark_saved(refused, queue.refused)
        reported = list(records.numbered("reported"))
        state = records.body("core")["queues"]
        self.queues.load(state, {(way, Dot(*fields)): None for _, (way, fields) in reported})
        self._reported.mark_saved(reported, self.queues.reports.reported)

    def load_patterns(self, records: Records, names: Collection[str] | None = None) -> None:
        """Load the runs of the patterns with these names; by default of all."""
        for run in self._release.runs:
            name = run.compiled.name
            if names is not None and name not in names:
                continue
            rows = [(n, Unlearned.load(body)) for n, body in records.numbered("unlearned", name)]
            scopes = (body for _, body in records.numbered("scope", name))
            run.load(records.body("pattern", name), [one for _, one in rows], scopes)
            if not self._tracking:
                continue
            run.scopes.take_dirty()
            if run.copies is not None:
                held = run.copies.take_dirty()
                # A smaller limit evicts events; earlier versions gave the records other numbers.
                same = {number for number, one in rows if number == one.number and number in held}
                removed = dict.fromkeys(number for number, _ in rows if number not in same)
                run.copies.dirty.changed = removed | {
                    n: one for n, one in held.items() if n not in same
                }


class RetiringRecorder(ReleaseRecorder):
    """The recorder of retiring patterns: the keys of its records begin with `RETIRING`.

    All records are removed when the release has finished. `program` is its program as plain data.
    """

    def __init__(
        self, retiring: RetiringRelease, program: dict[str, Any], *, tracking: bool
    ) -> None:
        super().__init__(retiring, tracking=tracking)
        self._retiring = retiring
        self._program = program
        self._keys: set[bytes] = set()

    def prefixed_changes(self) -> Changes:
        """Return the records that changed since the last call; all records at the first call."""
        if self._retiring.finished:
            removed, self._keys = sorted(self._keys), set()
            return dict.fromkeys(removed)
        program = None
        if RETIRING + b"program" not in self._keys:  # saved once: it may be large, and is constant
            before = {name: before.save() for name, before in self._retiring.before.items()}
            program = {**self._program, "before": before}
        changes = self.changes(program, {"reported": self._retiring.reported})
        out = {RETIRING + key: value for key, value in changes.items()}
        for key, value in out.items():
            (self._keys.discard if value is None else self._keys.add)(key)
        return out

    def load(self, records: Records) -> None:
        """Load the queues, the runs, and the counts of reported verdicts."""
        self._retiring.load(records.body("core")["reported"], records.body("program")["before"])
        super().load(records)
        self._keys = {RETIRING + key for key in records.own}
