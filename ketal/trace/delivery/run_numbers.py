"""Number the runs (incarnations) of a node.

The number of a run that writes to a file of JSON lines follows from the earlier runs in the file. A
run without an event so far holds a lock on the file, so that a run that starts meanwhile gets
another number. For events sent to a socket or a topic, a counter file for each destination and node
has one byte per run.

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
from pathlib import Path
from urllib.parse import quote

from ketal.files.user_folders import state_folder

_LOG = logging.getLogger("ketal.trace")

RUNS_VARIABLE = "KETAL_TRACE_RUNS"
"""The environment variable that names the folder of the counter files."""


def runs_folder() -> Path:
    """Return the folder of the counter files: `KETAL_TRACE_RUNS`, or in the user's state folder."""
    configured = os.environ.get(RUNS_VARIABLE)
    return Path(configured) if configured else state_folder() / "runs"


def next_run(node: str, destination: str) -> int:
    """Return the number, from 1, of a new run of a node that sends to a destination."""
    try:
        path = runs_folder() / quote(destination, safe="") / quote(node, safe="")
        path.parent.mkdir(parents=True, exist_ok=True)
        counter = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            # Appends are atomic, so processes that append at the same time get different offsets.
            os.write(counter, b".")
            return os.lseek(counter, 0, os.SEEK_CUR)
        finally:
            os.close(counter)
    except (OSError, RuntimeError) as error:
        _LOG.warning(
            "cannot count the runs of %s, so this run is numbered by the time: %s", node, error
        )
        return time.time_ns() // 1_000_000


def claim_run(log: int, node: str, run: int) -> bool:
    """Claim a run of a node by a lock on its log; return False if another open file holds it.

    `log` is the descriptor of the log. The lock is on a byte far beyond the end of the file, and
    belongs to the open file description: it is released when the file is closed here and in the
    children of forks. If the system has no such locks, every claim succeeds.
    """
    try:
        from fcntl import F_OFD_SETLK, F_WRLCK, fcntl
    except ImportError:  # Not on Linux.
        return True
    byte = int.from_bytes(hashlib.sha256(f"{node}#{run}".encode()).digest()[:8], "big") >> 1
    try:
        fcntl(log, F_OFD_SETLK, struct.pack("hhqqi", F_WRLCK, os.SEEK_SET, byte, 1, 0))
    except OSError as error:  # With any other error, the file system has no locks.
        return error.errno not in (errno.EAGAIN, errno.EACCES)
    return True
