"""Space-time diagrams in which each event has its stamp of a timestamping scheme.

The one rule: an arrow is a message that an event must have received; all other order follows from
the arrows and program order.
"""

from __future__ import annotations

from ketal.errors import columns
from ketal.logs.restamping import StampedExecution
from ketal.model.events.event import Event
from ketal.model.wording import counted, padded
from ketal.pictures.clocks.stamped_space_time import TimelineEvent, stamped_space_time_svg
from ketal.pictures.labels import in_natural_order, short_label
from ketal.pictures.text_diagram import DiagramRow, text_diagram

DOT_COLUMNS_MAX, NAME_COLUMNS_MAX = 20, 30
"""How many columns of an event's dot, and of its dot and type, the text shows."""


def text(execution: StampedExecution) -> list[str]:
    """Return a space-time diagram in text, with a stamp in each row."""
    names = [_name(event) for event in execution.events]
    width = max(map(columns, names), default=0)
    last: dict[str, int] = {}
    rows = []
    for name, event, happening, stamp in zip(
        names, execution.events, execution.happenings, execution.stamps, strict=True
    ):
        senders = tuple(execution.events[send].node for send in happening.receives)
        label = f"{padded(name, width)}  {execution.scheme.text(stamp)}"
        follows = last.get(event.node) == event.counter - 1
        rows.append(DiagramRow(event.node, label, senders, follows=follows))
        last[event.node] = event.counter
    return text_diagram(rows)


def _name(event: Event) -> str:
    dot = short_label(str(event.dot), DOT_COLUMNS_MAX)
    return f"{dot} {short_label(event.type, NAME_COLUMNS_MAX - 1 - columns(dot))}"


def svg(execution: StampedExecution) -> str:
    """Return a space-time diagram as SVG, with a stamp above each event."""
    drawn = [
        TimelineEvent(event.node, execution.scheme.text(stamp), str(event))
        for event, stamp in zip(execution.events, execution.stamps, strict=True)
    ]
    messages = [
        (send, number)
        for number, happening in enumerate(execution.happenings)
        for send in happening.receives
    ]
    nodes = in_natural_order({event.node for event in execution.events})
    title = f"{counted(len(drawn), 'event')} with the stamps of {execution.scheme.name}"
    return stamped_space_time_svg(title, nodes, drawn, messages)
