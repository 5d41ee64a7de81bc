"""Roles: where an event can stand in a match of `find any`, and what that asks of the others.

A match is a word that the automaton accepts, so each of its events stands on an *edge*: from
one state, by one step, to another. The local atoms of an event (its mask) leave of the edge's
guard what relates it to the events before it in the word. A *role* is an edge together with
what is left: relations to earlier events as data, so that the events that may stand beside it
are found by bisection and not by trial.

The automaton is deterministic over its steps, so a binding has one path, and is found once.

The one rule: an event fits a role only if all that the role asks holds; where the role is
`exact`, if and only if.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ketal.compiler.automaton import CompiledPattern, Ways
from ketal.compiler.predicates import (
    Formula,
    conjunction,
    disjunction,
    necessary,
    registers,
    simplify,
    variables,
)
from ketal.engine.machine import Machine
from ketal.model.event import Event
from ketal.model.syntax import ALL, PRIOR
from ketal.model.values import Key, keyed

MASKS_MAX = 65_536
"""Masks whose roles are cached."""
PRIOR_ANCHOR = -1
ALL_ANCHOR = -2
"""Anchors that are no step's number: the event before, and every event before."""


class Relation(NamedTuple):
    """`Causal` (before) or `Conc` (concurrent), and its anchor: a step's number or one of two."""

    concurrent: bool
    anchor: int


class Equality(NamedTuple):
    """`k == A.k`: the number of its atom, and the step that it refers to."""

    atom: int
    step: int


class Check(NamedTuple):
    """A comparison with the event of one earlier step."""

    step: int
    holds: Callable[[Event, Event], bool]


class Edge(NamedTuple):
    """An edge of the automaton: a step leads from one state to another.

    `formula` is what its event satisfies; where `whole` is false it may lead elsewhere all the
    same, as other guards of the step hold as well.
    """

    number: int
    source: int
    step: int
    target: int
    formula: Formula
    whole: bool


@dataclass(frozen=True, eq=False)
class Role:
    """An edge, and what the masks of some events leave of its guard.

    Attributes
    ----------
    edge : Edge
        The edge.
    left : Formula
        What is left of its guard.
    relations : tuple of Relation
        How its event must be related to earlier ones.
    equalities, checks : tuple of Equality, tuple of Check
        What it must have in common with earlier ones.
    nots : tuple of int
        The `not` guards that no event between it and the one before may break.
    exact : bool
        Whether these are all that the guard asks.
    starts : bool
        Whether its event can be the first of a match.
    ends, goes_on : bool
        Whether its event can be the last of a match, and whether it need not be.
    alone : bool
        Whether its event is a match by itself, or none.
    """

    edge: Edge
    left: Formula
    relations: tuple[Relation, ...]
    equalities: tuple[Equality, ...]
    checks: tuple[Check, ...]
    nots: tuple[int, ...]
    exact: bool
    starts: bool
    ends: bool
    goes_on: bool
    alone: bool

    @cached_property
    def order(self) -> tuple[int, str]:
        """What roles are sorted by, the same in every process."""
        return self.edge.number, repr(self.left)

    @cached_property
    def causal(self) -> bool:
        """Whether its event is after the one before it in the word."""
        return any(not r.concurrent and r.anchor < 0 for r in self.relations)

    @cached_property
    def conc(self) -> bool:
        """Whether its event is concurrent with the one before it in the word."""
        return any(r.concurrent and r.anchor < 0 for r in self.relations)


class Roles:
    """The roles of a pattern, and how its matches are searched for.

    Parameters
    ----------
    machine : Machine
        The automaton, made ready.

    Attributes
    ----------
    by_mask : dict of int to tuple of Role
        The roles of the events with a mask, made when first asked for.
    chained : bool
        Whether each event of a match but the first is after the one before it.
    bounding : bool
        Whether events have bounds where any one of a match may come last: the words have a
        bounded length, and no equality narrows the search.
    equating : bool
        Whether an equality with an earlier step narrows the search.
    related : bool
        Whether some guard asks for the causal relation of events.
    prior_only : bool
        Whether guards ask about the event before alone.
    plain : bool
        Whether guards are local and there is no `not`: neighbours of a class may change places.
    classes : tuple of int
        The class of each step's local guard.
    one_class : bool
        Whether that is one for all steps.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        automaton = machine.automaton
        self.compiled: CompiledPattern = machine.compiled
        self.edges = list(_edges(machine))
        used = [atom for n in _used(self.edges) if (atom := automaton.atoms[n]).relational]
        read = [registers(atom) for atom in used]
        relations = [atom for atom in used if atom.shape in ("before", "concurrent")]
        # A `not` whose guard compares needs what was taken, not the event alone.
        self.by_mask = _ByMask(self)
        self.related = bool(relations) or bool(machine.relational_nots)
        self.prior_only = all(not steps and not history for _, steps, history in read)
        self.nots = bool(automaton.nots)
        self.plain = not used and not self.nots
        self.classes = automaton.classes
        self.one_class = len({self.classes[edge.step] for edge in self.edges}) == 1
        self.equating = any(_is_indexed(self.compiled, n) for n in _used(self.edges))
        self._returns = any(not edge.target for edge in self.edges)
        later = [self._role(e, e.formula) for e in self.edges if e.source or self._returns]
        self.chained = all(role.causal for role in later)
        self.bounding = not self.equating and not self._has_loop()
        self.anchors = {s: self._equalities_with(s) for s in {edge.step for edge in self.edges}}
        self._made: dict[tuple[int, Formula], Role] = {}

    def _has_loop(self) -> bool:
        reach: dict[int, set[int]] = {}
        for edge in self.edges:
            reach.setdefault(edge.source, set()).add(edge.target)
        for start in reach:
            seen, todo = set[int](), [start]
            while todo:
                for target in reach.get(todo.pop(), ()):
                    if target == start:
                        return True
                    if target not in seen:
                        seen.add(target)
                        todo.append(target)
        return False

    def _equalities_with(self, step: int) -> tuple[int, ...]:
        """Return the equalities that later steps have with an event of this one."""
        name = self.machine.automaton.steps[step]
        return tuple(
            n
            for n in self.compiled.equalities
            if n in _used(self.edges) and registers(self.machine.automaton.atoms[n])[1] == {name}
        )

    def are_mirrored(self, one: Role, two: Role) -> bool:
        """Return whether the events of two neighbours may change places.

        Of these mirror images the one whose events rise in canonical order is the match.
        """
        return self.plain and self.classes[one.edge.step] == self.classes[two.edge.step]

    # --- roles ---

    def role_of(self, edge: Edge, mask: int) -> Role | None:
        """Return the role of events with a mask on an edge; None if they cannot stand there."""
        left = simplify(edge.formula, self.machine.local(mask))
        if left is False:
            return None
        role = self._made.get((edge.number, left))
        if role is None:
            role = self._made[edge.number, left] = self._role(edge, left)
        return role

    def _role(self, edge: Edge, left: Formula) -> Role:
        machine = self.machine
        atoms, steps = machine.automaton.atoms, machine.automaton.steps
        asked = necessary(left)
        relations, equalities, checks = [], [], []
        sure: set[int] = set()  # what of the formula these say
        reads = False
        for n in sorted(variables(left)):
            atom = atoms[n]
            reads = reads or (atom.relational and bool(registers(atom)[1]) and _refers(atom))
            if n not in asked or not atom.relational:
                continue
            if atom.shape in ("before", "concurrent"):
                name = atom.payload[0]
                anchor = {PRIOR: PRIOR_ANCHOR, ALL: ALL_ANCHOR}.get(name)
                if anchor is None:
                    anchor = steps.index(name) if name in steps else None
                if anchor is not None:
                    relations.append(Relation(atom.shape == "concurrent", anchor))
                sure.add(n)
            elif len(names := registers(atom)[1]) == 1 and (name := min(names)) in steps:
                step = steps.index(name)
                if n in self.compiled.equalities:
                    equalities.append(Equality(n, step))
                checks.append(Check(step, _comparison(self.compiled.relational[n], name)))
                sure.add(n)
        barred = {n for n in variables(left) if atoms[n].shape == "barred"}
        nots = [n for n in barred if _denied(left, n)]
        numbers = tuple(sorted(atoms[n].payload[0] for n in nots))
        sure |= {n for n in nots if atoms[n].payload[0] not in machine.relational_nots}
        return Role(
            edge,
            left,
            tuple(relations),
            tuple(equalities),
            tuple(checks),
            numbers,
            exact=edge.whole and sure == variables(left) and _is_conjunction(left),
            starts=not edge.source and not reads,
            ends=edge.target in machine.automaton.finals,
            goes_on=machine.has_way_on[edge.target],
            alone=not (edge.source or self._returns or machine.has_way_on[edge.target]),
        )

    # --- the two sides of an equality ---

    def later_value(self, atom: int, event: Event) -> Key | None:
        """Return the value that an equality compares of the later event; None if unknown."""
        return keyed(self.compiled.equalities[atom][0](event))

    def anchor_value(self, atom: int, step: int, event: Event) -> Key | None:
        """Return the value that an equality compares of the earlier event; None if unknown."""
        bound = {self.machine.automaton.steps[step]: event}
        return keyed(self.compiled.equalities[atom][1](bound))


class _ByMask(dict[int, tuple[Role, ...]]):
    """The roles of events with a mask, made as masks are met."""

    def __init__(self, roles: Roles) -> None:
        self._roles = roles

    def __missing__(self, mask: int) -> tuple[Role, ...]:
        if len(self) >= MASKS_MAX:
            self.clear()
        found = (self._roles.role_of(edge, mask) for edge in self._roles.edges)
        made = self[mask] = tuple([role for role in found if role is not None])
        return made


def _edges(machine: Machine) -> list[Edge]:
    """Return the edges of an automaton, one for each set of guards of a step that hold together."""
    automaton = machine.automaton
    edges: list[Edge] = []
    for state in range(len(automaton.table)):
        ways = Ways(automaton, state)
        for (step, held), target in sorted(
            ways.by_classes.items(), key=lambda way: (way[0][0], sorted(way[0][1]))
        ):
            guards = [[v for v in c if v in automaton.enabled[state]] for c in sorted(held)]
            formula = conjunction(
                disjunction(automaton.formulas[v] for v in guard) for guard in guards
            )
            sets = sum(other == step for other, _ in ways.by_classes)
            edges.append(Edge(len(edges), state, step, target, formula, sets == 1))
    return edges


def _used(edges: list[Edge]) -> frozenset[int]:
    return frozenset().union(*(variables(edge.formula) for edge in edges))


def _is_indexed(compiled: CompiledPattern, number: int) -> bool:
    atom = compiled.automaton.atoms[number]
    return number in compiled.equalities and len(registers(atom)[1]) == 1


def _refers(atom: Any) -> bool:
    return atom.shape not in ("before", "concurrent", "barred")


def _comparison(
    function: Callable[[Event, Mapping[str, Event]], bool], name: str
) -> Callable[[Event, Event], bool]:
    return lambda event, anchor: function(event, {name: anchor})


def _is_conjunction(formula: Formula) -> bool:
    if isinstance(formula, bool) or formula[0] == "var":
        return True
    return formula[0] == "and" and all(f[0] == "var" for f in formula[1])


def _denied(formula: Formula, number: int) -> bool:
    """Return whether a conjunction says that a variable is off."""
    if isinstance(formula, bool):
        return False
    if formula[0] == "var":
        return bool(formula[1] == number and not formula[2])
    return formula[0] == "and" and any(_denied(f, number) for f in formula[1])
