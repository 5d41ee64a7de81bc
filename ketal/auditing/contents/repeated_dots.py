"""Finds the events of a log that repeat a dot: duplicates, and events with other content.

An event with the dot and the content of an earlier one is a duplicate. One with other content
belongs to a node that restarted, or contradicts the first; `ketal audit` tells which. The counters
of each node are stored as bits, the contents of the last `dots_max` events as digests, as in a run.

The one rule: an event is a duplicate if its content is that of the dot's first event, or if that
content has been evicted and no event of its node has repeated a dot with other content.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Literal

from ketal.model.events.content import digest
from ketal.model.events.counter_sets import Counters
from ketal.model.events.event import Event
from ketal.model.limits import Limits

Status = Literal["new", "duplicate", "repeated"]


@dataclass(slots=True)
class _NodeDots:
    """The dots of one node in an execution, and the digest of its event of counter 1."""

    upto: int = 0
    beyond: Counters = field(default_factory=lambda: Counters(tracking=False))
    first: bytes | None = None
    repeated: bool = False


class RepeatedDots:
    """The dots seen so far."""

    def __init__(self, limits: Limits) -> None:
        self._counters_max = limits.counters_max
        self._digests_max = limits.dots_max
        self._nodes: dict[tuple[str, str], _NodeDots] = {}
        self._digests: OrderedDict[tuple[str, str, int], bytes] = OrderedDict()
        self._beyond = 0
        self.not_counted = 0  # how many events had a dot that was not stored (`counters_max`)

    def status(self, execution: str, event: Event) -> Status:
        """Return whether an event is new, a duplicate or repeated, and record its dot."""
        node, counter = event.node, event.clock[event.node]
        dots = self._nodes.get((execution, node))
        if dots is None:
            if len(self._nodes) >= self._counters_max:
                self.not_counted += 1
                return "new"
            dots = self._nodes[execution, node] = _NodeDots()
        content = digest(event)
        if counter > dots.upto and counter not in dots.beyond:
            self._record(dots, counter)
            self._digests[execution, node, counter] = content
            if len(self._digests) > self._digests_max:
                self._digests.popitem(last=False)
            if counter == 1:
                dots.first = content
            return "new"
        stored = self._digests.get((execution, node, counter))
        if stored is None and counter == 1:
            stored = dots.first
        if stored is None:
            return "repeated" if dots.repeated else "duplicate"
        if stored == content:
            return "duplicate"
        dots.repeated = True
        return "repeated"

    def _record(self, dots: _NodeDots, counter: int) -> None:
        beyond, before = dots.beyond, dots.upto
        if counter == before + 1 and not beyond:
            dots.upto = counter
            return
        if counter > before + 1 and self._beyond >= self._counters_max:
            self.not_counted += 1
            return
        beyond.add(counter)
        dots.upto = beyond.last_after(before)
        self._beyond += 1 - (dots.upto - before)
        beyond.count -= dots.upto - before
        beyond.drop(dots.upto)
