"""The end of a program that has events to send.

At its end all that send share a few seconds: what they wait for is mostly the same collector, and
it may never come.

The one rule: a program ends `LINGER_S` after it could have ended, or before.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection
from multiprocessing.util import Finalize

LINGER_S = 5.0
"""How long a program that ends waits for what it has not sent."""


_SENDING: dict[int, list[Sending]] = {}
"""What sends in this process, by its number: the child of a fork has none yet."""


class Sending:
    """A thread of this process that sends events, and ends when the program does.

    Parameters
    ----------
    name : str
        The thread's name.
    send_all : callable
        Runs in the thread; its argument is an event that is set when no more is to be sent.
    finish : callable
        Asks `send_all` to send what there is and return; waits for nothing.
    """

    def __init__(
        self, name: str, send_all: Callable[[threading.Event], object], finish: Callable[[], None]
    ) -> None:
        self.finish = finish
        self.process = os.getpid()
        self._send_all = send_all
        self._over = threading.Event()
        threading.Thread(target=self._run, daemon=True, name=name).start()
        if self.process not in _SENDING:
            _SENDING.clear()
            mine = _SENDING[self.process] = []
            # Not `atexit`: a child of multiprocessing ends without what that calls. Below 0, since
            # until then a program waits for its children, which may write to a log that it sends.
            Finalize(None, lambda: end_all([*mine]), exitpriority=-1)
        _SENDING[self.process].append(self)

    def _run(self) -> None:
        self._send_all(self._over)
        self._over.set()

    def wait_sent(self, timeout_s: float) -> None:
        """Wait until all is sent, so many seconds at most; then no more is."""
        self._over.wait(timeout_s)
        self._over.set()


def end_all(sendings: Collection[Sending]) -> None:
    """Have all send what there is, for `LINGER_S` at most, and end."""
    end = time.monotonic() + LINGER_S
    for one in sendings:
        one.finish()
    for one in sendings:
        one.wait_sent(max(0.0, end - time.monotonic()))
        mine = _SENDING.get(os.getpid(), [])
        if one in mine:
            mine.remove(one)
