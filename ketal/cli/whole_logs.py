"""Reading of whole logs before a command writes, and warnings about records that are not events.

The one rule: a log is read once, with progress shown on a terminal; the first record that is no
event is named, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ketal.cli import complain, interruption_named
from ketal.cli.options import PATTERN_AS_LOG, STDIN, STDIN_NAME, is_pattern
from ketal.cli.output.progress import ProgressLine
from ketal.errors import SettingError, at_place, printable
from ketal.model.wording import counted

if TYPE_CHECKING:
    from ketal.logs import Log, Source
    from ketal.model.limits import Limits
    from ketal.model.verdicts.execution_verdicts import Rejected

T = TypeVar("T")


def open_logs(source: Source, logs: Sequence[str], limits: Limits) -> Log:
    """Return the log in some files; SettingError if one cannot be read, or is a pattern file."""
    from ketal.logs import open_source

    log = open_source(source, logs, limits)
    for name in logs:
        if name.endswith(".ketal"):
            raise SettingError(f"{name} {PATTERN_AS_LOG}")
    return log


def read_with_progress(
    logs: list[str],
    source: Source,
    limits: Limits,
    take: Callable[[Log], T],
    unfinished: str = "the log was not read to the end",
) -> T:
    """Return the result of `take` for a log, with progress on standard error.

    `unfinished` is the message after Ctrl-C (`interruption_named`).
    """
    from ketal.logs import watched

    log = open_logs(source, logs, limits)
    progress = ProgressLine(log.share_read)
    with interruption_named(unfinished):
        try:
            taken = take(watched(log, progress.count_records))
        finally:
            progress.stop()
    report_reading(log)
    return taken


def report_reading(log: Log) -> None:
    """Print on standard error which options fit no record, and which causes were missing.

    The causes are those that would order events, for clocks that were rebuilt.
    """
    for sentence in log.mapped.sentences():
        complain(f"--field {sentence}")
    if log.mapped.is_divided is False:
        complain("--delimiter matches nothing in the log, which is read as one execution")
    for sentence in log.rebuilding.sentences() if log.rebuilding is not None else ():
        complain(f"clocks rebuilt: {sentence}; events that this would order remain unordered")


def rejection_text(rejected: Rejected | None) -> str:
    """Return the place of a rejected record and the reason; empty for None."""
    return "" if rejected is None else at_place(rejected.place, rejected.reason)


def no_event_read_reason(logs: Sequence[str], rejected: int, first: str) -> str:
    """Return why no event was read; `first` is the first rejected record, with its reason."""
    if not rejected:
        names = ", ".join(STDIN_NAME if name == STDIN else name for name in logs)
        return f"no event was read: there are no events in {names}"
    if pattern := next(filter(is_pattern, logs), ""):
        return f"{pattern} {PATTERN_AS_LOG}"
    records = f"all {rejected:,} records were" if rejected > 1 else "1 record was"
    why = f"; the first is {printable(first)}" if first else ""
    return f"no event was read: {records} rejected{why}"


def require_events(logs: Sequence[str], events: int, rejected: int, first: str) -> None:
    """Raise a SettingError if no event was read from the logs."""
    if not events:
        raise SettingError(no_event_read_reason(logs, rejected, first))


def report_rejected(rejected: int, first: str, prefix: str = "") -> None:
    """Print on standard error how many records were rejected, and the first one, if any were."""
    if rejected:
        records = counted(rejected, "record was", "records were")
        complain(f"{prefix}{records} rejected; the first is {printable(first)}")
