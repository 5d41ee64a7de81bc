"""Lamport's clocks: a single counter.

It is incremented at each event, after taking the maximum with the counters of received messages.
a → b implies that a has the lesser counter; equal counters prove that two events are concurrent.

Lamport, "Time, Clocks, and the Ordering of Events in a Distributed System", 1978. Baquero,
"Causality is Graphically Simple", Fig. 10.
"""

from __future__ import annotations

from typing import Any

from ketal.clocks.inexact.plausible import PlausibleClocks, PlausibleStamp
from ketal.clocks.scheme import checked_counter


class LamportClocks(PlausibleClocks):
    """Lamport's clocks: plausible clocks with one entry, which all nodes share."""

    name = "lamport"

    def __init__(self) -> None:
        super().__init__(1)

    def written(self, stamp: PlausibleStamp) -> Any:
        """Return the counter."""
        return stamp.entries[0]

    def read(self, value: Any, node: str) -> PlausibleStamp:
        """Return the stamp of a counter."""
        return PlausibleStamp(node, 0, (checked_counter(value, "a Lamport clock", 1),))
