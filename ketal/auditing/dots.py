"""Assigns each event a dot of its own, so that the own entries of a node count 1, 2, 3, ….

A node's own entries deviate from that by a hole, a dot that two events share, an event without a
dot, or one far beyond the last. Each may be a fault of its own: an event that was lost, or one too
many. A wrong own entry shows as two deviations: the hole that its event left, and the dot that it
has instead. So an event without a dot, or with a shared one, is tried in the holes. It *fits* a
hole if nothing contradicts it there: clocks never decrease along a node, events that know it know
all that it knows, and events that it knows do not know it (Mattern, "Virtual time and global states
of distributed systems", 1989). If it fits, its own entry is the fault, and no event is missing.

The order of the file is evidence, too: if the file has the order of each node, the event's line
must fit the hole as well; otherwise the order only decides between two events that fit.

First each event gets the dot of its own entry, if that is valid (`admit`); of an invalid clock, the
valid entries are used and the others reported.

The one rule: one fault is preferred to two. An event that fits no hole stays at its recorded dot,
and a hole that no event fits is a lost event.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from itertools import chain, pairwise
from math import sqrt
from typing import NamedTuple

from ketal.auditing.log_model import (
    NONE,
    AuditedEvent,
    AuditedExecution,
    Everything,
    Hole,
    NodeEvents,
)
from ketal.clocks.vector import COUNTER_MAX
from ketal.model.events.dot import Dot
from ketal.model.events.event import Draft

_PAIRS_MIN = 12
"""How many pairs of neighbours it takes at least for the order of a file to be evidence."""
_HOLES_TRIED = 16
"""How many holes are tried for an event, around its expected place."""


def admit(execution: AuditedExecution) -> None:
    """Assign each event the dot of its own entry, if that is valid."""
    copies: set[int] = set()
    known: dict[tuple[str, int], set[bytes]] = {}
    for event in execution.events:
        if isinstance(event.read, Draft):
            _admit_draft(execution, event, event.read)
        line = execution.lines.get(event.node)
        if line is None:
            line = execution.lines[event.node] = NodeEvents()
        if not event.counter:
            line.strays.append(event)
            continue
        first = line.by_counter.setdefault(event.counter, event)
        if first is event:
            continue
        contents = known.setdefault((event.node, event.counter), {first.content})
        if event.content in contents:
            line.copies.append(event)
            copies.add(event.position)
        else:
            contents.add(event.content)
            line.twins.setdefault(event.counter, [first]).append(event)
    for line in execution.lines.values():
        line.sort()
    if copies:
        execution.events = [e for e in execution.events if e.position not in copies]


def _admit_draft(execution: AuditedExecution, event: AuditedEvent, draft: Draft) -> None:
    """Use the valid entries of an invalid clock, and report the others."""
    node = event.node
    raw = draft.clock if isinstance(draft.clock, dict) else {}
    wrong = [str(m) for m, v in raw.items() if not (isinstance(m, str) and is_counter(v))]
    event.clock = {m: v for m, v in raw.items() if isinstance(m, str) and is_counter(v) and v}
    event.counter = event.clock.get(node, 0)
    event.unknown |= frozenset(wrong) - {node}
    if not isinstance(draft.clock, dict):
        event.unknown = Everything()
        reason = "" if draft.clock is None else f": {event.reason}"
        execution.report("A002", event, f"the event of {node} has no vector clock{reason}")
    elif node in wrong:
        shown = repr(raw.get(node))[:40]
        message = f"{node}'s own entry is {shown}, which is not a counter"
        execution.report("A002", event, message)
    elif not event.counter:
        if not event.clock:
            # An empty clock may be right or not recorded; its place decides.
            event.unknown = Everything()
        state = "is zero" if node in raw else "is missing"
        execution.report("A001", event, f"{node}'s own entry {state}")
    else:
        name = wrong[0]
        message = f"the entry for {name} is {repr(raw.get(name))[:40]}, which is not a counter"
        execution.report("A002", event, message, dot=event.dot, blamed=event.unknown)


def is_counter(value: object) -> bool:
    """Return whether a value can be an entry of a clock."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= COUNTER_MAX


# --- missing and shared dots ------------------------------------------------------------------


def assign_dots(execution: AuditedExecution, departed: frozenset[str] = NONE) -> None:
    """Assign dots to the events of nodes that do not count 1, 2, 3, …, and report the faults.

    Entries of nodes in `departed` are not evidence.
    """
    lines = {node: line for node, line in execution.lines.items() if not line.complete}
    if not lines:
        return
    counter_max = {node: line.top + line.without_dot for node, line in execution.lines.items()}
    named = _named_beyond(execution, counter_max)
    unsettled = {e.position for line in lines.values() for e in chain(*line.twins.values())}
    evidence = _DotEvidence(execution, counter_max, departed, unsettled, _is_ordered(execution))
    for node, line in lines.items():
        _DotAssignment(evidence, node, named.get(node, 0)).assign()
        unsettled.difference_update(event.position for event in line.events())
    execution.events.sort(key=lambda event: event.position)
    _report_holes(execution)


def _is_ordered(execution: AuditedExecution) -> bool:
    """Return whether the file has the order of each node.

    A few wrong own entries look like descents. In a random permutation of n events, half of the
    neighbours are descents, with a variance of (n + 1) / 12 (MacMahon, "Combinatory analysis",
    1915); the file is ordered if it has fewer by four standard deviations.
    """
    lines: dict[str, list[int]] = {}
    for event in execution.events:
        if event.counter and execution.lines[event.node].by_counter[event.counter] is event:
            lines.setdefault(event.node, []).append(event.counter)
    falls = sum(a > b for line in lines.values() for a, b in pairwise(line))
    pairs = sum(len(line) - 1 for line in lines.values())
    variance = sum(len(line) + 1 for line in lines.values() if len(line) > 1) / 12
    return (
        pairs >= _PAIRS_MIN and 10 * falls <= 3 * pairs and falls + 4 * sqrt(variance) < pairs / 2
    )


def _named_beyond(execution: AuditedExecution, counter_max: dict[str, int]) -> dict[str, int]:
    """Return, by node, the highest possible counter beyond its last event that entries name."""
    reach = {node: top for node, top in counter_max.items() if top > execution.lines[node].top}
    named: dict[str, int] = {}
    for event in execution.events if reach else ():
        for node in reach.keys() & event.clock.keys():
            if named.get(node, 0) < event.clock[node] <= reach[node] and node != event.node:
                named[node] = event.clock[node]
    return named


def _report_holes(execution: AuditedExecution) -> None:
    for node, line in execution.lines.items():
        for hole in line.holes():
            first, last = hole
            after = line.by_counter[last + 1]
            dots = f"{node}@{first} is"
            if last > first:
                dots = f"{node}@{first} to {node}@{last} ({hole.room:,} events) are"
            message = f"{dots} not in the log: a hole before {after.dot}"
            execution.report("A004", after, message, dot=Dot(node, first))


class _Unplaced(NamedTuple):
    """An event that needs another counter, and the holes where it fits, the best first.

    It has `rivals` if another event with the same dot could be moved instead.
    """

    event: AuditedEvent
    holes: list[Hole]
    rivals: bool = False


@dataclass(slots=True)
class _DotEvidence:
    """The evidence for and against a place of an event on its node's line."""

    execution: AuditedExecution
    counter_max: dict[str, int]
    """The greatest counter that each node can have if no event was lost: an entry that names a
    higher one is not evidence."""
    departed: frozenset[str]  # nodes whose entries are not evidence
    unsettled: set[int]  # positions of events that share a dot and may have to move
    ordered: bool  # whether the file has the order of each node

    def neighbours(
        self, event: AuditedEvent, hole: Hole
    ) -> tuple[AuditedEvent | None, AuditedEvent | None]:
        """Return the neighbours that an event would have in a hole of its node."""
        line = self.execution.lines[event.node]
        return line.last_upto(hole.first - 1), line.first_above(hole.last)

    def fits(self, event: AuditedEvent, hole: Hole) -> bool:
        """Return whether nothing, except perhaps the file order, contradicts an event in a hole."""
        node, execution = event.node, self.execution
        before, after = self.neighbours(event, hole)
        if before is not None and self.contradicts(before, event):
            return False
        if after is not None and self.contradicts(event, after):
            return False
        for knower in execution.knowers(node, hole.last):
            # An event that knows the next event of the node, too, need not be compared.
            further = after is not None and knower.clock[node] >= after.counter
            settled = not further and knower.position not in self.unsettled
            if settled and self.contradicts(event, knower):
                return False
        for name, value in event.clock.items():
            if name == node or name in self.departed or name in event.unknown:
                continue
            known = execution.event_named(name, value)
            if known is None or node in known.unknown or known.position in self.unsettled:
                continue
            if known.clock.get(node, 0) >= hole.first:
                return False
        received = execution.receives.get(event.position, ())
        return all(other.entry(node) >= hole.first for other in received)

    def contradicts(self, event: AuditedEvent, later: AuditedEvent) -> bool:
        """Return whether an event has a higher entry of another node than a later event."""
        return any(
            event.clock[name] <= self.counter_max.get(name, 0) and name not in self.departed
            for name in later.lacks(event)
        )

    def misorder(self, event: AuditedEvent, hole: Hole) -> int:
        """Count the neighbours in a hole that are on the wrong side of the event in the file."""
        before, after = self.neighbours(event, hole)
        return (before is not None and before.position > event.position) + (
            after is not None and after.position < event.position
        )

    def misorders_after(self, event: AuditedEvent, counter: int) -> int:
        """Count the neighbours in the wrong file order if an event is moved to `counter`."""
        line, was = self.execution.lines[event.node], event.counter
        event.counter = counter
        line.put(event)
        places = {line.by_counter[place] for place in (was, counter)}
        pairs = {(before, e) for e in places if (before := line.last_upto(e.counter - 1))}
        pairs |= {(e, after) for e in places if (after := line.first_above(e.counter))}
        line.remove(event)
        event.counter = was
        return sum(a.position > b.position for a, b in pairs)


class _DotAssignment:
    """Assigns counters to the events of one node that does not count 1, 2, 3, …."""

    def __init__(self, evidence: _DotEvidence, node: str, named: int) -> None:
        self._execution = evidence.execution
        self._evidence = evidence
        self._ordered = evidence.ordered
        self._node = node
        self._line = evidence.execution.lines[node]
        self._named = named
        # Sorted, as wrong own entries far beyond the others have places in no order.
        self._by_key = sorted((self._key_before(hole), hole) for hole in self._line.holes())

    def assign(self) -> None:
        """Assign a counter to each of the node's events, or report the event."""
        line = self._line
        from_end = self._take_last()
        holes = line.holes()
        if line.top < (last := min(self._named, line.top + line.without_dot)):
            holes.append(Hole(line.top + 1, last))
        moved = self._take_shared(holes)
        unplaced = [_Unplaced(e, self._fitting_holes(e, holes, fill=True)) for e in line.strays]
        unplaced += [_Unplaced(e, self._fitting_holes(e, holes)) for e in from_end]
        self._fill_holes(unplaced + moved)
        taken = [*from_end, *(one.event for one in moved)]
        for event in taken:
            if not event.counter:
                # Other events took the holes: it stays at its recorded dot.
                event.counter = event.clock[self._node]
                if event.counter not in line.by_counter:
                    line.put(event)
        self._append_strays([event for event in line.strays if not event.counter])
        for event in chain(taken, *line.twins.values()):
            if event is not line.by_counter[event.counter]:
                self._report_extra(event)
        self._place_copies()

    # --- holes that an event fits -------------------------------------------------------------

    def _fitting_holes(
        self, event: AuditedEvent, holes: list[Hole], *, fill: bool = False
    ) -> list[Hole]:
        """Return the holes that an event fits, the best first.

        A hole with room for several events is not evidence for one, except by the order of the
        file; but an event without any dot may fill it (`fill`).
        """
        if isinstance(event.unknown, Everything) and not self._ordered:
            return holes
        options = []
        for hole in self._nearby_holes(event, holes):
            misorder = self._evidence.misorder(event, hole)
            allowed = not misorder if self._ordered else fill or hole.room == 1
            if allowed and self._evidence.fits(event, hole):
                options.append((misorder, abs(hole.first - event.counter), hole))
        return [hole for _, _, hole in sorted(options)]

    def _nearby_holes(self, event: AuditedEvent, holes: list[Hole]) -> list[Hole]:
        """Return the holes around the expected place of an event."""
        if len(holes) <= _HOLES_TRIED:
            return holes
        rank = bisect_right(self._by_key, (self._order_key(event),))
        near = self._by_key[max(0, rank - _HOLES_TRIED) : rank + 1]
        return [*(hole for _, hole in near if hole < holes[-1]), holes[-1]]

    def _key_before(self, hole: Hole) -> int:
        before = self._line.last_upto(hole.first - 1)
        return -1 if before is None else self._order_key(before)

    def _order_key(self, event: AuditedEvent) -> int:
        """Return a key that grows along the node: the position in the file, or the clock's sum."""
        return event.position if self._ordered else event.others_sum()

    # --- events whose recorded dot may be wrong -----------------------------------------------

    def _take_last(self) -> list[AuditedEvent]:
        """Remove the last events while they more likely belong in holes; return them."""
        taken: list[AuditedEvent] = []
        line, holes = self._line, self._line.holes()
        latest = max(line.events(), key=self._order_key, default=None)
        while holes:
            top = line.top
            same = line.twins.get(top, [line.by_counter[top]])
            if not all(self._belongs_in_hole(event, top, holes, latest) for event in same):
                break
            taken += same
            line.twins.pop(top, None)
            line.remove(line.by_counter[top])
            if holes[-1].last == top - 1:
                holes.pop()
        for event in taken:
            event.counter = 0
        return taken

    def _belongs_in_hole(
        self, event: AuditedEvent, top: int, holes: list[Hole], latest: AuditedEvent | None
    ) -> bool:
        """Return whether an event with the last dot more likely belongs in a hole.

        So it does if its place contradicts it, or if no event knows the events that would be
        missing right before it and, by the order of the file, it is not the last.
        """
        here, evidence = Hole(top, top), self._evidence
        if (
            not evidence.fits(event, here)
            or (latest is not None and evidence.contradicts(latest, event))
            or (latest is not None and self._ordered and latest.position > event.position)
        ):
            return bool(self._fitting_holes(event, holes))
        if holes[-1].last < top - 1:
            return False
        if any(
            knower.clock[self._node] <= top
            for knower in self._execution.knowers(self._node, holes[-1].first)
        ):
            return False
        options = self._fitting_holes(event, holes[:-1])
        return bool(options) and (
            evidence.misorder(event, options[0]) <= evidence.misorder(event, here)
        )

    def _take_shared(self, holes: list[Hole]) -> list[_Unplaced]:
        """Remove the events with shared dots that fit a hole; the best of the others keeps the dot.

        Of several, first those are moved that contradict other events at the dot, then those whose
        move leaves the file in order.
        """
        moved: list[_Unplaced] = []
        evidence, at = self._evidence, self._line.by_counter
        for counter, same in sorted(self._line.twins.items()):
            here = Hole(counter, counter)
            keepers = sorted(
                same,
                key=lambda e: (not evidence.fits(e, here), evidence.misorder(e, here), e.position),
            )
            ranked = []
            for event in same:
                at[counter] = keeper = keepers[keepers[0] is event]
                if options := self._fitting_holes(event, holes):
                    wrong = not evidence.fits(keeper, here)
                    misorders = evidence.misorders_after(event, options[0].first)
                    ranked.append(((wrong, misorders, -event.position), event, options))
            ranked.sort(key=lambda one: one[0])
            for number, (rank, event, options) in enumerate(ranked[: len(same) - 1], 1):
                rivals = number < len(ranked) and ranked[number][0][0] == rank[0]
                moved.append(_Unplaced(event, options, rivals))
                keepers.remove(event)
            at[counter] = keepers[0]
            same[:] = keepers
        for one in moved:
            one.event.counter = 0
        return moved

    # --- placement ----------------------------------------------------------------------------

    def _fill_holes(self, unplaced: list[_Unplaced]) -> None:
        """Assign events to holes, those with the fewest holes first."""
        placed: dict[Hole, list[_Unplaced]] = {}
        wanted = Counter(hole for one in unplaced for hole in one.holes)
        for one in sorted(unplaced, key=lambda one: (len(one.holes), one.event.position)):
            free = (hole for hole in one.holes if len(placed.get(hole, ())) < hole.room)
            if (first := next(free, None)) is not None:
                placed.setdefault(first, []).append(one)
        for hole, members in placed.items():
            members.sort(key=lambda one: (self._order_key(one.event), one.event.position))
            full = len(members) == hole.room and (hole.room == 1 or self._ordered)
            for counter, one in enumerate(members, hole.first):
                certain = full and wanted[hole] == hole.room and not one.rivals
                self._renumber(one.event, counter, certain=certain and len(one.holes) == 1)

    def _append_strays(self, strays: list[AuditedEvent]) -> None:
        """Place events that fit no hole after the last event."""
        line = self._line
        whole = line.top == len(line.counters)
        for event in sorted(strays, key=lambda e: (self._order_key(e), e.position)):
            hole = Hole(line.top + 1, line.top + 1)
            in_order = whole or not self._ordered or not self._evidence.misorder(event, hole)
            if in_order and self._evidence.fits(event, hole):
                self._renumber(event, hole.first, certain=whole and len(strays) == 1)

    def _renumber(self, event: AuditedEvent, counter: int, *, certain: bool) -> None:
        was = event.clock.get(event.node, 0)
        event.counter = counter
        self._line.put(event)
        if was:
            how = "does not increase" if was < counter else "is too large"
            message = f"{event.node}'s own entry {how}: it is {was}, but {counter} is missing"
            self._execution.report("A003", event, message, dot=event.dot, certain=certain)
            return
        before = self._execution.predecessor(event)
        knew_nothing = before is None or not (before.unknown or before.others_sum())
        if event.read.clock == {} and knew_nothing:
            # No event of the node knew anything before, so the empty clock is right.
            event.unknown = NONE
        for code in ("A001", "A002"):
            finding = self._execution.finding_of(code, event)
            if finding is not None:
                finding.dot, finding.certain = event.dot, certain
                if code == "A001":
                    finding.message += f"; the event fits as {event.dot}"

    def _report_extra(self, event: AuditedEvent) -> None:
        keeper = self._line.by_counter[event.counter]
        where = f" (the other is {keeper.place})" if keeper.file else ""
        if event.clock == keeper.clock:
            code = "A005"
            message = f"two events with different content have the dot {event.dot}{where}"
        else:
            code = "A003"
            message = (
                f"{event.node}'s own entry does not increase: "
                f"two events with different clocks have the dot {event.dot}{where}"
            )
        self._execution.report(code, event, message, dot=event.dot)

    def _place_copies(self) -> None:
        """Tell copies of an event from distinct events with equal content.

        Only a hole at the very place of the second one in the file is evidence of a distinct event.
        """
        for event in self._line.copies:
            hole = Hole(event.counter + 1, event.counter + 1)
            free = hole.first not in self._line.by_counter and hole.first < self._line.top
            if free and self._ordered and self._fitting_holes(event, [hole]):
                self._execution.events.append(event)
                self._renumber(event, hole.first, certain=hole.first + 1 in self._line.by_counter)
            else:
                self._execution.duplicates += 1
