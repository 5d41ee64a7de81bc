"""Which patterns may run in parts: several consumers, or the key groups of Spark.

A part is offered the events of some scopes, so it sees the counters of every node with holes. A
hold-back queue that waits for what another part is offered would wait for ever, and a copy at a
node would not see what its node learns elsewhere. What is left: patterns under `order arrival`,
those whose answer needs no order (`find any` under CausalOrder without `not` or a window of
events), and `frontier`, which waits for time and not for counters. A `gap` declares lost what does
not come, and to a part nothing comes of what the others are offered: that is refused as well. So is
a `limit`, which counts the matches of all scopes.

Of `frontier` a part gives the answer of the whole for all but late events. An event is late there
if an event that depends on it was released, and one in another part cannot be: the whole would call
the event late, and the part judges it. This takes an event that is behind the watermark, or one
whose time is after that of what depends on it.

The one rule: a program runs in parts only if each part gives the answer that the whole would give;
only which events `frontier` calls late may be another matter.
"""

from __future__ import annotations

from ketal.compiler.automaton import CompiledPattern
from ketal.compiler.commutation import ordered_clauses
from ketal.program import Program


def unfit(compiled: CompiledPattern) -> str | None:
    """Return why a pattern cannot run in parts, and what to choose; None if it can.

    Parameters
    ----------
    compiled : CompiledPattern
        The pattern.

    Returns
    -------
    str or None
        A clause without the pattern's name, as "is not partitioned: …".
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
    """Return whether time decides anything: a window, or an order that goes by it."""
    return any(
        compiled.window_us is not None or any((order.frontier, order.gap, order.idle))
        for compiled in program.compiled
        for order in (compiled.pattern.order,)
    )


def partition_by(program: Program) -> tuple[str, ...] | None:
    """Return the attributes that all patterns are partitioned by; None where they differ."""
    found = {tuple(name for name, _ in compiled.partition) for compiled in program.compiled}
    return found.pop() if len(found) == 1 else None
