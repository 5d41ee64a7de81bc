"""`ketal run`: patterns over one execution.

A finite log goes through `ketal.run`; with `--live` a `Monitor` is fed record by record, and each
verdict is printed at once. Either way the summary comes last, also after Ctrl-C, SIGTERM or
`--first`, and then covers the records read so far.

The one rule: the exit code is computed from the summary, never from the printed verdicts, so that
`--count`, `limit n` and `return count` cannot hide a violation.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ketal.cli import (
    COULD_NOT_RUN,
    FINE,
    FOUND,
    complain,
    exit_codes,
    interruption_named,
    leave_closed_pipe,
    options,
    report_interruption,
)
from ketal.cli.output import summary_text
from ketal.cli.output.output_lines import OutputLines, add_output, open_output
from ketal.cli.output.progress import ProgressLine
from ketal.cli.output.verdict_lines import VerdictLines
from ketal.cli.process_state import LineSignals, calm_collector
from ketal.cli.whole_logs import no_event_read_reason, open_logs, rejection_text, report_reading
from ketal.errors import SettingError
from ketal.explanation.verdict_places import VerdictPlaces
from ketal.model.verdicts.identified_verdict import IdentifiedVerdict
from ketal.model.wording import counted
from ketal.runtime.silence.vacuity import unreceived_text

if TYPE_CHECKING:
    from ketal.explanation.judged_log import JudgedLog
    from ketal.logs import Log
    from ketal.model.verdicts.execution_verdicts import Rejected
    from ketal.model.verdicts.verdict_kinds import Verdict
    from ketal.programs.program import Program
    from ketal.runtime.monitor import Monitor

EXAMPLE = """\
examples:
  ketal run stack.ketal run.jsonl
  ketal run --output json --fail-on match forks.ketal n1.jsonl n2.jsonl.gz
  ketal run --regex '(?<event>.*)\\n(?<host>\\S*) (?<clock>{.*})' barrier.ketal simpledb.log
  ketal run --field type=event --field clock=pkt.vc --field data=pkt token.ketal trace.ndjson
  ketal run --config token.toml token.ketal trace.ndjson
  program | ketal run --live stack.ketal -
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_pattern_and_logs(parser, "run")
    parser.add_argument(
        "--live", action="store_true", help="judge each event as it arrives, before the log ends"
    )
    add_output(parser, "human", "json", "github", "sarif")
    parser.add_argument("--write", metavar="FILE", help="write verdicts and summary to FILE")
    parser.add_argument("--count", action="store_true", help="print only the summary")
    parser.add_argument(
        "--first",
        type=options.positive_integer,
        metavar="N",
        help="stop after N verdicts; rejected records do not count",
    )
    parser.add_argument(
        "--stats", action="store_true", help="list held-back events and what each waits for"
    )
    parser.add_argument("--explain", action="store_true", help="explain why each verdict holds")
    parser.add_argument(
        "--show", action="store_true", help="draw the events around each verdict as text"
    )
    parser.add_argument("--trace", action="store_true", help="print every transition of every run")
    exit_codes.add_arguments(parser)
    options.add_params(parser)
    options.add_reading(parser)


def execute(args: argparse.Namespace) -> int:
    """Run the patterns; return the exit code."""
    import ketal
    from ketal.logs import Log, watched
    from ketal.model.log_arguments import log_with_clocks
    from ketal.runtime.batch_run import LogPass

    options.check_stdin([args.pattern, *args.logs])
    _check_options(args)
    source, limits = options.source_and_limits(args)
    if args.live and source.scheme is not None and not source.scheme.states_clocks:
        raise SettingError(
            f"--live cannot read {source.clock} clocks: converting them to vector clocks requires "
            "a whole log"
        )
    program = options.load_program_beside_logs(args, limits, "run")
    log = open_logs(source, args.logs, limits)
    listing = not args.count or args.first is not None
    places = VerdictPlaces(all_kept=program.needs_order and not args.live)
    judged: JudgedLog | None = None
    run: Any
    verdicts: Iterable[Verdict]
    if args.show:
        log_with_clocks(log)
    if args.live:
        if source.undecided:
            program = program.for_undecided_clocks(source.undecided)
        run = ketal.Monitor(program, limits=limits, listing=listing, trace=args.trace)
        verdicts = _live_verdicts(run, log, places)
        progress = ProgressLine(log.share_read)
    else:
        # With --first the summary covers the records up to that verdict, so each record is a batch
        # of its own. With --explain and --show the whole log is judged first.
        is_record_by_record = args.first is not None and not _judges_first(args)
        read = Log(log.records, undecided=log.undecided) if is_record_by_record else log
        reading = watched(read, lambda batches: progress.count_records(batches))
        if _judges_first(args):
            from ketal.explanation.judged_log import JudgedLog

            run = judged = JudgedLog(program, reading, limits)
            places = judged.places
        else:
            run = LogPass(
                program, watched(reading, places.watched), limits,
                listing=listing, trace=args.trace, on_named=places.record_place,
            )  # fmt: skip
        verdicts = run
        progress = ProgressLine(log.share_read, run.share_judged)
    # Opened last, so that a command that cannot run does not empty the file.
    sink_of = open_output(args.write, inputs=options.input_files(args, args.pattern, *args.logs))
    signals = LineSignals()
    with sink_of as sink, signals.handled(), calm_collector():
        try:
            lines = VerdictLines(args, program, limits, places, judged)
            code = _RunCommand(args, program, run, lines, sink, progress, signals).judge(verdicts)
            report_reading(log)
            return code
        finally:
            progress.stop()


def _check_options(args: argparse.Namespace) -> None:
    """Raise a SettingError for options that exclude each other."""
    for option in ("explain", "show", "trace"):
        if getattr(args, option) and args.count:
            raise SettingError(
                f"--{option} cannot be combined with --count, which prints only the summary"
            )
    for option in ("explain", "show"):
        other = "--live" if args.live else "--trace" if args.trace else ""
        if getattr(args, option) and other:
            raise SettingError(
                f"--{option} requires a whole log and cannot be combined with {other}"
            )
    if args.show and args.output != "human":
        raise SettingError(f"--show draws text and cannot be combined with --output {args.output}")


def _live_verdicts(monitor: Monitor, log: Log, places: VerdictPlaces) -> Iterator[Verdict]:
    """Feed a monitor record by record; yield each verdict before the next record is read."""
    from ketal.model.events.control import Control

    for record in (record for batch in log.batches() for record in batch.singly()):
        if record.execution:
            raise SettingError(f"--live judges one execution, but {record.file} has several")
        places.keep(record)
        (item,) = record.items
        yield from monitor.feed(item, place=record.place(0))
        if isinstance(item, Control) and item.kind == "end":
            return
    yield from monitor.close()


def _judges_first(args: argparse.Namespace) -> bool:
    """Return whether the whole log is judged before the first verdict is printed."""
    return bool(args.explain or args.show)


@dataclass
class _RunCommand:
    """One run of the command: prints the verdicts, then the summary."""

    args: argparse.Namespace
    program: Program
    run: Any
    """The Monitor, LogPass or JudgedLog that has the summary of the verdicts."""
    lines: VerdictLines
    sink: OutputLines
    progress: ProgressLine
    signals: LineSignals
    first_rejected: Rejected | None = None

    def judge(self, verdicts: Iterable[Verdict]) -> int:
        """Print the verdicts and the summary; return the exit code."""
        is_whole, no_event = False, ""
        stopped: KeyboardInterrupt | None = None
        try:
            with interruption_named(self._unfinished()):
                is_whole = self._print_verdicts(verdicts)
        except KeyboardInterrupt as stop:
            stopped = stop
        except BrokenPipeError:
            leave_closed_pipe()
            return self._exit_code(self.run.summary)
        self.progress.stop()
        summary = self.run.summary
        if is_whole:
            no_event = self._no_judged_event_reason(summary)
        # With a finite log no event is held back, since the whole log is known.
        held = self.run.held_back() if self.args.stats and self.args.live else []
        held = sorted(held, key=lambda pair: pair[0].dot)
        try:
            # If no event was judged, the zero counts of patterns would look like an answer.
            shown = {**summary, "patterns": {}} if no_event else summary
            is_partial = not (is_whole or _judges_first(self.args))
            for line in self.lines.summary_lines(
                shown, held, self.first_rejected, is_partial=is_partial
            ):
                self.sink.line(line)
            self.sink.flush()
        except BrokenPipeError:
            leave_closed_pipe()
        if stopped is not None:
            return report_interruption(stopped)
        if not is_whole:
            upto = counted(self.args.first, "verdict")
            others = (
                "the whole log was judged; the other verdicts are only counted"
                if _judges_first(self.args)
                else "the rest of the log was not judged"
            )
            complain(f"stopped after {upto} (--first): {others}")
        if no_event:
            complain(no_event)
            return COULD_NOT_RUN
        return self._exit_code(summary, is_whole=is_whole)

    def _unfinished(self) -> str:
        """Return the message after Ctrl-C or SIGTERM: the summary does not cover the whole log."""
        if self.program.needs_order and not self.args.live:
            return "not all accepted events were judged"
        return "the log was not read and judged to the end"

    def _print_verdicts(self, verdicts: Iterable[Verdict]) -> bool:
        """Print the verdicts; return False if `--first` stopped it."""
        args, sink, signals = self.args, self.sink, self.signals
        number = 0
        for verdict in verdicts:
            if isinstance(verdict, IdentifiedVerdict):
                number += 1
            elif self.first_rejected is None:
                self.first_rejected = verdict
            if self.lines.has_own_lines(verdict):
                self.progress.give_way()
                lines = self.lines.verdict_lines(verdict)
                signals.writing = True
                for line in lines:
                    sink.line(line)
                if args.live:
                    sink.flush()
                signals.line_written()
            if number == args.first:
                return False
        return True

    def _exit_code(self, summary: dict[str, Any], *, is_whole: bool = True) -> int:
        """Return the exit code of a summary; report reasons that no verdict shows."""
        args, program = self.args, self.program
        reasons = exit_codes.unjudged_reasons(summary, program)
        if is_whole and not args.allow_vacuous:
            reasons += exit_codes.empty_check_reasons(summary, program)
        for reason in reasons:
            complain(reason)
        failed = any(exit_codes.occurrences(summary, name) for name in args.fail_on)
        return FOUND if reasons or failed else FINE

    def _no_judged_event_reason(self, summary: dict[str, Any]) -> str:
        """Return why no event was judged, or not as the pattern requires; empty if some was."""
        events = summary["events"]
        if events["accepted"] or events["held_back"]:
            vacuous = (counts.get("vacuous", ()) for counts in summary["patterns"].values())
            return next(filter(None, map(unreceived_text, vacuous)), "")
        if events["read"] > events["rejected"]:
            return f"no event was judged: {summary_text.records_equation(events)}"
        return no_event_read_reason(
            self.args.logs, events["rejected"], rejection_text(self.first_rejected)
        )
