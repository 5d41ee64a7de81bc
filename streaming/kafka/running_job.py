"""The state of a job that outlives its sessions."""

from __future__ import annotations

import uuid
from typing import Any

from kafka import TopicPartition

from ketal.programs.program import Program
from ketal.streaming.job.file import Job
from ketal.streaming.job.job_engine import JobEngine
from ketal.streaming.job.metrics import Hooks
from ketal.streaming.job.outputs import Outputs
from ketal.streaming.job.sharing import Watch


class RunningJob(JobEngine):
    """A job in this process, over all of its sessions."""

    def __init__(self, job: Job, program: Program, hooks: Hooks) -> None:
        super().__init__(job, program, hooks)
        self.owner = uuid.uuid4().hex
        self.claimed = False
        """Whether a session of this process has begun."""
        self.ends: dict[TopicPartition, int] | None = None
        """The ends of the topics when the job started, under `until_end`."""
        self.elsewhere: dict[Any, Any] | None = None
        """The group's offsets of other topics when the last session began."""
        self.consumed = 0
        self.watch = Watch(job, program) if job.is_shared else None
        self._outputs: Outputs | None = None

    @property
    def outputs(self) -> Outputs:
        """The outputs, whose files are open from the first use to the end."""
        if self._outputs is None:
            self._outputs = Outputs(self.job, self.hooks.show, self.hooks.flush)
        return self._outputs

    def close_outputs(self) -> None:
        """Close the outputs' files, if any was opened."""
        if self._outputs is not None:
            self._outputs.close()
            self._outputs = None
