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

Several consumers share partition numbers: the one with number p reads partition p of every topic,
and has the state of the scopes in it. That each scope is in one number is what `[source] keyed_by`
declares: the value of that attribute decides a message's partition, in each topic alike. So each
pattern must be partitioned by that attribute, alone or among others, too; and a value in two
partition numbers ends the job before anything of it is committed.

The one rule: a program runs in parts only if each part gives the verdicts that the whole would
give; only which events are late under `frontier` may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from ketal.compiler.commutation import ordered_clauses
from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.errors import SettingError
from ketal.model.events.event import Event
from ketal.model.values import Key, keyed
from ketal.programs.program import Program
from ketal.runtime.execution import Execution
from ketal.streaming.job.file import Job


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


def check_shared(job: Job, program: Program) -> None:
    """Raise a SettingError if several consumers of a job would give other verdicts than one."""
    why = not_shared(job, program) if job.is_shared else None
    if why is not None:
        raise SettingError(
            f'several consumers: {why}, or `store = "dir:PATH"`: one consumer reads all partitions'
        )


def not_shared(job: Job, program: Program) -> str | None:
    """Return why several consumers cannot share a job, and what to choose; None if they can."""
    for compiled in program.compiled:
        why = unfit(compiled)
        if why is not None:
            return f"pattern {compiled.name} {why}"
        names = _partition(compiled)
        if job.keyed_by not in names:
            is_common = all(_partition(other) == names for other in program.compiled)
            choose = f"keyed_by = {names[0]!r}" if is_common else "patterns partitioned alike"
            return (
                f"the topics are keyed by {job.keyed_by} ([source] keyed_by), and pattern "
                f"{compiled.name} is partitioned by {', '.join(names)}, so that one scope would be "
                f"in several partitions: choose {choose}"
            )
    return None


def _partition(compiled: CompiledPattern) -> list[str]:
    return [name for name, _ in compiled.partition]


class Watch:
    """Checks that each value of `keyed_by` is in one partition number.

    Notes
    -----
    It has the values that this process has read, and those of live scopes in the parts that it has
    opened; of more than `placed_max` the oldest are evicted.
    """

    def __init__(self, job: Job, program: Program) -> None:
        assert job.keyed_by is not None
        self._name = job.keyed_by
        self._read: Callable[[Event], Any] = dict(program.compiled[0].partition)[job.keyed_by]
        self._max = job.limits.placed_max
        self._numbers: dict[Key, int] = {}

    def check(self, items: Sequence[Any], number: int, place: Callable[[int], str]) -> None:
        """Check that the values of events were in no other partition number; record this one.

        `place` returns where the item of an index was read; what is no event is passed over.

        Raises
        ------
        SettingError
            If the value of one was seen in a partition of another number.
        """
        values = (self._read(item) if isinstance(item, Event) else None for item in items)
        self._record(map(keyed, values), number, place)

    def restored(self, execution: Execution, number: int) -> None:
        """Check the live scopes of a part that was restored, as `check` does."""
        scopes = (scope for run in execution.runs for scope in run.scopes.values())
        keys = (keyed(dict(scope.key).get(self._name)) for scope in scopes)
        self._record(keys, number, lambda _: f"the saved state of part {number}")

    def _record(self, keys: Iterable[Key | None], number: int, place: Callable[[int], str]) -> None:
        """Record the partition number of values; evict the oldest beyond `placed_max`."""
        numbers = self._numbers
        for at, key in enumerate(keys):
            if key is not None and numbers.setdefault(key, number) != number:
                raise SettingError(
                    f"{place(at)}: the scope {self._name} = {key[1]!r} is in partition {number} "
                    f"and in partition {numbers[key]}: the topics are not keyed by {self._name}; "
                    'have the producers key them so, or choose `store = "dir:PATH"`, with which '
                    "one consumer reads all partitions"
                )
        for key in list(islice(numbers, max(0, len(numbers) - self._max))):
            del numbers[key]
