"""Where on its node's line an event belongs whose own entry does not say it.

Three things tell. Along a line clocks never fall, so the event's clock lies
between those of its neighbours. Who knows the event knows all that it knows,
and whom it knows does not know it. And where the file has the order of each
node, so has the event's line. Each contradiction has a price in faults: a
misfit is an entry that would have to be wrong, a misorder is a line that stands
in the wrong place.

The one rule: a place is a price, never a verdict. `ketal.dots` takes the reading
that needs the fewest faults.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from ketal.execution import Execution, Line, Stamped

FAULT = 100
"""The price of one fault, to which all others are compared."""
_MISFIT = 60
"""An entry that contradicts another one: a fault, or what a nearby fault did to it."""
_MISORDER = 250
"""A line in the wrong place of a file that has each node's order."""
_HINT = 1
"""The same where the order of the file proves little."""
_BEYOND = 45
"""A place after the last event, which others only refer to."""
_PAIRS = 12
"""From so many neighbours on, the order of a file proves something."""
_FEW = 16
"""So many holes are tried one by one."""


_Other = tuple[int, str]
"""An entry of another event: its position, and of which node."""


class Run(NamedTuple):
    """A run of counters that no event has; `beyond` the last event, or before it."""

    first: int
    last: int
    beyond: bool = False

    @property
    def room(self) -> int:
        """Return how many events it has room for."""
        return self.last - self.first + 1


class Survey:
    """What the log as a whole says about the places of single events.

    Parameters
    ----------
    execution : Execution
        Its events, of which some have no dot yet, or share one.

    Attributes
    ----------
    ordered : bool
        Whether the file has each node's order, so that a line in the wrong place
        is a contradiction. A few wrong own entries look like falls; lines that
        were shuffled have half of them.
    most : dict of str to int
        The greatest counter that each node can have, were no event lost.
    named : dict of str to int
        The last dot of each node that others name and that can be.
    """

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._lines: dict[str, tuple[list[int], list[Stamped]]] = {}
        self.ordered = self._is_ordered()
        count = dict.fromkeys(execution.lines, 0)
        for event in execution.events:
            count[event.node] += 1
        tops = {node: line.top for node, line in execution.lines.items()}
        self.most = {node: max(top, count[node]) for node, top in tops.items()}
        kept = {node: len(line.counters) for node, line in execution.lines.items()}
        reach = {n: top + count[n] - kept[n] for n, top in tops.items() if count[n] > kept[n]}
        self.named = dict.fromkeys(tops, 0)
        for event in execution.events if reach else ():
            for node in reach.keys() & event.clock.keys():
                if self.named[node] < event.clock[node] <= reach[node] and node != event.node:
                    self.named[node] = event.clock[node]

    def _is_ordered(self) -> bool:
        pairs = falls = 0
        last: dict[str, int] = {}
        for event in self._execution.events:
            at = self._execution.lines[event.node].at
            if event.counter and at[event.counter] is event:
                before = last.get(event.node)
                if before is not None:
                    pairs += 1
                    falls += before > event.counter
                last[event.node] = event.counter
        return pairs >= _PAIRS and 10 * falls <= 3 * pairs

    def can_be(self, node: str, counter: int) -> bool:
        """Return whether a dot may exist; what cannot is no evidence."""
        return counter <= self.most.get(node, 0)

    def neighbours(self, event: Stamped) -> list[int]:
        """Return the counters that the lines around an event leave to it."""
        node = event.node
        if node not in self._lines:
            held = sorted(self._execution.lines[node].events(), key=lambda e: e.position)
            self._lines[node] = [e.position for e in held], held
        positions, events = self._lines[node]
        rank = bisect_left(positions, event.position)
        before = [e for e in events[max(0, rank - 3) : rank] if e is not event]
        after = [e for e in events[rank : rank + 4] if e is not event]
        return [e.counter + 1 for e in before] + [e.counter - 1 for e in after]


class Places:
    """The places of one node's line.

    Parameters
    ----------
    execution : Execution
        What is under audit.
    order : FileOrder
        What the file says.
    node : str
        Whose line it is.
    """

    def __init__(self, execution: Execution, survey: Survey, node: str) -> None:
        self.line: Line = execution.lines[node]
        self._execution = execution
        self._survey = survey
        self._node = node

    def runs(self) -> list[Run]:
        """Return where events are missing, also after the last one if others name them."""
        found = [Run(first, last) for first, last in self.line.gaps()]
        last = self._survey.named[self._node]
        if last > self.line.top:
            found.append(Run(self.line.top + 1, last, beyond=True))
        return found

    def misfit(self, event: Stamped, run: Run) -> int:
        """Count the entries that would be wrong, were an event in a run; not what is so anyway."""
        before, after = self.line.upto(run.first - 1), self.line.above(run.last)
        before = None if before is event else before
        # Of each pair one is wrong: an entry of the event, or one of another event.
        pairs: list[tuple[str, _Other]] = []
        if before is not None:
            at = before.position
            pairs += [(name, (at, name)) for name in self._lacking(before, event, None)]
        if after is not None and after is not event:
            at = after.position
            pairs += [(name, (at, name)) for name in self._lacking(event, after, before)]
        for knower in self._execution.knowers(self._node, run.last):
            entry = knower.clock[self._node]
            if knower is event or not self._survey.can_be(self._node, entry):
                continue
            # That there is a dot after the last one is only their word.
            old = None if run.beyond else before
            other = knower.position, self._node
            pairs += [(name, other) for name in self._lacking(event, knower, old)]
        pairs += [(known.node, (known.position, self._node)) for known in self._late(event, run)]
        return _fewest(pairs) if pairs else 0

    def _lacking(self, event: Stamped, later: Stamped, before: Stamped | None) -> Iterator[str]:
        """Yield the nodes of which a later event knows less than an event.

        What it knows less than the event before this one is a fault anyway.
        """
        clock, skip = later.clock, (self._node, later.node)
        old = {} if before is None else before.clock
        for name, value in event.clock.items():
            known = clock.get(name, 0)
            if value > known >= old.get(name, 0) and name not in skip:
                if name in event.unknown or name in later.unknown:
                    continue
                if self._survey.can_be(name, value):
                    yield name

    def _late(self, event: Stamped, run: Run) -> Iterator[Stamped]:
        """Yield what it knows and what knows a later one of its own line."""
        node, can_be = self._node, self._survey.can_be
        for name, value in event.clock.items():
            if name != node and name not in event.unknown and can_be(name, value):
                known = self._execution.named(name, value)
                if known is not None and node not in known.unknown:
                    entry = known.clock.get(node, 0)
                    if run.last <= entry and can_be(node, entry):
                        yield known

    def disagree(self, before: Stamped, after: Stamped) -> bool:
        """Return whether two neighbours of a line contradict their order in it."""
        if self._survey.ordered and before.position > after.position:
            return True
        clock = after.clock
        falls = any(value > clock.get(name, 0) for name, value in before.clock.items())
        return falls and any(True for _ in self._lacking(before, after, None))

    def misorder(self, event: Stamped, run: Run) -> int:
        """Count the neighbours in a run that stand on its wrong side in the file."""
        before, after = self.line.upto(run.first - 1), self.line.above(run.last)
        return (before is not None and before.position > event.position) + (
            after is not None and after.position < event.position
        )

    def price(self, event: Stamped, run: Run) -> int:
        """Return what it costs to put an event into a run."""
        return (
            _MISFIT * self.misfit(event, run)
            + (_MISORDER if self._survey.ordered else _HINT) * self.misorder(event, run)
            + _BEYOND * run.beyond
        )

    def price_of_staying(self, event: Stamped) -> int:
        """Return what it costs to leave an event at its counter."""
        return self.price(event, Run(event.counter, event.counter))

    def price_of_moving(self, event: Stamped, run: Run, keeper: Stamped) -> int:
        """Return what it costs to put an event into a run, and leave another at its counter."""
        misfits = self.misfit(event, run) + self.misfit(keeper, Run(keeper.counter, keeper.counter))
        was, event.counter = event.counter, run.first
        self.line.put(event)
        misorders = self._misorders(was, run.first)
        self.line.take(event)
        event.counter = was
        weight = _MISORDER if self._survey.ordered else _HINT
        return _MISFIT * misfits + weight * misorders + _BEYOND * run.beyond

    def _misorders(self, *counters: int) -> int:
        """Count the pairs of neighbours around counters that stand in the wrong order."""
        line = self.line
        pairs = set()
        for counter in counters:
            event, before, after = line.at[counter], line.upto(counter - 1), line.above(counter)
            pairs |= {(e, event) for e in (before,) if e and e.position > event.position}
            pairs |= {(event, e) for e in (after,) if e and e.position < event.position}
        return len(pairs)

    def fits(self, event: Stamped, run: Run) -> bool:
        """Return whether nothing contradicts an event in a run."""
        return not self.misfit(event, run)

    def options(
        self, event: Stamped, runs: list[Run], price_max: int = FAULT
    ) -> list[tuple[int, Run]]:
        """Return the runs that cost an event less than a price, the best first."""
        near = runs if len(runs) <= _FEW else self._near(event, runs)
        priced = [(self.price(event, run), run) for run in near]
        far = event.counter

        def rank(option: tuple[int, Run]) -> tuple[int, int, int]:
            price, run = option
            return price, abs(run.first - far) if far else 0, run.first

        return sorted((option for option in priced if option[0] < price_max), key=rank)

    def _near(self, event: Stamped, runs: list[Run]) -> list[Run]:
        """Return the runs that its line in the file and its clock lead to."""
        firsts = [run.first for run in runs]
        found = set()
        for place in self._survey.neighbours(event):
            rank = bisect_right(firsts, place) - 1
            if rank >= 0 and runs[rank].last >= place:
                found.add(rank)
        # Along a line the sums grow, so that one search leads to where the clock fits.
        rank = bisect_right(runs, event.others(), key=lambda run: self._sum_before(run.first))
        found.update(range(max(0, rank - _FEW // 2), min(len(runs), rank + 1)))
        found.update(at for at in (len(runs) - 1,) if runs[at].beyond)
        return [runs[at] for at in sorted(found)]

    def _sum_before(self, place: int) -> int:
        before = self.line.upto(place - 1)
        return before.others() if before is not None else 0

    def in_order(self, events: list[Stamped]) -> list[Stamped]:
        """Return events that share a run in the order that they have there."""
        if self._survey.ordered:
            return sorted(events, key=lambda e: e.position)
        return sorted(events, key=lambda e: (e.others(), e.position))

    def forced(self, events: list[Stamped]) -> bool:
        """Return whether the order of events that share a run can be no other one."""
        clocks = [{n: v for n, v in e.clock.items() if n != self._node} for e in events]
        return all(
            a != b and all(v <= b.get(n, 0) for n, v in a.items()) for a, b in pairwise(clocks)
        )

    @property
    def ordered(self) -> bool:
        """Whether the file has each node's order."""
        return self._survey.ordered


def _fewest(pairs: list[tuple[str, _Other]]) -> int:
    """Return the fewest entries of which one is in each pair.

    It is as many as pairs can be chosen that share none (König, "Gráfok és
    mátrixok", 1931).
    """
    others: dict[str, list[_Other]] = {}
    for name, other in pairs:
        others.setdefault(name, []).append(other)
    chosen: dict[_Other, str] = {}

    def choose(name: str, tried: set[_Other]) -> bool:
        for other in others[name]:
            if other not in tried:
                tried.add(other)
                if other not in chosen or choose(chosen[other], tried):
                    chosen[other] = name
                    return True
        return False

    return sum(choose(name, set()) for name in others)
