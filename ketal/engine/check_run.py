"""The run of a `check` in one scope: a set of configurations, violated when it becomes empty.

Cost: where no guard reads an earlier event, one table look-up for an event (`Machine.decided`).
Otherwise each configuration evaluates the relational atoms that its state and the mask leave open.

The one rule: a run is in at least one configuration, and in none twice, until it is halted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ketal.compiler.predicates import RELATIONS, Atom, simplify, variables
from ketal.engine.configurations import Configuration, Seen, SeenTable, states
from ketal.engine.machine import Machine, step
from ketal.model.events.event import Event
from ketal.model.syntax import ALL, PRIOR

_IN_WORDS: Final = {
    "before": "causally after",
    "concurrent": "concurrent with",
    "own_node": "certainly causally after",
    "other_node": "possibly concurrent with",
}


@dataclass(frozen=True, slots=True)
class Disallowed:
    """Why no configuration of a `check` run allows an event.

    `resumed` is true where the fresh run of `on violation resume` took the event.
    """

    state: str
    expected: tuple[str, ...]
    reason: str
    resumed: bool = False


class CheckRun:
    """The run of a `check` in one scope."""

    __slots__ = ("configurations", "machine")

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.configurations: tuple[Configuration, ...] = machine.fresh

    def take_by_mask(
        self, events: Sequence[Event], masks: Sequence[int], begin: int, place: int
    ) -> int:
        """Take events from index `begin` on, as long as state and mask alone decide the step.

        `place` is the place of the first among the events that the scope was offered. Returned
        is the index of the first event not taken, which must go to `offer`.
        """
        configurations = self.configurations
        if len(configurations) != 1:
            return begin
        decided = self.machine.decided[configurations[0].state]
        number, end = begin, len(masks)
        while number < end:
            after = decided[masks[number]]
            if after is None:
                break
            configurations, decided = after
            number += 1
        self.configurations = configurations
        return number

    def offer(self, event: Event, mask: int, place: int) -> Disallowed | None:
        """Take the event, or return why it is not allowed; the arguments are those of `Seen`."""
        seen = Seen(event, mask, place)
        after = self._successors(seen)
        if after:
            self.configurations = after
            return None
        disallowed = self._why_disallowed(seen)
        policy = self.machine.compiled.pattern.violation_policy
        if policy == "halt":
            self.halt()
        elif policy == "resume":
            self.configurations = self.machine.fresh
            after = self._successors(seen)
            if after:
                self.configurations = after
                disallowed = replace(disallowed, resumed=True)
        return disallowed

    def _successors(self, seen: Seen) -> tuple[Configuration, ...]:
        moved = [c for one in self.configurations for _, c in step(self.machine, one, seen)]
        return tuple(moved if len(moved) == 1 else dict.fromkeys(moved))

    def halt(self) -> None:
        """End the run: it takes no more events."""
        self.configurations = ()

    @property
    def halted(self) -> bool:
        """Whether the run has ended."""
        return not self.configurations

    def states(self) -> tuple[int, ...]:
        """Return the states the run may be in."""
        return states(self.configurations)

    def complete(self) -> bool:
        """Return whether some configuration is in a final state."""
        return any(c.state in self.machine.automaton.finals for c in self.configurations)

    def ignores(self, mask: int) -> bool:
        """Return whether an event with a mask leaves a fresh run as it is."""
        after = self.machine.decided[0][mask]
        return after is not None and after[0] == self.machine.fresh

    def idle(self) -> bool:
        """Return whether the run is in its initial configuration."""
        return self.configurations == self.machine.fresh

    def expected(self) -> tuple[str, ...]:
        """Return the steps that the automaton allows next, in declaration order."""
        return self.machine.automaton.expected(self.states())

    def _why_disallowed(self, seen: Seen) -> Disallowed:
        states = self.states()
        expected, reason, nearly = self.machine.expectations[states, seen.mask]
        if nearly and (near := "; ".join(dict.fromkeys(self._near_misses(seen)))):
            reason = f"{reason}; {near}"
        return Disallowed(self.machine.automaton.named(states), expected, reason)

    def _near_misses(self, seen: Seen) -> Iterator[str]:
        """Yield a text for each relation that fails of a step whose local guard is satisfied."""
        machine = self.machine
        automaton = machine.automaton
        known = machine.local_truth(seen.mask)
        for configuration in self.configurations:
            for v in automaton.enabled[configuration.state]:
                formula = simplify(automaton.formulas[v], known)
                if formula is False:
                    continue
                for number in sorted(variables(formula)):
                    atom = automaton.atoms[number]
                    on = machine.relations.holds(number, configuration, seen)
                    if simplify(formula, {number: on}) is False:
                        name = automaton.steps[automaton.variants[v].step]
                        yield f"not {name}: {self._failure(atom, on, configuration)}"

    def _failure(self, atom: Atom, on: bool, configuration: Configuration) -> str:
        anchor = atom.payload[0] if atom.shape in RELATIONS else None
        if anchor is None:
            return "a comparison with an earlier step does not hold"
        unbound = "no event was taken before it"
        if anchor == ALL:
            who = "every earlier event of the run" if configuration.history else ""
        elif anchor == PRIOR:
            prior = configuration.prior
            who = f"{prior.dot}, the event taken before it" if prior else ""
        else:
            slot = self.machine.relations.slot(anchor)
            holder = configuration.bound[slot] if slot is not None else None
            who = f"{anchor} ({holder.dot})" if holder else ""
            unbound = f"{anchor} has no event yet"
        if not who:
            return unbound
        return f"it is {'' if on else 'not '}{_IN_WORDS[atom.shape]} {who}"

    # --- state ---

    def save(self, seens: SeenTable) -> Any:
        """Return the run as plain data; `seens` numbers its events."""
        return [configuration.save(seens) for configuration in self.configurations]

    def load(self, value: Any, seens: SeenTable) -> None:
        """Load what `save` returned into a fresh run."""
        self.configurations = tuple([Configuration.load(row, seens) for row in value])

    def validate_state(self) -> None:
        """Assert the rules of this module and of `ketal.engine.configurations`."""
        configurations, automaton = self.configurations, self.machine.automaton
        assert len(set(configurations)) == len(configurations)
        for c in configurations:
            live = automaton.live[c.state]
            steps = {s for s, slot in self.machine.relations.slots.items() if c.bound[slot]}
            assert c.prior is None or live.prior
            assert c.history is None or live.history
            assert steps <= set(live.steps)
            assert not c.broken, "a check has no `not`"
