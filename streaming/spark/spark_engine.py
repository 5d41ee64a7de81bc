"""The Spark engine of `ketal stream`: a query from topics through key groups to the outputs.

Spark commits state and offsets to its checkpoint, batch by batch. The engine starts the query,
passes each batch to the sink, and reports figures. A fault of the settings and saved state that
does not fit end the query and the job. An outage of Kafka ends the query only, which is then
restarted on its checkpoint, until the outage has lasted for `lost_after_ms`.

The one rule: a batch is finished, or processed again from the checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from typing import TYPE_CHECKING, Any

from ketal import errors
from ketal.errors import KetalError, LostError, SettingError, StateError, faults_placed
from ketal.model.events.event_time import seconds
from ketal.model.summaries import Tally, total
from ketal.programs.program import Program
from ketal.runtime.silence import vacuity
from ketal.streaming.job.file import Job
from ketal.streaming.job.job_engine import JobEngine
from ketal.streaming.job.messages import MessageMetadata, message_paths
from ketal.streaming.job.metrics import Hooks
from ketal.streaming.job.outputs import ClosedPipeError, Outputs, too_large_error
from ketal.streaming.spark import families as grouping
from ketal.streaming.spark import group_rows
from ketal.streaming.spark.checkpoint import OTHER_STORE, Checkpoint
from ketal.streaming.spark.java_clients import kafka_options, partition_counts
from ketal.streaming.spark.session import spark_session
from ketal.streaming.spark.sink import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WAIT_S = 0.2
CHECK_S = 1.0
RETRY_S = 3.0
_KETAL_ERROR = re.compile(r"ketal\.errors\.(\w+): (.*)")
_WORKER = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+([\w.]+): (.*)")
_TRANSIENT = ("py4j.", "pyspark.", "OSError", "EOFError", "MemoryError", "Connection", "BrokenPipe",
            "Timeout", "Blocking", "Interrupted")  # fmt: skip
"""Prefixes of the names of those exceptions of a worker after which a retry may succeed."""
_DATA_LOSS = re.compile(r"KAFKA_DATA_LOSS|OffsetOutOfRangeException|Some data may have been lost")
_MISSING_FILE = re.compile(
    r"FileNotFoundException: (?=.*(?:not exist|not found|No such file))(?!.*\.tmp\b)"
    r"(.*/checkpoint-\d+/.*)"
)
"""Not a file that cannot be opened, as on a full disk, nor one that is being written (`.tmp`)."""
_NOT_ALLOWED = re.compile(r"\w+(?:Authentication|Authorization)Exception")
_KAFKA = re.compile(r"org\.apache\.kafka\.\S*|KafkaException|Failed to construct kafka")


class SparkEngine(JobEngine):
    """A job that runs on Spark; the parameters are those of `JobEngine`.

    Raises a SettingError if the program cannot run in key groups, or a property is unknown.
    """

    def __init__(self, job: Job, program: Program, hooks: Hooks) -> None:
        super().__init__(job, program, hooks)
        self.families = grouping.families(program, job.key_groups)
        with faults_placed(job.place):
            self._options = kafka_options(job)
        self._failure: BaseException | None = None
        self._checked_s = 0.0
        self._is_waiting_for_stop = False
        """Whether the query waits in `_wait_for_stop`, in a batch that must not run."""

    def run(self) -> None:
        """Run batches until the job must end; finish the batch that runs then."""
        with contextlib.ExitStack() as stack:
            # Spark takes a while to start, so a folder of this machine is checked first.
            session = self._session(stack) if self.job.store.is_remote else None
            checkpoint = Checkpoint(self.job, self.program, session, self.hooks.notify)
            stack.callback(checkpoint.close)
            if self._all_ended(checkpoint):
                self.hooks.notify(
                    "the execution has ended (ketal.end); use another [state] store to begin a new "
                    "one"
                )
                self.summary = self._summary(checkpoint)
                return
            outputs = stack.enter_context(contextlib.closing(Outputs(self.job, self.hooks)))
            self._run(session or self._session(stack), checkpoint, outputs)

    def _session(self, stack: contextlib.ExitStack) -> SparkSession:
        """Return a session; if its Spark was started for the job, it ends with the stack."""
        session, own = spark_session(self.job, self.hooks.notify)
        if own:
            stack.callback(_stop_spark, session)
        return session

    def _run(self, session: SparkSession, checkpoint: Checkpoint, outputs: Outputs) -> None:
        from py4j.protocol import Py4JError

        count = self.figures.count_verdicts
        sink = Sink(self.job, self._options, outputs, checkpoint, count, self.mapped)
        try:
            while not self.stopping:
                try:
                    counts = partition_counts(session, self.job, self._options)
                    starting = checkpoint.begin(counts)
                    rows = self._group_rows(session, counts, starting)
                    query = self._start_query(session, checkpoint, sink, rows)
                    self.count_start()
                    self._follow(query, checkpoint)
                    break
                except LostError as lost:
                    outputs.clear()
                    self.report_failure(str(lost), "the job has been failing", lost)
                    self.wait(RETRY_S)
        except (Py4JError, ConnectionError) as fault:
            if not _is_connection_lost(fault):
                raise
            # A signal to the whole process group ends Spark as well, so then this is not a fault.
            if not self.stopping:
                raise LostError(
                    f"the connection to Spark was lost: {fault or type(fault).__name__}"
                ) from None
        finally:
            if checkpoint.written.batch >= 0:
                self.summary = self._summary(checkpoint)

    # --- a query ---

    def _group_rows(
        self, session: SparkSession, counts: dict[str, int], starting: str
    ) -> DataFrame:
        """Return a stream of the rows that the key groups emit for the messages of the topics."""
        job = self.job
        headers = MessageMetadata(message_paths(job.source)).headers
        events = (
            session.readStream.format("kafka")
            .options(**self._options)
            .option("subscribe", ",".join(job.topics))
            .option("startingOffsets", starting)
            .option("maxOffsetsPerTrigger", grouping.batch_messages_max(self.families, job))
            .option("kafka.isolation.level", "read_committed")
            .option("includeHeaders", str(bool(headers)).lower())
            .load()
        )
        return group_rows(
            self.program,
            events,
            key_groups=job.key_groups,
            source=job.source,
            lateness_ms=job.lateness_ms,
            partitions=sum(counts[topic] for topic in job.topics),
            limits=job.limits,
            figures=True,
            verdict_bytes_max=job.bytes_max(job.verdicts),
            rejection_bytes_max=job.bytes_max(job.rejected),
        )

    def _start_query(
        self, session: SparkSession, checkpoint: Checkpoint, sink: Sink, rows: DataFrame
    ) -> StreamingQuery:
        """Start a query that writes rows to the sink, with the checkpoint."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        def write(batch: Any, number: int) -> None:
            if self.stopping:
                self._wait_for_stop(session)
            began_s = time.monotonic()
            try:
                sink.write(batch, number)
            except BaseException as fault:
                self._failure = fault
                raise
            self.figures.count_commit(time.monotonic() - began_s)
            if self._all_ended(checkpoint):
                self.stopping = True

        writer = (
            rows.writeStream.foreachBatch(write)
            .queryName(f"ketal {self.job.group_id}")
            .option("checkpointLocation", checkpoint.address)
        )
        if self.job.until_end:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self.job.trigger_ms} milliseconds")
        self._failure, self._is_waiting_for_stop = None, False
        try:
            return writer.start()
        except (PySparkException, Py4JJavaError) as fault:
            raise self._classified_fault(str(fault)) from None

    def _wait_for_stop(self, session: SparkSession) -> None:
        """Wait in a batch that must not run, until its query is stopped.

        An exception would end the query too, but Spark logs two screens of text about it. Stopping
        a query interrupts the thread that sleeps here, which Spark does not log as a failure.
        """
        from py4j.protocol import Py4JJavaError

        self._is_waiting_for_stop = True
        context: Any = session.sparkContext
        try:
            context._jvm.java.lang.Thread.sleep(sys.maxsize)
        except Py4JJavaError as interrupt:
            # Spark matches the stack trace with a regular expression, which overflows the stack
            # if the text is long.
            none = context._gateway.new_array(context._jvm.java.lang.StackTraceElement, 0)
            interrupt.java_exception.setStackTrace(none)
            raise

    def _follow(self, query: StreamingQuery, checkpoint: Checkpoint) -> None:
        """Wait until a query ends; stop it between two batches when the job must end."""
        from pyspark.errors import PySparkException

        try:
            while not query.awaitTermination(WAIT_S):  # type: ignore[arg-type]
                self._update_figures(query, checkpoint)
                if self.stopping and (
                    self._is_waiting_for_stop or not query.status["isTriggerActive"]
                ):
                    query.stop()
            self._update_figures(query, checkpoint, now=True)
        except PySparkException as fault:
            if self.stopping and self._failure is None:
                return
            raise self._classified_fault(str(fault)) from None
        finally:
            # A batch that is written may still fail, when Spark records it in the checkpoint. The
            # first time that a query has read everything, it reports progress without a batch.
            if query.lastProgress:
                self.failing_since_s = None
            if query.isActive:
                query.stop()

    def _classified_fault(self, text: str) -> BaseException:
        """Return the fault that ended a query; `text` is Spark's message."""
        failure = self._failure
        if isinstance(failure, KetalError | OSError | ClosedPipeError):
            return failure
        if failure is not None:
            # An exception of Spark, whose text alone has the cause.
            text = f"{text}\n{failure}"
        if (worker := _worker_fault(text)) is not None:
            return worker
        if missing := _MISSING_FILE.search(text):
            return StateError(
                f"the checkpoint is missing a file: {missing[1]}; restore its folder, or use "
                f"{OTHER_STORE}"
            )
        if _DATA_LOSS.search(text):
            return StateError(
                "the messages from which the checkpoint resumes are no longer in the topic; use "
                f"{OTHER_STORE}"
            )
        if "UnknownTopicOrPartitionException" in text:
            return SettingError(f"a topic no longer exists: {_last_cause(text)}")
        if "RecordTooLargeException" in text:
            topics = ", ".join(self.job.output_topics)
            return too_large_error(self.job, f"{_last_cause(text)} (topic {topics})")
        if _NOT_ALLOWED.search(text):
            return SettingError(f"[kafka.properties] {_last_cause(text)}")
        what = "Kafka" if _KAFKA.search(text) else "Spark"
        return LostError(f"{what} failed: {_last_cause(text)}")

    # --- figures ---

    def _all_ended(self, checkpoint: Checkpoint) -> bool:
        groups = checkpoint.written.groups
        count = sum(family.groups for family in self.families)
        return len(groups) == count and all(group["ended"] for group in groups.values())

    def _update_figures(
        self, query: StreamingQuery, checkpoint: Checkpoint, now: bool = False
    ) -> None:
        now_s = time.monotonic()
        if not now and now_s - self._checked_s < CHECK_S:
            return
        self._checked_s = now_s
        progress: Any = query.lastProgress
        groups = list(checkpoint.written.groups.values())
        reporting = [group for group in groups if group["tells"]]
        self.figures.update(
            now_s=now_s,
            messages=sum(group["messages"] for group in reporting),
            control=sum(group["control"] for group in reporting),
            lag=_lag(progress),
            events=total(group["events"] for group in reporting),
            live_runs=sum(group["live_runs"] for group in groups),
            watermark_s=_watermark_s(progress),
        )
        self.vacuity_watch.update(now_s, lambda: grouping.findings_of_groups(self.families, groups))
        self.hooks.report(self.figures)

    def _summary(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """Return the summary of all key groups, as `ketal stream` prints it."""
        groups = list(checkpoint.written.groups.values())
        reporting = [group for group in groups if group["tells"]]
        whole = self.families[0].groups == 1
        patterns: dict[str, dict[str, Any]] = {name: {} for name in self.program.names}
        patterns = total([patterns, *(group["patterns"] for group in groups)])
        rarer = {
            "restarts": sum(group.get("restarts", 0) for group in reporting),
            "doubtful": sum(group.get("doubtful", 0) for group in groups),
        }
        vacuity.add_findings(patterns, grouping.findings_of_groups(self.families, groups))
        return {
            "events": total(group["events"] for group in reporting) or Tally().to_dict(),
            "patterns": patterns,
            "gaps": sum(group["gaps"] for group in groups),
            # In one of several groups counters have holes; only a group with all events can tell.
            "holes": sum(group["holes"] for group in reporting) if whole else 0,
            **{name: count for name, count in rarer.items() if count},
            "kafka": {
                name: sum(group[name] for group in reporting) for name in ("messages", "control")
            },
        }


def _lag(progress: Any) -> dict[str, int]:
    """Return for each partition the number of messages that no batch has read yet."""
    out: dict[str, int] = {}
    for source in progress.get("sources", ()) if progress else ():
        latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        for topic, partitions in latest.items():
            for number, offset in partitions.items():
                had = end.get(topic, {}).get(number, offset)
                out[f"{topic}/{number}"] = max(0, offset - had)
    return out


def _watermark_s(progress: Any) -> float | None:
    """Return Spark's watermark; None as long as it is at the epoch, its initial value."""
    mark = progress["eventTime"].get("watermark") if progress else None
    return (seconds(mark) or None) if mark else None


def _offsets(value: Any) -> dict[str, dict[str, int]]:
    # A source that was not polled yet has None, which pyspark converts to text.
    read = json.loads(value) if isinstance(value, str) and value.startswith("{") else value
    return read if isinstance(read, dict) else {}


def _worker_fault(text: str) -> BaseException | None:
    """Return the exception of an executor's Python, if a retry would raise it again; else None."""
    if ours := _KETAL_ERROR.search(text):
        if issubclass(getattr(errors, ours[1], KetalError), StateError):
            # Of the same program, by the checkpoint; so `--on-change fresh` would change nothing.
            return StateError(f"{ours[2]}\n  hint: use {OTHER_STORE}")
        return SettingError(ours[2])
    for name, what in _WORKER.findall(text):
        if name in ("ImportError", "ModuleNotFoundError"):
            return SettingError(f"an executor failed to import a module: {what}")
        if not name.startswith(_TRANSIENT):
            return RuntimeError(f"an executor failed: {name}: {what}")
    return None


def _last_cause(text: str) -> str:
    """Return the last cause in a message of Spark; the first line if it has no cause."""
    lines = [line.strip() for line in text.splitlines()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    cause = causes[-1] if causes else next((line for line in lines if line), text)
    return cause.removeprefix("Caused by: ")[:300]


def _is_connection_lost(fault: Exception) -> bool:
    """Return whether an exception of py4j says that Spark did not answer.

    Other exceptions contain the answer: an exception of Java, or in the message a trace.
    """
    from py4j.protocol import Py4JJavaError

    return not (isinstance(fault, Py4JJavaError) or "Trace:" in str(fault))


def _stop_spark(session: SparkSession) -> None:
    """Stop the Spark that was started for the job, unless it has ended already."""
    from py4j.protocol import Py4JError

    with contextlib.suppress(Py4JError, ConnectionError, OSError):
        session.stop()
