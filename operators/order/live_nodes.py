"""The nodes of a stream that are live, and those that have left.

Declared nodes are live from the beginning, every other node from its first event. A node
leaves by a `leave`, by a view without it, or by idle time; only a node that left by idle time is
live again once it is active.

The one rule: a node is live, has left, or was never active.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import ClassVar

from ketal.operators.order.step import StreamTime
from ketal.operators.stateful import Stateful


class LiveNodes(Stateful):
    """The live nodes, with the time when each was active last, and those that left.

    The declared nodes are live from the beginning. A node that is silent for `idle_us`,
    unless that is None, has left.
    """

    STATE: ClassVar = "active", "departed"

    def __init__(self, declared: Iterable[str], time: StreamTime, idle_us: int | None) -> None:
        self.departed: dict[str, bool] = {}
        """The nodes that left, and whether a node is live again once it is active."""
        self._time = time
        self._idle_us = idle_us
        self.active: OrderedDict[str, int | None] = OrderedDict.fromkeys(declared)
        """The live nodes, and when each was active last (None: before any time), oldest first."""

    def activate(self, node: str) -> bool:
        """Mark a node as active; return whether that made it live.

        A node that a `leave` removed needs a `join` to be live again.
        """
        if node in self.active:
            if self._idle_us is not None:
                self.active[node] = self._time.now
                self.active.move_to_end(node)
            return False
        if not self.departed.get(node, True):
            return False
        self.departed.pop(node, None)
        self.active[node] = self._time.now
        return True

    def leave(self, node: str, *, returns: bool) -> None:
        """Mark a node as gone; `returns` is whether it is live again once it is active."""
        self.active.pop(node, None)
        self.departed[node] = returns

    def idle(self) -> str | None:
        """Return the node that has been silent longest, if that is too long; otherwise None."""
        if self._idle_us is None or not self.active:
            return None
        node, active_us = next(iter(self.active.items()))
        return node if self._time.passed(active_us, self._idle_us) else None

    def restart(self, declared: Iterable[str], arrived: Collection[str]) -> None:
        """Count idle time from now on; keep the nodes that are declared or had an event."""
        declared = dict.fromkeys(declared)
        nodes = [n for n in {**self.active, **declared} if n in arrived or n in declared]
        present = [node for node in nodes if node not in self.departed]
        self.active = OrderedDict.fromkeys(present, self._time.now)
