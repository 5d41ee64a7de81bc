"""Ambiguity and order-sensitivity of an automaton.

Linear extensions of one execution are joined by swaps of two neighbours that
are concurrent. So a pattern is order-independent if, from every state, taking
two concurrent events x and y in either order leads to the same configurations
and the same verdicts. That is decided on symbols: x and y are each a set of
truth values of the guards, before and after the other was taken. After it, the
registers that the other overwrote hold an event concurrent with this one.

The one rule: "order-independent" is proven; what cannot be proven in
`SWAPS_MAX` steps is called order-sensitive.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ketal.compiler.automaton import ANONYMOUS, Automaton, Ways
from ketal.compiler.minterms import PartialAssignment, Region, Theory, split
from ketal.compiler.predicates import (
    Atom,
    Formula,
    conjunction,
    disjunction,
    negation,
    registers,
    with_literals,
)
from ketal.model import syntax
from ketal.model.syntax_walks import walk
from ketal.operators.topology.domain_order import gives_up_order

SWAPS_MAX = 200_000
"""Pairs of symbolic events tried before a proof is given up."""

CLASSES_MAX = 512
"""Symbolic events that one state distinguishes before a proof is given up."""

WITNESSES_MAX = 64
"""Of more symbolic events than that, those that are tried for two that do not commute."""


def _exclusive(theory: Theory) -> tuple[Formula, ...]:
    """Return that prior (and the history), once bound, is not both before and concurrent."""
    out = []
    for number, atom in enumerate(theory.atoms):
        if atom.shape == "before" and atom.payload[0] in (syntax.PRIOR, syntax.ALL):
            for other, peer in enumerate(theory.atoms):
                if peer.shape == "concurrent" and peer.payload == atom.payload:
                    both = conjunction([("var", number, True), ("var", other, True)])
                    out.append(negation(both))
    return tuple(out)


def ambiguities(automaton: Automaton, theory: Theory) -> Iterator[tuple[str, str, str]]:
    """Yield (state, step, step) once for each two steps that one event can be at once.

    Only those count that lead to different configurations: readings that the
    table merged need one.
    """
    bound = _exclusive(theory)
    group_of = {
        v: group
        for minterm, group in automaton.letters
        for of_class in automaton.minterms[minterm]
        for v in of_class
    }
    reported: set[tuple[int, int]] = set()
    asked: dict[tuple[bool, int, int], bool] = {}
    looked: set[tuple[bool, tuple[int, ...]]] = set()
    for state, enabled in enumerate(automaton.enabled):
        if (state == 0, enabled) in looked:
            continue
        looked.add((state == 0, enabled))
        for one, two in itertools.combinations(enabled, 2):
            steps = automaton.variants[one].step, automaton.variants[two].step
            if group_of[one] == group_of[two] or steps in reported:
                continue
            key = (state == 0, one, two)
            if key not in asked:
                both = (automaton.formulas[one], automaton.formulas[two])
                asked[key] = theory.can_hold(*both, *(bound if state else ()))
            if asked[key]:
                reported.add(steps)
                yield automaton.names[state], automaton.steps[steps[0]], automaton.steps[steps[1]]


class Sensitivity(NamedTuple):
    """Why a pattern is order-sensitive.

    Attributes
    ----------
    of : {"topology", "steps", "window", "limit"}
        What makes it so.
    message : str
        The reason in words.
    """

    of: Literal["topology", "steps", "window", "limit"]
    message: str


def ordered_clauses(pattern: syntax.Pattern) -> list[str]:
    """Return the clauses for which even a `find any` needs a release order."""
    there = {
        "`not`": any(isinstance(node, syntax.Absent) for node in walk(pattern.body)),
        "`limit`": pattern.limit is not None,
        "`within … events`": _counts_events(pattern),
    }
    return [clause for clause, is_there in there.items() if is_there]


def needs_no_order(pattern: syntax.Pattern) -> bool:
    """Return whether the verdicts need no release order at all."""
    return _asks_partial_order(pattern) and not ordered_clauses(pattern)


def _asks_partial_order(pattern: syntax.Pattern) -> bool:
    """Return whether matches are defined by the partial order alone."""
    return pattern.kind == "find" and pattern.order.kind == "causal" and pattern.strategy == "any"


def _counts_events(pattern: syntax.Pattern) -> bool:
    """Return whether a window is of events."""
    return pattern.window is not None and isinstance(pattern.window.length, int)


def order_sensitivity(
    pattern: syntax.Pattern, automaton: Automaton, alphabet: Formula, theory: Theory
) -> Sensitivity | None:
    """Return why a pattern is order-sensitive, None where it is proven not to be."""
    if needs_no_order(pattern):
        return None
    if pattern.topology is not None and gives_up_order(pattern.topology, theory.limits):
        why = "across a `relaxed` edge an event may be offered before its causes"
        return Sensitivity("topology", f"order-sensitive: {why}")
    reason = _of_the_steps(pattern, automaton, alphabet, theory)
    if reason is not None:
        return Sensitivity("steps", f"order-sensitive{reason}")
    if _counts_events(pattern):
        why = "`within … events` counts positions in the order offered"
        return Sensitivity("window", f"order-sensitive: {why}")
    if pattern.limit is not None:
        why = "which matches `limit` lists depends on the order offered"
        return Sensitivity("limit", f"order-sensitive: {why}")
    return None


def _of_the_steps(
    pattern: syntax.Pattern, automaton: Automaton, alphabet: Formula, theory: Theory
) -> str | None:
    """Return why the runs themselves are order-sensitive, None where it is proven that not.

    Which matches are listed, and where a window of events ends, is left out of account.
    """
    if _asks_partial_order(pattern):
        # With `not`, too: it is offered after its past.
        return None
    if pattern.kind == "find" and automaton.nots:
        return ": a `not` bars by what was offered in between"
    swap = _Swaps(pattern, automaton, alphabet, theory).find()
    if swap is None or isinstance(swap, str):
        return swap
    state, one, two = swap
    both = f"two `{one}`" if one == two else f"`{one}` and `{two}`"
    return f": in state {automaton.names[state]}, {both} do not commute"


_Column = tuple[int | None, tuple[int, ...]]
"""A question about a symbolic event: does it satisfy one of these variants, with the registers
as they were (None), or after the other event was bound in this group?"""


@dataclass(frozen=True)
class _Symbol:
    """A symbolic event: a class of events that one state and its successors do not distinguish.

    Attributes
    ----------
    held : frozenset of _Column
        The guards that hold.
    assignment : PartialAssignment
        The truth values of its atoms that follow.
    node : str or None
        Its node, where the guards fix it.
    """

    held: frozenset[_Column]
    assignment: PartialAssignment
    node: str | None


class _TriedRun(NamedTuple):
    """A run that was in some state before two events: its state now, and what it took of them.

    `taken` has the group and the name of each event.
    """

    state: int
    taken: tuple[tuple[int, str], ...] = ()


class _Swaps:
    """The search for two concurrent events that do not commute."""

    def __init__(
        self, pattern: syntax.Pattern, automaton: Automaton, alphabet: Formula, theory: Theory
    ) -> None:
        self.pattern = pattern
        self.automaton = automaton
        self.strategy = pattern.selection
        self.find_kind = pattern.kind == "find"
        self._ways: dict[int, Ways] = {}
        self._known: dict[tuple[_Column, ...], list[_Symbol]] = {}
        self._overwritten: dict[int, Mapping[int, Formula]] = {}
        atoms = list(theory.atoms)
        self._nodes = _nodes(atoms)
        self._fixed = [alphabet]
        if pattern.deployment is not None and not pattern.deployment.everything:
            # A copy's own events stand at fixed places among what it is offered.
            self._fixed += [
                ("var", n, False) for n, a in enumerate(atoms) if a.shape == "localhost"
            ]
        for group in sorted({g for _, g in automaton.letters}):
            self._overwritten[group] = self._after(group, theory.atoms, atoms)
        self.theory = Theory(atoms, theory.limits)

    def _after(
        self, group: int, before: Sequence[Atom], atoms: list[Atom]
    ) -> Mapping[int, Formula]:
        """Return what relational atoms are once the other event is bound in `group`."""
        name = self.automaton.steps[group] if group != ANONYMOUS else None
        after: dict[int, Formula] = {}
        for number, atom in enumerate(before):
            if not atom.relational:
                continue
            prior, steps, history = registers(atom)
            if atom.shape == "barred" or (
                atom.shape in ("before", "own_node") and (prior or history or name in steps)
            ):
                after[number] = False
            elif atom.shape in ("concurrent", "other_node") and (prior or name in steps):
                after[number] = True
            elif name in steps:
                # Compared with the other event now: nothing is known of it.
                after[number] = ("var", len(atoms), True)
                atoms.append(Atom("after", (group, number), relational=True))
        return after

    # symbolic events

    def ways(self, state: int) -> Ways:
        """Return where events lead from a state."""
        ways = self._ways.get(state)
        if ways is None:
            ways = self._ways[state] = Ways(self.automaton, state)
        return ways

    def symbols(self, state: int) -> list[_Symbol]:
        """Return the symbolic alphabet events that a state and its successors distinguish.

        More than `CLASSES_MAX` are not all of them.
        """
        columns: dict[_Column, None] = {(None, c): None for c in self.ways(state).classes}
        for letter, target in self.automaton.table[state]:
            _, group = self.automaton.letters[letter]
            columns |= {(group, c): None for c in self.ways(target).classes}
        asked = tuple(columns)
        if asked not in self._known:
            self._known[asked] = self._distinguished(asked)
        return self._known[asked]

    def _distinguished(self, columns: tuple[_Column, ...]) -> list[_Symbol]:
        formulas = {column: self._formula(*column) for column in columns}
        # Most guards do not change when another event is taken: each is decided once.
        asked = tuple(dict.fromkeys(formulas.values()))
        known = self.theory.narrowed(PartialAssignment(), self._fixed)
        regions: list[Region] = []
        if known is not None and self.theory.satisfiable(known):
            regions = [((), known)]
        for number, formula in enumerate(asked):
            regions = split(regions, number, formula, self.theory)[: CLASSES_MAX + 1]
        symbols: list[_Symbol] = []
        for chosen, known in regions:
            satisfied = {asked[number] for number in chosen}
            held = frozenset(column for column, formula in formulas.items() if formula in satisfied)
            node = next((c for c, f in self._nodes.items() if self.theory.forces(known, f)), None)
            symbols.append(_Symbol(held, known, node))
        return symbols

    def _formula(self, overwritten: int | None, variants: tuple[int, ...]) -> Formula:
        formula = disjunction([self.automaton.formulas[v] for v in variants])
        if overwritten is None:
            return formula
        after = self._overwritten[overwritten]

        def literal(variable: Any) -> Formula:
            of = after.get(variable[1])
            return variable if of is None else of if variable[2] else negation(of)

        return with_literals(formula, literal)

    # runs of two events

    def find(self) -> tuple[int, str, str] | str | None:
        """Return (state, step, step) that do not commute, why no proof was found, or None."""
        unproven = " as far as can be shown: the steps overlap too much for a proof"
        swaps = 0
        held = (True,) if self.pattern.window is None else (True, False)
        windows = list(itertools.product(held, held, held))
        order = {name: number for number, name in enumerate(self.automaton.steps)}
        for state in range(len(self.automaton.table)):
            symbols = self.symbols(state)
            swaps += len(symbols) ** 2
            proven = len(symbols) <= CLASSES_MAX and swaps <= SWAPS_MAX
            tried = symbols if proven else symbols[:WITNESSES_MAX]
            for x, y in itertools.combinations_with_replacement(tried, 2):
                if x.node is not None and x.node == y.node:
                    continue  # one node's events are never concurrent
                for of_x, of_y, of_both in windows:
                    one, two = ("x", x, of_x), ("y", y, of_y)
                    if self._outcome(state, (one, two), of_both) != self._outcome(
                        state, (two, one), of_both
                    ):
                        names = [self._name(state, x), self._name(state, y)]
                        first, second = sorted(names, key=lambda name: order.get(name, len(order)))
                        return state, first, second
            if not proven:
                return unproven
        return None

    def _name(self, state: int, symbol: _Symbol) -> str:
        """Return the step that an event is in a state, else in one next to it."""
        here = self.ways(state).classes
        at_once = [(None, c) for c in here if (None, c) in symbol.held]
        later = sorted((g, c) for g, c in symbol.held if g is not None)
        for overwritten, variants in (*at_once, *later):
            for variant in variants:
                formula = self._formula(overwritten, (variant,))
                after = self.theory.narrowed(symbol.assignment, (formula,))
                if after is not None and self.theory.satisfiable(after):
                    return self.automaton.steps[self.automaton.variants[variant].step]
        return "an event of no step"

    def _outcome(
        self, state: int, events: Sequence[tuple[str, _Symbol, bool]], both_fit: bool
    ) -> object:
        """Return what two events lead to from a state: the runs after them, and what was found.

        Parameters
        ----------
        state : int
            The state of the run; of a find in the initial one each event can start another.
        events : sequence of (str, _Symbol, bool)
            In the order offered: the name of each, its class, and whether the run's window has it.
        both_fit : bool
            Whether the window of a run that took the first one has the second.
        """
        runs = [_TriedRun(state)]
        found: list[object] = []
        for event, symbol, fits in events:
            moved: list[_TriedRun] = []
            stayed: list[_TriedRun] = []
            for run in runs:
                within = both_fit if run.taken else fits
                starts = state == 0 or run.state == 0
                after = self._moves(run, symbol, event) if within or starts else []
                moved += after
                stays = not after if self.strategy == "next" else self.strategy == "any"
                if self.find_kind and (stays or run == _TriedRun(0)):
                    stayed.append(run)
            if self.find_kind:
                found += [run.taken for run in moved if run.state in self.automaton.finals]
            elif not moved:
                if self.pattern.violation_policy == "halt":
                    return "violation"
                if self.pattern.violation_policy == "resume":
                    return event, "resumes"  # not compared: the fresh run depends on the event
                found.append("violation")
                stayed = runs
            runs = stayed + moved
        return frozenset(map(self._read_later, runs)), sorted(map(repr, found))

    def _moves(self, run: _TriedRun, symbol: _Symbol, event: str) -> list[_TriedRun]:
        """Return where a symbolic event leads, after the other one if that was taken."""
        overwritten = run.taken[-1][0] if run.taken else None
        ways = self.ways(run.state)
        here = frozenset(c[0] for c in ways.classes if (overwritten, c) in symbol.held)
        try:
            targets = ways.targets(here)
        except KeyError:
            return []  # no event: comparisons with the other one are distinguished too finely
        return [_TriedRun(target, (*run.taken, (group, event))) for group, target in targets]

    def _read_later(self, run: _TriedRun) -> object:
        """Return what later events can tell a run by: a find reports all that it took."""
        if self.find_kind:
            return run
        live = self.automaton.live[run.state]
        return (
            run.state,
            run.taken[-1][1] if run.taken and live.prior else "",
            frozenset((g, e) for g, e in dict(run.taken).items() if g in live.steps),
            frozenset(event for _, event in run.taken) if live.history else frozenset(),
        )


def _nodes(atoms: Sequence[Atom]) -> Mapping[str, Formula]:
    """Return the atoms that fix an event's node, by its name."""
    return {
        a.payload[0]: ("var", n, True)
        for n, a in enumerate(atoms)
        if a.shape == "host" and not set("*?") & set(a.payload[0])
    } | {
        a.payload[2].value: ("var", n, True)
        for n, a in enumerate(atoms)
        if a.shape == "compare"
        and a.payload[:2] == ("==", syntax.Field("node"))
        and isinstance(a.payload[2], syntax.Literal)
    }
