"""The work of a function, as a count that is the same on every machine.

Calls, to interpreted and to built-in functions, are cheaper to count; lines are the count where
the work is a loop that calls nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


def counted_calls(function: Callable[[], T]) -> tuple[T, int]:
    """Return what a function returns, and the number of calls that interpreted code makes in it."""
    calls = 0

    def called(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(called)
    try:
        return function(), calls
    finally:
        sys.setprofile(None)


class _TooManyCallsError(BaseException):
    """Ends the block of `calls_at_most`; no handler of an `Exception` there catches it."""


@contextmanager
def calls_at_most(calls_max: int) -> Iterator[None]:
    """Fail as soon as interpreted code in the block makes more calls."""
    calls = 0

    def called(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += 1
        if calls > calls_max:
            raise _TooManyCallsError

    sys.setprofile(called)
    try:
        yield
    except _TooManyCallsError:
        # Without the frames of the block, whose values may take forever to print.
        raise AssertionError(f"more than {calls_max:,} calls") from None
    finally:
        sys.setprofile(None)


def counted_lines(function: Callable[[], T]) -> tuple[T, int]:
    """Return what a function returns, and the number of lines that interpreted code executes in it.

    A line is counted again for each round of a loop or comprehension within it.
    """
    lines = 0

    def traced(frame: object, event: str, arg: object) -> Callable[..., Any]:
        nonlocal lines
        lines += event == "line"
        return traced

    sys.settrace(traced)
    try:
        return function(), lines
    finally:
        sys.settrace(None)
