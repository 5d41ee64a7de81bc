"""What of a job outlives its sessions."""

from __future__ import annotations

import uuid
from typing import Any

from kafka import TopicPartition

from ketal.program import Program
from ketal.streaming.job.file import Job
from ketal.streaming.job.metrics import Figures, Hooks
from ketal.streaming.job.outputs import Outputs
from ketal.streaming.job.sharing import Watch


class RunningJob:
    """A job in this process, over all of its sessions.

    Parameters
    ----------
    job : Job
        What runs.
    program : Program
        The patterns.
    hooks : Hooks
        Where notices, metrics and flushes go.
    """

    def __init__(self, job: Job, program: Program, hooks: Hooks) -> None:
        self.job = job
        self.program = program
        self.hooks = hooks
        self.owner = uuid.uuid4().hex
        self.claimed = False
        """Whether a session of this process has begun."""
        self.stopping = False
        self.figures = Figures()
        self.summary: dict[str, Any] | None = None
        self.failing_since_s: float | None = None
        self.ends: dict[TopicPartition, int] | None = None
        """Where the topics ended when the job started, if it is to go no further."""
        self.elsewhere: dict[Any, Any] | None = None
        """What the group had committed of other topics when the last session began."""
        self.consumed = 0
        self.watch = Watch(job, program) if job.is_shared else None
        self._outputs: Outputs | None = None

    @property
    def outputs(self) -> Outputs:
        """What the verdicts go through; its files are open from the first use to the end."""
        if self._outputs is None:
            self._outputs = Outputs(self.job, self.hooks.show, self.hooks.flush)
        return self._outputs

    def close_outputs(self) -> None:
        """Close the outputs' files, if any was opened."""
        if self._outputs is not None:
            self._outputs.close()
            self._outputs = None

    def stop(self) -> None:
        """Ask the engine to commit and to return."""
        self.stopping = True
