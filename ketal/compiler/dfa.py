"""Determinisation: from the positions of a body to the minimal deterministic automaton.

The textbook construction determinises over the minterms of all guards of a pattern. It is
exponential if the guards are unrelated: eleven steps that each read an attribute of
their own make 2^11 - 1 classes of events, though no state
ever has to choose between more than one or two of them. So there are two stages.

1. *Over steps.* The position automaton, with the guards on edges (variants) as letters,
   is determinised, and minimised by automata-lib. Events play no part, and
   the result depends only on the language of the body over steps.
2. *Over events.* An event may satisfy several guards at once. All readings of it within
   one group (the steps whose events are bound alike) are followed together, so a state is
   now a set of states of the first stage (Rabin and Scott 1959). Such a state need not
   distinguish guards, only *classes* of guards: the guards that lead to the same states
   form one class, whose guard is their disjunction. The minterms are taken over
   the classes of one group in one state. If an event is bound to a register of its
   own, as in every `find`, a step is its own group, and there is rarely more than
   one class. If sets of several states arise, automata-lib minimises once more.

Symbolic automata are determinised over the minterms of the guards that leave one state,
not of all guards (D'Antoni and Veanes, "The Power of Symbolic Automata and Transducers",
CAV 2017). The remaining exponential cases are inherent: n overlapping guards that are
enabled together in one state, are bound alike, and lead to n different futures.

automata-lib stores a list for every pair of state and symbol, which is quadratic for a long
chain of steps. So letters are encoded as numbers in base 16
with a fixed number of digits. The code is uniquely decodable, and a state inside
a letter is never equivalent to a state between letters, so the states between
letters are those of the minimal automaton over whole letters.

The one rule: nothing that depends on hash order leaves this module.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ketal.compiler.automaton import Variant
from ketal.compiler.glushkov import Positions
from ketal.compiler.minterms import Theory, TooManyMintermsError, minterms
from ketal.compiler.predicates import Formula, disjunction
from ketal.errors import PatternError, Span, pattern_error
from ketal.model.limits import Limits

_Class: TypeAlias = tuple[int, ...]
"""The variants that lead to the same states, in order."""
_Minterm: TypeAlias = tuple[_Class, ...]
_Letter: TypeAlias = tuple[_Minterm, int]
"""The classes of one group of which some variant holds, and the group."""
_States: TypeAlias = frozenset[int]
_DIGITS = "0123456789abcdef"

MOVES_PER_STATE_MAX = 32
"""Moves of the automaton over events, as a multiple of `states_max`."""


@dataclass(frozen=True)
class Guards:
    """The guards on edges, with all that determinisation needs of each variant."""

    variants: tuple[Variant, ...]  # sorted
    formulas: tuple[Formula, ...]  # the guard of each variant
    groups: tuple[int, ...]  # the group of each variant
    spans: tuple[Span | None, ...]  # the place where the step of each variant is declared
    names: tuple[str, ...]  # the name of the step of each variant


@dataclass(frozen=True)
class Deterministic:
    """The minimal automaton; its fields are those of `ketal.compiler.automaton.Automaton`."""

    minterms: tuple[_Minterm, ...]
    letters: tuple[tuple[int, int], ...]
    table: tuple[tuple[tuple[int, int], ...], ...]
    finals: frozenset[int]
    names: tuple[str, ...]
    enabled: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class _Table:
    """A deterministic automaton with numbers for letters; state 0 is initial."""

    rows: Sequence[Mapping[int, int]]  # for each state, letter → next state
    finals: Collection[int]  # the accepting states
    origins: Sequence[_States]
    """For each state, the equivalent states of the automaton from which this one was made."""


def determinise(
    positions: Positions,
    guards: Guards,
    theory: Theory,
    *,
    check: bool,
    span: Span | None,
) -> Deterministic:
    """Return the minimal deterministic automaton of a body, which is at `span`.

    For a `check`, verdicts report the steps that may come next. States that differ in these steps
    are never merged: a step that is possible in only one of them is in a letter that the other one
    lacks. A PatternError if it has more than `states_max` states before equivalent ones are merged,
    or one of them more than `minterms_max` minterms.
    """
    numbers = {variant: number for number, variant in enumerate(guards.variants)}
    moves: list[dict[int, set[int]]] = [{} for _ in positions.steps]
    for p, nots, q in positions.edges:
        moves[p].setdefault(numbers[Variant(positions.steps[q], nots)], set()).add(q)
    subsets = _subsets(moves, positions.finals, theory.limits, span)
    steps = _minimal(subsets, len(numbers))
    return _OverEvents(steps, positions.labels, guards, theory, check, span).run()


def _too_many(limits: Limits, span: Span | None) -> PatternError:
    return pattern_error(
        "K212",
        f"the automaton has more than {limits.states_max} states before equivalent ones are "
        "merged (limit states_max)",
        span,
        hint="use smaller counts or steps that overlap less, or raise the limit",
    )


def _subsets(
    nfa: Sequence[Mapping[int, Collection[int]]],
    finals: Collection[int],
    limits: Limits,
    span: Span | None,
) -> _Table:
    """Return the deterministic automaton whose states are sets of states of `nfa`."""
    initial = frozenset((0,))
    reached = {initial}

    def moves(states: _States) -> Iterable[tuple[int, _States]]:
        successors: dict[int, set[int]] = {}
        for state in states:
            for letter, targets in nfa[state].items():
                successors.setdefault(letter, set()).update(targets)
        following = {letter: frozenset(targets) for letter, targets in successors.items()}
        reached.update(following.values())
        if len(reached) > limits.states_max:
            raise _too_many(limits, span)
        return following.items()

    return _breadth_first(
        initial, moves, lambda states: not states.isdisjoint(finals), lambda states: states
    )


# --- automata-lib ----------------------------------------------------------------------


def _minimal(automaton: _Table, letters: int) -> _Table:
    """Return the minimal form of a deterministic automaton, without dead states."""
    from automata.fa.dfa import DFA

    if not automaton.finals:  # all states are dead
        return _Table([{}], (), automaton.origins[:1])
    width = len(f"{max(letters - 1, 0):x}")
    transitions: dict[str, dict[str, str]] = {}
    for p, row in enumerate(automaton.rows):
        transitions[f"{p}"] = {}
        for letter, target in row.items():
            word, here = f"{letter:0{width}x}", f"{p}"
            for digit in word[:-1]:
                here = transitions[here].setdefault(digit, f"{here}.{digit}")
                transitions.setdefault(here, {})
            transitions[here][word[-1]] = f"{target}"
    dfa = DFA(
        states=set(transitions),
        input_symbols=set(_DIGITS[: max(letters, 1)] if width == 1 else _DIGITS),
        transitions=transitions,
        initial_state="0",
        final_states=set(map(str, automaton.finals)),
        allow_partial=True,
    ).minify(retain_names=True)  # a state is the set of the states that are equivalent to it
    return _breadth_first(
        dfa.initial_state,
        lambda state: _letters(dfa, state, width),
        lambda state: state in dfa.final_states,
        lambda state: frozenset().union(*(automaton.origins[int(name)] for name in state)),
    )


def _letters(dfa: Any, state: Any, width: int) -> Iterator[tuple[int, Any]]:
    """Yield (letter, next state) of a state, for each letter of `width` digits."""
    todo: list[tuple[str, Any]] = [("", state)]
    while todo:
        word, here = todo.pop()
        if len(word) == width:
            yield int(word, 16), here
        else:
            todo += [
                (word + digit, following) for digit, following in dfa.transitions[here].items()
            ]


def _breadth_first(
    initial: Any,
    moves: Callable[[Any], Iterable[tuple[int, Any]]],
    is_final: Callable[[Any], bool],
    origin: Callable[[Any], _States],
) -> _Table:
    """Return a deterministic automaton with its states numbered breadth-first, by letters.

    `moves` returns the transitions (letter, next state) of a state, `origin` its original states.
    """
    index = {initial: 0}
    order = [initial]
    rows: list[dict[int, int]] = []
    for state in order:
        row: dict[int, int] = {}
        for letter, target in sorted(moves(state)):
            if target not in index:
                index[target] = len(order)
                order.append(target)
            row[letter] = index[target]
        rows.append(row)
    finals = {index[state] for state in order if is_final(state)}
    return _Table(rows, finals, [origin(state) for state in order])


def _renumbered(automaton: _Table) -> _Table:
    """Return a deterministic automaton with its states numbered breadth-first, by letters."""
    return _breadth_first(
        0,
        lambda state: automaton.rows[state].items(),
        automaton.finals.__contains__,
        automaton.origins.__getitem__,
    )


# --- the second stage ----------------------------------------------------------------


@dataclass
class _OverEvents:
    """The subset construction over the minterms of each state (the second stage)."""

    steps: _Table
    labels: Mapping[int, str]  # of the positions of the body; empty for an expression
    guards: Guards
    theory: Theory
    check: bool
    span: Span | None

    def __post_init__(self) -> None:
        self.limits = self.theory.limits
        self._members: dict[int, _Class] = {}
        for variant, group in enumerate(self.guards.groups):
            self._members[group] = (*self._members.get(group, ()), variant)
        self._known_minterms: dict[tuple[_Class, ...], tuple[_Minterm, ...]] = {}
        self._merged = {origin: frozenset((n,)) for n, origin in enumerate(self.steps.origins)}

    def run(self) -> Deterministic:
        """Return the minimal automaton over minterms."""
        states = self._reachable()
        letters, rows = self._moves(states)
        finals = {n for n, s in enumerate(states) if not s.isdisjoint(self.steps.finals)}
        minimal = self._minimised(_Table(rows, finals, states), len(letters))
        terms = tuple(sorted({term for term, _ in letters}))
        numbers = {term: number for number, term in enumerate(terms)}
        return Deterministic(
            minterms=terms,
            letters=tuple((numbers[term], group) for term, group in letters),
            table=tuple(tuple(row.items()) for row in minimal.rows),
            finals=frozenset(minimal.finals),
            names=tuple(itertools.starmap(self._state_name, enumerate(minimal.origins))),
            enabled=tuple(map(self._enabled, minimal.origins)),
        )

    def _state_name(self, number: int, originals: _States) -> str:
        if not self.labels:
            return f"q{number}"
        return "|".join(sorted({self.labels[p] for s in originals for p in self.steps.origins[s]}))

    # states

    def _enabled(self, states: _States) -> _Class:
        return tuple(sorted(set().union(*(self.steps.rows[s] for s in states))))

    def _enabled_groups(self, states: _States) -> list[tuple[int, _Class]]:
        """Return each group that can take an event here, with the variants to distinguish.

        In a `find`, states that enable different variants of a step may be equivalent, so
        all variants of a group are distinguished in every state.
        """
        here: dict[int, _Class] = {}
        for variant in self._enabled(states):
            group = self.guards.groups[variant]
            here[group] = (*here.get(group, ()), variant)
        return [(g, vs if self.check else self._members[g]) for g, vs in sorted(here.items())]

    def _merge(self, targets: Iterable[_States]) -> _States:
        """Return the union of sets of states, or an equivalent set met before.

        Sets are equivalent if their states have the same positions of the body.
        """
        states = frozenset().union(*targets)
        if len(states) < 2:
            return states
        positions = frozenset().union(*(self.steps.origins[s] for s in states))
        return self._merged.setdefault(positions, states)

    def _targets(self, states: _States, variant: int) -> _States:
        rows = self.steps.rows
        return frozenset(rows[s][variant] for s in states if variant in rows[s])

    def _reachable(self) -> list[_States]:
        """Return the sets of states that some event leads to, breadth-first."""
        order = [frozenset((0,))]
        seen = set(order)
        moves_max = self.limits.states_max * MOVES_PER_STATE_MAX
        for states in order:
            for _, variants in self._enabled_groups(states):
                targets = {v: self._targets(states, v) for v in variants}
                terms = self._minterms(_group_by_value(targets))
                moves_max -= len(terms)
                for term in terms:
                    target = self._merge(targets[c[0]] for c in term)
                    if target and target not in seen:
                        seen.add(target)
                        order.append(target)
            if len(order) > self.limits.states_max or moves_max < 0:
                raise _too_many(self.limits, self.span)
        return order

    def _minterms(self, classes: tuple[_Class, ...]) -> tuple[_Minterm, ...]:
        """Return the minterms over classes: the sets of classes that one event can satisfy."""
        if len(classes) == 1:
            return (classes,)  # satisfiable: lint refuses unsatisfiable guards
        known = self._known_minterms.get(classes)
        if known is None:
            class_guards = [disjunction([self.guards.formulas[v] for v in c]) for c in classes]
            try:
                terms = minterms(class_guards, self.theory)
            except TooManyMintermsError as error:
                raise self._too_many_minterms(classes[error.number][0]) from None
            known = self._known_minterms[classes] = tuple(
                tuple(classes[n] for n in t) for t in terms
            )
        return known

    def _too_many_minterms(self, variant: int) -> PatternError:
        name = self.guards.names[variant]
        return pattern_error(
            "K211",
            f"with `{name}`, the steps possible at one point distinguish more than "
            f"{self.limits.minterms_max} classes of events (limit minterms_max)",
            self.guards.spans[variant],
            hint="make these steps exclude each other, for example by "
            "`type == …`, use fewer alternatives, or raise the limit",
        )

    # moves

    def _moves(self, states: Sequence[_States]) -> tuple[tuple[_Letter, ...], list[dict[int, int]]]:
        """Return the letters, in order, and the transitions of each state."""
        index = {s: n for n, s in enumerate(states)}
        classes = self._common_classes(states)
        by_state: list[dict[_Letter, int]] = []
        moves_max = self.limits.states_max * MOVES_PER_STATE_MAX
        for here in states:
            row: dict[_Letter, int] = {}
            for group, variants in self._enabled_groups(here):
                for term in self._minterms(classes[group, variants]):
                    target = self._merge(self._targets(here, c[0]) for c in term)
                    # A letter to an unreached state was proven to have no event.
                    if target in index:
                        row[term, group] = index[target]
            moves_max -= len(row)
            if moves_max < 0:
                raise _too_many(self.limits, self.span)
            by_state.append(row)
        letters = tuple(sorted(set().union(*by_state)))
        numbers = {letter: n for n, letter in enumerate(letters)}
        return letters, [{numbers[x]: target for x, target in row.items()} for row in by_state]

    def _common_classes(
        self, states: Sequence[_States]
    ) -> dict[tuple[int, _Class], tuple[_Class, ...]]:
        """Return the coarsest classes that all states with the same variants can share.

        With common letters, equivalent states can be recognised as such.
        """
        class_numbers: dict[tuple[int, _Class], dict[int, int]] = {}
        for here in states:
            for scope in self._enabled_groups(here):
                known = class_numbers.get(scope) or dict.fromkeys(scope[1], 0)
                pairs = {v: (known[v], self._targets(here, v)) for v in scope[1]}
                numbers = {pair: n for n, pair in enumerate(dict.fromkeys(pairs.values()))}
                class_numbers[scope] = {v: numbers[pair] for v, pair in pairs.items()}
        return {scope: _group_by_value(known) for scope, known in class_numbers.items()}

    # minimal

    def _minimised(self, whole: _Table, letters: int) -> _Table:
        """Return the minimal form of the automaton over events."""
        single = all(len(origin) == 1 for origin in whole.origins)
        if single and (self.check or all(len(vs) == 1 for vs in self._members.values())):
            # Each state is one state of the first stage, and those are minimal: a word over steps
            # that distinguishes two of them gives a word over events that does.
            return _renumbered(whole)
        return _minimal(whole, letters)


def _group_by_value(by: Mapping[int, Hashable]) -> tuple[_Class, ...]:
    """Return the variants grouped by equal value, in order."""
    out: dict[Hashable, list[int]] = {}
    for variant, value in by.items():
        out.setdefault(value, []).append(variant)
    return tuple(map(tuple, out.values()))
