"""`ketal view`: an execution as a page, as a picture, or in the format of another tool.

The one rule: it shows the events of a log, whatever the verdicts are: the exit code is 0 if an
event was read.
"""

from __future__ import annotations

import argparse
import os

from ketal.cli import FINE, complain, interruption_named, options
from ketal.cli.output.output_lines import open_output
from ketal.cli.whole_logs import read_with_progress, report_rejected, require_events
from ketal.errors import SettingError
from ketal.explanation.views.forms import FORMS, form_for_path

EXAMPLE = """\
examples:
  ketal view run.jsonl
  ketal view --pattern stack.ketal --write run.html run.jsonl
  ketal view --pattern stack.ketal --compare passed.jsonl failed.jsonl
  ketal view --compare passed/a.jsonl --compare passed/b.jsonl failed/*.jsonl
  ketal view --to perfetto --write trace.json run.jsonl
"""
_UNFINISHED = "nothing was written"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_logs(parser)
    parser.add_argument(
        "--pattern", metavar="PATTERN", help="mark and explain the verdicts of this pattern file"
    )
    about = (
        "show the run in this log beside the other, and the events that only one of them has "
        "(repeatable: the logs of that run)"
    )
    options.add_repeatable(parser, "--compare", "LOG", about)
    parser.add_argument(
        "--to",
        choices=tuple(FORMS),
        help="format (default: determined by the extension of FILE, otherwise html)",
    )
    parser.add_argument(
        "--write", metavar="FILE", help="write to FILE (default: LOG.html); - is standard output"
    )
    options.add_params(parser)
    options.add_reading(parser)


def execute(args: argparse.Namespace) -> int:
    """Write the page; return the exit code."""
    from ketal.explanation.views.space_time import ViewedLog
    from ketal.explanation.views.viewing import doubts, view_logs, view_text
    from ketal.runtime.admission.execution_events import rejected_of

    patterns = [] if args.pattern is None else [args.pattern]
    compared_logs: list[str] = args.compare
    options.check_stdin([*patterns, *args.logs, *compared_logs])
    for name in () if patterns else args.logs:
        if name.endswith(".ketal") and os.path.isfile(name):
            raise SettingError(f"{name} {options.PATTERN_AS_LOG}; use `--pattern {name}`")
    source, limits = options.source_and_limits(args)
    program = None
    if args.pattern is not None:
        program = options.load_program(args.pattern, limits, settings=args.set)
    form = args.to or form_for_path(args.write or "")
    viewed_logs = []
    for logs in filter(None, (args.logs, compared_logs)):
        log = read_with_progress(
            logs, source, limits, lambda log: ViewedLog(log, limits), _UNFINISHED
        )
        executions = log.executions.values()
        require_events(logs, sum(map(len, executions)), *rejected_of(executions))
        viewed_logs.append(log)
    title, name = _title(args.logs), _name(args.logs[0])
    other = _title(compared_logs) if compared_logs else ""
    if title == other:
        title, other = _title(args.logs, whole=True), _title(compared_logs, whole=True)
    compared = viewed_logs[1] if compared_logs else None
    with interruption_named(_UNFINISHED):
        shown = view_logs(
            viewed_logs[0], program, limits, compared, title=title, compare_title=other
        )
        text = view_text(shown, form)
    report_rejected(*shown.rejected)
    for doubt in doubts(shown):
        complain(doubt)
    path = args.write or f"{name.replace(' ', '-')}{FORMS[form]}"
    inputs = options.input_files(args, *patterns, *args.logs, *compared_logs)
    with open_output(path, inputs=inputs) as sink:
        sink.text(text)
    if args.write is None:
        with open_output(None) as sink:
            sink.lines([path])
    return FINE


def _title(paths: list[str], *, whole: bool = False) -> str:
    """Return a title for logs: the first one's name, or its `whole` path, and how many more."""
    more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
    return f"{paths[0] if whole else _name(paths[0])}{more}"


def _name(path: str) -> str:
    return "standard input" if path == options.STDIN else os.path.basename(path)
