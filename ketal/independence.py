"""Ambiguity and order-sensitivity of an automaton (DESIGN 4).

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

from ketal import pattern as syntax
from ketal.alphabet import Known, Theory, negation
from ketal.atoms import Atom, Formula, conjunction, registers, simplify, variables
from ketal.automaton import ANONYMOUS, Automaton

SWAPS_MAX = 200_000
"""Pairs of symbolic events tried before a proof is given up."""

CLASSES_MAX = 512
"""Symbolic events told apart before a proof is given up."""


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
    told: set[tuple[int, int]] = set()
    bound = _exclusive(theory)
    registered = {group for _, group in automaton.letters}
    for state, row in enumerate(automaton.table):
        ways: dict[int, list[int]] = {}
        for (minterm, group), target in zip(automaton.letters, row, strict=True):
            if target >= 0:
                ways.setdefault(minterm, []).append(group)
        for minterm, groups in ways.items():
            if len(groups) < 2:
                continue
            term = set(automaton.minterms[minterm])
            asked = [
                formula if number in term else negation(formula)
                for number, formula in enumerate(automaton.formulas)
            ]
            if state and not theory.can_hold(*asked, *bound):
                continue
            steps = [
                next(
                    s
                    for s in _steps(automaton, state, term)
                    if group == (s if s in registered else ANONYMOUS)
                )
                for group in groups
            ]
            for one, two in itertools.combinations(sorted(set(steps)), 2):
                if (one, two) not in told:
                    told.add((one, two))
                    yield automaton.names[state], automaton.steps[one], automaton.steps[two]


def _steps(automaton: Automaton, state: int, term: set[int]) -> list[int]:
    return sorted({automaton.variants[v].step for v in automaton.enabled[state] if v in term})


def order_sensitivity(
    pattern: syntax.Pattern,
    automaton: Automaton,
    alphabet: Formula,
    theory: Theory,
    order_free: bool,
) -> str | None:
    """Return why a pattern is order-sensitive, None where it is proven not to be."""
    if order_free:
        return None
    if pattern.window is not None and isinstance(pattern.window.length, int):
        return "order-sensitive: `within … events` counts positions in the order offered"
    if pattern.kind == "find" and pattern.limit is not None:
        return "order-sensitive: which matches `limit` lists depends on the order offered"
    causal_any = pattern.order.kind == "causal" and pattern.strategy == "any"
    if pattern.kind == "find" and causal_any:
        # With `not`: defined by the partial order alone, and offered after its past.
        return None
    if pattern.kind == "find" and automaton.nots:
        return "order-sensitive: a `not` bars by what was offered in between"
    found = _Swaps(pattern, automaton, alphabet, theory).find()
    if found is None:
        return None
    if isinstance(found, str):
        return found
    state, one, two = found
    both = f"two `{one}`" if one == two else f"`{one}` and `{two}`"
    return f"order-sensitive: in state {automaton.names[state]}, {both} do not commute"


@dataclass(frozen=True)
class _Symbol:
    """A symbolic event: the variants it satisfies before and after each overwriting.

    Attributes
    ----------
    truth : mapping of group or None to frozenset of int
        None: with the registers as they were; g: after the other event was
        taken into group g.
    """

    truth: tuple[tuple[int | None, frozenset[int]], ...]
    node: str | None

    def given(self, group: int | None) -> frozenset[int]:
        return dict(self.truth)[group]


_Configuration = tuple[int, str, tuple[tuple[int, str], ...], frozenset[str], tuple[str, ...]]


class _Swaps:
    """The search for two concurrent events that do not commute."""

    def __init__(
        self, pattern: syntax.Pattern, automaton: Automaton, alphabet: Formula, theory: Theory
    ) -> None:
        self.pattern = pattern
        self.automaton = automaton
        self.theory = theory
        self.alphabet = alphabet
        self.groups = sorted({g for _, g in automaton.letters})
        self.strategy = "check" if pattern.kind == "check" else pattern.strategy or "next"
        self.find_kind = pattern.kind == "find"
        self.rows: list[dict[frozenset[int], list[tuple[int, int]]]] = []
        for state, row in enumerate(automaton.table):
            here = frozenset(automaton.enabled[state])
            ways: dict[frozenset[int], list[tuple[int, int]]] = {}
            seen: set[tuple[frozenset[int], int]] = set()
            for (minterm, group), target in zip(automaton.letters, row, strict=True):
                held = here & frozenset(automaton.minterms[minterm])
                if target >= 0 and (held, group) not in seen:
                    seen.add((held, group))
                    ways.setdefault(held, []).append((group, target))
            self.rows.append(ways)

    # symbolic events

    def _symbols(self) -> list[_Symbol] | None:
        """Return every symbolic alphabet event; None if there are too many."""
        atoms: list[Atom] = list(self.theory.atoms)
        columns: list[tuple[int | None, int, Formula]] = [
            (None, v, f) for v, f in enumerate(self.automaton.formulas)
        ]
        for group in self.groups:
            known, fresh = self._overwritten(group, atoms)
            columns += [
                (group, v, _rename(simplify(f, known), fresh))
                for v, f in enumerate(self.automaton.formulas)
            ]
        fixed = [self.alphabet]
        if self.pattern.deployment is not None and not self.pattern.deployment.everything:
            # A copy's own events stand at fixed places among what it is offered.
            fixed += [("var", n, False) for n, a in enumerate(atoms) if a.shape == "localhost"]
        theory = Theory(atoms, self.theory.limits)
        found: list[_Symbol] = []
        nodes = {
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

        # Most guards do not change when another event is taken: each is asked once.
        asked = tuple(dict.fromkeys(formula for _, _, formula in columns))
        for told, chosen in _classes(theory, fixed, asked):
            truth: dict[int | None, set[int]] = {g: set() for g in (None, *self.groups)}
            for overwritten, v, formula in columns:
                if formula in chosen:
                    truth[overwritten].add(v)
            node = next((c for c, f in nodes.items() if theory.forces(told, f)), None)
            found.append(_Symbol(tuple((g, frozenset(v)) for g, v in truth.items()), node))
            if len(found) > CLASSES_MAX:
                return None
        return found

    def _overwritten(
        self, group: int, atoms: list[Atom]
    ) -> tuple[Mapping[int, bool], Mapping[int, int]]:
        """Return what is known of relational atoms after the other event went to `group`."""
        name = self.automaton.steps[group] if group != ANONYMOUS else None
        known: dict[int, bool] = {}
        fresh: dict[int, int] = {}
        for number, atom in enumerate(self.theory.atoms):
            if not atom.relational:
                continue
            prior, steps, history = registers(atom)
            if atom.shape == "barred" or (
                atom.shape == "before" and (prior or history or name in steps)
            ):
                known[number] = False
            elif atom.shape == "concurrent" and (prior or name in steps):
                known[number] = True
            elif name in steps:
                # Compared with the other event now: nothing is known of it.
                fresh[number] = len(atoms)
                atoms.append(Atom("after", (group, number), True, relational=True, decided=True))
        return known, fresh

    # runs of two events

    def find(self) -> tuple[int, str, str] | str | None:
        """Return (state, step, step) that do not commute, why no proof was found, or None."""
        symbols = self._symbols()
        unproven = "order-sensitive as far as can be shown: the steps overlap too much for a proof"
        if symbols is None or len(symbols) ** 2 * len(self.rows) > SWAPS_MAX:
            return unproven
        windows: list[tuple[bool, bool, bool]] = [(True, True, True)]
        if self.pattern.window is not None:
            both = (True, False)
            windows = [(a, b, c) for a in both for b in both for c in both]
        for state in range(len(self.rows)):
            for x, y in itertools.combinations_with_replacement(symbols, 2):
                if x.node is not None and x.node == y.node:
                    continue  # one node's events are never concurrent
                for fits in windows:
                    if self._outcome(state, x, y, "x", "y", fits) != self._outcome(
                        state, y, x, "y", "x", (fits[1], fits[0], fits[2])
                    ):
                        return state, self._name(state, x), self._name(state, y)
        return None

    def _name(self, state: int, symbol: _Symbol) -> str:
        here = set(self.automaton.enabled[state])
        held = [v for _, vs in symbol.truth for v in sorted(vs)]
        chosen = next((v for v in held if v in here), held[0] if held else None)
        if chosen is None:
            return "an event of no step"
        return self.automaton.steps[self.automaton.variants[chosen].step]

    def _outcome(
        self,
        state: int,
        first: _Symbol,
        second: _Symbol,
        one: str,
        two: str,
        fits: tuple[bool, bool, bool],
    ) -> object:
        start: _Configuration = (state, "", (), frozenset(), ())
        said: list[object] = []
        after: list[tuple[_Configuration, int | None]] = []
        moved = self._moves(start, first.given(None), one) if fits[0] or state == 0 else []
        stays = not moved if self.strategy == "next" else self.strategy == "any"
        if self.find_kind and (stays or state == 0):
            after.append((start, None))
        after += moved
        if not self.find_kind and not moved:
            if self.pattern.on_violation in (None, "halt"):
                return "violation"
            said.append("violation")
            if self.pattern.on_violation == "resume":
                return (one, "resumes")  # not compared: the fresh run depends on the event
            after = [(start, None)]
        last: set[_Configuration] = set()
        said += [m for c, _ in moved for m in self._match(c)]
        none_moved = True
        for configuration, group in after:
            allowed = (fits[1] or state == 0) if group is None else (fits[2] or state == 0)
            again = (
                self._moves(configuration, second.given(group), two)
                if allowed or configuration[0] == 0
                else []
            )
            none_moved = none_moved and not again
            fresh = configuration[0] == 0 and not configuration[4] and group is None
            stays = not again if self.strategy == "next" else self.strategy == "any"
            if self.find_kind and (stays or (state == 0 and fresh)):
                last.add(configuration)
            last |= {self._kept(c) for c, _ in again}
            said += [m for c, _ in again for m in self._match(c)]
        if not self.find_kind and none_moved:
            if self.pattern.on_violation in (None, "halt"):
                return "violation"
            if self.pattern.on_violation == "resume":
                return (two, "resumes")
            said.append("violation")
            last = {self._kept(c) for c, _ in after}
        return frozenset(self._kept(c) for c in last), tuple(sorted(map(repr, said)))

    def _moves(
        self, configuration: _Configuration, held: frozenset[int], event: str
    ) -> list[tuple[_Configuration, int]]:
        state, _, steps, history, bound = configuration
        here = held & frozenset(self.automaton.enabled[state])
        out: list[tuple[_Configuration, int]] = []
        for group, target in self.rows[state].get(here, ()):
            kept = dict(steps)
            if group != ANONYMOUS:
                kept[group] = event
            said = (*bound, f"{group}:{event}") if self.find_kind else ()
            new = (target, event, tuple(sorted(kept.items())), history | {event}, said)
            out.append((self._kept(new), group))
        return out

    def _kept(self, configuration: _Configuration) -> _Configuration:
        """Return a configuration with only the registers that are read later."""
        state, prior, steps, history, bound = configuration
        live = self.automaton.live[state]
        return (
            state,
            prior if live.prior else "",
            tuple((g, e) for g, e in steps if g in live.steps),
            history if live.history else frozenset(),
            bound,
        )

    def _match(self, configuration: _Configuration) -> list[object]:
        if self.find_kind and configuration[0] in self.automaton.finals:
            return [configuration[4]]
        return []


def _classes(
    theory: Theory, fixed: Sequence[Formula], asked: Sequence[Formula]
) -> Iterator[tuple[Known, frozenset[Formula]]]:
    """Yield each set of formulas that some event satisfies exactly, `fixed` apart."""
    stack: list[tuple[int, Known | None, frozenset[Formula]]] = [
        (0, theory.narrowed(Known(), fixed), frozenset())
    ]
    while stack:
        at, known, chosen = stack.pop()
        if known is None or not theory.satisfiable(known):
            continue
        if at == len(asked):
            yield known, chosen
            continue
        formula = asked[at]
        stack.append((at + 1, theory.narrowed(known, (negation(formula),)), chosen))
        stack.append((at + 1, theory.narrowed(known, (formula,)), chosen | {formula}))


def _rename(formula: Formula, fresh: Mapping[int, int]) -> Formula:
    if isinstance(formula, bool) or not variables(formula) & fresh.keys():
        return formula
    if formula[0] == "var":
        return ("var", fresh[formula[1]], formula[2])
    return (formula[0], tuple(_rename(f, fresh) for f in formula[1]))
