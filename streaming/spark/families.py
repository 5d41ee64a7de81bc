"""Which key groups a program has on Spark, and which programs have none (DESIGN 7).

A program has one partition key on Spark: that of most of its patterns, of several the first by
name. The patterns that have it are a *family* of `key_groups` groups, of which an event goes to
one, by the hash of its partition. All others are a family of one group, which is offered every
event; it has number 0 and tells for all. The groups are numbered through, whatever the order of
the patterns in their file; the number is the operator's key, and part of the checkpoint.

With `key_groups=1` there is nothing to divide: the whole program is one family of one group, which
is offered every event, holds the hold-back queue and all scopes. Any program runs that way.

Whether an event is late by the watermark, or has no place in any topology, is decided in every
group for the patterns of all families. What a group cannot see is what happened in another one: two
events with one dot, and under `frontier` an event that was released and depends on a late one
(`ketal.streaming.job.distribution`); `docs/spark.md` says what follows.

The one rule: each group gives the answer that the whole would give, or the job does not start.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ketal.compiler.automaton import CompiledPattern
from ketal.errors import SettingError
from ketal.logs.shape import KAFKA, Shape
from ketal.logs.source import INCARNATION, Source
from ketal.model import syntax
from ketal.model.limits import Limits
from ketal.program import Program
from ketal.runtime.stream_release import refuse_unavailable
from ketal.streaming.job.distribution import unfit

KEY_GROUPS = 16
KEY_GROUPS_MAX = 32_768
"""So many are more than any cluster has tasks for, and Flink's most."""

HASHING = 3
"""How a partition becomes the number of a group, which is its key (`rows`); another way, another
number."""

Path = tuple[str, ...]
Partition = tuple[syntax.Attribute | syntax.Field, ...]
"""What patterns are partitioned by; empty where all events are one scope."""


@dataclass(frozen=True)
class Family:
    """Patterns that share their groups.

    Parameters
    ----------
    program : Program
        The patterns.
    partition : Partition
        What decides an event's group, in canonical order; empty where there is one group.
    first : int
        The number of its first group.
    groups : int
        How many it has.
    """

    program: Program
    partition: Partition
    first: int
    groups: int


def families(program: Program, key_groups: int) -> tuple[Family, ...]:
    """Return the families of a program: at most two, the one that sees all events first.

    Raises
    ------
    SettingError
        If a pattern cannot run in parts, or the number of groups is none.
    NotAvailableError
        If a pattern cannot run on a stream at all.
    """
    if not isinstance(key_groups, int) or isinstance(key_groups, bool):
        raise SettingError(f"key_groups must be an integer, not {key_groups!r}")
    if not 1 <= key_groups <= KEY_GROUPS_MAX:
        raise SettingError(f"key_groups must be 1 to {KEY_GROUPS_MAX}, not {key_groups}")
    for compiled in program.compiled:
        refuse_unavailable(compiled)
    if key_groups == 1:
        return (Family(program, (), 0, 1),)
    for compiled in program.compiled:
        why = unfit(compiled)
        if compiled.partition and why is not None:
            raise SettingError(
                f"pattern {compiled.name} cannot run in {key_groups} key groups: it {why}\n"
                "  hint: key_groups = 1 is one ordering stage: one group holds the hold-back queue "
                "and all scopes"
            )
    key = _job_key(program)
    shares = [compiled.name for compiled in program.compiled if key and _partition(compiled) == key]
    others = [compiled.name for compiled in program.compiled if compiled.name not in shares]
    out = [Family(_part(program, others), (), 0, 1)] if others else []
    if shares:
        out.append(Family(_part(program, shares), key, len(out), key_groups))
    return tuple(out)


def _partition(compiled: CompiledPattern) -> Partition:
    """Return what a pattern is partitioned by, in canonical order."""
    return tuple(sorted(compiled.pattern.partition, key=_named))


def _job_key(program: Program) -> Partition:
    """Return the partition of most patterns; empty where none is partitioned."""
    counts = Counter(filter(None, map(_partition, program.compiled)))
    return min(counts, key=lambda of: (-counts[of], *map(_named, of)), default=())


def _named(of: syntax.Attribute | syntax.Field) -> str:
    """Return what one part of a partition is called; what is called alike is the same."""
    if isinstance(of, syntax.Field):
        return of.name
    keys = [key if key.isidentifier() else json.dumps(key) for key in of.path]
    own = keys[0] in syntax.EVENT_FIELDS or len(keys) > 1
    return ".".join(("data", *keys) if own else keys)


def paths_of(of: syntax.Attribute | syntax.Field, paths: Mapping[str, Path]) -> tuple[Path, ...]:
    """Return where a part of a partition is in a message; the first that is there counts."""
    if isinstance(of, syntax.Field):
        return (paths[of.name],)
    if of.path == (INCARNATION,) and INCARNATION in paths:
        return (paths[INCARNATION],)
    data = paths.get("data")
    return (of.path,) if data is None or data[0] == KAFKA else ((*data, *of.path), of.path)


def by_key(partition: Partition, source: Source) -> syntax.Attribute | syntax.Field | None:
    """Return the part of a partition whose value messages are keyed by, if one is.

    Their key is hashed instead of the partition then.
    """
    for of in partition:
        if source.keyed_by == (of.name if isinstance(of, syntax.Field) else of.path[-1]):
            return of
    return None


def placement(found: Sequence[Family], source: Source) -> dict[str, str]:
    """Return what decides about the group of a message in each family that is partitioned.

    Together with the number of groups and `HASHING`. Where it changes, keys move to other groups,
    and what their old ones hold of them would be lost.
    """
    paths = Shape(source, kafka=True).paths
    out: dict[str, str] = {}
    for family in found:
        if family.partition:
            where = [" or ".join(map(_written, paths_of(of, paths))) for of in family.partition]
            keyed = by_key(family.partition, source) is not None
            names = ", ".join(map(_named, family.partition))
            out[names] = "the messages' key" if keyed else ", ".join(where)
    return out


def placed(found: Sequence[Family], source: Source | None) -> tuple[str, ...]:
    """Return in words, for each family, what decides to which of its groups a row goes.

    Parameters
    ----------
    found : sequence of Family
        The families.
    source : Source or None
        Where the fields of messages are; None for rows that have an event's columns.
    """
    where = {} if source is None else placement(found, source)
    out = []
    for family in found:
        names = ", ".join(map(_named, family.partition))
        by = where.get(names, f"the columns {names}")
        said = f"{family.groups} key groups by {by} (hashing {HASHING})"
        out.append(said if names else "one key group")
    return tuple(out)


def _written(path: Path) -> str:
    return ".".join(("kafka", *path[1:]) if path[0] == KAFKA else path)


def _part(program: Program, names: list[str]) -> Program:
    compiled = tuple(c for c in program.compiled if c.name in names)
    return Program(compiled, program.file, ())


def shared(limits: Limits, groups: int) -> Limits:
    """Return the limits of one of so many groups, where a limit is about all events.

    A group sees its part of the counters of every node, so what it keeps of them would otherwise
    be multiplied by the number of groups, and so would the state that each batch writes. Values of
    `keyed_by` are divided among the groups.
    """
    return replace(
        limits,
        dots_max=max(1, limits.dots_max // groups),
        counters_max=max(1, limits.counters_max // groups),
        placed_max=max(1, limits.placed_max // groups),
    )


def warnings(program: Program, key_groups: int) -> Iterator[str]:
    """Yield which patterns will not use more than one task, and how they would."""
    if key_groups == 1:
        if any(compiled.partition for compiled in program.compiled):
            yield "key_groups = 1: one task does all the work"
        return
    key = _job_key(program)
    for compiled in program.compiled:
        if not compiled.partition:
            why = f"{unfit(compiled)}; until then"
        elif _partition(compiled) != key:
            own, others = (", ".join(map(_named, of)) for of in (_partition(compiled), key))
            why = f"is partitioned by {own}, and the job by {others}; until it is a job of its own"
        else:
            continue
        yield f"{compiled.name} {why} one key group, and so one task, does all its work"
