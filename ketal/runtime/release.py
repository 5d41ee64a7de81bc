"""The queues of one execution: one for each different order that patterns ask for (DESIGN 5).

CausalOrder belongs to the execution, so patterns that ask for the same order,
within the same topology, share a queue. A queue releases events to its patterns;
what it declares lost, finds late or has no room for becomes verdicts here, each
told once, however many queues say it.

A watermark says which events will not arrive any more. What is held has arrived
and is still to be offered, so to its patterns time has come no further than the
earliest time that is held.

Patterns whose answer needs no order (`find any` without `not`) wait for nothing,
as long as clocks are whole. Once a node has left, an event whose clock may lack
what it knew of that node waits until the clock is restored, in a queue that
orders nothing: no event is too late for these patterns, and none is refused.

The one rule: an event is counted once: as released, held back, late or refused.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ketal.engine.losses import first
from ketal.engine.pattern_run import PatternRun, one
from ketal.model import syntax
from ketal.model.event import Dot, Event
from ketal.model.limits import Limits
from ketal.model.verdicts import Gap, Late, Overflow, Verdict
from ketal.operators.membership.clock_restoration import Restorer, in_question, present_order
from ketal.operators.order.awaited import Arrivals, Awaited
from ketal.operators.order.ordering import Ordering, Step
from ketal.operators.topology.domains import home, nodes_of

_TIMES_LEAST = 1_024


def overflowed(event: Event, execution: str, limit: str, given_up: str) -> Overflow:
    """Say of an execution, not of a pattern, that a limit was reached."""
    return Overflow(
        pattern="",
        fingerprint="",
        execution=execution,
        time=_time(event),
        limit=limit,
        given_up=given_up,
        event=event.dot,
    )


def came_late(event: Event, execution: str, reason: str) -> Late:
    """Say of an execution that an event's place has passed."""
    return Late(
        pattern="",
        fingerprint="",
        execution=execution,
        time=_time(event),
        event=event.dot,
        reason=reason,
    )


def _time(event: Event) -> float | None:
    return None if event.time is None else float(event.time)


def _by_order(
    runs: Iterable[PatternRun],
) -> dict[tuple[syntax.Order, syntax.Topology | None], list[PatternRun]]:
    groups: dict[tuple[syntax.Order, syntax.Topology | None], list[PatternRun]] = {}
    for run in runs:
        pattern = run.compiled.pattern
        groups.setdefault((pattern.order, pattern.topology), []).append(run)
    return groups


def _awaited(runs: Iterable[PatternRun], limits: Limits, arrived: Arrivals) -> list[Awaited]:
    """Return what is awaited by runs that wait for nothing and have a `gap`, each once."""
    made: dict[str, Awaited] = {}
    for run in runs:
        pattern = run.compiled.pattern
        gap = pattern.order.gap
        if gap is None:
            continue
        assert isinstance(gap, syntax.Duration), "parameters have been put in"
        closed = pattern.topology is not None and not pattern.topology.open
        nodes = nodes_of(pattern.topology) if closed and pattern.topology is not None else None
        awaited = Awaited(arrived, gap.microseconds, limits.lost_max, nodes)
        run.losses.awaited = made.setdefault(awaited.name, awaited).dots
    return list(made.values())


def _without(
    seen: Mapping[str, tuple[int, list[int]]], events: Iterable[Event]
) -> dict[str, tuple[int, list[int]]]:
    """Return what was seen, as `Ordering.begin` takes it, but for some events."""
    some: dict[str, set[int]] = {}
    for event in events:
        some.setdefault(event.node, set()).add(event.counter)
    out = dict(seen)
    for node, counters in some.items():
        upto, beyond = seen[node]
        first = min(upto, min(counters) - 1)
        more = [c for c in (*range(first + 1, upto + 1), *beyond) if c not in counters]
        out[node] = (first, more)
    return out


@dataclass
class Group:
    """Patterns that share a queue.

    Attributes
    ----------
    ordering : Ordering
    runs : list of PatternRun
        Of patterns with one order and one topology.
    free : bool
        Whether they need whole clocks only, and no order.
    withheld : set of Dot
        Held events that take their place and are not offered.
    refused : dict of Dot to None
        Events for which there was no room, oldest first; they may come again.
    """

    ordering: Ordering
    runs: list[PatternRun]
    free: bool = False
    withheld: set[Dot] = field(default_factory=set)
    refused: dict[Dot, None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What tells it from others: the first of its patterns' names."""
        return min(run.compiled.name for run in self.runs)

    def fits(self) -> list[Any]:
        """Return what a saved state of the queue fits: kind, options, names of its patterns."""
        names = sorted(run.compiled.name for run in self.runs)
        return [[self.free, *self.ordering.kind], self.ordering.options, names]

    def pending(self) -> set[Dot]:
        """Return what was seen and may yet be offered: held back, or refused and awaited."""
        return {event.dot for event, _ in self.held_back()} | set(self.refused)

    def __post_init__(self) -> None:
        self.timed = any(run.compiled.window_us is not None for run in self.runs)
        self._times: list[tuple[int, Dot]] | None = None  # a heap; of what went, too

    def held_back(self) -> list[tuple[Event, Dot | None]]:
        """Return the events held to be offered, each with a dot that it waits for."""
        return [(e, dot) for e, dot in self.ordering.held_back() if e.dot not in self.withheld]

    def note_time(self, event: Event) -> None:
        """Take note of the time of an event that may be held."""
        times = self._times
        if times is not None and event.time_us is not None and self.ordering.holds(event.dot):
            heapq.heappush(times, (event.time_us, event.dot))
            if len(times) > _TIMES_LEAST + 2 * len(self.ordering):
                self._times = [item for item in times if self.ordering.holds(item[1])]
                heapq.heapify(self._times)

    def reached_us(self, watermark_us: int) -> int:
        """Return the time before which nothing is offered any more, by a watermark."""
        if not len(self.ordering):
            return watermark_us
        times = self._times
        if times is None:
            held = (event for event, _ in self.ordering.held_back())
            times = [(event.time_us, event.dot) for event in held if event.time_us is not None]
            heapq.heapify(times)
            self._times = times
        while times and (times[0][1] in self.withheld or not self.ordering.holds(times[0][1])):
            heapq.heappop(times)
        return min(watermark_us, times[0][0]) if times else watermark_us


class Queues:
    """The hold-back queues of an execution, with the runs they release to.

    Parameters
    ----------
    runs : sequence of PatternRun
        The patterns that need an order.
    limits : Limits
        `held_back_max`, `lost_max`, and `dots_max` for what is told once, and
        for the refused events that may come again.
    execution : str
        The execution's name.
    free : sequence of PatternRun
        The patterns that need no order. No queue holds anything back for them, but what
        their `gap` declares lost is told here.
    arrived : Arrivals, optional
        What has come, where some pattern needs no order.

    Raises
    ------
    PatternError
        If the domains of a topology pass a limit.
    """

    def __init__(
        self,
        runs: Sequence[PatternRun],
        limits: Limits,
        execution: str,
        *,
        free: Sequence[PatternRun] = (),
        arrived: Arrivals | None = None,
    ) -> None:
        self.limits = limits
        self.execution = execution
        self.groups = [
            Group(Ordering.of(order, limits, topology=topology), group)
            for (order, topology), group in _by_order(runs).items()
        ]
        self.late = 0
        self.refused = 0
        self.gaps = 0
        self.watermark_us: int | None = None
        self.restorer: Restorer | None = None
        self.told: dict[tuple[str, Dot], None] = {}
        self.awaited = _awaited(free, limits, arrived) if arrived is not None else []

    def __bool__(self) -> bool:
        return bool(self.groups or self.awaited)

    def restore_by(
        self,
        restorer: Restorer,
        free: Sequence[PatternRun] = (),
        seen: Mapping[str, tuple[int, list[int]]] | None = None,
    ) -> None:
        """Give events their clocks back from now on, as a node has left.

        Parameters
        ----------
        restorer : Restorer
            Knows the clocks.
        free : sequence of PatternRun
            The patterns that need no order; they have been offered what was seen.
        seen : mapping
            What was seen so far, as `Ordering.begin` takes it; None if a saved state says it.
        """
        self.restorer = restorer
        groups = [
            Group(Ordering.restoring(order, self.limits, topology=topology), runs, free=True)
            for (order, topology), runs in _by_order(free).items()
        ]
        self.groups += groups
        for group in self.groups:
            group.ordering.restore_by(restorer)
        if seen is not None:
            for group in groups:
                self._look_back(group, restorer, seen)
            self._doubt_released(restorer, seen)

    def _look_back(
        self, group: Group, restorer: Restorer, seen: Mapping[str, tuple[int, list[int]]]
    ) -> None:
        """Let a queue take what was offered before, to hear whether its clocks were whole."""
        topology = group.runs[0].compiled.pattern.topology
        nodes = None if topology is None or topology.open else nodes_of(topology)
        events = [
            Event(node=node, type="offered", clock=clock)
            for node, _, clock in in_question(restorer.memory, seen)
        ]
        group.ordering.begin(_without(seen, events))
        for event in events:
            if nodes is None or home(event.node) in nodes:
                group.withheld.add(event.dot)
                self._heard_free(group, group.ordering.push(event), [])

    def _doubt_released(
        self, restorer: Restorer, seen: Mapping[str, tuple[int, list[int]]]
    ) -> None:
        """Count the events that queues released with clocks that a leave shows to be too low."""
        queues = [group.ordering for group in self.groups if not group.free]
        events = [
            Event(node=node, type="released", clock=clock)
            for node, _, clock in in_question(restorer.memory, seen)
        ]
        for event in present_order(events):
            released = any(not (q.holds(event.dot) or event.dot in q.lost) for q in queues)
            if released and restorer.restore(event) is not event:
                restorer.found_low(event)

    # --- what happens ---

    def note(self, event: Event) -> list[Verdict]:
        """Take note of what a new event knows, before any pattern is offered it."""
        out: list[Verdict] = []
        for awaited in self.awaited:
            self._lost(awaited.note(event), out)
        return out

    def push(
        self,
        event: Event,
        *,
        withheld: bool = False,
        refusing: Sequence[PatternRun] = (),
    ) -> list[Verdict]:
        """Take in a new event.

        Parameters
        ----------
        event : Event
            As it arrived.
        withheld : bool
            Whether it takes its place and is not offered: it is late.
        refusing : sequence of PatternRun
            Patterns in whose topology its node has no place.
        """
        out: list[Verdict] = []
        for group in self.groups:
            if refusing and group.runs[0] in refusing:
                continue
            if limit := group.ordering.meet(event):
                given_up = "the relaxed edges: from now on each event waits for its whole past"
                out.append(overflowed(event, self.execution, limit, given_up))
            taken = event
            if withheld:
                group.withheld.add(event.dot)
                group.ordering.pass_over(event)
                for run in group.runs:
                    run.miss_event(event)
            elif group.free and (whole := self._whole(event)) is not None:
                group.withheld.add(event.dot)
                for run in group.runs:
                    out += one(run.process((whole,)))
                taken = whole
            step = group.ordering.push(taken)
            if group.timed:
                group.note_time(event)
            self._heard(group, step, out)
        for awaited in self.awaited:
            self._lost(awaited.advance(), out)
        return out

    def had_no_room(self, dot: Dot) -> bool:
        """Return whether some queue refused the event, as far as remembered."""
        return any(dot in group.refused for group in self.groups)

    def push_again(self, event: Event) -> list[Verdict]:
        """Take in an event that came again, where there was no room for it before."""
        out: list[Verdict] = []
        self.told.pop(("refused", event.dot), None)
        for group in self.groups:
            if event.dot in group.refused:
                del group.refused[event.dot]
                group.ordering.forgive(event)
                for run in group.runs:
                    run.unmiss(event.dot)
                step = group.ordering.push(event)
                if group.timed:
                    group.note_time(event)
                self._heard(group, step, out)
        return out

    def _whole(self, event: Event) -> Event | None:
        """Return a new event with its whole clock; None if that may have to wait."""
        assert self.restorer is not None
        known = self.restorer.remembered(event)
        return None if self.restorer.low(known, event) else known

    def advance(self, watermark_us: int) -> list[Verdict]:
        """Hear that no event with an earlier time will come; end the windows that this ends."""
        self.watermark_us = watermark_us
        out: list[Verdict] = []
        for awaited in self.awaited:
            self._lost(awaited.advance(watermark_us), out)
        for group in self.groups:
            step = group.ordering.advance(watermark_us)
            self._heard(group, step, out)
            if not step.released:
                self._end_windows(group, out)
        return out

    def _end_windows(self, group: Group, out: list[Verdict]) -> None:
        if group.timed and self.watermark_us is not None:
            reached_us = group.reached_us(self.watermark_us)
            for run in group.runs:
                out += run.advance(reached_us)

    def join(self, node: str) -> list[Verdict]:
        """Hear that a node is there."""
        for awaited in self.awaited:
            awaited.join(node)
        return self._each(lambda queue: queue.join(node))

    def leave(self, node: str) -> list[Verdict]:
        """Hear that a node left."""
        out: list[Verdict] = []
        for awaited in self.awaited:
            self._lost(awaited.leave(node), out)
        return out + self._each(lambda queue: queue.leave(node))

    def view(self, members: Iterable[str]) -> list[Verdict]:
        """Hear which nodes are there."""
        named = tuple(members)
        out: list[Verdict] = []
        for awaited in self.awaited:
            self._lost(awaited.view(named), out)
        return out + self._each(lambda queue: queue.view(named))

    def end(self) -> list[Verdict]:
        """Hear that nothing comes any more."""
        out: list[Verdict] = []
        for awaited in self.awaited:
            self._lost(awaited.end(), out)
        out += self._each(lambda queue: queue.end())
        for group in self.groups:
            # What is still held back, and what it waits for, some run may have waited for.
            for dot in () if group.free else group.ordering.missing():
                for run in group.runs:
                    run.miss(dot)
            if group.free:
                # As of a finite log, whose holes hold nothing back.
                left = [event for event, _ in group.ordering.held_back()]
                group.ordering.clear()
                self._offer_low(group, present_order(left), out)
        return out

    def _each(self, act: Callable[[Ordering], Step]) -> list[Verdict]:
        out: list[Verdict] = []
        for group in self.groups:
            self._heard(group, act(group.ordering), out)
        return out

    def _lost(self, step: Step, out: list[Verdict]) -> None:
        """Tell which dots are lost, each once."""
        for dot in step.gaps:
            if self._first("gap", dot):
                self.gaps += 1
                out.append(Gap(pattern="", fingerprint="", execution=self.execution, dot=dot))
        self.gaps += step.unnamed

    def _heard(self, group: Group, step: Step, out: list[Verdict]) -> None:
        if group.free:
            self._heard_free(group, step, out)
        else:
            self._heard_ordered(group, step, out)
        if step.released:
            self._end_windows(group, out)

    def _heard_ordered(self, group: Group, step: Step, out: list[Verdict]) -> None:
        lows = group.ordering.lows()
        for dot in step.gaps:
            for run in group.runs:
                run.miss(dot, lows.get(dot))
        # What is released in the same step may be marked with them.
        for event in (*step.late, *step.refused):
            for run in group.runs:
                run.miss_event(event)
        self._lost(step, out)
        withheld = group.withheld
        for event, _ in step.released:
            if withheld and event.dot in withheld:
                withheld.remove(event.dot)
                continue
            for run in group.runs:
                out += one(run.process((event,)))
        for event in step.late:
            if self._judged(group, event) and self._first("late", event.dot):
                self.late += 1
                reason = "its place in the causal order has passed"
                out.append(came_late(event, self.execution, reason))
        for event in step.refused:
            if not self._judged(group, event):
                continue
            group.refused[event.dot] = None
            group.ordering.pass_over(event)
            if len(group.refused) > self.limits.dots_max:
                del group.refused[next(iter(group.refused))]
            if self._first("refused", event.dot):
                self.refused += 1
                given_up = "the event, which would have to wait for its past"
                out.append(overflowed(event, self.execution, "held_back_max", given_up))
        if step.given_up:
            held = "what the oldest held-back events waited for"
            out.append(
                Overflow(
                    pattern="",
                    fingerprint="",
                    execution=self.execution,
                    limit="held_back_max",
                    given_up=f"{held}, {step.given_up} times",
                )
            )

    def _judged(self, group: Group, event: Event) -> bool:
        """Return whether an event that comes out is to be judged: it was not, nor is withheld."""
        if event.dot in group.withheld:
            group.withheld.remove(event.dot)
            return False
        return True

    def _heard_free(self, group: Group, step: Step, out: list[Verdict]) -> None:
        assert self.restorer is not None
        for event, after in step.released:
            if event.dot in group.withheld and event.dot in step.raised:
                self._found_low(group, event)
            if self._judged(group, event):
                if after and self.restorer.low(event):
                    # Its clock may be too low, so a match does not stand on its own events.
                    for run in group.runs:
                        run.losses.past_matters = True
                        for dot in first(after):
                            run.miss(dot)
                for run in group.runs:
                    out += one(run.process((event,)))
        self._offer_low(group, [*step.late, *step.refused], out)

    def _offer_low(self, group: Group, events: Sequence[Event], out: list[Verdict]) -> None:
        """Offer events whose clocks cannot be restored any better."""
        assert self.restorer is not None
        for event in events:
            restored = self.restorer.restore(event)
            if event.dot in group.withheld and restored is not event:
                self._found_low(group, event)
            if self._judged(group, event):
                for run in group.runs:
                    out += one(run.process((restored,)))

    def _found_low(self, group: Group, event: Event) -> None:
        """Count an event that was offered with a clock that was too low."""
        assert self.restorer is not None
        if event.dot not in group.ordering.lost:  # it was late, and never offered
            self.restorer.found_low(event)

    def _first(self, what: str, dot: Dot) -> bool:
        """Return whether no other queue said this before."""
        if len(self.groups) + len(self.awaited) == 1:
            return True
        if (what, dot) in self.told:
            return False
        self.told[(what, dot)] = None
        if len(self.told) > self.limits.dots_max:
            del self.told[next(iter(self.told))]
        return True

    # --- what can be asked ---

    def of(self, name: str) -> Group | None:
        """Return the queue of a pattern; None if it waits for nothing."""
        for group in self.groups:
            if any(run.compiled.name == name for run in group.runs):
                return group
        return None

    def held_back(self) -> list[tuple[Event, Dot | None]]:
        """Return each event that some queue holds, with what it waits for (None: its turn)."""
        held: dict[Dot, tuple[Event, Dot | None]] = {}
        for group in self.groups:
            for event, dot in group.held_back():
                held.setdefault(event.dot, (event, dot))
        return list(held.values())

    @property
    def waiting(self) -> int:
        """How many events are held back, and counted as nothing else in another queue."""
        if len(self.groups) == 1:
            group = self.groups[0]
            return len(group.ordering) - len(group.withheld)
        told = self.told
        held = (event.dot for event, _ in self.held_back())
        return sum(("late", dot) not in told and ("refused", dot) not in told for dot in held)

    # --- state ---

    def counts(self) -> list[Any]:
        """Return what was counted, as plain data, and what is awaited where anything is."""
        awaited = {awaited.name: awaited.state() for awaited in self.awaited}
        return [self.late, self.refused, self.gaps, *([awaited] if awaited else [])]

    def restore(self, counts: Sequence[Any], told: dict[tuple[str, Dot], None]) -> None:
        """Take on the counts and what was told; the groups are restored one by one."""
        self.late, self.refused, self.gaps, *rest = counts
        self.told = told
        for awaited in self.awaited:
            saved = rest[0].get(awaited.name) if rest else None
            if saved is None:
                awaited.begin(self.watermark_us)
            else:
                awaited.restore(saved)
