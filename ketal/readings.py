"""How a node's own entries can be read, where they do not count 1, 2, 3, ….

One of them may be wrong, and then by little or by much (`Move`); or the node counted on
from a wrong one, and its entries are explained all together (`Recount`, by
`ketal.counting`). A file that is not in the order of the node's events is read in the
order of what they know.

The one rule: a reading says what may have been, and moves no event. Which one is taken
is for `ketal.consistency` to weigh.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import NamedTuple

from ketal.counting import Counting, counted
from ketal.execution import Everything, Execution, Stamped
from ketal.own_entries import Trouble, admitted

_PASSES = 3
"""So often events that know the same are put in order, each time with better guesses."""
_FREE_MAX = 3
"""So many counters an event may go to, that all of them can be tried."""


class Move(NamedTuple):
    """A reading of a node's own entries: they are right but for that of one event.

    `position` is the event's, -1 for none; `counter` is what it gets. Where another
    event has that counter and it stays, the event is the one too many.
    """

    position: int
    counter: int


class Recount(NamedTuple):
    """A reading of a node's own entries all together: as it must have counted.

    `counters` holds by position what each event gets whose own entry is wrong, and
    whether that is sure; the counter that it says, if it is there twice. `faults` is
    their number, holes among them.
    """

    counters: dict[int, tuple[int, bool]]
    faults: int


Reading = Move | Recount
"""How a node's own entries are read."""


def possible_moves(execution: Execution) -> Iterator[tuple[str, list[Move]]]:
    """Yield each node that at most one own entry is wrong of, with all that may be it.

    Parameters
    ----------
    execution : Execution
        Its events as they were read; nothing else may have been done with it.
    """
    trouble = admitted(execution)
    for node, line in execution.lines.items():
        of = trouble.get(node, Trouble())
        shared = [event for same in of.twins.values() if len(same) > 1 for event in same]
        wrong = len(of.strays) + max(0, len(shared) - 1)
        if wrong > 1 or (not wrong and line.top == len(line.counters)) or not line.counters:
            continue
        if of.strays:
            moves = [m for event in of.strays for m in _moves_of(event, line.counters)]
        elif shared:
            moves = [Move(event.position, event.counter) for event in shared]
            moves += [m for event in shared for m in _moves_of(event, line.counters)]
        else:
            last = line.at[line.top]
            moves = [Move(-1, 0), *_moves_of(last, line.counters[:-1])]
        yield node, moves


def recounts(execution: Execution) -> Iterator[tuple[str, Recount]]:
    """Yield each node that counts otherwise than 1, 2, 3, …, with how it must have counted.

    Parameters
    ----------
    execution : Execution
        Its events as they were read; nothing else may have been done with it.
    """
    trouble = admitted(execution)
    lines: dict[str, list[Stamped]] = {}
    for event in execution.events:
        line = execution.lines[event.node]
        if event.node in trouble or line.top != len(line.counters):
            lines.setdefault(event.node, []).append(event)
    for node, events in lines.items():
        readings = [(events, counted([event.counter for event in events]))]
        falls = sum(before.counter > after.counter for before, after in pairwise(events))
        shuffled = 10 * falls > 3 * len(events)
        if shuffled and all(_knows(event) for event in events):
            readings += _by_knowledge(events)
        # The order of the file, if it explains as much.
        yield node, _recount(*min(readings, key=lambda reading: reading[1].faults))


def _knows(event: Stamped) -> bool:
    """Return whether an event says what it knows; an empty clock says that it is nothing."""
    return not isinstance(event.unknown, Everything) or event.read.clock == {}


def _recount(events: list[Stamped], counting: Counting) -> Recount:
    wrong: dict[int, tuple[int, bool]] = {}
    keepers: dict[int, Stamped] = {}
    last = top = 0
    for at, event in enumerate(events):
        counter, before = counting.counters[at], last
        last = counter
        if counter == event.counter != before:
            keepers[counter] = event
            top = at
        else:
            # Of two with one dot the one that says itself is the first.
            wrong[event.position] = counter, counting.sure[at]
    spare = 0
    for at in range(top + 1, len(events)):
        event, keeper = events[at], keepers.get(events[at].counter)
        if keeper is not None and keeper.clock == event.clock:
            # Nothing waits behind it; what says the same of all is there twice.
            wrong[event.position] = event.counter, False
            spare += 1
        elif event.position in wrong:
            wrong[event.position] = counting.counters[at] - spare, False
    return Recount(wrong, counting.faults)


def _by_knowledge(events: list[Stamped]) -> Iterator[tuple[list[Stamped], Counting]]:
    """Yield readings of a node's events in the order of what they know of others.

    Where several know the same, own entries tell, and those that are wrong take what is
    left. How many events were lost before, the reading before this one says.
    """
    order = sorted(events, key=lambda e: (e.others(), e.counter, e.position))
    lost = [0] * (len(order) + 1)
    for _ in range(_PASSES):
        found: list[Stamped] = []
        for _, alike in groupby(order, key=Stamped.others):
            found += _by_own_entries(list(alike), len(found) + 1 + lost[len(found)])
        order = found
        counting = counted([event.counter for event in order])
        yield order, counting
        for at, event in enumerate(order):
            right = counting.counters[at] == event.counter
            lost[at + 1] = event.counter - at - 1 if right else lost[at]


def _by_own_entries(events: list[Stamped], first: int) -> list[Stamped]:
    """Return events that may have any counters in a row, each at its own if it can be."""
    places: dict[int, Stamped] = {}
    rest: list[Stamped] = []
    for event in events:
        if first <= event.counter < first + len(events) and event.counter not in places:
            places[event.counter] = event
        else:
            rest.append(event)
    left = iter(rest)
    return [places.get(at) or next(left) for at in range(first, first + len(events))]


def _moves_of(event: Stamped, counters: list[int]) -> list[Move]:
    """Return where an event may go among counters; nowhere, if there is too much room."""
    top = counters[-1] if counters else 0
    if top - len(counters) >= _FREE_MAX:
        return []
    free = sorted(set(range(1, top + 2)) - set(counters))
    return [Move(event.position, counter) for counter in free if counter != event.counter]
