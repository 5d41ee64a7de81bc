"""Space-time diagrams in text: a column for each node, a row for each event, time downwards.

A message is drawn in the row of its receive, from the column of its sender:

```
a     b
◆     ┊   a@1 write  First
├────▶●   b@1 read   from a@1
┊     ◆   b@2 write  Second
```

A line is dotted where events of its node are left out. The grid of rows and columns is that of
Lamport, "Time, clocks, and the ordering of events in a distributed system", 1978.

The one rule: rows are in an order that respects happened-before, so messages only lead downwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ketal.errors import columns
from ketal.model.wording import padded
from ketal.pictures.labels import in_natural_order, node_labels

COLUMN_MIN, COLUMN_MAX = 5, 14
"""The least and the greatest width of a node's column."""
_EVENT, _MARKED = "●", "◆"
_LINE, _DOTTED = "│", "┊"


@dataclass(frozen=True, slots=True)
class DiagramRow:
    """An event of a diagram."""

    node: str
    label: str
    """The text beside it."""
    senders: tuple[str, ...] = ()
    """The nodes from which it received a message, if that is shown."""
    marked: bool = False
    """Whether the event is one of those that the diagram is about."""
    follows: bool = False
    """Whether it immediately follows an event of the node that is shown."""


def text_diagram(rows: Sequence[DiagramRow]) -> list[str]:
    """Return the lines of a diagram, with the nodes by name."""
    nodes = in_natural_order({node for row in rows for node in (row.node, *row.senders)})
    heads = node_labels(nodes, COLUMN_MAX - 1)
    widths = [min(max(columns(head) + 2, COLUMN_MIN), COLUMN_MAX) for head in heads]
    starts = [sum(widths[:number]) for number in range(len(nodes) + 1)]
    column_of = dict(zip(nodes, starts, strict=False))
    lines = []
    above = dict.fromkeys(nodes, _DOTTED)  # each node's line above the last row drawn
    for row in reversed(rows):
        cells = [" "] * starts[-1]
        for node, line in above.items():
            cells[column_of[node]] = line
        here = column_of[row.node]
        _draw_messages(cells, here, {column_of[node] for node in row.senders}, starts)
        cells[here] = _MARKED if row.marked else _EVENT
        lines.append(f"{''.join(cells)}{row.label}".rstrip())
        above[row.node] = _LINE if row.follows else _DOTTED
    return ["".join(map(padded, heads, widths)).rstrip(), *reversed(lines)]


_SIDES = ((1, min, "├", "▶"), (-1, max, "┤", "◀"))
"""For senders on the left and on the right: the step to the event, the furthest, the signs."""


def _draw_messages(cells: list[str], here: int, senders: set[int], starts: Sequence[int]) -> None:
    """Draw the arrows that end in a column."""
    for step, furthest, begin, head in _SIDES:
        if own := {sender for sender in senders if (here - sender) * step > 0}:
            far = furthest(own)
            for at in range(far, here - step, step):
                # Arrows of several senders merge, and cross the lines of other nodes.
                cells[at] = "┼" if at in starts else "─"
            cells[far], cells[here - step] = begin, head
