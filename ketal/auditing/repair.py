"""Repairs a log: corrects the faults whose cause is unambiguous.

A wrong own entry is corrected if only one place fits the event, and no other event with the same
dot fits there. Any other entry that was blamed is corrected if no other entry explains the fault,
and if only one value is possible: at least the entries of the events that the event knows, at most
those of the events that know it, and never so high that it names an event which knows something
that this one does not (Mattern, "Virtual time and global states of distributed systems", 1989).

If messages are matched, clocks are rebuilt from them and from the order of each node. If no event
knows more than the rebuilt clocks, the matched messages are all that there were, and the rebuilt
clocks decide. Entries of a message that the receiver did not merge are added to its later events,
too.

The one rule: an ambiguous fault is reported and not changed. The corrected log is audited again: if
it has a fault that the log did not have, nothing is changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ketal.auditing.dots import is_counter
from ketal.auditing.log_model import OWN_CODES, AuditedEvent, Everything, Finding
from ketal.auditing.report import ExaminedExecution
from ketal.clocks.vector import join
from ketal.errors import at_place
from ketal.model.events.control import Control
from ketal.model.events.event import Draft, Event, known_receives
from ketal.model.wording import file_and_line, place_at


@dataclass(frozen=True, kw_only=True)
class Correction:
    """An event that was corrected, or a fault that was not."""

    file: str
    line: int
    code: str  # the fault; empty for an event that changed because of another one
    dot: str  # the event's dot in the corrected log; empty if it has none
    message: str  # the change, or the reason why there is none

    def to_dict(self, kind: str) -> dict[str, object]:
        """Return the correction as a JSON object; `kind` is `changed` or `left`."""
        place: dict[str, object] = {"file": self.file, "line": self.line}
        return {kind: self.message, **place, "code": self.code or None, "dot": self.dot or None}

    def __str__(self) -> str:
        code = f"[{self.code}] " if self.code else ""
        return at_place(place_at(self.file, self.line), f"{code}{self.message}")


@dataclass(frozen=True, kw_only=True)
class Repair:
    """A corrected log, and the corrections."""

    items: tuple[Event | Control | Draft, ...]
    """The log, in the order of the file; a draft is an event whose clock is invalid and could not
    be corrected."""
    changed: tuple[Correction, ...]  # the corrections
    left: tuple[Correction, ...]  # the faults that could not be corrected
    duplicates: int = 0  # how many duplicates were left out


Clock = dict[str, int]
_Items = dict[int, Event | Control | Draft]
"""The records of a log, by position."""


@dataclass(slots=True)
class _Decision:
    """The decision about one event: the corrected entries, and the faults that are left."""

    entries: Clock = field(default_factory=dict)
    left: list[tuple[Finding, str]] = field(default_factory=list)
    corrected: list[Finding] = field(default_factory=list)

    def leave_all(self, reason: str) -> None:
        """Withdraw all corrections, for the given reason."""
        self.left += [(finding, reason) for finding in self.corrected]
        self.corrected, self.entries = [], {}


def repair_execution(part: ExaminedExecution) -> Repair:
    """Correct one execution of a log."""
    decisions = _Corrector(part).decide_all()
    renamed = frozenset(
        f.event.read.node
        for f in part.execution.findings
        if f.code == "A011" and f.event.node != f.event.read.node
    )
    items, repair = _apply(part, decisions, renamed)
    if repair.changed and not _has_faults_left(part, items, decisions):
        for decision in decisions.values():
            decision.leave_all("correcting the faults one by one contradicts other events")
        items, repair = _apply(part, decisions, frozenset())
    return repair


def _apply(
    part: ExaminedExecution, decisions: dict[int, _Decision], renamed: frozenset[str]
) -> tuple[_Items, Repair]:
    """Apply the decisions; return the log by position, and as a repair."""
    items: _Items = dict(part.controls)
    changed: list[Correction] = []
    left: list[Correction] = []
    for event in (*part.unjudged, *part.execution.events):
        decision = decisions.get(event.position) or _Decision()
        items[event.position], changes = _correct_event(event, decision, renamed)
        dot = str(event.dot) if event.counter else ""
        place: dict[str, Any] = {"file": event.file, "line": event.line, "dot": dot}
        left += [Correction(**place, code=f.code, message=reason) for f, reason in decision.left]
        if changes:
            code = decision.corrected[0].code if decision.corrected else ""
            changed.append(Correction(**place, code=code, message=changes))
    for item in part.rejected:
        file, line = file_and_line(item.place)
        message = f"not an event, so omitted from the corrected log: {item.reason}"
        left.append(Correction(file=file, line=line, code="", dot="", message=message))
    return items, Repair(
        items=tuple(items[position] for position in sorted(items)),
        changed=tuple(changed),
        left=tuple(left),
        duplicates=part.execution.duplicates,
    )


def _has_faults_left(
    part: ExaminedExecution, items: _Items, decisions: dict[int, _Decision]
) -> bool:
    """Audit a corrected log again; return whether it has exactly the faults that were left.

    A fault that was left and is gone is that of two events with one dot which are now equal: the
    correction of one of them would drop the other as a duplicate.
    """
    again = ExaminedExecution(part.name, part.messages)
    for position in sorted(items):
        again.add(position, items[position])
    again.examine()
    left = {(at, f.code) for at, d in decisions.items() if at in items for f, _ in d.left}
    return left == {(f.event.position, f.code) for f in again.execution.findings}


# --- corrected events ----------------------------------------------------------------------


def _correct_event(
    event: AuditedEvent, decision: _Decision, renamed: frozenset[str]
) -> tuple[Event | Draft, str]:
    """Return the corrected event, and its changes in words."""
    read = event.read
    raw: Clock = read.clock if isinstance(read.clock, dict) else {}
    node, clock = read.node, {**raw}
    if isinstance(read, Event) and (node in renamed or renamed & clock.keys()):
        # With names of incarnations, a clock has room for entries that it had dropped.
        node, clock = event.node, dict(event.clock)
    clock = {n: v for n, v in (clock | decision.entries).items() if v != 0}
    if node == read.node and clock == {n: v for n, v in raw.items() if v != 0}:
        return read, ""
    if node not in clock or not all(map(is_counter, clock.values())):
        decision.leave_all("other entries of its clock cannot be determined")
        return read, ""
    changes = [f"the node was {read.node} and is now {node}"] if node != read.node else []
    changes += [
        f"the entry for {name} was {raw.get(name, 0)!r}"[:80] + f" and is now {clock.get(name, 0)}"
        for name in sorted(raw.keys() | clock.keys())
        if raw.get(name, 0) != clock.get(name, 0)
    ]
    if not raw:
        entries = ", ".join(f"{name}:{clock[name]}" for name in sorted(clock))
        changes = [f"the clock is now {entries}"]
    receives = known_receives(read, clock)
    repaired = Event(node, read.type, clock, read.time, read.data, read.id, receives)
    return repaired, "; ".join(changes)


# --- decisions -------------------------------------------------------------------------------


class _Corrector:
    """Corrects the events of an execution in causal order, so that causes are corrected first."""

    def __init__(self, part: ExaminedExecution) -> None:
        self._execution = part.execution
        self._findings: dict[int, list[Finding]] = {}
        for finding in part.execution.findings:
            self._findings.setdefault(finding.event.position, []).append(finding)
        self._matched = part.execution.pairing is not None
        self._rebuilt: dict[int, Clock] = {}
        self._complete = self._matched and self._messages_explain_all()

    def decide_all(self) -> dict[int, _Decision]:
        """Correct the events; return the decisions by position."""
        decisions: dict[int, _Decision] = {}
        for event in self._execution.in_causal_order():
            at = event.position
            if self._matched or at in self._findings or event.unknown:
                decision = decisions[at] = self._decide(event)
                self._execution.correct(event, decision.entries)
        for at, findings in self._findings.items():
            if at not in decisions:
                decisions[at] = _Decision(left=[(f, _no_place_reason(f)) for f in findings])
        return decisions

    # --- messages ---

    def _messages_explain_all(self) -> bool:
        """Return whether no event knows more than messages and program order explain.

        Then the matched messages are all that there were. Fills in the rebuilt clocks (`_rebuilt`).
        """
        execution = self._execution
        for event in execution.in_causal_order():
            before = execution.predecessor(event)
            causes = ([before] if before else []) + self._sends(event)
            learned = join(self._rebuilt.get(known.position, {}) for known in causes)
            learned[event.node] = event.counter
            self._rebuilt[event.position] = learned
            if any(v > learned.get(n, 0) for n, v in event.certain_entries().items()):
                return False
        return True

    def _messages_decide(self, event: AuditedEvent) -> bool:
        """Return whether the rebuilt clock of an event is right."""
        return self._complete and event.position not in self._execution.unsure

    def _sends(self, event: AuditedEvent) -> list[AuditedEvent]:
        return self._execution.sends.get(event.position, [])

    def _known_entries(self, event: AuditedEvent) -> Clock:
        """Return the join of the clocks of the events that an event knows, and of its sends."""
        known = (*self._execution.known_events(event), *self._sends(event))
        clock = join(one.certain_entries() for one in known)
        return {node: counter for node, counter in clock.items() if node != event.node}

    # --- decisions ---

    def _decide(self, event: AuditedEvent) -> _Decision:
        decision = _Decision()
        lines = self._execution.lines
        known = self._known_entries(event) if self._matched else {}
        blamed: set[str] = set()
        for finding in self._findings.get(event.position, ()):
            no_clock = isinstance(event.unknown, Everything)
            names = finding.blamed | (lines.keys() - {event.node} if no_clock else set())
            blamed |= names
            values, reason = self._corrected_entries(finding, names, known)
            if reason:
                decision.left.append((finding, reason))
                continue
            decision.corrected.append(finding)
            decision.entries |= values
        for name in sorted((event.unknown & lines.keys()) - blamed):
            # Wrong as at an event before it; an entry that names a lost event is not changed.
            if event.clock.get(name, 0) <= lines[name].top:
                value, reason = self._only_value(event, name)
                if not reason:
                    decision.entries[name] = value
        for name, value in known.items():
            if value > event.clock.get(name, 0) and name not in event.unknown:
                decision.entries[name] = value
        return decision

    def _corrected_entries(
        self, finding: Finding, names: set[str], known: Clock
    ) -> tuple[Clock, str]:
        """Return the entries that correct a fault, or the reason why there are none."""
        code, event = finding.code, finding.event
        if code == "A004":
            return {}, f"{finding.dot} is lost, and its content is unknown"
        if code == "A011":
            return {}, "" if event.node != event.read.node else _no_place_reason(finding)
        if code == "A009":
            values = {n: max(known.get(n, 0), event.clock.get(n, 0)) for n in names}
        elif not finding.certain and not (
            code in ("A008", "A010") and self._messages_decide(event)
        ):
            return {}, _UNCERTAIN_REASONS[code]
        else:
            values = {event.node: event.counter} if code in OWN_CODES else {}
            for name in sorted(names):
                values[name], reason = self._only_value(event, name)
                if reason:
                    hint = "" if self._matched else " (--match-messages may determine it)"
                    return {}, reason + hint
        is_same = all(values[name] == event.clock.get(name, 0) for name in names)
        # The clock of a draft is without the entries that are no counters.
        if names and is_same and code not in OWN_CODES:
            return {}, _OTHER_ENTRY
        return values, ""

    def _only_value(self, event: AuditedEvent, name: str) -> tuple[int, str]:
        """Return the only possible value of an entry, or the reason why it is not unique."""
        last = self._execution.last(name)
        if last is None:
            return 0, ""
        if self._messages_decide(event):
            return self._rebuilt[event.position].get(name, 0), ""
        low, most = self._execution.entry_bounds(event, name)
        high = last.counter if most is None else min(most, last.counter)
        if low > high:
            return 0, f"no value of the entry for {name} is consistent with the other events"
        if low < high:
            # A higher value means that it knows event low + 1, and so all that this event knows.
            known = self._execution.lines[name].by_counter.get(low + 1)
            if known is None or not event.lacks(known):
                return 0, f"the entry for {name} may be any value from {low} to {high}"
        return low, ""


_NO_PLACE = "more than one correction is possible"
_OTHER_ENTRY = "another entry may be wrong instead"
_LOST = "the event that it refers to may be lost"
_UNCERTAIN_REASONS = {
    "A001": _NO_PLACE, "A002": _NO_PLACE, "A003": _NO_PLACE,
    "A006": _LOST, "A007": _LOST, "A008": _OTHER_ENTRY, "A010": _OTHER_ENTRY,
}  # fmt: skip


def _no_place_reason(finding: Finding) -> str:
    """Return the reason why an event with an uncertain place on its node is not corrected."""
    if finding.code == "A011":
        return "the incarnation of each of its events cannot be determined"
    if finding.code in ("A003", "A005"):
        return "it cannot be determined which of the events with this dot is right"
    return "its position among its node's events cannot be determined"
