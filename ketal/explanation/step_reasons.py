"""Why an event satisfies a step, or does not: its guard, the `not`s before it, the window.

The one rule: an event satisfies a step if it passes all three, as `ketal.semantics` defines them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ketal.compiler.automaton import Variant
from ketal.engine.configurations import Seen
from ketal.engine.find.windows import MatchWindow
from ketal.engine.machine import Machine
from ketal.engine.machine import step as step_of
from ketal.explanation.guard_evidence import Evidence, GuardEvidence
from ketal.explanation.observed_run import LiveRun, ObservedRun
from ketal.explanation.reasons import PlacedEvent, StepReason
from ketal.grammar.bare_names import DeclaredNames
from ketal.grammar.printer import clause
from ketal.model import syntax
from ketal.model.events.event import Event
from ketal.model.events.happened_before import happened_before
from ketal.model.frozen_mapping import FrozenMapping
from ketal.model.syntax_walks import not_guards
from ketal.model.wording import counted
from ketal.semantics import History


class StepReasons:
    """Explains, in one scope of a pattern, why events satisfy its steps or do not.

    For a verdict of a `mode`, `extension` is the order of the scope's events that gives it.
    """

    def __init__(
        self, run: ObservedRun, scope: FrozenMapping, extension: Sequence[Event] = ()
    ) -> None:
        compiled = run.compiled
        self._machine: Machine = run.machine
        self._evidence = GuardEvidence(compiled)
        self._guards = dict(compiled.guards)
        self._nots = not_guards(compiled.pattern.body)
        self._window = MatchWindow(run.machine)
        # Under `at every node`, the node whose copy of the pattern runs in the scope.
        self._node: str | None = scope.get("node") if run.copies is not None else None
        # A check has neither `not`s nor a window.
        self._offered = {} if compiled.kind == "check" else run.observed.offered(scope)
        self._in_order = run.observed.in_order(scope)
        if extension:
            self._in_order = [self._new_seen(e, place) for place, e in enumerate(extension)]
            self._offered = {seen.dot: seen for seen in self._in_order}

    @property
    def window_text(self) -> str:
        """The window in pattern syntax."""
        window = self._machine.compiled.pattern.window
        return clause("window", window, DeclaredNames()).removesuffix(";")

    def alphabet_failures(self, event: Event) -> Iterator[Evidence]:
        """Yield, for each `event` declaration that an event fails, the first literal that fails."""
        for decl, _ in self._machine.compiled.events:
            holds, evidence = self._evidence.decide(decl.guard, event, (), self._node)
            if not holds:
                yield next(one for one in evidence if one.holds is not True)

    def replay(self, taken: History) -> Iterator[LiveRun]:
        """Replay a history: yield the run before each of its steps, then after the last one."""
        configuration = self._machine.start()
        yield LiveRun(configuration, tuple)
        for length, (name, event) in enumerate(taken, 1):
            moves = dict(step_of(self._machine, configuration, self._seen_of(event)))
            configuration = moves[self._machine.automaton.steps.index(name)]
            yield LiveRun(configuration, partial(lambda n: taken[:n], length))

    def _seen_of(self, event: Event) -> Seen:
        return self._offered.get(event.dot) or self._new_seen(event, 0)

    def _new_seen(self, event: Event, place: int) -> Seen:
        compiled = self._machine.compiled
        (mask,) = compiled.masks((event,))
        if event.node == self._node:
            mask |= compiled.automaton.localhost_bit
        return Seen(event, mask, place)

    def expected_steps(self, live: LiveRun) -> Sequence[str]:
        """Return the steps that a run expects next."""
        return self._machine.automaton.expected((live.configuration.state,))

    def expected(self, live: LiveRun, event: PlacedEvent) -> tuple[StepReason, ...]:
        """Return, for each step that a run expects next, whether an event satisfies it, and why."""
        return tuple(self.reason(name, live, event) for name in self.expected_steps(live))

    def misses(
        self, live: LiveRun, event: PlacedEvent
    ) -> Iterator[tuple[tuple[int, int], StepReason]]:
        """Yield (distance, reason) of each step that a run expects and an event does not satisfy.

        The distance is how many conditions of the step fail, and how many follow from the first
        failure on. The `not`s and the window count as conditions after those of the guard.
        """
        moment = self._evidence.moment(event.event, live.taken, self._node)
        for name in self.expected_steps(live):
            reason, others = self._judged(name, live, event)
            if reason.holds:
                continue
            conditions = self._evidence.conditions(self._guards[name])
            failed = [
                n
                for n, one in enumerate(conditions)
                if self._evidence.truth(one, moment) is not True
            ]
            failed += [len(conditions) for one in others if not one.holds]
            yield (len(failed), len(conditions) - min(failed, default=0)), reason

    def reason(self, step: str, live: LiveRun, event: PlacedEvent) -> StepReason:
        """Return whether a run can take an event as the given step, and why."""
        return self._judged(step, live, event)[0]

    def _judged(
        self, step: str, live: LiveRun, event: PlacedEvent
    ) -> tuple[StepReason, tuple[Evidence, ...]]:
        """Return why a run can or cannot take an event; then the evidence beside the guard's."""
        holds, evidence = self._evidence.decide(
            self._guards[step], event.event, live.taken, self._node
        )
        others = (
            *self._not_evidence(step, live, event.event),
            *self._window_evidence(live, event.event),
        )
        holds = holds and all(one.holds for one in others)
        return StepReason(step, holds, (*evidence, *others), event), others

    # --- nots ---

    def _not_evidence(self, step: str, live: LiveRun, event: Event) -> Iterator[Evidence]:
        """Yield the evidence of the `not`s between the prior event and this one."""
        if not live.taken or self._machine.compiled.kind == "check":
            return
        automaton = self._machine.automaton
        enabled = (automaton.variants[v] for v in automaton.enabled[live.configuration.state])
        alternatives = [
            list(self._variant_evidence(variant, live.taken, event))
            for variant in enabled
            if automaton.steps[variant.step] == step
        ]
        yield from next(
            (held for held in alternatives if all(one.holds for one in held)), alternatives[0]
        )

    def _variant_evidence(
        self, variant: Variant, taken: History, event: Event
    ) -> Iterator[Evidence]:
        if not variant.nots:
            return
        prior = taken[-1][1]
        between = self._between(prior, event)
        where = f"between {prior.dot} and {event.dot}"
        for number in variant.nots:
            guard = self._nots[number]
            text = f"not {self._evidence.text(guard)}"
            breaker = next((x for x in between if self._satisfies(guard, x, taken)), None)
            if breaker is None:
                because = f"the pattern has no event {where}"
                if len(between) == 1:
                    because = f"{between[0].dot}, {where}, does not satisfy the guard"
                elif between:
                    none = f"none of the pattern's {len(between):,} events"
                    because = f"{none} {where} satisfies the guard"
                yield Evidence(text, True, because, {})
            else:
                because = f"{breaker}, {where}, satisfies the guard"
                yield Evidence(text, False, because, {}, (breaker.dot,))

    def _satisfies(self, guard: syntax.Guard, event: Event, taken: History) -> bool:
        moment = self._evidence.moment(event, taken, self._node)
        return self._evidence.truth(guard, moment) is True

    def _between(self, prior: Event, event: Event) -> list[Event]:
        low, high = self._seen_of(prior).place, self._seen_of(event).place
        between = [seen.event for seen in self._in_order[low + 1 : high]]
        if self._machine.arrival:
            return between
        return [x for x in between if happened_before(prior, x) and happened_before(x, event)]

    # --- the window ---

    def _window_evidence(self, live: LiveRun, event: Event) -> Iterator[Evidence]:
        if not live.taken or not self._window.bounded:
            return
        events = [*(event for _, event in live.taken), event]
        # A stable sort: of events at one position, the first and the last in the order of the run.
        seen = sorted(map(self._seen_of, events), key=self._window.position)
        first, last = seen[0].event, seen[-1].event
        length = self._window.position(seen[-1]) - self._window.position(seen[0])
        timed = self._window.us is not None
        seconds = f"{length / 1_000_000:.6f}".rstrip("0").rstrip(".")
        far = f"{seconds} s" if timed else counted(length, "event")
        because = f"{last.dot} is {far} after {first.dot}"
        yield Evidence(self.window_text, length < self._window.length, because, {})
