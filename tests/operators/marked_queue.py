"""A hold-back queue whose steps mark each released event with the losses in its past.

A pattern gets these marks from `Losses`, which its runs feed with the queue's gaps and late events.
Here one `Losses` is fed in the same way for a queue alone, so that both can be compared with the
definitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any, NamedTuple

from ketal.engine.losses import ANY, Losses
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.operators.order.hold_back import HoldBackQueue
from ketal.operators.order.release_options import ReleaseOptions
from ketal.operators.order.step import ReleaseStep
from ketal.operators.topology.domain_order import DomainPast


class Released(NamedTuple):
    """A released event, and the dots of its past that are known to be missing."""

    event: Event
    after: Set[Dot] = frozenset()


class MarkedQueue:
    """A queue, and the losses that its steps report."""

    def __init__(self, domains: DomainPast | None = None, **options: Any) -> None:
        self.queue = HoldBackQueue(ReleaseOptions(**options), domains)
        self.losses = Losses(self.queue.options.lost_max)
        self.high_water = 0

    def __len__(self) -> int:
        return len(self.queue)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the queue."""
        return getattr(self.queue, name)

    @property
    def lost(self) -> frozenset[Dot]:
        return frozenset(self.losses.dots())

    # The steps contain `Released` instead of events.

    def push(self, event: Event) -> Any:
        step = self._marked(self.queue.push(event))
        self.high_water = max(self.high_water, len(self.queue))
        return step

    def advance(self, watermark_us: int) -> Any:
        return self._marked(self.queue.advance(watermark_us))

    def leave(self, node: str) -> Any:
        return self._marked(self.queue.leave(node))

    def view(self, members: Iterable[str]) -> Any:
        return self._marked(self.queue.view(members))

    def end(self) -> Any:
        return self._marked(self.queue.end())

    def _marked(self, step: ReleaseStep) -> Any:
        for dot in step.gaps:
            self.losses.miss(dot)
        # A refused event stays missing, and is waited for, unless the order goes by time.
        by_time = self.queue.options.policy == "frontier"
        for event in (*step.late, *(step.refused if by_time else ())):
            self.losses.miss_event(event, ANY)
        before = [self.losses.missed_before((), [event.clock]) for event in step.released]
        marked: Any = list(map(Released, step.released, map(frozenset, before)))
        step.released = marked
        return step
