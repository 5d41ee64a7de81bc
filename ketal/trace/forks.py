"""Make tracing safe across `fork`: acquire its locks first, so that the child's copy is consistent.

Sockets of the tracer are closed in the child: its copies would keep a connection open, or a port
bound, after the parent has ended.

The one rule: the lock of monitors is acquired before those of clocks, as elsewhere, since a handler
of a monitor may record an event.
"""

from __future__ import annotations

import os
import socket
import threading
import weakref
from functools import partial
from typing import Any

from ketal.trace.feeding import LockedMonitor

WAIT_S = 5.0
"""Maximum time that a fork waits for the lock of monitors, since a handler may be waiting for the
forking thread. If it is not acquired, the child's copy of a monitor may be inconsistent."""
CLOCKS: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Objects with clocks, by their ids: `before_fork()` acquires their locks, `after_fork(child=…)`
releases them, and in the child starts new clocks."""
OWN_SOCKETS: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def close_in_child(connection: socket.socket) -> socket.socket:
    """Register a socket to be closed in every child of a fork; return it."""
    OWN_SOCKETS.add(connection)
    return connection


_FORK_LOCKS = threading.local()
"""What the forking thread has locked; thread-local, as other threads may fork too."""


def _before_fork() -> None:
    _FORK_LOCKS.is_acquired = LockedMonitor.lock.acquire(timeout=WAIT_S)
    # In the same order in all threads, to avoid deadlock. `valuerefs` makes a list, since another
    # thread may add to `CLOCKS` meanwhile.
    clocks = (reference() for reference in CLOCKS.valuerefs())
    _FORK_LOCKS.clocks = sorted((one for one in clocks if one is not None), key=id)
    for clocks in _FORK_LOCKS.clocks:
        clocks.before_fork()


def _after_fork(*, child: bool) -> None:
    for connection in [*OWN_SOCKETS] if child else ():
        connection.close()
    for clocks in _FORK_LOCKS.clocks:
        clocks.after_fork(child=child)
    if child:
        LockedMonitor.lock = threading.RLock()
    elif _FORK_LOCKS.is_acquired:
        LockedMonitor.lock.release()
    del _FORK_LOCKS.clocks, _FORK_LOCKS.is_acquired


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=partial(_after_fork, child=False),
        after_in_child=partial(_after_fork, child=True),
    )
