"""`A not N B` under CausalOrder: an N after A makes the `not` broken for every B after that N.

So it is broken by any N with A → N → B, and what is concurrent with A or with B never counts.
Nothing is recorded when an N comes: what lies between is looked for when a B does.

- Where the event alone says whether it is an N, the last one of each node that
  B knows is the one that knows most. The clocks of these, joined once for each
  B, tell for every A whether some N came after it.
- Where it compares with an earlier step (`k == A.k`), each node's line of N's is
  looked through once for each partial match, no further than to the first.

All N between have been offered by then, as a pattern with `not` is offered
events in an order that respects happened-before.
"""

from __future__ import annotations

from collections.abc import Mapping

from ketal.compiler.predicates import Formula
from ketal.engine.configurations import BrokenNots, Known, Seen
from ketal.engine.find.causal_index import EventIndex, Line
from ketal.engine.find.partial_matches import Partial
from ketal.engine.machine import Machine


def broken(
    machine: Machine, partial: Partial, seen: Seen, events: Mapping[int, EventIndex]
) -> BrokenNots:
    """Return, for each `not` guard, whether an event between breaks it for this partial match.

    Parameters
    ----------
    machine : Machine
        The pattern's.
    partial : Partial
        What has been taken; its last event is A.
    seen : Seen
        The event that may be B.
    events : mapping of int to EventIndex
        Mask to events offered, at least those that can break a `not`.
    """
    flags = [False] * len(machine.automaton.nots)
    for number in machine.pending[partial.configuration.state]:
        known = seen.known.get(number)
        if known is None:
            known = seen.known[number] = _known(machine, number, seen, events)
        flags[number] = known.after(partial.prior) or (
            number in machine.relational_nots and _between(machine, number, partial, seen, events)
        )
    return tuple(flags)


def _known(machine: Machine, number: int, seen: Seen, events: Mapping[int, EventIndex]) -> Known:
    """Return what is known of the events before `seen` that break a `not` by themselves."""
    own: dict[str, int] = {}
    others: dict[str, int] = {}
    for mask, index in events.items():
        if machine.breaks(number, mask) is not True:
            continue
        for node, line in index.lines.items():
            high = line.known_to(node, seen)
            if not high:
                continue
            last = line.seens[high - 1]
            own[node] = max(last.counter, own.get(node, 0))
            for other, counter in last.clock.items():
                if other != node and counter > others.get(other, 0):
                    others[other] = counter
    return Known(own, others)


def _between(
    machine: Machine, number: int, partial: Partial, seen: Seen, events: Mapping[int, EventIndex]
) -> bool:
    """Return whether an event between is an N by what a partial match has taken."""
    for mask, index in events.items():
        formula = machine.breaks(number, mask)
        if isinstance(formula, bool):
            continue
        key, value = machine.relations.key_of((formula,)), None
        if key is not None:
            value = machine.relations.register_values[key](partial.configuration)
        for node, line in index.among(key, value):
            high = line.known_to(node, seen)
            at = (number, mask, node)
            if high and _breaks(machine, partial, line, high, formula, at):
                return True
    return False


def _breaks(
    machine: Machine,
    partial: Partial,
    line: Line,
    high: int,
    formula: Formula,
    at: tuple[int, int, str],
) -> bool:
    """Return whether an event of a line, after the prior one and before `high`, is an N."""
    learned = partial.broken
    if learned is None:
        learned = partial.broken = {}
    scanned, first = learned.get(at, (0, 0))
    if not first:
        low = line.past(scanned) if scanned else line.after(at[2], partial.prior)
        for x in line.seens[low:high]:
            if machine.holds(formula, partial.configuration, x):
                first = x.counter
                break
        if low < high:
            learned[at] = (line.counters[high - 1], first)
    return 0 < first <= line.counters[high - 1]
