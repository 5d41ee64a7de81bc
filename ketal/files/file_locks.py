"""Locks on open files, for mutual exclusion among the processes of one machine (flock(2)).

A lock is advisory. It belongs to the open file description: processes that inherit the descriptor
share the lock, and the kernel releases it when the last of them ends, even by kill -9.

The one rule: a process that does not get the lock does not proceed.
"""

from __future__ import annotations

import fcntl


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file without waiting; return False if another process has it locked."""
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(descriptor: int) -> None:
    """Lock an open file exclusively, waiting until no other process has it locked."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)
