"""The work of a function, as a count that is the same on every machine.

Calls, to interpreted and to built-in functions, are cheaper to count; lines are the count where
the work is a loop that calls nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
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
