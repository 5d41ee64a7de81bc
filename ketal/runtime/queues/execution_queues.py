"""The hold-back queues of one execution, and the verdicts that they report.

CausalOrder belongs to the execution, so patterns with the same order and the same topology share a
queue (`ketal.runtime.queues.pattern_queues`). A queue releases events to its patterns. Dots that it
declares lost and events that it finds late or refuses become verdicts here, each reported once,
however many queues report it.

Patterns whose answer needs no order (`find any` without `not`) do not wait while clocks are whole.
Once a node has left, they get a queue in which events wait until their clocks are restored, unless
a part of a job would wait for events of other parts.

The one rule: an event is counted once: as released, held back, late or refused.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ketal.engine.pattern_run import PatternRun
from ketal.engine.verdict_building import flat
from ketal.model import syntax
from ketal.model.events.control import Control
from ketal.model.events.counter_sets import SeenCounters
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.verdicts.verdict_kinds import Numbered, Verdict
from ketal.operators.membership.clock_memory import SeenDots
from ketal.operators.membership.clock_restoration import Restorer, possibly_low, present_order
from ketal.operators.order.missing import MissingDots
from ketal.operators.order.release_options import ReleaseOptions
from ketal.operators.order.step import ReleaseStep
from ketal.operators.topology.domains import closed_nodes
from ketal.runtime.queues.pattern_queues import PatternQueue
from ketal.runtime.queues.reports import Reports
from ketal.runtime.queues.restoring_queue import RestoringQueue


class Queues:
    """The hold-back queues of an execution, with the runs they release to.

    `runs` are those of the patterns that need an order. No queue holds back events for the runs
    `order_free`, but the dots that their `gap` declares lost are reported here; `arrived` has the
    counters of the events that have arrived. `dots_max` bounds the dots that are remembered as
    reported, and the refused events that may be redelivered. `by_watermark` is whether the time of
    the queues goes by watermarks alone. A PatternError if the domains of a topology exceed a limit.
    """

    def __init__(
        self,
        runs: Sequence[PatternRun],
        limits: Limits,
        execution: str,
        *,
        order_free: Sequence[PatternRun],
        arrived: Mapping[str, SeenCounters],
        by_watermark: bool,
    ) -> None:
        self._limits = limits
        self._options_of = partial(ReleaseOptions.of, limits=limits, by_watermark=by_watermark)
        self.queues = [
            PatternQueue(group, limits, self._options_of(order)) for order, group in _by_order(runs)
        ]
        self._awaiting: dict[str, list[PatternRun]] = {}  # by the name of their missing dots
        # The missing dots of the patterns that need no order and have a `gap`.
        self.missing = self._missing_dots(order_free, arrived)
        self.reports = Reports(execution, limits.dots_max)
        self.watermark_us: int | None = None  # the last watermark
        self._update_several()

    def __bool__(self) -> bool:
        return bool(self.queues or self.missing)

    def _missing_dots(
        self, runs: Iterable[PatternRun], arrived: Mapping[str, SeenCounters]
    ) -> list[MissingDots]:
        """Return the missing dots of the runs that have a `gap`, which await them from now on.

        Runs with equal options share them.
        """
        by_name: dict[str, MissingDots] = {}
        for run in runs:
            pattern = run.compiled.pattern
            options = self._options_of(pattern.order)
            if options.declares_lost:
                missing = MissingDots(arrived, options, closed_nodes(pattern.topology))
                run.losses.awaited = by_name.setdefault(missing.name, missing).dots
                self._awaiting.setdefault(missing.name, []).append(run)
        return list(by_name.values())

    def _update_several(self) -> None:
        self.reports.several = len(self.queues) + len(self.missing) > 1

    # --- restored clocks ---

    def restore_clocks(
        self,
        restorer: Restorer,
        order_free: Sequence[PatternRun],
        seen: SeenDots | None,
        *,
        arriving: Event | None,
        at_once: bool,
    ) -> None:
        """Restore the clocks of events from now on, since a node has left.

        The patterns `order_free` need no order and get a queue. They have been offered all events
        `seen` so far, which is None if the dots are loaded from a saved state, except the event
        `arriving`. With `at_once`, so have patterns that read clocks and get no queue.
        """
        ordered = list(self.queues)
        for queue in ordered:
            queue.hold_back.restore_clocks(restorer)
        restoring = []
        for order, group in _by_order(order_free):
            options = self._options_of(replace(order, total=False))
            restoring.append(RestoringQueue(group, self._limits, options, restorer))
        self.queues += restoring
        self._update_several()
        if seen is None:
            return
        if arriving is not None:
            seen = _seen_without(seen, (arriving,))
        events = present_order(
            Event(node=node, type="offered", clock=clock)
            for node, _, clock in possibly_low(restorer.memory, seen)
        )
        for event in events:
            restorer.restore_so_far(event)  # no closure of a later event is final before its own is
        offered = [event for event in events if arriving is None or event.dot != arriving.dot]
        for queue in restoring:
            queue.push_offered(_seen_without(seen, offered), offered)
        # Count the events that were released with clocks that the departure shows to be too low.
        for event in offered:
            released = at_once or any(queue.has_released(event.dot) for queue in ordered)
            if released and restorer.restore(event) is not event:
                restorer.count_doubtful(event)

    # --- events ---

    def push_clock(self, event: Event) -> list[Verdict]:
        """Add the dots of a new event's clock to the missing dots, before the event is offered."""
        out: list[Verdict] = []
        for missing in self.missing:
            step = missing.push(event)
            out += self.reports.gap_verdicts(step)
            if step.given_up:
                for run in self._awaiting[missing.name]:
                    run.counts.overflows += step.given_up
                waits = "the waits for the dots missing longest"
                out.append(self.reports.given_up_verdict(step.given_up, "counters_max", waits))
        return out

    def take(
        self,
        events: Sequence[Event],
        *,
        withheld: bool = False,
        excluding: Sequence[PatternRun] = (),
    ) -> list[Numbered]:
        """Push new events, with their clocks as they arrived, to the queues in turn.

        Late events are `withheld`: they fill their places, but are not offered. The closed
        topologies of the runs `excluding` lack the events' nodes. Returned are the index of each
        event that has verdicts, and its verdicts.
        """
        by_number: dict[int, list[Verdict]] = defaultdict(list)
        # If several queues report the same, only the first report counts: take events one by one.
        alone = len(self.queues) == 1 and not self.missing
        together = alone and self.queues[0].takes_several(self.watermark_us)
        parts = [events] if together else [(event,) for event in events]
        for part_number, part in enumerate(parts):
            for queue in self.queues:
                if excluding and queue.runs[0] in excluding:
                    continue
                begin = part_number
                for step in queue.take(part, by_number[begin], withheld=withheld):
                    if step.limit:
                        event = events[begin]
                        by_number[begin].append(self.reports.domains_verdict(event, step.limit))
                    for number, verdicts in self._apply(queue, step):
                        by_number[begin + number] += verdicts
                    begin += len(step.ends)
            for missing in self.missing:
                by_number[part_number] += self.reports.gap_verdicts(missing.advance())
        return sorted((number, verdicts) for number, verdicts in by_number.items() if verdicts)

    def push_redelivered(self, event: Event) -> list[Verdict] | None:
        """Push a redelivered event to the queues that had refused it; None if there are none."""
        refusing = [queue for queue in self.queues if event.dot in queue.refused]
        if not refusing:
            return None
        out: list[Verdict] = []
        self.reports.forget_refused(event.dot)
        for queue in refusing:
            out += flat(self._apply(queue, queue.push_redelivered(event)))
        return out

    @property
    def due_us(self) -> float:
        """The lowest watermark at which something may be due."""
        return min([queue.due_us for queue in self.queues], default=math.inf)

    def advance(self, watermark_us: int) -> list[Verdict]:
        """Advance the queues to a watermark, and end the windows that it ends."""
        self.watermark_us = watermark_us
        out: list[Verdict] = []
        for missing in self.missing:
            out += self.reports.gap_verdicts(missing.advance(watermark_us))
        for queue in self.queues:
            step = queue.hold_back.advance(watermark_us)
            out += flat(self._apply(queue, step))
            if not step.released:
                out += queue.end_windows(watermark_us)
        return out

    def control(self, control: Control) -> list[Verdict]:
        """Apply a `join`, `leave` or `view` whose nodes are named by incarnation."""
        if control.kind == "view":
            return self._apply_to_each(lambda queue: queue.view(control.members))
        if control.kind == "join":
            return self._apply_to_each(lambda queue: queue.join(control.node))
        return self._apply_to_each(lambda queue: queue.leave(control.node))

    def end(self) -> list[Verdict]:
        """End the stream."""
        out = self._apply_to_each(lambda queue: queue.end())
        for queue in self.queues:
            out += queue.end()
        return out

    def _apply_to_each(self, operation: Callable[[Any], ReleaseStep]) -> list[Verdict]:
        """Apply a function to each `MissingDots` and each queue; return the verdicts."""
        out: list[Verdict] = []
        for missing in self.missing:
            out += self.reports.gap_verdicts(operation(missing))
        for queue in self.queues:
            out += flat(self._apply(queue, operation(queue.hold_back)))
        return out

    def _apply(self, queue: PatternQueue, step: ReleaseStep) -> list[Numbered]:
        numbered = queue.apply(step, self.reports)
        if step.released and self.watermark_us is not None:
            # Several events are taken together only if no window ends between them.
            numbered.append((0, queue.end_windows(self.watermark_us)))
        return numbered

    # --- queries ---

    def queue_of(self, name: str) -> PatternQueue | None:
        """Return the queue of a pattern; None if its events do not wait."""
        for queue in self.queues:
            if any(run.compiled.name == name for run in queue.runs):
                return queue
        return None

    def held_back(self, *, for_ever: bool = False) -> list[tuple[Event, Dot | None]]:
        """Return each held-back event and one dot it waits for, None if it waits for its turn.

        With `for_ever`, return only the events that no `gap` will release.
        """
        held: dict[Dot, tuple[Event, Dot | None]] = {}
        for queue in self.queues:
            if for_ever and queue.hold_back.options.declares_lost:
                continue
            for event, dot in queue.held_back():
                held.setdefault(event.dot, (event, dot))
        return list(held.values())

    @property
    def waiting(self) -> int:
        """How many events are held back, except those that another queue reported late or refused.

        Each event is counted once.
        """
        if len(self.queues) == 1:
            queue = self.queues[0]
            return len(queue.hold_back) - len(queue.withheld)
        return sum(not self.reports.is_counted(event.dot) for event, _ in self.held_back())

    # --- state ---

    def save(self) -> dict[str, Any]:
        """Return the counts and the missing dots as plain data; queues are saved separately."""
        missing = {missing.name: missing.save() for missing in self.missing}
        return {"reports": self.reports.save(), "missing": missing}

    def load(self, state: Mapping[str, Any], reported: dict[tuple[str, Dot], None]) -> None:
        """Load what `save` returned, and the reported dots; queues are loaded separately."""
        self.reports.load(state["reports"])
        self.reports.reported.update(reported)
        for missing in self.missing:
            if missing.name in state["missing"]:
                missing.load(state["missing"][missing.name])
            else:
                missing.begin(self.watermark_us)


def _by_order(runs: Iterable[PatternRun]) -> list[tuple[syntax.Order, list[PatternRun]]]:
    """Return the runs grouped by order and topology, each group with its order."""
    groups: dict[tuple[syntax.Order, syntax.Topology | None], list[PatternRun]] = {}
    for run in runs:
        pattern = run.compiled.pattern
        groups.setdefault((pattern.order, pattern.topology), []).append(run)
    return [(order, group) for (order, _), group in groups.items()]


def _seen_without(seen: SeenDots, events: Iterable[Event]) -> SeenDots:
    """Return the seen dots without those of some events, which were seen."""
    excluded: dict[str, set[int]] = {}
    for event in events:
        excluded.setdefault(event.node, set()).add(event.counter)
    out = dict(seen)
    for node, counters in excluded.items():
        upto, beyond = seen[node]
        first = min(upto, min(counters) - 1)
        remaining = [c for c in (*range(first + 1, upto + 1), *beyond) if c not in counters]
        out[node] = (first, remaining)
    return out
