"""`Tracer`: stamps the events of a Python program with vector clocks.

    tracer = Tracer("n1", "n1.jsonl")

    @tracer.event
    def push(value): ...

    headers = tracer.send("replicate", to="n2")   # the headers travel with the message
    tracer.receive(headers, "apply")              # in the other process

The one rule: the program that is watched goes on as if it were not. What fails here, a full disk, a
broken header, an object whose `repr` raises, is counted and logged once, and never raised.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar, overload

from ketal.trace import message_header
from ketal.trace.activities import Kind
from ketal.trace.calls import OPEN_CALLS, CallPoint, call_recorder
from ketal.trace.delivery.sinks import EventSink, Feeding
from ketal.trace.message_header import Headers
from ketal.trace.recording import EventRecording

P = ParamSpec("P")
T = TypeVar("T")


class Tracer:
    """The clocks of one process, and where its events go.

    Parameters
    ----------
    node : str
        The name of the process. A file that has events of it already is continued as its next
        run: `n1#2`, `n1#3`.
    sink : path, or object with `write(event)`
        A file of JSON lines, or what takes each event as a mapping. Without one the file
        `NODE.jsonl` in the folder that the environment variable KETAL_TRACE names; where it is
        not set no event is written, and only the clocks travel.
    activity : str
        What has a clock of its own: the whole `process`, each `thread`, or each asyncio `task` (and
        each thread beside). With `process` the events of several threads are in one order, as if
        they were ordered by it.
    incarnation : int, optional
        Which run of the node this is, 1 for the first; by default what the sink says. A file knows
        the runs that it holds; for a socket and a topic the runs are counted in a folder of the
        user's (KETAL_TRACE_RUNS). With a sink of your own that has no `incarnation(node)`, and
        where no folder outlives a run, as in a container, it is to be given: a number that grows.
    monitor : Monitor or Collector, optional
        Is fed each event too, before the program goes on: its handlers are called where the event
        happens. Where several threads have events, or other processes send theirs, it is a
        `Collector`, which feeds its monitor one event at a time.

    Attributes
    ----------
    failures : Counter
        What failed, by reason, with how often: events that were not written, messages without a
        clock or with one that cannot be read.

    Raises
    ------
    SettingError
        If the node's name is empty or ends like a later run, the activity is none, or the
        incarnation no whole number from 1 on.
    TypeError
        If the node's name is no str.
    OSError
        If the file cannot be opened.

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

    Tasks, and a thread of a pool, with clocks of their own; the thread knows all of the task that
    is over, so it goes on on its line:

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

    A clock that is too long for what carries the message does not travel:

    >>> tracer.send_within(8)
    {}
    >>> tracer.failures.total()
    1

    What creates activities by other means hands over before:

    >>> tracer.hand_over()
    """

    def __init__(
        self,
        node: str,
        sink: str | os.PathLike[str] | EventSink | None = None,
        *,
        activity: Kind = "process",
        incarnation: int | None = None,
        monitor: Feeding | None = None,
    ) -> None:
        self._recording = EventRecording(node, sink, activity, incarnation, monitor)
        self._activities = self._recording.activities
        self.failures = self._recording.failures

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
            Its type, which is not empty.
        **data
            Its attributes; what is no JSON becomes text.
        """
        with self._recording:
            self._recording.record(type, data)

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
        """Record an event at the end of each call of a function or a method, or at its beginning.

        Its attributes are the arguments by name, `result`, and of a call that raised `error` and
        `message`; `arg_types` and `result_type` are what `call(…)` in a pattern reads. An argument
        of one of these names is written with `arg_` before it.

        Parameters
        ----------
        function : callable, optional
            A function, a method or a coroutine function.
        type : str, optional
            The type of the events; by default the function's name, `Stack.push` of a method.
        result, arguments : bool
            Whether they are recorded.
        at : str
            `end`, or `begin`: then it has the arguments alone, and who receives a message that is
            sent within the call receives the call too: it is named in `receives`.

        Raises
        ------
        SettingError
            If `at` is neither.
        """
        traced = call_recorder(
            self._recording, type=type, result=result, arguments=arguments, at=at
        )
        return traced if function is None else traced(function)

    # --- messages ---

    def send(self, type: str = "send", /, **data: object) -> dict[str, str]:
        """Record that a message is sent; return the headers that are to travel with it.

        Parameters
        ----------
        type, **data
            As of `record`.
        """
        return self.send_within(message_header.BYTES_MAX, type, **data)

    def send_within(self, bytes_max: int, type: str = "send", /, **data: object) -> dict[str, str]:
        """Record that a message is sent by what carries no long headers; return its headers.

        Parameters
        ----------
        bytes_max : int
            Of a longer clock there are no headers, and it is counted in `failures`.
        type, **data
            As of `record`.
        """
        headers: dict[str, str] = {}
        with self._recording:
            event = self._recording.record(type, data)
            text = message_header.encoded(event["node"], event["clock"], OPEN_CALLS.get())
            if len(text) <= bytes_max:
                headers[message_header.NAME] = text
            else:
                self._recording.failed(
                    f"a message's clock is longer than {bytes_max:,} bytes, and did not travel"
                )
        return headers

    def receive(self, headers: Headers, type: str = "receive", /, **data: object) -> None:
        """Record that a message was received, and merge its clock into the running activity's.

        The event's `receives` names the event that sent, and the calls within which it was sent
        that were recorded at their beginning.

        Parameters
        ----------
        headers : mapping, list of pairs, str, bytes or None
            The message's headers, names and values as text or bytes, or the text of the one that
            `send` returned. Without it the event is recorded all the same, and counted in
            `failures`.
        type, **data
            As of `record`.
        """
        with self._recording:
            message = message_header.sender_knowledge(headers, self._recording.failed)
            self._recording.record(type, data, message)

    # --- activities ---

    def bind(self, function: Callable[P, T]) -> Callable[P, T]:
        """Return a function whose calls inherit the clock of the running activity, as it is now.

        For executors: `executor.submit(tracer.bind(work))`.

        Parameters
        ----------
        function : callable
            The function; each call runs in a context of its own.
        """
        self.hand_over()
        context = contextvars.copy_context()
        return lambda *args, **kwargs: context.copy().run(function, *args, **kwargs)

    async def join(self, awaitable: Awaitable[T]) -> T:
        """Wait for a task, and merge its clock into that of the running activity.

        Parameters
        ----------
        awaitable : asyncio.Task or other awaitable
            What is waited for; of what is no task a task is made.
        """
        task = asyncio.ensure_future(awaitable)
        try:
            return await task
        finally:
            if task.done():
                self.joined(task)

    def joined(self, ended: threading.Thread | asyncio.Future[Any]) -> None:
        """Merge the clock of a thread or a task that has ended into the running activity's.

        Parameters
        ----------
        ended : Thread or Task
            What was waited for.
        """
        with self._recording, self._activities.current() as line:
            line.merge(self._activities.known_by(ended))
            self._activities.hand_over(line.known())

    def hand_over(self) -> None:
        """Set the context's clock, which activities that are created from it inherit."""
        with self._recording, self._activities.current() as line:
            self._activities.hand_over(line.known())

    def __repr__(self) -> str:
        return f"<ketal.trace.Tracer {self.node}>"
