"""What a job warns of because verdicts are probably missing: no message, what no event met.

The one rule: after `[time] vacuous_after_ms` what is still so is said once.
"""

from __future__ import annotations

from collections.abc import Callable

from ketal.programs.program import Program
from ketal.runtime.silence import unknown_comparisons, vacuity
from ketal.runtime.silence.vacuity import Findings
from ketal.streaming.job.file import Job
from ketal.streaming.job.metrics import Figures

EVERY_S = 5.0
"""Between two looks at what the events met."""


class VacuityWatch:
    """Looks at what the events of a job met, sets the findings of its figures, and warns."""

    def __init__(
        self, job: Job, program: Program, figures: Figures, notify: Callable[[str], None]
    ) -> None:
        self._after_s = job.vacuous_after_ms / 1e3
        self._topics = ", ".join(job.topics)
        self._kinds = {compiled.name: compiled.kind for compiled in program.compiled}
        self._figures = figures
        self._notify = notify
        self._began_s: float | None = None
        self._due_s = 0.0
        self._warned: set[str] = set()

    def look(self, now_s: float, findings: Callable[[], Findings]) -> None:
        """Look, if it is time; the time is in seconds since any moment."""
        if self._began_s is None:
            self._began_s = self._due_s = now_s
        warned_s = self._began_s + self._after_s
        if now_s < self._due_s:
            return
        self._due_s = now_s + EVERY_S
        if now_s < warned_s:
            self._due_s = min(self._due_s, warned_s)
        self._figures.findings = lists = findings()
        if now_s < warned_s:
            return
        if not self._figures.consumed:
            self._warn("", f"no message has come from {self._topics} since the job began")
        for name, kind in self._kinds.items():
            texts = vacuity.warnings(kind, lists.get("vacuous", {}).get(name, []))
            texts += unknown_comparisons.warnings(lists.get("unknown", {}).get(name, []))
            if texts:
                self._warn(name, "; ".join(f"{name}: {text}" for text in texts))

    def _warn(self, name: str, text: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            self._notify(f"warning: {text}")
