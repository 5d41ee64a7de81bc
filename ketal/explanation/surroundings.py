"""The events to show around a verdict: its own, and those that show how these are ordered.

Two ordered events of the verdict are shown with the events of a shortest path between them; two
concurrent ones with the last event of each one's node that the other knows.

The one rule: at most `EVENTS_MAX` events are shown, the verdict's own first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import pairwise

from ketal.errors import EventError
from ketal.explanation.reasons import Explanation
from ketal.model.events.causal_graph import CausalGraph
from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical, happened_before
from ketal.pictures.text_diagram import DiagramRow

EVENTS_MAX = 24
"""How many events a diagram has at most."""
TAKEN_MAX = 6
"""How many of the last steps that a run had taken are shown."""

Marked = tuple[str, Event]
"""A label (the name of a step, the kind of the verdict), and the event that has it."""


def rows_around(explanation: Explanation, graph: CausalGraph) -> list[DiagramRow]:
    """Return the rows of a diagram of the events around a verdict; empty if it has no event."""
    marked = marked_events(explanation)[-EVENTS_MAX:]
    own = {event.dot: event for _, event in marked}
    shown = dict(own)
    for one, other in pairwise(canonical(own.values())):
        between = list(_between(one, other, graph))
        if len(shown) + len(between) <= EVENTS_MAX:
            shown.update((event.dot, event) for event in between)
    rows = []
    for event in canonical(shown.values()):
        sources = [source for source in graph.messages_to(event) if source.dot in shown]
        names = ", ".join(name for name, own_event in marked if own_event.dot == event.dot)
        received = f"from {', '.join(str(source.dot) for source in sources)}" if sources else ""
        before = graph.previous(event)
        rows.append(
            DiagramRow(
                event.node,
                "  ".join(filter(None, (str(event), names, received))),
                tuple(source.node for source in sources),
                event.dot in own,
                before is not None and before.dot in shown,
            )
        )
    return rows


def marked_events(explanation: Explanation) -> list[Marked]:
    """Return the verdict's own events with their labels."""
    if explanation.steps:
        return [(step.step, step.event.event) for step in explanation.steps]
    marked: list[Marked] = []
    if explanation.runs:
        taken = explanation.runs[0].taken[-TAKEN_MAX:]
        marked += [(step, event.event) for step, event in taken]
    if explanation.event is not None:
        event = explanation.event.event
        marked.append(("" if explanation.verdict is None else explanation.verdict.kind, event))
        if explanation.learned_by is not None:
            learner = explanation.learned_by.event
            known = happened_before(event, learner)
            marked.append(("learned" if known else "begins", learner))
    return marked


def _between(one: Event, other: Event, graph: CausalGraph) -> Iterator[Event]:
    """Yield the events that show how two events are ordered."""
    if happened_before(one, other):
        with contextlib.suppress(EventError):  # inconsistent clocks: there is no path
            yield from graph.path(one, other, links_max=EVENTS_MAX)[1:-1]
    else:
        yield from filter(None, graph.last_known(one, other))
