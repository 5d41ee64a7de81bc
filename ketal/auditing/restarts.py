"""Nodes that start again: which run of the node an event under audit is of.

A node whose counter begins at 1 again with other content is a new incarnation, and
`ketal run` reads its events, and the entries of other nodes that mean them, under a
name of their own: A, A#2, …. The audit reads them in the same way, by
`ketal.operators.membership.incarnations`. So a restart is one cause, however many dots
it uses again. As all of the log is here, it need not be in causal order, as for `run`:
it is enough that the lines of the node that restarted are in its order.

A dot that is used twice is one fault too, and a second event of counter 1 may be
the beginning of a run or a copy with other content. It is a restart where the dot 2 is
used again, too, and few dots are missing: a wrong own entry leaves one missing for each
that is used twice.

The one rule: where the file does not have the order of a node that started again, which
event is of which run is undecidable; then the restart is reported, and nothing else
about that node.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ketal.auditing.log_model import AuditedEvent, Everything, causal_order
from ketal.errors import EventError
from ketal.model.events.content import content
from ketal.model.events.control import Control
from ketal.model.events.draft import known_receives
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.operators.membership.incarnations import ATTRIBUTE
from ketal.operators.membership.members import MembershipStage


@dataclass(slots=True)
class Restarts:
    """The restarts of an execution, and its events as they are read then.

    Attributes
    ----------
    events : list of AuditedEvent
        The events, under the names of incarnations.
    starts : list of (AuditedEvent, str)
        The first event of each later run that no control event announced, and its node.
    departed : set of str
        The names of nodes that started again: a clock may have room for one only.
    aside : list of AuditedEvent
        Events that are left out, as it is not known which run they are of.
    """

    events: list[AuditedEvent]
    starts: list[tuple[AuditedEvent, str]] = field(default_factory=list)
    departed: set[str] = field(default_factory=set)
    aside: list[AuditedEvent] = field(default_factory=list)


_Firsts = dict[str, list[AuditedEvent]]
"""A node that started again → the first events of its later runs."""
_Lines = dict[str, list[AuditedEvent]]
"""By node, its events that have an own entry, in file order."""
_Runs = list[list[AuditedEvent]]
"""The events of each run of a node, in its order."""


def read_restarts(
    events: list[AuditedEvent],
    controls: list[tuple[int, Control]],
    left: set[str],
    limits: Limits,
) -> Restarts:
    """Return the events of an execution, each as of the run of its node that it is of.

    `left` are the nodes that left: a clock may lack what it knows of them.
    """
    lines: _Lines = {}
    for event in events:
        if event.counter and isinstance(event.read, Event):
            lines.setdefault(event.node, []).append(event)
    nodes: _Firsts = {}
    ordered = True
    numbered = {n for n, line in lines.items() if any(ATTRIBUTE in e.read.data for e in line)}
    for node, line in lines.items():
        firsts = _first_events(line)
        if node not in numbered and len(firsts) > 1 and _uses_dots_again(line):
            nodes[node] = firsts[1:]
            ordered &= _is_in_order(line, firsts)
    if not ordered:
        return _unjudged(events, nodes)
    if nodes or numbered:
        return _renamed(events, lines, nodes, controls, left, limits)
    return Restarts(events)


def _first_events(line: list[AuditedEvent]) -> list[AuditedEvent]:
    """Return the events of counter 1 that have different contents."""
    by_content: dict[bytes, AuditedEvent] = {}
    for event in line:
        if event.counter == 1:
            by_content.setdefault(event.content, event)
    return list(by_content.values())


def _uses_dots_again(line: list[AuditedEvent]) -> bool:
    """Return whether the own entries of a node are those of several runs."""
    contents: dict[int, set[bytes]] = {}
    for event in line:
        contents.setdefault(event.counter, set()).add(event.content)
    again = sum(len(same) - 1 for same in contents.values())
    holes = sum(counter > 1 and counter - 1 not in contents for counter in contents)
    return len(contents.get(2, ())) > 1 and again > 2 * holes


def _is_in_order(line: list[AuditedEvent], firsts: list[AuditedEvent]) -> bool:
    """Return whether the lines of a node that started again are in its order."""
    runs = _runs(line, firsts)
    falls = sum(a.counter > b.counter for run in runs for a, b in pairwise(run))
    return 10 * falls <= len(line) and all(len(run) > 1 for run in runs)


def _runs(line: list[AuditedEvent], firsts: list[AuditedEvent]) -> _Runs:
    """Return the events of each run of a node, in its order."""
    runs: _Runs = [[]]
    for event in line:
        if event in firsts and runs[-1]:
            runs.append([])
        runs[-1].append(event)
    return runs


# --- names ------------------------------------------------------------------------------------


def _renamed(
    events: list[AuditedEvent],
    lines: _Lines,
    nodes: _Firsts,
    controls: list[tuple[int, Control]],
    left: set[str],
    limits: Limits,
) -> Restarts:
    """Return the events under the names that `ketal run` gives them."""
    membership = MembershipStage(limits, clocks_max=max(1, len(events)))
    known: dict[tuple[str, int], bytes] = {}

    def status(event: Event) -> str:
        known_content = known.get((event.node, event.counter))
        if known_content is None:
            return "new"
        return "duplicate" if known_content == content(event) else "contradiction"

    out = {}
    for event in _in_causal_order(lines, nodes, left) if nodes else events:
        if not isinstance(event.read, Event):
            continue
        named, unread = _named(event.read, membership, status)
        if status(named) == "new":
            known[named.node, named.counter] = content(named)
            membership.arrived(named)
        node, counter, clock = named.node, named.counter, named.clock
        out[event.position] = replace(
            event, node=node, counter=counter, clock=clock, unknown=frozenset(unread)
        )
    # A draft, or an event with a used dot, is judged under its own name.
    named_events = [out.get(event.position, event) for event in events]
    starts = _unannounced(named_events, nodes, controls)
    return Restarts(named_events, starts, set(membership.departed))


def _in_causal_order(lines: _Lines, nodes: _Firsts, left: set[str]) -> list[AuditedEvent]:
    """Return events, each after those that its clock names; who knows fewer restarts first.

    Who knows of a run must be named before the next one begins.
    """
    runs: dict[str, _Runs] = {}
    for node in sorted(lines, key=nodes.__contains__):
        line = lines[node]
        if node not in nodes:
            # A second event of counter 1 is a restart to events that name it.
            first = next((e for e in line if e.counter == 1), None)
            line = [e for e in line if e.counter > 1 or e is first]
            line.sort(key=lambda e: (e.counter, e.position))
        runs[node] = _runs(line, nodes.get(node, []))
    compared = lines.keys() - nodes.keys() - left
    causes: dict[int, list[AuditedEvent]] = {}
    restarts: dict[int, int] = {}
    for node, of_node in runs.items():
        last: list[AuditedEvent] = []
        for number, run in enumerate(of_node):
            named: dict[str, int] = {}
            clock: dict[str, int] = {}
            for event in run:
                known = causes[event.position] = last
                for name, counter in event.clock.items():
                    if name != node and name in runs:
                        least = named.get(name, 0) + (counter < clock.get(name, 0))
                        named[name], cause = _event_named(event, name, runs[name], least, compared)
                        if cause is not None:
                            known.append(cause)
                restarts[event.position] = number
                last, clock = [event], event.clock
    roots = (event for of_node in runs.values() for run in of_node for event in run)
    order = list(causal_order(roots, lambda event: causes[event.position]))
    for event in order:
        known_restarts = (restarts[e.position] for e in causes[event.position])
        restarts[event.position] = max(restarts[event.position], *known_restarts, 0)
    return sorted(order, key=lambda event: restarts[event.position])


def _event_named(
    event: AuditedEvent, name: str, runs: _Runs, least: int, compared: set[str]
) -> tuple[int, AuditedEvent | None]:
    """Return the run that an entry names, by its place, and the event, or the last before it.

    It is the first run from `least` on that is as long, and whose event has no entry of a node
    to be compared that this one lacks.
    """
    counter, clock = event.clock[name], event.clock
    first = min(least, len(runs) - 1)
    possible: list[tuple[int, AuditedEvent]] = []
    for at, run in enumerate(runs[first:], first):
        if run[-1].counter >= counter:
            rank = bisect_left(run, counter, key=lambda e: e.counter)
            before = run[rank].counter > counter and rank > 0
            possible.append((at, run[rank - before]))
    if len(possible) > 1:
        for at, known in possible:
            if all(v <= clock.get(n, 0) for n, v in known.clock.items() if n in compared):
                return at, known
    return possible[0] if possible else (least, None)


def _named(
    event: Event, membership: MembershipStage, status: Callable[[Event], str]
) -> tuple[Event, list[str]]:
    """Return an event under its name, and the names of the entries that stay ambiguous."""
    names = membership.incarnations.names
    try:
        return membership.rename(event, status), []
    except EventError:
        # Lines are in their order, so it is of the run that began last. What its clock
        # means of nodes that started again is left open.
        own = names(event.node)[-1]
    unread = [base for base in event.clock if base != event.node and len(names(base)) > 1]
    clock = {node: counter for node, counter in event.clock.items() if node not in unread}
    clock[own] = clock.pop(event.node)
    receives = known_receives(event, clock)
    named = Event(own, event.type, clock, event.time, event.data, event.id, receives)
    return named, [name for base in unread for name in names(base)]


def _unannounced(
    events: list[AuditedEvent], nodes: _Firsts, controls: list[tuple[int, Control]]
) -> list[tuple[AuditedEvent, str]]:
    """Return the restarts that no control event announces."""
    firsts = {first.position: node for node, starts_of in nodes.items() for first in starts_of}
    starts = []
    last: dict[str, int] = {}
    for event in events:
        base = event.read.node
        if event.position in firsts and event.node != base:
            since = last.get(base, -1)
            announced = any(
                since < position < event.position and _announces(control, base)
                for position, control in controls
            )
            if not announced:
                starts.append((event, base))
        last[base] = event.position
    return starts


def _announces(control: Control, node: str) -> bool:
    return control.node == node or (control.kind == "view" and node not in control.members)


def _unjudged(events: list[AuditedEvent], nodes: _Firsts) -> Restarts:
    """Return the events with nothing that the nodes that started again could be judged by."""
    out: list[AuditedEvent] = []
    aside: list[AuditedEvent] = []
    used: set[tuple[str, int]] = set()
    for event in events:
        node = event.node
        if node not in nodes:
            unknown = frozenset(node for node in event.clock if node in nodes)
            out.append(replace(event, unknown=unknown))
        elif (node, event.counter) in used:
            aside.append(event)
        else:
            used.add((node, event.counter))
            out.append(replace(event, unknown=Everything()))
    starts = [(first, node) for node, starts_of in nodes.items() for first in starts_of]
    return Restarts(out, starts, set(nodes), aside)
