"""Logs that a command reads whole before it writes.

The one rule: a log is read once, and while it is read a terminal shows how far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ketal.cli import complain, interruption_named
from ketal.cli.output.progress import ProgressLine

if TYPE_CHECKING:
    from ketal.logs import Log, Source
    from ketal.model.limits import Limits

T = TypeVar("T")


def read_whole(
    logs: list[str], source: Source, limits: Limits, take: Callable[[Log], T], unfinished: str
) -> T:
    """Return what `take` makes of logs, with progress on standard error.

    `unfinished` is what is complained of where Ctrl-C interrupts it.
    """
    from ketal.logs import Log, open_source

    log = open_source(source, logs, limits)
    progress = ProgressLine(log.share_read)
    watched = Log.of_batches(lambda: progress.counted(log.batches()), undecided=log.undecided)
    with interruption_named(unfinished):
        try:
            taken = take(watched)
        finally:
            progress.stop()
    report_rebuilding(log)
    return taken


def report_rebuilding(log: Log) -> None:
    """Print on standard error which causes were missing to rebuild the clocks of a log."""
    for sentence in log.rebuilding.sentences() if log.rebuilding is not None else ():
        complain(f"clocks rebuilt: {sentence}; what is not there orders nothing")
