"""Each event at the dot that it says, as far as that goes (docs/audit.md).

An own entry may be missing, be no counter, or be that of another event. What of a clock
can be used is taken, and what is wrong with it is said here; where an event without a dot,
or with a used one, belongs is for others to find (`ketal.readings`, `ketal.dots`).

The one rule: nothing is guessed. An event gets the counter that it says, or none.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ketal.clocks.vector import COUNTER_MAX
from ketal.event import Draft, Event, content
from ketal.execution import Everything, Execution, Line, Stamped


@dataclass(slots=True)
class Trouble:
    """What keeps a node's events from having a dot each."""

    strays: list[Stamped] = field(default_factory=list)
    twins: dict[int, list[Stamped]] = field(default_factory=dict)
    copies: list[Stamped] = field(default_factory=list)


def admitted(execution: Execution) -> dict[str, Trouble]:
    """Give each event the dot that it says; return what has none, or a used one."""
    trouble: dict[str, Trouble] = {}
    copies: set[int] = set()
    said: dict[tuple[str, int], set[bytes]] = {}
    for event in execution.events:
        if isinstance(event.read, Draft):
            _admit_draft(execution, event, event.read)
        line = execution.lines.get(event.node)
        if line is None:
            line = execution.lines[event.node] = Line()
        if not event.counter:
            trouble.setdefault(event.node, Trouble()).strays.append(event)
            continue
        first = line.at.setdefault(event.counter, event)
        if first is event:
            continue
        of = trouble.setdefault(event.node, Trouble())
        same = of.twins.setdefault(event.counter, [first])
        known = said.setdefault((event.node, event.counter), {_said(first)})
        content_of = _said(event)
        if content_of in known:
            of.copies.append(event)
            copies.add(event.position)
        else:
            known.add(content_of)
            same.append(event)
    for line in execution.lines.values():
        line.settle()
    if copies:
        execution.events = [e for e in execution.events if e.position not in copies]
    return trouble


def _said(event: Stamped) -> bytes:
    return content(event.read) if isinstance(event.read, Event) else repr(event.read).encode()


def _admit_draft(execution: Execution, event: Stamped, draft: Draft) -> None:
    """Take what can be used of a clock that is none, and say what is wrong with it."""
    node = event.node
    raw = draft.clock if isinstance(draft.clock, dict) else {}
    wrong = [str(m) for m, v in raw.items() if not (isinstance(m, str) and _fine(v))]
    event.clock = {m: v for m, v in raw.items() if isinstance(m, str) and _fine(v) and v}
    event.counter = event.clock.get(node, 0)
    event.unknown |= frozenset(wrong) - {node}
    if not isinstance(draft.clock, dict):
        event.unknown = Everything()
        execution.report("A002", event, f"the event of {node} has no vector clock")
    elif node in wrong:
        shown = repr(raw.get(node))[:40]
        message = f"the own entry of {node} is {shown}, which is no counter"
        execution.report("A002", event, message)
    elif not event.counter:
        if not event.clock:
            # It may know nothing, or not say what it knows; its place will tell.
            event.unknown = Everything()
        what = "is zero" if node in raw else "is missing"
        execution.report("A001", event, f"the own entry of {node} {what}")
    else:
        name = wrong[0] if wrong else "?"
        message = f"the entry of {name} is {repr(raw.get(name))[:40]}, which is no counter"
        execution.report("A002", event, message, dot=event.dot, blamed=event.unknown)


def _fine(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= COUNTER_MAX
