"""`find any` under CausalOrder: matches that the partial order alone defines.

An event extends the partial matches that are there, and each new one is
extended at once with the events that came before it in the order offered and
are not before it in the execution. So every match is found when the last of its
events is offered, whatever the order, exactly once.

The one rule: each (step, event) sequence is made once.
"""

from __future__ import annotations

from ketal.engine.configurations import Seen
from ketal.engine.find.base import PARTIALS, Find
from ketal.engine.find.causal_index import Line
from ketal.engine.find.partial_matches import Findings, Partial, Taken
from ketal.engine.machine import SubPlan


class JoinFind(Find):
    """Partial matches that are joined with events offered earlier and later."""

    __slots__ = ()

    def offer(self, seen: Seen) -> Findings:
        """Take one event."""
        findings = Findings()
        if self.window.events is not None:
            last = seen.place - self.window.events
            self.firsts.expire_places(last, findings)
            self._expire(last)
        matches: list[Taken] = []
        born: list[Partial] = []
        for state, index in self.by_state.items():
            if index.count:
                self._extend(state, seen, born, matches, findings)
        self._start(seen, born, matches, findings)
        # Each new partial match goes on with what was offered before this event.
        at = 0
        while at < len(born) and len(matches) <= self.limits.matches_per_event_max:
            self._back(born[at], born, matches, findings)
            at += 1
        for partial in born:
            self.put(partial)
        self._offered(seen, findings)
        if self.windowed:
            self.firsts.matched(matches)
        self._complete(findings, matches)
        return findings

    # --- extending ---

    def _extend(
        self,
        state: int,
        seen: Seen,
        born: list[Partial],
        matches: list[Taken],
        findings: Findings,
    ) -> None:
        plan = self.machine.plan(state, seen.mask)
        if plan is None:
            return
        node, counter = seen.node, seen.counter
        for sub, groups in self._candidates(state, plan, seen):
            if sub is plan.after and plan.reads_prior:
                continue
            if self.gives_up(sub, groups, born, findings):
                continue
            constant = sub.constant
            for group in groups:
                for partial in group:
                    assert partial.join is not None
                    if partial.join.get(node, 0) >= counter:
                        continue  # it happened-before one that is already taken
                    targets = constant or self._decide(sub, partial, seen)
                    if targets and self.window.fits(partial, seen):
                        for step, target in targets:
                            self._born(partial, step, target, seen, born, matches, findings)

    def _back(
        self, partial: Partial, born: list[Partial], matches: list[Taken], findings: Findings
    ) -> None:
        """Extend a new partial match with the events offered before its last one."""
        machine = self.machine
        prior, join = partial.prior, partial.join
        assert join is not None
        oldest_us = None
        if self.window.us is not None:
            assert partial.high_us is not None
            oldest_us = partial.high_us - self.window.us
        assert self.buffer is not None
        for mask, index in self.buffer.by_mask.items():
            plan = machine.plan(partial.configuration.state, mask)
            if plan is None:
                continue
            value = None
            if plan.key is not None:
                value = machine.relations.register_values[plan.key](partial.configuration)
            for node, line in index.among(plan.key, value):
                # What is up to `low` happened-before some event taken, or is one.
                low = line.past(join.get(node, 0))
                if oldest_us is not None:
                    low = max(low, line.later_than(oldest_us))
                if low == len(line.counters):
                    continue
                if not plan.reads_prior:
                    assert plan.unbound is not None
                    self._each(plan.unbound, line, low, None, partial, born, matches, findings)
                    continue
                high = (
                    low if node == prior.node else line.knows_from(prior.node, prior.counter, low)
                )
                if plan.concurrent is not None and high > low:
                    self._each(plan.concurrent, line, low, high, partial, born, matches, findings)
                if plan.before is not None:
                    self._each(plan.before, line, high, None, partial, born, matches, findings)

    def _each(
        self,
        sub: SubPlan,
        line: Line,
        low: int,
        high: int | None,
        partial: Partial,
        born: list[Partial],
        matches: list[Taken],
        findings: Findings,
    ) -> None:
        constant = sub.constant
        if self.gives_up(sub, line.items[low:high], born, findings):
            return
        for seen in line.seens[low:high]:
            targets = constant or self._decide(sub, partial, seen)
            if targets and self.window.fits(partial, seen):
                for step, target in targets:
                    self._born(partial, step, target, seen, born, matches, findings)

    def _start(
        self, seen: Seen, born: list[Partial], matches: list[Taken], findings: Findings
    ) -> None:
        machine = self.machine
        plan = machine.plan(0, seen.mask)
        if plan is None or plan.unbound is None:
            return
        configuration = machine.start()
        targets = machine.decide(plan.unbound, configuration, seen)
        if targets and self.windowed:
            self.firsts.add(seen, targets[0][0])
        for step, target in targets:
            taken = ((step, seen),)
            findings.moves.append((0, step, target, seen))
            if target in machine.automaton.finals:
                matches.append(taken)
            if machine.has_way_on[target]:
                if not self.has_room(born):
                    findings.overflow("runs_max", PARTIALS)
                    continue
                after = machine.take(configuration, step, target, seen)
                born.append(Partial(after, taken, None, seen.clock, None))

    def validate_state(self) -> None:
        """Assert the rule of this module, and those of what is kept."""
        super().validate_state()
        taken = [partial.taken for index in self.by_state.values() for partial in index]
        assert len(set(taken)) == len(taken)
