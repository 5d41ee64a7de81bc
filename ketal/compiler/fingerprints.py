"""What fingerprints are a hash of: syntax, formulas and automata as plain JSON.

A fingerprint is a part of the id of every verdict, and saved state has it, so it must outlive the
names of classes and fields.

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
"""The version of what is hashed."""
# Written out, so that a class or a field can be renamed and every fingerprint stays.
NODE_TAGS: dict[type, str] = {
    syntax.Literal: "Literal",
    syntax.Duration: "Duration",
    syntax.Field: "Field",
    syntax.Attribute: "Attribute",
    syntax.Reference: "Reference",
    syntax.ParamRef: "ParamRef",
    syntax.Arithmetic: "Arithmetic",
    syntax.Negative: "Negative",
    syntax.ListOf: "ListOf",
    syntax.Order: "Order",
    syntax.Deployment: "Deployment",
    syntax.ReturnItem: "ReturnItem",
    syntax.Returns: "Returns",
    syntax.TopologyEdge: "TopologyEdge",
    syntax.Topology: "Topology",
    Atom: "Atom",
    Variant: "Variant",
    LiveRegisters: "Live",
}
"""The tag in fingerprints of each class that they are a hash of."""

FIELDS_SINCE = frozenset({"receiving"})
"""Fields that came later: where one has its default, fingerprints are as they were before."""

FIELD_TAGS = {
    "atoms": "atoms", "classes": "classes", "enabled": "enabled", "finals": "finals",
    "formulas": "formulas", "letters": "letters", "live": "live", "minterms": "minterms",
    "mirrors": "mirrors", "nots": "nots", "steps": "steps", "table": "table",
    "variants": "variants",
}  # fmt: skip
"""The tag in fingerprints of each field of an automaton, as tag → field; all but the states'
names."""


def canonical_form(value: Any) -> Any:
    """Return syntax and formulas as plain JSON, spans left out: the same in every process."""
    if isinstance(value, syntax.Node | Atom | Variant | LiveRegisters):
        return [NODE_TAGS[type(value)]] + [
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
    """Return an automaton as plain JSON, by the tags of its fields."""
    # The names of states change no verdict's id.
    named = FIELD_TAGS.items()
    return sorted((tag, canonical_form(getattr(automaton, name))) for tag, name in named)


def hash_of(value: Any) -> str:
    """Return 32 hex digits over plain JSON."""
    packed = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.blake2b(packed.encode(), digest_size=16).hexdigest()
