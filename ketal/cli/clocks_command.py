"""`ketal clocks compare`: how two events of a log are ordered, by their clocks.

The one rule: the answer is about two events of one execution; which it is, it says. The exit code
is 0 whatever their order.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ketal.cli import COULD_NOT_RUN, FINE, complain, options
from ketal.cli.empty_log import nothing_read
from ketal.cli.output_lines import add_output, as_json, opened
from ketal.cli.progress import ProgressLine
from ketal.errors import EventError, SettingError, printable
from ketal.model.event import Dot

if TYPE_CHECKING:
    from ketal.explanation.execution_events import ExecutionEvents
    from ketal.logs import Source
    from ketal.model.limits import Limits

_EXAMPLE = """\
examples:
  ketal clocks compare run.jsonl a@3 b@7
  ketal clocks compare --output json n1.jsonl n2.jsonl.gz a@3 b@7
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = _EXAMPLE
    parser.add_argument("action", choices=("compare",), help="what to do")
    parser.add_argument(
        "words",
        metavar="LOG",
        nargs="+",
        help="logs of one execution, .gz and .zst too, - is standard input; then two events of it, "
        "as a@3 b@7",
    )
    add_output(parser, "human", "json")
    parser.add_argument(
        "--execution", metavar="NAME", help="the execution, if the log holds several"
    )
    parser.add_argument("--write", metavar="FILE", help="write it to a file")
    options.add_limits(parser)
    options.add_reading(parser)


def events_of(words: list[str]) -> tuple[Dot, Dot]:
    """Return the two events that the last words name.

    Raises
    ------
    SettingError
        If they are none, or there is no log before them.
    """
    try:
        first, second = map(Dot.parse, words[-2:])
    except (EventError, ValueError) as wrong:
        reason = wrong.reason if isinstance(wrong, EventError) else "there are no two events"
        raise SettingError(f"{reason}; {_USAGE}") from None
    if len(words) == 2:
        raise SettingError(f"there is no log before {first} and {second}; {_USAGE}")
    return first, second


_USAGE = "compare takes logs, then two events: ketal clocks compare run.jsonl a@3 b@7"


def executions_read(logs: list[str], source: Source, limits: Limits) -> dict[str, ExecutionEvents]:
    """Return the executions of logs that are read once, with progress on standard error."""
    from ketal.explanation.execution_events import executions_of
    from ketal.logs import Log, open_source

    log = open_source(source, logs, limits)
    progress = ProgressLine(log.share_read)
    try:
        executions = executions_of(Log.of_batches(lambda: progress.counted(log.batches())), limits)
    except KeyboardInterrupt:
        progress.stop()
        complain("interrupted: the log was not read to its end")
        raise
    finally:
        progress.stop()
    options.report_rebuilding(log)
    return executions


def execute(args: argparse.Namespace) -> int:
    """Print how two events are ordered; return the exit code."""
    from ketal.explanation.comparison import compare_events

    (first, second), logs = events_of(args.words), args.words[:-2]
    source, limits = options.source_and_limits(args)
    executions = executions_read(logs, source, limits)
    if not any(map(len, executions.values())):
        rejected = sum(part.rejected for part in executions.values())
        why = next((part.first_rejected for part in executions.values() if part.rejected), "")
        complain(nothing_read(logs, rejected, why))
        return COULD_NOT_RUN
    compared = compare_events(executions, first, second, execution=args.execution)
    with opened(args.write, inputs=logs) as sink:
        if args.output == "json":
            sink.line(as_json({"comparison": compared.to_dict()}))
        else:
            for line in compared.lines():
                sink.line(printable(line))
    return FINE
