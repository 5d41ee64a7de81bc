"""Consistency: the conditions under which stamped events are one vector-clocked execution.

In an execution each node counts 1, 2, 3, …, and an event's clock is the join of
the clocks of all that it knows, with its own entry added (Mattern, "Virtual time
and global states of distributed systems", 1989). So a log is one exactly if

1. every dot from 1 to the node's last is there once (`ketal.auditing.dots`),
2. every entry (m, v) of a clock names an event that is there
   (`ketal.auditing.dangling_references`),
3. the clock of that event, and of the predecessor on the own node, is pointwise
   at most the own one: this is what "transitive" and "never backwards" mean; and,
   where messages are matched, a receive knows its send
   (`ketal.auditing.contradictions`).

Each axiom is checked on a log in which those before it are settled.

The one rule: an entry that is reported is unknown from then on. It accuses no
other event, so one fault is one finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ketal.auditing.contradictions import find_contradictions
from ketal.auditing.dangling_references import find_unknown_references
from ketal.auditing.dots import admit, assign_dots
from ketal.auditing.log_model import AuditedEvent, AuditedExecution
from ketal.logs.traces.message_pairing import Messages, paired


def examine(
    events: Sequence[AuditedEvent], departed: Iterable[str] = (), messages: Messages | None = None
) -> AuditedExecution:
    """Return the execution that events are, with its findings.

    Parameters
    ----------
    events : sequence of AuditedEvent
        In file order.
    departed : iterable of str
        Nodes that left: an entry that is absent or too low for one is read as the last
        value known.
    messages : Messages, optional
        What pairs sends and receives; a receive must know its send.
    """
    execution, left = AuditedExecution(events), frozenset(departed)
    admit(execution)
    if messages is not None:
        _match(execution, messages)
    assign_dots(execution, left)
    find_unknown_references(execution)
    if left:
        _restore(execution, left)
    find_contradictions(execution)
    return execution


def _match(execution: AuditedExecution, messages: Messages) -> None:
    """Find the sends and receives of an execution."""
    events = execution.events
    pairing = execution.pairing = paired([event.as_event() for event in events], messages)
    execution.unsure = {events[at].position for at in (*pairing.unsent, *pairing.ambiguous)}
    for receive, send in pairing.sends.items():
        execution.sends.setdefault(events[receive].position, []).append(events[send])
        execution.receives.setdefault(events[send].position, []).append(events[receive])


def _restore(execution: AuditedExecution, left: frozenset[str]) -> None:
    """Read the entries of nodes that left as the last value known there.

    A node that dropped an entry may get an older one back with any message, so an
    entry that is too low is raised as well.
    """
    for event in execution.in_causal_order():
        restored = dict(event.clock)
        for known in execution.knowns(event):
            for name in filter(left.__contains__, known.clock):
                if name != event.node and known.value(name) > restored.get(name, 0):
                    restored[name] = known.value(name)
        if restored != event.clock:
            event.clock = restored
