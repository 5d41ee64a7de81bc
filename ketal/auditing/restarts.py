"""Restarted nodes: assigns the events under audit to the incarnations of their node.

A node whose counter begins at 1 again with other content is a new incarnation. `ketal run` reads
its events, and the entries of other nodes that refer to them, under a name of their own: A, A#2, ….
The audit gives the same names. As it has the whole log, that need not be in causal order, as for
`run`; it suffices that the lines of the restarted node are in its order. An incarnation is called a
run here. An entry names the first run that is long enough and no earlier than the run which the
event already knows; a later one, if the entry is lower than the last known one of that run. If no
later run is long enough, the lower entry is an outdated one, dropped before and brought back by a
message.

A second event of counter 1 may begin a run, or share the dot by a fault. It is a restart if the dot
2 is used again, too, and few dots are missing: a wrong own entry leaves one dot missing for each
that is used twice.

The one rule: if the file does not have the order of a restarted node, the run of its events is
undecidable; then the restart is reported, and nothing else about that node.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ketal.auditing.log_model import AuditedEvent, Everything
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.events.incarnation import INCARNATION, name_of, numbered_dot
from ketal.model.graph_walks import postorder


@dataclass(slots=True)
class Restarts:
    """The restarts of an execution, and its events under the names of incarnations."""

    events: list[AuditedEvent]  # under the names of incarnations
    starts: list[tuple[AuditedEvent, str]] = field(default_factory=list)
    """The first event of each later run that no control event announced, and its node."""
    departed: set[str] = field(default_factory=set)
    """The runs of nodes that have several; a clock may have room for only one of them."""
    unjudged: list[AuditedEvent] = field(default_factory=list)
    """Events that are left out, as their run is unknown."""


_Line = list[AuditedEvent]
"""The events of a node that have an own entry, in file order."""
_Runs = dict[str, _Line]
"""The events of each run of a node by the run's name, in the order of the runs."""


def read_restarts(
    events: list[AuditedEvent], controls: list[tuple[int, Control]], departed: set[str]
) -> Restarts:
    """Return the events of an execution, each under the name of its run.

    `departed` are the nodes that left, whose entries a clock may have dropped.
    """
    lines: dict[str, _Line] = {}
    for event in events:
        if isinstance(event.read, Event):
            lines.setdefault(event.node, []).append(event)
    runs: dict[str, _Runs] = {}
    firsts: dict[str, _Line] = {}
    ordered = True
    for node, line in lines.items():
        runs[node] = {node: line}
        if any(INCARNATION in event.read.data for event in line):
            runs[node] = _numbered_runs(node, line)
        elif len(first := _first_events(line)) > 1 and _uses_dots_again(line):
            firsts[node], runs[node] = first[1:], _split_runs(node, line, first[1:])
            ordered &= _is_in_order(runs[node])
    if not ordered:
        return _without_runs(events, firsts)
    if all(list(of_node) == [node] for node, of_node in runs.items()):
        return Restarts(events)
    unannounced = {
        first.position
        for node, later in firsts.items()
        for first in later
        if not _is_announced(first, lines[node], controls)
    }
    named = _rename_to_runs(events, runs, departed)
    starts = [(event, event.read.node) for event in named if event.position in unannounced]
    departed_runs = {name for of_node in runs.values() if len(of_node) > 1 for name in of_node}
    return Restarts(named, starts, departed_runs)


def _numbered_runs(node: str, line: _Line) -> _Runs:
    """Return the runs of a node whose program numbers them."""
    runs: _Runs = {}
    for event in line:
        assert isinstance(event.read, Event)
        runs.setdefault(numbered_dot(event.read).node, []).append(event)
    return dict(sorted(runs.items(), key=lambda run: int(run[0][len(node) + 1 :] or 1)))


def _first_events(line: _Line) -> _Line:
    """Return the events of counter 1, one of each content."""
    by_content: dict[bytes, AuditedEvent] = {}
    for event in line:
        if event.counter == 1:
            by_content.setdefault(event.content, event)
    return list(by_content.values())


def _uses_dots_again(line: _Line) -> bool:
    """Return whether the repeated dots of a node are evidence of several runs."""
    contents: dict[int, set[bytes]] = {}
    for event in line:
        contents.setdefault(event.counter, set()).add(event.content)
    again = sum(len(same) - 1 for same in contents.values())
    holes = sum(counter > 1 and counter - 1 not in contents for counter in contents)
    return len(contents.get(2, ())) > 1 and again > 2 * holes


def _split_runs(node: str, line: _Line, later: _Line) -> _Runs:
    """Return the runs of a node; each event in `later` begins a run after the first."""
    runs: _Runs = {node: []}
    name = node
    begins = {event.position for event in later}
    copied: dict[tuple[int, bytes], str] = {}
    for event in line:
        if event.position in begins:
            name = name_of(node, len(runs) + 1)
        # An event with the dot and content of an earlier one is a copy, in the run of that one.
        run = copied.setdefault((event.counter, event.content), name)
        runs.setdefault(run, []).append(event)
    return runs


def _is_in_order(runs: _Runs) -> bool:
    """Return whether the lines of a restarted node are in its order."""
    falls = sum(a.counter > b.counter for run in runs.values() for a, b in pairwise(run))
    events = sum(map(len, runs.values()))
    return 10 * falls <= events and all(len(run) > 1 for run in runs.values())


def _is_announced(first: AuditedEvent, line: _Line, controls: list[tuple[int, Control]]) -> bool:
    """Return whether a control event right before the first event of a run announces it."""
    # There is an event before it, of an earlier run.
    before = line[bisect_left(line, first.position, key=lambda e: e.position) - 1]
    places = (bisect_left(controls, e.position, key=lambda c: c[0]) for e in (before, first))
    return any(
        control.node == first.node or (control.kind == "view" and first.node not in control.members)
        for _, control in controls[slice(*places)]
    )


def _without_runs(events: list[AuditedEvent], firsts: dict[str, _Line]) -> Restarts:
    """Return the events with all entries of the restarted nodes unknown."""
    out: list[AuditedEvent] = []
    unjudged: list[AuditedEvent] = []
    used: set[tuple[str, int]] = set()
    for event in events:
        node = event.node
        if node not in firsts:
            unknown = frozenset(node for node in event.clock if node in firsts)
            out.append(replace(event, unknown=unknown))
        elif (node, event.counter) in used:
            unjudged.append(event)
        else:
            used.add((node, event.counter))
            out.append(replace(event, unknown=Everything()))
    starts = [(first, node) for node, later in firsts.items() for first in later]
    return Restarts(out, starts, set(firsts), unjudged)


# --- the run that an entry names -----------------------------------------------------------------


def _rename_to_runs(
    events: list[AuditedEvent], runs: dict[str, _Runs], departed: set[str]
) -> list[AuditedEvent]:
    """Return the events with their nodes and their clocks' entries renamed to runs."""
    sorted_runs = {
        node: [sorted(run, key=lambda e: (e.counter, e.position)) for run in of_node.values()]
        for node, of_node in runs.items()
    }
    several = {node for node, of_node in runs.items() if len(of_node) > 1}
    compared = runs.keys() - several - departed
    before: dict[int, AuditedEvent | None] = {}
    # By position: the last run that the event knows of each restarted node, and its highest entry.
    known: dict[int, dict[str, tuple[int, int]]] = {}
    for node, of_node in sorted_runs.items():
        for number, run in enumerate(of_node):
            for previous, event in zip([None, *run[:-1]], run, strict=True):
                before[event.position] = previous
                known[event.position] = {node: (number, event.counter)} if node in several else {}

    def causes(event: AuditedEvent) -> Iterator[AuditedEvent]:
        """Yield the events that an event knows; `known` is complete for each before the next."""
        last_known, clock, old = known[event.position], event.clock, {event.node: event.counter}
        if (previous := before[event.position]) is not None:
            yield previous
            last_known |= known[previous.position] | last_known
            old = previous.clock | old
        # An unchanged entry shows no other run. Nodes that never restarted come first, as their
        # entries decide about the others.
        moved = [name for name in clock if name in runs and clock[name] != old.get(name)]
        for name in sorted(moved, key=several.__contains__):
            last = last_known.get(name, (0, 0))
            number, cause = _named_run(event, name, sorted_runs[name], last, compared)
            if name in several:
                last_known[name] = max(last, (number, clock[name]))
            if cause is not None:
                yield cause
                for other, known_to_cause in known[cause.position].items():
                    if other != event.node:
                        last_known[other] = max(known_to_cause, last_known.get(other, (0, 0)))

    roots = (event for of_node in sorted_runs.values() for run in of_node for event in run)
    for _ in postorder(roots, causes):
        pass
    names = {node: list(of_node) for node, of_node in runs.items()}
    out = []
    for event in events:
        # Drafts, which are not in `known`, keep their names.
        run_names = {
            n: names[n][number] for n, (number, _) in known.get(event.position, {}).items()
        }
        if any(run_names.get(name, name) != name for name in event.clock):
            clock = {run_names.get(name, name): counter for name, counter in event.clock.items()}
            event = replace(event, node=run_names.get(event.node, event.node), clock=clock)
        out.append(event)
    return out


def _named_run(
    event: AuditedEvent, name: str, runs: list[_Line], last: tuple[int, int], compared: set[str]
) -> tuple[int, AuditedEvent | None]:
    """Return the index of the run that an entry names, and the event or the last one before it.

    `last` is the last run that the event knows, and its highest entry. The result is the first run
    from there on, or after it if the entry is lower, that is long enough and whose event has no
    higher entry of a `compared` node than this event.
    """
    counter, clock = event.clock[name], event.clock
    least = last[0] + (counter < last[1])
    possible: tuple[int, AuditedEvent] | None = None
    for at in range(least, len(runs)):
        if runs[at][-1].counter >= counter:
            known = _last_upto(runs[at], counter)
            alone = possible is None and at == len(runs) - 1
            if alone or all(v <= clock.get(n, 0) for n, v in known.clock.items() if n in compared):
                return at, known
            possible = possible or (at, known)
    if possible is None and least > last[0]:
        return last[0], _last_upto(runs[last[0]], counter)  # outdated
    return possible or (last[0], None)


def _last_upto(run: _Line, counter: int) -> AuditedEvent:
    """Return the event of a run with a counter, or the last one before it, or else the first."""
    rank = bisect_left(run, counter, key=lambda e: e.counter)
    absent = rank == len(run) or run[rank].counter > counter
    return run[max(0, rank - absent)]
