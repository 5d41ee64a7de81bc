"""Costs: the time a pattern takes for an event and for a match, and what decides it.

The cost class of a pattern is read from the data that its runs work with. `Roles` has whether a
search is forward, where it has bounds, whether matches are counted, and which conditions a role
does not have as data; the automaton's registers show what a run keeps of its past. This module
adds only whether a search can come to an event that leads to no match (a *dead end*): where a role
has a condition on another event than the one before it in the word, and a later choice decides.

In costs, n is the number of events kept in a scope, P that of nodes, k that of events of a match.

The one rule: nothing that a run decides is decided here a second time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ketal.compiler.compiled_pattern import CompiledPattern, derived_once
from ketal.compiler.minterms import PartialAssignment, Region, Theory, split
from ketal.compiler.predicates import (
    conjunction,
    necessary,
    registers,
    simplify,
    variables,
)
from ketal.engine.costs.text_places import PatternPlaces, TextPlace
from ketal.engine.find_any.roles import (
    ALL_ANCHOR,
    PRIOR_ANCHOR,
    Relation,
    ReleaseOrder,
    Roles,
    StepEdge,
    StepRole,
    conjuncts,
)
from ketal.engine.machine import Machine

LOOK_UP = "one table look-up"
REGISTERS = "guards read earlier events"
GROUPS = "groups of runs"
GROUPS_APART = "groups of runs, apart by register"
CUTS = "consistent cuts"
FLAT = "flat forward search"
FLAT_BY_VALUE = "flat forward search by value"
FORWARD_DEAD_ENDS = "forward search with dead ends"
SEARCH = "search: any event may come last"
SEARCH_DEAD_ENDS = "search with dead ends"
SCAN = "scan"

SHORT_WORD = 2
"""In matches of at most this length, every event that a search visits is part of a match."""
BOUNDED_WORD = 3
"""In matches of at most this length, the bounds of a search exclude most dead ends."""
RESIDUALS_MAX = 1_000
"""The most assignments of truth to local atoms that are tried for one edge."""

_OUT_OF_ORDER = "if events come in another order, any event of a match may come last"
_ORDERED = "`order arrival`, or `Causal` on the prior event in every step but the first"
_DATA = "only `Causal`, `Conc` and equalities with the previous step, joined by `&&`"
_UNNAMED = "no step by name, and no `all`, in a guard; `partition by` instead of an equality"
_NOT = "a `not` whose guard compares its event with no other"
_EQUALITY = "an equality with the previous step (`k == A.k`) instead"


@dataclass(frozen=True)
class Cost:
    """The cost class of a pattern, and what decides it."""

    name: str  # the class of the pattern
    place: TextPlace  # the guard, or other part of the pattern, that decides the class
    reason: str  # why that part decides it
    flat_with: str = ""  # what would make it flat; empty where it is
    event: str = ""  # the cost of an event that completes nothing
    match: str = ""  # the cost of each match; empty for a check, and under `mode`
    # Whether `--count` counts matches without listing them; None for a check, and under `mode`.
    counts: bool | None = None
    counts_because: str = ""  # why it lists them, or under which condition it counts


def cost_of(compiled: CompiledPattern) -> Cost:
    """Return the cost class of a pattern."""
    machine, text = derived_once(Machine, compiled), PatternPlaces(compiled)
    if compiled.pattern.mode is not None:
        return _cuts_cost(text)
    if compiled.kind == "check":
        return _check_cost(machine, text)
    if compiled.strategy == "any":
        return _FindAnyCost(derived_once(Roles, compiled), text).cost()
    return _runs_cost(machine, text)


# --- check, next, strict, mode ---


def _check_cost(machine: Machine, text: PatternPlaces) -> Cost:
    live = machine.automaton.live
    if all(registers.none for registers in live):
        reason = "no guard reads an earlier event, so the state and the event alone decide"
        return Cost(LOOK_UP, text.body(), reason, event="O(1)")
    event = "O(P)" if any(registers.history for registers in live) else "O(1)"
    if any(registers.steps for registers in live):
        event += " for each configuration of the run (at most configurations_max)"
    reason = "it reads an earlier event, so each such guard is evaluated"
    place = text.register_read(beyond_prior=False)
    return Cost(REGISTERS, place, reason, "guards that read only the event itself", event)


def _runs_cost(machine: Machine, text: PatternPlaces) -> Cost:
    live = machine.automaton.live
    lists = "each run is followed to each of its matches"
    advice = []
    reason = "a run that it excludes from one event waits for another"
    if any(registers.steps or registers.history for registers in live):
        reason = "it distinguishes runs that took different events"
        advice.append(_UNNAMED)
    waits = machine.compiled.strategy == "next" and not machine.arrival
    if machine.automaton.nots and waits:
        advice.append("`order arrival`, or no `not`")
    if advice:
        place = text.register_read(beyond_prior=True)
        event = "O(groups that wait for it; for an equality, those with its value)"
        return Cost(GROUPS_APART, place, reason, "; ".join(advice), event, "O(k)", False, lists)
    event = "amortised O(k): it makes at most one group per step, and a group moves once"
    reason = "guards read at most the prior event, so runs that took the same event are one group"
    if any(registers.prior for registers in live):
        event = event.replace("O(k)", "O(k P log n)")
    return Cost(GROUPS, text.body(), reason, "", event, "O(k)", False, lists)


def _cuts_cost(text: PatternPlaces) -> Cost:
    place = text.place(text.pattern.places.get("mode"), "mode")
    reason = "it requires every linear extension: all consistent cuts, at most cuts_max"
    return Cost(CUTS, place, reason, "no `mode`", "O(n^P) in total")


# --- find any ---


class _FindAnyCost:
    """Decides the cost class of a `find any`."""

    def __init__(self, roles: Roles, text: PatternPlaces) -> None:
        self.roles = roles
        self.text = text
        theory = Theory(roles.machine.automaton.atoms, roles.compiled.limits)
        self.possible_roles = [
            role for edge in roles.edges for role in _possible_roles(roles, edge, theory)
        ]
        self.sources: dict[int, set[StepEdge]] = {}
        for edge in roles.edges:
            self.sources.setdefault(edge.target, set()).add(edge)
        self.longest = roles.longest

    def cost(self) -> Cost:
        """Return the cost class of the pattern."""
        roles, worst = self.roles, self._worst_cost()
        if worst.name in (FLAT, FLAT_BY_VALUE):
            free = all(role.starts or role.free for role in self.possible_roles)
            event = "O(P log n)" if not roles.by_place else "O(1)" if free else "O(log n)"
            match = "O(k log n)" if roles.by_place else "O(k P log n)"
        elif worst.name == SEARCH:
            event = "O(P^2 log n)" if roles.bounding else "O(P log n)"
            match = "O(k P log n)"
        else:
            power = "k-1" if self.longest is None else str(max(1, self.longest - 1))
            power = "" if power == "1" else f"^({power})" if "-" in power else f"^{power}"
            event = f"up to O(n{power}) if it may complete a match, at most visits_max"
            match = "O(k P log n), plus the events visited"
        if roles.mirrors:
            match += ", for each of its mirror images"
        flat_with = worst.flat_with
        if worst.name in (SCAN, SEARCH_DEAD_ENDS, FORWARD_DEAD_ENDS) and not roles.window.bounded:
            flat_with += "; a window (`within`) bounds n"
        counts, because = self._counting()
        return replace(
            worst, flat_with=flat_with, event=event, match=match, counts=counts,
            counts_because=because,
        )  # fmt: skip

    def _worst_cost(self) -> Cost:
        """Return the worst class of any role, or the class of the order if no role has one."""
        costs = [one for role in self.possible_roles if (one := self._role_cost(role)) is not None]
        rank = (SCAN, SEARCH_DEAD_ENDS, FORWARD_DEAD_ENDS, FLAT_BY_VALUE)
        worst = min(costs, key=lambda one: rank.index(one.name), default=None)
        if self.roles.order is None:
            if worst is None or worst.name == FLAT_BY_VALUE:
                return self._search_cost()
            advice = "; ".join([one for one in (worst.flat_with, _ORDERED) if one])
            return replace(worst, flat_with=advice)
        return worst or self._order_cost()

    def _order_cost(self) -> Cost:
        """Return the class of a pattern whose search is forward and has no dead ends."""
        order, text = self.roles.order, self.text
        if order is ReleaseOrder.ANY:
            return Cost(FLAT, text.order(), "the event offered last completes the word")
        if order is ReleaseOrder.CANONICAL:
            reason = "all steps accept the same events, so a match is reported in canonical order"
            return Cost(FLAT, text.body(), f"{reason}; {_OUT_OF_ORDER}")
        reason = f"every step but the first is after the prior event; {_OUT_OF_ORDER}"
        for role in self.possible_roles:
            for relation in role.relations:
                if not relation.concurrent:
                    return Cost(FLAT, text.atom(role.edge.step, relation.atom), reason)
        return Cost(FLAT, text.body(), reason)

    def _search_cost(self) -> Cost:
        """Return the class of a pattern where any event of a match may come last."""
        roles, text = self.roles, self.text
        role = roles.not_causal[0]
        place = text.step(role.edge.step)
        if role.relations:
            place = text.atom(role.edge.step, role.relations[0].atom)
        reason = "it does not require its event to be after the prior event"
        if self.longest is None:
            reason = "any event may come last, and a repetition has no bounds"
            return Cost(SEARCH_DEAD_ENDS, text.loop(), reason, _ORDERED)
        if roles.nots:
            reason = "any event may come last, and bounds do not cover a `not`"
            return Cost(SEARCH_DEAD_ENDS, text.absent(), reason, _ORDERED)
        if self.longest > BOUNDED_WORD:
            reason += f", and a match has up to {self.longest} events"
            return Cost(SEARCH_DEAD_ENDS, place, reason, _ORDERED)
        return Cost(SEARCH, place, reason, _ORDERED)

    def _role_cost(self, role: StepRole) -> Cost | None:
        """Return the class that a role's conditions give the pattern; None if they give none."""
        roles, step = self.roles, role.edge.step
        forward = roles.order is not None
        dead_ends = FORWARD_DEAD_ENDS if forward else SEARCH_DEAD_ENDS
        if not role.edge.whole:
            reason = "if another guard of the step holds too, only the complete word decides"
            advice = "mutually exclusive guards, if a step leads to several states"
            return Cost(dead_ends, self.text.step(step), reason, advice)
        if not role.exact:
            reason = "it is decided on a complete word, not during the search"
            place, advice = self._undecided(role)
            return Cost(SCAN, place, reason, advice)
        if len(role.checks) > len(role.equalities):
            equal = {equality.atom for equality in role.equalities}
            atom = next(check.atom for check in role.checks if check.atom not in equal)
            reason = "it is evaluated for each remaining event"
            return Cost(SCAN, self.text.atom(step, atom), reason, _EQUALITY)
        for relation in role.relations:
            # Where each event is after all events before it in the word, any `Causal` holds.
            implied = not (relation.concurrent or roles.not_causal)
            if not (implied or self._is_prior(role, relation)):
                reason = "it relates its event to an event other than the prior event"
                advice = "relations to the prior event"
                return Cost(dead_ends, self.text.atom(step, relation.atom), reason, advice)
        if not role.equalities:
            return None
        place = self.text.atom(step, role.equalities[0].atom)
        if len(role.equalities) > 1:
            reason = (
                "an index serves one equality of a step, the others are evaluated for each event"
            )
            return Cost(dead_ends, place, reason, "one equality per step; `partition by`")
        if not forward and (self.longest is None or self.longest > SHORT_WORD):
            reason = "any event may come last, and bounds do not cover an equality"
            advice = "" if self._always_follows(role, role.equalities[0].step) else _EQUALITY
            return Cost(dead_ends, place, reason, advice)
        if self._always_follows(role, role.equalities[0].step) or self._is_lone_equality(role):
            reason = "its index returns the events with one value"
            return Cost(FLAT_BY_VALUE, place, reason)
        reason = "it compares with an event that need not be the prior event"
        return Cost(dead_ends, place, reason, f"{_EQUALITY}; `partition by`")

    def _counting(self) -> tuple[bool, str]:
        """Return whether matches are counted, with the condition if so and the reason if not."""
        roles = self.roles
        if roles.window.bounded:
            return False, "the pattern has a window"
        if roles.order is None:
            return False, "any event of a match may come last"
        if not roles.countable:
            return False, "two matches can be mirror images"
        for role in self.possible_roles:
            if not role.countable:
                place = self._uncounted(role)
                at = f" ({place.span.line}:{place.span.column})" if place.span else ""
                return (
                    False,
                    f"`{place.text}`{at} requires more than a relation to the prior event",
                )
        conditions = {
            ReleaseOrder.ANY: "",
            ReleaseOrder.CANONICAL: "as long as events come in canonical order",
            ReleaseOrder.CAUSAL: "as long as events come in an order that respects happened-before",
        }
        return True, conditions[roles.order]

    # --- conditions of a role ---

    def _is_prior(self, role: StepRole, relation: Relation) -> bool:
        """Return whether a relation's anchor can only be the event before, however it is named."""
        if relation.anchor == PRIOR_ANCHOR:
            return True
        if relation.anchor == ALL_ANCHOR:
            before = self.sources.get(role.edge.source, set())
            return not self.roles.returns and all(edge.source == 0 for edge in before)
        return self._always_follows(role, relation.anchor)

    def _always_follows(self, role: StepRole, step: int) -> bool:
        """Return whether the event before one in this role is always of the given step."""
        return {edge.step for edge in self.sources.get(role.edge.source, ())} == {step}

    def _is_lone_equality(self, role: StepRole) -> bool:
        """Return whether the equality is the pattern's only one, and no other role has conditions.

        That makes its search flat where events are searched by place.
        """
        atoms = {equality.atom for one in self.possible_roles for equality in one.equalities}
        lone = len(atoms) == 1 and all(
            one is role or one.starts or one.free for one in self.possible_roles
        )
        return self.roles.by_place and lone

    def _undecided(self, role: StepRole) -> tuple[TextPlace, str]:
        """Return the part of a role's guard that the role does not have as data, and advice."""
        machine = self.roles.machine
        atoms, decided = machine.automaton.atoms, set(role.nots) - machine.relational_nots
        literals = necessary(role.left)
        relational = [n for n in sorted(variables(role.left)) if atoms[n].relational]
        several = [n for n in relational if len(registers(atoms[n]).steps) > 1]
        for number in [n for n in relational if n not in literals] + several:
            if atoms[number].shape != "barred":
                return self.text.atom(role.edge.step, number), _DATA
            if atoms[number].payload[0] not in decided:
                return self.text.absent(atoms[number].payload[0]), _NOT
        return self.text.step(role.edge.step), _DATA

    def _uncounted(self, role: StepRole) -> TextPlace:
        """Return the part of a role's guard because of which matches are not counted."""
        if not role.exact:
            return self._undecided(role)[0]
        if role.nots:
            return self.text.absent(role.nots[0])
        if role.checks:
            return self.text.atom(role.edge.step, role.checks[0].atom)
        atom = next(r.atom for r in role.relations if r.anchor != PRIOR_ANCHOR)
        return self.text.atom(role.edge.step, atom)


def _possible_roles(roles: Roles, edge: StepEdge, theory: Theory) -> list[StepRole]:
    """Return the roles that events can have on an edge, by what local atoms leave of its guard.

    Where there are too many, the role of the whole guard, which is not exact, stands for all.
    """
    relational = {n for n in variables(edge.formula) if theory.atoms[n].relational}
    parts = conjuncts(edge.formula)
    required = conjunction([part for part in parts if relational & variables(part)])
    local = sorted(variables(required) - relational)
    known = theory.narrowed(
        PartialAssignment(), [part for part in parts if not relational & variables(part)]
    )
    regions: list[Region] = [] if known is None else [((), known)]
    for number in local:
        regions = split(regions, number, ("var", number, True), theory)
        if len(regions) > RESIDUALS_MAX:
            return [roles.role(edge, edge.formula)]
    left = (simplify(required, {n: n in held for n in local}) for held, _ in regions)
    return [roles.role(edge, formula) for formula in dict.fromkeys(left) if formula is not False]
