"""The state of a job that outlives its sessions."""

from __future__ import annotations

import uuid
from functools import cached_property
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

    @cached_property
    def outputs(self) -> Outputs:
        """The outputs, whose files are open from the first use to the end."""
        return Outputs(self.job, self.hooks.show, self.hooks.flush)

    def close_outputs(self) -> None:
        """Close the outputs' files, if any was opened."""
        if "outputs" in vars(self):
            self.outputs.close()
            del self.outputs
