"""The user's folders: the XDG base directories.

Files that can be downloaded or computed again belong in the cache, all others in the state folder.
The environment variable `KETAL_CACHE` overrides the cache folder.

The one rule: a value of an XDG variable that is not absolute is ignored, as the specification
requires.
"""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the cache folder: `KETAL_CACHE` if set, else `ketal` in the user's cache folder."""
    cache = os.environ.get("KETAL_CACHE", "")
    return Path(cache).absolute() if cache else _xdg_folder("XDG_CACHE_HOME", ".cache") / "ketal"


def state_folder() -> Path:
    """Return the folder for persistent state: `ketal` in the user's state folder."""
    return _xdg_folder("XDG_STATE_HOME", ".local/state") / "ketal"


def _xdg_folder(variable: str, default: str) -> Path:
    configured = Path(os.environ.get(variable, ""))
    return configured if configured.is_absolute() else Path.home() / default
