"""The events that nodes know, drawn as columns over the line of their identities.

Each identity has a column, and each event that is known a square in it: a vector clock fills its
columns from the bottom up, a causal history may leave holes, and the dot of a dotted clock is above
the rest of its column. A clock knows more than another iff its area includes the other's. A bar
beneath the columns is the identity of the node: it may raise the columns above the bar.

Baquero, "Causality is Graphically Simple", sections "Vector Clocks" to "Interval Tree Clocks".

The one rule: a square is an event, so two areas in one row have the same scale, and an event that
both have is at the same place in both; texts do not overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ketal.errors import SettingError
from ketal.pictures import svg_document as elements
from ketal.pictures.labels import node_labels, short_label
from ketal.pictures.svg_document import LABEL_PX, text_width

LEVELS_MAX = 40
"""How many squares a column has at most."""
COLUMNS_MAX = 256
"""How many columns a picture of a clock has at most."""
COLUMN_PX = 26.0
LEVEL_PX = 22.0
IDENTITY_PX = 7.0
LINE_PX = 17.0
OPERATOR_PX = 20
CAPTION_COLUMNS_MAX = 60
LABEL_COLUMNS_MAX = 10
GAP, SIDE = 16.0, 16.0
# Colours near those of Okabe and Ito.
STYLE = elements.style_sheet(
    "ketal-clock",
    """
.middle{text-anchor:middle}
.row{font-weight:600}
.known{fill:#b9d7f2;stroke:#3d5a75;stroke-width:1.2}
.dotted{fill:#eef5fc;stroke:#3d5a75;stroke-width:1.4;stroke-dasharray:3 2.5}
.marked{fill:#ffc98f;stroke:#a83300;stroke-width:1.6}
.hole{fill:none;stroke:#c8ced6;stroke-width:1}
.dot{fill:#24292f}
.hatch{stroke:#a83300;stroke-width:1.2;fill:none}
.base{stroke:#57606a;stroke-width:1.6}
.owned{fill:#24292f;stroke:#24292f;stroke-width:1}
.foreign{fill:none;stroke:#8c959f;stroke-width:1}
""",
)


@dataclass(frozen=True, slots=True)
class EventSquare:
    """A square of a picture, which stands for an event or for several."""

    left: int
    span: int
    """The first column of the square, and how many it has."""
    level: int
    """The square's height, counted from 1 at the bottom."""
    form: str
    """`known`; `dotted`, the dot of a dotted clock; or `hole`, an event that is not known below one
    that is."""
    tip: str
    marked: bool = False
    """Whether the other area lacks the event."""
    text: str = ""
    """The text in it; for a square of several events, their numbers."""


@dataclass(frozen=True, slots=True)
class ClockBars:
    """The columns that picture the events known to a node, a stamp or a version."""

    labels: tuple[str, ...]
    """The text beneath each column."""
    squares: tuple[EventSquare, ...]
    caption: str = ""
    """The text below the labels."""
    identity: tuple[tuple[int, int, bool], ...] = ()
    """The parts of the line of identities: the first column of each, how many it has, and whether
    it belongs to the node; empty if no identity is drawn."""
    column_px: float = COLUMN_PX
    """The least width of a column."""


BarsRow: TypeAlias = "tuple[str, Sequence[ClockBars | str]]"
"""The heading of a row, and its parts from left to right: bars, and operators as text."""


def check_size(levels: int, wide: int) -> None:
    """Raise a SettingError if the columns of a picture are too high or too many."""
    for noun, count, name, limit in (
        ("squares in a column", levels, "LEVELS_MAX", LEVELS_MAX),
        ("columns", wide, "COLUMNS_MAX", COLUMNS_MAX),
    ):
        if count > limit:
            raise SettingError(
                f"a picture of the clock would have {count:,} {noun}, but at most {limit} are "
                f"drawn ({name})"
            )


def bars_svg(title: str, rows: Sequence[BarsRow], note: str = "") -> str:
    """Return rows of clocks, from top to bottom, as an SVG document, with a note below, if any.

    If the title is empty, it is the captions and operators of the first row.
    """
    captions = [part if isinstance(part, str) else part.caption for part in rows[0][1]]
    drawn: list[str] = []
    width, top = text_width(note), SIDE
    for label, parts in rows:
        if label:
            drawn.append(elements.text_at(SIDE, top + LABEL_PX, short_label(label, 100), "row"))
            width = max(width, text_width(label))
            top += LINE_PX + 6
        levels = _levels(parts)
        left = SIDE
        for part in parts:
            size = _part_width_px(part)
            drawn += _draw_part(part, left + size / 2, top + levels * LEVEL_PX, levels)
            left += size + GAP
        width = max(width, left - GAP - SIDE)
        top += levels * LEVEL_PX + _height_below_px(parts) + GAP
    if note:
        drawn.append(elements.text_at(SIDE, top + LABEL_PX, note))
        top += LINE_PX + 6
    return elements.svg_document(
        "ketal-clock", title or " ".join(captions), (0, 0, width + 2 * SIDE, top), STYLE, drawn
    )


# --- sizes --------------------------------------------------------------------


def _levels(parts: Sequence[ClockBars | str]) -> int:
    """Return the number of squares in the highest column of a row."""
    bars = (part for part in parts if isinstance(part, ClockBars))
    return max((square.level for part in bars for square in part.squares), default=1)


def _column_width_px(bars: ClockBars) -> float:
    """Return the width of each column, in which its label and the texts of its squares fit."""
    labels = map(text_width, node_labels(bars.labels, LABEL_COLUMNS_MAX))
    texts = [text_width(one.text) / one.span for one in bars.squares]
    return max([bars.column_px, *(wide + 8 for wide in (*labels, *texts) if wide)])


def _part_width_px(part: ClockBars | str) -> float:
    if isinstance(part, str):
        return text_width(part, OPERATOR_PX)
    caption = text_width(short_label(part.caption, CAPTION_COLUMNS_MAX))
    return max(_column_width_px(part) * len(part.labels), caption, 1)


def _height_below_px(parts: Sequence[ClockBars | str]) -> float:
    """Return the height that a row takes below the base of its columns."""
    bars = [part for part in parts if isinstance(part, ClockBars)]
    labels = any(any(part.labels) for part in bars)
    captions = any(part.caption for part in bars)
    return IDENTITY_PX + 4 + LINE_PX * (labels + captions)


# --- drawing ------------------------------------------------------------------


def _draw_part(part: ClockBars | str, middle: float, ground: float, levels: int) -> Iterator[str]:
    """Draw bars or an operator; `ground` is the y coordinate of the columns' base."""
    if isinstance(part, str):
        y = ground - levels * LEVEL_PX / 2 + OPERATOR_PX * 0.35
        yield elements.text_at(middle, y, part, "middle", size=OPERATOR_PX)
        return
    wide = _column_width_px(part)
    left = middle - wide * len(part.labels) / 2
    # Marked squares are drawn last, so that their outlines are whole.
    for one in sorted(part.squares, key=lambda one: (one.form != "hole", one.marked)):
        yield _draw_square(one, left + one.left * wide, one.span * wide, ground)
    right = left + wide * len(part.labels)
    yield elements.line("base", (left - 3, ground), (right + 3, ground))
    for first, span, owned in part.identity:
        form = "owned" if owned else "foreign"
        yield elements.rect(form, left + first * wide, ground + 3, span * wide, IDENTITY_PX)
    y = ground + IDENTITY_PX + 4 + LABEL_PX
    shown_labels = node_labels(part.labels, LABEL_COLUMNS_MAX)
    for number, (label, shown) in enumerate(zip(part.labels, shown_labels, strict=True)):
        if label:
            yield elements.text_at(left + (number + 0.5) * wide, y, shown, "middle", tip=label)
    if part.caption:
        shown = short_label(part.caption, CAPTION_COLUMNS_MAX)
        y += LINE_PX * any(part.labels)
        yield elements.text_at(middle, y, shown, "middle", tip=part.caption)


def _draw_square(one: EventSquare, left: float, width: float, ground: float) -> str:
    top = ground - one.level * LEVEL_PX
    form = "marked" if one.marked and one.form == "known" else one.form
    out = [elements.rect(form, left, top, width, LEVEL_PX)]
    middle = left + width / 2, top + LEVEL_PX / 2
    if one.marked:
        out.append(_draw_hatching(left, top, width))
    if one.form == "dotted":
        out.append(elements.circle("dot", middle, 3.5))
    if one.text:
        out.append(elements.text_at(middle[0], middle[1] + LABEL_PX * 0.35, one.text, "middle"))
    return elements.with_tooltip(one.tip, "".join(out))


def _draw_hatching(left: float, top: float, width: float) -> str:
    """Draw the oblique lines of a marked square."""
    steps = range(1, max(2, round((width + LEVEL_PX) / 8)))
    lines = []
    for at in (8.0 * step for step in steps):
        # The line x + y = at, within the square.
        x0, x1 = max(0.0, at - LEVEL_PX), min(width, at)
        if x1 > x0:
            start, end = (left + x0, top + at - x0), (left + x1, top + at - x1)
            lines.append(f"M{elements.point_text(start)}L{elements.point_text(end)}")
    return f'<path class="hatch" d="{"".join(lines)}"/>'
