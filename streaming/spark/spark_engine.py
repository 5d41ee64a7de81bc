"""The Spark engine of `ketal stream`: a query from topics through key groups to the outputs.

Spark keeps state and offsets in its checkpoint, batch by batch; the engine starts the query, hands
each batch to the sink, and says how it goes. What ends a query that was not asked to end is a fault
of the settings, saved state that does not fit, or Kafka away for a while: then the query is begun
again on its checkpoint, until it has been away for `lost_after_ms`.

The one rule: a batch is finished or it is done again; nothing is in between.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ketal import errors
from ketal.errors import KetalError, LostError, SettingError, StateError
from ketal.model.event import seconds
from ketal.program import Program
from ketal.runtime.admission.deduplication import Tally
from ketal.streaming.job.file import Job
from ketal.streaming.job.metrics import Figures, Hooks
from ketal.streaming.job.outputs import ClosedPipeError, Outputs
from ketal.streaming.spark import families as grouping
from ketal.streaming.spark import verdicts
from ketal.streaming.spark.checkpoint import HINT, Checkpoint
from ketal.streaming.spark.session import (
    call_timeouts,
    kafka_options,
    partitions_of,
    spark_session,
)
from ketal.streaming.spark.sink import Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WAIT_S = 0.2
LOOK_S = 1.0
RETRY_S = 3.0
_OURS = re.compile(r"ketal\.errors\.(\w+): (.*)")
_WORKER = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+([\w.]+): (.*)")
_PASSING = ("py4j.", "pyspark.", "OSError", "EOFError", "MemoryError", "Connection", "BrokenPipe",
            "Timeout", "Blocking", "Interrupted")  # fmt: skip
"""What ends a traceback in a worker that another try may do without."""
_GONE = re.compile(r"KAFKA_DATA_LOSS|OffsetOutOfRangeException|Some data may have been lost")
_NO_TOPIC = re.compile(r"UnknownTopicOrPartitionException")
_KAFKA = re.compile(r"org\.apache\.kafka\.\S*|KafkaException|Failed to construct kafka")


class SparkEngine:
    """A job that runs on Spark.

    Parameters
    ----------
    job : Job
        What runs.
    program : Program
        The patterns.
    hooks : Hooks
        Who is told.

    Raises
    ------
    SettingError
        If the program cannot run in key groups, or a property is unknown.
    """

    def __init__(self, job: Job, program: Program, hooks: Hooks) -> None:
        self.job = job
        self.program = program
        self.hooks = hooks
        self.families = grouping.families(program, job.key_groups)
        self.figures = Figures()
        self.summary: dict[str, Any] | None = None
        self.stopping = False
        self._options = call_timeouts(job, kafka_options(job))
        self._failure: BaseException | None = None
        self._failing_since_s: float | None = None
        self._looked_s = 0.0
        self._leaving = False
        """Whether the query has come to a batch that is not to run."""

    def stop(self) -> None:
        """Ask the engine to finish the batch that runs, and to return."""
        self.stopping = True

    def run(self) -> None:
        """Run until the stream ends or `stop` is called; what was begun is finished then.

        Raises
        ------
        LostError
            If Spark or Kafka is lost for good.
        StateError
            If the checkpoint does not fit.
        SettingError
            If the settings are wrong, or a file cannot be written.
        """
        with contextlib.ExitStack() as stack:
            # A folder that is not on this machine is reached through Spark, which takes a while
            # to start: where it can be looked at before, it is.
            session = self._session(stack) if self.job.state_address else None
            checkpoint = Checkpoint(self.job, self.program, session)
            stack.callback(checkpoint.close)
            if checkpoint.lost:
                self.hooks.notify(checkpoint.lost)
            if self._over(checkpoint):
                return
            outputs = Outputs(self.job, self.hooks.show, self.hooks.flush)
            stack.callback(outputs.close)
            self._run(session or self._session(stack), checkpoint, outputs)

    def _session(self, stack: contextlib.ExitStack) -> SparkSession:
        """Return a session, which ends with the stack where it is the job's own."""
        session, own = spark_session(self.job, self.hooks.notify)
        if own:
            stack.callback(_end, session)
        return session

    def _over(self, checkpoint: Checkpoint) -> bool:
        """Return whether the execution was over before; another store begins a new one."""
        over = self._all_ended(checkpoint)
        if over:
            self.hooks.notify("the execution is over (ketal.end); another store begins a new one")
            self.summary = self._summary(checkpoint)
        return over

    def _run(self, session: SparkSession, checkpoint: Checkpoint, outputs: Outputs) -> None:
        from py4j.protocol import Py4JNetworkError

        sink = Sink(self.job, self._options, outputs, checkpoint, self.figures.verdict)
        try:
            while not self.stopping:
                try:
                    counts = partitions_of(session, self.job, self._options)
                    starting = checkpoint.begin(counts)
                    self._tell(checkpoint)
                    query = self._started(session, checkpoint, sink, counts, starting)
                    self._live(query, checkpoint)
                    break
                except LostError as lost:
                    outputs.clear()
                    self._failed(lost)
        except (Py4JNetworkError, ConnectionError) as fault:
            # Whoever ends a whole group of processes ends Spark as well.
            if not self.stopping:
                raise LostError(f"Spark is lost: {fault or type(fault).__name__}") from None
        finally:
            if checkpoint.written.batch >= 0:
                self.summary = self._summary(checkpoint)

    def _tell(self, checkpoint: Checkpoint) -> None:
        """Report once that the state of another job is left behind."""
        if checkpoint.anew:
            self.hooks.notify(f"{checkpoint.anew}; starting anew at the stored offsets")
        checkpoint.anew = ""

    def _failed(self, lost: LostError) -> None:
        now_s = time.monotonic()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
            self.hooks.notify(f"{lost}; trying again")
        self.figures.restarts += 1
        away_s = now_s - self._failing_since_s
        if 1e3 * away_s >= self.job.lost_after_ms:
            raise LostError(f"lost since {away_s:.0f} s ([kafka] lost_after_ms): {lost}") from None
        until_s = now_s + RETRY_S
        while not self.stopping and time.monotonic() < until_s:
            time.sleep(WAIT_S)

    # --- a query ---

    def _started(
        self,
        session: SparkSession,
        checkpoint: Checkpoint,
        sink: Sink,
        counts: dict[str, int],
        starting: str,
    ) -> StreamingQuery:
        job = self.job
        wants_headers = any(p.startswith("kafka.header.") for p in job.source.fields.values())
        events = (
            session.readStream.format("kafka")
            .options(**self._options)
            .option("subscribe", ",".join(job.topics))
            .option("startingOffsets", starting)
            .option("maxOffsetsPerTrigger", job.batch_messages_max)
            .option("kafka.isolation.level", "read_committed")
            .option("includeHeaders", str(wants_headers).lower())
            .load()
        )
        found = verdicts(
            self.program,
            events,
            key_groups=job.key_groups,
            source=job.source,
            lateness_ms=job.lateness_ms,
            partitions=sum(counts[topic] for topic in job.topics),
            limits=job.limits,
            figures=True,
        )

        def write(batch: Any, number: int) -> None:
            if self.stopping:
                self._leave(session)
            began_s = time.monotonic()
            try:
                sink.write(batch, number)
            except BaseException as fault:
                self._failure = fault
                raise
            self.figures.committed(time.monotonic() - began_s)
            self._failing_since_s = None
            if self._all_ended(checkpoint):
                self.stopping = True

        writer = (
            found.writeStream.foreachBatch(write)
            .queryName(f"ketal {job.group_id}")
            .option("checkpointLocation", checkpoint.address)
        )
        if job.until_end:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{job.trigger_ms} milliseconds")
        self._failure, self._leaving = None, False
        return self._begun(writer)

    def _leave(self, session: SparkSession) -> None:
        """Wait in a batch that is not to run, until its query is stopped.

        A fault would end it too, and Spark logs two screens of each. To stop a query interrupts its
        thread, which is the one that sleeps here: that is no fault to Spark.
        """
        from py4j.protocol import Py4JJavaError

        self._leaving = True
        context: Any = session.sparkContext
        try:
            context._jvm.java.lang.Thread.sleep(sys.maxsize)
        except Py4JJavaError as interrupt:
            # Spark knows it by a regular expression, whose recursion a long text would overflow.
            none = context._gateway.new_array(context._jvm.java.lang.StackTraceElement, 0)
            interrupt.java_exception.setStackTrace(none)
            raise

    def _begun(self, writer: Any) -> StreamingQuery:
        from pyspark.errors import PySparkException

        try:
            return writer.start()  # type: ignore[no-any-return]
        except PySparkException as fault:
            raise self._meant(str(fault)) from None

    def _live(self, query: StreamingQuery, checkpoint: Checkpoint) -> None:
        """Wait until a query ends; end it where it is to stop, between two batches."""
        from pyspark.errors import PySparkException

        try:
            while not query.awaitTermination(WAIT_S):  # type: ignore[arg-type]
                self._look(query, checkpoint)
                if self.stopping and (self._leaving or not query.status["isTriggerActive"]):
                    query.stop()
            self._look(query, checkpoint, now=True)
        except PySparkException as fault:
            if self.stopping and self._failure is None:
                return
            raise self._meant(str(fault)) from None
        finally:
            if query.isActive:
                query.stop()

    def _meant(self, said: str) -> BaseException:
        """Return what a query's end means."""
        failure = self._failure
        if failure is not None and not _of_spark(failure):
            return failure
        if failure is not None:
            said = f"{said}\n{failure}"
        if (worker := _of_worker(said)) is not None:
            return worker
        if _GONE.search(said):
            return StateError(
                "the messages that the checkpoint is to go on with are no longer in the topic; "
                "take another [state] store to start anew"
            )
        if _NO_TOPIC.search(said):
            return SettingError(f"a topic is not there any more: {_brief(said)}")
        what = "Kafka" if _KAFKA.search(said) else "Spark"
        return LostError(f"{what} failed: {_brief(said)}")

    # --- how it goes ---

    def _all_ended(self, checkpoint: Checkpoint) -> bool:
        groups = checkpoint.written.groups
        count = sum(family.groups for family in self.families)
        return len(groups) == count and all(of["ended"] for of in groups.values())

    def _look(self, query: StreamingQuery, checkpoint: Checkpoint, now: bool = False) -> None:
        now_s = time.monotonic()
        if not now and now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        progress: Any = query.lastProgress
        groups = list(checkpoint.written.groups.values())
        telling = [of for of in groups if of["tells"]]
        executions = [
            SimpleNamespace(
                tally=_tally(of["events"]) if of["tells"] else Tally(), live_runs=of["live_runs"]
            )
            for of in groups
        ]
        self.figures.update(
            now_s=now_s,
            messages=sum(of["messages"] for of in telling),
            control=sum(of["control"] for of in telling),
            lag=_lag(progress),
            executions=executions,
            watermark_s=_watermark_s(progress),
        )
        self.hooks.report(self.figures)

    def _summary(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """Return the summary of INTERFACE, of all key groups."""
        groups = list(checkpoint.written.groups.values())
        telling = [of for of in groups if of["tells"]]
        whole = self.families[0].groups == 1
        patterns: dict[str, dict[str, int]] = {name: {} for name in self.program.names}
        for of in groups:
            for name, counts in of["patterns"].items():
                _add(patterns[name], counts)
        return {
            "events": _sum(of["events"] for of in telling) or Tally().to_dict(),
            "patterns": patterns,
            "gaps": sum(of["gaps"] for of in groups),
            # A part sees the counters of every node with holes; only who sees all can tell.
            "holes": sum(of["holes"] for of in telling) if whole else 0,
            "kafka": _sum({"messages": of["messages"], "control": of["control"]} for of in telling)
            or {"messages": 0, "control": 0},
        }


def _tally(events: dict[str, int]) -> Tally:
    return Tally(**{name: number for name, number in events.items() if name != "read"})


def _sum(summaries: Any) -> dict[str, int]:
    out: dict[str, int] = {}
    for one in summaries:
        _add(out, one)
    return out


def _add(to: dict[str, int], counts: dict[str, int]) -> None:
    for name, number in counts.items():
        to[name] = to.get(name, 0) + number


def _lag(progress: Any) -> dict[str, int]:
    """Return how many messages of each partition no batch has had yet."""
    out: dict[str, int] = {}
    for source in (progress or {}).get("sources", ()) if progress else ():
        latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        for topic, partitions in latest.items():
            for number, offset in partitions.items():
                had = end.get(topic, {}).get(number, offset)
                out[f"{topic}/{number}"] = max(0, offset - had)
    return out


def _watermark_s(progress: Any) -> float | None:
    """Return Spark's watermark; it stands at the epoch until there is one."""
    said = progress["eventTime"].get("watermark") if progress else None
    return (seconds(said) or None) if said else None


def _offsets(said: Any) -> dict[str, dict[str, int]]:
    # A source that has not been asked yet says None, and pyspark makes a text of that.
    read = json.loads(said) if isinstance(said, str) and said.startswith("{") else said
    return read if isinstance(read, dict) else {}


def _of_spark(failure: BaseException) -> bool:
    """Return whether what a batch raised came from Spark, so that its text says what it means."""
    return not isinstance(failure, KetalError | OSError | ClosedPipeError)


def _of_worker(said: str) -> BaseException | None:
    """Return what an executor's Python raised, if the next try would raise it again."""
    if found := _OURS.search(said):
        if issubclass(getattr(errors, found[1], KetalError), StateError):
            return StateError(f"{found[2]}\n{HINT}")
        return SettingError(found[2])
    for name, what in _WORKER.findall(said):
        if name in ("ImportError", "ModuleNotFoundError"):
            return SettingError(f"the executors cannot import what they need: {what}")
        if not name.startswith(_PASSING):
            return RuntimeError(f"an executor failed: {name}: {what}")
    return None


def _brief(said: str) -> str:
    """Return what a message of Spark's is about: the first line that is no head of a traceback."""
    lines = [line.strip() for line in said.splitlines()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    told = causes[-1] if causes else next((line for line in lines if line), said)
    return told.removeprefix("Caused by: ")[:300]


def _end(session: SparkSession) -> None:
    """Stop a Spark that was started for the job; it may be gone already."""
    from py4j.protocol import Py4JError

    try:
        session.stop()
    except (Py4JError, ConnectionError, OSError):
        return
