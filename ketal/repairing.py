"""Repair: a corrected log, where the cause of a fault is unambiguous.

The clocks are rebuilt from what is trusted: program order, the entries that no
fault blames, and the message pairs, where messages are matched. In causal order
each event gets the join of all that it knows (Mattern 1989, the definition of a
vector clock), which is the least clock that it can have.

An entry that was blamed is written anew if the least value is the only one: the
next event of the node has it too, or the messages tell all that an event learned.
A wrong own entry is written anew if one hole only fits it. Lost events cannot be
made up, and of two events with one dot nobody knows which is right.

The one rule: what could be otherwise is left as it was, and said.
"""

from __future__ import annotations

from dataclasses import dataclass

from ketal.auditing import Examined
from ketal.consistency import Entry, Finding
from ketal.event import Control, Dot, Event


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
    items : tuple of Event or Control
        The log, in the order of the file.
    changed, left : tuple of Change
        What is other than it was, and what could not be corrected.
    """

    items: tuple[Event | Control, ...]
    changed: tuple[Change, ...]
    left: tuple[Change, ...]


def repaired(part: Examined) -> Repair:
    """Correct one execution of a log."""
    execution = part.execution
    findings: dict[int, list[Finding]] = {}
    for finding in execution.findings:
        findings.setdefault(finding.entry.position, []).append(finding)
    fixed = _rebuilt(part, findings)
    items: list[tuple[int, Event | Control]] = list(part.controls)
    changed, left = [], []
    for entry in execution.entries:
        mine = findings.get(entry.position, [])
        kept = [(f, _why_left(part, f, fixed)) for f in mine]
        left += [_change(f.entry, f.code, why) for f, why in kept if why]
        clock = fixed.get(entry.position)
        if clock is None or any(why and f.code not in _ELSEWHERE for f, why in kept):
            if isinstance(entry.event, Event):
                items.append((entry.position, entry.event))
            continue
        event = entry.event
        new = Event(event.node, event.type, clock, event.time, event.data, event.id)
        items.append((entry.position, new))
        if message := _difference(entry, clock):
            code = next((f.code for f, why in kept if not why), "")
            changed.append(_change(entry, code, message))
    left += [
        Change(
            file=item.place.rpartition(":")[0],
            line=int(item.place.rpartition(":")[2] or 0),
            code="",
            dot="",
            message=f"not in the corrected log, it is no event: {item.reason}",
        )
        for item in part.rejected
    ]
    items.sort(key=lambda item: item[0])
    return Repair(items=tuple(item for _, item in items), changed=tuple(changed), left=tuple(left))


_ELSEWHERE = ("A004",)
"""Faults that are named at an event whose clock is right."""


def _rebuilt(part: Examined, findings: dict[int, list[Finding]]) -> dict[int, dict[str, int]]:
    """Return the least clock that each event can have, by position."""
    execution = part.execution
    sends: dict[int, list[Entry]] = {}
    for send, receive in part.pairs:
        if send.counter and receive.counter:
            sends.setdefault(receive.position, []).append(send)
    fixed: dict[int, dict[str, int]] = {}
    for entry in execution.in_causal_order(sends):
        blamed = {m for f in findings.get(entry.position, ()) for m in f.blamed}
        clock = {m: v for m, v in entry.clock.items() if m not in blamed}
        clock.pop(entry.node, None)
        for known in (*execution.knowns(entry), *sends.get(entry.position, ())):
            for name, value in fixed.get(known.position, known.clock).items():
                if name != entry.node and value > clock.get(name, 0):
                    clock[name] = value
            if known.node != entry.node and known.counter > clock.get(known.node, 0):
                clock[known.node] = known.counter
        clock[entry.node] = entry.counter
        fixed[entry.position] = clock
    return fixed


def _why_left(part: Examined, finding: Finding, fixed: dict[int, dict[str, int]]) -> str:
    """Return why a fault cannot be corrected; empty where it can."""
    entry = finding.entry
    if finding.code == "A004":
        return f"{finding.dot} is lost, and nothing says what it was"
    if finding.code == "A005":
        return "which of the events with this dot is right cannot be told"
    if (
        entry.position not in fixed
        or part.execution.lines[entry.node].at.get(entry.counter) is not entry
    ):
        out = "" if isinstance(entry.event, Event) else "not in the corrected log: "
        return f"{out}where among its node's events it belongs cannot be told"
    if not finding.certain:
        return "more than one place fits it"
    if finding.code in ("A006", "A007") and not finding.blamed:
        return "the event that it refers to is lost"
    if finding.code == "A002" and not finding.blamed and part.pairing is None:
        return "what it knew cannot be told without messages (--match-messages)"
    for name in finding.blamed:
        if why := _why_open(part, entry, name, fixed[entry.position].get(name, 0)):
            return why
    return ""


def _why_open(part: Examined, entry: Entry, name: str, least: int) -> str:
    """Return why an entry may have more values than the least one; empty if it may not."""
    if name not in part.execution.lines:
        return ""
    pairing = part.pairing
    if pairing is not None:
        unsure = {*pairing.unsent, *pairing.ambiguous}
        if not any(part.execution.entries[at] is entry for at in unsure):
            # The messages tell all that it learned.
            return ""
    after = part.execution.lines[entry.node].above(entry.counter)
    if after is None or name in after.unknown:
        return f"nothing bounds the entry of {name} from above; it is at least {least}"
    most = after.clock.get(name, 0)
    if most > least:
        return f"the entry of {name} may be anything from {least} to {most}"
    return ""


def _change(entry: Entry, code: str, message: str) -> Change:
    dot = str(Dot(entry.node, entry.counter)) if entry.counter else ""
    return Change(file=entry.file, line=entry.line, code=code, dot=dot, message=message)


def _difference(entry: Entry, clock: dict[str, int]) -> str:
    """Say which entries of an event's clock are other than they were."""
    raw = entry.event.clock if isinstance(entry.event.clock, dict) else {}
    said = []
    for name in sorted({*map(str, raw), *clock}):
        was, now = raw.get(name, 0), clock.get(name, 0)
        # What a clock left out because its node had left stays as it was.
        if was != now and not (name in entry.clock and entry.clock[name] == now != was == 0):
            said.append(f"the entry of {name} was {was!r}"[:80] + f" and is {now}")
    if not isinstance(entry.event, Event) and not raw:
        return f"got the clock {clock}"
    return "; ".join(said)
