"""Locks on open files, for mutual exclusion among the processes of one machine (flock(2)).

A lock is advisory. It belongs to the open file, so whoever inherits the descriptor has it too, and
the kernel releases it when the last of them has ended, kill -9 included.

The one rule: a process that does not get the lock does not go on.
"""

from __future__ import annotations

import fcntl


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file, perhaps shared, unless another process has it; return whether it is."""
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(descriptor: int) -> None:
    """Lock an open file for this process alone, as soon as no other one has it."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)
