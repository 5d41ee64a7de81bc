"""The runs of a `find`: partial matches, and how events find them (DESIGN 3, 4, 6).

Two engines, one for each way that a match is ordered:

- `ForwardFind` takes events in the order offered: `find strict`, `find next`,
  and `find any` under arrival order. An event extends partial matches that are
  there; it can start one.
- `JoinFind` is `find any` under CausalOrder, whose matches the partial order
  alone defines. An event extends the partial matches that are there, and each
  new one is extended at once with the events that came before it in the order
  offered and are not before it in the execution. So every match is found when
  the last of its events is offered, whatever the order, exactly once.

Both find partial matches by (state, node of the prior event, its counter).
Seen from an event e, a node's events are a prefix that happened-before e, a
suffix that e happened-before, and a range between of concurrent ones. So an
event's cost does not depend on the partial matches it does not extend.

The one rule: each (step, event) sequence is made once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable
from typing import Any

from ketal.limits import Limits
from ketal.partials import Firsts, Found, Line, Partial, PriorIndex, Run, Taken, Window, rank
from ketal.runs import Machine, Seen, SubPlan


class _Find:
    """What both engines share: the machine, the window, mirror images."""

    def __init__(self, machine: Machine, limits: Limits) -> None:
        self.machine = machine
        self.limits = limits
        self.window = Window(machine)
        self.windowed = self.window.us is not None or self.window.events is not None
        self.partials = 0

    def _complete(self, found: Found, matches: list[Taken], seen: Seen) -> None:
        """Put the matches that `seen` completed into `found`, mirror images removed."""
        if len(matches) > self.limits.matches_per_event_max:
            given_up = len(matches) - self.limits.matches_per_event_max
            found.overflows.append(
                ("matches_per_event_max", f"at least {given_up} matches of one event", seen)
            )
            del matches[self.limits.matches_per_event_max :]
        found.matches.extend(
            self._without_mirrors(matches) if self.machine.automaton.mirrors else matches
        )

    def _without_mirrors(self, matches: list[Taken]) -> list[Taken]:
        if len(matches) < 2:
            return matches
        classes = self.machine.automaton.classes
        width = len(classes)
        least: dict[Any, Taken] = {}
        for taken in matches:
            key: Any = sorted([s.place * width + classes[step] for step, s in taken])
            key = tuple(key)
            other = least.get(key)
            if other is None or rank(taken) < rank(other):
                least[key] = taken
        return list(least.values())

    def _overflow(self, found: Found, limit: str, what: str, seen: Seen) -> None:
        found.overflows.append((limit, what, seen))


class ForwardFind(_Find):
    """Runs that take events in the order offered."""

    def __init__(self, machine: Machine, limits: Limits) -> None:
        super().__init__(machine, limits)
        self.strategy = machine.compiled.strategy
        self.by_state: dict[int, PriorIndex] = {}
        self.runs: dict[int, Run] = {}
        self.firsts = Firsts(self.window)

    def offer(self, seen: Seen) -> Found:
        """Take one event."""
        found = Found()
        if self.window.events is not None:
            self._expire_places(seen.place, found)
        born: list[Partial] = []
        matches: list[Taken] = []
        taken_from: list[Partial] = []
        for state, index in list(self.by_state.items()):
            if index.count:
                self._extend(state, index, seen, born, matches, taken_from, found)
        dropped = dict.fromkeys(taken_from) if self.strategy != "any" else {}
        if self.strategy == "strict":
            dropped = dict.fromkeys(p for index in self.by_state.values() for p in index)
        else:
            self._skip(seen, dropped)
        self._start(seen, born, matches, found)
        # What is born is kept first, so that a run that goes on stays where it is.
        self.partials -= len(dropped)
        for partial in born:
            self._keep(partial, seen, found)
        self.partials += len(dropped)
        for partial in dropped:
            self._drop(partial)
        if self.strategy == "any":
            self.firsts.matched(matches)
        self._complete(found, matches, seen)
        return found

    def _extend(
        self,
        state: int,
        index: PriorIndex,
        seen: Seen,
        born: list[Partial],
        matches: list[Taken],
        taken_from: list[Partial],
        found: Found,
    ) -> None:
        machine = self.machine
        plan = machine.plan(state, seen.mask)
        if plan is None:
            return
        for sub, groups in index.candidates(plan, seen):
            for group in groups:
                for partial in group:
                    targets = machine.decide(sub, partial.configuration, seen)
                    if targets and self.window.fits(partial, seen):
                        taken_from.append(partial)
                        for step, target in targets:
                            self._born(partial, step, target, seen, born, matches, found)

    def _born(
        self,
        parent: Partial,
        step: int,
        target: int,
        seen: Seen,
        born: list[Partial],
        matches: list[Taken],
        found: Found,
    ) -> None:
        configuration = self.machine.take(parent.configuration, step, target, seen)
        partial = Partial(configuration, (*parent.taken, (step, seen)), parent.run, None, parent)
        found.moves.append((parent.configuration.state, step, target, seen))
        if target in self.machine.automaton.finals:
            matches.append(partial.taken)
            if partial.run is not None:
                partial.run.matched = True
        born.append(partial)

    def _start(self, seen: Seen, born: list[Partial], matches: list[Taken], found: Found) -> None:
        machine = self.machine
        plan = machine.plan(0, seen.mask)
        if plan is None or plan.unbound is None:
            return
        configuration = machine.start()
        targets = machine.decide(plan.unbound, configuration, seen)
        if not targets:
            return
        run = None if self.strategy == "any" else Run(seen)
        if run is not None:
            self.runs[seen.place] = run
        elif self.windowed:
            self.firsts.add(seen, targets[0][0])
        for step, target in targets:
            after = machine.take(configuration, step, target, seen)
            partial = Partial(after, ((step, seen),), run, None, None)
            found.moves.append((0, step, target, seen))
            if target in machine.automaton.finals:
                matches.append(partial.taken)
                if run is not None:
                    run.matched = True
            born.append(partial)

    def _keep(self, partial: Partial, seen: Seen, found: Found) -> None:
        run = partial.run
        state = partial.configuration.state
        if not self.machine.has_way_on[state]:
            # It cannot go on, but a run that waits for nothing is no live run.
            if run is not None and not run.partials:
                self.runs.pop(run.start.place, None)
            return
        if self.partials >= self.limits.runs_max or (
            run is not None and len(run.partials) >= self.limits.configurations_max
        ):
            over = "runs_max" if self.partials >= self.limits.runs_max else "configurations_max"
            self._overflow(found, over, f"a partial match of {len(partial.taken)} events", seen)
            if run is not None and not run.partials:
                self.runs.pop(run.start.place, None)
            return
        if run is not None:
            run.partials[partial] = None
            self.runs.setdefault(run.start.place, run)
        self.by_state.setdefault(state, PriorIndex()).add(partial)
        self.partials += 1

    def _drop(self, partial: Partial) -> None:
        self.by_state[partial.configuration.state].remove(partial)
        self.partials -= 1
        run = partial.run
        if run is not None:
            del run.partials[partial]
            if not run.partials:
                self.runs.pop(run.start.place, None)

    def _skip(self, seen: Seen, dropped: dict[Partial, None]) -> None:
        """Let partial matches that did not take the event meet it with their `not` guards."""
        machine = self.machine
        for state, index in self.by_state.items():
            if not index.count or not machine.not_plan(state, seen.mask):
                continue
            for partial in index:
                if partial in dropped:
                    continue
                after = machine.skip(partial.configuration, partial.prior, seen)
                if after is None:
                    dropped[partial] = None
                else:
                    partial.configuration = after

    # --- windows ---

    def _expire_places(self, place: int, found: Found) -> None:
        assert self.window.events is not None
        last = place - self.window.events
        while self.runs:
            start = next(iter(self.runs))
            if start > last:
                break
            self._end(self.runs[start], found)
        if self.strategy == "any":
            self.firsts.expire_places(last, found)
            self._purge(lambda p: p.low_place <= last)

    def advance(self, watermark_us: int | None, found: Found) -> None:
        """End the windows that a watermark (None: the end) has passed."""
        if not self.windowed:
            return
        if watermark_us is not None and self.window.us is None:
            return
        if self.strategy == "any":
            self.firsts.advance(watermark_us, found)
            if watermark_us is not None and self.window.us is not None:
                last = watermark_us - self.window.us
                self._purge(lambda p: p.low_us is not None and p.low_us <= last)
            return
        over = list(self.runs.values())
        if watermark_us is not None and self.window.us is not None:
            # In event-time order, as `Firsts` does.
            last = watermark_us - self.window.us
            timed = [(run.start.time_us, run) for run in over if run.start.time_us is not None]
            over = [run for time, run in sorted(timed, key=lambda t: t[0]) if time <= last]
        for run in over:
            self._end(run, found)

    def _purge(self, over: Any) -> None:
        for index in self.by_state.values():
            for partial in [p for p in index if over(p)]:
                self._drop(partial)

    def _end(self, run: Run, found: Found) -> None:
        """End a run whose window is over."""
        partials = list(run.partials)
        for partial in partials:
            self._drop(partial)
        self.runs.pop(run.start.place, None)
        if partials and not run.matched:
            best = min(partials, key=lambda p: (-len(p.taken), rank(p.taken)))
            found.timed_out.append(best.taken)


class JoinFind(_Find):
    """`find any` under CausalOrder: matches that the partial order alone defines."""

    def __init__(self, machine: Machine, limits: Limits) -> None:
        super().__init__(machine, limits)
        self.by_state: dict[int, PriorIndex] = {}
        self.events: dict[int, dict[str, Line]] = {}  # mask → node → events
        self.kept: deque[Seen] = deque()
        self.firsts = Firsts(self.window)
        self._useful: dict[int, bool] = {}
        automaton = machine.automaton
        self._states = range(len(automaton.table))

    def offer(self, seen: Seen) -> Found:
        """Take one event."""
        found = Found()
        if self.window.events is not None:
            self.firsts.expire_places(seen.place - self.window.events, found)
        matches: list[Taken] = []
        born: list[Partial] = []
        for state, index in self.by_state.items():
            if index.count:
                self._extend(state, index, seen, born, matches, found)
        self._start(seen, born, matches, found)
        # Each new partial match goes on with what was offered before this event.
        at = 0
        while at < len(born) and len(matches) <= self.limits.matches_per_event_max:
            self._back(born[at], born, matches, found)
            at += 1
        for partial in born:
            self._keep(partial, seen, found)
        self._store(seen, found)
        if self.windowed:
            self.firsts.matched(matches)
        self._complete(found, matches, seen)
        return found

    # --- extending ---

    def _extend(
        self,
        state: int,
        index: PriorIndex,
        seen: Seen,
        born: list[Partial],
        matches: list[Taken],
        found: Found,
    ) -> None:
        machine = self.machine
        plan = machine.plan(state, seen.mask)
        if plan is None:
            return
        node, counter = seen.node, seen.counter
        for sub, groups in index.candidates(plan, seen):
            if sub is plan.after and plan.reads_prior:
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
                            self._born(partial, step, target, seen, born, matches, found)

    def _back(
        self, partial: Partial, born: list[Partial], matches: list[Taken], found: Found
    ) -> None:
        """Extend a new partial match with the events offered before its last one."""
        machine = self.machine
        prior, join = partial.prior, partial.join
        assert join is not None
        for mask, lines in self.events.items():
            plan = machine.plan(partial.configuration.state, mask)
            if plan is None:
                continue
            for node, line in lines.items():
                # What is up to `low` happened-before some event taken, or is one.
                low = bisect_right(line.counters, join.get(node, 0))
                if low == len(line.counters):
                    continue
                if not plan.reads_prior:
                    assert plan.unbound is not None
                    self._each(plan.unbound, line, low, None, partial, born, matches, found)
                    continue
                high = (
                    low if node == prior.node else line.knows_from(prior.node, prior.counter, low)
                )
                if plan.concurrent is not None and high > low:
                    self._each(plan.concurrent, line, low, high, partial, born, matches, found)
                if plan.before is not None:
                    self._each(plan.before, line, high, None, partial, born, matches, found)

    def _each(
        self,
        sub: SubPlan,
        line: Line,
        low: int,
        high: int | None,
        partial: Partial,
        born: list[Partial],
        matches: list[Taken],
        found: Found,
    ) -> None:
        constant = sub.constant
        for seen in line.seens[low:high]:
            targets = constant or self._decide(sub, partial, seen)
            if targets and self.window.fits(partial, seen):
                for step, target in targets:
                    self._born(partial, step, target, seen, born, matches, found)

    def _decide(self, sub: SubPlan, partial: Partial, seen: Seen) -> tuple[tuple[int, int], ...]:
        configuration = partial.configuration
        pending = self.machine.pending[configuration.state]
        if pending:
            configuration = configuration._replace(bars=self._bars(pending, partial, seen))
        return self.machine.decide(sub, configuration, seen)

    def _bars(self, pending: tuple[int, ...], partial: Partial, seen: Seen) -> tuple[bool, ...]:
        """Return which `not` guards some event between the prior one and `seen` has met.

        Between means prior → x → seen; all such x have been offered, as a pattern
        with `not` is offered events in an order that respects happened-before.
        """
        machine, prior = self.machine, partial.prior
        bars = [False] * len(machine.automaton.nots)
        state = partial.configuration.state
        for mask, lines in self.events.items():
            plan = [(n, f) for n, f in machine.not_plan(state, mask) if n in pending]
            if not plan:
                continue
            for node, line in lines.items():
                if node == seen.node:
                    high = bisect_left(line.counters, seen.counter)
                else:
                    high = bisect_right(line.counters, seen.clock.get(node, 0))
                if node == prior.node:
                    low = bisect_right(line.counters, prior.counter)
                else:
                    low = line.knows_from(prior.node, prior.counter, 0)
                for x in line.seens[low:high]:
                    for number, formula in plan:
                        if not bars[number] and machine.meets(formula, partial.configuration, x):
                            bars[number] = True
        return tuple(bars)

    def _start(self, seen: Seen, born: list[Partial], matches: list[Taken], found: Found) -> None:
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
            found.moves.append((0, step, target, seen))
            if target in machine.automaton.finals:
                matches.append(taken)
            if machine.has_way_on[target]:
                after = machine.take(configuration, step, target, seen)
                born.append(Partial(after, taken, None, dict(seen.clock), None))

    def _born(
        self,
        parent: Partial,
        step: int,
        target: int,
        seen: Seen,
        born: list[Partial],
        matches: list[Taken],
        found: Found,
    ) -> None:
        machine = self.machine
        taken = (*parent.taken, (step, seen))
        found.moves.append((parent.configuration.state, step, target, seen))
        if target in machine.automaton.finals:
            matches.append(taken)
        if machine.has_way_on[target]:
            assert parent.join is not None
            join = dict(parent.join)
            for node, counter in seen.clock.items():
                if counter > join.get(node, 0):
                    join[node] = counter
            configuration = machine.take(parent.configuration, step, target, seen)
            born.append(Partial(configuration, taken, None, join, parent))

    # --- keeping ---

    def _keep(self, partial: Partial, seen: Seen, found: Found) -> None:
        if self.partials >= self.limits.runs_max:
            self._overflow(
                found, "runs_max", f"a partial match of {len(partial.taken)} events", seen
            )
            return
        self.by_state.setdefault(partial.configuration.state, PriorIndex()).add(partial)
        self.partials += 1

    def _is_useful(self, mask: int) -> bool:
        """Return whether an event with this mask can be any but a first event, or a bar."""
        useful = self._useful.get(mask)
        if useful is None:
            machine = self.machine
            if len(self._useful) > 65_536:
                self._useful.clear()
            useful = self._useful[mask] = any(
                machine.plan(s, mask) is not None or machine.not_plan(s, mask)
                for s in self._states
                if s or any(0 in row for row in machine.automaton.table)
            )
        return useful

    def _store(self, seen: Seen, found: Found) -> None:
        if not self._is_useful(seen.mask):
            return
        if len(self.kept) >= self.limits.candidates_max:
            self._overflow(found, "candidates_max", "matches of this event with later ones", seen)
            return
        self.keep(seen)
        self.kept.append(seen)

    def lines(self, mask: int, nodes: Iterable[str] = ()) -> dict[str, Line]:
        """Return the events kept with a mask, by node; `nodes` are looked through in this order."""
        lines = self.events.setdefault(mask, {})
        lines.update((node, Line()) for node in nodes if node not in lines)
        return lines

    def keep(self, seen: Seen) -> None:
        """Put an event where partial matches find it."""
        lines = self.lines(seen.mask)
        line = lines.get(seen.node)
        if line is None:
            line = lines[seen.node] = Line()
        line.insert(seen, None)

    # --- windows ---

    def advance(self, watermark_us: int | None, found: Found) -> None:
        """End the windows that a watermark (None: the end) has passed."""
        if not self.windowed:
            return
        self.firsts.advance(watermark_us, found)
        if watermark_us is None or self.window.us is None:
            return
        last = watermark_us - self.window.us
        for index in self.by_state.values():
            for partial in [p for p in index if p.low_us is not None and p.low_us <= last]:
                index.remove(partial)
                self.partials -= 1
        self._forget(last)

    def _forget(self, last_us: int) -> None:
        """Let go of events that no later event fits a window with."""
        old = [s for s in self.kept if s.time_us is not None and s.time_us <= last_us]
        if not old:
            return
        for seen in old:
            line = self.events[seen.mask][seen.node]
            i = line.at(seen)
            assert i is not None
            line.remove(i)
        gone = set(old)
        self.kept = deque(s for s in self.kept if s not in gone)


def find_runs(machine: Machine, limits: Limits) -> ForwardFind | JoinFind:
    """Return the engine that a `find` pattern needs."""
    compiled = machine.compiled
    if compiled.causal and compiled.strategy == "any":
        return JoinFind(machine, limits)
    return ForwardFind(machine, limits)
