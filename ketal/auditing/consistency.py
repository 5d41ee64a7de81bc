"""Consistency: the conditions under which stamped events are one vector-clocked execution.

In an execution each node counts 1, 2, 3, …, and an event's clock is the join of
the clocks of all that it knows, with its own entry added (Mattern, "Virtual time
and global states of distributed systems", 1989). So a log is one exactly if

1. every dot from 1 to the node's last is there once (`ketal.auditing.dots`),
2. every entry (m, v) of a clock names an event that is there (below),
3. the clock of that event, and of the predecessor on the own node, is pointwise
   at most the own one: this is what "transitive" and "never backwards" mean; and,
   where messages are matched, a receive knows its send
   (`ketal.auditing.contradictions`).

Each axiom is checked on a log in which those before it are settled. An entry that names
an event or a node which the log does not have is wrong, or what it names was lost. Who
knows an event knows what it names: so an entry that a later event does not share is wrong,
and by itself. One that is shared was learned, and handed on: what was learned of one lost
event has one cause, named at the event that learned it first.

The one rule: an entry that is reported is unknown from then on. It accuses no
other event, so one fault is one finding.
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
    _find_unknown_references(execution)
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


# --- entries that name what is not there --------------------------------------------------------

_Reference = tuple[AuditedEvent, int]


def _find_unknown_references(execution: AuditedExecution) -> None:
    """Report references to absent events; their entries are unknown from then on."""
    shared: dict[str, list[_Reference]] = {}
    refuted: list[tuple[AuditedEvent, str, int]] = []
    tops = {node: line.top for node, line in execution.lines.items()}
    for event in execution.settled():
        for name, counter in event.clock.items():
            if counter <= tops.get(name, 0) or name == event.node or name in event.unknown:
                continue
            _, high = execution.bounds(event, name)
            if high is not None and counter > high:
                # An event that knows this one does not know what it refers to.
                refuted.append((event, name, counter))
            else:
                shared.setdefault(name, []).append((event, counter))
    for event, name, counter in refuted:
        event.unknown |= {name}
        _report(execution, event, name, counter, certain=True)
    for name in sorted(shared):
        for group in _causes(execution, shared[name]):
            _report_group(execution, name, group)


def _causes(
    execution: AuditedExecution, references: list[_Reference]
) -> Iterator[list[_Reference]]:
    """Yield references to one node by what they have their cause in.

    An event that another one knows passes on what it learned. One that no event knows
    is by itself, unless others refer to the same event or a later one.
    """
    handed_on = [ref for ref in references if not _known_to_none(execution, ref[0])]
    top = max((counter for _, counter in handed_on), default=0)
    group = [ref for ref in references if ref[1] <= top]
    if group:
        yield group
    alone: dict[int, list[_Reference]] = {}
    for reference in references:
        if reference[1] > top:
            alone.setdefault(reference[1], []).append(reference)
    yield from alone.values()


def _known_to_none(execution: AuditedExecution, event: AuditedEvent) -> bool:
    return execution.after(event) is None and not any(
        True for _ in execution.knowers(event.node, event.counter)
    )


def _report_group(execution: AuditedExecution, name: str, group: list[_Reference]) -> None:
    first, counter = min(
        group, key=lambda r: (sum(r[0].clock.values()) - r[0].clock[name], r[0].position)
    )
    # What any event after the last one of the node knows, this one must know.
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
        message += f"; {count:,} events in all refer to {name} beyond what there is"
    # An entry that names a lost event is no mistake by itself.
    execution.report(
        code, event, message, dot=event.dot, refers_to=name, blamed={name}, certain=certain
    )
