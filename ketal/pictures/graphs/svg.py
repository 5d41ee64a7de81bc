"""A graph drawn as SVG.

The layout is by Graphviz if that is installed, otherwise by `layered`; the drawing is the same for
both. There are colours for light and for dark pages, each with a background of their own, so the
picture is legible on any page.

The one rule: all elements lie inside the view box.
"""

from __future__ import annotations

import math
import shutil
import warnings
from collections.abc import Iterable

from ketal.pictures import svg_document as elements
from ketal.pictures.graphs import graphviz, layered
from ketal.pictures.graphs.layout import Box, Layout, LayoutError, Scene

NAME_PX = 13
CAPTION_PX = 20
HEAD_PX = 9
MARGIN = 16.0

STYLE = elements.style_sheet(
    "ketal-graph",
    """
.shape{stroke:#57606a;stroke-width:1.5;fill:#f6f8fa}
.name{text-anchor:middle;font-weight:600}
.line{stroke:#57606a;stroke-width:1.4;fill:none}
.tip{fill:#57606a}
.head{fill:#0550ae;font-weight:600}
""",
)


class LayoutWarning(UserWarning):
    """Graphviz is installed but failed; ketal's own layout was used."""


def document(
    title: str, scene: Scene, layout: Layout, drawn: Iterable[str], caption: str = ""
) -> str:
    """Return a whole SVG document, with a caption, if any, above the elements."""
    left, top, width, height = _view(scene, layout)
    lines: list[str] = []
    if caption:
        baseline, top, height = top, top - CAPTION_PX, height + CAPTION_PX
        width = max(width, math.ceil(elements.text_width(caption) + 2 * MARGIN))
        lines.append(elements.text_at(left + MARGIN, baseline, caption))
    view = (left, top, width, height)
    description = f"Laid out by {layout.engine}."
    return elements.svg_document(
        "ketal-graph", title, view, STYLE, (*lines, *drawn), description=description
    )


# --- layout -----------------------------------------------------------------


def lay_out(scene: Scene) -> Layout:
    """Return the layout of a scene by Graphviz if that is installed, otherwise by `layered`."""
    program = shutil.which("dot")
    if program is not None:
        try:
            return graphviz.layout_of(scene, program)
        except LayoutError as error:
            message = f"Graphviz is installed, but {error}; using ketal's own layout"
            warnings.warn(message, LayoutWarning, stacklevel=2)
    return layered.layout_of(scene)


# --- drawing ----------------------------------------------------------------


def _view(scene: Scene, layout: Layout) -> tuple[int, int, int, int]:
    """Return the left, the top, the width and the height of the view box."""
    halves = [(box.half_width, box.half_height) for box in scene.boxes]
    sized = list(zip(layout.centers, halves, strict=True))
    for link, route in zip(scene.links, layout.routes, strict=True):
        sized.append((route.label, (link.label_width / 2, link.label_height / 2)))
        sized += [(point, (2.0, 2.0)) for point in route.curve]
    left = math.floor(min(x - w for (x, _), (w, _) in sized) - MARGIN)
    top = math.floor(min(y - h for (_, y), (_, h) in sized) - MARGIN)
    right = math.ceil(max(x + w for (x, _), (w, _) in sized) + MARGIN)
    bottom = math.ceil(max(y + h for (_, y), (_, h) in sized) + MARGIN)
    return left, top, right - left, bottom - top


def line_along(curve: tuple[elements.Point, ...]) -> str:
    """Return the line along a curve of a `Route`."""
    first, *rest = map(elements.point_text, curve)
    return f'<path class="line" d="M{first}C{" ".join(rest)}"/>'


def arrow(curve: tuple[elements.Point, ...]) -> str:
    """Return the arrow along a curve."""
    end = curve[-1]
    # A control point very close to the end gives no direction.
    behind = next(point for point in reversed(curve) if math.dist(point, end) > 1)
    base = elements.towards(end, behind, HEAD_PX)
    return line_along(curve) + elements.arrow_head(end, base, HEAD_PX * 0.4)


def name_at(center: elements.Point, text: str) -> str:
    """Return a name, centred in a box."""
    return elements.text_at(center[0], center[1] + NAME_PX * 0.35, text, "name", size=NAME_PX)


def outline(center: elements.Point, box: Box, inset: float = 0) -> str:
    """Return the outline of a box, or a line `inset` pixels inside it."""
    x, y = center
    half_width, half_height = box.half_width - inset, box.half_height - inset
    if box.half_width == box.half_height:
        return elements.circle("shape", center, half_width)
    left, top, corner = x - half_width, y - half_height, box.radius - inset
    return elements.rect("shape", left, top, 2 * half_width, 2 * half_height, corner)
