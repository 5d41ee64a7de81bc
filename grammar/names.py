"""How a bare name is read, as the builder and the printer must both know it.

`x` alone is a parameter where one is declared, one of the event's own fields
where it is called so, and an attribute otherwise. `X.y` is a reference where X
is a step (or an event used as one); it is also read as a reference, which
`ketal.resolve` then rejects, where X begins with a capital or nearly is a
declared name: a misspelt step must not become an attribute that is never there.
`data.` says attribute, whatever comes after it.

The one rule: what the printer leaves bare, the builder reads back the same.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Set
from dataclasses import dataclass

from ketal.pattern import EVENT_FIELDS, RESERVED

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
NEARLY = 0.8


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that are declared where an expression stands."""

    params: Set[str] = frozenset()
    declared: Set[str] = frozenset()
    """Events and steps."""


def near(name: str, known: Set[str], cutoff: float = NEARLY) -> str | None:
    """Return the name among `known` that `name` may have been meant to be."""
    found = difflib.get_close_matches(name, sorted(known), 1, cutoff)
    return found[0] if found else None


def reads_as_reference(head: str, scope: Scope) -> bool:
    """Return whether `head.x` is read as a reference to a step."""
    return (
        head in scope.declared
        or head[:1].isupper()
        or (head not in scope.params and near(head, scope.declared) is not None)
    )


def stands_bare(path: tuple[str, ...], scope: Scope) -> bool:
    """Return whether an attribute can be written without `data.`."""
    head = path[0]
    if not IDENTIFIER.match(head) or head in RESERVED or head in EVENT_FIELDS:
        return False
    if head in scope.params or head in scope.declared:
        return False
    return len(path) == 1 or not reads_as_reference(head, scope)
