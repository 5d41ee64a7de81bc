"""Process settings that a command changes while it runs: signal handlers, garbage collection.

The events of a log are many long-lived objects without reference cycles, so collecting cycles often
would only cost time.

The one rule: every setting is restored when the command ends.
"""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ketal.cli import Terminated

COLLECT_AFTER = 100_000
"""How many objects are made between two collections of garbage cycles."""


@contextmanager
def calm_collector() -> Iterator[None]:
    """Collect garbage cycles less often in the body of a `with`."""
    before = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def signals_handled(
    numbers: Iterable[signal.Signals], handler: Callable[[int, Any], None]
) -> Iterator[None]:
    """Handle signals in the body of a `with`."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, one in before.items():
            signal.signal(number, one)


class LineSignals:
    """Handles Ctrl-C and SIGTERM; defers them while a line is being written, so that it is whole.

    A second signal is not deferred, since the reader of the line may have stopped reading.
    """

    def __init__(self) -> None:
        self._received: type[KeyboardInterrupt] | None = None
        self.writing = False

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signals that have their default handler, if this is the main thread."""
        defaults = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
        ours = [one for one, default in defaults.items() if signal.getsignal(one) is default]
        is_main = threading.current_thread() is threading.main_thread()
        with signals_handled(ours if is_main else (), self._handle):
            yield

    def _handle(self, number: int, _: object) -> None:
        again = self._received is not None
        self._received = Terminated if number == signal.SIGTERM else KeyboardInterrupt
        if again or not self.writing:
            raise self._received

    def line_written(self) -> None:
        """Mark the line as written; raise the exception of a deferred signal, if there is one."""
        self.writing = False
        if self._received is not None:
            raise self._received
