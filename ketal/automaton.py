"""The automaton of a pattern: an immutable integer table, and all that goes with it.

A *letter* is a pair of a minterm (which guards an event satisfies) and a group
(the step whose register the event is bound to, or none). The table maps a state
and a letter to a state. Where two letters of one minterm lead on from a state,
both readings are followed: what moves at run time is a set of configurations
(`ketal.runs`). Readings whose live registers agree share a letter, so they were
merged when the table was made (DESIGN 4 and 6).

The one rule: the automaton is data. States are numbered breadth-first in sorted
letter order, so the table and its fingerprint are the same in every process.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from ketal import pattern as syntax
from ketal.atoms import (
    Atom,
    Formula,
    Mask,
    Relational,
    compile_mask,
    compile_read,
    compile_relational,
    compile_value,
    unknown_types,
)
from ketal.errors import Diagnostic, Source
from ketal.event import Event
from ketal.guards import RegisteredGuard
from ketal.limits import DEFAULT, Limits

FORMAT = 1
ANONYMOUS = -1
"""The group of an event that no register keeps."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A step as it stands on an edge: its number and the `not` guards before it."""

    step: int
    nots: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Live:
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
    minterms : tuple of tuples of int
        Each the variants that hold.
    letters : tuple of (int, int)
        (minterm, group).
    table : tuple of tuples of int
        Row a state, column a letter; -1 where there is no way on. State 0 is initial.
    finals : frozenset of int
        The accepting states.
    names : tuple of str
        What each state is called.
    enabled : tuple of tuples of int
        The variants that some word takes next, for each state.
    live : tuple of Live
        The registers read from each state on.
    classes : tuple of int
        The class of each step's local guard (DESIGN 4, mirror images).
    bound : tuple of frozensets of int
        The steps that have an event on every path to a state.
    """

    steps: tuple[str, ...]
    atoms: tuple[Atom, ...]
    variants: tuple[Variant, ...]
    formulas: tuple[Formula, ...]
    nots: tuple[Formula, ...]
    minterms: tuple[tuple[int, ...], ...]
    letters: tuple[tuple[int, int], ...]
    table: tuple[tuple[int, ...], ...]
    finals: frozenset[int]
    names: tuple[str, ...]
    enabled: tuple[tuple[int, ...], ...]
    live: tuple[Live, ...]
    classes: tuple[int, ...]
    mirrors: bool
    """Whether two matches of the same events can be mirror images at all."""

    def expected(self, state: int) -> tuple[str, ...]:
        """Return the names of the steps that can come next, in declaration order."""
        return tuple(
            self.steps[s] for s in sorted({self.variants[v].step for v in self.enabled[state]})
        )


def plain(value: Any) -> Any:
    """Return syntax and formulas as plain JSON, spans left out: the same in every process."""
    if isinstance(value, syntax.Node | Atom | Variant | Live | Automaton):
        return [type(value).__name__] + [
            plain(getattr(value, f.name)) for f in fields(value) if f.name != "span"
        ]
    if isinstance(value, frozenset | set):
        return sorted(plain(v) for v in value)
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if isinstance(value, float | int) and not isinstance(value, bool):
        return ["number", type(value).__name__, repr(value)]
    return value


@dataclass(frozen=True)
class CompiledPattern:
    """One pattern, compiled: the automaton, and how runs of it are made and judged.

    Attributes
    ----------
    name : str
        The pattern's name.
    pattern : Pattern
        What it was compiled from, parameters put in.
    automaton : Automaton
        The table.
    alphabet : Formula
        Which events are offered, over the automaton's atoms.
    window_us, window_events : int or None
        `within`, in microseconds or in events.
    order_free : bool
        Whether the answer needs no release order at all (DESIGN 5).
    order_independent : bool
        Whether every linear extension gives the same verdicts.
    warnings : tuple of Diagnostic
        What lint says of it.
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
    source: Source | None = field(default=None, compare=False, repr=False)

    # --- what the syntax says, in the words of the engine ---

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
        return "check" if self.kind == "check" else self.pattern.strategy or "next"

    @property
    def on_violation(self) -> str:
        """`halt`, `resume` or `skip`."""
        return self.pattern.on_violation or "halt"

    @functools.cached_property
    def fingerprint(self) -> str:
        """32 hex digits over all that decides verdicts; layout and comments do not."""
        p = self.pattern
        said = {
            "format": FORMAT,
            "kind": p.kind,
            "strategy": self.strategy,
            "order": plain(p.order),
            "deployment": plain(p.deployment),
            "partition": plain(p.partition),
            "on_violation": self.on_violation if p.kind == "check" else None,
            "window": [self.window_us, self.window_events],
            "returns": plain(p.returns),
            "limit": p.limit,
            "mode": p.mode,
            "topology": plain(p.topology),
            "alphabet": plain(self.alphabet),
            "registered": sorted([g.name, g.version] for g in self.registered),
            "automaton": plain(self._anonymous()),
        }
        packed = json.dumps(said, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return hashlib.blake2b(packed.encode(), digest_size=16).hexdigest()

    def _anonymous(self) -> Any:
        # What states are called changes no verdict's id.
        said = {f.name: getattr(self.automaton, f.name) for f in fields(self.automaton)}
        said.pop("names")
        return sorted((k, plain(v)) for k, v in said.items())

    # --- compiled functions; made when first used, never shipped ---

    def __getstate__(self) -> dict[str, Any]:
        kept = {f.name for f in fields(self)} | {"fingerprint"}
        return {k: v for k, v in self.__dict__.items() if k in kept}

    @functools.cached_property
    def _registered(self) -> dict[str, RegisteredGuard]:
        return {g.name: g for g in self.registered}

    @functools.cached_property
    def mask(self) -> Mask:
        """Event → bit mask of the local atoms, localhost apart."""
        return compile_mask(list(self.automaton.atoms), self.limits, self._registered)

    @functools.cached_property
    def localhost_bit(self) -> int:
        """The bit of `localhost`; 0 where the pattern does not speak of it."""
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
            if atom.relational and atom.shape not in ("before", "concurrent", "barred")
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
        said = self.pattern.returns
        if said is None or said.count:
            return None
        return tuple((item.name, compile_value(item.value, self.limits)) for item in said.items)

    @functools.cached_property
    def unknown_types(self) -> Callable[[Event], bool] | None:
        """Whether an event leaves the types of a `call` unknown; None without such calls."""
        return unknown_types(self.calls)

    def __repr__(self) -> str:
        states = len(self.automaton.table)
        return f"<pattern {self.name}: {self.strategy}, {states} states, {self.fingerprint[:8]}>"
