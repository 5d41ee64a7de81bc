"""The division of a program into key groups on Spark, and the check whether that is possible.

On Spark a program has one partition key: the key of most of its patterns, or the first by name of
several such keys. The patterns with that key are a *family* of `key_groups` groups, and an event
goes to the group whose number is the hash of its partition. All other patterns are a family of one
group, with the number 0, which gets every event. The first family reports verdicts that concern all
patterns (rejections, lateness). The numbers of groups do not depend on the order of the patterns in
their file; the number is the operator's key, and part of the checkpoint.

With `key_groups=1` the whole program is one family of one group, which gets every event, and has
the hold-back queue and all scopes. Any program runs that way.

Every group decides for the patterns of all families whether an event is late by the watermark, or
refused by every topology. It does not see the events of other groups (`docs/spark.md`).

The one rule: each group gives the verdicts that the whole would give, or the job does not start.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.errors import SettingError
from ketal.logs.source import KAFKA, Path, Source
from ketal.model import syntax
from ketal.model.events.incarnation import INCARNATION
from ketal.model.limits import Limits
from ketal.programs.program import Program
from ketal.runtime.silence.vacuity import Findings, MetEvents, findings
from ketal.runtime.stream_release import refuse_unavailable
from ketal.streaming.job.distribution import unsplittable_reason
from ketal.streaming.job.file import Job
from ketal.streaming.job.messages import message_paths

HASHING = 3
"""The version of the way in which a partition is hashed to a group's number (`rows`)."""

PartitionKey = tuple[syntax.Attribute | syntax.Field, ...]
"""The attributes of a `partition by`; empty for a pattern without one."""


@dataclass(frozen=True)
class Family:
    """Patterns that share their groups."""

    program: Program
    """The patterns."""
    partition: PartitionKey
    """The key whose hash gives an event's group, in canonical order; empty if there is one group.
    """
    first: int
    """The number of its first group."""
    groups: int
    """The number of its groups."""


def families(program: Program, key_groups: int) -> tuple[Family, ...]:
    """Return the families of a program, at most two; the one that gets every event comes first.

    Raises
    ------
    SettingError
        If a pattern cannot run in parts.
    NotAvailableError
        If a pattern cannot run on a stream at all.
    """
    assert key_groups >= 1
    for compiled in program.compiled:
        refuse_unavailable(compiled)
    if key_groups == 1:
        return (Family(program, (), 0, 1),)
    for compiled in program.compiled:
        why = unsplittable_reason(compiled)
        if compiled.partition and why is not None:
            raise SettingError(
                f"pattern {compiled.name} cannot run in {key_groups} key groups: it {why}\n"
                "  hint: set key_groups = 1 for a single ordering stage, one group with the "
                "hold-back queue and all scopes"
            )
    key = _job_key(program)
    shares = [
        compiled.name for compiled in program.compiled if key and _partition_key(compiled) == key
    ]
    others = [compiled.name for compiled in program.compiled if compiled.name not in shares]
    out = [Family(_subprogram(program, others), (), 0, 1)] if others else []
    if shares:
        out.append(Family(_subprogram(program, shares), key, len(out), key_groups))
    return tuple(out)


def batch_messages_max(divisions: Iterable[Family], job: Job) -> int:
    """Return how many messages of a job a batch may have.

    A batch is processed partition after partition, so that most of its events may wait for those of
    its last partition. In a group that holds events back it fills half of the queue at most.
    """
    waiting = [
        division.groups
        for division in divisions
        if any(one.causal and not one.order_free for one in division.program.compiled)
    ]
    room = max(1, job.limits.held_back_max // 2)
    return min([job.batch_messages_max, *(room * groups for groups in waiting)])


def _partition_key(compiled: CompiledPattern) -> PartitionKey:
    """Return the partition key of a pattern, in canonical order."""
    return tuple(sorted(compiled.pattern.partition, key=_attribute_name))


def _job_key(program: Program) -> PartitionKey:
    """Return the partition key of most patterns; empty if no pattern is partitioned."""
    counts = Counter(filter(None, map(_partition_key, program.compiled)))
    return min(counts, key=lambda key: (-counts[key], *map(_attribute_name, key)), default=())


def _attribute_name(attribute: syntax.Attribute | syntax.Field) -> str:
    """Return the canonical name of one attribute of a partition key."""
    if isinstance(attribute, syntax.Field):
        return attribute.name
    keys = [key if key.isidentifier() else json.dumps(key) for key in attribute.path]
    own = keys[0] in syntax.EVENT_FIELDS or len(keys) > 1
    return ".".join(("data", *keys) if own else keys)


def _key_name(key: PartitionKey) -> str:
    return ", ".join(map(_attribute_name, key))


def attribute_paths(
    attribute: syntax.Attribute | syntax.Field, paths: Mapping[str, Path]
) -> tuple[Path, ...]:
    """Return the paths where a message may have an attribute of a partition key.

    The first path that exists in the message counts.
    """
    if isinstance(attribute, syntax.Field):
        return (paths[attribute.name],)
    if attribute.path == (INCARNATION,) and INCARNATION in paths:
        return (paths[INCARNATION],)
    data = paths.get("data")
    return (
        (attribute.path,)
        if data is None or data[0] == KAFKA
        else ((*data, *attribute.path), attribute.path)
    )


def keying_attribute(
    partition: PartitionKey, source: Source
) -> syntax.Attribute | syntax.Field | None:
    """Return the attribute of a partition key that keys messages; None if none does.

    If there is one, the key of a message is hashed instead of its value.
    """
    for attribute in partition:
        if source.keyed_by == attribute.last_name:
            return attribute
    return None


def placement(families: Sequence[Family], source: Source) -> dict[str, str]:
    """Describe, for each partition key of a family, what part of a message is hashed to its group.

    If that changes, or the number of groups, or `HASHING`, scopes would lose their state.
    """
    paths = message_paths(source)
    out: dict[str, str] = {}
    for family in families:
        if family.partition:
            where = [
                " or ".join(map(_path_text, attribute_paths(attribute, paths)))
                for attribute in family.partition
            ]
            keyed = keying_attribute(family.partition, source) is not None
            out[_key_name(family.partition)] = "the messages' key" if keyed else ", ".join(where)
    return out


def row_placements(families: Sequence[Family], source: Source | None) -> tuple[str, ...]:
    """Describe for each family how the group of a row is computed."""
    where = {} if source is None else placement(families, source)
    return tuple(
        f"{one.groups} key groups by {where.get(name, f'the columns {name}')} (hashing {HASHING})"
        if (name := _key_name(one.partition))
        else "one key group"
        for one in families
    )


def _path_text(path: Path) -> str:
    return ".".join(("kafka", *path[1:]) if path[0] == KAFKA else path)


def _subprogram(program: Program, names: list[str]) -> Program:
    compiled = tuple(c for c in program.compiled if c.name in names)
    return Program(compiled, program.file, ())


def group_limits(limits: Limits, groups: int) -> Limits:
    """Return the limits of one group: limits that bound what all groups keep are divided.

    Each group keeps counters and dots of every node, so with undivided limits the state could grow
    with the number of groups. The values of `keyed_by` are divided among the groups.
    """
    return replace(
        limits,
        dots_max=max(1, limits.dots_max // groups),
        counters_max=max(1, limits.counters_max // groups),
        placed_max=max(1, limits.placed_max // groups),
    )


def warnings(program: Program, key_groups: int) -> Iterator[str]:
    """Yield a warning for each pattern that runs in a single task, with a way to use several."""
    if key_groups == 1:
        if any(compiled.partition for compiled in program.compiled):
            yield "key_groups = 1: one task does all the work"
        return
    key = _job_key(program)
    for compiled in program.compiled:
        if not compiled.partition:
            why = f"{unsplittable_reason(compiled)}; without it,"
        elif _partition_key(compiled) != key:
            own, others = _key_name(_partition_key(compiled)), _key_name(key)
            why = f"is partitioned by {own}, but the job by {others}; unless it is a separate job,"
        else:
            continue
        yield f"{compiled.name} {why} one key group, and so one task, does all its work"


def findings_of_groups(families: Iterable[Family], groups: Iterable[Mapping[str, Any]]) -> Findings:
    """Return the findings `vacuous` and `unknown` of the patterns that have some.

    `groups` are the last figures of each group.
    """
    met = {figures["group"]: msgspec.convert(figures["met"], MetEvents) for figures in groups}
    out: Findings = {}
    for family in families:
        numbers = range(family.first, family.first + family.groups)
        parts = [met[number] for number in numbers if number in met]
        if parts:
            for what, lists in findings(family.program.compiled, MetEvents.sum(parts)).items():
                out.setdefault(what, {}).update(lists)
    return out
