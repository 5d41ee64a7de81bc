"""The end of a program that has events to send.

At its end all that send share a few seconds: what they wait for is mostly the same collector, and
it may never come.

The one rule: a program ends `LINGER_S` after it could have ended, or before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from multiprocessing.util import Finalize
from typing import NamedTuple

LINGER_S = 5.0
"""How long a program that ends waits for what it has not sent."""


class Sending(NamedTuple):
    """What sends events from a thread of its own.

    Attributes
    ----------
    finish : callable
        Has it send what there is and end; waits for nothing.
    wait_sent : callable
        Waits until all is sent, so many seconds at most, and has it send no more.
    """

    finish: Callable[[], None]
    wait_sent: Callable[[float], None]


_SENDING: dict[int, list[Sending]] = {}
"""Those of this process, by its number: the child of a fork has none yet."""


def send_at_end(sending: Sending) -> None:
    """Have what sends end when the program does."""
    process = os.getpid()
    if process not in _SENDING:
        _SENDING.clear()
        _SENDING[process] = []
        # Not `atexit`: a child of multiprocessing ends without what that calls. Below 0, since
        # until then a program waits for its children, which may write to a log that it sends.
        Finalize(None, lambda: end_all([*_SENDING[process]]), exitpriority=-1)
    _SENDING[process].append(sending)


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
