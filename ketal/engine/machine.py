"""The machine of a pattern: the configurations that an event leads to from a configuration.

`step(machine, configuration, seen)` is a pure function, which returns every transition whose guard
holds, as (group, configuration). A guard is evaluated in two halves: the local atoms once per
event (the mask), the relational atoms once per configuration, and of those only the ones that
matter under this mask in this state (a *plan*, made when first needed and cached).

The one rule: a plan depends on the state and the mask alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from ketal.compiler.automaton import Automaton, Ways
from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.compiler.memo import Memo
from ketal.compiler.predicates import Formula, evaluate, simplify, variables
from ketal.engine.configurations import Configuration, Seen
from ketal.engine.relations import Relations
from ketal.model.verdicts.check_verdicts import expected_text
from ketal.operators import causal, conc
from ketal.operators.history import EMPTY

PLANS_MAX = 65_536
"""The most plans, one for each (state, mask), cached for a pattern."""

Targets = tuple[tuple[int, int], ...]
"""(group, state) pairs; a group is a step, or `ANONYMOUS` if no register keeps the event."""


Decided = Memo[int, "tuple[tuple[Configuration, ...], Decided] | None"]
"""Of one state, by mask: the configuration that an event leads to, and its state's `Decided`."""


class Residual(NamedTuple):
    """What is left of a guard to evaluate for an event whose local atoms are known."""

    formula: Formula  # over relational atoms
    atoms: tuple[int, ...]  # those in the formula

    @classmethod
    def of(cls, formula: Formula) -> Residual:
        """Return the residual of a guard that this formula is left of."""
        return cls(formula, tuple(sorted(variables(formula))))


class SubPlan:
    """The part of a plan for one relation of the prior event to the event."""

    __slots__ = ("_residual", "_resolve", "constant", "targets", "variables")

    def __init__(
        self,
        residual: tuple[tuple[int, Formula], ...],
        resolve: Callable[[frozenset[int]], Targets],
    ) -> None:
        # The relational atoms on which the targets depend.
        self.variables = tuple(sorted(frozenset().union(*(variables(f) for _, f in residual))))
        self._residual = residual
        self._resolve = resolve
        # Where an event leads, by the truth of these atoms (as bits).
        self.targets = Memo(self._targets, PLANS_MAX)
        # Where an event leads, if there are no such atoms; otherwise empty.
        self.constant: Targets = () if self.variables else self.targets[0]

    def _targets(self, bits: int) -> Targets:
        held = frozenset(v for v, f in self._residual if evaluate(f, bits))
        return self._resolve(held) if held else ()


class Plan(NamedTuple):
    """Where an event with one mask leads from one state.

    There is a part for each relation of the prior event to the event, and one for no prior
    event (`unbound`); a part is None where the event leads nowhere. `reads_prior` is false where
    all four are the same. `key` is an equality with a register (`k == A.k`) without which the
    event leads nowhere.
    """

    reads_prior: bool
    unbound: SubPlan | None
    before: SubPlan | None
    concurrent: SubPlan | None
    after: SubPlan | None
    key: int | None = None

    def part_for(self, seen: Seen, prior: Seen | None) -> SubPlan | None:
        """Return the part that applies to an event, given the prior one."""
        if prior is None or not self.reads_prior:
            return self.unbound
        if causal.fast(seen, prior):
            return self.before
        return self.concurrent if conc.fast(seen, prior) else self.after


class NotPlan(NamedTuple):
    """Which pending `not` guards an event with one mask may break in one state.

    `guards` are (number, residual); `key` is as in `Plan`.
    """

    guards: tuple[tuple[int, Residual], ...]
    key: int | None


NO_NOTS: Final = NotPlan((), None)


class Machine:
    """An automaton made ready to run: plans, evaluators, targets. Holds no run."""

    def __init__(self, compiled: CompiledPattern) -> None:
        self.compiled = compiled
        self.automaton: Automaton = compiled.automaton
        automaton = self.automaton
        self.arrival = not compiled.causal
        self.relations = Relations(compiled)
        self.empty_bound: tuple[Seen | None, ...] = (None,) * len(self.relations.slots)
        self.fresh = (Configuration(0, None, self.empty_bound, None, ()),)
        self.can_continue = tuple(map(bool, automaton.table))
        states = len(automaton.table)
        most = max(1, PLANS_MAX // states)
        # By state, then mask: the plan of such an event; None where it leads nowhere.
        self.plans = tuple([Memo(partial(self._plan, s), most) for s in range(states)])
        # By state, then mask: the one configuration that such an event leads to, and the `Decided`
        # of its state; None where registers matter, or there is not exactly one configuration.
        self.decided = tuple([Memo(partial(self._decide_by_mask, s), most) for s in range(states)])
        # By mask, as bits: the states in which such an event may lead somewhere, and `any_waiting`
        # if it may break a `not` of a waiting run.
        self.concerned = Memo(self._concerned_states, PLANS_MAX)
        self.any_waiting = 1 << states
        # By (state, mask): the `not` guards that such an event may break.
        self.not_plans = Memo(self._not_plan, PLANS_MAX)
        # By (number of a `not`, mask): the residual of the guard for such an event.
        self.breaks = Memo(self._breaks, PLANS_MAX)
        # By (states, mask): the steps expected, these as a text, and whether the event would be
        # allowed but for relational atoms.
        self.expectations = Memo(self._expectation, PLANS_MAX)
        self._ways = Memo(partial(Ways, automaton), states)
        self.pending = tuple(
            tuple(sorted({n for v in vs for n in automaton.variants[v].nots}))
            for vs in automaton.enabled
        )
        # Under CausalOrder only an event after the prior one breaks a `not`.
        decided_atoms = frozenset[int]() if self.arrival else self.relations.prior
        self.relational_nots = frozenset(
            number
            for number, formula in enumerate(automaton.nots)
            if any(automaton.atoms[n].relational for n in variables(formula) - decided_atoms)
        )
        self._bare = tuple(
            Configuration(s, None, self.empty_bound, None, ()) if live.none else None
            for s, live in enumerate(automaton.live)
        )

    # --- plans ---

    def local_truth(self, mask: int) -> dict[int, bool]:
        """Return the truth of each local atom under a mask."""
        return {
            n: bool(mask >> n & 1)
            for n, atom in enumerate(self.automaton.atoms)
            if not atom.relational
        }

    def _concerned_states(self, mask: int) -> int:
        known = self.local_truth(mask)
        formulas = enumerate(self.automaton.formulas)
        possible = {v for v, formula in formulas if simplify(formula, known) is not False}
        states = self.any_waiting if self.may_break_not(mask) else 0
        for state, enabled in enumerate(self.automaton.enabled):
            if not possible.isdisjoint(enabled):
                states |= 1 << state
        return states

    def _plan(self, state: int, mask: int) -> Plan | None:
        known = self.local_truth(mask)
        residual = []
        for v in self.automaton.enabled[state]:
            formula = simplify(self.automaton.formulas[v], known)
            if formula is not False:
                residual.append((v, formula))
        if not residual:
            return None
        key = self.relations.key_of(f for _, f in residual)
        if not any(variables(f) & self.relations.prior for _, f in residual):
            same = self._sub_plan(state, residual, {})
            return Plan(False, same, same, same, same, key) if same is not None else None
        prior_truth = self.relations.prior_truth
        parts = [
            self._sub_plan(state, residual, prior_truth(before=before, concurrent=concurrent))
            for before, concurrent in ((True, True), (True, False), (False, True), (False, False))
        ]
        if all(part is None for part in parts):
            return None
        unbound, before, concurrent, after = parts
        return Plan(True, unbound, before, concurrent, after, key)

    def _sub_plan(
        self, state: int, residual: Sequence[tuple[int, Formula]], known: Mapping[int, bool]
    ) -> SubPlan | None:
        left = [(v, simplify(f, known)) for v, f in residual]
        left = [(v, f) for v, f in left if f is not False]
        if not left:
            return None
        made = SubPlan(tuple(left), self._ways[state].targets)
        return made if made.variables or made.constant else None

    def decide(self, sub: SubPlan, configuration: Configuration, seen: Seen) -> Targets:
        """Return where an event leads from a configuration under a sub-plan."""
        if not sub.variables:
            return sub.constant
        return sub.targets[self.relations.bits(sub.variables, configuration, seen)]

    def steps_held(self, configuration: Configuration, seen: Seen) -> set[int]:
        """Return the steps that could take an event next and whose guards hold."""
        known = self.local_truth(seen.mask)
        held: set[int] = set()
        for v in self.automaton.enabled[configuration.state]:
            formula = simplify(self.automaton.formulas[v], known)
            if self.holds(Residual.of(formula), configuration, seen):
                held.add(self.automaton.variants[v].step)
        return held

    # --- configurations ---

    def _decide_by_mask(
        self, state: int, mask: int
    ) -> tuple[tuple[Configuration, ...], Decided] | None:
        plan = self.plans[state][mask]
        if plan is None or plan.reads_prior or plan.unbound is None:
            return None
        targets = plan.unbound.constant
        bare = self._bare[targets[0][1]] if len(targets) == 1 else None
        return None if bare is None else ((bare,), self.decided[bare.state])

    def _expectation(
        self, argument: tuple[tuple[int, ...], int]
    ) -> tuple[tuple[str, ...], str, bool]:
        states, mask = argument
        automaton, known = self.automaton, self.local_truth(mask)
        expected = automaton.expected(states)
        text = expected_text(expected)
        enabled = (automaton.formulas[v] for s in states for v in automaton.enabled[s])
        return expected, text, any(simplify(f, known) is not False for f in enabled)

    def start(self) -> Configuration:
        """Return the configuration of a run that has taken nothing."""
        return self.fresh[0]

    def take(
        self, configuration: Configuration, group: int, target: int, seen: Seen
    ) -> Configuration:
        """Return the configuration in state `target` after an event was taken by a group."""
        bare = self._bare[target]
        if bare is not None:
            return bare
        live = self.automaton.live[target]
        bound = configuration.bound
        if bound:
            events = [
                (seen if step == group else bound[slot]) if step in live.steps else None
                for step, slot in self.relations.slots.items()
            ]
            bound = tuple(events)
        history = None
        if live.history:
            history = (configuration.history or EMPTY).add(seen.node, seen.counter, seen.clock)
        return Configuration(target, seen if live.prior else None, bound, history, ())

    # --- pending nots ---

    def _not_plan(self, argument: tuple[int, int]) -> NotPlan:
        state, mask = argument
        met = [(n, self.breaks[n, mask]) for n in self.pending[state]]
        guards = tuple((n, residual) for n, residual in met if residual.formula is not False)
        if not guards:
            return NO_NOTS
        return NotPlan(guards, self.relations.key_of(residual.formula for _, residual in guards))

    def _breaks(self, argument: tuple[int, int]) -> Residual:
        number, mask = argument
        known = self.local_truth(mask)
        if not self.arrival:
            # Only an event after the prior one breaks a `not`.
            known |= self.relations.prior_truth(before=True, concurrent=False)
        return Residual.of(simplify(self.automaton.nots[number], known))

    def may_break_not(self, mask: int) -> bool:
        """Return whether an event with this mask may break some `not`."""
        nots = range(len(self.automaton.nots))
        return any(self.breaks[n, mask].formula is not False for n in nots)

    def holds(self, residual: Residual, configuration: Configuration, seen: Seen) -> bool:
        """Return whether the rest of a guard holds for an event."""
        bits = self.relations.bits(residual.atoms, configuration, seen)
        return evaluate(residual.formula, bits)

    def skip(self, configuration: Configuration, seen: Seen) -> Configuration | None:
        """Return the configuration after an event was skipped under arrival order.

        None if the run ends with it: every step that could come next has a broken `not`.
        """
        assert self.arrival, (
            "under CausalOrder `ketal.engine.find.breakers` looks for what is between"
        )
        broken = list(configuration.broken) or [False] * len(self.automaton.nots)
        changed = False
        for number, residual in self.not_plans[configuration.state, seen.mask].guards:
            if not broken[number] and self.holds(residual, configuration, seen):
                broken[number] = changed = True
        if not changed:
            return configuration
        if all(
            any(broken[n] for n in self.automaton.variants[v].nots)
            for v in self.automaton.enabled[configuration.state]
        ):
            return None
        return configuration._replace(broken=tuple(broken))


def step(
    machine: Machine, configuration: Configuration, seen: Seen
) -> tuple[tuple[int, Configuration], ...]:
    """Return every (group, configuration) that an offered event leads to."""
    plan = machine.plans[configuration.state][seen.mask]
    if plan is None:
        return ()
    sub = plan.part_for(seen, configuration.prior)
    if sub is None:
        return ()
    return tuple(
        (group, machine.take(configuration, group, target, seen))
        for group, target in machine.decide(sub, configuration, seen)
    )
