"""Auditing: is a log a possible vector-clocked execution, and if not, where not?

`audit` reads a log whole, execution by execution, hands its events to
`ketal.consistency`, which finds what contradicts what, and says each fault with
file, line, dot, one sentence and what to do about it. The codes are stable;
`docs/audit.md` shows an example of each.

The one rule: a fault is named once, where its cause is. A valid log has none,
whatever the order of its lines; what is no event at all (a line that is no JSON,
text that the regular expression does not match) says nothing about clocks and is
counted, not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ketal.consistency import Entry, Execution, Finding
from ketal.errors import SettingError
from ketal.event import Control, Draft, Event
from ketal.limits import DEFAULT, Limits
from ketal.logs import Log, Record
from ketal.logs.messages import Messages, Pairing, paired
from ketal.measuring import Statistics, measured, summed
from ketal.verdicts import Rejected

CODES = {
    "A001": (
        "own entry missing",
        "stamp each event after its node has counted it, so that its own entry is its number",
    ),
    "A002": (
        "no vector clock",
        "a clock maps nodes to counters from 0; --field clock=PATH says where it is",
    ),
    "A003": (
        "own entry wrong",
        "a node counts its own entry up by one at each event, and a restart begins a new node",
    ),
    "A004": (
        "hole",
        "the event was lost or not logged; `gap` in the order of a pattern lets others go on",
    ),
    "A005": (
        "dot used twice",
        "a node that logs two events without counting stamps both alike; count at each event",
    ),
    "A006": (
        "unknown event",
        "the event was lost or its file is cut off, or the entry is wrong",
    ),
    "A007": (
        "unknown node",
        "give the logs of all nodes together, or look where the name comes from",
    ),
    "A008": (
        "not transitive",
        "to receive is to take over the whole clock of the message, entry by entry",
    ),
    "A009": (
        "send unknown",
        "merge the clock of the message into the receiver's before the receive is stamped",
    ),
    "A010": (
        "entry goes backwards",
        "a node never forgets; a clock is merged with the maximum, never overwritten",
    ),
}
"""Code → (its name, what to do)."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault of a log.

    Attributes
    ----------
    file, line
        Where the event stands; empty and None where it came from code.
    code : str
        `A` and three digits; stable.
    message, hint : str
        One sentence that says what is wrong, and one that says what to do.
    dot : str
        The dot it is about; empty where that cannot be told.
    execution : str
        The execution's name where a log holds several, else empty.
    severity : str
        `error`.
    """

    file: str
    line: int | None
    code: str
    message: str
    hint: str
    dot: str = ""
    execution: str = ""
    severity: str = "error"

    def to_dict(self) -> dict[str, Any]:
        """Return the fault as the JSON object of INTERFACE."""
        out: dict[str, Any] = {
            "file": self.file,
            "line": self.line,
            # A record begins its line; which of its entries is meant, the message says.
            "column": None if self.line is None else 1,
            "end_line": None,
            "end_column": None,
            "severity": self.severity,
            "code": self.code,
            "pattern": "",
            "message": self.message,
            "hint": self.hint,
            "dot": self.dot or None,
        }
        if self.execution:
            out["execution"] = self.execution
        return out

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file else ""
        which = f" (execution {self.execution})" if self.execution else ""
        return f"{place}{self.severity}[{self.code}]: {self.message}{which}"


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What an audit found.

    Attributes
    ----------
    faults : tuple of Fault
        In file order.
    statistics : Statistics
        Numbers about the log.
    """

    faults: tuple[Fault, ...]
    statistics: Statistics

    @property
    def clean(self) -> bool:
        """Return whether the log can be a vector-clocked execution."""
        return not self.faults

    def to_dict(self) -> dict[str, Any]:
        """Return faults and statistics as plain data."""
        return {
            "faults": [fault.to_dict() for fault in self.faults],
            "statistics": self.statistics.to_dict(),
        }

    def __str__(self) -> str:
        said = [str(fault) for fault in self.faults]
        number = f"{len(said):,} fault{'' if len(said) == 1 else 's'}"
        events = f"{self.statistics.events:,} events of {self.statistics.nodes:,} nodes"
        return "\n".join([*said, f"{number} in {events}"])


@dataclass(slots=True)
class Examined:
    """One execution with what was found in it; what `repairing` begins from.

    Attributes
    ----------
    name : str
        The execution's name.
    execution : Execution
        Its events and findings.
    controls : list of (position, Control)
        Its control events.
    rejected : list of Rejected
        What is no event.
    pairing : Pairing or None
        How its messages pair, where they were matched.
    pairs : list of (Entry, Entry)
        Sends and receives.
    """

    name: str
    execution: Execution
    controls: list[tuple[int, Control]]
    rejected: list[Rejected]
    pairing: Pairing | None
    pairs: list[tuple[Entry, Entry]]


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

    Examples
    --------
    >>> a = Event(node="a", type="send", clock={"a": 1})
    >>> b = Event(node="b", type="receive", clock={"a": 2, "b": 1})
    >>> print(audit([a, b]).faults[0].message)
    b@1 refers to a@2, but the last event of a in the log is a@1
    """
    messages = None if match_messages is None else Messages.of(match_messages)
    return summarised(examined(log, messages, limits))


def summarised(parts: list[Examined]) -> Audit:
    """Return what was found in the executions of a log."""
    faults = [fault for part in parts for fault in _faults(part)]
    statistics = {part.name: _statistics(part) for part in parts}
    if list(statistics) == [""]:
        return Audit(faults=tuple(faults), statistics=statistics[""])
    if not statistics:
        return Audit(faults=(), statistics=Statistics())
    return Audit(faults=tuple(faults), statistics=summed(statistics))


def examined(
    log: Log | Iterable[Event], messages: Messages | None, limits: Limits = DEFAULT
) -> list[Examined]:
    """Return each execution of a log with its findings."""
    entries: dict[str, list[Entry]] = {}
    controls: dict[str, list[tuple[int, Control]]] = {}
    rejected: dict[str, list[Rejected]] = {}
    count = 0
    for position, (name, item, file, line) in enumerate(_records(log)):
        held = entries.setdefault(name, [])
        if isinstance(item, Control):
            controls.setdefault(name, []).append((position, item))
            continue
        event: Event | Draft | None = item if isinstance(item, Event) else item.draft
        if event is None:
            assert isinstance(item, Rejected), item
            rejected.setdefault(name, []).append(item)
            continue
        count += 1
        if count > limits.events_max:
            raise SettingError(
                f"the log has more than {limits.events_max} events (limit events_max), "
                "and an audit holds them all"
            )
        clock = event.clock if isinstance(event, Event) else {}
        counter = clock.get(event.node, 0)
        held.append(Entry(event, file, line, position, counter, clock))
    return [
        _examined(name, held, controls.get(name, []), rejected.get(name, []), messages)
        for name, held in entries.items()
    ]


def _records(log: Log | Iterable[Event]) -> Iterator[Record]:
    if isinstance(log, Log):
        return log.records()
    return (("", item, "", 0) for item in log)


def _examined(
    name: str,
    entries: list[Entry],
    controls: list[tuple[int, Control]],
    rejected: list[Rejected],
    messages: Messages | None,
) -> Examined:
    execution = Execution(entries, _retired(entries, controls))
    pairing, pairs = None, []
    if messages is not None:
        placed = execution.entries
        pairing = paired([_as_event(entry) for entry in placed], messages)
        pairs = [(placed[send], placed[receive]) for receive, send in pairing.sends.items()]
        execution.find_unknown_sends(pairs)
    execution.findings.sort(key=lambda f: (f.entry.position, f.code))
    return Examined(name, execution, controls, rejected, pairing, pairs)


def _retired(entries: list[Entry], controls: list[tuple[int, Control]]) -> set[str]:
    """Return the nodes that have left at some time, by their word or by a view."""
    left: set[str] = set()
    members: set[str] = set()
    for position, control in controls:
        if control.kind == "leave" and control.node is not None:
            left.add(control.node)
        elif control.kind == "view":
            before = {entry.node for entry in entries if entry.position < position}
            left |= (members | before) - set(control.members)
            members = set(control.members)
    return left


def _faults(part: Examined) -> Iterator[Fault]:
    for finding in part.execution.findings:
        entry = finding.entry
        yield Fault(
            file=entry.file,
            line=entry.line if entry.file else None,
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
    # A record that could not be read may be what is missing.
    before = part.execution.lines[finding.entry.node].upto(finding.entry.counter - 1)
    for item in part.rejected:
        file, _, line = item.place.rpartition(":")
        first = before.line if before is not None and before.file == file else 0
        if file == finding.entry.file and line.isdigit() and first < int(line) < finding.entry.line:
            return f"{item.place} could not be read and may be it: {item.reason}"
    return hint


def _statistics(part: Examined) -> Statistics:
    execution = part.execution
    events = sorted(execution.settled(), key=lambda entry: entry.position)
    measures: dict[str, Any] = dict(measured([_as_event(entry) for entry in events]))
    messages = None
    if part.pairing is not None:
        messages = {
            "pairs": len(part.pairing.sends),
            "unreceived": part.pairing.unreceived,
            "unsent": len(part.pairing.unsent),
            "ambiguous": len(part.pairing.ambiguous),
        }
    first = part.rejected[0] if part.rejected else None
    return Statistics(
        **measures,
        duplicates=execution.duplicates,
        rejected=len(part.rejected),
        first_rejected=f"{first.place}: {first.reason}" if first is not None else "",
        messages=messages,
    )


def _as_event(entry: Entry) -> Event:
    """Return the event as it counts: with its dot as it must be, and a clock restored."""
    event = entry.event
    if isinstance(event, Event) and event.clock is entry.clock and event.counter == entry.counter:
        return event
    clock = {name: v for name, v in entry.clock.items() if name not in entry.unknown}
    clock[entry.node] = max(1, entry.counter)
    return Event(event.node, event.type, clock, event.time, event.data, event.id)
