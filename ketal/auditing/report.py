"""Auditing: is a log a possible vector-clocked execution, and if not, where not?

`audit` reads a log whole, execution by execution, hands its events to
`ketal.auditing.consistency`, which finds the contradictions, and reports each fault
with file, line, dot, one sentence and what to do about it. The codes are stable;
`docs/audit.md` shows an example of each.

The one rule: a fault is named once, where its cause is. A valid log has none, whatever
the order of its lines; what is no event at all (a line that is no JSON, text that the
regular expression does not match) has no clock to judge and is counted only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ketal.auditing.consistency import examine
from ketal.auditing.faults import CODES, Audit, Fault
from ketal.auditing.log_model import AuditedEvent, AuditedExecution, Finding
from ketal.auditing.log_statistics import Statistics, measured, summed
from ketal.auditing.restarts import read_restarts
from ketal.logs import Log
from ketal.logs.log_records import too_many_error
from ketal.logs.traces.message_pairing import Messages
from ketal.model.events.control import Control
from ketal.model.events.draft import Draft
from ketal.model.events.event import Event
from ketal.model.limits import DEFAULT, Limits
from ketal.model.log_arguments import records_of
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.wording import file_and_line

__all__ = ["CODES", "Audit", "Examined", "Fault", "audit", "examined", "summarised"]


@dataclass(slots=True)
class Examined:
    """One execution with its findings, from which `ketal.auditing.repair` begins.

    Attributes
    ----------
    name : str
        The execution's name.
    messages : Messages or None
        What pairs its sends and receives.
    events : list of AuditedEvent
        Its events as they were read.
    controls : list of (position, Control)
        Its control events.
    rejected : list of Rejected
        The records that are no event.
    execution : AuditedExecution
        Its events and findings.
    aside : list of AuditedEvent
        Events that were not judged: of a node that restarted at an unknown time.
    """

    name: str
    messages: Messages | None
    events: list[AuditedEvent] = field(default_factory=list)
    controls: list[tuple[int, Control]] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    execution: AuditedExecution = field(default_factory=AuditedExecution)
    aside: list[AuditedEvent] = field(default_factory=list)

    def add(
        self, position: int, item: Event | Draft | Control | Rejected, file: str = "", line: int = 0
    ) -> bool:
        """Add a record of the log; return whether it is an event to be judged."""
        if isinstance(item, Control):
            self.controls.append((position, item))
            return False
        if isinstance(item, Rejected) and item.draft is None:
            self.rejected.append(item)
            return False
        event = item.draft if isinstance(item, Rejected) else item
        assert event is not None
        clock = event.clock if isinstance(event, Event) else {}
        counter = clock.get(event.node, 0)
        self.events.append(AuditedEvent(event, file, line, position, event.node, counter, clock))
        return True

    def examine(self) -> None:
        """Find the faults of the events, nodes that started again read as incarnations."""
        left = _departed(self.events, self.controls)
        restarts = read_restarts(self.events, self.controls, left)
        left |= restarts.departed | {e.node for e in restarts.events if e.read.node in left}
        self.execution, self.aside = examine(restarts.events, left, self.messages), restarts.aside
        for event, base in restarts.starts:
            which = f"and its events from here on are read as {event.node}"
            if event.node == base:
                which = "and the order of the file does not say which event is of which run"
            message = f"{base} starts again: its counter is 1 once more, {which}"
            self.execution.report("A011", event, message, dot=event.dot)
        self.execution.findings.sort(key=lambda f: (f.event.position, f.code, f.message))


def audit(
    log: Log | Iterable[Event],
    *,
    match_messages: str | Mapping[str, str] | None = None,
    limits: Limits = DEFAULT,
) -> Audit:
    """Check that a log can be a vector-clocked execution.

    Parameters
    ----------
    log : Log or iterable of Event
        What to check; the order of its lines does not matter.
    match_messages : str or mapping, optional
        Which events send and receive messages, and what names a message, as
        `id=msg.id,send=type:send,receive=type:recv`; a receive must then know
        its send.
    limits : Limits
        `events_max` bounds what is held in memory.

    Returns
    -------
    Audit
        Faults, each named once, and statistics.

    Raises
    ------
    SettingError
        If the log cannot be read, `match_messages` is wrong, or the log has more
        than `events_max` events.
    TypeError
        If an argument is of another class than it must be.

    Examples
    --------
    >>> import ketal
    >>> a = ketal.Event(node="a", type="send", clock={"a": 1})
    >>> b = ketal.Event(node="b", type="receive", clock={"a": 2, "b": 1})
    >>> print(ketal.audit([a, b]).faults[0].message)
    b@1 refers to a@2, but the last event of a in the log is a@1
    """
    messages = None if match_messages is None else Messages.of(match_messages)
    return summarised(examined(log, messages, Limits.given(limits)))


def summarised(parts: list[Examined]) -> Audit:
    """Return the audit of a log from its examined executions."""
    faults = tuple(fault for part in parts for fault in _faults(part))
    named = {part.name: _statistics(part) for part in parts}
    several = named.keys() - {""}
    return Audit(
        faults=faults, statistics=summed(named) if several else named.get("", Statistics())
    )


def examined(
    log: Log | Iterable[Event], messages: Messages | None, limits: Limits = DEFAULT
) -> list[Examined]:
    """Return each execution of a log with its findings."""
    parts: dict[str, Examined] = {}
    count = 0
    for position, (name, item, file, line) in enumerate(records_of(log)):
        part = parts.get(name)
        if part is None:
            part = parts[name] = Examined(name, messages)
        count += part.add(position, item, file, line)
        if count > limits.events_max:
            raise too_many_error("events", limits, "an audit")
    for part in parts.values():
        part.examine()
    return list(parts.values())


def _departed(events: list[AuditedEvent], controls: list[tuple[int, Control]]) -> set[str]:
    """Return the nodes that have left at some time, by their word or by a view."""
    left: set[str] = set()
    members: set[str] = set()
    for position, control in controls:
        if control.kind == "leave" and control.node is not None:
            left.add(control.node)
        elif control.kind == "view":
            before = {event.node for event in events if event.position < position}
            left |= (members | before) - set(control.members)
            members = set(control.members)
    return left


def _faults(part: Examined) -> Iterator[Fault]:
    for finding in part.execution.findings:
        event = finding.event
        yield Fault(
            file=event.file,
            line=event.line or None,
            code=finding.code,
            message=finding.message,
            hint=_hint(finding, part),
            dot=str(finding.dot) if finding.dot is not None else "",
            execution=part.name,
        )


def _hint(finding: Finding, part: Examined) -> str:
    hint = CODES[finding.code][1]
    if finding.code != "A004" or not part.rejected:
        return hint
    # A record that could not be read may be the missing one.
    before = part.execution.before(finding.event)
    for item in part.rejected:
        file, line = file_and_line(item.place)
        first = before.line if before is not None and before.file == file else 0
        if file == finding.event.file and first < line < finding.event.line:
            return f"{item.place} could not be read and may be it: {item.reason}"
    return hint


def _statistics(part: Examined) -> Statistics:
    execution = part.execution
    events = sorted(execution.settled(), key=lambda event: event.position)
    pairing, messages = execution.pairing, None
    if pairing is not None:
        messages = {
            "pairs": len(pairing.sends),
            "unreceived": pairing.unreceived,
            "unsent": len(pairing.unsent),
            "ambiguous": len(pairing.ambiguous),
        }
    return replace(
        measured([event.as_event() for event in events]),
        # Those without a dot of their own are there, too.
        events=len(execution.events) + len(part.aside),
        duplicates=execution.duplicates,
        rejected=len(part.rejected),
        first_rejected="".join(f"{one.place}: {one.reason}" for one in part.rejected[:1]),
        messages=messages,
    )
