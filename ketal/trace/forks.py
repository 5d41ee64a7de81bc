"""A fork of the process: what the other threads hold is waited for, so that the child has it whole.

The one rule: the locks of monitors are taken before those of clocks, as elsewhere: a handler of a
monitor may have an event of its own.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

_CLOCKS: list[tuple[Callable[[], None], Callable[[bool], None]]] = []


class UnderLock(Protocol):
    """What several threads use, under its lock."""

    lock: Any


_SHARED: weakref.WeakSet[UnderLock] = weakref.WeakSet()
_HELD: list[UnderLock] = []


def whole_after_fork(shared: UnderLock) -> None:
    """Have a child of a fork find something whole, and its lock free."""
    _SHARED.add(shared)


def clocks_at_fork(before: Callable[[], None], after: Callable[[bool], None]) -> None:
    """Have functions called before and after a fork; the latter with whether it is the child."""
    _CLOCKS.append((before, after))


def _before() -> None:
    _HELD[:] = _SHARED
    for one in _HELD:
        one.lock.acquire()
    for before, _ in _CLOCKS:
        before()


def _after(*, child: bool) -> None:
    for _, after in _CLOCKS:
        after(child)
    for one in _HELD:
        if child:
            one.lock = threading.RLock()
        else:
            one.lock.release()
    _HELD.clear()


def _in_parent() -> None:
    _after(child=False)


def _in_child() -> None:
    _after(child=True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
