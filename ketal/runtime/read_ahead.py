"""Back-pressure: which sources of events should wait, since they are read ahead of others.

Of several sources that are read side by side, such as the partitions of a topic or the connections
of a collector, a short one would be read to its end while a long one has just begun. Its events
then wait for events that are not read yet, and are given up when `held_back_max` of them wait. So
when a hold-back queue is half full, only the sources with the fewest events in it are read, until
it is down to a quarter. This needs no times: a source that others wait for has few events held
back, since it is behind. Under `total` it may have some, which wait for their turn, so what would
be held back of sources that are read alike should be well below half of the limit.

Cost: finding the events held back of each source takes O(nodes with held events, and nodes read).

The one rule: of the sources that have unread events, one that has the fewest held back is read.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Generic, TypeVar

from ketal.model.values import base_node
from ketal.operators.order.hold_back import HoldBackQueue

S = TypeVar("S")

PAUSE_SHARE, RESUME_SHARE = 0.5, 0.25
"""The shares of `held_back_max` above which sources wait, and below which all are read again."""
PATIENCE_S = 1.0
"""How long a source that returns no events may be waited for without asking whether it has any."""


def is_crowded(queue: HoldBackQueue | None, *, are_waiting: bool) -> bool:
    """Return whether a queue is too full for reading all sources.

    `are_waiting` is whether sources wait already.
    """
    if queue is None:
        return False
    return len(queue) > queue.options.held_back_max * (RESUME_SHARE if are_waiting else PAUSE_SHARE)


class ReadPositions(Generic[S]):
    """The last event that was read of each node from each source.

    Parameters
    ----------
    nodes_max : int
        Maximum number of nodes of a source; beyond it, those of the source are forgotten, and it
        counts as behind until they are read again.
    """

    def __init__(self, nodes_max: int) -> None:
        self._nodes_max = nodes_max
        self._last_read: defaultdict[S, dict[str, int]] = defaultdict(dict)

    def record(self, source: S, counters: Mapping[str, int]) -> None:
        """Record the counters of the last events that were read of some nodes from a source."""
        last_read = self._last_read[source]
        last_read |= counters
        if len(last_read) > self._nodes_max:
            last_read.clear()

    def is_behind(self, source: S, known: Mapping[str, int]) -> bool:
        """Return whether `known`, counters of nodes, includes later events of nodes of a source."""
        last_read = self._last_read.get(source, {})
        return any(known.get(node, 0) > last for node, last in last_read.items())

    def forget(self, source: S) -> None:
        """Forget a source that is not read any more."""
        self._last_read.pop(source, None)

    def held(self, queue: HoldBackQueue | None) -> Iterator[tuple[S, str, int, int]]:
        """Yield each source and node of held events, the last one read, and how many at most.

        Those of a node in several sources may be in each that was read beyond what is settled.
        """
        # An event that only numbers its incarnation has the node's own name.
        by_name: defaultdict[str, list[tuple[str, int, int]]] = defaultdict(list)
        for node, settled, count in () if queue is None else queue.held_by_node():
            for name in {node, base_node(node)}:
                by_name[name].append((node, settled, count))
        for source, last_read in self._last_read.items():
            held: dict[str, tuple[int, int]] = {}
            for name in sorted(by_name.keys() & last_read.keys()):
                last = last_read[name]
                for node, settled, count in by_name[name]:
                    if last > max(settled, held.get(node, (0, 0))[0]):
                        held[node] = last, min(count, last - settled)
            for node, (last, count) in held.items():
                yield source, node, last, count

    def ahead(self, queue: HoldBackQueue | None, unread: Collection[S]) -> set[S]:
        """Return the sources that have more events held back than one of those that are unread."""
        held: Counter[S] = Counter()
        for source, _, _, count in self.held(queue):
            held[source] += count
        least = min([held[source] for source in unread], default=sys.maxsize)
        return {source for source, count in held.items() if count > least}
