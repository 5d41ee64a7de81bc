"""Consistency: the conditions under which stamped events are one vector-clocked execution.

In an execution each node counts 1, 2, 3, …, and an event's clock is the join of the clocks of all
events that it knows, with its own entry added (Mattern, "Virtual time and global states of
distributed systems", 1989). So a log is an execution if and only if

1. the log has every dot from 1 to the node's last, once (`ketal.auditing.dots`),
2. every entry (m, v) of a clock names an event that the log has (below),
3. an event's clock is pointwise at least that of its predecessor on the node and those of the
   events that its entries name ("never backwards" and "transitive"); and, if messages are matched,
   a receive knows its send (`ketal.auditing.contradictions`).

Each condition is checked on a log in which those before it are settled. An entry that names an
event or a node which the log does not have is wrong, or the event was lost. Events that know an
event know what its entries name, too: so an entry that is higher than that of a later event is
wrong, and a fault of its own. An entry that later events share was passed on: all references to one
lost event have one cause, reported at the event that learned of it first.

The one rule: an entry that is reported is unknown from then on. No other fault is derived from it,
so one fault is one finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ketal.auditing.contradictions import find_contradictions
from ketal.auditing.dots import admit, assign_dots
from ketal.auditing.log_model import AuditedEvent, AuditedExecution
from ketal.logs.traces.message_pairing import Messages, paired


def examine(
    events: Sequence[AuditedEvent], departed: Iterable[str] = (), messages: Messages | None = None
) -> AuditedExecution:
    """Return the execution that consists of the given events, with its findings.

    The events are in file order. An entry of a node in `departed`, which left, that is absent or
    too low is read as the last value known. If there are `messages`, a receive must know its send.
    """
    execution, departed_nodes = AuditedExecution(events), frozenset(departed)
    admit(execution)
    if messages is not None:
        _match_messages(execution, messages)
    assign_dots(execution, departed_nodes)
    _find_unknown_references(execution)
    if departed_nodes:
        _restore_departed(execution, departed_nodes)
    find_contradictions(execution)
    return execution


def _match_messages(execution: AuditedExecution, messages: Messages) -> None:
    """Match the sends and receives of an execution."""
    events = execution.events
    pairing = execution.pairing = paired([event.as_event() for event in events], messages)
    execution.unsure = {events[at].position for at in (*pairing.unsent, *pairing.ambiguous)}
    for receive, send in pairing.sends.items():
        execution.sends.setdefault(events[receive].position, []).append(events[send])
        execution.receives.setdefault(events[send].position, []).append(events[receive])


def _restore_departed(execution: AuditedExecution, departed_nodes: frozenset[str]) -> None:
    """Replace the entries of nodes that left by the last values known.

    A node that dropped an entry may get an older value back with any message, so an entry that is
    too low is raised as well.
    """
    for event in execution.in_causal_order():
        restored = dict(event.clock)
        for known in execution.known_events(event):
            for name in filter(departed_nodes.__contains__, known.clock):
                if name != event.node and known.entry(name) > restored.get(name, 0):
                    restored[name] = known.entry(name)
        if restored != event.clock:
            event.clock = restored


# --- entries that name absent events -------------------------------------------------------------

_Reference = tuple[AuditedEvent, int]


def _find_unknown_references(execution: AuditedExecution) -> None:
    """Report references to absent events, and mark their entries unknown."""
    shared: dict[str, list[_Reference]] = {}
    refuted: list[tuple[AuditedEvent, str, int]] = []
    tops = {node: line.top for node, line in execution.lines.items()}
    for event in execution.events_with_dot():
        for name, counter in event.clock.items():
            if counter <= tops.get(name, 0) or name == event.node or name in event.unknown:
                continue
            _, high = execution.entry_bounds(event, name)
            if high is not None and counter > high:
                # An event that knows this one does not know the event referred to.
                refuted.append((event, name, counter))
            else:
                shared.setdefault(name, []).append((event, counter))
    for event, name, counter in refuted:
        event.unknown |= {name}
        _report(execution, event, name, counter, certain=True)
    for name in sorted(shared):
        for group in _group_by_cause(execution, shared[name]):
            _report_group(execution, name, group)


def _group_by_cause(
    execution: AuditedExecution, references: list[_Reference]
) -> Iterator[list[_Reference]]:
    """Yield the references to one node, grouped by their cause.

    An event that another one knows has passed on its references. A reference of an event that no
    event knows has a cause of its own, unless others refer to the same event or a later one.
    """
    passed_on = [ref for ref in references if not _known_to_none(execution, ref[0])]
    top = max((counter for _, counter in passed_on), default=0)
    group = [ref for ref in references if ref[1] <= top]
    if group:
        yield group
    alone: dict[int, list[_Reference]] = {}
    for reference in references:
        if reference[1] > top:
            alone.setdefault(reference[1], []).append(reference)
    yield from alone.values()


def _known_to_none(execution: AuditedExecution, event: AuditedEvent) -> bool:
    return execution.successor(event) is None and not any(
        True for _ in execution.knowers(event.node, event.counter)
    )


def _report_group(execution: AuditedExecution, name: str, group: list[_Reference]) -> None:
    first, counter = min(
        group, key=lambda r: (sum(r[0].clock.values()) - r[0].clock[name], r[0].position)
    )
    # An event that knows an event after the node's last one must know all that this one knows.
    last = execution.last(name)
    wrong = len(group) == 1 and last is not None and bool(first.lacks(last))
    for event, _ in group:
        event.unknown |= {name}
        if not wrong:
            event.lost |= {name}
    _report(execution, first, name, counter, len(group), certain=wrong)


def _report(
    execution: AuditedExecution,
    event: AuditedEvent,
    name: str,
    counter: int,
    count: int = 1,
    *,
    certain: bool = False,
) -> None:
    last = execution.last(name)
    if last is None:
        code, why = "A007", f"no event of {name} is in the log"
    else:
        code, why = "A006", f"the last event of {name} in the log is {last.dot}"
    message = f"{event.dot} refers to {name}@{counter}, but {why}"
    if count > 1:
        message += f"; {count:,} events in total refer to missing events of {name}"
    # An entry that names a lost event is not wrong by itself.
    execution.report(
        code, event, message, dot=event.dot, refers_to=name, blamed={name}, certain=certain
    )
