"""Admission: what a record is, and under which name, before any order or pattern (DESIGN 2, 5).

Each event is judged once for the whole execution: does its node belong there
(a closed `topology`), which run of its node is it (`A`, `A#2`), was it seen
before? A stream and a finite log ask the same questions of the same records in
the same order, so they get the same answers.

Most executions have no restart and no node that leaves. Until the first one
nothing has to be kept for it but what `Intake` keeps anyway; `Membership` begins
with that when it is needed.

The one rule: an event is named once, on arrival, and every part of ketal knows it
by that name.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ketal import pattern as syntax
from ketal.automaton import CompiledPattern
from ketal.contents import Block
from ketal.event import Control, Event
from ketal.intake import CONTRADICTION, NEW, Intake
from ketal.limits import Limits
from ketal.operators.domains import home, nodes_of
from ketal.operators.membership import ATTRIBUTE, Membership

Clock = dict[str, int]


def reads_clocks(compiled: CompiledPattern) -> bool:
    """Return whether what a pattern says depends on clocks, beyond the names of events."""
    p = compiled.pattern
    return (
        compiled.causal
        or p.deployment is not None
        or compiled.strategy == "any"  # of mirror images, the first in canonical order
        or any(isinstance(node, syntax.Causal | syntax.Conc) for node in syntax.walk(p))
    )


class Admission:
    """Says of each record of an execution what it is.

    Parameters
    ----------
    patterns : sequence of CompiledPattern
        The program.
    limits : Limits
        `dots_max` and `counters_max` bound what is remembered.
    events_max : int, optional
        More than `dots_max`, where all events are in memory anyway.
    beside : sequence of CompiledPattern
        The program's other patterns, which another admission offers the same events: what
        all patterns refuse is refused, whichever are here.

    Attributes
    ----------
    intake : Intake
        What was seen.
    membership : Membership or None
        Who is there and who left; None while nobody left or started again.
    reads_clocks : bool
        Whether some pattern reads clocks, so that a node that leaves matters.
    closed : tuple of (int, frozenset of str)
        The patterns with a closed topology, by number, those beside last, and its nodes.
    """

    def __init__(
        self,
        patterns: Sequence[CompiledPattern],
        limits: Limits,
        *,
        events_max: int | None = None,
        beside: Sequence[CompiledPattern] = (),
    ) -> None:
        self.limits = limits
        self.intake = Intake(limits, contents_max=events_max)
        self.membership: Membership | None = None
        self.reads_clocks = any(map(reads_clocks, patterns))
        everyone = [*patterns, *beside]
        topologies = [(n, c.pattern.topology) for n, c in enumerate(everyone)]
        self.closed = tuple(
            (number, nodes_of(topology))
            for number, topology in topologies
            if topology is not None and not topology.open
        )
        self._names = [c.name for c in everyone]
        self._clocks_max = events_max or limits.dots_max
        self._last: dict[str, Clock] = {}

    # --- does it belong here ---

    def refusing(self, event: Event) -> list[int]:
        """Return the patterns, by number, whose closed topology lacks the node of an event."""
        node = home(event.node)
        return [number for number, nodes in self.closed if node not in nodes]

    def refusal(self, event: Event, numbers: list[int]) -> str:
        """Return why no pattern takes an event; empty where one does."""
        if not numbers or len(numbers) < len(self._names):
            return ""
        named = f"pattern {self._names[0]}" if len(numbers) == 1 else "any pattern"
        return (
            f"the topology of {named} has no node {home(event.node)}; "
            "`topology open` takes in whoever appears"
        )

    # --- which event is it ---

    def take(self, event: Event) -> tuple[str, Event]:
        """Return what an event is (new, duplicate, …), and the event under its name.

        Raises
        ------
        EventError
            If it is ambiguous which run of a node the event, or an entry of its
            clock, belongs to.
        """
        if self.membership is None and ATTRIBUTE not in event.data:
            status = self.intake.admit(event)
            if status is not CONTRADICTION or event.clock[event.node] != 1:
                return status, event
            # A counter that is 1 again, with other content, is a restart.
        event = self.begun().rename(event, self.intake.status)
        return self.intake.admit(event), event

    def arrived(self, event: Event) -> tuple[str, ...]:
        """Take note of a new event; return the incarnations that are over with it."""
        if self.membership is None:
            return ()
        return self.membership.arrived(event).left

    # --- who is there ---

    def begun(self) -> Membership:
        """Return the membership; from now on it is kept."""
        if self.membership is None:
            intake = self.intake
            self.membership = Membership(self.limits, clocks_max=self._clocks_max)
            self.membership.begin(
                intake.contents.clocks(),
                firsts=intake.contents.first_contents(),
                highest=intake.highest(),
            )
            self._last = {}
        return self.membership

    def shrinks(self, event: Event) -> bool:
        """Return whether a new event shows that its node dropped an entry from its clocks.

        Only asked while there is no membership, which finds that out by itself.
        """
        node, clock = event.node, event.clock
        before = self._last.get(node)
        self._last[node] = clock
        if before is None:
            return False
        if before[node] < clock[node]:
            return not before.keys() <= clock.keys()
        return not clock.keys() <= before.keys()

    def dropped(self, event: Event) -> None:
        """Begin with a membership in which those have left whose entry `event` shows dropped."""
        intake = self.intake
        lines: dict[str, list[tuple[int, Clock]]] = {}
        for node, counter, clock in intake.contents.clocks():
            if node == event.node:
                lines.setdefault(node, []).append((counter, clock))
        membership = self.begun()
        line = sorted(lines.get(event.node, ()), key=lambda pair: pair[0])
        for (_, one), (_, other) in itertools.pairwise(line):
            membership.retired.update(one.keys() - other.keys())

    def control(self, control: Control) -> Control:
        """Take a control event; return it under the names of the incarnations it is about."""
        if not self.reads_clocks or control.kind not in ("join", "leave", "view"):
            return control
        membership = self.begun()
        names = membership.incarnations.names
        membership.control(control)
        if control.kind == "view":
            members = tuple(dict.fromkeys(names(member)[-1] for member in control.members))
            return Control("view", members=members)
        assert control.node is not None
        return Control(control.kind, node=names(control.node)[-1])

    def look_back(self) -> None:
        """Take each node's last clock from what is kept: the program before read no clocks."""
        if self.membership is None and self.reads_clocks and not self._last:
            self._last = {node: clock for node, _, clock in self.intake.contents.clocks()}

    # --- state ---

    def state(self) -> dict[str, Any]:
        """Return what is small of the state: contents and clocks are recorded apart."""
        membership = self.membership
        return {
            "intake": self.intake.state(),
            "membership": None if membership is None else membership.state(),
        }

    @property
    def last(self) -> dict[str, Clock]:
        """The clock of each node's last event, in the order in which nodes came up."""
        return self._last

    def restore(
        self,
        state: dict[str, Any],
        *,
        beyond: Iterable[tuple[str, int, bytes]],
        contents: Iterable[Block],
        clocks: Iterable[Iterable[Any]],
        last: Mapping[str, Clock],
    ) -> None:
        """Take on a state.

        Parameters
        ----------
        state : dict
            What `state` gave.
        beyond, contents : iterable
            As `Intake.restore` takes them.
        clocks : iterable of iterables
            Tables of `ClockMemory.rows`, where there is a membership.
        last : mapping of str to dict
            What `last` was.
        """
        if state["membership"] is not None:
            self.membership = Membership.restored(state["membership"], clocks, self.limits)
        self.intake.restore(state["intake"], beyond, contents)
        self._last = dict(last)


__all__ = ["NEW", "Admission", "reads_clocks"]
