"""Runs of a work: the time by the clock, the CPU time, and the result.

The one rule: works that are compared run alternately, in the same minutes. Each work is run until
it is warm; then they take turns, and the median of the runs counts.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple, Protocol

WARM_EVENTS = 1_000_000
"""How many events are processed before the first run that counts."""


class Run(NamedTuple):
    """One run.

    Attributes
    ----------
    units : int
        How many units were processed: events, or matches.
    clock_s : float
        Seconds by the clock.
    core_s : float
        CPU seconds, of all threads together.
    matches : int
        How many matches were found.
    events : int
        How many events were processed.
    growth : float
        The share by which resident memory grew, if that is measured.
    """

    units: int
    clock_s: float
    core_s: float
    matches: int = 0
    events: int = 0
    growth: float = 0.0


class Inspection(NamedTuple):
    """The matches that a work finds.

    Attributes
    ----------
    matches : int
        How many matches there are.
    digest : int or None
        A digest of the events of the matches; None if it is not computed.
    fault : str
        Why the matches are incomplete; empty if they are complete.
    """

    matches: int
    digest: int | None
    fault: str = ""

    def differs(self, other: Inspection) -> bool:
        """Return whether two results differ; a missing digest is not compared."""
        digests = {self.digest, other.digest} - {None}
        return self.matches != other.matches or len(digests) > 1


class Work(Protocol):
    """Something that is measured."""

    def run(self) -> Run:
        """Do the work once."""

    def inspect(self) -> Inspection | None:
        """Return the matches, or None if they are not compared; this is not measured."""


@dataclass
class Measured:
    """The runs of a work."""

    runs: list[Run] = field(default_factory=list)
    warm_events: int = 0

    @property
    def rate(self) -> float:
        """Units per CPU second, the median of the runs."""
        return median(run.units / max(run.core_s, 1e-9) for run in self.runs)

    @property
    def clock_rate(self) -> float:
        """Units per second by the clock, the median of the runs."""
        return median(run.units / max(run.clock_s, 1e-9) for run in self.runs)

    @property
    def core_s(self) -> float:
        """CPU seconds of a run, the median."""
        return median(run.core_s for run in self.runs)

    @property
    def clock_s(self) -> float:
        """Seconds of a run by the clock, the median."""
        return median(run.clock_s for run in self.runs)


def timed(work: Callable[[], int]) -> Run:
    """Run a function that returns the number of matches, which are the units of the run."""
    gc.collect()
    clock_s, core_s = time.perf_counter(), time.process_time()
    matches = work()
    core_s, clock_s = time.process_time() - core_s, time.perf_counter() - clock_s
    return Run(matches, clock_s, core_s, matches)


def warm_up(work: Work, *, events: int, seconds: float) -> Measured:
    """Run a work for a number of events or of seconds; return a record without measured runs."""
    measured = Measured()
    begun = time.perf_counter()
    while measured.warm_events < events and time.perf_counter() - begun < seconds:
        measured.warm_events += work.run().events
    return measured
