"""The queue of patterns whose answer needs no order, once a node has left.

While clocks are whole, events of such patterns do not wait. Once a node has left, an event whose
clock may lack the entry of that node waits until the clock is restored. No event is late for these
patterns, and none is refused.

The one rule: an event is offered to a run once, when its clock cannot be restored any further.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ketal.engine.losses import ANY, Losses
from ketal.engine.pattern_run import PatternRun
from ketal.engine.verdict_building import flat
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.verdicts.verdict_kinds import Numbered, Verdict
from ketal.operators.membership.clock_memory import SeenDots
from ketal.operators.membership.clock_restoration import Restorer, present_order
from ketal.operators.order.release_options import ReleaseOptions
from ketal.operators.order.step import ReleaseStep
from ketal.operators.topology.domain_order import DomainPast
from ketal.operators.topology.domains import closed_nodes, takes_part
from ketal.runtime.queues.pattern_queues import PatternQueue
from ketal.runtime.queues.reports import Reports


class RestoringQueue(PatternQueue):
    """A queue in which events wait for whole clocks, for patterns that need no order.

    They wait as long as the options of the order allow; under a closed topology only for events of
    its nodes, since no others are admitted.
    """

    ordered = False

    def __init__(
        self, runs: list[PatternRun], limits: Limits, options: ReleaseOptions, restorer: Restorer
    ) -> None:
        super().__init__(runs, limits, options)
        self._restorer = restorer
        self._losses = Losses(limits.lost_max)
        self.hold_back.restore_clocks(restorer)

    def _domains(self) -> DomainPast | None:
        if self._topology is None or self._topology.open:
            return None
        return DomainPast(self._topology, self._limits, whole=True)

    def push_offered(self, seen: SeenDots, offered: Iterable[Event]) -> None:
        """Push events that were offered with clocks that may be too low, to learn if they were.

        `seen` has all other events.
        """
        nodes = closed_nodes(self._topology)
        self.hold_back.begin(seen)
        for event in offered:
            if takes_part(event.node, nodes):
                self.withheld.add(event.dot)
                self._apply(self.hold_back.push(event))

    def _offer(self, event: Event) -> list[Verdict]:
        return flat(self._dispatch.process((event,)))

    def take(
        self, events: Sequence[Event], out: list[Verdict], *, withheld: bool
    ) -> Iterator[ReleaseStep]:
        """Push one event, and offer it at once if its clock is whole.

        Once a node has left, events are passed on one by one.
        """
        (event,) = events
        if not withheld:
            restored = self._restorer.last_restored(event)
            if not self._restorer.may_be_low(restored, event):
                self.withheld.add(event.dot)
                out += self._offer(restored)
                events = (restored,)
        return super().take(events, out, withheld=withheld)

    def _miss_event(self, event: Event) -> None:
        super()._miss_event(event)
        self._losses.miss_event(event, ANY)

    def apply(self, step: ReleaseStep, reports: Reports) -> list[Numbered]:
        """Offer the released events of a step, and its late and refused events too."""
        return [(0, self._apply(step))]

    def _apply(self, step: ReleaseStep) -> list[Verdict]:
        for dot in step.gaps:
            self._losses.miss(dot)
        for event in step.late:
            self._losses.miss_event(event, ANY)
        out: list[Verdict] = []
        raised = set(step.raised)
        for event in step.released:
            if self._is_offered(event, changed=event.dot in raised):
                lost = self._losses.missed_before((), [event.clock])
                if lost and self._restorer.may_be_low(event):
                    # Its clock may be too low, so it does not show which losses affect a match.
                    for run in self.runs:
                        run.losses.past_matters = True
                        for dot in lost:
                            run.miss(dot)
                out += self._offer(event)
        restorer = self._restorer
        out += self._offer_unrestored([*step.late, *step.refused], restorer.restore_at_once)
        for event in step.refused:
            self._losses.miss_event(event, ANY)
        return out

    def _offer_unrestored(
        self, events: Sequence[Event], restore: Callable[[Event], Event]
    ) -> list[Verdict]:
        """Offer events that wait no longer, with the clocks that `restore` returns."""
        out: list[Verdict] = []
        for event in events:
            restored = restore(event)
            if self._is_offered(event, changed=restored is not event):
                out += self._offer(restored)
        return out

    def _is_offered(self, event: Event, *, changed: bool) -> bool:
        """Return whether to offer a released event; count an event that had a clock too low.

        An event that was offered at once is not offered again; if its clock has `changed` since,
        it was offered with a clock that was too low.
        """
        if not self._pop_withheld(event):
            return True
        if changed and event.dot not in self._losses:  # a lost event was late, and never offered
            self._restorer.count_doubtful(event)
        return False

    def end(self) -> list[Verdict]:
        """Offer the events that are still held, as in a finite log: holes hold nothing back."""
        held = present_order(self.hold_back.drop_held())
        return self._offer_unrestored(held, self._restorer.restore)

    def save(self, number: Callable[[Event], int]) -> dict[str, Any]:
        """Return the state as plain data; refused events are saved separately."""
        return {**super().save(number), "losses": self._losses.save()}

    def load(
        self, state: Mapping[str, Any], events: Sequence[Event], refused: Iterable[Any]
    ) -> None:
        """Load what `save` returned."""
        super().load(state, events, refused)
        self._losses.load(state["losses"])
