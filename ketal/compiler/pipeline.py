"""The compiler: a pattern's syntax to its automaton.

The stages: parameters are substituted (`ketal.analysis.parameters`); guards, bounded with the
events that they name (`ketal.compiler.expansion`), lower to formulas over atoms
(`ketal.compiler.predicates`); the body becomes a position automaton
over steps (`ketal.compiler.glushkov`), on whose paths what guards refer to is checked
(`ketal.compiler.lint.bindings`); that becomes the deterministic, minimal automaton over
minterms (`ketal.compiler.dfa`); liveness finds the registers that each
state keeps; last, ambiguity and order-sensitivity are decided
(`ketal.compiler.commutation`).

The one rule: nothing that depends on hash order leaves this module.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ketal.analysis.bodies import Finding
from ketal.analysis.declared_names import events_behind
from ketal.analysis.parameters import ParamValue, with_params
from ketal.analysis.registered_guards import RegisteredGuard
from ketal.compiler.automaton import ANONYMOUS, Automaton, LiveRegisters, Variant
from ketal.compiler.commutation import (
    Sensitivity,
    ambiguities,
    needs_no_order,
    order_sensitivity,
)
from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.compiler.dfa import Deterministic, Guards, determinise
from ketal.compiler.expansion import refuse_large
from ketal.compiler.glushkov import (
    Glushkov,
    Positions,
    mirrors_possible,
    spelled_out,
)
from ketal.compiler.lint.bindings import Bindings
from ketal.compiler.lint.coverage import Coverage
from ketal.compiler.minterms import Theory, classes
from ketal.compiler.predicates import (
    Atom,
    AtomTable,
    Formula,
    Lowering,
    conjunction,
    disjunction,
    free_of_run,
    registers,
    variables,
)
from ketal.errors import Diagnostic, PatternError, PatternText, Span
from ketal.model import syntax
from ketal.model.limits import DEFAULT, Limits
from ketal.model.syntax_walks import steps_of, walk
from ketal.operators.order.release_options import option_conflict
from ketal.operators.topology.domain_order import domains_of


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
        self.events = {d.name: d.guard for d in (*file.events, *pattern.events)}
        self.table = AtomTable(limits)
        self.undecided = undecided
        self.lowering = Lowering(self.events, self.table, registered, clocks_decide=not undecided)
        self.diagnostics: list[Diagnostic] = []
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

    def _alphabet_events(self) -> tuple[syntax.EventDecl, ...]:
        """Return the events that make the alphabet."""
        named = steps_of(self.pattern.body)
        named |= {n.name for n in walk(self.pattern) if isinstance(n, syntax.Name)}
        return self._named(named)

    def _named(self, names: Collection[str]) -> tuple[syntax.EventDecl, ...]:
        """Return the events of the file that have these names, and those of the pattern."""
        return (*(d for d in self.file.events if d.name in names), *self.pattern.events)

    # the body

    def positions(self) -> tuple[Positions, dict[int, str] | None]:
        body = self.pattern.body
        absents = [n for n in walk(body) if isinstance(n, syntax.Absent)]
        distinct: dict[syntax.Guard, int] = {}
        for absent in absents:
            distinct.setdefault(absent.guard, len(distinct))
        self.not_guards = tuple(distinct)
        if isinstance(body, syntax.AutomatonBody):
            return spelled_out(body, self.numbers)
        numbers = {id(a): distinct[a.guard] for a in absents}
        return Glushkov(self.numbers, numbers, self.limits).build(body), None

    def compile(self, source: PatternText | None) -> CompiledPattern:
        self._add(*_scope_findings(self.pattern))
        self._add(*_order_findings(self.pattern, self.limits))
        positions, labels = self.positions()
        bindings = Bindings(positions, self.steps, self.guards, self.not_guards)
        self._add(*bindings.unbound_references(self.pattern.returns))
        self._add(*bindings.void_anchors())
        if self.pattern.kind == "find" and 0 in positions.finals:
            message = "the body of a `find` accepts the empty word"
            hint = "a match has at least one event"
            self._add(("K202", "error", message, self.pattern.body.span, hint))
        self._refuse()
        declared = self._alphabet_events()
        guards = (*(d.guard for d in declared), *self.guards.values(), *self.not_guards)
        refuse_large(self.events, guards, self.limits)
        formulas = [self.lowering.lower(self.guards[s]) for s in self.steps]
        nots = [self.lowering.lower(g) for g in self.not_guards]
        barred = [
            self.table.variable(Atom("barred", (n,), relational=True), False)
            for n in range(len(nots))
        ]
        events = tuple((d, self.lowering.lower(d.guard)) for d in declared)
        alphabet = disjunction(formula for _, formula in events)
        atoms = tuple(self.table.atoms)
        theory = Theory(atoms, self.limits)
        coverage = Coverage(self.lowering, theory, alphabet)
        self._add(*coverage.of_steps(self.guards, formulas, self.spans))
        self._add(*coverage.of_nots(self.not_guards, nots))
        self._add(*bindings.impossible_relations(formulas, atoms, theory, self.spans))
        groups = self._groups(atoms)
        variants = sorted(
            {(positions.steps[q], ns) for _, ns, q in positions.edges}, key=lambda v: (v[0], v[1])
        )
        on_edges = [conjunction([formulas[s], *(barred[n] for n in ns)]) for s, ns in variants]
        on_variants = Guards(
            variants=tuple(variants),
            formulas=tuple(on_edges),
            groups=tuple(groups[step] for step, _ in variants),
            names=tuple(self.steps[step] for step, _ in variants),
            spans=tuple(self.spans.get(self.steps[step]) for step, _ in variants),
        )
        if self.undecided:
            asked = (*self.guards.values(), *self.not_guards)
            self._add(*_left_open(self.pattern, asked, self.undecided))
        self._refuse()
        made = determinise(
            positions,
            labels,
            on_variants,
            theory,
            check=self.pattern.kind == "check",
            span=self.pattern.body.span,
        )
        local = [free_of_run(f, atoms) for f in formulas]
        classed = classes(local, theory)
        automaton = Automaton(
            steps=self.steps,
            atoms=atoms,
            variants=tuple(Variant(s, ns) for s, ns in variants),
            formulas=tuple(on_edges),
            nots=tuple(nots),
            minterms=made.minterms,
            letters=made.letters,
            table=made.table,
            finals=made.finals,
            names=made.names,
            enabled=made.enabled,
            live=_liveness(made, atoms, on_edges, nots, variants, self.numbers),
            classes=classed,
            mirrors=mirrors_possible(positions, classed),
        )
        return self._finish(automaton, alphabet, events, theory, source)

    def _refuse(self) -> None:
        if errors := [d for d in self.diagnostics if d.severity == "error"]:
            raise PatternError(errors)

    def _groups(self, atoms: Sequence[Atom]) -> tuple[int, ...]:
        """Return each step's group: its register where one is kept, else anonymous."""
        if self.pattern.kind == "find":
            return tuple(range(len(self.steps)))
        read = {
            self.numbers[name]
            for atom in atoms
            if atom.relational
            for name in registers(atom)[1]
            if name in self.numbers
        }
        return tuple(n if n in read else ANONYMOUS for n in range(len(self.steps)))

    def _finish(
        self,
        automaton: Automaton,
        alphabet: Formula,
        events: tuple[tuple[syntax.EventDecl, Formula], ...],
        theory: Theory,
        source: PatternText | None,
    ) -> CompiledPattern:
        p = self.pattern
        sensitive = order_sensitivity(p, automaton, alphabet, theory)
        if sensitive is not None and not p.order.total and p.mode is None:
            # Under `total` there is one order, and a mode asks for every order.
            span, hint = _remedy(p, sensitive)
            self._add(("K220", "warning", sensitive.message, span, hint))
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
            alphabet=alphabet,
            guards=tuple(self.guards.items()),
            order_independent=sensitive is None,
            warnings=tuple(self.diagnostics),
            registered=tuple(
                self.registered[name] for name in sorted(called & self.registered.keys())
            ),
            limits=self.limits,
            undecided=self.undecided,
            source=source,
            events=events,
            named_events=self._named(events_behind((d.name for d, _ in events), self.events)),
            declared=(*self.events.items(), *((d.name, d.guard) for d in p.steps)),
        )


# --- scope and order ------------------------------------------------------------


def _scope_findings(pattern: syntax.Pattern) -> Iterator[Finding]:
    """Yield each partition key with the name that a copy's node has in the scope."""
    for of in pattern.partition if pattern.deployment is not None else ():
        if of.last_name == "node":
            message = "two parts of the scope are called `node`"
            hint = "each copy's scope names its node already: leave `node` out"
            yield "K206", "error", message, of.span, hint


def _order_findings(pattern: syntax.Pattern, limits: Limits) -> Iterator[Finding]:
    """Yield the options of an order that exclude each other, or have no effect."""
    order = pattern.order
    if (fault := option_conflict(order)) is not None:
        yield "K128", "error", fault[0], order.span, fault[1]
    if pattern.topology is not None:
        try:
            domains_of(pattern.topology, limits)
        except PatternError as error:
            for d in error.diagnostics:
                yield d.code, "error", d.message, d.span, d.hint
    if needs_no_order(pattern):
        yield from _options_without_effect(order)
    elif order.total and order.nodes is None:
        message = "on a stream, `total` without `nodes` cannot know who is still to join"
        hint = "declare `nodes = [...]`; a joiner's event whose place has passed is `late`"
        yield "K222", "warning", message, order.span, hint


def _options_without_effect(order: syntax.Order) -> Iterator[Finding]:
    """Yield the options of waiting, in a pattern whose events never wait."""
    waiting = {"total", "idle", "overflow"}
    if order.total or order.idle is not None:
        waiting.add("nodes")
    void = [f"`{name}`" for name in order.given if name in waiting]
    if void:
        message = (
            f"a `find any` without `not` waits for no event, so {' and '.join(void)} "
            f"{'has' if len(void) == 1 else 'have'} no effect on what it finds"
        )
        hint = "write `order CausalOrder;`, with `gap` where it is to tell what is lost"
        yield "K224", "warning", message, order.span, hint


def _remedy(p: syntax.Pattern, sensitive: Sensitivity) -> tuple[Span | None, str]:
    """Return the cause of an order-sensitive pattern, and the remedy."""
    total = "`order CausalOrder(total)` makes the answer deterministic"
    if sensitive.of == "topology" and p.topology is not None:
        relaxed = next((edge for edge in p.topology.edges if edge.relaxed), p.topology)
        return relaxed.span, "leave `relaxed` out to have causal order on every edge"
    if sensitive.of == "window" and p.window is not None:
        return p.window.span, f"a window of time is the same for every order; {total}"
    if sensitive.of == "limit":
        return p.places.get("limit", p.span), f"leave `limit` out; or {total}"
    span = p.body.span or p.span
    if p.kind == "check":
        return span, total
    if p.strategy == "any":  # under arrival order: with CausalOrder it would not be sensitive
        return span, "under `order CausalOrder` every order gives the same matches"
    find_any = "`find any` under `order CausalOrder` finds the same matches in every order"
    return span, f"{total}; {find_any}"


def _left_open(
    pattern: syntax.Pattern, guards: Iterable[syntax.Guard], scheme: str
) -> Iterator[Finding]:
    """Yield what a pattern asks of clocks that do not decide happened-before."""
    deployment = pattern.deployment
    if deployment is not None and not deployment.receiving:
        yield (
            "K306", "error", f"a copy of the pattern sees what its node learned of, and {scheme} "
            "clocks do not tell what that is", pattern.places.get("at") or pattern.span,
            "write `at every node receiving`, where events name what they receive",
        )  # fmt: skip
    if pattern.mode is not None:
        yield (
            "K306", "error", f"`mode {pattern.mode}` asks about every linear extension, and "
            f"{scheme} clocks do not tell which there are", pattern.places.get("mode")
            or pattern.span, "remove it, or read a log whose clocks decide happened-before",
        )  # fmt: skip
    for node in (node for guard in guards for node in walk(guard)):
        if isinstance(node, syntax.Causal):
            message = (
                f"{scheme} clocks prove no order between nodes: this `Causal` is true of events "
                "of one node only, elsewhere false or unknown"
            )
            yield "K305", "warning", message, node.span, "`!Causal(…)` and `Conc(…)` can be certain"
        elif isinstance(node, syntax.Conc):
            message = f"{scheme} clocks do not tell all concurrent events: others are unknown here"
            yield "K305", "warning", message, node.span, "what is true here is so for certain"


# --- liveness ------------------------------------------------------------------


def _liveness(
    machine: Deterministic,
    atoms: Sequence[Atom],
    formulas: Sequence[Formula],
    nots: Sequence[Formula],
    variants: Sequence[tuple[int, tuple[int, ...]]],
    numbers: Mapping[str, int],
) -> tuple[LiveRegisters, ...]:
    """Return the registers that are read from each state on, before they are overwritten."""
    prior: list[bool] = []
    steps: list[set[int]] = []
    history: list[bool] = []
    for enabled in machine.enabled:
        asked = [formulas[v] for v in enabled] + [nots[n] for v in enabled for n in variants[v][1]]
        atoms_read = (atoms[n] for n in {n for f in asked for n in variables(f)})
        read = [registers(atom) for atom in atoms_read if atom.relational]
        prior.append(any(of_prior for of_prior, _, _ in read))
        steps.append({numbers[name] for _, names, _ in read for name in names if name in numbers})
        history.append(any(of_all for _, _, of_all in read))
    changed = True
    while changed:
        changed = False
        for state, row in enumerate(machine.table):
            for letter, target in row:
                _, group = machine.letters[letter]
                more = steps[target] - {group} - steps[state]
                if more or (history[target] and not history[state]):
                    steps[state] |= more
                    history[state] = history[state] or history[target]
                    changed = True
    return tuple(
        LiveRegisters(of_prior, of_all, tuple(sorted(named)))
        for of_prior, of_all, named in zip(prior, history, steps, strict=True)
    )


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
    """Compile one pattern of a file that `ketal.analysis.name_resolution` found no error in.

    Parameters
    ----------
    file, pattern : File, Pattern
        The syntax.
    params, registered, limits, source
        Values of parameters, guards added in code, limits, the text for messages.
    undecided : str
        The timestamping scheme of the clocks where it does not decide happened-before: `Causal`
        and `Conc` are unknown where it leaves them open.

    Raises
    ------
    PatternError
        If a reference is unbound on some path, a step can never accept, or a
        limit (atoms, minterms, states) is exceeded.
    SettingError
        If a parameter is given a value of another kind.
    """
    file, pattern = with_params(file, pattern, params or {})
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
