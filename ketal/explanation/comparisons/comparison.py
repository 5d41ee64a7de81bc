"""Compares two events of a log: before, after or concurrent, with the evidence.

The evidence is an entry of a clock (`ketal.clocks.vector`): an event happened before another one if
the other's clock entry for its node is at least its counter. The common past is the set of events
that happened before both, named by the last of each node (the meet of their causal histories;
Schwarz and Mattern, "Detecting causal relationships in distributed computations", 1994).

The one rule: events are compared within one execution; an event that the log lacks is reported as
missing, not guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ketal.errors import SettingError
from ketal.explanation.reasons import PairReason, PlacedEvent
from ketal.model.events.causal_graph import CausalGraph, missing_event_hint
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.wording import counted
from ketal.pictures.clocks.clock_figures import pair_svg
from ketal.runtime.admission.execution_events import (
    ExecutionEvents,
    execution_named,
    execution_names,
    rejected_of,
)


@dataclass(frozen=True, slots=True)
class EventComparison:
    """How two events of an execution are ordered."""

    execution: str
    """The execution's name; empty if the log is not divided."""
    pair: PairReason
    common_past: tuple[PlacedEvent, ...]
    """The last event of each node that happened before both, by node."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        out: dict[str, Any] = {"execution": self.execution} if self.execution else {}
        return {
            **out,
            **self.pair.to_dict(),
            "first": self.pair.first.to_dict(),
            "second": self.pair.second.to_dict(),
            "common_past": [one.to_dict() for one in self.common_past],
        }

    def to_svg(self) -> str:
        """Return a picture: the clocks as areas, compared, joined and subtracted.

        A SettingError if one knows more events that the other does not than a picture draws.
        """
        one, other = self.pair.first.event, self.pair.second.event
        return pair_svg(one.clock, other.clock, self.pair.because)

    def lines(self) -> Iterator[str]:
        """Yield it as text."""
        pair = self.pair
        if self.execution:
            yield f"execution {self.execution}"
        yield pair.because
        yield f"  {pair.first}"
        yield f"  {pair.second}"
        if pair.order == "concurrent":
            for event, other, last in pair.last_known():
                yield f"last event of {event.event.node} known to {other.dot}"
                yield "  none" if last is None else f"  {last}"
        elif pair.too_long:
            yield pair.too_long
        elif pair.path:
            yield f"shortest path ({counted(len(pair.path), 'link')})"
            yield f"  {pair.path[0].source}"
            for link in pair.path:
                yield f"  {link}"
        yield "common past (last event of each node)"
        yield from (f"  {one}" for one in self.common_past)
        if not self.common_past:
            yield "  none: no event happened before both"


def compare_events(
    executions: Mapping[str, ExecutionEvents],
    first: Dot,
    second: Dot,
    limits: Limits,
    *,
    execution: str | None = None,
) -> EventComparison:
    """Return how two events of a log are ordered, with the evidence.

    The events of a restarted node have the name of the incarnation (`A#2@1`). `execution` names
    the execution of the events, if several have both; `path_links_max` bounds the path.

    An EventError if the clocks are not those of an execution; a SettingError if both are the same
    event, or the log lacks one of them or has them in several executions.
    """
    if first == second:
        raise SettingError(f"cannot compare {first} with itself; name two different events")
    if execution is not None:
        executions = {execution: execution_named(executions, execution)}
    graphs = {name: CausalGraph(part.possible_events()) for name, part in executions.items()}
    _, rejected = rejected_of(executions.values())
    name = _common_execution(graphs, first, second, rejected)
    part, graph = executions[name], graphs[name]

    def placed(event: Event) -> PlacedEvent:
        return PlacedEvent(event, part.place(event.dot))

    one, other = graph[first], graph[second]
    pair = PairReason.of(graph, placed, one, other, links_max=limits.path_links_max)
    past = tuple(map(placed, graph.common_past(one, other)))
    return EventComparison(part.name, pair, past)


def _common_execution(
    graphs: Mapping[str, CausalGraph], first: Dot, second: Dot, rejected: str
) -> str:
    """Return the name of the one execution that has both events.

    If several have both, or none has, the SettingError names the first `rejected` record.
    """
    both = [name for name, graph in graphs.items() if first in graph and second in graph]
    if len(both) == 1:
        return both[0]
    if both:
        raise SettingError(
            f"several executions have both {first} and {second}: {execution_names(both)}; "
            "choose one with --execution NAME"
        )
    having = {dot: [name for name in graphs if dot in graphs[name]] for dot in (first, second)}
    for dot, names in having.items():
        if not names:
            more = f"; records were rejected, the first is {rejected}" if rejected else ""
            events = [e for graph in graphs.values() for own in graph.nodes.values() for e in own]
            raise SettingError(f"the log has no event {dot}{missing_event_hint(dot, events)}{more}")
    raise SettingError(
        f"{first} is in execution {execution_names(having[first][:1])}, {second} in execution "
        f"{execution_names(having[second][:1])}; "
        "events of different executions cannot be compared"
    )
