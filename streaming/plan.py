"""The plan of a job in words, for `ketal stream --dry-run`, and the warnings at the job's start.

The one rule: where a verdict depends on the order in which partitions are read, the plan says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.operators.order.release_options import ReleaseOptions
from ketal.programs.program import Program
from ketal.streaming.job.distribution import unshareable_reason
from ketal.streaming.job.file import Job
from ketal.streaming.spark.families import families
from ketal.streaming.spark.families import warnings as key_group_warnings


def lines(job: Job, program: Program) -> Iterator[str]:
    """Yield the lines of the plan; they show no value of `[kafka.properties]`."""
    spark = job.engine == "spark"
    yield f"engine: {_engine(job, program)}"
    yield f"Kafka: {job.bootstrap_servers}" + (
        f", with {', '.join(sorted(job.properties))}" if job.properties else ""
    )
    start = "beginning" if job.start == "earliest" else "end"
    yield f"topics: {', '.join(job.topics)}, from the {start} where nothing is committed"
    for name, path in job.source.fields.items():
        yield f"field {name}: {path}"
    yield f"verdicts: {job.verdicts}, {_delivery_guarantee(job.verdicts.kind, spark)}"
    yield f"rejected: {job.rejected}, {_delivery_guarantee(job.rejected.kind, spark)}"
    behind = f"the watermark is {job.lateness_ms} ms behind"
    if spark:
        yield f"state: Spark's checkpoint in {job.store.name}"
        yield f"time: {behind} the latest event of all partitions"
    else:
        yield f"state: {job.store}, a commit each {job.commit_interval_ms} ms at most"
        yield (
            f"time: {behind} each partition's latest event; a partition is idle after "
            f"{job.idle_ms} ms"
        )
    for compiled in program.compiled:
        yield f"pattern {compiled.name}: {compiled.kind}, fingerprint {compiled.fingerprint}"
        yield f"  scopes: {_scopes(compiled)}; {_placement(job, program, compiled)}"
        yield f"  order: {_order(compiled)}"
    for warning in warnings(program, job):
        yield f"warning: {warning}"


def _engine(job: Job, program: Program) -> str:
    if job.engine == "spark":
        count = sum(family.groups for family in families(program, job.key_groups))
        batch = f"a batch each {job.trigger_ms} ms at most, of {job.batch_messages_max:,} messages"
        return f"spark, {count} key groups, {batch} at most"
    return f"process, {consumers(job, program)} (group {job.group_id})"


def consumers(job: Job, program: Program) -> str:
    """Describe which consumers read the partitions."""
    if job.is_shared:
        return (
            "one of several consumers, which share the partition numbers, partition n of each "
            "topic with n: as many as a topic has partitions"
        )
    if job.keyed_by is not None and unshareable_reason(job, program) is None:
        return (
            "one consumer that reads all partitions; with the topics keyed by "
            f'{job.keyed_by}, `store = "kafka:TOPIC"` would let several share them'
        )
    return "one consumer that reads all partitions"


def _delivery_guarantee(kind: str, spark: bool) -> str:
    if kind == "kafka" and not spark:
        return "exactly once under read_committed"
    return "at least once, with the same ids"


def _scopes(compiled: CompiledPattern) -> str:
    parts = [name for name, _ in compiled.partition]
    if compiled.pattern.deployment is not None:
        parts.append("node")
    return f"one for each {', '.join(parts)}" if parts else "one for all events"


def _placement(job: Job, program: Program, compiled: CompiledPattern) -> str:
    if job.engine == "process" and job.is_shared:
        return f"with the consumer that has the partitions of its {job.keyed_by}"
    if job.engine == "process":
        return "all of them in this process, whatever partition an event is in"
    groups = next(
        f.groups for f in families(program, job.key_groups) if compiled.name in f.program.names
    )
    if groups > 1:
        return f"in {groups} key groups, by the hash of its partition"
    return "all of them in one key group"


def _order(compiled: CompiledPattern) -> str:
    if not compiled.causal:
        return "arrival: as events are consumed"
    if compiled.order_free:
        return "CausalOrder: no event waits, for the answer is the same in any order"
    policy = ReleaseOptions.of(compiled.pattern.order).policy
    return f"CausalOrder ({policy}): events wait in the hold-back queue until they are ready"


def warnings(program: Program, job: Job) -> Iterator[str]:
    """Yield a warning for each pattern whose verdicts may depend on how partitions are interleaved.

    Also for patterns that may wait for ever, and, with the engine spark, for patterns that run in a
    single task.
    """
    has_several_topics = len(job.topics) > 1
    for compiled in program.compiled:
        order = compiled.pattern.order
        waits_for_dots = compiled.causal and not compiled.order_free and order.frontier is None
        if job.start == "latest" and waits_for_dots and order.gap is None:
            yield (
                f"{compiled.name} waits for the past of each event, and what came before the "
                'start is never read (start = "latest"): where nothing is committed, events wait '
                "for ever. Choose `CausalOrder(frontier = …)`, which waits for time alone, or "
                '`gap = …`, after which what is missing counts as lost, or start = "earliest"'
            )
        if not compiled.causal:
            # With several consumers the events of a scope are in one partition of each topic.
            if has_several_topics or not job.is_shared:
                yield (
                    f"{compiled.name} takes events as they are consumed: its answer is the same "
                    "each time only where the events of a scope are in one partition"
                    + (" of one topic" if has_several_topics else "")
                )
        elif not compiled.order_independent and not (order.total and order.nodes):
            yield (
                f"{compiled.name} is order-sensitive: its answer may depend on how partitions "
                "are interleaved; `order CausalOrder(total, nodes = [...])` makes it the same "
                "each time"
            )
    if job.engine == "spark":
        yield from key_group_warnings(program, job.key_groups)
