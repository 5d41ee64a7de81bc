"""Functions of the engine with one small change, for tests that must see it."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any


def mutated(function: Callable[..., Any], old: str, new: str) -> Callable[..., Any]:
    """Return a function with `old` replaced by `new` in its source, in the same module.

    Raises
    ------
    LookupError
        If the source does not have `old` exactly once: the function has changed.
    """
    assert isinstance(function, FunctionType)
    source = textwrap.dedent(inspect.getsource(function))
    count = source.count(old)
    if count != 1:
        raise LookupError(f"{function.__qualname__} has {old!r} {count} times")
    # The function keeps its line number, so that a traceback shows its source.
    lines = "\n" * (function.__code__.co_firstlineno - 2)
    source = f"from __future__ import annotations{lines}\n{source.replace(old, new)}"
    made: dict[str, Any] = {}
    exec(compile(source, function.__code__.co_filename, "exec"), function.__globals__, made)
    result: Callable[..., Any] = made[function.__name__]
    return result
