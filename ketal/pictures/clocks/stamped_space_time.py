"""A space-time diagram in the style of the papers: a line for each node, time to the right.

The stamp of an event is beside its dot. Lines that would be too long continue in the next band, as
in a score of music, and so do messages across the break.

Lamport, "Time, Clocks, and the Ordering of Events in a Distributed System", 1978; Baquero,
"Causality is Graphically Simple", Figs. 2 to 10.

The one rule: every event and every message is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ketal.pictures import svg_document as elements
from ketal.pictures.clocks.timeline_layout import SIDE, CurvePiece, Timeline
from ketal.pictures.labels import node_labels, short_label

STAMP_COLUMNS_MAX = 60
"""How many columns of a stamp are drawn; the tooltip of the event has the whole stamp."""
RADIUS, HEAD_PX = 5.0, 8.0
NODE_COLUMNS_MAX = 20
NODE_GAP = 16.0
STYLE = elements.style_sheet(
    "ketal-timeline",
    """
.node{font-weight:600}
.name{fill:#57606a}
.line{stroke:#8c959f;stroke-width:1}
.message{stroke:#0550ae;stroke-width:1.3;fill:none}
.tip{fill:#0550ae}
.event{fill:#24292f;stroke:#24292f;stroke-width:1.5}
.open{fill:#fff;stroke:#24292f;stroke-width:1.5}
""",
    halo=True,
)


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """An event of a diagram."""

    node: str
    stamp: str
    """The stamp, as text."""
    name: str = ""
    """The text on the other side of the line; may be empty."""
    form: str = "event"
    """`event`, a full dot; `open`, for an event that the stamps do not count; or `ringed`, for one
    that another node names."""


def stamped_space_time_svg(
    title: str,
    nodes: Sequence[str],
    events: Sequence[TimelineEvent],
    messages: Sequence[tuple[int, int]],
) -> str:
    """Draw events, given in a linear extension, with their stamps and messages.

    A message has the indices of its sending and its receiving event.
    """
    row_of = {node: row for row, node in enumerate(nodes)}
    rows = [row_of[event.node] for event in events]
    widths = [max(map(_text_px, (event.stamp, event.name))) for event in events]
    names = node_labels(nodes, NODE_COLUMNS_MAX)
    left = SIDE + max(map(elements.text_width, names), default=0) + NODE_GAP
    timeline = Timeline(rows, widths, messages, rows_count=len(nodes), left=left)
    drawn = [line for row, name in enumerate(names) for line in _draw_node(timeline, row, name)]
    drawn += [_draw_message(timeline, events, *message) for message in messages]
    below = _sends_only_upwards(rows, messages)
    drawn += [
        _draw_event(event, *timeline.point(number), below=number in below)
        for number, event in enumerate(events)
    ]
    view = (0, 0, timeline.width, timeline.height)
    return elements.svg_document("ketal-timeline", title, view, STYLE, drawn)


def _draw_node(timeline: Timeline, row: int, name: str) -> Iterator[str]:
    """Yield the line of a node, and its name, in each band."""
    for (left, y), (right, _) in timeline.line(row):
        yield elements.text_at(SIDE, y + elements.LABEL_PX * 0.35, name, "node")
        yield elements.line("line", (left - NODE_GAP / 2, y), (right, y))


def _draw_event(event: TimelineEvent, x: float, y: float, *, below: bool) -> str:
    """Draw an event; its stamp is above the line or, if `below`, below it."""
    texts = [("stamp", event.stamp, 20.0 if below else -10.0)]
    texts.append(("name", event.name, -10.0 if below else 20.0))
    written = "".join(
        elements.text_at(x - RADIUS, y + by, short_label(text, STAMP_COLUMNS_MAX), kind)
        for kind, text, by in texts
        if text
    )
    return elements.with_tooltip(
        f"{_event_name(event)} {event.stamp}", _draw_dot(event.form, (x, y)) + written, 'class="at"'
    )


def _sends_only_upwards(rows: Sequence[int], messages: Sequence[tuple[int, int]]) -> set[int]:
    """Return the events whose messages all lead up, through the usual place of the stamp."""
    up = {source for source, target in messages if rows[target] < rows[source]}
    return up - {source for source, target in messages if rows[target] >= rows[source]}


def _event_name(event: TimelineEvent) -> str:
    return event.name or event.node


def _text_px(text: str) -> float:
    return elements.text_width(short_label(text, STAMP_COLUMNS_MAX))


def _draw_dot(form: str, point: elements.Point) -> str:
    if form == "ringed":
        return elements.circle("open", point, RADIUS + 1.5) + elements.circle("event", point, 2)
    return elements.circle(form, point, RADIUS)


def _draw_message(
    timeline: Timeline, events: Sequence[TimelineEvent], source: int, target: int
) -> str:
    pieces = "".join(map(_draw_piece, timeline.pieces(source, target)))
    return elements.with_tooltip(
        f"{_event_name(events[source])} → {_event_name(events[target])}", pieces, 'class="sent"'
    )


def _draw_piece(piece: CurvePiece) -> str:
    """Draw a message within a band, up to its event or to the end of the band."""
    last, head = piece.end, ""
    if piece.arrives:
        tip = elements.towards(piece.end, piece.control, RADIUS + 2)
        last = elements.towards(piece.end, piece.control, RADIUS + 2 + HEAD_PX)
        head = elements.arrow_head(tip, last, 3.5)
    start, control, end = map(elements.point_text, (piece.start, piece.control, last))
    return f'<path class="message" d="M{start}Q{control} {end}"/>{head}'
