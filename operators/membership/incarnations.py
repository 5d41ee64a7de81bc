"""Nodes that restart: which run of a node an event belongs to.

A node whose counter begins at 1 again is a new incarnation: `A`, `A#2`, …. Its
events, and the entries of other nodes' clocks that refer to it
(`ketal.operators.membership.entry_resolution`), are given that name before anything compares
them; all later stages treat incarnations as nodes.

An event is compared only with the incarnations that lack its counter or may have it with the same
content; so its cost does not grow with the number of incarnations, but with that of those. All are
looked up, at a fraction of the cost of a comparison, if its counter is not the next one or its
clock has an entry of another restarted node.

The one rule: an event that fits two incarnations is rejected with a reason, not guessed at.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Protocol

import msgspec

from ketal.errors import EventError, value_text
from ketal.model.events.content import digest
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event, received
from ketal.model.events.incarnation import INCARNATION, is_named, name_of, number_of
from ketal.operators.membership.clock_memory import ClockMemory
from ketal.operators.membership.entry_resolution import EntryResolver
from ketal.operators.membership.incarnation_names import IncarnationTable, later_run
from ketal.operators.stateful import Stateful


class SeenEvents(Protocol):
    """What is known of the events that were admitted, under the names of their incarnations."""

    def status(self, event: Event) -> str:
        """Return the status of an event, without admitting it: `new`, `duplicate`, or another."""

    def possible_runs(self, event: Event) -> Collection[str]:
        """Return later incarnations of an event's node, with all to which it may belong.

        These lack a counter below their highest one, or may have an event with the counter and the
        content of this one.
        """


class Incarnations(Stateful):
    """Decides which incarnation of its node an event belongs to, and renames it.

    `memory` has the clocks of the events that have arrived, under the names of their incarnations;
    `departed` the nodes that left, whose entries may be missing in later clocks.

    A program that numbers incarnations itself does so in the attribute `INCARNATION`: 1 is `A`,
    any other whole number k is `A#k`, and a node `A#k` keeps its name. Without it, an event of
    counter 1 whose content differs from every event of counter 1 of that node starts a new
    incarnation (same content: a duplicate). A later counter belongs to the incarnation in which it
    has not been seen and between whose neighbours its clock fits: the latest, or an earlier one
    with a hole there (a late event). Where both are possible it is rejected.

    A name is given on arrival and does not change. So a restart must arrive before its
    effects: the first event of an incarnation must arrive after the first one of the previous
    incarnation, and before other nodes' events that have it in their pasts.
    """

    STATE: ClassVar = "table", "_firsts", "_resolver"

    def __init__(self, memory: ClockMemory, departed: set[str], incarnations_max: int) -> None:
        self.table = IncarnationTable(incarnations_max)
        self._resolver = EntryResolver(self.table, memory, departed)
        self._firsts: dict[str, bytes] = {}
        self._names_by_first: dict[bytes, set[str]] = {}  # the reverse of `_firsts`
        self.names = self.table.names
        self.base = self.table.base

    def begin(self, firsts: Mapping[str, bytes], highest: Mapping[str, int]) -> None:
        """Load what was seen before any node restarted; `firsts` are digests, made by `digest`."""
        for name, content_digest in firsts.items():
            self._set_first(name, content_digest)
        self.table.begin(highest)

    def load(self, state: Any) -> None:
        """Load what `save` returned into a fresh object."""
        super().load(state)
        for name, content_digest in self._firsts.items():
            self._names_by_first.setdefault(content_digest, set()).add(name)

    @property
    def doubtful(self) -> int:
        """How many events arrived after an entry that may have referred to them was misread."""
        return self._resolver.doubtful

    def rename(self, event: Event, seen: SeenEvents) -> Event:
        """Return an event, possibly a duplicate, under the name of its incarnation.

        Its node and its clock are renamed. Raises an EventError if it is ambiguous which
        incarnation an event or an entry belongs to.
        """
        if INCARNATION in event.data or event.node in self.table.numbered:
            # An event without a number, where others have one, belongs to the first run.
            return self._renamed(event, self._program_number(event, event.data.get(INCARNATION, 1)))
        numbers = self.table.numbers.get(event.node)
        if event.clock[event.node] == 1:
            return self._rename_first(event, numbers or (1,))
        if numbers is None:
            return self._renamed(event, 1) if self.table.numbers else event
        return self._rename_later(event, numbers, seen)

    def arrived(self, event: Event) -> None:
        """Record a new event, under the name that `rename` gave it."""
        self.table.count(event.node, event.clock[event.node])
        self._resolver.arrived(event)

    def _program_number(self, event: Event, value: object) -> int:
        """Return the incarnation's number that the program gave an event; add it if it is new.

        Raises an EventError if it is not a whole number, or not the number in the node's name, or
        if the node was seen to restart without numbers before.
        """
        node, number = event.node, number_of(value)
        if number is None:
            raise EventError(
                f"incarnation must be an integer of 0 or more, not {value_text(value)[:60]}",
                place=str(event.dot),
            )
        if is_named(node, number):
            return 1  # `name_of` leaves the name as it is
        run = later_run(node)
        if run is not None:
            raise EventError(
                f"incarnation is {number}, but {node} is the name of incarnation {run[1]}",
                place=str(event.dot),
            )
        table = self.table
        numbers = table.numbers.get(node)
        if numbers is not None and node not in table.numbered:
            raise EventError(
                f"{node} restarted before it began to number its incarnations, "
                "so these numbers cannot be matched",
                place=str(event.dot),
            )
        if numbers is None and number != 1:
            # A run seen before, without a number, is number 1.
            table.add(node, number, event, with_first=table.highest.get(node, 0) > 0)
            table.numbered.add(node)
        elif numbers is not None and number not in numbers:
            table.add(node, number, event, with_first=True)
        return number

    def _rename_first(self, event: Event, numbers: tuple[int, ...]) -> Event:
        """Return an event of counter 1, renamed: a duplicate, a missing first one or a restart."""
        node, content_digest = event.node, digest(event)
        number = self._number_of_first(node, numbers, content_digest)
        if number is None:
            # Every later incarnation began with its event of counter 1; that of incarnation 1 may
            # not have arrived yet.
            number = numbers[-1] + 1 if node in self._firsts else 1
            if number > 1:
                self.table.add(node, number, event, with_first=True)
            self._set_first(name_of(node, number), content_digest)
        return self._renamed(event, number)

    def _number_of_first(
        self, node: str, numbers: tuple[int, ...], content_digest: bytes
    ) -> int | None:
        """Return the incarnation of a node whose first event has a digest; None if none has."""
        for name in sorted(self._names_by_first.get(content_digest, ())):
            run = (node, 1) if name == node else later_run(name)
            if run is not None and run[0] == node and run[1] in numbers:
                return run[1]
        return None

    def _set_first(self, name: str, content_digest: bytes) -> None:
        if (before := self._firsts.get(name)) is not None:  # of a node that was given this name
            self._names_by_first[before].discard(name)
        self._firsts[name] = content_digest
        self._names_by_first.setdefault(content_digest, set()).add(name)

    def _rename_later(self, event: Event, numbers: tuple[int, ...], seen: SeenEvents) -> Event:
        """Return an event of a node that restarted, renamed."""
        node = event.node
        possible: list[Event] = []
        unresolved: EventError | None = None
        for number in self._possible_numbers(event, numbers, seen):
            try:
                named = self._renamed(event, number)
            except EventError as error:
                unresolved = error
                continue
            standing = seen.status(named)
            if standing == "duplicate":
                return named
            if standing == "new" and self._resolver.fits(named):
                possible.append(named)
        if unresolved is not None:
            raise unresolved
        if len(possible) > 1:
            names = " or ".join(str(e.dot) for e in reversed(possible))
            raise EventError(
                f"{node} restarted, and this event may be {names}; number the incarnations "
                "in the events (attribute `incarnation`) or in the names of the nodes",
                place=str(event.dot),
            )
        return possible[0] if possible else self._renamed(event, numbers[-1])

    def _possible_numbers(
        self, event: Event, numbers: tuple[int, ...], seen: SeenEvents
    ) -> list[int]:
        """Return the incarnations to which an event may belong by its counter, latest first."""
        node, counter = event.node, event.clock[event.node]
        table, highest = self.table, self.table.highest
        latest = name_of(node, numbers[-1])
        reached = highest.get(latest, 0)
        names = {n for n in (node, *seen.possible_runs(event)) if highest.get(n, 0) >= counter}
        names.add(latest)
        if counter > reached + 1:
            # An earlier run ended at its highest counter, unless the latest run would have to skip
            # counters to reach this one.
            names.update(n for n in table.places(node) if reached < highest.get(n, 0) < counter)
        if not (event.clock.keys() & table.numbers.keys()) <= {node}:
            # Where an event of an earlier run was evicted, an entry may be impossible to resolve.
            find = self._resolver.memory.find
            reaching = [n for n in table.places(node) if highest.get(n, 0) >= counter]
            names.update(n for n in reaching if find(n, counter) is None)
        # A name that the program gave, such as `A#02`, is no incarnation that was inferred.
        inferred = names & table.bases.keys()
        return sorted((int(name[len(node) + 1 :] or 1) for name in inferred), reverse=True)

    def _renamed(self, event: Event, number: int) -> Event:
        """Return an event under the names of its incarnation and of those in its clock."""
        own = name_of(event.node, number)
        names = self._resolver.incarnations_of(event, own)
        if own == event.node and all(base == name for base, name in names.items()):
            return event
        names[event.node] = own
        renamed = {names.get(name, name): counter for name, counter in event.clock.items()}
        receives = [Dot(names.get(dot.node, dot.node), dot.counter) for dot in received(event)]
        return msgspec.structs.replace(event, node=own, clock=renamed, receives=receives)
