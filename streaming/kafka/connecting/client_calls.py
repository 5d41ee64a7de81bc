"""Calls of Kafka's clients, of which some would hang for ever: how long they may take.

The one rule: whoever calls Kafka goes on when the deadline has passed, or the job is to end.
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
"""So often it is looked whether the job is to end."""
CLIENT_ERRORS = (faults.KafkaError, OSError, TimeoutError)
"""What a client raises; a deadline that passed is a TimeoutError."""


class StoppedError(Exception):
    """The job was asked to end while it waited for Kafka."""


def within(
    timeout_s: float,
    what: str,
    call: Callable[..., T],
    *args: Any,
    enough: Callable[[], bool] = lambda: False,
) -> T:
    """Call a function that may hang; wait for it only so long, and until `enough` returns True.

    Raises
    ------
    TimeoutError
        If it has not returned by then. Its thread is left to itself: the client that it hangs in
        is to be closed.
    StoppedError
        If it has not returned and `enough` returned True; the same holds.
    """
    result = in_background(what, call, *args)
    until_s = time.monotonic() + timeout_s
    while not result.done():
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"{what} took more than {timeout_s:g} s")
        wait([result], min(left_s, SLICE_S))
        if not result.done() and enough():
            raise StoppedError(what)
    return result.result()


def in_background(what: str, call: Callable[..., T], *args: Any) -> Future[T]:
    """Call a function on a thread of its own, for which Python does not wait at its end."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(call(*args))
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name=f"ketal {what}", daemon=True).start()
    return result
