"""The parts of a pattern that are counted of events.

By these counts a run says where it found nothing (`ketal.runtime.silence`).

The one rule: a guard is counted of an event alone, by its mask.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from ketal.analysis.registered_guards import RegisteredGuard
from ketal.compiler.automaton import Automaton
from ketal.compiler.counted.comparisons import ComparisonSite, SiteReading, comparisons
from ketal.compiler.counted.named_values import TYPE, NamedValue, named_values
from ketal.compiler.fingerprints import hash_of
from ketal.compiler.predicates import (
    RELATIONS,
    Formula,
    conjunction,
    disjunction,
    free_of_run,
    of_field,
    simplify,
)
from ketal.model import syntax


@dataclass(frozen=True, eq=False)
class CountedParts:
    """What of a pattern is counted of events.

    Attributes
    ----------
    pattern : Pattern
        The syntax.
    automaton : Automaton
        Its automaton.
    alphabet : Formula
        Which events are offered, over the automaton's atoms.
    events : tuple of (EventDecl, Formula)
        The declared events that make the alphabet, each with its guard over these atoms.
    named_events : tuple of EventDecl
        Those events, and those that their guards name, directly or through others.
    registered : tuple of RegisteredGuard
        Guards added in code.
    """

    pattern: syntax.Pattern
    automaton: Automaton
    alphabet: Formula
    events: tuple[tuple[syntax.EventDecl, Formula], ...]
    named_events: tuple[syntax.EventDecl, ...]
    registered: tuple[RegisteredGuard, ...]

    @functools.cached_property
    def asks_causality(self) -> bool:
        """Whether its answer depends on which events happened before others."""
        related = any(atom.shape in RELATIONS for atom in self.automaton.atoms)
        return self.pattern.order.kind == "causal" or related

    def _of_one_event(self, formula: Formula) -> Formula:
        """Return what a guard asks of the event alone, in the copy of some node."""
        local = free_of_run(formula, self.automaton.atoms)
        localhost_bit = self.automaton.localhost_bit
        if not localhost_bit:
            return local
        number = localhost_bit.bit_length() - 1
        return disjunction([simplify(local, {number: here}) for here in (True, False)])

    @functools.cached_property
    def alphabet_guard(self) -> Formula:
        """The mask of an event of the alphabet."""
        return self._of_one_event(self.alphabet)

    @functools.cached_property
    def event_guards(self) -> dict[str, Formula]:
        """The mask of an event of each declaration, by name."""
        return {event.name: self._of_one_event(formula) for event, formula in self.events}

    @functools.cached_property
    def step_guards(self) -> dict[str, Formula]:
        """The mask of an event that a step can take in some run, by the step's name."""
        of = zip(self.automaton.variants, self.automaton.formulas, strict=True)
        return {
            self.automaton.steps[variant.step]: self._of_one_event(
                conjunction([formula, self.alphabet])
            )
            for variant, formula in of
        }

    @functools.cached_property
    def named_values(self) -> tuple[NamedValue, ...]:
        """What the pattern names that events are to have.

        Attributes and nodes are known by events whose type the pattern asks for.
        """
        known = [conjunction([name.known_by, self.type_guard]) for name in self._named_values]
        named = zip(self._named_values, known, strict=True)
        return tuple(replace(name, known_by=known_by) for name, known_by in named)

    @functools.cached_property
    def _named_values(self) -> tuple[NamedValue, ...]:
        return named_values(self.pattern, self.named_events, self.automaton.atoms)

    @functools.cached_property
    def type_guard(self) -> Formula:
        """The mask of an event with a type that the pattern names or some event of it may have."""
        named = [name.known_by for name in self._named_values if name.what == "type"]
        guards = [self.alphabet_guard, *self.event_guards.values(), *self.step_guards.values()]
        of_type = (of_field(guard, self.automaton.atoms, TYPE) for guard in guards)
        return disjunction([*named, *of_type])

    @functools.cached_property
    def comparisons(self) -> tuple[tuple[ComparisonSite, ...], tuple[SiteReading, ...]]:
        """The comparisons of its guards, and how their operands are read from events."""
        sites, readings = comparisons(
            self.pattern, self.named_events, self.alphabet, self.automaton.atoms, self.registered
        )
        of_event = (replace(one, guard=self._of_one_event(one.guard)) for one in readings)
        return sites, tuple(of_event)

    @functools.cached_property
    def guards(self) -> dict[Formula, str]:
        """The guards whose events are counted, over the bits of a mask, each with a hash."""
        named = (name.known_by for name in self.named_values)
        guards = (
            self.alphabet_guard, *self.event_guards.values(), *self.step_guards.values(), *named,
        )  # fmt: skip
        return {guard: hash_of(guard) for guard in guards}
