"""Roles: where an event can stand in a match of `find any`, and its conditions on other events.

A match is a word that the automaton accepts, so each of its events stands on an *edge*: from
one state, by one step, to another. Given the local atoms of an event (its mask), the part of the
edge's guard that is left relates it to the events before it in the word. A *role* is an edge
together with that part, which has relations to earlier events as data, so that the events that may
stand beside it are found by bisection and not by trial.

The automaton is deterministic over its steps, so a binding has one path, and is found once.

The one rule: an event fits a role only if all of the role's conditions hold; where the role is
`exact`, if and only if.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, NamedTuple

from ketal.compiler.automaton import Automaton, Ways
from ketal.compiler.compiled_pattern import CompiledPattern, derived_once
from ketal.compiler.memo import Memo
from ketal.compiler.predicates import (
    RELATIONS,
    Formula,
    conjunction,
    disjunction,
    necessary,
    registers,
    simplify,
    variables,
)
from ketal.engine.configurations import Seen
from ketal.engine.find.windows import MatchWindow
from ketal.engine.machine import Machine
from ketal.model.events.event import Event
from ketal.model.syntax import ALL, PRIOR
from ketal.model.values import Key, keyed

MASKS_MAX = 65_536
"""The most masks whose roles are cached."""
PRIOR_ANCHOR: Final = -1
ALL_ANCHOR: Final = -2
"""Anchors that are not numbers of steps: the event before, and every event before."""


class ReleaseOrder(enum.Enum):
    """An order of arrival in which the event of a match offered last is the last of its word."""

    # Under arrival order the word is in the order offered, whatever that is.
    ANY = enum.auto()
    # Where all steps accept the same events, of the mirror images of a match the one in canonical
    # order is reported.
    CANONICAL = enum.auto()
    # Where each step is after the one before it: an order that respects happened-before.
    CAUSAL = enum.auto()


class StepEdge(NamedTuple):
    """An edge of the automaton: a step leads from one state to another.

    Its event satisfies `formula`. Where `whole` is false, an event that satisfies it may lead to
    another state, if other guards of the step hold too.
    """

    number: int
    source: int
    step: int
    target: int
    formula: Formula
    whole: bool


class Relation(NamedTuple):
    """`Causal` (before) or `Conc` (concurrent): its atom, and its anchor.

    The anchor is the number of a step, `PRIOR_ANCHOR` or `ALL_ANCHOR`.
    """

    atom: int
    concurrent: bool
    anchor: int


class Equality(NamedTuple):
    """`k == A.k`: the number of its atom, and the step that it refers to."""

    atom: int
    step: int


class Check(NamedTuple):
    """A comparison with the event of one earlier step, and its atom."""

    atom: int
    step: int
    holds: Callable[[Event, Event], bool]


@dataclass(slots=True, eq=False)
class StepRole:
    """An edge, and the part of its guard that the masks of some events leave."""

    edge: StepEdge
    left: Formula
    relations: tuple[Relation, ...]  # how its event must be related to earlier ones
    equalities: tuple[Equality, ...]  # the values it must have in common with them
    checks: tuple[Check, ...]  # the comparisons with them, equalities included
    nots: tuple[int, ...]  # that no event between it and the one before may break
    exact: bool  # whether these conditions are the whole guard
    starts: bool  # whether its event can be the first of a match
    ends: bool  # whether its event can be the last
    goes_on: bool  # whether its event can be followed by another
    alone: bool  # whether no match has its event and another
    sort_key: tuple[int, str] = field(init=False)  # the same in every process
    countable: bool = field(init=False)  # whether its conditions are relations to the prior event
    free: bool = field(init=False)  # whether any earlier event may come before it
    causal: bool = field(init=False)  # whether its event is after the one before it in the word
    conc: bool = field(init=False)  # whether its event is concurrent with that one

    def __post_init__(self) -> None:
        self.sort_key = self.edge.number, repr(self.left)
        to_prior = all(r.anchor == PRIOR_ANCHOR for r in self.relations)
        self.countable = self.exact and to_prior and not (self.checks or self.nots)
        self.free = not (self.relations or self.equalities or self.nots)
        self.causal = any(not r.concurrent and r.anchor < 0 for r in self.relations)
        self.conc = any(r.concurrent and r.anchor < 0 for r in self.relations)


Path = tuple[StepRole, ...]
"""The roles of the events of a part of a word, in order."""


class Roles:
    """The roles of a pattern, and how its matches are searched for."""

    def __init__(self, compiled: CompiledPattern) -> None:
        self.machine = machine = derived_once(Machine, compiled)
        automaton = machine.automaton
        self.compiled, self.relations = compiled, machine.relations
        self.window = MatchWindow(machine)
        self.edges = _edges(automaton)
        numbers = frozenset().union(*(variables(edge.formula) for edge in self.edges))
        used = [atom for n in numbers if (atom := automaton.atoms[n]).relational]
        related = any(atom.shape in RELATIONS for atom in used)
        # Whether some guard asks that an event is after another.
        self.reads_past = any(atom.shape == "before" for atom in used)
        # By mask: the use of such events; None for no use.
        self.by_mask = Memo(self._new_use, MASKS_MAX)
        self.nots = bool(automaton.nots)
        # Whether adjacent events whose steps are of one class may be exchanged.
        self.plain = not used and not self.nots
        self.classes = automaton.classes  # the class of each step's local guard
        equalities = {
            n: steps
            for n in self.compiled.bound.equalities
            if n in numbers and len(steps := registers(automaton.atoms[n]).steps) == 1
        }
        # Whether some edge leads back to the first state.
        self.returns = any(not edge.target for edge in self.edges)
        later = [self._new_role(e, e.formula) for e in self.edges if e.source or self.returns]
        # The roles of later steps that need not be after the event before them.
        self.not_causal = tuple([role for role in later if not role.causal])
        one_class = len({self.classes[edge.step] for edge in self.edges}) == 1
        # The order in which events must come for a forward search; None where there is none.
        self.order: ReleaseOrder | None = None
        if machine.arrival:
            self.order = ReleaseOrder.ANY
        elif self.plain and one_class:
            self.order = ReleaseOrder.CANONICAL
        elif not self.not_causal:
            self.order = ReleaseOrder.CAUSAL
        # Whether two matches can be mirror images: where a match's events have one order, these are
        # words of the same classes.
        self.mirrors = automaton.mirrors and not (self.order and self._classes_decide_word())
        # Whether the pattern allows that matches are counted without being listed.
        self.countable = not (self.window.bounded or self.mirrors)
        in_place = machine.arrival and not related
        # Whether a forward search uses the places of events only, not their nodes; and whether no
        # equality or `not` restricts them either.
        self.by_place = in_place or self.order is ReleaseOrder.CANONICAL
        self.by_place_alone = self.by_place and not (equalities or self.nots)
        self.longest = self._longest()
        # Whether events have bounds where any one of a match may come last.
        self.bounding = not equalities and self.longest is not None
        # For each step, the equalities that later steps have with its event.
        self.anchors = {
            step: [n for n, steps in equalities.items() if automaton.steps[step] in steps]
            for step in {edge.step for edge in self.edges}
        }
        self._made: dict[tuple[int, Formula], StepRole] = {}

    def _classes_decide_word(self) -> bool:
        """Return whether the steps that leave a state have different classes, in every state."""
        leaving: dict[int, set[int]] = {}
        for edge in self.edges:
            leaving.setdefault(edge.source, set()).add(edge.step)
        return all(
            len({self.classes[s] for s in steps}) == len(steps) for steps in leaving.values()
        )

    def _longest(self) -> int | None:
        """Return the length of the longest word; None if the automaton has a cycle."""
        before: dict[int, set[int]] = {0: set()}
        for edge in self.edges:
            before.setdefault(edge.target, set()).add(edge.source)
        lengths: dict[int, int] = {}
        try:
            for state in TopologicalSorter(before).static_order():
                lengths[state] = max([1 + lengths[n] for n in before.get(state, ())], default=0)
        except CycleError:
            return None
        return max(lengths.values())

    def are_mirrored(self, one: StepRole, two: StepRole) -> bool:
        """Return whether the events of two adjacent roles may be exchanged.

        Of these mirror images the one whose events are in canonical order is reported.
        """
        return self.plain and self.classes[one.edge.step] == self.classes[two.edge.step]

    # --- roles ---

    def use_of(self, seen: Seen) -> Use:
        """Return the use of an event that is kept."""
        use = self.by_mask[seen.mask]
        assert use is not None, "an event that is kept has a role"
        return use

    def _new_use(self, mask: int) -> Use | None:
        known = self.machine.local_truth(mask)
        left = [(edge, simplify(edge.formula, known)) for edge in self.edges]
        roles = tuple([self.role(edge, f) for edge, f in left if f is not False])
        breaks = self.machine.may_break_not(mask)
        if not (roles or breaks):
            return None
        lasting = tuple([role for role in roles if not role.alone])
        going_on = tuple([role for role in lasting if role.goes_on])
        ending = tuple([role for role in roles if role.ends])
        sources = _bits(0 if role.starts else role.edge.source + 1 for role in going_on)
        return Use(
            roles,
            lasting,
            going_on,
            ending,
            starting=tuple([role for role in roles if role.starts]),
            breaks=breaks,
            countable=all(role.countable for role in roles),
            sources=0 if ending or breaks else sources,
            targets=_bits(role.edge.target + 1 for role in going_on),
        )

    def role(self, edge: StepEdge, left: Formula) -> StepRole:
        """Return the role of the events whose masks leave `left` of an edge's guard."""
        role = self._made.get((edge.number, left))
        if role is None:
            role = self._made[edge.number, left] = self._new_role(edge, left)
        return role

    def _new_role(self, edge: StepEdge, left: Formula) -> StepRole:
        machine = self.machine
        atoms, steps = machine.automaton.atoms, machine.automaton.steps
        required = necessary(left)
        relations, equalities, checks = [], [], []
        covered: set[tuple[int, bool]] = set()  # literals that relations, checks and nots decide
        reads = False
        for n in sorted(variables(left)):
            atom = atoms[n]
            if not atom.relational:
                continue
            reads = reads or (atom.shape not in RELATIONS and bool(registers(atom).steps))
            if n not in required:
                continue
            if atom.shape in ("before", "concurrent"):
                name = atom.payload[0]
                anchor = {PRIOR: PRIOR_ANCHOR, ALL: ALL_ANCHOR}.get(name)
                if anchor is None:
                    anchor = steps.index(name) if name in steps else None
                if anchor is not None:
                    relations.append(Relation(n, atom.shape == "concurrent", anchor))
                covered.add((n, True))
            elif atom.shape in RELATIONS:
                continue
            elif len(names := registers(atom).steps) == 1 and (name := min(names)) in steps:
                step = steps.index(name)
                if n in self.compiled.bound.equalities:
                    equalities.append(Equality(n, step))
                holds = _comparison(self.compiled.bound.relational[n], name)
                checks.append(Check(n, step, holds))
                covered.add((n, True))
        parts = conjuncts(left)
        literals = {(part[1], part[2]) for part in parts if part[0] == "var"}
        nots = [n for n, holds in literals if not holds and atoms[n].shape == "barred"]
        numbers = tuple(sorted(atoms[n].payload[0] for n in nots))
        covered |= {(n, False) for n in nots if atoms[n].payload[0] not in machine.relational_nots}
        return StepRole(
            edge,
            left,
            tuple(relations),
            tuple(equalities),
            tuple(checks),
            numbers,
            exact=edge.whole and literals == covered and all(part[0] == "var" for part in parts),
            starts=not edge.source and not reads,
            ends=edge.target in machine.automaton.finals,
            goes_on=machine.can_continue[edge.target],
            alone=not (edge.source or self.returns or machine.can_continue[edge.target]),
        )

    def anchor_value(self, atom: int, step: int, event: Event) -> Key | None:
        """Return the earlier event's side of an equality; None if unknown."""
        bound = {self.machine.automaton.steps[step]: event}
        return keyed(self.compiled.bound.equalities[atom][1](bound))


class Use(NamedTuple):
    """The use of the events with one mask: their roles, and whether they can break a `not`.

    Of the roles, `lasting` are those whose events can be in a match with others, `going_on` those
    whose events can be followed by another, `ending` and `starting` those whose events can be last
    and first in a match. `countable` is whether all roles are countable. `sources` and `targets`
    are the states from which and to which the roles in `going_on` lead, as bits: bit 0 is the
    start of a match, bit n + 1 is state n. `sources` is 0 where an event cannot be deferred under
    a forward search, as it may complete a match or break a `not`.
    """

    roles: tuple[StepRole, ...]
    lasting: tuple[StepRole, ...]
    going_on: tuple[StepRole, ...]
    ending: tuple[StepRole, ...]
    starting: tuple[StepRole, ...]
    breaks: bool
    countable: bool
    sources: int
    targets: int


def _edges(automaton: Automaton) -> list[StepEdge]:
    """Return the edges of an automaton: one for each state, step and state that it leads to."""
    edges: list[StepEdge] = []
    for state in range(len(automaton.table)):
        enabled = frozenset(automaton.enabled[state])
        held_by: dict[tuple[int, int], list[Formula]] = {}
        for (step, held), target in Ways(automaton, state).by_classes.items():
            guards = [enabled.intersection(of_class) for of_class in sorted(held)]
            formula = conjunction(
                [disjunction([automaton.formulas[v] for v in sorted(guard)]) for guard in guards]
            )
            held_by.setdefault((step, target), []).append(formula)
        for (step, target), formulas in sorted(held_by.items()):
            # Where guards of a step lead to several states, all guards that hold decide.
            whole = sum(other == step for other, _ in held_by) == 1
            formula = disjunction(formulas)
            edges.append(StepEdge(len(edges), state, step, target, formula, whole))
    return edges


def conjuncts(formula: Formula) -> list[Any]:
    """Return the formulas whose conjunction is `formula`."""
    if isinstance(formula, bool):
        return []
    if formula[0] != "and":
        return [formula]
    return [part for joined in formula[1] for part in conjuncts(joined)]


def _bits(numbers: Iterable[int]) -> int:
    """Return the number in which the given bits are set."""
    return sum(1 << number for number in set(numbers))


def _comparison(
    function: Callable[[Event, Mapping[str, Event]], bool], name: str
) -> Callable[[Event, Event], bool]:
    return lambda event, anchor: function(event, {name: anchor})
