"""A space-time diagram drawn as SVG: a column for each node, time downwards.

The one rule: every event and every message is drawn, or the limit is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ketal.errors import SettingError
from ketal.pictures import svg_document as elements
from ketal.pictures.labels import clipped, xml_text

DRAWN_EVENTS_MAX = 1_000
"""The most events that are drawn; a picture of more is unreadable."""
COLUMN, ROW, TOP, SIDE = 190.0, 26.0, 48.0, 24.0
LABEL_COLUMNS = 22
RADIUS, HEAD_PX = 5.0, 7.0
# Colours of Okabe and Ito.
STYLE = elements.style_sheet(
    "ketal-run",
    """
.name{font-weight:600}
.line{stroke:#8c959f;stroke-width:1}
.message{stroke:#8c959f;stroke-width:1.2;fill:none}
.tip{fill:#8c959f}
.event{fill:#57606a}
.match{fill:#00795a}
.violation{fill:#c23b00}
.other{fill:#8250df}
""",
    """
.line{stroke:#6e7681}
.message{stroke:#6e7681}
.tip{fill:#6e7681}
.event{fill:#909dab}
.match{fill:#2bc99b}
.violation{fill:#ff8552}
.other{fill:#cc9cf5}
""",
    halo=True,
)


@dataclass(frozen=True, slots=True)
class DrawnEvent:
    """An event of a diagram.

    Attributes
    ----------
    column, row : int
        Where it is.
    label : str
        What is written beside it.
    tip : str
        What a pointer on it shows.
    mark : str
        What it is in a verdict: `match`, `violation`, `other`, or empty.
    """

    column: int
    row: int
    label: str
    tip: str
    mark: str = ""


def space_time_svg(
    title: str,
    nodes: Sequence[str],
    events: Sequence[DrawnEvent],
    messages: Sequence[tuple[int, int]],
    note: str = "",
) -> str:
    """Draw a diagram, with a note below where there is one.

    A message is the numbers of the events that sent it, and that received it.

    Raises
    ------
    SettingError
        If there are more than `DRAWN_EVENTS_MAX` events.
    """
    if len(events) > DRAWN_EVENTS_MAX:
        raise SettingError(
            f"there are {len(events):,} events, and a picture draws {DRAWN_EVENTS_MAX:,} at most; "
            "the page (--to html) shows them all"
        )
    width = _x(max(1, len(nodes)))
    height = TOP + ROW * (1 + max((event.row for event in events), default=0)) + SIDE
    out = []
    if note:
        out.append(elements.text_at(SIDE, height, note, "note"))
        width = max(width, 2 * SIDE + elements.text_width(note))
        height += SIDE
    for column, node in enumerate(nodes):
        rows = [event.row for event in events if event.column == column]
        name = clipped(xml_text(node), LABEL_COLUMNS)
        out.append(elements.text_at(_x(column) - RADIUS, 24, name, "name"))
        if rows:
            out.append(elements.line("line", _at(column, min(rows)), _at(column, max(rows))))
    out += [_message(events[source], events[target]) for source, target in messages]
    out += [_event(event) for event in events]
    return elements.svg_document("ketal-run", title, (0, 0, width, height), STYLE, out, corner_px=0)


def _x(column: int) -> float:
    return SIDE + column * COLUMN + 20


def _at(column: int, row: int) -> elements.Point:
    return _x(column), TOP + row * ROW


def _message(source: DrawnEvent, target: DrawnEvent) -> str:
    start, end = _at(source.column, source.row), _at(target.column, target.row)
    length = math.dist(start, end) or 1.0
    dx, dy = (start[0] - end[0]) / length, (start[1] - end[1]) / length
    tip = end[0] + dx * RADIUS, end[1] + dy * RADIUS
    base = tip[0] + dx * HEAD_PX, tip[1] + dy * HEAD_PX
    return elements.line("message", start, base) + elements.arrow_head(
        tip, (dx, dy), HEAD_PX, HEAD_PX / 2
    )


def _event(event: DrawnEvent) -> str:
    x, y = _at(event.column, event.row)
    size = RADIUS + 1.5
    if event.mark == "match":
        far = size + 1
        shape = elements.polygon("match", [(x, y - far), (x + far, y), (x, y + far), (x - far, y)])
    elif event.mark == "violation":
        low = y + size * 0.8
        shape = elements.polygon("violation", [(x, y - size), (x + size, low), (x - size, low)])
    elif event.mark:
        shape = elements.rect("other", x - RADIUS, y - RADIUS, 2 * RADIUS, 2 * RADIUS)
    else:
        shape = elements.circle("event", (x, y), RADIUS)
    label = clipped(xml_text(event.label), LABEL_COLUMNS)
    written = elements.text_at(x + 11, y + elements.LABEL_PX * 0.35, label)
    return elements.titled(event.tip, shape + written)


assert LABEL_COLUMNS * elements.LABEL_PX * elements.COLUMN_EM < COLUMN - 20, (
    "a label ends before the next column"
)
