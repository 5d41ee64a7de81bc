"""Several consumers of one job: whether they may share it, and the check of its keys.

Consumers share partition numbers: the one with number p reads partition p of every topic, and has
the state of the scopes in it. Their verdicts are those of one consumer if each scope is in one
number, which `[source] keyed_by` declares: the value of that attribute decides a message's
partition, in each topic alike. So each pattern must be partitioned by that attribute, alone or
among others, and must run in parts (`ketal.streaming.job.distribution`).

The one rule: a value in two partition numbers ends the job before anything of it is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.errors import SettingError
from ketal.model.events.event import Event
from ketal.model.values import Key, keyed
from ketal.programs.program import Program
from ketal.runtime.execution import Execution
from ketal.streaming.job.distribution import unfit
from ketal.streaming.job.file import Job


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
