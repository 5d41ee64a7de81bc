"""Which events of an execution are looked at, where to look at all of them would cost too much.

The one rule: it depends on the numbers of the events alone, not on how they are batched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

WHOLE: Final = 4_096
"""So many events are all looked at."""
BLOCK = 512
"""Events that are looked at together."""
SAMPLED: Final = 64
"""After the first ones one block in so many is looked at."""


def sampled(batch: Sequence[Any], read: int) -> Sequence[Any]:
    """Return the events of a batch that are looked at; `read` came before it."""
    end = read + len(batch)
    if end <= WHOLE:
        return batch
    out = list(batch[: max(0, WHOLE - read)])
    period = BLOCK * SAMPLED
    start = max(read, WHOLE) // period * period
    for block in range(start, end, period):
        first, last = max(block, read, WHOLE), min(block + BLOCK, end)
        if first < last:
            out += batch[first - read : last - read]
    return out
