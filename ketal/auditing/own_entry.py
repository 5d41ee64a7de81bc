"""Each event at the dot of its own entry, where it has a valid one (docs/audit.md).

An own entry may be missing, be no counter, or be that of another event. Valid entries
of a clock are used, wrong ones are reported here; where an event without a dot, or with
a used one, belongs is for `ketal.auditing.dots` to find.

The one rule: nothing is guessed. An event gets the counter of its own entry, or none.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ketal.auditing.log_model import AuditedEvent, AuditedExecution, Everything, NodeEvents
from ketal.clocks.vector import COUNTER_MAX
from ketal.model.events.draft import Draft


@dataclass(slots=True)
class Trouble:
    """The events of a node that have no dot of their own.

    Attributes
    ----------
    strays : list of AuditedEvent
        Events without a dot.
    twins : dict of int to list of AuditedEvent
        By counter, events of the same dot with other content.
    copies : list of AuditedEvent
        Events with the dot and content of another one.
    """

    strays: list[AuditedEvent] = field(default_factory=list)
    twins: dict[int, list[AuditedEvent]] = field(default_factory=dict)
    copies: list[AuditedEvent] = field(default_factory=list)

    @property
    def spare(self) -> int:
        """Return how many events have no dot for themselves."""
        return len(self.strays) + sum(len(same) - 1 for same in self.twins.values())


def admitted(execution: AuditedExecution) -> dict[str, Trouble]:
    """Assign each event the dot of its own entry; return by node those with none, or a used one."""
    trouble: dict[str, Trouble] = {}
    copies: set[int] = set()
    known: dict[tuple[str, int], set[bytes]] = {}
    for event in execution.events:
        if isinstance(event.read, Draft):
            _admit_draft(execution, event, event.read)
        line = execution.lines.get(event.node)
        if line is None:
            line = execution.lines[event.node] = NodeEvents()
        if not event.counter:
            trouble.setdefault(event.node, Trouble()).strays.append(event)
            continue
        first = line.at.setdefault(event.counter, event)
        if first is event:
            continue
        of = trouble.setdefault(event.node, Trouble())
        contents = known.setdefault((event.node, event.counter), {first.content})
        if event.content in contents:
            of.copies.append(event)
            copies.add(event.position)
        else:
            contents.add(event.content)
            of.twins.setdefault(event.counter, [first]).append(event)
    for line in execution.lines.values():
        line.sort()
    if copies:
        execution.events = [e for e in execution.events if e.position not in copies]
    return trouble


def _admit_draft(execution: AuditedExecution, event: AuditedEvent, draft: Draft) -> None:
    """Take the valid entries of an invalid clock, and report the others."""
    node = event.node
    raw = draft.clock if isinstance(draft.clock, dict) else {}
    wrong = [str(m) for m, v in raw.items() if not (isinstance(m, str) and is_counter(v))]
    event.clock = {m: v for m, v in raw.items() if isinstance(m, str) and is_counter(v) and v}
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
            # It may know nothing, or not record what it knows; its place decides.
            event.unknown = Everything()
        what = "is zero" if node in raw else "is missing"
        execution.report("A001", event, f"the own entry of {node} {what}")
    else:
        name = wrong[0] if wrong else "?"
        message = f"the entry of {name} is {repr(raw.get(name))[:40]}, which is no counter"
        execution.report("A002", event, message, dot=event.dot, blamed=event.unknown)


def is_counter(value: object) -> bool:
    """Return whether a value can be an entry of a clock."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= COUNTER_MAX
