"""Relational atoms: the comparisons of an event with the events that a run took before it.

They are evaluated once per configuration, the local atoms once per event (its mask). An
equality with a register (`k == A.k`) is also a key of the indexes in which runs are looked up.

The one rule: an atom depends on the configuration and the event alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.compiler.predicates import RELATIONS, Atom, Formula, necessary, registers
from ketal.engine.configurations import Configuration, Seen
from ketal.model.events.event import Event
from ketal.model.syntax import ALL, PRIOR
from ketal.model.values import Key, keyed
from ketal.operators import causal, conc
from ketal.operators.history import History


class Relations:
    """The relational atoms of a pattern, made ready to evaluate."""

    def __init__(self, compiled: CompiledPattern) -> None:
        automaton = compiled.automaton
        self._compiled = compiled
        read = sorted({step for live in automaton.live for step in live.steps})
        # For each step that some guard reads, the place of its event in `Configuration.bound`.
        self.slots = {step: slot for slot, step in enumerate(read)}
        self._prior = {
            shape: [
                n
                for n, a in enumerate(automaton.atoms)
                if a.shape == shape and a.payload == (PRIOR,)
            ]
            for shape in ("before", "concurrent")
        }
        # The atoms that are decided by how the event and the prior event are related.
        self.prior = frozenset(n for numbers in self._prior.values() for n in numbers)
        self._evaluators: dict[int, Callable[[Configuration, Seen], bool]] = {
            n: self._evaluator(n, a) for n, a in enumerate(automaton.atoms) if a.relational
        }
        # By the number of an equality's atom, the functions that read the event's side of it, and
        # the configuration's.
        self._event_values = {n: own for n, (own, _) in compiled.bound.equalities.items()}
        self.register_values = {n: self._register_value(n) for n in compiled.bound.equalities}

    def prior_truth(self, *, before: bool, concurrent: bool) -> dict[int, bool]:
        """Return the truth of the atoms in `prior` for one relation between the two events."""
        return {
            **dict.fromkeys(self._prior["before"], before),
            **dict.fromkeys(self._prior["concurrent"], concurrent),
        }

    def holds(self, number: int, configuration: Configuration, seen: Seen) -> bool:
        """Return whether an atom holds for an event offered in a configuration."""
        return self._evaluators[number](configuration, seen)

    def bits(self, numbers: Iterable[int], configuration: Configuration, seen: Seen) -> int:
        """Return, as bits, which of the given atoms hold for an event in a configuration."""
        bits = 0
        for number in numbers:
            if self._evaluators[number](configuration, seen):
                bits |= 1 << number
        return bits

    def key_of(self, formulas: Iterable[Formula]) -> int | None:
        """Return an equality with a register that every formula requires; None if none does."""
        keys = [
            frozenset(n for n in necessary(formula) if n in self.register_values)
            for formula in formulas
        ]
        return min(frozenset.intersection(*keys), default=None)

    def _evaluator(self, number: int, atom: Atom) -> Callable[[Configuration, Seen], bool]:
        if atom.shape in RELATIONS:
            return self._relation(atom.shape, atom.payload[0])
        if atom.shape == "barred":
            guard = atom.payload[0]

            return lambda configuration, seen: (
                bool(configuration.broken) and configuration.broken[guard]
            )
        function = self._compiled.bound.relational[number]
        names = self._registers_read(atom)

        def compared(configuration: Configuration, seen: Seen) -> bool:
            bound = _bound_events(names, configuration)
            # None: no path to this state takes the step.
            return bound is not None and function(seen.event, bound)

        return compared

    def _registers_read(self, atom: Atom) -> list[tuple[str, int | None]]:
        """Return the steps whose events an atom reads, each with the slot of its register."""
        return [(s, self.slot(s)) for s in sorted(registers(atom).steps)]

    def slot(self, step: str) -> int | None:
        """Return the slot of a step's register; None for a step that nothing reads after it."""
        steps = self._compiled.automaton.steps
        return self.slots.get(steps.index(step)) if step in steps else None

    def _register_value(self, number: int) -> Callable[[Configuration], Key | None]:
        value = self._compiled.bound.equalities[number][1]
        names = self._registers_read(self._compiled.automaton.atoms[number])

        def read(configuration: Configuration) -> Key | None:
            bound = _bound_events(names, configuration)
            return None if bound is None else keyed(value(bound))

        return read

    def key_value(self, number: int | None, event: Event) -> Key | None:
        """Return an event's side of an equality; None if unknown, or if `number` is None."""
        if number is None:
            return None
        return keyed(self._event_values[number](event))

    def _relation(self, shape: str, anchor: str) -> Callable[[Configuration, Seen], bool]:
        related, of_all = _RELATION_TESTS[shape]
        if anchor == PRIOR:
            return lambda configuration, seen: related(seen, configuration.prior)
        if anchor == ALL:
            return lambda configuration, seen: (
                configuration.history is None or of_all(configuration.history, seen)
            )
        slot = self.slot(anchor)
        if slot is None:
            return lambda configuration, seen: True
        return lambda configuration, seen: related(seen, configuration.bound[slot])


_RELATION_TESTS: Final[
    dict[str, tuple[Callable[[Seen, Seen | None], bool], Callable[[History, Seen], bool]]]
] = {
    "before": (causal.fast, lambda taken, e: taken.all_before(e.node, e.counter, e.clock)),
    "concurrent": (conc.fast, lambda taken, e: taken.all_concurrent(e.node, e.counter, e.clock)),
    "own_node": (
        lambda e, anchor: anchor is None or anchor.node == e.node,
        lambda taken, e: taken.last.keys() <= {e.node},
    ),
    "other_node": (
        lambda e, anchor: anchor is None or anchor.node != e.node,
        lambda taken, e: e.node not in taken.last,
    ),
}
"""Shape of a relation → its test against one anchor, and against all events of a run."""


def _bound_events(
    names: Sequence[tuple[str, int | None]], configuration: Configuration
) -> dict[str, Event] | None:
    """Return the last event of each of the given steps; None if a step has no event."""
    bound: dict[str, Event] = {}
    for name, slot in names:
        holder = configuration.bound[slot] if slot is not None else None
        if holder is None:
            return None
        bound[name] = holder.event
    return bound
