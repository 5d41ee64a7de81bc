"""`ketal view`: an execution to look at, as a page, a picture, or in another tool's format.

The one rule: it shows what a log holds, whatever the verdicts are: the exit code is 0 if an event
was read.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from ketal.cli import COULD_NOT_RUN, FINE, complain, options
from ketal.cli.output.empty_log import nothing_read, some_rejected
from ketal.cli.output.output_lines import opened
from ketal.cli.output.progress import ProgressLine
from ketal.cli.whole_logs import interruption_named
from ketal.model.events.event import Event
from ketal.model.verdicts.execution_verdicts import Rejected

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ketal.explanation.views.viewing import View
    from ketal.logs import Log, Record

_EXAMPLE = """\
examples:
  ketal view run.jsonl
  ketal view --pattern stack.ketal --write run.html run.jsonl
  ketal view --pattern stack.ketal --compare passed.jsonl failed.jsonl
  ketal view --to perfetto --write trace.json run.jsonl
"""
_FORMS = {"html": ".html", "svg": ".svg", "perfetto": ".json", "shiviz": ".log"}
_BY_NAME = {".html": "html", ".htm": "html", ".svg": "svg"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = _EXAMPLE
    options.add_logs(parser)
    parser.add_argument("--pattern", metavar="PATTERN", help="mark and explain its verdicts")
    parser.add_argument(
        "--compare", metavar="LOG", help="show this run beside, and what only one of them has"
    )
    parser.add_argument(
        "--to", choices=tuple(_FORMS), help="default: as FILE's name says, else html"
    )
    parser.add_argument(
        "--write", metavar="FILE", help="write it there; default LOG.html, - is standard output"
    )
    options.add_params(parser)
    options.add_reading(parser)


def execute(args: argparse.Namespace) -> int:
    """Write the page; return the exit code."""
    from ketal.explanation.views.viewing import view
    from ketal.logs import open_source

    patterns = [] if args.pattern is None else [args.pattern]
    beside = [] if args.compare is None else [args.compare]
    options.check_stdin([*patterns, *args.logs, *beside])
    source, limits = options.source_and_limits(args)
    program = None
    if args.pattern is not None:
        program = options.program_of(args.pattern, words=args.set, chosen=None, limits=limits)
    suffix = os.path.splitext(args.write or "")[1].lower()
    form = args.to or _BY_NAME.get(suffix, "html")
    log = _WatchedLog(open_source(source, args.logs, limits), args.logs)
    read = [log]
    compared: dict[str, Any] = {}
    if beside:
        other = _WatchedLog(open_source(source, beside, limits), beside)
        read.append(other)
        compared = {"compare": other.watched(), "compare_title": other.name}
    with interruption_named("nothing was written"):
        try:
            shown = view(log.watched(), program, title=log.name, limits=limits, **compared)
        finally:
            for one in read:
                one.progress.stop()
    if not all(one.finished() for one in read):
        return COULD_NOT_RUN
    path = args.write or f"{log.name.replace(' ', '-')}{_FORMS[form]}"
    with opened(path, inputs=[*patterns, *args.logs, *beside]) as sink:
        sink.text(_text(shown, form))
    if args.write is None:
        with opened(None) as sink:
            sink.line(path)
    return FINE


def _text(shown: View, form: str) -> str:
    if form == "html":
        return shown.html
    return str(getattr(shown, f"to_{form}")())


class _WatchedLog:
    """A log as it is read: how far it is, how much was read, and what was rejected."""

    def __init__(self, log: Log, paths: Sequence[str]) -> None:
        self.progress = ProgressLine(log.share_read)
        first = paths[0]
        self.name = "standard input" if first == options.STDIN else os.path.basename(first)
        self._log = log
        self._paths = paths
        self._events = 0
        self._rejected = 0
        self._first = ""

    def watched(self) -> Log:
        """Return the log, counting as it is read."""
        from ketal.logs import Log

        log = Log.of_batches(self._counted)
        log.undecided = self._log.undecided
        return log

    def _counted(self) -> Iterator[Sequence[Record]]:
        for batch in self.progress.counted(self._log.batches()):
            for _, item, _, _ in batch:
                if isinstance(item, Rejected):
                    self._rejected += 1
                    self._first = self._first or f"{item.place}: {item.reason}"
                else:
                    self._events += isinstance(item, Event)
            yield batch
        self.progress.stop()

    def finished(self) -> bool:
        """Say what was not read; return whether an event was."""
        options.report_rebuilding(self._log)
        if not self._events:
            complain(nothing_read(self._paths, self._rejected, self._first))
            return False
        if self._rejected:
            complain(some_rejected(self._rejected, self._first))
        return True
