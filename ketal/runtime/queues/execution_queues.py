"""The hold-back queues of one execution, and what they report.

CausalOrder belongs to the execution, so patterns that ask for the same order,
within the same topology, share a queue (`ketal.runtime.queues.pattern_queues`). A queue releases
events to its patterns; what it declares lost, finds late or has no room for becomes verdicts
here, each reported once, however many queues report it.

Patterns whose answer needs no order (`find any` without `not`) wait for nothing, as long as
clocks are whole. Once a node has left, they have a queue in which events wait for whole
clocks.

The one rule: an event is counted once: as released, held back, late or refused.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ketal.engine.pattern_run import PatternRun
from ketal.engine.verdict_building import flat
from ketal.model import syntax
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.operators.membership.clock_restoration import Restorer, possibly_low, present_order
from ketal.operators.order.missing import MissingDots, NodeArrivals
from ketal.operators.order.release_options import ReleaseOptions
from ketal.operators.order.step import ReleaseStep
from ketal.operators.topology.domains import closed_nodes
from ketal.runtime.queues.pattern_queues import Numbered, PatternQueue
from ketal.runtime.queues.reports import Reports
from ketal.runtime.queues.restoring_queue import RestoringQueue


class Queues:
    """The hold-back queues of an execution, with the runs they release to.

    Parameters
    ----------
    runs : sequence of PatternRun
        The patterns that need an order.
    limits : Limits
        `held_back_max`, `lost_max`, and `dots_max` for what is reported once, and
        for the refused events that may be delivered again.
    execution : str
        The execution's name.
    free : sequence of PatternRun
        The patterns that need no order. No queue holds anything back for them, but what
        their `gap` declares lost is reported here.
    arrived : mapping of str to NodeArrivals
        What has come of each node.

    Attributes
    ----------
    queues : list of PatternQueue
    reports : Reports
        What was reported, and how much of it.
    missing : list of MissingDots
        What is missing to the patterns that wait for nothing and have a `gap`.
    watermark_us : int or None
        The last watermark.

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
        free: Sequence[PatternRun],
        arrived: Mapping[str, NodeArrivals],
    ) -> None:
        self.limits = limits
        self.queues = [PatternQueue(group, limits) for group in _by_order(runs)]
        self.missing = _missing_to(free, limits, arrived)
        self.reports = Reports(execution, limits.dots_max)
        self.watermark_us: int | None = None
        self._count_reporters()

    def __bool__(self) -> bool:
        return bool(self.queues or self.missing)

    def _count_reporters(self) -> None:
        self.reports.several = len(self.queues) + len(self.missing) > 1

    # --- restored clocks ---

    def restore_clocks(
        self,
        restorer: Restorer,
        free: Sequence[PatternRun] = (),
        seen: Mapping[str, tuple[int, list[int]]] | None = None,
    ) -> None:
        """Restore the clocks of events from now on, as a node has left.

        Parameters
        ----------
        restorer : Restorer
            Knows the clocks.
        free : sequence of PatternRun
            The patterns that need no order; they have been offered what was seen.
        seen : mapping
            What was seen so far, as `HoldBackQueue.begin` takes it; None if a saved state
            says it.
        """
        ordered = list(self.queues)
        for queue in ordered:
            queue.hold_back.restore_clocks(restorer)
        restoring = [RestoringQueue(group, self.limits, restorer) for group in _by_order(free)]
        self.queues += restoring
        self._count_reporters()
        if seen is None:
            return
        events = [
            Event(node=node, type="offered", clock=clock)
            for node, _, clock in possibly_low(restorer.memory, seen)
        ]
        for queue in restoring:
            queue.look_back(seen_without(seen, events), events)
        # What queues released with clocks that a leave shows to be too low is counted.
        for event in present_order(events):
            released = any(queue.has_released(event.dot) for queue in ordered)
            if released and restorer.restore(event) is not event:
                restorer.count_offered_low(event)

    # --- what happens ---

    def push_clock(self, event: Event) -> list[Verdict]:
        """Take in what a new event knows, before any pattern is offered it."""
        out: list[Verdict] = []
        for missing in self.missing:
            out += self.reports.lost(missing.push(event))
        return out

    def take(
        self,
        events: Sequence[Event],
        *,
        withheld: bool = False,
        refusing: Sequence[PatternRun] = (),
    ) -> list[Numbered]:
        """Take in new events in turn.

        Parameters
        ----------
        events : sequence of Event
            As they arrived.
        withheld : bool
            Whether they take their places and are not offered: they are late.
        refusing : sequence of PatternRun
            Patterns in whose topologies their nodes have no place.

        Returns
        -------
        list of Numbered
            The number of each event that has verdicts, and these.
        """
        by_number: dict[int, list[Verdict]] = defaultdict(list)
        # What several report is reported once, by the one that finds it first.
        alone = len(self.queues) == 1 and not self.missing
        together = alone and self.queues[0].takes_several(self.watermark_us)
        parts = [events] if together else [(event,) for event in events]
        for part_number, part in enumerate(parts):
            for queue in self.queues:
                if refusing and queue.runs[0] in refusing:
                    continue
                begin = part_number
                for step in queue.take(part, by_number[begin], withheld=withheld):
                    if step.limit:
                        event = events[begin]
                        by_number[begin].append(self.reports.too_many_domains(event, step.limit))
                    for number, verdicts in self._apply(queue, step):
                        by_number[begin + number] += verdicts
                    begin += len(step.ends)
            for missing in self.missing:
                by_number[part_number] += self.reports.lost(missing.advance())
        return sorted((number, verdicts) for number, verdicts in by_number.items() if verdicts)

    def push_again(self, event: Event) -> list[Verdict] | None:
        """Take in a duplicate where there was no room for it before; None if nowhere."""
        refusing = [queue for queue in self.queues if event.dot in queue.refused]
        if not refusing:
            return None
        out: list[Verdict] = []
        self.reports.forget_refused(event.dot)
        for queue in refusing:
            out += flat(self._apply(queue, queue.push_again(event)))
        return out

    @property
    def due_us(self) -> float:
        """The least watermark that may bring something about."""
        if self.missing:
            return -math.inf  # it waits for time
        return min([queue.due_us for queue in self.queues], default=math.inf)

    def advance(self, watermark_us: int) -> list[Verdict]:
        """Advance to a watermark: no earlier event is expected; end windows by it."""
        self.watermark_us = watermark_us
        out: list[Verdict] = []
        for missing in self.missing:
            out += self.reports.lost(missing.advance(watermark_us))
        for queue in self.queues:
            step = queue.hold_back.advance(watermark_us)
            out += flat(self._apply(queue, step))
            if not step.released:
                out += queue.end_windows(watermark_us)
        return out

    def join(self, node: str) -> list[Verdict]:
        """Mark a node as present."""
        return self._each(lambda queue: queue.join(node))

    def leave(self, node: str) -> list[Verdict]:
        """Mark a node as gone: nothing waits for it any more."""
        return self._each(lambda queue: queue.leave(node))

    def view(self, members: Iterable[str]) -> list[Verdict]:
        """Apply a membership view: all other nodes have left."""
        named = tuple(members)
        return self._each(lambda queue: queue.view(named))

    def end(self) -> list[Verdict]:
        """End the stream."""
        out = self._each(lambda queue: queue.end())
        for queue in self.queues:
            out += queue.end()
        return out

    def _each(self, act: Callable[[Any], ReleaseStep]) -> list[Verdict]:
        """Do the same to what knows of missing dots and to each queue."""
        out: list[Verdict] = []
        for missing in self.missing:
            out += self.reports.lost(act(missing))
        for queue in self.queues:
            out += flat(self._apply(queue, act(queue.hold_back)))
        return out

    def _apply(self, queue: PatternQueue, step: ReleaseStep) -> list[Numbered]:
        numbered = queue.apply(step, self.reports)
        if step.released and self.watermark_us is not None:
            # It took several events in only where no window ends by that.
            numbered.append((0, queue.end_windows(self.watermark_us)))
        return numbered

    # --- what can be asked ---

    def of(self, name: str) -> PatternQueue | None:
        """Return the queue of a pattern; None if it waits for nothing."""
        for queue in self.queues:
            if any(run.compiled.name == name for run in queue.runs):
                return queue
        return None

    def held_back(self) -> list[tuple[Event, Dot | None]]:
        """Return each event that some queue holds, with what it waits for (None: its turn)."""
        held: dict[Dot, tuple[Event, Dot | None]] = {}
        for queue in self.queues:
            for event, dot in queue.held_back():
                held.setdefault(event.dot, (event, dot))
        return list(held.values())

    @property
    def waiting(self) -> int:
        """How many events are held back, and counted as nothing else in another queue."""
        if len(self.queues) == 1:
            queue = self.queues[0]
            return len(queue.hold_back) - len(queue.withheld)
        return sum(not self.reports.is_counted(event.dot) for event, _ in self.held_back())

    # --- state ---

    def save(self) -> dict[str, Any]:
        """Return what was counted and what is missing, as plain data; the queues are apart."""
        missing = {missing.name: missing.save() for missing in self.missing}
        return {"reports": self.reports.save(), "missing": missing}

    def load(self, state: Mapping[str, Any], reported: dict[tuple[str, Dot], None]) -> None:
        """Load what `save` returned, and what was reported; the queues are loaded one by one."""
        self.reports.load(state["reports"])
        self.reports.once = reported
        for missing in self.missing:
            if missing.name in state["missing"]:
                missing.load(state["missing"][missing.name])
            else:
                missing.begin(self.watermark_us)


def _by_order(runs: Iterable[PatternRun]) -> list[list[PatternRun]]:
    """Return the runs in groups of one order and one topology."""
    groups: dict[tuple[syntax.Order, syntax.Topology | None], list[PatternRun]] = {}
    for run in runs:
        pattern = run.compiled.pattern
        groups.setdefault((pattern.order, pattern.topology), []).append(run)
    return list(groups.values())


def _missing_to(
    runs: Iterable[PatternRun], limits: Limits, arrived: Mapping[str, NodeArrivals]
) -> list[MissingDots]:
    """Return what is missing to runs that wait for nothing and have a `gap`, each once."""
    made: dict[str, MissingDots] = {}
    for run in runs:
        pattern = run.compiled.pattern
        if pattern.order.gap is None:
            continue
        options = ReleaseOptions.of(pattern.order, limits)
        missing = MissingDots(arrived, options, closed_nodes(pattern.topology))
        run.losses.awaited = made.setdefault(missing.name, missing).dots
    return list(made.values())


def seen_without(
    seen: Mapping[str, tuple[int, list[int]]], events: Iterable[Event]
) -> dict[str, tuple[int, list[int]]]:
    """Return what was seen, as `HoldBackQueue.begin` takes it, but for some events."""
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
