"""A sample of an execution's events, for statistics that would cost too much on all of them.

The one rule: the sample depends on the numbers of the events only, not on how they are batched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

WHOLE: Final = 4_096
"""The first events, all of which are in the sample."""
BLOCK = 512
"""The consecutive events that are sampled together."""
SAMPLED: Final = 64
"""After the first events, one block in this many is in the sample."""


def sampled(batch: Sequence[Any], read: int) -> Sequence[Any]:
    """Return the events of a batch that are in the sample; `read` events came before the batch."""
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
