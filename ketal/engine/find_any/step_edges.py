"""Edges: the transitions of an automaton by step, on which the events of a match stand.

The one rule: there is one edge for each state, step and state that it leads to.
"""

from __future__ import annotations

from typing import NamedTuple

from ketal.compiler.automaton import Automaton, Ways
from ketal.compiler.predicates import Formula, conjunction, disjunction


class StepEdge(NamedTuple):
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


def step_edges(automaton: Automaton) -> list[StepEdge]:
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
            # Where guards of a step lead apart, all that hold decide, not these alone.
            whole = sum(other == step for other, _ in held_by) == 1
            formula = disjunction(formulas)
            edges.append(StepEdge(len(edges), state, step, target, formula, whole))
    return edges
