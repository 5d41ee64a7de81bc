"""The meaning of names without `data.`: one definition for the builder and the printer.

`x` alone is a parameter if one of that name is declared, one of the event's own fields if it has
the name of one, and otherwise an attribute. `X.y` is a reference if X is a step (or an event used
as one). It is also read as a reference, which `ketal.analysis.name_resolution` then rejects, if X
begins with a capital or is similar to a declared name: a misspelt step must not become an attribute
that no event has. After `data.` any name is an attribute.

Some bare words would be read as an attribute although the author means something else: the `null`
or `True` of another language, `self.x`, `clock`, a type without quotes. They are refused
(`misleading`), and an attribute of such a name must be written with `data.`.

The one rule: a name that the printer writes without `data.` is read back the same by the builder.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass

from ketal.errors import nearest
from ketal.model.language_words import RESERVED
from ketal.model.syntax import EVENT_FIELDS, Field, Value

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
NEARLY = 0.8
OWN_TEXT = ("node", "type")
"""The event's own fields that are text; a bare word compared with one is refused."""
_EXISTS = "test with `exists(x)` or `!exists(x)` whether `x` is present and not null"
_CAUSAL = "compare clocks with `Causal(…)` or `Conc(…)`"
_CLOCK = ("clocks cannot be compared as values", _CAUSAL)
_WORDS = {
    **dict.fromkeys(("null", "none", "nil", "undefined"), ("the language has no null", _EXISTS)),
    "true": ("the boolean is `true`", "write `true`"),
    "false": ("the boolean is `false`", "write `false`"),
    "nan": ("no value is equal to NaN", _EXISTS),
    "clock": _CLOCK,
}
"""Bare word in lower case → why it is refused, and what to write instead."""
_OF_THE_EVENT = ("the event of a guard has no name", "write its attributes without one")
_HEADS = {
    **dict.fromkeys(("self", "this", "event"), _OF_THE_EVENT),
    **dict.fromkeys(
        ("prior", "all"), ("values are read from named steps", "write `Step.attribute`")
    ),
    "clock": _CLOCK,
}
"""First word of a path in lower case, as in `self.x` → the same."""


@dataclass(frozen=True, slots=True)
class DeclaredNames:
    """The names that are in scope at an expression."""

    params: Set[str] = frozenset()
    """The names of parameters."""
    declared: Set[str] = frozenset()
    """The names of events and steps."""
    after_own_text: bool = False
    """Whether the expression is compared with the event's own `type` or `node`."""


def reads_as_reference(head: str, scope: DeclaredNames) -> bool:
    """Return whether `head.x` is read as a reference to a step."""
    return (
        head in scope.declared
        or head[:1].isupper()
        or (head not in scope.params and nearest(head, scope.declared, NEARLY) is not None)
    )


def misleading(path: tuple[str, ...]) -> tuple[str, str] | None:
    """Return why a bare path is refused, and what to write instead; None if it is not refused."""
    return (_WORDS if len(path) == 1 else _HEADS).get(path[0].lower())


def misleading_after_step(path: tuple[str, ...]) -> str | None:
    """Return what to write instead of a path after a step, as `A.count`; None if it is right."""
    if path[0].lower() == "clock":
        return _CAUSAL
    return "write `return count;` to count matches" if path == ("count",) else None


def is_own_text(value: Value) -> bool:
    """Return whether a value is the event's own `type` or `node`."""
    return isinstance(value, Field) and value.name in OWN_TEXT


def stands_bare(path: tuple[str, ...], scope: DeclaredNames) -> bool:
    """Return whether an attribute can be written without `data.`."""
    head = path[0]
    if scope.after_own_text and len(path) == 1:
        return False
    if not IDENTIFIER.match(head) or head in RESERVED or head in EVENT_FIELDS:
        return False
    if head in scope.params or head in scope.declared or misleading(path):
        return False
    return len(path) == 1 or not reads_as_reference(head, scope)
