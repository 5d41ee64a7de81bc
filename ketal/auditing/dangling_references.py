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
