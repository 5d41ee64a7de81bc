"""Record calls of functions as events, at the end or at the beginning of each call.

The one rule: a traced function has the same arguments, results and exceptions as the original.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, Literal

from ketal.errors import SettingError, returns_coroutine, wrong_type
from ketal.trace.plain_values import type_name
from ketal.trace.recording import EventRecorder, error_text

CallPoint = Literal["begin", "end"]
"""The point of a call at which its event is recorded."""
CALLS_MAX = 16
"""Maximum number of enclosing calls that a message names, the innermost ones."""
OPEN_CALLS: ContextVar[tuple[tuple[str, int], ...]] = ContextVar("ketal:calls", default=())
"""Node and counter of the events of open calls in this context, recorded at their beginning."""
RESERVED_NAMES = frozenset({"result", "result_type", "error", "message", "arg_types"})
"""Attributes of a call besides its arguments; arguments with these names get the prefix `arg_`."""
_ArgumentsReader = Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]
"""Converts the arguments of a call to attributes."""
_EndCallback = Callable[[Any, BaseException | None], object]
"""A callback at the end of a call, with its result or its exception."""
_BeginCallback = Callable[[tuple[Any, ...], dict[str, Any]], _EndCallback]
"""A callback at the beginning of a call, with its arguments; returns the one for the end."""


def call_recorder(
    recorder: EventRecorder, *, type: str | None, result: bool, arguments: bool, at: CallPoint
) -> Callable[[Any], Any]:
    """Return a decorator that traces a function, a class method or a static method.

    The options are those of `Tracer.event`.
    """
    if at not in ("begin", "end"):
        raise SettingError(f"at must be begin or end, not {at!r}")

    def traced(function: Any) -> Any:
        if isinstance(function, classmethod | staticmethod):
            return function.__class__(traced(function.__func__))
        if not callable(function) or inspect.isclass(function):
            wanted = "a function or a method (use Tracer.record for a single event)"
            raise wrong_type("the object to trace", wanted, function)
        name = type or _function_name(function)
        read = _arguments_reader(function) if arguments else lambda args, kwargs: {}
        if at == "begin":
            return _wrap_calls(function, _begin_recorder(recorder, name, read))
        return _wrap_calls(function, _end_recorder(recorder, name, read, result=result))

    return traced


def _wrap_calls(function: Callable[..., Any], on_begin: _BeginCallback) -> Callable[..., Any]:
    """Wrap a function to call `on_begin` at each call, and the returned callback at its end."""
    if returns_coroutine(function):

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            on_end = on_begin(args, kwargs)
            try:
                value = await function(*args, **kwargs)
            except BaseException as error:
                on_end(None, error)
                raise
            on_end(value, None)
            return value

        return awaited

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        on_end = on_begin(args, kwargs)
        try:
            value = function(*args, **kwargs)
        except BaseException as error:
            on_end(None, error)
            raise
        on_end(value, None)
        return value

    return called


def _begin_recorder(recorder: EventRecorder, name: str, read: _ArgumentsReader) -> _BeginCallback:
    """Return a callback that records calls at their beginning; messages sent within name them."""

    def on_begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _EndCallback:
        calls = OPEN_CALLS.get()
        with recorder:
            event = recorder.stamp(name, read(args, kwargs))
            node = event["node"]
            OPEN_CALLS.set((*calls[1 - CALLS_MAX :], (node, event["clock"][node])))
            recorder.feed(event)
        return lambda value, error: OPEN_CALLS.set(calls)

    return on_begin


def _end_recorder(
    recorder: EventRecorder, name: str, read: _ArgumentsReader, *, result: bool
) -> _BeginCallback:
    """Return a callback that records calls at their end, also if they raise."""

    def on_end(args: Any, kwargs: Any, value: Any, error: BaseException | None) -> None:
        with recorder:
            data = read(args, kwargs)
            if error is not None:
                data["error"] = error.__class__.__name__
                data["message"] = error_text(error)
            elif result:
                data["result"] = value
                data["result_type"] = type_name(value)
            recorder.record(name, data)

    return lambda args, kwargs: partial(on_end, args, kwargs)


def _function_name(function: Callable[..., Any]) -> str:
    # A callable object has no `__qualname__`; use that of its class.
    name: str = getattr(function, "__qualname__", function.__class__.__qualname__)
    return name.rpartition("<locals>.")[2]


def _arguments_reader(function: Callable[..., Any]) -> _ArgumentsReader:
    """Return a function that converts the arguments of a call to attributes, without `self`, `cls`.

    It does not check that the arguments fit the signature, so it costs no more than building the
    mapping; the call itself raises the error.
    """
    try:
        signature = inspect.signature(function)
    except ValueError:  # A function written in C may have no signature.
        signature = inspect.signature(lambda *args, **kwargs: None)
    parameters = list(signature.parameters.values())
    first = 1 if parameters and parameters[0].name in ("self", "cls") else 0
    positional = [
        p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ][first:]
    var_positional = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "")
    names = [p.name for p in parameters[first:]]
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}

    def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        arguments = dict(zip(positional, args[first:], strict=False))
        extra = args[first + len(positional) :]
        if extra and var_positional:
            arguments[var_positional] = extra
        values = {**defaults, **arguments, **kwargs}
        ordered = {name: values.pop(name) for name in names if name in values}
        ordered |= values  # the keyword arguments that `**kwargs` of the function takes
        attributes = {
            (f"arg_{name}" if name in RESERVED_NAMES else name): value
            for name, value in ordered.items()
        }
        if ordered:
            attributes["arg_types"] = [type_name(value) for value in ordered.values()]
        return attributes

    return read
