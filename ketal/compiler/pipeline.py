"""The compiler: from a pattern's syntax to its automaton.

The stages: parameters are substituted (`ketal.analysis.parameters`); the body becomes a position
automaton over steps (`ketal.compiler.glushkov`), on whose paths the references and anchors of
guards are checked (`ketal.compiler.lint`); guards, whose size with the events that they name is
bounded, lower to formulas over atoms (`ketal.compiler.predicates`); the position automaton becomes
the minimal deterministic automaton over minterms (`ketal.compiler.dfa`); liveness finds the
registers that each state keeps; last, ambiguity and order-sensitivity are decided
(`ketal.compiler.commutation`).

The one rule: nothing that depends on hash order leaves this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from typing import NamedTuple

from ketal.analysis.bodies import Finding
from ketal.analysis.declared_names import event_dependencies
from ketal.analysis.parameters import ParamValue, substitute_params
from ketal.analysis.registered_guards import RegisteredGuard
from ketal.clocks.scheme import NO_CLOCKS
from ketal.compiler.automaton import ANONYMOUS, Automaton, LiveRegisters, Variant
from ketal.compiler.commutation import ambiguities, order_sensitivity
from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.compiler.dfa import Guards, determinise
from ketal.compiler.glushkov import Glushkov, Positions, automaton_positions, mirrors_possible
from ketal.compiler.lint import (
    Bindings,
    Coverage,
    order_findings,
    scope_findings,
    undecided_findings,
)
from ketal.compiler.minterms import Theory, classes
from ketal.compiler.predicates import (
    Atom,
    Formula,
    Lowering,
    conjunction,
    disjunction,
    local_guard,
    registers,
    variables,
)
from ketal.errors import Diagnostic, PatternError, PatternText, Span, pattern_error
from ketal.model import syntax
from ketal.model.limits import DEFAULT, Limits
from ketal.model.syntax_walks import children, not_guards, steps_of, walk


class _Lowered(NamedTuple):
    """The guards of a pattern as formulas over atoms."""

    formulas: list[Formula]  # the guards of the steps, by number
    nots: list[Formula]  # the guards of the `not`s, by number
    barred: list[Formula]
    """For each `not`: that no event between the prior event and this one breaks it."""
    events: tuple[tuple[syntax.EventDecl, Formula], ...]
    """The declared events that make the alphabet."""
    alphabet: Formula  # the formula of an event of the alphabet
    theory: Theory  # the atoms, and which truth values of them an event can have together


class _Compilation:
    """The compilation of one pattern; each method is a stage."""

    def __init__(
        self,
        file: syntax.File,
        pattern: syntax.Pattern,
        registered: Mapping[str, RegisteredGuard],
        limits: Limits,
        undecided: str,
    ) -> None:
        self.file = file
        self.pattern = pattern
        self.registered = registered
        self.limits = limits
        self.named_events = (*file.events, *pattern.events)
        self.events = {d.name: d.guard for d in self.named_events}
        self.undecided = undecided
        self.lowering = Lowering(self.events, limits, registered, clocks_decide=not undecided)
        self.diagnostics: list[Diagnostic] = []
        self.not_guards = not_guards(pattern.body)
        self._declare_steps()

    def _add(self, *findings: Finding) -> None:
        self.diagnostics += [Diagnostic(*finding, self.pattern.name) for finding in findings]

    # names

    def _declare_steps(self) -> None:
        """Assign numbers to the steps that the body uses, in declaration order."""
        used = steps_of(self.pattern.body)
        guards: dict[str, syntax.Guard] = {}
        spans: dict[str, Span | None] = {}
        for decl in (*self.file.events, *self.pattern.declarations):
            if decl.name in used:
                is_step = isinstance(decl, syntax.StepDecl)
                guards[decl.name] = decl.guard if is_step else syntax.Name(decl.name)
                spans[decl.name] = decl.span
        self.steps = tuple(guards)
        self.numbers = {name: i for i, name in enumerate(self.steps)}
        self.guards = guards
        self.spans = spans

    # the body

    def positions(self) -> Positions:
        body = self.pattern.body
        if isinstance(body, syntax.AutomatonBody):
            return automaton_positions(body, self.numbers)
        nots = {guard: number for number, guard in enumerate(self.not_guards)}
        return Glushkov(self.numbers, nots, self.limits).build(body)

    def compile(self, source: PatternText | None) -> CompiledPattern:
        self._add(*scope_findings(self.pattern))
        self._add(*order_findings(self.pattern, self.limits))
        positions = self.positions()
        bindings = Bindings(positions, self.steps, self.guards, self.not_guards)
        self._add(*bindings.unbound_references(self.pattern.returns))
        self._add(*bindings.void_anchors())
        self._raise_errors()
        lowered = self._lower()
        self._check_guards(lowered, bindings)
        self._raise_errors()
        automaton = _with_liveness(self._automaton(positions, lowered))
        return self._finish(automaton, lowered, source)

    # guards

    def _lower(self) -> _Lowered:
        """Lower the guards of the steps, the `not`s and the events that make the alphabet."""
        named = _events_named(self.pattern)
        shared = (d for d in self.file.events if d.name in named)
        declared = (*shared, *self.pattern.events)
        guards = (*(d.guard for d in declared), *self.guards.values(), *self.not_guards)
        _refuse_large(self.events, guards, self.limits)
        # The order in which guards are lowered numbers the atoms.
        formulas = [self.lowering.lower(self.guards[s]) for s in self.steps]
        nots = [self.lowering.lower(g) for g in self.not_guards]
        barred = [
            self.lowering.variable(Atom("barred", (n,), relational=True), False)
            for n in range(len(nots))
        ]
        events = tuple((d, self.lowering.lower(d.guard)) for d in declared)
        alphabet = disjunction(formula for _, formula in events)
        theory = Theory(self.lowering.atoms, self.limits)
        return _Lowered(formulas, nots, barred, events, alphabet, theory)

    def _check_guards(self, lowered: _Lowered, bindings: Bindings) -> None:
        """Add the findings about guards that no event, or no run, can satisfy."""
        coverage = Coverage(self.lowering, lowered.theory, lowered.alphabet)
        self._add(*coverage.step_findings(self.guards, lowered.formulas, self.spans))
        self._add(*coverage.not_findings(self.not_guards, lowered.nots))
        self._add(*bindings.impossible_relations(lowered.formulas, lowered.theory, self.spans))
        if self.undecided:
            all_guards = (*self.guards.values(), *self.not_guards)
            self._add(*undecided_findings(self.pattern, all_guards, self.undecided))

    # the automaton

    def _automaton(self, positions: Positions, lowered: _Lowered) -> Automaton:
        """Return the minimal deterministic automaton of the body, without liveness."""
        formulas, theory = lowered.formulas, lowered.theory
        variants = [
            Variant(step, on_edge)
            for step, on_edge in sorted({(positions.steps[q], ns) for _, ns, q in positions.edges})
        ]
        on_edges = tuple(
            conjunction([formulas[v.step], *(lowered.barred[n] for n in v.nots)]) for v in variants
        )
        groups = self._groups(theory.atoms)
        on_variants = Guards(
            variants=tuple(variants),
            formulas=on_edges,
            groups=tuple(groups[v.step] for v in variants),
            names=tuple(self.steps[v.step] for v in variants),
            spans=tuple(self.spans.get(self.steps[v.step]) for v in variants),
        )
        minimal = determinise(
            positions,
            on_variants,
            theory,
            check=self.pattern.kind == "check",
            span=self.pattern.body.span,
        )
        guard_classes = classes([local_guard(f, theory.atoms) for f in formulas], theory)
        return Automaton(
            steps=self.steps,
            atoms=theory.atoms,
            variants=on_variants.variants,
            formulas=on_edges,
            nots=tuple(lowered.nots),
            classes=guard_classes,
            mirrors=mirrors_possible(positions, guard_classes),
            live=(),
            **vars(minimal),
        )

    def _raise_errors(self) -> None:
        if errors := [d for d in self.diagnostics if d.severity == "error"]:
            raise PatternError(errors)

    def _groups(self, atoms: Sequence[Atom]) -> tuple[int, ...]:
        """Return each step's group: its own number if its event is kept, else `ANONYMOUS`."""
        if self.pattern.kind == "find":
            return tuple(range(len(self.steps)))
        read = {
            self.numbers[name]
            for atom in atoms
            if atom.relational
            for name in registers(atom).steps
            if name in self.numbers
        }
        return tuple(n if n in read else ANONYMOUS for n in range(len(self.steps)))

    def _finish(
        self,
        automaton: Automaton,
        lowered: _Lowered,
        source: PatternText | None,
    ) -> CompiledPattern:
        p, theory = self.pattern, lowered.theory
        sensitive = order_sensitivity(p, automaton, lowered.alphabet, theory)
        has_one_order = p.order.total or self.undecided == NO_CLOCKS  # the order of the records
        if sensitive is not None and not has_one_order and p.mode is None:
            # A `mode` considers every order.
            self._add(sensitive)
        for state, one, two in ambiguities(automaton, theory):
            message = f"ambiguous: in state {state} one event can be both `{one}` and `{two}`"
            hint = "both readings are followed; a run may need several configurations"
            self._add(("K221", "warning", message, self.spans.get(two), hint))
        called = {
            n.name
            for part in (p, *self.file.events)
            for n in walk(part)
            if isinstance(n, syntax.Function)
        }
        return CompiledPattern(
            name=p.name,
            pattern=p,
            automaton=automaton,
            alphabet=lowered.alphabet,
            guards=tuple(self.guards.items()),
            order_independent=sensitive is None,
            warnings=tuple(self.diagnostics),
            registered=tuple(
                self.registered[name] for name in sorted(called & self.registered.keys())
            ),
            limits=self.limits,
            undecided=self.undecided,
            source=source,
            events=lowered.events,
            named_events=self.named_events,
            declared=(*self.events.items(), *((d.name, d.guard) for d in p.steps)),
        )


def _events_named(pattern: syntax.Pattern) -> set[str]:
    """Return the names of the events that a pattern names itself, as a guard or as a step."""
    named = {n.name for n in walk(pattern) if isinstance(n, syntax.Name)}
    return named | steps_of(pattern.body)


# --- guards with the events that they name -------------------------------------

EXPANDED_NESTING = 3
"""The most levels of a guard with the events that it names, as a multiple of `nesting_max`."""


def _refuse_large(
    events: Mapping[str, syntax.Guard], guards: Sequence[syntax.Guard], limits: Limits
) -> None:
    """Refuse guards that are too deep, or together too large, with the events that they name.

    The parser bounds the nesting of each guard, but events may name other events: the depths of a
    chain of events add up, and if each names the one before twice, the size doubles with each. So
    guards are measured before they are expanded.
    """
    levels_max = limits.nesting_max * EXPANDED_NESTING
    known: dict[str, tuple[int, int]] = {}
    for name in TopologicalSorter(event_dependencies(events, events)).static_order():
        known[name] = _measure(events[name], known)
    total, hint = 0, "define fewer events in terms of others"
    for guard in guards:
        levels, parts = _measure(guard, known)
        total += parts
        if levels > levels_max:
            message = (
                f"with the events that it names, this is nested more than {levels_max} levels deep "
                f"({EXPANDED_NESTING} times the limit nesting_max)"
            )
            raise pattern_error("K003", message, guard.span, hint=hint)
        if total > limits.pattern_bytes_max:
            message = (
                f"with the events that they name, guards have more than "
                f"{limits.pattern_bytes_max} parts (limit pattern_bytes_max)"
            )
            raise pattern_error("K003", message, guard.span, hint=hint)


def _measure(guard: syntax.Guard, known: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """Return how many levels and parts a guard has with the events that it names."""
    inner = [known[guard.name]] if isinstance(guard, syntax.Name) else []
    inner += [_measure(c, known) for c in children(guard) if isinstance(c, syntax.Guard)]
    return 1 + max((levels for levels, _ in inner), default=0), 1 + sum(n for _, n in inner)


# --- liveness ------------------------------------------------------------------


def _with_liveness(automaton: Automaton) -> Automaton:
    """Return an automaton with its live registers: those read before they are overwritten."""
    numbers = {name: number for number, name in enumerate(automaton.steps)}
    prior: list[bool] = []
    steps: list[set[int]] = []
    history: list[bool] = []
    for enabled in automaton.enabled:
        guards = [automaton.formulas[v] for v in enabled]
        guards += [automaton.nots[n] for v in enabled for n in automaton.variants[v].nots]
        atoms_read = (automaton.atoms[n] for n in {n for f in guards for n in variables(f)})
        read = [registers(atom) for atom in atoms_read if atom.relational]
        prior.append(any(one.prior for one in read))
        steps.append({numbers[name] for one in read for name in one.steps if name in numbers})
        history.append(any(one.history for one in read))
    changed = True
    while changed:
        changed = False
        # Most edges lead to a larger number, so the last state comes first.
        for state in reversed(range(len(steps))):
            for letter, target in automaton.table[state]:
                _, group = automaton.letters[letter]
                more = steps[target] - {group} - steps[state]
                if more or (history[target] and not history[state]):
                    steps[state] |= more
                    history[state] = history[state] or history[target]
                    changed = True
    live = tuple(
        LiveRegisters(of_prior, of_all, tuple(sorted(read_steps)))
        for of_prior, of_all, read_steps in zip(prior, history, steps, strict=True)
    )
    return replace(automaton, live=live)


# --- public -------------------------------------------------------------


def compile_pattern(
    file: syntax.File,
    pattern: syntax.Pattern,
    *,
    params: Mapping[str, ParamValue] | None = None,
    registered: Mapping[str, RegisteredGuard] | None = None,
    limits: Limits = DEFAULT,
    source: PatternText | None = None,
    undecided: str = "",
) -> CompiledPattern:
    """Compile one pattern of a file in which `ketal.analysis.name_resolution` found no error.

    `undecided` is the timestamping scheme of the clocks, if it does not decide happened-before:
    `Causal` and `Conc` are unknown for pairs of events that the scheme leaves open.

    A PatternError if a reference is unbound on some path, a step can never accept, or a limit
    (atoms, minterms, states) is exceeded; a SettingError if the value of a parameter has another
    kind than its default.
    """
    # Only the shared events that the pattern names: a file may have many more.
    named = event_dependencies(_events_named(pattern), {d.name: d.guard for d in file.events})
    file = replace(file, events=tuple(d for d in file.events if d.name in named))
    file, pattern = substitute_params(file, pattern, params or {})
    try:
        return _Compilation(file, pattern, registered or {}, limits, undecided).compile(source)
    except PatternError as error:
        raise PatternError(
            [
                replace(d, pattern=d.pattern or pattern.name, span=d.span or pattern.span)
                for d in error.diagnostics
            ],
            source,
        ) from None
