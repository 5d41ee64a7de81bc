"""Threads as activities: `start` and `join` pass clocks between them.

The one rule: the clock of a thread is merged only into that of an activity that joins it.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

from ketal.errors import wrong_type
from ketal.trace.tracer import Tracer, checked_tracer


class TracedThread(threading.Thread):
    """A thread whose start and join are edges of happened-before.

    It runs in a copy of the context (`contextvars`) of the activity that starts it.

    Parameters
    ----------
    tracer : Tracer
        The tracer whose clocks are passed on.
    target : callable
        The function that the thread runs.
    **options
        As for `threading.Thread`.

    Examples
    --------
    >>> from ketal.trace import TracedThread, Tracer
    >>> tracer = Tracer("n1", "threads.jsonl", activity="thread")
    >>> tracer.record("before")
    >>> thread = TracedThread(tracer, target=lambda: tracer.record("within"))
    >>> thread.start()
    >>> thread.join()
    >>> tracer.record("after")
    >>> import ketal
    >>> for event in ketal.read_log("threads.jsonl"):
    ...     print(event, event.clock.copy())
    n1@1 before {'n1': 1}
    n1/1@1 within {'n1': 1, 'n1/1': 1}
    n1@2 after {'n1': 2, 'n1/1': 1}
    """

    def __init__(self, tracer: Tracer, *, target: Callable[..., Any], **options: Any) -> None:
        if not callable(target):
            raise wrong_type("target", "callable", target)
        super().__init__(target=self._run_in_context, **options)
        self._target_function = target
        self._tracer = checked_tracer(tracer)
        self._inherited_context = contextvars.Context()

    def start(self) -> None:
        """Start the thread, which inherits the clock of the running activity."""
        self._tracer.hand_over()
        self._inherited_context = contextvars.copy_context()
        super().start()

    def _run_in_context(self, *args: Any, **kwargs: Any) -> None:
        self._inherited_context.run(self._target_function, *args, **kwargs)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the thread, and merge its clock into the running activity's.

        Parameters
        ----------
        timeout : float, optional
            Maximum time to wait, in seconds; if the thread still runs, its clock is not merged.
        """
        super().join(timeout)
        if not self.is_alive():
            self._tracer.joined(self)
