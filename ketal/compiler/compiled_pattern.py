"""A compiled pattern: its automaton, its syntax, and the compiled functions that judge events.

The one rule: a compiled pattern is a value. Whatever is derived from its fields is computed on
first access, and is not pickled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from ketal.analysis.registered_guards import GuardCall, RegisteredGuard
from ketal.compiler.automaton import Automaton
from ketal.compiler.commutation import needs_no_order
from ketal.compiler.counted.comparisons import ComparisonSite, SiteReading, comparisons
from ketal.compiler.counted.named_values import TYPE, NamedValue, named_values
from ketal.compiler.fingerprints import FORMAT, canonical_automaton, canonical_form, hash_of
from ketal.compiler.predicate_codegen import (
    Masks,
    Relational,
    compile_equality,
    compile_masks,
    compile_read,
    compile_relational,
    compile_value,
    evaluations,
    is_equality,
    unknown_types,
)
from ketal.compiler.predicates import (
    RELATIONS,
    Formula,
    conjunction,
    disjunction,
    field_guard,
    local_guard,
    simplify,
    variables,
)
from ketal.errors import Diagnostic, PatternText
from ketal.model import syntax
from ketal.model.events.event import Event
from ketal.model.limits import DEFAULT, Limits

T = TypeVar("T")

Bound = Mapping[str, Event]
"""Step → the event that it bound last."""


@dataclass(frozen=True)
class CompiledPattern:
    """One compiled pattern: the automaton, and all that runs of it need to judge events."""

    name: str
    pattern: syntax.Pattern  # the syntax from which it was compiled, with parameters substituted
    automaton: Automaton
    alphabet: Formula
    """The events that are offered, as a formula over the automaton's atoms."""
    guards: tuple[tuple[str, syntax.Guard], ...]  # the guard of each step
    order_independent: bool  # whether every linear extension gives the same verdicts
    warnings: tuple[Diagnostic, ...] = ()  # the findings of lint
    registered: tuple[RegisteredGuard, ...] = ()
    limits: Limits = DEFAULT
    undecided: str = ""
    """The scheme of the clocks, if it does not decide happened-before; else empty."""
    source: PatternText | None = field(default=None, compare=False, repr=False)
    events: tuple[tuple[syntax.EventDecl, Formula], ...] = field(default=(), repr=False)
    """The declared events that make the alphabet, each with its guard over these atoms."""
    named_events: tuple[syntax.EventDecl, ...] = field(default=(), repr=False)
    """The shared events that the pattern names, also by its guards, and its own events."""
    declared: tuple[tuple[str, syntax.Guard], ...] = field(default=(), repr=False)
    """The events and steps that guards may name, each with its guard."""
    guard_failed: Callable[[], None] | None = field(default=None, compare=False, repr=False)
    """Called for each failure of a registered guard; see `reporting`."""

    # --- properties of the syntax that the engine reads ---

    @property
    def kind(self) -> str:
        """`check` or `find`."""
        return self.pattern.kind

    @property
    def causal(self) -> bool:
        """Whether the pattern is under `order CausalOrder`."""
        return self.pattern.order.kind == "causal"

    @property
    def strategy(self) -> str:
        """`strict`, `next` or `any`; `check` for a `check`."""
        return self.pattern.selection

    @functools.cached_property
    def order_free(self) -> bool:
        """Whether the verdicts need no release order."""
        return needs_no_order(self.pattern)

    @functools.cached_property
    def window_us(self) -> int | None:
        """The length of `within` in microseconds; None if it counts events, or is absent."""
        window = self.pattern.window
        length = None if window is None else window.length
        return length.microseconds if isinstance(length, syntax.Duration) else None

    @functools.cached_property
    def window_events(self) -> int | None:
        """The length of `within` in events; None if it is a time, or is absent."""
        window = self.pattern.window
        length = None if window is None else window.length
        return length if isinstance(length, int) else None

    @functools.cached_property
    def fingerprint(self) -> str:
        """32 hex digits over everything that decides verdicts; layout and comments do not."""
        p = self.pattern
        parts = {
            "format": FORMAT,
            "kind": p.kind,
            "strategy": self.strategy,
            "order": canonical_form(p.order),
            "deployment": canonical_form(p.deployment),
            "partition": canonical_form(p.partition),
            "on_violation": p.violation_policy if p.kind == "check" else None,
            "window": [self.window_us, self.window_events],
            "returns": canonical_form(p.returns),
            "limit": p.limit,
            "mode": p.mode,
            "topology": canonical_form(p.topology),
            "alphabet": canonical_form(self.alphabet),
            "registered": sorted([g.name, g.version] for g in self.registered),
            "automaton": canonical_automaton(self.automaton),
        }
        return hash_of(parts)

    @functools.cached_property
    def counted(self) -> CountedParts:
        """The parts of the pattern for which events are counted."""
        return CountedParts(self)

    @functools.cached_property
    def bound(self) -> BoundFunctions:
        """The functions that read bound events."""
        return BoundFunctions(self)

    # --- what is derived: made on first access, not pickled ---

    @functools.cached_property
    def _derived(self) -> dict[Callable[[CompiledPattern], Any], Any]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        saved = {f.name for f in fields(self)} | {"fingerprint"}
        return {k: v for k, v in self.__dict__.items() if k in saved}

    @functools.cached_property
    def guard_calls(self) -> dict[str, GuardCall]:
        """The registered guards, by name."""
        return {g.name: GuardCall(g, self.guard_failed) for g in self.registered}

    def reporting(self, guard_failed: Callable[[], None]) -> CompiledPattern:
        """Return the pattern with registered guards that call `guard_failed` at each failure."""
        return replace(self, guard_failed=guard_failed) if self.registered else self

    @functools.cached_property
    def masks(self) -> Masks:
        """Events → bit masks of the local atoms, without `localhost`."""
        atoms = self.automaton.atoms
        return compile_masks(atoms, self._mask_formulas, self.limits, self.guard_calls)

    @property
    def _mask_formulas(self) -> frozenset[Formula]:
        """All formulas that are evaluated over a mask."""
        automaton, counted = self.automaton, self.counted
        _, readings = counted.comparisons
        # A registered guard is called for each event, even if no formula depends on it.
        registered: list[Formula] = [
            ("var", number, True)
            for number, atom in enumerate(automaton.atoms)
            if atom.shape == "registered"
        ]
        return frozenset((
            self.alphabet, *automaton.formulas, *automaton.nots, *counted.guards,
            *(side for reading in readings for side in reading.sides), *registered,
        ))  # fmt: skip

    @functools.cached_property
    def names_type(self) -> Callable[[Event], bool]:
        """Event → whether its type satisfies `counted.type_guard`."""
        type_guard = self.counted.type_guard
        bits = sum(1 << number for number in variables(type_guard))
        satisfies = evaluations(type_guard)
        return lambda event: satisfies[self.masks((event,))[0] & bits]

    @functools.cached_property
    def partition(self) -> tuple[tuple[str, Callable[[Event], Any]], ...]:
        """(name, reader) of each partition key."""
        return tuple(
            (key.last_name, compile_read(key, self.limits)) for key in self.pattern.partition
        )

    @functools.cached_property
    def unknown_types(self) -> Callable[[Event], bool] | None:
        """Event → whether it leaves the types of a `call` unknown; None without such calls."""
        steps = (guard for _, guard in self.guards)
        return unknown_types((*steps, *self.named_events, self.pattern.body))

    def __repr__(self) -> str:
        states = len(self.automaton.table)
        return f"<pattern {self.name}: {self.strategy}, {states} states, {self.fingerprint[:8]}>"


def derived_once(derive: Callable[[CompiledPattern], T], compiled: CompiledPattern) -> T:
    """Return `derive(compiled)`, which is computed once: a value that all runs may share."""
    derived = compiled._derived
    if derive not in derived:
        derived[derive] = derive(compiled)
    value: T = derived[derive]
    return value


@dataclass(frozen=True, eq=False)
class BoundFunctions:
    """The functions of a pattern that read bound events: for relational atoms and `return`."""

    compiled: CompiledPattern

    @functools.cached_property
    def relational(self) -> dict[int, Relational]:
        """The compiled atoms that read bound events, by number of the atom."""
        return {
            number: compile_relational(atom, self.compiled.limits, self.compiled.guard_calls)
            for number, atom in enumerate(self.compiled.automaton.atoms)
            if atom.relational and atom.shape not in (*RELATIONS, "barred")
        }

    @functools.cached_property
    def equalities(self) -> dict[int, tuple[Callable[[Event], Any], Callable[[Bound], Any]]]:
        """By number of an atom that equates a value of the event with one of bound events.

        The two functions return the two values.
        """
        return {
            number: compile_equality(atom, self.compiled.limits)
            for number, atom in enumerate(self.compiled.automaton.atoms)
            if is_equality(atom)
        }

    @functools.cached_property
    def returns(self) -> tuple[tuple[str, Callable[[Bound], Any]], ...] | None:
        """(name, bound events → value) of each item of `return`; None without items."""
        clause = self.compiled.pattern.returns
        if clause is None or clause.count:
            return None
        limits = self.compiled.limits
        return tuple((item.name, compile_value(item.value, limits)) for item in clause.items)


@dataclass(frozen=True, eq=False)
class CountedParts:
    """The parts of a pattern for which a run counts events, each event alone, by its mask.

    These counts explain why a run found nothing (`ketal.runtime.silence`).
    """

    compiled: CompiledPattern

    @functools.cached_property
    def depends_on_causality(self) -> bool:
        """Whether the pattern's verdicts depend on which events happened before others."""
        related = any(atom.shape in RELATIONS for atom in self.compiled.automaton.atoms)
        return self.compiled.pattern.order.kind == "causal" or related

    def _local_guard(self, formula: Formula) -> Formula:
        """Return a formula over local atoms: true if the guard holds in some run of some copy."""
        local = local_guard(formula, self.compiled.automaton.atoms)
        localhost_bit = self.compiled.automaton.localhost_bit
        if not localhost_bit:
            return local
        number = localhost_bit.bit_length() - 1
        return disjunction([simplify(local, {number: here}) for here in (True, False)])

    @functools.cached_property
    def alphabet_guard(self) -> Formula:
        """The guard, over masks, of an event of the alphabet."""
        return self._local_guard(self.compiled.alphabet)

    @functools.cached_property
    def event_guards(self) -> dict[str, Formula]:
        """The guard, over masks, of each declared event, by name."""
        return {event.name: self._local_guard(formula) for event, formula in self.compiled.events}

    @functools.cached_property
    def step_guards(self) -> dict[str, Formula]:
        """The guard, over masks, of an event that a step can take in some run, by step."""
        return {
            step: self._local_guard(conjunction([formula, self.compiled.alphabet]))
            for step, formula in self.compiled.automaton.step_formulas.items()
        }

    @functools.cached_property
    def named_values(self) -> tuple[NamedValue, ...]:
        """The types, attributes, keys and nodes that the pattern names.

        The `known_by` of each also requires a type that the pattern's events may have.
        """
        known = [conjunction([name.known_by, self.type_guard]) for name in self._named_values]
        named = zip(self._named_values, known, strict=True)
        return tuple(replace(name, known_by=known_by) for name, known_by in named)

    @functools.cached_property
    def _named_values(self) -> tuple[NamedValue, ...]:
        return named_values(
            self.compiled.pattern, self.compiled.named_events, self.compiled.automaton.atoms
        )

    @functools.cached_property
    def type_guard(self) -> Formula:
        """The guard, over masks, of a type that the pattern names or about which it decides."""
        named = [name.known_by for name in self._named_values if name.what == "type"]
        _, readings = self.comparisons
        guards = [
            self.alphabet_guard, *self.event_guards.values(), *self.step_guards.values(),
            *(reading.sides[0] for reading in readings),
        ]  # fmt: skip
        of_type = (field_guard(guard, self.compiled.automaton.atoms, TYPE) for guard in guards)
        return disjunction([*named, *of_type])

    @functools.cached_property
    def comparisons(self) -> tuple[tuple[ComparisonSite, ...], tuple[SiteReading, ...]]:
        """The comparisons in the guards, and how their operands are read from events."""
        sites, readings = comparisons(
            self.compiled.pattern,
            self.compiled.named_events,
            self.compiled.alphabet,
            self.compiled.automaton.atoms,
            self.compiled.registered,
        )
        local_readings = (replace(one, guard=self._local_guard(one.guard)) for one in readings)
        return sites, tuple(local_readings)

    @functools.cached_property
    def guards(self) -> dict[Formula, str]:
        """The guards, over masks, whose events are counted; each with a hash that names it."""
        named = (name.known_by for name in self.named_values)
        guards = (
            self.alphabet_guard, *self.event_guards.values(), *self.step_guards.values(), *named,
        )  # fmt: skip
        return {guard: hash_of(guard) for guard in guards}
