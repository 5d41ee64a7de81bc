"""Feed monitors from several threads.

The one rule: the monitors of a process are fed one event at a time. With a lock for each monitor,
two threads in whose monitors a handler records an event that feeds the other one would deadlock.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from ketal.errors import wrong_type

if TYPE_CHECKING:
    from ketal.model.events.control import Control
    from ketal.model.events.event import Event
    from ketal.model.verdicts.execution_verdicts import Rejected


class Feedable(Protocol):
    """The interface of a `ketal.Monitor` and of a `Collector`, which are fed events."""

    def feed(self, event: Event | Control | Rejected, *, place: str = "") -> object:
        """Process one event."""


class LockedMonitor:
    """A monitor that is fed under the lock of all monitors, which its handlers may acquire again.

    The child of a fork has a new lock (`ketal.trace.forks`).
    """

    lock = threading.RLock()

    def __init__(self, monitor: Feedable) -> None:
        if not callable(getattr(monitor, "feed", None)):
            raise wrong_type("monitor", "a ketal.Monitor or a Collector", monitor)
        self._monitor = monitor

    def feed(self, event: Event | Control | Rejected, *, place: str = "") -> object:
        """Feed an event of this process, as `Tracer(…, monitor=collector)` does.

        Parameters
        ----------
        event : Event, Control or Rejected
            The event.
        place : str
            The place where it was read, for rejections.
        """
        with self.lock:
            return self._monitor.feed(event, place=place)
