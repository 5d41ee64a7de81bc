"""The partial matches of `find next` and `find strict`.

A partial match is a configuration together with the events taken. A run holds the partial
matches that one event started.

The one rule: a partial match lies between the first and the last of the events it has taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ketal.engine.configurations import Configuration, Seen, SeenTable
from ketal.engine.find.findings import Taken


class Partial:
    """A partial match: a configuration, and the events taken.

    Parameters
    ----------
    configuration : Configuration
        The configuration.
    taken : Taken
        The events.
    run : Run
        The run that it belongs to.
    parent : Partial or None
        What it was before it took the last of its events; None for a run's first.
    """

    __slots__ = (
        "configuration", "high_place", "high_us", "low_place", "low_us", "run", "taken",
    )  # fmt: skip

    def __init__(
        self,
        configuration: Configuration,
        taken: Taken,
        run: Run,
        parent: Partial | None,
    ) -> None:
        self.configuration = configuration
        self.taken = taken
        self.run = run
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
        run = self.run.start.place
        bounds = (self.low_us, self.high_us, self.low_place, self.high_place)
        return (self.configuration.save(seens), taken, run, bounds)

    @classmethod
    def load(cls, value: Any, seens: SeenTable, runs: Mapping[int, Run]) -> Partial:
        """Return the partial match that `save` gave, of one of some runs."""
        configuration, taken, run, bounds = value
        partial = cls(
            Configuration.load(configuration, seens),
            tuple([(step, seens[number]) for step, number in taken]),
            runs[run],
            None,
        )
        partial.low_us, partial.high_us, partial.low_place, partial.high_place = bounds
        return partial

    def validate_state(self) -> None:
        """Assert the rule of this module."""
        places = [seen.place for _, seen in self.taken]
        assert (self.low_place, self.high_place) == (min(places), max(places))
        assert self in self.run.partials


class Run:
    """All partial matches of `find next` or `find strict` that one event started."""

    __slots__ = ("matched", "partials", "start")

    def __init__(self, start: Seen) -> None:
        self.start = start
        self.partials: dict[Partial, None] = {}
        self.matched = False
