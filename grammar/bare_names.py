"""How a bare name is read: the one definition for the builder and the printer.

`x` alone is a parameter where one is declared, one of the event's own fields where it
is called so, and an attribute otherwise. `X.y` is a reference where X is a step (or an
event used as one); it is also read as a reference, which
`ketal.analysis.name_resolution` then rejects, where X begins with a capital or nearly
is a declared name: a misspelt step must not become an attribute that is never there.
After `data.` it is an attribute, whatever its name.

Some bare words would be read as an attribute where the writer means something else: another
language's `null` or `True`, `self.x`, a type without quotes. They are refused (`misleading`), and
an attribute of such a name is written with `data.` everywhere.

The one rule: what the printer leaves bare, the builder reads back the same.
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
"""The event's own fields that are compared with text, after which no bare word stands."""
COUNT = "count"
"""After a step it would be read as an attribute, where its writer counts occurrences."""
_EXISTS = "`exists(x)` is true where `x` is there and is not null, `!exists(x)` where it is not"
_WORDS = {
    **dict.fromkeys(("null", "none", "nil", "undefined"), ("the language has no null", _EXISTS)),
    "true": ("the boolean is `true`", "write `true`"),
    "false": ("the boolean is `false`", "write `false`"),
    "nan": ("no value is equal to NaN", _EXISTS),
}
"""What is wrong with a bare word, and what to write, by the word in lower case."""
_OF_THE_EVENT = ("the event of a guard has no name", "its attributes are written without one")
_HEADS = {
    **dict.fromkeys(("self", "this", "event"), _OF_THE_EVENT),
    "clock": (
        "clocks are not compared by their entries",
        "`Causal(…)` and `Conc(…)` compare them",
    ),
}
"""The same of a word that parts follow, as in `self.x`."""


@dataclass(frozen=True, slots=True)
class DeclaredNames:
    """The names that are declared where an expression stands."""

    params: Set[str] = frozenset()
    declared: Set[str] = frozenset()
    """Events and steps."""
    after_own_text: bool = False
    """Whether the event's own `type` or `node` is compared with the expression."""


def reads_as_reference(head: str, scope: DeclaredNames) -> bool:
    """Return whether `head.x` is read as a reference to a step."""
    return (
        head in scope.declared
        or head[:1].isupper()
        or (head not in scope.params and nearest(head, scope.declared, NEARLY) is not None)
    )


def misleading(path: tuple[str, ...]) -> tuple[str, str] | None:
    """Return why a bare path is refused, and what to write; None for one that is not."""
    return (_WORDS if len(path) == 1 else _HEADS).get(path[0].lower())


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
