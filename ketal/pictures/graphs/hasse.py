"""The Hasse diagram of an order, as SVG and in Graphviz's language.

Each element is a box above those that it covers, with a line to each of them; what else is below it
follows (Birkhoff, "Lattice theory", 1940).

The one rule: a line runs from the upper element to the lower one and has no head.
"""

from __future__ import annotations

from dataclasses import dataclass

from ketal.pictures import svg_document as elements
from ketal.pictures.graphs.layout import Box, Link, Scene
from ketal.pictures.graphs.svg import (
    NAME_PX,
    document,
    lay_out,
    line_along,
    name_at,
    outline,
)
from ketal.pictures.graphs.text_formats import quoted
from ketal.pictures.labels import clipped, xml_text

CAPTION_COLUMNS_MAX = 120
PAD = 10.0
HALF_HEIGHT = 12.0


@dataclass(frozen=True, slots=True)
class HasseElement:
    """An element of an order: the label of its box, and what a pointer on it shows."""

    label: str
    tip: str


@dataclass(frozen=True, slots=True)
class HasseDiagram:
    """An order to be drawn.

    Attributes
    ----------
    title : str
        What it is.
    caption : str
        How a label is to be read.
    elements : tuple of HasseElement
        In any order.
    covers : tuple of (int, int, str)
        The number of an element, that of one which it covers, and what a pointer on the line shows.
    """

    title: str
    caption: str
    elements: tuple[HasseElement, ...]
    covers: tuple[tuple[int, int, str], ...]

    def to_svg(self) -> str:
        """Draw it; as the picture of an automaton it is laid out by Graphviz where that is."""
        boxes = [
            Box(elements.text_width(xml_text(one.label), NAME_PX) / 2 + PAD, HALF_HEIGHT)
            for one in self.elements
        ]
        links = [Link(upper, lower) for upper, lower, _ in self.covers]
        scene = Scene(tuple(boxes), tuple(links), horizontal=False)
        layout = lay_out(scene)
        lines = [
            elements.titled(tip, line_along(route.curve), 'class="edge"')
            for (_, _, tip), route in zip(self.covers, layout.routes, strict=True)
        ]
        boxed = [
            elements.titled(one.tip, outline(at, box) + name_at(at, one.label))
            for one, box, at in zip(self.elements, boxes, layout.centers, strict=True)
        ]
        caption = clipped(xml_text(self.caption), CAPTION_COLUMNS_MAX)
        return document(self.title, scene, layout, (*lines, *boxed), caption)

    def to_dot(self) -> str:
        """Write it in Graphviz's language."""
        lines = [
            f"digraph {quoted(xml_text(self.title))} {{",
            f"  label={quoted(xml_text(self.caption))};",
            '  node [fontname="monospace", fontsize=13, shape=box, style="rounded"];',
            "  edge [dir=none];",
        ]
        for number, one in enumerate(self.elements):
            tip = quoted(xml_text(one.tip))
            lines.append(f"  c{number} [label={quoted(xml_text(one.label))}, tooltip={tip}];")
        for upper, lower, tip in self.covers:
            lines.append(f"  c{upper} -> c{lower} [tooltip={quoted(xml_text(tip))}];")
        return "\n".join([*lines, "}", ""])
