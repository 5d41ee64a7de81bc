"""The hold-back queue of patterns with one order, and the runs that it releases to.

A watermark says which events will not arrive any more. What is held has arrived
and is still to be offered, so to its patterns time has come no further than the
earliest time that is held.

The one rule: an event is offered to a run once, or is missed by it.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from ketal.engine.pattern_run import PatternRun
from ketal.engine.type_dispatch import TypeDispatch
from ketal.engine.verdict_building import flat
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.operators.order.hold_back import HoldBackQueue
from ketal.operators.order.release_options import ReleaseOptions
from ketal.operators.order.step import ReleaseStep
from ketal.operators.topology.domain_order import DomainPast
from ketal.runtime.queues.reports import Reports

Numbered: TypeAlias = tuple[int, list[Verdict]]
"""Verdicts on an event, and its number among those that were taken in together."""
_TIMES_LEAST: Final = 1_024


class PatternQueue:
    """A hold-back queue, and the runs of patterns with one order and topology, which share it.

    Attributes
    ----------
    hold_back : HoldBackQueue
    withheld : set of Dot
        Held events that take their place and are not offered.
    refused : dict of Dot to None
        Events for which there was no room, oldest first; they may be delivered again.
    """

    ordered = True
    """Whether the patterns need an order, or whole clocks only."""

    def __init__(self, runs: list[PatternRun], limits: Limits) -> None:
        self.runs = runs
        self._dispatch = TypeDispatch(runs)
        self.withheld: set[Dot] = set()
        self.refused: dict[Dot, None] = {}
        self._limits = limits
        self._topology = runs[0].compiled.pattern.topology
        self._timed = any(run.compiled.window_us is not None for run in runs)
        self._learning = any(run.copies is not None for run in runs)
        self._times: list[tuple[int, Dot]] | None = None  # a heap; also of what is released
        options = ReleaseOptions.of(runs[0].compiled.pattern.order, limits, ordered=self.ordered)
        self.hold_back = HoldBackQueue(options, self._domains())

    def _domains(self) -> DomainPast | None:
        """Return which part of its past an event waits for."""
        return None if self._topology is None else DomainPast(self._topology, self._limits)

    # --- what happens ---

    def takes_several(self, watermark_us: int | None) -> bool:
        """Return whether several events may be taken in before what they release is offered.

        They are not before the watermark. If no held one is either, no window ends by what is
        released; but a node may learn of what is older.
        """
        if not self.ordered or watermark_us is None or not self._timed:
            return self.ordered
        return not self._learning and self._reached_us(watermark_us) == watermark_us

    def take(
        self, events: Sequence[Event], out: list[Verdict], *, withheld: bool
    ) -> Iterator[ReleaseStep]:
        """Take in events in turn, one only where `takes_several` says no.

        Yields
        ------
        ReleaseStep
            What one or several of them brought about, before the next is taken in. Runs that
            may be offered an event at once add their verdicts to `out` before.
        """
        taken = events
        if withheld:
            for event in events:
                self.withheld.add(event.dot)
                self._miss_event(event)
        else:
            taken = self._offer_at_once(events, out)
        begin = 0
        for step in self.hold_back.take(taken):
            end = begin + len(step.ends)
            self._add_times(events[begin:end])
            yield step
            begin = end

    def _offer_at_once(self, events: Sequence[Event], out: list[Verdict]) -> Sequence[Event]:
        """Offer events that need not wait; return them with their clocks as far as known."""
        return events

    def push_again(self, event: Event) -> ReleaseStep:
        """Push an event that was refused before."""
        del self.refused[event.dot]
        for run in self.runs:
            run.unmiss(event.dot)
        step = self.hold_back.push(event)
        self._add_times((event,))
        return step

    def apply(self, step: ReleaseStep, reports: Reports) -> list[Numbered]:
        """Offer what a step released, and report what it gave up.

        Returns
        -------
        list of Numbered
            In turn, the verdicts on each event that was taken in, by its number.
        """
        for dot in step.gaps:
            for run in self.runs:
                run.miss(dot, step.lowest_places.get(dot))
        # What is released in the same step may depend on them.
        for event in (*step.late, *step.refused):
            self._miss_event(event)
        numbered: list[Numbered] = [(0, reports.lost(step))] if step.gaps else []
        if step.released:
            numbered += self._offer_released(step)
        if step.only_releases:
            return numbered
        out: list[Verdict] = []
        for event in step.late:
            if not self._was_withheld(event):
                out += reports.overtaken(event)
        for event in step.refused:
            if not self._was_withheld(event):
                self.refused[event.dot] = None
                if len(self.refused) > self._limits.dots_max:
                    del self.refused[next(iter(self.refused))]
                out += reports.no_room(event)
        if step.given_up:
            out.append(reports.gave_up(step.given_up))
        return [*numbered, (0, out)]

    def _offer_released(self, step: ReleaseStep) -> list[Numbered]:
        """Offer what a step released; return the verdicts by the numbers of what released it."""
        released, places = step.released, None
        if self.withheld:
            places = [n for n, event in enumerate(released) if not self._was_withheld(event)]
            released = [released[place] for place in places]
        return [
            (bisect_right(step.ends, place if places is None else places[place]), list(verdicts))
            for place, verdicts in self._dispatch.process(released)
        ]

    def _offer(self, events: Sequence[Event]) -> list[Verdict]:
        """Offer events in turn to the runs."""
        return flat(self._dispatch.process(events))

    def _miss_event(self, event: Event) -> None:
        for run in self.runs:
            run.miss_event(event)

    def _was_withheld(self, event: Event) -> bool:
        """Return whether a released event was offered before, or is not to be."""
        if not self.withheld or event.dot not in self.withheld:
            return False
        self.withheld.remove(event.dot)
        return True

    def end(self) -> list[Verdict]:
        """Conclude the stream: some run may have waited for what is still held or missing."""
        for dot in self.hold_back.missing():
            for run in self.runs:
                run.miss(dot)
        return []

    # --- time ---

    def _add_times(self, events: Iterable[Event]) -> None:
        """Record the times of events that may be held."""
        times = self._times
        if times is None:
            return
        for event in events:
            if event.time_us is not None and self.hold_back.holds(event.dot):
                heapq.heappush(times, (event.time_us, event.dot))
        if len(times) > _TIMES_LEAST + 2 * len(self.hold_back):
            self._times = [item for item in times if self.hold_back.holds(item[1])]
            heapq.heapify(self._times)

    @property
    def due_us(self) -> float:
        """The least watermark that may bring something about.

        One that is held may be the first of a window when it is released.
        """
        if self.hold_back.expires or self._learning or not self.ordered:
            return -math.inf
        if not self._timed:
            return math.inf
        due_us = min([run.steps.due_us for run in self.runs])
        windows_us = [us for run in self.runs if (us := run.compiled.window_us) is not None]
        return min(due_us, self._earliest_held_us() + min(windows_us))

    def end_windows(self, watermark_us: int) -> list[Verdict]:
        """End the windows that end before anything that is held and before a watermark."""
        out: list[Verdict] = []
        if self._timed:
            reached_us = self._reached_us(watermark_us)
            for run in self.runs:
                out += run.steps.advance(reached_us)
        return out

    def _reached_us(self, watermark_us: int) -> int:
        """Return the time before which nothing is offered any more, by a watermark."""
        return int(min(watermark_us, self._earliest_held_us()))

    def _earliest_held_us(self) -> float:
        """Return the earliest time of an event that is held to be offered; infinity for none."""
        queue = self.hold_back
        if not len(queue):
            return math.inf
        times = self._times
        if times is None:
            held = (event for event, _ in queue.held_back())
            times = [(event.time_us, event.dot) for event in held if event.time_us is not None]
            heapq.heapify(times)
            self._times = times
        while times and (times[0][1] in self.withheld or not queue.holds(times[0][1])):
            heapq.heappop(times)
        return times[0][0] if times else math.inf

    # --- what can be asked ---

    def held_back(self) -> list[tuple[Event, Dot | None]]:
        """Return the events held to be offered, each with a dot that it waits for."""
        return [(e, dot) for e, dot in self.hold_back.held_back() if e.dot not in self.withheld]

    def pending(self) -> set[Dot]:
        """Return what was seen and may yet be offered: held back, or refused."""
        return {event.dot for event, _ in self.held_back()} | set(self.refused)

    def has_released(self, dot: Dot) -> bool:
        """Return whether an event that was pushed was released, as far as remembered."""
        return not (self.hold_back.holds(dot) or any(dot in run.losses for run in self.runs))

    # --- state ---

    @property
    def names(self) -> list[str]:
        """The names of its patterns, sorted."""
        return sorted(run.compiled.name for run in self.runs)

    @property
    def name(self) -> str:
        """What tells it from others: the first of its patterns' names."""
        return self.names[0]

    @property
    def kind(self) -> list[Any]:
        """What it shares with every queue that can go on from its state."""
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
        self.refused = {Dot(*dot): None for dot in refused}
