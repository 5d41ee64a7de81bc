"""The plan of a job in words, for `ketal stream --dry-run`, and the warnings at the job's start.

The one rule: where a verdict depends on the order in which partitions are read, the plan says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.model.wording import counted
from ketal.operators.order.release_options import ReleaseOptions
from ketal.programs.program import Program
from ketal.streaming.job.distribution import unshareable_reason, waits_for_ever
from ketal.streaming.job.file import Job, Target
from ketal.streaming.spark.families import batch_messages_max, families
from ketal.streaming.spark.families import warnings as key_group_warnings


def lines(job: Job, program: Program) -> Iterator[str]:
    """Yield the lines of the plan; they show no value of `[kafka.properties]`."""
    spark = job.engine == "spark"
    divisions = families(program, job.key_groups) if spark else ()
    groups = {name: one.groups for one in divisions for name in one.program.names}
    if spark:
        count = counted(sum(one.groups for one in divisions), "key group")
        yield (
            f"engine: spark, {count}, at most one batch every {job.trigger_ms} ms, of at most "
            f"{batch_messages_max(divisions, job):,} messages"
        )
    else:
        yield f"engine: process, {consumers(job, program)} (group {job.group_id})"
    yield f"Kafka: {job.bootstrap_servers}" + (
        f", with {', '.join(sorted(job.properties))}" if job.properties else ""
    )
    start = "beginning" if job.start == "earliest" else "end"
    end = ", to the ends that they have at the start" if job.until_end else ""
    yield f"topics: {', '.join(job.topics)}, from the {start} if nothing is committed{end}"
    yield f"clock: {job.source.clock}"
    for name, path in job.source.fields.items():
        yield f"field {name}: {path}"
    yield f"verdicts: {job.verdicts}, {_delivery_guarantee(job.verdicts, spark)}"
    yield f"rejected: {job.rejected}, {_delivery_guarantee(job.rejected, spark)}"
    behind = f"the watermark is {job.lateness_ms} ms behind"
    if spark:
        yield f"state: Spark's checkpoint in {job.store.name}"
        yield f"time: {behind} the latest event of all partitions"
    else:
        yield f"state: {job.store}, at most one commit every {job.commit_interval_ms} ms"
        yield (
            f"time: {behind} each partition's latest event; a partition is idle after "
            f"{job.idle_ms} ms"
        )
    yield f"if the saved state is of another program: {job.on_change}"
    if job.metrics_port is not None:
        yield f"metrics: at port {job.metrics_port}, path /metrics"
    for compiled in program.compiled:
        number = groups.get(compiled.name, 1)
        yield f"pattern {compiled.name}: {compiled.kind}, fingerprint {compiled.fingerprint}"
        yield f"  scopes: {_scopes(compiled)}; {_placement(job, number)}"
        yield f"  order: {_order(compiled, is_divided=job.is_shared or number > 1)}"
    for warning in warnings(program, job):
        yield f"warning: {warning}"


def consumers(job: Job, program: Program) -> str:
    """Describe which consumers read the partitions."""
    if job.is_shared:
        return (
            "one of several consumers, at most as many as a topic has partitions; each reads the "
            "same partition numbers of all topics"
        )
    if job.keyed_by is not None and unshareable_reason(job, program) is None:
        return (
            "one consumer that reads all partitions; since the topics are keyed by "
            f'{job.keyed_by}, several consumers could share them with `store = "kafka:TOPIC"`'
        )
    return "one consumer that reads all partitions"


def _delivery_guarantee(output: Target, spark: bool) -> str:
    if output.is_topic and not spark:
        return "exactly once under read_committed"
    return "at least once, with the same ids"


def _scopes(compiled: CompiledPattern) -> str:
    parts = [name for name, _ in compiled.partition]
    if compiled.pattern.deployment is not None:
        parts.append("node")
    return f"one for each {', '.join(parts)}" if parts else "one for all events"


def _placement(job: Job, groups: int) -> str:
    if job.is_shared:
        return f"in the consumer that reads the partitions of its {job.keyed_by}"
    if job.engine == "process":
        return "all of them in this process, whichever partition an event is in"
    if groups > 1:
        return f"in {groups} key groups, by the hash of its partition"
    return "all of them in one key group"


def _order(compiled: CompiledPattern, *, is_divided: bool) -> str:
    """Describe the order of a pattern; a part of a divided one does not see all events."""
    if not compiled.causal:
        return "arrival: the order in which events are consumed"
    if compiled.order_free:
        if compiled.pattern.order.frontier is not None:
            then = "waits for time"
        elif is_divided:
            then = "counts as doubtful if its clock may be incomplete"
        else:
            then = "waits for its past"
        return (
            "CausalOrder: the result is the same in every order, so no event waits; once a node "
            f"has left or restarted, an event {then}"
        )
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
        if job.start == "latest" and waits_for_ever(compiled) and not compiled.order_free:
            yield (
                f"{compiled.name} waits for the past of each event, but messages from before the "
                'start are never read (start = "latest"): if nothing is committed, events wait for '
                "ever; choose `CausalOrder(frontier = …)`, which waits only for time, or `gap = "
                '…`, after which a missing event is declared lost, or start = "earliest"'
            )
        if not compiled.causal:
            # With several consumers the events of a scope are in one partition of each topic.
            if has_several_topics or not job.is_shared:
                yield (
                    f"{compiled.name} takes events in the order in which they are consumed: its "
                    "result is reproducible only if the events of a scope are in one partition"
                    + (" of one topic" if has_several_topics else "")
                )
        elif not compiled.order_independent and not (order.total and order.nodes):
            yield (
                f"{compiled.name} is order-sensitive: its result may depend on how partitions "
                "are interleaved; `order CausalOrder(total, nodes = [...])` makes it reproducible"
            )
    if job.engine == "spark":
        yield from key_group_warnings(program, job.key_groups)
