"""The lattice of consistent cuts of a small execution, drawn as a Hasse diagram.

A cut is named by the counters of the last events in it, one for each node, 0 for a node without
events in it (Mattern, "Virtual time and global states of distributed systems", 1989). A cut covers
the cuts with one event less, so its height is the number of its events. Each cut is a box above the
cuts that it covers, with a line to each of them; the rest of the order follows from the lines
(Birkhoff, "Lattice theory", 1940).

The one rule: the empty cut is at the bottom, the whole execution at the top, and lines have no
arrow heads.
"""

from __future__ import annotations

from dataclasses import dataclass

from ketal.explanation.cuts.series_parallel import EventOrder
from ketal.model.events.causal_graph import CausalGraph
from ketal.pictures import svg_document as elements
from ketal.pictures.graphs import svg
from ketal.pictures.graphs.graph import dot_quoted
from ketal.pictures.graphs.layout import Box, Link, Scene
from ketal.pictures.labels import short_label

CAPTION_COLUMNS_MAX = 120
PAD = 10.0
HALF_HEIGHT = 12.0
Cut = tuple[int, ...]
"""How many events of each node are in the cut."""


@dataclass(frozen=True, slots=True)
class CutLattice:
    """The lattice of an execution."""

    title: str
    caption: str
    """How to read a label."""
    cuts: tuple[tuple[str, str], ...]
    """For each cut, the label of its box and its tooltip."""
    covers: tuple[tuple[int, int, str], ...]
    """The index of a cut, that of a cut which it covers, and the event by which they differ."""

    @classmethod
    def of(cls, graph: CausalGraph, title: str) -> CutLattice:
        """Return the whole lattice of an execution; the caller has checked its size."""
        order = EventOrder(graph)
        numbers: dict[Cut, int] = {(0,) * len(order.lines): 0}
        covers: list[tuple[int, int, str]] = []
        # Cuts are visited in the order in which they are found, so smaller ones come first.
        for cut in (cuts := list(numbers)):
            for line, (place, known) in enumerate(zip(cut, order.known, strict=True)):
                # The next event of the line, if there is one, needs all of its past in the cut.
                if place == len(known) or any(cut[k] < n for k, n in known[place].items()):
                    continue
                upper = (*cut[:line], place + 1, *cut[line + 1 :])
                if upper not in numbers:
                    numbers[upper] = len(numbers)
                    cuts.append(upper)
                covers.append((numbers[upper], numbers[cut], str(order.lines[line][place])))
        caption = (
            f"labels: last counters of {', '.join(graph.nodes)}" if graph.nodes else "no event"
        )
        return cls(title, caption, tuple(_label_and_tip(order, cut) for cut in cuts), tuple(covers))

    def to_svg(self) -> str:
        """Draw the lattice, laid out by Graphviz if that is installed."""
        boxes = [
            Box(elements.text_width(label, svg.NAME_PX) / 2 + PAD, HALF_HEIGHT)
            for label, _ in self.cuts
        ]
        links = [Link(upper, lower) for upper, lower, _ in self.covers]
        scene = Scene(tuple(boxes), tuple(links), horizontal=False)
        layout = svg.lay_out(scene)
        lines = [
            elements.with_tooltip(tip, svg.line_along(route.curve), 'class="edge"')
            for (_, _, tip), route in zip(self.covers, layout.routes, strict=True)
        ]
        boxed = [
            elements.with_tooltip(tip, svg.outline(at, box) + svg.name_at(at, label))
            for (label, tip), box, at in zip(self.cuts, boxes, layout.centers, strict=True)
        ]
        caption = short_label(self.caption, CAPTION_COLUMNS_MAX)
        return svg.document(self.title, scene, layout, (*lines, *boxed), caption)

    def to_dot(self) -> str:
        """Return the lattice in Graphviz's language."""
        lines = [
            f"digraph {dot_quoted(self.title)} {{",
            f"  label={dot_quoted(self.caption)};",
            '  node [fontname="monospace", fontsize=13, shape=box, style="rounded"];',
            "  edge [dir=none];",
        ]
        for number, (label, tip) in enumerate(self.cuts):
            lines.append(f"  c{number} [label={dot_quoted(label)}, tooltip={dot_quoted(tip)}];")
        for upper, lower, tip in self.covers:
            lines.append(f"  c{upper} -> c{lower} [tooltip={dot_quoted(tip)}];")
        return "\n".join([*lines, "}", ""])


def _label_and_tip(order: EventOrder, cut: Cut) -> tuple[str, str]:
    """Return the label of a cut, and its tooltip: the last event of each node in it."""
    lasts = [own[place - 1] if place else None for own, place in zip(order.lines, cut, strict=True)]
    label = " ".join("0" if last is None else str(last.counter) for last in lasts)
    tip = ", ".join(str(last.dot) for last in lasts if last is not None)
    return label or "∅", tip or "the empty cut"
