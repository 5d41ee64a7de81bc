"""Random executions with nodes that join, leave, drop clock entries and restart.

`simulate` simulates the processes: what each knows (its true clock), and the clock
that it writes (`stamped`), with one counter per name.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import strategies as st

from ketal.model.events.event import Event
from ketal.model.events.incarnation import name_of
from tests.property.executions import TYPES, attributes
from tests.sampling import chances

Clock = dict[str, int]


@dataclass
class Process:
    """A process of the simulation: its true clock, and the clock that it shows."""

    name: str
    true: Clock = field(default_factory=dict)
    shown: Clock = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    stamp: Clock = field(default_factory=dict)


@dataclass
class Run:
    """An execution: each event with the stamped clock and with the true clock."""

    stamped: list[Event] = field(default_factory=list)
    true: list[Event] = field(default_factory=list)
    left: set[str] = field(default_factory=set)
    at: list[tuple[int, str]] = field(default_factory=list)


def base(name: str) -> str:
    return name.partition("#")[0]


def number(name: str) -> int:
    return int(name.partition("#")[2] or 1)


def simulate(
    rng: random.Random,
    *,
    restarts: bool,
    events_max: int = 60,
    churns: tuple[float, ...] = (0.05, 0.15, 0.3),
) -> Run:
    """Simulate nodes that send, receive, join, leave, drop entries and restart.

    A message of a node that the receiver has dropped is discarded, or it brings the
    node's entry back; an entry that comes back may be old.
    """
    run = Run()
    # With restarts, an old entry that returns would look like that of a new incarnation.
    returning = not restarts and rng.random() < 0.5
    chatter, churn = rng.choice((0.2, 0.5, 0.8)), rng.choice(churns)
    names = [f"n{i}" for i in range(1, rng.randint(2, 6) + 1)]
    live = {n: Process(n) for n in names[:2]}
    unborn = names[2:]
    messages: list[tuple[str, Clock, Clock]] = []
    while len(run.true) < events_max:
        if unborn and rng.random() < 0.1:
            name = unborn.pop(0)
            live[name] = Process(name)
        if len(live) > 1 and rng.random() < churn / 2:
            _leave(rng, run, live, restarts)
        process = live[rng.choice(sorted(live))]
        gone = sorted(run.left & process.shown.keys())
        if gone and rng.random() < churn * 2:
            _drop(process, rng.choice(gone))
        elif not restarts and rng.random() < churn:
            # With restarts, too many entries would fit several incarnations.
            unknown = sorted(run.left - process.shown.keys())
            if unknown:
                _drop(process, rng.choice(unknown))
        if messages and rng.random() < chatter:
            _receive(process, rng.choice(messages), returning)
        own = process.name
        process.true[own] = process.shown[own] = process.true.get(own, 0) + 1
        _happen(run, process)
        if rng.random() < chatter:
            messages.append((own, dict(process.true), dict(process.shown)))
    return run


def _drop(process: Process, name: str) -> None:
    """Make a process drop the entry of a node that left, which it may learn of only later."""
    process.dropped.add(name)
    process.shown.pop(name, None)


def _leave(rng: random.Random, run: Run, live: dict[str, Process], restarts: bool) -> None:
    name = rng.choice(sorted(live))
    if name not in live[name].true:
        return
    del live[name]
    run.left.add(name)
    run.at.append((len(run.true), name))
    if restarts and rng.random() < 0.7:
        again = name_of(base(name), number(name) + 1)
        live[again] = Process(again)
        # It has started before any other process can know it.
        live[again].true[again] = live[again].shown[again] = 1
        _happen(run, live[again])


def _latest(clock: Clock) -> dict[str, str]:
    """Return the latest incarnation of each node that a clock knows."""
    return {base(n): n for n in sorted(clock, key=number)}


def _receive(process: Process, message: tuple[str, Clock, Clock], returning: bool) -> None:
    sender, true, shown = message
    if base(sender) == base(process.name) or (sender in process.dropped and not returning):
        return
    known = {n: max(process.true.get(n, 0), true.get(n, 0)) for n in {*process.true, *true}}
    before, latest = _latest(process.true), _latest(known)
    if latest[base(sender)] != sender:
        # The later incarnation's entry has replaced its entry.
        return
    for b, name in latest.items():
        if b in before and before[b] != name and process.stamp.get(b) == known[name]:
            return  # The clock could not tell that it was another incarnation's.
    earlier = dict(process.true)
    process.true.update(known)
    for name, counter in shown.items():
        if name == process.name or name != latest[base(name)]:
            continue
        # An entry lower than what the process knows returns too, if others dropped it.
        if returning or (name not in process.dropped and counter >= earlier.get(name, 0)):
            process.shown[name] = max(process.shown.get(name, 0), counter)
    for name in [n for n in process.shown if n != latest[base(n)]]:
        del process.shown[name]


def _happen(run: Run, process: Process) -> None:
    type = f"T.{len(run.true)}"
    run.true.append(Event(node=process.name, type=type, clock=dict(process.true)))
    named = {base(n): c for n, c in process.shown.items() if base(n) != base(process.name)}
    named[base(process.name)] = process.true[process.name]
    process.stamp = named
    run.stamped.append(Event(node=base(process.name), type=type, clock=named))


def runs(**knobs: Any) -> st.SearchStrategy[tuple[Run, random.Random]]:
    return chances().map(lambda rng: (simulate(rng, **knobs), rng))


def dressed(rng: random.Random, run: Run) -> Run:
    """Give the events of a run types and data that patterns use, and unique ids."""
    for place, (stamped, true) in enumerate(zip(run.stamped, run.true, strict=True)):
        kind, data, name = rng.choice(TYPES), attributes(rng), f"e{place}"
        run.true[place] = msgspec.structs.replace(true, type=kind, data=data, id=name)
        run.stamped[place] = msgspec.structs.replace(stamped, type=kind, data=data, id=name)
    return run


def arrival(rng: random.Random, run: Run, *, anywhere: bool = False) -> list[int | str]:
    """Return a possible arrival order: places of events, and names of nodes that leave.

    A node's leave comes after its events, and before clocks that lack its entry or have
    it too low; `anywhere`, it comes at any place. An incarnation comes after the one
    before it, and before events that know it.
    """
    items: list[int | str] = [*range(len(run.true)), *sorted(run.left)]
    needed: dict[int | str, set[int | str]] = {item: set() for item in items}
    own: dict[str, list[int | str]] = {}
    for place, true in enumerate(run.true):
        own.setdefault(true.node, []).append(place)
    for name in () if anywhere else run.left:
        needed[name].update(own[name])
    for place, (stamped, true) in enumerate(zip(run.stamped, run.true, strict=True)):
        for name in set() if anywhere else run.left & true.clock.keys() - {true.node}:
            if stamped.clock.get(base(name), 0) < true.clock[name]:
                needed[place].add(name)
        for name in true.clock:
            if number(name) > 1:
                first = own[name][0]
                needed[place].update({name_of(base(name), number(name) - 1), first} - {place})
    rng.shuffle(items)
    out: list[int | str] = []
    while items:
        ready = [item for item in items if needed[item] <= set(out)]
        out.append(ready[0] if rng.random() < 0.5 else rng.choice(ready))
        items.remove(out[-1])
    return out
