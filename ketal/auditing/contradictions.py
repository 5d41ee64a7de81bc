"""Clocks that contradict each other: not transitive, backwards along a node, or missing a send.

Each entry of an event's clock is at least that of the events which it knows. It suffices to compare
an event with its predecessor and with the events that its new entries name. So each contradiction
shows as a *case* (f, e, m): e knows f, and f's entry of m is greater than e's. In each case, one of
three entries is wrong: e's entry of m is too low, e's entry of f's node is too high (e does not
know f), or f's entry of m is too high. If f and e are events of one node, the entry goes backwards.
If e receives the message that f sent, e knows f whatever its clock has, and only its entry of f's
node can be wrong. An entry that a node dropped, or merged only in part, is too low at all of the
node's events from then on.

Cases that share an entry may have one cause. If one entry takes part in all of them, and there is a
value for it that agrees with the events around it, that entry is the fault. Otherwise several
entries are wrong, and which ones is undecidable: then each entry that is too low is reported, at
the first event where it is.

The one rule: of entries that explain the same cases, one that is too low is blamed before one that
is too high, then one of the event that knows before one of the event that is known, then the first
in the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from ketal.auditing.log_model import AuditedEvent, AuditedExecution
from ketal.model.graph_walks import reachable


class Role(IntEnum):
    """How an entry takes part in a case (f, e, m), in the order of blame.

    LOW: e's entry of m; CLAIMS: e's entry of f's node; HIGH: f's entry of m.
    """

    LOW = 0
    CLAIMS = 1
    HIGH = 2


_Entry = tuple[AuditedEvent, str]
"""An entry of an event's clock, by the node that it is for."""


class Case(NamedTuple):
    """`event` knows `known`, whose entry of `name` is greater than the event's."""

    known: AuditedEvent
    event: AuditedEvent
    name: str
    received: bool = False

    @property
    def goes_backwards(self) -> bool:
        """Whether an entry goes backwards along a node."""
        return self.known.node == self.event.node

    def entries(self) -> Iterator[_Entry]:
        """Yield the entries of which at least one is wrong."""
        if self.received:
            yield self.event, self.name
            return
        if self.name != self.event.node:
            yield self.event, self.name
        if not self.goes_backwards:
            yield self.event, self.known.node
        yield self.known, self.name

    def role(self, event: AuditedEvent, name: str) -> Role:
        """Return how an event's entry takes part in the case."""
        if event is self.known:
            return Role.HIGH
        return Role.LOW if name == self.name else Role.CLAIMS


def find_contradictions(execution: AuditedExecution) -> None:
    """Report the entries that explain all contradictions, and mark them unknown."""
    for lacks in _group_lacks(_find_lacks(execution)):
        _explain(execution, lacks)


def _find_cases(execution: AuditedExecution) -> Iterator[Case]:
    """Yield the contradictions between events and the events that they know, in node order."""
    for node, line in execution.lines.items():
        before: AuditedEvent | None = None
        for event in line.events():
            old: dict[str, int] = {}
            if before is not None:
                for name in event.lacks(before):
                    yield Case(before, event, name)
                if before.unknown:
                    yield from _cases_beyond_unknown(execution, before, event)
                else:
                    # Entries equal to the predecessor's were compared at the predecessor.
                    old = before.clock
            for name, value in event.clock.items():
                if name == node or old.get(name) == value or name in event.unknown:
                    continue
                if (known := execution.event_named(name, value)) is not None:
                    for lacked in event.lacks(known):
                        yield Case(known, event, lacked)
            for send in execution.sends.get(event.position, ()):
                knows = event.entry(send.node) - (send.node == node) >= send.counter
                if knows or send.node in event.unknown:
                    continue
                if execution.has_certain_dot(send) and execution.has_certain_dot(event):
                    yield Case(send, event, send.node, received=True)
            before = event


def _cases_beyond_unknown(
    execution: AuditedExecution, before: AuditedEvent, event: AuditedEvent
) -> Iterator[Case]:
    """Yield the cases of entries below their last known value before an unknown one."""
    names = set(before.unknown)
    if not names:  # `before` has no clock: compare with the last event that has one
        stamped = execution.predecessor_with_entry(before, event.node)
        if stamped is not None:
            names.update(stamped.unknown, stamped.clock)
    for name in sorted(names):
        if name == event.node or name in event.unknown:
            continue
        earlier = execution.predecessor_with_entry(before, name)
        if earlier is not None and earlier.clock.get(name, 0) > event.clock.get(name, 0):
            yield Case(earlier, event, name)


# --- the wrong entries ------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Lack:
    """An entry of a node's clock that is too low, less than `needed`, from an event on."""

    event: AuditedEvent
    name: str
    needed: int
    cases: list[Case]

    def continues_at(self, *events: AuditedEvent | None) -> bool:
        """Return whether the entry is too low in all of the given later events of the node, too."""
        return all(e is not None and e.clock.get(self.name, 0) < self.needed for e in events)

    def events(self, execution: AuditedExecution) -> Iterator[AuditedEvent]:
        """Yield the consecutive events whose entry is too low."""
        walk: AuditedEvent | None = self.event
        while walk is not None and self.continues_at(walk):
            yield walk
            walk = execution.successor(walk)


def _find_lacks(execution: AuditedExecution) -> list[_Lack]:
    """Return the entries that are too low in an execution, those of each node in its order."""
    last: dict[tuple[str, str], _Lack] = {}
    lacks = []
    for case in _find_cases(execution):
        event, name, value = case.event, case.name, case.known.entry(case.name)
        lack = last.get((event.node, name))
        if lack is not None and event is lack.event:
            lack.needed = max(lack.needed, value)
        elif lack is None or not lack.continues_at(event, execution.predecessor(event)):
            lack = last[event.node, name] = _Lack(event, name, value, [])
            lacks.append(lack)
        lack.cases.append(case)
    return lacks


def _group_lacks(lacks: list[_Lack]) -> Iterator[list[_Lack]]:
    """Yield groups of lacks whose cases share entries, directly or through others."""
    sharing: dict[int | _Entry, list[int | _Entry]] = {}
    for at, lack in enumerate(lacks):
        for case in lack.cases:
            for entry in case.entries():
                sharing.setdefault(at, []).append(entry)
                sharing.setdefault(entry, []).append(at)
    done: set[int | _Entry] = set()
    for at in range(len(lacks)):
        if at not in done:
            group = reachable((at,), sharing)
            done |= group
            yield [lacks[n] for n in sorted(n for n in group if isinstance(n, int))]


def _explain(execution: AuditedExecution, lacks: list[_Lack]) -> None:
    """Report the entry that explains a group of lacks, or each entry that is too low."""
    cases = [case for lack in lacks for case in lack.cases]
    common = set(cases[0].entries())
    for case in cases:
        common.intersection_update(case.entries())
    ranked = sorted(
        (min(case.role(event, name) for case in cases), event.position, name, event)
        for event, name in common
    )
    alone = [one for one in ranked if _may_be_wrong(execution, one[3], one[2], cases)]
    # An entry merged in part is too low as long as the node claims to know the event it is from.
    partly = [one for one in ranked if one[0] is Role.CLAIMS and len(lacks) > 1]
    if alone or partly:
        role, _, name, event = (alone or partly)[0]
        _report(execution, event, name, role, cases, certain=len(alone) == 1)
        event.unknown |= {name}
        return
    for lack in lacks:
        event, name, role = lack.event, lack.name, Role.LOW
        wrong: Iterable[AuditedEvent] = lack.events(execution)
        if name == event.node:
            # Each event is before the other, so one of them does not know the other.
            name, role, wrong = lack.cases[0].known.node, Role.CLAIMS, [event]
        at_event = [case for case in lack.cases if case.event is event]
        _report(execution, event, name, role, at_event, certain=False)
        for one in wrong:
            one.unknown |= {name}


def _may_be_wrong(
    execution: AuditedExecution, event: AuditedEvent, name: str, cases: list[Case]
) -> bool:
    """Return whether the events around an event agree with each other without its entry."""
    if any(case.received for case in cases):
        # No other entry can be wrong, though later events of the node may lack the same.
        return True
    low, high = execution.entry_bounds(event, name)
    if high is not None and low > high:
        return False
    after = execution.successor(event)
    if after is None or after.clock.get(name, 0) != event.clock.get(name, 0):
        return True
    # An entry that the next event shares was not compared again.
    return not any(case.name in after.lacks(case.known) for case in cases)


# --- reports -----------------------------------------------------------------------------


def _report(
    execution: AuditedExecution,
    event: AuditedEvent,
    name: str,
    role: Role,
    cases: list[Case],
    *,
    certain: bool,
) -> None:
    """Report a wrong entry, with the clearest of its cases."""
    shown = [case for case in cases if case.received or case.role(event, name) is role]
    case = min(shown, key=lambda case: (not case.received, not case.goes_backwards))
    code = "A009" if case.received else "A008"
    if case.goes_backwards and not case.received:
        code = "A010"
    message = _message(case, event, role)
    execution.report(code, event, message, dot=event.dot, blamed={name}, certain=certain)


def _message(case: Case, blamed: AuditedEvent, role: Role) -> str:
    """Return a sentence that says how the entry of the blamed event is wrong."""
    known, event, name, received = case
    less, more = event.clock.get(name, 0), known.entry(name)
    if received:
        message = f"{event.dot} receives a message from {known.dot} but does not know {known.dot}"
        return message if case.goes_backwards else f"{message}: its entry for {name} is {less}"
    if case.goes_backwards:
        values = f"it is {less} at {event.dot}, but {more} at the earlier {known.dot}"
        if blamed is known:
            values = f"it is {more} at {known.dot}, but {less} at the later {event.dot}"
        return f"the entry for {name} goes backwards: {values}"
    if role is not Role.HIGH:
        message = f"{event.dot} knows {known.dot}, which knows {name}@{more}"
        if name == event.node:
            return f"{message}: a cycle in happened-before"
        return f"{message}, but {event.dot} itself does not: its entry for {name} is {less}"
    if name == event.node:
        message = f"{known.dot} knows {name}@{more}, and {event.dot} knows {known.dot}"
        return f"{message}: a cycle in happened-before"
    return (
        f"{known.dot} claims to know {name}@{more}, but {event.dot}, which knows {known.dot}, "
        f"does not: its entry for {name} is {less}"
    )
