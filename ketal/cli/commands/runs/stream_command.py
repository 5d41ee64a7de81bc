"""`ketal stream`: a streaming job on Kafka topics, until it is stopped.

SIGTERM commits and ends with 0; Ctrl-C commits, prints the summary, and ends with 130. Before the
engine begins there is nothing to commit, and the exit codes are the same. Verdicts for standard
output are printed as by `ketal run`; everything else goes to standard error, where a terminal also
shows a line with the figures of the job.

The one rule: whatever ends the job, messages that were not committed are processed again by the
next one.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import signal
from typing import TYPE_CHECKING, Any

from ketal.cli import (
    COULD_NOT_RUN,
    FINE,
    INTERRUPTED,
    LOST,
    Terminated,
    complain,
    leave_closed_pipe,
    options,
)
from ketal.cli.output import summary_text
from ketal.cli.output.output_lines import add_output, as_json, open_output
from ketal.cli.output.progress import StatusLine
from ketal.cli.process_state import calm_collector, signals_handled
from ketal.cli.whole_logs import no_event_read_reason
from ketal.errors import LostError, ParameterError, SettingError, printable
from ketal.model.wording import counted

if TYPE_CHECKING:
    from ketal.programs.program import Program
    from ketal.streaming.job.file import Job

_EXTRAS = {
    "kafka": ("kafka-python", "stream"),
    "py4j": ("pyspark", "spark"),
    "pyspark": ("pyspark", "spark"),
}
"""Module → (package to install, extra of ketal that installs it)."""

EXAMPLE = """\
examples:
  ketal stream --config job.toml
  ketal stream --config job.toml --dry-run
  ketal stream forks.ketal -b localhost:9092 --input blocks --to kafka:forks.verdicts
  ketal stream forks.ketal --input blocks --output json --until-end
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("pattern", metavar="PATTERN", nargs="?", help="pattern file")
    parser.add_argument(
        "--config", metavar="FILE", help="TOML file of the job; options override it"
    )
    parser.add_argument(
        "-b",
        "--bootstrap-servers",
        metavar="HOST:PORT,...",
        help="addresses of Kafka (default: localhost:9092)",
    )
    parser.add_argument(
        "--input", action="append", metavar="TOPIC", help="read this topic (repeatable)"
    )
    parser.add_argument(
        "--to", metavar="WHERE", help="write verdicts to kafka:TOPIC, file:PATH or - (default)"
    )
    parser.add_argument(
        "--group-id", metavar="NAME", help="consumer group (default: the name of the pattern file)"
    )
    parser.add_argument("--state", metavar="WHERE", help="save state in dir:PATH or kafka:TOPIC")
    parser.add_argument(
        "--engine", metavar="NAME", help="engine that runs the job: process (default) or spark"
    )
    parser.add_argument(
        "--metrics-port",
        type=options.integer,
        metavar="P",
        help="serve metrics for Prometheus at /metrics",
    )
    parser.add_argument(
        "--metrics-host",
        metavar="HOST",
        help="serve metrics only at this address, such as 127.0.0.1 (default: at every address)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would run, and exit")
    parser.add_argument(
        "--until-end",
        action="store_true",
        help="stop at the current ends of the topics; the state is kept, and the execution "
        "continues when the job is started again",
    )
    parser.add_argument(
        "--on-change",
        choices=("stop", "fresh", "drain"),
        default="stop",
        help="if the saved state is of another program: stop with exit code 3 (default), "
        "continue at the stored offsets without the runs that cannot be restored, or let the runs "
        "of the old patterns finish",
    )
    add_output(parser, "human", "json")
    options.add_params(parser)
    options.add_limits(parser)


def execute(args: argparse.Namespace) -> int:
    """Run the job; return the exit code."""
    signals = _EngineSignals()
    try:
        with signals_handled((signal.SIGINT, signal.SIGTERM), signals.handle):
            return _run(args, signals)
    except Terminated:
        return FINE


def _run(args: argparse.Namespace, signals: _EngineSignals) -> int:
    from dataclasses import replace

    from ketal.runtime.execution import Execution
    from ketal.streaming import plan
    from ketal.streaming.job.file import read_job
    from ketal.streaming.job.outputs import check_writable

    job = read_job(args.config, {**vars(args), "topics": args.input})
    job = replace(job, limits=options.parse_limits(args.limit, job.limits))
    if job.pattern == options.STDIN:
        raise SettingError(
            "the pattern of a streaming job must be a file, not standard input, because each start "
            "of the job reads it"
        )
    own = {word.partition("=")[0].strip() for word in args.set}
    settings = [f"{name}={value}" for name, value in job.params.items() if name not in own]
    try:
        program = options.load_program(job.pattern, job.limits, settings=[*settings, *args.set])
    except ParameterError as fault:
        if fault.parameter in own:
            raise
        raise SettingError(f"{job.place}[params] {fault}") from None
    # This refuses patterns that cannot run on a stream, before any call to Kafka.
    Execution(program, limits=job.limits)
    try:
        stream = _Stream(args, job, program, signals)
        if args.dry_run:
            check_writable(job)
            with open_output(None) as sink:
                sink.lines(plan.lines(job, program))
            return FINE
        return stream.run()
    except ModuleNotFoundError as missing:
        if missing.name not in _EXTRAS:
            raise
        package, extra = _EXTRAS[missing.name]
        raise SettingError(f"{package} is not installed: pip install 'ketal[{extra}]'") from None


class _EngineSignals:
    """The handler of SIGTERM and Ctrl-C, which stops the engine, or ends a command without one."""

    def __init__(self) -> None:
        self._engine: Any = None
        self._received: type[KeyboardInterrupt] | None = None
        self.code = FINE
        """The exit code of the job, unless something else determines it."""

    def begin(self, engine: Any) -> None:
        """Let signals stop an engine from now on.

        A signal that came before ends the command now, if it has not ended it: Python ignores an
        exception of the handler in the callback of a weak reference, which may run during imports.
        """
        self._engine = engine
        if self._received is not None:
            raise self._received

    def handle(self, number: int, _: object) -> None:
        """Stop the engine; on a later Ctrl-C, do not wait for it.

        Another SIGTERM asks for nothing more: `timeout` sends it to the process and to its group.
        """
        if self._engine is None:
            self._received = Terminated if number == signal.SIGTERM else KeyboardInterrupt
            raise self._received
        if self._engine.stopping:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        self.code = INTERRUPTED if number == signal.SIGINT else FINE
        self._engine.stop()


class _Stream:
    """One run of the command."""

    def __init__(
        self, args: argparse.Namespace, job: Job, program: Program, signals: _EngineSignals
    ) -> None:
        from ketal.streaming.job.metrics import Hooks

        self._signals = signals
        self._job = job
        self._program = program
        self._json = args.output == "json"
        self._status = StatusLine()
        self._sink: Any = None
        hooks = Hooks(
            show=self._print_verdict,
            flush=lambda: self._sink.flush(),
            notify=self._report,
            report=lambda figures: self._status.show(printable(figures.line())),
        )
        self._engine: Any
        if job.engine == "spark":
            from ketal.streaming.spark.spark_engine import SparkEngine

            self._engine = SparkEngine(job, program, hooks)
        else:
            from ketal.streaming.kafka.process_engine import ProcessEngine

            logging.getLogger("kafka").setLevel(logging.CRITICAL)
            self._engine = ProcessEngine(job, program, hooks)

    def run(self) -> int:
        """Run the engine until it ends; return the exit code."""
        from ketal.streaming import plan
        from ketal.streaming.job.metrics import MetricsServer
        from ketal.streaming.job.outputs import ClosedPipeError

        engine = self._engine
        for warning in plan.warnings(self._program, self._job):
            self._report(f"warning: {warning}")
        if self._job.engine != "spark":
            self._report(plan.consumers(self._job, self._program))
            if not self._job.group_id_given:
                self._report(
                    f"the consumer group is {self._job.group_id}, the name of the pattern file; "
                    "use [kafka] group_id or --group-id to choose another"
                )
        with contextlib.ExitStack() as stack:
            if (port := self._job.metrics_port) is not None:
                server = MetricsServer(engine.figures, port, self._job.metrics_host)
                stack.callback(server.close)
                self._report(f"metrics at port {server.port}, path /metrics")
            self._signals.begin(engine)
            self._sink = stack.enter_context(open_output(None))
            stack.enter_context(calm_collector())
            try:
                engine.run()
            except LostError as lost:
                complain(str(lost))
                self._signals.code = LOST
            except ClosedPipeError:
                leave_closed_pipe()
                return FINE
            finally:
                self._status.stop()
            self._print_summary()
        return self._signals.code

    def _print_verdict(self, verdict: Any) -> None:
        self._status.give_way()
        text = as_json(verdict.to_dict()) if self._json else printable(str(verdict))
        self._sink.line(text)

    def _report(self, what: str) -> None:
        self._status.stop()
        complain(what)

    def _print_summary(self) -> None:
        """Print the summary of what was committed; nothing before the job has run."""
        summary = self._engine.summary
        if summary is None:
            return
        parts = self._engine.figures.parts
        is_whole = parts is None or parts[0] == parts[1]
        events = summary["events"]
        rejected = events["rejected"]
        # Where it read nothing, and has not all parts, other consumers may have read events.
        if self._job.until_end and events["read"] == rejected and (rejected or is_whole):
            topics = ", ".join(self._job.topics)
            none = f"no event was read: there are no new events in {topics}"
            self._report(no_event_read_reason((), rejected, "") if rejected else none)
            self._signals.code = self._signals.code or COULD_NOT_RUN
        if self._json:
            self._sink.line(as_json({"summary": summary}))
            return
        kafka = summary["kafka"]
        read = counted(kafka["messages"], "message")
        self._sink.line(
            f"{read} = {summary['events']['read']:,} read + {kafka['control']:,} control"
        )
        awaited = self._engine.awaited
        hint = f", such as {min(awaited)}" if awaited else ""
        self._sink.lines(summary_text.lines(summary, self._program, None, held_back_hint=hint))
