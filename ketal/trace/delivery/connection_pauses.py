"""Pauses the logs that are read ahead while many events are held back (`read_ahead`).

While the connection of a log is not read, TCP lets its sender wait, which loses nothing. Those of
sinks are never paused: their unsent events are in memory only, and lost at the end of the program.

The one rule: a log is paused only for logs that are not read up to their announced size, and that
sent lines within the last `PATIENCE_S`. Otherwise an event that is lost would stop the reading of a
log for as long as another one grows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from socket import socket

from ketal.model.limits import DEFAULT
from ketal.model.log_arguments import LogItem
from ketal.operators.order.hold_back import HoldBackQueue
from ketal.runtime.monitor import Monitor, fullest_queue
from ketal.runtime.read_ahead import PATIENCE_S, ReadPositions, is_crowded
from ketal.trace.feeding import Feedable

PORTION_SHARE = 0.01
"""The share of `held_back_max` that may be fed before it is decided again which logs are paused."""
STARTING_S = 1.0
"""How long a collector that has just started waits for more senders to connect."""
PAUSE_S = 1.0
"""How long a paused connection waits, unless it is resumed, before it asks again."""


class ConnectionPauses:
    """The open connections of the logs that a collector reads, and which of them are paused.

    The lock of the monitor must be held while a method other than `wait` is called.
    """

    def __init__(self, monitor: Feedable) -> None:
        # The events that other objects hold back, if any, are not known.
        self._monitor = monitor if isinstance(monitor, Monitor) else None
        self._positions = ReadPositions[socket | None](DEFAULT.nodes_max)
        self._sent_s: dict[socket | None, float] = {}
        """When each connection that is behind had lines that were not fed yet, or was opened."""
        self._started_s = time.monotonic()
        self._paused: set[socket] = set()
        self._resumed: dict[socket, threading.Event] = {}
        """For each connection what is set when it is resumed."""
        self._decided_s = 0.0
        """When it was decided last which logs are paused."""
        self._portion = 0
        """How many lines may be fed until it is decided again."""

    def open(self, connection: socket) -> None:
        """Add the connection of a log."""
        self._sent_s[connection] = time.monotonic()
        self._resumed[connection] = threading.Event()

    def catch_up(self, connection: socket) -> None:
        """Wait for a connection no longer: its log is read up to the size that was announced."""
        if self._sent_s.pop(connection, None) is not None:
            self._pause(set())  # it is decided anew without it

    def close(self, connection: socket) -> None:
        """Remove a connection, if it is that of a log."""
        if connection in self._resumed:
            self._pause(set())  # it is decided anew without it
            self._sent_s.pop(connection, None)
            del self._resumed[connection]
            self._positions.forget(connection)

    def record(self, connection: socket, items: Sequence[LogItem]) -> None:
        """Record lines of a connection that were fed."""
        self._positions.record(connection, items)
        self._portion -= len(items)

    def portion(self, connection: socket) -> int | None:
        """Return how many of a connection's lines may be fed now, None for all; 0 if it is paused.

        The connection has lines that are not fed yet.
        """
        if self._monitor is None or connection not in self._resumed:
            return None
        queue = fullest_queue(self._monitor)
        if queue is None:
            return None
        now_s = time.monotonic()
        if connection in self._sent_s:
            self._sent_s[connection] = now_s
        if self._portion <= 0 or now_s >= self._decided_s + PAUSE_S:
            self._pause(self._ahead(queue, now_s))
            self._decided_s = now_s
            self._portion = max(1, int(queue.options.held_back_max * PORTION_SHARE))
        return 0 if connection in self._paused else self._portion

    def _ahead(self, queue: HoldBackQueue, now_s: float) -> set[socket]:
        """Return the logs to pause."""
        if not is_crowded(queue, are_waiting=bool(self._paused)):
            return set()
        unread = {one for one, time_s in self._sent_s.items() if time_s > now_s - PATIENCE_S}
        if now_s < self._started_s + STARTING_S:
            unread.add(None)  # one that is not open yet
        return self._resumed.keys() & self._positions.ahead(queue, unread)

    def _pause(self, connections: set[socket]) -> None:
        """Pause these connections, and resume the others."""
        for one in connections - self._paused:
            self._resumed[one].clear()
        for one in self._paused - connections:
            self._resumed[one].set()
        self._paused = connections

    def wait(self, connection: socket) -> None:
        """Wait until a paused connection is resumed, for `PAUSE_S` at most."""
        self._resumed[connection].wait(PAUSE_S)
