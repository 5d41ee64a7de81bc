"""Rows of clocks drawn as SVG.

The one rule: all that is drawn lies within the picture, and no text over another one: a column is
as wide as its label, a clock as its caption, a picture as its widest row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ketal.errors import columns
from ketal.pictures.clocks.clock_bars import BarsRow, ClockBars, EventSquare, checked_size
from ketal.pictures.labels import clipped, xml_text
from ketal.pictures.svg_document import COLUMN_EM, LABEL_PX, escaped, px, svg_document

LEVEL_PX = 22.0
IDENTITY_PX = 7.0
LINE_PX = 17.0
OPERATOR_PX = 20
CAPTION_COLUMNS_MAX = 60
LABEL_COLUMNS_MAX = 10
GAP, SIDE = 16.0, 16.0
# Colours near those of Okabe and Ito; plain values first, as for automata.
STYLE = """
.ketal-clock text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",\
monospace;fill:#24292f;white-space:pre}
.ketal-clock .ground{fill:#fff}
.ketal-clock .middle{text-anchor:middle}
.ketal-clock .row{font-weight:600}
.ketal-clock .known{fill:#b9d7f2;stroke:#3d5a75;stroke-width:1.2}
.ketal-clock .dotted{fill:#eef5fc;stroke:#3d5a75;stroke-width:1.4;stroke-dasharray:3 2.5}
.ketal-clock .marked{fill:#ffc98f;stroke:#a83300;stroke-width:1.6}
.ketal-clock .hole{fill:none;stroke:#c8ced6;stroke-width:1}
.ketal-clock .dot{fill:#24292f}
.ketal-clock .hatch{stroke:#a83300;stroke-width:1.2;fill:none}
.ketal-clock .base{stroke:#57606a;stroke-width:1.6}
.ketal-clock .owned{fill:#24292f;stroke:#24292f;stroke-width:1}
.ketal-clock .foreign{fill:none;stroke:#8c959f;stroke-width:1}
@media all{.ketal-clock{max-width:100%;height:auto}}
@media (prefers-color-scheme:dark){
.ketal-clock text{fill:#d7dde4}
.ketal-clock .ground{fill:#15191f}
.ketal-clock .known{fill:#27506f;stroke:#9fc4e6}
.ketal-clock .dotted{fill:#1c2a36;stroke:#9fc4e6}
.ketal-clock .marked{fill:#7a4210;stroke:#ffa45c}
.ketal-clock .hole{stroke:#3a424c}
.ketal-clock .dot{fill:#d7dde4}
.ketal-clock .hatch{stroke:#ffa45c}
.ketal-clock .base{stroke:#909dab}
.ketal-clock .owned{fill:#d7dde4;stroke:#d7dde4}
.ketal-clock .foreign{stroke:#6e7681}}
""".strip()


def bars_svg(title: str, rows: Sequence[BarsRow], note: str = "") -> str:
    """Draw rows of clocks.

    Parameters
    ----------
    title : str
        What the picture shows.
    rows : sequence of (str, sequence of ClockBars or str)
        The rows from top to bottom.
    note : str
        A line below them; may be empty.

    Raises
    ------
    SettingError
        If a column has more than `LEVELS_MAX` squares, or a clock more than `COLUMNS_MAX` columns.
    """
    drawn: list[str] = []
    width, top = _text_px(note), SIDE
    for label, parts in rows:
        if label:
            drawn.append(_text(SIDE, top + LABEL_PX, clipped(xml_text(label), 100), "row"))
            width = max(width, _text_px(label))
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
        drawn.append(_text(SIDE, top + LABEL_PX, note))
        top += LINE_PX + 6
    return svg_document("ketal-clock", title, (0, 0, width + 2 * SIDE, top), STYLE, drawn)


# --- sizes --------------------------------------------------------------------


def _levels(parts: Sequence[ClockBars | str]) -> int:
    """Return how many squares the highest column of a row has."""
    bars = [part for part in parts if isinstance(part, ClockBars)]
    levels = max((one.level for of in bars for one in of.squares), default=1)
    checked_size(levels, max((len(of.labels) for of in bars), default=0))
    return levels


def _text_px(text: str, size: float = LABEL_PX) -> float:
    return columns(text) * size * COLUMN_EM


def _column_px(bars: ClockBars) -> float:
    """Return how wide each column is, so that what is written in it and below it fits."""
    labels = [_text_px(clipped(xml_text(label), LABEL_COLUMNS_MAX)) for label in bars.labels]
    texts = [_text_px(one.text) / one.span for one in bars.squares]
    return max(bars.column_px, *(wide + 8 if wide else 0 for wide in (*labels, *texts)), 0)


def _part_px(part: ClockBars | str) -> float:
    if isinstance(part, str):
        return _text_px(part, OPERATOR_PX)
    caption = _text_px(clipped(xml_text(part.caption), CAPTION_COLUMNS_MAX))
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
        yield _text(middle, y, part, "middle", OPERATOR_PX)
        return
    wide = _column_px(part)
    left = middle - wide * len(part.labels) / 2
    # What is marked is drawn last, so that its outline is whole.
    for one in sorted(part.squares, key=lambda one: (one.form != "hole", one.marked)):
        yield _square(one, left + one.left * wide, one.span * wide, ground)
    right = left + wide * len(part.labels)
    yield (
        f'<line class="base" x1="{px(left - 3)}" y1="{px(ground)}" x2="{px(right + 3)}" '
        f'y2="{px(ground)}"/>'
    )
    for first, span, owned in part.identity:
        form = "owned" if owned else "foreign"
        yield _rect(form, left + first * wide, ground + 3, span * wide, IDENTITY_PX)
    y = ground + IDENTITY_PX + 4 + LABEL_PX
    for number, label in enumerate(part.labels):
        if label:
            shown = clipped(xml_text(label), LABEL_COLUMNS_MAX)
            yield _text(left + (number + 0.5) * wide, y, shown, "middle", tip=label)
    if part.caption:
        shown = clipped(xml_text(part.caption), CAPTION_COLUMNS_MAX)
        y += LINE_PX * any(part.labels)
        yield _text(middle, y, shown, "middle", tip=part.caption)


def _square(one: EventSquare, left: float, width: float, ground: float) -> str:
    top = ground - one.level * LEVEL_PX
    form = "marked" if one.marked and one.form == "known" else one.form
    out = [_rect(form, left, top, width, LEVEL_PX)]
    middle = left + width / 2, top + LEVEL_PX / 2
    if one.marked:
        out.append(_hatch(left, top, width))
    if one.form == "dotted":
        out.append(f'<circle class="dot" cx="{px(middle[0])}" cy="{px(middle[1])}" r="3.5"/>')
    if one.text:
        out.append(_text(middle[0], middle[1] + LABEL_PX * 0.35, one.text, "middle"))
    return f"<g><title>{escaped(xml_text(one.tip))}</title>{''.join(out)}</g>"


def _hatch(left: float, top: float, width: float) -> str:
    """Draw the oblique lines of a square that another area lacks."""
    steps = range(1, max(2, round((width + LEVEL_PX) / 8)))
    lines = []
    for at in (8.0 * step for step in steps):
        # The line x + y = at, within the square.
        x0, x1 = max(0.0, at - LEVEL_PX), min(width, at)
        if x1 > x0:
            lines.append(
                f"M{px(left + x0)},{px(top + at - x0)}L{px(left + x1)},{px(top + at - x1)}"
            )
    return f'<path class="hatch" d="{"".join(lines)}"/>'


def _rect(form: str, left: float, top: float, width: float, height: float) -> str:
    return (
        f'<rect class="{form}" x="{px(left)}" y="{px(top)}" width="{px(width)}" '
        f'height="{px(height)}"/>'
    )


def _text(
    x: float, y: float, text: str, form: str = "", size: int = LABEL_PX, tip: str = ""
) -> str:
    kind = f' class="{form}"' if form else ""
    title = f"<title>{escaped(tip)}</title>" if tip and tip != text else ""
    return (
        f'<text{kind} x="{px(x)}" y="{px(y)}" font-size="{size}">{title}'
        f"{escaped(xml_text(text))}</text>"
    )
