"""How many events satisfied each guard of a pattern, of the masks of the events.

Events of one mask (`CompiledPattern.mask`) satisfy the same local guards. So a run counts masks
only, and how many events satisfied a guard is added up when it is asked for.

The one rule: an event is counted once: as a mask that is not counted yet, in the table of masks,
or in the totals of the guards, to which the table is added when it is full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ketal.compiler.predicates import Formula, evaluate

MASKS_MAX = 4_096
"""Masks in the table of counts; beyond that it is added to the guards' totals."""
UNCOUNTED_MAX = 256
"""Masks that wait to be counted together."""


class MaskCounts:
    """The counts of the masks of a run's events.

    Parameters
    ----------
    guards : mapping of Formula to str
        What can be asked: formulas over the bits of a mask, each with the key under which its
        total is saved. Equal keys are equal formulas over equal atoms.

    Attributes
    ----------
    uncounted : list of int
        Masks that are not counted yet. A run adds those of its events, and calls `count` when
        there are `UNCOUNTED_MAX`.
    """

    __slots__ = ("_by_mask", "_guards", "_holding", "_totals", "uncounted")

    def __init__(self, guards: Mapping[Formula, str]) -> None:
        self._guards = guards
        self._totals: dict[Formula, int] | None = None  # all 0
        self._by_mask: Counter[int] = Counter()
        self._holding: dict[int, tuple[Formula, ...]] = {}
        self.uncounted: list[int] = []

    def add(self, masks: Iterable[int]) -> None:
        """Count the masks of some events."""
        self.uncounted += masks
        if len(self.uncounted) >= UNCOUNTED_MAX:
            self.count()

    def count(self) -> None:
        """Count what is not counted yet."""
        self._by_mask.update(self.uncounted)
        self.uncounted.clear()
        if len(self._by_mask) > MASKS_MAX:
            self._totals = self.totals()
            self._by_mask.clear()

    def totals(self) -> dict[Formula, int]:
        """Return how many events satisfied each guard.

        A guard is left out of which that is not known: the state that was loaded lacks it.
        """
        if self.uncounted:
            self.count()
        totals = dict.fromkeys(self._guards, 0) if self._totals is None else dict(self._totals)
        for mask, count in self._by_mask.items():
            for guard in self._guards_holding(mask):
                if guard in totals:
                    totals[guard] += count
        return totals

    def _guards_holding(self, mask: int) -> tuple[Formula, ...]:
        """Return the guards that an event with a mask satisfies."""
        holding = self._holding.get(mask)
        if holding is None:
            if len(self._holding) >= MASKS_MAX:
                self._holding.clear()
            holding = tuple([guard for guard in self._guards if evaluate(guard, mask)])
            self._holding[mask] = holding
        return holding

    # --- state ---

    def save(self) -> Any:
        """Return the totals of the guards, by their keys, as plain data."""
        totals = {self._guards[guard]: count for guard, count in self.totals().items()}
        return dict(sorted(totals.items()))

    def load(self, value: Any) -> None:
        """Put what `save` returned into a fresh object; it may be of other guards."""
        self._totals = {guard: value[key] for guard, key in self._guards.items() if key in value}

    def validate_state(self) -> None:
        """Assert the bounds of the tables."""
        assert len(self.uncounted) < UNCOUNTED_MAX
        assert max(len(self._by_mask), len(self._holding)) <= MASKS_MAX
        assert self._totals is None or self._totals.keys() <= self._guards.keys()
