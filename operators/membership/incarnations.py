"""Nodes that restart: which run of a node an event and an entry belong to (DESIGN 5).

A node whose counter begins at 1 again is a new incarnation: `A`, `A#2`, …. Its
events, and the entries of other nodes' clocks that mean it, are given that name
before anything compares them; to everything later, incarnations are nodes.

The one rule: what fits two incarnations is rejected with a reason, not guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from ketal.errors import EventError
from ketal.model.event import Dot, Event, digest
from ketal.model.values import base_node
from ketal.operators.membership.clock_memory import Clock, ClockMemory

ATTRIBUTE = "incarnation"
"""The attribute that numbers incarnations where a program does so itself."""

Status = Callable[[Event], str]
"""Says of an event, without taking it in: `new`, `duplicate` (seen, same content),
`contradiction` (seen, other content), or that it was seen and its content is not kept."""


def name_of(base: str, number: int) -> str:
    """Return the name of an incarnation: `A` for the first, `A#2`, `A#3`, …."""
    return base if number == 1 else f"{base}#{number}"


def later_run(name: str) -> tuple[str, int] | None:
    """Return node and number of a later incarnation's name: `A#2` gives (`A`, 2), `A` none."""
    base = base_node(name)
    number = int(name[len(base) + 1 :]) if base != name else 1
    return (base, number) if number > 1 and name_of(base, number) == name else None


def restarted(names: Iterable[str]) -> set[str]:
    """Return the incarnations of nodes of which a later one is named: `A#2` gives `A` and `A#2`."""
    runs = {name: run[0] for name in names if (run := later_run(name)) is not None}
    return {*runs, *runs.values()}


class Incarnations:
    """Tells the runs of a node apart and names them.

    Parameters
    ----------
    memory : ClockMemory
        The clocks of what has arrived, under the names given.
    retired : set of str
        The nodes that left: their entries may be missing in later clocks.
    incarnations_max : int
        How many restarts may be told.

    Attributes
    ----------
    doubtful : int
        Events of restarted nodes that came after an entry that may have meant them was
        read as one of another incarnation.

    Notes
    -----
    A node's own events. A program that numbers incarnations itself does so in the
    attribute `ATTRIBUTE`: 1 is `A`, any other whole number k is `A#k`. Without it,
    an event of counter 1 whose
    content differs from every event of counter 1 of that node starts a new
    incarnation (same content: a duplicate). A later counter belongs to the
    incarnation in which it has not been seen and between whose neighbours its
    clock fits: the latest, or an earlier one with a hole there (a late event).
    Where both are possible it is rejected.

    Other nodes' entries. `A: c` in a clock of B is read as B's last event read
    it, until it goes backwards, or B learns from an event that reads a later
    incarnation, or c is more than the old incarnation ever counted. An entry that
    has not moved has nothing new to say. Between incarnations that are possible,
    the one whose event c has arrived and is within the clock is taken; where
    that is not exactly one, the event is rejected. One that knew B's event by then
    is not possible: a cause does not know its effect.

    A name is given on arrival and stays. So a restart must arrive before what
    knows of it: the first event of an incarnation after the first one of the
    incarnation before, and before other nodes' events that know it.
    """

    def __init__(
        self,
        memory: ClockMemory,
        retired: set[str],
        *,
        incarnations_max: int = 10_000,
    ) -> None:
        self.memory = memory
        self.retired = retired
        self.incarnations_max = incarnations_max
        self.doubtful = 0
        # Of each incarnation the highest counter that another node's entry was read as, and
        # the events of a latest one that were not there when an entry was read as an earlier's.
        self._read: dict[str, int] = {}
        self._unseen: set[tuple[str, int]] = set()
        self.highest: dict[str, int] = {}
        self._numbers: dict[str, list[int]] = {}
        self._numbered: set[str] = set()
        self._named_runs: dict[str, set[int]] = {}  # of nodes whose programs write `A#2`
        self._firsts: dict[str, bytes] = {}
        self._bases: dict[str, str] = {}

    def begin(self, firsts: Mapping[str, bytes], highest: Mapping[str, int]) -> None:
        """Take in what was seen before any node started again; `digest` makes `firsts`."""
        self._firsts = dict(firsts)
        self.highest = dict(highest)
        for name in highest:
            self._appear(name)

    def names(self, base: str) -> list[str]:
        """Return the incarnations of a node, earliest first; itself where there is one."""
        numbers = self._numbers.get(base, (1,))
        if base in self._named_runs:
            numbers = sorted({*numbers, *self._named_runs[base]})
        return [name_of(base, number) for number in numbers]

    def _appear(self, name: str) -> None:
        """Keep an incarnation that the program named itself; nothing is read as it for that."""
        run = None if name in self._bases else later_run(name)
        if run is not None:
            self._named_runs.setdefault(run[0], set()).add(run[1])

    @property
    def restarts(self) -> int:
        """How many times a node was seen to start again, its counter at 1, unnumbered."""
        return sum(
            len(numbers) - 1
            for node, numbers in self._numbers.items()
            if node not in self._numbered
        )

    def base(self, name: str) -> str:
        """Return the node of an incarnation that is known; any other name as it is."""
        base = base_node(name)
        return base if base in self._named_runs else self._bases.get(name, name)

    def rename(self, event: Event, status: Status) -> Event:
        """Return the event under the name of its incarnation, in node and clock.

        Parameters
        ----------
        event : Event
            As it arrived; it may be a duplicate.
        status : callable
            What is known of an event under the name it is asked with.

        Raises
        ------
        EventError
            If it is ambiguous which incarnation an event or an entry belongs to.
        """
        if ATTRIBUTE in event.data:
            return self._named(event, self._number(event, event.data[ATTRIBUTE]))
        numbers = self._numbers.get(event.node)
        if event.clock[event.node] == 1:
            return self._first(event, numbers or [1])
        if numbers is None:
            return self._named(event, 1) if self._numbers else event
        return self._later(event, numbers, status)

    def arrived(self, event: Event) -> None:
        """Take note of a distinct event, under the name that `rename` gave it."""
        node, counter = event.node, event.clock[event.node]
        if counter > self.highest.get(node, 0):
            if node not in self.highest:
                self._appear(node)
            self.highest[node] = counter
        self.doubtful += self._misread(node, counter)
        for name in event.clock.keys() & self._bases.keys():
            if name != node:
                self._read[name] = max(event.clock[name], self._read.get(name, 0))

    def _misread(self, node: str, counter: int) -> bool:
        """Return whether an entry that may have meant a new event was read as another's."""
        if node not in self._bases:
            return False
        if (node, counter) in self._unseen:
            self._unseen.remove((node, counter))
            return True
        names = self.names(self._bases[node])
        return any(self._read.get(n, 0) >= counter for n in names[names.index(node) + 1 :])

    # --- own events ---

    def _number(self, event: Event, value: object) -> int:
        node = event.node
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise EventError(
                f"incarnation must be a whole number, not {str(value)[:60]!r}", place=str(event.dot)
            )
        numbers = self._numbers.get(node)
        if numbers is not None and node not in self._numbered:
            raise EventError(
                f"{node} numbers its incarnations only now; it was seen to restart before, "
                "so these numbers cannot be matched",
                place=str(event.dot),
            )
        if numbers is None and value != 1:
            # A first run that was not numbered, or not read, is the first all the same.
            self._numbered.add(node)
            self._add(node, value, event, first_seen=self.highest.get(node, 0) > 0)
        elif numbers is not None and value not in numbers:
            self._add(node, value, event, first_seen=True)
        return value

    def _add(self, base: str, number: int, event: Event, *, first_seen: bool) -> None:
        if len(self._bases) >= self.incarnations_max:
            raise EventError(
                f"one more restart of {base}; limit incarnations_max is {self.incarnations_max}",
                place=str(event.dot),
            )
        numbers = self._numbers.get(base, [1] if first_seen else [])
        self._numbers[base] = sorted({*numbers, number})
        for one in self._numbers[base]:
            self._bases[name_of(base, one)] = base

    def _first(self, event: Event, numbers: list[int]) -> Event:
        """Name an event of counter 1: a duplicate, the missing first one, or a restart."""
        node = event.node
        if node in self._numbered:
            return self._unnumbered(event)
        said = digest(event)
        for number in reversed(numbers):
            first = self._firsts.get(name_of(node, number))
            if first is None or first == said:
                self._firsts[name_of(node, number)] = said
                return self._named(event, number)
        number = numbers[-1] + 1
        self._add(node, number, event, first_seen=True)
        self._firsts[name_of(node, number)] = said
        return self._named(event, number)

    def _unnumbered(self, event: Event) -> Event:
        """Name an event without a number, of a node that numbers others: the first run's."""
        if 1 not in self._numbers[event.node]:
            self._add(event.node, 1, event, first_seen=True)
        return self._named(event, 1)

    def _later(self, event: Event, numbers: list[int], status: Status) -> Event:
        """Name an event of a node that restarted."""
        if event.node in self._numbered:
            return self._unnumbered(event)
        node, counter = event.node, event.clock[event.node]
        reached = self.highest.get(name_of(node, numbers[-1]), 0)
        possible: list[Event] = []
        unread: EventError | None = None
        for number in reversed(numbers):
            ended = self.highest.get(name_of(node, number), 0)
            over = number != numbers[-1] and counter > ended
            if over and (reached >= ended or counter <= reached + 1):
                # An earlier run is taken to have ended where it was last seen, unless
                # the latest would have to jump to get here.
                continue
            try:
                named = self._named(event, number)
            except EventError as error:
                unread = error
                continue
            found = status(named)
            if found == "duplicate":
                return named
            if found == "new" and self._fits(named):
                possible.append(named)
        if unread is not None:
            raise unread
        if len(possible) > 1:
            names = " or ".join(str(e.dot) for e in reversed(possible))
            raise EventError(
                f"{node} restarted, and this may be {names}; number the incarnations "
                "in the events (an attribute `incarnation`) or in their names",
                place=str(event.dot),
            )
        return possible[0] if possible else self._named(event, numbers[-1])

    def _fits(self, event: Event) -> bool:
        """Return whether an event's clock lies between those of its neighbours."""
        below = self.memory.below(event.node, event.counter)
        above = self.memory.above(event.node, event.counter)
        return (below is None or self._within(below[1], event.clock)) and (
            above is None or self._within(event.clock, above)
        )

    def _within(self, smaller: Clock, larger: Clock) -> bool:
        """Return whether one clock can be known to another, entries of the retired aside."""
        return all(
            larger.get(name, 0) >= counter
            for name, counter in smaller.items()
            if name in larger or (name not in self.retired and name not in self._bases)
        )

    # --- names in clocks ---

    def _named(self, event: Event, number: int) -> Event:
        own = name_of(event.node, number)
        clock = event.clock
        read = {
            base: self._reading(base, event, own)
            for base in clock.keys() & self._numbers.keys()
            if base != event.node and not any(n in clock for n in self.names(base) if n != base)
        }
        if own == event.node and all(base == name for base, name in read.items()):
            return event
        read[event.node] = own
        renamed = {read.get(name, name): counter for name, counter in clock.items()}
        return msgspec.structs.replace(event, node=own, clock=renamed)

    def _reading(self, base: str, event: Event, own: str) -> str:
        """Return the incarnation that an entry of another node refers to."""
        counter, names = event.clock[base], self.names(base)
        stored = self.memory.get(own, event.counter)
        if stored is not None:
            # A duplicate is read as the first copy was.
            return next((name for name in names if name in stored), base)
        before = self.memory.below(own, event.counter)
        low = 0
        if before is not None:
            # A closure knows more incarnations; what moved, and which way, is told by the
            # clock as it came, for an entry that is there can be older than the closure's.
            _, came, closure = before
            for at, name in enumerate(names):
                if came.get(name) == counter:
                    return name
                if name in (closure or came):
                    low = at + (counter < came.get(name, 0))
            if low == len(names):
                return names[-1]  # Backwards, without a restart: no concern of this stage.
        low = max(low, self._told(names, event, counter))
        return self._chosen(base, names[low:], event, own)

    def _told(self, names: list[str], event: Event, counter: int) -> int:
        """Return the first incarnation that is possible by what the event's causes say."""
        low = 0
        for node, known in event.clock.items():
            cause = None if node in self._numbers else self.memory.get(node, known)
            if cause is not None and node != event.node:
                for at, name in enumerate(names):
                    if name in cause:
                        low = max(low, at + (counter < cause[name]))
        return min(low, len(names) - 1)

    def _knows(self, name: str, counter: int, event: Event, own: str) -> bool:
        """Return whether an incarnation knew the event by then, so that it is no cause of it."""
        line = self.memory.below(name, counter + 1)
        return line is not None and line[1].get(own, 0) >= event.counter

    def _chosen(self, base: str, names: list[str], event: Event, own: str) -> str:
        counter = event.clock[base]
        seen, unseen = [], []
        for name in names:
            if self._knows(name, counter, event, own):
                continue
            clock = self.memory.get(name, counter)
            if clock is None:
                if name == names[-1] or counter <= self.highest.get(name, 0):
                    unseen.append(name)
            # Entries of restarted nodes have no names yet, so they are not compared.
            elif self._within(
                {n: c for n, c in clock.items() if n not in self._bases}, event.clock
            ):
                seen.append(name)
        latest = (names[-1], counter)
        if seen and names[-1] in unseen:
            self._unseen.add(latest)
            if len(self._unseen) > self.memory.clocks_max:
                self._unseen = {latest}
                self.doubtful += 1
        possible = seen or unseen
        if len(possible) != 1:
            which = " or ".join(str(Dot(name, counter)) for name in possible) or "no known event"
            raise EventError(
                f"{base} restarted, and the entry {base}: {counter} may be {which}; "
                f"name the incarnation in the clock, as {names[-1]}",
                place=str(event.dot),
            )
        return possible[0]

    def state(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return {
            "highest": dict(self.highest),
            "numbers": {base: list(numbers) for base, numbers in self._numbers.items()},
            "numbered": sorted(self._numbered),
            "firsts": dict(self._firsts),
            "doubtful": self.doubtful,
            "read": dict(sorted(self._read.items())),
            "unseen": sorted(self._unseen),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over a state that `state` gave."""
        self.highest = dict(state["highest"])
        self._numbers = {base: list(numbers) for base, numbers in state["numbers"].items()}
        self._numbered = set(state["numbered"])
        self._firsts = dict(state["firsts"])
        self.doubtful, self._read = state["doubtful"], dict(state["read"])
        self._unseen = {(name, counter) for name, counter in state["unseen"]}
        self._bases = {
            name_of(base, number): base
            for base, numbers in self._numbers.items()
            for number in numbers
        }
        for name in self.highest:
            self._appear(name)
