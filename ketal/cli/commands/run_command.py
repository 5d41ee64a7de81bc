"""`ketal run`: patterns over one execution.

A finite log goes through `ketal.run`; with `--live` a `Monitor` is fed record by
record, and each verdict is printed at once. Either way the summary comes last, also
after Ctrl-C, SIGTERM or `--first`, and then covers the records read so far.

The one rule: the exit code is read off the summary, never off what was printed,
so that `--count`, `limit n` and `return count` cannot hide a violation.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ketal.cli import (
    COULD_NOT_RUN,
    FINE,
    FOUND,
    INTERRUPTED,
    TERMINATED,
    Terminated,
    complain,
    exit_codes,
    leave_closed_pipe,
    options,
)
from ketal.cli.output import summary_text
from ketal.cli.output.annotations import Annotation, FilePlace, github_line, sarif
from ketal.cli.output.empty_log import nothing_read
from ketal.cli.output.output_lines import OutputLines, add_output, as_json, counted, opened
from ketal.cli.output.progress import ProgressLine
from ketal.cli.output.record_places import RecordPlaces
from ketal.cli.output.verdict_groups import VerdictGroups
from ketal.errors import KetalError, SettingError, printable
from ketal.model.places import file_and_line
from ketal.model.verdicts.check_verdicts import Violation
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.verdicts.find_verdicts import Match, TimedOut
from ketal.model.verdicts.run_verdicts import Overflow

if TYPE_CHECKING:
    from ketal.explanation.reasons import Explanation
    from ketal.logs import Log
    from ketal.model.events.dot import Dot
    from ketal.model.events.event import Event
    from ketal.model.limits import Limits
    from ketal.model.summaries import Summary
    from ketal.model.verdicts.verdict_kinds import Verdict
    from ketal.programs.program import Program
    from ketal.runtime.monitor import Monitor

COLLECT_AFTER = 100_000
"""Objects made between two looks for garbage cycles."""

_OF_VERDICT = ("pattern", "verdict", "scope")
"""What an explanation says of its verdict, which stands beside it."""

_PLACES_SHOWN = 4
"""Places of a match that stand behind it; of more, the first and the last."""

_EXAMPLE = """\
examples:
  ketal run stack.ketal run.jsonl
  ketal run --output json --fail-on match forks.ketal n1.jsonl n2.jsonl.gz
  ketal run --regex '(?<event>.*)\\n(?<host>\\S*) (?<clock>{.*})' barrier.ketal simpledb.log
  ketal run --field type=event --field clock=pkt.vc --field data=pkt token.ketal trace.ndjson
  program | ketal run --live stack.ketal -
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = _EXAMPLE
    parser.add_argument("pattern", metavar="PATTERN", help="a pattern file, - is standard input")
    parser.add_argument(
        "logs",
        metavar="LOG",
        nargs="+",
        help="logs of one execution, .gz and .zst too; - is standard input",
    )
    parser.add_argument(
        "--pattern", dest="chosen", metavar="NAME", help="run this pattern of the file only"
    )
    parser.add_argument(
        "--live", action="store_true", help="judge each event as it comes; do not wait for the end"
    )
    add_output(parser, "human", "json", "github", "sarif")
    parser.add_argument("--write", metavar="FILE", help="write verdicts and summary to a file")
    parser.add_argument("--count", action="store_true", help="print the summary only")
    parser.add_argument(
        "--first", type=options.positive, metavar="N", help="stop after so many verdicts"
    )
    parser.add_argument(
        "--stats", action="store_true", help="add held-back events and what each waits for"
    )
    parser.add_argument(
        "--explain", action="store_true", help="say beside each verdict why it holds"
    )
    parser.add_argument(
        "--show", action="store_true", help="draw the events around each verdict, in text"
    )
    parser.add_argument("--trace", action="store_true", help="show every transition of every run")
    exit_codes.add_arguments(parser)
    options.add_params(parser)
    options.add_limits(parser)
    options.add_reading(parser)


def execute(args: argparse.Namespace) -> int:
    """Run the patterns; return the exit code."""
    import ketal
    from ketal.explanation.judged_log import JudgedLog
    from ketal.logs import Log, open_source
    from ketal.runtime.batch_run import LogPass

    if args.pattern == options.STDIN and options.STDIN in args.logs:
        raise SettingError("the pattern and the log cannot both be standard input")
    for option in ("explain", "show"):
        other = "--live" if args.live else "--trace" if args.trace else ""
        if getattr(args, option) and other:
            raise SettingError(f"--{option} is of a whole log; it does not go with {other}")
    if args.show and args.output != "human":
        raise SettingError("--show draws for people; it does not go with --output")
    source, limits = options.source_and_limits(args)
    if args.live and source.scheme is not None and not source.scheme.states_clocks:
        raise SettingError(
            f"--live judges event after event, and vector clocks are made of {source.clock} clocks "
            "when a log is read whole"
        )
    program = _program(args, limits)
    log = open_source(source, args.logs, limits)
    listing = not args.count or args.first is not None
    progress: ProgressLine | None = None
    places = RecordPlaces(all_kept=program.needs_order and not args.live)
    if args.live:
        monitor = ketal.Monitor(program, limits=limits, listing=listing, trace=args.trace)
        verdicts: Any = _LiveVerdicts(monitor, log, places)
    else:
        # With --first the summary is of what comes up to that verdict, so each record is a batch.
        judged = log if args.first is None else Log(log.records)
        watched = Log.of_batches(lambda: shown.counted(places.watched(judged.batches())))
        watched.undecided = log.undecided
        if (args.explain or args.show) and listing:
            verdicts = JudgedLog(program, watched, limits)
        else:
            verdicts = LogPass(program, watched, limits, listing=listing, trace=args.trace)
        progress = shown = ProgressLine(log.share_read, verdicts.share_judged)
    # Opened last: what could not run has emptied no file.
    sink_of = opened(args.write, inputs=(args.pattern, *args.logs))
    with sink_of as sink, _Signals() as signals, calm_collector():
        try:
            command = _RunCommand(args, program, limits, sink, places, progress, signals)
            code = command.judge(verdicts)
            options.report_rebuilding(log)
            return code
        finally:
            if progress is not None:
                progress.stop()


def _program(args: argparse.Namespace, limits: Limits) -> Program:
    """Compile the pattern file; where it is none, see whether it is swapped with a log."""
    try:
        return options.program_of(args.pattern, words=args.set, chosen=args.chosen, limits=limits)
    except KetalError:
        for log in () if _is_pattern(args.pattern, limits) else args.logs:
            if _is_pattern(log, limits):
                words = [log, args.pattern, *(one for one in args.logs if one != log)]
                raise SettingError(
                    f"{log} is a pattern file and stands where a log is wanted; "
                    f"are they swapped? `ketal run {' '.join(words)}`"
                ) from None
        raise


def _is_pattern(path: str, limits: Limits) -> bool:
    from ketal.grammar import parse
    from ketal.programs.pattern_files import read_pattern

    # A pipe may have nothing to read for ever.
    if not os.path.isfile(path):
        return False
    try:
        parse(read_pattern(path, limits), limits=limits)
    except KetalError:
        return path.endswith(".ketal")
    return True


def insert_after(as_data: dict[str, Any], key: str, **added: Any) -> dict[str, Any]:
    """Return a JSON object with something more after one of its keys."""
    out: dict[str, Any] = {}
    for name, value in as_data.items():
        out[name] = value
        if name == key:
            out |= added
    return out


@contextlib.contextmanager
def calm_collector() -> Iterator[None]:
    """Collect garbage cycles less often: a log is many long-lived objects without one."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


class _LiveVerdicts:
    """The verdicts of a stream, each as soon as its event is there."""

    def __init__(self, monitor: Monitor, log: Log, places: RecordPlaces) -> None:
        self._monitor = monitor
        self._log = log
        self._places = places

    def __iter__(self) -> Iterator[Verdict]:
        from ketal.model.events.control import Control

        for execution, item, name, line in self._log.records():
            if execution:
                raise SettingError(f"--live judges one execution, and {name} holds several")
            self._places.keep(((execution, item, name, line),))
            yield from self._monitor.feed(item, place=f"{name}:{line}")
            if isinstance(item, Control) and item.kind == "end":
                return
        yield from self._monitor.close()

    @property
    def summary(self) -> Summary:
        return self._monitor.summary

    def held_back(self) -> list[tuple[Event, Dot | None]]:
        return self._monitor.held_back()


class _Signals:
    """Ctrl-C and SIGTERM that do not break a line in two: they wait until it is written.

    A second one does not wait, as the reader of the line may have stopped.
    """

    def __init__(self) -> None:
        self.came: type[KeyboardInterrupt] | None = None
        self.writing = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Signals:
        # Left alone where it is ignored, or is someone else's already.
        ours = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
        for number, default in ours.items():
            if signal.getsignal(number) is default:
                # Signals are the main thread's.
                with contextlib.suppress(ValueError):
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _handle(self, number: int, _: object) -> None:
        again = self.came is not None
        self.came = Terminated if number == signal.SIGTERM else KeyboardInterrupt
        if again or not self.writing:
            raise self.came

    def wrote(self) -> None:
        """Mark the line as written; raise the signal that waited."""
        self.writing = False
        if self.came is not None:
            raise self.came


class _RunCommand:
    """One run of the command: prints the verdicts, then the summary."""

    def __init__(
        self,
        args: argparse.Namespace,
        program: Program,
        limits: Limits,
        sink: OutputLines,
        places: RecordPlaces,
        progress: ProgressLine | None,
        signals: _Signals,
    ) -> None:
        self._args = args
        self._program = program
        self._limits = limits
        self._sink = sink
        self._places = places
        self._progress = progress
        self._signals = signals
        self._json = args.output == "json"
        self._annotations: list[Annotation] = []
        self._unannotated = 0
        self._first_rejected: Rejected | None = None
        self._groups = VerdictGroups(self._place_of)
        singly = args.live or args.first or args.trace
        self._grouping = args.output == "human" and not singly

    def judge(self, verdicts: Any) -> int:
        """Print verdicts and summary; return the exit code."""
        whole, nothing = False, ""
        stopped: KeyboardInterrupt | None = None
        try:
            whole = self._print_verdicts(verdicts)
        except KeyboardInterrupt as stop:
            stopped = stop
        except BrokenPipeError:
            leave_closed_pipe()
            return self._code(verdicts.summary)
        if self._progress is not None:
            self._progress.stop()
        summary = verdicts.summary
        if whole:
            nothing = self._nothing_judged(summary)
        try:
            # No zero is an answer about events that were not judged.
            shown = {**summary, "patterns": {}} if nothing else summary
            self._print_summary(shown, self._held_back(verdicts))
            self._sink.flush()
        except BrokenPipeError:
            leave_closed_pipe()
        if stopped is not None:
            return self._code_of(stopped)
        if not whole:
            upto = counted(self._args.first, "verdict")
            complain(f"stopped after {upto} (--first): what comes after was not judged")
        if nothing:
            complain(nothing)
            return COULD_NOT_RUN
        return self._code(summary, whole=whole)

    def _code_of(self, stopped: KeyboardInterrupt) -> int:
        """Report that the summary is not of the whole log; return the exit code."""
        by_sigterm = isinstance(stopped, Terminated)
        word = "terminated" if by_sigterm else "interrupted"
        if self._program.needs_order and not self._args.live:
            complain(f"{word}: what is counted as accepted was not all judged")
        else:
            complain(f"{word}: not all of the log was read and judged")
        return TERMINATED if by_sigterm else INTERRUPTED

    def _print_verdicts(self, verdicts: Any) -> bool:
        """Write the verdicts; return whether that was all of them."""
        args, sink, signals = self._args, self._sink, self._signals
        for number, verdict in enumerate(verdicts, 1):
            if self._first_rejected is None and verdict.kind == "rejected":
                self._first_rejected = verdict
            if not args.count and (not self._grouping or self._groups.shows(verdict)):
                if self._progress is not None:
                    self._progress.give_way()
                lines = self._lines(verdict, verdicts)
                signals.writing = True
                for line in lines:
                    sink.line(line)
                if args.live:
                    sink.flush()
                signals.wrote()
            if number == args.first:
                return False
        return True

    def _lines(self, verdict: Verdict, verdicts: Any) -> list[str]:
        from ketal.explanation import verdict_explaining

        args, explained = self._args, None
        if args.explain or args.show:
            explained = verdict_explaining.explained(verdicts, verdict)
        if self._json:
            as_data = self._with_places(verdict, verdict.to_dict())
            if explained is not None:
                reasons = explained.to_dict().items()
                as_data["explanation"] = {k: v for k, v in reasons if k not in _OF_VERDICT}
            return [as_json(as_data)]
        if args.output != "human":
            return self._annotate(verdict, explained)
        if explained is not None and args.explain:
            lines = list(explained.lines())
        else:
            places = self._shown_places(verdict)
            lines = [f"{verdict} ({places})" if places else str(verdict)]
        if explained is not None and args.show:
            lines += [f"  {line}" for line in verdict_explaining.diagram(verdicts, explained)]
        return [printable(line) for line in lines]

    def _annotate(self, verdict: Verdict, explained: Explanation | None) -> list[str]:
        """Return the line that annotates a file with a verdict; none yet for SARIF."""
        annotation = self._annotation(verdict, explained)
        if self._args.output == "github":
            return [github_line(annotation)]
        if len(self._annotations) < self._limits.verdicts_max:
            self._annotations.append(annotation)
        else:
            self._unannotated += 1
        return []

    def _annotation(self, verdict: Verdict, explained: Explanation | None) -> Annotation:
        place, related = self._place_of(verdict), []
        if isinstance(verdict, Match):
            for step, dot in verdict.steps:
                of = self._places.of(verdict.execution, dot)
                related.append((FilePlace(*file_and_line(of)), f"{step}={dot}"))
                place = of or place
        pattern, name = "", ""
        if not isinstance(verdict, Rejected):
            pattern, name = verdict.pattern, verdict.id
        return Annotation(
            verdict.kind,
            "error" if verdict.kind in self._args.fail_on else "warning",
            str(verdict if explained is None else explained),
            FilePlace(*file_and_line(place)),
            pattern,
            tuple(one for one in related if one[0].file),
            name,
        )

    def _with_places(self, verdict: Verdict, as_data: dict[str, Any]) -> dict[str, Any]:
        """Return a verdict's JSON with the places of its events beside them, where known."""
        if place := self._place_of(verdict):
            return insert_after(as_data, "event", place=place)
        if isinstance(verdict, Match):
            places = [self._places.of(verdict.execution, dot) or None for dot in verdict.events]
            if any(places):
                return insert_after(as_data, "events", places=places)
        return as_data

    def _shown_places(self, verdict: Verdict) -> str:
        """Return the places of a verdict's events, in their order; those in the middle as dots."""
        if isinstance(verdict, Violation):
            return self._place_of(verdict)
        if not isinstance(verdict, Match | TimedOut):
            return ""
        dots = [dot for _, dot in verdict.steps]
        half = _PLACES_SHOWN // 2
        if len(dots) > _PLACES_SHOWN:
            dots = [*dots[:half], *dots[-half:]]
        places = [self._places.of(verdict.execution, dot) or "?" for dot in dots]
        if set(places) <= {"?"}:
            return ""
        if len(verdict.steps) > _PLACES_SHOWN:
            places.insert(half, "…")
        return ", ".join(places)

    def _place_of(self, verdict: Verdict) -> str:
        """Return where a verdict's event stands in the log, if it has one and that is known."""
        if isinstance(verdict, Rejected):
            return verdict.place
        if isinstance(verdict, Violation | Overflow) and verdict.event is not None:
            return self._places.of(verdict.execution or "", verdict.event)
        return ""

    def _held_back(self, verdicts: Any) -> list[tuple[Event, Dot | None]]:
        if not self._args.stats or not self._args.live:
            # A finite log holds nothing back: everything is known.
            return []
        held: list[tuple[Event, Dot | None]] = verdicts.held_back()
        return sorted(held, key=lambda pair: pair[0].dot)

    def _print_summary(self, summary: dict[str, Any], held: list[tuple[Event, Dot | None]]) -> None:
        if self._json:
            report: dict[str, Any] = {"summary": summary}
            if self._args.stats:
                report["held_back"] = [
                    {"event": str(event.dot), "waits_for": str(dot) if dot else None}
                    for event, dot in held
                ]
            self._sink.line(as_json(report))
            return
        if self._args.output == "sarif":
            self._sink.line(sarif(self._annotations, summary=summary))
            if self._unannotated:
                left = counted(self._unannotated, "verdict is", "verdicts are")
                complain(f"{left} not in the SARIF log (limit verdicts_max)")
            return
        for line in self._groups.lines():
            self._sink.line(printable(line))
        for event, dot in held:
            self._sink.line(printable(f"held back {event}: waits for {dot or 'its turn'}"))
        if self._args.stats and not held:
            self._sink.line("held back: nothing")
        rejected = self._first_rejected if self._args.count else None
        for line in summary_text.lines(summary, self._program, rejected):
            self._sink.line(printable(line))

    def _code(self, summary: dict[str, Any], *, whole: bool = True) -> int:
        """Return the exit code of a summary; state what is not plain from the verdicts."""
        args, program = self._args, self._program
        reasons = exit_codes.unjudged(summary, program)
        if whole and not args.allow_vacuous:
            reasons += exit_codes.empty_checks(summary, program)
        for reason in reasons:
            complain(printable(reason))
        return FOUND if reasons or exit_codes.causes_of(summary, args.fail_on) else FINE

    def _nothing_judged(self, summary: dict[str, Any]) -> str:
        """Return why no event was judged, or none as the pattern asks; empty where one was."""
        events = summary["events"]
        if events["accepted"] or events["held_back"]:
            silent = (of.get("vacuous", ()) for of in summary["patterns"].values())
            found = (entry for of in silent for entry in of if entry["what"] == "message")
            return next((f"{entry['place']}: {entry['message']}" for entry in found), "")
        if events["read"] > events["rejected"]:
            return f"no event was judged: {summary_text.records(events)}"
        first = self._first_rejected
        why = f"{first.place}: {first.reason}" if first is not None else ""
        return nothing_read(self._args.logs, events["rejected"], why)
