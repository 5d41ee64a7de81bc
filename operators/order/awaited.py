"""What a stream has not seen and knows of, for patterns that wait for nothing (DESIGN 5).

A `find any` without `not` is offered events as they come, in any order, so no queue
holds anything back for it. Its `gap` means what it means to every pattern: a dot that
does not come in that time is a lost event, and named. A match stands on its own events;
but a run that ends in vain may have waited for just the dot that did not come.

So nothing is held here but two numbers a node: up to which counter clocks know of it,
and up to which what had not come was declared lost. What has come is the intake's to
say. Since when a dot is missing is counted as a hold-back queue counts it
(`ketal.operators.order.hold_back`): from the first event that has it in its past.

The one rule: a dot is awaited as long as some clock knows of it and it has not come,
declared lost or not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from ketal.model.counter_sets import Counters
from ketal.model.event import Dot, Event
from ketal.operators.order.released import Out, Step, StreamTime
from ketal.operators.topology.domains import home

_STEPS_LEAST = 1_024


class Arrivals(Protocol):
    """What has come: of each node all up to a counter, and those beyond."""

    @property
    def upto(self) -> Mapping[str, int]:
        """Up to which counter all came."""

    @property
    def beyond(self) -> Mapping[str, Counters]:
        """What came beyond."""


class Awaited:
    """The dots that clocks know of and that have not come.

    Parameters
    ----------
    arrived : Arrivals
        Kept by the owner, who takes in an event before it is noted here.
    gap_us : int
        After how much time a missing dot is declared lost.
    lost_max : int
        How many dots are named at most.
    nodes : frozenset of str or None
        Those of a closed topology, which are all that count; None: every node.
    """

    def __init__(
        self, arrived: Arrivals, gap_us: int, lost_max: int, nodes: frozenset[str] | None = None
    ) -> None:
        self.gap_us = gap_us
        self.lost_max = lost_max
        self.nodes = nodes
        self._arrived = arrived
        self._time = StreamTime()
        self._known: dict[str, int] = {}
        self._given: dict[str, int] = {}  # up to here, what had not come was declared lost
        self._away: dict[str, None] = {}
        self._steps: deque[tuple[int | None, str, int]] = deque()
        self._steps_max = _STEPS_LEAST

    def note(self, event: Event) -> Step:
        """Take in a new event's clock; what is missing of a node that left is lost at once."""
        if event.time_us is not None:
            self._time.tick(event.time_us)
        out = Out()
        own, known, upto = event.node, self._known, self._arrived.upto
        for node, counter in event.clock.items():
            needed = counter - 1 if node == own else counter
            if needed <= upto.get(node, 0) or needed <= known.get(node, 0):
                continue
            if self.nodes is not None and home(node) not in self.nodes:
                continue
            known[node] = needed
            if node in self._away:
                self._declare(node, needed, out)
            else:
                self._steps.append((self._time.now, node, needed))
        if len(self._steps) > self._steps_max:
            self._steps = deque(s for s in self._steps if self._lacks(s[1], s[2]))
            self._steps_max = max(_STEPS_LEAST, 2 * len(self._steps))
        return out.step()

    def begin(self, watermark_us: int | None) -> None:
        """Begin in the middle of an execution: holes below what has come are missing from now."""
        if watermark_us is not None:
            self._time.tick(watermark_us)
        for node, beyond in sorted(self._arrived.beyond.items()):
            highest = beyond.highest()
            if highest and (self.nodes is None or home(node) in self.nodes):
                self._known[node] = highest
                self._steps.append((self._time.now, node, highest))

    def advance(self, watermark_us: int | None = None) -> Step:
        """Declare lost what has been missing for too long, by events' times or a watermark."""
        if watermark_us is not None:
            self._time.tick(watermark_us)
        out, steps = Out(), self._steps
        while steps:
            since, node, upto = steps[0]
            if self._lacks(node, upto):
                if not self._time.passed(since, self.gap_us):
                    break
                self._declare(node, upto, out)
            steps.popleft()
        return out.step()

    def join(self, node: str) -> None:
        """Mark a node as present."""
        self._away.pop(node, None)

    def leave(self, node: str) -> Step:
        """Mark a node as gone: what is missing of it is lost."""
        return self._left([node])

    def view(self, members: Iterable[str]) -> Step:
        """Take a membership view: all other nodes are gone."""
        there = dict.fromkeys(members)
        for node in there:
            self.join(node)
        named = {*self._known, *self._arrived.upto, *self._arrived.beyond, *self._away}
        return self._left(sorted(named - there.keys()))

    def _left(self, nodes: Iterable[str]) -> Step:
        out = Out()
        for node in nodes:
            self._away[node] = None
            self._declare(node, self._known.get(node, 0), out)
        return out.step()

    def end(self) -> Step:
        """End the stream: every gap is over."""
        out = Out()
        for _, node, upto in self._steps:
            self._declare(node, upto, out)
        self._steps.clear()
        return out.step()

    def dots(self) -> Iterator[Dot]:
        """Yield what is awaited, by node and counter: of a hole longer than `lost_max` its ends."""
        for node in sorted(self._known):
            for first, last in self._holes(node, 0, self._known[node]):
                out = Out()
                out.lose(node, first, last, self.lost_max)
                yield from out.gaps

    # --- holes ---

    def _lacks(self, node: str, upto: int) -> bool:
        """Return whether some dot up to a counter has not come and is not declared lost."""
        return any(True for _ in self._holes(node, self._given.get(node, 0), upto))

    def _holes(self, node: str, above: int, upto: int) -> Iterator[tuple[int, int]]:
        """Return the holes beyond a counter and up to another: first and last."""
        arrived = self._arrived
        first = max(arrived.upto.get(node, 0), above) + 1
        beyond = arrived.beyond.get(node)
        if beyond is not None:
            return beyond.holes(first, upto)
        return iter(((first, upto),) if first <= upto else ())

    def _declare(self, node: str, upto: int, out: Out) -> None:
        given = self._given.get(node, 0)
        if upto <= given:
            return
        for first, last in self._holes(node, given, upto):
            out.lose(node, first, last, self.lost_max)
        self._given[node] = upto

    # --- state ---

    @property
    def name(self) -> str:
        """What tells it from others of one execution: whose dots count, and for how long."""
        nodes = "every node" if self.nodes is None else " ".join(sorted(self.nodes))
        return f"{self.gap_us} {nodes}"

    def state(self) -> Any:
        """Return the state as plain data."""
        return {
            "time": [self._time.first, self._time.now],
            "known": dict(self._known),
            "given": dict(self._given),
            "away": list(self._away),
            "steps": [list(step) for step in self._steps],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take on a state that `state` gave."""
        self._time.first, self._time.now = state["time"]
        self._known, self._given = dict(state["known"]), dict(state["given"])
        self._away = dict.fromkeys(state["away"])
        self._steps = deque((since, node, upto) for since, node, upto in state["steps"])
