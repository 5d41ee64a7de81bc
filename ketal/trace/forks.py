"""A fork of the process: locks that other threads hold are acquired first, so that all is whole.

Of the sockets of the process the child has none: its copy would leave a connection open, or a port
taken, when the process that serves it is gone.

The one rule: the locks of monitors are taken before those of clocks, as elsewhere: a handler of a
monitor may have an event of its own.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from functools import partial
from typing import Any

WAIT_S = 5.0
"""How long a fork waits at most for what is under a lock: a handler of a monitor may be waiting for
the thread that forks. Of what is not free by then a child has a copy that may be broken."""


UNDER_LOCK: weakref.WeakSet[Any] = weakref.WeakSet()
"""What has a `lock` that a fork acquires first; a child's is a new one."""
CLOCKS: weakref.WeakSet[Any] = weakref.WeakSet()
"""What has clocks: `before_fork()` acquires its locks, `after_fork(child=…)` releases them; a child
begins clocks of its own."""
OWN_SOCKETS: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def own(one: socket.socket) -> socket.socket:
    """Register a socket to be closed in every child of a fork; return it."""
    OWN_SOCKETS.add(one)
    return one


_HELD = threading.local()
"""The locks that a forking thread has taken; other threads may fork too."""


def _before() -> None:
    # In the same order in each thread, so that none waits for another that waits for it.
    under_lock = sorted(UNDER_LOCK, key=id)
    end = time.monotonic() + WAIT_S
    taken = [one.lock.acquire(timeout=max(0.0, end - time.monotonic())) for one in under_lock]
    _HELD.under_lock = list(zip(under_lock, taken, strict=True))
    _HELD.clocks = sorted(CLOCKS, key=id)
    for clocks in _HELD.clocks:
        clocks.before_fork()


def _after(*, child: bool) -> None:
    for connection in [*OWN_SOCKETS] if child else ():
        connection.close()
    for clocks in _HELD.clocks:
        clocks.after_fork(child=child)
    for one, is_taken in _HELD.under_lock:
        if child:
            one.lock = threading.RLock()
        elif is_taken:
            one.lock.release()
    del _HELD.clocks, _HELD.under_lock


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before,
        after_in_parent=partial(_after, child=False),
        after_in_child=partial(_after, child=True),
    )
