"""A pattern, compiled: its automaton, the words of its syntax, and the functions that judge events.

The one rule: it is a value. What is derived from its fields is made when it is first asked for, and
is never shipped.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ketal.analysis.registered_guards import GuardCall, RegisteredGuard
from ketal.compiler.automaton import Automaton
from ketal.compiler.commutation import needs_no_order
from ketal.compiler.counted.comparisons import ComparisonSite, SiteReading, comparisons
from ketal.compiler.counted.named_values import TYPE, NamedValue, named_values
from ketal.compiler.fingerprints import FORMAT, canonical_automaton, canonical_form, hash_of
from ketal.compiler.predicate_codegen import (
    VALUES_CACHED_MAX,
    Masks,
    Relational,
    compile_equality,
    compile_masks,
    compile_read,
    compile_relational,
    compile_value,
    is_equality,
    unknown_types,
)
from ketal.compiler.predicates import (
    RELATIONS,
    Formula,
    conjunction,
    disjunction,
    evaluate,
    free_of_run,
    of_field,
    simplify,
    variables,
)
from ketal.errors import Diagnostic, PatternText
from ketal.model import syntax
from ketal.model.events.event import Event
from ketal.model.limits import DEFAULT, Limits

Bound = Mapping[str, Event]
"""The event that each step is bound to."""


@dataclass(frozen=True)
class CompiledPattern:
    """One pattern, compiled: the automaton, and how runs of it are made and judged.

    Attributes
    ----------
    name : str
        The pattern's name.
    pattern : Pattern
        The syntax it was compiled from, with parameters substituted.
    automaton : Automaton
        The table.
    guards : tuple of (str, Guard)
        The guard of each step.
    alphabet : Formula
        Which events are offered, over the automaton's atoms.
    events : tuple of (EventDecl, Formula)
        The declared events that make the alphabet, each with its guard over these atoms.
    named_events : tuple of EventDecl
        Those events, and those that their guards name, directly or through others.
    order_independent : bool
        Whether every linear extension gives the same verdicts.
    declared : tuple of (str, Guard)
        The events and steps that its guards may name, each with its guard.
    guard_failed : callable or None
        Called for each failure of a registered guard; see `reporting`.
    warnings : tuple of Diagnostic
        The findings of lint.
    undecided : str
        The scheme of the clocks, where it does not decide happened-before.
    fingerprint : str
        32 hex digits over all that decides verdicts.
    """

    name: str
    pattern: syntax.Pattern
    automaton: Automaton
    alphabet: Formula
    guards: tuple[tuple[str, syntax.Guard], ...]
    order_independent: bool
    warnings: tuple[Diagnostic, ...] = ()
    registered: tuple[RegisteredGuard, ...] = ()
    limits: Limits = DEFAULT
    undecided: str = ""
    source: PatternText | None = field(default=None, compare=False, repr=False)
    events: tuple[tuple[syntax.EventDecl, Formula], ...] = field(default=(), repr=False)
    named_events: tuple[syntax.EventDecl, ...] = field(default=(), repr=False)
    declared: tuple[tuple[str, syntax.Guard], ...] = field(default=(), repr=False)
    guard_failed: Callable[[], None] | None = field(default=None, compare=False, repr=False)

    # --- the syntax, in the words of the engine ---

    @property
    def kind(self) -> str:
        """`check` or `find`."""
        return self.pattern.kind

    @property
    def causal(self) -> bool:
        """Whether it stands under `order CausalOrder`."""
        return self.pattern.order.kind == "causal"

    @property
    def strategy(self) -> str:
        """`strict`, `next` or `any`; `check` for a check."""
        return self.pattern.selection

    @functools.cached_property
    def order_free(self) -> bool:
        """Whether the verdicts need no release order at all."""
        return needs_no_order(self.pattern)

    @functools.cached_property
    def window_us(self) -> int | None:
        """`within` in microseconds; None where it is in events, or there is none."""
        window = self.pattern.window
        length = None if window is None else window.length
        return length.microseconds if isinstance(length, syntax.Duration) else None

    @functools.cached_property
    def window_events(self) -> int | None:
        """`within` in events; None where it is in time, or there is none."""
        window = self.pattern.window
        length = None if window is None else window.length
        return length if isinstance(length, int) else None

    @functools.cached_property
    def fingerprint(self) -> str:
        """32 hex digits over all that decides verdicts; layout and comments do not."""
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
        """What of it is counted of events."""
        return CountedParts(self)

    @functools.cached_property
    def bound(self) -> BoundFunctions:
        """What it computes of bound events."""
        return BoundFunctions(self)

    # --- compiled functions; made when first used, never shipped ---

    def __getstate__(self) -> dict[str, Any]:
        saved = {f.name for f in fields(self)} | {"fingerprint"}
        return {k: v for k, v in self.__dict__.items() if k in saved}

    @functools.cached_property
    def guard_calls(self) -> dict[str, GuardCall]:
        """The guards added in code, by name."""
        return {g.name: GuardCall(g, self.guard_failed) for g in self.registered}

    def reporting(self, guard_failed: Callable[[], None]) -> CompiledPattern:
        """Return the pattern with guards that call `guard_failed` for each of their failures."""
        return replace(self, guard_failed=guard_failed) if self.registered else self

    @functools.cached_property
    def masks(self) -> Masks:
        """Events → bit masks of the local atoms, localhost apart."""
        return compile_masks(self.automaton.atoms, self.limits, self.guard_calls)

    @functools.cached_property
    def names_type(self) -> Callable[[Event], bool]:
        """Whether the type of an event satisfies `counted.type_guard`."""
        type_guard = self.counted.type_guard
        bits = sum(1 << number for number in variables(type_guard))
        satisfies = functools.lru_cache(VALUES_CACHED_MAX)(functools.partial(evaluate, type_guard))
        return lambda event: satisfies(self.masks((event,))[0] & bits)

    @functools.cached_property
    def partition(self) -> tuple[tuple[str, Callable[[Event], Any]], ...]:
        """(name, reader) of each partition key."""
        return tuple((of.last_name, compile_read(of, self.limits)) for of in self.pattern.partition)

    @functools.cached_property
    def unknown_types(self) -> Callable[[Event], bool] | None:
        """Whether an event leaves the types of a `call` unknown; None without such calls."""
        steps = (guard for _, guard in self.guards)
        return unknown_types((*steps, *self.named_events, self.pattern.body))

    def __repr__(self) -> str:
        states = len(self.automaton.table)
        return f"<pattern {self.name}: {self.strategy}, {states} states, {self.fingerprint[:8]}>"


@dataclass(frozen=True, eq=False)
class BoundFunctions:
    """The functions of a pattern that read bound events: its relational atoms, its `return`."""

    compiled: CompiledPattern

    @functools.cached_property
    def relational(self) -> dict[int, Relational]:
        """The compiled atoms that refer to bound events, by number."""
        return {
            number: compile_relational(atom, self.compiled.limits, self.compiled.guard_calls)
            for number, atom in enumerate(self.compiled.automaton.atoms)
            if atom.relational and atom.shape not in (*RELATIONS, "barred")
        }

    @functools.cached_property
    def equalities(self) -> dict[int, tuple[Callable[[Event], Any], Callable[[Bound], Any]]]:
        """The two sides of each atom that equates an event's value with a bound one's."""
        return {
            number: compile_equality(atom, self.compiled.limits)
            for number, atom in enumerate(self.compiled.automaton.atoms)
            if is_equality(atom)
        }

    @functools.cached_property
    def returns(self) -> tuple[tuple[str, Callable[[Bound], Any]], ...] | None:
        """(name, value of the bound events) of each `return` item; None without."""
        clause = self.compiled.pattern.returns
        if clause is None or clause.count:
            return None
        limits = self.compiled.limits
        return tuple((item.name, compile_value(item.value, limits)) for item in clause.items)


@dataclass(frozen=True, eq=False)
class CountedParts:
    """What of a pattern is counted of events, each alone, by its mask.

    By these counts a run says where it found nothing (`ketal.runtime.silence`).
    """

    compiled: CompiledPattern

    @functools.cached_property
    def asks_causality(self) -> bool:
        """Whether its answer depends on which events happened before others."""
        related = any(atom.shape in RELATIONS for atom in self.compiled.automaton.atoms)
        return self.compiled.pattern.order.kind == "causal" or related

    def _of_one_event(self, formula: Formula) -> Formula:
        """Return what a guard asks of the event alone, in the copy of some node."""
        local = free_of_run(formula, self.compiled.automaton.atoms)
        localhost_bit = self.compiled.automaton.localhost_bit
        if not localhost_bit:
            return local
        number = localhost_bit.bit_length() - 1
        return disjunction([simplify(local, {number: here}) for here in (True, False)])

    @functools.cached_property
    def alphabet_guard(self) -> Formula:
        """The mask of an event of the alphabet."""
        return self._of_one_event(self.compiled.alphabet)

    @functools.cached_property
    def event_guards(self) -> dict[str, Formula]:
        """The mask of an event of each declaration, by name."""
        return {event.name: self._of_one_event(formula) for event, formula in self.compiled.events}

    @functools.cached_property
    def step_guards(self) -> dict[str, Formula]:
        """The mask of an event that a step can take in some run, by the step's name."""
        of = zip(self.compiled.automaton.variants, self.compiled.automaton.formulas, strict=True)
        return {
            self.compiled.automaton.steps[variant.step]: self._of_one_event(
                conjunction([formula, self.compiled.alphabet])
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
        return named_values(
            self.compiled.pattern, self.compiled.named_events, self.compiled.automaton.atoms
        )

    @functools.cached_property
    def type_guard(self) -> Formula:
        """The mask of an event with a type that the pattern names or some event of it may have."""
        named = [name.known_by for name in self._named_values if name.what == "type"]
        guards = [self.alphabet_guard, *self.event_guards.values(), *self.step_guards.values()]
        of_type = (of_field(guard, self.compiled.automaton.atoms, TYPE) for guard in guards)
        return disjunction([*named, *of_type])

    @functools.cached_property
    def comparisons(self) -> tuple[tuple[ComparisonSite, ...], tuple[SiteReading, ...]]:
        """The comparisons of its guards, and how their operands are read from events."""
        sites, readings = comparisons(
            self.compiled.pattern,
            self.compiled.named_events,
            self.compiled.alphabet,
            self.compiled.automaton.atoms,
            self.compiled.registered,
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
