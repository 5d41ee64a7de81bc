"""Calls of functions as events: at the end of each call, or at its beginning.

The one rule: a traced function takes, returns and raises what the bare one does.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, Literal

from ketal.errors import SettingError, wrong_type
from ketal.trace.recording import EventRecording, error_text

CallPoint = Literal["begin", "end"]
"""Where in a call its event is."""
CALLS_MAX = 16
"""Calls within which a message was sent that it names; of more, the innermost."""
OPEN_CALLS: ContextVar[tuple[tuple[str, int], ...]] = ContextVar("ketal:calls", default=())
"""Node and counter of the calls, recorded at their beginning, that have not ended here."""
OWN = frozenset({"result", "result_type", "error", "message", "arg_types"})
"""Attributes that are not arguments; an argument of such a name has `arg_` before it."""
_Reader = Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]
"""What makes attributes of the arguments of a call."""
_Ended = Callable[[Any, BaseException | None], object]
"""What is called at the end of a call, with what it returned or raised."""
_Begun = Callable[[tuple[Any, ...], dict[str, Any]], _Ended]
"""What is called at its beginning, with its arguments."""


def call_recorder(
    recording: EventRecording, *, type: str | None, result: bool, arguments: bool, at: CallPoint
) -> Callable[[Any], Any]:
    """Return what makes a traced function of one, or of a class's or static method.

    The options are those of `Tracer.event`.
    """
    if at not in ("begin", "end"):
        raise SettingError(f"a call is recorded at its begin or its end, not at {at!r}")

    def traced(function: Any) -> Any:
        if isinstance(function, classmethod | staticmethod):
            return function.__class__(traced(function.__func__))
        if not callable(function):
            wanted = "a function (Tracer.record records one event)"
            raise wrong_type("what is traced", wanted, function)
        name = type or _name_of(function)
        read = _arguments_reader(function) if arguments else lambda args, kwargs: {}
        if at == "begin":
            return _watched(function, _recorded_at_begin(recording, name, read))
        return _watched(function, _recorded_at_end(recording, name, read, result=result))

    return traced


def _watched(function: Callable[..., Any], begun: _Begun) -> Callable[..., Any]:
    """Return a function that calls `begun` at each call, and what that returned at its end."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            ended = begun(args, kwargs)
            try:
                value = await function(*args, **kwargs)
            except BaseException as error:
                ended(None, error)
                raise
            ended(value, None)
            return value

        return awaited

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        ended = begun(args, kwargs)
        try:
            value = function(*args, **kwargs)
        except BaseException as error:
            ended(None, error)
            raise
        ended(value, None)
        return value

    return called


def _recorded_at_begin(recording: EventRecording, name: str, read: _Reader) -> _Begun:
    """Return what records calls at their beginning; what is sent within one names it."""

    def begun(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Ended:
        calls = OPEN_CALLS.get()
        with recording:
            event = recording.stamp(name, read(args, kwargs))
            node = event["node"]
            OPEN_CALLS.set((*calls[1 - CALLS_MAX :], (node, event["clock"][node])))
            recording.feed(event)
        return lambda value, error: OPEN_CALLS.set(calls)

    return begun


def _recorded_at_end(
    recording: EventRecording, name: str, read: _Reader, *, result: bool
) -> _Begun:
    """Return what records calls at their end, also one that raises."""

    def ended(args: Any, kwargs: Any, value: Any, error: BaseException | None) -> None:
        with recording:
            data = read(args, kwargs)
            if error is not None:
                data["error"] = error.__class__.__name__
                data["message"] = error_text(error)
            elif result:
                data["result"] = value
                data["result_type"] = value.__class__.__name__
            recording.record(name, data)

    return lambda args, kwargs: partial(ended, args, kwargs)


def _name_of(function: Callable[..., Any]) -> str:
    # An object that can be called has no name; its class has.
    name: str = getattr(function, "__qualname__", function.__class__.__qualname__)
    return name.rpartition("<locals>.")[2]


def _arguments_reader(function: Callable[..., Any]) -> _Reader:
    """Return what makes attributes of the arguments of a call, without a method's `self` or `cls`.

    It costs no more than a mapping of them; whether they fit the function is the call's own affair.
    """
    try:
        signature = inspect.signature(function)
    except ValueError:  # One of those that are written in C.
        signature = inspect.signature(lambda *args, **kwargs: None)
    parameters = list(signature.parameters.values())
    first = 1 if parameters and parameters[0].name in ("self", "cls") else 0
    positional = [
        p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ][first:]
    others = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "")
    names = [p.name for p in parameters[first:]]
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}

    def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        given = dict(zip(positional, args[first:], strict=False))
        more = args[first + len(positional) :]
        if more and others:
            given[others] = more
        values = {**defaults, **given, **kwargs}
        ordered = {name: values.pop(name) for name in names if name in values}
        ordered |= values  # what `**others` of the function takes
        out = {(f"arg_{name}" if name in OWN else name): one for name, one in ordered.items()}
        if ordered:
            out["arg_types"] = [value.__class__.__name__ for value in ordered.values()]
        return out

    return read
