"""Identification of events, before any order or pattern: new or seen, and of which incarnation.

Each event is identified once for the whole execution: is its node in a closed
`topology`, of which incarnation of its node is it (`A`, `A#2`), was it seen
before? In a stream and in a finite log the same records are identified in the same order, so the
results are the same.

In most executions no node restarts or leaves. Until the first one does, the state of `Intake` is
enough; then `MembershipStage` begins from that state.

The one rule: an event is named once, on arrival, and every later stage uses that name.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ketal.clocks.scheme import NO_CLOCKS
from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.errors import EventError
from ketal.model import syntax
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.events.incarnation import INCARNATION
from ketal.model.limits import Limits
from ketal.model.syntax_walks import walk
from ketal.model.values import base_node
from ketal.operators.membership.clock_memory import Clock
from ketal.operators.membership.incarnation_names import later_run, restarted
from ketal.operators.membership.members import MembershipStage
from ketal.operators.topology.domains import closed_nodes, takes_part
from ketal.runtime.admission.clock_entries import ClockEntries
from ketal.runtime.admission.deduplication import BEYOND, CONTRADICTION, NEW, Intake, Steady
from ketal.runtime.admission.seen_digests import ContentRow


def reads_clocks(compiled: CompiledPattern) -> bool:
    """Return whether a pattern's verdicts depend on clocks, beyond the dots of events."""
    p = compiled.pattern
    return (
        compiled.causal
        or p.deployment is not None
        # Of mirror images the first in canonical order is reported, and clocks give that order.
        or (compiled.strategy == "any" and compiled.automaton.mirrors)
        or any(isinstance(node, syntax.Causal | syntax.Conc) for node in walk(p))
    )


@functools.lru_cache(maxsize=16)
def keeping_all(limits: Limits) -> Limits:
    """Return limits under which the state covers all events that are in memory, and their nodes."""
    return replace(limits, dots_max=limits.events_max, nodes_max=sys.maxsize)


class Admission:
    """Identifies the events of an execution.

    Another admission serves the patterns `beside` of the program: an event is rejected if all
    patterns of the program exclude it. `dots_max`, `counters_max` and `nodes_max` bound the state.
    """

    def __init__(
        self,
        patterns: Sequence[CompiledPattern],
        limits: Limits,
        *,
        beside: Sequence[CompiledPattern] = (),
    ) -> None:
        self.limits = limits
        self.intake = Intake(limits)  # the seen dots and contents
        # The live nodes; None until a node leaves or restarts.
        self.membership: MembershipStage | None = None
        # Whether some pattern reads clocks, so that a node's departure matters.
        self.reads_clocks = any(map(reads_clocks, patterns))
        self._has_clocks = all(one.undecided != NO_CLOCKS for one in patterns)
        all_patterns = [*patterns, *beside]
        # The patterns with a closed topology, by number, and its nodes.
        self.closed_topologies = tuple(
            (number, nodes)
            for number, one in enumerate(all_patterns)
            if (nodes := closed_nodes(one.pattern.topology)) is not None
        )
        self._names = [c.name for c in all_patterns]
        # The clock entries so far, to detect departures; empty if there is a membership.
        self.entries = ClockEntries()

    @property
    def steady(self) -> Steady | None:
        """The entries for `Intake.admit`; None if no pattern, retiring or not, reads clocks."""
        return self.entries.steady if self.reads_clocks else None

    # --- closed topologies ---

    def excluding(self, event: Event) -> list[int]:
        """Return the patterns, by number, whose closed topology lacks the node of an event."""
        return [
            number for number, nodes in self.closed_topologies if not takes_part(event.node, nodes)
        ]

    def exclusion_reason(self, event: Event, numbers: Sequence[int]) -> str:
        """Return why no pattern takes an event; empty if some pattern takes it.

        `numbers` are the patterns that exclude it.
        """
        if not numbers or len(numbers) < len(self._names):
            return ""
        node = base_node(event.node)
        if len(numbers) == 1:
            lacking = f"the topology of pattern {self._names[0]} has no node {node}"
        else:
            lacking = f"no pattern's topology has the node {node}"
        return f"{lacking}; add it, or declare `topology open`"

    # --- deduplication and names ---

    def has_room(self, names: Collection[str]) -> bool:
        """Return whether all the nodes that a clock or a control event names may be remembered."""
        membership = self.membership
        named: Collection[str] = (
            self.entries.names if membership is None else membership.restorer.highest
        )
        room = self.limits.nodes_max - len(named)
        if len(names) <= room or not self.reads_clocks:
            return True
        fresh = [name for name in names if name not in named]
        if fresh and membership is not None:
            restarted = membership.incarnations.table.numbers
            fresh = [name for name in fresh if name not in restarted]
        return len(fresh) <= max(0, room)

    def take(self, event: Event) -> tuple[str, Event]:
        """Return the status of an event (new, duplicate, …), and the event named by incarnation.

        A new event is `BEYOND` if it is of a node beyond `nodes_max`, or its clock names one. An
        EventError if it is ambiguous to which incarnation of a node the event, or an entry of its
        clock, belongs; or if its dot was seen with other content.
        """
        if not self.has_room(event.clock):
            return BEYOND, event
        restarts = self.membership is not None or INCARNATION in event.data
        if not restarts:
            status = self._admit(event)
            # Counter 1 once more, with other content, is a restart.
            restarts = status is CONTRADICTION and event.clock[event.node] == 1
        if restarts:
            event = self.ensure_membership().rename(event, self.intake)
            status = self._admit(event)
        if status is CONTRADICTION:
            raise EventError(
                f"{event.dot} was read before with other content; a dot is unique in an execution "
                f"(do two programs use the name {base_node(event.node)!r}?)"
            )
        return status, event

    def _admit(self, event: Event) -> str:
        if self.intake.admit((event,), named=True):
            return NEW
        status = self.intake.status(event)
        return BEYOND if status is NEW else status

    def arrived(self, event: Event) -> tuple[str, ...]:
        """Record a new event's clock; return the incarnations that it shows to have ended."""
        return () if self.membership is None else self.membership.arrived(event)

    # --- membership ---

    def ensure_membership(self, new: Event | None = None) -> MembershipStage:
        """Return the membership; if there is none, begin one from the seen events except `new`."""
        if self.membership is None:
            intake = self.intake
            highest = intake.highest()
            if new is not None:
                del highest[new.node]
            self.membership = MembershipStage(self.limits)
            self.membership.begin(
                intake.contents.clocks(),
                firsts=intake.contents.first_digests(),
                highest=highest,
            )
            self.membership.add_named(sorted(self.entries.names))
            self.entries = ClockEntries()
        return self.membership

    def departed_nodes(self, events: Collection[Event]) -> Collection[str]:
        """Return the nodes that have left, by control events and by restarts in a log's events."""
        if self.membership is None:
            named = itertools.chain.from_iterable(event.clock for event in events)
            return restarted({event.node for event in events}, named)
        return self.membership.departed

    def shows_leave(self, event: Event) -> bool:
        """Begin a membership if a new event shows that a node left; return whether it does.

        Called only while there is no membership: a membership detects departures itself.
        """
        if event.node not in self.entries.first and later_run(event.node) is not None:
            self.ensure_membership(event)
            return True
        dropped = self.entries.add(event, self.intake)
        if dropped:
            self.ensure_membership().restorer.mark_departed(dropped)
        return bool(dropped)

    def control(self, control: Control) -> Control | None:
        """Apply a control event; return it with its nodes named by incarnation.

        None if `nodes_max` leaves no room for its nodes: it is not applied.
        """
        if not self.reads_clocks or control.kind not in ("join", "leave", "view"):
            return control
        nodes = dict.fromkeys((control.node or "",) if control.kind != "view" else control.members)
        if not self.has_room(nodes):
            return None
        membership = self.ensure_membership()
        membership.add_named(nodes)
        return membership.control(control)

    def record_clock_entries(self) -> None:
        """Record the entries of the kept clocks, which the previous program did not read."""
        entries = self.entries
        if self.membership is None and self.reads_clocks and not entries.first:
            entries.add_clocks(self.intake.contents.clocks())
            if any(later_run(node) is not None for node in entries.first):
                self.ensure_membership()

    def nonzero_counts(self, **counts: int) -> dict[str, int]:
        """Return the counts that are not zero, `restarts` first."""
        restarts = 0 if self.membership is None else self.membership.incarnations.table.restarts
        return {name: count for name, count in {"restarts": restarts, **counts}.items() if count}

    def holes(self) -> int:
        """Return how many counters are missing below the highest of each node.

        None are without clocks: the counters are offsets then, and not every offset is an event's.
        """
        return self.intake.holes() if self._has_clocks else 0

    # --- state ---

    def save(self) -> dict[str, Any]:
        """Return the small part of the state; contents and clocks are saved separately."""
        membership = self.membership
        return {
            "intake": self.intake.save(),
            "membership": None if membership is None else membership.save(),
            "drops": "detected on arrival",
        }

    def load(
        self,
        state: dict[str, Any],
        *,
        beyond: Iterable[Iterable[Any]],
        contents: Iterable[ContentRow],
        clocks: Iterable[Iterable[Any]],
        first: Mapping[str, Clock],
    ) -> None:
        """Load what `save` returned, and the parts that are saved separately.

        These are the arguments of `Intake.load`, tables of `ClockMemory.rows`, and `entries.first`.
        """
        if state["membership"] is not None:
            self.membership = MembershipStage(self.limits)
            for rows in clocks:
                self.membership.memory.load(rows)
            self.membership.load(state["membership"])
            if "drops" not in state:  # earlier versions detected departures on release
                self.membership.mark_dropped()
        self.intake.load(state["intake"], beyond, contents)
        for node, clock in first.items():
            self.entries.put(node, clock)
