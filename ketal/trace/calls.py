"""Calls of functions as events: at the end of each call, or at its beginning.

The one rule: a traced function takes, returns and raises what the bare one does.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any, Literal

from ketal.errors import SettingError
from ketal.trace.arguments import Reader, arguments_reader
from ketal.trace.recording import EventRecording, error_text

CallPoint = Literal["begin", "end"]
"""Where in a call its event is."""
CALLS_MAX = 16
"""Calls within which a message was sent that it names; of more, the innermost."""
OPEN_CALLS: ContextVar[tuple[tuple[str, int], ...]] = ContextVar("ketal:calls", default=())
"""Node and counter of the calls, recorded at their beginning, that have not ended here."""


def call_recorder(
    recording: EventRecording, *, type: str | None, result: bool, arguments: bool, at: CallPoint
) -> Callable[[Any], Any]:
    """Return what makes a traced function of one, or of a class's or static method.

    Parameters
    ----------
    recording : EventRecording
        Takes the events.
    type, result, arguments, at
        As of `Tracer.event`.

    Raises
    ------
    SettingError
        If `at` is neither `begin` nor `end`.
    """
    if at not in ("begin", "end"):
        raise SettingError(f"a call is recorded at its begin or its end, not at {at!r}")
    made: Callable[..., Any] = partial(_recorded_at_begin, recording)
    if at == "end":
        made = partial(_recorded_at_end, recording, result=result)

    def traced(function: Any) -> Any:
        if isinstance(function, classmethod | staticmethod):
            return function.__class__(traced(function.__func__))
        return made(function, type=type, arguments=arguments)

    return traced


def _recorded_at_begin(
    recording: EventRecording, function: Callable[..., Any], *, type: str | None, arguments: bool
) -> Callable[..., Any]:
    """Return a function with an event at the beginning of each call, named by what it sends."""
    guarded, current = recording.guarded, recording.activities.current
    stamp, feed = recording.stamp, recording.feed
    name = type or _name_of(function)
    read = _reader_of(function, arguments)

    @contextlib.contextmanager
    def within(args: Any, kwargs: Any) -> Iterator[None]:
        calls = OPEN_CALLS.get()
        event = None
        with guarded:
            data = read(args, kwargs)
            with current() as line:
                event = stamp(line, name, data)
                dot = (line.node, event["clock"][line.node])
            OPEN_CALLS.set((*calls[1 - CALLS_MAX :], dot))
        if event is not None:
            feed(event)
        try:
            yield
        finally:
            OPEN_CALLS.set(calls)

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


def _recorded_at_end(
    recording: EventRecording,
    function: Callable[..., Any],
    *,
    type: str | None,
    result: bool,
    arguments: bool,
) -> Callable[..., Any]:
    """Return a function with an event at the end of each call, also of one that raises."""
    guarded, current = recording.guarded, recording.activities.current
    stamp, feed = recording.stamp, recording.feed
    name = type or _name_of(function)
    read = _reader_of(function, arguments)

    def ended(args: Any, kwargs: Any, value: Any, error: BaseException | None) -> None:
        with guarded:
            data = read(args, kwargs)
            if error is not None:
                data["error"] = error.__class__.__name__
                data["message"] = error_text(error)
            elif result:
                data["result"] = value
                data["result_type"] = value.__class__.__name__
            with current() as line:
                event = stamp(line, name, data)
            feed(event)

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


def _name_of(function: Callable[..., Any]) -> str:
    # An object that can be called has no name; its class has.
    name: str = getattr(function, "__qualname__", function.__class__.__qualname__)
    return name.rpartition("<locals>.")[2]


def _reader_of(function: Callable[..., Any], arguments: bool) -> Reader:
    return arguments_reader(function) if arguments else _no_arguments


def _no_arguments(args: Any, kwargs: Any) -> dict[str, Any]:
    return {}
