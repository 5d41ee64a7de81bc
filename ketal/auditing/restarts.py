"""Nodes that start again: which run of the node an event under audit is of.

A node whose counter begins at 1 again with other content is a new incarnation, and
`ketal run` reads its events, and the entries of other nodes that mean them, under a
name of their own: A, A#2, …. The audit reads them in the same way, by
`ketal.operators.membership.incarnations`. So a restart is one cause, however many dots
it uses again. As all of the log is here, it need not be in causal order, as for `run`:
it is enough that the lines of the node that restarted are in its order.

A dot that is used twice is one fault too, and a second event of counter 1 may be
the beginning of a run or a copy with other content. It is a restart where the
dots from 1 on are used again, two at least, and that explains more than to call
each of them wrong.

The one rule: where the file does not have the order of a node that started again, which
event is of which run is undecidable; then the restart is reported, and nothing else
about that node.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from ketal.auditing.log_model import NONE, AuditedEvent, Everything
from ketal.errors import EventError
from ketal.model.event import Control, Event, content
from ketal.model.limits import Limits
from ketal.operators.membership.members import ATTRIBUTE, Membership


@dataclass(slots=True)
class Restarts:
    """The restarts of an execution, and its events as they are read then.

    Attributes
    ----------
    events : list of AuditedEvent
        The events, under the names of incarnations.
    starts : list of (AuditedEvent, str)
        The first event of each later run that no control event announced, and its node.
    retired : set of str
        The names of nodes that started again: a clock may have room for one only.
    aside : list of AuditedEvent
        Events that are left out, as it is not known which run they are of.
    """

    events: list[AuditedEvent]
    starts: list[tuple[AuditedEvent, str]] = field(default_factory=list)
    retired: set[str] = field(default_factory=set)
    aside: list[AuditedEvent] = field(default_factory=list)


Firsts = dict[str, list[AuditedEvent]]
"""A node that started again → the first events of its later runs."""


def may_have_restarted(events: Iterable[AuditedEvent]) -> Firsts:
    """Return the nodes whose first two dots at least have several events each."""
    firsts: Firsts = {}
    contents_by_dot: dict[str, set[bytes]] = {}
    for event in events:
        if event.counter == 1 and isinstance(event.read, Event):
            contents = contents_by_dot.setdefault(event.node, set())
            if (what := content(event.read)) not in contents:
                contents.add(what)
                firsts.setdefault(event.node, []).append(event)
    again = {node: starts[1:] for node, starts in firsts.items() if len(starts) > 1}
    seconds: dict[str, set[bytes]] = {node: set() for node in again}
    for event in events if again else ():
        if event.counter == 2 and event.node in again and isinstance(event.read, Event):
            seconds[event.node].add(content(event.read))
    return {node: again[node] for node, contents in seconds.items() if len(contents) > 1}


def readings(
    events: list[AuditedEvent], nodes: Firsts, controls: list[tuple[int, Control]], limits: Limits
) -> Iterator[Restarts]:
    """Yield how the runs of nodes may be read, if these nodes started again.

    First as `ketal run` names them, if the file has the order of those nodes; then with
    the restart as their only finding.
    """
    numbered = any(isinstance(e.read, Event) and ATTRIBUTE in e.read.data for e in events)
    if not nodes:
        yield _renamed(events, {}, controls, limits) if numbered else _as_is(events)
        return
    out_of_order = {n for n, firsts in nodes.items() if not _in_order(events, n, firsts)}
    counters = _counters(events, out_of_order)
    nodes = {n: firsts for n, firsts in nodes.items() if _are_runs(counters.get(n))}
    if not nodes:
        return
    if out_of_order.isdisjoint(nodes):
        yield _renamed(events, nodes, controls, limits)
    yield _unjudged(events, nodes)


def _as_is(events: list[AuditedEvent]) -> Restarts:
    return Restarts([_copy(event) for event in events])


def _in_order(events: list[AuditedEvent], node: str, firsts: list[AuditedEvent]) -> bool:
    """Return whether the lines of a node that started again are in its order."""
    starts = {first.position for first in firsts}
    line = [event for event in events if event.node == node and event.counter]
    falls = sum(a.counter > b.counter for a, b in pairwise(line) if b.position not in starts)
    return 10 * falls <= len(line)


def _counters(events: list[AuditedEvent], nodes: set[str]) -> dict[str, Counter[int]]:
    """Return how many events of each node have each own entry."""
    counters: dict[str, Counter[int]] = {node: Counter() for node in nodes}
    for event in events if nodes else ():
        if event.node in nodes and event.counter:
            counters[event.node][event.counter] += 1
    return counters


def _are_runs(counters: Counter[int] | None) -> bool:
    """Return whether own entries out of order may be those of several runs.

    A node that started again uses dots twice and misses none. Where own entries are
    wrong, one is missing for each that is used twice.
    """
    if counters is None:
        return True
    twice = sum(number - 1 for number in counters.values())
    holes = sum(counter > 1 and counter - 1 not in counters for counter in counters)
    return holes < 2 or twice > 2 * holes


def _renamed(
    events: list[AuditedEvent],
    nodes: Firsts,
    controls: list[tuple[int, Control]],
    limits: Limits,
) -> Restarts:
    """Return the events under the names that `ketal run` gives them."""
    membership = Membership(limits, clocks_max=max(1, len(events)))
    known: dict[tuple[str, int], bytes] = {}

    def status(event: Event) -> str:
        known_content = known.get((event.node, event.counter))
        if known_content is None:
            return "new"
        return "duplicate" if known_content == content(event) else "contradiction"

    out = {}
    for event in _Feed(events, nodes).order() if nodes else events:
        if not isinstance(event.read, Event):
            continue
        named, unread = _named(event.read, membership, status)
        if status(named) == "new":
            known[named.node, named.counter] = content(named)
            membership.arrived(named)
        out[event.position] = _copy(event, named, frozenset(unread))
    # A draft, or an event with a used dot, is judged under its own name.
    named_events = [out.get(event.position) or _copy(event) for event in events]
    starts = _unannounced(named_events, nodes, controls)
    return Restarts(named_events, starts, set(membership.retired))


class _Feed:
    """The order in which events are named: each after those that its clock names.

    An entry of a node that started again may name an event of several runs; each
    time that it goes backwards it is of a later one.
    """

    def __init__(self, events: list[AuditedEvent], nodes: Firsts) -> None:
        self._starts = {first.position for firsts in nodes.values() for first in firsts}
        self._lines: dict[str, list[AuditedEvent]] = {}
        for event in events:
            if event.counter and isinstance(event.read, Event):
                self._lines.setdefault(event.node, []).append(event)
        for node, line in self._lines.items():
            if node in nodes:
                continue
            line.sort(key=lambda e: (e.counter, e.position))
            if line[0].counter == 1:
                # A second event of counter 1 is a restart to events that name it.
                copies = [e for e in line if e.counter == 1]
                self._lines[node] = [line[0], *line[len(copies) :]]
        self._heads = dict.fromkeys(self._lines, 0)
        self._runs: dict[str, list[int]] = {node: [0] for node in self._lines}
        self._last: dict[str, dict[str, int]] = {node: {} for node in self._lines}
        self._falls: dict[tuple[str, str], int] = {}
        self._restarted = nodes.keys()

    def order(self) -> Iterator[AuditedEvent]:
        """Yield the events; where each waits for another one, the first of the file.

        A node that started again comes after those that can go on, for who waits for
        its events must be named before it starts again.
        """
        waiting: dict[str, list[str]] = {}
        ready: list[tuple[bool, int, str]] = []

        def push(nodes: Iterable[str]) -> None:
            for node in nodes:
                head = self._head(node)
                if head is not None:
                    heapq.heappush(ready, (node in self._restarted, head.position, node))

        push(self._lines)
        while True:
            while ready:
                _, position, node = heapq.heappop(ready)
                event = self._head(node)
                if event is None or event.position != position:
                    # It was pushed twice.
                    continue
                missing = self._missing(event)
                if missing is not None:
                    waiting.setdefault(missing, []).append(node)
                    continue
                yield self._take(event)
                push([node, *waiting.pop(node, ())])
            heads = [e for node in self._lines if (e := self._head(node)) is not None]
            if not heads:
                return
            event = min(heads, key=lambda e: e.position)
            yield self._take(event)
            push([event.node, *waiting.pop(event.node, ())])

    def _head(self, node: str) -> AuditedEvent | None:
        line, at = self._lines[node], self._heads[node]
        return line[at] if at < len(line) else None

    def _missing(self, event: AuditedEvent) -> str | None:
        """Return a node of which an event knows what has not been named yet."""
        last = self._last[event.node]
        for name, counter in event.clock.items():
            runs = self._runs.get(name)
            if name == event.node or runs is None or last.get(name) == counter:
                continue
            fell = name in self._restarted and counter < last.get(name, 0)
            run = self._falls.get((event.node, name), 0) + fell
            if self._head(name) is not None and (run >= len(runs) or max(runs[run:]) < counter):
                return name
        return None

    def _take(self, event: AuditedEvent) -> AuditedEvent:
        node, last = event.node, self._last[event.node]
        for name in event.clock.keys() & self._restarted:
            if event.clock[name] < last.get(name, 0):
                self._falls[node, name] = self._falls.get((node, name), 0) + 1
        if event.position in self._starts:
            self._runs[node].append(0)
        self._runs[node][-1] = max(event.counter, self._runs[node][-1])
        self._last[node] = event.clock
        self._heads[node] += 1
        return event


def _named(
    event: Event, membership: Membership, status: Callable[[Event], str]
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
    named = Event(own, event.type, clock, event.time, event.data, event.id)
    return named, [name for base in unread for name in names(base)]


def _copy(
    event: AuditedEvent, named: Event | None = None, unknown: frozenset[str] = NONE
) -> AuditedEvent:
    """Return an event to be judged in one reading of several, under its name there."""
    e, n = event, event if named is None else named
    return AuditedEvent(e.read, e.file, e.line, e.position, n.node, n.counter, n.clock, unknown)


def _unannounced(
    events: list[AuditedEvent], nodes: Firsts, controls: list[tuple[int, Control]]
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


def _unjudged(events: list[AuditedEvent], nodes: Firsts) -> Restarts:
    """Return the events with nothing that the nodes that started again could be judged by."""
    out: list[AuditedEvent] = []
    aside: list[AuditedEvent] = []
    used: set[tuple[str, int]] = set()
    for event in events:
        node = event.node
        if node not in nodes:
            out.append(_copy(event, None, frozenset(nodes) & event.clock.keys() or NONE))
        elif (node, event.counter) in used:
            aside.append(event)
        else:
            used.add((node, event.counter))
            out.append(_copy(event, None, Everything()))
    starts = [(first, node) for node, starts_of in nodes.items() for first in starts_of]
    return Restarts(out, starts, set(nodes), aside)
