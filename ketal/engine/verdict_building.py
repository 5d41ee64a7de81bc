"""Verdict building: turns the findings of a pattern's runs into verdicts, and counts them.

The one rule: a finding is counted whether or not it is listed, and one that a missed event could
change is counted as uncertain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, TypeVar

from ketal.compiler.automaton import ANONYMOUS
from ketal.compiler.commutation import ordered_clauses
from ketal.engine.check_run import CheckRun, Disallowed
from ketal.engine.configurations import Configuration, Seen, states
from ketal.engine.find.findings import Findings, Taken
from ketal.engine.losses import NO_DOTS, Losses, first_named
from ketal.engine.machine import Machine
from ketal.engine.scopes import Counts, Scope
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import CanonicalKey, canonical_key
from ketal.model.frozen_mapping import FrozenMapping
from ketal.model.verdicts.check_verdicts import Incomplete, Violation
from ketal.model.verdicts.find_verdicts import Match, TimedOut
from ketal.model.verdicts.run_verdicts import Overflow, Transition
from ketal.model.verdicts.verdict_kinds import RunVerdict

V = TypeVar("V")

_KEY: Final = attrgetter("key")


class VerdictBuilder:
    """Builds the verdicts of one pattern over one execution."""

    def __init__(
        self,
        machine: Machine,
        counts: Counts,
        losses: Losses,
        *,
        execution: str,
        listing: bool,
        traced: bool,
    ) -> None:
        self.compiled = machine.compiled
        self.machine = machine
        self.counts = counts
        self.losses = losses
        self.execution = execution
        self.listing = listing
        self.traced = traced
        # Under `at every node`, the place in canonical order of the event that is processed: with
        # it, copies are offered events of earlier places. None if events are offered in order, or
        # if no event was missed.
        self.learned_at: CanonicalKey | None = None
        self._only_counts = self.compiled.pattern.only_counts
        self._any_may_come_last = self.compiled.causal and self.compiled.strategy == "any"
        # Whether a match, or a violation, depends on other events than those it names.
        clauses = ordered_clauses(self.compiled.pattern)
        self._reads_others = self.compiled.strategy != "any" or bool(clauses)
        self._name, self._fingerprint = self.compiled.name, self.compiled.fingerprint

    # --- a check ---

    def check_verdicts(
        self,
        scope: Scope,
        before: tuple[Configuration, ...],
        disallowed: Disallowed | None,
        seen: Seen,
    ) -> list[RunVerdict]:
        """Return the verdicts of one step of a check.

        `before` are the run's configurations before the step; `disallowed` is why the event was
        not allowed, or None.
        """
        run = scope.run
        assert isinstance(run, CheckRun)
        out: list[RunVerdict] = []
        if disallowed is not None:
            lost = NO_DOTS
            if self.losses.any_missed:
                lost = self._missed(scope, (scope.past or {},), None, seen.key)
            self.counts.violations += 1
            self.counts.uncertain += bool(lost)
            if self.listing:
                common = self._common_fields(scope.mapping, _time(seen.event), lost)
                out.append(
                    Violation(
                        event=seen.dot,
                        type=seen.event.type,
                        expected=disallowed.expected,
                        state=disallowed.state,
                        reason=disallowed.reason,
                        **common,
                    )
                )
        if self.traced and (disallowed is None or disallowed.resumed):
            start = before if disallowed is None else (self.machine.start(),)
            # Configurations may take the event by different steps.
            taking = {step for one in start for step in self.machine.steps_held(one, seen)}
            steps = "|".join(self.machine.automaton.steps[step] for step in sorted(taking))
            out.append(self._transition(scope, seen, states(start), run.states(), steps))
        return out

    def incomplete_verdicts(self, scope: Scope) -> list[RunVerdict]:
        """Return the verdict of a check whose run is not complete at the end."""
        run = scope.run
        assert isinstance(run, CheckRun)
        self.counts.incomplete += 1
        lost = self.losses.awaited_in_vain(scope.name)
        self.counts.uncertain += bool(lost)
        if not self.listing:
            return []
        state = self.machine.automaton.named(run.states())
        common = self._common_fields(scope.mapping, None, lost)
        return [Incomplete(state=state, expected=run.expected(), **common)]

    def _transition(
        self, scope: Scope, seen: Seen, before: tuple[int, ...], after: tuple[int, ...], step: str
    ) -> Transition:
        return Transition(
            event=seen.dot,
            step=step,
            source=self.machine.automaton.named(before),
            target=self.machine.automaton.named(after),
            **self._common_fields(scope.mapping, _time(seen.event)),
        )

    # --- a find ---

    def find_verdicts(
        self,
        scope: Scope,
        findings: Findings,
        event: Event | None,
        evicted: Sequence[Dot] = NO_DOTS,
    ) -> list[RunVerdict]:
        """Return the verdicts of the findings of an event, or of a watermark or the end (None).

        `evicted` are the evicted events of which the node of a copy may yet learn.
        """
        out: list[RunVerdict] = []
        if self.traced:
            steps = self.machine.automaton.steps
            for source, group, target, seen in findings.moves:
                name = steps[group] if group != ANONYMOUS else ""
                out.append(self._transition(scope, seen, (source,), (target,), name))
        counts = self.counts
        counts.matches += len(findings.matches) + findings.counted
        counts.timed_out += len(findings.timed_out)
        lost = self._awaited_in_vain(scope, event, evicted) if findings.timed_out else NO_DOTS
        counts.uncertain += len(findings.timed_out) if lost else 0
        if self.losses.any_missed:
            counts.uncertain += sum(
                bool(self._missed_by_match(scope, taken)) for taken in findings.matches
            )
        if self.listing and findings.matches and not self._only_counts:
            assert event is not None, "time alone completes no match"
            listed, limit = findings.matches, self.compiled.pattern.limit
            if limit is not None:
                listed = listed[: max(0, limit - counts.listed)]
            counts.listed += len(listed)
            out += self._matches(scope, listed, event)
        if self.listing and findings.timed_out:
            for taken in findings.timed_out:
                common = self._common_fields(scope.mapping, _time(taken[-1][1].event), lost)
                out.append(TimedOut(steps=self._steps(taken), **common))
        for (limit_name, dropped), times in findings.overflows.items():
            assert event is not None, "time alone reaches no limit"
            self.losses.give_up(scope.name, event.dot)
            if limit_name in scope.reported:
                counts.overflows += times
                continue
            scope.reported |= {limit_name}
            given_up = f"{dropped}: {times}; others in this scope are only counted (overflows)"
            out.append(self.overflow(limit_name, given_up, scope.mapping, event, times))
        return out

    def _steps(self, taken: Taken) -> tuple[tuple[str, Any], ...]:
        names = self.machine.automaton.steps
        return tuple(seen.bound_by(names[step]) for step, seen in taken)

    def _matches(self, scope: Scope, listed: Sequence[Taken], event: Event) -> list[Match]:
        """Return the verdicts about the matches that an event completed."""
        out: list[Match] = []
        mapping, names, time = scope.mapping, self.machine.automaton.steps, _time(event)
        pattern, fingerprint, execution = self._name, self._fingerprint, self.execution
        reads, returns = self.compiled.bound.returns, None
        any_may_come_last, loses = self._any_may_come_last, self.losses.any_missed
        lost = NO_DOTS
        make_match = Match  # compiled code looks a global up each time
        for taken in listed:
            if any_may_come_last:
                # The time must not depend on which of the match's events was offered last.
                time = _time(max([seen for _, seen in taken], key=_KEY).event)
            if reads is not None:
                bound = {names[step]: seen.event for step, seen in taken}
                returns = {name: value(bound) for name, value in reads}
            if loses:
                lost = self._missed_by_match(scope, taken)
            out.append(
                make_match(
                    pattern=pattern,
                    fingerprint=fingerprint,
                    scope=mapping,
                    execution=execution,
                    time=time,
                    certain=not lost,
                    depends_on=lost,
                    steps=self._steps(taken),
                    returns=returns,
                )
            )
        return out

    # --- the fields of every verdict ---

    def overflow(
        self, limit: str, given_up: str, scope: FrozenMapping, event: Event | None, times: int = 1
    ) -> Overflow:
        """Count the overflows of a limit, at an event if any, and return their verdict."""
        self.counts.overflows += times
        time, dot = (None, None) if event is None else (_time(event), event.dot)
        common = self._common_fields(scope, time)
        return Overflow(limit=limit, given_up=given_up, event=dot, **common)

    def _common_fields(
        self, scope: FrozenMapping, time: float | None, lost: tuple[Dot, ...] = NO_DOTS
    ) -> dict[str, Any]:
        common: dict[str, Any] = {
            "pattern": self._name,
            "fingerprint": self._fingerprint,
            "scope": scope,
            "execution": self.execution,
            "time": time,
        }
        if lost:
            common |= {"certain": False, "depends_on": lost}
        return common

    # --- uncertainty ---

    def _missed(
        self,
        scope: Scope,
        clocks: Iterable[Mapping[str, int]],
        low: CanonicalKey | None,
        high: CanonicalKey,
    ) -> tuple[Dot, ...]:
        """Return the dots that a scope missed in the given pasts, or perhaps between two places.

        `low` None is the beginning of the order. A node's copy is offered events when its node
        learns of them, out of order; there every missed dot that may come before the current
        event counts as between.
        """
        losses, name = self.losses, scope.name
        if self.learned_at is not None:
            low, high = None, self.learned_at
        between = losses.missed_between(name, low, high)
        given_up = losses.given_up(name) if self._reads_others else ()
        return first_named(sorted((*given_up, *losses.missed_before(name, clocks), *between)))

    def _awaited_in_vain(
        self, scope: Scope, event: Event | None, evicted: Sequence[Dot]
    ) -> tuple[Dot, ...]:
        """Return the dots that could prevent the time-outs of `find_verdicts`."""
        upto = None
        if event is not None and self.losses.any_missed:
            upto = self.learned_at or canonical_key(event)
        return first_named((*self.losses.awaited_in_vain(scope.name, upto), *evicted))

    def _missed_by_match(self, scope: Scope, taken: Taken) -> tuple[Dot, ...]:
        """Return the missed dots that could change a match.

        A match depends on its own events only. So a missed event matters if it is in the past
        of one of them or, where the order matters, may have come between them.
        """
        keys = [seen.key for _, seen in taken]
        return self._missed(scope, [seen.clock for _, seen in taken], min(keys), max(keys))


def flat(numbered: Iterable[tuple[int, Sequence[V]]]) -> list[V]:
    """Return the verdicts of all events in one list."""
    return [verdict for _, verdicts in numbered for verdict in verdicts]


def _time(event: Event) -> float | None:
    time = event.time
    return time if time is None or isinstance(time, float) else float(time)
