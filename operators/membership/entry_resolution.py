"""Resolution of clock entries: the incarnation of a restarted node to which each entry refers.

An entry `A: c` in a clock of B refers to the same incarnation as in B's last event, until it goes
backwards, or a cause of B's event has an entry of a later incarnation, or c is higher than the
old incarnation ever counted. An entry that has not changed refers to the same event as before.
Among the possible incarnations, one is taken whose event c has arrived and has a clock within
B's; where that is not exactly one, the event is rejected. An incarnation whose event c has B's
event in its past is not possible: a cause does not have its effect in its past.

An entry is compared with the incarnations from the first possible one on, and each clock that is
read costs at most its own length; so an entry that has not changed costs the same however many
incarnations there are.

The one rule: an entry that fits two incarnations is rejected with a reason, not guessed at.
"""

from __future__ import annotations

from itertools import islice
from typing import ClassVar

from ketal.errors import EventError
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.operators.membership.clock_memory import Clock, ClockMemory
from ketal.operators.membership.incarnation_names import IncarnationTable
from ketal.operators.stateful import Stateful


class EntryResolver(Stateful):
    """Resolves the entries of clocks to incarnations.

    `table`, `memory` and `departed` are those of `Incarnations`; `doubtful` counts the events of
    restarted nodes that arrived after an entry that may have referred to them was resolved to
    another incarnation.
    """

    STATE: ClassVar = "doubtful", "_resolved", "_absent"

    def __init__(self, table: IncarnationTable, memory: ClockMemory, departed: set[str]) -> None:
        self.table = table
        self.memory = memory
        self.departed = departed
        self.doubtful = 0
        # For each incarnation, the highest counter that another node's entry was resolved to; and
        # the events that had not arrived when an entry that may refer to them was resolved to an
        # earlier incarnation.
        self._resolved: dict[str, int] = {}
        self._absent: set[tuple[str, int]] = set()

    def incarnations_of(self, event: Event, own: str) -> dict[str, str]:
        """Return the incarnation that each entry of a restarted node refers to, by entry.

        The event, as it arrived, is of the incarnation `own`. Its own node is left out, and so are
        nodes of which the clock itself names an incarnation. Raises an EventError if an entry fits
        several incarnations, or none.
        """
        bases = (event.clock.keys() & self.table.numbers.keys()) - {event.node}
        if bases:
            bases.difference_update([self.table.node_of(n) for n in event.clock if "#" in n])
        return {base: self._resolve_entry(base, event, own) for base in sorted(bases)}

    def arrived(self, event: Event) -> None:
        """Record the entries of a new event; count it if an entry that refers to it was misread."""
        node = event.node
        self.doubtful += self._misread(node, event.clock[node])
        for name in sorted(event.clock.keys() & self.table.bases.keys()):
            if name != node:
                self._resolved[name] = max(event.clock[name], self._resolved.get(name, 0))

    def _misread(self, node: str, counter: int) -> bool:
        """Return whether an entry that may have referred to a new event was resolved otherwise."""
        if node not in self.table.bases:
            return False
        if (node, counter) in self._absent:
            self._absent.remove((node, counter))
            return True
        places = self.table.places(self.table.bases[node])
        later = islice(reversed(places), len(places) - 1 - places[node])
        return any(self._resolved.get(name, 0) >= counter for name in later)

    def fits(self, event: Event) -> bool:
        """Return whether an event's clock lies between those of its neighbours on its node."""
        below = self.memory.below(event.node, event.counter)
        above = self.memory.above(event.node, event.counter)
        return (below is None or self._within(below.clock, event.clock)) and (
            above is None or self._within(event.clock, above.clock)
        )

    def _within(self, smaller: Clock, larger: Clock) -> bool:
        """Return whether one clock is at most another, which may lack entries of departed nodes."""
        return all(
            larger.get(name, 0) >= counter
            for name, counter in smaller.items()
            if name in larger or (name not in self.departed and name not in self.table.bases)
        )

    def _resolve_entry(self, base: str, event: Event, own: str) -> str:
        """Return the incarnation to which the clock's entry for another node refers."""
        counter, places = event.clock[base], self.table.places(base)
        stored = self.memory.find(own, event.counter)
        if stored is not None:
            # The entries of a duplicate are resolved as those of the first copy were.
            named = stored.clock.keys() & places.keys()
            return min(named, key=places.__getitem__, default=base)
        before = self.memory.below(own, event.counter)
        low = 0
        if before is not None:
            # Clocks are compared as they arrived: how far one is restored depends on the releases.
            clock = before.clock
            same = [n for n in clock.keys() & places.keys() if clock[n] == counter]
            if same:
                return min(same, key=places.__getitem__)
            last = next((name for name in reversed(places) if name in clock), None)
            if last is not None:
                low = places[last] + (counter < clock[last])
                if low == len(places):
                    return last  # Backwards, without a restart: not a matter of this stage.
        low = max(low, self._first_by_causes(places, event, counter))
        names = list(islice(reversed(places), len(places) - low))
        return self._only_possible(base, names[::-1], event, own)

    def _first_by_causes(self, places: dict[str, int], event: Event, counter: int) -> int:
        """Return the place of the first incarnation that the event's causes leave possible."""
        low = 0
        for node, known in event.clock.items():
            cause = None if node in self.table.numbers else self.memory.find(node, known)
            if cause is not None:
                for name in cause.clock.keys() & places.keys():
                    low = max(low, places[name] + (counter < cause.clock[name]))
        return min(low, len(places) - 1)

    def _only_possible(self, base: str, names: list[str], event: Event, own: str) -> str:
        """Return the only one of some incarnations to which an entry can refer.

        Raises an EventError if it is not exactly one.
        """
        clock, bases = event.clock, self.table.bases
        counter = clock[base]
        fitting, absent = [], []
        for name in names:
            last = self.memory.below(name, counter + 1)
            if last is not None and last.clock.get(own, 0) >= event.counter:
                continue  # It has this event in its past, so it is not a cause.
            known = self.memory.find(name, counter)
            if known is None:
                if name == names[-1] or counter <= self.table.highest.get(name, 0):
                    absent.append(name)
            # Entries of restarted nodes are not resolved yet, so they are not compared.
            elif self._within({n: c for n, c in known.clock.items() if n not in bases}, clock):
                fitting.append(name)
        possible = fitting or absent
        if len(possible) != 1:
            dots = " or ".join(str(Dot(name, counter)) for name in possible)
            which = f"may refer to {dots}" if dots else "refers to no known event"
            raise EventError(
                f"{base} restarted, and the clock entry {base}: {counter} {which}; "
                f"name the incarnation in the clock, for example {names[-1]}",
                place=str(event.dot),
            )
        places = self.table.places(base)
        for name in [name for name in absent if places[name] > places[possible[0]]]:
            self._absent.add((name, counter))
            if len(self._absent) > self.memory.clocks_max:
                self._absent = {(name, counter)}
                self.doubtful += 1
        return possible[0]
