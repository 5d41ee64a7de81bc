"""The messages that a log's clocks imply: which event learned of which event of another node.

An event whose clock has a higher entry of another node than its predecessor's has received a
message, directly or through others. The message came from each event of another node that happened
immediately before: one that is newly known, and that no other newly known event knows. These pairs
are the edges of the Hasse diagram of happened-before between nodes (Mattern, "Virtual time and
global states of distributed systems", 1989). If a program logs other events than its sends and
receives, the ends are the last event that the sender logged and the first that the receiver logged.

A window of events is stored, bounded by the entries of their clocks. An event is judged when half
of these entries belong to events read after it, so both earlier and later senders are found.

The one rule: a receive is counted only if its predecessor and all newly known events are stored.
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
    """Finds the messages among the events of a log, which may be in any order."""

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
        """Add an event; it is ignored if its dot is stored already."""
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

    def result(self) -> MessageStats:
        """Judge the remaining events; return the messages."""
        while self._unjudged:
            self._judge_oldest()
        return MessageStats(
            receives=self._receives,
            pairs=self._pairs,
            unknown=self._unknown,
            types=self.types.most_common(),
            nodes=self.nodes.most_common(),
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
