"""The base of the engines of a job: figures and notices, stopping, retries during an outage.

An engine also warns that verdicts are probably missing, if after `[time] vacuous_after_ms` no
message has come, no message has a field that `[source] fields` maps, a pattern is still vacuous or
has unknown comparisons, or events have waited for so long for an event that may never arrive.

The one rule: while Kafka is away the job is retried, for `lost_after_ms` at most.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any

from ketal.errors import LostError
from ketal.logs.source import MappedFields
from ketal.model.events.dot import Dot
from ketal.model.wording import counted
from ketal.programs.program import Program
from ketal.runtime.silence import unknown_comparisons, vacuity
from ketal.runtime.silence.vacuity import Findings
from ketal.streaming.job.distribution import waits_for_ever
from ketal.streaming.job.file import Job
from ketal.streaming.job.metrics import Figures, Hooks

_WAIT_S = 0.05
_VACUITY_EVERY_S = 5.0


class JobEngine(ABC):
    """A job in this process."""

    def __init__(self, job: Job, program: Program, hooks: Hooks) -> None:
        undecided = job.source.undecided
        self.job = job
        self.program = program.for_undecided_clocks(undecided) if undecided else program
        self.hooks = hooks
        self.stopping = False
        """Whether `run` must commit and return."""
        self.summary: dict[str, Any] | None = None
        """The summary of everything committed; None before the job has run."""
        self.failing_since_s: float | None = None
        """When the current outage began, by the monotonic clock; None if there is none."""
        self._is_back = False
        self.has_begun = False
        """Whether a session or a query of this process has begun."""
        self.figures = Figures()
        self.awaited: Counter[Dot] = Counter()
        """The missing dots for which events were held back when the job ended; how many for each.

        Empty on Spark, where only the executors know them."""
        self.mapped = MappedFields(job.source.fields)
        self.vacuity_watch = VacuityWatch(self)

    @abstractmethod
    def run(self) -> None:
        """Run until the stream ends or `stop` is called; commit everything before returning.

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
        """Make `run` commit and return."""
        self.stopping = True

    def report_failure(self, what: str, lost: str, reason: object) -> None:
        """Report a failure that is retried, once in each outage.

        `what` is the notice. `lost` begins the message of the LostError, and `reason` ends it.

        Raises a LostError if the outage has lasted for `lost_after_ms`.
        """
        now_s = time.monotonic()
        if self.failing_since_s is None:
            self.failing_since_s = now_s
            self._is_back = False
            self.hooks.notify(f"{what}; trying again")
        self.figures.clear_rate()
        away_s = now_s - self.failing_since_s
        if 1e3 * away_s >= self.job.lost_after_ms:
            raise LostError(
                f"{lost} for {away_s:.0f} s ([kafka] lost_after_ms): {reason}"
            ) from None

    def count_start(self) -> None:
        """Count the start of a session or a query as a restart, unless it is the first."""
        if self.has_begun:
            self.figures.count_restart()
        self.has_begun = True

    def report_recovery(self) -> None:
        """Report that Kafka is back after an outage, once until the job has recovered."""
        if self.failing_since_s is not None and not self._is_back:
            self._is_back = True
            self.hooks.notify("Kafka is back; resuming from the last commit")

    def wait(self, time_s: float) -> None:
        """Wait for some time, or until `stop` is called."""
        until_s = time.monotonic() + time_s
        while not self.stopping and time.monotonic() < until_s:
            time.sleep(_WAIT_S)


class VacuityWatch:
    """Updates the vacuity findings in a job's figures, and warns of each once."""

    def __init__(self, engine: JobEngine) -> None:
        self._engine = engine
        self._began_s: float | None = None
        self._due_s = 0.0
        self._warned: set[str] = set()
        self._awaited: Counter[Dot] = Counter()
        self._awaited_due_s = 0.0

    def update(
        self,
        now_s: float,
        findings: Callable[[], Findings],
        awaited: Callable[[], Counter[Dot]] = Counter,
    ) -> None:
        """Update the findings if they are due, and warn after `vacuous_after_ms`.

        `now_s` is the time by any clock that never goes back; `awaited` returns the missing dots
        that no `gap` gives up, and how many events wait for each.
        """
        engine = self._engine
        if self._began_s is None:
            self._began_s = now_s
        warned_s = self._began_s + engine.job.vacuous_after_ms / 1e3
        if now_s < self._due_s:
            return
        is_early = now_s < warned_s
        self._due_s = now_s + _VACUITY_EVERY_S
        if is_early:
            self._due_s = min(self._due_s, warned_s)
        engine.figures.findings = lists = findings()
        if is_early:
            return
        # Without a lag the engine has not finished a read yet: on Spark, its first batch.
        if engine.figures.lag and not engine.figures.consumed:
            topics = ", ".join(engine.job.topics)
            self._warn("", f"no message received from {topics} since the job started")
        for sentence in engine.mapped.sentences():
            self._warn(sentence, f"[source] fields: {sentence}")
        for compiled in engine.program.compiled:
            name = compiled.name
            texts = vacuity.warnings(compiled.kind, lists.get("vacuous", {}).get(name, []))
            texts += unknown_comparisons.warnings(lists.get("unknown", {}).get(name, []))
            if texts:
                self._warn(name, "; ".join(f"{name}: {text}" for text in texts))
        self._check_awaited(now_s, awaited)

    def _check_awaited(self, now_s: float, awaited: Callable[[], Counter[Dot]]) -> None:
        """Warn if a dot that events wait for has been missing for `vacuous_after_ms`.

        Only while all messages are read, since the event may be in one that is not.
        """
        engine = self._engine
        if now_s < self._awaited_due_s or any(engine.figures.lag.values()):
            return
        if not any(map(waits_for_ever, engine.program.compiled)):
            return
        wait_s = engine.job.vacuous_after_ms / 1e3
        self._awaited_due_s = now_s + wait_s
        before, self._awaited = self._awaited, awaited()
        still = {dot: count for dot, count in self._awaited.items() if dot in before}
        if still:
            dot = max(sorted(still), key=still.__getitem__)
            self._warn(
                "held back",
                f"{counted(still[dot], 'event')} held back: {dot}, which clocks know of, has not "
                f"arrived for {wait_s:.0f} s; without `gap` in CausalOrder, events wait for it for "
                "ever",
            )

    def _warn(self, name: str, text: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            self._engine.hooks.notify(f"warning: {text}")
