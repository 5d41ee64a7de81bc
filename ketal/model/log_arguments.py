"""Logs as arguments of functions: what can be one, and what it can hold.

The one rule: what can be no log is refused before anything of it is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from ketal.errors import wrong_type


def checked_log(log: Any) -> Any:
    """Return a log argument after checking that it can be one.

    Raises
    ------
    TypeError
        If it can be none: a file or its name, bytes, a single event.
    """
    file = isinstance(log, str | bytes | bytearray | os.PathLike) or hasattr(log, "read")
    if file or not (hasattr(log, "records") or isinstance(log, Iterable)):
        wanted = "a ketal.Log, as ketal.read_log(path) returns, or an iterable of ketal.Event"
        raise wrong_type("log", wanted, log)
    return log


def no_log_item(item: object) -> TypeError:
    """Return the error for what a log cannot hold."""
    return wrong_type(
        "what a log holds", "a ketal.Event (ketal.read_log makes events of rows)", item
    )
