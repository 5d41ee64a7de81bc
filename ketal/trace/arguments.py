"""The arguments of a call, by name, as the attributes of its event.

The one rule: reading the arguments of a call costs no more than a mapping of them; whether they fit
the function is the call's own affair.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

OWN = frozenset({"result", "result_type", "error", "message", "arg_types"})
"""Attributes that are not arguments; an argument of such a name has `arg_` before it."""
Reader = Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]


def arguments_reader(function: Callable[..., Any]) -> Reader:
    """Return what makes attributes of the arguments of a call.

    The first parameter of a method, `self` or `cls`, is left out.

    Parameters
    ----------
    function : callable
        The function.
    """
    try:
        signature = inspect.signature(function)
    except ValueError:  # One of those that are written in C.
        signature = inspect.signature(_anything)
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


def _anything(*args: Any, **kwargs: Any) -> None:
    """Take what a function takes whose parameters are not known."""
