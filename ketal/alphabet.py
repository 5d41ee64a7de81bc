"""Minterms: the disjoint, complete classes of events that a pattern tells apart.

The guards φ1 … φn of a pattern's steps are formulas over atoms. A *minterm* is
a set S of them such that some event, in some run, satisfies exactly those in S
(D'Antoni and Veanes, "Minimization of symbolic automata", 2014, section 2).
Unsatisfiable sets are dropped. What cannot be proven unsatisfiable is kept, so
a spare minterm may stand for no event; it costs a column and no answer.

Satisfiability is decided by splitting on variables, with a theory of one value
at a time: the atoms about `x` are tried on sample values, one from each cell
that the constants cut out of the values of `x` (absent, another kind, each
boolean, each constant, and a value between and beyond them). On strings that
are no constant, regular expressions and globs are free.

The one rule: an answer of "unsatisfiable" is a proof.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ketal import pattern as syntax
from ketal.atoms import (
    Atom,
    Formula,
    base_node,
    conjunction,
    disjunction,
    glob_regex,
    holds,
    regex,
    simplify,
    variables,
)
from ketal.errors import pattern_error
from ketal.limits import Limits

_ABSENT = ("absent", None)
_OTHER = ("other", None)  # there, but of no kind: a list or a mapping
_Sample = tuple[str, Any]  # kind of sample, value; ("text", None) is any other string
_FREE = object()


def negation(formula: Formula) -> Formula:
    """Return the formula that is on where `formula` is off."""
    if isinstance(formula, bool):
        return not formula
    if formula[0] == "var":
        return ("var", formula[1], not formula[2])
    parts = [negation(f) for f in formula[1]]
    return disjunction(parts) if formula[0] == "and" else conjunction(parts)


def _operand(value: Any) -> Any:
    """Return a comparison's constant right side as a Python value, else _FREE."""
    if isinstance(value, syntax.Literal):
        return value.value
    if isinstance(value, syntax.Duration):
        return value.microseconds / 1e6
    return _FREE


@dataclass(frozen=True)
class _Term:
    """What one group of atoms speaks of, with the samples that decide them."""

    samples: tuple[_Sample, ...]
    members: tuple[int, ...]


class Theory:
    """Which truth values the atoms of a pattern can have together.

    Parameters
    ----------
    atoms : sequence of Atom
        The pattern's atoms; variable i of formulas is atom i.
    limits : Limits
        For the memory of regular expressions.
    """

    def __init__(self, atoms: Sequence[Atom], limits: Limits) -> None:
        self.atoms = tuple(atoms)
        self.limits = limits
        groups: dict[Any, list[int]] = {}
        for number, atom in enumerate(self.atoms):
            groups.setdefault(self._key(atom), []).append(number)
        self._terms: dict[int, _Term] = {}
        for key, members in groups.items():
            term = _Term(tuple(self._samples(key, members)), tuple(members))
            for number in members:
                self._terms[number] = term

    @staticmethod
    def _key(atom: Atom) -> Any:
        payload = atom.payload
        match atom.shape:
            case "compare":
                _, left, right = payload
                if _operand(right) is _FREE or isinstance(left, syntax.Arithmetic):
                    return ("compare", left, right)
                return ("value", left)
            case "matches":
                return ("value", payload[0])
            case "exists":
                return ("value", payload[0])
            case "host":
                return ("value", syntax.Field("node"))
            case "type":
                return ("value", syntax.Field("type"))
            case "before" | "concurrent":
                return ("relation", payload)
            case _:
                return (atom.shape, payload)

    def _samples(self, key: Any, members: list[int]) -> Iterator[_Sample]:
        shape = key[0]
        if shape == "relation":
            # Unbound: both hold. Bound: before, concurrent, or neither.
            yield from (("unbound", None), ("before", None), ("concurrent", None), _OTHER)
            return
        if shape != "value":
            if shape == "compare":
                yield from (("less", -1), ("equal", 0), ("more", 1), ("unequal", None))
            else:
                yield from (("true", True), ("false", False))
            yield _ABSENT
            return
        of = key[1]
        constants: list[Any] = []
        for number in members:
            atom = self.atoms[number]
            if atom.shape == "compare":
                constants.append(_operand(atom.payload[2]))
            elif atom.shape in ("type", "host"):
                # A glob without wildcards is a constant; with them, one more sample.
                constants.append(atom.payload[0])
        name = of.name if isinstance(of, syntax.Field) else None
        inner = of.of if isinstance(of, syntax.Reference) else None
        if isinstance(inner, syntax.Field):
            name = inner.name
        if name not in ("node", "type"):
            yield _ABSENT
        if name is None:
            yield _OTHER
            yield from (("constant", True), ("constant", False))
        if name in (None, "time"):
            numbers = sorted(
                {c for c in constants if not isinstance(c, bool | str)}, key=lambda c: (c, str(c))
            )
            yield from (("constant", c) for c in numbers)
            yield from (("constant", c) for c in _between(numbers))
        if name != "time":
            texts = sorted({c for c in constants if isinstance(c, str)})
            yield from (("constant", c) for c in texts)
            # Any string that is no constant: after "" and after each constant.
            yield from (("text", c) for c in ["", *texts])

    def _value(self, atom: Atom, sample: _Sample) -> Any:
        """Return an atom's truth on a sample; _FREE where it may be either."""
        what, value = sample
        shape = atom.shape
        if shape in ("before", "concurrent"):
            return what in ("unbound", shape)
        if shape == "exists":
            return sample != _ABSENT
        if what in ("absent", "other"):
            return False
        if shape == "compare":
            op, _, right = atom.payload
            if what == "constant":
                return holds(op, value, _operand(right))
            if what == "text":
                constant = _operand(right)
                if not isinstance(constant, str):
                    return False
                # The sample is a string just after `value`, no constant itself.
                return {
                    "==": False,
                    "!=": True,
                    "<": constant > value,
                    "<=": constant > value,
                    ">": constant <= value,
                    ">=": constant <= value,
                }[op]
            if what == "unequal":
                return op == "!="
            return holds(op, value, 0)
        if shape == "matches":
            if what == "text":
                return _FREE
            if not isinstance(value, str):
                return False
            found = regex(atom.payload[1], self.limits.regex_memory_max).search(value)
            return (found is not None) == atom.expects
        if shape in ("host", "type"):
            if what == "text":
                dotted = shape == "type"
                exact = (
                    "*" not in atom.payload[0]
                    and (".." if dotted else "?") not in (atom.payload[0])
                )
                # An exact glob is a constant, and this string is none; but an
                # incarnation `A#2` is of host A.
                return False if exact and dotted else _FREE
            glob = glob_regex(atom.payload[0], dotted=shape == "type")
            return glob.fullmatch(value if shape == "type" else base_node(value)) is not None
        return (what == "true") == atom.expects

    def consistent(self, known: dict[int, bool], last: int) -> bool:
        """Return whether the atoms about what atom `last` is about can be as known."""
        term = self._terms[last]
        asked = [(self.atoms[n], known[n]) for n in term.members if n in known]
        for sample in term.samples:
            free: dict[Any, dict[bool, bool]] = {}
            for atom, wanted in asked:
                value = self._value(atom, sample)
                if value is _FREE:
                    if not atom.decided:
                        free.setdefault(atom.payload, {})[atom.expects] = wanted
                elif value != wanted:
                    break
            else:
                # Of "is true" and "is false" about a known string, exactly one is on.
                if all(len(v) < 2 or v[True] != v[False] for v in free.values()):
                    return True
        return False

    def satisfiable(self, formulas: Sequence[Formula], known: dict[int, bool]) -> bool:
        """Return whether all formulas can be on at once, given some variables."""
        rest: list[Formula] = []
        for formula in formulas:
            reduced = simplify(formula, known)
            if reduced is False:
                return False
            if reduced is not True:
                rest.append(reduced)
        if not rest:
            return True
        variable = min(variables(rest[0]))
        for value in (True, False):
            extended = {**known, variable: value}
            if self.consistent(extended, variable) and self.satisfiable(rest, extended):
                return True
        return False

    def can_hold(self, *formulas: Formula) -> bool:
        """Return whether some event, in some run, satisfies all formulas."""
        return self.satisfiable(formulas, {})

    def equivalent(self, first: Formula, second: Formula) -> bool:
        """Return whether two formulas are proven to accept the same events."""
        return not self.can_hold(first, negation(second)) and not self.can_hold(
            negation(first), second
        )


def _between(numbers: list[Any]) -> Iterator[float]:
    """Yield a number below, between each two of, and above sorted numbers."""
    if not numbers:
        yield 0.5
        return
    yield numbers[0] - 1
    yield numbers[-1] + 1
    for low, high in itertools.pairwise(numbers):
        middle = low + (high - low) / 2
        if low < middle < high:
            yield middle


def minterms(formulas: Sequence[Formula], theory: Theory) -> tuple[tuple[int, ...], ...]:
    """Return the minterms of guards, each the sorted numbers of the guards that hold.

    The empty set, where no guard holds, is left out: no transition reads it.

    Raises
    ------
    PatternError
        If there are more than `minterms_max`.
    """
    found: list[tuple[int, ...]] = []

    def split(number: int, chosen: tuple[int, ...], path: tuple[Formula, ...]) -> None:
        if not theory.satisfiable(path, {}):
            return
        if number == len(formulas):
            if chosen:
                found.append(chosen)
            if len(found) > theory.limits.minterms_max:
                raise pattern_error(
                    "K211",
                    f"the steps tell more than {theory.limits.minterms_max} classes "
                    "of events apart",
                    hint="limit minterms_max; make overlapping guards fewer or raise the limit",
                )
            return
        formula = formulas[number]
        split(number + 1, (*chosen, number), (*path, formula))
        split(number + 1, chosen, (*path, negation(formula)))

    split(0, (), ())
    return tuple(sorted(found))


def free_of_run(formula: Formula, atoms: Sequence[Atom]) -> Formula:
    """Return a step's local guard: relational literals become true (DESIGN 4)."""
    if isinstance(formula, bool):
        return formula
    if formula[0] == "var":
        return True if atoms[formula[1]].relational else formula
    parts = [free_of_run(f, atoms) for f in formula[1]]
    return conjunction(parts) if formula[0] == "and" else disjunction(parts)


def classes(formulas: Sequence[Formula], theory: Theory) -> tuple[int, ...]:
    """Return the class of each local guard: equal numbers are the same set of events."""
    representatives: list[int] = []
    out: list[int] = []
    for formula in formulas:
        for number, representative in enumerate(representatives):
            if theory.equivalent(formula, formulas[representative]):
                out.append(number)
                break
        else:
            out.append(len(representatives))
            representatives.append(len(out) - 1)
    return tuple(out)
