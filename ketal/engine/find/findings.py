"""Findings: the result of an event, or of the passing of time, in a scope of a `find`.

The one rule: of several mirror images, one is a match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ketal.engine.configurations import Seen

MATCHES: Final = "events of which matches are missing"
"""The text for the events whose matches a limit drops: not how many matches they are."""

Taken = tuple[tuple[int, Seen], ...]
"""The events taken, in order, each with the number of its step: (step, event)."""


@dataclass(slots=True)
class Live:
    """State that all scopes of a pattern share."""

    count: int = 0  # how many runs there are, or events are kept
    counting: bool = False  # whether matches need not be listed, only counted
    # The runs of a `find any` that have events to index.
    unindexed: dict[Any, None] = field(default_factory=dict)

    def index(self) -> None:
        """Index all events that wait for it, so that `count` has none that are of no use."""
        for run in list(self.unindexed):
            run.index()


class Findings:
    """The result of one event, or of the passing of time, in a scope."""

    __slots__ = ("counted", "matches", "moves", "overflows", "timed_out")

    def __init__(self) -> None:
        self.matches: list[Taken] = []  # mirror images removed
        self.counted = 0  # how many more matches there are, which are not listed
        # Runs, or events of a first step, whose window ended without a match.
        self.timed_out: list[Taken] = []
        self.overflows: dict[tuple[str, str], int] = {}  # by limit and text of what was dropped
        # (state, step, state after it, event) of every transition.
        self.moves: list[tuple[int, int, int, Seen]] = []

    def is_empty(self) -> bool:
        """Return whether nothing was found."""
        return not (self.matches or self.counted or self.timed_out or self.overflows or self.moves)

    def overflow(self, limit: str, given_up: str, times: int = 1) -> None:
        """Count runs or events that were dropped because of a limit."""
        key = (limit, given_up)
        self.overflows[key] = self.overflows.get(key, 0) + times


def without_mirrors(matches: Sequence[Taken], classes: Sequence[int]) -> list[int]:
    """Return the indexes of one event's matches that are left without mirror images.

    Of matches with the same events, each in a step of the same class, only the least by `rank` is
    left. `classes` has the class of each step's local guard.
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
    """Return the sort key of mirror images: canonical order of events, then order of steps."""
    return tuple([s.key for _, s in taken]), tuple([step for step, _ in taken])
