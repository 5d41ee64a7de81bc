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
import contextlib
import contextvars
import functools
import inspect
import logging
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from ketal.errors import SettingError
from ketal.trace import message_header
from ketal.trace.activities import Activities, Kind, Line
from ketal.trace.arguments import arguments_reader
from ketal.trace.forks import clocks_at_fork
from ketal.trace.plain_values import plain
from ketal.trace.sinks import EventSink, Feeding, JsonLines, default_sink

Text = str | bytes


class NamedHeaders(Protocol):
    """Headers by name, as a mapping or an `email.message.Message` has them."""

    def items(self) -> Iterable[tuple[Any, Any]]:
        """Return names and values."""


Headers = NamedHeaders | Iterable[tuple[Text, Text]] | Text | None
P = ParamSpec("P")
T = TypeVar("T")

_LOG = logging.getLogger("ketal.trace")
FAILURES_MAX = 100
"""Different failures that are counted apart."""
CALLS_MAX = 16
"""Calls within which a message was sent that it names; of more, the innermost."""
CallPoint = Literal["begin", "end"]
_CALLS: ContextVar[tuple[tuple[str, int], ...]] = ContextVar("ketal:calls", default=())
"""Node and counter of the calls, recorded at their beginning, that have not ended here."""
_NO_MESSAGE = message_header.SenderKnowledge({}, ())


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
        if not node or (node.rpartition("#")[1] and node.rpartition("#")[2].isdigit()):
            raise SettingError(
                f"{node!r} is no name of a node that is traced: it is not empty, and #2, #3, … "
                "stand for its later runs"
            )
        if activity not in ("process", "thread", "task"):
            raise SettingError(f"activity is process, thread or task, not {activity!r}")
        if incarnation is not None and (incarnation.__class__ is not int or incarnation < 1):
            raise SettingError(f"incarnation is a whole number from 1 on, not {incarnation!r}")
        if sink is None:
            sink = default_sink(node)
        self._sink: EventSink = JsonLines(sink) if isinstance(sink, str | os.PathLike) else sink
        if incarnation is None:
            asked = getattr(self._sink, "incarnation", None)
            incarnation = 1 if asked is None else asked(node)
        self._activities = Activities(node, incarnation, activity)
        self._writing = threading.RLock()
        self._monitor = monitor
        self.failures: Counter[str] = Counter()
        self._guarded = _Guarded(self._failed)
        _TRACERS.add(self)

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
            Its type.
        **data
            Its attributes; what is no JSON becomes text.
        """
        with self._guarded:
            with self._activities.current() as line:
                event = self._stamp(line, type, data)
            self._feed(event)

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
        if at not in ("begin", "end"):
            raise SettingError(f"a call is recorded at its begin or its end, not at {at!r}")
        made = functools.partial(self._begun, type=type, arguments=arguments)
        if at == "end":
            made = functools.partial(self._traced, type=type, result=result, arguments=arguments)

        def traced(function: Any) -> Any:
            if isinstance(function, classmethod | staticmethod):
                return function.__class__(traced(function.__func__))
            return made(function)

        return traced if function is None else traced(function)

    def _begun(
        self, function: Callable[..., Any], *, type: str | None, arguments: bool
    ) -> Callable[..., Any]:
        """Record an event at the beginning of each call; what is sent within names it."""
        name = type or _name_of(function)
        read = arguments_reader(function) if arguments else _no_arguments

        @contextlib.contextmanager
        def within(args: Any, kwargs: Any) -> Iterator[None]:
            calls = _CALLS.get()
            event = None
            with self._guarded:
                data = read(args, kwargs)
                with self._activities.current() as line:
                    event = self._stamp(line, name, data)
                    dot = (line.node, event["clock"][line.node])
                _CALLS.set((*calls[1 - CALLS_MAX :], dot))
            if event is not None:
                self._feed(event)
            try:
                yield
            finally:
                _CALLS.set(calls)

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                with within(args, kwargs):
                    return await function(*args, **kwargs)

            return awaited

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with within(args, kwargs):
                return function(*args, **kwargs)

        return called

    def _traced(
        self, function: Callable[..., Any], *, type: str | None, result: bool, arguments: bool
    ) -> Callable[..., Any]:
        name = type or _name_of(function)
        read = arguments_reader(function) if arguments else _no_arguments

        def ended(args: Any, kwargs: Any, value: Any, error: BaseException | None) -> None:
            with self._guarded:
                data = read(args, kwargs)
                if error is not None:
                    data["error"] = error.__class__.__name__
                    data["message"] = _text(error)
                elif result:
                    data["result"] = value
                    data["result_type"] = value.__class__.__name__
                with self._activities.current() as line:
                    event = self._stamp(line, name, data)
                self._feed(event)

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                try:
                    value = await function(*args, **kwargs)
                except BaseException as error:
                    ended(args, kwargs, None, error)
                    raise
                ended(args, kwargs, value, None)
                return value

            return awaited

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            try:
                value = function(*args, **kwargs)
            except BaseException as error:
                ended(args, kwargs, None, error)
                raise
            ended(args, kwargs, value, None)
            return value

        return called

    # --- messages ---

    def send(self, type: str = "send", /, **data: object) -> dict[str, str]:
        """Record that a message is sent; return the headers that are to travel with it.

        Parameters
        ----------
        type : str
            The event's type.
        **data
            Its attributes.
        """
        return self.send_within(message_header.BYTES_MAX, type, **data)

    def send_within(self, bytes_max: int, type: str = "send", /, **data: object) -> dict[str, str]:
        """Record that a message is sent by what carries no long headers; return its headers.

        Parameters
        ----------
        bytes_max : int
            Of a longer clock there are no headers, and it is counted in `failures`.
        type : str
            The event's type.
        **data
            Its attributes.
        """
        headers: dict[str, str] = {}
        with self._guarded:
            with self._activities.current() as line:
                event = self._stamp(line, type, data)
            text = message_header.encoded(line.node, event["clock"], _CALLS.get())
            if len(text) <= bytes_max:
                headers[message_header.NAME] = text
            else:
                self._failed(
                    f"a message's clock is longer than {bytes_max:,} bytes, and did not travel"
                )
            self._feed(event)
        return headers

    def receive(self, headers: Headers, type: str = "receive", /, **data: object) -> None:
        """Record that a message was received; what its sender knew is known from now on.

        Parameters
        ----------
        headers : mapping, list of pairs, str, bytes or None
            The message's headers, names and values as text or bytes, or the text of the one that
            `send` returned. Without it the event is recorded all the same, and counted in
            `failures`.
        type : str
            The event's type.
        **data
            Its attributes.

        Notes
        -----
        The event's `receives` names the event that sent, and the calls within which it was sent
        that were recorded at their beginning.
        """
        with self._guarded:
            message = self._message(headers)
            with self._activities.current() as line:
                line.merge(message.clock)
                event = self._stamp(line, type, data, message.dots)
            self._feed(event)

    def _message(self, headers: Headers) -> message_header.SenderKnowledge:
        """Return what the headers of a message say; without a clock nothing."""
        text = _header(headers)
        if text is None:
            self._failed("a message without the header ketal-clock was received")
            return _NO_MESSAGE
        try:
            return message_header.decoded(text)
        except ValueError as error:
            self._failed(f"a message's clock cannot be read: {error}")
            return _NO_MESSAGE

    # --- activities ---

    def bind(self, function: Callable[P, T]) -> Callable[P, T]:
        """Return a function that knows, where it is called, what is known here now.

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
        """Wait for a task; what it knew at its end is known from now on.

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
        """Know from now on what a thread or a task knew that has ended.

        Parameters
        ----------
        ended : Thread or Task
            What was waited for.
        """
        with self._guarded, self._activities.current() as line:
            line.merge(self._activities.known_by(ended))
            self._activities.hand_over(line.known())

    def hand_over(self) -> None:
        """Leave what is known here in the context, for the activities that are created from it."""
        with self._guarded, self._activities.current() as line:
            self._activities.hand_over(line.known())

    # --- inside ---

    def _stamp(
        self, line: Line, type: str, data: Mapping[str, Any], receives: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Count an event of a line and write it; return it."""
        clock = line.tick()
        self._activities.hand_over(clock)
        event = {
            "node": line.node,
            "type": type,
            "clock": clock,
            "time": round(time.time(), 6),
            "data": {name: plain(value) for name, value in data.items()},
        }
        if receives:
            event["receives"] = list(receives)
        try:
            with self._writing:
                self._sink.write(event)
        except Exception as error:
            self._failed(f"an event was not written: {_text(error)}")
        return event

    def _feed(self, event: dict[str, Any]) -> None:
        """Feed the monitor; no lock is held, as its handlers may have events of their own."""
        if self._monitor is None:
            return
        from ketal.model.event import Event

        try:
            self._monitor.feed(Event(**event))
        except Exception as error:
            self._failed(f"the monitor was not fed: {_text(error)}")

    def _failed(self, reason: str) -> None:
        if reason not in self.failures:
            if len(self.failures) >= FAILURES_MAX:
                reason = "other failures"
            _LOG.warning("%s (counted from now on, and not logged again)", reason)
        self.failures[reason] += 1

    def __repr__(self) -> str:
        return f"<ketal.trace.Tracer {self.node}>"


class _Guarded:
    """Counts what is raised within, and raises it no further."""

    def __init__(self, failed: Callable[[str], None]) -> None:
        self._failed = failed

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self._failed(f"an event was not recorded: {_text(error)}")
        return True


def _name_of(function: Callable[..., Any]) -> str:
    # An object that can be called has no name; its class has.
    name: str = getattr(function, "__qualname__", function.__class__.__qualname__)
    return name.rpartition("<locals>.")[2]


def _no_arguments(args: Any, kwargs: Any) -> dict[str, Any]:
    return {}


def _header(headers: Headers) -> str | bytes | None:
    """Return the clock of a message's headers, whose names may be in any case."""
    if headers is None or isinstance(headers, str | bytes):
        return headers
    items = getattr(headers, "items", None)
    pairs = cast("Iterable[tuple[Text, Text]]", headers if items is None else items())
    return next((value for name, value in pairs if _is_clock(name)), None)


def _is_clock(name: str | bytes) -> bool:
    text = name.decode("latin-1") if isinstance(name, bytes) else name
    return text.lower() == message_header.NAME


def _text(error: BaseException) -> str:
    try:
        return f"{error.__class__.__name__}: {error}"
    except Exception:
        return error.__class__.__name__


# --- forks: the child of a process is a process of its own ---

_TRACERS: weakref.WeakSet[Tracer] = weakref.WeakSet()
_FORKING: list[Tracer] = []


def _before_fork() -> None:
    _FORKING[:] = _TRACERS
    for tracer in _FORKING:
        tracer._activities.before_fork()
        tracer._writing.acquire()


def _after_fork(child: bool) -> None:
    for tracer in _FORKING:
        if child:
            tracer._writing = threading.RLock()
        else:
            tracer._writing.release()
        tracer._activities.after_fork(child=child)
    _FORKING.clear()


clocks_at_fork(_before_fork, _after_fork)
