"""Missing dots: since when each is missing, also for patterns whose events are not held back.

A dot is missing if it is in the past of an event that arrived, and its own event has not arrived.
It is missing since the first event arrived that has it in its past, and is declared lost after
`gap`.

A hold-back queue itself knows which events have arrived. A `find any` without `not` is offered
events as they arrive, in any order, so no queue holds events back for it. Its `gap` means the same
as for every pattern: a dot whose event does not arrive in that time is declared lost and reported.
A match depends on its own events; but a run that timed out may have waited for just the event
that did not arrive. For such patterns `MissingDots` keeps two numbers a node: the counter up to
which clocks name its dots, and the counter up to which missing dots were declared lost. The
deduplication knows which events have arrived.

A finite log may be a filtered one, so a hole in its counters is only counted. With `gap` the
pattern asks for more: as no event follows, every hole (a dot that some clock names, or that is
below such a dot of its node, and that no event has) is lost, as at the end of a stream of the
same events.

The one rule: a dot is missing as long as it is in some clock's past and its event has not arrived,
declared lost or not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ClassVar, Final

from ketal.model.events.counter_sets import SeenCounters
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.event_time import microseconds
from ketal.operators.order.release_options import ReleaseOptions
from ketal.operators.order.step import ReleaseStep, StreamTime, holes_between, named_counters
from ketal.operators.stateful import Stateful
from ketal.operators.topology.domains import takes_part

_ROWS_LEAST: Final = 1_024


class MissingSince(Stateful):
    """Records since when the dots of a node, up to a counter, have been missing; longest first.

    `lacks` returns whether some dot of a node up to a counter is still missing.
    """

    STATE: ClassVar = ("_rows",)

    def __init__(
        self, options: ReleaseOptions, time: StreamTime, lacks: Callable[[str, int], bool]
    ) -> None:
        self._options = options
        self._time = time
        self._lacks = lacks
        self._rows: deque[tuple[int | None, str, int]] = deque()
        self._rows_max = _ROWS_LEAST

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, node: str, upto: int) -> None:
        """Record that dots of a node, up to a counter, are missing from now on.

        Where there are many records, those of dots that are not missing any more are evicted.
        """
        self._rows.append((self._time.now, node, upto))
        if len(self._rows) > self._rows_max:
            self.evict()

    def evict(self) -> None:
        """Evict the records of dots that are not missing any more."""
        self._rows = deque(row for row in self._rows if self._lacks(row[1], row[2]))
        self._rows_max = max(_ROWS_LEAST, 2 * len(self._rows))

    def oldest(self) -> tuple[str, int] | None:
        """Remove the record of the dots missing longest; return its node and counter."""
        while self._rows:
            node, upto = self.pop()
            if self._lacks(node, upto):
                return node, upto
        return None

    def pop(self) -> tuple[str, int]:
        """Remove the first record, of missing dots or not; return its node and counter."""
        _, node, upto = self._rows.popleft()
        return node, upto

    def overdue(self) -> tuple[str, int] | None:
        """Remove and return the dots missing longest, as `oldest` does, if `gap` has passed."""
        gap_us = self._options.gap_us
        while self._rows and gap_us is not None:
            since_us, node, upto = self._rows[0]
            missing = self._lacks(node, upto)
            if missing and not self._time.passed(since_us, gap_us):
                return None
            self._rows.popleft()
            if missing:
                return node, upto
        return None

    def remove_all(self) -> list[tuple[str, int]]:
        """Remove and return all records: node and counter."""
        rows, self._rows = self._rows, deque()
        return [(node, upto) for _, node, upto in rows]


class MissingDots(Stateful):
    """The dots that clocks name and whose events have not arrived.

    The owner of `arrived` updates it for an event before it pushes the event's clock. `nodes` are
    those of a closed topology, whose dots alone count; None: all nodes count. Beyond `waits_max`
    records of missing dots, the dots missing longest are declared lost.
    """

    STATE: ClassVar = "_time", "_known", "_declared", "_departed", "_since"

    def __init__(
        self,
        arrived: Mapping[str, SeenCounters],
        options: ReleaseOptions,
        nodes: frozenset[str] | None = None,
    ) -> None:
        self._options = options
        self._nodes = nodes
        self._arrived = arrived
        self._time = StreamTime(by_watermark=options.by_watermark)
        self._known: dict[str, int] = {}
        self._declared: dict[str, int] = {}  # up to here, missing dots were declared lost
        self._departed: dict[str, None] = {}
        self._since = MissingSince(options, self._time, self._lacks)

    def push(self, event: Event) -> ReleaseStep:
        """Take in a new event's clock; missing dots of a node that left are lost at once."""
        if (time_us := microseconds(event.time)) is not None:
            self._time.tick(time_us)
        step = ReleaseStep()
        own, known, arrived = event.node, self._known, self._arrived
        for node, counter in event.clock.items():
            needed = counter - 1 if node == own else counter
            if needed <= known.get(node, 0):
                continue
            # The missing dots up to one that arrived were recorded when it did.
            if (of_node := arrived.get(node)) is not None and needed in of_node:
                continue
            if not takes_part(node, self._nodes):
                continue
            known[node] = needed
            if node in self._departed:
                self._declare_lost(node, needed, step)
            else:
                self._since.add(node, needed)
        if len(self._since) > self._options.waits_max:
            self._give_up(step)
        return step

    def _give_up(self, step: ReleaseStep) -> None:
        """Make room for records, if necessary by a share of the waits that began first."""
        self._since.evict()
        rows_max = self._options.waits_max - self._options.waits_max // 16
        while len(self._since) > rows_max:
            node, upto = self._since.pop()
            if self._lacks(node, upto):
                self._declare_lost(node, upto, step)
                step.given_up += 1

    def begin(self, watermark_us: int | None) -> None:
        """Begin in the middle of an execution: the holes at this time are missing from now on."""
        if watermark_us is not None:
            self._time.advance(watermark_us)
        for node, arrived in sorted(self._arrived.items()):
            highest = arrived.beyond.highest()
            if highest and takes_part(node, self._nodes):
                self._known[node] = highest
                self._since.add(node, highest)

    def advance(self, watermark_us: int | None = None) -> ReleaseStep:
        """Declare lost the dots missing for too long, by events' times or a watermark."""
        if watermark_us is not None:
            self._time.advance(watermark_us)
        return self._declare_all_lost(iter(self._since.overdue, None))

    def join(self, node: str) -> ReleaseStep:
        """Mark a node as present."""
        self._departed.pop(node, None)
        return ReleaseStep()

    def leave(self, *nodes: str) -> ReleaseStep:
        """Mark nodes as gone: their missing dots are lost."""
        self._departed |= dict.fromkeys(nodes)
        return self._declare_all_lost((node, self._known.get(node, 0)) for node in nodes)

    def view(self, members: Iterable[str]) -> ReleaseStep:
        """Apply a membership view: all other nodes have left."""
        present = set(members)
        for node in present:
            self.join(node)
        named = {*self._known, *self._arrived}
        return self.leave(*sorted(named - present - self._departed.keys()))

    def end(self) -> ReleaseStep:
        """End the stream: all missing dots are lost."""
        return self._declare_all_lost(self._since.remove_all())

    def dots(self) -> Iterator[Dot]:
        """Yield the missing dots by node and counter; of a hole beyond `lost_max`, its ends."""
        for node in sorted(self._known):
            for first, last in self._holes(node, 0, self._known[node]):
                for counter in named_counters(first, last, self._options.lost_max):
                    yield Dot(node, counter)

    # --- holes ---

    def _lacks(self, node: str, upto: int) -> bool:
        """Return whether some dot up to a counter has not arrived and is not declared lost."""
        return any(True for _ in self._holes(node, self._declared.get(node, 0), upto))

    def _holes(self, node: str, above: int, upto: int) -> Iterator[tuple[int, int]]:
        """Return the holes beyond a counter and up to another: (first, last) counters."""
        arrived = self._arrived.get(node)
        if arrived is not None:
            return arrived.beyond.holes(max(arrived.upto, above) + 1, upto)
        return iter(((above + 1, upto),) if above < upto else ())

    def _declare_all_lost(self, dots: Iterable[tuple[str, int]]) -> ReleaseStep:
        """Declare lost the missing dots of nodes, each up to a counter."""
        step = ReleaseStep()
        for node, upto in dots:
            self._declare_lost(node, upto, step)
        return step

    def _declare_lost(self, node: str, upto: int, step: ReleaseStep) -> None:
        declared = self._declared.get(node, 0)
        if upto <= declared:
            return
        for first, last in self._holes(node, declared, upto):
            step.declare_lost(node, first, last, self._options.lost_max)
        self._declared[node] = upto

    @property
    def name(self) -> str:
        """A name that is unique in an execution: `gap` and the nodes whose dots count."""
        nodes = "every node" if self._nodes is None else " ".join(sorted(self._nodes))
        return f"{self._options.gap_us} {nodes}"


# --- a finite log ---


def holes(events: Iterable[Event]) -> Iterator[tuple[str, int, int]]:
    """Yield the holes of a finite execution: (node, first, last) counters of the missing dots."""
    known: dict[str, int] = {}
    there: dict[str, set[int]] = {}
    for event in events:
        there.setdefault(event.node, set()).add(event.clock[event.node])
        for node, counter in event.clock.items():
            if counter > known.get(node, 0):
                known[node] = counter
    for node in sorted(known):
        for first, last in holes_between(there.get(node, ()), 1, known[node]):
            yield node, first, last
