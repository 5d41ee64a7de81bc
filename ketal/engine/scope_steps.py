"""Steps of a pattern's scopes: passes events, time and the end to their runs, returns verdicts.

A scope is created with its first event. Its run returns findings, which become verdicts.

The one rule: a scope that is stepped is marked dirty, and removed once it is over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ketal.clocks import vector
from ketal.engine.check_run import CheckRun
from ketal.engine.configurations import Seen
from ketal.engine.copies import Copies
from ketal.engine.find.findings import Findings
from ketal.engine.losses import NO_DOTS, ScopeName
from ketal.engine.scopes import Scope, Scopes, mapping_of
from ketal.engine.verdict_building import VerdictBuilder
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.verdicts.verdict_kinds import RunVerdict


class ScopeSteps:
    """Offers events, time and the end to the runs of scopes."""

    __slots__ = (
        "_window_us", "by_mask", "copies", "counts", "limits", "losses", "scopes", "verdicts",
    )  # fmt: skip

    def __init__(
        self, scopes: Scopes, verdicts: VerdictBuilder, limits: Limits, copies: Copies | None
    ) -> None:
        self.scopes = scopes
        self.verdicts = verdicts
        self.limits = limits
        self.copies = copies
        self.counts = verdicts.counts
        self.losses = verdicts.losses
        # Whether runs may take events by their masks, several at once; false in a subclass whose
        # `step` must see every event.
        self.by_mask = not verdicts.traced
        self._window_us = verdicts.compiled.window_us

    def step(self, name: ScopeName, event: Event, mask: int) -> list[RunVerdict]:
        """Offer an event of the alphabet to its scope."""
        scopes, losses = self.scopes, self.losses
        if (
            name not in scopes.by_name
            and scopes.ignores(mask)
            and not (losses.any_missed and losses.missed_before(name, (event.clock,)))
        ):
            scopes.created += 1  # it would be over at once
            return []
        scope = self._scope(name)
        if scope is None:
            key, given_up = mapping_of(scopes.key_of(name)), "the events of a new scope"
            losses.give_up(name, event.dot)
            return [self.verdicts.overflow("scopes_max", given_up, key, event)]
        run, traced_check = scope.run, False
        if isinstance(run, CheckRun):
            traced_check = self.verdicts.traced
            if losses.any_missed and (scope.past or losses.missed_before(name, (event.clock,))):
                scope.past = vector.join((scope.past or {}, event.clock))
        # Each event of a traced check gives a verdict.
        if not traced_check and run.take_by_mask((event,), (mask,), 0, scope.offered):
            self._count_taken(scope, 1)
            out = []
        else:
            out = self._take(scope, event, mask)
        if scopes.removes:
            scopes.remove_if_over(scope)
        return out

    def _scope(self, name: ScopeName) -> Scope | None:
        """Return the scope of a name, marked dirty; None if there is no room for a new one."""
        scopes = self.scopes
        scope = scopes.by_name.get(name)
        if scope is None:
            return scopes.create(name) if len(scopes.by_name) < self.limits.scopes_max else None
        scopes.mark_dirty(scope)
        return scope

    def _count_taken(self, scope: Scope, count: int) -> None:
        """Count events that a scope's run took by `take_by_mask`, and set the scope's timer."""
        scope.offered += count
        if count and self._window_us is not None:
            self.scopes.set_timer(scope)

    def _take(self, scope: Scope, event: Event, mask: int) -> list[RunVerdict]:
        """Offer a scope's run an event that `take_by_mask` did not take."""
        run, place = scope.run, scope.offered
        scope.offered = place + 1
        if isinstance(run, CheckRun):
            return self._take_checked(scope, run, event, mask, place)
        findings = run.offer(event, mask, place)
        if self._window_us is not None:
            self.scopes.set_timer(scope)
        return [] if findings is None else self.verdicts.find_verdicts(scope, findings, event)

    def _take_checked(
        self, scope: Scope, run: CheckRun, event: Event, mask: int, place: int
    ) -> list[RunVerdict]:
        if run.halted:
            self.counts.halted += 1
            return []
        before, verdicts = run.configurations, self.verdicts
        disallowed = run.offer(event, mask, place)
        if disallowed is None and len(run.configurations) == 1 and not verdicts.traced:
            return []
        out = verdicts.check_verdicts(scope, before, disallowed, Seen(event, mask, place))
        if len(run.configurations) > self.limits.configurations_max:
            # Without all of its configurations a run would call allowed events violations.
            run.halt()
            given_up = "the rest of this run, which has too many readings"
            out.append(verdicts.overflow("configurations_max", given_up, scope.mapping, event))
        return out

    def step_all(
        self, name: ScopeName, events: Sequence[Event], masks: Sequence[int]
    ) -> list[tuple[int, list[RunVerdict]]]:
        """Offer events of the alphabet to one scope in turn; return (index, verdicts).

        Events that masks decide are taken several at once. The scope is not removed meanwhile,
        as the pattern has no partition.
        """
        assert not self.scopes.removes
        out: list[tuple[int, list[RunVerdict]]] = []
        index, end = 0, len(masks)
        by_mask = self.by_mask and not self.losses.any_missed
        while index < end:
            scope = self._scope(name) if by_mask else None
            if scope is None:
                verdicts = self.step(name, events[index], masks[index])
            else:
                begin, index = index, scope.run.take_by_mask(events, masks, index, scope.offered)
                self._count_taken(scope, index - begin)
                if index == end:
                    break
                verdicts = self._take(scope, events[index], masks[index])
            if verdicts:
                out.append((index, verdicts))
            index += 1
        return out

    # --- time and the end ---

    @property
    def due_us(self) -> float:
        """A lower bound of the watermarks that can end a window of the events offered so far."""
        if self._window_us is None:
            return math.inf
        if self.copies is not None and not self.copies.everything:
            return -math.inf  # a copy may learn of an event long after its time
        return self.scopes.timers.first_us() + self._window_us

    def resume(self, node: str) -> None:
        """Resume the suspended timers of the windows that a node's copy may end now.

        A timer whose awaited event is evicted (`unlearned_max`) waits for the node's next event.
        """
        copies, scopes = self.copies, self.scopes
        if copies is not None and self._window_us is not None and scopes.timers.are_suspended(node):
            scopes.resume(node, copies.unlearned_us(node) - self._window_us)

    def advance(self, watermark_us: int) -> list[RunVerdict]:
        """End the time windows that a watermark has passed."""
        scopes, copies = self.scopes, self.copies
        out: list[RunVerdict] = []
        if self._window_us is None:
            return out
        last_us = watermark_us - self._window_us
        for scope in scopes.timers.expired(last_us):
            run = scope.run
            assert not isinstance(run, CheckRun), "a check has no window"
            scopes.mark_dirty(scope)
            passed_us, node, evicted = watermark_us, None, NO_DOTS
            if copies is not None and not copies.everything:
                # For this copy, the time of an event passes only once its node has learned of it.
                node = scope.key[-1][1]
                passed_us = min(watermark_us, copies.unlearned_us(node))
                evicted = tuple(copies.evicted_unlearned(node))
            run.advance(passed_us, findings := Findings())
            out += self.verdicts.find_verdicts(scope, findings, None, evicted)
            earliest_us = run.earliest_us()
            if scopes.remove_if_over(scope):
                continue
            if node is not None and earliest_us is not None and earliest_us <= last_us:
                scopes.timers.suspend(scope, earliest_us)
            else:
                scopes.timers.set(scope, earliest_us)
        return out

    def close(self) -> list[RunVerdict]:
        """End every window and every run."""
        out: list[RunVerdict] = []
        for scope in list(self.scopes.by_name.values()):
            self.scopes.mark_dirty(scope)
            if not isinstance(scope.run, CheckRun):
                scope.run.end(findings := Findings())
                out += self.verdicts.find_verdicts(scope, findings, None)
            elif not (scope.run.halted or scope.run.complete()):
                out += self.verdicts.incomplete_verdicts(scope)
            self.scopes.remove_if_over(scope)
        return out


class OfferedEvents(ScopeSteps):
    """Collects which events each scope is offered, and offers them to no run."""

    def __init__(
        self, scopes: Scopes, verdicts: VerdictBuilder, limits: Limits, copies: Copies | None
    ) -> None:
        super().__init__(scopes, verdicts, limits, copies)
        self.by_mask = False
        self.by_scope: dict[ScopeName, list[Event]] = {}  # in the order in which they were offered

    def step(self, name: ScopeName, event: Event, mask: int) -> list[RunVerdict]:
        """Collect an event of the alphabet."""
        self.by_scope.setdefault(name, []).append(event)
        return []
