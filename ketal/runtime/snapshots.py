"""Snapshots: the state of runs as plain data, and back (DESIGN 7).

A snapshot is the records of a state (`ketal.runtime.state_records`) in one piece, its format and a
checksum before them; restored under another pattern it is a `StateError` that says what
changed. A scope has its own table of events, in which each is written once, so that it
can be restored alone; its runs name them by number. Nothing that depends on hash order is
written, and nothing read back is executed.

The one rule: snapshot and restore at any point changes nothing.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import fields
from typing import Any

import msgspec

from ketal.engine.configurations import CheckRun, Configuration, Seen
from ketal.engine.find_in_order import ForwardFind
from ketal.engine.find_kinds import FindRun
from ketal.engine.partial_matches import Partial, Run
from ketal.engine.scopes import Copy, Counts, Kept, PatternRun, Scope
from ketal.errors import StateError
from ketal.model.event import CleanEvent, Event
from ketal.model.verdicts import ScopeKey
from ketal.operators.history import History

FORMAT = 4


class EventTable:
    """Events by number, each written once.

    Parameters
    ----------
    checked : bool
        Whether an event that msgpack cannot write, for an integer of more than 64 bits, is written
        as JSON. It takes as long as writing, so that one may try without first.
    """

    def __init__(self, *, checked: bool = True) -> None:
        self._row = event_row if checked else _plain_row
        self.rows: list[Any] = []
        self._numbers: dict[int, int] = {}
        self.events: list[Event] = []  # held, so that the id of each stays its own

    def number(self, event: Event) -> int:
        """Return the number of an event, giving it one if it is new."""
        number = self._numbers.get(id(event))
        if number is None:
            number = self._numbers[id(event)] = len(self.rows)
            self.events.append(event)
            self.rows.append(self._row(event))
        return number


def _plain_row(event: Event) -> Any:
    return (event.node, event.type, event.clock, event.time, event.data, event.id)


def event_row(event: Event) -> Any:
    """Return an event as plain data."""
    row = _plain_row(event)
    try:
        msgspec.msgpack.encode(row)
    except OverflowError:
        return json.dumps(row)  # integers of more than 64 bits
    return row


def read_event(row: Any) -> Event:
    """Return the event that `event_row` wrote."""
    node, type_, clock, time, data, name = json.loads(row) if isinstance(row, str) else row
    return CleanEvent(node=node, type=type_, clock=clock, time=time, data=data, id=name)


def read_events(rows: list[Any]) -> list[Event]:
    """Return the events of a table."""
    return [read_event(row) for row in rows]


def _packed(mask: int) -> int | str:
    """Return a mask as msgpack can write it; `int` reads both."""
    return mask if mask < 2**63 else str(mask)


class _Writer:
    """The events of one scope, by number."""

    def __init__(self, table: EventTable) -> None:
        self.table = table
        self.rows: list[Any] = []
        self._numbers: dict[Seen, int] = {}

    def seen(self, seen: Seen) -> int:
        number = self._numbers.get(seen)
        if number is None:
            number = self._numbers[seen] = len(self.rows)
            self.rows.append([self.table.number(seen.event), _packed(seen.mask), seen.place])
        return number

    def maybe(self, seen: Seen | None) -> int | None:
        return None if seen is None else self.seen(seen)

    def configuration(self, c: Configuration) -> Any:
        if c.history is None and c.prior is None and not c.bars and not any(c.bound):
            return (c.state, None, (None,) * len(c.bound), None, ())
        bars = list(c.bars)
        h = c.history
        history = None if h is None else [dict(h.first), dict(h.last), dict(h.join)]
        return [c.state, self.maybe(c.prior), [self.maybe(b) for b in c.bound], history, bars]

    def partial(self, p: Partial) -> Any:
        taken = [[step, self.seen(seen)] for step, seen in p.taken]
        run = p.run.start.place if p.run is not None else None
        ends = [p.low_us, p.high_us, p.low_place, p.high_place]
        join = None if p.join is None else dict(p.join)
        return [self.configuration(p.configuration), taken, run, join, ends]


def _run_state(run: CheckRun | FindRun, table: EventTable) -> Any:
    w = _Writer(table)
    if isinstance(run, CheckRun):
        body: dict[str, Any] = {
            "configurations": [w.configuration(c) for c in run.configurations],
            "halted": run.halted,
        }
    else:
        body = {
            "partials": [w.partial(p) for i in run.by_state.values() for p in i],
            "firsts": [[step, w.seen(seen)] for step, seen in run.firsts.waiting.values()],
            # The order in which they are looked through, those that are empty now included:
            # it is the order of the matches that one event completes.
            "states": [[state, list(index.lines)] for state, index in run.by_state.items()],
        }
        if run.kept is not None:
            body["kept"] = [w.seen(seen) for seen in run.kept.events.values()]
            body["masks"] = [[_packed(m), list(i.lines)] for m, i in run.kept.by_mask.items()]
        if isinstance(run, ForwardFind):
            body["runs"] = [[w.seen(r.start), r.matched] for r in run.runs.values()]
    return {"seen": w.rows, **body}


def pattern_state(run: PatternRun) -> dict[str, Any]:
    """Return what is small of the state of one pattern's runs: all but its scopes and events."""
    return {
        "counts": [getattr(run.counts, f.name) for f in fields(Counts)],
        "number": run.number,
        "scopes_seen": run.scopes_seen,
        "losses": run.losses.state(),
        "past_counts": run.past_counts,
        "copies": [[node, dict(copy.known)] for node, copy in run.copies.items()],
        "kept_of": list(run.kept),
    }


def kept_state(kept: Kept) -> Any:
    """Return an event that is kept for copies, as plain data."""
    return [event_row(kept.event), _packed(kept.mask), kept.number]


def scope_state(scope: Scope, *, checked: bool = True) -> Any:
    """Return the state of one scope, with its own events; `checked` is that of `EventTable`."""
    table = EventTable(checked=checked)
    run = _run_state(scope.run, table)
    past = dict(scope.past) if scope.past else ()
    told = sorted(scope.told) if scope.told else ()
    key = scope.key_text or json.dumps(scope.key)
    scope.key_text = key
    due = (scope.due_us, scope.parked)
    return (key, scope.number, scope.places, past, told, run, table.rows, due)


_decode_key = msgspec.json.Decoder().decode


class _Reader:
    """The events of one scope, from their numbers."""

    def __init__(self, rows: list[Any], events: list[Event]) -> None:
        self.seens = [Seen(events[number], int(mask), place) for number, mask, place in rows]

    def maybe(self, number: int | None) -> Seen | None:
        return None if number is None else self.seens[number]

    def configuration(self, row: Any) -> Configuration:
        state, prior, bound, history, bars = row
        return Configuration(
            state,
            self.maybe(prior),
            tuple(self.maybe(b) for b in bound),
            None if history is None else History(*history),
            tuple(bars),
        )

    def partial(self, row: Any, runs: dict[int, Run]) -> Partial:
        configuration, taken, run, join, ends = row
        partial = Partial(
            self.configuration(configuration),
            tuple((step, self.seens[number]) for step, number in taken),
            runs[run] if run is not None else None,
            join,
            None,
        )
        partial.low_us, partial.high_us, partial.low_place, partial.high_place = ends
        return partial


def _restore_run(run: CheckRun | FindRun, state: Any, events: list[Event]) -> None:
    r = _Reader(state["seen"], events)
    if isinstance(run, CheckRun):
        run.configurations = tuple(r.configuration(c) for c in state["configurations"])
        run.halted = state["halted"]
        return
    for number, nodes in state["states"]:
        run.index(number, nodes)
    runs: dict[int, Run] = {}
    if isinstance(run, ForwardFind):
        for number, matched in state["runs"]:
            started = run.add_run(Run(r.seens[number]))
            started.matched = matched
        runs = run.runs
    if run.kept is not None:
        for mask, nodes in state["masks"]:
            run.kept.index(int(mask), nodes)
        for number in state["kept"]:
            run.kept.put(r.seens[number])
    for row in state["partials"]:
        run.put(r.partial(row, runs))
    for step, number in state["firsts"]:
        run.firsts.add(r.seens[number], step)


def restore_pattern(run: PatternRun, state: dict[str, Any]) -> None:
    """Put a state that `pattern_state` gave into the fresh runs of the same pattern."""
    run.counts = Counts(*state["counts"])
    run.number = state["number"]
    run.scopes_seen = state["scopes_seen"]
    run.counts.marks_forgotten += run.losses.restore(state["losses"])
    run.past_counts = state["past_counts"]
    run.copies = {node: Copy(known) for node, known in state["copies"]}
    run.kept = {node: {} for node in state["kept_of"]}


def restore_kept(run: PatternRun, state: Any) -> None:
    """Keep an event again; they come in the order of their numbers."""
    row, mask, number = state
    run.keep(Kept(read_event(row), int(mask), number))


def restore_scope(run: PatternRun, state: Any) -> Scope:
    """Put back a scope; they come in the order of their numbers, after the pattern."""
    written, number, places, past, told, inner, rows, due = state
    scope = run.new_scope(_key(written), number)
    scope.places, scope.key_text = places, written
    if past:
        scope.past = past
    if told:
        scope.told = frozenset(told)
    _restore_run(scope.run, inner, read_events(rows))
    run.look_at(scope, *due)
    return scope


def _key(written: str) -> ScopeKey:
    try:
        pairs = _decode_key(written)
    except msgspec.DecodeError:
        pairs = json.loads(written)  # infinities, and text that is no UTF-8
    return tuple((name, value) for name, value in pairs)


def copy_run(run: PatternRun, into: PatternRun) -> None:
    """Put the state of runs into fresh runs of the same pattern; both go on by themselves."""
    restore_pattern(into, pattern_state(run))
    for item in sorted((k for line in run.kept.values() for k in line.values()), key=_number):
        into.keep(item)
    for scope in run.scopes.values():
        copy = into.new_scope(scope.key, scope.number)
        copy.places, copy.past, copy.told = scope.places, scope.past, scope.told
        if isinstance(scope.run, CheckRun) and isinstance(copy.run, CheckRun):
            copy.run.configurations, copy.run.halted = scope.run.configurations, scope.run.halted
        else:
            table = EventTable(checked=False)
            _restore_run(copy.run, _run_state(scope.run, table), table.events)
        into.look_at(copy, scope.due_us, scope.parked)


def _number(kept: Kept) -> int:
    return kept.number


def encoded(records: dict[bytes, bytes]) -> bytes:
    """Return records as bytes, the format first."""
    body = msgspec.msgpack.encode(records)
    return b"ketal" + bytes([FORMAT]) + zlib.crc32(body).to_bytes(4, "big") + body


def decoded(blob: bytes) -> dict[bytes, bytes]:
    """Return the records of a snapshot.

    Raises
    ------
    StateError
        If the bytes are no snapshot, of another format, or damaged.
    """
    if blob[:5] != b"ketal" or len(blob) < 10:
        raise StateError("these bytes are no ketal snapshot")
    if blob[5] != FORMAT:
        raise StateError(
            f"the snapshot has format {blob[5]}; this ketal reads format {FORMAT}: "
            "start anew, or restore it with the ketal that wrote it"
        )
    body = blob[10:]
    if zlib.crc32(body) != int.from_bytes(blob[6:10], "big"):
        raise StateError("the snapshot is damaged: its checksum does not fit")
    try:
        return msgspec.msgpack.decode(body, type=dict[bytes, bytes])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StateError(f"the snapshot is damaged: {error}") from None


def changes(saved: dict[str, Any], now: dict[str, Any]) -> str:
    """Say what changed between two programs' marks (name → description of the pattern)."""
    said = []
    for name in saved:
        if name not in now:
            said.append(f"pattern {name} is gone")
        elif saved[name]["fingerprint"] != now[name]["fingerprint"]:
            parts = [
                part
                for part in saved[name]
                if part != "fingerprint" and saved[name][part] != now[name].get(part)
            ]
            said.append(f"pattern {name} changed: {', '.join(parts) or 'its compiled form'}")
    said += [f"pattern {name} is new" for name in now if name not in saved]
    return "; ".join(said)
