"""The check whether a program may run in parts: on several consumers, or in Spark's key groups.

A part gets the events of some scopes only, so the counters of each node have holes there. A
hold-back queue would wait for ever for an event of another part, and the copy of a pattern at a
node would miss what its node learns from events of other parts. So a pattern may run in parts in
three cases: under `order arrival`; if its verdicts need no order (`find any` under CausalOrder
without `not` or a window of events); and under `frontier`, which waits for time and not for
counters. `gap` is refused, since it would declare the events of other parts lost; so is `limit`,
which counts the matches of all scopes.

Under `frontier` a part gives the verdicts that the whole would give, except about late events. An
event is late if an event that depends on it has been released already. A part does not see a
dependent event of another part, and so judges an event that the whole would report as late. That
concerns only events that are behind the watermark, or whose time is after that of an event that
depends on them.

Once a node has left, a part cannot restore the clocks that lack its entry from events of other
parts; it counts events whose clocks may be incomplete as doubtful. It sees no departure or restart
that only clocks in other parts show.

Several consumers divide the partition numbers: the consumer of number p reads partition p of every
topic, and has the state of the scopes in it. That each scope is in one partition number is declared
by `[source] keyed_by`: the value of that attribute decides the partition of a message, alike in all
topics. So each pattern must be partitioned by that attribute, alone or together with others; and a
value that is read in two partition numbers ends the job before any of its events is committed.

The one rule: a program runs in parts only if each part gives the verdicts that the whole would
give, as far as no event is doubtful and departures and restarts are announced; only which events
are late under `frontier` may differ.
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
from ketal.model.wording import counted
from ketal.operators.order.release_options import ReleaseOptions
from ketal.programs.program import Program
from ketal.runtime.execution import Execution
from ketal.streaming.job.file import Job


def unsplittable_reason(compiled: CompiledPattern) -> str | None:
    """Return why a pattern cannot run in parts, and what to choose instead; None if it can.

    The reason is a clause that continues the pattern's name, such as "is not partitioned: …".
    """
    pattern = compiled.pattern
    if not compiled.partition:
        return "is not partitioned: `partition by` an attribute gives each value a scope of its own"
    if pattern.deployment is not None:
        return (
            "runs at nodes, and the copy for a node needs all events in the node's past: only "
            "`partition by` without `at` can run in parts"
        )
    if pattern.limit is not None:
        return (
            f"lists the first {counted(pattern.limit, 'match', 'matches')} of all scopes, but a "
            "part knows only its own scopes: remove `limit`"
        )
    if ReleaseOptions.of(pattern.order).declares_lost:
        return (
            "treats an event that does not arrive within `gap` as lost, but a part sees counters "
            "with holes: remove `gap`"
        )
    if not compiled.causal or compiled.order_free or pattern.order.frontier is not None:
        return None
    clauses = ordered_clauses(pattern)
    why = f", because of {' and '.join(clauses)}" if pattern.strategy == "any" else ""
    return (
        f"waits for each node's counters{why}, but a part sees them with holes: choose `order "
        f"arrival`, `find any` without {' or '.join(clauses or ['`not`'])}, or `order "
        "CausalOrder(frontier = …)`"
    )


def uses_time(program: Program) -> bool:
    """Return whether a pattern uses watermarks: for a window, or an order that waits for time."""
    return any(
        compiled.window_us is not None or ReleaseOptions.of(compiled.pattern.order).expires
        for compiled in program.compiled
    )


def waits_for_ever(compiled: CompiledPattern) -> bool:
    """Return whether events wait without end for an event that never arrives.

    Those of a pattern that needs no order wait only once a node has left.
    """
    order = compiled.pattern.order
    return compiled.causal and order.frontier is None and not ReleaseOptions.of(order).declares_lost


def check_shareable(job: Job, program: Program) -> None:
    """Raise a SettingError if several consumers would give other verdicts than one consumer."""
    why = unshareable_reason(job, program) if job.is_shared else None
    if why is not None:
        raise SettingError(
            f'several consumers cannot share this job: {why}; or set `store = "dir:PATH"`, so that '
            "one consumer reads all partitions"
        )


def unshareable_reason(job: Job, program: Program) -> str | None:
    """Return why several consumers cannot share a job, and what to choose; None if they can."""
    for compiled in program.compiled:
        why = unsplittable_reason(compiled)
        if why is not None:
            return f"pattern {compiled.name} {why}"
        names = _partition_names(compiled)
        if job.keyed_by not in names:
            is_common = all(_partition_names(other) == names for other in program.compiled)
            remedy = (
                f"set keyed_by = {names[0]!r}"
                if is_common
                else "partition all patterns by the same attributes"
            )
            return (
                f"the topics are keyed by {job.keyed_by} ([source] keyed_by), but pattern "
                f"{compiled.name} is partitioned by {', '.join(names)}, so a scope would be in "
                f"several partitions: {remedy}"
            )
    return None


def _partition_names(compiled: CompiledPattern) -> list[str]:
    return [name for name, _ in compiled.partition]


class PartitionCheck:
    """Checks that each value of `keyed_by` is in one partition number.

    Notes
    -----
    It records the values that this process has read, and those of the live scopes of the parts that
    this process has opened; beyond `placed_max` values it evicts the oldest.
    """

    def __init__(self, job: Job, program: Program) -> None:
        assert job.keyed_by is not None
        self._name = job.keyed_by
        self._read: Callable[[Event], Any] = dict(program.compiled[0].partition)[job.keyed_by]
        self._max = job.limits.placed_max
        self._numbers: dict[Key, int] = {}

    def check(self, items: Sequence[Any], number: int, place: Callable[[int], str]) -> None:
        """Check that the values of events were read in no other partition number; record `number`.

        `place` returns where the item at an index was read. Items that are not events are skipped.

        Raises a SettingError if a value was read in a partition of another number before.
        """
        values = (self._read(item) if isinstance(item, Event) else None for item in items)
        self._record(map(keyed, values), number, place)

    def check_restored(self, execution: Execution, number: int) -> None:
        """Check the values of the live scopes of a restored part, as `check` does for events."""
        scopes = (scope for run in execution.runs for scope in run.scopes.by_name.values())
        keys = (keyed(dict(scope.key).get(self._name)) for scope in scopes)
        self._record(keys, number, lambda _: f"the saved state of part {number}")

    def _record(self, keys: Iterable[Key | None], number: int, place: Callable[[int], str]) -> None:
        """Record the partition number of values; evict the oldest beyond `placed_max`."""
        numbers = self._numbers
        for index, key in enumerate(keys):
            if key is not None and numbers.setdefault(key, number) != number:
                raise SettingError(
                    f"{place(index)}: the scope {self._name} = {key[1]!r} is in partition {number} "
                    f"and in partition {numbers[key]}: the topics are not keyed by {self._name}; "
                    'use it as the key of every message, or set `store = "dir:PATH"`, so that one '
                    "consumer reads all partitions"
                )
        for key in list(islice(numbers, max(0, len(numbers) - self._max))):
            del numbers[key]
