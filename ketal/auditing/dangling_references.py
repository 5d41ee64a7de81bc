"""Entries that name an event or a node which the log does not have.

Such an entry is wrong, or what it names was lost. Who knows an event knows what
it names: so an entry that a later event does not share is wrong, and by itself.
One that is shared was learned, and handed on from where it was learned first.

The one rule: what was learned of one lost event has one cause, named at the
event that learned it first.
"""

from __future__ import annotations

from collections.abc import Iterator

from ketal.auditing.log_model import AuditedEvent, AuditedExecution

_Reference = tuple[AuditedEvent, int]


def find_unknown_references(execution: AuditedExecution) -> None:
    """Report references to absent events; their entries are unknown from then on."""
    shared: dict[str, list[_Reference]] = {}
    refuted: list[tuple[AuditedEvent, str, int]] = []
    tops = {node: line.top for node, line in execution.lines.items()}
    for event in execution.settled():
        for name, counter in event.clock.items():
            if counter <= tops.get(name, 0) or name == event.node or name in event.unknown:
                continue
            if _refuted(execution, event, name, counter):
                refuted.append((event, name, counter))
            else:
                shared.setdefault(name, []).append((event, counter))
    for event, name, counter in refuted:
        event.unknown |= {name}
        _report(execution, event, name, counter, certain=True)
    for name in sorted(shared):
        for group in _causes(execution, shared[name]):
            _report_group(execution, name, group)


def _refuted(execution: AuditedExecution, event: AuditedEvent, name: str, counter: int) -> bool:
    """Return whether an event that knows this one does not know what it refers to."""
    after = execution.after(event)
    later = [after] if after is not None else []
    later += execution.knowers(event.node, event.counter)
    return any(e.value(name) < counter for e in later if name not in e.unknown)


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
    for event, _ in group:
        event.unknown |= {name}
    first, counter = min(
        group, key=lambda r: (sum(r[0].clock.values()) - r[0].clock[name], r[0].position)
    )
    alone = len(group) == 1 and _cannot_know(execution, first, name)
    _report(execution, first, name, counter, len(group), certain=alone)


def _cannot_know(execution: AuditedExecution, event: AuditedEvent, name: str) -> bool:
    """Return whether an event lacks what any event after a node's last one must know."""
    line = execution.lines.get(name)
    if line is None or not line.counters:
        return False
    last = line.at[line.top]
    return any(
        value >= event.counter if n == event.node else value > event.clock.get(n, 0)
        for n, value in last.clock.items()
        if n != name and n not in last.unknown and n not in event.unknown
    )


def _report(
    execution: AuditedExecution,
    event: AuditedEvent,
    name: str,
    counter: int,
    count: int = 1,
    *,
    certain: bool = False,
) -> None:
    line = execution.lines.get(name)
    if line is None or not line.counters:
        code, why = "A007", f"no event of {name} is in the log"
    else:
        code, why = "A006", f"the last event of {name} in the log is {name}@{line.top}"
    message = f"{event.dot} refers to {name}@{counter}, but {why}"
    if count > 1:
        message += f"; {count:,} events in all refer to {name} beyond what there is"
    # An entry that names a lost event is no mistake by itself.
    execution.report(
        code, event, message, dot=event.dot, refers_to=name, blamed={name}, certain=certain
    )
