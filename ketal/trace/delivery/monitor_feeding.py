"""A monitor that several threads feed: what the collectors have in common.

The one rule: the monitor is fed one event at a time.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from ketal.trace.delivery.sinks import Feeding
from ketal.trace.forks import UNDER_LOCK

if TYPE_CHECKING:
    from ketal.model.events.control import Control
    from ketal.model.events.event import Event
    from ketal.model.verdicts.execution_verdicts import Rejected


class MonitorFeeder(ABC):
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
        UNDER_LOCK.add(self)

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

    @abstractmethod
    def close(self) -> None:
        """Take no more events of others."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def wait_until(holds: Callable[[], bool], timeout_s: float | None) -> bool:
    """Wait until something holds, for some seconds at most; return whether it does."""
    end = None if timeout_s is None else time.monotonic() + timeout_s
    while not holds():
        if end is not None and time.monotonic() >= end:
            return False
        time.sleep(0.01)
    return True
