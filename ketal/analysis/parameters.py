"""Parameters of patterns, as `param w = 10 s;`, and the values that callers set.

The one rule: a value replaces the parameter before any other part reads the pattern, and has the
declared kind.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, cast

from ketal.errors import ParameterError
from ketal.model import syntax
from ketal.model.values import kind

ParamValue = int | float | str | bool | timedelta | syntax.Duration
_NUMBER = re.compile(r"[+-]?(\d+|\d+\.\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DURATION = re.compile(r"(-?(?:\d{1,300}|\d{1,300}\.\d*|\.\d+))\s*(ns|us|ms|s|min|h|d)", re.ASCII)


def parse_value(text: str) -> ParamValue:
    """Parse the value of a parameter: a duration, a number, a boolean, or else text.

    A value in quotes is always text: `"30s"`.
    """
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text):
        return int(text) if re.fullmatch(r"[+-]?\d{1,300}", text) else float(text)
    if (duration := _duration(text)) is not None:
        return duration
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text


def _duration(text: str) -> syntax.Duration | None:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        return None
    amount, unit = match.groups()
    return syntax.Duration(float(amount) if "." in amount else int(amount), cast(Any, unit))


def plain_value(value: ParamValue) -> int | float | str | bool:
    """Return a value as plain data that stands for the same parameter value when it is loaded."""
    if isinstance(value, timedelta):
        return f"{value // timedelta(microseconds=1)}us"
    if isinstance(value, syntax.Duration):
        # Without an exponent, which the syntax of durations does not have.
        return f"{Decimal(str(value.amount)):f}{value.unit}"
    return value


def _as_syntax(
    value: ParamValue, declared: syntax.Literal | syntax.Duration
) -> syntax.Literal | syntax.Duration:
    """Return a value as syntax; text is parsed as a duration if one is declared."""
    if isinstance(value, timedelta):
        return syntax.Duration(value // timedelta(microseconds=1), "us")
    if isinstance(value, str) and isinstance(declared, syntax.Duration):
        return _duration(value) or syntax.Literal(value)
    return value if isinstance(value, syntax.Duration) else syntax.Literal(value)


def substitute_params(
    file: syntax.File, pattern: syntax.Pattern, given: Mapping[str, ParamValue]
) -> tuple[syntax.File, syntax.Pattern]:
    """Return a file and a pattern with parameters replaced by their values.

    A ParameterError if a given value has another kind than the declared one, is too large a
    number, or is a length of time of 0.
    """
    values: dict[str, syntax.Literal | syntax.Duration] = {}
    for decl in (*file.params, *pattern.params):
        values[decl.name] = decl.value
        if decl.name in given:
            value = _as_syntax(given[decl.name], decl.value)
            number = value.value if isinstance(value, syntax.Literal) else value.amount
            if isinstance(number, int | float) and not abs(number) <= sys.float_info.max:
                size = number if isinstance(number, float) else "too large"
                raise ParameterError(
                    f"parameter {decl.name} is {size}; the largest number is about 10^308",
                    decl.name,
                )
            if isinstance(value, syntax.Duration) and value.microseconds > sys.float_info.max:
                raise ParameterError(
                    f"parameter {decl.name} is too long; it has at most about 10^308 us", decl.name
                )
            if type(value) is not type(decl.value) or (
                isinstance(value, syntax.Literal)
                and isinstance(decl.value, syntax.Literal)
                and kind(value.value) != kind(decl.value.value)
            ):
                hint = "; write it as `30s`" if isinstance(decl.value, syntax.Duration) else ""
                raise ParameterError(
                    f"parameter {decl.name} is declared as {_value_text(decl.value)} and cannot be "
                    f"{_value_text(value)}{hint}",
                    decl.name,
                )
            values[decl.name] = value
    _refuse_zero_lengths(pattern, values)
    # Only this pattern is replaced: others of the file have parameters of their own.
    return replace(file, events=_substitute(file.events, values)), _substitute(pattern, values)


def _refuse_zero_lengths(
    pattern: syntax.Pattern, values: Mapping[str, syntax.Literal | syntax.Duration]
) -> None:
    """Raise a SettingError for a length of time of 0; in a comparison, 0 is allowed."""
    lengths = {name: getattr(pattern.order, name) for name in syntax.ORDER_LENGTHS}
    if pattern.window is not None:
        lengths = {"within": pattern.window.length, **lengths}
    for statement, length in lengths.items():
        if isinstance(length, syntax.ParamRef):
            value = values[length.name]
            if isinstance(value, syntax.Duration) and value.amount <= 0:
                raise ParameterError(
                    f"parameter {length.name} is {value.amount} {value.unit}, but "
                    f"`{statement}` requires a duration longer than zero",
                    length.name,
                )


def _value_text(value: syntax.Literal | syntax.Duration) -> str:
    if isinstance(value, syntax.Duration):
        return f"the duration {value.amount} {value.unit}"
    shown = str(value.value).lower() if isinstance(value.value, bool) else repr(value.value)
    return f"the {kind(value.value)} {shown}"


def _substitute(node: Any, values: Mapping[str, syntax.Literal | syntax.Duration]) -> Any:
    if isinstance(node, syntax.ParamRef):
        return replace(values[node.name], span=node.span)
    if isinstance(node, tuple):
        return tuple(_substitute(item, values) for item in node)
    if not isinstance(node, syntax.Node):
        return node
    changed: dict[str, Any] = {}
    for name in node.__dataclass_fields__:
        old = getattr(node, name)
        if name != "span" and isinstance(old, syntax.Node | tuple):
            new = _substitute(old, values)
            if new is not old:
                changed[name] = new
    return replace(node, **changed) if changed else node
