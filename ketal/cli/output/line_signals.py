"""Ctrl-C and SIGTERM while lines are written.

The one rule: the first signal breaks no line in two, the second ends the command at once.
"""

from __future__ import annotations

import contextlib
import signal
from typing import Any

from ketal.cli import Terminated


class LineSignals:
    """Ctrl-C and SIGTERM that do not break a line in two: they wait until it is written.

    A second one does not wait, as the reader of the line may have stopped.
    """

    def __init__(self) -> None:
        self._received: type[KeyboardInterrupt] | None = None
        self.writing = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> LineSignals:
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
        again = self._received is not None
        self._received = Terminated if number == signal.SIGTERM else KeyboardInterrupt
        if again or not self.writing:
            raise self._received

    def wrote(self) -> None:
        """Mark the line as written; raise the signal that waited."""
        self.writing = False
        if self._received is not None:
            raise self._received
