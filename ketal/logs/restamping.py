"""Stamp the events of an execution with another timestamping scheme.

The vector clocks determine which messages each event must have received
(`ketal.model.events.causal_graph`). The scheme then stamps the events one by one, in a linear
extension, as their nodes would have stamped them. The attribute `station` of an event names the
station that mediated it, for the schemes for mobile hosts.

The one rule: the new stamps order the events as their vector clocks do. Events that are left out
are not counted in the stamps, but order the remaining events all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ketal.clocks.scheme import Happening, Scheme
from ketal.errors import SettingError
from ketal.model.events.causal_graph import CausalGraph
from ketal.model.events.dot import Dot
from ketal.model.events.event import Draft, Event, received
from ketal.model.events.happened_before import canonical_key
from ketal.model.limits import DEFAULT, Limits

STATION = "station"
"""The attribute that names the station of an event."""


@dataclass(frozen=True)
class StampedExecution:
    """The events of an execution, in canonical order, with the stamps of a scheme."""

    scheme: Scheme[Any]
    events: tuple[Event, ...]
    happenings: tuple[Happening, ...]
    """The events in the form that the scheme stamped."""
    stamps: tuple[Any, ...]

    def drafts(self) -> list[Draft]:
        """Return the events for writing, with their stamps as clocks.

        `receives` names each send by its new counter: its position among the stamped events of its
        node.
        """
        counts: dict[str, int] = {}
        names: dict[Dot, Dot] = {}
        for event in self.events:
            counts[event.node] = counts.get(event.node, 0) + 1
            names[event.dot] = Dot(event.node, counts[event.node])
        return [
            Draft(
                event.node,
                event.type,
                self.scheme.written(stamp),
                event.time,  # type: ignore[arg-type]  # it is a number once the event is made
                event.data,
                event.id,
                tuple(names[dot] for dot in received(event) if dot in names),
            )
            for event, stamp in zip(self.events, self.stamps, strict=True)
        ]


def restamped(
    events: Iterable[Event], scheme: Scheme[Any], limits: Limits = DEFAULT
) -> StampedExecution:
    """Stamp distinct events, all or some, of one execution with a scheme.

    The events have the clocks of an execution, as `ketal audit` examines them.
    Raises a SettingError if the stamps have more than `stamped_entries_max` entries, or would have.
    """
    ordered = tuple(sorted(events, key=canonical_key))
    entries = sum(scheme.entries(event.clock) for event in ordered)
    if entries > limits.stamped_entries_max:
        raise SettingError(
            f"the stamps of the scheme {scheme.name} would have {entries:,} entries, more than "
            f"{limits.stamped_entries_max:,} (limit stamped_entries_max)"
        )
    graph = CausalGraph(ordered)
    numbers = {event.dot: number for number, event in enumerate(ordered)}
    happenings = tuple(
        Happening(
            node=event.node,
            receives=tuple(sorted(numbers[sent.dot] for sent in graph.messages_to(event))),
            time_us=max(event.time_us or 0, 0),
            station="" if (name := event.data.get(STATION)) is None else str(name),
        )
        for event in ordered
    )
    stamps: list[Any] = []
    entries = 0
    for stamp in scheme.stamps(happenings):
        entries += scheme.entries_of(stamp)
        if entries > limits.stamped_entries_max:
            raise SettingError(
                f"the stamps of the scheme {scheme.name} have more than "
                f"{limits.stamped_entries_max:,} entries (limit stamped_entries_max)"
            )
        stamps.append(stamp)
    return StampedExecution(scheme, ordered, happenings, tuple(stamps))
