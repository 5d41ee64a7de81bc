"""What checks of a pattern compute from its body, against the words of its position automaton."""

from __future__ import annotations

import random

from hypothesis import given, reject

from ketal.analysis.bodies import nullable, required_steps
from ketal.compiler.glushkov import Glushkov, Positions, automaton_positions
from ketal.errors import PatternError
from ketal.model import syntax as ast
from ketal.model.limits import DEFAULT
from ketal.model.syntax_walks import walk
from tests.property.patterns import pattern_file
from tests.sampling import chances, examples


def has_word_without(positions: Positions, step: int) -> bool:
    """Return whether some word, except the empty one, does not have a step."""
    after, met, todo = positions.after(), set[int](), [0]
    while todo:
        fresh = {q for q in after.get(todo.pop(), ()) if positions.steps[q] != step} - met
        met |= fresh
        todo += fresh
    return bool(met & positions.finals)


def positions_of(body: ast.Body, numbers: dict[str, int]) -> Positions:
    if isinstance(body, ast.AutomatonBody):
        return automaton_positions(body, numbers)
    nots = (node.guard for node in walk(body) if isinstance(node, ast.Absent))
    guards = {guard: number for number, guard in enumerate(nots)}
    try:
        return Glushkov(numbers, guards, DEFAULT).build(body)
    except PatternError:  # too many states
        reject()


@examples(150, 5_000)
@given(chances())
def test_empty_word_and_required_steps_are_those_of_the_position_automaton(
    rng: random.Random,
) -> None:
    """Of a body and of each group in it, also if repeated."""
    (pattern,) = pattern_file(rng).patterns
    nodes = list(walk(pattern.body))
    steps = {n.name for n in nodes if isinstance(n, ast.Step)}
    steps |= {n.step for n in nodes if isinstance(n, ast.Edge)}
    numbers = {step: number for number, step in enumerate(sorted(steps))}
    groups = [n for n in nodes if isinstance(n, ast.Body)]
    repeated = [ast.Repeat(n, 1, None) for n in groups if not isinstance(n, ast.AutomatonBody)]
    for body in (*groups, *repeated):
        positions = positions_of(body, numbers)
        required = {step for step in steps if not has_word_without(positions, numbers[step])}
        assert nullable(body) == (0 in positions.finals)
        if nullable(body) and not isinstance(body, ast.AutomatonBody):
            assert required_steps(body) <= required
        else:
            assert required_steps(body) == required
