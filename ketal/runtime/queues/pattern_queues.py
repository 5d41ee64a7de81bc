"""The hold-back queue of patterns with one order, and the runs that it releases events to.

A watermark promises that no earlier event will arrive. A held event has arrived and is still to be
offered, so for these patterns time advances no further than the earliest time of a held event.

The one rule: an event is offered to a run once, or is missed by it.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ketal.engine.pattern_run import PatternRun
from ketal.engine.type_dispatch import TypeDispatch
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.verdicts.verdict_kinds import Numbered, Verdict
from ketal.operators.order.hold_back import HoldBackQueue
from ketal.operators.order.release_options import ReleaseOptions
from ketal.operators.order.step import ReleaseStep
from ketal.operators.topology.domain_order import DomainPast
from ketal.runtime.queues.reports import Reports

_TIMES_MIN: Final = 1_024
"""Entries of the heap of times below which released events are not removed from it."""


class PatternQueue:
    """A hold-back queue, and the runs of patterns with one order and topology, which share it."""

    ordered = True
    """Whether the patterns need an order, and not only whole clocks: part of the saved state."""

    def __init__(self, runs: list[PatternRun], limits: Limits, options: ReleaseOptions) -> None:
        self.runs = runs
        self._dispatch = TypeDispatch(runs)
        # Held events that fill their places, but are not offered when they are released.
        self.withheld: set[Dot] = set()
        # Events that the full queue refused, oldest first; they may be redelivered.
        self.refused: OrderedDict[Dot, None] = OrderedDict()
        self._limits = limits
        self._topology = runs[0].compiled.pattern.topology
        windows_us = [us for run in runs if (us := run.compiled.window_us) is not None]
        self._window_us = min(windows_us, default=None)  # the shortest
        self._has_copies = any(run.copies is not None for run in runs)
        self._times: list[tuple[int, Dot]] | None = None  # a heap; may have released events too
        self.hold_back = HoldBackQueue(options, self._domains())

    def _domains(self) -> DomainPast | None:
        """Return the part of its past that an event waits for; None for the whole past."""
        return None if self._topology is None else DomainPast(self._topology, self._limits)

    # --- events ---

    def takes_several(self, watermark_us: int | None) -> bool:
        """Return whether several events may be taken before those that they release are offered.

        The new events are not earlier than the watermark. If no held event is either, offering
        the released events ends no window, unless a copy of a pattern learns of older events.
        """
        if watermark_us is None or self._window_us is None:
            return True
        return not self._has_copies and self._reached_us(watermark_us) == watermark_us

    def take(
        self, events: Sequence[Event], out: list[Verdict], *, withheld: bool
    ) -> Iterator[ReleaseStep]:
        """Push events in turn (only one if `takes_several` returned False); yield the results.

        Each is the result of one or several events, and is yielded before the next is pushed.
        Before that, the verdicts on events that need not wait are added to `out`.
        """
        if withheld:
            for event in events:
                self.withheld.add(event.dot)
                self._miss_event(event)
        begin = 0
        for step in self.hold_back.take(events):
            end = begin + len(step.ends)
            self._add_times(events[begin:end])
            yield step
            begin = end

    def push_redelivered(self, event: Event) -> ReleaseStep:
        """Push a redelivered event that was refused before."""
        del self.refused[event.dot]
        for run in self.runs:
            run.losses.unmiss(event.dot)
        step = self.hold_back.push(event)
        self._add_times((event,))
        return step

    def apply(self, step: ReleaseStep, reports: Reports) -> list[Numbered]:
        """Offer the released events of a step, and report its lost, late and refused events.

        Return, in turn, the index of each pushed event with the verdicts that it caused.
        """
        for dot in step.gaps:
            for run in self.runs:
                run.miss(dot, step.lowest_keys.get(dot))
        # First, since events released in the same step may depend on them.
        for event in (*step.late, *step.refused):
            self._miss_event(event)
        numbered: list[Numbered] = [(0, reports.gap_verdicts(step))] if step.gaps else []
        if step.released:
            numbered += self._offer_released(step)
        if step.only_releases:
            return numbered
        out: list[Verdict] = []
        for event in step.late:
            if not self._pop_withheld(event):
                out += reports.late_verdicts(event)
        for event in step.refused:
            if not self._pop_withheld(event):
                self.refused[event.dot] = None
                if len(self.refused) > self._limits.dots_max:
                    self.refused.popitem(last=False)
                out += reports.refused_verdicts(event)
        for run in self.runs:
            run.counts.overflows += step.given_up + bool(step.limit)
        if step.given_up:
            waits = "what the oldest held-back events waited for"
            out.append(reports.given_up_verdict(step.given_up, "held_back_max", waits))
        return [*numbered, (0, out)]

    def _offer_released(self, step: ReleaseStep) -> list[Numbered]:
        """Offer the released events; return the verdicts by the index of the releasing event."""
        released, indices = step.released, None
        if self.withheld:
            indices = [n for n, event in enumerate(released) if not self._pop_withheld(event)]
            released = [released[index] for index in indices]
        return [
            (bisect_right(step.ends, index if indices is None else indices[index]), list(verdicts))
            for index, verdicts in self._dispatch.process(released)
        ]

    def _miss_event(self, event: Event) -> None:
        for run in self.runs:
            run.miss_event(event)

    def _pop_withheld(self, event: Event) -> bool:
        """Return whether a released event was withheld, and no longer count it as withheld."""
        if not self.withheld or event.dot not in self.withheld:
            return False
        self.withheld.remove(event.dot)
        return True

    def end(self) -> list[Verdict]:
        """End the stream: the runs miss the dots that are still missing."""
        for dot in self.hold_back.missing():
            for run in self.runs:
                run.miss(dot)
        return []

    # --- time ---

    def _add_times(self, events: Iterable[Event]) -> None:
        """Record the times of those events that are held."""
        times = self._times
        if times is None:
            return
        for event in events:
            if event.time_us is not None and event.dot in self.hold_back:
                heapq.heappush(times, (event.time_us, event.dot))
        if len(times) > _TIMES_MIN + 2 * len(self.hold_back):
            self._times = [item for item in times if item[1] in self.hold_back]
            heapq.heapify(self._times)

    @property
    def due_us(self) -> float:
        """The lowest watermark at which something may be due.

        A held event may be the first event of a window when it is released.
        """
        if self.hold_back.expires or self._has_copies:
            return -math.inf
        if self._window_us is None:
            return math.inf
        due_us = min([run.steps.due_us for run in self.runs])
        return min(due_us, self._earliest_held_us() + self._window_us)

    def end_windows(self, watermark_us: int) -> list[Verdict]:
        """End the windows that end before the watermark and before the time of any held event."""
        out: list[Verdict] = []
        if self._window_us is not None:
            reached_us = self._reached_us(watermark_us)
            for run in self.runs:
                out += run.steps.advance(reached_us)
        return out

    def _reached_us(self, watermark_us: int) -> int:
        """Return the time before which no event is offered any more, given a watermark."""
        return int(min(watermark_us, self._earliest_held_us()))

    def _earliest_held_us(self) -> float:
        """Return the earliest time of a held event that will be offered; infinity for none."""
        queue = self.hold_back
        if not len(queue):
            return math.inf
        times = self._times
        if times is None:
            held = (event for event, _ in queue.held_back())
            times = [(event.time_us, event.dot) for event in held if event.time_us is not None]
            heapq.heapify(times)
            self._times = times
        while times and (times[0][1] in self.withheld or times[0][1] not in queue):
            heapq.heappop(times)
        return times[0][0] if times else math.inf

    # --- queries ---

    def held_back(self) -> list[tuple[Event, Dot | None]]:
        """Return the held events that will be offered, each with a dot that it waits for."""
        return [(e, dot) for e, dot in self.hold_back.held_back() if e.dot not in self.withheld]

    def pending(self) -> set[Dot]:
        """Return the seen dots that may still be offered: held back, or refused."""
        return {event.dot for event, _ in self.held_back()} | set(self.refused)

    def has_released(self, dot: Dot) -> bool:
        """Return whether a pushed event was released, as far as the runs remember losses."""
        return not (dot in self.hold_back or any(dot in run.losses for run in self.runs))

    # --- state ---

    @property
    def names(self) -> list[str]:
        """The names of its patterns, sorted."""
        return sorted(run.compiled.name for run in self.runs)

    @property
    def name(self) -> str:
        """Identifies the queue: the first of its patterns' names."""
        return self.names[0]

    @property
    def kind(self) -> list[Any]:
        """The properties that a queue must share to resume from this queue's state."""
        topology = "" if self._topology is None else repr(self._topology)
        return [self.ordered, self.hold_back.options.policy, topology]

    def save(self, number: Callable[[Event], int]) -> dict[str, Any]:
        """Return the state as plain data, refused events apart; `number` numbers events."""
        return {
            "kind": self.kind,
            "names": self.names,
            "hold_back": self.hold_back.save(number),
            "withheld": sorted(self.withheld),
        }

    def load(
        self, state: Mapping[str, Any], events: Sequence[Event], refused: Iterable[Any]
    ) -> None:
        """Load what `save` returned, and the dots of refused events, oldest first."""
        self.hold_back.load(state["hold_back"], events)
        self.withheld = {Dot(*dot) for dot in state["withheld"]}
        self.refused = OrderedDict.fromkeys(Dot(*dot) for dot in refused)
