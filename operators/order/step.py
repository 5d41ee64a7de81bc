"""The result of one call to a hold-back queue, and the time of its stream.

A step releases events, declares dots lost, finds events late or refuses them. A hole is
a stretch of consecutive missing dots of one node. Of a hole of more than `lost_max` dots
the first and the last are named, and the others are counted.

The one rule: every dot that is declared lost is named or counted, once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.event_time import microseconds
from ketal.model.events.happened_before import CanonicalKey
from ketal.operators.stateful import Stateful


@dataclass(slots=True)
class ReleaseStep:
    """The result of one call, or of several consecutive arrivals."""

    released: list[Event] = field(default_factory=list)
    """In the order in which a pattern is offered them, their clocks restored."""
    gaps: list[Dot] = field(default_factory=list)  # declared lost, longest missing first
    late: list[Event] = field(default_factory=list)
    """Events whose place in the order has passed; they are not released."""
    refused: list[Event] = field(default_factory=list)
    """Events for which the full queue has no room."""
    given_up: int = 0
    """How many waits the full queue gave up (`overflow = lost`): a hole was declared lost, or,
    where there is none, an event was released before its turn."""
    unnamed: dict[Dot, int] = field(default_factory=dict)
    """For the first dot of a hole, how many dots of the hole `gaps` does not name."""
    raised: list[Dot] = field(default_factory=list)
    """The released events whose clocks were changed by restoring."""
    lowest_keys: dict[Dot, CanonicalKey] = field(default_factory=dict, compare=False)
    """For each lost dot, a lower bound of its place, where there is one order only (`total`)."""
    limit: str = field(default="", compare=False)
    """The limit that the search for the domains of an open topology exceeded, if any."""
    ends: list[int] = field(default_factory=list, compare=False)
    """For each arrival, the length of `released` after it was taken in."""

    @property
    def only_releases(self) -> bool:
        """Whether the step did nothing but release events."""
        others = self.late or self.gaps or self.refused or self.given_up
        return not (others or self.limit)

    def cut_first(self) -> ReleaseStep:
        """Remove from the step, and return, the releases of all arrivals but the last."""
        *ends, end = self.ends
        begin = ends[-1]
        first = ReleaseStep(self.released[:begin], ends=ends)
        self.released, self.ends = self.released[begin:], [end - begin]
        return first

    def declare_lost(
        self, node: str, first: int, last: int, lost_max: int, least: int | None = None
    ) -> None:
        """Name the dots of a hole of a node as lost, and count those that are not named.

        Of a hole of more than `lost_max` dots only the ends are named, and stand for all. Where
        there is one order only, `least` is a lower bound of the clock sum of the event before it.
        """
        named = named_counters(first, last, lost_max)
        unnamed = last - first + 1 - len(named)
        if unnamed:
            self.unnamed[Dot(node, first)] = unnamed
        for counter in named:
            dot = Dot(node, counter)
            self.gaps.append(dot)
            if least is not None:
                lowest = first if unnamed else counter
                self.lowest_keys[dot] = (least + 1 + lowest - first, node, lowest)


def named_counters(first: int, last: int, lost_max: int) -> range:
    """Return the counters of a hole that are named: all, or its ends if they are too many."""
    return range(first, last + 1, 1 if last - first < lost_max else last - first)


def holes_between(received: Collection[int], first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the holes of one node in a range of counters: first and last of each.

    `received` are the node's counters that are in no hole; those outside the range are ignored.
    """
    if last - first < len(received):
        there = [c for c in range(first, last + 1) if c in received]
    else:
        there = sorted(c for c in received if first <= c <= last)
    for counter in (*there, last + 1):
        if first < counter:
            yield first, counter - 1
        first = counter + 1


class StreamTime(Stateful):
    """The time of a stream: the largest event time so far, or watermark given.

    There is no wall clock. Before any time is known `now` is None; a wait that began
    then is counted from `first`, the first time that became known.

    If time goes `by_watermark`, only watermarks end waits. The largest event time may be far ahead
    of events that are still to be read; a wait begins at it all the same.
    """

    STATE: ClassVar = "first", "now", "watermark_us"

    def __init__(self, *, by_watermark: bool) -> None:
        self._by_watermark = by_watermark
        self.now: int | None = None
        self.first: int | None = None
        self.watermark_us: int | None = None  # the largest that was given

    def tick(self, time_us: int) -> None:
        """Advance to a time, if it is later."""
        if self.now is None:
            self.first = self.now = time_us
        elif time_us > self.now:
            self.now = time_us

    def pass_over(self, events: Iterable[Event]) -> None:
        """Advance to the largest time of some events."""
        times = [time for event in events if (time := event.time) is not None]
        for time in (times[0], max(times)) if times else ():
            time_us = microseconds(time)
            assert time_us is not None
            self.tick(time_us)

    def advance(self, watermark_us: int) -> None:
        """Advance to a watermark."""
        self.tick(watermark_us)
        if self.watermark_us is None or watermark_us > self.watermark_us:
            self.watermark_us = watermark_us

    @property
    def reached(self) -> int | None:
        """The time up to which waits have ended; None before any is known."""
        return self.watermark_us if self._by_watermark else self.now

    def passed(self, since_us: int | None, length_us: int) -> bool:
        """Return whether `length_us` has gone by since a moment (None: before any time)."""
        reached = self.reached
        if reached is None or self.first is None:
            return False
        return reached - (self.first if since_us is None else since_us) >= length_us
