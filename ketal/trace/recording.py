"""Record the events of a tracer: stamp them, write them to its sink, feed them to its monitor.

The one rule: failures are counted and logged once per reason, and never raised. An exception that a
signal handler of the program raises meanwhile is not a failure, and is raised.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn

from ketal.errors import SettingError, checked_name, class_name, raise_of_signal, wrong_type
from ketal.model.events.control import CONTROL_PREFIX
from ketal.trace.activities import ENTRIES_MAX, Activities, Kind
from ketal.trace.delivery.sinks import EventSink, JsonLines, default_sink
from ketal.trace.feeding import Feedable, LockedMonitor
from ketal.trace.forks import CLOCKS
from ketal.trace.message_header import NO_KNOWLEDGE, SenderKnowledge
from ketal.trace.plain_values import cut_text, plain

_LOG = logging.getLogger("ketal.trace")
_THREAD = threading.local()
FAILURES_MAX = 100
"""Maximum number of failure reasons that are counted separately."""


class EventRecorder:
    """The lines of a process, its sink and its monitor.

    As a context manager it suppresses and counts exceptions of its `with` block. The arguments are
    those of `Tracer`, which are checked here.
    """

    def __init__(
        self,
        node: str,
        sink: str | os.PathLike[str] | EventSink | None,
        activity: Kind,
        incarnation: int | None,
        monitor: Feedable | None,
    ) -> None:
        _check_arguments(node, activity, incarnation)
        if sink is None:
            sink = default_sink(node)
        if isinstance(sink, str | os.PathLike):
            sink = JsonLines(sink)
        elif not callable(getattr(sink, "write", None)):
            raise wrong_type("sink", "a path, or an object with write(event)", sink)
        self.sink: EventSink = sink
        if incarnation is None:
            incarnation_of = getattr(self.sink, "incarnation", None)
            incarnation = 1 if incarnation_of is None else incarnation_of(node)
        self.activities = Activities(node, incarnation, activity)
        self._writing = threading.RLock()
        self.failures: Counter[str] = Counter()
        if monitor is not None and not isinstance(monitor, LockedMonitor):
            monitor = LockedMonitor(monitor)
        self._monitor = monitor
        CLOCKS[id(self)] = self

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self.count_failure(f"an event was not recorded: {error_text(error)}")
        raise_of_signal(error)
        return True

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Tracer belongs to one process and cannot be pickled; create another one in the "
            "child process, and wrap its queues and sockets there"
        )

    def record(
        self, type: str, data: Mapping[str, Any], message: SenderKnowledge = NO_KNOWLEDGE
    ) -> dict[str, Any]:
        """Stamp and write an event of the running activity, feed it to the monitor; return it."""
        event = self.stamp(type, data, message)
        self.feed(event)
        return event

    def stamp(
        self, type: str, data: Mapping[str, Any], message: SenderKnowledge = NO_KNOWLEDGE
    ) -> dict[str, Any]:
        """Stamp an event of the running activity and write it to the sink; return it."""
        type = cut_text(type if isinstance(type, str) else str(type))
        if not type:
            raise ValueError("the type of an event must not be empty")
        if type.startswith(CONTROL_PREFIX):
            raise ValueError(f"the type {type!r} is reserved for control events")
        # Without a lock: the program's `repr` may wait for a thread that records an event.
        attributes = {cut_text(name): plain(value) for name, value in data.items()}
        failure = ""
        with self.activities.current(message.clock) as line:
            line.merge(message.clock)
            clock = line.tick()
            self.activities.hand_over(clock)
            if len(clock) > ENTRIES_MAX:
                raise ValueError(
                    f"the clock has more than {ENTRIES_MAX} entries (limit clock_entries_max)"
                )
            event = {
                "node": line.node,
                "type": type,
                "clock": clock,
                "time": round(time.time(), 6),
                "data": attributes,
            }
            if message.dots:
                event["receives"] = list(message.dots)
            is_nested = is_writing()
            _THREAD.is_writing = True
            try:
                with self._writing:
                    self.sink.write(event)
            except Exception as error:
                raise_of_signal(error)
                failure = f"an event was not written: {error_text(error)}"
            finally:
                _THREAD.is_writing = is_nested
        if failure:
            self.count_failure(failure)
        return event

    def feed(self, event: dict[str, Any]) -> None:
        """Feed an event to the monitor, without holding another lock: handlers may record."""
        if self._monitor is None:
            return
        from ketal.model.events.event import Event

        try:
            self._monitor.feed(Event(**event))
        except Exception as error:
            raise_of_signal(error)
            self.count_failure(f"an event was not fed to the monitor: {error_text(error)}")

    def merge_ended(self, ended: object) -> None:
        """Merge the clock of an ended thread or task into that of the running activity."""
        clock = self.activities.ended_clock(ended)
        if clock is None:
            is_running = isinstance(ended, threading.Thread | asyncio.Task)
            reason = "has not ended" if is_running else "is neither a thread nor a task"
            self.count_failure(
                f"a {class_name(ended)} {reason}, and no clock was handed over from it"
            )
            return
        with self.activities.current(clock) as line:
            line.merge(clock)
            self.activities.hand_over(line.copy_clock())

    def count_failure(self, reason: str) -> None:
        """Count a failure, and log the first one with this reason.

        It must be called without holding a lock of the tracer: a handler of `logging` may wait for
        a thread that records an event.
        """
        if reason not in self.failures and len(self.failures) >= FAILURES_MAX:
            reason = "other failures"
        is_first = reason not in self.failures
        self.failures[reason] += 1
        if is_first:
            try:
                _LOG.warning(
                    "node %s: %s (further occurrences are counted, not logged)",
                    self.activities.node,
                    reason,
                )
            except Exception as error:
                # A filter of the program may raise any exception.
                raise_of_signal(error)

    def before_fork(self) -> None:
        """Lock the running activity's line and the sink, for consistent copies in the child."""
        self.activities.before_fork()
        self._writing.acquire()

    def after_fork(self, *, child: bool) -> None:
        """Release the locks; in the child, replace them and start new lines."""
        if child:
            self._writing = threading.RLock()
        else:
            self._writing.release()
        self.activities.after_fork(child=child)


def is_writing() -> bool:
    """Return whether the current thread is in the `write` of the sink of a tracer."""
    return getattr(_THREAD, "is_writing", False)


def _check_arguments(node: str, activity: str, incarnation: int | None) -> None:
    """Raise a SettingError if the node's name, the activity or the incarnation is invalid."""
    if not isinstance(node, str):
        raise wrong_type("node", "a str, the name of the process", node)
    checked_name("node name", node)
    if not node or (node.rpartition("#")[1] and node.rpartition("#")[2].isdigit()):
        raise SettingError(
            f"{node!r} is not a valid name of a traced node: it must not be empty, nor end in "
            "#2, #3, …, which distinguish later runs"
        )
    if activity not in ("process", "thread", "task"):
        raise SettingError(f"activity must be process, thread or task, not {activity!r}")
    if incarnation is not None and (incarnation.__class__ is not int or incarnation < 1):
        raise SettingError(f"incarnation must be a positive integer, not {incarnation!r}")


def error_text(error: BaseException) -> str:
    """Return an error's class and text; only its class if `str` of it raises an exception."""
    try:
        return f"{error.__class__.__name__}: {error}"
    except Exception as raised:
        raise_of_signal(raised)
        return error.__class__.__name__
