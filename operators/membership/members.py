"""Who takes part in an execution, and the clocks that shrink and restart with it (DESIGN 5).

Nodes come, go and start again. Three questions follow, each with a class:

- **Who is live?** `Membership` keeps the view: a node joins by appearing, by
  `ketal.join` or `ketal.view`, and leaves by `ketal.leave`, by a view without
  it, by idle time, or because a later incarnation of it appears.
- **What did an event know?** `Restorer` (`ketal.operators.membership.clock_restoration`) restores
  the entries that clocks lost when a node left.
- **Which run of the node was it?** `Incarnations`
  (`ketal.operators.membership.incarnations`) names the second run of A `A#2`.

The one rule: on an execution in which no entry was dropped and no node
restarted, an event passes as the very object that it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ketal.model.event import Control, Event
from ketal.model.limits import DEFAULT, Limits
from ketal.operators.membership.clock_memory import ClockMemory
from ketal.operators.membership.clock_restoration import (
    Restorer,
    dropped,
    obvious_restored,
    present_order,
    restored_with_doubts,
)
from ketal.operators.membership.incarnations import ATTRIBUTE, Incarnations, Status, name_of

__all__ = [
    "ATTRIBUTE",
    "Change",
    "ClockMemory",
    "Incarnations",
    "Membership",
    "Restorer",
    "Status",
    "dropped",
    "name_of",
    "obvious_restored",
    "present_order",
    "restored_with_doubts",
]


class Change(NamedTuple):
    """Who joined and who left, each in order."""

    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class Membership:
    """The stage between Intake and the ordering queue: view, incarnations, clocks.

    Parameters
    ----------
    limits : Limits
        `dots_max` clocks are kept, `clock_entries_max` entries of each.
    clocks_max : int, optional
        Keep so many clocks instead.

    Notes
    -----
    Of each event, in turn: `rename` as it arrives; `arrived` if Intake says that
    it is new; `so_far` for what is judged at once; `restore` when it is released,
    before it is offered or sorted.
    """

    def __init__(self, limits: Limits = DEFAULT, *, clocks_max: int | None = None) -> None:
        self.limits = limits
        self.retired: set[str] = set()
        memory = ClockMemory(clocks_max or limits.dots_max)
        self.incarnations = Incarnations(memory, self.retired)
        self.restorer = Restorer(memory, self.retired, limits.clock_entries_max)
        self.rename = self.incarnations.rename
        self.so_far = self.restorer.so_far
        self.restore = self.restorer.restore
        self._live: set[str] = set()
        self._gone: set[str] = set()

    def begin(
        self,
        arrivals: Iterable[tuple[str, int, dict[str, int]]],
        *,
        firsts: Mapping[str, bytes],
        highest: Mapping[str, int],
    ) -> None:
        """Take in what arrived while every node was there in its first incarnation.

        Until someone leaves, drops an entry or starts again there is nothing to do
        here, so a driver may begin with this stage only then.

        Parameters
        ----------
        arrivals : iterable of (node, counter, clock)
            The last events, in order of arrival.
        firsts : mapping of str to bytes
            The digest of each node's event of counter 1.
        highest : mapping of str to int
            The highest counter of each node.
        """
        memory = ClockMemory.of(self.incarnations.memory.clocks_max, arrivals)
        self.incarnations.memory = self.restorer.memory = memory
        self.incarnations.begin(firsts, highest)
        self.restorer.begin(highest)
        for node in highest:
            self._appear(node)

    @property
    def live(self) -> list[str]:
        """The nodes that take part now, in order of their names."""
        return sorted(self._live)

    def is_live(self, node: str) -> bool:
        """Return whether a node takes part now."""
        return node in self._live

    def arrived(self, event: Event) -> Change:
        """Take note of a distinct event; its node joins by appearing.

        An event of a node that was said to have left was in flight: only a
        `join`, a `view` or a new incarnation brings the node back. A node that
        left by idle time is back.
        """
        node = event.node
        self.incarnations.arrived(event)
        self.incarnations.memory.put(node, event.clock[node], event.clock)
        if node in self._live or node in self._gone:
            return Change()
        return self._appear(node)

    def _appear(self, node: str) -> Change:
        names = self.incarnations.names(self.incarnations.base(node))
        if node in names[:-1]:
            # A late event of an earlier incarnation, which is over.
            self._gone.add(node)
            self.restorer.retire((node,))
            return Change((), (node,))
        if node not in names:
            names = [node]
        over = [name for name in names[:-1] if name not in self._gone]
        # Entries of both incarnations may be missing where a clock has room for one.
        self.restorer.retire(names if len(names) > 1 else ())
        self._gone.update(over)
        left = tuple(sorted(self._live.intersection(over)))
        self._live.difference_update(over)
        self._live.add(node)
        return Change((node,), left)

    def control(self, control: Control) -> Change:
        """Take a `join`, `leave` or `view`; anything else changes nothing."""
        if control.kind == "join" and control.node is not None:
            return self.join(control.node)
        if control.kind == "leave" and control.node is not None:
            return self.leave(control.node)
        if control.kind == "view":
            return self.view(control.members)
        return Change()

    def join(self, node: str) -> Change:
        """Say that a node takes part; of one that restarted, its latest incarnation."""
        latest = self.incarnations.names(node)[-1]
        self._gone.discard(latest)
        if latest in self._live:
            return Change()
        self._live.add(latest)
        return Change((latest,))

    def leave(self, node: str) -> Change:
        """Mark a node as gone, in whichever incarnation it is live."""
        names = self.incarnations.names(node)
        left = sorted(self._live.intersection(names))
        self.restorer.retire(names)
        self._gone.update(names)
        self._live.difference_update(left)
        return Change((), tuple(left))

    def view(self, members: Iterable[str]) -> Change:
        """Say who takes part: nobody else does. The view that came last is in force."""
        latest = {self.incarnations.names(member)[-1] for member in members}
        joined: list[str] = []
        left: list[str] = []
        for node in sorted(self._live - latest):
            left += self.leave(node).left
        for node in sorted(latest):
            joined += self.join(node).joined
        return Change(tuple(joined), tuple(left))

    @property
    def in_doubt(self) -> int:
        """How many events may have been judged with another clock than they have."""
        return self.restorer.in_doubt + self.incarnations.doubtful

    @property
    def memory(self) -> ClockMemory:
        """The clocks of the last events."""
        return self.restorer.memory

    def state(self) -> dict[str, Any]:
        """Return the state as plain data, the clocks of the memory apart (`ClockMemory.rows`)."""
        r = self.restorer
        return {
            "live": sorted(self._live),
            "gone": sorted(self._gone),
            "retired": sorted(self.retired),
            "evicted": dict(r.memory.evicted),
            "incarnations": self.incarnations.state(),
            "restored": r.state(),
        }

    @classmethod
    def restored(
        cls,
        state: Mapping[str, Any],
        clocks: Iterable[Iterable[Any]],
        limits: Limits = DEFAULT,
    ) -> Membership:
        """Return a stage with a state that `state` gave, and tables of `ClockMemory.rows`."""
        self = cls(limits)
        self._live = set(state["live"])
        self._gone = set(state["gone"])
        self.retired.update(state["retired"])
        memory = ClockMemory(limits.dots_max)
        for rows in clocks:
            memory.take_on(rows)
        memory.gave_up(state["evicted"])
        self.incarnations.memory = self.restorer.memory = memory
        self.incarnations.load(state["incarnations"])
        self.restorer.load(state["restored"])
        return self
