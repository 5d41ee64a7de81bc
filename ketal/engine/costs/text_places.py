"""The places of a pattern's parts in its text, for messages about them.

The one rule: a part without a place of its own is named by its step or its pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.compiler.predicates import Lowering, registers, variables
from ketal.errors import Span
from ketal.model import syntax
from ketal.model.syntax_walks import not_guards, walk

_SHAPES = {syntax.Causal: ("before", "own_node"), syntax.Conc: ("concurrent", "other_node")}


@dataclass(frozen=True)
class TextPlace:
    """A part of a pattern's text, and its place; None for a pattern built in code."""

    text: str
    span: Span | None


class PatternPlaces:
    """Finds the places of a pattern's parts in its text."""

    def __init__(self, compiled: CompiledPattern) -> None:
        self._compiled = compiled
        self.pattern = compiled.pattern
        self._guards = dict(compiled.guards)

    def place(self, span: Span | None, otherwise: str) -> TextPlace:
        """Return a place with its text; `otherwise` is the text if its own is not at hand."""
        source = self._compiled.source
        if span is None or source is None or span.line != span.end_line:
            return TextPlace(otherwise, span)
        text = source.line(span.line)[span.column - 1 : span.end_column - 1]
        return TextPlace(text.rstrip(";") or otherwise, span)

    def body(self) -> TextPlace:
        """Return the statement of the body."""
        return self.place(self.pattern.places.get(self.pattern.kind), self.pattern.name)

    def order(self) -> TextPlace:
        """Return the statement of the order; the statement of the body if there is none."""
        order = self.pattern.order
        return self.body() if order.span is None else self.place(order.span, "order")

    def step(self, number: int) -> TextPlace:
        """Return the guard of a step."""
        name = self._compiled.automaton.steps[number]
        declared = {one.name: one.guard for one in self.pattern.declarations}
        if name in declared:
            return self.place(declared[name].span, name)
        # The file declares the event, for all of its patterns.
        return self._first_node(lambda node: isinstance(node, syntax.Step) and node.name == name)

    def atom(self, step: int, number: int) -> TextPlace:
        """Return the part of a step's guard that reads what a relational atom reads."""
        atom = self._compiled.automaton.atoms[number]
        for node in walk(self._guards[self._compiled.automaton.steps[step]]):
            if isinstance(node, syntax.Causal | syntax.Conc):
                matches = atom.shape in _SHAPES[type(node)] and atom.payload == (node.anchor,)
            elif isinstance(node, syntax.Comparison | syntax.Membership | syntax.Function):
                matches = number in self._lowering.numbers(node)
            else:
                continue
            if matches:
                return self.place(node.span, self._compiled.automaton.steps[step])
        return self.step(step)

    @cached_property
    def _lowering(self) -> Lowering:
        """Lowers comparisons over the atoms of the pattern."""
        compiled = self._compiled
        return Lowering.over(compiled.automaton.atoms, {}, compiled.registered)

    def register_read(self, *, beyond_prior: bool) -> TextPlace:
        """Return the first part of a step's guard, or else the first `not`, that reads a register.

        The first `not`, if there is none.
        """
        automaton = self._compiled.automaton

        def reads(number: int) -> bool:
            prior, steps, history = registers(automaton.atoms[number])
            return bool(steps or history or (prior and not beyond_prior))

        for variant, formula in zip(automaton.variants, automaton.formulas, strict=True):
            for number in filter(reads, sorted(variables(formula))):
                return self.atom(variant.step, number)
        for number, formula in enumerate(automaton.nots):
            if any(map(reads, variables(formula))):
                return self.absent(number)
        return self.absent()

    def absent(self, number: int = 0) -> TextPlace:
        """Return the `not` of the body with this number; the body where there is none."""
        guards = not_guards(self.pattern.body)[number:][:1]
        return self._first_node(
            lambda node: isinstance(node, syntax.Absent) and node.guard in guards
        )

    def loop(self) -> TextPlace:
        """Return the first repetition of the body; the body where there is none."""
        return self._first_node(lambda node: isinstance(node, syntax.Repeat) and node.most is None)

    def _first_node(self, wanted: Callable[[syntax.Node], bool]) -> TextPlace:
        for node in walk(self.pattern.body):
            if wanted(node):
                return self.place(node.span, self.pattern.name)
        return self.body()
