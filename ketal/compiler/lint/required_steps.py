"""The steps that every word of a body has, the empty word apart.

The one rule: a step is required only if no way through the body avoids it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ketal.model import syntax
from ketal.model.syntax_walks import steps_of


def required_steps(body: syntax.Body) -> frozenset[str]:
    """Return the steps without which a body accepts the empty word at most."""
    match body:
        case syntax.Repeat(item=item):
            return required_steps(item)
        case syntax.AutomatonBody():
            return frozenset(s for s in steps_of(body) if not _accepts_without(body, s))
    return _of_every_word(body)


def _of_every_word(body: syntax.Body | syntax.Absent) -> frozenset[str]:
    """Return the steps that every word has, the empty one too."""
    match body:
        case syntax.Step(name=name):
            return frozenset((name,))
        case syntax.Sequence(items=items) | syntax.Together(items=items):
            return frozenset().union(*map(_of_every_word, items))
        case syntax.Alternation(items=items):
            return frozenset.intersection(*map(_of_every_word, items))
        case syntax.Repeat(item=item, least=least) if least:
            return _of_every_word(item)
    return frozenset()


def _accepts_without(body: syntax.AutomatonBody, step: str) -> bool:
    """Return whether an automaton accepts a word that has a step and not this one."""
    edges = [edge for edge in body.edges if edge.step != step]
    reached = _reached(body.initial, edges)
    left = [edge for edge in edges if edge.source in reached]
    if body.finals is None:
        return bool(left)
    return any(edge.target in body.finals for edge in left)


def _reached(initial: str, edges: Iterable[syntax.Edge]) -> set[str]:
    """Return the states that edges lead to from the initial one."""
    reached, more = {initial}, True
    while more:
        new = {e.target for e in edges if e.source in reached} - reached
        reached |= new
        more = bool(new)
    return reached
