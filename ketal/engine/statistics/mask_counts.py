"""The masks of a run's events: which are in the alphabet, and how many events had each.

Events of one mask (`CompiledPattern.mask`) satisfy the same local guards. So a run only counts
masks; how many events satisfied a guard is summed when it is needed.

The one rule: an event is counted once: in the table of masks, or in the totals of the guards, to
which the table is added when it is full.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from ketal.compiler.predicates import Formula, evaluate
from ketal.model.events.event import Event

MASKS_MAX = 65_536
"""The most masks in the table, before it is added to the guards' totals."""


@dataclass(slots=True)
class CountedMask:
    """A mask in the table."""

    in_alphabet: bool
    events: int = 0
    satisfied: tuple[Formula, ...] | None = None  # the guards; None until they are needed


class MaskCounts:
    """The counted masks of a run's events.

    An event of the alphabet satisfies the formula `alphabet`. `guards` are the formulas, over the
    bits of a mask, that have totals, each with the key under which its total is saved. Equal keys
    are equal formulas over equal atoms.
    """

    __slots__ = ("_alphabet", "_by_mask", "_guards", "_totals")

    def __init__(self, alphabet: Formula, guards: Mapping[Formula, str]) -> None:
        self._alphabet = alphabet
        self._guards = guards
        self._by_mask: dict[int, CountedMask] = {}
        self._totals: dict[Formula, int] | None = None  # None: all are 0

    def counted(self, mask: int) -> CountedMask:
        """Return a mask's row of the table; add it if it is not there."""
        counted = self._by_mask.get(mask)
        if counted is None:
            if len(self._by_mask) >= MASKS_MAX:
                self._totals = self.totals()
                self._by_mask.clear()
            counted = self._by_mask[mask] = CountedMask(evaluate(self._alphabet, mask))
        return counted

    def add(self, masks: Iterable[int]) -> set[int]:
        """Count events by their masks; return the masks that are not in the alphabet."""
        outside: set[int] = set()
        for mask in masks:
            counted = self.counted(mask)
            counted.events += 1
            if not counted.in_alphabet:
                outside.add(mask)
        return outside

    def in_alphabet(
        self, events: Sequence[Event], masks: Sequence[int], outside: Collection[int]
    ) -> tuple[Sequence[int], Sequence[Event], Sequence[int]]:
        """Return the numbers of the events in the alphabet, these events and their masks.

        `outside` are the masks outside the alphabet, which `add` returned.
        """
        if not outside:
            return range(len(events)), events, masks
        inside = [mask not in outside for mask in masks]
        numbers = list(compress(range(len(events)), inside))
        return numbers, list(compress(events, inside)), list(compress(masks, inside))

    def totals(self) -> dict[Formula, int]:
        """Return how many events satisfied each guard.

        A guard that a loaded state lacks is left out, as its total is unknown.
        """
        totals = dict.fromkeys(self._guards, 0) if self._totals is None else dict(self._totals)
        for mask, counted in self._by_mask.items():
            if counted.satisfied is None:
                counted.satisfied = tuple([g for g in self._guards if evaluate(g, mask)])
            for guard in counted.satisfied:
                if guard in totals:
                    totals[guard] += counted.events
        return totals

    # --- state ---

    def save(self) -> Any:
        """Return the totals of the guards, by their keys, as plain data."""
        totals = {self._guards[guard]: count for guard, count in self.totals().items()}
        return dict(sorted(totals.items()))

    def load(self, value: Any) -> None:
        """Load what `save` returned into a fresh object, which may count other guards."""
        self._totals = {guard: value[key] for guard, key in self._guards.items() if key in value}

    def validate_state(self) -> None:
        """Assert the bound of the table."""
        assert len(self._by_mask) <= MASKS_MAX
        assert self._totals is None or self._totals.keys() <= self._guards.keys()
