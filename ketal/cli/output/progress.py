"""The progress of a command with a log, on the terminal of standard error.

The one rule: the text is computed only when it is drawn, a few times a second, so that progress
costs reading and judging nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ketal.cli.output.output_lines import is_terminal

if TYPE_CHECKING:
    from ketal.model.log_arguments import RecordBatch

SETTLED_S = 2.0
"""How long a phase runs before its rate is shown and the time left is estimated."""


class StatusLine:
    """A line on the terminal of standard error that is redrawn in place; none elsewhere."""

    def __init__(self) -> None:
        self._status: Any = None

    def show(self, what: object) -> None:
        """Draw a text, or an object whose `__rich__` returns the text each time it is redrawn."""
        if not is_terminal(sys.stderr):
            return
        from rich.text import Text

        if self._status is None:
            from rich.console import Console

            self._status = Console(stderr=True).status("")
            self._status.start()
        self._status.update(Text(what) if isinstance(what, str) else what)

    def give_way(self) -> None:
        """Erase the line before another line is written to the same terminal."""
        if self._status is not None and sys.stdout.isatty():
            self.stop()

    def stop(self) -> None:
        """Erase the line; the next `show` begins a new line."""
        if self._status is not None:
            self._status.stop()
            self._status = None


class ProgressLine(StatusLine):
    """A line that shows how much was read, and then how much was judged: share, rate, time left.

    `read` returns the share of the log that was read, None if that is not known; `judged` the share
    of the events that was judged after the whole log was read, None if events are judged while the
    log is read.
    """

    def __init__(
        self, read: Callable[[], float | None], judged: Callable[[], float | None] = lambda: None
    ) -> None:
        self._shares = {"read": read, "judged": judged}
        self._phase = "read"
        self._began_s = time.monotonic()
        self._records = 0
        super().__init__()

    def count_records(self, batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        """Yield batches of records, counting the records."""
        self.show(self)
        for batch in batches:
            self._records += len(batch.items)
            yield batch
        self._phase, self._began_s = "judged", time.monotonic()

    def __rich__(self) -> str:
        """Return the text of the line, for rich."""
        return self.text(time.monotonic() - self._began_s)

    def text(self, elapsed_s: float) -> str:
        """Return the text of the line, `elapsed_s` after the present phase began."""
        share, records = self._shares[self._phase](), self._records
        if self._phase == "judged":
            if share is None:
                return f"{records:,} records read"
            records = round(records * share)
        parts = [f"{records:,} records {self._phase}"]
        if share is not None:
            parts.insert(0, f"{min(share, 1.0):.0%}")
        if elapsed_s >= SETTLED_S and records:
            parts.append(f"{records / elapsed_s:,.0f} a second")
            if share:
                parts.append(f"{_duration((1 - min(share, 1.0)) / share * elapsed_s)} left")
        return ", ".join(parts)


def _duration(seconds: float) -> str:
    whole = round(seconds)
    hours, minutes = whole // 3_600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
