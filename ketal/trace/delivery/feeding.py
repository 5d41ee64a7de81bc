"""Feed a monitor from several threads.

The one rule: a monitor is fed one event at a time.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from ketal.errors import wrong_type
from ketal.trace.forks import UNDER_LOCK

if TYPE_CHECKING:
    from ketal.model.events.control import Control
    from ketal.model.events.event import Event
    from ketal.model.verdicts.execution_verdicts import Rejected


class Feedable(Protocol):
    """The interface of a `ketal.Monitor` and of a `Collector`, which are fed events."""

    def feed(self, event: Event | Control | Rejected, *, place: str = "") -> object:
        """Process one event."""


class LockedMonitor:
    """A monitor that is fed under a lock, which its handlers may acquire again to feed it."""

    def __init__(self, monitor: Feedable) -> None:
        if not callable(getattr(monitor, "feed", None)):
            raise wrong_type("monitor", "a ketal.Monitor or a Collector", monitor)
        self.lock = threading.RLock()
        self._monitor = monitor
        UNDER_LOCK.add(self)

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


def locked_monitor(monitor: Feedable) -> LockedMonitor:
    """Return a collector itself, and another monitor under a lock of its own."""
    return monitor if isinstance(monitor, LockedMonitor) else LockedMonitor(monitor)
