"""A space-time diagram drawn as SVG: a column for each node, time downwards.

The one rule: every event and every message is drawn, or the limit is named.
"""

from __future__ import annotations

from ketal.errors import SettingError
from ketal.explanation.views.space_time import SpaceTime
from ketal.pictures import svg_document as elements
from ketal.pictures.labels import node_labels, short_label

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
    halo=True,
)


def space_time_svg(title: str, drawn: SpaceTime) -> str:
    """Draw an execution, with its note below; SettingError above `DRAWN_EVENTS_MAX` events."""
    if len(drawn.events) > DRAWN_EVENTS_MAX:
        raise SettingError(
            f"there are {len(drawn.events):,} events, but a picture shows at most "
            f"{DRAWN_EVENTS_MAX:,}; use the page, which shows all of them (--to html)"
        )
    width = _x(max(1, len(drawn.nodes)))
    height = TOP + ROW * (1 + max(drawn.rows, default=0)) + SIDE
    out = []
    if drawn.note:
        out.append(elements.text_at(SIDE, height, drawn.note, "note"))
        width = max(width, 2 * SIDE + elements.text_width(drawn.note))
        height += SIDE
    columns = {node: column for column, node in enumerate(drawn.nodes)}
    points = [
        (_x(columns[event.node]), TOP + row * ROW)
        for event, row in zip(drawn.events, drawn.rows, strict=True)
    ]
    names = node_labels(drawn.nodes, LABEL_COLUMNS)
    for (node, column), name in zip(columns.items(), names, strict=True):
        own = [at for at, event in zip(points, drawn.events, strict=True) if event.node == node]
        out.append(elements.text_at(_x(column) - RADIUS, 24, name, "name"))
        out.append(elements.line("line", min(own), max(own)))
    out += [_message(points[source], points[target]) for source, target in drawn.messages]
    for number, (event, at) in enumerate(zip(drawn.events, points, strict=True)):
        shape = _shape(drawn.marks.get(number, ""), *at)
        label = short_label(event.type, LABEL_COLUMNS)
        written = elements.text_at(at[0] + 11, at[1] + elements.LABEL_PX * 0.35, label)
        out.append(elements.with_tooltip(f"{event} {drawn.place(event)}", shape + written))
    return elements.svg_document("ketal-run", title, (0, 0, width, height), STYLE, out, corner_px=0)


def _x(column: int) -> float:
    return SIDE + column * COLUMN + 20


def _message(start: elements.Point, end: elements.Point) -> str:
    tip = elements.towards(end, start, RADIUS)
    base = elements.towards(end, start, RADIUS + HEAD_PX)
    return elements.line("message", start, base) + elements.arrow_head(tip, base, HEAD_PX / 2)


def _shape(mark: str, x: float, y: float) -> str:
    """Return the shape of an event with a mark; a circle if the mark is empty."""
    size = RADIUS + 1.5
    if mark == "match":
        far = size + 1
        return elements.polygon("match", [(x, y - far), (x + far, y), (x, y + far), (x - far, y)])
    if mark == "violation":
        low = y + size * 0.8
        return elements.polygon("violation", [(x, y - size), (x + size, low), (x - size, low)])
    if mark:
        return elements.rect("other", x - RADIUS, y - RADIUS, 2 * RADIUS, 2 * RADIUS)
    return elements.circle("event", (x, y), RADIUS)


assert LABEL_COLUMNS * elements.LABEL_PX * elements.COLUMN_EM < COLUMN - 20, (
    "a label ends before the next column"
)
