"""A space-time diagram drawn as SVG: a column for each node, time downwards.

The one rule: every event and every message is drawn, or the limit is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ketal.errors import SettingError
from ketal.pictures.labels import clipped, xml_text
from ketal.pictures.svg_document import COLUMN_EM, LABEL_PX, escaped, px, svg_document

DRAWN_EVENTS_MAX = 1_000
"""The most events that are drawn; a picture of more is unreadable."""
COLUMN, ROW, TOP, SIDE = 190.0, 26.0, 48.0, 24.0
LABEL_COLUMNS = 22
RADIUS = 5.0
# Colours of Okabe and Ito; plain values first, as for automata.
STYLE = """
.ketal-run text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",\
monospace;fill:#24292f;white-space:pre;stroke:#fff;stroke-width:3;stroke-linejoin:round;\
paint-order:stroke}
.ketal-run .ground{fill:#fff}
.ketal-run .name{text-anchor:middle;font-weight:600}
.ketal-run .line{stroke:#8c959f;stroke-width:1}
.ketal-run .message{stroke:#8c959f;stroke-width:1.2;fill:none}
.ketal-run .tip{fill:#8c959f}
.ketal-run .event{fill:#57606a}
.ketal-run .match{fill:#00795a}
.ketal-run .violation{fill:#c23b00}
.ketal-run .other{fill:#8250df}
@media all{.ketal-run{max-width:100%;height:auto}}
@media (prefers-color-scheme:dark){
.ketal-run text{fill:#d7dde4;stroke:#15191f}
.ketal-run .ground{fill:#15191f}
.ketal-run .line,.ketal-run .message{stroke:#6e7681}
.ketal-run .tip{fill:#6e7681}
.ketal-run .event{fill:#909dab}
.ketal-run .match{fill:#2bc99b}
.ketal-run .violation{fill:#ff8552}
.ketal-run .other{fill:#cc9cf5}}
""".strip()


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
) -> str:
    """Draw a diagram.

    Parameters
    ----------
    title : str
        What it shows.
    nodes : sequence of str
        The columns.
    events : sequence of DrawnEvent
        The events.
    messages : sequence of (int, int)
        The numbers of the events that sent, and that received.

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
    width = COLUMN * max(1, len(nodes)) + SIDE
    height = TOP + ROW * (1 + max((event.row for event in events), default=0)) + SIDE
    out = []
    for column, node in enumerate(nodes):
        rows = [event.row for event in events if event.column == column]
        x = px(_x(column))
        out.append(
            f'<text class="name" x="{x}" y="24" font-size="{LABEL_PX}">'
            f"{escaped(clipped(xml_text(node), LABEL_COLUMNS))}</text>"
        )
        if rows:
            out.append(
                f'<line class="line" x1="{x}" y1="{px(_y(min(rows)))}" x2="{x}" '
                f'y2="{px(_y(max(rows)))}"/>'
            )
    out += [_message(events[source], events[target]) for source, target in messages]
    out += [_event(event) for event in events]
    return svg_document("ketal-run", title, (0, 0, width, height), STYLE, out, corner_px=0)


def _x(column: int) -> float:
    return SIDE + column * COLUMN + 20


def _y(row: int) -> float:
    return TOP + row * ROW


def _message(source: DrawnEvent, target: DrawnEvent) -> str:
    x0, y0, x1, y1 = _x(source.column), _y(source.row), _x(target.column), _y(target.row)
    length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5 or 1.0
    dx, dy = (x1 - x0) / length, (y1 - y0) / length
    tip_x, tip_y = x1 - dx * RADIUS, y1 - dy * RADIUS
    base_x, base_y = tip_x - dx * 7, tip_y - dy * 7
    corners = " ".join(
        f"{px(x)},{px(y)}"
        for x, y in (
            (tip_x, tip_y),
            (base_x - dy * 3.5, base_y + dx * 3.5),
            (base_x + dy * 3.5, base_y - dx * 3.5),
        )
    )
    return (
        f'<line class="message" x1="{px(x0)}" y1="{px(y0)}" x2="{px(base_x)}" y2="{px(base_y)}"/>'
        f'<polygon class="tip" points="{corners}"/>'
    )


def _event(event: DrawnEvent) -> str:
    x, y = _x(event.column), _y(event.row)
    size = RADIUS + 1.5
    if event.mark == "match":
        far = size + 1
        points = [(x, y - far), (x + far, y), (x, y + far), (x - far, y)]
        shape = f'<polygon class="match" points="{_points(points)}"/>'
    elif event.mark == "violation":
        points = [(x, y - size), (x + size, y + size * 0.8), (x - size, y + size * 0.8)]
        shape = f'<polygon class="violation" points="{_points(points)}"/>'
    elif event.mark:
        corner = f'x="{px(x - RADIUS)}" y="{px(y - RADIUS)}"'
        shape = f'<rect class="other" {corner} width="{px(2 * RADIUS)}" height="{px(2 * RADIUS)}"/>'
    else:
        shape = f'<circle class="event" cx="{px(x)}" cy="{px(y)}" r="{px(RADIUS)}"/>'
    label = escaped(clipped(xml_text(event.label), LABEL_COLUMNS))
    return (
        f"<g><title>{escaped(xml_text(event.tip))}</title>{shape}"
        f'<text x="{px(x + 11)}" y="{px(y + LABEL_PX * 0.35)}" font-size="{LABEL_PX}">'
        f"{label}</text></g>"
    )


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{px(x)},{px(y)}" for x, y in points)


assert LABEL_COLUMNS * LABEL_PX * COLUMN_EM < COLUMN - 20, "a label ends before the next column"
