"""Runs: configurations and the steps they take (DESIGN 4 and 6).

A configuration is a value: a state of the automaton and its live registers.
`step(machine, configuration, seen)` is a pure function of it and an offered
event: every transition whose guard holds, as (group, configuration). A guard
is evaluated in two halves: the local atoms once per event (the mask), the
relational atoms once per configuration, and of those only the ones that decide
under this mask in this state (a *plan*, made when first needed and kept).

`CheckRun` is the run of a `check`: a set of configurations, violated when it
becomes empty. The runs of a `find` are in `ketal.engine.find_kinds`.

The one rule: an event that is skipped leaves a configuration as it was, but
for the `not` guards that it breaks under arrival order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ketal.compiler.automaton import Automaton, CompiledPattern, Ways
from ketal.compiler.predicates import (
    Atom,
    Formula,
    evaluate,
    necessary,
    registers,
    simplify,
    variables,
)
from ketal.model.event import Dot, Event, canonical_key
from ketal.model.syntax import ALL, PRIOR
from ketal.model.values import Key, keyed
from ketal.operators import causal, conc
from ketal.operators.history import EMPTY, History

PLANS_MAX = 65_536
"""Plans kept for each pattern: (state, mask) pairs met."""


class Known(NamedTuple):
    """What certain events know together, all of them before some event.

    `own` is the last counter of each node among them, `others` the join of what
    their clocks say of other nodes than their own.
    """

    own: dict[str, int]
    others: dict[str, int]

    def after(self, seen: Seen) -> bool:
        """Return whether one of them comes after `seen`."""
        node, counter = seen.node, seen.counter
        return self.own.get(node, 0) > counter or self.others.get(node, 0) >= counter


class Seen:
    """An event as one scope was offered it.

    Attributes
    ----------
    mask : int
        The truth of the local atoms, `localhost` included.
    place : int
        Its position among the events that the scope was offered, from 0.
    """

    __slots__ = (
        "_key", "_known", "clock", "counter", "event", "mask", "node", "place", "time_us",
    )  # fmt: skip

    def __init__(self, event: Event, mask: int, place: int) -> None:
        self.event = event
        self.mask = mask
        self.place = place
        self.node = event.node
        self.clock = event.clock
        self.counter = event.clock[event.node]
        self.time_us = event.time_us
        self._key: tuple[int, str, int] | None = None
        self._known: dict[int, Known] | None = None

    @property
    def known(self) -> dict[int, Known]:
        """What has been learned of the events before it that break a `not`, by its number."""
        if self._known is None:
            self._known = {}
        return self._known

    @property
    def dot(self) -> Dot:
        """The event's identity."""
        return Dot(self.node, self.counter)

    @property
    def key(self) -> tuple[int, str, int]:
        """The event's place in the canonical order."""
        if self._key is None:
            self._key = canonical_key(self.event)
        return self._key

    def __repr__(self) -> str:
        return f"<{self.dot} at {self.place}>"


Bars = tuple[bool, ...]
"""For each `not` guard, whether an event has broken it since the prior event."""


class Configuration(NamedTuple):
    """A state and its live registers; those that are not live are None.

    Attributes
    ----------
    state : int
        The automaton's state.
    prior : Seen or None
        The last event taken.
    bound : tuple of Seen or None
        The last event of each step that some guard reads.
    history : History or None
        A summary of all events taken.
    bars : tuple
        Which pending `not` guards are broken; empty for none.
    """

    state: int
    prior: Seen | None
    bound: tuple[Seen | None, ...]
    history: History | None
    bars: Bars


Targets = tuple[tuple[int, int], ...]
"""(group, state) pairs."""


class SubPlan:
    """A plan once the relation to the prior event is known.

    Attributes
    ----------
    variables : tuple of int
        The relational atoms that are left to decide it.
    constant : Targets
        Where it leads, if nothing is left to decide.
    completes : bool
        Whether it may lead to a final state.
    """

    __slots__ = ("_by_bits", "_residual", "_resolve", "completes", "constant", "variables")

    def __init__(
        self,
        residual: tuple[tuple[int, Formula], ...],
        resolve: Callable[[frozenset[int]], Targets],
        finals: frozenset[int],
    ) -> None:
        self.variables = tuple(sorted(frozenset().union(*(variables(f) for _, f in residual))))
        self._residual = residual
        self._resolve = resolve
        self._by_bits: dict[int, Targets] = {}
        self.constant: Targets = () if self.variables else self.targets(0)
        self.completes = bool(self.variables) or any(t in finals for _, t in self.constant)

    def targets(self, bits: int) -> Targets:
        """Return where the event leads, given the truth of `variables`."""
        found = self._by_bits.get(bits)
        if found is None:
            held = frozenset(v for v, f in self._residual if evaluate(f, bits))
            found = self._by_bits[bits] = self._resolve(held) if held else ()
        return found


class Plan(NamedTuple):
    """What an event with one mask can do in one state.

    Each part is None where the event leads nowhere under that relation of the
    prior event to it; `reads_prior` is false where all four are the same. `key`
    is an equality with a register (`k == A.k`) without which it leads nowhere.
    """

    reads_prior: bool
    unbound: SubPlan | None
    before: SubPlan | None
    concurrent: SubPlan | None
    after: SubPlan | None
    key: int | None = None

    def under(self, seen: Seen, prior: Seen | None) -> SubPlan | None:
        """Return the part for one prior event."""
        if not self.reads_prior:
            return self.unbound
        if prior is None:
            return self.unbound
        if causal.fast(seen, prior):
            return self.before
        return self.concurrent if conc.fast(seen, prior) else self.after


class NotPlan(NamedTuple):
    """Which pending `not` guards an event with one mask may break in one state.

    `guards` are (number, what is left to decide); `key` as in `Plan`.
    """

    guards: tuple[tuple[int, Formula], ...]
    key: int | None


NO_NOTS = NotPlan((), None)


class Decided(dict[tuple[int, int], tuple[Configuration, ...] | None]):
    """What `step` comes to where the mask alone decides it, by (state, mask), as it is met.

    Parameters
    ----------
    machine : Machine
        Whose steps they are.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def __missing__(self, at: tuple[int, int]) -> tuple[Configuration, ...] | None:
        if len(self) >= PLANS_MAX:
            self.clear()
        after = self[at] = self._machine.decide_by_mask(*at)
        return after


class Machine:
    """An automaton made ready to run: plans, evaluators, targets. Holds no run.

    Parameters
    ----------
    compiled : CompiledPattern
        The pattern.
    """

    def __init__(self, compiled: CompiledPattern) -> None:
        self.compiled = compiled
        self.automaton: Automaton = compiled.automaton
        automaton = self.automaton
        self.arrival = not compiled.causal
        read = sorted({s for live in automaton.live for s in live.steps})
        self.slots = {step: slot for slot, step in enumerate(read)}
        self.empty_bound: tuple[Seen | None, ...] = (None,) * len(read)
        self.fresh = (Configuration(0, None, self.empty_bound, None, ()),)
        self.has_way_on = tuple(map(bool, automaton.table))
        self._plans: dict[tuple[int, int], Plan | None] = {}
        self.decided = Decided(self)
        self._not_plans: dict[tuple[int, int], NotPlan] = {}
        self._breaks: dict[tuple[int, int], Formula] = {}
        self._ways: dict[int, Ways] = {}
        self._refusals: dict[tuple[tuple[int, ...], int], tuple[tuple[str, ...], str, bool]] = {}
        self._prior_atoms = {
            shape: [
                n
                for n, a in enumerate(automaton.atoms)
                if a.shape == shape and a.payload == (PRIOR,)
            ]
            for shape in ("before", "concurrent")
        }
        self._evaluators: dict[int, Callable[[Configuration, Seen], bool]] = {
            n: self._evaluator(n, a) for n, a in enumerate(automaton.atoms) if a.relational
        }
        self.pending = tuple(
            tuple(sorted({n for v in vs for n in automaton.variants[v].nots}))
            for vs in automaton.enabled
        )
        self.register_values = {n: self._register_value(n) for n in self.compiled.equalities}
        prior = {n for numbers in self._prior_atoms.values() for n in numbers}
        self.relational_nots = frozenset(
            number
            for number, formula in enumerate(automaton.nots)
            if any(automaton.atoms[n].relational for n in variables(formula) - prior)
        )
        self._bare = tuple(
            Configuration(s, None, self.empty_bound, None, ())
            if not (live.prior or live.history or live.steps)
            else None
            for s, live in enumerate(automaton.live)
        )

    # --- relational atoms ---

    def _evaluator(self, number: int, atom: Atom) -> Callable[[Configuration, Seen], bool]:
        if atom.shape in ("before", "concurrent"):
            return self._relation(atom.shape, atom.payload[0])
        if atom.shape == "barred":
            guard = atom.payload[0]

            return lambda configuration, seen: (
                bool(configuration.bars) and configuration.bars[guard]
            )
        function = self.compiled.relational[number]
        names = self._names(atom)

        def compared(configuration: Configuration, seen: Seen) -> bool:
            bound = _bound(names, configuration)
            # None: a step that no path to here takes.
            return bound is not None and function(seen.event, bound)

        return compared

    def _names(self, atom: Atom) -> list[tuple[str, int | None]]:
        """Return the steps whose events an atom reads, each with the slot of its register."""
        return [(s, self.slot(s)) for s in sorted(registers(atom)[1])]

    def slot(self, step: str) -> int | None:
        """Return the slot of a step's register; None for a step that nothing reads after it."""
        steps = self.automaton.steps
        return self.slots.get(steps.index(step)) if step in steps else None

    # --- keys: equalities with a register, by which partial matches are found ---

    def _register_value(self, number: int) -> Callable[[Configuration], Key | None]:
        value = self.compiled.equalities[number][1]
        names = self._names(self.automaton.atoms[number])

        def read(configuration: Configuration) -> Key | None:
            bound = _bound(names, configuration)
            return None if bound is None else keyed(value(bound))

        return read

    def event_value(self, number: int, event: Event) -> Key | None:
        """Return an event's side of an equality; None where it is unknown."""
        return keyed(self.compiled.equalities[number][0](event))

    def _keys_of(self, formula: Formula) -> frozenset[int]:
        """Return the equalities without which a formula cannot hold."""
        return frozenset(n for n in necessary(formula) if n in self.register_values)

    def _relation(self, shape: str, anchor: str) -> Callable[[Configuration, Seen], bool]:
        fast = causal.fast if shape == "before" else conc.fast
        if anchor == PRIOR:
            return lambda configuration, seen: fast(seen, configuration.prior)
        if anchor == ALL:
            if shape == "before":
                return lambda configuration, seen: (
                    configuration.history is None
                    or configuration.history.all_before(seen.node, seen.counter, seen.clock)
                )
            return lambda configuration, seen: (
                configuration.history is None
                or configuration.history.all_concurrent(seen.node, seen.counter, seen.clock)
            )
        slot = self.slot(anchor)
        if slot is None:
            return lambda configuration, seen: True
        return lambda configuration, seen: fast(seen, configuration.bound[slot])

    # --- plans ---

    def plan(self, state: int, mask: int) -> Plan | None:
        """Return what an event with this mask can do in a state; None for nothing."""
        try:
            return self._plans[(state, mask)]
        except KeyError:
            pass
        if len(self._plans) >= PLANS_MAX:
            self._plans.clear()
        made = self._plans[(state, mask)] = self._make_plan(state, mask)
        return made

    def _local(self, mask: int) -> dict[int, bool]:
        return {
            n: bool(mask >> n & 1)
            for n, atom in enumerate(self.automaton.atoms)
            if not atom.relational
        }

    def _make_plan(self, state: int, mask: int) -> Plan | None:
        known = self._local(mask)
        residual = []
        for v in self.automaton.enabled[state]:
            formula = simplify(self.automaton.formulas[v], known)
            if formula is not False:
                residual.append((v, formula))
        if not residual:
            return None
        key = _first(frozenset.intersection(*(self._keys_of(f) for _, f in residual)))
        prior = {n for numbers in self._prior_atoms.values() for n in numbers}
        if not any(variables(f) & prior for _, f in residual):
            same = self._sub_plan(state, residual, {})
            return Plan(False, same, same, same, same, key) if same is not None else None
        parts = [
            self._sub_plan(state, residual, self._known_relation(before, concurrent))
            for before, concurrent in ((True, True), (True, False), (False, True), (False, False))
        ]
        if all(part is None for part in parts):
            return None
        unbound, before, concurrent, after = parts
        return Plan(True, unbound, before, concurrent, after, key)

    def _known_relation(self, before: bool, concurrent: bool) -> dict[int, bool]:
        return {
            **dict.fromkeys(self._prior_atoms["before"], before),
            **dict.fromkeys(self._prior_atoms["concurrent"], concurrent),
        }

    def _sub_plan(
        self, state: int, residual: Sequence[tuple[int, Formula]], known: Mapping[int, bool]
    ) -> SubPlan | None:
        left = [(v, simplify(f, known)) for v, f in residual]
        left = [(v, f) for v, f in left if f is not False]
        if not left:
            return None
        ways = self._ways.get(state)
        if ways is None:
            ways = self._ways[state] = Ways(self.automaton, state)
        made = SubPlan(tuple(left), ways.targets, self.automaton.finals)
        return made if made.variables or made.constant else None

    def decide(self, sub: SubPlan, configuration: Configuration, seen: Seen) -> Targets:
        """Return where an event leads from a configuration under a sub-plan."""
        if not sub.variables:
            return sub.constant
        bits = 0
        for number in sub.variables:
            if self._evaluators[number](configuration, seen):
                bits |= 1 << number
        return sub.targets(bits)

    def steps_held(self, configuration: Configuration, seen: Seen) -> tuple[int, ...]:
        """Return the steps that could take an event next and whose guards hold."""
        known = self._local(seen.mask)
        held = set()
        for v in self.automaton.enabled[configuration.state]:
            formula = simplify(self.automaton.formulas[v], known)
            bits = 0
            for number in variables(formula):
                if self._evaluators[number](configuration, seen):
                    bits |= 1 << number
            if evaluate(formula, bits):
                held.add(self.automaton.variants[v].step)
        return tuple(sorted(held))

    # --- configurations ---

    def decide_by_mask(self, state: int, mask: int) -> tuple[Configuration, ...] | None:
        """Return the one configuration that an event with this mask leads to.

        None where that depends on registers, or where there is not just one.
        """
        plan = self.plan(state, mask)
        if plan is None or plan.reads_prior or plan.unbound is None:
            return None
        targets = plan.unbound.constant
        bare = self._bare[targets[0][1]] if len(targets) == 1 else None
        return (bare,) if bare is not None else None

    def refusal(self, states: tuple[int, ...], mask: int) -> tuple[tuple[str, ...], str, bool]:
        """Return what is expected, what is said of it, and whether relations alone refuse."""
        at = (states, mask)
        found = self._refusals.get(at)
        if found is None:
            if len(self._refusals) >= PLANS_MAX:
                self._refusals.clear()
            found = self._refusals[at] = self._make_refusal(states, mask)
        return found

    def _make_refusal(
        self, states: tuple[int, ...], mask: int
    ) -> tuple[tuple[str, ...], str, bool]:
        automaton, known = self.automaton, self._local(mask)
        expected = automaton.expected(states)
        said = f"expected {_either(expected)}" if expected else "nothing may follow"
        enabled = (automaton.formulas[v] for s in states for v in automaton.enabled[s])
        return expected, said, any(simplify(f, known) is not False for f in enabled)

    def start(self) -> Configuration:
        """Return the configuration of a run that has taken nothing."""
        return self.fresh[0]

    def take(
        self, configuration: Configuration, group: int, target: int, seen: Seen
    ) -> Configuration:
        """Return the configuration after an event was taken into a group."""
        bare = self._bare[target]
        if bare is not None:
            return bare
        live = self.automaton.live[target]
        bound = configuration.bound
        if bound:
            kept = [
                (seen if step == group else bound[slot]) if step in live.steps else None
                for step, slot in self.slots.items()
            ]
            bound = tuple(kept)
        history = None
        if live.history:
            history = (configuration.history or EMPTY).add(seen.node, seen.counter, seen.clock)
        return Configuration(target, seen if live.prior else None, bound, history, ())

    # --- pending nots ---

    def not_plan(self, state: int, mask: int) -> NotPlan:
        """Return the `not` guards of a state that an event with this mask may break."""
        at = (state, mask)
        found = self._not_plans.get(at)
        if found is None:
            if len(self._not_plans) >= PLANS_MAX:
                self._not_plans.clear()
            found = self._not_plans[at] = self._make_not_plan(state, mask)
        return found

    def _make_not_plan(self, state: int, mask: int) -> NotPlan:
        met = [(n, self.breaks(n, mask)) for n in self.pending[state]]
        guards = tuple((n, f) for n, f in met if f is not False)
        if not guards:
            return NO_NOTS
        key = _first(frozenset.intersection(*(self._keys_of(f) for _, f in guards)))
        return NotPlan(guards, key)

    def breaks(self, number: int, mask: int) -> Formula:
        """Return what is left to decide of whether an event with this mask breaks a `not`."""
        at = (number, mask)
        found = self._breaks.get(at)
        if found is None:
            if len(self._breaks) >= PLANS_MAX:
                self._breaks.clear()
            known = self._local(mask)
            if not self.arrival:
                # Only what comes after the prior event breaks a `not` (DESIGN 4).
                known |= self._known_relation(True, False)
            found = self._breaks[at] = simplify(self.automaton.nots[number], known)
        return found

    def key_of(self, formula: Formula) -> int | None:
        """Return an equality with a register without which a formula cannot hold."""
        return _first(self._keys_of(formula))

    def meets(self, formula: Formula, configuration: Configuration, seen: Seen) -> bool:
        """Return whether a `not` guard holds of an event, as if it came right after the prior."""
        bits = 0
        for number in variables(formula):
            if self._evaluators[number](configuration, seen):
                bits |= 1 << number
        return evaluate(formula, bits)

    def skip(self, configuration: Configuration, seen: Seen) -> Configuration | None:
        """Return the configuration after an event was skipped under arrival order.

        None where it ends, as every way on is barred.
        """
        assert self.arrival, "under CausalOrder `ketal.engine.negation` looks for what is between"
        bars = list(configuration.bars) or [False] * len(self.automaton.nots)
        changed = False
        for number, formula in self.not_plan(configuration.state, seen.mask).guards:
            if not bars[number] and self.meets(formula, configuration, seen):
                bars[number] = changed = True
        if not changed:
            return configuration
        if all(
            any(bars[n] for n in self.automaton.variants[v].nots)
            for v in self.automaton.enabled[configuration.state]
        ):
            return None
        return configuration._replace(bars=tuple(bars))


def _first(numbers: frozenset[int]) -> int | None:
    return min(numbers, default=None)


def _bound(
    names: Sequence[tuple[str, int | None]], configuration: Configuration
) -> dict[str, Event] | None:
    """Return the events of some steps by name; None where one has none."""
    bound: dict[str, Event] = {}
    for name, slot in names:
        holder = configuration.bound[slot] if slot is not None else None
        if holder is None:
            return None
        bound[name] = holder.event
    return bound


def step(
    machine: Machine, configuration: Configuration, seen: Seen
) -> tuple[tuple[int, Configuration], ...]:
    """Return every (group, configuration) that an offered event leads to."""
    plan = machine.plan(configuration.state, seen.mask)
    if plan is None:
        return ()
    sub = plan.under(seen, configuration.prior)
    if sub is None:
        return ()
    return tuple(
        (group, machine.take(configuration, group, target, seen))
        for group, target in machine.decide(sub, configuration, seen)
    )


@dataclass(frozen=True, slots=True)
class Refused:
    """A `check` run met an event that no configuration allows.

    `resumed` is true where the fresh run of `on violation resume` took the event.
    """

    seen: Seen
    state: str
    expected: tuple[str, ...]
    reason: str
    resumed: bool = False


def states(configurations: Iterable[Configuration]) -> tuple[int, ...]:
    """Return the states that configurations are in."""
    return tuple(sorted({c.state for c in configurations}))


class CheckRun:
    """The run of a `check` in one scope.

    Parameters
    ----------
    machine : Machine
        The automaton, made ready.
    """

    __slots__ = ("configurations", "halted", "machine")

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.configurations: tuple[Configuration, ...] = machine.fresh
        self.halted = False

    def offer(self, event: Event, mask: int, place: int) -> Refused | None:
        """Take the event, or say why it is not allowed; the arguments are those of `Seen`."""
        configurations = self.configurations
        if len(configurations) == 1:
            decided = self.machine.decided[configurations[0].state, mask]
            if decided is not None:
                self.configurations = decided
                return None
        seen = Seen(event, mask, place)
        after = self._after(seen)
        if after:
            self.configurations = after
            return None
        refused = self._refuse(seen)
        policy = self.machine.compiled.on_violation
        if policy == "halt":
            self.halted = True
            self.configurations = ()
        elif policy == "resume":
            self.configurations = self.machine.fresh
            after = self._after(seen)
            if after:
                self.configurations = after
                refused = replace(refused, resumed=True)
        return refused

    def _after(self, seen: Seen) -> tuple[Configuration, ...]:
        configurations = self.configurations
        if len(configurations) == 1:
            moved = step(self.machine, configurations[0], seen)
            if len(moved) == 1:
                return (moved[0][1],)
            return tuple(dict.fromkeys(c for _, c in moved))
        return tuple(
            dict.fromkeys(c for one in configurations for _, c in step(self.machine, one, seen))
        )

    def states(self) -> tuple[int, ...]:
        """Return the states the run may be in."""
        return states(self.configurations)

    def complete(self) -> bool:
        """Return whether some configuration is in a final state."""
        return any(c.state in self.machine.automaton.finals for c in self.configurations)

    def is_fresh(self) -> bool:
        """Return whether the run is as it began."""
        configurations = self.configurations
        return (
            len(configurations) == 1
            and not configurations[0].state
            and (configurations == self.machine.fresh)
        )

    def expected(self) -> tuple[str, ...]:
        """Return the steps that could come next, in declaration order."""
        return self.machine.automaton.expected(self.states())

    def _refuse(self, seen: Seen) -> Refused:
        states = self.states()
        expected, said, nearly = self.machine.refusal(states, seen.mask)
        if nearly and (near := "; ".join(dict.fromkeys(self._near_misses(seen)))):
            said = f"{said}; {near}"
        return Refused(seen, self.machine.automaton.named(states), expected, said)

    def _near_misses(self, seen: Seen) -> Iterator[str]:
        """Say of each step that the event would be, but for its relations, what fails."""
        machine = self.machine
        automaton = machine.automaton
        known = machine._local(seen.mask)
        for configuration in self.configurations:
            for v in automaton.enabled[configuration.state]:
                formula = simplify(automaton.formulas[v], known)
                if formula is False:
                    continue
                for number in sorted(variables(formula)):
                    atom = automaton.atoms[number]
                    on = machine._evaluators[number](configuration, seen)
                    if simplify(formula, {number: on}) is False:
                        name = automaton.steps[automaton.variants[v].step]
                        yield f"no {name}: {self._missed(atom, on, configuration)}"

    def _missed(self, atom: Atom, on: bool, configuration: Configuration) -> str:
        anchor = atom.payload[0] if atom.shape in ("before", "concurrent") else None
        if anchor is None:
            return "a comparison with an earlier step fails"
        unbound = "no event was taken before it"
        if anchor == ALL:
            who = "every earlier event of the run" if configuration.history else ""
        elif anchor == PRIOR:
            prior = configuration.prior
            who = f"{prior.dot}, the event taken before it" if prior else ""
        else:
            slot = self.machine.slot(anchor)
            holder = configuration.bound[slot] if slot is not None else None
            who = f"{anchor} ({holder.dot})" if holder else ""
            unbound = f"{anchor} has no event yet"
        if not who:
            return unbound
        relation = "causally after" if atom.shape == "before" else "concurrent with"
        return f"it is {'' if on else 'not '}{relation} {who}"


def _either(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1]
