"""The activities of a program: lines of the space-time diagram, each with a vector clock.

An activity is the process, a thread, or an asyncio task. Several concurrent activities that share
one clock would be ordered by it although nothing orders them ("Interleaving clocks", Fig. 1), so
each has its own line: `n1`, `n1/1`, `n1/2`. A line begins with what its creator knew when it was
created: tasks copy the context of their creator, and the context holds the clock of the last event
there. A clock in a context is never changed, so what the creator does later is not in it.

Once an activity is over its line goes on as another one that knows all of its events: these are
ordered in truth. So a program that joins what it starts has as many lines, and entries in its
clocks, as it has activities at one time.

The one rule: a clock grows by the events of its own line, and by clocks that are handed over.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import deque
from contextvars import ContextVar
from typing import Any, Literal
from weakref import WeakKeyDictionary

from ketal.clocks.scheme import Clock

LINES_FREE_MAX = 1_000
"""Lines of activities that are over, which wait to go on as others; of more, the latest."""
Kind = Literal["process", "thread", "task"]


class Line:
    """A line of events, with its clock; its lock is held (`with line`) to read or change it.

    A line that goes on as that of another activity has had so many `events` already.
    """

    __slots__ = ("_clock", "_counters", "lock", "node")

    def __init__(self, node: str, clock: Clock, events: int) -> None:
        self.node = node
        self.lock = threading.RLock()
        self._clock = dict(clock)
        self._counters = itertools.count(events + 1)

    def __enter__(self) -> Line:
        self.lock.acquire()
        return self

    def __exit__(self, *raised: object) -> None:
        self.lock.release()

    def merge(self, clock: Clock) -> None:
        """Merge a clock into the line's, entry by entry."""
        own = self._clock
        for node, counter in clock.items():
            if counter > own.get(node, 0):
                own[node] = counter

    def tick(self) -> dict[str, int]:
        """Advance the line's own counter; return the clock of the event, a copy."""
        # A signal handler that has an event may come between any two of these lines.
        counter = next(self._counters)
        clock = self.known()
        clock[self.node] = counter
        self.merge(clock)
        return clock

    def known(self) -> dict[str, int]:
        """Return a copy of the line's clock: of its last event, and of what was handed over."""
        return self._clock.copy()


class Activities:
    """The lines of the activities of one process.

    The first activity that has an event has the name of the process. From the second incarnation
    on the names end with `#2`, `#3`.
    """

    def __init__(self, node: str, incarnation: int, kind: Kind) -> None:
        self.kind = kind
        self._suffix = f"#{incarnation}" if incarnation > 1 else ""
        self._lock = threading.Lock()
        self._forks = 0
        self._begin(node, {})

    def _begin(self, node: str, clock: Clock) -> None:
        self._node = node
        self._born: Clock = clock
        self._lines: WeakKeyDictionary[Any, Line] = WeakKeyDictionary()
        self._over: WeakKeyDictionary[Any, Clock] = WeakKeyDictionary()
        self._free: deque[tuple[str, int]] = deque(maxlen=LINES_FREE_MAX)
        self._count = 0
        # The clock of the last event in this context; None where the process began.
        self._context: ContextVar[Clock | None] = ContextVar(f"ketal:{node}", default=None)

    def current(self) -> Line:
        """Return the line of the running activity, with what its context knows."""
        owner = self._owner()
        known = None if self.kind == "process" else self._context.get()
        line = self._lines.get(owner)
        if line is None:
            line = self._new_line(owner, known or {})
        if known is not None:
            line.merge(known)
        return line

    def hand_over(self, clock: Clock) -> None:
        """Set the context's clock, which activities that are created from it inherit."""
        if self.kind != "process":
            self._context.set(clock)

    def known_by(self, owner: threading.Thread | asyncio.Future[Any]) -> Clock:
        """Return the clock of a thread or a task; free the line of one that has ended."""
        with self._lock:
            clock = self._over.get(owner)
            line = self._lines.get(owner)
            if clock is None and line is not None:
                clock = line.known()
                if _is_over(owner):
                    self._over[owner] = clock
                    del self._lines[owner]
                    self._free.append((line.node, clock.get(line.node, 0)))
        return clock or {}

    def _owner(self) -> Any:
        if self.kind == "process":
            return self
        if self.kind == "task":
            try:
                task = asyncio.current_task()
            except RuntimeError:  # no loop runs in this thread
                task = None
            if task is not None:
                return task
        return threading.current_thread()

    def _new_line(self, owner: Any, known: Clock) -> Line:
        with self._lock:
            line = self._lines.get(owner)
            if line is None:
                name, events = self._name(known)
                line = self._lines[owner] = Line(name, self._born, events)
        return line

    def _name(self, known: Clock) -> tuple[str, int]:
        """Return the name of a line that is over and known, or a new one, and its events so far."""
        for name, events in reversed(self._free):
            if known.get(name, 0) >= events:
                self._free.remove((name, events))
                return name, events
        name = f"{self._node}/{self._count}" if self._count else self._node
        self._count += 1
        return name + self._suffix, 0

    # --- a fork of the process ---

    def before_fork(self) -> None:
        """Lock the running activity's line, so that the child's copy is whole; number the fork."""
        held = self.current()
        held.lock.acquire()
        self._lock.acquire()
        self._held = held  # Not before: another thread may be forking.
        self._forks += 1

    def after_fork(self, *, child: bool) -> None:
        """Unlock the line; in the child, begin lines of its own with the parent's clock."""
        held, forks = self._held, self._forks
        if child:
            self._lock = threading.Lock()
            self._forks = 0
            self._begin(f"{self._node}/f{forks}", held.known())
        else:
            self._lock.release()
            held.lock.release()


def _is_over(owner: threading.Thread | asyncio.Future[Any]) -> bool:
    return not owner.is_alive() if isinstance(owner, threading.Thread) else owner.done()
