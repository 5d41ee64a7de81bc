"""Values of events and the operations of guards on them, one at a time.

A value has a kind (number, string or boolean), or is unknown, which is None here: an absent value,
a list, a mapping, NaN. An operation on an unknown value, or on values of two
kinds, is unknown (Kleene's logic). Globs and regular expressions are RE2's, which takes
time linear in the string, whatever the expression.

The one rule: nothing here depends on a pattern.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from ketal.model.events.event import Event
from ketal.model.events.event_time import rounded

ARITHMETIC_BITS_MAX = 1024
"""The most bits of an integer result of arithmetic; a larger result is unknown."""

Key = tuple[str, Any]
"""(kind, value): keys are equal if the values are equal to a guard, so true is not 1."""


_SCALAR = (str, int, float)


def scalar(value: Any) -> Any:
    """Return a value if it has a kind (number, string, boolean), else None."""
    return value if isinstance(value, _SCALAR) and value == value else None


def kind(value: Any) -> str:
    """Return the kind of a scalar: `number`, `string` or `boolean`."""
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "number"


_KINDS = {str: "string", int: "number", bool: "boolean"}
"""The kinds of values by their class, for classes of which every value has a kind."""


def keyed(value: Any) -> Key | None:
    """Return the key of a value; None for an unknown value, which equals nothing.

    Equal values have one key, which is also written in one way: 1.0 has the key of 1.
    """
    known = _KINDS.get(value.__class__)
    if known is not None:
        return known, value
    value = scalar(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return None if value is None else (kind(value), value)


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal and of the same kinds, also inside lists and mappings.

    Numbers are one kind, so 1 and 1.0 are the same; True, which equals both in Python, is not.
    """
    if one is not other and one != other:
        return False
    if isinstance(one, Mapping):
        return all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple):
        return all(map(same, one, other))
    return isinstance(one, bool) == isinstance(other, bool)


def dig(value: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path in nested dicts; None if there is none."""
    for name in path:
        if value.__class__ is not dict:
            return None
        value = value.get(name)
    return value


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
}


def arithmetic(op: str, left: Any, right: Any) -> Any:
    """Return `left op right`; None (unknown) unless both are numbers and the result is finite."""
    for value in (left, right):
        if value is None or isinstance(value, bool | str):
            return None
    try:
        result = _ARITHMETIC[op](left, right)
    except (ZeroDivisionError, OverflowError):
        return None
    if isinstance(result, int):
        return result if result.bit_length() <= ARITHMETIC_BITS_MAX else None
    return result if math.isfinite(result) else None


def time_arithmetic(op: str, left: Any, right: Any) -> Any:
    """Return `left op right` as `arithmetic` does, rounded to a microsecond."""
    result = arithmetic(op, left, right)
    return rounded(result) if isinstance(result, float) else result


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def holds(op: str, left: Any, right: Any) -> bool:
    """Return whether `left op right` is true (not false, not unknown)."""
    if left is None or right is None:
        return False
    left_kind = kind(left)
    if left_kind != kind(right) or (left_kind == "boolean" and op not in ("==", "!=")):
        return False
    return _COMPARE[op](left, right)


def glob_regex(glob: str, *, dotted: bool) -> Any:
    """Translate a glob to RE2; `dotted` is AspectJ's: `*` stops at dots, `..` does not.

    RE2 takes time linear in the string, whatever the glob.
    """
    import re2

    options = re2.Options()
    options.dot_nl = True
    if not dotted:
        body = "".join({"*": ".*", "?": "."}.get(c, re2.escape(c)) for c in glob)
        return re2.compile(body, options)
    body = ""
    for part in re.split(r"(\.\.|\*+)", glob):
        if part == "..":
            body += r"\.(?:.*\.)?"
        else:
            body += r"[^.]*" if part.startswith("*") else re2.escape(part)
    return re2.compile(body, options)


_INCARNATION = re.compile(r"#\d+\Z")


def base_node(node: str) -> str:
    """Return a node's name without its incarnation (`A#2` is `A`)."""
    return _INCARNATION.sub("", node) if "#" in node else node


def origin(event: Event) -> str:
    """Return the node that created an event: the attribute `origin`, else the event's node."""
    value = event.data.get("origin")
    return value if isinstance(value, str) else event.node


@functools.lru_cache(maxsize=1024)
def regex(text: str, memory: int) -> Any:
    """Compile an RE2 expression: matching takes linear time, whatever the string."""
    import re2

    options = re2.Options()
    options.max_mem = memory
    options.log_errors = False
    return re2.compile(text, options)


def argument_types(event: Event) -> list[str] | None:
    """Return `data.arg_types` where it is a list of strings, else None."""
    values = event.data.get("arg_types")
    if isinstance(values, list | tuple) and all(isinstance(v, str) for v in values):
        return list(values)
    return None
