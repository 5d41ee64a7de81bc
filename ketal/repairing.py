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

The one rule: what could be otherwise is left as it was, and said.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ketal.auditing import Examined
from ketal.event import Control, Dot, Draft, Event
from ketal.execution import Everything, Finding, Stamped


@dataclass(frozen=True, kw_only=True)
class Change:
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
    changed, left : tuple of Change
        What is other than it was, and what could not be corrected.
    duplicates : int
        How many events were left out because they had been there before.
    """

    items: tuple[Event | Control | Draft, ...]
    changed: tuple[Change, ...]
    left: tuple[Change, ...]
    duplicates: int = 0


Clock = dict[str, int]


@dataclass(slots=True)
class _Decision:
    """What becomes of one event: entries that are written anew, and why others are not."""

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
    items: list[tuple[int, Event | Control | Draft]] = list(part.controls)
    items += [(event.position, event.read) for event in part.aside]
    changed: list[Change] = []
    left = [
        _change(finding, event, why)
        for event in part.aside
        if event.position in decisions
        for finding, why in decisions[event.position].left
    ]
    for event in part.execution.events:
        decision = decisions.get(event.position) or _Decision()
        new, said = _rewritten(event, decision, renamed)
        items.append((event.position, new))
        left += [_change(finding, event, why) for finding, why in decision.left]
        if said:
            finding = decision.corrected[0] if decision.corrected else None
            changed.append(_change(finding, event, said))
    left += [_not_kept(item.place, item.reason) for item in part.rejected]
    items.sort(key=lambda item: item[0])
    return Repair(
        items=tuple(item for _, item in items),
        changed=tuple(changed),
        left=tuple(left),
        duplicates=part.execution.duplicates,
    )


def _change(finding: Finding | None, event: Stamped, message: str) -> Change:
    code = finding.code if finding is not None else ""
    dot = str(Dot(event.node, event.counter)) if event.counter else ""
    return Change(file=event.file, line=event.line, code=code, dot=dot, message=message)


def _not_kept(place: str, reason: str) -> Change:
    file, _, line = place.rpartition(":")
    message = f"not in the corrected log, it is no event: {reason}"
    return Change(file=file, line=int(line or 0), code="", dot="", message=message)


# --- what an event is written as -----------------------------------------------------------


def _rewritten(
    event: Stamped, decision: _Decision, renamed: frozenset[str]
) -> tuple[Event | Draft, str]:
    """Return what an event is written as, and what is other about it."""
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
    said = [f"is an event of {node}"] if node != read.node else []
    said += [
        f"the entry of {name} was {raw.get(name, 0)!r}"[:80] + f" and is {clock.get(name, 0)}"
        for name in sorted(raw.keys() | clock.keys())
        if raw.get(name, 0) != clock.get(name, 0)
    ]
    if not raw:
        said = [f"got the clock {clock}"]
    return Event(node, read.type, clock, read.time, read.data, read.id), "; ".join(said)


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
        self._sends: dict[int, list[Stamped]] = {}
        for send, receive in part.pairs:
            if send.counter and receive.counter:
                self._sends.setdefault(receive.position, []).append(send)
        self._unsure: set[int] = set()
        if part.pairing is not None:
            unsure = (*part.pairing.unsent, *part.pairing.ambiguous)
            self._unsure = {part.execution.events[at].position for at in unsure}
        self._learned: dict[int, Clock] = {}
        self._fixed: dict[int, Clock] = {}
        self._complete = self._matched and self._messages_explain_all()

    def decisions(self) -> dict[int, _Decision]:
        """Return what becomes of each event that is wrong, or lacks what another learned."""
        found: dict[int, _Decision] = {}
        for event in self._execution.in_causal_order(self._sends):
            at = event.position
            if self._matched or at in self._findings or event.unknown:
                decision = self._decided(event)
                if decision.entries or event.unknown:
                    self._fixed[at] = self._trusted(event) | decision.entries
                found[at] = decision
        for at, findings in self._findings.items():
            if at not in found:
                found[at] = _Decision(left=[(f, _why_no_place(f)) for f in findings])
        return found

    # --- the clocks around an event ---

    def _trusted(self, event: Stamped) -> Clock:
        clock = {n: v for n, v in event.clock.items() if n not in event.unknown}
        clock[event.node] = event.counter
        return clock

    def _clock(self, event: Stamped) -> Clock:
        """Return what an event is known to know, entries that were decided among it."""
        return self._fixed.get(event.position) or self._trusted(event)

    def _learned_by_messages(self, event: Stamped) -> Clock:
        """Return the clock that messages and the order of its node give an event."""
        before = self._execution.before(event)
        clock: Clock = {}
        for known in (*([before] if before else ()), *self._sends.get(event.position, ())):
            for name, value in self._learned.get(known.position, {}).items():
                clock[name] = max(value, clock.get(name, 0))
        clock[event.node] = event.counter
        return clock

    def _messages_explain_all(self) -> bool:
        """Return whether no event knows more than messages and the order of nodes tell.

        Then the messages that were matched are all that there were.
        """
        for event in self._execution.in_causal_order(self._sends):
            learned = self._learned[event.position] = self._learned_by_messages(event)
            if any(v > learned.get(n, 0) for n, v in self._trusted(event).items()):
                return False
        return True

    def _least(self, event: Stamped) -> Clock:
        """Return what an event knows at least, from the events that it knows."""
        least: Clock = {}
        for known in (*self._execution.knowns(event), *self._sends.get(event.position, ())):
            for name, value in self._clock(known).items():
                if name != event.node and value > least.get(name, 0):
                    least[name] = value
        return least

    # --- decisions ---

    def _decided(self, event: Stamped) -> _Decision:
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
        self, finding: Finding, event: Stamped, names: Iterable[str], least: Clock
    ) -> tuple[Clock, str]:
        """Return the entries that correct a fault, or why there are none."""
        code = finding.code
        if code == "A004":
            return {}, f"{finding.dot} is lost, and nothing says what it was"
        if code == "A011":
            return {}, "" if event.node != event.read.node else _why_no_place(finding)
        if code in ("A001", "A002", "A003") and not finding.certain:
            return {}, "more than one place fits it"
        tell = self._messages_tell(event)
        if not finding.certain and code in ("A006", "A007"):
            return {}, "what it refers to may be lost"
        if not finding.certain and code != "A009" and not tell:
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

    def _messages_tell(self, event: Stamped) -> bool:
        """Return whether an event learned what its messages say, and nothing else."""
        return self._complete and event.position not in self._unsure

    def _value(self, event: Stamped, name: str, least: Clock) -> tuple[int, str]:
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

    def _can_know(self, event: Stamped, name: str, counter: int) -> bool:
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


def _no_clock(event: Stamped) -> bool:
    return isinstance(event.unknown, Everything)


def _why_no_place(finding: Finding) -> str:
    """Return why an event without a place among its node's events is left as it was."""
    if finding.code == "A011":
        return "which of its events are of which run cannot be told"
    if finding.code in ("A003", "A005"):
        return "which of the events with this dot is right cannot be told"
    return "where among its node's events it belongs cannot be told"
