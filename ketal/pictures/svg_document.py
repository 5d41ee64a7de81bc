"""What every picture in SVG has: its document, and how text and coordinates are written in it.

The one rule: every text is escaped here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from ketal.pictures.labels import xml_text

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
    """Return a picture as a whole.

    Parameters
    ----------
    kind : str
        The class of the picture, to which its style sheet is limited.
    title : str
        What it shows.
    view : (float, float, float, float)
        The left, the top, the width and the height of all that is drawn.
    style : str
        The style sheet.
    drawn : iterable of str
        The elements of the picture, those above others last.
    description : str
        What there is to say of it beside; may be empty.
    corner_px : int
        How round the corners of its ground are.
    """
    left, top, width, height = map(px, view)
    name = escaped(title)
    at = "" if (left, top) == ("0", "0") else f'x="{left}" y="{top}" '
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{kind}" width="{width}" '
            f'height="{height}" viewBox="{left} {top} {width} {height}" role="img" '
            f'aria-label="{name}">',
            f"<title>{name}</title>",
            *([f"<desc>{escaped(description)}</desc>"] if description else []),
            f"<style>{style}</style>",
            f'<rect class="ground" {at}width="{width}" height="{height}" rx="{corner_px}"/>',
            *drawn,
            "</svg>",
            "",
        ]
    )


def escaped(text: str) -> str:
    """Return a text as XML has it, on one line."""
    return escape(xml_text(text))


def px(value: float) -> str:
    """Return a coordinate with a digit after the point at most."""
    return f"{value:.1f}".removesuffix(".0")
