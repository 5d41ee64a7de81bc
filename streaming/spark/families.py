"""Which key groups a program has on Spark, and which programs have none (DESIGN 7).

Patterns that are partitioned by the same attributes are a *family*: an event goes to one group of
each family, by the hash of its partition. A pattern that is not partitioned has one group for all
events. The groups of all families are numbered through; the number is the operator's key.

With `key_groups=1` there is nothing to divide: the whole program is one family of one group, which
is offered every event, holds the hold-back queue and all scopes. Any program runs that way.

The one rule: each group gives the answer that the whole would give, or the job does not start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ketal import pattern as syntax
from ketal.errors import SettingError
from ketal.limits import Limits
from ketal.monitor import refuse_unavailable
from ketal.program import Program
from ketal.streaming.distribution import unfit

KEY_GROUPS = 16
KEY_GROUPS_MAX = 32_768
"""So many are more than any cluster has tasks for, and Flink's most."""

Partition = tuple[syntax.Attribute | syntax.Field, ...]
"""What patterns are partitioned by; empty where all events are one scope."""


@dataclass(frozen=True)
class Family:
    """Patterns with one partition.

    Parameters
    ----------
    program : Program
        The patterns.
    partition : Partition
        What decides an event's group.
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
    """Return the families of a program, the one that sees all events first.

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
    by: dict[Partition, list[str]] = {}
    for compiled in program.compiled:
        why = unfit(compiled)
        if compiled.partition and why is not None:
            raise SettingError(
                f"pattern {compiled.name} cannot run in {key_groups} key groups: it {why}\n"
                "  hint: key_groups = 1 is one ordering stage: one group holds the hold-back queue "
                "and all scopes"
            )
        by.setdefault(tuple(compiled.pattern.partition), []).append(compiled.name)
    out: list[Family] = []
    first = 0
    for partition, names in sorted(by.items(), key=lambda item: bool(item[0])):
        groups = key_groups if partition else 1
        out.append(Family(_part(program, names), partition, first, groups))
        first += groups
    return tuple(out)


def _part(program: Program, names: list[str]) -> Program:
    compiled = tuple(c for c in program.compiled if c.name in names)
    return Program(compiled, program.file, ())


def shared(limits: Limits, groups: int) -> Limits:
    """Return the limits of one of so many groups, where a limit is about all events.

    A group sees its part of the counters of every node, so what it keeps of them would otherwise
    be multiplied by the number of groups, and so would the state that each batch writes.
    """
    return replace(
        limits,
        dots_max=max(1, limits.dots_max // groups),
        counters_max=max(1, limits.counters_max // groups),
    )


def warnings(program: Program, key_groups: int) -> Iterator[str]:
    """Yield which patterns will not use more than one task, and how they would."""
    if key_groups == 1:
        if any(compiled.partition for compiled in program.compiled):
            yield "key_groups = 1: one task does all the work"
        return
    for compiled in program.compiled:
        if not compiled.partition:
            yield (
                f"{compiled.name} {unfit(compiled)}; until then one key group, and so one task, "
                "does all its work"
            )
