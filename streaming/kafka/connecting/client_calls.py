"""Deadlines for calls of Kafka's clients, some of which could hang for ever.

The one rule: the caller continues when the deadline has passed, or when the job must end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from kafka import errors as faults

T = TypeVar("T")

SLICE_S = 0.1
"""How often a waiting caller checks whether the job must end, or the deadline has passed."""
CLIENT_ERRORS = (faults.KafkaError, OSError, TimeoutError)
"""The exceptions that a client raises; a deadline that passed is a TimeoutError."""


class StoppedError(Exception):
    """The job was stopped while it waited for Kafka."""


class StoppedCommitError(Exception):
    """The job was stopped while it waited for a commit: its session makes no other commit."""


def call_with_deadline(
    timeout_s: float,
    what: str,
    call: Callable[..., T],
    *args: Any,
    should_stop: Callable[[], bool] = lambda: False,
) -> T:
    """Call a function that may hang; wait until a deadline, or until `should_stop` returns True.

    Raises
    ------
    TimeoutError
        If it has not returned by the deadline. Its thread goes on; the caller must close the client
        that the function hangs in.
    StoppedError
        If it has not returned when `should_stop` returns True; the client must be closed then too.
    """
    result = run_in_background(what, call, *args)
    until_s = time.monotonic() + timeout_s
    while not wait([result], SLICE_S).done:
        if should_stop():
            raise StoppedError(what)
        if time.monotonic() >= until_s:
            raise TimeoutError(f"{what} took more than {timeout_s:g} s")
    return result.result()


def run_in_background(what: str, call: Callable[..., T], *args: Any) -> Future[T]:
    """Call a function on a daemon thread, for which Python does not wait at exit."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(call(*args))
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name=f"ketal {what}", daemon=True).start()
    return result
