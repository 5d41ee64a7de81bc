"""How a node counted: the fewest faults that explain the own entries along its line.

Let o(1), o(2), … be the own entries of a node's events in the node's order. Were all
right and nothing lost, o(i) = i. Where events are lost before it, o(i) - i rises; an
event that was stamped as the one before it lets it fall by one. So of any two events
that are kept as they say, the later one's o(i) - i is at least the earlier one's: then
there is room for those between them. A reading is such a selection: each event that is
not kept is a fault, and so is each rise, a hole. The best one is a longest
non-decreasing subsequence, each rise of which costs as much as an event, and it is found
in the same way with a tree of prefix maxima (Fredman, "On computing the length of longest
increasing subsequences", 1975; Fenwick, "A new data structure for cumulative frequency
tables", 1994), in O(n log n).

The one rule: here is counted, and nothing else is known. What clocks and lines say
against a reading, `ketal.consistency` asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class _Best(NamedTuple):
    """A score, the event that it ends with, and how many selections have it: one, or more."""

    score: int
    at: int
    ways: int

    def or_else(self, other: _Best) -> _Best:
        """Return the better one; of two as good the one that ends later, and both their ways."""
        if self.score != other.score:
            return max(self, other)
        return _Best(self.score, max(self.at, other.at), min(2, self.ways + other.ways))


_NEVER = _Best(-(2**62), -1, 0)
"""What cannot be."""
_BEGIN = _Best(0, -1, 1)
"""What is before the first event."""


class Counting(NamedTuple):
    """A reading of own entries with the fewest faults.

    Attributes
    ----------
    counters : list of int
        What each event gets; one that is there twice has the counter of the event
        before it.
    sure : list of bool
        Whether an event must have this counter in each reading with so few faults.
    faults : int
        Own entries that are wrong or used twice, and holes.
    """

    counters: list[int]
    sure: list[bool]
    faults: int


class _Maxima:
    """The best of what was put at places up to one (a Fenwick tree)."""

    def __init__(self, size: int) -> None:
        self._tree = [_NEVER] * (size + 1)

    def put(self, place: int, value: _Best) -> None:
        place += 1
        while place < len(self._tree):
            self._tree[place] = self._tree[place].or_else(value)
            place += place & -place

    def below(self, place: int) -> _Best:
        """Return the best at places less than this one."""
        found = _NEVER
        while place:
            found = found.or_else(self._tree[place])
            place -= place & -place
        return found


def counted(entries: Sequence[int]) -> Counting:
    """Return a reading of own entries, in the order of their node, with the fewest faults.

    Parameters
    ----------
    entries : sequence of int
        The own entries; 0 where an event says none. To give it one is no fault here.
    """
    selection = _Selection(entries)
    kept, twice = selection.events()
    counters: list[int] = []
    last = 0
    for at, entry in enumerate(entries):
        last = entry if at in kept else last + (at not in twice)
        counters.append(last)
    only = selection.best.ways == 1
    sure = [only] * len(entries)
    closed = False
    for at in reversed(range(len(entries))):
        if at in kept or at in twice:
            # Before a hole, or with nothing behind it, an event may be another one.
            closed = at in kept and counters[at] == (counters[at - 1] if at else 0) + 1
        else:
            sure[at] = only and closed
    return Counting(counters, sure, sum(entry > 0 for entry in entries) - selection.best.score)


class _Selection:
    """The best selections that end with each event: it is kept, or it is there twice."""

    def __init__(self, entries: Sequence[int]) -> None:
        self._entries = entries
        self._kept = [_NEVER] * len(entries)
        self._twice = [_NEVER] * len(entries)
        self._before = [-1] * len(entries)
        self.best = self._walk()

    def _walk(self) -> _Best:
        lost = [entry - at for at, entry in enumerate(self._entries, 1)]
        places = {value: place for place, value in enumerate(sorted({0, *lost}))}
        maxima = _Maxima(len(places))
        of_value = {0: _BEGIN}
        best, lower, before = _BEGIN, _NEVER, 0
        for at, (entry, value) in enumerate(zip(self._entries, lost, strict=True)):
            if not entry:
                continue
            if value != before:
                # Most events have as many lost before them as the one before.
                maxima.put(places[before], of_value[before])
                lower, before = maxima.below(places[value]), value
            # As many are lost before it as before an earlier one; or more, by one hole.
            same = of_value.get(value, _NEVER)
            kept = lower.or_else(same._replace(score=same.score + 1))
            self._before[at] = kept.at
            here = self._kept[at] = kept._replace(at=at)
            if at and entry == self._entries[at - 1]:
                again = self._kept[at - 1].or_else(self._twice[at - 1])
                self._twice[at] = again._replace(at=at)
                here = here.or_else(self._twice[at])
            of_value[value] = same.or_else(here)
            best = best.or_else(here)
        return best

    def events(self) -> tuple[set[int], set[int]]:
        """Return the events of the best selection, and those that are there twice."""
        kept: set[int] = set()
        twice: set[int] = set()
        at = self.best.at
        while at >= 0:
            if self._kept[at].score >= self._twice[at].score:
                kept.add(at)
                at = self._before[at]
            else:
                twice.add(at)
                at -= 1
        return kept, twice
