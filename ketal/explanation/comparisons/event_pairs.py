"""How happened-before orders two events, with the chain or the last known events that show it.

The one rule: of ordered events there is a path, of concurrent ones what each knows of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, starmap

from ketal.explanation.causal_graph import CausalGraph
from ketal.explanation.reasons import PairReason, PlacedEvent, PlacedLink
from ketal.model.events.event import Event
from ketal.model.events.happened_before import happened_before

Placed = Callable[[Event], PlacedEvent]
"""Returns an event with its place in the log."""


def pair_reason(
    graph: CausalGraph, placed: Placed, one: PlacedEvent, other: PlacedEvent
) -> PairReason:
    """Return how two different events of an execution are ordered, and what shows it."""
    if happened_before(one.event, other.event):
        return PairReason(one, other, "before", _path(graph, placed, one, other))
    if happened_before(other.event, one.event):
        return PairReason(one, other, "after", _path(graph, placed, other, one))
    known = _last_known(graph, placed, one, other), _last_known(graph, placed, other, one)
    return PairReason(one, other, "concurrent", known=known)


def _path(
    graph: CausalGraph, placed: Placed, source: PlacedEvent, target: PlacedEvent
) -> tuple[PlacedLink, ...]:
    events = map(placed, graph.path(source.event, target.event))
    return tuple(starmap(PlacedLink, pairwise(events)))


def _last_known(
    graph: CausalGraph, placed: Placed, of: PlacedEvent, by: PlacedEvent
) -> PlacedEvent | None:
    """Return the last event of a node that an event of another one knows."""
    node = of.event.node
    last = graph.last_upto(node, by.event.clock.get(node, 0))
    return None if last is None else placed(last)
