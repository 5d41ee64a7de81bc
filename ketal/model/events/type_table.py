"""The split of events by type among consumers that are concerned by few types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from ketal.model.events.event import Event

TYPES_MAX = 10_000
"""The most types in a table."""


class TypeTable:
    """A table of the consumers that events of each type may concern, filled when first read.

    Each consumer has a function: event → whether events of this event's type may concern it.
    """

    def __init__(self, concerns: Sequence[Callable[[Event], bool]]) -> None:
        self._concerns = concerns
        self._numbers: dict[str, tuple[int, ...]] = {}

    def concerned(self, event: Event) -> tuple[int, ...]:
        """Return the numbers of the consumers that events of this event's type may concern."""
        numbers = self._numbers.get(event.type)
        if numbers is None:
            if len(self._numbers) >= TYPES_MAX:
                self._numbers.clear()
            numbers = tuple([n for n, concerns in enumerate(self._concerns) if concerns(event)])
            self._numbers[event.type] = numbers
        return numbers

    def clear(self) -> None:
        """Clear the table, as other types may concern the consumers now."""
        self._numbers.clear()

    def split(
        self, events: Sequence[Event]
    ) -> list[tuple[int, tuple[Sequence[int], Sequence[Event]]]]:
        """Return each consumer that some events may concern, with their indices and these events.

        Consumers that the same types concern share one pair of lists.
        """
        indices: dict[str, list[int]] = {}
        for index, event in enumerate(events):
            if (of_type := indices.get(event.type)) is None:
                of_type = indices[event.type] = []
            of_type.append(index)
        types_of: dict[int, list[str]] = {}
        for event_type, of_type in indices.items():
            for number in self.concerned(events[of_type[0]]):
                types_of.setdefault(number, []).append(event_type)
        parts: dict[tuple[str, ...], tuple[list[int], list[Event]]] = {}
        out: list[tuple[int, tuple[Sequence[int], Sequence[Event]]]] = []
        for number, types in sorted(types_of.items()):
            part = parts.get(key := tuple(types))
            if part is None:
                merged = sorted(chain.from_iterable([indices[one] for one in types]))
                part = parts[key] = merged, [events[index] for index in merged]
            out.append((number, part))
        return out
