"""The automaton of a pattern: an immutable integer table, with guards and registers.

A *letter* is a pair of a minterm and a group: the step whose register the event is
bound to, or none. The guards of a group are partitioned into classes, as finely as the
state needs (`ketal.compiler.dfa`), and a minterm is the set of classes of which the
event satisfies some guard. The table maps a state and a letter to a state. If an event has
letters of several groups with a transition, each is followed, so at run time a run is
a set of configurations (`ketal.engine.configurations`). Readings of an event whose live registers
agree share a group, so they were merged when the table was made.

The one rule: the automaton is data. States are numbered breadth-first in sorted
letter order, so the table and its fingerprint are the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ketal.compiler.predicates import Atom, Formula

ANONYMOUS: Final = -1
"""The group of events that no register keeps."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A step on an edge: its number, and the numbers of the `not` guards before it."""

    step: int
    nots: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LiveRegisters:
    """The registers that are read from some state on."""

    prior: bool  # the last event taken
    history: bool  # the summary of all events taken
    steps: tuple[int, ...]  # the steps whose last event is read

    @property
    def none(self) -> bool:
        """Whether no register is read."""
        return not (self.prior or self.history or self.steps)


@dataclass(frozen=True)
class Automaton:
    """A deterministic automaton over letters."""

    steps: tuple[str, ...]  # the steps' names, in declaration order
    atoms: tuple[Atom, ...]
    variants: tuple[Variant, ...]  # the guards on edges
    formulas: tuple[Formula, ...]  # the formula over `atoms` of each variant
    nots: tuple[Formula, ...]  # the formulas of `not` guards
    minterms: tuple[tuple[tuple[int, ...], ...], ...]
    """Each minterm is the classes of which some variant holds; each class is its variants."""
    letters: tuple[tuple[int, int], ...]  # (minterm, group)
    table: tuple[tuple[tuple[int, int], ...], ...]
    """For each state its transitions (letter, next state), in order. State 0 is initial."""
    finals: frozenset[int]  # the accepting states
    names: tuple[str, ...]  # the name of each state
    enabled: tuple[tuple[int, ...], ...]  # for each state the variants that some word takes next
    live: tuple[LiveRegisters, ...]  # the registers read from each state on
    classes: tuple[int, ...]  # the class of each step's local guard, which decides mirror images
    mirrors: bool  # whether two matches of the same events can be mirror images

    @property
    def localhost_bit(self) -> int:
        """The bit of `localhost` in a mask of the atoms; 0 if no guard uses it."""
        return sum(1 << n for n, atom in enumerate(self.atoms) if atom.shape == "localhost")

    @property
    def step_formulas(self) -> dict[str, Formula]:
        """The formula of each step, on some edge: edges differ in the `not`s before the step."""
        pairs = zip(self.variants, self.formulas, strict=True)
        return {self.steps[variant.step]: formula for variant, formula in pairs}

    def named(self, states: Iterable[int]) -> str:
        """Return the names of states, joined by commas."""
        return ",".join(self.names[s] for s in states)

    def expected(self, states: Iterable[int]) -> tuple[str, ...]:
        """Return the names of the steps that can come next, in declaration order."""
        numbers = {self.variants[v].step for s in states for v in self.enabled[s]}
        return tuple(self.steps[n] for n in sorted(numbers))


class Ways:
    """The transitions from one state of an automaton, by the guards that an event satisfies."""

    def __init__(self, automaton: Automaton, state: int) -> None:
        enabled = frozenset(automaton.enabled[state])
        self._class_of: dict[int, tuple[int, tuple[int, ...]]] = {}
        # (group, classes of the group of which the event satisfies some guard) → next state
        self.by_classes: dict[tuple[int, frozenset[tuple[int, ...]]], int] = {}
        for letter, target in automaton.table[state]:
            minterm, group = automaton.letters[letter]
            # A class without an enabled guard is distinguished for other states only.
            here = frozenset(c for c in automaton.minterms[minterm] if not enabled.isdisjoint(c))
            self.by_classes[group, here] = target
            self._class_of |= {v: (group, c) for c in here for v in c}
        # The variants that have transitions; those that lead to the same states are one class.
        self.classes = tuple(sorted({c for _, c in self._class_of.values()}))

    def targets(self, held: frozenset[int]) -> tuple[tuple[int, int], ...]:
        """Return (group, next state) for each group, for an event that satisfies some variants.

        `held` has all enabled variants of the state that the event satisfies.
        """
        held_classes: dict[int, set[tuple[int, ...]]] = {}
        for variant in held:
            group, of_class = self._class_of[variant]
            held_classes.setdefault(group, set()).add(of_class)
        # A KeyError would mean that a set of guards was wrongly proven unsatisfiable.
        return tuple(sorted((g, self.by_classes[g, frozenset(c)]) for g, c in held_classes.items()))
