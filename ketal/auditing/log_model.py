"""One execution under audit: its events node by node, and which events know which.

The events of a node form a line, numbered by their own entries. An event knows its predecessor on
the line and, for each entry (m, v) of its clock, the event m@v: these are the last events of each
node that it knows, and it knows all others through them (Mattern, "Virtual time and global states
of distributed systems", 1989).

The one rule: nothing here judges. An entry that was found wrong is *unknown*: from then on it names
no event, and no fault of its event is derived from it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from ketal.logs.traces.message_pairing import Pairing
from ketal.model.events.content import content
from ketal.model.events.dot import Dot
from ketal.model.events.event import Draft, Event, known_receives
from ketal.model.graph_walks import postorder
from ketal.model.wording import place_at

NONE: frozenset[str] = frozenset()
OWN_CODES = ("A001", "A002", "A003")
"""The codes of faults that leave it open which dot an event has."""


class Everything(frozenset[str]):
    """The set of all names: every entry of an event without a clock is unknown."""

    def __contains__(self, name: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return True

    def __or__(self, other: object) -> Everything:
        return self


@dataclass(slots=True, eq=False)
class AuditedEvent:
    """One event of the log under audit."""

    read: Event | Draft  # as it was read; a draft if its clock is invalid
    file: str
    line: int
    position: int  # the number of its record in the log
    node: str  # its node; the incarnation, if the node restarted
    counter: int
    """The own entry of its clock, as it was read and later as corrected; 0 if unknown."""
    clock: dict[str, int]  # in which entries of nodes that left are restored
    unknown: frozenset[str] = NONE
    """The nodes whose entries in the clock are wrong, and so unknown."""
    lost: frozenset[str] = NONE
    """The unknown nodes whose entry may name a lost event: all events of such a node that the log
    has are in the event's past."""
    reason: str = ""
    """Why a draft is not an event, as the reader of the log says; empty for an event."""

    @property
    def dot(self) -> Dot:
        """The dot, as corrected."""
        return Dot(self.node, self.counter)

    @property
    def place(self) -> str:
        """The place in the log, as `place_at` writes it."""
        return place_at(self.file, self.line)

    @property
    def content(self) -> bytes:
        """The content as bytes that are equal for copies of the event."""
        return content(self.read) if isinstance(self.read, Event) else repr(self.read).encode()

    def others_sum(self) -> int:
        """Return the sum of the clock without the own entry; it never decreases along a line."""
        return sum(self.clock.values()) - self.clock.get(self.node, 0)

    def entry(self, name: str) -> int:
        """Return the clock's entry of a node; the own entry as corrected."""
        return self.counter if name == self.node else self.clock.get(name, 0)

    def lacks(self, known: AuditedEvent) -> list[str]:
        """Return the nodes whose entry is higher in `known`, an event that this event knows.

        The own node is one of them if `known` knows this event, too.
        """
        clock, node, other = self.clock, self.node, known.node
        out = []
        for name, value in known.clock.items():
            if value > clock.get(name, 0) or name == node:
                if name == other or name in known.unknown or name in self.unknown:
                    continue
                if name != node or value >= self.counter:
                    out.append(name)
        return out

    def certain_entries(self) -> dict[str, int]:
        """Return the clock without the unknown entries."""
        clock = {name: value for name, value in self.clock.items() if name not in self.unknown}
        clock[self.node] = self.counter
        return clock

    def as_event(self) -> Event:
        """Return the event with its corrected dot and its restored clock.

        Unknown entries are left out, except those that may name lost events. Of an event with all
        entries unknown, none is known to be wrong, so its entries are those that were read.
        """
        read = self.read
        wrong = self.unknown - self.lost  # empty if `unknown` is `Everything`
        same = isinstance(read, Event) and read.clock is self.clock and read.node == self.node
        if isinstance(read, Event) and same and read.counter == self.counter and not wrong:
            return read
        clock = {name: value for name, value in self.clock.items() if name not in wrong}
        clock[self.node] = max(1, self.counter)
        receives = known_receives(read, clock)
        return Event(self.node, read.type, clock, read.time, read.data, read.id, receives)


@dataclass(slots=True, eq=False)
class Finding:
    """One fault: its code, its event, and the entries to blame."""

    code: str  # its kind; `docs/audit.md` has its name
    event: AuditedEvent  # at which it is reported
    dot: Dot | None  # the dot that is faulty; None if unknown
    message: str
    blamed: set[str] = field(default_factory=set)
    """The nodes whose entries in the event's clock are wrong."""
    certain: bool = True
    """Whether no other fault (another dot, a lost event, another entry) explains the same. A
    repair corrects an uncertain fault only if messages decide it."""


class Hole(NamedTuple):
    """A run of counters that no event of a node has."""

    first: int
    last: int

    @property
    def room(self) -> int:
        """How many events fit in it."""
        return self.last - self.first + 1


class NodeEvents:
    """The events of one node, by their counters."""

    __slots__ = ("by_counter", "copies", "counters", "strays", "twins")

    def __init__(self) -> None:
        self.by_counter: dict[int, AuditedEvent] = {}  # one event for each counter
        self.counters: list[int] = []  # the counters in order
        self.strays: list[AuditedEvent] = []  # events without a dot
        # By counter, events with one dot and different contents, including that of `by_counter`.
        self.twins: dict[int, list[AuditedEvent]] = {}
        self.copies: list[AuditedEvent] = []  # events with the dot and content of another one

    @property
    def complete(self) -> bool:
        """Whether the events have the counters 1, 2, 3, …, each once."""
        return self.top == len(self.counters) and not (self.strays or self.twins or self.copies)

    @property
    def without_dot(self) -> int:
        """How many events have no dot of their own."""
        return len(self.strays) + sum(len(same) - 1 for same in self.twins.values())

    @property
    def top(self) -> int:
        """The greatest counter; 0 without events."""
        return self.counters[-1] if self.counters else 0

    def sort(self) -> None:
        """Sort the counters after events were added to `by_counter` directly."""
        self.counters = sorted(self.by_counter)

    def put(self, event: AuditedEvent) -> None:
        """Add an event at its counter; it replaces an event that is there."""
        counter = event.counter
        if counter not in self.by_counter:
            if counter > self.top:
                self.counters.append(counter)
            else:
                insort(self.counters, counter)
        self.by_counter[counter] = event

    def remove(self, event: AuditedEvent) -> None:
        """Remove the event at the counter of `event`."""
        del self.by_counter[event.counter]
        del self.counters[bisect_left(self.counters, event.counter)]

    def last_upto(self, counter: int) -> AuditedEvent | None:
        """Return the event with this counter, or the last one before it."""
        event = self.by_counter.get(counter)
        if event is None and (rank := bisect_right(self.counters, counter)):
            event = self.by_counter[self.counters[rank - 1]]
        return event

    def first_above(self, counter: int) -> AuditedEvent | None:
        """Return the first event with a greater counter."""
        rank = bisect_right(self.counters, counter)
        return self.by_counter[self.counters[rank]] if rank < len(self.counters) else None

    def events(self) -> Iterator[AuditedEvent]:
        """Yield the events in the node's order."""
        return map(self.by_counter.__getitem__, self.counters)

    def holes(self) -> list[Hole]:
        """Return the holes before the greatest counter."""
        pairs = pairwise((0, *self.counters))
        return [Hole(a + 1, b - 1) for a, b in pairs if b > a + 1]


class AuditedExecution:
    """One execution under audit."""

    def __init__(self, events: Iterable[AuditedEvent] = ()) -> None:
        self.events: list[AuditedEvent] = list(events)  # in file order, without duplicates
        # The events that have a dot of their own, by node.
        self.lines: dict[str, NodeEvents] = {}
        self.findings: list[Finding] = []
        self.duplicates = 0  # how many events repeat an earlier event with the same content
        # The pairs of sends and receives, if messages are matched.
        self.pairing: Pairing | None = None
        # The sends of a receive's messages, by its position, and the reverse.
        self.sends: dict[int, list[AuditedEvent]] = {}
        self.receives: dict[int, list[AuditedEvent]] = {}
        # The positions of receives whose message no event sends, or several do.
        self.unsure: set[int] = set()
        self._by_event: dict[tuple[int, str, str], Finding] = {}
        # By node and name, the result of `predecessor_with_entry` for the node's events without the
        # entry, by position.
        self._with_entry: dict[tuple[str, str], dict[int, AuditedEvent | None]] = {}

    def report(
        self,
        code: str,
        event: AuditedEvent,
        message: str,
        *,
        dot: Dot | None = None,
        refers_to: str = "",
        blamed: Iterable[str] = (),
        certain: bool = True,
    ) -> None:
        """Add a finding, merged with an earlier one of the same code and event.

        `refers_to` names the node of a reference; references to different nodes are not merged.
        """
        key = event.position, code, refers_to
        known = self._by_event.get(key)
        if known is not None:
            known.blamed.update(blamed)
            known.certain &= certain
            return
        finding = Finding(code, event, dot, message, set(blamed), certain)
        self._by_event[key] = finding
        self.findings.append(finding)

    def finding_of(self, code: str, event: AuditedEvent) -> Finding | None:
        """Return the finding of a code about an event."""
        return self._by_event.get((event.position, code, ""))

    def has_certain_dot(self, event: AuditedEvent) -> bool:
        """Return whether an event has a dot that cannot be another one."""
        findings = (self.finding_of(code, event) for code in OWN_CODES)
        return event.counter > 0 and all(f is None or f.certain for f in findings)

    def events_with_dot(self) -> Iterator[AuditedEvent]:
        """Yield the events that have a dot of their own, node by node."""
        for line in self.lines.values():
            yield from line.events()

    def event_named(self, node: str, counter: int) -> AuditedEvent | None:
        """Return the event that an entry names, or the last one before it; None without any."""
        line = self.lines.get(node)
        return None if line is None else line.last_upto(counter)

    def last(self, node: str) -> AuditedEvent | None:
        """Return the last event of a node; None if it has none."""
        line = self.lines.get(node)
        return line.by_counter[line.top] if line is not None and line.counters else None

    def predecessor(self, event: AuditedEvent) -> AuditedEvent | None:
        """Return an event's predecessor on its line."""
        return self.lines[event.node].last_upto(event.counter - 1)

    def successor(self, event: AuditedEvent) -> AuditedEvent | None:
        """Return an event's successor on its line."""
        return self.lines[event.node].first_above(event.counter)

    def predecessor_with_entry(self, event: AuditedEvent, name: str) -> AuditedEvent | None:
        """Return the last event before this one whose entry of a node is not unknown.

        The result is cached for the events passed, so that no event is passed often.
        """
        cache = self._with_entry.setdefault((event.node, name), {})
        passed: list[int] = []
        known = self.predecessor(event)
        while known is not None and name in known.unknown:
            at = known.position
            passed.append(at)
            known = cache[at] if at in cache else self.predecessor(known)
        cache.update(dict.fromkeys(passed, known))
        return known

    def correct(self, event: AuditedEvent, entries: dict[str, int]) -> None:
        """Replace entries of an event's clock, which are known from then on."""
        if entries:
            event.clock = event.clock | entries
            event.unknown = event.unknown - entries.keys()
        for name in entries:
            self._with_entry.pop((event.node, name), None)

    def successors_with_entry(self, event: AuditedEvent, name: str) -> Iterator[AuditedEvent]:
        """Yield, for each node, the first event that knows this one, if its entry is not unknown.

        On the event's own node, later events are tried until the entry of `name` is not unknown.
        """
        after = self.successor(event)
        while after is not None and name in after.unknown:
            after = self.successor(after)
        if after is not None:
            yield after
        for knower in self.knowers(event.node, event.counter):
            if name not in knower.unknown:
                yield knower

    def entry_bounds(self, event: AuditedEvent, name: str) -> tuple[int, int | None]:
        """Return the least and the greatest value of an entry that agrees with other events.

        The least is the highest entry of the event's predecessor, of the events that its other
        entries name and of the sends that it receives. The greatest is the lowest entry of the
        events that know the event; None if none does.
        """
        named = (known for known in self.known_events(event) if known.node != name)
        lower = [
            self.predecessor_with_entry(event, name),
            *named,
            *self.sends.get(event.position, ()),
        ]
        least = [e.entry(name) for e in lower if e is not None and name not in e.unknown]
        most = [e.entry(name) - (e.node == name) for e in self.successors_with_entry(event, name)]
        return max(least, default=0), min(most, default=None)

    def known_events(self, event: AuditedEvent) -> Iterator[AuditedEvent]:
        """Yield the events that an event knows directly, its predecessor first."""
        if (before := self.predecessor(event)) is not None:
            yield before
        for node, counter in event.clock.items():
            if node != event.node and node not in event.unknown:
                known = self.event_named(node, counter)
                if known is not None:
                    yield known

    def knowers(self, node: str, counter: int) -> Iterator[AuditedEvent]:
        """Yield, for each other node, the first event that knows a dot.

        Entries never decrease along a line, so it is found by bisection. Wrong entries may lead to
        a later event than the first, which knows the dot, too.
        """
        for name, line in self.lines.items():
            if name == node:
                continue
            at, counters = line.by_counter, line.counters

            def entry(own: int, at: dict[int, AuditedEvent] = at) -> int:
                return at[own].clock.get(node, 0)

            # Not islice, which would step over the earlier counters one by one.
            for rank in range(bisect_left(counters, counter, key=entry), len(counters)):
                event = at[counters[rank]]
                if event.clock.get(node, 0) >= counter and node not in event.unknown:
                    yield event
                    break

    def in_causal_order(self) -> Iterator[AuditedEvent]:
        """Yield the events, each after the events that its clock names and the sends it receives.

        If clocks contradict each other, the order is that of the depth-first walk.
        """
        return postorder(self.events_with_dot(), self._causes)

    def _causes(self, event: AuditedEvent) -> Iterator[AuditedEvent]:
        yield from self.known_events(event)
        for send in self.sends.get(event.position, ()):
            # Another event may have taken the dot of the send.
            if self.lines[send.node].by_counter.get(send.counter) is send:
                yield send
