"""Clocks that contradict each other: not transitive, or backwards along a node.

An event's clock has at least what the clocks of the events have that it knows.
It is enough to ask that of its predecessor and of the events that its entries
name, and only of the entries that are news. So an execution that is none shows
as *cases* (f, e, m): e knows f, and f's entry of m is greater than e's. In each
one of three entries is wrong: e's of m is too low, e's of f's node claims too
much (it does not know f), or f's of m claims too much. An entry that goes
backwards is the case in which f comes before e on one node.

To blame an entry closes the cases that it takes part in. It may open new ones:
what lies before its event and what lies after it must still agree. The entry is
blamed that closes most cases more than it opens, until none is left: the greedy
cover of a set by few of its subsets (Chvátal, "A greedy heuristic for the
set-covering problem", 1979). An entry that explains all by itself is always
found. What a node forgot, or took over in part, shows at each of its events from
then on; it is blamed once, at the first.

The one rule: of two that explain as much, one entry is blamed before all from
then on, the one that is too low before the one that claims too much, the event
that knows before the one that is known, and what stands first in the file.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from ketal.execution import Execution, Stamped


class Role(IntEnum):
    """How an entry takes part in a case; in the order in which it is blamed."""

    LOW = 0
    CLAIMS = 1
    HIGH = 2
    ONWARD = 3


class Case(NamedTuple):
    """`event` knows `known`, whose entry of `name` is greater than the event's."""

    known: Stamped
    event: Stamped
    name: str

    @property
    def falls(self) -> bool:
        """Whether an entry goes backwards along a node."""
        return self.known.node == self.event.node

    @property
    def key(self) -> tuple[int, int, str]:
        """Return what tells two cases apart."""
        return self.known.position, self.event.position, self.name

    def role(self, event: Stamped, name: str) -> Role:
        """Return how an event's entry takes part in the case."""
        if event is self.known:
            return Role.HIGH
        return Role.LOW if name == self.name else Role.CLAIMS


def find_contradictions(execution: Execution) -> None:
    """Report the entries that explain all contradictions; they are unknown from then on."""
    cases = list(cases_of(execution))
    if cases:
        _Blame(execution, cases).explain()


def cases_of(execution: Execution) -> Iterator[Case]:
    """Yield the contradictions between events and what they know."""
    lines = execution.lines
    for node, line in lines.items():
        before: Stamped | None = None
        for event in line.events():
            old: dict[str, int] = {}
            if before is not None:
                for name in _lacks(before, event):
                    yield Case(before, event, name)
                if before.unknown:
                    yield from _lacks_from_earlier(execution, before, event)
                else:
                    # What the predecessor knew of, it has been asked about.
                    old = before.clock
            for name, value in event.clock.items():
                if name == node or old.get(name) == value or name in event.unknown:
                    continue
                other = lines.get(name)
                known = other.upto(value) if other is not None else None
                if known is not None:
                    for lacked in _lacks(known, event):
                        yield Case(known, event, lacked)
            before = event


def _lacks(known: Stamped, event: Stamped) -> list[str]:
    """Return the nodes of which `known` knows more than `event`, which knows it."""
    clock, node, other = event.clock, event.node, known.node
    out = []
    for name, value in known.clock.items():
        if value > clock.get(name, 0) or name == node:
            if name == other or name in known.unknown or name in event.unknown:
                continue
            if name != node or value >= event.counter:
                out.append(name)
    return out


def _lacks_from_earlier(execution: Execution, before: Stamped, event: Stamped) -> Iterator[Case]:
    """Yield where an event knows less than was known before a predecessor that says nothing."""
    names = set(before.unknown) or event.clock.keys()
    for name in sorted(names - event.unknown - {event.node}):
        earlier = execution.known_before(before, name)
        if earlier is not None and earlier.clock.get(name, 0) > event.clock.get(name, 0):
            yield Case(earlier, event, name)


_Key = tuple[int, str, bool]
_Rank = tuple[int, Role, int, str]


@dataclass(slots=True, eq=False)
class _Suspect:
    """An entry that may be wrong; or `onward`, of all events from this one on."""

    event: Stamped
    name: str
    onward: bool
    cases: list[int]


class _Blame:
    """The cases that are open, and who is suspected of them."""

    def __init__(self, execution: Execution, cases: Iterable[Case]) -> None:
        self._execution = execution
        self._cases: list[Case] = []
        self._open: set[int] = set()
        self._seen: set[tuple[int, int, str]] = set()
        self._suspects: dict[_Key, _Suspect] = {}
        self._heap: list[tuple[_Rank, _Key]] = []
        self._add(cases)

    def explain(self) -> None:
        """Blame entries until no case is open."""
        while self._open:
            rank, key = heapq.heappop(self._heap)
            suspect = self._suspects[key]
            numbers = self._numbers(suspect)
            if not numbers:
                continue
            opened = [] if suspect.onward else list(self._opened(suspect, numbers))
            now = self._rank(suspect, numbers, len(opened))
            if now > rank:
                # It explains less than it seemed to: others may come first.
                heapq.heappush(self._heap, (now, key))
                continue
            certain = not opened and not self._rivals(suspect, numbers)
            self._report(suspect, [self._cases[number] for number in numbers], certain)
            self._open.difference_update(numbers)
            for event in self._events(suspect):
                event.unknown |= {suspect.name}
            self._add(opened)

    def _add(self, cases: Iterable[Case]) -> None:
        """Open cases, and put their suspects in line."""
        touched: dict[_Key, None] = {}
        for case in cases:
            if case.key in self._seen:
                continue
            self._seen.add(case.key)
            number = len(self._cases)
            self._cases.append(case)
            self._open.add(number)
            for event, name, onward in _suspected(case):
                key = event.position, name, onward
                suspect = self._suspects.setdefault(key, _Suspect(event, name, onward, []))
                suspect.cases.append(number)
                touched[key] = None
        for key in touched:
            suspect = self._suspects[key]
            numbers = self._numbers(suspect)
            heapq.heappush(self._heap, (self._rank(suspect, numbers, 0), key))

    def _rank(self, suspect: _Suspect, numbers: list[int], opened: int) -> _Rank:
        event, name = suspect.event, suspect.name
        role = Role.ONWARD
        if not suspect.onward:
            role = min(self._cases[number].role(event, name) for number in numbers)
        return opened - len(numbers), role, event.position, name

    def _numbers(self, suspect: _Suspect) -> list[int]:
        """Return the open cases that a suspect explains."""
        suspect.cases = [number for number in suspect.cases if number in self._open]
        if not suspect.onward:
            return suspect.cases
        # All that its events lack from then on has the same cause.
        found = set(suspect.cases)
        for event in self._events(suspect) if found else ():
            other = self._suspects.get((event.position, suspect.name, False))
            for number in other.cases if other is not None else ():
                if number in self._open and self._cases[number].event is event:
                    found.add(number)
        return sorted(found)

    def _events(self, suspect: _Suspect) -> list[Stamped]:
        """Return the events whose entry is wrong, should the suspect be to blame."""
        event, name = suspect.event, suspect.name
        if not suspect.onward:
            return [event]
        case = self._cases[suspect.cases[0]]
        line = self._execution.lines[event.node]
        events = []
        walk: Stamped | None = event
        while walk is not None and (name in walk.unknown or _persists(case, walk, name)):
            events.append(walk)
            walk = line.above(walk.counter)
        return events

    def _opened(self, suspect: _Suspect, numbers: list[int]) -> Iterator[Case]:
        """Yield the cases that show once an entry says nothing: around its event."""
        event, name = suspect.event, suspect.name
        after = self._execution.after(event)
        for case in (self._cases[number] for number in numbers):
            # What the next event claims as well has not been asked about.
            if after is not None and case.role(event, name) is Role.CLAIMS:
                again = Case(case.known, after, case.name)
                if _persists(case, after, name) and again.key not in self._seen:
                    yield again
        knowns = list(self._knowns_of(event, name))
        if not knowns:
            return
        most = max(knowns, key=lambda known: known.clock.get(name, 0))
        value = most.clock.get(name, 0)
        for later in self._execution.later_than(event, name):
            if value > later.value(name) - (later.node == name) and later is not most:
                case = Case(most, later, name)
                if case.key not in self._seen:
                    yield case

    def _knowns_of(self, event: Stamped, name: str) -> Iterator[Stamped]:
        """Yield what an event knows otherwise than by its entry of a node."""
        execution = self._execution
        before = execution.known_before(event, name)
        if before is not None:
            yield before
        for node, value in event.clock.items():
            if node not in (event.node, name) and node not in event.unknown:
                known = execution.named(node, value)
                if known is not None and name not in known.unknown:
                    yield known

    def _rivals(self, suspect: _Suspect, numbers: list[int]) -> bool:
        """Return whether another entry would explain as much.

        One entry is not rivalled by all from an event on: to forget just what one
        entry claimed too much is no other cause.
        """
        first = self._cases[numbers[0]]
        for event, name, onward in _suspected(first):
            other = self._suspects[event.position, name, onward]
            if other is suspect or (onward and not suspect.onward):
                continue
            explained = self._numbers(other)
            if set(numbers) <= set(explained) and (
                onward or not any(True for _ in self._opened(other, explained))
            ):
                return True
        return False

    def _report(self, suspect: _Suspect, cases: list[Case], certain: bool) -> None:
        event, name = suspect.event, suspect.name
        if suspect.onward:
            cases = [c for c in cases if c.event is event]
        role = min(c.role(event, name) for c in cases)
        falls = next((c for c in cases if c.falls and c.role(event, name) == role), None)
        code, message = "A008", ""
        if role is Role.LOW and falls is not None:
            code, message = "A010", _falls(event, falls.known, name)
        elif role is Role.HIGH:
            case = falls or cases[0]
            if case.falls:
                code, message = "A010", _rises(event, case.event, name)
            else:
                message = _claims(event, case.event, name)
        else:
            case = next(c for c in cases if c.role(event, name) == role)
            message = _not_transitive(case)
        self._execution.report(code, event, message, dot=event.dot, blamed={name}, certain=certain)


def _suspected(case: Case) -> Iterator[tuple[Stamped, str, bool]]:
    """Yield the entries of which one is wrong; True for all entries from an event on."""
    known, event, name = case
    if name != event.node:
        yield event, name, False
        yield event, name, True
    if not case.falls:
        yield event, known.node, False
        yield event, known.node, True
    yield known, name, False


def _persists(case: Case, event: Stamped, name: str) -> bool:
    """Return whether a later event of the node has what makes a case, too."""
    value, needed = event.clock.get(name, 0), case.known.clock.get(case.name, 0)
    if name != case.name:
        # It claims to know the same event, and still lacks what that knows.
        if value != case.event.clock.get(name, 0):
            return False
        value = event.value(case.name) - (event.node == case.name)
    return value < needed


def _falls(event: Stamped, before: Stamped, name: str) -> str:
    return (
        f"the entry of {name} goes backwards: it is {event.clock.get(name, 0)} at {event.dot} "
        f"and was {before.clock.get(name, 0)} at {before.dot}"
    )


def _rises(event: Stamped, after: Stamped, name: str) -> str:
    return (
        f"the entry of {name} goes backwards: it is {event.clock.get(name, 0)} at {event.dot} "
        f"and {after.clock.get(name, 0)} at {after.dot}, which comes later"
    )


def _claims(event: Stamped, later: Stamped, name: str) -> str:
    value = event.clock.get(name, 0)
    if later.node == name:
        return f"{event.dot} knows {name}@{value}, and {later.dot} knows {event.dot}: a round"
    return (
        f"{event.dot} claims to know {name}@{value}, and {later.dot}, which knows {event.dot}, "
        f"does not: its entry of {name} is {later.clock.get(name, 0)}"
    )


def _not_transitive(case: Case) -> str:
    known, event, name = case
    value = known.clock[name]
    if name == event.node:
        return f"{event.dot} knows {known.dot}, which knows {name}@{value}: each before the other"
    return (
        f"{event.dot} knows {known.dot}, which knows {name}@{value}, and {event.dot} does not: "
        f"its entry of {name} is {event.clock.get(name, 0)}"
    )
