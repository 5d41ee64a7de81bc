"""The compiler: a pattern's syntax to its automaton (DESIGN 6).

The stages, one function each: parameters are put in; guards lower to formulas
over atoms (`ketal.atoms`); the body becomes a position automaton over steps
(Glushkov 1961: a state a step's place in the body, so that it has no empty
moves and `not` stands on edges); guards become minterms (`ketal.alphabet`);
automata-lib makes the deterministic, minimal automaton over letters; states
are renumbered breadth-first; liveness says which registers each state keeps.

The one rule: nothing that depends on hash order leaves this module.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ketal import pattern as syntax
from ketal.alphabet import Theory, classes, free_of_run, minterms
from ketal.atoms import (
    Atom,
    AtomTable,
    Formula,
    Lowering,
    conjunction,
    disjunction,
    registers,
    variables,
)
from ketal.automaton import ANONYMOUS, Automaton, CompiledPattern, Live, Variant
from ketal.errors import Diagnostic, PatternError, Source, Span, pattern_error
from ketal.guards import RegisteredGuard
from ketal.limits import DEFAULT, Limits
from ketal.operators.ordering import nonsense
from ketal.params import ParamValue, with_params
from ketal.positions import (
    Glushkov,
    Positions,
    bound_before,
    mirrors_possible,
    references,
    spelled_out,
    trim,
)


class _Pattern:
    """The compilation of one pattern; each method is a stage."""

    def __init__(
        self,
        file: syntax.File,
        pattern: syntax.Pattern,
        registered: Mapping[str, RegisteredGuard],
        limits: Limits,
    ) -> None:
        self.file = file
        self.pattern = pattern
        self.registered = registered
        self.limits = limits
        self.events = {d.name: d.guard for d in (*file.events, *pattern.events)}
        self.table = AtomTable(limits)
        self.lowering = Lowering(self.events, self.table, registered)
        self.diagnostics: list[Diagnostic] = []
        self._declare_steps()

    def say(self, severity: str, code: str, message: str, span: Span | None, hint: str) -> None:
        self.diagnostics.append(Diagnostic(code, severity, message, span, hint, self.pattern.name))

    # names

    def _declare_steps(self) -> None:
        """Give each step that the body uses a number, in declaration order."""
        used = {
            n.name if isinstance(n, syntax.Step) else n.step
            for n in syntax.walk(self.pattern.body)
            if isinstance(n, syntax.Step | syntax.Edge)
        }
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

    def alphabet(self) -> tuple[str, ...]:
        """Return the names of the events that make the alphabet."""
        own = [d.name for d in self.pattern.events]
        shared = {d.name for d in self.file.events}
        named = {
            n.name
            for n in syntax.walk(self.pattern)
            if isinstance(n, syntax.Name | syntax.Step) and n.name in shared
        } | {
            n.step
            for n in syntax.walk(self.pattern)
            if isinstance(n, syntax.Edge) and n.step in shared
        }
        return (*[d.name for d in self.file.events if d.name in named], *own)

    # the body

    def positions(self) -> tuple[Positions, dict[int, str] | None]:
        body = self.pattern.body
        self.absents = [n for n in syntax.walk(body) if isinstance(n, syntax.Absent)]
        distinct: dict[syntax.Guard, int] = {}
        for absent in self.absents:
            distinct.setdefault(absent.guard, len(distinct))
        self.not_guards = tuple(distinct)
        if isinstance(body, syntax.AutomatonBody):
            spelled, labels = spelled_out(body, self.numbers)
            trim(spelled)
            return spelled, labels
        numbers = {id(a): distinct[a.guard] for a in self.absents}
        return Glushkov(self.numbers, numbers, self.limits).build(body), None

    def check_references(self, positions: Positions) -> None:
        """Refuse a reference to a step that is unbound on some path."""
        bound = bound_before(positions)
        missing: dict[tuple[str, str], Span | None] = {}

        def need(references: Iterable[syntax.Reference], have: frozenset[int] | None) -> None:
            for reference in references:
                number = self.numbers.get(reference.step)
                if have is not None and (number is None or number not in have):
                    missing.setdefault(("", reference.step), reference.span)

        in_steps = {n: references(self.guards[s]) for s, n in self.numbers.items()}
        in_nots = [references(g) for g in self.not_guards]
        for p, nots, q in positions.edges:
            need(in_steps[positions.steps[q]], bound[p])
            for number in nots:
                need(in_nots[number], bound[p])
        if self.pattern.returns is not None:
            for position in positions.finals:
                need(references(self.pattern.returns), bound[position])
        for (_, step), span in missing.items():
            self.say(
                "error",
                "K201",
                f"`{step}` has no event on some path to this reference",
                span,
                f"every path to here must pass `{step}` first; an anchor "
                f"(`Causal(g, {step})`) may be unbound, a reference may not",
            )

    def compile(self, source: Source | None) -> CompiledPattern:
        self._check_scope()
        self._check_order()
        positions, labels = self.positions()
        self.check_references(positions)
        if self.pattern.kind == "find" and 0 in positions.finals:
            self.say(
                "error",
                "K202",
                "the body of a `find` accepts the empty word",
                self.pattern.body.span,
                "a match has at least one event",
            )
        self._refuse()
        formulas = [self.lowering.lower(self.guards[s]) for s in self.steps]
        nots = [self.lowering.lower(g) for g in self.not_guards]
        barred = [
            self.table.variable(Atom("barred", (n,), relational=True), False)
            for n in range(len(nots))
        ]
        alphabet = disjunction([self.lowering.lower(self.events[name]) for name in self.alphabet()])
        atoms = tuple(self.table.atoms)
        theory = Theory(atoms, self.limits)
        self._check_covered(formulas, nots, alphabet, theory)
        groups = self._groups(atoms, formulas, nots)
        variants = sorted(
            {(positions.steps[q], ns) for _, ns, q in positions.edges}, key=lambda v: (v[0], v[1])
        )
        on_edges = [conjunction([formulas[s], *(barred[n] for n in ns)]) for s, ns in variants]
        terms = minterms(on_edges, theory)
        letters = tuple(
            sorted({(m, groups[variants[v][0]]) for m, term in enumerate(terms) for v in term})
        )
        machine = _Determinise(
            positions, labels, variants, terms, letters, groups, self.pattern.kind, self.limits
        ).run()
        local = [free_of_run(f, atoms) for f in formulas]
        classed = classes(local, theory)
        automaton = Automaton(
            steps=self.steps,
            atoms=atoms,
            variants=tuple(Variant(s, ns) for s, ns in variants),
            formulas=tuple(on_edges),
            nots=tuple(nots),
            minterms=terms,
            letters=letters,
            table=machine.table,
            finals=machine.finals,
            names=machine.names,
            enabled=machine.enabled,
            live=_liveness(machine, atoms, on_edges, nots, variants, letters, self.numbers),
            classes=classed,
            mirrors=mirrors_possible(positions, classed),
        )
        self._refuse()
        return self._finish(automaton, alphabet, theory, source)

    def _check_scope(self) -> None:
        """Refuse a partition key with the name that a copy's node has in the scope."""
        for of in self.pattern.partition if self.pattern.deployment is not None else ():
            if (of.name if isinstance(of, syntax.Field) else of.path[-1]) == "node":
                self.say(
                    "error",
                    "K206",
                    "two parts of the scope are called `node`",
                    of.span,
                    "each copy's scope names its node already",
                )

    def _check_order(self) -> None:
        """Refuse options that make no sense together; warn of what `total` cannot know."""
        order = self.pattern.order
        if (fault := nonsense(order)) is not None:
            self.say("error", "K128", fault[0], order.span, fault[1])
        if order.total and order.nodes is None:
            self.say(
                "warning",
                "K222",
                "on a stream, `total` without `nodes` cannot know who is still to join",
                order.span,
                "declare `nodes = [...]`; a joiner's event whose place has passed is `late`",
            )

    def _refuse(self) -> None:
        if any(d.severity == "error" for d in self.diagnostics):
            raise PatternError([d for d in self.diagnostics if d.severity == "error"])

    def _check_covered(
        self, formulas: list[Formula], nots: list[Formula], alphabet: Formula, theory: Theory
    ) -> None:
        """Warn of a guard that no offered event can satisfy."""
        for name, formula in zip(self.steps, formulas, strict=True):
            if not theory.can_hold(formula):
                self.say(
                    "error",
                    "K203",
                    f"no event can satisfy the step `{name}`",
                    self.spans.get(name),
                    "its conditions contradict each other",
                )
            elif not theory.can_hold(formula, alphabet):
                self.say(
                    "error",
                    "K204",
                    f"no declared event covers the step `{name}`: it would never be offered one",
                    self.spans.get(name),
                    "declare an `event` for what the step is to accept",
                )
        for guard, formula in zip(self.not_guards, nots, strict=True):
            if not theory.can_hold(formula, alphabet):
                self.say(
                    "warning",
                    "K205",
                    "no declared event covers this `not`: it never bars anything",
                    guard.span,
                    "declare an `event` for what it speaks of",
                )

    def _groups(
        self, atoms: Sequence[Atom], formulas: list[Formula], nots: list[Formula]
    ) -> tuple[int, ...]:
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
        self, automaton: Automaton, alphabet: Formula, theory: Theory, source: Source | None
    ) -> CompiledPattern:
        from ketal.independence import ambiguities, order_sensitivity

        p = self.pattern
        window = p.window.length if p.window is not None else None
        window_us = window.microseconds if isinstance(window, syntax.Duration) else None
        window_events = window if isinstance(window, int) else None
        order_free = (
            p.kind == "find"
            and p.order.kind == "causal"
            and p.strategy == "any"
            and not self.not_guards
            and window_events is None
            and p.limit is None
        )
        sensitive = order_sensitivity(p, automaton, alphabet, theory, order_free)
        if sensitive is not None:
            self.say("warning", "K220", sensitive, p.body.span or p.span, _sensitive_hint(p))
        for state, one, two in ambiguities(automaton, theory):
            self.say(
                "warning",
                "K221",
                f"ambiguous: in state {state} one event can be both `{one}` and `{two}`",
                self.spans.get(two),
                "both readings are followed; a run may need several configurations",
            )
        registered = {n.name for n in syntax.walk(p) if isinstance(n, syntax.Registered)} | {
            n.name
            for e in self.file.events
            for n in syntax.walk(e)
            if isinstance(n, syntax.Registered)
        }
        return CompiledPattern(
            name=p.name,
            pattern=p,
            automaton=automaton,
            alphabet=alphabet,
            guards=tuple(self.guards.items()),
            window_us=window_us,
            window_events=window_events,
            order_free=order_free,
            order_independent=sensitive is None,
            calls=self.lowering.unknown_calls(
                [
                    *self.guards.values(),
                    *self.not_guards,
                    *(self.events[e] for e in self.alphabet()),
                ]
            ),
            warnings=tuple(self.diagnostics),
            registered=tuple(
                self.registered[name] for name in sorted(registered) if name in self.registered
            ),
            limits=self.limits,
            source=source,
        )


def _sensitive_hint(p: syntax.Pattern) -> str:
    if p.order.kind == "arrival":
        return "`order CausalOrder` makes the answer independent of how messages arrived"
    if p.order.total:
        return "`CausalOrder(total)` is declared, so the answer is deterministic"
    return "`CausalOrder(total)` makes the answer deterministic"


# --- determinisation -----------------------------------------------------------


@dataclass
class _Machine:
    table: tuple[tuple[int, ...], ...]
    finals: frozenset[int]
    names: tuple[str, ...]
    enabled: tuple[tuple[int, ...], ...]


class _Determinise:
    """Positions to the minimal table over letters, by automata-lib."""

    def __init__(
        self,
        positions: Positions,
        labels: dict[int, str] | None,
        variants: list[tuple[int, tuple[int, ...]]],
        terms: tuple[tuple[int, ...], ...],
        letters: tuple[tuple[int, int], ...],
        groups: tuple[int, ...],
        kind: str,
        limits: Limits,
    ) -> None:
        self.positions = positions
        self.labels = labels
        self.kind = kind
        self.limits = limits
        numbers = {v: i for i, v in enumerate(variants)}
        columns = {letter: i for i, letter in enumerate(letters)}
        self.letters = letters
        by_variant: dict[int, set[int]] = {}
        for m, term in enumerate(terms):
            for v in term:
                by_variant.setdefault(v, set()).add(columns[(m, groups[variants[v][0]])])
        self.moves: list[dict[int, set[int]]] = [{} for _ in positions.steps]
        self.next_variants: list[set[int]] = [set() for _ in positions.steps]
        for p, nots, q in sorted(positions.edges):
            v = numbers[(positions.steps[q], nots)]
            self.next_variants[p].add(v)
            for column in by_variant.get(v, ()):
                self.moves[p].setdefault(column, set()).add(q)

    def run(self) -> _Machine:
        self._bound_subsets()
        return self._renumber(*self._minimal())

    def _after(self, states: frozenset[int], column: int) -> frozenset[int]:
        return frozenset().union(*(self.moves[p].get(column, ()) for p in states))

    def _bound_subsets(self) -> None:
        """Refuse a body whose deterministic form would be too large, before making it."""
        seen = {frozenset((0,))}
        todo = deque(seen)
        while todo:
            states = todo.popleft()
            for column in sorted(set().union(*(self.moves[p] for p in states))):
                target = self._after(states, column)
                if target not in seen:
                    seen.add(target)
                    if len(seen) > self.limits.states_max:
                        raise pattern_error(
                            "K212",
                            f"the automaton needs more than {self.limits.states_max} states",
                            hint="limit states_max; use smaller counts, or steps that overlap less",
                        )
                    todo.append(target)

    def _minimal(self) -> tuple[Any, dict[Any, dict[str, Any]]]:
        from automata.fa.dfa import DFA
        from automata.fa.nfa import NFA

        # In a check, what is expected next is part of the answer: each step that
        # may come next is a mark, so states that differ in it are not merged.
        check = self.kind == "check"
        marks = {f"?{v}" for vs in self.next_variants for v in vs} if check else set()
        symbols = {str(c) for c in range(len(self.letters))} | marks
        transitions: dict[str, dict[str, set[str]]] = {"sink": {}}
        for p in range(len(self.positions.steps)):
            row = {str(c): {f"p{q}" for q in qs} for c, qs in self.moves[p].items()}
            if check:
                row.update({f"?{v}": {"sink"} for v in self.next_variants[p]})
            transitions[f"p{p}"] = row
        nfa = NFA(
            states=set(transitions),
            input_symbols=symbols or {"0"},
            transitions=transitions,
            initial_state="p0",
            final_states={f"p{p}" for p in self.positions.finals} | {"sink"},
        )
        dfa = DFA.from_nfa(nfa, retain_names=False, minify=True)
        return dfa, {s: dict(row) for s, row in dfa.transitions.items()}

    def _renumber(self, dfa: Any, rows: dict[Any, dict[str, Any]]) -> _Machine:
        """Give states their numbers, breadth-first in letter order; drop the dead ones."""
        alive = self._alive(dfa, rows)
        index = {dfa.initial_state: 0}
        order = [dfa.initial_state]
        subsets: list[set[frozenset[int]]] = [{frozenset((0,))}]
        table: list[tuple[int, ...]] = []
        for state in order:
            row = []
            for column in range(len(self.letters)):
                target = rows.get(state, {}).get(str(column))
                if target is None or target not in alive:
                    row.append(-1)
                    continue
                if target not in index:
                    index[target] = len(order)
                    order.append(target)
                    subsets.append(set())
                row.append(index[target])
            table.append(tuple(row))
        self._spread(table, subsets)
        enabled = tuple(
            tuple(sorted({v for ps in sets for p in ps for v in self.next_variants[p]}))
            for sets in subsets
        )
        finals = frozenset(index[s] for s in order if s in dfa.final_states)
        return _Machine(tuple(table), finals, self._names(subsets), enabled)

    def _alive(self, dfa: Any, rows: dict[Any, dict[str, Any]]) -> set[Any]:
        before: dict[Any, set[Any]] = {}
        for state, row in rows.items():
            for target in row.values():
                before.setdefault(target, set()).add(state)
        alive = set(dfa.final_states)
        todo = list(alive)
        while todo:
            for state in before.get(todo.pop(), ()):
                if state not in alive:
                    alive.add(state)
                    todo.append(state)
        return alive

    def _spread(self, table: list[tuple[int, ...]], subsets: list[set[frozenset[int]]]) -> None:
        """Find the sets of positions that stand behind each state."""
        todo = deque([(0, frozenset((0,)))])
        while todo:
            state, states = todo.popleft()
            for column, target in enumerate(table[state]):
                if target < 0:
                    continue
                after = self._after(states, column)
                if after not in subsets[target]:
                    subsets[target].add(after)
                    todo.append((target, after))

    def _names(self, subsets: list[set[frozenset[int]]]) -> tuple[str, ...]:
        if self.labels is None:
            return tuple(f"q{i}" for i in range(len(subsets)))
        names = []
        for sets in subsets:
            named = sorted({self.labels[p] for ps in sets for p in ps})
            names.append("|".join(named))
        return tuple(names)


def _liveness(
    machine: _Machine,
    atoms: Sequence[Atom],
    formulas: Sequence[Formula],
    nots: Sequence[Formula],
    variants: Sequence[tuple[int, tuple[int, ...]]],
    letters: Sequence[tuple[int, int]],
    numbers: Mapping[str, int],
) -> tuple[Live, ...]:
    """Return the registers that are read from each state on, before they are overwritten."""

    def reads(formula: Formula) -> tuple[bool, frozenset[int], bool]:
        prior, history = False, False
        named: set[int] = set()
        for v in variables(formula):
            if atoms[v].relational:
                one, steps, two = registers(atoms[v])
                prior, history = prior or one, history or two
                named |= {numbers[s] for s in steps if s in numbers}
        return prior, frozenset(named), history

    count = len(machine.table)
    here: list[tuple[bool, frozenset[int], bool]] = []
    for state in range(count):
        prior, history, named = False, False, frozenset[int]()
        for v in machine.enabled[state]:
            wanted = [formulas[v], *(nots[n] for n in variants[v][1])]
            for one, steps, two in map(reads, wanted):
                prior, history, named = prior or one, history or two, named | steps
        here.append((prior, named, history))
    steps_live = [set(named) for _, named, _ in here]
    history_live = [history for _, _, history in here]
    changed = True
    while changed:
        changed = False
        for state, row in enumerate(machine.table):
            for (_, group), target in zip(letters, row, strict=True):
                if target < 0:
                    continue
                more = steps_live[target] - {group} - steps_live[state]
                if more or (history_live[target] and not history_live[state]):
                    steps_live[state] |= more
                    history_live[state] = history_live[state] or history_live[target]
                    changed = True
    return tuple(
        Live(here[s][0], history_live[s], tuple(sorted(steps_live[s]))) for s in range(count)
    )


# --- the public face -------------------------------------------------------------


def compile_pattern(
    file: syntax.File,
    pattern: syntax.Pattern,
    *,
    params: Mapping[str, ParamValue] | None = None,
    registered: Mapping[str, RegisteredGuard] | None = None,
    limits: Limits = DEFAULT,
    source: Source | None = None,
) -> CompiledPattern:
    """Compile one pattern of a file that `ketal.resolve` found no error in.

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
        return _Pattern(file, pattern, registered or {}, limits).compile(source)
    except PatternError as error:
        raise PatternError(
            [
                replace(d, pattern=d.pattern or pattern.name, span=d.span or pattern.span)
                for d in error.diagnostics
            ],
            source,
        ) from None
