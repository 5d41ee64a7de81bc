"""The parts that SVG pictures share: document, style sheet, texts, lines, shapes, arrow heads.

The one rule: every text is escaped here and nowhere else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from html import escape

from ketal.errors import columns
from ketal.pictures.labels import xml_text

Point = tuple[float, float]

LABEL_PX = 12
# A little more than the 0.6 of common fixed-width faces.
COLUMN_EM = 0.61


def svg_document(
    kind: str,
    title: str,
    view: tuple[float, float, float, float],
    style: str,
    drawn: Iterable[str],
    *,
    description: str = "",
    corner_px: int = 6,
) -> str:
    """Return a whole SVG document.

    `kind` is the class of the picture, to which its style sheet is limited; `view` the left, the
    top, the width and the height of the view box; `drawn` the elements, from bottom to top. The
    `description` may be empty; `corner_px` is the radius of the corners of the background.
    """
    left, top, width, height = map(px, view)
    name = escaped(title)
    place = "" if (left, top) == ("0", "0") else f'x="{left}" y="{top}" '
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{kind}" width="{width}" '
            f'height="{height}" viewBox="{left} {top} {width} {height}" role="img" '
            f'aria-label="{name}">',
            f"<title>{name}</title>",
            *([f"<desc>{escaped(description)}</desc>"] if description else []),
            f"<style>{style}</style>",
            f'<rect class="ground" {place}width="{width}" height="{height}" rx="{corner_px}"/>',
            *drawn,
            "</svg>",
            "",
        ]
    )


_DARK = {
    "#fff": "#15191f", "#24292f": "#d7dde4", "#57606a": "#909dab", "#8c959f": "#6e7681",
    "#f6f8fa": "#2d333b", "#c8ced6": "#3a424c", "#0550ae": "#79b8ff",
    "#00795a": "#2bc99b", "#c23b00": "#ff8552", "#8250df": "#cc9cf5",
    "#b9d7f2": "#27506f", "#3d5a75": "#9fc4e6", "#eef5fc": "#1c2a36",
    "#ffc98f": "#7a4210", "#a83300": "#ffa45c",
}  # fmt: skip
"""Each colour on a light page → the colour on a dark page."""
_TEXT = """\
text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;\
fill:#24292f;white-space:pre}
.ground{fill:#fff}
"""
_LETTER = "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
_RIGHT_TO_LEFT = re.compile(f"{_LETTER}+(?:[ …]+{_LETTER}+)*(?!$|[ …]*{_LETTER})")
"""Words that are written from right to left, before other text."""
_HALO = "text{stroke:#fff;stroke-width:3;stroke-linejoin:round;paint-order:stroke}\n"


def style_sheet(kind: str, rules: str, *, halo: bool = False) -> str:
    """Return the style sheet of the pictures of a class, from its rules for light pages.

    With `halo`, texts are outlined in the background colour, to be legible over lines.

    Colours are plain values, the light ones first: librsvg, CairoSVG and resvg know no CSS
    variables and ignore @media rules. The size is in one, too, as CairoSVG draws nothing if it is
    `auto`.
    """
    every = f"{_TEXT}{_HALO * halo}{rules.strip()}"
    light = "\n".join(f".{kind} {rule}" for rule in every.splitlines())
    dark = re.sub(r"#\w+", lambda colour: _DARK[colour[0]], light)
    return (
        f"{light}\n@media all{{.{kind}{{max-width:100%;height:auto}}}}\n"
        f"@media (prefers-color-scheme:dark){{\n{dark}}}"
    )


def text_width(text: str, size: float = LABEL_PX) -> float:
    """Return the width of a text in pixels."""
    return columns(text) * size * COLUMN_EM


def text_at(
    x: float, y: float, text: str, kind: str = "", *, size: int = LABEL_PX, tip: str = ""
) -> str:
    """Return a text at a base line, with the tooltip `tip` if that differs from the text."""
    form = f' class="{kind}"' if kind else ""
    title = f"<title>{escaped(tip)}</title>" if tip and tip != text else ""
    return f'<text{form} x="{px(x)}" y="{px(y)}" font-size="{size}">{title}{escaped(text)}</text>'


def line(kind: str, start: Point, end: Point) -> str:
    """Return a straight line."""
    (x0, y0), (x1, y1) = start, end
    return f'<line class="{kind}" x1="{px(x0)}" y1="{px(y0)}" x2="{px(x1)}" y2="{px(y1)}"/>'


def circle(kind: str, center: Point, radius: float) -> str:
    """Return a circle."""
    return f'<circle class="{kind}" cx="{px(center[0])}" cy="{px(center[1])}" r="{px(radius)}"/>'


def rect(kind: str, left: float, top: float, width: float, height: float, corner: float = 0) -> str:
    """Return a rectangle; `corner` is the radius of its corners."""
    round_ = f' rx="{px(corner)}"' if corner else ""
    return (
        f'<rect class="{kind}" x="{px(left)}" y="{px(top)}" width="{px(width)}" '
        f'height="{px(height)}"{round_}/>'
    )


def polygon(kind: str, corners: Iterable[Point]) -> str:
    """Return a polygon."""
    return f'<polygon class="{kind}" points="{" ".join(map(point_text, corners))}"/>'


def towards(start: Point, end: Point, distance: float) -> Point:
    """Return the point at a distance from `start`, in the direction of `end`."""
    share = distance / math.dist(start, end)
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share


def arrow_head(tip: Point, base: Point, half_width: float) -> str:
    """Return the head of an arrow; `base` is the middle of the side opposite the tip."""
    length = math.dist(tip, base)
    dx, dy = (base[0] - tip[0]) / length, (base[1] - tip[1]) / length
    sides = (half_width, -half_width)
    return polygon("tip", [tip, *((base[0] - dy * half, base[1] + dx * half) for half in sides)])


def with_tooltip(tip: str, drawn: str, attribute: str = "") -> str:
    """Return a group of elements with a tooltip, and optionally an attribute."""
    return f"<g{attribute and ' '}{attribute}><title>{escaped(tip)}</title>{drawn}</g>"


def point_text(point: Point) -> str:
    """Return a point in the syntax of paths and polygons."""
    return f"{px(point[0])},{px(point[1])}"


def escaped(text: str) -> str:
    """Return a text escaped for XML, on one line.

    A left-to-right mark follows words that are written from right to left: without it, the numbers
    and signs after such a name would be shown before it.
    """
    return escape(_RIGHT_TO_LEFT.sub("\\g<0>\u200e", xml_text(text)))


def px(value: float) -> str:
    """Return a coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")
