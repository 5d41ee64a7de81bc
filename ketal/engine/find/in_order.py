"""Runs that take events in the order offered.

`find strict`, `find next`, and `find any` under arrival order. An event extends
partial matches that are there; it can start one.

A partial match that takes an event goes on only in what is born of it, but for `find any`,
where it stays as well.

The one rule: a partial match of `next` or `strict` belongs to a run that is followed, and a
run that is followed has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ketal.engine.configurations import Seen, SeenTable
from ketal.engine.find.base import PARTIALS, Find, Setup
from ketal.engine.find.partial_matches import Findings, Partial, Run, Taken, rank
from ketal.engine.find.windows import Expiring


class ForwardFind(Find):
    """Runs that take events in the order offered."""

    __slots__ = ("_runs_by_time", "runs", "strategy")

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.strategy = setup.machine.compiled.strategy
        self.runs: dict[int, Run] = {}  # by the place of the event that started them
        self._runs_by_time: Expiring[int] = Expiring()

    def offer(self, seen: Seen) -> Findings:
        """Take one event."""
        findings = Findings()
        if self.window.events is not None:
            self._expire_places(seen.place - self.window.events, findings)
        born: list[Partial] = []
        matches: list[Taken] = []
        taken_from: list[Partial] = []
        for state, index in list(self.by_state.items()):
            if index.count:
                self._extend(state, seen, born, matches, taken_from, findings)
        dropped = dict.fromkeys(taken_from) if self.strategy != "any" else {}
        if self.strategy == "strict":
            dropped = dict.fromkeys(p for index in self.by_state.values() for p in index)
        elif self.machine.arrival and self.machine.automaton.nots:
            self._skip(seen, dropped)
        self._start(seen, born, matches, findings)
        # What is dropped makes room; what is born is kept first, so that a run that
        # goes on stays where it is.
        self.live.count -= len(dropped)
        for partial in born:
            self._keep(partial, findings)
        self.live.count += len(dropped)
        for partial in dropped:
            self._drop(partial)
        if self.strategy == "any":
            self.firsts.matched(matches)
        self._offered(seen, findings)
        self._complete(findings, matches)
        return findings

    def _extend(
        self,
        state: int,
        seen: Seen,
        born: list[Partial],
        matches: list[Taken],
        taken_from: list[Partial],
        findings: Findings,
    ) -> None:
        plan = self.machine.plan(state, seen.mask)
        if plan is None:
            return
        for sub, groups in self._candidates(state, plan, seen):
            if self.strategy == "any" and self.gives_up(sub, groups, born, findings):
                continue
            for group in groups:
                for partial in group:
                    targets = sub.constant or self._decide(sub, partial, seen)
                    if targets and self.window.fits(partial, seen):
                        taken_from.append(partial)
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
        if not targets:
            return
        run = None
        if self.strategy != "any":
            run = self.add_run(Run(seen))
        elif self.windowed:
            self.firsts.add(seen, targets[0][0])
        for step, target in targets:
            taken = ((step, seen),)
            findings.moves.append((0, step, target, seen))
            if target in machine.automaton.finals:
                matches.append(taken)
                if run is not None:
                    run.matched = True
            if machine.has_way_on[target]:
                after = machine.take(configuration, step, target, seen)
                born.append(Partial(after, taken, run, None, None))
        if run is not None and not (born and born[-1].run is run):
            del self.runs[seen.place]  # nothing that it began goes on

    def add_run(self, run: Run) -> Run:
        """Follow a run."""
        self.runs[run.start.place] = run
        if self.window.us is not None:
            assert run.start.time_us is not None
            self._runs_by_time.add(run.start.time_us, run.start.place)
        return run

    def _keep(self, partial: Partial, findings: Findings) -> None:
        run = partial.run
        if self.live.count >= self.limits.runs_max:
            findings.overflow("runs_max", PARTIALS)
        elif run is not None and len(run.partials) >= self.limits.configurations_max:
            findings.overflow("configurations_max", "partial matches of one run")
        else:
            self.put(partial)
            return
        if run is not None and not run.partials:
            self.runs.pop(run.start.place, None)

    def _drop(self, partial: Partial) -> None:
        self.take_out(partial)
        run = partial.run
        if run is not None and not run.partials:
            self.runs.pop(run.start.place, None)

    def _skip(self, seen: Seen, dropped: dict[Partial, None]) -> None:
        """Let partial matches that did not take the event meet it with their `not` guards."""
        machine = self.machine
        for state, index in self.by_state.items():
            plan = machine.not_plan(state, seen.mask)
            if not index.count or not plan.guards:
                continue
            for partial in index.having(plan.key, self._value(plan.key, seen)):
                if partial in dropped:
                    continue
                after = machine.skip(partial.configuration, seen)
                if after is None:
                    dropped[partial] = None
                else:
                    partial.configuration = after

    # --- windows ---

    def _expire_places(self, last: int, findings: Findings) -> None:
        while self.runs:
            start = next(iter(self.runs))
            if start > last:
                break
            self._end(self.runs[start], findings)
        if self.strategy == "any":
            self.firsts.expire_places(last, findings)
            self._expire(last)

    def advance(self, watermark_us: int, findings: Findings) -> None:
        """End the time windows that a watermark has passed, in event-time order."""
        super().advance(watermark_us, findings)
        if self.window.us is not None:
            for place in self._runs_by_time.passed(watermark_us - self.window.us):
                if place in self.runs:
                    self._end(self.runs[place], findings)

    def end(self, findings: Findings) -> None:
        """End every window: nothing comes any more."""
        super().end(findings)
        if self.windowed:
            for run in list(self.runs.values()):
                self._end(run, findings)

    def earliest_us(self) -> int | None:
        """Return the first time that a watermark can end something of; None for nothing."""
        if self.strategy == "any":
            return super().earliest_us()
        return self._runs_by_time.earliest(self.runs.__contains__)

    # --- state ---

    def save(self, seens: SeenTable) -> dict[str, Any]:
        """Return the run as plain data; `seens` numbers its events."""
        runs = [[seens.number(run.start), run.matched] for run in self.runs.values()]
        return {**super().save(seens), "runs": runs}

    def _load_runs(self, value: dict[str, Any], seens: SeenTable) -> Mapping[int, Run]:
        for number, matched in value["runs"]:
            self.add_run(Run(seens[number])).matched = matched
        return self.runs

    def validate_state(self) -> None:
        """Assert the rule of this module, and those of what is kept."""
        super().validate_state()
        for place, run in self.runs.items():
            assert run.partials
            assert run.start.place == place
        for partial in (partial for index in self.by_state.values() for partial in index):
            own = partial.run
            assert (own is None) == (self.strategy == "any")
            assert own is None or self.runs[own.start.place] is own

    # --- the end of a run ---

    def _end(self, run: Run, findings: Findings) -> None:
        """End a run whose window is over."""
        partials = list(run.partials)
        for partial in partials:
            self._drop(partial)
        self.runs.pop(run.start.place, None)
        if partials and not run.matched:
            best = min(partials, key=lambda p: (-len(p.taken), rank(p.taken)))
            findings.timed_out.append(best.taken)
