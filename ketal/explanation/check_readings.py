"""Readings of a check: for each configuration, one sequence of steps that led to it.

A run of a check is a set of configurations. Equal ones are merged, which loses the steps that led
to them. Here a trail is kept for each: the events, each with the steps that it may be. The reading
is the first word of the body that a trail allows.

The one rule: a reading is a word of the body over the events that the scope was offered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ketal.compiler.automaton import ANONYMOUS
from ketal.engine.configurations import Configuration, Seen
from ketal.engine.losses import ScopeName
from ketal.engine.machine import Machine, step
from ketal.model import syntax
from ketal.semantics import History, Rest, firsts


@dataclass(frozen=True, slots=True, eq=False)
class Trail:
    """The last event of a reading, with the steps that it may be, and the trail before it."""

    before: Trail | None
    steps: frozenset[str]
    seen: Seen


Key = tuple[Any, ...]
"""Equal for configurations that the same events led to."""
Trails = Mapping[Key, Trail | None]


def _key(configuration: Configuration) -> Key:
    state, prior, bound, history, _ = configuration
    dots = tuple(None if seen is None else seen.dot for seen in (prior, *bound))
    if history is None:
        return state, dots, None
    tables = (history.first, history.last, history.join)
    return state, dots, tuple(tuple(sorted(table.items())) for table in tables)


def _first_word(trail: Trail | None, body: syntax.Body) -> History:
    """Return the first word of a body that a trail allows, with the trail's events."""
    trails: list[Trail] = []
    while trail is not None:
        trails.append(trail)
        trail = trail.before
    # The rest of the body → the steps before it, as a linked list with the last step first.
    rests: dict[Rest, Any] = {(body,): None}
    for one in reversed(trails):
        longer: dict[Rest, Any] = {}
        for rest, word in rests.items():
            for _, name, left in firsts(rest):
                if name in one.steps and left not in longer:
                    longer[left] = (name, word)
        rests = longer
    names = []
    word = next(iter(rests.values()))
    while word is not None:
        name, word = word
        names.append(name)
    events = [one.seen.event for one in trails]
    return tuple(zip(reversed(names), reversed(events), strict=True))


class CheckReadings:
    """The trails of the configurations of each scope's run of a check."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._body = machine.compiled.pattern.body
        self._trails: dict[ScopeName, Trails] = {}

    def reader(self, name: ScopeName, configuration: Configuration) -> Callable[[], History]:
        """Return a function that returns how the run of a scope reached a configuration."""
        trails = self._trails.get(name, {})
        return partial(_first_word, trails.get(_key(configuration)), self._body)

    def scope_readers(self) -> Iterator[tuple[ScopeName, Callable[[], History]]]:
        """Yield each scope with a function that returns how its first configuration was reached."""
        for name, trails in self._trails.items():
            yield name, partial(_first_word, next(iter(trails.values()), None), self._body)

    def move(self, name: ScopeName, before: Iterable[Configuration], seen: Seen) -> None:
        """Replace the trails of a scope by those of the configurations that an event leads to."""
        trails = self._trails.get(name, {})
        moved: dict[Key, Trail | None] = {}
        for one in before:
            for group, after in step(self._machine, one, seen):
                if (key := _key(after)) not in moved:
                    steps = self._possible_steps(one, group, seen)
                    moved[key] = Trail(trails.get(_key(one)), steps, seen)
        self._trails[name] = moved

    def remove(self, name: ScopeName) -> None:
        """Remove the trails of a scope whose run has ended."""
        self._trails.pop(name, None)

    def _possible_steps(self, one: Configuration, group: int, seen: Seen) -> frozenset[str]:
        """Return the steps that an event may be when a configuration takes it into a group."""
        automaton = self._machine.automaton
        if group != ANONYMOUS:
            return frozenset((automaton.steps[group],))
        bound = {automaton.letters[letter][1] for letter, _ in automaton.table[one.state]}
        held = set(self._machine.steps_held(one, seen)) - bound
        return frozenset(automaton.steps[number] for number in held)
