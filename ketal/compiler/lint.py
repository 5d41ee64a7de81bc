"""The findings of lint that need more than the syntax of a pattern.

*Order*: options of an order that exclude each other or have no effect, and guards that are unknown
with clocks that do not decide happened-before. *Bindings*: which steps have an event when a guard
is evaluated. A reference `First.hash` needs an event of `First` on every path to it, an anchor on
some path. A step that must be both after and concurrent with events that every path binds is
impossible. *Coverage*: which guards are satisfied by some event, and by some event of the alphabet.

The one rule: every path of the position automaton counts, whatever events it would need; a guard is
reported only if the theory of its atoms proves that no event satisfies it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ketal.analysis.bodies import Finding
from ketal.clocks.scheme import NO_CLOCKS
from ketal.compiler.commutation import needs_no_order
from ketal.compiler.glushkov import Positions, taken_before
from ketal.compiler.minterms import Theory
from ketal.compiler.predicate_codegen import compile_value
from ketal.compiler.predicates import Formula, Lowering, constant_of, simplify
from ketal.errors import PatternError, Span
from ketal.model import syntax
from ketal.model.limits import Limits
from ketal.model.syntax_walks import references, walk
from ketal.model.values import kind
from ketal.model.wording import undetermined
from ketal.operators.topology.domain_order import domains_of

# --- scope and order ------------------------------------------------------------


def scope_findings(pattern: syntax.Pattern) -> Iterator[Finding]:
    """Yield each partition key named `node`, the name of a copy's node in its scope."""
    for key in pattern.partition if pattern.deployment is not None else ():
        if key.last_name == "node":
            message = "two parts of the scope are named `node`"
            hint = "remove the key `node`: the scope of each copy already names its node"
            yield "K206", "error", message, key.span, hint


def order_findings(pattern: syntax.Pattern, limits: Limits) -> Iterator[Finding]:
    """Yield the faults of a pattern's order: a wrong topology, options without effect."""
    order = pattern.order
    if pattern.topology is not None:
        try:
            domains_of(pattern.topology, limits)
        except PatternError as error:
            for d in error.diagnostics:
                yield d.code, "error", d.message, d.span, d.hint
    if needs_no_order(pattern):
        yield from _options_without_effect(order)
    elif order.total and order.nodes is None:
        message = "on a stream, `total` without `nodes` does not know which nodes have yet to join"
        hint = "declare `nodes = [...]`; else an event of a node that joins can be `late`"
        yield "K222", "warning", message, order.span, hint


def _options_without_effect(order: syntax.Order) -> Iterator[Finding]:
    """Yield the order options that control waiting, in a pattern whose events never wait."""
    waiting = {"total", "idle", "overflow"}
    if order.total or order.idle is not None:
        waiting.add("nodes")
    useless = [f"`{name}`" for name in order.given if name in waiting]
    if useless:
        message = (
            f"a `find any` without `not` never waits for an event, so {' and '.join(useless)} "
            f"{'has' if len(useless) == 1 else 'have'} no effect on its matches"
        )
        hint = "write `order CausalOrder;`, with `gap` if lost events are to be reported"
        yield "K224", "warning", message, order.span, hint


def undecided_findings(
    pattern: syntax.Pattern, guards: Iterable[syntax.Guard], scheme: str
) -> Iterator[Finding]:
    """Yield the parts of a pattern that are unknown with clocks of an undecided scheme."""
    if scheme == NO_CLOCKS:
        yield from _needs_of_clocks(pattern, guards)
        return
    deployment = pattern.deployment
    if deployment is not None and not deployment.receiving:
        yield (
            "K306", "error", "a copy of the pattern is offered the events that its node knew of, "
            f"which {scheme} clocks do not determine", pattern.places.get("at") or pattern.span,
            "write `at every node receiving`, if events name the messages that they receive",
        )  # fmt: skip
    if pattern.mode is not None:
        yield (
            "K306", "error", f"`mode {pattern.mode}` considers every linear extension, which "
            f"{scheme} clocks do not determine", pattern.places.get("mode")
            or pattern.span, "remove it, or read a log whose clocks decide happened-before",
        )  # fmt: skip
    for node in (node for guard in guards for node in _causal_operators(guard)):
        if isinstance(node, syntax.Causal):
            message = (
                f"{scheme} clocks cannot prove an order between nodes: this `Causal` is true only "
                "for events of one node, else false or unknown"
            )
            hint = "use `!Causal(…)` or `Conc(…)`, which can be certain"
        else:
            message = f"{scheme} clocks do not show all concurrent events: others are unknown here"
            hint = "rely only on a `Conc` that is true: this is certain"
        yield "K305", "warning", message, node.span, hint


def _needs_of_clocks(pattern: syntax.Pattern, guards: Iterable[syntax.Guard]) -> Iterator[Finding]:
    """Yield the parts of a pattern that need happened-before, which a log without clocks lacks."""
    parts: list[tuple[str, object, Span | None]] = [
        ("CausalOrder", pattern.order.kind == "causal", pattern.order.span),
        ("at", pattern.deployment, pattern.places.get("at")),
        ("mode", pattern.mode, pattern.places.get("mode")),
    ]
    for node in (node for guard in guards for node in _causal_operators(guard)):
        parts.append((type(node).__name__, node, node.span))
    for name, is_given, span in parts:
        if is_given:
            message = f"{undetermined(NO_CLOCKS)} happened-before, which `{name}` needs"
            hint = "use `order arrival` alone, or rebuild the clocks from messages or traces"
            yield "K306", "error", message, span or pattern.span, hint


# --- bindings ---


@dataclass(frozen=True)
class Bindings:
    """The checks of the references and anchors in a pattern's guards."""

    positions: Positions  # the position automaton of the body
    steps: tuple[str, ...]  # the steps' names, by number
    guards: Mapping[str, syntax.Guard]  # the guard of each step
    not_guards: tuple[syntax.Guard, ...]  # the guards of `not`s, by number

    @functools.cached_property
    def numbers(self) -> dict[str, int]:
        """The numbers of the steps."""
        return {name: number for number, name in enumerate(self.steps)}

    def _numbers(self, names: Iterable[str]) -> frozenset[int]:
        return frozenset(self.numbers[name] for name in names if name in self.numbers)

    def unbound_references(self, returns: syntax.Returns | None) -> Iterator[Finding]:
        """Yield each reference to a step that is unbound on some path."""
        guards = [references(self.guards[name]) for name in self.steps]
        nots = [references(guard) for guard in self.not_guards]
        returned = [] if returns is None else references(returns)
        referenced = {r.step for part in (*guards, *nots, returned) for r in part}
        bound = taken_before(self.positions, self._numbers(referenced), on_every_path=True)
        missing: dict[str, tuple[Span | None, str]] = {}

        def need(wanted: list[syntax.Reference], have: frozenset[int], owner: int = -1) -> None:
            for reference in wanted:
                step = reference.step
                number = self.numbers.get(step)
                if number in have:
                    continue
                hint = (
                    f"every path to it must pass through `{step}`; an anchor "
                    f"(`Causal(g, {step})`) may be unbound, a reference may not"
                )
                if number in (None, owner):
                    why = "is no step of the body" if number is None else "is this step itself"
                    hint = (
                        f"`{step}` {why}; a name without `{step}.` is an attribute of the event "
                        "that the guard tests"
                    )
                missing.setdefault(step, (reference.span, hint))

        for p, on_edge, q in self.positions.edges:
            need(guards[self.positions.steps[q]], bound[p], self.positions.steps[q])
            for number in on_edge:
                need(nots[number], bound[p])
        for position in self.positions.finals:
            need(returned, bound[position])
        for step, (span, hint) in missing.items():
            message = f"`{step}` has no event on some paths to this reference"
            yield "K201", "error", message, span, hint

    def void_anchors(self) -> Iterator[Finding]:
        """Yield each anchor without an event on any path: its operator compares with nothing."""
        guards = [*self.guards.values(), *self.not_guards]
        anchors = self._numbers(a.anchor for g in guards for a in _causal_operators(g))
        taken = taken_before(self.positions, anchors, on_every_path=False)
        steps: dict[str, list[int]] = {}  # the positions before each step, and before each `not`
        nots: dict[int, list[int]] = {}
        for p, on_edge, q in self.positions.edges:
            steps.setdefault(self.steps[self.positions.steps[q]], []).append(p)
            for number in on_edge:
                nots.setdefault(number, []).append(p)
        sites = [(self.guards[name], f"`{name}`", before) for name, before in steps.items()]
        sites += [(self.not_guards[n], "this `not`", before) for n, before in nots.items()]
        for guard, name, before in sites:
            known = frozenset().union(*(taken[p] for p in before))
            for node in _causal_operators(guard):
                yield from self._void_anchor(node, known, any(before), name)

    def _void_anchor(
        self, node: syntax.Causal | syntax.Conc, known: frozenset[int], anything: bool, before: str
    ) -> Iterator[Finding]:
        if node.anchor in (syntax.PRIOR, syntax.ALL):
            if anything:
                return
            reason = f"no event is taken before {before}"
            hint = "write its event alone, or put a step before it in the body"
        elif node.anchor not in self.numbers:
            reason = f"the step `{node.anchor}` is not in the body"
            hint = f"put `{node.anchor}` into the body before {before}, or name another anchor"
        elif self.numbers[node.anchor] not in known:
            reason = f"on no path does `{node.anchor}` have an event before {before}"
            hint = f"put the anchor before {before} in the body, or both into one repetition"
        else:
            return
        message = f"`{type(node).__name__}` has no event to compare with here: {reason}"
        yield "K223", "warning", message, node.anchor_span or node.span, hint

    def impossible_relations(
        self,
        formulas: Sequence[Formula],
        theory: Theory,
        spans: Mapping[str, Span | None],
    ) -> Iterator[Finding]:
        """Yield each step both after and concurrent with events that are always bound."""
        related = {
            shape: [(n, a.payload[0]) for n, a in enumerate(theory.atoms) if a.shape == shape]
            for shape in ("before", "concurrent")
        }
        pairs = [(b, c, {x, y}) for b, x in related["before"] for c, y in related["concurrent"]]
        if not pairs:
            return
        every = frozenset(range(len(self.steps)))
        bound = taken_before(self.positions, every, on_every_path=True)
        alive: dict[int, bool] = {}
        for p, _, q in self.positions.edges:
            step = self.positions.steps[q]
            if alive.get(step):
                continue
            anchors = {self.steps[number] for number in bound[p]}
            same = [{anchor, syntax.ALL} for anchor in anchors]
            if p:
                prior = self.steps[self.positions.steps[p]]
                anchors |= {syntax.PRIOR, syntax.ALL}
                same += [{syntax.PRIOR, syntax.ALL}, {syntax.PRIOR, prior}]
            never_both = [
                ("or", (("var", b, False), ("var", c, False)))
                for b, c, pair in pairs
                if pair <= anchors and (len(pair) == 1 or pair in same)
            ]
            alive[step] = theory.can_hold(formulas[step], *never_both)
        for step, possible in alive.items():
            if not possible:
                name = self.steps[step]
                yield (
                    "K203", "error", f"no event can satisfy the step `{name}`", spans.get(name),
                    "the events that it refers to are always bound here, and an event causally "
                    "after another is not concurrent with it",
                )  # fmt: skip


def _causal_operators(guard: syntax.Guard) -> list[syntax.Causal | syntax.Conc]:
    """Return the causal operators in a guard."""
    return [n for n in walk(guard) if isinstance(n, syntax.Causal | syntax.Conc)]


# --- coverage ---

_CALCULATED = syntax.Literal | syntax.Duration | syntax.Arithmetic | syntax.Negative


@dataclass(frozen=True)
class Coverage:
    """The checks of which events a pattern's guards accept."""

    lowering: Lowering  # lowers the parts of a guard
    theory: Theory  # the theory of the pattern's atoms
    alphabet: Formula  # the formula that the events of the alphabet satisfy

    def step_findings(
        self,
        guards: Mapping[str, syntax.Guard],
        formulas: Sequence[Formula],
        spans: Mapping[str, Span | None],
    ) -> Iterator[Finding]:
        """Yield each step that no event, or no event of the alphabet, satisfies."""
        for (name, guard), formula in zip(guards.items(), formulas, strict=True):
            if not self._can_hold(formula):
                span, hint = self._contradiction(guard)
                message = f"no event can satisfy the step `{name}`"
                yield "K203", "error", message, span or spans.get(name), hint
            elif not self._can_hold(formula, self.alphabet):
                message = (
                    f"no declared event covers the step `{name}`: no event would be offered to it"
                )
                hint = "declare an `event` that includes what the step accepts"
                yield "K204", "error", message, spans.get(name), hint

    def not_findings(
        self, guards: Sequence[syntax.Guard], formulas: Sequence[Formula]
    ) -> Iterator[Finding]:
        """Yield each guard of a `not` that no event of the alphabet satisfies."""
        for guard, formula in zip(guards, formulas, strict=True):
            if not self._can_hold(formula, self.alphabet):
                message = "no declared event covers this `not`: it never excludes anything"
                hint = "declare an `event` that includes what it excludes"
                yield "K205", "warning", message, guard.span, hint

    def _can_hold(self, *formulas: Formula) -> bool:
        """Return whether some event satisfies all formulas; comparisons without a value are false.

        Those are the comparisons with a constant expression that has no value, as `1 / 0`.
        """
        return self.theory.can_hold(*(simplify(one, self._unknown) for one in formulas))

    @functools.cached_property
    def _unknown(self) -> dict[int, bool]:
        return {
            number: False
            for number, atom in enumerate(self.theory.atoms)
            if atom.shape == "compare" and any(map(self._lacks_value, atom.payload[1:]))
        }

    def _lacks_value(self, node: syntax.Node) -> bool:
        """Return whether a node contains a constant expression without a value, as `1 / 0`."""
        return any(
            isinstance(part, syntax.Arithmetic | syntax.Negative)
            and all(isinstance(one, _CALCULATED) for one in walk(part))
            and compile_value(part, self.theory.limits)({}) is None
            for part in walk(node)
        )

    def _contradiction(self, guard: syntax.Guard) -> tuple[Span | None, str]:
        """Return the place of the unsatisfiable part of a guard, and a hint that says why.

        The place is None if no single part is unsatisfiable: the parts contradict each other.
        """
        parts = guard.operands if isinstance(guard, syntax.And) else (guard,)
        never = [part for part in parts if not self._can_hold(self.lowering.lower(part))]
        if any(map(self._lacks_value, never)):
            hint = (
                "a calculation in it, such as a division by 0, has no value: it is always unknown"
            )
            return never[0].span, hint
        kinds = next((kinds for part in never for kinds in self._mixed_kinds(part)), None)
        if kinds is None:
            hint = self._swapped_anchor(parts) or "its conditions contradict each other"
            return (never[0].span if never else None), hint
        return never[0].span, (
            f"a list contains a {' and a '.join(kinds)}; a comparison of different kinds is "
            "unknown, so no value is known not to be in the list: write a list for each kind, "
            '`!(x in [1]) || !(x in ["a"])`'
        )

    def _swapped_anchor(self, parts: Sequence[syntax.Guard]) -> str:
        """Return a hint if an event is named where a causal operator takes the event itself."""
        for part in parts:
            if not isinstance(part, syntax.Causal | syntax.Conc) or part.anchor != syntax.PRIOR:
                continue
            if not isinstance(part.guard, syntax.Name):
                continue
            formula = self.lowering.lower(part)
            others = {one: self.lowering.lower(one) for one in parts if one is not part}
            excluded = [
                one.name
                for one, other in others.items()
                if isinstance(one, syntax.Name) and not self._can_hold(other, formula)
            ]
            both_hold = self._can_hold(formula) and self._can_hold(*others.values())
            if excluded and both_hold:
                operator = type(part).__name__
                return (
                    f"the first argument of `{operator}` is the event itself, the second the "
                    f"event that it is compared with: write `{operator}({excluded[0]}, "
                    f"{part.guard.name})`"
                )
        return ""

    def _mixed_kinds(self, guard: syntax.Guard, positive: bool = True) -> Iterator[tuple[str, ...]]:
        """Yield the kinds of the constants in each list of a negated `in` that mixes kinds."""
        match guard:
            case syntax.Name(name=name):
                yield from self._mixed_kinds(self.lowering.events[name], positive)
            case syntax.Not(operand=operand):
                yield from self._mixed_kinds(operand, not positive)
            case syntax.And(operands=operands) | syntax.Or(operands=operands):
                for part in operands:
                    yield from self._mixed_kinds(part, positive)
            case syntax.Causal(guard=inner) | syntax.Conc(guard=inner):
                yield from self._mixed_kinds(inner, positive)
            case syntax.Membership(items=items) if not positive:
                constants = [c for c in map(constant_of, items) if c is not None]
                kinds = tuple(dict.fromkeys(map(kind, constants)))
                if len(kinds) > 1:
                    yield kinds
