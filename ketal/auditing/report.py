"""Auditing: whether a log is a possible vector-clocked execution, and where it is not.

`audit` reads a whole log, passes the events of each execution to `ketal.auditing.consistency`,
which finds the contradictions, and reports each fault with file, line, dot, one sentence and a hint
how to mend it. The codes are stable; `docs/audit.md` shows an example of each.

The one rule: a fault is reported once, at its cause. A valid log has none, whatever the order of
its lines. Records that are not events (a line that is not JSON, text that the regular expression
does not match) have no clock to judge and are only counted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter

from ketal.auditing.consistency import examine
from ketal.auditing.faults import HINTS, Audit, Fault
from ketal.auditing.log_model import AuditedEvent, AuditedExecution, Finding
from ketal.auditing.log_statistics import Statistics, measure, sum_executions
from ketal.auditing.restarts import read_restarts
from ketal.errors import at_place
from ketal.logs import Log
from ketal.logs.log_records import too_many_error
from ketal.logs.traces.message_pairing import Messages
from ketal.model.events.control import Control
from ketal.model.events.event import Draft, Event
from ketal.model.limits import DEFAULT, Limits
from ketal.model.log_arguments import deciding_log, records_of
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.wording import file_and_line


@dataclass(slots=True)
class ExaminedExecution:
    """One execution with its findings, the input of `ketal.auditing.repair`."""

    name: str
    messages: Messages | None  # which events send and receive messages, if they are matched
    events: list[AuditedEvent] = field(default_factory=list)  # as they were read
    controls: list[tuple[int, Control]] = field(default_factory=list)  # (position, control event)
    rejected: list[Rejected] = field(default_factory=list)  # the records that are not events
    execution: AuditedExecution = field(default_factory=AuditedExecution)
    """The events that are judged, and the findings."""
    unjudged: list[AuditedEvent] = field(default_factory=list)
    """Events that are not judged, of nodes that restarted at an unknown place in the log."""

    def add(
        self, position: int, item: Event | Draft | Control | Rejected, file: str = "", line: int = 0
    ) -> bool:
        """Add a record of the log; return whether it is an event to judge."""
        if isinstance(item, Control):
            self.controls.append((position, item))
            return False
        if isinstance(item, Rejected) and item.draft is None:
            self.rejected.append(item)
            return False
        event = item.draft if isinstance(item, Rejected) else item
        assert event is not None
        clock = event.clock if isinstance(event, Event) else {}
        reason = item.reason if isinstance(item, Rejected) else ""
        counter = clock.get(event.node, 0)
        place = file, line, position
        self.events.append(AuditedEvent(event, *place, event.node, counter, clock, reason=reason))
        return True

    def examine(self) -> None:
        """Find the faults of the events, with restarted nodes read as incarnations."""
        departed = _departed_nodes(self.events, self.controls)
        restarts = read_restarts(self.events, self.controls, departed)
        departed |= restarts.departed | {e.node for e in restarts.events if e.read.node in departed}
        self.execution = examine(restarts.events, departed, self.messages)
        self.unjudged = restarts.unjudged
        for event, base in restarts.starts:
            which = f"from here on its events are read as {event.node}"
            if event.node == base:
                which = "the order of the file does not show the incarnation of each event"
            message = f"{base} restarted: its counter is 1 again; {which}"
            self.execution.report("A011", event, message, dot=event.dot)
        self.execution.findings.sort(key=lambda f: (f.event.position, f.code, f.message))


def audit(
    log: Log | Iterable[Event],
    *,
    match_messages: str | Mapping[str, str] | None = None,
    limits: Limits = DEFAULT,
) -> Audit:
    """Check whether a log can be a vector-clocked execution.

    Parameters
    ----------
    log : Log or iterable of Event
        The events; the order of the lines does not matter.
    match_messages : str or mapping, optional
        Which events send and receive messages, and which attribute identifies a message, as
        `id=msg.id,send=type:send,receive=type:recv`; a receive must then know its send.
    limits : Limits
        `events_max` bounds the events held in memory.

    Returns
    -------
    Audit
        The faults, each reported once, and statistics.

    Raises
    ------
    SettingError
        If the log cannot be read, `match_messages` is wrong, or the log has more
        than `events_max` events.
    TypeError
        If an argument has the wrong type.

    Examples
    --------
    >>> import ketal
    >>> a = ketal.Event(node="a", type="send", clock={"a": 1})
    >>> b = ketal.Event(node="b", type="receive", clock={"a": 2, "b": 1})
    >>> print(ketal.audit([a, b]).faults[0].message)
    b@1 refers to a@2, but the last event of a in the log is a@1
    """
    messages = None if match_messages is None else Messages.of(match_messages)
    return summarise(examine_log(log, messages, Limits.given(limits)))


def summarise(parts: list[ExaminedExecution]) -> Audit:
    """Return the audit of a log from its examined executions."""
    faults = tuple(fault for part in parts for fault in _faults(part))
    named = {part.name: _statistics(part) for part in parts}
    several = named.keys() - {""}
    return Audit(
        faults=faults, statistics=sum_executions(named) if several else named.get("", Statistics())
    )


def examine_log(
    log: Log | Iterable[Event], messages: Messages | None, limits: Limits = DEFAULT
) -> list[ExaminedExecution]:
    """Return each execution of a log with its findings."""
    parts: dict[str, ExaminedExecution] = {}
    count = 0
    for position, (name, item, file, line) in enumerate(records_of(deciding_log(log))):
        part = parts.get(name)
        if part is None:
            part = parts[name] = ExaminedExecution(name, messages)
        count += part.add(position, item, file, line)
        if count > limits.events_max:
            raise too_many_error("events", limits, "an audit")
    for part in parts.values():
        part.examine()
    return list(parts.values())


def _departed_nodes(events: list[AuditedEvent], controls: list[tuple[int, Control]]) -> set[str]:
    """Return the nodes that left at some time, by a leave event or by a view without them."""
    departed: set[str] = set()
    known: set[str] = set()  # the nodes of the last view, and those of events since then
    seen = 0
    for position, control in controls:
        if control.kind == "leave" and control.node is not None:
            departed.add(control.node)
        elif control.kind == "view":
            before = bisect_left(events, position, key=attrgetter("position"))
            known.update(event.node for event in events[seen:before])
            departed |= known.difference(control.members)
            known, seen = set(control.members), before
    return departed


def _faults(part: ExaminedExecution) -> Iterator[Fault]:
    rejected: dict[str, list[tuple[int, Rejected]]] = {}  # by file, with their lines, in order
    for item in part.rejected:
        file, line = file_and_line(item.place)
        rejected.setdefault(file, []).append((line, item))
    for own in rejected.values():
        own.sort(key=itemgetter(0))  # Several open files may have the same name.
    strays = _entries_of_strays(part.execution)
    for finding in part.execution.findings:
        event = finding.event
        yield Fault(
            file=event.file,
            line=event.line or None,
            code=finding.code,
            message=finding.message,
            hint=_hint(finding, part.execution, rejected.get(event.file, ()), strays),
            dot=str(finding.dot) if finding.dot is not None else "",
            execution=part.name,
        )


def _entries_of_strays(
    execution: AuditedExecution,
) -> dict[str, list[tuple[int, AuditedEvent]]]:
    """Return the clock entries of events without a dot of their own, sorted, by the entry's node.

    If such an event was logged under a wrong node, one of its entries is its own.
    """
    counting = {event.node for event in execution.events if event.clock.get(event.node)}
    strays: dict[str, list[tuple[int, AuditedEvent]]] = {}
    for finding in execution.findings:
        event = finding.event
        placed = event.node in counting and event.clock.get(event.node, 0) != event.counter
        if finding.code in ("A001", "A003", "A005") and not placed:
            for node, counter in event.clock.items():
                strays.setdefault(node, []).append((counter, event))
    for entries in strays.values():
        entries.sort(key=itemgetter(0))
    return strays


def _hint(
    finding: Finding,
    execution: AuditedExecution,
    rejected: Sequence[tuple[int, Rejected]],
    strays: Mapping[str, Sequence[tuple[int, AuditedEvent]]],
) -> str:
    """Return how to mend a fault; `rejected` are the rejected records of its file, by line."""
    if finding.code == "A004":
        # A record that could not be read may be the missing event.
        event, before = finding.event, execution.predecessor(finding.event)
        first = before.line if before is not None and before.file == event.file else 0
        for line, item in rejected[bisect_right(rejected, first, key=itemgetter(0)) :][:1]:
            if line < event.line:
                return f"{item.place} was rejected and may be the missing event: {item.reason}"
        hole, entries = finding.dot, strays.get(event.node, ())
        assert hole is not None
        for counter, stray in entries[bisect_left(entries, hole.counter, key=itemgetter(0)) :][:1]:
            if counter < event.counter:
                return (
                    f"{stray.place or 'an event'} may be the missing event, with a wrong node: "
                    f"it is of {stray.node}, and its entry for {hole.node} is {counter}"
                )
    return HINTS[finding.code]


def _statistics(part: ExaminedExecution) -> Statistics:
    execution = part.execution
    events = sorted(execution.events_with_dot(), key=lambda event: event.position)
    pairing, messages = execution.pairing, None
    if pairing is not None:
        messages = {
            "pairs": len(pairing.sends),
            "unreceived": pairing.unreceived,
            "unsent": len(pairing.unsent),
            "ambiguous": len(pairing.ambiguous),
        }
    return replace(
        measure([event.as_event() for event in events]),
        # Including those without a dot of their own.
        events=len(execution.events) + len(part.unjudged),
        duplicates=execution.duplicates,
        rejected=len(part.rejected),
        first_rejected="".join(at_place(one.place, one.reason) for one in part.rejected[:1]),
        messages=messages,
    )
