"""The body of a pattern as a position automaton (Glushkov 1961).

A state is an occurrence of a step in the body, so there are no empty moves, and a `not` is
on the edges between its neighbours. `automaton { … }` becomes a position automaton too, with a
state for each (state, step that enters it). Properties of all paths are computed here: which
steps are bound before a position, and whether two words can arrange the same events
(mirror images).

The one rule: nothing here depends on what a guard accepts.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ketal.errors import PatternError, pattern_error
from ketal.model import syntax
from ketal.model.graph_walks import reachable
from ketal.model.limits import Limits

EDGES_PER_STATE_MAX = 64
"""Edges of the position automaton, as a multiple of `states_max`."""

MIRRORS_LOOKED_MAX = 300
"""The most positions of a body that is searched for mirror images."""


@dataclass
class Positions:
    """The position automaton of a body; position 0 is the start."""

    steps: list[int] = field(default_factory=lambda: [-1])
    edges: set[tuple[int, tuple[int, ...], int]] = field(default_factory=set)
    finals: set[int] = field(default_factory=set)
    labels: dict[int, str] = field(default_factory=dict)
    """The name of each position's state, if the body is an `automaton { … }`."""

    def after(self) -> dict[int, set[int]]:
        """Return the successors of each position that has any."""
        after: dict[int, set[int]] = {}
        for p, _, q in self.edges:
            after.setdefault(p, set()).add(q)
        return after


@dataclass
class _Fragment:
    nullable: bool
    first: set[int]
    last: set[int]


class Glushkov:
    """Builds the position automaton of a regular body."""

    def __init__(
        self, numbers: Mapping[str, int], nots: Mapping[syntax.Guard, int], limits: Limits
    ) -> None:
        self.numbers = numbers
        self.nots = nots  # the guard of a `not` → its number
        self.limits = limits
        self.out = Positions()

    def build(self, body: syntax.Body) -> Positions:
        """Return the positions of a body."""
        self._body = body
        fragment = self._fragment(body)
        for position in fragment.first:
            self.out.edges.add((0, (), position))
        self.out.finals = set(fragment.last) | ({0} if fragment.nullable else set())
        return self.out

    def _link(self, last: set[int], first: set[int], nots: tuple[int, ...] = ()) -> None:
        edges_max = self.limits.states_max * EDGES_PER_STATE_MAX
        if len(last) * len(first) > edges_max:
            raise self._too_many()  # before the edges are made
        self.out.edges.update((p, nots, q) for p in last for q in first)
        if len(self.out.edges) > edges_max:
            raise self._too_many()

    def _too_many(self) -> PatternError:
        hint = "use smaller counts in {n,m} or fewer blocks in {A & B}"
        counts = _nested_counts(self._body)
        if len(counts) > 1:
            hint += f"; nested counts multiply, here {' × '.join(map(str, counts))}"
        message = f"the body needs more than {self.limits.states_max} states (limit states_max)"
        return pattern_error("K212", message, self._body.span, hint=hint)

    def _fragment(self, body: Any) -> _Fragment:
        match body:
            case syntax.Step(name=name):
                self.out.steps.append(self.numbers[name])
                if len(self.out.steps) > self.limits.states_max:
                    raise self._too_many()
                here = len(self.out.steps) - 1
                return _Fragment(False, {here}, {here})
            case syntax.Alternation(items=items):
                parts = [self._fragment(item) for item in items]
                return _Fragment(
                    any(p.nullable for p in parts),
                    set().union(*(p.first for p in parts)),
                    set().union(*(p.last for p in parts)),
                )
            case syntax.Together(items=items):
                orders = itertools.permutations(items)
                return self._fragment(
                    syntax.Alternation(tuple(syntax.Sequence(order) for order in orders))
                )
            case syntax.Sequence(items=items):
                return self._sequence(items)
            case syntax.Repeat(item=item, least=least, most=most):
                return self._repeat(item, least, most)
        raise AssertionError(body)

    def _sequence(self, items: Sequence[Any]) -> _Fragment:
        sequence = _Fragment(True, set(), set())
        nots: tuple[int, ...] = ()
        for item in items:
            if isinstance(item, syntax.Absent):
                nots = (*nots, self.nots[item.guard])
                continue
            part = self._fragment(item)
            self._link(sequence.last, part.first, tuple(sorted(set(nots))))
            nots = ()
            sequence = _Fragment(
                sequence.nullable and part.nullable,
                sequence.first | part.first if sequence.nullable else sequence.first,
                sequence.last | part.last if part.nullable else part.last,
            )
        assert not nots, "resolve rejects a leading or trailing not"
        return sequence

    def _repeat(self, item: Any, least: int, most: int | None) -> _Fragment:
        # A word of k copies uses the first k of them, so the copies form a chain.
        copies = [self._fragment(item) for _ in range(max(least, 1) if most is None else most)]
        for one, two in itertools.pairwise(copies):
            self._link(one.last, two.first)
        if most is None:
            self._link(copies[-1].last, copies[-1].first)
        if copies[0].nullable:
            least = 0
        return _Fragment(
            least == 0,
            copies[0].first,
            set().union(*(c.last for c in copies[max(least, 1) - 1 :])),
        )


def _nested_counts(body: Any) -> tuple[int, ...]:
    """Return the counts of the nested repetitions whose product is the largest."""
    if isinstance(body, syntax.Repeat):
        count = body.least if body.most is None else body.most
        inner = _nested_counts(body.item)
        return (count, *inner) if count > 1 else inner
    items = getattr(body, "items", ())
    return max(map(_nested_counts, items), key=math.prod, default=())


def automaton_positions(body: syntax.AutomatonBody, numbers: Mapping[str, int]) -> Positions:
    """Turn `automaton { … }` into positions: one for each (state, step that enters it)."""
    edges: set[tuple[int, tuple[int, ...], int]] = set()
    order = [(body.initial, -1)]
    index = {order[0]: 0}
    leaving: dict[str, list[syntax.Edge]] = {}
    for edge in body.edges:
        leaving.setdefault(edge.source, []).append(edge)
    for position, (state, _) in enumerate(order):  # which grows in the loop
        for edge in leaving.get(state, ()):
            following = (edge.target, numbers[edge.step])
            if following not in index:
                index[following] = len(order)
                order.append(following)
            edges.add((position, (), index[following]))
    finals = {n for n, (s, _) in enumerate(order) if body.finals is None or s in body.finals}
    labels = {position: state for position, (state, _) in enumerate(order)}
    before: dict[int, list[int]] = {}
    for p, _, q in edges:
        before.setdefault(q, []).append(p)
    alive = reachable(finals, before)
    # A prefix that no word of the body begins with is not allowed, in a check too.
    leading = {edge for edge in edges if edge[2] in alive}
    return Positions([step for _, step in order], leading, finals, labels)


def taken_before(
    positions: Positions, asked: frozenset[int], *, on_every_path: bool
) -> list[frozenset[int]]:
    """Return, for each position, the `asked` steps with an event on every, or some, path to it.

    The position's own event is included.
    """
    taken = [asked if on_every_path else frozenset[int]()] * len(positions.steps)
    taken[0] = frozenset()
    after = positions.after()
    todo = deque(range(len(taken)))
    while todo:
        p = todo.popleft()
        for q in after.get(p, ()):
            arriving = taken[p] | asked.intersection((positions.steps[q],))
            joined = taken[q] & arriving if on_every_path else taken[q] | arriving
            if joined != taken[q]:
                taken[q] = joined
                todo.append(q)
    return taken


def mirrors_possible(positions: Positions, class_of: Sequence[int]) -> bool:
    """Return whether two words can arrange the same events so that each keeps its class.

    They cannot if every two steps of a word have different classes, and no two classes
    occur in both orders. A large body is not searched: True is always safe, and only slower.
    """
    if len(positions.steps) > MIRRORS_LOOKED_MAX:
        return True
    after = positions.after()
    orders: set[tuple[int, int]] = set()
    for start in range(1, len(positions.steps)):
        first = class_of[positions.steps[start]]
        for second in {
            class_of[positions.steps[q]] for q in reachable(after.get(start, ()), after)
        }:
            if first == second or (second, first) in orders:
                return True
            orders.add((first, second))
    # Two words of the same events: `A B | C D` with A and C, B and D of one class.
    step_classes = [class_of[s] for s in set(positions.steps[1:])]
    return len(set(step_classes)) < len(step_classes)
