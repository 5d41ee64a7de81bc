"""Runs that take events in the order offered (DESIGN 3 and 4).

`find strict`, `find next`, and `find any` under arrival order. An event extends
partial matches that are there; it can start one.

The one rule: a partial match that takes an event goes on only in what is born
of it, but for `find any`, where it stays as well.
"""

from __future__ import annotations

from ketal.engine.configurations import Seen
from ketal.engine.find import PARTIALS, Find, Setup
from ketal.engine.partial_matches import Found, Partial, Run, Taken, rank
from ketal.engine.windows import Expiring


class ForwardFind(Find):
    """Runs that take events in the order offered."""

    __slots__ = ("_runs_by_time", "runs", "strategy")

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.strategy = setup.machine.compiled.strategy
        self.runs: dict[int, Run] = {}  # by the place of the event that started them
        self._runs_by_time: Expiring[int] = Expiring()

    def offer(self, seen: Seen) -> Found:
        """Take one event."""
        found = Found()
        if self.window.events is not None:
            self._expire_places(seen.place - self.window.events, found)
        born: list[Partial] = []
        matches: list[Taken] = []
        taken_from: list[Partial] = []
        for state, index in list(self.by_state.items()):
            if index.count:
                self._extend(state, seen, born, matches, taken_from, found)
        dropped = dict.fromkeys(taken_from) if self.strategy != "any" else {}
        if self.strategy == "strict":
            dropped = dict.fromkeys(p for index in self.by_state.values() for p in index)
        elif self.machine.arrival and self.machine.automaton.nots:
            self._skip(seen, dropped)
        self._start(seen, born, matches, found)
        # What is dropped makes room; what is born is kept first, so that a run that
        # goes on stays where it is.
        self.live.count -= len(dropped)
        for partial in born:
            self._keep(partial, found)
        self.live.count += len(dropped)
        for partial in dropped:
            self._drop(partial)
        if self.strategy == "any":
            self.firsts.matched(matches)
        self._offered(seen, found)
        self._complete(found, matches)
        return found

    def _extend(
        self,
        state: int,
        seen: Seen,
        born: list[Partial],
        matches: list[Taken],
        taken_from: list[Partial],
        found: Found,
    ) -> None:
        plan = self.machine.plan(state, seen.mask)
        if plan is None:
            return
        for sub, groups in self._candidates(state, plan, seen):
            if self.strategy == "any" and self.gives_up(sub, groups, born, found):
                continue
            for group in groups:
                for partial in group:
                    targets = sub.constant or self._decide(sub, partial, seen)
                    if targets and self.window.fits(partial, seen):
                        taken_from.append(partial)
                        for step, target in targets:
                            self._born(partial, step, target, seen, born, matches, found)

    def _start(self, seen: Seen, born: list[Partial], matches: list[Taken], found: Found) -> None:
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
            found.moves.append((0, step, target, seen))
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

    def _keep(self, partial: Partial, found: Found) -> None:
        run = partial.run
        if self.live.count >= self.limits.runs_max:
            found.overflow("runs_max", PARTIALS)
        elif run is not None and len(run.partials) >= self.limits.configurations_max:
            found.overflow("configurations_max", "partial matches of one run")
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

    def _expire_places(self, last: int, found: Found) -> None:
        while self.runs:
            start = next(iter(self.runs))
            if start > last:
                break
            self._end(self.runs[start], found)
        if self.strategy == "any":
            self.firsts.expire_places(last, found)
            self._expire(last)

    def advance(self, watermark_us: int, found: Found) -> None:
        """End the time windows that a watermark has passed, in event-time order."""
        super().advance(watermark_us, found)
        if self.window.us is not None:
            for place in self._runs_by_time.passed(watermark_us - self.window.us):
                if place in self.runs:
                    self._end(self.runs[place], found)

    def end(self, found: Found) -> None:
        """End every window: nothing comes any more."""
        super().end(found)
        if self.windowed:
            for run in list(self.runs.values()):
                self._end(run, found)

    def earliest_us(self) -> int | None:
        """Return the first time that a watermark can end something of; None for nothing."""
        if self.strategy == "any":
            return super().earliest_us()
        return self._runs_by_time.earliest(self.runs.__contains__)

    def _end(self, run: Run, found: Found) -> None:
        """End a run whose window is over."""
        partials = list(run.partials)
        for partial in partials:
            self._drop(partial)
        self.runs.pop(run.start.place, None)
        if partials and not run.matched:
            best = min(partials, key=lambda p: (-len(p.taken), rank(p.taken)))
            found.timed_out.append(best.taken)
