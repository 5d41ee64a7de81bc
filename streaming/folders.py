"""Where ketal keeps what it downloads and what its broker stores.

The XDG base directories: what can be had again is in the cache, what would be lost is state.
`KETAL_CACHE` names another cache.

The one rule: a file appears whole under its name or not at all.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder of downloads: `KETAL_CACHE`, or `ketal` in the user's cache."""
    named = os.environ.get("KETAL_CACHE", "")
    return Path(named).absolute() if named else _xdg("XDG_CACHE_HOME", ".cache") / "ketal"


def state_folder() -> Path:
    """Return the folder of what is kept from one start to the next: `ketal` in the user's state."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "ketal"


def _xdg(variable: str, default: str) -> Path:
    # The specification: a value that is not absolute is to be ignored.
    named = Path(os.environ.get(variable, ""))
    return named if named.is_absolute() else Path.home() / default


def replaced(path: Path, content: bytes, *, mode: int = 0o644, durable: bool = False) -> None:
    """Write a file whole, in the place of one that may be there.

    A `durable` one is on the disk when this returns, its name too.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
        if durable:
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
