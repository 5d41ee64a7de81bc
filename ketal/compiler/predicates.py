"""Atoms: the predicates that guards are made of.

A guard is evaluated in Kleene's logic, and accepts only the value true. In negation normal form
every literal is either true or not true, so a guard lowers to a *formula*: a
positive combination of literals over boolean variables, the *atoms*. A predicate
that can be unknown (`x matches /a/`) has two atoms, "is true" and "is false", which are never
both on; a comparison negates to the complementary
comparison; a predicate that is always decided has one atom, read in both polarities.

Local atoms read one event. Relational atoms read an event and the registers of a run
(Causal, Conc, `First.hash`, a `not` whose event has occurred).
`ketal.compiler.predicate_codegen` compiles both to functions.

The one rule: equal payloads are one atom, so a predicate that guards share is evaluated
once.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from ketal.analysis.registered_guards import RegisteredGuard
from ketal.errors import Span, pattern_error
from ketal.model import syntax
from ketal.model.guard_functions import FUNCTIONS, PREDICATES, Predicate
from ketal.model.limits import Limits
from ketal.model.syntax_walks import children, references
from ketal.model.values import Key, kind

T = TypeVar("T")
Formula = bool | tuple[Any, ...]
"""True, False, ("var", index, polarity), ("and", formulas) or ("or", formulas)."""

EventValue = syntax.Field | syntax.Attribute | syntax.Reference
"""A value that is read from one event."""

RELATIONS = ("before", "concurrent", "own_node", "other_node")
"""Relations of an anchor to an event: before it, concurrent, on its node, on another node."""
COMPLEMENT = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


@dataclass(frozen=True)
class Atom:
    """A boolean variable of formulas."""

    shape: str
    """`compare`, `member`, `localhost`, `registered`, or the name of a predicate of
    `ketal.model.guard_functions`; relational ones also those of `RELATIONS` (payload: the anchor)
    and `barred` (payload: a number)."""
    payload: tuple[Any, ...]
    """Its operands, as syntax nodes and constants; equal payloads are one atom."""
    expects: bool = True
    """For a predicate that can be unknown: whether this is its atom "is true", not "is false"."""
    relational: bool = False  # whether it reads the registers of a run
    decided: bool = True  # whether it is never unknown, so that "not true" is "false"


def conjunction(formulas: Iterable[Formula]) -> Formula:
    """Return the conjunction, simplified."""
    return _join_formulas("and", False, formulas)


def disjunction(formulas: Iterable[Formula]) -> Formula:
    """Return the disjunction, simplified."""
    return _join_formulas("or", True, formulas)


def _join_formulas(tag: str, decisive: bool, formulas: Iterable[Formula]) -> Formula:
    """Return `tag` of formulas, simplified; the whole is `decisive` if one of them is."""
    parts: dict[Formula, None] = {}
    for formula in formulas:
        if formula is decisive:
            return decisive
        if not isinstance(formula, bool):
            parts[formula] = None
    if not parts:
        return not decisive
    return next(iter(parts)) if len(parts) == 1 else (tag, tuple(parts))


def evaluate(formula: Formula, mask: int) -> bool:
    """Return a formula's value where bit i of `mask` is variable i."""
    if isinstance(formula, bool):
        return formula
    tag = formula[0]
    if tag == "var":
        on: bool = formula[2]
        return bool(mask >> formula[1] & 1) is on
    if tag == "and":
        return all(evaluate(f, mask) for f in formula[1])
    return any(evaluate(f, mask) for f in formula[1])


def fold_formula(
    formula: Formula,
    of_literal: Callable[[Any], T],
    of_parts: Callable[[str, list[T]], T],
    known: dict[int, T] | None = None,
) -> T:
    """Return the fold of a formula, from its literals up; True is an empty "and".

    A part that occurs in several places, as the formula of an event that guards name does, is
    folded once. `known` caches results by `id`; it may be shared by formulas that stay alive.
    """
    known = {} if known is None else known

    def fold(part: Any) -> T:
        if part[0] == "var":
            return of_literal(part)
        number = id(part)
        if number not in known:
            known[number] = of_parts(part[0], [fold(one) for one in part[1]])
        return known[number]

    if isinstance(formula, bool):
        return of_parts("and" if formula else "or", [])
    return fold(formula)


def map_literals(formula: Formula, of_literal: Callable[[Any], Formula]) -> Formula:
    """Return a formula with each literal replaced by the result of `of_literal`, simplified."""
    return fold_formula(
        formula, of_literal, lambda tag, parts: _join_formulas(tag, tag == "or", parts)
    )


def negation(formula: Formula) -> Formula:
    """Return the formula that is on where `formula` is off."""
    return fold_formula(
        formula,
        lambda v: ("var", v[1], not v[2]),
        lambda tag, parts: disjunction(parts) if tag == "and" else conjunction(parts),
    )


def simplify(formula: Formula, known: Mapping[int, bool]) -> Formula:
    """Return a formula simplified by the known values of some variables."""
    return map_literals(formula, lambda v: known[v[1]] == v[2] if v[1] in known else v)


def requirement(formula: Formula, is_kept: Callable[[int], bool]) -> Formula:
    """Return what a formula requires of some variables: the literals of the others become true.

    Formulas are monotone in their literals, so wherever the result is false, the formula is false.
    """
    return map_literals(formula, lambda v: v if is_kept(v[1]) else True)


def local_guard(formula: Formula, atoms: Sequence[Atom]) -> Formula:
    """Return the local guard of a formula: relational literals become true."""
    return requirement(formula, lambda number: not atoms[number].relational)


def field_guard(formula: Formula, atoms: Sequence[Atom], field: syntax.Field) -> Formula:
    """Return the part of a local guard about one field of an event: other literals become true."""
    return requirement(formula, lambda number: subject(atoms[number]) == field)


def variables(formula: Formula) -> frozenset[int]:
    """Return the variables of a formula."""
    return fold_formula(
        formula, lambda v: frozenset((v[1],)), lambda _, parts: frozenset().union(*parts)
    )


def necessary(formula: Formula) -> frozenset[int]:
    """Return variables that are on whenever a formula holds, as far as its structure shows."""
    return implied(formula, lambda v: frozenset((v[1],) if v[2] else ()))


def implied(formula: Formula, of_literal: Callable[[Any], frozenset[T]]) -> frozenset[T]:
    """Return what a formula implies, as far as its structure shows, given that of each literal."""
    if isinstance(formula, bool):
        return frozenset()
    return fold_formula(
        formula,
        of_literal,
        lambda tag, parts: functools.reduce(operator.or_ if tag == "and" else operator.and_, parts),
    )


def constant_of(value: syntax.Value) -> str | int | float | bool | None:
    """Return the value of a constant, of a duration in seconds; None if it is not a constant."""
    if isinstance(value, syntax.Literal):
        return value.value
    return float(value.seconds) if isinstance(value, syntax.Duration) else None


def event_values(value: syntax.Node) -> Iterator[EventValue]:
    """Yield the values of events that a value reads: of the event itself, or of bound events."""
    if isinstance(value, EventValue):
        yield value
    else:
        for child in children(value):
            yield from event_values(child)


def subject(atom: Atom) -> syntax.Value | None:
    """Return the one value of the syntax that an atom tests; None if there is no such value."""
    value: Any = None
    if atom.shape in PREDICATES:
        value, _ = PREDICATES[atom.shape].read(atom.payload)
    elif atom.shape == "member":
        value = atom.payload[0]
    elif atom.shape == "compare" and constant_of(atom.payload[2]) is not None:
        value = atom.payload[1]
    return None if callable(value) else value


class RegistersRead(NamedTuple):
    """The registers that an atom reads: the prior event, steps by name, the history."""

    prior: bool = False
    steps: frozenset[str] = frozenset()
    history: bool = False


def registers(atom: Atom) -> RegistersRead:
    """Return the registers that a relational atom reads."""
    if atom.shape not in RELATIONS:
        return RegistersRead(steps=frozenset(r.step for r in _references(atom.payload)))
    (anchor,) = atom.payload
    if anchor == syntax.PRIOR:
        return RegistersRead(prior=True)
    if anchor == syntax.ALL:
        return RegistersRead(history=True)
    return RegistersRead(steps=frozenset((anchor,)))


def _references(payload: tuple[Any, ...]) -> Iterator[syntax.Reference]:
    for part in payload:
        for node in part if isinstance(part, tuple) else (part,):
            if isinstance(node, syntax.Node):
                yield from references(node)


_MORE_ATOMS = 10_000
"""Atoms that guards lowered alone may add to those of a pattern."""


class Lowering:
    """Lowers the guards of one pattern to formulas over its atoms, in the order of their first use.

    If not `clocks_decide`, clocks order all pairs of events that may be ordered, and such an order
    is certain only for two events of one node.
    """

    def __init__(
        self,
        events: Mapping[str, syntax.Guard],
        limits: Limits,
        registered: Mapping[str, RegisteredGuard],
        *,
        clocks_decide: bool = True,
    ) -> None:
        self.events = events
        self.limits = limits
        self.atoms: list[Atom] = []
        self._numbers: dict[Atom, int] = {}
        self.registered = registered
        self.clocks_decide = clocks_decide
        self._span: Span | None = None  # of the guard that is being lowered
        self._event_formulas: dict[tuple[str, bool], Formula] = {}

    @classmethod
    def over(
        cls,
        atoms: Sequence[Atom],
        events: Mapping[str, syntax.Guard],
        registered: Iterable[RegisteredGuard],
    ) -> Lowering:
        """Return a Lowering over numbered atoms; what is lowered alone may add some to them."""
        limits = Limits(atoms_max=len(atoms) + _MORE_ATOMS)
        lowering = cls(events, limits, {guard.name: guard for guard in registered})
        for atom in atoms:
            lowering.variable(atom)
        return lowering

    def numbers(self, guard: Any) -> frozenset[int]:
        """Return the numbers of the atoms of a guard: those for true, and those for false."""
        return variables(self.lower(guard)) | variables(self.lower(guard, positive=False))

    def variable(self, atom: Atom, polarity: bool = True, span: Span | None = None) -> Formula:
        """Return the literal of an atom, numbering it if it is new.

        A PatternError, at `span`, if there are more than `atoms_max`.
        """
        number = self._numbers.get(atom)
        if number is None:
            number = len(self.atoms)
            if number >= self.limits.atoms_max:
                raise pattern_error(
                    "K210",
                    f"with this, the pattern has more than {self.limits.atoms_max} different "
                    "predicates (limit atoms_max)",
                    span,
                    hint="`x in [1, 2]` counts as one, `x == 1 || x == 2` as two; "
                    "split the pattern, or raise the limit",
                )
            self._numbers[atom] = number
            self.atoms.append(atom)
        return ("var", number, polarity)

    def _variable(self, atom: Atom, polarity: bool = True) -> Formula:
        return self.variable(atom, polarity, self._span)

    def lower(self, guard: syntax.Guard, positive: bool = True) -> Formula:
        """Return the formula that `guard` is true; that it is false, if not `positive`."""
        self._span = guard.span or self._span
        match guard:
            case syntax.Truth(value=value):
                return value == positive
            case syntax.Name(name=name):
                return self._event_formula(name, positive)
            case syntax.Not(operand=operand):
                return self.lower(operand, not positive)
            case syntax.And(operands=operands) | syntax.Or(operands=operands):
                join = conjunction if isinstance(guard, syntax.And) == positive else disjunction
                return join([self.lower(g, positive) for g in operands])
            case syntax.Membership(value=value, items=items):
                return self._membership(value, items, positive)
            case syntax.Comparison(op=op, left=left, right=right):
                return self._compare(op, left, right, positive)
            case syntax.Causal(guard=inner, anchor=anchor):
                return self._relation("before", inner, anchor, positive)
            case syntax.Conc(guard=inner, anchor=anchor):
                return self._relation("concurrent", inner, anchor, positive)
            case syntax.Call():
                return self._call(guard, positive)
            case syntax.Localhost():
                return self._variable(Atom("localhost", ()), positive)
            case syntax.Matches(value=value, regex=text):
                return self._literal("matches", (value, text), positive)
            case syntax.Function(name=name, arguments=arguments) if name in FUNCTIONS:
                return self._function(FUNCTIONS[name], arguments, positive)
            case syntax.Function(name=name, arguments=arguments):
                payload = (name, self.registered[name].version, arguments)
                return self._literal("registered", payload, positive)
        raise AssertionError(guard)

    def _event_formula(self, name: str, positive: bool) -> Formula:
        """Lower the guard of an event once: all guards that name the event share its formula."""
        formula = self._event_formulas.get((name, positive))
        if formula is None:
            formula = self.lower(self.events[name], positive)
            self._event_formulas[name, positive] = formula
        return formula

    def _literal(
        self, shape: str, payload: tuple[Any, ...], positive: bool, *, decided: bool = False
    ) -> Formula:
        """Return the literal of a decided predicate's only atom, else of one of its two atoms."""
        relational = any(_references(payload))
        if decided:
            return self._variable(Atom(shape, payload, True, relational), positive)
        return self._variable(Atom(shape, payload, positive, relational, decided=False))

    def _function(
        self, predicate: Predicate, arguments: tuple[syntax.Value, ...], positive: bool
    ) -> Formula:
        """Lower a call of a predicate; its constants are plain values in the payload."""
        first = len(arguments) - len(predicate.constants)
        constants = (constant_of(argument) for argument in arguments[first:])
        payload = (*arguments[:first], *constants)
        return self._literal(predicate.name, payload, positive, decided=predicate.decided)

    def _compare(self, op: str, left: Any, right: Any, positive: bool) -> Formula:
        op = op if positive else COMPLEMENT[op]
        if constant_of(left) is not None and constant_of(right) is None:
            left, right, op = right, left, _MIRRORED[op]
        # The complement is another comparison, so "is false" has no atom of its own.
        return self._literal("compare", (op, left, right), True)

    def _membership(
        self, value: syntax.Value, items: tuple[syntax.Value, ...], positive: bool
    ) -> Formula:
        """Lower `value in [items]`; the constants among the items are one atom."""
        join = disjunction if positive else conjunction
        constants: dict[Key, syntax.Value] = {}
        others: list[syntax.Value] = []
        for item in items:
            constant = constant_of(item)
            if constant is None or constant_of(value) is not None:
                others.append(item)
            else:
                constants.setdefault((kind(constant), constant), item)
        if len(constants) == 1:
            others += constants.values()
        parts = [self._compare("==", value, item, positive) for item in others]
        if len(constants) > 1:
            # Sorted, so that equal sets of constants are one atom.
            payload = (value, tuple(sorted(constants)))
            parts.insert(0, self._literal("member", payload, positive))
        return join(parts)

    def _relation(self, shape: str, inner: Any, anchor: str, positive: bool) -> Formula:
        relation = self._relation_literal(shape, anchor, positive)
        if not self.clocks_decide and (shape == "before") == positive:
            # Such clocks may order concurrent events of two nodes: only one node's are certain.
            if positive:
                relation = conjunction([relation, self._relation_literal("own_node", anchor, True)])
            else:
                relation = self._relation_literal("other_node", anchor, False)
        join = conjunction if positive else disjunction
        return join([self.lower(inner, positive), relation])

    def _relation_literal(self, shape: str, anchor: str, positive: bool) -> Formula:
        return self._variable(Atom(shape, (anchor,), relational=True), positive)

    def _call(self, call: syntax.Call, positive: bool) -> Formula:
        parts = [self._literal("type", (call.target,), positive, decided=True)]
        if call.result != "*":
            parts.append(self._literal("result", (call.result,), positive))
        if call.arguments != ("..",):
            parts.append(self._literal("arguments", (call.arguments,), positive))
        return conjunction(parts) if positive else disjunction(parts)
