"""A graph drawn as SVG.

The layout comes from Graphviz where it is installed, else from `layered`; the
drawing is the same for both. Colours are given for light and dark, each with a
ground of its own, so the picture is readable on any page.

The one rule: every text of a pattern is escaped here and nowhere else, and
whatever is drawn lies inside the view box.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from html import escape
from typing import TYPE_CHECKING

from ketal.errors import SettingError
from ketal.pictures import graphviz, layered
from ketal.pictures.layout import Box, Layout, LayoutError, Link, Point, Route, Scene
from ketal.pictures.wording import clipped, columns, printable, wrapped

if TYPE_CHECKING:
    from ketal.pictures.graph import Edge, Graph, State

SVG_STATES_MAX = 200
"""The most states that are drawn; nobody reads a picture of more."""
SVG_EDGES_MAX = 600
"""The most edges that are drawn."""

NAME_PX = 13
LABEL_PX = 12
LINE_PX = 16
# A little more than the 0.6 of common fixed-width faces.
COLUMN_EM = 0.61
LABEL_PAD = 8
RADIUS = 22.0
MARGIN = 16.0

STYLE = """
.ketal-graph{--ground:#fff;--ink:#24292f;--line:#57606a;--fill:#f6f8fa;--strong:#0550ae}
@media (prefers-color-scheme:dark){
.ketal-graph{--ground:#1c2128;--ink:#d7dde4;--line:#909dab;--fill:#2d333b;--strong:#79b8ff}}
.ketal-graph .ground{fill:var(--ground)}
.ketal-graph .state *{stroke:var(--line);stroke-width:1.5;fill:var(--fill)}
.ketal-graph .edge path{stroke:var(--line);stroke-width:1.4;fill:none}
.ketal-graph .edge polygon,.ketal-graph .start{fill:var(--line)}
.ketal-graph text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",\
monospace;fill:var(--ink);stroke:none;white-space:pre}
.ketal-graph .state text{fill:var(--ink);stroke:none;text-anchor:middle;font-weight:600}
.ketal-graph .head{fill:var(--strong);font-weight:600}
""".strip()


class LayoutWarning(UserWarning):
    """Graphviz is installed and failed; the picture was laid out in layers."""


def draw(graph: Graph) -> str:
    """Draw a graph.

    Raises
    ------
    SettingError
        If it has more than `SVG_STATES_MAX` states or `SVG_EDGES_MAX` edges.
    """
    for what, count, limit in (
        ("states", len(graph.states), SVG_STATES_MAX),
        ("edges", len(graph.edges), SVG_EDGES_MAX),
    ):
        if count > limit:
            raise SettingError(
                f"the automaton of {graph.pattern} has {count} {what}, more than a picture shows "
                f"(SVG_{what.upper()}_MAX is {limit}); write it as dot, mermaid or json"
            )
    return _Picture(graph, lay_out(scene_of(graph))).svg()


# --- layout -----------------------------------------------------------------


def scene_of(graph: Graph) -> Scene:
    """Return the boxes of the states, then the dot that the initial arrow starts from."""
    start = len(graph.states)
    numbers = {state.number: at for at, state in enumerate(graph.states)}
    links = [Link(start, numbers[graph.initial])]
    for edge in graph.edges:
        lines = wrapped(edge.label)
        width = max(map(columns, lines)) * LABEL_PX * COLUMN_EM + LABEL_PAD
        size = (math.ceil(width), len(lines) * LINE_PX + LABEL_PAD)
        links.append(Link(numbers[edge.source], numbers[edge.target], *size))
    boxes = (*map(_box, graph.states), Box(4.0, 4.0))
    return Scene(boxes, tuple(links), graph.horizontal)


def _box(state: State) -> Box:
    if state.round:
        return Box(RADIUS, RADIUS)
    return Box(columns(_name(state)) * NAME_PX * COLUMN_EM / 2 + 16, RADIUS)


def _name(state: State) -> str:
    return clipped(printable(state.name))


def lay_out(scene: Scene) -> Layout:
    """Lay a scene out by the best program at hand."""
    program = graphviz.available()
    if program is not None:
        try:
            return graphviz.place(scene, program)
        except LayoutError as error:
            said = f"Graphviz is installed, but {error}; the layout is ketal's own"
            warnings.warn(said, LayoutWarning, stacklevel=2)
    return layered.place(scene)


# --- drawing ----------------------------------------------------------------


class _Picture:
    """One drawing: elements, and the points that the view box must hold."""

    def __init__(self, graph: Graph, layout: Layout) -> None:
        self.graph = graph
        self.layout = layout
        self.seen: list[Point] = []

    def svg(self) -> str:
        edges = list(self._edges())
        states = list(self._states())
        xs, ys = zip(*self.seen, strict=True)
        left, top = math.floor(min(xs) - MARGIN), math.floor(min(ys) - MARGIN)
        width = math.ceil(max(xs) + MARGIN) - left
        height = math.ceil(max(ys) + MARGIN) - top
        title = _text(self.graph.title)
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" class="ketal-graph" role="img" '
                f'aria-label="{title}" width="{width}" height="{height}" '
                f'viewBox="{left} {top} {width} {height}" style="max-width:100%;height:auto">',
                f"<title>{title}</title>",
                f"<desc>Laid out by {self.layout.engine}.</desc>",
                f"<style>{STYLE}</style>",
                f'<rect class="ground" x="{left}" y="{top}" width="{width}" height="{height}" '
                'rx="6"/>',
                *edges,
                *states,
                "</svg>",
                "",
            ]
        )

    def _edges(self) -> Iterator[str]:
        start, *routes = self.layout.routes
        (x, y) = self._note(self.layout.centers[-1], 4, 4)
        yield f'<g class="edge"><title>initial</title>{self._arrow(start)}</g>'
        yield f'<circle class="start" cx="{_px(x)}" cy="{_px(y)}" r="4"/>'
        names = {state.number: state.name for state in self.graph.states}
        for edge, route in zip(self.graph.edges, routes, strict=True):
            said = f"{names[edge.source]} → {names[edge.target]}: {'; '.join(edge.label)}"
            label = self._label(edge, route.label)
            yield (f'<g class="edge"><title>{_text(said)}</title>{self._arrow(route)}{label}</g>')

    def _arrow(self, route: Route) -> str:
        for point in (*route.curve, route.tip):
            self._note(point)
        first, *rest = route.curve
        path = f"M{_at(first)}C{' '.join(map(_at, rest))}"
        return f'<path d="{path}"/><polygon points="{_head(route.curve[-1], route.tip)}"/>'

    def _label(self, edge: Edge, middle: Point) -> str:
        lines = wrapped(edge.label)
        width = max(map(columns, lines)) * LABEL_PX * COLUMN_EM
        height = len(lines) * LINE_PX
        x, y = self._note(middle, width / 2, height / 2)
        left, first = x - width / 2, y - height / 2 + LINE_PX * 0.75
        heads = {printable(way.head) for way in edge.ways}
        spans = "".join(
            f'<tspan x="{_px(left)}" y="{_px(first + n * LINE_PX)}">{_line(line, heads)}</tspan>'
            for n, line in enumerate(lines)
        )
        return f'<text font-size="{LABEL_PX}" xml:space="preserve">{spans}</text>'

    def _states(self) -> Iterator[str]:
        for state, center in zip(self.graph.states, self.layout.centers, strict=False):
            box = _box(state)
            x, y = self._note(center, box.half_width, box.half_height)
            inner = _shape(center, box, 4) if state.final else ""
            kind = "state final" if state.final else "state"
            yield (
                f'<g class="{kind}" data-state="{state.number}"><title>{_text(state.name)}</title>'
                f"{_shape(center, box, 0)}{inner}"
                f'<text x="{_px(x)}" y="{_px(y + NAME_PX * 0.35)}" font-size="{NAME_PX}">'
                f"{_text(_name(state))}</text></g>"
            )

    def _note(self, point: Point, half_width: float = 2, half_height: float = 2) -> Point:
        """Remember that the view box must hold a point and what is around it."""
        x, y = point
        self.seen += [(x - half_width, y - half_height), (x + half_width, y + half_height)]
        return point


def _shape(center: Point, box: Box, inset: float) -> str:
    x, y = center
    half_width, half_height = box.half_width - inset, box.half_height - inset
    if box.half_width == box.half_height:
        return f'<circle cx="{_px(x)}" cy="{_px(y)}" r="{_px(half_width)}"/>'
    return (
        f'<rect x="{_px(x - half_width)}" y="{_px(y - half_height)}" '
        f'width="{_px(2 * half_width)}" height="{_px(2 * half_height)}" '
        f'rx="{_px(box.radius - inset)}"/>'
    )


def _head(base: Point, tip: Point) -> str:
    """Return the corners of an arrow's head."""
    along = (tip[0] - base[0], tip[1] - base[1])
    length = math.hypot(*along) or 1.0
    side = (-along[1] / length * 3.6, along[0] / length * 3.6)
    corners: Iterable[Point] = (
        tip,
        (base[0] + side[0], base[1] + side[1]),
        (base[0] - side[0], base[1] - side[1]),
    )
    return " ".join(map(_at, corners))


def _line(line: str, heads: set[str]) -> str:
    """Write a line of a label, the head of a way set off."""
    head = line.partition(": ")[0].removesuffix(":")
    if head in heads:
        return f'<tspan class="head">{_text(head)}</tspan>{_text(line[len(head) :])}'
    return _text(line)


def _text(text: str) -> str:
    return escape(printable(text))


def _at(point: Point) -> str:
    return f"{_px(point[0])},{_px(point[1])}"


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
