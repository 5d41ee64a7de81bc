"""The automaton of a pattern: an immutable integer table, and all that goes with it.

A *letter* is a pair of a minterm and a group: the step whose register the event is
bound to, or none. The guards of a group are partitioned into classes, as fine as the
state needs (`ketal.compiler.dfa`), and a minterm is the set of classes of which the
event satisfies some guard. The table maps a state and a letter to a state. Where
letters of several groups lead on, all readings are followed: what moves at run time is
a set of configurations (`ketal.engine.configurations`). Readings whose live registers
agree share a group, so they were merged when the table was made.

The one rule: the automaton is data. States are numbered breadth-first in sorted
letter order, so the table and its fingerprint are the same in every process.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ketal.analysis.registered_guards import GuardCall, RegisteredGuard
from ketal.compiler.comparisons import ComparisonSite, SiteReading, comparisons
from ketal.compiler.named_values import TYPE, NamedValue, named_values
from ketal.compiler.predicate_codegen import (
    VALUES_CACHED_MAX,
    Mask,
    Relational,
    compile_equality,
    compile_mask,
    compile_read,
    compile_relational,
    compile_value,
    is_equality,
    unknown_types,
)
from ketal.compiler.predicates import (
    RELATIONS,
    Atom,
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

FORMAT = 2
ANONYMOUS = -1
"""The group of an event that no register keeps."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A step as it stands on an edge: its number and the `not` guards before it."""

    step: int
    nots: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LiveRegisters:
    """Which registers a state's future reads.

    Attributes
    ----------
    prior : bool
        The last event taken.
    history : bool
        The summary of all events taken.
    steps : tuple of int
        The steps whose last event is read.
    """

    prior: bool
    history: bool
    steps: tuple[int, ...]

    @property
    def none(self) -> bool:
        """Whether it reads no register."""
        return not (self.prior or self.history or self.steps)


@dataclass(frozen=True)
class Automaton:
    """A deterministic automaton over letters.

    Attributes
    ----------
    steps : tuple of str
        The steps' names, in declaration order.
    variants, formulas : tuples
        The guards on edges, and the formula over `atoms` of each.
    nots : tuple of Formula
        The formulas of `not` guards.
    minterms : tuple of tuples of tuples of int
        Each the classes of which some variant holds, and each of these its variants.
    letters : tuple of (int, int)
        (minterm, group).
    table : tuple of tuples of (int, int)
        For each state the letters that lead on, in order, and where to. State 0 is initial.
    finals : frozenset of int
        The accepting states.
    names : tuple of str
        What each state is called.
    enabled : tuple of tuples of int
        The variants that some word takes next, for each state.
    live : tuple of LiveRegisters
        The registers read from each state on.
    classes : tuple of int
        The class of each step's local guard (mirror images).
    """

    steps: tuple[str, ...]
    atoms: tuple[Atom, ...]
    variants: tuple[Variant, ...]
    formulas: tuple[Formula, ...]
    nots: tuple[Formula, ...]
    minterms: tuple[tuple[tuple[int, ...], ...], ...]
    letters: tuple[tuple[int, int], ...]
    table: tuple[tuple[tuple[int, int], ...], ...]
    finals: frozenset[int]
    names: tuple[str, ...]
    enabled: tuple[tuple[int, ...], ...]
    live: tuple[LiveRegisters, ...]
    classes: tuple[int, ...]
    mirrors: bool
    """Whether two matches of the same events can be mirror images at all."""

    @functools.cached_property
    def turns_back(self) -> bool:
        """Whether some event leads back to the initial state."""
        return any(target == 0 for row in self.table for _, target in row)

    def named(self, states: Iterable[int]) -> str:
        """Return the names of states."""
        return ",".join(self.names[s] for s in states)

    def expected(self, states: Iterable[int]) -> tuple[str, ...]:
        """Return the names of the steps that can come next, in declaration order."""
        numbers = {self.variants[v].step for s in states for v in self.enabled[s]}
        return tuple(self.steps[n] for n in sorted(numbers))


class Ways:
    """Where events lead from one state of an automaton.

    Parameters
    ----------
    automaton : Automaton
        The table.
    state : int
        The state.

    Attributes
    ----------
    classes : tuple of tuples of int
        The variants that lead on, those together that lead to the same states.
    by_classes : dict of (int, frozenset of tuples of int) to int
        Where an event leads by a group whose guards it satisfies in these classes alone.
    """

    def __init__(self, automaton: Automaton, state: int) -> None:
        enabled = frozenset(automaton.enabled[state])
        self._class_of: dict[int, tuple[int, tuple[int, ...]]] = {}
        self.by_classes: dict[tuple[int, frozenset[tuple[int, ...]]], int] = {}
        for letter, target in automaton.table[state]:
            minterm, group = automaton.letters[letter]
            # A class of guards that lead nowhere from here matters in other states only.
            here = frozenset(c for c in automaton.minterms[minterm] if not enabled.isdisjoint(c))
            self.by_classes[group, here] = target
            self._class_of |= {v: (group, c) for c in here for v in c}
        self.classes = tuple(sorted({c for _, c in self._class_of.values()}))

    def targets(self, held: frozenset[int]) -> tuple[tuple[int, int], ...]:
        """Return (group, state) for each group, for an event that satisfies these variants.

        They are all of the state's enabled ones that it satisfies.
        """
        of: dict[int, set[tuple[int, ...]]] = {}
        for variant in held:
            group, of_class = self._class_of[variant]
            of.setdefault(group, set()).add(of_class)
        # A missing one would mean that "unsatisfiable" was no proof.
        return tuple(sorted((g, self.by_classes[g, frozenset(c)]) for g, c in of.items()))


# Written out, so that a class or a field can be renamed and every fingerprint stays.
NODE_TAGS: dict[type, str] = {
    syntax.Literal: "Literal",
    syntax.Duration: "Duration",
    syntax.Field: "Field",
    syntax.Attribute: "Attribute",
    syntax.Reference: "Reference",
    syntax.ParamRef: "ParamRef",
    syntax.Arithmetic: "Arithmetic",
    syntax.Negative: "Negative",
    syntax.ListOf: "ListOf",
    syntax.Order: "Order",
    syntax.Deployment: "Deployment",
    syntax.ReturnItem: "ReturnItem",
    syntax.Returns: "Returns",
    syntax.TopologyEdge: "TopologyEdge",
    syntax.Topology: "Topology",
    Atom: "Atom",
    Variant: "Variant",
    LiveRegisters: "Live",
}
"""The tag in fingerprints of each class that they are a hash of."""

FIELDS_SINCE = frozenset({"receiving"})
"""Fields that came later: where one has its default, fingerprints are as they were before."""

FIELD_TAGS = {
    "atoms": "atoms", "classes": "classes", "enabled": "enabled", "finals": "finals",
    "formulas": "formulas", "letters": "letters", "live": "live", "minterms": "minterms",
    "mirrors": "mirrors", "nots": "nots", "steps": "steps", "table": "table",
    "variants": "variants",
}  # fmt: skip
"""The tag in fingerprints of each field of an automaton, as tag → field; all but the states'
names."""


def canonical_form(value: Any) -> Any:
    """Return syntax and formulas as plain JSON, spans left out: the same in every process."""
    if isinstance(value, syntax.Node | Atom | Variant | LiveRegisters):
        return [NODE_TAGS[type(value)]] + [
            canonical_form(getattr(value, f.name))
            for f in fields(value)
            if f.compare and not (f.name in FIELDS_SINCE and getattr(value, f.name) == f.default)
        ]
    if isinstance(value, frozenset | set):
        return sorted(canonical_form(v) for v in value)
    if isinstance(value, tuple | list):
        return [canonical_form(v) for v in value]
    if isinstance(value, float | int) and not isinstance(value, bool):
        return ["number", type(value).__name__, repr(value)]
    return value


def _hash_of(value: Any) -> str:
    """Return 32 hex digits over plain JSON."""
    packed = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.blake2b(packed.encode(), digest_size=16).hexdigest()


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
    alphabet : Formula
        Which events are offered, over the automaton's atoms.
    events : tuple of (EventDecl, Formula)
        The declared events that make the alphabet, each with its guard over these atoms.
    window_us, window_events : int or None
        `within`, in microseconds or in events.
    order_free : bool
        Whether the verdicts need no release order at all.
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
    window_us: int | None
    window_events: int | None
    order_free: bool
    order_independent: bool
    calls: tuple[syntax.Call, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()
    registered: tuple[RegisteredGuard, ...] = ()
    limits: Limits = DEFAULT
    undecided: str = ""
    source: PatternText | None = field(default=None, compare=False, repr=False)
    events: tuple[tuple[syntax.EventDecl, Formula], ...] = field(default=(), repr=False)
    declared: tuple[tuple[str, syntax.Guard], ...] = field(default=(), repr=False)
    guard_failed: Callable[[], None] | None = field(default=None, compare=False, repr=False)

    @property
    def ends_windows_early(self) -> bool:
        """Whether a run that is known to have no chance may be ended before the end of a log.

        A `not` can still break a run of `find next` whose window has passed, and any event
        ends one of `find strict`; then it is not timed out. Whether that happens is known
        at the end only.
        """
        waits = self.strategy == "strict" or (self.strategy == "next" and self.automaton.nots)
        return self.window_us is not None and not waits

    # --- the syntax, in the words of the engine ---

    @property
    def kind(self) -> str:
        """`check` or `find`."""
        return self.pattern.kind

    @property
    def causal(self) -> bool:
        """Whether it stands under `order CausalOrder`."""
        return self.pattern.order.kind == "causal"

    @functools.cached_property
    def asks_causality(self) -> bool:
        """Whether its answer depends on which events happened before others."""
        related = any(atom.shape in RELATIONS for atom in self.automaton.atoms)
        return self.causal or related

    @property
    def strategy(self) -> str:
        """`strict`, `next` or `any`; `check` for a check."""
        return "check" if self.kind == "check" else self.pattern.strategy or "next"

    @property
    def on_violation(self) -> str:
        """`halt`, `resume` or `skip`."""
        return self.pattern.on_violation or "halt"

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
            "on_violation": self.on_violation if p.kind == "check" else None,
            "window": [self.window_us, self.window_events],
            "returns": canonical_form(p.returns),
            "limit": p.limit,
            "mode": p.mode,
            "topology": canonical_form(p.topology),
            "alphabet": canonical_form(self.alphabet),
            "registered": sorted([g.name, g.version] for g in self.registered),
            "automaton": canonical_form(self._anonymous()),
        }
        return _hash_of(parts)

    def _anonymous(self) -> list[tuple[str, Any]]:
        # The names of states change no verdict's id.
        named = FIELD_TAGS.items()
        return sorted((tag, canonical_form(getattr(self.automaton, name))) for tag, name in named)

    # --- the guards whose events are counted ---

    def _of_one_event(self, formula: Formula) -> Formula:
        """Return what a guard asks of the event alone, in the copy of some node."""
        local = free_of_run(formula, self.automaton.atoms)
        if not self.localhost_bit:
            return local
        number = self.localhost_bit.bit_length() - 1
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
        events = [event for event, _ in self.events]
        return named_values(self.pattern, events, self.automaton.atoms)

    @functools.cached_property
    def type_guard(self) -> Formula:
        """The mask of an event with a type that the pattern names or some event of it may have."""
        named = [name.known_by for name in self._named_values if name.what == "type"]
        guards = [self.alphabet_guard, *self.event_guards.values(), *self.step_guards.values()]
        of_type = (of_field(guard, self.automaton.atoms, TYPE) for guard in guards)
        return disjunction([*named, *of_type])

    @functools.cached_property
    def names_type(self) -> Callable[[Event], bool]:
        """Whether the type of an event satisfies `type_guard`."""
        bits = sum(1 << number for number in variables(self.type_guard))
        satisfies = functools.lru_cache(VALUES_CACHED_MAX)(
            functools.partial(evaluate, self.type_guard)
        )
        return lambda event: satisfies(self.mask(event) & bits)

    @functools.cached_property
    def counts_every_type(self) -> bool:
        """Whether events of all types are counted: a program's own guard, or a `call`, may fail."""
        own = any(a.shape == "registered" and not a.relational for a in self.automaton.atoms)
        return own or self.unknown_types is not None

    @functools.cached_property
    def comparisons(self) -> tuple[tuple[ComparisonSite, ...], tuple[SiteReading, ...]]:
        """The comparisons of its guards, and how their operands are read from events."""
        events = [event for event, _ in self.events]
        found, readings = comparisons(self.pattern, events, self.automaton.atoms, self.registered)
        of_event = (replace(one, guard=self._of_one_event(one.guard)) for one in readings)
        return found, tuple(of_event)

    @functools.cached_property
    def counted_guards(self) -> dict[Formula, str]:
        """The guards whose events are counted, over the bits of a mask, each with a hash."""
        named = (name.known_by for name in self.named_values)
        guards = (
            self.alphabet_guard, *self.event_guards.values(), *self.step_guards.values(), *named,
        )  # fmt: skip
        return {guard: _hash_of(guard) for guard in guards}

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
        return compile_mask(list(self.automaton.atoms), self.limits, self._registered)

    @functools.cached_property
    def localhost_bit(self) -> int:
        """The bit of `localhost`; 0 where the pattern does not use it."""
        for number, atom in enumerate(self.automaton.atoms):
            if atom.shape == "localhost":
                return 1 << number
        return 0

    @functools.cached_property
    def relational(self) -> dict[int, Relational]:
        """The compiled atoms that refer to bound events, by number."""
        return {
            number: compile_relational(atom, self.limits, self._registered)
            for number, atom in enumerate(self.automaton.atoms)
            if atom.relational and atom.shape not in (*RELATIONS, "barred")
        }

    @functools.cached_property
    def equalities(
        self,
    ) -> dict[int, tuple[Callable[[Event], Any], Callable[[Mapping[str, Event]], Any]]]:
        """The two sides of each atom that equates an event's value with a bound one's."""
        return {
            number: compile_equality(atom, self.limits)
            for number, atom in enumerate(self.automaton.atoms)
            if is_equality(atom)
        }

    @functools.cached_property
    def partition(self) -> tuple[tuple[str, Callable[[Event], Any]], ...]:
        """(name, reader) of each partition key."""
        return tuple(
            (
                of.name if isinstance(of, syntax.Field) else of.path[-1],
                compile_read(of, self.limits),
            )
            for of in self.pattern.partition
        )

    @functools.cached_property
    def returns(self) -> tuple[tuple[str, Callable[[Any], Any]], ...] | None:
        """(name, value of the bound events) of each `return` item; None without."""
        clause = self.pattern.returns
        if clause is None or clause.count:
            return None
        return tuple((item.name, compile_value(item.value, self.limits)) for item in clause.items)

    @functools.cached_property
    def unknown_types(self) -> Callable[[Event], bool] | None:
        """Whether an event leaves the types of a `call` unknown; None without such calls."""
        return unknown_types(self.calls)

    def __repr__(self) -> str:
        states = len(self.automaton.table)
        return f"<pattern {self.name}: {self.strategy}, {states} states, {self.fingerprint[:8]}>"
