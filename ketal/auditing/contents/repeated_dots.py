"""Which events of a log repeat a dot: duplicates, and second events of other content.

An event of the dot and the content of an earlier one is a duplicate. One of other content belongs
to a node that started again, or contradicts the first; `ketal audit` says which. The counters of
each node are held as bits, the contents of the last `dots_max` events as digests, as in a run.

The one rule: an event is a duplicate if its content is that of the dot's first event, or if that
is not held any more and no other content of its node repeated a dot.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

from ketal.model.events.content import digest
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.sets.counter_sets import Counters

Status = Literal["new", "duplicate", "repeated"]


class _NodeDots:
    """The dots of one node in an execution."""

    __slots__ = ("beyond", "first", "repeated", "upto")

    def __init__(self) -> None:
        self.upto = 0
        self.beyond: Counters | None = None
        self.first: bytes | None = None  # digest of the event of counter 1
        self.repeated = False

    def seen(self, counter: int) -> bool:
        return counter <= self.upto or (self.beyond is not None and counter in self.beyond)


class RepeatedDots:
    """The dots that were seen.

    Attributes
    ----------
    cut : int
        How many events had a dot that is not held, as `counters_max` was reached.
    """

    def __init__(self, limits: Limits) -> None:
        self._counters_max = limits.counters_max
        self._digests_max = limits.dots_max
        self._nodes: dict[tuple[str, str], _NodeDots] = {}
        self._digests: dict[tuple[str, str, int], bytes] = {}
        self._oldest: deque[tuple[str, str, int]] = deque()
        self._beyond = 0
        self.cut = 0

    def status(self, execution: str, event: Event) -> Status:
        """Return what an event is, and record its dot."""
        node, counter = event.node, event.clock[event.node]
        dots = self._nodes.get((execution, node))
        if dots is None:
            if len(self._nodes) >= self._counters_max:
                self.cut += 1
                return "new"
            dots = self._nodes[execution, node] = _NodeDots()
        content = digest(event)
        if not dots.seen(counter):
            self._record(dots, counter)
            self._hold((execution, node, counter), content)
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
        if counter == dots.upto + 1 and not dots.beyond:
            dots.upto = counter
            return
        if counter > dots.upto + 1 and self._beyond >= self._counters_max:
            self.cut += 1
            return
        beyond = dots.beyond
        if beyond is None:
            beyond = dots.beyond = Counters(tracking=False)
        beyond.add(counter)
        self._beyond += 1
        before = dots.upto
        dots.upto = beyond.last_after(before)
        beyond.count -= dots.upto - before
        self._beyond -= dots.upto - before
        beyond.drop(dots.upto)

    def _hold(self, dot: tuple[str, str, int], content: bytes) -> None:
        self._digests[dot] = content
        self._oldest.append(dot)
        if len(self._oldest) > self._digests_max:
            del self._digests[self._oldest.popleft()]
