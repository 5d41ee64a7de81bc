"""The activities of a program: lines of the space-time diagram, each with a vector clock.

An activity is the process, a thread, or an asyncio task. Concurrent activities that shared
one clock would be ordered by it although they are concurrent (Baquero and Moura, "Improving
Causality Logging in Mobile Computing Networks", Fig. 1), so
each has its own line, a node of the execution: `n1`, `n1/1`, `n1/2`. The clock of a line starts
with the events that its creator knew: tasks copy the context of their creator, which has the clock
of its last event. A clock in a context is never modified, so later events of the creator are not in
it.

The line of an activity that has ended is reused for a new activity that knows all of its events by
its first own event, from its creator, a message or a join, since it comes after them in any case.
So a program that joins the activities that it starts, and a server that answers each request in an
activity of its own, have about as many lines, and clock entries, as concurrent activities.

A clock of more than `ENTRIES_MAX` entries would be rejected by the readers of the log. It has lost
entries, so neither events of its line nor of activities that inherit it are recorded any more.

The one rule: a clock grows only by events of its own line and by merging clocks that are passed to
it.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import OrderedDict, deque
from contextvars import ContextVar
from typing import Any, Literal
from weakref import WeakKeyDictionary, ref

from ketal.clocks.scheme import Clock
from ketal.model.limits import DEFAULT

ENTRIES_MAX = DEFAULT.clock_entries_max
"""Maximum number of entries of an event's clock; that of a line has at most one more."""
LINES_FREE_MAX = 1_000
"""Maximum number of free lines, of activities that have ended; the oldest are evicted."""
Kind = Literal["process", "thread", "task"]
_NOTHING: Clock = {}


class Line:
    """A line of events, with its clock; hold its lock (`with line`) to read or change it.

    `events` is the number of events that a reused line has already had.
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
        """Merge a clock into the line's, entry by entry, as far as there is room."""
        own = self._clock
        for node, counter in clock.items():
            if counter > own.get(node, 0) and (node in own or len(own) <= ENTRIES_MAX):
                own[node] = counter

    def tick(self) -> dict[str, int]:
        """Increment the line's own entry for an event; return a copy of the event's clock."""
        # A signal handler may record an event between any two of these statements.
        counter = next(self._counters)
        clock = self.copy_clock()
        clock[self.node] = counter
        self.merge(clock)
        return clock

    def copy_clock(self) -> dict[str, int]:
        """Return a copy of the line's clock: that of its last event, and clocks merged since."""
        return self._clock.copy()


class Activities:
    """The lines of the activities of one process.

    The line of the first activity with an event has the name of the process. In later incarnations
    the names end with `#2`, `#3`, ….
    """

    def __init__(self, node: str, incarnation: int, kind: Kind) -> None:
        self.kind = kind
        self._suffix = f"#{incarnation}" if incarnation > 1 else ""
        self._lock = threading.Lock()
        self._forks = 0
        self._start(node, {})

    def _start(self, node: str, clock: Clock) -> None:
        self.node = node
        self._initial_clock: Clock = clock
        self._lines: dict[ref[Any], Line] = {}
        self._ended_clocks: WeakKeyDictionary[Any, Clock] = WeakKeyDictionary()
        self._free_lines: OrderedDict[str, int] = OrderedDict()  # Name → number of its events.
        self._ownerless_lines: deque[Line] = deque(maxlen=LINES_FREE_MAX)
        self._count = 0
        # The clock of the last event in this context; None before the first event.
        self._context: ContextVar[Clock | None] = ContextVar(f"ketal:{node}", default=None)

    def current(self, learned: Clock = _NOTHING) -> Line:
        """Return the line of the running activity, after merging the clock of the context.

        `learned` is what its next event is about to merge, as the clock of a message.
        """
        owner = self._owner()
        known = None if self.kind == "process" else self._context.get()
        line = self._lines.get(ref(owner))
        if line is None:
            line = self._new_line(owner, (known or _NOTHING, learned))
        if known is not None:
            line.merge(known)
        return line

    def hand_over(self, clock: Clock) -> None:
        """Set the clock of the current context, which activities created in it inherit."""
        if self.kind != "process":
            self._context.set(clock)

    def ended_clock(self, owner: object) -> Clock | None:
        """Return the clock of a thread or a task that has ended, and free its line.

        None if it has not ended, or is neither of the two, but the future of a `gather` or of a
        pool, for example. If the activity is the process, there is no clock to hand over, whatever
        the owner is.
        """
        if self.kind == "process":
            return {}
        if isinstance(owner, threading.Thread):
            has_ended = not owner.is_alive()
        else:
            has_ended = isinstance(owner, asyncio.Task) and owner.done()
        if not has_ended:
            return None
        with self._lock:
            line = self._lines.pop(ref(owner), None)
            if line is not None:
                self._ended_clocks[owner] = line.copy_clock()
                self._free(line)
            return self._ended_clocks.get(owner, _NOTHING)

    def _owner(self) -> Any:
        if self.kind == "process":
            return self
        if self.kind == "task":
            try:
                task = asyncio.current_task()
            except RuntimeError:  # no event loop runs in this thread
                task = None
            if task is not None:
                return task
        return threading.current_thread()

    def _new_line(self, owner: Any, known: tuple[Clock, ...]) -> Line:
        with self._lock:
            line = self._lines.get(ref(owner))
            if line is None:
                name, events = self._claim_name(known)
                line = Line(name, self._initial_clock, events)
                for clock in known:
                    # A signal handler may record an event before what was learned is merged.
                    line.merge(clock)
                self._lines[ref(owner, self._drop_owner)] = line
        return line

    def _drop_owner(self, owner: ref[Any]) -> None:
        """Mark the line of an activity ownerless that was not joined and no longer exists.

        The garbage collector calls this at any point, so no lock can be taken.
        """
        line = self._lines.pop(owner, None)
        if line is not None:
            self._ownerless_lines.append(line)

    def _free(self, line: Line) -> None:
        """Let the line of an activity that has ended be reused, if it has events."""
        if events := line.copy_clock().get(line.node, 0):
            self._free_lines[line.node] = events
        if len(self._free_lines) > LINES_FREE_MAX:
            self._free_lines.popitem(last=False)

    def _claim_name(self, known: tuple[Clock, ...]) -> tuple[str, int]:
        """Return the name of a line, and the number of its events so far.

        Reuses a free line all of whose events are in one of the clocks, else makes a new one.
        """
        while self._ownerless_lines:
            self._free(self._ownerless_lines.popleft())
        free_lines = self._free_lines
        for clock in known:
            for name in min(clock, free_lines, key=len):
                if name in free_lines and clock.get(name, 0) >= free_lines[name]:
                    return name, free_lines.pop(name)
        name = f"{self.node}/{self._count}" if self._count else self.node
        self._count += 1
        return name + self._suffix, 0

    # --- a fork of the process ---

    def before_fork(self) -> None:
        """Lock the running activity's line, for a consistent copy in the child; count the fork."""
        line = self.current()
        line.lock.acquire()
        self._lock.acquire()
        self._forking_line = line  # Set under the lock: another thread may be forking.
        self._forks += 1

    def after_fork(self, *, child: bool) -> None:
        """Unlock the line; in the child, start new lines with the parent's clock."""
        line, forks = self._forking_line, self._forks
        if child:
            self._lock = threading.Lock()
            self._forks = 0
            self._start(f"{self.node}/f{forks}", line.copy_clock())
        else:
            self._lock.release()
            line.lock.release()
