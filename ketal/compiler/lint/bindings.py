"""Which steps have an event when a guard is evaluated: references, anchors, relations.

A reference `First.hash` needs an event of `First` on every path to it, an anchor on some path. A
step that must be both after and concurrent with events that every path binds is impossible.

The one rule: a path of the position automaton is a path, whatever events it would need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ketal.analysis.bodies import Finding
from ketal.compiler.glushkov import Positions, bound_before, taken_before
from ketal.compiler.minterms import Theory
from ketal.compiler.predicates import Atom, Formula
from ketal.errors import Span
from ketal.model import syntax
from ketal.model.syntax_walks import references, walk


class Bindings:
    """The checks of what a pattern's guards refer to.

    Parameters
    ----------
    positions : Positions
        The position automaton of the body.
    steps : tuple of str
        The steps' names, by number.
    guards : mapping of str to Guard
        The guard of each step.
    not_guards : tuple of Guard
        The guards of `not`s, by number.
    """

    def __init__(
        self,
        positions: Positions,
        steps: tuple[str, ...],
        guards: Mapping[str, syntax.Guard],
        not_guards: tuple[syntax.Guard, ...],
    ) -> None:
        self.positions = positions
        self.steps = steps
        self.numbers = {name: number for number, name in enumerate(steps)}
        self.guards = guards
        self.not_guards = not_guards

    def _numbers(self, names: Iterable[str]) -> frozenset[int]:
        return frozenset(self.numbers[name] for name in names if name in self.numbers)

    def unbound_references(self, returns: syntax.Returns | None) -> Iterator[Finding]:
        """Yield each reference to a step that is unbound on some path."""
        guards = [references(self.guards[name]) for name in self.steps]
        nots = [references(guard) for guard in self.not_guards]
        returned = [] if returns is None else references(returns)
        asked = {r.step for part in (*guards, *nots, returned) for r in part}
        bound = bound_before(self.positions, self._numbers(asked))
        missing: dict[str, Span | None] = {}

        def need(wanted: list[syntax.Reference], have: frozenset[int] | None) -> None:
            for reference in wanted:
                number = self.numbers.get(reference.step)
                if have is not None and (number is None or number not in have):
                    missing.setdefault(reference.step, reference.span)

        for p, on_edge, q in self.positions.edges:
            need(guards[self.positions.steps[q]], bound[p])
            for number in on_edge:
                need(nots[number], bound[p])
        for position in self.positions.finals:
            need(returned, bound[position])
        for step, span in missing.items():
            yield (
                "K201",
                "error",
                f"`{step}` has no event on some path to this reference",
                span,
                f"every path to here must pass `{step}` first; an anchor "
                f"(`Causal(g, {step})`) may be unbound, a reference may not",
            )

    def void_anchors(self) -> Iterator[Finding]:
        """Yield each anchor that has no event on any path: the guard stands alone then."""
        guards = [*self.guards.values(), *self.not_guards]
        asked = self._numbers(a.anchor for g in guards for a in _anchored(g))
        taken = taken_before(self.positions, asked)
        # What may have been taken before each guard: steps, and whether anything.
        steps: dict[str, tuple[set[int], bool]] = {}
        nots: dict[int, set[int]] = {}
        for p, on_edge, q in self.positions.edges:
            name = self.steps[self.positions.steps[q]]
            known, anything = steps.get(name, (set(), False))
            steps[name] = (known | taken[p], anything or p != 0)
            for number in on_edge:
                nots.setdefault(number, set()).update(taken[p])
        for name, (known, anything) in steps.items():
            for node in _anchored(self.guards[name]):
                yield from self._void_anchor(node, known, anything, f"`{name}`")
        for number, known in nots.items():
            for node in _anchored(self.not_guards[number]):
                yield from self._void_anchor(node, known, True, "this `not`")

    def _void_anchor(
        self, node: syntax.Causal | syntax.Conc, known: set[int], anything: bool, before: str
    ) -> Iterator[Finding]:
        if node.anchor in (syntax.PRIOR, syntax.ALL):
            if anything:
                return
            why = f"no event is taken before {before}"
            hint = "leave it out, or put a step before it in the body"
        elif node.anchor not in self.numbers:
            why = f"the step `{node.anchor}` is not in the body"
            hint = f"put `{node.anchor}` into the body before {before}, or name another anchor"
        elif self.numbers[node.anchor] not in known:
            why = f"on no path does `{node.anchor}` have an event before {before}"
            hint = f"an anchor stands before {before} in the body, or in a repetition around both"
        else:
            return
        message = f"`{type(node).__name__}` asks nothing here: {why}"
        yield "K223", "warning", message, node.anchor_span or node.span, hint

    def impossible_relations(
        self,
        formulas: Sequence[Formula],
        atoms: Sequence[Atom],
        theory: Theory,
        spans: Mapping[str, Span | None],
    ) -> Iterator[Finding]:
        """Yield each step both after and concurrent with events that are always bound."""
        asked = {
            shape: [(n, atom.payload[0]) for n, atom in enumerate(atoms) if atom.shape == shape]
            for shape in ("before", "concurrent")
        }
        pairs = [(b, c, {x, y}) for b, x in asked["before"] for c, y in asked["concurrent"]]
        if not pairs:
            return
        bound = bound_before(self.positions, frozenset(range(len(self.steps))))
        alive: dict[int, bool] = {}
        for p, _, q in self.positions.edges:
            step, known = self.positions.steps[q], bound[p]
            if known is None or alive.get(step):
                continue
            anchors = {self.steps[number] for number in known}
            same = [{anchor, syntax.ALL} for anchor in anchors]
            if p:
                prior = self.steps[self.positions.steps[p]]
                anchors |= {syntax.PRIOR, syntax.ALL}
                same += [{syntax.PRIOR, syntax.ALL}, {syntax.PRIOR, prior}]
            never_both = [
                ("or", (("var", b, False), ("var", c, False)))
                for b, c, of in pairs
                if of <= anchors and (len(of) == 1 or of in same)
            ]
            alive[step] = theory.can_hold(formulas[step], *never_both)
        for step, can in alive.items():
            if not can:
                yield (
                    "K203",
                    "error",
                    f"no event can satisfy the step `{self.steps[step]}`",
                    spans.get(self.steps[step]),
                    "the events it relates to are bound by then, and what is causally after an "
                    "event is not concurrent with it",
                )


def _anchored(guard: syntax.Guard) -> list[syntax.Causal | syntax.Conc]:
    """Return the causal operators in a guard."""
    return [n for n in walk(guard) if isinstance(n, syntax.Causal | syntax.Conc)]
