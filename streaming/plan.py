"""What a job would do, in words: `ketal stream --dry-run`, and the warnings at its start.

The one rule: where an answer depends on the order in which partitions are read, the plan says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from ketal.automaton import CompiledPattern
from ketal.program import Program
from ketal.streaming.job import Job


def lines(job: Job, program: Program) -> Iterator[str]:
    """Yield the lines of the plan; no value of `[kafka.properties]` is among them."""
    yield f"engine: process, one consumer that reads all partitions (group {job.group_id})"
    yield f"Kafka: {job.bootstrap_servers}" + (
        f", with {', '.join(sorted(job.properties))}" if job.properties else ""
    )
    yield f"topics: {', '.join(job.topics)}, from the {_start(job)} where nothing is committed"
    for name, path in job.source.fields.items():
        yield f"field {name}: {path}"
    yield f"verdicts: {job.verdicts}, {_once(job.verdicts.kind)}"
    yield f"rejected: {job.rejected}, {_once(job.rejected.kind)}"
    yield f"state: dir:{job.state}, a commit each {job.commit_interval_ms} ms at most"
    yield (
        f"time: the watermark is {job.lateness_ms} ms behind each partition's latest event; "
        f"a partition is idle after {job.idle_ms} ms"
    )
    for compiled in program.compiled:
        yield f"pattern {compiled.name}: {compiled.kind}, fingerprint {compiled.fingerprint}"
        yield f"  scopes: {_scopes(compiled)}"
        yield f"  order: {_order(compiled)}"
    for warning in warnings(program):
        yield f"warning: {warning}"


def _start(job: Job) -> str:
    return "beginning" if job.start == "earliest" else "end"


def _once(kind: str) -> str:
    if kind == "kafka":
        return "exactly once under read_committed"
    return "at least once, with the same ids"


def _scopes(compiled: CompiledPattern) -> str:
    parts = [name for name, _ in compiled.partition]
    if compiled.pattern.deployment is not None:
        parts.append("node")
    by = f"one for each {', '.join(parts)}" if parts else "one for all events"
    return f"{by}; all of them in this process, whatever partition an event is in"


def _order(compiled: CompiledPattern) -> str:
    if not compiled.causal:
        return "arrival: as events are consumed"
    if compiled.order_free:
        return "CausalOrder: no event waits, for the answer is the same in any order"
    order = compiled.pattern.order
    what = "total" if order.total else "frontier" if order.frontier else "eager"
    return f"CausalOrder ({what}): events wait in the hold-back queue until they are ready"


def warnings(program: Program) -> Iterator[str]:
    """Yield where the answer depends on how partitions are interleaved."""
    for compiled in program.compiled:
        order = compiled.pattern.order
        if not compiled.causal:
            yield (
                f"{compiled.name} takes events as they are consumed: its answer is the same each "
                "time only where the events of a scope are in one partition"
            )
        elif not compiled.order_independent and not (order.total and order.nodes):
            yield (
                f"{compiled.name} is order-sensitive: its answer may depend on how partitions "
                "are interleaved; `order CausalOrder(total, nodes = [...])` makes it the same "
                "each time"
            )
