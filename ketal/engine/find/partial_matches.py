"""Partial matches, and what comes of them.

A partial match is a configuration together with the events taken. The runs of
`find next` and `find strict` hold the partial matches that one event started;
in `find any` each stands for itself.

The one rule: a partial match lies between the first and the last of the events it has taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ketal.engine.configurations import Configuration, Seen, SeenTable

Taken = tuple[tuple[int, Seen], ...]
"""What was bound, in order: (step number, event)."""

Join = Mapping[str, int]
"""The clock of what some events know together; shared, so never changed."""


@dataclass(slots=True)
class Live:
    """How many partial matches a pattern has, over all of its scopes."""

    count: int = 0


class Partial:
    """A partial match: a configuration, and how it came about.

    Attributes
    ----------
    join : dict of str to int, or None
        What the events taken know together (`find any` under CausalOrder).
    indexed : bool
        Whether it is in an index: what a window ended is not.
    broken : dict, or None
        Which events break its pending `not` guards, as far as they were looked through.
    """

    __slots__ = (
        "broken",
        "configuration",
        "high_place",
        "high_us",
        "indexed",
        "join",
        "low_place",
        "low_us",
        "run",
        "taken",
    )

    def __init__(
        self,
        configuration: Configuration,
        taken: Taken,
        run: Run | None,
        join: Join | None,
        parent: Partial | None,
    ) -> None:
        self.configuration = configuration
        self.taken = taken
        self.run = run
        self.join = join
        self.indexed = False
        self.broken: dict[Any, tuple[int, int]] | None = None
        seen = taken[-1][1]
        time, place = seen.time_us, seen.place
        if parent is None:
            self.low_us = self.high_us = time
            self.low_place = self.high_place = place
        else:
            self.low_place = min(parent.low_place, place)
            self.high_place = max(parent.high_place, place)
            low, high = parent.low_us, parent.high_us
            if low is None or high is None or time is None:
                self.low_us = self.high_us = None
            else:
                self.low_us, self.high_us = min(low, time), max(high, time)

    @property
    def prior(self) -> Seen:
        """The last event taken."""
        return self.taken[-1][1]

    def save(self, seens: SeenTable) -> Any:
        """Return the partial match as plain data; `seens` numbers its events."""
        taken = [(step, seens.number(seen)) for step, seen in self.taken]
        run = None if self.run is None else self.run.start.place
        bounds = (self.low_us, self.high_us, self.low_place, self.high_place)
        join = None if self.join is None else dict(self.join)
        return (self.configuration.save(seens), taken, run, join, bounds)

    @classmethod
    def load(cls, value: Any, seens: SeenTable, runs: Mapping[int, Run]) -> Partial:
        """Return the partial match that `save` gave, of one of some runs or of none."""
        configuration, taken, run, join, bounds = value
        partial = cls(
            Configuration.load(configuration, seens),
            tuple([(step, seens[number]) for step, number in taken]),
            None if run is None else runs[run],
            join,
            None,
        )
        partial.low_us, partial.high_us, partial.low_place, partial.high_place = bounds
        return partial

    def validate_state(self) -> None:
        """Assert the rule of this module."""
        places = [seen.place for _, seen in self.taken]
        assert (self.low_place, self.high_place) == (min(places), max(places))
        assert self.indexed
        assert self.run is None or self in self.run.partials


class Run:
    """All partial matches of `find next` or `find strict` that one event started."""

    __slots__ = ("matched", "partials", "start")

    def __init__(self, start: Seen) -> None:
        self.start = start
        self.partials: dict[Partial, None] = {}
        self.matched = False


@dataclass(slots=True)
class Findings:
    """What one event, or the passing of time, brought about in a scope.

    Attributes
    ----------
    matches : list of Taken
        Complete matches, mirror images removed.
    timed_out : list of Taken
        Runs or first-step events whose window ended without a match.
    overflows : dict of (str, str) to int
        For each (limit, what was given up), how many of them.
    moves : list of (int, int, int, Seen)
        (state, step, state after it, event) of every transition.
    """

    matches: list[Taken] = field(default_factory=list)
    timed_out: list[Taken] = field(default_factory=list)
    overflows: dict[tuple[str, str], int] = field(default_factory=dict)
    moves: list[tuple[int, int, int, Seen]] = field(default_factory=list)

    def overflow(self, limit: str, given_up: str, times: int = 1) -> None:
        """Count what was given up for a limit."""
        at = (limit, given_up)
        self.overflows[at] = self.overflows.get(at, 0) + times


def rank(taken: Taken) -> tuple[Any, ...]:
    """Return what the least of mirror images is least in: its events, then its steps."""
    return tuple(s.key for _, s in taken), tuple(step for step, _ in taken)


def joined(join: Join, clock: Join) -> Join:
    """Return the least clock that knows what both know; one of the two where that is it."""
    for node, counter in join.items():
        if clock.get(node, 0) < counter:
            break
    else:
        return clock
    more = dict(join)
    for node, counter in clock.items():
        if counter > more.get(node, 0):
            more[node] = counter
    return more
