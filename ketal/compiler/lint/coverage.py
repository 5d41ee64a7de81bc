"""Coverage: which guards some event satisfies, and some event of the alphabet.

The one rule: a guard is at fault only where the theory of its atoms proves that no event
satisfies it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ketal.analysis.bodies import Finding
from ketal.compiler.minterms import Theory
from ketal.compiler.predicates import Formula, Lowering, constant_of
from ketal.errors import Span
from ketal.model import syntax
from ketal.model.values import kind


@dataclass(frozen=True)
class Coverage:
    """The checks of what events a pattern's guards accept.

    Attributes
    ----------
    lowering : Lowering
        Lowers the parts of a guard.
    theory : Theory
        Of the pattern's atoms.
    alphabet : Formula
        What events of the alphabet satisfy.
    """

    lowering: Lowering
    theory: Theory
    alphabet: Formula

    def of_steps(
        self,
        guards: Mapping[str, syntax.Guard],
        formulas: Sequence[Formula],
        spans: Mapping[str, Span | None],
    ) -> Iterator[Finding]:
        """Yield each step that no event, or none of the alphabet, satisfies."""
        for (name, guard), formula in zip(guards.items(), formulas, strict=True):
            if not self.theory.can_hold(formula):
                span, hint = self._contradiction(guard)
                message = f"no event can satisfy the step `{name}`"
                yield "K203", "error", message, span or spans.get(name), hint
            elif not self.theory.can_hold(formula, self.alphabet):
                message = (
                    f"no declared event covers the step `{name}`: it would never be offered one"
                )
                hint = "declare an `event` for what the step is to accept"
                yield "K204", "error", message, spans.get(name), hint

    def of_nots(
        self, guards: Sequence[syntax.Guard], formulas: Sequence[Formula]
    ) -> Iterator[Finding]:
        """Yield each guard of a `not` that no event of the alphabet satisfies."""
        for guard, formula in zip(guards, formulas, strict=True):
            if not self.theory.can_hold(formula, self.alphabet):
                message = "no declared event covers this `not`: it never bars anything"
                hint = "declare an `event` for what it speaks of"
                yield "K205", "warning", message, guard.span, hint

    def _contradiction(self, guard: syntax.Guard) -> tuple[Span | None, str]:
        """Return the part at fault in an unsatisfiable guard, where one part is, and why.

        The place is None where parts contradict each other.
        """
        parts = guard.operands if isinstance(guard, syntax.And) else (guard,)
        never = [part for part in parts if not self.theory.can_hold(self.lowering.lower(part))]
        kinds = next((kinds for part in never for kinds in self._mixed(part)), None)
        if kinds is None:
            return (never[0].span if never else None), "its conditions contradict each other"
        return never[0].span, (
            f"a list holds a {' and a '.join(kinds)}; a comparison of different kinds is unknown, "
            "so no value is known to be none of them: write a list for each kind, "
            '`!(x in [1]) || !(x in ["a"])`'
        )

    def _mixed(self, guard: syntax.Guard, positive: bool = True) -> Iterator[tuple[str, ...]]:
        """Yield the kinds of each list of several kinds under a negated `in`."""
        match guard:
            case syntax.Name(name=name):
                yield from self._mixed(self.lowering.events[name], positive)
            case syntax.Not(operand=operand):
                yield from self._mixed(operand, not positive)
            case syntax.And(operands=operands) | syntax.Or(operands=operands):
                for part in operands:
                    yield from self._mixed(part, positive)
            case syntax.Causal(guard=inner) | syntax.Conc(guard=inner):
                yield from self._mixed(inner, positive)
            case syntax.Membership(items=items) if not positive:
                constants = [c for c in map(constant_of, items) if c is not None]
                kinds = tuple(dict.fromkeys(map(kind, constants)))
                if len(kinds) > 1:
                    yield kinds
