"""The user's folders: the XDG base directories.

What can be had again is in the cache, what would be lost is state. `KETAL_CACHE` names another
cache.

The one rule: a value of an XDG variable that is not absolute is ignored, as the specification says.
"""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder of the cache: `KETAL_CACHE`, or `ketal` in the user's cache."""
    named = os.environ.get("KETAL_CACHE", "")
    return Path(named).absolute() if named else _xdg("XDG_CACHE_HOME", ".cache") / "ketal"


def state_folder() -> Path:
    """Return the folder of what is kept from one start to the next: `ketal` in the user's state."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "ketal"


def _xdg(variable: str, default: str) -> Path:
    named = Path(os.environ.get(variable, ""))
    return named if named.is_absolute() else Path.home() / default
