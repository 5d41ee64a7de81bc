"""The comparisons of a pattern, and the events for which their values decide.

A comparison of an absent value, or of values of two kinds, is unknown (`ketal.model.values`), and
its guard rejects the event just as if the comparison were false. To distinguish unknown from false,
the kinds of the values are counted for the events for which the comparison decides.

The one rule: a comparison decides for an event if the guard that contains it is true of the event
for some result of the comparison, and not true if the comparison is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ketal.analysis.registered_guards import RegisteredGuard
from ketal.compiler.predicates import (
    Atom,
    EventValue,
    Formula,
    Lowering,
    constant_of,
    event_values,
    local_guard,
    simplify,
    variables,
)
from ketal.errors import Span
from ketal.model import syntax
from ketal.model.guard_functions import FUNCTIONS
from ketal.model.syntax_walks import walk
from ketal.model.values import kind

NUMBER = frozenset({"number"})
STRING = frozenset({"string"})
ORDERED = frozenset({"number", "string"})
SCALAR = frozenset({"number", "string", "boolean"})

Leaf = syntax.Field | syntax.Attribute


@dataclass(frozen=True, slots=True)
class Operand:
    """A value that a comparison reads."""

    of: Leaf  # the field or attribute that is read
    step: str  # the step whose event has the value; empty for the event itself
    kinds: frozenset[str]  # the kinds of values for which the comparison may be true or false


@dataclass(frozen=True, slots=True)
class SiteReading:
    """The operands of a comparison that are read from one event."""

    comparison: int  # the number of the comparison
    operands: tuple[int, ...]  # the numbers of the operands in the comparison
    guard: Formula
    """A formula over masks: the operands of an event are read if its mask, with `bits` set,
    satisfies the formula."""
    bits: int
    """The bits of the comparison itself; the comparison decides if the guard is true with these
    bits set and not true with them cleared. 0 if an event of a run is compared."""

    @property
    def sides(self) -> tuple[Formula, Formula]:
        """The guard with the comparison true, and with it not true."""
        if not self.bits:
            return self.guard, False
        numbers = [number for number in variables(self.guard) if self.bits >> number & 1]
        true, other = (simplify(self.guard, dict.fromkeys(numbers, on)) for on in (True, False))
        return true, other


@dataclass(frozen=True, slots=True)
class ComparisonSite:
    """A comparison in the text of a pattern, or a key of `partition by`."""

    span: Span | None  # its place in the text
    operands: tuple[Operand, ...]  # the values that it reads
    alike: bool
    """Whether these values must be of one kind: the two operands, or all values of a key."""

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

    `events` are those that it names, including those declared in the file; `alphabet` is the
    formula over `atoms` of the events that are offered.
    """
    declared = {event.name: event.guard for event in events}
    lowering = Lowering.over(atoms, declared, registered)
    guards = declared | {step.name: step.guard for step in pattern.steps}
    local = {
        name: local_guard(lowering.lower(guard), lowering.atoms) for name, guard in guards.items()
    }
    absents = (node.guard for node in walk(pattern.body) if isinstance(node, syntax.Absent))
    sites: list[ComparisonSite] = []
    readings: list[SiteReading] = []
    for key in pattern.partition:
        if isinstance(key, syntax.Attribute):
            readings.append(SiteReading(len(sites), (0,), alphabet, 0))
            sites.append(ComparisonSite(key.span, (Operand(key, "", SCALAR),), alike=True))
    for holder in (*guards.values(), *absents):
        guard = local_guard(lowering.lower(holder), lowering.atoms)
        for node in walk(holder):
            operands = tuple(_operands(node))
            if all(map(_is_always_known, operands)):
                continue
            number = len(sites)
            sites.append(ComparisonSite(node.span, operands, _compares_two_values(node)))
            by_step: dict[str, list[int]] = {}
            for index, operand in enumerate(operands):
                by_step.setdefault(operand.step, []).append(index)
            bits = 0
            if by_step.keys() == {""}:
                bits = sum(1 << n for n in lowering.numbers(node) if n < len(atoms))
            for step, indices in by_step.items():
                event_guard = local.get(step, True) if step else guard
                # Masks have no bits for new atoms.
                if all(n < len(atoms) for n in variables(event_guard)):
                    readings.append(SiteReading(number, tuple(indices), event_guard, bits))
    return tuple(sites), tuple(readings)


def _operands(node: syntax.Node) -> Iterator[Operand]:
    """Yield the values that a comparison reads; none for a node that is not a comparison."""
    match node:
        case syntax.Comparison(left=left, right=right):
            comparable = SCALAR if node.op in ("==", "!=") else ORDERED
            for value, other in ((left, right), (right, left)):
                yield from _operands_in(value, comparable & _comparable_kinds(value, other))
        case syntax.Membership(value=value, items=items):
            constants = [constant_of(item) for item in items]
            if None not in constants:
                yield from _operands_in(value, frozenset(kind(one) for one in constants))
        case syntax.Matches(value=value):
            yield from _operands_in(value, STRING)
        case syntax.Function(name=name, arguments=arguments) if name in FUNCTIONS:
            predicate = FUNCTIONS[name]
            if predicate.subject is None and not predicate.decided and predicate.kind != "any":
                yield from _operands_in(arguments[0], frozenset({predicate.kind}))


def _is_always_known(operand: Operand) -> bool:
    """Return whether no event can make an operand unknown: node and type are always strings."""
    leaf = operand.of
    return (
        isinstance(leaf, syntax.Field)
        and leaf.name in ("node", "type")
        and "string" in operand.kinds
    )


def _compares_two_values(node: syntax.Node) -> bool:
    """Return whether a node compares two values of events without arithmetic."""
    return (
        isinstance(node, syntax.Comparison)
        and isinstance(node.left, EventValue)
        and isinstance(node.right, EventValue)
    )


def _comparable_kinds(value: syntax.Value, other: syntax.Value) -> frozenset[str]:
    """Return the kinds of a value that make it comparable with another."""
    if any(isinstance(one, syntax.Arithmetic | syntax.Negative) for one in (value, other)):
        return NUMBER
    constant = constant_of(other)
    return SCALAR if constant is None else frozenset({kind(constant)})


def _operands_in(value: syntax.Value, kinds: frozenset[str]) -> Iterator[Operand]:
    if isinstance(value, syntax.Arithmetic | syntax.Negative):
        kinds = NUMBER
    for leaf in event_values(value):
        if isinstance(leaf, syntax.Reference):
            yield Operand(leaf.of, leaf.step, kinds)
        else:
            yield Operand(leaf, "", kinds)
