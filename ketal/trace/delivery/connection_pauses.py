"""Pauses the logs that are read ahead while many events are held back (`read_ahead`).

While the connection of a log is not read, TCP lets its sender wait; what is unsent at the end of
the program stays in its file. Connections of sinks are never paused: their unsent events are in
memory only, and lost at the end.

A log is paused only for connections that have more to send: a log that is not read up to its
announced size, or events that others know. For those that have sent all, or because an event was
lost, reading must not stop.

The one rule: a log is paused only for connections that sent lines within the last `PATIENCE_S`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from socket import socket

from ketal.model.events.event import Event
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
    """The open connections of a collector, and which of the logs among them are paused.

    The lock of the monitor must be held while a method other than `wait` is called.
    """

    def __init__(self, monitor: Feedable) -> None:
        # The events that other objects hold back, if any, are not known.
        self._monitor = monitor if isinstance(monitor, Monitor) else None
        self._positions = ReadPositions[socket | None](DEFAULT.nodes_max)
        self._known: dict[str, int] = {}
        """The largest counter of each node in the clocks of the events that were fed."""
        self._sent_s: dict[socket, float] = {}
        """When each open connection had lines that were not fed yet, or was opened."""
        self._resumed: dict[socket, threading.Event] = {}
        """For the connection of each log what is set when it is resumed."""
        self._backlogs: set[socket] = set()
        """The connections of logs that are not read up to their announced size."""
        self._paused: set[socket] = set()
        self._awaited: set[socket | None] = set()
        """The connections that logs are paused for; None is one that is not open yet."""
        self._started_s = time.monotonic()
        self._decided_s = 0.0
        """When it was decided last which logs are paused."""
        self._portion = 0
        """How many lines may be fed until it is decided again."""

    def open(self, connection: socket, *, of_log: bool) -> None:
        """Add a connection; `of_log` is whether its sender has announced a log."""
        self._sent_s[connection] = time.monotonic()
        if of_log:
            self._resumed[connection] = threading.Event()
            self._backlogs.add(connection)

    def catch_up(self, connection: socket) -> None:
        """Record that a log was read up to its announced size."""
        if connection in self._backlogs:
            self._backlogs.remove(connection)
            self._resume()

    def close(self, connection: socket) -> None:
        """Remove a connection."""
        self._resume()
        self._backlogs.discard(connection)
        self._resumed.pop(connection, None)
        del self._sent_s[connection]
        self._positions.forget(connection)

    def record(self, connection: socket, items: Sequence[LogItem]) -> None:
        """Record lines of a connection that were fed."""
        self._portion -= len(items)
        last = {item.node: item for item in items if isinstance(item, Event)}
        self._positions.record(connection, {node: event.counter for node, event in last.items()})
        # The last event of a node has the largest clock.
        for event in last.values():
            for node, counter in event.clock.items():
                if counter > self._known.get(node, 0):
                    self._known[node] = counter
        if len(self._known) > DEFAULT.nodes_max:
            self._known.clear()
        if connection in self._awaited and not self._has_more(connection):
            self._resume()

    def portion(self, connection: socket) -> int | None:
        """Return how many of a connection's lines may be fed now, None for all; 0 if it is paused.

        The connection has lines that are not fed yet.
        """
        queue = None if self._monitor is None else fullest_queue(self._monitor)
        if queue is None:
            return None
        now_s = self._sent_s[connection] = time.monotonic()
        if self._portion <= 0 or now_s >= self._decided_s + PAUSE_S:
            self._pause(self._ahead(queue, now_s))
            self._decided_s = now_s
            self._portion = max(1, int(queue.options.held_back_max * PORTION_SHARE))
        return 0 if connection in self._paused else self._portion

    def wait(self, connection: socket) -> None:
        """Wait until a paused connection is resumed, for `PAUSE_S` at most."""
        self._resumed[connection].wait(PAUSE_S)

    def _has_more(self, connection: socket) -> bool:
        """Return whether a connection is to send events that exist already."""
        return connection in self._backlogs or self._positions.is_behind(connection, self._known)

    def _ahead(self, queue: HoldBackQueue, now_s: float) -> set[socket]:
        """Return the logs to pause, and set what they are paused for."""
        self._awaited = set()
        if not is_crowded(queue, are_waiting=bool(self._paused)):
            return set()
        for one, time_s in self._sent_s.items():
            if time_s > now_s - PATIENCE_S and self._has_more(one):
                self._awaited.add(one)
        if now_s < self._started_s + STARTING_S:
            self._awaited.add(None)
        return self._resumed.keys() & self._positions.ahead(queue, self._awaited)

    def _resume(self) -> None:
        """Resume all logs; it is decided anew once one of them has lines to feed."""
        self._pause(set())
        self._awaited = set()
        self._portion = 0

    def _pause(self, connections: set[socket]) -> None:
        """Pause these connections, and resume the others."""
        for one in connections - self._paused:
            self._resumed[one].clear()
        for one in self._paused - connections:
            self._resumed[one].set()
        self._paused = connections
