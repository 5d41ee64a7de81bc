"""The comparisons of a pattern, and of which events their values decide.

A comparison of an absent value, or of values of two kinds, is unknown (`ketal.model.values`), and
its guard accepts the event as little as if it were false. To tell the two apart, the kinds of the
values are counted, of the events for which the comparison decides.

The one rule: a comparison decides for an event if the guard that it stands in is true of the event
with it, and not without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ketal.analysis.registered_guards import RegisteredGuard
from ketal.compiler.predicates import (
    Atom,
    AtomTable,
    Formula,
    Lowering,
    constant_of,
    free_of_run,
    variables,
)
from ketal.errors import Span
from ketal.model import syntax
from ketal.model.guard_functions import FUNCTIONS
from ketal.model.limits import Limits
from ketal.model.syntax_walks import walk
from ketal.model.values import kind

NUMBER = frozenset({"number"})
STRING = frozenset({"string"})
ORDERED = frozenset({"number", "string"})
SCALAR = frozenset({"number", "string", "boolean"})

Leaf = syntax.Field | syntax.Attribute


@dataclass(frozen=True, slots=True)
class Operand:
    """A value that a comparison reads.

    Attributes
    ----------
    of : Field or Attribute
        What is read.
    step : str
        The step whose event it is read from; empty for the event itself.
    kinds : frozenset of str
        The kinds with which the comparison can be known.
    """

    of: Leaf
    step: str
    kinds: frozenset[str]


@dataclass(frozen=True, slots=True)
class SiteReading:
    """Operands that are read from one event.

    Attributes
    ----------
    comparison : int
        The number of their comparison.
    operands : tuple of int
        Their numbers in it.
    guard : Formula
        Over the bits of a mask: of which events they are read, with `bits` on.
    bits : int
        The bits of the comparison itself, with which the guard is true and without which it is
        not; 0 where an event of a run is compared.
    """

    comparison: int
    operands: tuple[int, ...]
    guard: Formula
    bits: int


@dataclass(frozen=True, slots=True)
class ComparisonSite:
    """A comparison in the text of a pattern, or a key of `partition by`.

    Attributes
    ----------
    span : Span or None
        Where it stands.
    operands : tuple of Operand
        What it reads.
    alike : bool
        Whether what it reads must be of one kind: the two operands, or the values of a key.
    """

    span: Span | None
    operands: tuple[Operand, ...]
    alike: bool

    @property
    def is_key(self) -> bool:
        """Whether it is a key of `partition by`: its values are compared with one another."""
        return self.alike and len(self.operands) == 1


def comparisons(
    pattern: syntax.Pattern,
    events: Sequence[syntax.EventDecl],
    alphabet: Formula,
    atoms: Sequence[Atom],
    registered: Iterable[RegisteredGuard],
) -> tuple[tuple[ComparisonSite, ...], tuple[SiteReading, ...]]:
    """Return the comparisons of a pattern, and how their operands are read.

    Parameters
    ----------
    pattern : Pattern
        The pattern.
    events : sequence of EventDecl
        The events that it names, those of the file too.
    alphabet : Formula
        Which events are offered, over `atoms`.
    atoms : sequence of Atom
        Those of its guards.
    registered : iterable of RegisteredGuard
        Guards added in code.
    """
    table = AtomTable(Limits(atoms_max=len(atoms) + _MORE_ATOMS))
    for atom in atoms:
        table.variable(atom)
    declared = {event.name: event.guard for event in events}
    lowering = Lowering(declared, table, {guard.name: guard for guard in registered})
    steps = {step.name: step.guard for step in pattern.steps}
    local = {
        name: free_of_run(lowering.lower(guard), table.atoms)
        for name, guard in {**declared, **steps}.items()
    }
    absents = (node.guard for node in walk(pattern.body) if isinstance(node, syntax.Absent))
    sites: list[ComparisonSite] = []
    readings: list[SiteReading] = []
    for key in pattern.partition:
        if isinstance(key, syntax.Attribute):
            readings.append(SiteReading(len(sites), (0,), alphabet, 0))
            sites.append(ComparisonSite(key.span, (Operand(key, "", SCALAR),), alike=True))
    for holder in (*declared.values(), *steps.values(), *absents):
        guard = free_of_run(lowering.lower(holder), table.atoms)
        for node in walk(holder):
            operands = tuple(_operands(node))
            if all(map(_is_always_known, operands)):
                continue
            number = len(sites)
            sites.append(ComparisonSite(node.span, operands, _alike(node)))
            by_step: dict[str, list[int]] = {}
            for at, operand in enumerate(operands):
                by_step.setdefault(operand.step, []).append(at)
            is_local = set(by_step) == {""}
            bits = _bits(node, lowering, len(atoms)) if is_local else 0
            for step, numbers in by_step.items():
                of = local.get(step, True) if step else guard
                if _in_masks(of, len(atoms)):
                    readings.append(SiteReading(number, tuple(numbers), of, bits))
    return tuple(sites), tuple(readings)


def _in_masks(guard: Formula, atoms: int) -> bool:
    """Return whether masks have all atoms of a guard: those that decide nothing have no bit."""
    return all(number < atoms for number in variables(guard))


_MORE_ATOMS = 10_000
"""Atoms that a comparison has alone, but not in its guard, and that no mask has."""


def _bits(node: Any, lowering: Lowering, atoms: int) -> int:
    """Return the bits of a comparison, whether it is to be true or false."""
    numbers = variables(lowering.lower(node)) | variables(lowering.lower(node, positive=False))
    return sum(1 << number for number in numbers if number < atoms)


def _operands(node: syntax.Node) -> Iterator[Operand]:
    """Yield what a comparison reads; nothing of another node."""
    match node:
        case syntax.Comparison(left=left, right=right):
            comparable = SCALAR if node.op in ("==", "!=") else ORDERED
            for value, other in ((left, right), (right, left)):
                yield from _leaves(value, comparable & _kinds_beside(value, other))
        case syntax.Membership(value=value, items=items):
            constants = [constant_of(item) for item in items]
            if None not in constants:
                yield from _leaves(value, frozenset(kind(one) for one in constants))
        case syntax.Matches(value=value):
            yield from _leaves(value, STRING)
        case syntax.Function(name=name, arguments=arguments) if name in FUNCTIONS:
            predicate = FUNCTIONS[name]
            if predicate.subject is None and not predicate.decided and predicate.kind != "any":
                yield from _leaves(arguments[0], frozenset({predicate.kind}))


def _is_always_known(operand: Operand) -> bool:
    """Return whether no event can make it unknown: each has a node and a type, a text."""
    of = operand.of
    return (
        isinstance(of, syntax.Field) and of.name in ("node", "type") and "string" in operand.kinds
    )


def _alike(node: syntax.Node) -> bool:
    """Return whether a node compares two values that are read as they are."""
    read = (syntax.Field, syntax.Attribute, syntax.Reference)
    return (
        isinstance(node, syntax.Comparison)
        and isinstance(node.left, read)
        and isinstance(node.right, read)
    )


def _kinds_beside(value: syntax.Value, other: syntax.Value) -> frozenset[str]:
    """Return the kinds of a value that make it comparable with another."""
    if any(isinstance(one, syntax.Arithmetic | syntax.Negative) for one in (value, other)):
        return NUMBER
    constant = constant_of(other)
    return SCALAR if constant is None else frozenset({kind(constant)})


def _leaves(value: syntax.Value, kinds: frozenset[str]) -> Iterator[Operand]:
    match value:
        case syntax.Field() | syntax.Attribute():
            yield Operand(value, "", kinds)
        case syntax.Reference(step=step, of=of):
            yield Operand(of, step, kinds)
        case syntax.Arithmetic(operands=operands):
            for operand in operands:
                yield from _leaves(operand, NUMBER)
        case syntax.Negative(operand=operand):
            yield from _leaves(operand, NUMBER)
