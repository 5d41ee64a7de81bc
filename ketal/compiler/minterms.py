"""Minterms: the disjoint, complete classes of events that a pattern distinguishes.

The guards φ1 … φn of a pattern's steps are formulas over atoms. A *minterm* is
a set S of them such that some event, in some run, satisfies exactly those in S
(D'Antoni and Veanes, "Minimization of symbolic automata", 2014, section 2).
Unsatisfiable sets are dropped. A set that cannot be proven unsatisfiable is kept, so
some minterms may contain no event; they cost a column of the table, but change no answer.

Satisfiability is decided by splitting on variables (Davis, Logemann and Loveland,
1962), with a theory of one value at a time: the atoms about `x` are evaluated on sample
values, one for each cell into which the constants divide the values of `x` (absent,
another kind, each boolean, each constant, and a value between and beyond them). On
strings other than the constants, regular expressions and globs may have either value.
Literals that a formula or the theory implies are assigned before anything is split, so that
the usual pattern, in which each event has a type of its own, needs no splitting.

The one rule: an answer of "unsatisfiable" is a proof.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ketal.compiler.predicates import (
    Atom,
    Formula,
    constant_of,
    disjunction,
    fold_formula,
    negation,
    subject,
)
from ketal.model import syntax
from ketal.model.guard_functions import PREDICATES
from ketal.model.limits import Limits
from ketal.model.values import holds, kind

SPLITS_MAX = 5_000
"""The most splits in one test of satisfiability before it gives up without a proof."""
SPLIT_PARTS = 100
"""Parts of formulas for which a split counts as one; with more parts it counts as several."""

_ABSENT = ("absent", None)
_OTHER = ("other", None)  # present, but not a scalar: a list or a mapping
_Sample = tuple[str, Any]  # kind of sample, value; ("text", None) is any other string
_FREE = object()
_FLOATS_WHOLE = 2**53
"""From here on every float is a whole number."""


@dataclass(frozen=True, slots=True)
class _Row:
    """The truth of a term's atoms on one sample, as bit masks of variables.

    The atoms `on` are true, those `free` may be either, and all others are false. In each of
    `pairs` (is true, is false) exactly one of the two free atoms is true.
    """

    on: int
    free: int
    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Term:
    """A group of atoms about one value (`members`), with their truth on each sample value."""

    rows: tuple[_Row, ...]
    members: int


@dataclass(frozen=True, slots=True)
class PartialAssignment:
    """A partial assignment: variables that are true, and false, and the undecided formulas."""

    on: int = 0
    off: int = 0
    rest: tuple[Formula, ...] = ()


class Theory:
    """Decides which truth values the atoms of a pattern can have together.

    Variable i of formulas is atom i.
    """

    def __init__(self, atoms: Sequence[Atom], limits: Limits) -> None:
        self.atoms = tuple(atoms)
        self.limits = limits
        self._member_keys = {
            number: frozenset(atom.payload[1])
            for number, atom in enumerate(self.atoms)
            if atom.shape == "member"
        }
        self._tests = {
            number: PREDICATES[a.shape].prepare(limits, *PREDICATES[a.shape].read(a.payload)[1])
            for number, a in enumerate(self.atoms)
            if a.shape in PREDICATES and subject(a) is not None
        }
        groups: dict[Any, list[int]] = {}
        for number, atom in enumerate(self.atoms):
            groups.setdefault(self._term_key(atom), []).append(number)
        self._terms: list[_Term] = []
        self._term_of = [0] * len(self.atoms)
        for key, members in groups.items():
            rows = [self._row(members, sample) for sample in self._samples(key, members)]
            for number in members:
                self._term_of[number] = len(self._terms)
            mask = sum(1 << number for number in members)
            self._terms.append(_Term(tuple(dict.fromkeys(rows)), mask))

    def _row(self, members: list[int], sample: _Sample) -> _Row:
        on = free = 0
        unsure: dict[Any, dict[bool, int]] = {}
        for number in members:
            atom = self.atoms[number]
            value = self._truth(number, sample)
            if value is _FREE:
                free |= 1 << number
                if not atom.decided:
                    unsure.setdefault((atom.shape, atom.payload), {})[atom.expects] = 1 << number
            elif value:
                on |= 1 << number
        pairs = tuple((p[True], p[False]) for p in unsure.values() if len(p) == 2)
        return _Row(on, free, pairs)

    @staticmethod
    def _term_key(atom: Atom) -> Any:
        value = subject(atom)
        if value is not None:
            return ("value", value)
        match atom.shape:
            case "compare":  # `x < y` and `y > x` are about the same two values
                return ("compare", frozenset(atom.payload[1:]))
            case "before" | "concurrent":
                return ("relation", atom.payload)
            case shape:
                return (shape, atom.payload)

    def _samples(self, key: Any, members: list[int]) -> Iterator[_Sample]:
        shape = key[0]
        if shape == "relation":
            # Unbound: both hold. Bound: before, concurrent, or neither.
            yield from (("unbound", None), ("before", None), ("concurrent", None), _OTHER)
            return
        if shape != "value":
            if shape == "compare":
                yield ("equal", 0)
                if len(key[1]) == 2:
                    yield from (("less", -1), ("more", 1), ("unequal", None))
            else:
                yield from (("true", True), ("false", False))
            yield _ABSENT
            return
        value = key[1]
        constants: list[Any] = []
        for number in members:
            atom = self.atoms[number]
            if atom.shape == "compare":
                constants.append(constant_of(atom.payload[2]))
            elif atom.shape == "member":
                constants += (value for _, value in atom.payload[1])
            elif PREDICATES[atom.shape].elsewhere is not None:
                # A glob without wildcards is a constant; with them, one more sample.
                constants += PREDICATES[atom.shape].read(atom.payload)[1]
        value = value.of if isinstance(value, syntax.Reference) else value
        name = value.name if isinstance(value, syntax.Field) else None
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
            yield from (("number", c) for c in _numbers_between(numbers))
        if name != "time":
            texts = sorted({c for c in constants if isinstance(c, str)})
            yield from (("constant", c) for c in texts)
            # Strings other than the constants: just after "", and just after each constant.
            yield from (("text", c) for c in ["", *texts])
        if name == "node":
            # `A#2` satisfies `host("A")`; its other predicates may have either value.
            hosts = {self.atoms[n].payload[0] for n in members if self.atoms[n].shape == "host"}
            yield from (("incarnation", h) for h in sorted(hosts) if not set("*?") & set(h))

    def _truth(self, number: int, sample: _Sample) -> Any:
        """Return an atom's truth on a sample; _FREE where it may be either."""
        sort, value = sample
        atom = self.atoms[number]
        shape = atom.shape
        if shape in ("before", "concurrent"):
            return sort in ("unbound", shape)
        if number in self._tests:
            return self._predicate_truth(number, sample)
        if sort in ("absent", "other"):
            return False
        if sort == "incarnation":
            return _FREE
        if shape == "compare":
            op, left, right = atom.payload
            if sort in ("constant", "number"):
                return holds(op, value, constant_of(right))
            if sort == "text":
                constant = constant_of(right)
                # The sample is a string just after `value`, no constant itself.
                return isinstance(constant, str) and holds(
                    op, *((1, 0) if value >= constant else (0, 1))
                )
            if sort == "unequal":
                return op == "!="
            # The sample is of the two values in the order of their names.
            return holds(op, *((value, 0) if repr(left) < repr(right) else (0, value)))
        if shape == "member":
            # Equivalent to `x == 1 || x == 2`; to `x != 1 && x != 2` for the atom of false.
            if sort in ("constant", "number") and (kind(value), value) in self._member_keys[number]:
                return atom.expects
            value_kind = "string" if sort == "text" else kind(value)
            return not atom.expects and {k for k, _ in self._member_keys[number]} == {value_kind}
        return (sort == "true") == atom.expects

    def _predicate_truth(self, number: int, sample: _Sample) -> Any:
        """Return the truth of a predicate's atom on a sample of its subject."""
        sort, value = sample
        atom = self.atoms[number]
        predicate = PREDICATES[atom.shape]
        _, constants = predicate.read(atom.payload)
        if sort in ("absent", "other"):
            is_of_kind = predicate.kind == "any" and (predicate.decided or sort == "other")
        else:
            value_kind = "string" if sort in ("text", "incarnation") else kind(value)
            is_of_kind = predicate.kind in ("any", value_kind)
        if not is_of_kind:
            return False
        # Such a sample stands for many values; but all incarnations of a host satisfy `host`.
        if sort in ("number", "text") or (sort == "incarnation" and atom.shape != "host"):
            truth = predicate.elsewhere(*constants) if predicate.elsewhere is not None else None
            return _FREE if truth is None else truth == atom.expects
        return bool(self._tests[number]([] if sort == "other" else value)) == atom.expects

    def _imply(self, number: int, on: int, off: int) -> tuple[int, int] | None:
        """Return the assignment with all that it implies for a term; None for a contradiction."""
        term = self._terms[number]
        on_here, off_here = on & term.members, off & term.members
        always, never, possible = term.members, term.members, False
        for row in term.rows:
            if on_here & ~(row.on | row.free) or off_here & row.on:
                continue
            if any(
                (on_here & p and on_here & q) or (off_here & p and off_here & q)
                for p, q in row.pairs
            ):
                continue
            possible = True
            always &= row.on & ~row.free
            never &= ~(row.on | row.free)
        return (on | always, off | never) if possible else None

    def narrowed(
        self, known: PartialAssignment, formulas: Sequence[Formula]
    ) -> PartialAssignment | None:
        """Return the assignment extended by formulas that must be true; None for a contradiction.

        This is unit propagation until no literal is forced, without splits.
        """
        on, off = known.on, known.off
        todo: list[Formula] = [*formulas, *known.rest]
        while True:
            rest: list[Formula] = []
            touched: set[int] = set()
            parts: dict[int, tuple[Formula, Formula]] = {}
            while todo:
                reduced = _reduce(todo.pop(), on, off, parts)
                if reduced is False:
                    return None
                if reduced is True:
                    continue
                assert not isinstance(reduced, bool)
                if reduced[0] == "and":
                    todo.extend(reduced[1])
                elif reduced[0] == "or":
                    rest.append(reduced)
                else:
                    on, off = (
                        (on | 1 << reduced[1], off) if reduced[2] else (on, off | 1 << reduced[1])
                    )
                    touched.add(self._term_of[reduced[1]])
                    parts = {}
            if not touched:
                return PartialAssignment(on, off, tuple(reversed(rest)))
            for number in sorted(touched):
                implied = self._imply(number, on, off)
                if implied is None:
                    return None
                on, off = implied
            todo = rest

    def satisfiable(self, known: PartialAssignment) -> bool:
        """Return whether all undecided formulas can be true at once.

        True also if `SPLITS_MAX` splits did not decide: without a proof the answer is never
        "unsatisfiable".
        """
        splits = 0
        todo: list[tuple[PartialAssignment, tuple[Formula, ...]]] = [(known, ())]
        while todo:
            known_before, formulas = todo.pop()
            after = self.narrowed(known_before, formulas) if formulas else known_before
            if after is None:
                continue
            known_counts: dict[int, int] = {}
            counts = _literal_counts(after.rest, known_counts)
            splits += 1 + sum(counts) // SPLIT_PARTS
            if not counts or splits > SPLITS_MAX:
                return True
            # Split the largest formula: literals forced by its parts decide most others. Its
            # smallest part is tried first, as it probably needs the fewest further splits.
            widest = after.rest[counts.index(max(counts))]
            assert not isinstance(widest, bool)
            sizes = _literal_counts(widest[1], known_counts)
            at = sizes.index(min(sizes))
            part, others = widest[1][at], disjunction((*widest[1][:at], *widest[1][at + 1 :]))
            rest = tuple(f for f in after.rest if f is not widest)
            split = PartialAssignment(after.on, after.off, rest)
            todo += [(split, (negation(part), others)), (split, (part,))]
        return False

    def extended(self, known: PartialAssignment, *formulas: Formula) -> PartialAssignment | None:
        """Return an assignment extended by formulas; None if they cannot be true with it."""
        after = self.narrowed(known, formulas)
        return after if after is not None and self.satisfiable(after) else None

    def can_hold(self, *formulas: Formula) -> bool:
        """Return whether some event, in some run, satisfies all formulas."""
        return self.extended(PartialAssignment(), *formulas) is not None

    def forces(self, known: PartialAssignment, formula: Formula) -> bool:
        """Return whether an assignment implies a formula."""
        return self.extended(known, negation(formula)) is None

    def equivalent(self, first: Formula, second: Formula) -> bool:
        """Return whether it is proven that two formulas accept the same events."""
        return not self.can_hold(first, negation(second)) and not self.can_hold(
            negation(first), second
        )


def _reduce(
    formula: Formula, on: int, off: int, known: dict[int, tuple[Formula, Formula]]
) -> Formula:
    """Return a formula simplified under an assignment.

    `known` caches the results by `id` of the part, with the part itself, since a part may occur in
    several places, as the formula of an event that guards name does.
    """
    if isinstance(formula, bool):
        return formula
    tag = formula[0]
    if tag == "var":
        bit = 1 << formula[1]
        if on & bit:
            return bool(formula[2])
        return not formula[2] if off & bit else formula
    before = known.get(id(formula))
    if before is not None:
        return before[1]
    decides = tag == "or"  # the value of a part that decides the whole
    parts: list[Formula] = []
    result: Formula = not decides
    for part in formula[1]:
        reduced = _reduce(part, on, off, known)
        if reduced is decides:
            result = decides
            break
        if not isinstance(reduced, bool):
            parts.append(reduced)
    else:
        if parts:
            result = parts[0] if len(parts) == 1 else (tag, tuple(parts))
    known[id(formula)] = formula, result
    return result


def _literal_counts(formulas: Iterable[Formula], known: dict[int, int]) -> list[int]:
    """Return how many literals each formula has, counting a shared part at each occurrence.

    `known` caches the counts of parts, as in `fold_formula`.
    """
    return [fold_formula(one, lambda _: 1, lambda _, parts: sum(parts), known) for one in formulas]


def _numbers_between(numbers: list[Any]) -> Iterator[float]:
    """Yield a number below, between each two neighbours of, and above sorted numbers.

    Whole numbers if possible: they are exact, however large.
    """
    finite = [n for n in numbers if isinstance(n, int) or math.isfinite(n)]
    if not finite:
        yield 0.5
        return
    yield math.floor(finite[0]) - 1
    yield math.ceil(finite[-1]) + 1
    for low, high in itertools.pairwise(finite):
        integer = math.floor(low) + 1
        if integer < high:
            yield integer
        elif abs(low) < _FLOATS_WHOLE:
            middle = low + (high - low) / 2
            if low < middle < high:
                yield middle


class TooManyMintermsError(Exception):
    """There are more minterms than `minterms_max`."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number  # of the guard at which the limit was exceeded


def minterms(formulas: Sequence[Formula], theory: Theory) -> tuple[tuple[int, ...], ...]:
    """Return the minterms of guards, each the sorted numbers of the guards that hold.

    The empty set, where no guard holds, is left out: it has no transition. A TooManyMintermsError
    if there are more than `minterms_max`.
    """
    regions: list[Region] = [((), PartialAssignment())]
    for number, formula in enumerate(formulas):
        # The number of minterms never decreases: each one so far contains at least one of the next.
        regions = split(regions, number, formula, theory)
        if sum(bool(chosen) for chosen, _ in regions) > theory.limits.minterms_max:
            raise TooManyMintermsError(number)
    return tuple(sorted(chosen for chosen, _ in regions if chosen))


Region: TypeAlias = tuple[tuple[int, ...], PartialAssignment]
"""(numbers of the formulas that hold, the assignment that follows from those that do and do not)"""


def split(regions: Iterable[Region], number: int, formula: Formula, theory: Theory) -> list[Region]:
    """Return the parts of regions in which one more formula holds, and in which it does not."""
    parts = (((number,), formula), ((), negation(formula)))
    return [
        ((*chosen, *more), after)
        for chosen, known in regions
        for more, part in parts
        if (after := theory.extended(known, part)) is not None
    ]


def classes(formulas: Sequence[Formula], theory: Theory) -> tuple[int, ...]:
    """Return the class of each local guard; guards of one class accept the same events."""
    representatives: list[Formula] = []
    class_of: list[int] = []
    for formula in formulas:
        equal_classes = (
            n
            for n, other in enumerate(representatives)
            if formula == other or theory.equivalent(formula, other)
        )
        class_of.append(next(equal_classes, len(representatives)))
        if class_of[-1] == len(representatives):
            representatives.append(formula)
    return tuple(class_of)
