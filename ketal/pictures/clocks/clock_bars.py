"""What nodes know, drawn as columns of events over the line of their identities.

Each identity has a column, each event that is known a square in it: a vector clock fills its
columns from the ground up, a causal history may leave holes, and the dot of a dotted clock hangs
above what its column has. One knows more than the other iff its area includes the other's. A bar
beneath the columns is the identity of the node: the columns above it are those that it may raise.

Baquero, "Causality is Graphically Simple", sections "Vector Clocks" to "Interval Tree Clocks".

The one rule: a square is an event, so two areas in one row have the same scale, and what both have
is at the same place in both; no text lies over another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ketal.errors import SettingError
from ketal.pictures import svg_document as elements
from ketal.pictures.labels import short_label
from ketal.pictures.svg_document import LABEL_PX, text_width

LEVELS_MAX = 40
"""How many squares a column has in a picture."""
COLUMNS_MAX = 256
"""How many columns a picture of what a node knows has."""
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
    """
.known{fill:#27506f;stroke:#9fc4e6}
.dotted{fill:#1c2a36;stroke:#9fc4e6}
.marked{fill:#7a4210;stroke:#ffa45c}
.hole{stroke:#3a424c}
.dot{fill:#d7dde4}
.hatch{stroke:#ffa45c}
.base{stroke:#909dab}
.owned{fill:#d7dde4;stroke:#d7dde4}
.foreign{stroke:#6e7681}
""",
)


@dataclass(frozen=True, slots=True)
class EventSquare:
    """An event in a picture, or events in one square.

    Attributes
    ----------
    left, span : int
        The first of its columns, and how many it has.
    level : int
        Which one it is from the ground up, from 1 on.
    form : str
        `known`; `dotted`, the dot of a clock, apart from what the clock has; or `hole`, an event
        that is not known, below one that is.
    tip : str
        What a pointer on it shows.
    marked : bool
        Whether another area lacks it.
    text : str
        What is written in it; of a square for many events, their numbers.
    """

    left: int
    span: int
    level: int
    form: str
    tip: str
    marked: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class ClockBars:
    """The picture of what one node, stamp or version knows.

    Attributes
    ----------
    labels : tuple of str
        What is written beneath each column.
    squares : tuple of EventSquare
        The events.
    caption : str
        What is written below.
    identity : tuple of (int, int, bool)
        The line of identities in parts: the first column of each, how many it has, and whether it
        belongs to the node; empty if no identity is drawn.
    column_px : float
        How wide a column is at least.
    """

    labels: tuple[str, ...]
    squares: tuple[EventSquare, ...]
    caption: str = ""
    identity: tuple[tuple[int, int, bool], ...] = ()
    column_px: float = COLUMN_PX


BarsRow: TypeAlias = "tuple[str, Sequence[ClockBars | str]]"
"""What is written above a row, and what it has from left to right: bars, and operators as text."""


def checked_size(levels: int, wide: int) -> None:
    """Refuse a picture of columns that are too high or too many.

    Raises
    ------
    SettingError
        If there are more than `LEVELS_MAX` levels or `COLUMNS_MAX` columns.
    """
    for what, count, name, limit in (
        ("squares in a column", levels, "LEVELS_MAX", LEVELS_MAX),
        ("columns", wide, "COLUMNS_MAX", COLUMNS_MAX),
    ):
        if count > limit:
            raise SettingError(
                f"a picture of a clock would have {count:,} {what}, and {limit} are drawn at most "
                f"({name})"
            )


def bars_svg(title: str, rows: Sequence[BarsRow], note: str = "") -> str:
    """Draw rows of clocks.

    Parameters
    ----------
    title : str
        What the picture shows; if empty, the captions and operators of the first row.
    rows : sequence of (str, sequence of ClockBars or str)
        The rows from top to bottom.
    note : str
        A line below them; may be empty.
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
            size = _part_px(part)
            drawn += _part(part, left + size / 2, top + levels * LEVEL_PX, levels)
            left += size + GAP
        width = max(width, left - GAP - SIDE)
        top += levels * LEVEL_PX + _below_px(parts) + GAP
    if note:
        drawn.append(elements.text_at(SIDE, top + LABEL_PX, note))
        top += LINE_PX + 6
    return elements.svg_document(
        "ketal-clock", title or " ".join(captions), (0, 0, width + 2 * SIDE, top), STYLE, drawn
    )


# --- sizes --------------------------------------------------------------------


def _levels(parts: Sequence[ClockBars | str]) -> int:
    """Return how many squares the highest column of a row has."""
    bars = (part for part in parts if isinstance(part, ClockBars))
    return max((one.level for of in bars for one in of.squares), default=1)


def _column_px(bars: ClockBars) -> float:
    """Return how wide each column is, so that what is written in it and below it fits."""
    labels = [text_width(short_label(label, LABEL_COLUMNS_MAX)) for label in bars.labels]
    texts = [text_width(one.text) / one.span for one in bars.squares]
    return max([bars.column_px, *(wide + 8 for wide in (*labels, *texts) if wide)])


def _part_px(part: ClockBars | str) -> float:
    if isinstance(part, str):
        return text_width(part, OPERATOR_PX)
    caption = text_width(short_label(part.caption, CAPTION_COLUMNS_MAX))
    return max(_column_px(part) * len(part.labels), caption, 1)


def _below_px(parts: Sequence[ClockBars | str]) -> float:
    """Return what a row takes below the ground of its columns."""
    bars = [part for part in parts if isinstance(part, ClockBars)]
    labels = any(any(of.labels) for of in bars)
    captions = any(of.caption for of in bars)
    return IDENTITY_PX + 4 + LINE_PX * (labels + captions)


# --- drawing ------------------------------------------------------------------


def _part(part: ClockBars | str, middle: float, ground: float, levels: int) -> Iterator[str]:
    """Draw bars or an operator; `ground` is where the columns stand."""
    if isinstance(part, str):
        y = ground - levels * LEVEL_PX / 2 + OPERATOR_PX * 0.35
        yield elements.text_at(middle, y, part, "middle", size=OPERATOR_PX)
        return
    wide = _column_px(part)
    left = middle - wide * len(part.labels) / 2
    # What is marked is drawn last, so that its outline is whole.
    for one in sorted(part.squares, key=lambda one: (one.form != "hole", one.marked)):
        yield _square(one, left + one.left * wide, one.span * wide, ground)
    right = left + wide * len(part.labels)
    yield elements.line("base", (left - 3, ground), (right + 3, ground))
    for first, span, owned in part.identity:
        form = "owned" if owned else "foreign"
        yield elements.rect(form, left + first * wide, ground + 3, span * wide, IDENTITY_PX)
    y = ground + IDENTITY_PX + 4 + LABEL_PX
    for number, label in enumerate(part.labels):
        if label:
            shown = short_label(label, LABEL_COLUMNS_MAX)
            yield elements.text_at(left + (number + 0.5) * wide, y, shown, "middle", tip=label)
    if part.caption:
        shown = short_label(part.caption, CAPTION_COLUMNS_MAX)
        y += LINE_PX * any(part.labels)
        yield elements.text_at(middle, y, shown, "middle", tip=part.caption)


def _square(one: EventSquare, left: float, width: float, ground: float) -> str:
    top = ground - one.level * LEVEL_PX
    form = "marked" if one.marked and one.form == "known" else one.form
    out = [elements.rect(form, left, top, width, LEVEL_PX)]
    middle = left + width / 2, top + LEVEL_PX / 2
    if one.marked:
        out.append(_hatch(left, top, width))
    if one.form == "dotted":
        out.append(elements.circle("dot", middle, 3.5))
    if one.text:
        out.append(elements.text_at(middle[0], middle[1] + LABEL_PX * 0.35, one.text, "middle"))
    return elements.titled(one.tip, "".join(out))


def _hatch(left: float, top: float, width: float) -> str:
    """Draw the oblique lines of a square that another area lacks."""
    steps = range(1, max(2, round((width + LEVEL_PX) / 8)))
    lines = []
    for at in (8.0 * step for step in steps):
        # The line x + y = at, within the square.
        x0, x1 = max(0.0, at - LEVEL_PX), min(width, at)
        if x1 > x0:
            start, end = (left + x0, top + at - x0), (left + x1, top + at - x1)
            lines.append(f"M{elements.at(start)}L{elements.at(end)}")
    return f'<path class="hatch" d="{"".join(lines)}"/>'
