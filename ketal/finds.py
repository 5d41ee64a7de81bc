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

import heapq
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ketal.limits import Limits
from ketal.runs import Configuration, Machine, Plan, Seen, SubPlan

Taken = tuple[tuple[int, Seen], ...]
"""What was bound, in order: (step number, event)."""


class Partial:
    """A partial match: a configuration, and how it came about."""

    __slots__ = (
        "configuration",
        "high_place",
        "high_us",
        "join",
        "low_place",
        "low_us",
        "run",
        "taken",
    )

    def __init__(
        self,
        configuration: Configuration,
        taken: Taken,
        run: Run | None,
        join: dict[str, int] | None,
        parent: Partial | None,
    ) -> None:
        self.configuration = configuration
        self.taken = taken
        self.run = run
        self.join = join
        seen = taken[-1][1]
        time, place = seen.time_us, seen.place
        if parent is None:
            self.low_us = self.high_us = time
            self.low_place = self.high_place = place
        else:
            self.low_place = min(parent.low_place, place)
            self.high_place = max(parent.high_place, place)
            low, high = parent.low_us, parent.high_us
            if low is None or high is None or time is None:
                self.low_us = self.high_us = None
            else:
                self.low_us, self.high_us = min(low, time), max(high, time)

    @property
    def prior(self) -> Seen:
        """The last event taken."""
        return self.taken[-1][1]


class Run:
    """All partial matches of `find next` or `find strict` that one event started."""

    __slots__ = ("matched", "over", "partials", "start")

    def __init__(self, start: Seen) -> None:
        self.start = start
        self.partials: dict[Partial, None] = {}
        self.matched = False
        self.over = False


@dataclass(slots=True)
class Found:
    """What one event, or the passing of time, brought about in a scope.

    Attributes
    ----------
    matches : list of Taken
        Complete matches, mirror images removed.
    timed_out : list of Taken
        Runs or first-step events whose window ended without a match.
    overflows : list of (str, str, Seen or None)
        (limit, what was given up, the event) for each limit reached.
    """

    matches: list[Taken] = field(default_factory=list)
    timed_out: list[Taken] = field(default_factory=list)
    overflows: list[tuple[str, str, Seen | None]] = field(default_factory=list)
    moves: list[tuple[int, int, int, Seen]] = field(default_factory=list)


class _Line:
    """The events of one node, by counter, each with what is kept for it."""

    __slots__ = ("counters", "items", "seens")

    def __init__(self) -> None:
        self.counters: list[int] = []
        self.seens: list[Seen] = []
        self.items: list[Any] = []

    def at(self, seen: Seen) -> int | None:
        """Return the index of an event, None if it is not here."""
        i = bisect_left(self.counters, seen.counter)
        return i if i < len(self.counters) and self.counters[i] == seen.counter else None

    def insert(self, seen: Seen, item: Any) -> None:
        """Put an event in its place; most come last."""
        if not self.counters or self.counters[-1] < seen.counter:
            i = len(self.counters)
        else:
            i = bisect_left(self.counters, seen.counter)
        self.counters.insert(i, seen.counter)
        self.seens.insert(i, seen)
        self.items.insert(i, item)

    def remove(self, i: int) -> None:
        """Take out what is at index `i`."""
        del self.counters[i], self.seens[i], self.items[i]

    def knows_from(self, node: str, counter: int, low: int) -> int:
        """Return the index, from `low`, of the first event that (node, counter) is not after."""
        return bisect_left(self.seens, counter, low, key=lambda s: s.clock.get(node, 0))


class PriorIndex:
    """The partial matches of one state, by the node and counter of their prior event.

    Parameters
    ----------
    nodes : iterable of str
        Nodes to look through first, in this order.
    """

    __slots__ = ("count", "lines")

    def __init__(self, nodes: Iterable[str] = ()) -> None:
        self.lines: dict[str, _Line] = {node: _Line() for node in nodes}
        self.count = 0

    def add(self, partial: Partial) -> None:
        """Put a partial match in."""
        prior = partial.prior
        line = self.lines.get(prior.node)
        if line is None:
            line = self.lines[prior.node] = _Line()
        i = line.at(prior)
        if i is None:
            line.insert(prior, {partial: None})
        else:
            line.items[i][partial] = None
        self.count += 1

    def remove(self, partial: Partial) -> None:
        """Take a partial match out."""
        line = self.lines[partial.prior.node]
        i = line.at(partial.prior)
        assert i is not None, "a partial match that is not in its index"
        del line.items[i][partial]
        if not line.items[i]:
            line.remove(i)
        self.count -= 1

    def __iter__(self) -> Iterator[Partial]:
        for line in self.lines.values():
            for item in line.items:
                yield from item

    def candidates(self, plan: Plan, seen: Seen) -> Iterator[tuple[SubPlan, Iterable[Any]]]:
        """Yield (sub-plan, groups of partial matches whose prior event stands in its relation)."""
        for node, line in self.lines.items():
            if not plan.reads_prior:
                assert plan.unbound is not None
                yield plan.unbound, line.items
                continue
            # Up to `before`: prior → e. From `after` on: e → prior. Between: concurrent.
            if node == seen.node:
                before = after = bisect_left(line.counters, seen.counter)
            else:
                before = bisect_right(line.counters, seen.clock.get(node, 0))
                after = line.knows_from(seen.node, seen.counter, before)
            if plan.before is not None and before:
                yield plan.before, line.items[:before]
            if plan.concurrent is not None and after > before:
                yield plan.concurrent, line.items[before:after]
            if plan.after is not None and after < len(line.items):
                yield plan.after, line.items[after:]


class _Window:
    """`within`: whether an event still fits to a partial match."""

    __slots__ = ("events", "us")

    def __init__(self, machine: Machine) -> None:
        self.us = machine.compiled.window_us
        self.events = machine.compiled.window_events

    def fits(self, partial: Partial, seen: Seen) -> bool:
        if self.us is not None:
            low, high, time = partial.low_us, partial.high_us, seen.time_us
            assert low is not None
            assert high is not None
            assert time is not None
            return max(high, time) - min(low, time) < self.us
        if self.events is not None:
            place = seen.place
            return max(partial.high_place, place) - min(partial.low_place, place) < self.events
        return True


class _Find:
    """What both engines share: the machine, the window, mirror images."""

    def __init__(self, machine: Machine, limits: Limits) -> None:
        self.machine = machine
        self.limits = limits
        self.window = _Window(machine)
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
            if other is None or _rank(taken) < _rank(other):
                least[key] = taken
        return list(least.values())

    def _overflow(self, found: Found, limit: str, what: str, seen: Seen) -> None:
        found.overflows.append((limit, what, seen))


def _rank(taken: Taken) -> tuple[Any, ...]:
    return tuple(s.key for _, s in taken), tuple(step for step, _ in taken)


class ForwardFind(_Find):
    """Runs that take events in the order offered."""

    def __init__(self, machine: Machine, limits: Limits) -> None:
        super().__init__(machine, limits)
        self.strategy = machine.compiled.strategy
        self.by_state: dict[int, PriorIndex] = {}
        self.runs: dict[int, Run] = {}
        self.firsts = _Firsts(self.window)

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
            # In event-time order, as `_Firsts` does.
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
            best = min(partials, key=lambda p: (-len(p.taken), _rank(p.taken)))
            found.timed_out.append(best.taken)


class _Firsts:
    """For `find any`: the first-step events whose window is open and that matched nothing."""

    def __init__(self, window: _Window) -> None:
        self.window = window
        self.waiting: dict[int, tuple[int, Seen]] = {}
        self._by_time: list[tuple[int, int]] = []

    def add(self, seen: Seen, step: int) -> None:
        """Wait for a match of an event that can be first."""
        self.waiting[seen.place] = (step, seen)
        if seen.time_us is not None:
            heapq.heappush(self._by_time, (seen.time_us, seen.place))

    def matched(self, matches: Iterable[Taken]) -> None:
        """Note that the events of these matches are in one."""
        if self.waiting:
            for taken in matches:
                for _, seen in taken:
                    self.waiting.pop(seen.place, None)

    def expire_places(self, last: int, found: Found) -> None:
        """Time out what came at place `last` or before."""
        while self.waiting:
            place = next(iter(self.waiting))
            if place > last:
                return
            found.timed_out.append((self.waiting.pop(place),))

    def advance(self, watermark_us: int | None, found: Found) -> None:
        """Time out what a watermark (None: the end) has passed, in event-time order."""
        if watermark_us is None:
            found.timed_out.extend((first,) for first in self.waiting.values())
            self.waiting.clear()
            self._by_time.clear()
            return
        if self.window.us is None:
            return
        while self._by_time and self._by_time[0][0] + self.window.us <= watermark_us:
            _, place = heapq.heappop(self._by_time)
            if place in self.waiting:
                found.timed_out.append((self.waiting.pop(place),))


class JoinFind(_Find):
    """`find any` under CausalOrder: matches that the partial order alone defines."""

    def __init__(self, machine: Machine, limits: Limits) -> None:
        super().__init__(machine, limits)
        self.by_state: dict[int, PriorIndex] = {}
        self.events: dict[int, dict[str, _Line]] = {}  # mask → node → events
        self.kept: deque[Seen] = deque()
        self.firsts = _Firsts(self.window)
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
        line: _Line,
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

    def lines(self, mask: int, nodes: Iterable[str] = ()) -> dict[str, _Line]:
        """Return the events kept with a mask, by node; `nodes` are looked through in this order."""
        lines = self.events.setdefault(mask, {})
        lines.update((node, _Line()) for node in nodes if node not in lines)
        return lines

    def keep(self, seen: Seen) -> None:
        """Put an event where partial matches find it."""
        lines = self.lines(seen.mask)
        line = lines.get(seen.node)
        if line is None:
            line = lines[seen.node] = _Line()
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
