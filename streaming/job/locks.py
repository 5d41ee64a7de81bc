"""Locks of a job: on a file that it writes, and on the folder of its state while it starts.

The one rule: a job that does not get the lock (`ketal.files.file_locks`) does not run.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ketal.errors import SettingError, refused_as_setting
from ketal.files.file_locks import try_lock

FILE = "lock"
"""The file that is locked for a folder, since not every file system can lock a folder itself."""
_TRY_S = 0.05
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def lock(descriptor: int, path: str | Path) -> bool:
    """Lock an open file for this process alone; return False if another process holds the lock."""
    try:
        return try_lock(descriptor)
    except OSError as fault:
        if fault.errno not in _NO_LOCKS:
            raise
        raise SettingError(
            f"{path} cannot be locked ({fault.strerror}), so another job could use it at the same "
            "time\n  hint: choose a file system that supports locks, or a topic"
        ) from None


@contextmanager
def locked(folder: Path, patience_s: float, stopping: Callable[[], bool]) -> Iterator[bool]:
    """Make a folder and lock it; yield False if `stopping` returned True before it was locked.

    Raises a SettingError if another process holds the lock for `patience_s`, or the folder cannot
    be made or locked.
    """
    path = folder / FILE
    with refused_as_setting(f"cannot store state in {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        file = open(path, "ab")  # noqa: SIM115
    with file:
        until_s = time.monotonic() + patience_s
        while not (is_locked := lock(file.fileno(), path)) and not stopping():
            if time.monotonic() >= until_s:
                raise SettingError(
                    f"{folder}: another job with its state in this folder is starting, and has not "
                    f"released its lock within {patience_s:g} s (it has locked {path})\n  hint: "
                    "give each job its own folder, [state] store dir:PATH; or end that process if "
                    "it hangs"
                )
            time.sleep(_TRY_S)
        yield is_locked
