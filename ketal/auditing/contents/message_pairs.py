"""Messages of a log, as its clocks show them: which event learned of which event of another node.

An event whose clock has a higher entry of another node than its node's event before has received
a message, directly or through others. It came from each event of another node that happened
immediately before it: one that it newly knows, and that no other newly known event knows. These are
the edges of the Hasse diagram of happened-before between nodes (Mattern, "Virtual time and global
states of distributed systems", 1989). A program that logs more than its messages has other events
at the ends: the last event that the sender logged, and the first that the receiver did.

An event is judged when as many entries of clocks have come after it as are stored of before.

The one rule: a receive counts only if the event before it and all that it newly knows are stored.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ketal.auditing.contents.attribute_counts import BoundedCounts
from ketal.auditing.contents.log_contents import MessageStats
from ketal.clocks.vector import maximal_events
from ketal.model.events.event import Event
from ketal.model.limits import Limits

_Dot = tuple[str, str, int]
"""Execution, node, counter."""


class _Stored(NamedTuple):
    type: str
    clock: dict[str, int]


class MessageSearch:
    """Finds the messages among the events of a log, in any order."""

    def __init__(self, limits: Limits) -> None:
        self._entries_max = limits.stats_entries_max
        self._stored: dict[_Dot, _Stored] = {}
        self._unjudged: deque[_Dot] = deque()
        self._judged: deque[_Dot] = deque()
        self._entries = self._unjudged_entries = 0
        self.types: BoundedCounts[tuple[str, str]] = BoundedCounts(limits.stats_pairs_max)
        self.nodes: BoundedCounts[tuple[str, str]] = BoundedCounts(limits.stats_pairs_max)
        self._receives = self._pairs = self._unknown = 0

    def add(self, execution: str, event: Event) -> None:
        """Add an event; of a dot that is stored already the first stands."""
        dot = (execution, event.node, event.clock[event.node])
        if dot in self._stored:
            return
        self._stored[dot] = _Stored(event.type, event.clock)
        self._unjudged.append(dot)
        self._entries += len(event.clock)
        self._unjudged_entries += len(event.clock)
        while self._unjudged_entries > self._entries_max // 2:
            self._judge_oldest()
        while self._entries > self._entries_max and self._judged:
            self._entries -= len(self._stored.pop(self._judged.popleft()).clock)

    def found(self) -> MessageStats:
        """Judge the events that are left; return what was found."""
        while self._unjudged:
            self._judge_oldest()
        return MessageStats(
            receives=self._receives,
            pairs=self._pairs,
            unknown=self._unknown,
            types=self.types.common(),
            nodes=self.nodes.common(),
        )

    def _judge_oldest(self) -> None:
        dot = self._unjudged.popleft()
        self._judged.append(dot)
        execution, node, counter = dot
        type, clock = self._stored[dot]
        self._unjudged_entries -= len(clock)
        if len(clock) == 1:
            return
        before = self._stored.get((execution, node, counter - 1)) if counter > 1 else _NOTHING
        if before is None:
            self._unknown += 1
            return
        old = before.clock
        new = [(name, v) for name, v in clock.items() if name != node and v > old.get(name, 0)]
        stored = {sent: self._stored.get((execution, *sent)) for sent in new}
        known = {sent: event for sent, event in stored.items() if event is not None}
        if len(known) < len(new):
            self._unknown += 1
        elif known:
            self._receives += 1
            for sent in maximal_events({sent: event.clock for sent, event in known.items()}):
                self._pairs += 1
                self.types.add((known[sent].type, type))
                self.nodes.add((sent[0], node))


_NOTHING = _Stored("", {})
