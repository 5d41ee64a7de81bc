"""A monitor that several threads feed: what the collectors have in common.

The one rule: the monitor is fed one event at a time.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ketal.trace.delivery.sinks import Feeding

if TYPE_CHECKING:
    from ketal.model.events.control import Control
    from ketal.model.events.event import Event
    from ketal.model.verdicts.execution_verdicts import Rejected


class MonitorFeeder:
    """Feeds a monitor under a lock, until it is closed.

    Parameters
    ----------
    monitor : Monitor
        What is fed; `lock` is held meanwhile.

    Attributes
    ----------
    lock : Lock
        To be held by who uses the monitor besides.
    """

    def __init__(self, monitor: Feeding) -> None:
        self.lock = threading.RLock()
        self._monitor = monitor

    def feed(self, event: Event | Control | Rejected, *, place: str = "") -> object:
        """Feed an event of this process: `Tracer(…, monitor=collector)` does.

        Parameters
        ----------
        event : Event, Control or Rejected
            What happened.
        place : str
            Where it was read, for a rejection.
        """
        with self.lock:
            return self._monitor.feed(event, place=place)

    def close(self) -> None:
        """Take no more events of others."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
