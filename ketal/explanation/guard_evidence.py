"""Why a guard holds for an event, or does not: the literals that decide it, with their values.

A guard that holds is decided by all operands of `&&` and by the first true operand of `||`. A guard
that does not hold is decided by the first operand of `&&` that is not true and by all operands of
`||`; `!` swaps the two cases. The operands left out do not matter: whatever their values, the guard
would be decided the same way.

`ketal.semantics`, the definition of the language, evaluates the literals.

The one rule: the literals of an answer decide the guard.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ketal.analysis.registered_guards import GuardCall
from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.grammar.bare_names import DeclaredNames
from ketal.grammar.printer import render_guard, render_value
from ketal.model import syntax
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import concurrent, happened_before
from ketal.model.syntax_walks import walk
from ketal.model.wording import json_text, undetermined
from ketal.semantics import Guards, History, Moment, Truth

Relational = syntax.Causal | syntax.Conc


@dataclass(frozen=True, slots=True)
class Evidence:
    """A literal of a guard, with its truth value and the facts that decide it."""

    guard: str
    """The literal in pattern syntax. `Causal(G)` and `Conc(G)` stand for the relation alone; the
    literals of `G` have evidence of their own."""
    holds: bool | None
    """Whether the literal is true; None for unknown."""
    because: str
    """The facts that decide it, in words."""
    values: dict[str, Any]
    """The values that a comparison reads, by their text in the pattern; None for an absent one."""
    events: tuple[Dot, ...] = ()
    """The earlier events that a relation compares with the event; if it fails, the first that
    fails."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        out: dict[str, Any] = {"guard": self.guard, "holds": self.holds, "because": self.because}
        if self.values:
            out["values"] = self.values
        if self.events:
            out["events"] = [str(dot) for dot in self.events]
        return out

    def __str__(self) -> str:
        return f"{self.guard} {_HOLDS[self.holds]}: {self.because}"


_HOLDS = {True: "holds", False: "fails", None: "is unknown"}


class GuardEvidence(Guards):
    """Evaluates the guards of a pattern, and yields the evidence that decides them."""

    def __init__(self, compiled: CompiledPattern) -> None:
        super().__init__(dict(compiled.declared), {}, {}, clocks_decide=not compiled.undecided)
        self._undecided = compiled.undecided
        self._calls = {guard.name: GuardCall(guard) for guard in compiled.registered}
        self._names = DeclaredNames(declared=frozenset(self.guards))

    def answer(self, name: str, values: list[Any], at: Moment) -> Truth:
        """Return the answer of a registered guard; unknown if the guard raises, as in a run."""
        assert at.event is not None
        return self._calls[name](at.event, tuple(values))

    def text(self, guard: syntax.Guard) -> str:
        """Return a guard in pattern syntax."""
        return render_guard(guard, self._names)

    def decide(
        self, guard: syntax.Guard, event: Event, history: History, node: str | None = None
    ) -> tuple[bool, tuple[Evidence, ...]]:
        """Return whether a guard holds for an event after a history, and the evidence, each once.

        Under `at every node`, `node` is the node whose copy of the pattern is offered the event.
        """
        at = self.moment(event, history, node)
        evidence = {str(one): one for one in self._decisive(guard, at, True)}
        return self.truth(guard, at) is True, tuple(evidence.values())

    def conditions(self, guard: syntax.Guard) -> list[syntax.Guard]:
        """Return the guards whose conjunction a guard is, each once, in the order of the text."""
        return list({self.text(one): one for one in self._conjuncts(guard)}.values())

    def _conjuncts(self, guard: syntax.Guard) -> Iterator[syntax.Guard]:
        match guard:
            case syntax.Name(name):
                yield from self._conjuncts(self.guards[name])
            case syntax.And(operands):
                for operand in operands:
                    yield from self._conjuncts(operand)
            case syntax.Causal(inner, anchor) | syntax.Conc(inner, anchor):
                yield from self._conjuncts(inner)
                yield type(guard)(syntax.Truth(True), anchor)
            case _:
                yield guard

    def _decisive(self, guard: syntax.Guard, at: Moment, wanted: bool) -> Iterator[Evidence]:
        """Yield the literals that decide whether the truth of a guard is `wanted`."""
        match guard:
            case syntax.Name(name):
                yield from self._decisive(self.guards[name], at, wanted)
            case syntax.Not(operand):
                yield from self._decisive(operand, at, not wanted)
            case syntax.And(operands):
                yield from self._operand_literals(operands, at, wanted, every=wanted)
            case syntax.Or(operands):
                yield from self._operand_literals(operands, at, wanted, every=not wanted)
            case syntax.Causal(inner, anchor) | syntax.Conc(inner, anchor):
                # Decided like `inner && relation`.
                relation = self.truth(type(guard)(syntax.Truth(True), anchor), at)
                held = [self.truth(inner, at) is wanted, relation is wanted]
                chosen = _deciding_indices(held, every=wanted)
                if 0 in chosen:
                    yield from self._decisive(inner, at, wanted)
                if 1 in chosen:
                    yield self._relation_evidence(guard, at, wanted, holds=held[1])
            case _:
                yield self._comparison_evidence(guard, at, wanted)

    def _operand_literals(
        self, operands: tuple[syntax.Guard, ...], at: Moment, wanted: bool, *, every: bool
    ) -> Iterator[Evidence]:
        """Yield the literals that decide whether all operands, or any, are `wanted`."""
        held = [self.truth(operand, at) is wanted for operand in operands]
        for number in _deciding_indices(held, every=every):
            yield from self._decisive(operands[number], at, wanted)

    # --- literals ---

    def _literal_text(self, guard: syntax.Guard, wanted: bool) -> str:
        return self.text(guard if wanted else syntax.Not(guard))

    def _comparison_evidence(self, guard: syntax.Guard, at: Moment, wanted: bool) -> Evidence:
        """Return the evidence of a literal other than a relation."""
        truth = self.truth(guard, at)
        holds = truth if wanted or truth is None else not truth
        values = dict(self._values_read(guard, at))
        parts = [
            f"{name} is {'absent' if value is None else json_text(value)}"
            for name, value in values.items()
        ]
        if isinstance(guard, syntax.Localhost):
            parts = [f"the event is {'' if at.local else 'not '}from the copy's own node"]
        registered = isinstance(guard, syntax.Function) and guard.name in self._calls
        if truth is None and None not in values.values():
            parts.append(_UNANSWERED if registered else "values of these kinds cannot be compared")
        elif not parts:
            parts = [f"the registered guard returned {truth}" if registered else "for every event"]
        return Evidence(self._literal_text(guard, wanted), holds, ", ".join(parts), values)

    def _values_read(self, guard: syntax.Guard, at: Moment) -> Iterator[tuple[str, Any]]:
        """Yield the text in the pattern and the value of each value that a literal reads."""
        match guard:
            case syntax.Call():
                read: list[syntax.Value] = [syntax.Field("type")]
                if guard.result != "*":
                    read.append(syntax.Attribute(("result_type",)))
                if guard.arguments != ("..",):
                    read.append(syntax.Attribute(("arg_types",)))
            case syntax.Function("host", _):
                read = [syntax.Field("node")]
            case syntax.Function("origin", _):
                read = [syntax.Attribute(("origin",)), syntax.Field("node")]
            case _:
                read = [
                    node
                    for node in walk(guard)
                    if isinstance(node, syntax.Field | syntax.Attribute | syntax.Reference)
                ]
                # The field inside a reference is not a value by itself.
                within = {id(node.of) for node in read if isinstance(node, syntax.Reference)}
                read = [node for node in read if id(node) not in within]
        for value in read:
            yield render_value(value, self._names), self.value(value, at)

    def _relation_evidence(
        self, guard: Relational, at: Moment, wanted: bool, *, holds: bool
    ) -> Evidence:
        """Return the evidence of the relation of a `Causal` or `Conc`, without its inner guard."""
        assert at.event is not None
        event = at.event
        relation = happened_before if isinstance(guard, syntax.Causal) else concurrent
        text = self._literal_text(guard, wanted)
        anchors = self.anchors(guard.anchor, at.history)
        dots = tuple(anchor.dot for anchor in anchors)
        if not anchors:
            of_step = guard.anchor not in (syntax.ALL, syntax.PRIOR)
            because = "the step has no event yet" if of_step else "no event was taken before it"
            return Evidence(text, holds, because, {})
        if self.related(relation, guard.anchor, at) is None:
            others = anchors[0].dot if len(anchors) == 1 else f"{len(anchors):,} events"
            because = undecided_in_words(self._undecided, event, others)
            return Evidence(text, None, because, {}, dots)
        wrong = [anchor for anchor in anchors if not relation(anchor, event)]
        if wrong or len(anchors) == 1:
            one, *_ = wrong or anchors
            return Evidence(text, holds, order_in_words(one, event), {}, (one.dot,))
        word = "after" if isinstance(guard, syntax.Causal) else "concurrent with"
        because = f"{event.dot} is {word} all {len(anchors):,} earlier events of the run"
        return Evidence(text, holds, because, {}, dots)


def _deciding_indices(held: list[bool], *, every: bool) -> list[int]:
    """Return the indices of the operands that decide whether all hold (or one, if not `every`)."""
    if all(held) if every else not any(held):
        return list(range(len(held)))
    return [held.index(not every)]


_UNANSWERED = "the registered guard did not return True or False"


def order_in_words(one: Event, other: Event) -> str:
    """Return how happened-before orders two different events, with the clock entries as proof."""
    if happened_before(one, other):
        return f"{other.dot} is after {one.dot}: {_knows(other, one)}"
    if happened_before(other, one):
        return f"{other.dot} is before {one.dot}: {_knows(one, other)}"
    return f"{one.dot} and {other.dot} are concurrent: {_knows(other, one)}, {_knows(one, other)}"


def undecided_in_words(scheme: str, event: Event, others: object) -> str:
    """Return that clocks of a scheme leave open how an event and others are ordered."""
    return f"{undetermined(scheme)} how {event.dot} and {others} are ordered"


def possible_order_in_words(scheme: str) -> str:
    """Return the meaning of arrows if clocks do not decide happened-before; empty if they do."""
    meaning = "happened-before: arrows show what may have happened before what"
    return f"{undetermined(scheme)} {meaning}" if scheme else ""


def _knows(one: Event, other: Event) -> str:
    """Return the comparison of an event's clock with another event: `b@7 knows a:5 >= 3`."""
    if one.node == other.node:
        sign = ">" if one.counter > other.counter else "<"
        return f"on {one.node}, {one.counter} {sign} {other.counter}"
    entry = one.clock.get(other.node, 0)
    sign = ">=" if entry >= other.counter else "<"
    return f"{one.dot} knows {other.node}:{entry} {sign} {other.counter}"
