"""Parameters: `param w = 10 s;`, set from outside (DESIGN 3).

The one rule: a value replaces the name before anything else reads the pattern,
and is of the kind that was declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ketal import pattern as syntax
from ketal.atoms import kind
from ketal.errors import SettingError

ParamValue = int | float | str | bool | syntax.Duration


def _literal(value: ParamValue) -> syntax.Literal | syntax.Duration:
    return value if isinstance(value, syntax.Duration) else syntax.Literal(value)


def with_params(
    file: syntax.File, pattern: syntax.Pattern, given: Mapping[str, ParamValue]
) -> tuple[syntax.File, syntax.Pattern]:
    """Put the values of parameters in the place of their names.

    Raises
    ------
    SettingError
        If a given value is of another kind than the declared one.
    """
    values: dict[str, syntax.Literal | syntax.Duration] = {}
    for decl in (*file.params, *pattern.params):
        values[decl.name] = decl.value
        if decl.name in given:
            value = _literal(given[decl.name])
            if type(value) is not type(decl.value) or (
                isinstance(value, syntax.Literal)
                and isinstance(decl.value, syntax.Literal)
                and kind(value.value) != kind(decl.value.value)
            ):
                raise SettingError(
                    f"parameter {decl.name} is declared as {_shown(decl.value)}; "
                    f"{_shown(value)} is of another kind"
                )
            values[decl.name] = value
    return _put(file, values), _put(pattern, values)


def _shown(value: syntax.Literal | syntax.Duration) -> str:
    if isinstance(value, syntax.Duration):
        return f"the duration {value.amount} {value.unit}"
    return f"the {kind(value.value)} {value.value!r}"


def _put(node: Any, values: Mapping[str, syntax.Literal | syntax.Duration]) -> Any:
    if isinstance(node, syntax.ParamRef):
        return replace(values[node.name], span=node.span)
    if isinstance(node, tuple):
        return tuple(_put(item, values) for item in node)
    if not isinstance(node, syntax.Node):
        return node
    changed: dict[str, Any] = {}
    for name in node.__dataclass_fields__:
        old = getattr(node, name)
        if name != "span" and isinstance(old, syntax.Node | tuple):
            new = _put(old, values)
            if new is not old:
                changed[name] = new
    return replace(node, **changed) if changed else node
