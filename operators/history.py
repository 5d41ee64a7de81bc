"""The anchor `all`: every event of a run, summarised in three entries a node.

`Causal(g, all)` and `Conc(g, all)` relate an event to every event that a run has
taken, however many. A node's events are totally ordered, so its first and last
counter and the join of the clocks decide both, in one look-up a node:

- every event x happened-before e iff, for each node, e's clock reaches the
  last counter taken there (and e itself was not taken);
- no x happened-before e iff, for each node, e's clock stays below the first
  counter taken there; e happened-before no x iff the join of the clocks stays
  below e's own counter.

The one rule: a History is a value; `add` returns a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class History:
    """A summary of the events of a run."""

    first: Mapping[str, int]  # the least counter taken at each node
    last: Mapping[str, int]  # the greatest counter taken at each node
    join: Mapping[str, int]  # the pointwise maximum of the clocks

    def add(self, node: str, counter: int, clock: Mapping[str, int]) -> History:
        """Return the summary with one more event."""
        first = {**self.first, node: min(counter, self.first.get(node, counter))}
        last = {**self.last, node: max(counter, self.last.get(node, counter))}
        join = dict(self.join)
        for name, entry in clock.items():
            if entry > join.get(name, 0):
                join[name] = entry
        return History(first, last, join)

    def all_before(self, node: str, counter: int, clock: Mapping[str, int]) -> bool:
        """Return whether every event of the run happened-before this one."""
        return all(
            (counter if name == node else clock.get(name, 0)) >= entry + (name == node)
            for name, entry in self.last.items()
        )

    def all_concurrent(self, node: str, counter: int, clock: Mapping[str, int]) -> bool:
        """Return whether every event of the run is concurrent with this one."""
        if node in self.first or self.join.get(node, 0) >= counter:
            return False
        return all(clock.get(name, 0) < entry for name, entry in self.first.items())

    def __hash__(self) -> int:
        return hash((tuple(sorted(self.first.items())), tuple(sorted(self.last.items()))))


EMPTY: Final = History({}, {}, {})
