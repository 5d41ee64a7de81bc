"""Which run of a node this is, where its events go to what holds no earlier ones.

A file of JSON lines holds the runs that it has seen. A run without an event so far has a lock on
it, so that another one that begins meanwhile has another number. Of what is sent to a socket or a
topic a file is kept for each destination and node, with a byte for each run.

The one rule: no number is given twice, though several runs begin at the same time. Where none can
be kept, it is the time in milliseconds.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import struct
import time
from pathlib import Path
from urllib.parse import quote

from ketal.files.user_folders import state_folder

_LOG = logging.getLogger("ketal.trace")

RUNS_VARIABLE = "KETAL_TRACE_RUNS"
"""The environment variable that names the folder of the numbers."""


def runs_folder() -> Path:
    """Return the folder of the numbers: the variable's, or one of the user's state."""
    named = os.environ.get(RUNS_VARIABLE)
    return Path(named) if named else state_folder() / "runs"


def next_run(node: str, destination: str) -> int:
    """Return which run of a node this is, 1 for the first, of those that sent to a destination."""
    try:
        path = runs_folder() / quote(destination, safe="") / quote(node, safe="")
        path.parent.mkdir(parents=True, exist_ok=True)
        runs = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            # Each of those that append at the same time has another end.
            os.write(runs, b".")
            return os.lseek(runs, 0, os.SEEK_CUR)
        finally:
            os.close(runs)
    except (OSError, RuntimeError) as error:
        _LOG.warning("the runs of %s are numbered by the time: %s", node, error)
        return time.time_ns() // 1_000_000


def claim_run(log: int, node: str, run: int) -> bool:
    """Return whether no other open log has claimed a run of a node; then this one has.

    `log` is the descriptor of this one. A claim is a lock on a byte far behind the end of the file,
    of this opening of it: it ends when the file is closed here and in the children of forks. Where
    there are no such locks each run is free.
    """
    try:
        from fcntl import F_OFD_SETLK, F_WRLCK, fcntl
    except ImportError:  # Linux has it.
        return True
    byte = int.from_bytes(hashlib.sha256(f"{node}#{run}".encode()).digest()[:8], "big") >> 1
    try:
        fcntl(log, F_OFD_SETLK, struct.pack("hhqqi", F_WRLCK, os.SEEK_SET, byte, 1, 0))
    except OSError as error:  # Of others than these: the file system has no locks.
        return error.errno not in (errno.EAGAIN, errno.EACCES)
    return True
