"""Ambiguity and order-sensitivity of an automaton.

Any linear extension of an execution can be turned into any other by swaps of two
neighbours that are concurrent. So a pattern is order-independent if, from every state, taking
two concurrent events x and y in either order leads to the same configurations
and the same verdicts. That is decided on symbolic events: x and y are each a set of
truth values of the guards, before and after the other event is taken. Once the other event
is taken, the registers that it overwrote hold an event concurrent with this one.

The one rule: "order-independent" is proven; what cannot be proven in
`SWAPS_MAX` steps is called order-sensitive.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ketal.analysis.bodies import Finding
from ketal.compiler.automaton import ANONYMOUS, Automaton, Ways
from ketal.compiler.memo import Memo
from ketal.compiler.minterms import PartialAssignment, Region, Theory, split
from ketal.compiler.predicates import (
    Atom,
    Formula,
    conjunction,
    disjunction,
    map_literals,
    negation,
    registers,
)
from ketal.model import syntax
from ketal.model.syntax_walks import walk
from ketal.operators.topology.domain_order import gives_up_order

SWAPS_MAX = 200_000
"""The most pairs of symbolic events that are tried before a proof is given up."""

CLASSES_MAX = 512
"""The most symbolic events of one state before a proof is given up."""

WITNESSES_MAX = 64
"""Symbolic events of a state that are still searched for a counterexample without a proof."""


def _exclusions(theory: Theory) -> dict[str, Formula]:
    """Return, by anchor, a formula that is false of an event both after and concurrent with it.

    It is true of every event once the anchor has an event.
    """
    numbers = {(atom.shape, atom.payload): number for number, atom in enumerate(theory.atoms)}
    return {
        payload[0]: negation(conjunction([("var", number, True), ("var", other, True)]))
        for (shape, payload), number in numbers.items()
        if shape == "before" and (other := numbers.get(("concurrent", payload))) is not None
    }


def _bound_anchors(automaton: Automaton, asked: frozenset[str]) -> list[frozenset[str]]:
    """Return, for each state, the `asked` anchors that have an event on every path to it."""
    bound = [asked] * len(automaton.table)
    bound[0] = frozenset()
    todo = deque(range(len(bound)))
    while todo:
        state = todo.popleft()
        for letter, target in automaton.table[state]:
            _, group = automaton.letters[letter]
            step = () if group == ANONYMOUS else (automaton.steps[group],)
            taken = asked.intersection((syntax.PRIOR, syntax.ALL, *step))
            joined = bound[target] & (bound[state] | taken)
            if joined != bound[target]:
                bound[target] = joined
                todo.append(target)
    return bound


def ambiguities(automaton: Automaton, theory: Theory) -> Iterator[tuple[str, str, str]]:
    """Yield (state, step, step) once for each two steps that one event can satisfy at once.

    Only pairs that lead to different configurations are ambiguous; the table has merged all others.
    """
    exclusions = _exclusions(theory)
    group_of = {
        v: group
        for minterm, group in automaton.letters
        for of_class in automaton.minterms[minterm]
        for v in of_class
    }
    reported: set[tuple[int, int]] = set()
    answers: dict[tuple[frozenset[str], int, int], bool] = {}
    visited: set[tuple[frozenset[str], tuple[int, ...]]] = set()
    anchors_of = _bound_anchors(automaton, frozenset(exclusions))
    for state, (bound, enabled) in enumerate(zip(anchors_of, automaton.enabled, strict=True)):
        if (bound, enabled) in visited:
            continue
        visited.add((bound, enabled))
        for one, two in itertools.combinations(enabled, 2):
            steps = automaton.variants[one].step, automaton.variants[two].step
            if group_of[one] == group_of[two] or steps in reported:
                continue
            key = (bound, one, two)
            if key not in answers:
                both = (automaton.formulas[one], automaton.formulas[two])
                known = (formula for name, formula in exclusions.items() if name in bound)
                answers[key] = theory.can_hold(*both, *known)
            if answers[key]:
                reported.add(steps)
                yield automaton.names[state], automaton.steps[steps[0]], automaton.steps[steps[1]]


def ordered_clauses(pattern: syntax.Pattern) -> list[str]:
    """Return the clauses for which even a `find any` needs a release order."""
    present = {
        "`not`": any(isinstance(node, syntax.Absent) for node in walk(pattern.body)),
        "`limit`": pattern.limit is not None,
        "`within … events`": _counts_events(pattern),
    }
    return [clause for clause, is_present in present.items() if is_present]


def needs_no_order(pattern: syntax.Pattern) -> bool:
    """Return whether the verdicts need no release order."""
    return _follows_partial_order(pattern) and not ordered_clauses(pattern)


def _follows_partial_order(pattern: syntax.Pattern) -> bool:
    """Return whether matches are defined by the partial order alone."""
    return pattern.kind == "find" and pattern.order.kind == "causal" and pattern.strategy == "any"


def _counts_events(pattern: syntax.Pattern) -> bool:
    """Return whether the window counts events."""
    return pattern.window is not None and isinstance(pattern.window.length, int)


def order_sensitivity(
    pattern: syntax.Pattern, automaton: Automaton, alphabet: Formula, theory: Theory
) -> Finding | None:
    """Return why a pattern is order-sensitive; None if it is proven order-independent."""
    if needs_no_order(pattern):
        return None
    total = "use `order CausalOrder(total)`, which makes the result deterministic"
    topology, window = pattern.topology, pattern.window
    # The events of one node have one order, and so has what a scope of them is offered.
    one_node = any(isinstance(k, syntax.Field) and k.name == "node" for k in pattern.partition)
    if topology is not None and gives_up_order(topology, theory.limits):
        cause = ": across a `relaxed` edge an event may be offered before its causes"
        span = next((edge for edge in topology.edges if edge.relaxed), topology).span
        hint = "remove `relaxed` to have causal order on every edge"
    elif not one_node and (reason := _step_reason(pattern, automaton, alphabet, theory)):
        cause, span, hint = reason, pattern.body.span or pattern.span, total
        if pattern.strategy == "any":  # under arrival order: see `_step_reason`
            hint = "use `order CausalOrder`, under which every order gives the same matches"
        elif pattern.kind == "find":
            hint += "; or `find any` under `order CausalOrder`, "
            hint += "which has the same matches in every order"
        elif pattern.order.frontier is None:  # which a mode excludes
            hint += "; or, for a finite log, `mode possibly`, which reports a violation that some "
            hint += "order of the events has"
    elif window is not None and _counts_events(pattern) and not one_node:
        cause = ": `within … events` counts positions in the order in which events are offered"
        span = window.span
        hint = f"use a time window, which does not depend on the order; or {total}"
    elif pattern.limit is not None:
        cause = ": the matches that `limit` lists depend on the order in which events are offered"
        span, hint = pattern.places.get("limit", pattern.span), f"remove `limit`; or {total}"
    else:
        return None
    return "K220", "warning", f"order-sensitive{cause}", span, hint


def _step_reason(
    pattern: syntax.Pattern, automaton: Automaton, alphabet: Formula, theory: Theory
) -> str | None:
    """Return why the runs of a pattern are order-sensitive; None if proven order-independent.

    `limit` and windows that count events are not considered here.
    """
    if _follows_partial_order(pattern):
        # With `not` too: under CausalOrder an event is offered after its past.
        return None
    if pattern.kind == "find" and automaton.nots:
        return ": what a `not` excludes depends on the events offered in between"
    swap = _Swaps(pattern, automaton, alphabet, theory).find()
    if swap is None or isinstance(swap, str):
        return swap
    state, one, two = swap
    return f": in state {automaton.names[state]}, {_pair_text(one, two)} do not commute"


def _pair_text(one: str, two: str) -> str:
    """Return two events in words, each given by the name of its step, or empty without a step."""
    if one == two:
        return f"two `{one}`" if one else "two events that no step accepts"
    return f"`{one}` and " + (f"`{two}`" if two else "an event that no step accepts")


_Column = tuple[int | None, tuple[int, ...]]
"""(group, variants): whether a symbolic event satisfies one of the variants after the other event
was bound in the group; None if the other event was not taken."""


@dataclass(frozen=True)
class _Symbol:
    """A symbolic event: a class of events that one state and its successors do not distinguish."""

    held: frozenset[_Column]  # the columns that the event satisfies
    assignment: PartialAssignment  # the truth values of atoms that follow from these
    node: str | None  # its node, if the guards determine it


class _TriedRun(NamedTuple):
    """A run while two events are tried: its state, and (group, name) of the events it took."""

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
        self.is_find = pattern.kind == "find"
        states = len(automaton.table)
        self._ways = Memo(partial(Ways, automaton), states)
        self._distinguished = Memo(self._distinguish, states)
        self._overwritten: dict[int, Mapping[int, Formula]] = {}
        atoms = list(theory.atoms)
        self._node_literals = _node_literals(atoms)
        self._premises = [alphabet]
        if pattern.deployment is not None and not pattern.deployment.everything:
            # A copy is offered its node's own events at fixed places, so these are not swapped.
            self._premises += [
                ("var", n, False) for n, a in enumerate(atoms) if a.shape == "localhost"
            ]
        for group in sorted({g for _, g in automaton.letters}):
            self._overwritten[group] = self._atoms_after(group, theory.atoms, atoms)
        self.theory = Theory(atoms, theory.limits)

    def _atoms_after(
        self, group: int, before: Sequence[Atom], atoms: list[Atom]
    ) -> Mapping[int, Formula]:
        """Return the values of relational atoms once the other event is bound in `group`."""
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
                # Compared with the other event now: a new atom with an unknown value.
                after[number] = ("var", len(atoms), True)
                atoms.append(Atom("after", (group, number), relational=True))
        return after

    # symbolic events

    def symbols(self, state: int) -> list[_Symbol]:
        """Return the symbolic events of the alphabet that a state and its successors distinguish.

        If there are more than `CLASSES_MAX`, the list is incomplete.
        """
        columns: dict[_Column, None] = {(None, c): None for c in self._ways[state].classes}
        for letter, target in self.automaton.table[state]:
            _, group = self.automaton.letters[letter]
            columns |= {(group, c): None for c in self._ways[target].classes}
        return self._distinguished[tuple(columns)]

    def _distinguish(self, columns: tuple[_Column, ...]) -> list[_Symbol]:
        formulas = {column: self._formula(*column) for column in columns}
        # Most guards do not change when another event is taken: decide equal ones once.
        distinct = tuple(dict.fromkeys(formulas.values()))
        known = self.theory.extended(PartialAssignment(), *self._premises)
        regions: list[Region] = [] if known is None else [((), known)]
        for number, formula in enumerate(distinct):
            regions = split(regions, number, formula, self.theory)[: CLASSES_MAX + 1]
        symbols: list[_Symbol] = []
        for chosen, known in regions:
            satisfied = {distinct[number] for number in chosen}
            held = frozenset(column for column, formula in formulas.items() if formula in satisfied)
            node = next(
                (c for c, f in self._node_literals.items() if self.theory.forces(known, f)), None
            )
            symbols.append(_Symbol(held, known, node))
        return symbols

    def _formula(self, overwritten: int | None, variants: tuple[int, ...]) -> Formula:
        formula = disjunction([self.automaton.formulas[v] for v in variants])
        if overwritten is None:
            return formula
        after = self._overwritten[overwritten]

        def literal(variable: Any) -> Formula:
            changed = after.get(variable[1])
            return variable if changed is None else changed if variable[2] else negation(changed)

        return map_literals(formula, literal)

    # runs of two events

    def find(self) -> tuple[int, str, str] | str | None:
        """Return (state, step, step) that do not commute, why a proof failed, or None if proven."""
        unproven = " unless proven otherwise: the steps overlap too much for a proof"
        swaps = 0
        fits = (True,) if self.pattern.window is None else (True, False)
        windows = list(itertools.product(fits, fits, fits))
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
        """Return a step that an event satisfies in a state, else in a successor, else nothing."""
        here = self._ways[state].classes
        at_once = [(None, c) for c in here if (None, c) in symbol.held]
        later = sorted((g, c) for g, c in symbol.held if g is not None)
        for overwritten, variants in (*at_once, *later):
            for variant in variants:
                formula = self._formula(overwritten, (variant,))
                if self.theory.extended(symbol.assignment, formula) is not None:
                    return self.automaton.steps[self.automaton.variants[variant].step]
        return ""

    def _outcome(
        self, state: int, events: Sequence[tuple[str, _Symbol, bool]], both_fit: bool
    ) -> object:
        """Return the outcome of two events from a state: the runs after them, and the verdicts.

        In the initial state of a `find` each event can start another run. `events` has, in the
        order offered, each event's name and class, and whether the run's window has it; `both_fit`
        is whether the second event is in the window of a run that took the first one.
        """
        runs = [_TriedRun(state)]
        verdicts: list[object] = []
        for event, symbol, fits in events:
            moved: list[_TriedRun] = []
            stayed: list[_TriedRun] = []
            for run in runs:
                within = both_fit if run.taken else fits
                starts = state == 0 or run.state == 0
                after = self._moved_runs(run, symbol, event) if within or starts else []
                moved += after
                stays = not after if self.strategy == "next" else self.strategy == "any"
                if self.is_find and (stays or run == _TriedRun(0)):
                    stayed.append(run)
            if self.is_find:
                verdicts += [run.taken for run in moved if run.state in self.automaton.finals]
            elif not moved:
                if self.pattern.violation_policy == "halt":
                    return "violation"
                if self.pattern.violation_policy == "resume":
                    return event, "resumes"  # not compared: the fresh run depends on the event
                verdicts.append("violation")
                stayed = runs
            runs = stayed + moved
        return frozenset(map(self._observable_part, runs)), sorted(map(repr, verdicts))

    def _moved_runs(self, run: _TriedRun, symbol: _Symbol, event: str) -> list[_TriedRun]:
        """Return the runs after a run takes a symbolic event; none if it cannot take the event."""
        overwritten = run.taken[-1][0] if run.taken else None
        ways = self._ways[run.state]
        here = frozenset(c[0] for c in ways.classes if (overwritten, c) in symbol.held)
        try:
            targets = ways.targets(here)
        except KeyError:
            return []  # no real event: comparisons with the other event are treated as unrelated
        return [_TriedRun(target, (*run.taken, (group, event))) for group, target in targets]

    def _observable_part(self, run: _TriedRun) -> object:
        """Return the part of a run that later verdicts depend on: of a `find`, all of it."""
        if self.is_find:
            return run
        live = self.automaton.live[run.state]
        return (
            run.state,
            run.taken[-1][1] if run.taken and live.prior else "",
            frozenset((g, e) for g, e in dict(run.taken).items() if g in live.steps),
            frozenset(event for _, event in run.taken) if live.history else frozenset(),
        )


def _node_literals(atoms: Sequence[Atom]) -> Mapping[str, Formula]:
    """Return the literals that determine an event's node, by the name of the node.

    `host("A")` does not: it covers all incarnations of A, whose events may be concurrent.
    """
    return {
        str(a.payload[2].value): ("var", n, True)
        for n, a in enumerate(atoms)
        if a.shape == "compare"
        and a.payload[:2] == ("==", syntax.Field("node"))
        and isinstance(a.payload[2], syntax.Literal)
    }
