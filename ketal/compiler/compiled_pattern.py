"""A pattern, compiled: its automaton, the words of its syntax, and the functions that judge events.

The one rule: it is a value. What is derived from its fields is made when it is first asked for, and
is never shipped.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ketal.analysis.registered_guards import GuardCall, RegisteredGuard
from ketal.compiler.automaton import Automaton
from ketal.compiler.bound_functions import BoundFunctions
from ketal.compiler.commutation import needs_no_order
from ketal.compiler.counted.counted_parts import CountedParts
from ketal.compiler.fingerprints import FORMAT, canonical_automaton, canonical_form, hash_of
from ketal.compiler.predicate_codegen import (
    VALUES_CACHED_MAX,
    Mask,
    compile_mask,
    compile_read,
    unknown_types,
)
from ketal.compiler.predicates import Formula, evaluate, variables
from ketal.errors import Diagnostic, PatternText
from ketal.model import syntax
from ketal.model.events.event import Event
from ketal.model.limits import DEFAULT, Limits


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
        return CountedParts(
            self.pattern,
            self.automaton,
            self.alphabet,
            self.events,
            self.named_events,
            self.registered,
        )

    @functools.cached_property
    def bound(self) -> BoundFunctions:
        """What it computes of bound events."""
        return BoundFunctions(self.automaton, self.pattern.returns, self.limits, self._registered)

    # --- compiled functions; made when first used, never shipped ---

    def __getstate__(self) -> dict[str, Any]:
        saved = {f.name for f in fields(self)} | {"fingerprint"}
        return {k: v for k, v in self.__dict__.items() if k in saved}

    @functools.cached_property
    def _registered(self) -> dict[str, GuardCall]:
        return {g.name: GuardCall(g, self.guard_failed) for g in self.registered}

    def reporting(self, guard_failed: Callable[[], None]) -> CompiledPattern:
        """Return the pattern with guards that call `guard_failed` for each of their failures."""
        return replace(self, guard_failed=guard_failed) if self.registered else self

    @functools.cached_property
    def mask(self) -> Mask:
        """Event → bit mask of the local atoms, localhost apart."""
        return compile_mask(self.automaton.atoms, self.limits, self._registered)

    @functools.cached_property
    def names_type(self) -> Callable[[Event], bool]:
        """Whether the type of an event satisfies `counted.type_guard`."""
        type_guard = self.counted.type_guard
        bits = sum(1 << number for number in variables(type_guard))
        satisfies = functools.lru_cache(VALUES_CACHED_MAX)(functools.partial(evaluate, type_guard))
        return lambda event: satisfies(self.mask(event) & bits)

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
