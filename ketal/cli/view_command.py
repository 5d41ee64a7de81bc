"""`ketal view`: an execution to look at, as a page, a picture, or in another tool's format.

The one rule: it shows what a log holds, whatever the verdicts are: the exit code is 0 if an event
was read.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from ketal.cli import COULD_NOT_RUN, FINE, complain, options
from ketal.cli.empty_log import nothing_read
from ketal.cli.output_lines import counted, opened
from ketal.cli.progress import ProgressLine
from ketal.model.verdicts import Rejected

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ketal.explanation.viewing import View
    from ketal.logs import Record

_EXAMPLE = """\
examples:
  ketal view run.jsonl
  ketal view --pattern stack.ketal --write run.html run.jsonl
  ketal view --to perfetto --write trace.json run.jsonl
"""
_FORMS = {"html": ".html", "svg": ".svg", "perfetto": ".json", "shiviz": ".log"}
_BY_NAME = {".html": "html", ".htm": "html", ".svg": "svg"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = _EXAMPLE
    parser.add_argument(
        "logs",
        metavar="LOG",
        nargs="+",
        help="logs of one execution, .gz and .zst too; - is standard input",
    )
    parser.add_argument("--pattern", metavar="PATTERN", help="mark and explain its verdicts")
    parser.add_argument(
        "--to", choices=tuple(_FORMS), help="default: as FILE's name says, else html"
    )
    parser.add_argument(
        "--write", metavar="FILE", help="write it there; default LOG.html, - is standard output"
    )
    options.add_params(parser)
    options.add_limits(parser)
    options.add_reading(parser)


def execute(args: argparse.Namespace) -> int:
    """Write the page; return the exit code."""
    from ketal.explanation.viewing import view
    from ketal.logs import Log, open_source

    patterns = [] if args.pattern is None else [args.pattern]
    options.check_stdin([*patterns, *args.logs])
    source, limits = options.source_and_limits(args)
    program = None
    if args.pattern is not None:
        program = options.program_of(args.pattern, words=args.set, chosen=None, limits=limits)
    suffix = os.path.splitext(args.write or "")[1].lower()
    form = args.to or _BY_NAME.get(suffix, "html")
    log = open_source(source, args.logs, limits)
    progress, rejected = ProgressLine(log.share_read), _FirstRejected()
    watched = Log.of_batches(lambda: rejected.watched(progress.counted(log.batches())))
    name = os.path.basename(args.logs[0]) if args.logs[0] != options.STDIN else "standard input"
    try:
        shown = view(watched, program, title=name, limits=limits)
    finally:
        progress.stop()
    options.report_rebuilding(log)
    if not shown.events:
        complain(nothing_read(args.logs, rejected.count, rejected.first))
        return COULD_NOT_RUN
    if rejected.count:
        records = counted(rejected.count, "record was", "records were")
        complain(f"{records} rejected; the first is {rejected.first}")
    path = args.write or f"{name.replace(' ', '-')}{_FORMS[form]}"
    with opened(path, inputs=[*patterns, *args.logs]) as sink:
        sink.text(_text(shown, form))
    if args.write is None:
        with opened(None) as sink:
            sink.line(path)
    return FINE


def _text(shown: View, form: str) -> str:
    if form == "html":
        return shown.html
    return str(getattr(shown, f"to_{form}")())


class _FirstRejected:
    """How many records were rejected, and the first of them."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def watched(self, batches: Iterator[Sequence[Record]]) -> Iterator[Sequence[Record]]:
        """Yield batches of records, counting those that are rejected."""
        for batch in batches:
            for _, item, _, _ in batch:
                if isinstance(item, Rejected):
                    self.count += 1
                    self.first = self.first or f"{item.place}: {item.reason}"
            yield batch
