"""The canonical JSON that fingerprints hash: of syntax, formulas and automata.

A fingerprint is part of the id of every verdict and of saved state, so a class or a field that is
renamed keeps its former name here.

The one rule: no fingerprint changes, unless `FORMAT` does.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from typing import Any

from ketal.compiler.automaton import Automaton, LiveRegisters, Variant
from ketal.compiler.predicates import Atom
from ketal.model import syntax

FORMAT = 2
"""The version of the canonical JSON."""
FORMER_NAMES: dict[type, str] = {LiveRegisters: "Live"}
"""The tag of each class in the canonical JSON that is not its name; one for each renamed class."""

FIELDS_SINCE = frozenset({"receiving"})
"""Fields added later: one with its default value is left out, so fingerprints stay the same."""


def canonical_form(value: Any) -> Any:
    """Return syntax and formulas as plain JSON without spans: the same in every process."""
    if isinstance(value, syntax.Node | Atom | Variant | LiveRegisters):
        return [FORMER_NAMES.get(type(value), type(value).__name__)] + [
            canonical_form(getattr(value, f.name))
            for f in fields(value)
            if f.compare and not (f.name in FIELDS_SINCE and getattr(value, f.name) == f.default)
        ]
    if isinstance(value, frozenset | set):
        return sorted(canonical_form(v) for v in value)
    if isinstance(value, tuple | list):
        return [canonical_form(v) for v in value]
    if isinstance(value, float | int) and not isinstance(value, bool):
        return ["number", type(value).__name__, repr(value)]
    return value


def canonical_automaton(automaton: Automaton) -> list[tuple[str, Any]]:
    """Return an automaton as plain JSON: its fields by name, without the names of states."""
    # The names of states do not affect the ids of verdicts.
    named = sorted(f.name for f in fields(automaton) if f.name != "names")
    return [(name, canonical_form(getattr(automaton, name))) for name in named]


def hash_of(value: Any) -> str:
    """Return 32 hex digits over plain JSON."""
    packed = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.blake2b(packed.encode(), digest_size=16).hexdigest()
