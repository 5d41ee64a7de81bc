"""The events of an execution drawn with the stamps of a scheme beside them.

The one rule: an arrow is a message that an event must have received; the rest follows from these
and the order of each node.
"""

from __future__ import annotations

from ketal.logs.restamping import StampedExecution
from ketal.pictures.labels import clipped
from ketal.pictures.space_time_svg import DrawnEvent, space_time_svg
from ketal.pictures.text_diagram import DiagramRow, text_diagram

NAME_COLUMNS_MAX = 30
"""How much of an event's name and type is shown in text."""


def text(execution: StampedExecution) -> list[str]:
    """Return a space-time diagram in text, with a stamp in each row."""
    names = [clipped(str(event), NAME_COLUMNS_MAX) for event in execution.events]
    width = max(map(len, names), default=0)
    last: dict[str, int] = {}
    rows = []
    for name, event, happening, stamp in zip(
        names, execution.events, execution.happenings, execution.stamps, strict=True
    ):
        senders = tuple(execution.events[send].node for send in happening.receives)
        label = f"{name.ljust(width)}  {execution.scheme.text(stamp)}"
        follows = event.counter == last.get(event.node, 0) + 1
        rows.append(DiagramRow(event.node, label, senders, follows=follows))
        last[event.node] = event.counter
    return text_diagram(rows)


def svg(execution: StampedExecution) -> str:
    """Return a space-time diagram as SVG, with a stamp below the name of each event."""
    events = execution.events
    nodes = sorted({event.node for event in events})
    columns = {node: number for number, node in enumerate(nodes)}
    last: dict[str, int] = {}
    drawn: list[DrawnEvent] = []
    messages = []
    for number, (event, happening) in enumerate(zip(events, execution.happenings, strict=True)):
        causes = [*happening.receives, *([last[event.node]] if event.node in last else [])]
        messages += [(send, number) for send in happening.receives]
        row = 1 + max([drawn[cause].row for cause in causes], default=-1)
        note = execution.scheme.text(execution.stamps[number])
        tip = f"{event} {note}"
        drawn.append(DrawnEvent(columns[event.node], row, str(event), tip, note=note))
        last[event.node] = number
    title = f"{len(events):,} events with the stamps of {execution.scheme.name}"
    return space_time_svg(title, nodes, drawn, messages)
