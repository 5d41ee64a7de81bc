"""The process engine, which runs a job in this process; each commit is one Kafka transaction.

The engine runs one session after another. A session has its own clients and state. Any exception of
a client ends the session, and the next session replays from the last commit, which is the only way
to recover. A process reads all partitions (`WholeSession`), or shares them with the other processes
of its group (`GroupSession`).

The one rule: a fault ends a session, and loses no commit.
"""

from __future__ import annotations

import contextlib

from ketal.errors import StateError, faults_placed
from ketal.programs.program import Program
from ketal.streaming.job.distribution import check_shareable
from ketal.streaming.job.file import Job
from ketal.streaming.job.metrics import Hooks
from ketal.streaming.job.outputs import Outputs
from ketal.streaming.kafka.connecting import client_errors
from ketal.streaming.kafka.connecting.client_calls import (
    CLIENT_ERRORS,
    StoppedCommitError,
    StoppedError,
)
from ketal.streaming.kafka.connecting.client_errors import OUT_OF_RANGE
from ketal.streaming.kafka.connecting.properties import check_properties
from ketal.streaming.kafka.group_session import GroupSession
from ketal.streaming.kafka.job_session import ChangedError, Session
from ketal.streaming.kafka.running_job import RunningJob
from ketal.streaming.kafka.whole_session import WholeSession

RETRY_FIRST_S, RETRY_MAX_S = 0.2, 3.0


class ProcessEngine(RunningJob):
    """A job that runs in this process; the parameters are those of `JobEngine`.

    Raises a SettingError if Kafka's properties are wrong, or several consumers cannot share the
    job.
    """

    def __init__(self, job: Job, program: Program, hooks: Hooks) -> None:
        with faults_placed(job.place):
            check_properties(job.properties)
        check_shareable(job, program)
        super().__init__(job, program, hooks)

    def run(self) -> None:
        """Run one session after another, until a session ends without a fault."""
        with contextlib.closing(Outputs(self.job, self.hooks)) as outputs:
            self._run_sessions(outputs)

    def _run_sessions(self, outputs: Outputs) -> None:
        wait_s = RETRY_FIRST_S
        while True:
            session = new_session(self, outputs)
            if self.failing_since_s is None:
                wait_s = RETRY_FIRST_S
            try:
                session.begin()
                session.run()
                return
            except ChangedError as reason:
                self.hooks.notify(f"{reason}; resuming from the last commit")
            except OUT_OF_RANGE as error:
                raise StateError(
                    f"the messages from which group {self.job.group_id} resumes are no longer in "
                    f"the topic: {client_errors.missing_messages(error)}\n  hint: use another "
                    "group_id and another [state] store to start over where [kafka] start says"
                ) from None
            except (StoppedError, StoppedCommitError):
                return
            except CLIENT_ERRORS as error:
                self._handle_failure(error)
            finally:
                session.close()
            self.wait(wait_s)
            if self.stopping:
                return
            wait_s = min(2 * wait_s, RETRY_MAX_S)

    def _handle_failure(self, error: BaseException) -> None:
        """Report an exception of a client, once in each outage; raise if a retry cannot help."""
        wrong = client_errors.settings_error(self.job, error)
        if wrong is not None:
            raise wrong from None
        reason = client_errors.describe(error)
        kafka = f"Kafka at {self.job.bootstrap_servers}"
        self.report_failure(f"{kafka} failed ({reason})", f"{kafka} has been failing", reason)


def new_session(engine: RunningJob, outputs: Outputs) -> Session:
    """Return a new session of a job."""
    return (GroupSession if engine.job.is_shared else WholeSession)(engine, outputs)
