"""The input and the result of a layout.

A layout places boxes and routes links between them. It knows sizes, but no states or guards.
Graphviz (`ketal.pictures.graphs.graphviz`) and ketal's own layers (`ketal.pictures.graphs.layered`)
are two functions from a `Scene` to a `Layout`.

The one rule: all coordinates are in pixels, x to the right and y down.
"""

from __future__ import annotations

from dataclasses import dataclass

from ketal.pictures.svg_document import Point

CORNER = 11.0


class LayoutError(Exception):
    """A layout program failed; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Box:
    """A box with round corners; a circle if it is as wide as high."""

    half_width: float
    half_height: float

    @property
    def radius(self) -> float:
        """The radius of the corners."""
        return self.half_width if self.half_width == self.half_height else CORNER


@dataclass(frozen=True, slots=True)
class Link:
    """An arrow between two boxes, which are given by index, with the size of its label."""

    source: int
    target: int
    label_width: float = 0
    label_height: float = 0


@dataclass(frozen=True, slots=True)
class Scene:
    """The input of a layout; if `horizontal`, links lead from left to right, otherwise down."""

    boxes: tuple[Box, ...]
    links: tuple[Link, ...]
    horizontal: bool


@dataclass(frozen=True, slots=True)
class Route:
    """The route of a link."""

    curve: tuple[Point, ...]
    """A start, then three points (two controls and an end) for each cubic Bézier; the last is the
    point of the arrow."""
    label: Point
    """The middle of the label."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The middle of each box, the route of each link, and the name of the layout program."""

    centers: tuple[Point, ...]
    routes: tuple[Route, ...]
    engine: str
