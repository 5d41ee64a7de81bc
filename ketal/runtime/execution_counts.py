"""What an execution has counted: outcomes of records and of patterns, and what its events met.

The one rule: the counts of the parts of an execution add up to those of the whole; what a pattern's
events never were (`vacuous`, `unknown`) is found of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ketal.engine.pattern_run import PatternRun
from ketal.runtime.admission.deduplication import Tally
from ketal.runtime.release import Release
from ketal.runtime.retirement import RetiringRelease
from ketal.runtime.silence.vacuity import MetEvents, PatternMet, add_findings, findings
from ketal.runtime.state.execution_state import Progress


@dataclass(frozen=True, slots=True)
class ExecutionCounts:
    """The counts of an execution so far.

    Attributes
    ----------
    runs : sequence of PatternRun
    release : Release
    retiring : RetiringRelease or None
    progress : Progress
        The parts of the execution.
    """

    runs: Sequence[PatternRun]
    release: Release
    retiring: RetiringRelease | None
    progress: Progress

    @property
    def live_runs(self) -> int:
        """How many runs and events of a `find any` are live, those of retiring patterns too."""
        retiring = () if self.retiring is None else self.retiring.runs
        return sum(run.live_runs() for run in (*self.runs, *retiring))

    @property
    def tally(self) -> Tally:
        """The outcomes of the records."""
        return self.release.tally(self.progress.counted)

    @property
    def met_events(self) -> MetEvents:
        """What the events met of the patterns."""
        since, events = self.progress.since, 0
        if self.release.has_offered:
            events = self.tally.accepted
        patterns = {
            run.compiled.name: PatternMet.of(run, max(0, events - since.get(run.compiled.name, 0)))
            for run in self.runs
        }
        return MetEvents(patterns, self.progress.names.met(), self.progress.kinds.met())

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers of the summary, which those of parts of an execution add up to."""
        return {
            "events": self.tally.to_dict(),
            "patterns": {run.compiled.name: run.counts.to_dict() for run in self.runs},
            **self.release.counts(),
            **({} if self.retiring is None else {"draining": self.retiring.summary}),
        }

    @property
    def summary(self) -> dict[str, Any]:
        """The summary: `events`, `patterns`, `gaps`, `holes`, and counts that are rare."""
        out = self.numbers
        compiled = [run.compiled for run in self.runs]
        add_findings(out["patterns"], findings(compiled, self.met_events))
        return out
