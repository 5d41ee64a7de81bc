"""The picture of a compiled pattern's automaton.

Of steps that lead to the same states each is a way of its own; of two ways the
wider one adds nothing and is left out.

The one rule: a picture describes the automaton and judges nothing; every form has the
same states, edges and guards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ketal.compiler.automaton import Automaton
from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.errors import SettingError
from ketal.grammar.printer import render_guard
from ketal.model import syntax
from ketal.model.syntax_walks import walk
from ketal.pictures.graphs import svg
from ketal.pictures.graphs.graph_data import Graph, GraphEdge, GraphState, Way


@dataclass(frozen=True, slots=True)
class Picture(Graph):
    """The graph of a pattern, which also draws itself."""

    @classmethod
    def of(cls, compiled: CompiledPattern) -> Picture:
        """Describe a pattern's automaton."""
        automaton = compiled.automaton
        words = _GuardTexts(compiled)
        states = tuple(
            GraphState(n, name, n == 0, n in automaton.finals, automaton.expected((n,)))
            for n, name in enumerate(automaton.names)
        )
        edges = tuple(
            GraphEdge(source, target, tuple(map(words.way, ways)), minterms)
            for source, target, ways, minterms in _edges(automaton)
        )
        minterms = tuple(
            tuple(tuple(map(words.head, of_class)) for of_class in term)
            for term in automaton.minterms
        )
        return cls(
            pattern=compiled.name,
            strategy=compiled.strategy,
            fingerprint=compiled.fingerprint,
            states=states,
            edges=edges,
            guards=tuple((name, render_guard(guard)) for name, guard in compiled.guards),
            nots=words.nots,
            minterms=minterms,
        )

    def to_svg(self) -> str:
        """Draw it.

        Graphviz's `dot` lays it out where it is on the PATH, our layers of its own elsewhere.

        Raises
        ------
        SettingError
            If it has more than `SVG_STATES_MAX` states or `SVG_EDGES_MAX` edges.
        """
        return svg.draw(self)

    def _repr_svg_(self) -> str | None:
        """Draw it for a notebook; None where it cannot be drawn, so that its text is shown."""
        try:
            return self.to_svg()
        except SettingError:
            return None


class _GuardTexts:
    """The texts of steps and `not` guards."""

    def __init__(self, compiled: CompiledPattern) -> None:
        self.automaton = compiled.automaton
        self.guards = dict(compiled.guards)
        # The compiler numbers `not` guards as they stand in the body, equal ones once.
        absent = [n.guard for n in walk(compiled.pattern.body) if isinstance(n, syntax.Absent)]
        self.nots = tuple(map(self._absent, dict.fromkeys(absent)))
        assert len(self.nots) == len(self.automaton.nots), "a `not` guard is numbered otherwise"

    def _absent(self, guard: syntax.Guard) -> str:
        text = render_guard(guard)
        return text if isinstance(guard, syntax.Name) else f"({text})"

    def head(self, variant: int) -> str:
        return self.way(((variant,),)).head

    def way(self, classes: tuple[_Class, ...]) -> Way:
        """Return the way on which some variant of each class holds."""
        held = [[self.automaton.variants[v] for v in of_class] for of_class in classes]
        names = sorted({tuple(sorted({v.step for v in of_class})) for of_class in held})
        steps = tuple(" || ".join(self.automaton.steps[s] for s in of_class) for of_class in names)
        nots = tuple(self.nots[n] for n in sorted({n for vs in held for v in vs for n in v.nots}))
        return Way(steps, nots, self._guard(names))

    def _guard(self, classes: list[tuple[int, ...]]) -> str:
        operands: list[syntax.Guard] = []
        informative = False  # whether the guard is more than the names of the steps
        for of_class in classes:
            guards = [self.guards[self.automaton.steps[s]] for s in of_class]
            informative = informative or any(
                guard != syntax.Name(self.automaton.steps[s])
                for s, guard in zip(of_class, guards, strict=True)
            )
            if len(guards) > 1:
                operands.append(syntax.Or(tuple(guards)))
            else:
                operands.extend(guards[0].operands if isinstance(guards[0], syntax.And) else guards)
        if not informative:
            return ""  # events used as steps: the guard would repeat their names
        whole = operands[0] if len(operands) == 1 else syntax.And(tuple(operands))
        return render_guard(whole)


_Class = tuple[int, ...]
_Ways = tuple[tuple[_Class, ...], ...]


def _edges(automaton: Automaton) -> Iterator[tuple[int, int, _Ways, tuple[int, ...]]]:
    """Yield (source, target, ways as classes of variants, minterms), in order."""
    ways: dict[tuple[int, int], set[frozenset[_Class]]] = {}
    terms: dict[tuple[int, int], set[int]] = {}
    for source, row in enumerate(automaton.table):
        enabled = set(automaton.enabled[source])
        for letter, target in row:
            minterm, _ = automaton.letters[letter]
            here = frozenset(c for c in automaton.minterms[minterm] if not enabled.isdisjoint(c))
            ways.setdefault((source, target), set()).add(here)
            terms.setdefault((source, target), set()).add(minterm)
    for (source, target), sets in sorted(ways.items()):
        least = [s for s in sets if not any(o < s for o in sets)]
        # Of the steps of a lone class each is a way of its own.
        alone = {((v,),) for s in least if len(s) == 1 for of_class in s for v in of_class}
        several = {tuple(sorted(s)) for s in least if len(s) > 1}
        yield source, target, tuple(sorted(alone | several)), tuple(sorted(terms[source, target]))
