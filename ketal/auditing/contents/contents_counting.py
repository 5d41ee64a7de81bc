"""`ketal.stats`: counts the contents of a log, in one pass and in bounded memory.

The concurrent pairs of events are counted from the clocks, as in an audit
(`ketal.auditing.log_statistics`): those of all events as long as their clocks have at most
`stats_entries_max` entries together, otherwise those of a sample. Each event draws a random number,
and the events with the lowest ones are kept: a uniform sample without replacement, of a size that
need not be known in advance (Vitter, "Random sampling with a reservoir", 1985).

The one rule: a record is an event, a duplicate, a control event or rejected, and counts once.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from heapq import heappop, heappush
from math import comb
from typing import Any

from ketal.auditing.contents.attribute_counts import (
    KEYS_MAX,
    AttributeCounts,
    AttributeTable,
    BoundedCounts,
    attribute_stats,
)
from ketal.auditing.contents.contents_report import LogStats
from ketal.auditing.contents.log_contents import ConcurrencyStats, LeftOut, TypeStats
from ketal.auditing.contents.message_pairs import MessageSearch
from ketal.auditing.contents.repeated_dots import RepeatedDots
from ketal.auditing.log_statistics import DotAndClock, ordered_pairs
from ketal.errors import at_place
from ketal.logs import Log
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.limits import DEFAULT, Limits
from ketal.model.log_arguments import deciding_log, has_no_clocks, records_of
from ketal.model.verdicts.execution_verdicts import Rejected

SEED = 17
"""The seed of all samples, so that the same log has the same sample."""


def stats(log: Log | Iterable[Event], *, limits: Limits = DEFAULT) -> LogStats:
    """Return the contents of a log: nodes, types, attributes, times, concurrency, messages.

    Parameters
    ----------
    log : Log or iterable of Event
        The events; the log is read once.
    limits : Limits
        `stats_types_max`, `stats_nodes_max`, `stats_attributes_max`, `stats_values_max`,
        `stats_pairs_max` and `stats_entries_max` bound the memory; `left_out` has how much each
        left out.

    Raises
    ------
    SettingError
        If the log cannot be read.
    TypeError
        If an argument has the wrong type.

    Examples
    --------
    >>> import ketal
    >>> push = ketal.Event(node="a", type="push", clock={"a": 1}, data={"value": 7})
    >>> pop = ketal.Event(node="b", type="pop", clock={"a": 1, "b": 1}, data={"value": 7})
    >>> top = ketal.Event(node="c", type="top", clock={"c": 1})
    >>> stats = ketal.stats([push, pop, top])
    >>> {one.type: [attribute.name for attribute in one.attributes] for one in stats.types}
    {'pop': ['value'], 'push': ['value'], 'top': []}
    >>> stats.concurrency.concurrent_pairs, stats.messages.types
    (2, {('push', 'pop'): 1})
    >>> print(stats)
    3 records = 3 events
    ...
    """
    return contents_of(log if has_no_clocks(log) else deciding_log(log), limits=limits)


def contents_of(log: Log | Iterable[Event], *, limits: Limits) -> LogStats:
    """Return the statistics of a log whose clocks may leave the order of some events open.

    Such clocks make the numbers of ordered pairs and of messages upper bounds. Without clocks there
    are none, and no events are compared.
    """
    counts = LogCounts(Limits.given(limits), has_clocks=not has_no_clocks(log))
    for execution, item, _, _ in records_of(log):
        counts.add(execution, item)
    return counts.to_stats()


class LogCounts:
    """The counts of the records read so far."""

    def __init__(self, limits: Limits, *, has_clocks: bool) -> None:
        self._limits = limits
        self._has_clocks = has_clocks
        self._events = self._duplicates = self._rejected = self._controls = self._repeated = 0
        self._first_rejected = ""
        self._executions: set[str] = set()
        self._timed = 0
        self._times: list[float] = []
        self._nodes: BoundedCounts[str] = BoundedCounts(limits.stats_nodes_max)
        self._types: BoundedCounts[str] = BoundedCounts(limits.stats_types_max)
        # By type; None for all types beyond the limit together.
        self._attributes_by_type: dict[str | None, dict[str, AttributeCounts]] = {}
        self._attributes = AttributeTable(limits)
        self._dots = RepeatedDots(limits)
        self._sample = _Sample(limits.stats_entries_max)
        self._messages = MessageSearch(limits)

    def add(self, execution: str, item: Event | Control | Rejected) -> None:
        """Count a record."""
        self._executions.add(execution)
        if isinstance(item, Control):
            self._controls += 1
        elif isinstance(item, Rejected):
            self._rejected += 1
            self._first_rejected = self._first_rejected or at_place(item.place, item.reason)
        else:
            status = self._dots.status(execution, item)
            if status == "duplicate":
                self._duplicates += 1
                return
            self._count_event(item)
            if status == "repeated":
                self._repeated += 1
            elif self._has_clocks:
                self._sample.add(execution, item)
                self._messages.add(execution, item)

    def _count_event(self, event: Event) -> None:
        self._events += 1
        self._nodes.add(event.node)
        self._types.add(event.type)
        counted_as = event.type if event.type in self._types.counts else None
        self._attributes.count(self._attributes_by_type.setdefault(counted_as, {}), event.data)
        time: Any = event.time
        if time is not None:
            self._timed += 1
            times = self._times or [time, time]
            self._times = [min(times[0], time), max(times[1], time)]

    def to_stats(self) -> LogStats:
        """Return the counts as `LogStats`."""
        # The counts of types beyond the limit come last.
        parts = sorted(self._attributes_by_type.items(), key=lambda part: part[0] is None)
        whole = self._attributes.merge_types(attributes for _, attributes in parts)
        return LogStats(
            events=self._events,
            duplicates=self._duplicates,
            rejected=self._rejected,
            controls=self._controls,
            first_rejected=self._first_rejected,
            repeated=self._repeated,
            executions=len(self._executions),
            timed=self._timed,
            first_time=self._times[0] if self._times else None,
            last_time=self._times[1] if self._times else None,
            nodes=self._nodes.most_common(),
            types=tuple(
                TypeStats(
                    type=name,
                    events=events,
                    attributes=tuple(attribute_stats(self._attributes_by_type[name], events)),
                )
                for name, events in self._types.most_common().items()
            ),
            attributes=tuple(attribute_stats(whole, self._events)),
            concurrency=self._sample.concurrency(),
            messages=self._messages.result(),
            left_out=tuple(self._left_out()),
        )

    def _left_out(self) -> list[LeftOut]:
        """Return the limits that were reached, with the numbers left out."""
        numbers = {
            "types": ("stats_types_max", self._types.not_counted),
            "nodes": ("stats_nodes_max", self._nodes.not_counted),
            "attributes": ("stats_attributes_max", self._attributes.not_counted),
            "message types": ("stats_pairs_max", self._messages.types.not_counted),
            "message nodes": ("stats_pairs_max", self._messages.nodes.not_counted),
            "dots": ("counters_max", self._dots.not_counted),
        }
        out = [
            LeftOut(what=table, limit=limit, most=getattr(self._limits, limit), number=number)
            for table, (limit, number) in numbers.items()
        ]
        deep = self._attributes.deep
        out.append(LeftOut(what="inner attributes", limit="KEYS_MAX", most=KEYS_MAX, number=deep))
        return [one for one in out if one.number]


class _Sample:
    """A uniform sample of events whose clocks have at most `entries_max` entries together."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._entries = self._events = 0
        self._draw = random.Random(SEED).random
        self._evicted = -1.0  # the lowest number that was evicted, negated
        # A max-heap of numbers, as they are negated; the place in the log breaks ties.
        self._heap: list[tuple[float, int, str, DotAndClock]] = []

    def add(self, execution: str, event: Event) -> None:
        """Offer an event."""
        self._events += 1
        number = -self._draw()
        if number < self._evicted:
            return  # though there may be room, if the clock that was evicted was a large one
        stamp = DotAndClock(event.node, event.clock[event.node], event.clock)
        heappush(self._heap, (number, self._events, execution, stamp))
        self._entries += len(stamp.clock)
        while self._entries > self._entries_max:
            self._evicted, _, _, stamp = heappop(self._heap)
            self._entries -= len(stamp.clock)

    def concurrency(self) -> ConcurrencyStats:
        """Return how many pairs of events of one execution in the sample are concurrent."""
        stamps: dict[str, list[DotAndClock]] = {}
        for _, _, execution, stamp in self._heap:
            stamps.setdefault(execution, []).append(stamp)
        pairs = sum(comb(len(part), 2) for part in stamps.values())
        ordered = sum(map(ordered_pairs, stamps.values()))
        return ConcurrencyStats(
            events=len(self._heap),
            of=self._events,
            concurrent_pairs=pairs - ordered,
            ordered_pairs=ordered,
            seed=None if len(self._heap) == self._events else SEED,
        )
