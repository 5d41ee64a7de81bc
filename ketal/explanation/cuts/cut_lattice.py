"""The lattice of consistent cuts of a small execution, to be drawn.

A cut is named by the counters of the last events in it, one for each node, 0 where it has none
(Mattern, "Virtual time and global states of distributed systems", 1989). It covers the cuts with
one event less, so its height is the number of its events.

The one rule: the empty cut is at the bottom, the whole execution at the top.
"""

from __future__ import annotations

from ketal.explanation.causal_graph import CausalGraph
from ketal.explanation.cuts.series_parallel import EventOrder
from ketal.model.events.event import Event
from ketal.pictures.graphs.hasse import HasseDiagram, HasseElement

Cut = tuple[int, ...]
"""How many events of each node are in it."""


def lattice_of(graph: CausalGraph, title: str) -> HasseDiagram:
    """Return the lattice of an execution, all of it; its size was counted before."""
    order = EventOrder(graph)
    numbers: dict[Cut, int] = {(0,) * len(order.lines): 0}
    covers: list[tuple[int, int, str]] = []
    # The cuts that are found are visited in turn, so those of fewer events come first.
    for cut in (cuts := list(numbers)):
        for line, place in enumerate(cut):
            if not _ready(order, cut, line):
                continue
            upper = (*cut[:line], place + 1, *cut[line + 1 :])
            if upper not in numbers:
                numbers[upper] = len(numbers)
                cuts.append(upper)
            covers.append((numbers[upper], numbers[cut], str(order.lines[line][place])))
    elements = tuple(_element(order, cut) for cut in cuts)
    caption = f"the last counters of {', '.join(graph.nodes)}" if graph.nodes else "no event"
    return HasseDiagram(title, caption, elements, tuple(covers))


def _ready(order: EventOrder, cut: Cut, line: int) -> bool:
    """Return whether the next event of a line has all of its past in a cut."""
    known = order.known[line]
    place = cut[line]
    return place < len(known) and all(cut[k] >= upto for k, upto in known[place].items())


def _element(order: EventOrder, cut: Cut) -> HasseElement:
    lasts: list[Event | None] = [
        own[place - 1] if place else None for own, place in zip(order.lines, cut, strict=True)
    ]
    label = " ".join("0" if last is None else str(last.counter) for last in lasts)
    tip = ", ".join(str(last.dot) for last in lasts if last is not None)
    return HasseElement(label or "∅", tip or "the empty cut")
