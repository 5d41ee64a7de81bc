"""The canonical JSON that fingerprints hash: of syntax, formulas and automata.

A fingerprint is part of the id of every verdict and of saved state, so it must not depend on the
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
"""The version of the canonical JSON."""
# Explicit tags: a class or a field can be renamed without a change of fingerprints.
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
"""The tag of each class in the canonical JSON."""

FIELDS_SINCE = frozenset({"receiving"})
"""Fields added later: one with its default value is left out, so fingerprints stay the same."""

FIELD_TAGS = (
    "atoms", "classes", "enabled", "finals", "formulas", "letters", "live", "minterms", "mirrors",
    "nots", "steps", "table", "variants",
)  # fmt: skip
"""The names of an automaton's fields, which are their tags in the canonical JSON; without the names
of the states, which do not affect the ids of verdicts."""


def canonical_form(value: Any) -> Any:
    """Return syntax and formulas as plain JSON without spans: the same in every process."""
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
    """Return an automaton as plain JSON: its fields with their tags."""
    return [(tag, canonical_form(getattr(automaton, tag))) for tag in FIELD_TAGS]


def hash_of(value: Any) -> str:
    """Return 32 hex digits over plain JSON."""
    packed = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.blake2b(packed.encode(), digest_size=16).hexdigest()
