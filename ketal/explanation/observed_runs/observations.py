"""What an observed run keeps: runs as they were, events as scopes were offered them, moves.

The one rule: nothing here changes once the event that it is of has been offered.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from ketal.engine.configurations import Configuration, Seen
from ketal.model.events.event import Event
from ketal.model.frozen_mapping import FrozenMapping
from ketal.model.verdicts.verdict_kinds import RunVerdict
from ketal.semantics import History

T = TypeVar("T")


def first_of(items: Iterator[T], most: int) -> tuple[list[T], bool]:
    """Return the first of some items, however high the limit, and whether there are more."""
    first = [item for _, item in zip(range(most), items, strict=False)]
    return first, next(items, None) is not None


class LiveRun:
    """A run of a scope, as it was when an event was offered.

    Parameters
    ----------
    configuration : Configuration
        Where it was.
    read : callable
        Returns the steps that it had taken, with their events.
    """

    def __init__(self, configuration: Configuration, read: Callable[[], History]) -> None:
        self.configuration = configuration
        self._read = read

    @functools.cached_property
    def taken(self) -> History:
        """The steps that it had taken, with their events.

        Of several readings that led to one configuration it is one; it is made when asked for, as
        it may be as long as the log.
        """
        return self._read()


@dataclass(slots=True)
class Offer:
    """An event as a scope was offered it.

    Attributes
    ----------
    scope : FrozenMapping
        The scope's key; of a copy of the pattern with its `node`.
    seen : Seen
        The event.
    live : list of LiveRun
        The runs that could have taken it: of a check its configurations, of a find also the run
        that it could start.
    cut : bool
        Whether there were more runs than `explained_runs_max`.
    halted : bool
        Whether the run of the check had ended before, at a violation.
    verdicts : list of RunVerdict
        What it brought about.
    """

    scope: FrozenMapping
    seen: Seen
    live: list[LiveRun]
    cut: bool = False
    halted: bool = False
    verdicts: list[RunVerdict] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Move:
    """An event that a scope of a check was offered, and the states before and after it.

    Attributes
    ----------
    position : int
        The place, among the events of the execution as they were offered, of the one with which
        the scope was offered it: of what a copy's node learns later, a later one.
    scope : FrozenMapping
        The scope's key.
    event : Event
        The event.
    before, after : tuple of int
        The states that the run may be in; none once it is halted.
    """

    position: int
    scope: FrozenMapping
    event: Event
    before: tuple[int, ...]
    after: tuple[int, ...]
