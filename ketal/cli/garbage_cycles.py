"""How often a command that holds a log looks for garbage cycles.

The one rule: a log is many long-lived objects without a cycle, so it is looked for seldom.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

COLLECT_AFTER = 100_000
"""Objects made between two looks for garbage cycles."""


@contextlib.contextmanager
def calm_collector() -> Iterator[None]:
    """Collect garbage cycles less often: a log is many long-lived objects without one."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
