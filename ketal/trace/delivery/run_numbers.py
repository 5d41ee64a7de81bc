"""Number the runs (incarnations) of a node.

The number of a run that writes to a file of JSON lines follows from the earlier runs in the file.
For events sent to a socket or a topic, a counter file for each destination and node has one byte
per run. A run holds a lock on that file until it ends: a run that starts before it has written an
event gets another number, and a run that starts before it has ended logs a warning. Such a run may
be the start of a rolling restart, so it is numbered like any other; but processes that work at the
same time need names of their own, since a later number means that the earlier runs have ended.

The one rule: no number is assigned twice, even if several runs start at the same time. If counters
cannot be stored, the number is the time in milliseconds.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import struct
import time
import weakref
from pathlib import Path
from urllib.parse import quote

from ketal.files.user_folders import state_folder

_LOG = logging.getLogger("ketal.trace")

RUNS_VARIABLE = "KETAL_TRACE_RUNS"
"""The environment variable that names the folder of the counter files."""

_FLOCK = "hhqqi"
"""The fields of `struct flock`: type, whence, start, length, process."""
_RUNS_MAX = 1 << 62
"""Numbers of runs are locked modulo this."""


def runs_folder() -> Path:
    """Return the folder of the counter files: `KETAL_TRACE_RUNS`, or in the user's state folder."""
    configured = os.environ.get(RUNS_VARIABLE)
    return Path(configured) if configured else state_folder() / "runs"


class Claims:
    """Files that a sink holds open for their locks, until this object or its process ends."""

    def hold(self, file: int) -> int:
        """Keep a file open, with its locks, as long as this object exists; return it."""
        weakref.finalize(self, os.close, file).atexit = False
        return file


def next_run(node: str, destination: str, claims: Claims) -> int:
    """Return the number, from 1, of a new run of a node that sends to a destination; claim it."""
    try:
        path = runs_folder() / quote(destination, safe="") / quote(node, safe="")
        path.parent.mkdir(parents=True, exist_ok=True)
        counter = claims.hold(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644))
        # Appends are atomic, so processes that append at the same time get different offsets.
        os.write(counter, b".")
        run = os.lseek(counter, 0, os.SEEK_CUR)
    except (OSError, RuntimeError) as error:
        _LOG.warning(
            "cannot count the runs of %s, so this run is numbered by the time: %s", node, error
        )
        return time.time_ns() // 1_000_000
    claim_run(counter, node, run)
    warn_of_live_run(counter, node, run)
    return run


def claim_run(file: int, node: str, run: int) -> bool:
    """Claim a run of a node by a lock; return False if another open file holds it.

    `file` is the descriptor of the log or of the counter file. The lock is on a byte far beyond the
    end of the file, and belongs to the open file description: it is released when the file is
    closed here and in the children of forks. If the system has no such locks, every claim succeeds.
    """
    try:
        from fcntl import F_OFD_SETLK, fcntl
    except ImportError:  # Not on Linux.
        return True
    try:
        fcntl(file, F_OFD_SETLK, _locked_bytes(node, run, 1))
    except OSError as error:  # With any other error, the file system has no locks.
        return error.errno not in (errno.EAGAIN, errno.EACCES)
    return True


def warn_of_live_run(file: int, node: str, run: int) -> None:
    """Log a warning if another open file holds the claim of an earlier run of a node."""
    try:
        from fcntl import F_OFD_GETLK, F_UNLCK, fcntl

        earlier = _locked_bytes(node, 1, run - 1)
        if run == 1 or struct.unpack(_FLOCK, fcntl(file, F_OFD_GETLK, earlier))[0] == F_UNLCK:
            return
    except (ImportError, OSError):
        return
    _LOG.warning(
        "%s#%d begins while an earlier run of %s is still alive; a monitor takes it for a restart, "
        "and events that the earlier run still records for late ones. Processes that run at the "
        'same time need names of their own, such as Tracer(f"%s-{os.getpid()}")',
        node, run, node, node,
    )  # fmt: skip


def _locked_bytes(node: str, run: int, count: int) -> bytes:
    """Return the argument of `fcntl` for the locks of `count` runs of a node, from `run` on."""
    from fcntl import F_WRLCK

    node_start = int.from_bytes(hashlib.sha256(node.encode()).digest()[:8], "big") % _RUNS_MAX
    start, length = node_start + run % _RUNS_MAX, count % _RUNS_MAX
    return struct.pack(_FLOCK, F_WRLCK, os.SEEK_SET, start, length, 0)
