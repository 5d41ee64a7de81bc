"""Snapshots: the state of runs as plain data, and back (DESIGN 7).

A snapshot names its format and the fingerprint of each pattern; restored under
another pattern it is a `StateError` that says what changed. Events are written
once, in a table; runs name them by number. Nothing that depends on hash order
is written, and nothing read back is executed.

The one rule: snapshot and restore at any point changes nothing.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import fields
from typing import Any

import msgspec

from ketal.errors import StateError
from ketal.event import CleanEvent, Dot, Event
from ketal.finds import FindRun
from ketal.forward import ForwardFind
from ketal.operators.history import History
from ketal.partials import Partial, Run
from ketal.runs import CheckRun, Configuration, Seen
from ketal.scopes import Copy, Counts, Kept, PatternRun

FORMAT = 2


class EventTable:
    """Events by number, each written once."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._held: list[Event] = []

    def number(self, event: Event) -> int:
        """Return the number of an event, giving it one if it is new."""
        number = self._numbers.get(id(event))
        if number is None:
            number = self._numbers[id(event)] = len(self.rows)
            self._held.append(event)  # so that its id stays its own
            self.rows.append(_written(event))
        return number


def _written(event: Event) -> Any:
    row = [event.node, event.type, event.clock, event.time, event.data, event.id]
    try:
        msgspec.msgpack.encode(row)
    except OverflowError:
        return json.dumps(row)  # integers of more than 64 bits
    return row


def read_events(rows: list[Any]) -> list[Event]:
    """Return the events of a table."""
    out: list[Event] = []
    for row in rows:
        node, type_, clock, time, data, name = json.loads(row) if isinstance(row, str) else row
        out.append(CleanEvent(node=node, type=type_, clock=clock, time=time, data=data, id=name))
    return out


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


def pattern_state(run: PatternRun, table: EventTable) -> Any:
    """Return the state of one pattern's runs."""
    return {
        "counts": [getattr(run.counts, f.name) for f in fields(Counts)],
        "number": run.number,
        "missing": [list(dot) for dot in run.missing],
        "after": [[list(dot), sorted(map(list, lost))] for dot, lost in run.after.items()],
        "copies": [[node, dict(copy.known)] for node, copy in run.copies.items()],
        "kept": [
            [table.number(k.event), _packed(k.mask), k.number]
            for line in run.kept.values()
            for k in line.values()
        ],
        "kept_of": list(run.kept),
        "scopes": [
            [
                json.dumps(scope.key),
                scope.places,
                sorted(map(list, scope.lost)),
                sorted(scope.told),
                _run_state(scope.run, table),
            ]
            for scope in run.scopes.values()
        ],
    }


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


def _dots(rows: list[Any]) -> frozenset[Dot]:
    return frozenset(Dot(*row) for row in rows)


def restore_pattern(run: PatternRun, state: Any, events: list[Event]) -> None:
    """Put a state that `pattern_state` gave into the fresh runs of the same pattern."""
    run.counts = Counts(*state["counts"])
    run.number = state["number"]
    run.missing = {Dot(*dot): None for dot in state["missing"]}
    run.after = {Dot(*dot): _dots(lost) for dot, lost in state["after"]}
    run.copies = {node: Copy(known) for node, known in state["copies"]}
    run.kept = {node: {} for node in state["kept_of"]}
    for number, mask, order in state["kept"]:
        run.keep(Kept(events[number], int(mask), order))
    for written, places, lost, told, inner in state["scopes"]:
        scope = run.new_scope(tuple((name, value) for name, value in json.loads(written)))
        scope.places, scope.lost, scope.told = places, _dots(lost), frozenset(told)
        _restore_run(scope.run, inner, events)
        run.look_again(scope)


def encoded(state: dict[str, Any]) -> bytes:
    """Return a state as bytes, its format first."""
    body = msgspec.msgpack.encode(state)
    return b"ketal" + bytes([FORMAT]) + zlib.crc32(body).to_bytes(4, "big") + body


def decoded(blob: bytes) -> dict[str, Any]:
    """Return the state of a snapshot.

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
        state: dict[str, Any] = msgspec.msgpack.decode(body, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise StateError(f"the snapshot is damaged: {error}") from None
    return state


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
