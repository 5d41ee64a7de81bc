"""One execution under audit: its events node by node, and which event knows which.

The events of a node are a line, numbered by their own entries. An event knows
its predecessor on the line and, for each entry (m, v) of its clock, m@v: by
"Virtual time and global states of distributed systems" (Mattern, 1989) these
are the last ones that it knows of each node, and all others it knows through
them.

The one rule: nothing here judges. An entry that was found wrong is *unknown*:
from then on it names no event, and says nothing about its own event either.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ketal.event import Dot, Draft, Event

NONE: frozenset[str] = frozenset()


class Everything(frozenset[str]):
    """The set of all names: of an event without a clock every entry is unknown."""

    def __contains__(self, name: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return True

    def __or__(self, other: object) -> Everything:
        return self


@dataclass(slots=True, eq=False)
class Stamped:
    """One event of the log under audit.

    Attributes
    ----------
    read : Event or Draft
        As it was read; a draft where its clock is no clock.
    file, line, position
        Where it stands; `position` counts the records.
    node : str
        Where it happened; of a node that restarted, the incarnation.
    counter : int
        Its own entry, as it was read and later as it must be; 0 where unknown.
    clock : dict of str to int
        Its clock; entries of nodes that have left are restored in it.
    unknown : frozenset of str
        The nodes whose entries are wrong, and so say nothing.
    """

    read: Event | Draft
    file: str
    line: int
    position: int
    node: str
    counter: int
    clock: dict[str, int]
    unknown: frozenset[str] = NONE

    @property
    def dot(self) -> Dot:
        """Return its dot, as it must be."""
        return Dot(self.node, self.counter)

    @property
    def place(self) -> str:
        """Return where it stands, `file:line`; empty where it came from code."""
        return f"{self.file}:{self.line}" if self.file else ""

    def others(self) -> int:
        """Return the sum of its entries without the own one; along a line it never falls."""
        return sum(self.clock.values()) - self.clock.get(self.node, 0)

    def value(self, name: str) -> int:
        """Return its entry of a node; the own one as it must be."""
        return self.counter if name == self.node else self.clock.get(name, 0)


@dataclass(slots=True, eq=False)
class Finding:
    """One fault: what is wrong, where, and which entries are to blame.

    Attributes
    ----------
    code : str
        Which kind it is; `ketal.auditing.CODES` says what each is called.
    event : Stamped
        Where it is named.
    dot : Dot or None
        What it is about; None where that cannot be told.
    blamed : set of str
        The nodes whose entries in the event's clock are wrong.
    certain : bool
        Whether no other fault explains the same: another dot, a lost event, another
        entry. A repair changes nothing else.
    """

    code: str
    event: Stamped
    dot: Dot | None
    message: str
    blamed: set[str] = field(default_factory=set)
    certain: bool = True


class Line:
    """The events of one node, by their counters."""

    __slots__ = ("at", "counters")

    def __init__(self) -> None:
        self.at: dict[int, Stamped] = {}
        self.counters: list[int] = []

    @property
    def top(self) -> int:
        """Return the greatest counter; 0 without events."""
        return self.counters[-1] if self.counters else 0

    def settle(self) -> None:
        """Sort the counters, after many events were put in at once."""
        self.counters = sorted(self.at)

    def put(self, event: Stamped) -> None:
        """Put an event in at its counter, in the place of another one if there is one."""
        counter = event.counter
        if counter not in self.at:
            if counter > self.top:
                self.counters.append(counter)
            else:
                insort(self.counters, counter)
        self.at[counter] = event

    def take(self, event: Stamped) -> None:
        """Take out the event that stands at the counter of `event`."""
        del self.at[event.counter]
        del self.counters[bisect_left(self.counters, event.counter)]

    def upto(self, counter: int) -> Stamped | None:
        """Return the event with this counter, else the last before it."""
        found = self.at.get(counter)
        if found is None and (rank := bisect_right(self.counters, counter)):
            found = self.at[self.counters[rank - 1]]
        return found

    def above(self, counter: int) -> Stamped | None:
        """Return the first event with a greater counter."""
        rank = bisect_right(self.counters, counter)
        return self.at[self.counters[rank]] if rank < len(self.counters) else None

    def events(self) -> Iterator[Stamped]:
        """Yield the events in the node's order."""
        return map(self.at.__getitem__, self.counters)

    def gaps(self) -> Iterator[tuple[int, int]]:
        """Yield the first and last counter of each run of missing ones."""
        before = 0
        for counter in self.counters:
            if counter > before + 1:
                yield before + 1, counter - 1
            before = counter


class Execution:
    """One execution under audit.

    Attributes
    ----------
    events : list of Stamped
        Its events in file order, duplicates left out.
    lines : dict of str to Line
        Its events by node, each that has a dot of its own.
    findings : list of Finding
        What is wrong with it.
    duplicates : int
        Events that were there before, with the same content.
    """

    def __init__(self, events: Iterable[Stamped] = ()) -> None:
        self.events: list[Stamped] = list(events)
        self.lines: dict[str, Line] = {}
        self.findings: list[Finding] = []
        self.duplicates = 0
        self._by_event: dict[tuple[int, str], Finding] = {}

    def report(
        self,
        code: str,
        event: Stamped,
        message: str,
        *,
        dot: Dot | None = None,
        blamed: Iterable[str] = (),
        certain: bool = True,
    ) -> None:
        """Add a finding; what is found twice about an event and a code is one."""
        found = self._by_event.get((event.position, code))
        if found is not None:
            found.blamed.update(blamed)
            found.certain &= certain
            return
        finding = Finding(code, event, dot, message, set(blamed), certain)
        self._by_event[event.position, code] = finding
        self.findings.append(finding)

    def found(self, code: str, event: Stamped) -> Finding | None:
        """Return the finding of a code about an event."""
        return self._by_event.get((event.position, code))

    def withdraw(self, finding: Finding) -> None:
        """Take a finding back, which another one explains."""
        del self._by_event[finding.event.position, finding.code]
        self.findings.remove(finding)

    def settled(self) -> Iterator[Stamped]:
        """Yield the events that have a dot of their own, node by node."""
        for line in self.lines.values():
            yield from line.events()

    def named(self, node: str, counter: int) -> Stamped | None:
        """Return the event that an entry names, or the last before it; None without any."""
        line = self.lines.get(node)
        return None if line is None else line.upto(counter)

    def before(self, event: Stamped) -> Stamped | None:
        """Return an event's predecessor on its line."""
        return self.lines[event.node].upto(event.counter - 1)

    def after(self, event: Stamped) -> Stamped | None:
        """Return an event's successor on its line."""
        return self.lines[event.node].above(event.counter)

    def known_before(self, event: Stamped, name: str) -> Stamped | None:
        """Return the last event before one whose entry of a node is not unknown."""
        line = self.lines[event.node]
        found = line.upto(event.counter - 1)
        while found is not None and name in found.unknown:
            found = line.upto(found.counter - 1)
        return found

    def known_after(self, event: Stamped, name: str) -> Stamped | None:
        """Return the first event after one whose entry of a node is not unknown."""
        line = self.lines[event.node]
        found = line.above(event.counter)
        while found is not None and name in found.unknown:
            found = line.above(found.counter)
        return found

    def later_than(self, event: Stamped, name: str) -> Iterator[Stamped]:
        """Yield of each node the first event that knows an event, and of a node something."""
        after = self.known_after(event, name)
        if after is not None:
            yield after
        for knower in self.knowers(event.node, event.counter):
            if name not in knower.unknown:
                yield knower

    def knowns(self, event: Stamped) -> Iterator[Stamped]:
        """Yield the events that an event knows directly, its predecessor first."""
        before = self.before(event)
        if before is not None and before is not event:
            yield before
        for node, counter in event.clock.items():
            if node != event.node and node not in event.unknown:
                known = self.named(node, counter)
                if known is not None:
                    yield known

    def knowers(self, node: str, counter: int) -> Iterator[Stamped]:
        """Yield of each other node the first event that knows a dot.

        Along a line an entry never falls, so that halving finds it. Entries that
        are wrong may make it a later one than the first, which knows the dot too.
        """
        for name, line in self.lines.items():
            if name == node:
                continue
            counters, at = line.counters, line.at

            def entry(own: int, at: dict[int, Stamped] = at) -> int:
                return at[own].clock.get(node, 0)

            rank = bisect_left(counters, counter, key=entry)
            while rank < len(counters):
                event = at[counters[rank]]
                if event.clock.get(node, 0) >= counter and node not in event.unknown:
                    yield event
                    break
                rank += 1

    def in_causal_order(
        self, extra: Mapping[int, Sequence[Stamped]] | None = None
    ) -> Iterator[Stamped]:
        """Yield the events, each after those that its clock names.

        Parameters
        ----------
        extra : mapping of int to sequence of Stamped
            By position, events that come before as well. Where clocks contradict
            each other the order is that of the walk.
        """
        more = extra or {}
        done: set[int] = set()
        for root in self.settled():
            if root.position in done:
                continue
            done.add(root.position)
            stack = [(root, self._causes(root, more))]
            while stack:
                event, rest = stack[-1]
                deeper = next((e for e in rest if e.position not in done), None)
                if deeper is None:
                    yield event
                    stack.pop()
                else:
                    done.add(deeper.position)
                    stack.append((deeper, self._causes(deeper, more)))

    def _causes(self, event: Stamped, more: Mapping[int, Sequence[Stamped]]) -> Iterator[Stamped]:
        yield from self.knowns(event)
        yield from more.get(event.position, ())
