"""How a bare name is read: the one definition for the builder and the printer.

`x` alone is a parameter where one is declared, one of the event's own fields where it
is called so, and an attribute otherwise. `X.y` is a reference where X is a step (or an
event used as one); it is also read as a reference, which
`ketal.analysis.name_resolution` then rejects, where X begins with a capital or nearly
is a declared name: a misspelt step must not become an attribute that is never there.
After `data.` it is an attribute, whatever its name.

The one rule: what the printer leaves bare, the builder reads back the same.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Set
from dataclasses import dataclass

from ketal.model.syntax import EVENT_FIELDS, RESERVED

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
NEARLY = 0.8


@dataclass(frozen=True, slots=True)
class DeclaredNames:
    """The names that are declared where an expression stands."""

    params: Set[str] = frozenset()
    declared: Set[str] = frozenset()
    """Events and steps."""


def nearest(name: str, known: Set[str], cutoff: float = NEARLY) -> str | None:
    """Return the name among `known` that `name` may have been meant to be."""
    matches = difflib.get_close_matches(name, sorted(known), 1, cutoff)
    return matches[0] if matches else None


def reads_as_reference(head: str, scope: DeclaredNames) -> bool:
    """Return whether `head.x` is read as a reference to a step."""
    return (
        head in scope.declared
        or head[:1].isupper()
        or (head not in scope.params and nearest(head, scope.declared) is not None)
    )


def stands_bare(path: tuple[str, ...], scope: DeclaredNames) -> bool:
    """Return whether an attribute can be written without `data.`."""
    head = path[0]
    if not IDENTIFIER.match(head) or head in RESERVED or head in EVENT_FIELDS:
        return False
    if head in scope.params or head in scope.declared:
        return False
    return len(path) == 1 or not reads_as_reference(head, scope)
