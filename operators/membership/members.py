"""Membership: the nodes that take part in an execution, as events change it.

Nodes join, leave and restart. Three questions follow, each with a class:

- **Which nodes are live?** `MembershipStage` has the view: a node joins with its first event, by
  `ketal.join` or `ketal.view`, and leaves by `ketal.leave`, by a view without
  it, by idle time, or with the first event of a later incarnation of it.
- **What is in an event's past?** `Restorer` (`ketal.operators.membership.clock_restoration`)
  restores the entries that clocks lost when a node left.
- **To which incarnation of its node does an event belong?** `Incarnations`
  (`ketal.operators.membership.incarnations`) names the second run of A `A#2`.

The one rule: on an execution in which no entry was dropped and no node
restarted, an event is returned as the same object.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar

from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.limits import DEFAULT, Limits
from ketal.model.values import base_node
from ketal.operators.membership.clock_memory import ClockMemory
from ketal.operators.membership.clock_restoration import Restorer
from ketal.operators.membership.incarnation_names import later_run
from ketal.operators.membership.incarnations import Incarnations
from ketal.operators.stateful import Stateful


class MembershipStage(Stateful):
    """The stage between Intake and the ordering queue: view, incarnations, clocks.

    `dots_max` bounds the clocks that are held, `clock_entries_max` the entries of each,
    `restored_entries_max` those of all that were restored, and `incarnations_max` the incarnations
    of nodes that restarted.

    The calls for each event, in turn: `rename` as it arrives; `arrived` if it is new; of the
    restorer `restore_so_far` if it is offered on arrival, `restore_at_once` if it should have
    waited for its past, and `restore` when it is released, before it is offered or sorted. The
    clocks of the memory are saved separately (`ClockMemory.rows`).
    """

    STATE: ClassVar = "live", "_left", "departed", "incarnations", "restorer"

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self.limits = limits
        self.departed: set[str] = set()  # the nodes whose entries later clocks may lack
        self.memory = ClockMemory(limits.dots_max, limits.restored_entries_max)
        self.incarnations = Incarnations(self.memory, self.departed, limits.incarnations_max)
        self.restorer = Restorer(self.memory, self.departed, limits.clock_entries_max)
        self.rename = self.incarnations.rename
        self.live: set[str] = set()  # the nodes that take part now
        self._left: set[str] = set()
        self._named_runs: dict[str, dict[str, int]] = {}
        """By node, the later incarnations that clocks name, with their numbers, until they are
        over. All events of such an incarnation may have been lost."""

    def begin(
        self,
        arrivals: Iterable[tuple[str, int, dict[str, int]]],
        *,
        firsts: Mapping[str, bytes],
        highest: Mapping[str, int],
    ) -> None:
        """Load the events that arrived while every node was live in its first incarnation.

        Until a node leaves, drops an entry or restarts this stage has nothing to do, so a driver
        may add it only then. `arrivals` are the node, counter and clock of the last events, in
        order of arrival, `firsts` the digest of each node's event of counter 1, and `highest` the
        highest counter of each node.
        """
        self.memory.begin(arrivals)
        self.incarnations.begin(firsts, highest)
        self.restorer.begin(highest)
        self.mark_dropped()
        for node in highest:
            self._join_by_event(node)

    def load(self, state: Any) -> None:
        """Load what `save` returned into a fresh stage."""
        super().load(state)
        self._index_runs(name for name in self.restorer.highest if name not in self._left)

    def mark_dropped(self) -> None:
        """Find the departures that the held clocks show, as `arrived` does for each event."""
        for node, counter, clock in self.memory.items():
            self.add_named(clock)
            self.restorer.mark_dropped(node, counter, clock)

    def add_named(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """Add nodes that a clock names; return the incarnations among them that are over."""
        fresh = [node for node in nodes if node not in self.restorer.highest]
        if not fresh:
            return ()
        self.restorer.add_named(fresh)
        return self._end(name for base in self._index_runs(fresh) for name in self._pop_over(base))

    def _index_runs(self, names: Iterable[str]) -> list[str]:
        """Add the later incarnations among names to `_named_runs`; return their nodes."""
        runs = [(name, *run) for name in names if (run := later_run(name)) is not None]
        for name, base, number in runs:
            self._named_runs.setdefault(base, {})[name] = number
        return [base for _, base, _ in runs]

    def _pop_over(self, base: str) -> list[str]:
        """Remove from `_named_runs` the runs of a node before its last one that has an event."""
        last = later_run(self.incarnations.names(base)[-1])
        named = self._named_runs.get(base, {})
        over = [name for name, number in named.items() if last is not None and number < last[1]]
        for name in over:
            del named[name]
        return over

    def _end(self, names: Iterable[str]) -> tuple[str, ...]:
        """Remove incarnations that are over from the live nodes; return those that had not left."""
        over = sorted(set(names) - self._left)
        self._left.update(over)
        self.live.difference_update(over)
        self.restorer.mark_departed(over)
        return tuple(over)

    def arrived(self, event: Event) -> tuple[str, ...]:
        """Record a new event, with which its node joins; return the incarnations that it ends.

        Nodes whose entries it shows to be dropped have left.

        An event of a node that left was in flight: only a `join`, a `view` or a new
        incarnation makes the node live again. A node that left by idle time is live again.
        """
        node, clock = event.node, event.clock
        self.incarnations.arrived(event)
        self.memory.put(node, clock[node], clock)
        self.restorer.mark_dropped(node, clock[node], clock)
        over = self.add_named(clock)
        if node not in self.live and node not in self._left:
            over += self._join_by_event(node)
        return over

    def _join_by_event(self, node: str) -> tuple[str, ...]:
        """Make a node live because of its event; return the incarnations that the event ends."""
        base = self.incarnations.base(node)
        names = self.incarnations.names(base)
        if node in names[:-1]:
            # A late event of an earlier incarnation, which is over.
            return self._end((node,))
        if node not in names:
            names = [node]
        over = self._end([*names[:-1], *self._pop_over(base)])
        # Entries of both incarnations may be missing where a clock has room for one.
        self.restorer.mark_departed(names if len(names) > 1 else ())
        self.live.add(node)
        return over

    def control(self, control: Control) -> Control:
        """Apply a `join`, `leave` or `view`; return it with its nodes named by incarnation."""
        names = self.incarnations.names
        if control.kind == "view":
            self.view(control.members)
            members = tuple(dict.fromkeys(names(member)[-1] for member in control.members))
            return Control("view", members=members)
        assert control.node is not None
        if control.kind == "join":
            self.join(control.node)
        else:
            self.leave(control.node)
        return Control(control.kind, node=names(control.node)[-1])

    def join(self, node: str) -> None:
        """Make a node live; of one that restarted, its latest incarnation."""
        latest = self.incarnations.names(node)[-1]
        self._left.discard(latest)
        self.live.add(latest)

    def leave(self, node: str) -> None:
        """Remove a node from the live ones, whatever incarnation of it is live."""
        self._remove(self.incarnations.names(node))

    def _remove(self, names: Collection[str]) -> None:
        self.restorer.mark_departed(names)
        self._left.update(names)
        self.live.difference_update(names)

    def view(self, members: Iterable[str]) -> None:
        """Replace the live nodes by these members; the view read last is in force.

        All other nodes have left, also those that only clocks named, but for later incarnations of
        these members.
        """
        latest = {self.incarnations.names(member)[-1] for member in members}
        bases = set(map(base_node, latest))
        named = self.restorer.highest.keys() - self.departed
        unlisted = {node for node in named if base_node(node) not in bases}
        self._remove((self.live - latest) | unlisted)
        for node in latest:
            self.join(node)

    @property
    def in_doubt(self) -> int:
        """How many events may have been offered with a clock that is too low or misread."""
        return self.restorer.in_doubt + self.incarnations.doubtful
