"""`CausalOrder`: an event is released as soon as it is causally ready; ties by arrival.

Each waiting event is indexed by one dot that is not settled, so an arrival costs
work only for what it releases.

`Within` is the same under a topology (`ketal.operators.topology.domain_order`): an event
waits for the entries of its clock that its `Reach` reads. These become more when
a dot is declared lost that the clock names, for what the lost event would have
waited for is then waited for here, and when a newcomer makes domains grow.

Clocks that know each other in a circle are no execution: such events wait for
each other, until the end or until a full queue gives them up.

The one rule: what is held waits for something that is missing, or in a circle.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

from ketal.model.event import Event
from ketal.operators.order.hold_back import Queue, Settings
from ketal.operators.order.node_progress import Held, Line
from ketal.operators.order.released import Out, StreamTime
from ketal.operators.topology.domain_order import Reach


class Eager(Queue):
    """Releases an event as soon as it is causally ready; ties by arrival."""

    def __init__(self, settings: Settings, time: StreamTime) -> None:
        super().__init__(settings, time)
        self._ready: list[Held] = []

    def _admit(self, line: Line, event: Event, out: Out) -> None:
        unsettled = self._unsettled(event)
        if unsettled is None:
            self._arrivals += 1
            heapq.heappush(self._ready, Held(self._arrivals, event))
        elif self.count >= self.settings.held_back_max and not self.settings.lose:
            out.refused.append(event)
        else:
            self._wait(unsettled, self._hold(line, event))
            self._refer(event)

    def _rehold(self, line: Line, event: Event) -> None:
        unsettled = self._unsettled(event)
        assert unsettled is not None
        self._wait(unsettled, self._hold(line, event))

    def _awake(self, held: Held) -> None:
        unsettled = self._unsettled(held.event)
        if unsettled is None:
            heapq.heappush(self._ready, held)
        else:
            self._wait(unsettled, held)

    def _drain(self, out: Out) -> None:
        while self._ready:
            self._release(heapq.heappop(self._ready).event, out)

    def _relieve(self, out: Out) -> None:
        while self._steps:
            _, node, upto = self._steps.popleft()
            if self._lines[node].reach < upto:
                self._declare(node, upto, out)
                return
        # What is held for nothing missing has a clock that is in a circle, or behind one.
        held = min(held for line in self._lines.values() for held in line.held.values())
        line = self._lines[held.event.node]
        self._release(line.held[min(line.held)].event, out)


class Within(Eager):
    """Releases an event as soon as the part of its past is settled that its domains read."""

    def __init__(self, settings: Settings, time: StreamTime, reach: Reach) -> None:
        super().__init__(settings, time)
        self.reach: Reach = reach
        # The held events that name a dot, read or not, by their arrival: node, counter, arrival.
        self._naming: dict[str, dict[int, dict[int, Held]]] = {}
        self._widened: list[Held] = []

    def widen(self) -> None:
        """Look again at what is held, as domains have grown: it may wait for more."""
        self._widened = sorted(
            (held for line in self._lines.values() for held in line.held.values()),
            key=lambda held: held.arrival,
        )

    def _admit(self, line: Line, event: Event, out: Out) -> None:
        for node in event.clock:
            self._line(node)  # known to be there, waited for or not
        super()._admit(line, event, out)

    def _hold(self, line: Line, event: Event) -> Held:
        held = super()._hold(line, event)
        for node, counter in event.clock.items():
            named = self._naming.setdefault(node, {}).setdefault(counter, {})
            named[held.arrival] = held
        return held

    def _release(self, event: Event, out: Out) -> None:
        held = self._lines[event.node].held.get(event.clock[event.node])
        if held is not None:
            for node, counter in event.clock.items():
                counters = self._naming[node]
                del counters[counter][held.arrival]
                if not counters[counter]:
                    del counters[counter]
                if not counters:
                    del self._naming[node]
        super()._release(event, out)

    def _declared(self, node: str, first: int, last: int) -> None:
        self.reach.note_lost(node, first, last)
        named = self._naming.get(node, {})
        if last - first < len(named):
            lost = [c for c in range(first, last + 1) if c in named]
        else:
            lost = sorted(c for c in named if first <= c <= last)
        self._widened += [held for counter in lost for held in named[counter].values()]

    def _drain(self, out: Out) -> None:
        super()._drain(out)
        while self._widened:
            widened, self._widened = self._widened, []
            for held in sorted(widened, key=lambda held: held.arrival):
                event = held.event
                if self._lines[event.node].held.get(event.clock[event.node]) is held:
                    self._give_up_the_away(event, out)
                    self._refer(event)
            super()._drain(out)

    def state(self, number: Callable[[Event], int]) -> dict[str, Any]:
        """Return the state as plain data."""
        return {**super().state(number), "lost": self.reach.state()}

    def restore(self, state: dict[str, Any], events: Sequence[Event]) -> None:
        """Take on a state that `state` gave."""
        self.reach.restore(state["lost"])
        super().restore(state, events)
