"""Each event a dot of its own: along a node own entries count 1, 2, 3, ….

A node fails to count so by a hole, a dot of two events, an event without a dot, or one
far behind the last. Each may be a fault by itself: an event that was lost, or is one
too many. A wrong own entry shows as two of them: the hole that its event left, and the
dot that it has instead. So an event without a dot, or with one that it shares, is tried
in the holes. It *fits* a hole if nothing contradicts it there: along a node clocks
never fall, who knows an event knows all that it knows, and whom it knows does not know
it (Mattern, "Virtual time and global states of distributed systems", 1989). If it fits,
its own entry is the fault, and no event is missing.

The order of the file is evidence, too: where it has the order of each node, the line
of the event must fit the hole as well; elsewhere it only decides between two that fit.

The one rule: one fault before two. An event that fits no hole is left at its recorded
dot, and a hole that nothing fits is a lost event.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import islice, pairwise
from math import sqrt
from typing import NamedTuple

from ketal.auditing.log_model import NONE, AuditedEvent, AuditedExecution, Everything
from ketal.auditing.own_entry import Trouble
from ketal.model.event import Dot

_PAIRS = 12
"""From so many neighbours on, the order of a file proves something."""
_NEAR = 16
"""So many holes are tried for an event, around the place that it must have."""


def assign_dots(
    execution: AuditedExecution, trouble: dict[str, Trouble], left: frozenset[str] = NONE
) -> None:
    """Assign a dot to each event of a node that does not count 1, 2, 3, …; report the faults.

    Parameters
    ----------
    execution : AuditedExecution
        Its events at their recorded dots.
    trouble : dict of str to Trouble
        What `admitted` returned.
    left : frozenset of str
        Nodes whose entries a clock may have dropped: they contradict nothing.
    """
    for node, line in execution.lines.items():
        if line.top != len(line.counters):
            trouble.setdefault(node, Trouble())
    if not trouble:
        return
    most = {n: line.top + trouble.get(n, Trouble()).spare for n, line in execution.lines.items()}
    named = _named_behind(execution, most)
    ordered = _is_ordered(execution)
    unsettled = {e.position for of in trouble.values() for s in of.twins.values() for e in s}
    for node in execution.lines:
        if node in trouble:
            places = _PlaceEvidence(
                execution, node, _Evidence(most, left | {node}, unsettled, ordered)
            )
            of_node = _DotAssignment(execution, node, trouble[node], named.get(node, 0), places)
            of_node.assign()
            unsettled.difference_update(event.position for event in execution.lines[node].events())
    execution.events.sort(key=lambda event: event.position)
    _report_holes(execution)


def _is_ordered(execution: AuditedExecution) -> bool:
    """Return whether the file has each node's order.

    A few wrong own entries look like falls. In n lines that were shuffled, half of the
    neighbours fall, with a variance of (n + 1) / 12 (MacMahon, "Combinatory analysis",
    1915); it takes four deviations less than that to be no accident.
    """
    lines: dict[str, list[int]] = {}
    for event in execution.events:
        if event.counter and execution.lines[event.node].at[event.counter] is event:
            lines.setdefault(event.node, []).append(event.counter)
    falls = sum(a > b for line in lines.values() for a, b in pairwise(line))
    pairs = sum(len(line) - 1 for line in lines.values())
    variance = sum(len(line) + 1 for line in lines.values() if len(line) > 1) / 12
    return pairs >= _PAIRS and 10 * falls <= 3 * pairs and falls + 4 * sqrt(variance) < pairs / 2


def _named_behind(execution: AuditedExecution, most: dict[str, int]) -> dict[str, int]:
    """Return by node the last dot behind its last event that others name and that can be."""
    reach = {node: top for node, top in most.items() if top > execution.lines[node].top}
    named: dict[str, int] = {}
    for event in execution.events if reach else ():
        for node in reach.keys() & event.clock.keys():
            if named.get(node, 0) < event.clock[node] <= reach[node] and node != event.node:
                named[node] = event.clock[node]
    return named


def _report_holes(execution: AuditedExecution) -> None:
    for node, line in execution.lines.items():
        for first, last in line.gaps():
            after = line.at[last + 1]
            what = f"{node}@{first} is"
            if last > first:
                what = f"{node}@{first} to {node}@{last} ({last - first + 1:,} events) are"
            message = f"{what} not in the log: a hole before {after.dot}"
            execution.report("A004", after, message, dot=Dot(node, first))


class _Evidence(NamedTuple):
    """The evidence of the log as a whole about the events of a node.

    Attributes
    ----------
    most : dict of str to int
        The greatest counter that each node can have, were no event lost: what names a
        later one is no evidence.
    skip : frozenset of str
        Nodes whose entries are no evidence.
    unsettled : set of int
        Positions of events that share a dot: what stands there may be another one.
    ordered : bool
        Whether the file has each node's order.
    """

    most: dict[str, int]
    skip: frozenset[str]
    unsettled: set[int]
    ordered: bool


class _Hole(NamedTuple):
    """A run of counters that no event has."""

    first: int
    last: int

    @property
    def room(self) -> int:
        """Return how many events it has room for."""
        return self.last - self.first + 1


@dataclass(slots=True, eq=False)
class _Loose:
    """An event that is to get another counter.

    Attributes
    ----------
    event : AuditedEvent
        The event.
    runs : list of _Hole
        Where it fits, the best first.
    rivals : bool
        Whether another event with its dot could get one in its stead.
    """

    event: AuditedEvent
    runs: list[_Hole]
    rivals: bool = False


class _PlaceEvidence:
    """The evidence for and against an event at each place of its node's line."""

    def __init__(self, execution: AuditedExecution, node: str, evidence: _Evidence) -> None:
        self.line = execution.lines[node]
        self.ordered = evidence.ordered
        self._execution = execution
        self._node = node
        self._most, self._skip, self._unsettled, _ = evidence
        # Wrong own entries far behind have places of their own, in no order.
        self._by_place = sorted((self._place_before(run), run) for run in self.runs())

    def runs(self) -> list[_Hole]:
        """Return the holes of the line."""
        return [_Hole(first, last) for first, last in self.line.gaps()]

    def fits(self, event: AuditedEvent, run: _Hole) -> bool:
        """Return whether nothing contradicts an event in a run, but perhaps the file."""
        node, line, execution = self._node, self.line, self._execution
        unsettled = self._unsettled
        before, after = line.upto(run.first - 1), line.above(run.last)
        if before is not None and self.exceeds(before, event):
            return False
        if after is not None and self.exceeds(event, after):
            return False
        for knower in execution.knowers(node, run.last):
            # An event that knows the next one, too, need not be compared.
            further = after is not None and knower.clock[node] >= after.counter
            if further or knower.position in unsettled:
                continue
            if self.exceeds(event, knower) or event.value(knower.node) >= knower.counter:
                return False
        for name, value in event.clock.items():
            if name in self._skip or name in event.unknown:
                continue
            known = execution.named(name, value)
            if known is None or node in known.unknown or known.position in unsettled:
                continue
            if known.clock.get(node, 0) >= run.first:
                return False
        return all(
            other.value(node) >= run.first for other in execution.receives.get(event.position, ())
        )

    def exceeds(self, event: AuditedEvent, later: AuditedEvent) -> bool:
        """Return whether an event knows more of another node than a later one does."""
        clock, unknown, most = later.clock, later.unknown, self._most
        return any(
            clock.get(name, 0) < value <= most.get(name, 0)
            and name not in self._skip
            and name != later.node
            and name not in unknown
            and name not in event.unknown
            for name, value in event.clock.items()
        )

    def misorder(self, event: AuditedEvent, run: _Hole) -> int:
        """Count the neighbours in a run that stand on its wrong side in the file."""
        before, after = self.line.upto(run.first - 1), self.line.above(run.last)
        return (before is not None and before.position > event.position) + (
            after is not None and after.position < event.position
        )

    def options(self, event: AuditedEvent, runs: list[_Hole], *, fill: bool = False) -> list[_Hole]:
        """Return the runs that an event fits, the best first.

        To be one of several in a hole explains nothing, unless by the order of the
        file; but an event without any dot goes into each (`fill`).
        """
        if isinstance(event.unknown, Everything) and not self.ordered:
            return runs
        options = []
        for run in self._near(event, runs):
            misorder = self.misorder(event, run)
            allowed = not misorder if self.ordered else fill or run.room == 1
            if allowed and self.fits(event, run):
                options.append((misorder, abs(run.first - event.counter), run))
        return [run for _, _, run in sorted(options)]

    def _near(self, event: AuditedEvent, runs: list[_Hole]) -> list[_Hole]:
        """Return the runs around the one that its line, or its clock, leads to."""
        if len(runs) <= _NEAR:
            return runs
        place = event.position if self.ordered else event.others()
        rank = bisect_right(self._by_place, (place,))
        near = self._by_place[max(0, rank - _NEAR) : rank + 1]
        return [*(run for _, run in near if run < runs[-1]), runs[-1]]

    def _place_before(self, run: _Hole) -> int:
        before = self.line.upto(run.first - 1)
        if before is None:
            return -1
        return before.position if self.ordered else before.others()

    def misorders_after(self, event: AuditedEvent, counter: int) -> int:
        """Count the neighbours in the wrong order around two counters, once an event is moved."""
        line, was = self.line, event.counter
        event.counter = counter
        line.put(event)
        pairs = set()
        for place in (was, counter):
            there, before, after = line.at[place], line.upto(place - 1), line.above(place)
            pairs |= {(e, there) for e in (before,) if e and e.position > there.position}
            pairs |= {(there, e) for e in (after,) if e and e.position < there.position}
        line.take(event)
        event.counter = was
        return len(pairs)


class _DotAssignment:
    """The events of one node that counts otherwise than 1, 2, 3, …."""

    def __init__(
        self,
        execution: AuditedExecution,
        node: str,
        trouble: Trouble,
        named: int,
        places: _PlaceEvidence,
    ) -> None:
        self._execution = execution
        self._node = node
        self._line = execution.lines[node]
        self._trouble = trouble
        self._named = named
        self._places = places

    def assign(self) -> None:
        """Assign a counter to each of its events, or report it."""
        trouble, line = self._trouble, self._line
        behind = self._take_behind(self._places.runs())
        runs = self._places.runs()
        if line.top < (last := min(self._named, line.top + trouble.spare)):
            runs.append(_Hole(line.top + 1, last))
        movers = self._movers(runs)
        loose = [_Loose(e, self._places.options(e, runs, fill=True)) for e in trouble.strays]
        loose += [_Loose(e, self._places.options(e, runs)) for e in behind]
        self._place(loose + movers)
        for event in [*behind, *(mover.event for mover in movers)]:
            if not event.counter:
                self._put_back(event)
        self._put_last([event for event in trouble.strays if not event.counter])
        for same in trouble.twins.values():
            for event in same:
                if event is not line.at[event.counter]:
                    self._report_extra(event)
        self._place_copies()

    # --- events whose recorded dot may be wrong ---------------------------------------------

    def _take_behind(self, gaps: list[_Hole]) -> list[AuditedEvent]:
        """Remove the last events, as long as they more likely belong in holes."""
        taken: list[AuditedEvent] = []
        line, twins = self._line, self._trouble.twins
        self._latest = max(line.events(), key=AuditedEvent.others, default=None)
        while gaps:
            block = range(gaps[-1].last + 1, line.top + 1)
            if self._belong_below(block, gaps[:-1]):
                gaps.pop()
            elif self._contradicts(line.top) and self._belong_below(block[-1:], gaps):
                block = block[-1:]
                if block.start == gaps[-1].last + 1:
                    gaps.pop()
            else:
                break
            for counter in block:
                taken += twins.pop(counter, [line.at[counter]])
                line.take(line.at[counter])
        for event in taken:
            event.counter = 0
        return taken

    def _contradicts(self, counter: int) -> bool:
        """Return whether all events of a dot behind others are contradicted there."""
        here = _Hole(counter, counter)
        same = self._trouble.twins.get(counter, [self._line.at[counter]])
        return not any(
            self._places.fits(event, here)
            and not (self._latest and self._places.exceeds(self._latest, event))
            and not (self._places.ordered and self._places.misorder(event, here))
            for event in same
        )

    def _belong_below(self, block: range, gaps: list[_Hole]) -> bool:
        """Return whether the last events of the line are likelier in holes than where they are.

        One of them contradicts its place; or no event knows the ones that would be
        missing before them, and by the order of the file they are not last.
        """
        line, last = self._line, block[-1]
        if len(block) > sum(run.room for run in gaps):
            return False
        contradicts = any(map(self._contradicts, block))
        if not contradicts:
            before = line.upto(block.start - 1)
            knowers = self._execution.knowers(self._node, before.counter + 1 if before else 1)
            if any(knower.clock[self._node] <= last for knower in knowers):
                return False
        for counter in block:
            here = _Hole(counter, counter)
            for event in self._trouble.twins.get(counter, [line.at[counter]]):
                options = self._places.options(event, gaps)
                if not options:
                    return False
                worse = self._places.misorder(event, options[0]) > self._places.misorder(
                    event, here
                )
                if worse and not contradicts:
                    return False
        return True

    def _movers(self, runs: list[_Hole]) -> list[_Loose]:
        """Remove, of events with one dot, those that fit a hole; the others share it."""
        movers: list[_Loose] = []
        for counter, same in sorted(self._trouble.twins.items()):
            while len(same) > 1:
                ranked = []
                for event in same:
                    keeper = self._keep(counter, [one for one in same if one is not event])
                    if options := self._places.options(event, runs):
                        wrong = not self._places.fits(keeper, _Hole(counter, counter))
                        misorders = self._places.misorders_after(event, options[0].first)
                        ranked.append(((wrong, misorders, -event.position), event, options))
                if not ranked:
                    break
                best, event, options = min(ranked, key=lambda one: one[0])
                rivals = sum(rank[0] <= best[0] for rank, _, _ in ranked) > 1
                movers.append(_Loose(event, options, rivals))
                same.remove(event)
            self._keep(counter, same)
        for mover in movers:
            mover.event.counter = 0
        return movers

    def _keep(self, counter: int, same: list[AuditedEvent]) -> AuditedEvent:
        """Keep the event that fits a counter best; of two alike, the first in the file."""
        here = _Hole(counter, counter)
        keeper = same[0]
        if len(same) > 1:
            keeper = min(
                same,
                key=lambda e: (
                    not self._places.fits(e, here),
                    self._places.misorder(e, here),
                    e.position,
                ),
            )
        self._line.at[counter] = keeper
        return keeper

    # --- where they go ------------------------------------------------------------------------

    def _place(self, loose: list[_Loose]) -> None:
        """Assign events to holes; one with the fewest candidates goes first."""
        held: dict[_Hole, list[_Loose]] = {}
        wanted: dict[_Hole, int] = {}
        for one in sorted(loose, key=lambda one: (len(one.runs), one.event.position)):
            for run in one.runs:
                wanted[run] = wanted.get(run, 0) + 1
            free = (run for run in one.runs if len(held.get(run, ())) < run.room)
            for first in islice(free, 1):
                held.setdefault(first, []).append(one)
        for run, members in held.items():
            members.sort(key=lambda one: self._place_of(one.event))
            full = len(members) == run.room and (run.room == 1 or self._places.ordered)
            for counter, one in enumerate(members, run.first):
                certain = full and wanted[run] == run.room and not one.rivals
                self._renumber(one.event, counter, certain=certain and len(one.runs) == 1)

    def _place_of(self, event: AuditedEvent) -> tuple[int, int]:
        return (0 if self._places.ordered else event.others()), event.position

    def _put_back(self, event: AuditedEvent) -> None:
        """Leave an event whose place others took at its recorded dot."""
        event.counter = event.clock[self._node]
        if event.counter in self._line.at:
            self._report_extra(event)
        else:
            self._line.put(event)

    def _put_last(self, strays: list[AuditedEvent]) -> None:
        """Place events that fit no hole after the last event."""
        line = self._line
        whole = line.top == len(line.counters)
        for event in sorted(strays, key=self._place_of):
            run = _Hole(line.top + 1, line.top + 1)
            in_order = whole or not self._places.ordered or not self._places.misorder(event, run)
            if in_order and self._places.fits(event, run):
                self._renumber(event, run.first, certain=whole and len(strays) == 1)

    def _renumber(self, event: AuditedEvent, counter: int, *, certain: bool) -> None:
        was = event.clock.get(event.node, 0)
        event.counter = counter
        self._line.put(event)
        if was:
            how = "does not increase" if was < counter else "is too large"
            message = f"the own entry of {event.node} {how}: it is {was} where {counter} is missing"
            self._execution.report("A003", event, message, dot=event.dot, certain=certain)
            return
        before = self._execution.before(event)
        if event.read.clock == {} and (before is None or not before.others()):
            # Where nothing is known yet, an empty clock is right.
            event.unknown = NONE
        for code in ("A001", "A002"):
            finding = self._execution.finding_of(code, event)
            if finding is not None:
                finding.dot, finding.certain = event.dot, certain

    def _report_extra(self, event: AuditedEvent) -> None:
        keeper = self._line.at[event.counter]
        where = f" (the other one is {keeper.place})" if keeper.file else ""
        if event.clock == keeper.clock:
            code = "A005"
            message = f"two events with other content have the dot {event.dot}{where}"
        else:
            code = "A003"
            message = (
                f"the own entry of {event.node} does not increase: "
                f"another event has the dot {event.dot} and another clock{where}"
            )
        self._execution.report(code, event, message, dot=event.dot)

    def _place_copies(self) -> None:
        """Distinguish a line written twice from an event with the content of the one before it.

        Only a hole right where the second one stands in the file is evidence enough.
        """
        for event in self._trouble.copies:
            run = _Hole(event.counter + 1, event.counter + 1)
            free = run.first not in self._line.at and run.first < self._line.top
            if free and run in self._places.options(event, [run]) and self._places.ordered:
                self._execution.events.append(event)
                self._renumber(event, run.first, certain=run.first + 1 in self._line.at)
            else:
                self._execution.duplicates += 1
