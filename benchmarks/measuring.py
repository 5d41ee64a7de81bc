"""Runs of a piece of work: how long by the clock, how long of a core, and what came out.

The one rule: what is compared runs by turns in the same minutes. Each work is run until it is warm,
then one run of each follows one of each other, and the median counts.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple, Protocol

WARM_EVENTS = 1_000_000
"""So many events are processed before the first run that counts."""


class Run(NamedTuple):
    """One run.

    Attributes
    ----------
    units : int
        What is counted: events, or matches.
    clock_s : float
        Seconds by the clock.
    core_s : float
        Seconds of a core, of all threads together.
    matches : int
        How many were found.
    events : int
        How many events were processed.
    growth : float
        The share by which resident memory grew, where that is looked at.
    """

    units: int
    clock_s: float
    core_s: float
    matches: int = 0
    events: int = 0
    growth: float = 0.0


class Inspection(NamedTuple):
    """What a work finds.

    Attributes
    ----------
    matches : int
        How many.
    digest : int or None
        Sums up which events they are of; None where that is not looked at.
    fault : str
        Why the answer is not complete, or nothing.
    """

    matches: int
    digest: int | None
    fault: str = ""

    def differs(self, other: Inspection) -> bool:
        """Return whether two answers are not the same."""
        digests = {self.digest, other.digest} - {None}
        return self.matches != other.matches or len(digests) > 1


class Work(Protocol):
    """Something that is measured."""

    def run(self) -> Run:
        """Do it once."""

    def inspect(self) -> Inspection | None:
        """Return what it finds, or None where nothing is compared; it is not measured."""


@dataclass
class Measured:
    """The runs of a work."""

    runs: list[Run] = field(default_factory=list)
    warm_events: int = 0

    @property
    def rate(self) -> float:
        """Units for each second of a core: the median of the runs."""
        return median(run.units / max(run.core_s, 1e-9) for run in self.runs)

    @property
    def clock_rate(self) -> float:
        """Units a second by the clock: the median of the runs."""
        return median(run.units / max(run.clock_s, 1e-9) for run in self.runs)

    @property
    def core_s(self) -> float:
        """Seconds of a core for one run: the median."""
        return median(run.core_s for run in self.runs)

    @property
    def clock_s(self) -> float:
        """Seconds by the clock for one run: the median."""
        return median(run.clock_s for run in self.runs)


def timed(work: Callable[[], int]) -> Run:
    """Run a function that returns how many matches there are; its units are those."""
    gc.collect()
    clock_s, core_s = time.perf_counter(), time.process_time()
    matches = work()
    core_s, clock_s = time.process_time() - core_s, time.perf_counter() - clock_s
    return Run(matches, clock_s, core_s, matches)


def warmed(work: Work, *, events: int, seconds: float) -> Measured:
    """Run a work until it has processed so many events or for so long; return an empty record."""
    measured = Measured()
    begun = time.perf_counter()
    while measured.warm_events < events and time.perf_counter() - begun < seconds:
        measured.warm_events += work.run().events
    return measured
