"""The words of the pattern language.

The one rule: nothing that the author of a pattern declares can have a reserved word as its name.
"""

from __future__ import annotations

RESERVED = frozenset(
    {
        "pattern", "order", "arrival", "CausalOrder", "at", "every", "node", "all", "event",
        "check", "find", "any", "next", "strict", "within", "partition", "by", "return",
        "count", "limit", "param", "mode", "possibly", "definitely", "on", "violation",
        "topology", "automaton", "initial", "final", "not", "in", "matches", "exists",
        "call", "host", "origin", "localhost", "true", "false", "Causal", "Conc", "events",
        "type", "time", "id", "data", "prior",
    }
)  # fmt: skip
"""Words that cannot name an event, step, parameter or pattern."""
ARGUMENTS = frozenset({"text", "name", "limits"})
"""Arguments of `ketal.compile`: a parameter with such a name cannot be set."""
STATEMENTS = frozenset(
    {
        "event", "param", "order", "at", "partition", "topology", "check", "find", "within",
        "return", "limit", "mode", "on",
    }
)  # fmt: skip
"""The words that statements begin with."""
UNIT_NS = {
    "ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9,
    "d": 86400 * 10**9,
}  # fmt: skip
"""The units of time, in nanoseconds."""
