"""What the engines of a job have in common: what they show, how they end, what an outage is.

The one rule: while Kafka is away the job is retried, for `lost_after_ms` at most.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any

from ketal.errors import LostError
from ketal.programs.program import Program
from ketal.streaming.job.file import Job
from ketal.streaming.job.metrics import Figures, Hooks
from ketal.streaming.job.vacuity_watch import VacuityWatch

_WAIT_S = 0.05


class JobEngine(ABC):
    """A job in this process."""

    def __init__(self, job: Job, program: Program, hooks: Hooks) -> None:
        self.job = job
        self.program = program
        self.hooks = hooks
        self.stopping = False
        """Whether `run` is to commit and return."""
        self.summary: dict[str, Any] | None = None
        """The summary of what was committed; None before the job has run."""
        self.failing_since_s: float | None = None
        """Since when Kafka is away."""
        self._is_back = False
        self.figures = Figures()
        self.vacuity_watch = VacuityWatch(job, program, self.figures, hooks.notify)

    @abstractmethod
    def run(self) -> None:
        """Run until the stream ends or `stop` is called; all is committed then.

        Raises
        ------
        LostError
            If Kafka or Spark is lost for good, or another process took over.
        StateError
            If the saved state does not fit.
        SettingError
            If the settings are wrong, or a file cannot be written.
        """

    def stop(self) -> None:
        """Have `run` commit and return."""
        self.stopping = True

    def failed(self, what: str, lost: str, reason: object) -> None:
        """Report what failed, once until it recovers.

        Raises
        ------
        LostError
            If it has failed for `lost_after_ms`; `lost` begins its message, and `reason` ends it.
        """
        now_s = time.monotonic()
        if self.failing_since_s is None:
            self.failing_since_s = now_s
            self._is_back = False
            self.hooks.notify(f"{what}; trying again")
        self.figures.restarted()
        away_s = now_s - self.failing_since_s
        if 1e3 * away_s >= self.job.lost_after_ms:
            raise LostError(
                f"{lost} since {away_s:.0f} s ([kafka] lost_after_ms): {reason}"
            ) from None

    def returned(self) -> None:
        """Report Kafka back if it was away, once until the job recovers."""
        if self.failing_since_s is not None and not self._is_back:
            self._is_back = True
            self.hooks.notify("Kafka is back; going on from the last commit")

    def wait(self, time_s: float) -> None:
        """Wait so long, or until the job is to end."""
        until_s = time.monotonic() + time_s
        while not self.stopping and time.monotonic() < until_s:
            time.sleep(_WAIT_S)
