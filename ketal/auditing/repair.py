"""Repair: a corrected log, where the cause of a fault is unambiguous.

A wrong own entry is written anew if one place only fits the event, and no other
event with its dot fits there. Any other entry that was blamed is written anew
if no other entry explains the same fault, and if its value can be one only: at
least what the events knew that it knows, at most what those know that know it,
and never so much that it would name an event which knows what this one does not
(Mattern, "Virtual time and global states of distributed systems", 1989).

Where messages are matched, clocks are rebuilt from them and from the order of
each node. If no event knows more than that, they are all the messages that there
were, and they decide. What a node did not learn of a message, its later events
lack too; they get it.

The one rule: an ambiguous fault is left as it was, and reported. The corrected log is
audited again: if it has a fault that the log did not have, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ketal.auditing.log_model import AuditedEvent, Everything, Finding
from ketal.auditing.report import Examined, examined
from ketal.logs import Log
from ketal.model.event import Control, Dot, Draft, Event
from ketal.model.verdicts import Rejected


@dataclass(frozen=True, kw_only=True)
class Correction:
    """One event that was changed, or a fault that was left.

    Attributes
    ----------
    file, line
        Where the event stood.
    code : str
        The fault; empty for an event that changed because of another one.
    dot : str
        The event's dot, as it is now; empty where it has none.
    message : str
        What was changed, or why nothing was.
    """

    file: str
    line: int
    code: str
    dot: str
    message: str

    def to_dict(self, kind: str) -> dict[str, object]:
        """Return it as a line of JSON; `kind` is `changed` or `left`."""
        place: dict[str, object] = {"file": self.file, "line": self.line}
        return {kind: self.message, **place, "code": self.code or None, "dot": self.dot or None}

    def __str__(self) -> str:
        code = f"[{self.code}]" if self.code else ""
        return f"{self.file}:{self.line}: {code}{' ' if code else ''}{self.message}"


@dataclass(frozen=True, kw_only=True)
class Repair:
    """A corrected log, and what was done to it.

    Attributes
    ----------
    items : tuple of Event, Control or Draft
        The log, in the order of the file; a draft is an event whose clock is none
        and could not be corrected.
    changed, left : tuple of Correction
        The corrections, and the faults that could not be corrected.
    duplicates : int
        How many events were left out because they had been there before.
    """

    items: tuple[Event | Control | Draft, ...]
    changed: tuple[Correction, ...]
    left: tuple[Correction, ...]
    duplicates: int = 0


Clock = dict[str, int]
_Item = tuple[int, Event | Control | Draft]
"""The content of a log at a position."""


@dataclass(slots=True)
class _Decision:
    """The decision about one event: entries that are corrected, and why others are not."""

    entries: Clock = field(default_factory=dict)
    left: list[tuple[Finding, str]] = field(default_factory=list)
    corrected: list[Finding] = field(default_factory=list)

    def leave_all(self, why: str) -> None:
        """Correct nothing after all."""
        self.left += [(finding, why) for finding in self.corrected]
        self.corrected, self.entries = [], {}


def repaired(part: Examined) -> Repair:
    """Correct one execution of a log."""
    decisions = _Deciding(part).decisions()
    renamed = frozenset(
        f.event.read.node
        for f in part.execution.findings
        if f.code == "A011" and f.event.node != f.event.read.node
    )
    items, repair = _corrected(part, decisions, renamed)
    if repair.changed and not _holds(part, items, decisions):
        for decision in decisions.values():
            decision.leave_all("what corrects the faults one by one contradicts other events")
        items, repair = _corrected(part, decisions, frozenset())
    return repair


def _corrected(
    part: Examined, decisions: dict[int, _Decision], renamed: frozenset[str]
) -> tuple[list[_Item], Repair]:
    """Return the log as it was decided, by position and as a repair."""
    items: list[_Item] = list(part.controls)
    items += [(event.position, event.read) for event in part.aside]
    changed: list[Correction] = []
    left = [
        _change(finding, event, why)
        for event in part.aside
        if event.position in decisions
        for finding, why in decisions[event.position].left
    ]
    for event in part.execution.events:
        decision = decisions.get(event.position) or _Decision()
        new, changes = _rewritten(event, decision, renamed)
        items.append((event.position, new))
        left += [_change(finding, event, why) for finding, why in decision.left]
        if changes:
            finding = decision.corrected[0] if decision.corrected else None
            changed.append(_change(finding, event, changes))
    left += [_not_kept(item.place, item.reason) for item in part.rejected]
    items.sort(key=lambda item: item[0])
    return items, Repair(
        items=tuple(item for _, item in items),
        changed=tuple(changed),
        left=tuple(left),
        duplicates=part.execution.duplicates,
    )


def _holds(part: Examined, items: list[_Item], decisions: dict[int, _Decision]) -> bool:
    """Return whether a corrected log has no fault but those that were left."""
    records = [
        (
            "",
            Rejected(place="", reason="", draft=item) if isinstance(item, Draft) else item,
            "",
            position,
        )
        for position, item in items
    ]
    (again,) = examined(Log(lambda: iter(records)), part.messages, part.limits)
    left = {(f.event.position, f.code) for d in decisions.values() for f, _ in d.left}
    return left.issuperset((f.event.line, f.code) for f in again.execution.findings)


def _change(finding: Finding | None, event: AuditedEvent, message: str) -> Correction:
    code = finding.code if finding is not None else ""
    dot = str(Dot(event.node, event.counter)) if event.counter else ""
    return Correction(file=event.file, line=event.line, code=code, dot=dot, message=message)


def _not_kept(place: str, reason: str) -> Correction:
    file, _, line = place.rpartition(":")
    message = f"not in the corrected log, it is no event: {reason}"
    return Correction(file=file, line=int(line or 0), code="", dot="", message=message)


# --- what an event is written as -----------------------------------------------------------


def _rewritten(
    event: AuditedEvent, decision: _Decision, renamed: frozenset[str]
) -> tuple[Event | Draft, str]:
    """Return an event as it is written, and its changes in words."""
    read = event.read
    raw: Clock = read.clock if isinstance(read.clock, dict) else {}
    node, clock = read.node, {**raw}
    if isinstance(read, Event) and (node in renamed or renamed & clock.keys()):
        # Names of incarnations leave room in a clock for what it had dropped.
        node, clock = event.node, dict(event.clock)
    clock = {n: v for n, v in (clock | decision.entries).items() if v != 0}
    if node == read.node and clock == {n: v for n, v in raw.items() if v != 0}:
        return read, ""
    if not _is_clock(node, clock):
        decision.leave_all("other entries of its clock cannot be told")
        return read, ""
    changes = [f"is an event of {node}"] if node != read.node else []
    changes += [
        f"the entry of {name} was {raw.get(name, 0)!r}"[:80] + f" and is {clock.get(name, 0)}"
        for name in sorted(raw.keys() | clock.keys())
        if raw.get(name, 0) != clock.get(name, 0)
    ]
    if not raw:
        changes = [f"got the clock {clock}"]
    return Event(node, read.type, clock, read.time, read.data, read.id), "; ".join(changes)


def _is_clock(node: str, clock: Clock) -> bool:
    fine = all(isinstance(v, int) and not isinstance(v, bool) and v > 0 for v in clock.values())
    return fine and node in clock


# --- what can be decided ---------------------------------------------------------------------


class _Deciding:
    """The clocks of an execution, decided event by event in causal order."""

    def __init__(self, part: Examined) -> None:
        self._execution = part.execution
        self._findings: dict[int, list[Finding]] = {}
        for finding in part.execution.findings:
            self._findings.setdefault(finding.event.position, []).append(finding)
        self._matched = part.pairing is not None
        self._sends: dict[int, list[AuditedEvent]] = {}
        for send, receive in part.execution.pairs:
            if send.counter and receive.counter:
                self._sends.setdefault(receive.position, []).append(send)
        self._learned: dict[int, Clock] = {}
        self._fixed: dict[int, Clock] = {}
        self._complete = self._matched and self._messages_explain_all()

    def decisions(self) -> dict[int, _Decision]:
        """Return the decisions about events with faults, or that lack learned entries."""
        decisions: dict[int, _Decision] = {}
        for event in self._execution.in_causal_order(self._sends):
            at = event.position
            if self._matched or at in self._findings or event.unknown:
                decision = self._decided(event)
                if decision.entries or event.unknown:
                    self._fixed[at] = self._trusted(event) | decision.entries
                decisions[at] = decision
        for at, findings in self._findings.items():
            if at not in decisions:
                decisions[at] = _Decision(left=[(f, _why_no_place(f)) for f in findings])
        return decisions

    # --- the clocks around an event ---

    def _trusted(self, event: AuditedEvent) -> Clock:
        clock = {n: v for n, v in event.clock.items() if n not in event.unknown}
        clock[event.node] = event.counter
        return clock

    def _clock(self, event: AuditedEvent) -> Clock:
        """Return the clock of an event as far as known, with the entries decided so far."""
        return self._fixed.get(event.position) or self._trusted(event)

    def _learned_by_messages(self, event: AuditedEvent) -> Clock:
        """Return the clock that messages and the order of its node give an event."""
        before = self._execution.before(event)
        clock: Clock = {}
        for known in (*([before] if before else ()), *self._sends.get(event.position, ())):
            for name, value in self._learned.get(known.position, {}).items():
                clock[name] = max(value, clock.get(name, 0))
        clock[event.node] = event.counter
        return clock

    def _messages_explain_all(self) -> bool:
        """Return whether no event knows more than messages and the order of nodes explain.

        Then the messages that were matched are all that there were.
        """
        for event in self._execution.in_causal_order(self._sends):
            learned = self._learned[event.position] = self._learned_by_messages(event)
            if any(v > learned.get(n, 0) for n, v in self._trusted(event).items()):
                return False
        return True

    def _least(self, event: AuditedEvent) -> Clock:
        """Return the least clock of an event, from the events that it knows."""
        least: Clock = {}
        for known in (*self._execution.knowns(event), *self._sends.get(event.position, ())):
            for name, value in self._clock(known).items():
                if name != event.node and value > least.get(name, 0):
                    least[name] = value
        return least

    # --- decisions ---

    def _decided(self, event: AuditedEvent) -> _Decision:
        decision = _Decision()
        least = self._least(event)
        blamed: set[str] = set()
        for finding in self._findings.get(event.position, ()):
            names = self._execution.lines.keys() - {event.node} if _no_clock(event) else set()
            names = names | finding.blamed
            blamed |= names
            values, why = self._values(finding, event, names, least)
            if why:
                decision.left.append((finding, why))
                continue
            decision.corrected.append(finding)
            decision.entries |= values
        for name in sorted((event.unknown & self._execution.lines.keys()) - blamed):
            # The same as at an event before it; what was lost stays as it is.
            if event.clock.get(name, 0) <= self._execution.lines[name].top:
                value, why = self._value(event, name, least)
                if not why:
                    decision.entries[name] = value
        if self._matched:
            for name, value in least.items():
                if value > event.clock.get(name, 0) and name not in event.unknown:
                    decision.entries[name] = value
        return decision

    def _values(
        self, finding: Finding, event: AuditedEvent, names: Iterable[str], least: Clock
    ) -> tuple[Clock, str]:
        """Return the entries that correct a fault, or why there are none."""
        code = finding.code
        if code == "A004":
            return {}, f"{finding.dot} is lost, and nothing says what it was"
        if code == "A011":
            return {}, "" if event.node != event.read.node else _why_no_place(finding)
        if code in ("A001", "A002", "A003") and not finding.certain:
            return {}, "more than one place fits it"
        messages_explain = self._messages_tell(event)
        if not finding.certain and code in ("A006", "A007"):
            return {}, "what it refers to may be lost"
        if not finding.certain and code != "A009" and not messages_explain:
            return {}, "another entry may be wrong instead"
        values = {event.node: event.counter} if code in ("A001", "A002", "A003") else {}
        for name in sorted(names):
            if code == "A009":
                values[name] = max(least.get(name, 0), event.clock.get(name, 0))
                continue
            value, why = self._value(event, name, least)
            if why:
                hint = "" if self._matched else " (--match-messages may tell)"
                return {}, why + hint
            values[name] = value
        if names and all(values[name] == event.clock.get(name, 0) for name in names):
            return {}, "another entry may be wrong instead"
        return values, ""

    def _messages_tell(self, event: AuditedEvent) -> bool:
        """Return whether an event learned exactly the clocks of its messages."""
        return self._complete and event.position not in self._execution.unsure

    def _value(self, event: AuditedEvent, name: str, least: Clock) -> tuple[int, str]:
        """Return the one value that an entry can have, or why there are several."""
        line = self._execution.lines.get(name)
        if line is None or not line.counters:
            return 0, ""
        if self._messages_tell(event):
            return self._learned[event.position].get(name, 0), ""
        low = least.get(name, 0)
        before = self._execution.known_before(event, name)
        if before is not None:
            low = max(low, before.clock.get(name, 0))
        high = min(
            (
                self._clock(e).get(name, 0) - (e.node == name)
                for e in self._execution.later_than(event, name)
            ),
            default=line.top,
        )
        high = min(high, line.top)
        if low > high:
            return 0, f"no value of the entry of {name} agrees with all that is known"
        if low < high and self._can_know(event, name, low + 1):
            return 0, f"the entry of {name} may be anything from {low} to {high}"
        return low, ""

    def _can_know(self, event: AuditedEvent, name: str, counter: int) -> bool:
        """Return whether an event may know a dot: it knows all that the dot's event knows."""
        known = self._execution.lines[name].at.get(counter)
        if known is None:
            return True
        clock = self._clock(event)
        return all(
            value < event.counter if n == event.node else value <= clock.get(n, 0)
            for n, value in self._clock(known).items()
            if n != name and n not in event.unknown
        )


def _no_clock(event: AuditedEvent) -> bool:
    return isinstance(event.unknown, Everything)


def _why_no_place(finding: Finding) -> str:
    """Return why an event without a place among its node's events is left as it was."""
    if finding.code == "A011":
        return "which of its events are of which run cannot be told"
    if finding.code in ("A003", "A005"):
        return "which of the events with this dot is right cannot be told"
    return "where among its node's events it belongs cannot be told"
