"""The entries that the clocks of each node have had, which show that a node has left.

While all nodes stay, the clocks of a node's events only gain entries. A clock that lacks an entry
which an earlier event of its node had shows that the node of that entry has left
(`docs/membership.md`). This is checked until the first departure; then
`ketal.operators.membership` keeps the clocks themselves.

The one rule: for each node and entry, `first` has the least counter of an event whose clock has it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ketal.model.events.event import Event
from ketal.operators.membership.clock_memory import Clock
from ketal.runtime.admission.deduplication import Intake, Steady


class ClockEntries:
    """The entries of the clocks of all events so far."""

    def __init__(self) -> None:
        # For each node, the least counter of an event whose clock has an entry, by entry.
        self.first: dict[str, Clock] = {}
        self.steady: Steady = {}  # the same in the form in which `Intake.admit` checks it
        self.names: set[str] = set()  # the nodes that the clocks name

    def put(self, node: str, first: Clock) -> None:
        """Set the least counters of a node's entries."""
        self.first[node] = first
        # An event with these entries, at no lower counter, leaves `first` as it is.
        self.steady[node] = frozenset(first), max(first.values())
        self.names.update(first)

    def add(self, event: Event, intake: Intake) -> set[str]:
        """Add a new event; return the nodes whose entries its node has dropped from its clocks.

        An entry was dropped if the clock of one event has it and that of an event with a higher
        counter does not, whichever of the two arrived first.
        """
        node, clock = event.node, event.clock
        counter = clock[node]
        first = self.first.get(node)
        if first is None:
            self.put(node, dict.fromkeys(clock, counter))
            return set()
        entries, last_added = self.steady[node]
        if counter >= last_added and entries == clock.keys():
            return set()
        dropped = {name for name in first.keys() - clock.keys() if first[name] < counter}
        lower = {n: first.get(n) for n in clock if first.get(n, counter + 1) > counter}
        # Seen events of the node below its first counter with an entry lack that entry.
        between = intake.seen_between
        dropped.update(name for name, upto in lower.items() if between(node, counter, upto))
        self.put(node, {**first, **dict.fromkeys(lower, counter)})
        return dropped

    def add_clocks(self, clocks: Iterable[tuple[str, int, Clock]]) -> None:
        """Add the clocks of events, as (node, counter, clock), to entries that are empty."""
        first_by_node: dict[str, Clock] = {}
        for node, counter, clock in clocks:
            first = first_by_node.setdefault(node, {})
            for name in clock:
                first[name] = min(counter, first.get(name, counter))
        for node, first in first_by_node.items():
            self.put(node, first)
