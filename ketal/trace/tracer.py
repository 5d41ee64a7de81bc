"""`Tracer`: stamps the events of a Python program with vector clocks.

    tracer = Tracer("n1", "n1.jsonl")

    @tracer.event
    def push(value): ...

    headers = tracer.send("replicate", to="n2")   # the headers travel with the message
    tracer.receive(headers, "apply")              # in the other process

The one rule: tracing does not change the behaviour of the program. Failures here, as a full disk, a
malformed header, or an object whose `repr` raises, are counted and logged once, and never raised.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar, overload

from ketal.errors import wrong_type
from ketal.trace import message_header
from ketal.trace.activities import Kind
from ketal.trace.calls import OPEN_CALLS, CallPoint, call_recorder
from ketal.trace.delivery.sinks import EventSink
from ketal.trace.feeding import Feedable
from ketal.trace.message_header import Headers
from ketal.trace.recording import EventRecorder

P = ParamSpec("P")
T = TypeVar("T")


class Tracer:
    """The clocks of one process, and the sink of its events.

    Parameters
    ----------
    node : str
        The name of the process. If the sink already has events of it, this process is its next
        incarnation: `n1#2`, `n1#3`.
    sink : path, or object with `write(event)`
        A file of JSON lines, or an object that receives each event as a mapping. By default the
        file `NODE.jsonl` in the folder that the environment variable KETAL_TRACE names; if that is
        not set, no events are written, and only clocks are sent with messages.
    activity : str
        The kind of activity that has its own clock: the whole `process`, each `thread`, or each
        asyncio `task` (and each thread). With `process` the events of all threads are in one order,
        even if they are concurrent.
    incarnation : int, optional
        The number of this run of the node, from 1; by default the sink determines it. A file
        contains its earlier runs; runs that send to a socket or a topic are counted in a folder of
        the user (KETAL_TRACE_RUNS). It must be given, as a number that increases, if the sink is an
        object without `incarnation(node)`, or if no folder outlives a run, as in a container.
    monitor : Monitor or Collector, optional
        Is fed each event before the program continues, one event at a time, so its handlers are
        called where the event happens. They must not wait for a collector, or for a thread that
        records an event. If other processes feed it too, it must be a `Collector`.

    Attributes
    ----------
    failures : Counter
        Failures by reason: events that were not written, messages without a clock or with a
        malformed one.

    Raises
    ------
    SettingError
        If the node's name is empty or ends like that of a later incarnation, the activity is
        unknown, the incarnation is not a positive integer, or the file cannot be written.
    TypeError
        If the node's name is not a str, the sink is neither a path nor an object with `write`, or
        the monitor is not an object with `feed`.

    Examples
    --------
    Two processes, here in one:

    >>> from ketal.trace import Tracer
    >>> one, other = Tracer("n1", "n1.jsonl"), Tracer("n2", "n2.jsonl")
    >>> @one.event
    ... def push(value):
    ...     return value + 1
    >>> push(6)
    7
    >>> headers = one.send("replicate", to="n2")
    >>> headers
    {'ketal-clock': '1;n1;n1=2'}
    >>> other.receive(headers, "apply")
    >>> import ketal
    >>> for event in ketal.read_log("n1.jsonl", "n2.jsonl"):
    ...     print(event, event.clock.copy(), event.data.copy())
    n1@1 push {'n1': 1} {'value': 6, 'arg_types': ['int'], 'result': 7, 'result_type': 'int'}
    n1@2 replicate {'n1': 2} {'to': 'n2'}
    n2@1 apply {'n1': 2, 'n2': 1} {}
    >>> print(*event.receives)
    n1@2
    >>> one.failures
    Counter()

    Tasks, and a thread of a pool, with clocks of their own; the thread knows all events of the
    ended task, so it reuses the line of the task:

    >>> import asyncio
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> tracer = Tracer("n", "n.jsonl", activity="task")
    >>> async def main():
    ...     tracer.record("first")
    ...     task = asyncio.create_task(work())
    ...     await tracer.join(task)  # or: await task; tracer.joined(task)
    ...     tracer.joined(task)
    ...     with ThreadPoolExecutor() as pool:
    ...         pool.submit(tracer.bind(tracer.record), "in a thread")
    >>> async def work():
    ...     tracer.record("within")
    >>> asyncio.run(main())
    >>> for event in ketal.read_log("n.jsonl"):
    ...     print(event, event.clock.copy())
    n@1 first {'n': 1}
    n/1@1 within {'n': 1, 'n/1': 1}
    n/1@2 in a thread {'n': 1, 'n/1': 2}

    A clock that is longer than the limit of the carrier is not sent:

    >>> tracer.send_within(8)
    {}
    >>> tracer.failures.total()
    1

    Before creating an activity by other means, pass on the clock:

    >>> tracer.hand_over()
    """

    def __init__(
        self,
        node: str,
        sink: str | os.PathLike[str] | EventSink | None = None,
        *,
        activity: Kind = "process",
        incarnation: int | None = None,
        monitor: Feedable | None = None,
    ) -> None:
        self._recorder = EventRecorder(node, sink, activity, incarnation, monitor)
        self._activities = self._recorder.activities
        self.failures = self._recorder.failures

    @property
    def node(self) -> str:
        """The name of the running activity's line.

        Examples
        --------
        >>> from ketal.trace import Tracer
        >>> Tracer("n1", "log.jsonl").node
        'n1'
        """
        return self._activities.current().node

    # --- events ---

    def record(self, type: str, /, **data: object) -> None:
        """Record an event of the running activity.

        Parameters
        ----------
        type : str
            The type of the event; not empty.
        **data
            The attributes of the event; values without a JSON form become text.
        """
        with self._recorder:
            self._recorder.record(type, data)

    @overload
    def event(self, function: Callable[P, T], /) -> Callable[P, T]: ...

    @overload
    def event(
        self,
        function: None = None,
        /,
        *,
        type: str | None = None,
        result: bool = True,
        arguments: bool = True,
        at: CallPoint = "end",
    ) -> Callable[[Callable[P, T]], Callable[P, T]]: ...

    def event(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        type: str | None = None,
        result: bool = True,
        arguments: bool = True,
        at: CallPoint = "end",
    ) -> Any:
        """Decorate a function or method: record an event at the end or beginning of each call.

        The attributes of the event are the arguments by name, `result`, and `error` and `message`
        if the call raised; `arg_types` and `result_type` are read by `call(…)` in a pattern. An
        argument with one of these names gets the prefix `arg_`.

        Parameters
        ----------
        function : callable, optional
            A function, a method or a coroutine function.
        type : str, optional
            The type of the events; by default the function's name, as `Stack.push` for a method.
        result, arguments : bool
            Whether to record the result and the arguments.
        at : str
            `end` or `begin`. At the beginning, only the arguments are recorded, and the receive of
            a message sent within the call names the call, too, in its `receives`.

        Raises
        ------
        SettingError
            If `at` is neither `end` nor `begin`.
        """
        traced = call_recorder(self._recorder, type=type, result=result, arguments=arguments, at=at)
        return traced if function is None else traced(function)

    # --- messages ---

    def send(self, type: str = "send", /, **data: object) -> dict[str, str]:
        """Record the send of a message; return the headers to send with it.

        Parameters
        ----------
        type, **data
            As for `record`.
        """
        return self.send_within(message_header.BYTES_MAX, type, **data)

    def send_within(self, bytes_max: int, type: str = "send", /, **data: object) -> dict[str, str]:
        """Record the send of a message whose carrier limits headers; return the headers.

        Parameters
        ----------
        bytes_max : int
            Maximum length of the clock. If the clock is longer, no headers are returned, and the
            failure is counted in `failures`.
        type, **data
            As for `record`.
        """
        headers: dict[str, str] = {}
        with self._recorder:
            event = self._recorder.record(type, data)
            text = message_header.encoded(event["node"], event["clock"], OPEN_CALLS.get())
            if len(text) <= bytes_max:
                headers[message_header.NAME] = text
            else:
                self._recorder.count_failure(
                    f"a message's clock is longer than {bytes_max:,} bytes and was not sent"
                )
        return headers

    def receive(self, headers: Headers, type: str = "receive", /, **data: object) -> None:
        """Record the receive of a message, and merge its clock into the running activity's.

        `receives` of the event names the send, and the enclosing calls of the send that were
        recorded at their beginning.

        Parameters
        ----------
        headers : mapping, list of pairs, str, bytes or None
            The headers of the message, names and values as text or bytes, or the value of the
            header that `send` returned. If the clock is missing, the event is recorded all the
            same, and the failure is counted in `failures`.
        type, **data
            As for `record`.
        """
        with self._recorder:
            message = message_header.sender_knowledge(headers, self._recorder.count_failure)
            self._recorder.record(type, data, message)

    # --- activities ---

    def bind(self, function: Callable[P, T]) -> Callable[P, T]:
        """Wrap a function so that its calls inherit the current clock of the running activity.

        For executors: `executor.submit(tracer.bind(work))`.

        Parameters
        ----------
        function : callable
            The function; each call of the result runs in its own copy of the context. A TypeError
            is raised if it is not callable.
        """
        if not callable(function):
            raise wrong_type("function", "callable", function)
        self.hand_over()
        context = contextvars.copy_context()
        return lambda *args, **kwargs: context.copy().run(function, *args, **kwargs)

    async def join(self, awaitable: Awaitable[T]) -> T:
        """Wait for a task, and merge its clock into that of the running activity.

        Parameters
        ----------
        awaitable : asyncio.Task or other awaitable
            The task to wait for; another awaitable is run as a new task.
        """
        task = asyncio.ensure_future(awaitable)
        try:
            return await task
        finally:
            if task.done():
                self.joined(task)

    def joined(self, ended: threading.Thread | asyncio.Future[Any]) -> None:
        """Merge the clock of an ended thread or task into that of the running activity.

        Parameters
        ----------
        ended : Thread or Task
            The thread or the task that has ended. If it has not, or is another future, of
            `asyncio.gather` or of a pool, for example, nothing is merged, and a failure is counted
            in `failures`.
        """
        with self._recorder:
            self._recorder.merge_ended(ended)

    def hand_over(self) -> None:
        """Set the clock of the current context, which activities created in it inherit."""
        with self._recorder, self._activities.current() as line:
            self._activities.hand_over(line.copy_clock())

    def __repr__(self) -> str:
        return f"<ketal.trace.Tracer {self.node}>"


def checked_tracer(tracer: Tracer) -> Tracer:
    """Return an argument that must be a tracer; raise a TypeError otherwise."""
    if not isinstance(tracer, Tracer):
        raise wrong_type("tracer", "a Tracer", tracer)
    return tracer


def count_failure(tracer: Tracer, reason: str) -> None:
    """Count a failure of a carrier in the tracer's `failures`, and log the first for a reason."""
    tracer._recorder.count_failure(reason)
