"""What an event, or the passing of time, brings about in a scope of a `find`.

The one rule: of the mirror images of an occurrence one is a match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ketal.engine.configurations import Seen

Taken = tuple[tuple[int, Seen], ...]
"""What was bound, in order: (step number, event)."""


@dataclass(slots=True)
class Live:
    """What the scopes of a pattern share."""

    count: int = 0  # how many runs there are, or events are kept
    counting: bool = False  # whether it is enough to count matches
    # The runs of a `find any` that have events which wait to be indexed.
    unindexed: dict[Any, None] = field(default_factory=dict)

    def index(self) -> None:
        """Index all events that wait, so that none without use is counted."""
        for run in list(self.unindexed):
            run.index()


class Findings:
    """What one event, or the passing of time, brought about in a scope."""

    __slots__ = ("counted", "matches", "moves", "overflows", "timed_out")

    def __init__(self) -> None:
        self.matches: list[Taken] = []  # mirror images removed
        self.counted = 0  # how many more there are, which are not listed
        # Runs, or events of a first step, whose window ended without a match.
        self.timed_out: list[Taken] = []
        self.overflows: dict[tuple[str, str], int] = {}  # by limit and what was given up
        # (state, step, state after it, event) of every transition.
        self.moves: list[tuple[int, int, int, Seen]] = []

    def is_empty(self) -> bool:
        """Return whether nothing was found."""
        return not (self.matches or self.counted or self.timed_out or self.overflows or self.moves)

    def overflow(self, limit: str, given_up: str, times: int = 1) -> None:
        """Count what was given up for a limit."""
        at = (limit, given_up)
        self.overflows[at] = self.overflows.get(at, 0) + times


def without_mirrors(matches: Sequence[Taken], classes: Sequence[int]) -> list[int]:
    """Return the numbers of one event's matches that are left when mirror images are removed.

    Of matches that have the same events, each in a step of the same class, the one whose
    events come first in canonical order is left, then the one whose steps are declared first.
    The class of each step's local guard is in `classes`.
    """
    width = max(classes, default=0) + 1
    least: dict[Any, int] = {}
    for number, taken in enumerate(matches):
        key = frozenset([seen.place * width + classes[step] for step, seen in taken])
        other = least.get(key)
        if other is None or rank(taken) < rank(matches[other]):
            least[key] = number
    return list(least.values())


def rank(taken: Taken) -> tuple[Any, ...]:
    """Return what the least of mirror images is least in: its events, then its steps."""
    return tuple([s.key for _, s in taken]), tuple([step for step, _ in taken])
