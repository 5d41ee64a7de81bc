"""Which patterns may run in parts: several consumers, or the key groups of Spark.

A part is offered the events of some scopes, so it sees the counters of every node with holes. A
hold-back queue would wait for ever for an event of another part, and a copy at a node would not
see what its node learns elsewhere. What is left: patterns under `order arrival`, those whose
verdicts need no order (`find any` under CausalOrder without `not` or a window of events), and
`frontier`, which waits for time and not for counters. `gap` is refused, since it would declare
the events of other parts lost; and `limit`, which counts the matches of all scopes.

Under `frontier` a part gives the verdicts of the whole for all but late events. An event is late
if an event that depends on it was released: one in another part is not seen, so the part judges an
event that the whole calls late. Such an event is behind the watermark, or its time is after that of
an event that depends on it.

The one rule: a program runs in parts only if each part gives the verdicts that the whole would
give; only which events are late under `frontier` may differ.
"""

from __future__ import annotations

from ketal.compiler.commutation import ordered_clauses
from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.programs.program import Program


def unfit(compiled: CompiledPattern) -> str | None:
    """Return why a pattern cannot run in parts, and what to choose; None if it can.

    It is a clause without the pattern's name, as "is not partitioned: …".
    """
    pattern = compiled.pattern
    if not compiled.partition:
        return "is not partitioned: `partition by` an attribute gives each value a scope of its own"
    if pattern.deployment is not None:
        return (
            "runs at nodes, and a node's copy hears of all that the node learns: only `partition "
            "by` without `at` runs in parts"
        )
    if pattern.limit is not None:
        return (
            f"lists the first {pattern.limit} matches of all scopes, and a part knows of its own "
            "scopes alone: leave `limit` out"
        )
    if pattern.order.gap is not None:
        return (
            "declares lost what does not come within `gap`, and a part sees counters with holes: "
            "leave `gap` out"
        )
    if not compiled.causal or compiled.order_free or pattern.order.frontier is not None:
        return None
    clauses = ordered_clauses(pattern)
    why = f", because of {' and '.join(clauses)}" if pattern.strategy == "any" else ""
    return (
        f"waits for each node's counters{why}, and a part sees them with holes: choose `order "
        f"arrival`, `find any` without {' or '.join(clauses or ['`not`'])}, or `order "
        "CausalOrder(frontier = …)`"
    )


def uses_time(program: Program) -> bool:
    """Return whether watermarks matter: some pattern has a window, or an order that uses time."""
    return any(
        compiled.window_us is not None or any((order.frontier, order.gap, order.idle))
        for compiled in program.compiled
        for order in (compiled.pattern.order,)
    )
