"""Readings of a check: for each configuration, one sequence of steps that led to it.

A run of a check is a set of configurations. Equal ones are merged, which loses the steps that led
to them. So the machine takes the events again, and keeps a trail for each configuration: the
events, each with the steps that it may be. The reading is the first word of the body that the trail
allows.

The one rule: a reading is a word of the body over the events that the scope was offered.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from ketal.compiler.automaton import ANONYMOUS
from ketal.engine.configurations import Configuration, Seen
from ketal.engine.machine import Machine, step
from ketal.semantics import History, Rest, firsts

Trail = Any
"""How a run reached a configuration: a linked list of moves, the last one first."""


def check_trails(machine: Machine, offered: Iterable[Seen], length: int) -> list[Trail]:
    """Return the trail of each configuration of a run, in the order of the run.

    The run was offered the first `length` events of `offered`, and skipped none of them.
    """
    trails: dict[Configuration, Trail] = dict.fromkeys(machine.fresh)
    for seen in islice(offered, length):
        moved: dict[Configuration, Trail] = {}
        for one, trail in trails.items():
            for group, after in step(machine, one, seen):
                moved.setdefault(after, ((one, group, seen), trail))
        # A fresh run may not take the event of the violation after which it resumes.
        trails = moved or trails
    return list(trails.values())


def check_reading(machine: Machine, trail: Trail) -> History:
    """Return how a run reached the configuration of a trail."""
    taken = _items(trail)
    # The rest of the body → the steps before it, as a linked list with the last step first.
    rests: dict[Rest, Any] = {(machine.compiled.pattern.body,): None}
    for move in taken:
        steps = _possible_steps(machine, *move)
        longer: dict[Rest, Any] = {}
        for rest, word in rests.items():
            for _, name, left in firsts(rest):
                if name in steps:
                    longer.setdefault(left, (name, word))
        rests = longer
    names = _items(next(iter(rests.values())))
    return tuple((name, seen.event) for name, (_, _, seen) in zip(names, taken, strict=True))


def _items(last: Any) -> list[Any]:
    """Return the items of a linked list, the first one first."""
    items = []
    while last is not None:
        item, last = last
        items.append(item)
    return items[::-1]


def _possible_steps(machine: Machine, one: Configuration, group: int, seen: Seen) -> frozenset[str]:
    """Return the steps that an event may be when a configuration takes it into a group."""
    automaton = machine.automaton
    if group != ANONYMOUS:
        return frozenset((automaton.steps[group],))
    bound = {automaton.letters[letter][1] for letter, _ in automaton.table[one.state]}
    steps = {automaton.variants[v].step for v in automaton.enabled[one.state]} - bound
    if len(steps) > 1:
        steps &= machine.steps_held(one, seen)
    return frozenset(automaton.steps[number] for number in steps)
